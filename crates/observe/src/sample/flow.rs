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

use super::budget::StepBudget;
use colocate_isa::{ClassCounts, Decoded, Flow};
use std::collections::BTreeSet;
use std::ops::Range;

/// Index into [`Graph::blocks`].
pub type BlockIdx = usize;
/// Index into [`Graph::loops`].
pub type LoopIdx = usize;

/// Basic block: consecutive instructions, entered only at the first and left only at the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicBlock {
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
    pub blocks: Vec<BasicBlock>,
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
    pub fn of(code: &[Decoded], seen: &BTreeSet<u64>, budget: &mut StepBudget) -> Option<Self> {
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

/// Budget per instruction decoded, and per block and edge: measured on functions of 10^5 jumps.
pub const STEPS_AN_INSTRUCTION: u64 = 60;
const STEPS_A_BLOCK: u64 = 200;
const STEPS_AN_EDGE: u64 = 60;

/// Limit of the guessed edges from indirect jumps in a function. Chosen: CPython's interpreter loop
/// has some 200 such jumps and 200 targets.
const MOST_GUESSED_EDGES: usize = 100_000;

/// Whether an instruction of the block was seen running.
fn ran(block: &BasicBlock, seen: &BTreeSet<u64>) -> bool {
    seen.range(block.start..block.end).next().is_some()
}
/// Cuts `code` after every jump and before every jump target; `None` beyond [`MOST_BLOCKS`].
fn blocks(code: &[Decoded]) -> Option<Vec<BasicBlock>> {
    let targets: BTreeSet<u64> = code.iter().filter_map(|i| i.flow.jump_target()).collect();
    let mut blocks: Vec<BasicBlock> = Vec::new();
    let mut open = false;
    for instruction in code {
        let begins = !open
            || targets.contains(&instruction.ip)
            || blocks.last().is_none_or(|block| block.end != instruction.ip);
        if begins && blocks.len() >= MOST_BLOCKS {
            return None;
        }
        if begins {
            blocks.push(BasicBlock {
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
fn connect(blocks: &mut [BasicBlock], code: &[Decoded]) {
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
        // A jump to the next instruction has one successor, not two.
        for next in target.into_iter().chain(fall.filter(|fall| Some(*fall) != target)) {
            blocks[place].next.push(next);
            blocks[next].before.push(place);
        }
    }
    // The first block is the entry, and needs no predecessor.
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
fn block_from(blocks: &[BasicBlock], address: u64) -> Option<BlockIdx> {
    blocks.binary_search_by_key(&address, |block| block.start).ok()
}
/// Whether a block is more than padding.
fn does_work(block: &BasicBlock) -> bool {
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
    fn follow(&mut self, blocks: &[BasicBlock], entry: BlockIdx, after: &mut Vec<BlockIdx>) {
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
    fn outermost(&mut self, mut block: BlockIdx, budget: &mut StepBudget) -> Option<BlockIdx> {
        while self.outermost[block] != block {
            budget.spend(STEPS_A_LOOK)?;
            self.outermost[block] = self.outermost[self.outermost[block]];
            block = self.outermost[block];
        }
        Some(block)
    }

    /// Adds the loop of `header`, with known inner loops; `rest` are sources of its back edges.
    fn add(
        &mut self,
        header: BlockIdx,
        mut rest: Vec<BlockIdx>,
        (blocks, descent): (&[BasicBlock], &Descent),
        budget: &mut StepBudget,
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
        // Inner loops have lower numbers than the loops around them.
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
    fn find_loops(&mut self, descent: &Descent, budget: &mut StepBudget) -> Option<()> {
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
pub(crate) mod tests;
