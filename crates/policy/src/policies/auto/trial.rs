//! When a group is tried on a PU.
//!
//! A trial of a placement that does not pay loses time, and its gain is a prediction. The less a placement gains, the longer it
//! takes to see that: a guard compares quanta that differ by chance. So a group is tried once what it would have gained so far
//! is several times what the trial may lose: at once where the gain is great, and later where it is small and lasts. More than
//! idle PUs cannot be gained: on others a wake-up waits for a running task.

use crate::communication::groups::PuGroup;

/// Time that a group is on a PU for one comparison with the kernel, in seconds. Chosen: a quantum of the guard.
const COMPARED: f64 = 0.05;
/// Fewest comparisons until it is known whether a placement pays. Chosen: as many as show a gain of several times.
const FEWEST_COMPARISONS: f64 = 2.0;
/// Standard deviation of comparisons, as a part of what is done. Chosen: a quarter was measured (an HTTP server in Node with 8
/// clients, a virtual machine with 2 PUs, Linux 6.18).
const SCATTER: f64 = 0.25;
/// Part that a placement loses which does not pay, beside the time in which its tasks would both run. Chosen: 5 to 17 % were
/// measured there.
const LOSES: f64 = 0.1;
/// Least gain so far of a group that is tried, over what a trial may lose. Chosen: gains that are differences of large times are
/// often wrong.
const WORTH: f64 = 3.0;

/// PUs of `pus` that groups, and other tasks which wake each other and are `others` busy, leave idle. A group takes at most a PU.
pub(super) fn idle(groups: &[PuGroup], others: f64, pus: usize) -> f64 {
    let groups: f64 = groups.iter().map(|group| group.busy.min(1.0)).sum();
    (pus as f64 - groups - others).max(0.0)
}

/// Seconds until the group is worth a trial, where so many PUs are idle; at most 0 if it is already.
pub(super) fn until_worth(group: &PuGroup, idle: f64) -> f64 {
    let gain = group.gain.min(idle);
    WORTH * may_lose(gain, group.both_run) / gain - group.counted_for
}

/// Seconds that may be lost until it is known whether a placement gains so much.
fn may_lose(gain: f64, both_run: f64) -> f64 {
    let comparisons = (2.0 * SCATTER / gain).powi(2).max(FEWEST_COMPARISONS);
    comparisons * COMPARED * (LOSES + both_run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(gain: f64, busy: f64, counted_for: f64) -> PuGroup {
        PuGroup { gain, busy, both_run: 0.5, counted_for, ..PuGroup::default() }
    }

    /// A gain of 0.5 s a second takes two comparisons of 0.05 s, in which six tenths may be lost, as both tasks run for half of
    /// the time; one of 0.25 takes four.
    #[test]
    fn tried_when_that_would_have_paid() {
        let group = group(0.5, 1.2, 0.3);
        for (idle, until) in [(1.0, 0.06), (0.25, 1.14)] {
            assert!((until_worth(&group, idle) - until).abs() < 1e-9, "{idle} PUs are idle");
        }
        assert_eq!(until_worth(&group, 0.0), f64::INFINITY);
        assert!(until_worth(&PuGroup { counted_for: 0.4, ..group }, 1.0) < 0.0);
    }

    #[test]
    fn groups_and_others_keep_pus_busy() {
        let groups = [group(0.5, 1.2, 0.0), group(0.5, 0.5, 0.0)];
        assert!((idle(&groups, 0.25, 2) - 0.25).abs() < 1e-9);
        assert_eq!(idle(&groups, 2.0, 2), 0.0);
    }
}
