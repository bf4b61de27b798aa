//! Which blocks every way to a block leads through.
//!
//! # Approach
//! Lengauer and Tarjan's algorithm with path compression ("A Fast Algorithm for Finding Dominators in a Flowgraph",
//! 1979): O(e log n) steps for e edges and n blocks, whoever wrote the code. The iteration of Cooper, Harvey and Kennedy is as
//! fast on most code and shorter, but on hostile code takes e × n steps. A root above all entries makes it one tree.
//! # Properties
//! - **Right**: as by leaving out each block in turn. -> test `as_by_leaving_out_each_block`
//! - **Near-linear** -> test `near_linear_on_ladders`

use super::budget::Budget;
use super::flow::{Block, BlockIdx};

/// The tree of dominators of the blocks that can be reached.
pub(super) struct Dominators {
    /// When a traversal of the tree enters and leaves each block; both 0 for what is never reached.
    span: Vec<(usize, usize)>,
}

/// Steps for one block, and for one look at an edge or at a block's ancestor: measured on ladders of 10^5 jumps.
const STEPS_A_BLOCK: u64 = 60;
pub(super) const STEPS_A_LOOK: u64 = 5;

/// The root's number: that of its blocks are behind it.
const ROOT: usize = 0;

impl Dominators {
    /// Of what can be reached from `entries`; `None` if over budget.
    pub(super) fn of(blocks: &[Block], entries: &[BlockIdx], budget: &mut Budget) -> Option<Self> {
        budget.spend_each(blocks.len(), STEPS_A_BLOCK)?;
        let tree = Traversal::of(blocks, entries);
        let parent = Search::of(&tree, blocks, entries).parents(budget)?;
        let mut span = vec![(0, 0); blocks.len()];
        // In the order of numbers parents come before their children, so sizes add up backwards.
        let mut size = vec![1; parent.len()];
        for number in (ROOT + 1..parent.len()).rev() {
            size[parent[number]] += size[number];
        }
        let mut begin = vec![1; parent.len()];
        let mut free = begin.clone();
        for number in ROOT + 1..parent.len() {
            begin[number] = free[parent[number]] + 1;
            free[parent[number]] += size[number];
            free[number] = begin[number];
            span[tree.block[number]] = (begin[number], begin[number] + size[number] - 1);
        }
        Some(Self { span })
    }

    /// Whether every way to `below` leads through `above`, both of which can be reached.
    pub(super) fn dominates(&self, above: BlockIdx, below: BlockIdx) -> bool {
        let (first, last) = self.span[above];
        (first..=last).contains(&self.span[below].0)
    }

    /// A block's place in a traversal of the tree: behind those of all that dominate it.
    pub(super) fn place(&self, block: BlockIdx) -> usize {
        self.span[block].0
    }
}

/// A traversal of the blocks in depth first, which numbers them from 1.
struct Traversal {
    /// The block of each number; that of the root is none.
    block: Vec<BlockIdx>,
    /// The number of each block; the root's if it is never reached.
    number: Vec<usize>,
    /// The number that each number was reached from.
    from: Vec<usize>,
}

impl Traversal {
    fn of(blocks: &[Block], entries: &[BlockIdx]) -> Self {
        let mut found =
            Self { block: vec![usize::MAX], number: vec![ROOT; blocks.len()], from: vec![ROOT] };
        let mut path: Vec<(usize, usize)> = Vec::new();
        for entry in entries {
            found.visit(*entry, ROOT, &mut path);
            while let Some((number, place)) = path.last_mut() {
                let (from, next) = (*number, blocks[found.block[*number]].next.get(*place));
                *place += 1;
                match next {
                    Some(next) => found.visit(*next, from, &mut path),
                    None => drop(path.pop()),
                }
            }
        }
        found
    }

    fn visit(&mut self, block: BlockIdx, from: usize, path: &mut Vec<(usize, usize)>) {
        if self.number[block] == ROOT {
            self.number[block] = self.block.len();
            path.push((self.block.len(), 0));
            self.block.push(block);
            self.from.push(from);
        }
    }
}

/// What the algorithm knows, by numbers of the traversal.
struct Search<'a> {
    tree: &'a Traversal,
    blocks: &'a [Block],
    is_entry: Vec<bool>,
    /// The lowest number from which a way leads here whose other numbers are all higher than this one.
    semi: Vec<usize>,
    /// An ancestor in the forest built so far; none for its roots.
    ancestor: Vec<Option<usize>>,
    /// The one of least `semi` between here and the ancestor, without that.
    label: Vec<usize>,
}

impl<'a> Search<'a> {
    fn of(tree: &'a Traversal, blocks: &'a [Block], entries: &[BlockIdx]) -> Self {
        let count = tree.block.len();
        let mut is_entry = vec![false; count];
        entries.iter().for_each(|entry| is_entry[tree.number[*entry]] = true);
        let all: Vec<usize> = (0..count).collect();
        Self { tree, blocks, is_entry, semi: all.clone(), ancestor: vec![None; count], label: all }
    }

    /// The immediate dominator of each number.
    fn parents(mut self, budget: &mut Budget) -> Option<Vec<usize>> {
        let count = self.tree.block.len();
        let mut parent = vec![ROOT; count];
        // Those whose semidominator this is and whose dominator is not yet known, as lists through `next`.
        let (mut first, mut next) = (vec![ROOT; count], vec![ROOT; count]);
        for number in (ROOT + 1..count).rev() {
            let before = &self.blocks[self.tree.block[number]].before;
            budget.spend_each(before.len() + 1, STEPS_A_LOOK)?;
            if self.is_entry[number] {
                self.semi[number] = ROOT;
            }
            for before in before {
                let best = self.best(self.tree.number[*before], budget)?;
                self.semi[number] = self.semi[number].min(self.semi[best]);
            }
            let semi = self.semi[number];
            next[number] = std::mem::replace(&mut first[semi], number);
            let from = self.tree.from[number];
            self.ancestor[number] = Some(from);
            let mut waiting = std::mem::replace(&mut first[from], ROOT);
            while waiting != ROOT {
                let best = self.best(waiting, budget)?;
                let is_lower = self.semi[best] < self.semi[waiting];
                parent[waiting] = if is_lower { best } else { from };
                waiting = next[waiting];
            }
        }
        for number in ROOT + 1..count {
            if parent[number] != self.semi[number] {
                parent[number] = parent[parent[number]];
            }
        }
        Some(parent)
    }

    /// The number of least `semi` on the way up from `number`, without the root of its tree. Shortens that way.
    fn best(&mut self, number: usize, budget: &mut Budget) -> Option<usize> {
        let mut path = Vec::new();
        let mut here = number;
        while let Some(above) = self.ancestor[here]
            && self.ancestor[above].is_some()
        {
            path.push(here);
            here = above;
        }
        budget.spend_each(path.len() + 1, STEPS_A_LOOK)?;
        for below in path.into_iter().rev() {
            let Some(above) = self.ancestor[below] else { continue };
            if self.semi[self.label[above]] < self.semi[self.label[below]] {
                self.label[below] = self.label[above];
            }
            self.ancestor[below] = self.ancestor[above];
        }
        Some(self.label[number])
    }
}
