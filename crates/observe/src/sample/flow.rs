//! Control flow of one function: basic blocks and loops.
//!
//! # Approach
//! Loops are found as by Havlak ("Nesting of Reducible and Irreducible Loops", 1997), also those that are entered at
//! several places, which compilers make of loops that wait: from one traversal in depth first, headers from the last one
//! to the first, each loop as one block of those around it. For code whose loops have one entry each, these are the natural
//! loops. It takes near-linear time by Ramalingam ("Identifying Loops in Almost Linear Time", 1999): an edge between blocks
//! of which none was reached by way of the other matters from the loop of their nearest common ancestor on.
//! # Properties
//! - **As by definition**: a loop is a strongly connected part, its header the block of it that is reached first, and the
//!   loops inside it are those of the part without its header. -> test `as_by_connected_parts`
//! - **Near-linear** -> test `near_linear_on_ladders`

use super::budget::Budget;
use colocate_isa::{ClassCounts, Decoded, Flow};
use std::collections::BTreeSet;
use std::ops::Range;

/// A place in [`Graph::blocks`].
pub type BlockIdx = usize;
/// A place in [`Graph::loops`].
pub type LoopIdx = usize;

/// Instructions that run one after the other, entered only at the first and left only at the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Address of its first instruction.
    pub start: u64,
    /// Address after its last instruction.
    pub end: u64,
    /// Its instructions.
    pub counts: ClassCounts,
    /// Blocks that may run next.
    pub next: Vec<BlockIdx>,
    /// Blocks that it may run after.
    pub before: Vec<BlockIdx>,
    /// Whether the function may be left after it.
    pub leaves: bool,
    /// The innermost loop that it is in; `None` if it is in none.
    pub innermost: Option<LoopIdx>,
}

/// A loop: a header and everything that is reached after it and leads back to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The block through which it is entered, that which is reached first if there are several.
    pub header: BlockIdx,
    /// It and the loops inside it, which lie behind it.
    pub inside: Range<LoopIdx>,
    /// Where its blocks are in [`Graph::members`].
    body: Range<usize>,
}

/// The control flow of a stretch of code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// In the order of addresses.
    pub blocks: Vec<Block>,
    /// Each before those inside it, and these before all others.
    pub loops: Vec<Loop>,
    /// The blocks in loops, those with the same innermost one together and in the order of loops, so that each loop's are
    /// in one piece: lists of their own would grow with the square of how deep loops are nested.
    members: Vec<BlockIdx>,
    /// Blocks through which control comes in.
    pub entries: Vec<BlockIdx>,
    /// The blocks that can be reached, each before those behind it except where a loop goes back.
    pub order: Vec<BlockIdx>,
}

impl Graph {
    /// The control flow of `code`, which is sorted by address and entered at its first instruction;
    /// `seen` says which of its instructions are known to run.
    ///
    /// Calls are taken to come back. A jump through a register or memory is taken to lead to every
    /// block that nothing else leads to, as the cases of a `switch` are. Other such blocks are
    /// padding, or else entered from elsewhere: only if they were seen running.
    ///
    /// `None` if the code has more than [`MOST_BLOCKS`] or `budget` ends. What is paid grows with the code as n × log n.
    #[must_use]
    pub fn of(code: &[Decoded], seen: &BTreeSet<u64>, budget: &mut Budget) -> Option<Self> {
        budget.spend_each(code.len(), STEPS_AN_INSTRUCTION)?;
        let mut graph = Self { blocks: blocks(code)?, ..Self::default() };
        budget.spend_each(graph.blocks.len(), STEPS_A_BLOCK)?;
        connect(&mut graph.blocks, code);
        let edges: usize = graph.blocks.iter().map(|block| block.next.len()).sum();
        budget.spend_each(edges, STEPS_AN_EDGE)?;
        let descent = graph.enter(seen);
        graph.find_loops(&descent, budget)?;
        Some(graph)
    }

    /// The blocks of a loop, those of loops inside it too.
    #[must_use]
    pub fn body(&self, of: LoopIdx) -> &[BlockIdx] {
        &self.members[self.loops[of].body.clone()]
    }

    /// Whether a block is in a loop, or in one inside it.
    #[must_use]
    pub fn is_inside(&self, block: BlockIdx, of: LoopIdx) -> bool {
        self.blocks[block].innermost.is_some_and(|inner| self.loops[of].inside.contains(&inner))
    }

    /// The block that holds the instruction at `address`.
    #[must_use]
    pub fn block_at(&self, address: u64) -> Option<BlockIdx> {
        let after = self.blocks.partition_point(|block| block.start <= address);
        let place = after.checked_sub(1)?;
        (address < self.blocks[place].end).then_some(place)
    }

    /// Finds the entries and the order, and cuts off what is never reached.
    fn enter(&mut self, seen: &BTreeSet<u64>) -> Descent {
        let count = self.blocks.len();
        let mut descent = Descent::of(count);
        let runs = |block: &Block| seen.range(block.start..block.end).next().is_some();
        for block in 0..count {
            let is_first = self.blocks[block].before.is_empty() && runs(&self.blocks[block]);
            if block == 0 || (!descent.has(block) && is_first) {
                self.entries.push(block);
                descent.follow(&self.blocks, block, &mut self.order);
            }
        }
        // Loops that only code elsewhere jumps into.
        for block in 0..count {
            if !descent.has(block) && runs(&self.blocks[block]) {
                self.entries.push(block);
                descent.follow(&self.blocks, block, &mut self.order);
            }
        }
        self.order.reverse();
        for block in &mut self.blocks {
            block.before.retain(|before| descent.has(*before));
        }
        descent
    }
}

/// Most blocks of one function, some 60 MB of them. Chosen: a function of 10^5 jumps has twice as many, and the largest of
/// Debian 12's CPython and node is below 200 KiB.
pub const MOST_BLOCKS: usize = 1 << 18;

/// Steps for an instruction with its decoding, and for a block and an edge in all that is done here: measured on
/// functions of 10^5 jumps.
pub const STEPS_AN_INSTRUCTION: u64 = 60;
const STEPS_A_BLOCK: u64 = 200;
const STEPS_AN_EDGE: u64 = 60;

/// Most edges from jumps through registers that are guessed in one function. Chosen: CPython's
/// interpreter loop has some 200 such jumps and 200 targets.
const MOST_GUESSED_EDGES: usize = 100_000;

/// Cuts `code` at every jump and at every place that one leads to; `None` with more than [`MOST_BLOCKS`].
fn blocks(code: &[Decoded]) -> Option<Vec<Block>> {
    let targets: BTreeSet<u64> = code.iter().filter_map(|i| i.flow.jump_target()).collect();
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for instruction in code {
        let begins = !open
            || targets.contains(&instruction.ip)
            || blocks.last().is_none_or(|block| block.end != instruction.ip);
        if begins && blocks.len() >= MOST_BLOCKS {
            return None;
        }
        if begins {
            blocks.push(Block {
                start: instruction.ip,
                end: instruction.ip,
                counts: ClassCounts::default(),
                next: Vec::new(),
                before: Vec::new(),
                leaves: false,
                innermost: None,
            });
        }
        if let Some(block) = blocks.last_mut() {
            block.end = instruction.next_ip();
            block.counts.count(instruction.classes);
        }
        open = matches!(instruction.flow, Flow::Next | Flow::Call { .. } | Flow::IndirectCall);
    }
    Some(blocks)
}

/// Adds the edges.
fn connect(blocks: &mut [Block], code: &[Decoded]) {
    let at = |blocks: &[Block], address: u64| {
        blocks.binary_search_by_key(&address, |block| block.start).ok()
    };
    let mut indirect = Vec::new();
    let mut last = 0;
    for place in 0..blocks.len() {
        last += code[last..].partition_point(|instruction| instruction.ip < blocks[place].end);
        let Some(end) = last.checked_sub(1).map(|last| code[last]) else { continue };
        let inside = |to: u64| at(blocks, to);
        let target = end.flow.jump_target().and_then(inside);
        let fall = end.flow.falls_through().then(|| inside(end.next_ip())).flatten();
        // A jump to another function is a call in disguise.
        let away = end.flow.jump_target().is_some() && target.is_none();
        let on = fall.is_some() || matches!(end.flow, Flow::Jump { .. } | Flow::IndirectJump);
        blocks[place].leaves = away || !on;
        if end.flow == Flow::IndirectJump {
            indirect.push(place);
        }
        for next in target.into_iter().chain(fall.filter(|fall| Some(*fall) != target)) {
            blocks[place].next.push(next);
            blocks[next].before.push(place);
        }
    }
    let orphan = |b: &BlockIdx| blocks[*b].before.is_empty() && does_work(&blocks[*b]);
    let orphans: Vec<BlockIdx> = (1..blocks.len()).filter(orphan).collect();
    // With very many of both, such as in all of a file's linkage stubs under one name, they do not
    // belong together.
    if orphans.len().saturating_mul(indirect.len()) > MOST_GUESSED_EDGES {
        indirect.iter().for_each(|from| blocks[*from].leaves = true);
        return;
    }
    for from in indirect {
        blocks[from].leaves |= orphans.is_empty();
        for to in &orphans {
            blocks[from].next.push(*to);
            blocks[*to].before.push(from);
        }
    }
}

/// Whether a block is more than padding.
fn does_work(block: &Block) -> bool {
    block.counts.of.iter().any(|count| *count > 0)
}

/// A traversal of the blocks in depth first, which makes them trees.
struct Descent {
    /// When each block was met; `None` for what is never reached.
    number: Vec<Option<usize>>,
    /// When the last of those was met that were reached by way of it; `None` before it is left.
    last: Vec<Option<usize>>,
    /// The blocks as they were met.
    met: Vec<BlockIdx>,
    /// Leads from each block that is left to its nearest ancestor that is not, if there is one, by way of others.
    above: Vec<BlockIdx>,
    /// By block: the edges, but those of the tree and those that lead back, whose nearest common ancestor it is.
    across: Vec<Vec<(BlockIdx, BlockIdx)>>,
}

impl Descent {
    fn of(blocks: usize) -> Self {
        Self {
            number: vec![None; blocks],
            last: vec![None; blocks],
            met: Vec::new(),
            above: (0..blocks).collect(),
            across: vec![Vec::new(); blocks],
        }
    }

    fn has(&self, block: BlockIdx) -> bool {
        self.number[block].is_some()
    }

    /// Whether `below` is `above`, or was reached by way of it. Both are reached.
    fn is_below(&self, below: BlockIdx, above: BlockIdx) -> bool {
        self.number[above] <= self.number[below] && self.number[below] <= self.last[above]
    }

    fn meet(&mut self, block: BlockIdx) {
        self.number[block] = Some(self.met.len());
        self.met.push(block);
    }

    /// Goes on from `entry`, and adds what is reached to `after`, each block after those that lie behind it.
    fn follow(&mut self, blocks: &[Block], entry: BlockIdx, after: &mut Vec<BlockIdx>) {
        self.meet(entry);
        let mut path = vec![(entry, 0)];
        while let Some((block, place)) = path.last_mut() {
            let (block, successor) = (*block, blocks[*block].next.get(*place).copied());
            *place += 1;
            match successor {
                Some(next) if !self.has(next) => {
                    self.meet(next);
                    path.push((next, 0));
                }
                Some(next) => self.cross(block, next),
                None => {
                    self.last[block] = self.met.len().checked_sub(1);
                    after.push(block);
                    path.pop();
                    self.above[block] = path.last().map_or(block, |(above, _)| *above);
                }
            }
        }
    }

    /// Notes an edge to a block that was met before, unless it is not left yet, so that the edge leads back to it, or in a
    /// tree that is. Halves the way up (Tarjan).
    fn cross(&mut self, from: BlockIdx, to: BlockIdx) {
        let mut above = to;
        while self.above[above] != above {
            self.above[above] = self.above[self.above[above]];
            above = self.above[above];
        }
        if above != to && self.last[above].is_none() {
            self.across[above].push((from, to));
        }
    }
}

/// Steps for one visit of an edge or of the loop around a block.
const STEPS_A_LOOK: u64 = 5;

/// Loops while they are found: those inside others first.
#[derive(Default)]
struct Nest {
    headers: Vec<BlockIdx>,
    /// The loop right around each.
    around: Vec<Option<usize>>,
    /// The loop right around each block, if one is found; a header's is the one that it is the header of.
    of_block: Vec<Option<usize>>,
    /// Leads from each block to the header of the outermost loop found around it, by way of others.
    outermost: Vec<BlockIdx>,
    /// By header of an outermost loop, or block in none: where edges come from that lead across to it.
    across: Vec<Vec<BlockIdx>>,
}

impl Nest {
    /// The header of the outermost loop around `block`, or the block itself. Halves the way there.
    fn outermost(&mut self, mut block: BlockIdx, budget: &mut Budget) -> Option<BlockIdx> {
        while self.outermost[block] != block {
            budget.spend(STEPS_A_LOOK)?;
            self.outermost[block] = self.outermost[self.outermost[block]];
            block = self.outermost[block];
        }
        Some(block)
    }

    /// Adds the loop of this header that `rest` leads back to it. All loops inside it are known.
    fn add(
        &mut self,
        header: BlockIdx,
        mut rest: Vec<BlockIdx>,
        (blocks, descent): (&[Block], &Descent),
        budget: &mut Budget,
    ) -> Option<()> {
        let new = self.headers.len();
        while let Some(block) = rest.pop() {
            let part = self.outermost(block, budget)?;
            if part == header {
                continue;
            }
            match self.of_block[part] {
                Some(inner) => self.around[inner] = Some(new),
                None => self.of_block[part] = Some(new),
            }
            self.outermost[part] = header;
            let across = std::mem::take(&mut self.across[part]);
            budget.spend_each(blocks[part].before.len() + across.len(), STEPS_A_LOOK)?;
            let before = blocks[part].before.iter().copied();
            rest.extend(before.filter(|before| descent.is_below(*before, header)).chain(across));
        }
        self.of_block[header] = Some(new);
        self.headers.push(header);
        self.around.push(None);
        Some(())
    }

    /// For each loop, how many are inside it with itself, and its place when outer ones come first.
    fn places(&self) -> (Vec<usize>, Vec<LoopIdx>) {
        let mut size = vec![1; self.headers.len()];
        for (inner, around) in self.around.iter().enumerate() {
            if let Some(around) = around {
                size[*around] += size[inner];
            }
        }
        let mut place = vec![0; size.len()];
        let (mut free, mut end) = (place.clone(), 0);
        for inner in (0..size.len()).rev() {
            let next = self.around[inner].map_or(&mut end, |around| &mut free[around]);
            place[inner] = *next;
            *next += size[inner];
            free[inner] = place[inner] + 1;
        }
        (size, place)
    }
}

impl Graph {
    /// Finds the loops, one for each header. Two of them are apart, or one is inside the other.
    fn find_loops(&mut self, descent: &Descent, budget: &mut Budget) -> Option<()> {
        let mut nest = Nest {
            of_block: vec![None; self.blocks.len()],
            outermost: (0..self.blocks.len()).collect(),
            across: vec![Vec::new(); self.blocks.len()],
            ..Nest::default()
        };
        // Headers inside a loop are met after its own.
        for &header in descent.met.iter().rev() {
            for (from, to) in &descent.across[header] {
                let part = nest.outermost(*to, budget)?;
                nest.across[part].push(*from);
            }
            let before = self.blocks[header].before.iter().copied();
            let back: Vec<BlockIdx> =
                before.filter(|from| descent.is_below(*from, header)).collect();
            if !back.is_empty() {
                nest.add(header, back, (&self.blocks, descent), budget)?;
            }
        }
        let (size, place) = nest.places();
        for (block, of) in self.blocks.iter_mut().zip(&nest.of_block) {
            block.innermost = of.map(|of| place[of]);
        }
        self.members = (0..self.blocks.len()).filter(|b| nest.of_block[*b].is_some()).collect();
        let innermost = |block: &BlockIdx| self.blocks[*block].innermost;
        self.members.sort_by_key(innermost);
        let mut order: Vec<usize> = (0..place.len()).collect();
        order.sort_unstable_by_key(|found| place[*found]);
        let before = |end: LoopIdx| self.members.partition_point(|b| innermost(b) < Some(end));
        let one = |found: usize| {
            let inside = place[found]..place[found] + size[found];
            let body = before(inside.start)..before(inside.end);
            Loop { header: nest.headers[found], inside, body }
        };
        self.loops = order.into_iter().map(one).collect();
        Some(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use colocate_isa::{Class, ClassSet};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Code of four-byte instructions from address 0, one word each: `.` plain, `n` padding,
    /// `r` return, `*` jump through a register, `c9` conditional to instruction 9, `j9` jump to it.
    pub(in crate::sample) fn code(words: &str) -> Vec<Decoded> {
        let instruction = |(at, word): (u64, &str)| {
            let target = || 4 * word[1..].parse::<u64>().unwrap();
            let flow = match &word[..1] {
                "c" => Flow::Conditional { target: target() },
                "j" => Flow::Jump { target: target() },
                "r" => Flow::Return,
                "*" => Flow::IndirectJump,
                _ => Flow::Next,
            };
            let classes = match word {
                "n" => ClassSet::NONE,
                "." => Class::Int.into(),
                _ => Class::Branch.into(),
            };
            Decoded { ip: 4 * at, len: 4, classes, flow }
        };
        (0..).zip(words.split(' ')).map(instruction).collect()
    }

    /// More steps than any test takes.
    pub(crate) const PLENTY: u64 = 1 << 40;

    fn graph_of(code: &[Decoded], seen: &BTreeSet<u64>) -> Graph {
        Graph::of(code, seen, &mut Budget::of(PLENTY)).unwrap()
    }

    pub(crate) fn graph(words: &str) -> Graph {
        graph_of(&code(words), &BTreeSet::new())
    }

    /// The first instruction of each block, of the innermost loop that it is in.
    fn headers(graph: &Graph) -> Vec<Option<u64>> {
        let header = |found: LoopIdx| graph.blocks[graph.loops[found].header].start / 4;
        graph.blocks.iter().map(|block| block.innermost.map(header)).collect()
    }

    #[test]
    fn blocks_end_where_control_may_turn() {
        //                 0 1 2  3 4
        let graph = graph(". . c4 . r");
        let ends: Vec<(u64, u64)> = graph.blocks.iter().map(|b| (b.start / 4, b.end / 4)).collect();
        assert_eq!(ends, [(0, 3), (3, 4), (4, 5)]);
        assert_eq!(graph.blocks[0].next, [2, 1]);
        assert_eq!(graph.blocks[2].before, [0, 1]);
        assert!(graph.blocks[2].leaves && !graph.blocks[1].leaves);
        assert_eq!(graph.block_at(13), Some(1));
        assert_eq!(graph.block_at(20), None);
    }

    #[test]
    fn the_innermost_of_nested_loops() {
        // Outer loop 1 ..= 5 around inner loop 2 ..= 3.
        //                 0 1 2 3  4 5  6
        let graph = graph(". . . c2 . c1 r");
        assert_eq!(headers(&graph), [None, Some(1), Some(2), Some(1), None]);
        assert_eq!(graph.loops.len(), 2);
    }

    /// As GCC lays out `while (!flag) pause();`, entered at its test and, where that was true once, behind it.
    #[test]
    fn a_loop_that_is_entered_at_two_places() {
        //                 0  1 2 3  4
        let graph = graph("c3 . . c1 r");
        assert_eq!(headers(&graph), [None, Some(3), Some(3), None]);
    }

    #[test]
    fn padding_before_a_loop_is_no_entry() {
        // Instruction 2 is padding that nothing leads to, right before the loop's head.
        //                 0 1  2 3 4  5
        let graph = graph(". j3 n . c3 r");
        assert_eq!(headers(&graph), [None, None, Some(3), None]);
        assert_eq!(graph.entries, [0]);
    }

    #[test]
    fn code_that_is_entered_from_elsewhere_counts_once_it_was_seen() {
        let words = ". r . c2 r";
        assert_eq!(graph(words).entries, [0]);
        let seen = graph_of(&code(words), &BTreeSet::from([8]));
        assert_eq!(seen.entries, [0, 1]);
        assert_eq!(headers(&seen), [None, Some(2), None]);
    }

    #[test]
    fn a_switch_leads_to_its_cases() {
        // Instruction 1 jumps to the cases 2 and 4 through a table; both go back to 0.
        let graph = graph(". * . j0 . j0 n r");
        assert_eq!(graph.blocks[0].next, [1, 2, 3]);
        assert_eq!(headers(&graph)[..3], [Some(0), Some(0), Some(0)]);
    }

    #[test]
    fn a_jump_away_leaves() {
        let graph = graph("c99 . j77");
        assert!(graph.blocks[0].leaves && graph.blocks[1].leaves);
    }

    /// Blocks among `part` that can be reached from `from` in one step or more.
    fn reached(graph: &Graph, from: BlockIdx, part: &BTreeSet<BlockIdx>) -> BTreeSet<BlockIdx> {
        let (mut rest, mut found) = (vec![from], BTreeSet::new());
        while let Some(block) = rest.pop() {
            let next = graph.blocks[block].next.iter().copied().filter(|next| part.contains(next));
            rest.extend(next.filter(|next| found.insert(*next)));
        }
        found
    }

    /// When each block is met, depth first.
    fn numbers(graph: &Graph) -> BTreeMap<BlockIdx, usize> {
        fn visit(graph: &Graph, block: BlockIdx, numbers: &mut BTreeMap<BlockIdx, usize>) {
            if !numbers.contains_key(&block) {
                numbers.insert(block, numbers.len());
                graph.blocks[block].next.iter().for_each(|next| visit(graph, *next, numbers));
            }
        }
        let mut numbers = BTreeMap::new();
        graph.entries.iter().for_each(|entry| visit(graph, *entry, &mut numbers));
        numbers
    }

    /// The loops of a part by their headers, as the definition has it.
    fn loops_by_definition(
        graph: &Graph,
        part: &BTreeSet<BlockIdx>,
        numbers: &BTreeMap<BlockIdx, usize>,
    ) -> BTreeMap<BlockIdx, BTreeSet<BlockIdx>> {
        let from: BTreeMap<BlockIdx, BTreeSet<BlockIdx>> =
            part.iter().map(|block| (*block, reached(graph, *block, part))).collect();
        let mut loops = BTreeMap::new();
        for (block, reached) in &from {
            let connected: BTreeSet<BlockIdx> =
                reached.iter().copied().filter(|other| from[other].contains(block)).collect();
            let header = connected.iter().copied().min_by_key(|block| numbers[block]);
            if let Some(header) = header.filter(|header| header == block) {
                let inside = connected.iter().copied().filter(|block| *block != header).collect();
                loops.extend(loops_by_definition(graph, &inside, numbers));
                loops.insert(header, connected);
            }
        }
        loops
    }

    fn word() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => (0..30_u8).prop_map(|to| format!("c{to}")),
            2 => (0..30_u8).prop_map(|to| format!("j{to}")),
            2 => Just(".".to_owned()),
            1 => Just("n".to_owned()),
            1 => Just("r".to_owned()),
            1 => Just("*".to_owned()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn as_by_connected_parts(
            words in prop::collection::vec(word(), 1..30),
            seen in prop::collection::btree_set(0..30_u64, 0..4),
        ) {
            let seen = seen.into_iter().map(|at| 4 * at).collect();
            let graph = graph_of(&code(&words.join(" ")), &seen);
            let numbers = numbers(&graph);
            let all: BTreeSet<BlockIdx> = numbers.keys().copied().collect();
            prop_assert_eq!(&all, &graph.order.iter().copied().collect());
            let expected = loops_by_definition(&graph, &all, &numbers);
            let bodies: BTreeMap<BlockIdx, BTreeSet<BlockIdx>> = (0..graph.loops.len())
                .map(|of| (graph.loops[of].header, graph.body(of).iter().copied().collect()))
                .collect();
            prop_assert_eq!(&bodies, &expected);
            for block in 0..graph.blocks.len() {
                let around = expected.iter().filter(|(_, body)| body.contains(&block));
                let innermost = around.min_by_key(|(_, body)| body.len()).map(|(header, _)| *header);
                let header = |of: LoopIdx| graph.loops[of].header;
                prop_assert_eq!(graph.blocks[block].innermost.map(header), innermost);
                for of in 0..graph.loops.len() {
                    prop_assert_eq!(graph.is_inside(block, of), bodies[&header(of)].contains(&block));
                }
            }
        }
    }

    /// Functions of `jumps` conditional jumps, chosen so that simple ways take the square of that.
    fn hostile(jumps: u64) -> [(&'static str, Vec<Decoded>); 4] {
        let jump = |at: u64, target: u64| Decoded {
            ip: 4 * at,
            len: 4,
            classes: Class::Branch.into(),
            flow: Flow::Conditional { target: 4 * target },
        };
        let all = |target: &dyn Fn(u64) -> u64| (0..jumps).map(|at| jump(at, target(at))).collect();
        [
            // Loops inside of loops: jump n - i goes back to i.
            ("nested", all(&|at| if at < jumps / 2 { at + 1 } else { jumps - at })),
            // Each jump back changes what dominates all that lies before it, once more.
            (
                "ladder",
                all(&|at| if at % 2 == 0 { jumps - 1 - at / 2 } else { at.saturating_sub(2) }),
            ),
            // Each block leads to the next and to the last, which leads back to the first.
            ("fan", all(&|at| if at + 1 == jumps { 0 } else { jumps - 1 })),
            ("random", all(&|at| (at.wrapping_mul(6_364_136_223_846_793_005) >> 20) % jumps)),
        ]
    }

    /// Ten times the code takes some ten times the steps, and all of it less than a function may.
    #[test]
    fn near_linear_on_ladders() {
        let steps = |code: &[Decoded]| {
            let mut budget = Budget::of(PLENTY);
            let graph = Graph::of(code, &BTreeSet::new(), &mut budget).unwrap();
            assert!(graph.blocks.len() + 1 >= code.len());
            PLENTY - budget.left()
        };
        let [few, many] = [10_000, 100_000].map(|jumps| hostile(jumps).map(|(_, c)| steps(&c)));
        for (place, (name, _)) in hostile(2).iter().enumerate() {
            assert!(many[place] < 15 * few[place], "{name}: {} {}", few[place], many[place]);
            assert!(many[place] < 100_000_000, "{name}: {}", many[place]);
        }
    }

    /// More blocks than are visited, and a budget that ends in the midst.
    #[test]
    fn what_is_over_budget_has_no_graph() {
        let (_, nested) = &hostile(2 * MOST_BLOCKS as u64)[0];
        let mut budget = Budget::of(PLENTY);
        assert_eq!(Graph::of(nested, &BTreeSet::new(), &mut budget), None);
        let part = &nested[..1_000];
        let mut budget = Budget::of(PLENTY);
        Graph::of(part, &BTreeSet::new(), &mut budget).unwrap();
        for share in 1..20 {
            let mut less = Budget::of((PLENTY - budget.left()) * share / 20);
            assert_eq!(Graph::of(part, &BTreeSet::new(), &mut less), None);
        }
    }

    #[test]
    fn nothing_at_all() {
        assert_eq!(graph_of(&[], &BTreeSet::new()), Graph::default());
    }
}
