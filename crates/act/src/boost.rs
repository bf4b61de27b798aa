//! When this thread needs more than its equal share of CPU time.
//!
//! # Problem
//! The thread that places new threads must run soon after it wakes. The lowest nice value makes sure of that, and does harm: the kernel
//! balances load by nice values, and at -20 a thread that runs for 1.5 % of the time weighs as much as six that compute
//! (`se.avg.load_avg` in `/proc/PID/sched`). So programs' threads are moved away from where it is, and wait for each other
//! on the PUs that are left: `sort` and `make` waited for a fifth of their time more (docs/results/asymmetric.md).
//! # Approach
//! A short slice is enough as long as an equal share is: then the nice value stays as it was. An equal share is little where
//! many threads are runnable. There, and only after a wait that was long, it is the lowest one for a while.
//!
//! A wait is what the kernel's sum has grown by from poll to poll. The thread polls whenever it has woken, so that is
//! how long it waited then and since the poll before, when it was preempted: several in one go are a delay
//! like one. Short waits of many wakes are compared one by one, and do not add up. The boost ends at a poll as well: a thread that
//! sleeps keeps it until it wakes, a second longer at most, and does not use it.
//! # Properties
//! - **Modest**: there is no boost without a long wait, nor where few threads are runnable. -> test `modest`
//! - **Answered once**: an answer is given only when it differs from the one before. -> test `answered_once`

use colocate_linux::run_time::RunTime;
use colocate_linux::{Pid, Tid, sys};
use colocate_machine::Nanos;
use std::path::Path;

/// Shortest slice granted by the kernel (kernel/sched/syscalls.c). With this slice, 8 to 20 times
/// as many new threads were reached in time on a virtual machine with 2 CPUs and 5 runnable
/// threads.
pub const SHORT_SLICE: Nanos = Nanos(100_000);

/// Nice value of the largest share of CPU time (sched(7)). For 64 threads created at once on 2
/// CPUs, placing takes more than an equal share, and the last threads would wait for hundreds of
/// milliseconds. Used at the start, at the end, and during such bursts: it disturbs the programs
/// (see above).
pub const LOWEST_NICE: i32 = -20;

/// The smallest share of CPU time (sched(7)).
pub const HIGHEST_NICE: i32 = 19;

/// Minimum length of a long wait for a PU, from poll to poll. Chosen: an equal share caused waits
/// of 0.4 ms with 16 threads on 2 PUs, and of 4 ms with 64.
const LONG: Nanos = Nanos::from_millis(1);
/// Duration of the boost after a long wait. Chosen: short beside programs, long beside the changes
/// of nice values.
const LASTS: Nanos = Nanos::from_secs(1);
/// Number of runnable threads per PU from which an equal share can be too little. Chosen: the share
/// is a ninth at this point, and counting takes up to 4 % of a PU with short quanta.
const CROWD: usize = 8;

/// Lets this thread run before all that has no fixed priority, as far as that is permitted: for a
/// process that undoes a journal and then ends.
///
/// A low nice value is not enough. The kernel runs a new session before a thread that has just run,
/// so where sessions come and go a thread at the lowest nice value may wait for ever: on two PUs
/// and Linux 6.18, for more than half a minute in 5 of 130 kills.
pub fn run_first() {
    // In the order of the rights that they take; the slice alone takes none.
    let _ = sys::set_real_time()
        .or_else(|_| sys::set_slice_and_nice(SHORT_SLICE, LOWEST_NICE))
        .or_else(|_| sys::set_slice_and_nice(SHORT_SLICE, sys::nice()));
}

/// Run-queue wait of a thread, and the duration of its boost.
#[derive(Debug, Default)]
pub struct PriorityBoost {
    time: Option<RunTime>,
    waited: Option<Nanos>,
    until: Nanos,
    answered: Option<bool>,
}

impl PriorityBoost {
    /// Reads the sums of a thread; for the first thread of this process they are the caller's own.
    pub fn watch(&mut self, proc: &Path, pid: Pid, tid: Tid) {
        self.time = RunTime::open(proc, pid, tid).ok();
    }

    /// Whether the kernel has given sums yet.
    pub const fn has_answered(&self) -> bool {
        self.answered.is_some()
    }

    /// New boost decision from `at` on, on the kernel's clock; `None` without a change. `crowd`
    /// returns the numbers of runnable threads and of PUs, and is called only after a long wait.
    /// Without sums of the kernel there is no boost.
    pub fn poll(&mut self, at: Nanos, crowd: impl FnOnce() -> (usize, usize)) -> Option<bool> {
        let waited = self.time.as_ref().and_then(RunTime::read_both).map(|(_, waited)| waited);
        self.decide(waited, at, crowd)
    }

    fn decide(
        &mut self,
        waited: Option<Nanos>,
        at: Nanos,
        crowd: impl FnOnce() -> (usize, usize),
    ) -> Option<bool> {
        let before = std::mem::replace(&mut self.waited, waited);
        let wait =
            before.zip(waited).map_or(Nanos::ZERO, |(before, now)| now.saturating_sub(before));
        if wait >= LONG && is_crowd(crowd()) {
            self.until = at + LASTS;
        }
        let boosted = at < self.until;
        (self.answered.replace(boosted) != Some(boosted)).then_some(boosted)
    }
}

fn is_crowd((threads, pus): (usize, usize)) -> bool {
    threads >= CROWD * pus.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answered(
        boost: &mut PriorityBoost,
        waited_us: u64,
        at_ms: u64,
        threads: usize,
    ) -> Option<bool> {
        let (waited, at) = (Some(Nanos(1_000 * waited_us)), Nanos::from_millis(at_ms));
        boost.decide(waited, at, || (threads, 2))
    }

    /// Sums grow by 5 µs, then by 4 ms among 64 threads on 2 PUs, then by 0.3 ms each 10 ms: a second later all is as before.
    #[test]
    fn a_long_wait_in_a_crowd_boosts_for_a_second() {
        let mut boost = PriorityBoost::default();
        assert_eq!(answered(&mut boost, 100, 0, 64), Some(false), "what was before is no wait");
        assert_eq!(answered(&mut boost, 105, 10, 64), None);
        assert_eq!(answered(&mut boost, 4_105, 20, 64), Some(true));
        assert_eq!(answered(&mut boost, 4_405, 30, 64), None);
        assert_eq!(answered(&mut boost, 4_705, 1_019, 64), None);
        assert_eq!(answered(&mut boost, 5_005, 1_020, 64), Some(false));
    }

    /// One more long wait, 500 ms after the first: a second from there.
    #[test]
    fn another_long_wait_prolongs_it() {
        let mut boost = PriorityBoost::default();
        answered(&mut boost, 0, 0, 16);
        assert_eq!(answered(&mut boost, 1_000, 100, 16), Some(true));
        assert_eq!(answered(&mut boost, 2_000, 600, 16), None);
        assert_eq!(answered(&mut boost, 2_000, 1_599, 16), None);
        assert_eq!(answered(&mut boost, 2_000, 1_600, 16), Some(false));
    }

    /// Woken 100 times for 20 µs each, 2 ms together; then kept waiting five times for 200 µs while it does one thing.
    #[test]
    fn short_waits_of_many_wakes_do_not_add_up() {
        let mut boost = PriorityBoost::default();
        assert_eq!(answered(&mut boost, 0, 0, 64), Some(false));
        for wake in 1..=100 {
            assert_eq!(answered(&mut boost, 20 * wake, wake, 64), None);
        }
        assert_eq!(answered(&mut boost, 3_000, 101, 64), Some(true));
    }

    #[test]
    fn no_boost_without_sums() {
        let mut boost = PriorityBoost::default();
        assert_eq!(boost.decide(None, Nanos(1), || (64, 2)), Some(false));
        assert_eq!(boost.decide(Some(Nanos::from_secs(9)), Nanos(2), || (64, 2)), None);
        assert_eq!(boost.decide(None, Nanos(3), || (64, 2)), None);
    }

    #[test]
    fn the_kernel_keeps_sums_of_this_thread() {
        let (pid, mut boost) = (Pid(std::process::id().cast_signed()), PriorityBoost::default());
        boost.watch(Path::new("/proc"), pid, pid.first_thread());
        boost.poll(Nanos(1), || (0, 1));
        assert!(boost.waited.is_some());
    }

    /// Polls: how much the sum grows in µs, how much later in ms, and how many threads are runnable on 2 PUs.
    fn polls() -> impl Strategy<Value = Vec<(u64, u64, usize)>> {
        let wait = prop_oneof![0..900_u64, 900..1_100_u64, 1_100..9_000_u64];
        let later = prop_oneof![1..20_u64, 990..1_010_u64];
        proptest::collection::vec((wait, later, prop_oneof![0..3_usize, 14..18_usize]), 0..60)
    }

    proptest! {
        #[test]
        fn modest(polls in polls()) {
            let (mut boost, mut boosted, mut may, mut sum, mut at) = (PriorityBoost::default(), false, 0, 0, 0);
            for (place, (grown, later, threads)) in polls.into_iter().enumerate() {
                (sum, at) = (sum + grown, at + later);
                if place > 0 && grown >= 1_000 && threads >= 16 {
                    may = at + 1_000;
                }
                boosted = answered(&mut boost, sum, at, threads).unwrap_or(boosted);
                prop_assert_eq!(boosted, at < may);
            }
        }

        #[test]
        fn answered_once(polls in polls()) {
            let (mut boost, mut last, mut sum, mut at) = (PriorityBoost::default(), None, 0, 0);
            for (grown, later, threads) in polls {
                (sum, at) = (sum + grown, at + later);
                let now = answered(&mut boost, sum, at, threads);
                prop_assert!(now.is_none() || now != last);
                last = now.or(last);
            }
        }
    }
}
