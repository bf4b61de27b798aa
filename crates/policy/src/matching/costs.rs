//! Costs of pairs of vertices: a dense symmetric table of integers.

use colocate_model::UnitDemand;

/// Costs of all pairs of `n` vertices, in steps of the caller's size. Integers, because the matching
/// compares for equality ("tight" pairs).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairCosts {
    n: usize,
    /// Row by row. The diagonal has no meaning.
    cells: Vec<i64>,
}

/// Largest cost, in steps. A sum over a million vertices stays far within 63 bits.
pub const MAX_COST: i64 = 1 << 40;

/// `overlap` at `steps` steps for an overlap of 1, rounded down, at most [`MAX_COST`].
#[allow(clippy::cast_possible_truncation)] // saturates
#[must_use]
pub fn in_steps(overlap: f64, steps: f64) -> i64 {
    ((overlap * steps) as i64).min(MAX_COST)
}

impl PairCosts {
    /// Table for `n` vertices. `cost(a, b)`, `a < b`, in steps, is clamped to 0 ..= [`MAX_COST`].
    #[must_use]
    pub fn new(n: usize, mut cost: impl FnMut(usize, usize) -> i64) -> Self {
        let mut cells = vec![0; n * n];
        for a in 0..n {
            for b in a + 1..n {
                // Each cost is computed once, and both halves are filled for rows without gaps.
                cells[a * n + b] = cost(a, b).clamp(0, MAX_COST);
                cells[b * n + a] = cells[a * n + b];
            }
        }
        Self { n, cells }
    }

    /// Overlaps of `demands`, rounded down, at `steps` steps for an overlap of 1.
    #[must_use]
    pub fn of_overlaps(demands: &[UnitDemand], steps: f64) -> Self {
        Self::new(demands.len(), |a, b| in_steps(demands[a].overlap(&demands[b]), steps))
    }

    /// Number of vertices.
    #[must_use]
    pub fn vertices(&self) -> usize {
        self.n
    }

    /// Cost of the pair `a`, `b`, in steps.
    #[must_use]
    pub fn of(&self, a: usize, b: usize) -> i64 {
        self.cells[a * self.n + b]
    }

    /// Costs of `a` with every vertex, in steps. The cell of `a` itself has no meaning.
    #[must_use]
    pub fn row(&self, a: usize) -> &[i64] {
        &self.cells[a * self.n..(a + 1) * self.n]
    }

    /// Cost of a matching, in steps. `mate[v]` is the partner of `v`.
    #[must_use]
    pub fn total(&self, mate: &[usize]) -> i64 {
        let pairs = mate.iter().enumerate().filter(|&(v, &m)| v < m);
        pairs.map(|(v, &m)| self.of(v, m)).sum()
    }
}
