//! Lower bound of the cost from the final prices.

use super::{NONE, Search};

/// All vertices, ordered so that the vertices of every node are consecutive.
struct Layout {
    order: Vec<usize>,
    /// By node: start and end of its vertices in `order`.
    range: Vec<(usize, usize)>,
}

impl Search<'_> {
    /// Partner of each vertex.
    pub(in crate::matching) fn mates(&self) -> &[usize] {
        &self.mate
    }

    /// The blossoms around a vertex, innermost first.
    pub(super) fn around(&self, vertex: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.parent_of(vertex), |&node| self.parent_of(node))
    }

    /// The innermost blossom around a node; `None` for an outermost node.
    fn parent_of(&self, node: usize) -> Option<usize> {
        Some(self.parent[node]).filter(|&parent| parent != NONE)
    }

    /// Price of a blossom, in half steps.
    pub(super) fn price_of(&self, blossom: usize) -> i64 {
        self.blossoms[blossom - self.n].price
    }

    /// Prices of the vertices without the blossoms', lowered until no slack is negative, and the
    /// pairs whose slack was negative.
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
                    // The other end may have been lowered already.
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

    /// Sets `within` of each vertex to twice the sum of the prices of the blossoms around both the
    /// vertex and `u`; 0 for vertices of other nodes. The prices `Y` count these blossoms although
    /// the pair lies within them, so its slack is larger by `within`.
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

    /// Lower bound of the cost of any perfect matching, in half steps: the sum of the vertices'
    /// prices `alone` and the blossoms' prices.
    pub(in crate::matching) fn bound(&self, alone: &[i64]) -> i64 {
        alone.iter().sum::<i64>() + self.blossoms.iter().map(|blossom| blossom.price).sum::<i64>()
    }
}
