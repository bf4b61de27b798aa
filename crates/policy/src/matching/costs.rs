//! What it costs to put two vertices together: a dense symmetric table of whole numbers.

use colocate_model::UnitDemand;

/// Costs of all pairs of `n` vertices, in steps of a size that the caller chose.
///
/// Whole numbers, so that "tight" and "equal" are exact in the matching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    n: usize,
    /// Row by row; the diagonal is never read.
    cells: Vec<i64>,
}

/// Largest cost in steps: with it, sums over a million vertices stay far within 63 bits.
pub const MAX_COST: i64 = 1 << 40;

/// Rows and columns that are mirrored together, so that what is written stays in the first cache: cells of one column
/// lie a row apart, in lines of their own. Chosen: lines of 64 bytes hold eight cells.
const TILE: usize = 16;

/// Copies what is above the diagonal of `n` rows of `n` cells to below it.
fn mirror(n: usize, cells: &mut [i64]) {
    for rows in (0..n).step_by(TILE) {
        for columns in (0..=rows).step_by(TILE) {
            for a in rows..n.min(rows + TILE) {
                for b in columns..a.min(columns + TILE) {
                    cells[a * n + b] = cells[b * n + a];
                }
            }
        }
    }
}

/// `overlap` in whole steps, `steps` of them for an overlap of one; rounded down, cut to
/// [`MAX_COST`].
#[allow(clippy::cast_possible_truncation)] // saturates
#[must_use]
pub fn in_steps(overlap: f64, steps: f64) -> i64 {
    ((overlap * steps) as i64).min(MAX_COST)
}

impl Costs {
    /// A table for `n` vertices, `cost(a, b)` steps for `a < b`, in 0 ..= [`MAX_COST`]; what lies
    /// outside is cut to it.
    #[must_use]
    pub fn new(n: usize, mut cost: impl FnMut(usize, usize) -> i64) -> Self {
        let mut cells = vec![0; n * n];
        for a in 0..n {
            let row = &mut cells[a * n..(a + 1) * n];
            for (b, cell) in row.iter_mut().enumerate().skip(a + 1) {
                *cell = cost(a, b).clamp(0, MAX_COST);
            }
        }
        mirror(n, &mut cells);
        Self { n, cells }
    }

    /// The overlaps of `demands`, rounded down to `steps` steps for an overlap of one.
    #[must_use]
    pub fn of_overlaps(demands: &[UnitDemand], steps: f64) -> Self {
        Self::new(demands.len(), |a, b| in_steps(demands[a].overlap(&demands[b]), steps))
    }

    /// How many vertices.
    #[must_use]
    pub fn vertices(&self) -> usize {
        self.n
    }

    /// The cost of putting `a` and `b` together, in steps.
    #[must_use]
    pub fn of(&self, a: usize, b: usize) -> i64 {
        self.cells[a * self.n + b]
    }

    /// The costs of `a` with every vertex; its own place means nothing.
    #[must_use]
    pub fn row(&self, a: usize) -> &[i64] {
        &self.cells[a * self.n..(a + 1) * self.n]
    }

    /// The cost of a matching, `mate[v]` being the partner of `v`, in steps.
    #[must_use]
    pub fn total(&self, mate: &[usize]) -> i64 {
        let pairs = mate.iter().enumerate().filter(|&(v, &m)| v < m);
        pairs.map(|(v, &m)| self.of(v, m)).sum()
    }
}
