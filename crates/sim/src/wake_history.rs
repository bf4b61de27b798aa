//! Past wake-ups of tasks, as far as the kernel chooses PUs by them.

use crate::task::TaskNo;
use colocate_machine::{Nanos, PuIdx};

/// Time in which a task's changes of wakee are halved (`record_wakee` in kernel/sched/fair.c, 6.12).
const FLIP_DECAY: Nanos = Nanos::from_secs(1);

/// Past wake-ups of a task.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    /// The task woken last by this one.
    last_wakee: Option<TaskNo>,
    /// Changes of the wakee, halved now and then (`wakee_flips`).
    flips: usize,
    /// Time of the last halving.
    halved: Nanos,
    /// PU before the last one, as of a past wake-up (`recent_used_cpu`).
    recent: Option<PuIdx>,
}

/// Past wake-ups of all tasks.
#[derive(Clone, Debug)]
pub(crate) struct WakeHistory {
    /// By task.
    of: Vec<History>,
}

impl WakeHistory {
    /// No wake-ups yet.
    pub fn new(tasks: usize) -> Self {
        Self { of: vec![History::default(); tasks] }
    }

    /// Notes that a task wakes another.
    pub fn note(&mut self, waker: TaskNo, wakee: TaskNo, now: Nanos) {
        let history = &mut self.of[waker];
        if now > history.halved + FLIP_DECAY {
            history.flips /= 2;
            history.halved = now;
        }
        if history.last_wakee != Some(wakee) {
            history.last_wakee = Some(wakee);
            history.flips += 1;
        }
    }

    /// Whether two tasks wake so many others that these would not fit under a last-level cache with
    /// so many PUs (`wake_wide`).
    pub fn is_wide(&self, waker: TaskNo, wakee: TaskNo, pus: usize) -> bool {
        let flips = [self.of[waker].flips, self.of[wakee].flips];
        let few = flips[0].min(flips[1]);
        let many = flips[0].max(flips[1]);
        few >= pus && many >= few * pus
    }

    /// Replaces the recent PU of a task; the one before.
    pub fn replace_recent(&mut self, task: TaskNo, pu: PuIdx) -> Option<PuIdx> {
        self.of[task].recent.replace(pu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four PUs: the waker needs 16 changes, the wakee four.
    #[test]
    fn many_wakees_are_wide() {
        let mut history = WakeHistory::new(8);
        for wake_up in 0..16 {
            history.note(0, 1 + wake_up % 7, Nanos::ZERO);
        }
        assert!(!history.is_wide(0, 1, 4), "the wakee wakes none");
        for wake_up in 0..4 {
            history.note(1, wake_up * 2, Nanos::ZERO);
        }
        assert!(history.is_wide(0, 1, 4) && history.is_wide(1, 0, 4));
        assert!(!history.is_wide(0, 1, 5) && !history.is_wide(0, 2, 4));
        // The same wakee again is no change, but half of the changes are forgotten.
        history.note(0, 2, Nanos::from_secs(2));
        assert!(!history.is_wide(0, 1, 4));
    }

    #[test]
    fn a_recent_pu_is_the_one_before() {
        let mut history = WakeHistory::new(1);
        assert_eq!(history.replace_recent(0, PuIdx(3)), None);
        assert_eq!(history.replace_recent(0, PuIdx(5)), Some(PuIdx(3)));
    }
}
