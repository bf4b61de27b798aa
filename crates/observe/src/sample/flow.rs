//! Control flow of a function: basic blocks and loops.
//!
//! # Approach
//! Loops are found by Havlak's algorithm ("Nesting of Reducible and Irreducible Loops", 1997),
//! including loops with several entries, which compilers make of spin loops. After one depth-first
//! traversal, headers are processed from last to first, and each loop becomes one block of the
//! loops around it. For code whose loops have one entry each, these are the natural loops.
//! Near-linear time by Ramalingam ("Identifying Loops in Almost Linear Time", 1999): a cross edge
//! takes effect at the loop of the nearest common ancestor of its blocks.
//! # Properties
//! - **As by definition**: a loop is a strongly connected component, its header the block reached
//!   first, and its inner loops are those of the component without the header.
//!   -> test `as_by_connected_parts`
//! - **Near-linear** -> test `near_linear_on_ladders`

use super::budget::Budget;
use colocate_isa::{ClassCounts, Decoded, Flow};
use std::collections::BTreeSet;
use std::ops::Range;

/// Index into [`Graph::blocks`].
pub type BlockIdx = usize;
/// Index into [`Graph::loops`].
pub type LoopIdx = usize;

/// Basic block: consecutive instructions, entered only at the first and left only at the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// Address after the last instruction.
    pub end: u64,
    /// Instructions by class.
    pub counts: ClassCounts,
    /// Successors.
    pub next: Vec<BlockIdx>,
    /// Predecessors.
    pub before: Vec<BlockIdx>,
    /// Whether the function may be left after this block.
    pub leaves: bool,
    /// Innermost loop around the block; `None` outside of loops.
    pub innermost: Option<LoopIdx>,
}

/// Loop: a header, and all blocks that are reached after the header and lead back to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Entry block; the block reached first if there are several entries.
    pub header: BlockIdx,
    /// This loop and its inner loops, which follow it.
    pub inside: Range<LoopIdx>,
    /// Range of the loop's blocks in [`Graph::members`].
    body: Range<usize>,
}

/// Control-flow graph of a function or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Blocks in the order of addresses.
    pub blocks: Vec<Block>,
    /// Loops; each before its inner loops, and these before all others.
    pub loops: Vec<Loop>,
    /// Blocks in loops, sorted by innermost loop, so each loop's blocks are contiguous. A list per
    /// loop would grow with the square of the nesting depth.
    members: Vec<BlockIdx>,
    /// Blocks where control enters.
    pub entries: Vec<BlockIdx>,
    /// Reachable blocks in reverse postorder: each before its successors, except along back edges.
    pub order: Vec<BlockIdx>,
}

impl Graph {
    /// Graph of `code`, which is sorted by address and entered at its first instruction; `seen` are
    /// addresses of instructions known to run.
    ///
    /// Calls are taken to return. A jump through a register or memory is taken to lead to every
    /// block without another predecessor, as the cases of a `switch` are. Other blocks without a
    /// predecessor are padding, or entries if they were seen running.
    ///
    /// `None` if the code has more than [`MOST_BLOCKS`] or `budget` is spent. The cost grows as n ×
    /// log n.
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

    /// Blocks of a loop, those of its inner loops included.
    #[must_use]
    pub fn body(&self, of: LoopIdx) -> &[BlockIdx] {
        &self.members[self.loops[of].body.clone()]
    }

    /// Whether a block is in a loop or in an inner loop of the loop.
    #[must_use]
    pub fn is_inside(&self, block: BlockIdx, of: LoopIdx) -> bool {
        self.blocks[block].innermost.is_some_and(|inner| self.loops[of].inside.contains(&inner))
    }

    /// Block around the instruction at `address`.
    #[must_use]
    pub fn block_at(&self, address: u64) -> Option<BlockIdx> {
        let after = self.blocks.partition_point(|block| block.start <= address);
        let place = after.checked_sub(1)?;
        (address < self.blocks[place].end).then_some(place)
    }

    /// Finds entries and order, and removes unreachable predecessors.
    fn enter(&mut self, seen: &BTreeSet<u64>) -> Descent {
        let count = self.blocks.len();
        let mut descent = Descent::of(count);
        for block in 0..count {
            let is_first = self.blocks[block].before.is_empty() && ran(&self.blocks[block], seen);
            if block == 0 || (!descent.has(block) && is_first) {
                self.entries.push(block);
                descent.follow(&self.blocks, block, &mut self.order);
            }
        }
        // Loops entered only from other code.
        for block in 0..count {
            if !descent.has(block) && ran(&self.blocks[block], seen) {
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

/// Limit of a function's blocks, some 60 MB. Chosen: a function of 10^5 jumps has twice as many,
/// and the largest function of Debian 12's CPython and node is below 200 KiB.
pub const MOST_BLOCKS: usize = 1 << 18;

/// Budget per instruction with its decoding, and per block and edge: measured on functions of 10^5
/// jumps.
pub const STEPS_AN_INSTRUCTION: u64 = 60;
const STEPS_A_BLOCK: u64 = 200;
const STEPS_AN_EDGE: u64 = 60;

/// Limit of the guessed edges from indirect jumps in a function. Chosen: CPython's interpreter loop
/// has some 200 such jumps and 200 targets.
const MOST_GUESSED_EDGES: usize = 100_000;

/// Whether an instruction of the block was seen running.
fn ran(block: &Block, seen: &BTreeSet<u64>) -> bool {
    seen.range(block.start..block.end).next().is_some()
}
/// Cuts `code` after every jump and before every jump target; `None` beyond [`MOST_BLOCKS`].
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
        // Calls return, so they end no block.
        open = matches!(instruction.flow, Flow::Next | Flow::Call { .. } | Flow::IndirectCall);
    }
    Some(blocks)
}

/// Adds the edges.
fn connect(blocks: &mut [Block], code: &[Decoded]) {
    let mut indirect = Vec::new();
    let mut last = 0;
    for place in 0..blocks.len() {
        last += code[last..].partition_point(|instruction| instruction.ip < blocks[place].end);
        let Some(end) = last.checked_sub(1).map(|last| code[last]) else { continue };
        let target = end.flow.jump_target().and_then(|to| block_from(blocks, to));
        let fall = end.flow.falls_through().then(|| block_from(blocks, end.next_ip())).flatten();
        // A jump out of the function is a tail call.
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
    let orphans = (1..blocks.len()).filter(|block| {
        let block = &blocks[*block];
        block.before.is_empty() && does_work(block)
    });
    let orphans: Vec<BlockIdx> = orphans.collect();
    // Very many of both are unrelated, as in a file's linkage stubs under one name.
    if orphans.len().saturating_mul(indirect.len()) > MOST_GUESSED_EDGES {
        indirect.iter().for_each(|from| blocks[*from].leaves = true);
        return;
    }
    for from in indirect {
        // An indirect jump without a possible target in the function is a tail call.
        blocks[from].leaves |= orphans.is_empty();
        for to in &orphans {
            blocks[from].next.push(*to);
            blocks[*to].before.push(from);
        }
    }
}

/// Block that starts at `address`.
fn block_from(blocks: &[Block], address: u64) -> Option<BlockIdx> {
    blocks.binary_search_by_key(&address, |block| block.start).ok()
}
/// Whether a block is more than padding.
fn does_work(block: &Block) -> bool {
    block.counts.of.iter().any(|count| *count > 0)
}

/// Depth-first spanning forest of the blocks.
struct Descent {
    /// Preorder number of each block; `None` if unreachable.
    number: Vec<Option<usize>>,
    /// Largest preorder number in the subtree of each block; `None` until the block is finished.
    last: Vec<Option<usize>>,
    /// Blocks in preorder.
    met: Vec<BlockIdx>,
    /// Path of each finished block to its nearest unfinished ancestor, with path halving.
    above: Vec<BlockIdx>,
    /// For each block, the cross and forward edges whose nearest common ancestor it is.
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

    /// Whether `below` is in the subtree of `above`. Both are reached.
    fn is_below(&self, below: BlockIdx, above: BlockIdx) -> bool {
        self.number[above] <= self.number[below] && self.number[below] <= self.last[above]
    }

    fn meet(&mut self, block: BlockIdx) {
        self.number[block] = Some(self.met.len());
        self.met.push(block);
    }

    /// Traverses from `entry`; appends finished blocks to `after` (postorder).
    fn follow(&mut self, blocks: &[Block], entry: BlockIdx, after: &mut Vec<BlockIdx>) {
        self.meet(entry);
        let mut path = vec![(entry, 0)];
        while let Some((block, place)) = path.last_mut() {
            let block = *block;
            let successor = blocks[block].next.get(*place).copied();
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

    /// Records an edge to a visited block at their nearest common ancestor. Back edges and edges
    /// between trees are dropped. Path halving (Tarjan).
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

/// Budget per visit of an edge, or of the loop around a block.
const STEPS_A_LOOK: u64 = 5;

/// Loops under construction, inner loops first.
#[derive(Default)]
struct Nest {
    headers: Vec<BlockIdx>,
    /// Loop directly around each loop.
    around: Vec<Option<usize>>,
    /// Loop directly around each block; for a header, its own loop.
    of_block: Vec<Option<usize>>,
    /// Path of each block to the header of the outermost loop found around it, with path halving.
    outermost: Vec<BlockIdx>,
    /// For each outermost header or block outside of loops, the sources of cross edges to it.
    across: Vec<Vec<BlockIdx>>,
}

impl Nest {
    /// Header of the outermost loop around `block`, or `block` itself. Halves the path.
    fn outermost(&mut self, mut block: BlockIdx, budget: &mut Budget) -> Option<BlockIdx> {
        while self.outermost[block] != block {
            budget.spend(STEPS_A_LOOK)?;
            self.outermost[block] = self.outermost[self.outermost[block]];
            block = self.outermost[block];
        }
        Some(block)
    }

    /// Adds the loop of `header`; `rest` are the sources of its back edges. All inner loops are
    /// known.
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

    /// Size of each loop (itself and its inner loops), and its index with outer loops first.
    fn places(&self) -> (Vec<usize>, Vec<LoopIdx>) {
        let mut size = vec![1; self.headers.len()];
        for (inner, around) in self.around.iter().enumerate() {
            if let Some(around) = around {
                size[*around] += size[inner];
            }
        }
        let mut place = vec![0; size.len()];
        let mut free = place.clone();
        let mut end = 0;
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
    /// Finds the loops, one per header. Two loops are disjoint or nested.
    fn find_loops(&mut self, descent: &Descent, budget: &mut Budget) -> Option<()> {
        let mut nest = Nest {
            of_block: vec![None; self.blocks.len()],
            outermost: (0..self.blocks.len()).collect(),
            across: vec![Vec::new(); self.blocks.len()],
            ..Nest::default()
        };
        // Headers of inner loops are visited after the outer header.
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
        self.members.sort_by_key(|block| self.blocks[*block].innermost);
        let mut order: Vec<usize> = (0..place.len()).collect();
        order.sort_unstable_by_key(|found| place[*found]);
        let loops = order.into_iter().map(|found| {
            let inside = place[found]..place[found] + size[found];
            let body = self.members_before(inside.start)..self.members_before(inside.end);
            Loop { header: nest.headers[found], inside, body }
        });
        self.loops = loops.collect();
        Some(())
    }

    /// Number of members whose innermost loop comes before `end`.
    fn members_before(&self, end: LoopIdx) -> usize {
        self.members.partition_point(|block| self.blocks[*block].innermost < Some(end))
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
