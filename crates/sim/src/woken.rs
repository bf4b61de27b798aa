//! Wake-ups of tasks by tasks: pending ones, and sums of past ones.

use colocate_evidence::{TaskId, WakeUps};
use colocate_machine::{Nanos, PuIdx};
use std::collections::BTreeMap;

/// A pending wake-up: the task has not had a PU since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Woken {
    /// The waker, by place in the list of all tasks.
    pub by: usize,
    /// Time of the wake-up.
    pub at: Nanos,
    /// PU of the waker.
    pub on: Option<PuIdx>,
}

/// Sums over a task's wake-ups by another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct WakerSums {
    count: u64,
    /// Wake-ups after which the woken task got the waker's PU.
    same_pu: u64,
    /// Time from the wake-ups until the woken task made progress.
    waited: Nanos,
    /// Time during which both tasks had a PU.
    both_ran: Nanos,
}

/// PUs chosen for tasks that others woke: numbers of wake-ups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeChoices {
    /// The waker's PU, whether or not the task ran there last.
    pub waker: u64,
    /// The PU of the task's last run, not the waker's.
    pub previous: u64,
    /// Another PU.
    pub other: u64,
    /// Any of these under the last-level cache of the waker's PU.
    pub near: u64,
}

impl WakeChoices {
    /// Counts a wake-up; `is_near` says whether the PU is under the waker's last-level cache.
    pub(crate) fn add(&mut self, chosen: PuIdx, waker: PuIdx, previous: PuIdx, is_near: bool) {
        self.near += u64::from(is_near);
        let count = if chosen == waker {
            &mut self.waker
        } else if chosen == previous {
            &mut self.previous
        } else {
            &mut self.other
        };
        *count += 1;
    }
}

/// Pending wake-ups of tasks, and sums of past wake-ups.
#[derive(Clone, Debug)]
pub(crate) struct WakeUpSums {
    /// PUs chosen.
    pub choices: WakeChoices,
    /// By task.
    pending: Vec<Option<Woken>>,
    /// By waker and wakee.
    past: BTreeMap<(usize, usize), WakerSums>,
}

impl WakeUpSums {
    /// No wake-ups yet.
    pub fn new(tasks: usize) -> Self {
        let choices = WakeChoices::default();
        Self { choices, pending: vec![None; tasks], past: BTreeMap::new() }
    }

    /// Begins a wake-up of a task.
    pub fn begin(&mut self, wakee: usize, woken: Woken) {
        self.pending[wakee] = Some(woken);
    }

    /// The pending wake-up of a task that gets a PU.
    pub fn take(&mut self, wakee: usize) -> Option<Woken> {
        self.pending[wakee].take()
    }

    /// Counts a wake-up of a task that got `pu`, and makes progress after `waited`.
    pub fn add(&mut self, wakee: usize, woken: Woken, pu: PuIdx, waited: Nanos) {
        let sums = self.past.entry((woken.by, wakee)).or_default();
        sums.count += 1;
        sums.same_pu += u64::from(woken.on == Some(pu));
        sums.waited += waited;
    }

    /// Adds time during which two tasks both had a PU.
    pub fn add_both_ran(&mut self, waker: usize, wakee: usize, time: Nanos) {
        self.past.entry((waker, wakee)).or_default().both_ran += time;
    }

    /// Wake-ups as seen by policies; `id` is the ID of a task.
    pub fn reports(&self, id: impl Fn(usize) -> TaskId) -> Vec<WakeUps> {
        let reports = self.past.iter().map(|(&(waker, wakee), sums)| WakeUps {
            waker: Some(id(waker)),
            wakee: id(wakee),
            count: sums.count,
            same_pu: Some(sums.same_pu),
            waited: Some(sums.waited),
            both_ran: Some(sums.both_ran),
            turns_apart: None,
            turns_together: None,
        });
        reports.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_evidence::JobIdx;

    #[test]
    fn wake_ups_are_added_up_by_pair() {
        let mut sums = WakeUpSums::new(2);
        let woken = Woken { by: 0, at: Nanos::ZERO, on: Some(PuIdx(3)) };
        sums.add(1, woken, PuIdx(3), Nanos(5));
        sums.add(1, woken, PuIdx(4), Nanos(6));
        sums.add_both_ran(0, 1, Nanos(7));
        let id = |task: usize| TaskId { job: JobIdx(0), order: u32::try_from(task).unwrap() };
        let [report] = sums.reports(id).try_into().unwrap();
        assert_eq!((report.waker, report.wakee), (Some(id(0)), id(1)));
        assert_eq!((report.count, report.same_pu), (2, Some(1)));
        assert_eq!((report.waited, report.both_ran), (Some(Nanos(11)), Some(Nanos(7))));
    }
}
