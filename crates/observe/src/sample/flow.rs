//! Control flow of one function: basic blocks, loops, and which blocks run equally often.

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
    /// The innermost loop that it is in; `None` if it is in none.
    pub innermost: Option<LoopIdx>,
    /// Blocks with the same number run equally often: each passes control to the other, sooner or
    /// later, and both are in the same innermost loop.
    pub rank: usize,
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
}

impl Graph {
    /// The control flow of `code`, which is sorted by address and entered at its first instruction.
    ///
    /// Calls are taken to come back. A jump through a register or memory is taken to lead to every
    /// block that nothing else leads to, as the cases of a `switch` are.
    #[must_use]
    pub fn of(code: &[Decoded]) -> Self {
        let mut blocks = blocks(code);
        connect(&mut blocks, code);
        let ends = Ends::of(&blocks);
        let forward = Dominators::of(blocks.len(), &ends.entries, |b| &blocks[b].next);
        let backward = Dominators::of(blocks.len(), &ends.exits, |b| &blocks[b].before);
        let loops = loops(&blocks, &forward);
        for (place, found) in loops.iter().enumerate().rev() {
            for block in &found.body {
                blocks[*block].innermost = Some(place);
            }
        }
        rank(&mut blocks, &forward, &backward);
        Self { blocks, loops }
    }

    /// The block that holds the instruction at `address`.
    #[must_use]
    pub fn block_at(&self, address: u64) -> Option<BlockIdx> {
        let after = self.blocks.partition_point(|block| block.start <= address);
        let place = after.checked_sub(1)?;
        (address < self.blocks[place].end).then_some(place)
    }
}

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
                innermost: None,
                rank: 0,
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
        let target = end.flow.jump_target().and_then(|target| at(blocks, target));
        let fall = end.flow.falls_through().then(|| at(blocks, end.next_ip())).flatten();
        if end.flow == Flow::IndirectJump {
            indirect.push(place);
        }
        for next in target.into_iter().chain(fall.filter(|fall| Some(*fall) != target)) {
            blocks[place].next.push(next);
            blocks[next].before.push(place);
        }
    }
    let orphans: Vec<BlockIdx> =
        (1..blocks.len()).filter(|b| blocks[*b].before.is_empty()).collect();
    for from in indirect {
        for to in &orphans {
            blocks[from].next.push(*to);
            blocks[*to].before.push(from);
        }
    }
}

/// Where control comes in and goes out: enough blocks to reach all others from.
struct Ends {
    entries: Vec<BlockIdx>,
    exits: Vec<BlockIdx>,
}

impl Ends {
    fn of(blocks: &[Block]) -> Self {
        let no_way_in = (0..blocks.len()).filter(|b| *b == 0 || blocks[*b].before.is_empty());
        let no_way_on = (0..blocks.len()).filter(|b| blocks[*b].next.is_empty());
        Self {
            entries: covering(blocks.len(), no_way_in.collect(), |b| &blocks[b].next),
            exits: covering(blocks.len(), no_way_on.collect(), |b| &blocks[b].before),
        }
    }
}

/// `roots` and, for what cannot be reached from them, the first blocks of the rest.
fn covering<'a>(
    count: usize,
    mut roots: Vec<BlockIdx>,
    next: impl Fn(BlockIdx) -> &'a [BlockIdx],
) -> Vec<BlockIdx> {
    let mut seen = vec![false; count];
    let mut rest = roots.clone();
    let mut candidate = 0;
    loop {
        while let Some(block) = rest.pop() {
            if !std::mem::replace(&mut seen[block], true) {
                rest.extend(next(block));
            }
        }
        while candidate < count && seen[candidate] {
            candidate += 1;
        }
        if candidate == count {
            return roots;
        }
        roots.push(candidate);
        rest.push(candidate);
    }
}

/// The tree of immediate dominators, by the iteration of Cooper, Harvey and Kennedy ("A Simple,
/// Fast Dominance Algorithm", 2001). A root above all entries makes it one tree.
struct Dominators {
    /// Of each block; `count` stands for the root.
    parent: Vec<usize>,
    /// When the walk over the tree enters and leaves each block.
    span: Vec<(usize, usize)>,
}

impl Dominators {
    fn of<'a>(
        count: usize,
        entries: &[BlockIdx],
        next: impl Fn(BlockIdx) -> &'a [BlockIdx],
    ) -> Self {
        let order = post_order(count, entries, &next);
        let mut number = vec![0; count + 1];
        for (place, block) in order.iter().enumerate() {
            number[*block] = place;
        }
        number[count] = count;
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); count];
        for block in 0..count {
            for after in next(block) {
                before[*after].push(block);
            }
        }
        for entry in entries {
            before[*entry].push(count);
        }
        let parent = Self::parents(count, &order, &number, &before);
        let span = spans(count, &parent);
        Self { parent, span }
    }

    fn parents(
        count: usize,
        order: &[usize],
        number: &[usize],
        before: &[Vec<usize>],
    ) -> Vec<usize> {
        const UNKNOWN: usize = usize::MAX;
        let mut parent = vec![UNKNOWN; count + 1];
        parent[count] = count;
        let mut changed = true;
        while changed {
            changed = false;
            for block in order.iter().rev() {
                let known = before[*block].iter().filter(|b| parent[**b] != UNKNOWN).copied();
                let meet = known.reduce(|mut a, mut b| {
                    while a != b {
                        if number[a] < number[b] {
                            a = parent[a];
                        } else {
                            b = parent[b];
                        }
                    }
                    a
                });
                let meet = meet.unwrap_or(count);
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

/// The blocks, each after those that a walk from `entries` finds behind it.
fn post_order<'a>(
    count: usize,
    entries: &[BlockIdx],
    next: &impl Fn(BlockIdx) -> &'a [BlockIdx],
) -> Vec<BlockIdx> {
    let mut order = Vec::with_capacity(count);
    let mut seen = vec![false; count];
    for entry in entries {
        let mut path =
            if std::mem::replace(&mut seen[*entry], true) { vec![] } else { vec![(*entry, 0)] };
        while let Some((block, place)) = path.last_mut() {
            let (block, successor) = (*block, next(*block).get(*place).copied());
            *place += 1;
            match successor {
                Some(after) if !std::mem::replace(&mut seen[after], true) => path.push((after, 0)),
                Some(_) => {}
                None => {
                    order.push(block);
                    path.pop();
                }
            }
        }
    }
    order
}

/// When a walk over the tree enters and leaves each node; the root is node `count`.
fn spans(count: usize, parent: &[usize]) -> Vec<(usize, usize)> {
    let mut children = vec![Vec::new(); count + 1];
    for block in 0..count {
        children[parent[block]].push(block);
    }
    let mut span = vec![(0, 0); count + 1];
    let mut clock = 0;
    let mut path = vec![(count, 0)];
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

/// Gives blocks that run equally often the same rank.
fn rank(blocks: &mut [Block], forward: &Dominators, backward: &Dominators) {
    for block in 0..blocks.len() {
        // Blocks that run equally often lie on one branch of the dominator tree, so looking at the
        // nearest one above that is in the same loop is enough.
        let mut above = forward.parent[block];
        while above < blocks.len() && blocks[above].innermost != blocks[block].innermost {
            above = forward.parent[above];
        }
        blocks[block].rank = block;
        if above < blocks.len() && backward.dominates(block, above) {
            blocks[block].rank = above;
        }
    }
    // Ranks now name the block above; follow them to the topmost one.
    for block in 0..blocks.len() {
        let mut top = block;
        while blocks[top].rank != top {
            top = blocks[top].rank;
        }
        blocks[block].rank = top;
    }
}
