//! `fair-oracle`: runs the jobs of least true progress. For comparison only.
//!
//! # Problem
//! The loss of a fair scheduler by its estimates shows only beside a scheduler without estimates.
//! # Approach
//! The oracle knows the course of each job alone ([`SoloProgress`]) and the number of executed
//! instructions, both known of a simulated job only. It places as [`fair`](super::fair).
//! # Terms
//! - *Course* of a job: its phases, each with its instructions and its time alone; repeated without
//!   end.
//! # Algorithm
//! Jobs by the time alone of their executed instructions, least first, as many as fit; the others
//! wait. The instructions of all threads of a job count together.
//! # Properties
//! - **Least first**, by time alone and not by instructions. -> test `by_hand`
//! - **Again and again**: progress grows on when a job begins its course once more.
//!   -> test `courses_repeat`

use super::bandwidth::pair_by_last_quantum;
use super::progress::ordered;
use super::{Quantum, QuantumOutcome, Scheduler, Selected, SelectedJob, select};
use crate::by_id::ById;
use crate::row::{PolicyRow, Prior, Purpose, SoloProgress};
use colocate_evidence::JobIdx;

pub static ROW: PolicyRow = PolicyRow {
    name: "fair-oracle",
    purpose: Purpose::Simulated,
    summary: "as fair, by true progress, for comparison in simulations",
    source: "a baseline of ours",
    prior: &[Prior::Courses],
    make: |_, known| {
        Box::new(FairOracle { courses: known.courses.to_vec(), done: ById::default() })
    },
    ..PolicyRow::EACH_QUANTUM
};

/// Scheduler of `fair-oracle`.
struct FairOracle {
    courses: Vec<SoloProgress>,
    /// Instructions executed by each job.
    done: ById<JobIdx, u64>,
}

impl FairOracle {
    /// Seconds that the executed instructions of a job take alone; 0 if its course is unknown.
    fn progress(&self, job: JobIdx) -> f64 {
        let done = self.done.get(&job).copied().unwrap_or(0);
        self.courses.get(job.0 as usize).map_or(0.0, |course| course.seconds(done))
    }
}

impl Scheduler for FairOracle {
    fn note(&mut self, last: &QuantumOutcome<'_>) {
        for did in last.did {
            // Simulated jobs always have counts.
            *self.done.entry(did.job).or_default() += did.instructions.unwrap_or(0);
        }
    }

    fn choose(&mut self, now: &Quantum<'_>) -> Vec<SelectedJob> {
        let progress: Vec<f64> = now.queue.iter().map(|job| self.progress(job.job)).collect();
        let mut order: Vec<usize> = (0..now.queue.len()).collect();
        // Stable, so jobs of equal progress run in the order of the queue.
        order.sort_by_key(|&at| ordered(progress[at]));
        let contexts = now.pus.len();
        let chosen = select::fitting(order, contexts, |at| now.queue[at].width(contexts));
        let chosen = chosen.map(|at| (at, Selected::LeastProgress { progress: progress[at] }));
        pair_by_last_quantum(now, chosen.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::JobUsage;
    use super::super::testing::{chosen, queue};
    use super::*;
    use crate::row::CoursePart;
    use crate::testing::machine;
    use colocate_machine::Nanos;

    fn course(parts: &[(u64, f64)]) -> SoloProgress {
        let part = |&(instructions, seconds): &(u64, f64)| CoursePart { instructions, seconds };
        SoloProgress(parts.iter().map(part).collect())
    }

    /// 100 instructions take the first job 1 s alone and the second 4 s: after as many of each the
    /// first has come least far.
    #[test]
    fn by_hand() {
        let machine = machine("core:1");
        let pus: Vec<_> = machine.all_pus().collect();
        let courses = vec![course(&[(100, 1.0)]), course(&[(100, 4.0)])];
        let mut oracle = FairOracle { courses, done: ById::default() };
        let mut queue = queue(&[0.0; 2]);
        queue.swap(0, 1);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        assert_eq!(chosen(&oracle.choose(&now)), [(1, 0)], "neither has done anything");
        let did = |job| JobUsage {
            job: JobIdx(job),
            cpu_time: None,
            instructions: Some(100),
            switches: None,
        };
        oracle.note(&QuantumOutcome { throttled: false, took: Nanos(1), did: &[did(0), did(1)] });
        assert_eq!(chosen(&oracle.choose(&now)), [(0, 0)]);
    }

    #[test]
    fn courses_repeat() {
        let course = course(&[(100, 1.0), (100, 3.0)]);
        for (done, seconds) in [(0, 0.0), (50, 0.5), (150, 2.5), (200, 4.0), (450, 8.5)] {
            assert!((course.seconds(done) - seconds).abs() < 1e-12, "{done}");
        }
        assert!(SoloProgress::default().seconds(7).abs() < f64::EPSILON);
    }
}
