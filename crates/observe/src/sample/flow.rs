//! Control flow of one function: basic blocks and loops.

use colocate_isa::{ClassCounts, Decoded, Flow};
use std::collections::BTreeSet;

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

/// A natural loop: a header and everything that leads back to it without leaving through it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The block through which it is entered.
    pub header: BlockIdx,
    /// All its blocks, those of inner loops too.
    pub body: BTreeSet<BlockIdx>,
}

/// The control flow of a stretch of code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// In the order of addresses.
    pub blocks: Vec<Block>,
    /// Smaller ones first.
    pub loops: Vec<Loop>,
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
    #[must_use]
    pub fn of(code: &[Decoded], seen: &BTreeSet<u64>) -> Self {
        let mut graph = Self { blocks: blocks(code), ..Self::default() };
        connect(&mut graph.blocks, code);
        graph.enter(seen);
        let dominators = Dominators::of(&graph);
        graph.loops = loops(&graph.blocks, &dominators);
        for (place, found) in graph.loops.iter().enumerate().rev() {
            for block in &found.body {
                graph.blocks[*block].innermost = Some(place);
            }
        }
        graph
    }

    /// The block that holds the instruction at `address`.
    #[must_use]
    pub fn block_at(&self, address: u64) -> Option<BlockIdx> {
        let after = self.blocks.partition_point(|block| block.start <= address);
        let place = after.checked_sub(1)?;
        (address < self.blocks[place].end).then_some(place)
    }

    /// Finds the entries and the order, and cuts off what is never reached.
    fn enter(&mut self, seen: &BTreeSet<u64>) {
        let mut reached = vec![false; self.blocks.len()];
        let mut walk = Vec::new();
        for block in 0..self.blocks.len() {
            let runs =
                || seen.range(self.blocks[block].start..self.blocks[block].end).next().is_some();
            if block == 0 || (!reached[block] && self.blocks[block].before.is_empty() && runs()) {
                self.entries.push(block);
                post_order(&self.blocks, block, &mut reached, &mut walk);
            }
        }
        // Loops that only code elsewhere jumps into.
        for block in 0..self.blocks.len() {
            let mut inside = seen.range(self.blocks[block].start..self.blocks[block].end);
            if !reached[block] && inside.next().is_some() {
                self.entries.push(block);
                post_order(&self.blocks, block, &mut reached, &mut walk);
            }
        }
        walk.reverse();
        self.order = walk;
        for block in &mut self.blocks {
            block.before.retain(|before| reached[*before]);
        }
    }
}

/// Most edges from jumps through registers that are guessed in one function. Chosen: CPython's
/// interpreter loop has some 200 such jumps and 200 targets.
const MOST_GUESSED_EDGES: usize = 100_000;

/// Cuts `code` at every jump and at every place that one leads to.
fn blocks(code: &[Decoded]) -> Vec<Block> {
    let targets: BTreeSet<u64> = code.iter().filter_map(|i| i.flow.jump_target()).collect();
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for instruction in code {
        let begins = !open
            || targets.contains(&instruction.ip)
            || blocks.last().is_none_or(|block| block.end != instruction.ip);
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
    blocks
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

/// Adds what can be reached from `entry` to `walk`, each block after those that lie behind it.
fn post_order(blocks: &[Block], entry: BlockIdx, reached: &mut [bool], walk: &mut Vec<BlockIdx>) {
    reached[entry] = true;
    let mut path = vec![(entry, 0)];
    while let Some((block, place)) = path.last_mut() {
        let (block, successor) = (*block, blocks[*block].next.get(*place).copied());
        *place += 1;
        match successor {
            Some(after) if !std::mem::replace(&mut reached[after], true) => path.push((after, 0)),
            Some(_) => {}
            None => {
                walk.push(block);
                path.pop();
            }
        }
    }
}

/// Which blocks every way to a block leads through, by the iteration of Cooper, Harvey and Kennedy
/// ("A Simple, Fast Dominance Algorithm", 2001). A root above all entries makes it one tree.
struct Dominators {
    /// When a walk over the tree enters and leaves each block; both 0 for what is never reached.
    span: Vec<(usize, usize)>,
}

impl Dominators {
    fn of(graph: &Graph) -> Self {
        let parent = Self::parents(graph);
        Self { span: spans(&parent) }
    }

    /// The immediate dominator of each block; the number of blocks stands for the root.
    fn parents(graph: &Graph) -> Vec<Option<usize>> {
        let root = graph.blocks.len();
        let mut place = vec![0; root + 1];
        for (at, block) in graph.order.iter().enumerate() {
            place[*block] = at + 1;
        }
        let mut parent = vec![None; root + 1];
        parent[root] = Some(root);
        let mut changed = true;
        while changed {
            changed = false;
            for block in &graph.order {
                let entry = graph.entries.contains(block).then_some(root);
                let before = graph.blocks[*block].before.iter().copied().chain(entry);
                let known = before.filter(|before| parent[*before].is_some());
                let meet = known.reduce(|mut a, mut b| {
                    while a != b {
                        let deeper = if place[a] > place[b] { &mut a } else { &mut b };
                        *deeper = parent[*deeper].unwrap_or(root);
                    }
                    a
                });
                changed |= std::mem::replace(&mut parent[*block], meet) != meet;
            }
        }
        parent
    }

    /// Whether every way to `below` leads through `above`.
    fn dominates(&self, above: BlockIdx, below: BlockIdx) -> bool {
        self.span[above].0 <= self.span[below].0 && self.span[below].1 <= self.span[above].1
    }
}

/// When a walk over the tree enters and leaves each node; the root is the last one.
fn spans(parent: &[Option<usize>]) -> Vec<(usize, usize)> {
    let root = parent.len() - 1;
    let mut children = vec![Vec::new(); parent.len()];
    for (block, parent) in parent.iter().enumerate().take(root) {
        if let Some(parent) = parent {
            children[*parent].push(block);
        }
    }
    let mut span = vec![(0, 0); parent.len()];
    let mut clock = 0;
    let mut path = vec![(root, 0)];
    while let Some((node, place)) = path.last_mut() {
        clock += 1;
        let node = *node;
        if *place == 0 {
            span[node].0 = clock;
        }
        match children[node].get(*place).copied() {
            Some(child) => {
                *place += 1;
                path.push((child, 0));
            }
            None => {
                span[node].1 = clock;
                path.pop();
            }
        }
    }
    span
}

/// Natural loops, one for each header, smaller ones first.
fn loops(blocks: &[Block], dominators: &Dominators) -> Vec<Loop> {
    let mut loops = Vec::new();
    for header in 0..blocks.len() {
        let backs =
            blocks[header].before.iter().filter(|from| dominators.dominates(header, **from));
        let mut rest: Vec<BlockIdx> = backs.copied().collect();
        if rest.is_empty() {
            continue;
        }
        let mut body = BTreeSet::from([header]);
        while let Some(block) = rest.pop() {
            if body.insert(block) {
                rest.extend(&blocks[block].before);
            }
        }
        loops.push(Loop { header, body });
    }
    loops.sort_by_key(|found| found.body.len());
    loops
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use colocate_isa::{Class, ClassSet};

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

    pub(crate) fn graph(words: &str) -> Graph {
        Graph::of(&code(words), &BTreeSet::new())
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
        let seen = Graph::of(&code(words), &BTreeSet::from([8]));
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

    #[test]
    fn nothing_at_all() {
        assert_eq!(Graph::of(&[], &BTreeSet::new()), Graph::default());
    }
}
