//! Observed communication in a common unit, seconds.

use super::matrix::Matrix;
use colocate_evidence::{Sharing, WakeUps};

/// Communication of tasks since their creation as its possible cost in seconds: `wake_up` seconds
/// for each wake-up, plus the CPU time at shared memory.
#[must_use]
pub fn seconds(wake_ups: &[WakeUps], wake_up: f64, sharing: &[Sharing]) -> Matrix {
    let woken =
        wake_ups.iter().filter_map(|one| Some((one.waker?, one.wakee, one.count as f64 * wake_up)));
    let shared = sharing.iter().map(|one| (one.task, one.with, one.time.as_secs_f64()));
    Matrix::of(woken.chain(shared))
}

/// Increase since `before` of sums that only grow.
#[must_use]
pub fn since(now: &Matrix, before: &Matrix) -> Matrix {
    let mut before = before.pairs().peekable();
    Matrix::of(now.pairs().map(|(two, sum)| {
        // Both matrices are sorted by pair: a merge in one pass.
        while before.next_if(|(old, _)| *old < two).is_some() {}
        let was = before.next_if(|(old, _)| *old == two);
        (two.0, two.1, sum - was.map_or(0.0, |(_, was)| was))
    }))
}
