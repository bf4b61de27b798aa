//! `bas`: bandwidth-aware scheduling for SMT processors (Feliu et al., IEEE TC 2016, Algorithm 4).
//!
//! # Problem
//! [`mmas`](super::mmas) needs a run alone of every job, and no scheduler above uses a core's first cache.
//! # Approach
//! Instead of an average known beforehand, use the average traffic of the jobs of the queue when
//! they last ran; then pair by the first cache.
//! # Terms
//! - `OATR`, online average transaction rate, t/µs: contexts × mean over the jobs that wait of their last
//!   rates. The formula of the paper was not found. This one is that of its author's published teaching
//!   code; a mean of what was delivered, the other reading, falls when contention throttles traffic.
//! # Algorithm
//! [`select::by_traffic`] with `BW = OATR`; [`allocate::most_with_least`] by the last quantum.
//!
//! [`allocate::most_with_least`]: super::allocate::most_with_least
//! # Properties
//! - **Self-correcting**: only jobs that are still there count. -> test `oatr_by_hand`
//! - **First come, first served** until rates are known. -> test `first_quantum`

use super::{Choice, Quantum, QueuedJob, l1, select};
use crate::policy::by_rule;
use crate::row::{COUNTERS, Row};

/// Its row in the table of policies.
pub static ROW: Row = Row {
    name: "bas",
    summary: "balances traffic to memory, then to first caches, by the last quantum",
    source: "Feliu et al., IEEE TC 2016, Algorithm 4",
    make: |_, _| by_rule(COUNTERS, |it| it.plan(&choose(&it.now))),
    ..Row::EACH_QUANTUM
};

/// Which threads run in this quantum, and where.
fn choose(now: &Quantum<'_>) -> Vec<Choice> {
    let wanted = oatr(now.queue, now.pus.len());
    let chosen = select::all(now.queue, now.pus.len()).unwrap_or_else(|| {
        select::by_traffic(now.queue, now.pus.len(), wanted, QueuedJob::to_memory)
    });
    l1::pair(now, chosen, &l1::asked)
}

/// Memory traffic that a quantum should have: contexts × the mean of the threads' last rates, t/µs.
pub(crate) fn oatr(queue: &[QueuedJob], contexts: usize) -> f64 {
    let threads: usize = queue.iter().map(|job| job.width(contexts)).sum();
    let asked = queue.iter().map(QueuedJob::to_memory).fold(0.0, |sum, each| sum + each);
    if threads == 0 { 0.0 } else { asked / select::float(threads) * select::float(contexts) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, queue};
    use super::*;
    use crate::testing::machine;

    /// (30 + 20 + 10)/3 = 20 a job, on two contexts 40; without the first 15 and 30.
    #[test]
    fn oatr_by_hand() {
        let queue = queue(&[30.0, 20.0, 10.0]);
        assert!((oatr(&queue, 2) - 40.0).abs() < 1e-12);
        assert!((oatr(&queue[1..], 2) - 30.0).abs() < 1e-12);
        assert!(oatr(&[], 2).abs() < f64::EPSILON);
    }

    #[test]
    fn first_quantum() {
        let machine = machine("core:2 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut queue = queue(&[0.0; 6]);
        queue.iter_mut().for_each(|job| job.threads[0].ran = None);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let jobs: Vec<u32> = chosen(&choose(&now)).into_iter().map(|(job, _)| job).collect();
        assert_eq!(jobs, [0, 1, 2, 3]);
    }
}
