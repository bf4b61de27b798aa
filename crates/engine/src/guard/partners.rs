//! Jobs that hand work to each other.
//!
//! A client and its server are one service: the progress of each depends on the other. On one PU the server is preempted by the
//! client that it answers, and hardly waits of its own accord any more, while the client waits for each answer. So their
//! placement is judged by their joint progress.

use colocate_evidence::{JobIdx, WakeUps};
use colocate_machine::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Wake-ups a second from which on two jobs are partners. Chosen: about the rate at which tasks share a PU under `auto`, where a
/// wake-up takes 30 µs.
const PARTNERS: f64 = 300.0;
/// Shortest time, in seconds, over which wake-ups are counted. Chosen: most of a quantum of a guard whose plans stand.
const SHORTEST: f64 = 0.04;

/// Two jobs, the lesser first.
type Two = (JobIdx, JobIdx);

/// Jobs that hand work to each other.
#[derive(Clone, Debug, Default)]
pub struct Partners {
    at: Nanos,
    sums: BTreeMap<Two, u64>,
    pairs: BTreeSet<Two>,
    /// The first job of those that each one is judged with, for those that are not alone and not the first.
    first: BTreeMap<JobIdx, JobIdx>,
}

impl Partners {
    /// Takes in the wake-ups until `at`, of the current jobs. Partners stay partners. Returns whether more jobs are judged
    /// together from now on. Comparisons of partners hold on when one of them has ended.
    pub fn note(
        &mut self,
        at: Nanos,
        wake_ups: &[WakeUps],
        is_there: impl Fn(JobIdx) -> bool,
    ) -> bool {
        let seconds = at.saturating_sub(self.at).as_secs_f64();
        if seconds < SHORTEST {
            return false;
        }
        let sums = sums(wake_ups);
        for (two, sum) in &sums {
            let before = self.sums.get(two).copied().unwrap_or(0);
            if sum.saturating_sub(before) as f64 >= PARTNERS * seconds {
                self.pairs.insert(*two);
            }
        }
        self.at = at;
        self.sums = sums;
        let has_joined = firsts(&self.pairs) != self.first;
        self.pairs.retain(|(a, b)| is_there(*a) && is_there(*b));
        self.first = firsts(&self.pairs);
        has_joined
    }

    /// The job under which the progress of this one is counted.
    pub fn first(&self, job: JobIdx) -> JobIdx {
        self.first.get(&job).copied().unwrap_or(job)
    }

    /// Words for the jobs that are counted under this one.
    pub fn named(&self, job: JobIdx) -> String {
        let others = self.first.iter().filter(|(_, first)| **first == job);
        let others: Vec<String> = others.map(|(other, _)| format!(" and {}", other.0)).collect();
        let s = if others.is_empty() { "" } else { "s" };
        format!("job{s} {}{}", job.0, others.concat())
    }
}

/// Between jobs, both ways.
fn sums(wake_ups: &[WakeUps]) -> BTreeMap<Two, u64> {
    let mut sums = BTreeMap::new();
    for one in wake_ups {
        let Some(waker) = one.waker.map(|waker| waker.job) else { continue };
        let wakee = one.wakee.job;
        if waker != wakee {
            *sums.entry((waker.min(wakee), waker.max(wakee))).or_insert(0) += one.count;
        }
    }
    sums
}

/// The least job that each one is joined to by pairs, for those that are not the least themselves.
fn firsts(pairs: &BTreeSet<Two>) -> BTreeMap<JobIdx, JobIdx> {
    let mut first: BTreeMap<JobIdx, JobIdx> = BTreeMap::new();
    // Each pass carries a least job one pair further, so a chain needs one pass per pair.
    for _ in 0..pairs.len() {
        for (a, b) in pairs {
            let least = *first.get(a).unwrap_or(a).min(first.get(b).unwrap_or(b));
            first.insert(*a, least);
            first.insert(*b, least);
        }
    }
    first.retain(|job, least| job != least);
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_evidence::TaskId;

    fn wakes(waker: u32, wakee: u32, count: u64) -> WakeUps {
        let task = |job| TaskId { job: JobIdx(job), order: 0 };
        let waker = Some(task(waker));
        WakeUps {
            waker,
            wakee: task(wakee),
            count,
            same_pu: None,
            waited: None,
            both_ran: None,
            turns_apart: None,
            turns_together: None,
        }
    }

    /// 3 and 1 are partners at once, then 1 and 0; then 0 ends. 2 is woken too rarely.
    #[test]
    fn partners_of_partners() {
        let (mut partners, all) = (Partners::default(), |_| true);
        let firsts = |partners: &Partners| [0, 1, 2, 3].map(|job| partners.first(JobIdx(job)).0);
        assert!(partners.note(Nanos::from_secs(1), &[wakes(3, 1, 200), wakes(1, 3, 200)], all));
        assert_eq!(firsts(&partners), [0, 1, 2, 1]);
        let more = [wakes(3, 1, 210), wakes(1, 3, 210), wakes(0, 1, 400), wakes(2, 1, 200)];
        assert!(!partners.note(Nanos::from_millis(1_010), &more, all), "too short");
        assert!(partners.note(Nanos::from_secs(2), &more, all));
        assert_eq!(firsts(&partners), [0, 0, 2, 0]);
        assert_eq!(partners.named(JobIdx(0)), "jobs 0 and 1 and 3");
        assert!(!partners.note(Nanos::from_secs(3), &more, all), "they stay partners");
        assert!(!partners.note(Nanos::from_secs(4), &more, |job| job != JobIdx(0)), "one left");
        assert_eq!((firsts(&partners), partners.named(JobIdx(2))), ([0, 1, 2, 1], "job 2".into()));
    }
}
