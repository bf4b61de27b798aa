//! What the final prices prove.

use super::{NONE, Search};

/// All vertices, those of a blossom side by side, and where each node's are.
struct Layout {
    order: Vec<usize>,
    /// Per node: its first and the end of its vertices in `order`.
    range: Vec<(usize, usize)>,
}

impl Search<'_> {
    pub(in crate::matching) fn mates(&self) -> &[usize] {
        &self.mate
    }

    /// The blossoms around a vertex, inside out.
    pub(super) fn around(&self, vertex: usize) -> impl Iterator<Item = usize> {
        let parent = |node: usize| Some(self.parent[node]).filter(|&parent| parent != NONE);
        std::iter::successors(parent(vertex), move |&node| parent(node))
    }

    pub(super) fn price_of(&self, blossom: usize) -> i64 {
        self.blossoms[blossom - self.n].price
    }

    /// The prices of the vertices alone, lowered so that no pair has a negative slack, and the pairs
    /// that had.
    pub(in crate::matching) fn checked_prices(&self) -> (Vec<i64>, Vec<(usize, usize)>) {
        let layout = self.layout();
        let mut alone = self.price.clone();
        let mut lowered = vec![0; self.n];
        let mut missed = Vec::new();
        let mut within = vec![0; self.n];
        for u in 0..self.n {
            alone[u] -= self.around(u).map(|node| self.price_of(node)).sum::<i64>();
            self.note_within(&layout, u, &mut within);
            let pairs = self.costs.row(u)[..u].iter().zip(&self.price).zip(&within).enumerate();
            for (v, ((&cost, &price), &within)) in pairs {
                let slack = 2 * cost - self.price[u] - price + within;
                if slack < 0 {
                    missed.push((u, v));
                    lowered[u] = (-slack - lowered[v]).max(lowered[u]);
                }
            }
        }
        for (price, by) in alone.iter_mut().zip(lowered) {
            *price -= by;
        }
        (alone, missed)
    }

    fn layout(&self) -> Layout {
        let nodes = self.n + self.blossoms.len();
        let mut layout = Layout { order: Vec::with_capacity(self.n), range: vec![(0, 0); nodes] };
        let mut outermost: Vec<usize> = self.outer.clone();
        outermost.sort_unstable();
        outermost.dedup();
        for node in outermost {
            self.lay_out(node, &mut layout);
        }
        layout
    }

    fn lay_out(&self, node: usize, layout: &mut Layout) {
        let first = layout.order.len();
        match node.checked_sub(self.n) {
            None => layout.order.push(node),
            Some(blossom) => {
                self.blossoms[blossom].circle.iter().for_each(|&part| self.lay_out(part, layout));
            }
        }
        layout.range[node] = (first, layout.order.len());
    }

    /// Notes for each vertex twice the prices of the blossoms that hold both it and `u`: what its
    /// pair with `u` has more slack than their prices say. Vertices of other nodes have 0.
    fn note_within(&self, layout: &Layout, u: usize, within: &mut [i64]) {
        within.fill(0);
        let chain: Vec<usize> = self.around(u).collect();
        let mut prices = 0;
        for (level, &node) in chain.iter().enumerate().rev() {
            prices += 2 * self.price_of(node);
            let inner = if level == 0 { u } else { chain[level - 1] };
            let (first, end) = layout.range[node];
            let (inner_first, inner_end) = layout.range[inner];
            for &v in layout.order[first..inner_first].iter().chain(&layout.order[inner_end..end]) {
                within[v] = prices;
            }
        }
    }

    /// What these prices of the vertices alone prove, with the blossoms', in half steps: no perfect
    /// matching costs less.
    pub(in crate::matching) fn bound(&self, alone: &[i64]) -> i64 {
        alone.iter().sum::<i64>() + self.blossoms.iter().map(|blossom| blossom.price).sum::<i64>()
    }
}
