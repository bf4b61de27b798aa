//! CPU time and run-queue wait of threads, without reading every sleeping or waiting thread again.
//!
//! One system call returns how long all threads of a process have run. Time beyond that of the threads that were read
//! belongs to those assumed to sleep; as long as it is next to nothing, none has woken ([`ProcessClock`]).
//!
//! The kernel adds a wait for a CPU to its sum when the wait is over, so of a thread that waits through a whole interval the
//! sums show nothing, as if it slept. But a thread that was runnable when polled, and whose sums have not changed since,
//! has waited all the time: it cannot have gone to sleep without having run ([`RunqueueWait`]).

use colocate_machine::Nanos;

/// Inverse of the unread share of a process's time: sleeping threads are read once more than this
/// part of the time is not explained by the threads already read. Chosen: a fifth of the usage of
/// an active thread. Less is noticed once accumulated, or when all threads are read.
const UNREAD_PART: u64 = 100;

/// CPU time of a whole process, beside the CPU time of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessClock {
    /// Process clock before the threads were last read, and the time of its reading.
    clock: (Nanos, Nanos),
    /// Process clock before all threads were last read, and the time of its reading.
    all: (Nanos, Nanos),
    /// CPU time read from threads since `all`.
    threads: Nanos,
}

impl ProcessClock {
    /// Process with unread threads whose clock shows `ran` at `at`: all its time counts as
    /// unexplained.
    #[must_use]
    pub const fn unread(ran: Nanos, at: Nanos) -> Self {
        Self { clock: (ran, at), all: (Nanos::ZERO, at), threads: Nanos::ZERO }
    }

    /// Records the process clock at `at`, before the threads are read.
    pub const fn begin(&mut self, ran: Nanos, at: Nanos) {
        self.clock = (ran, at);
    }

    /// Process clock at its last reading.
    #[must_use]
    pub const fn time(&self) -> Nanos {
        self.clock.0
    }

    /// Time of the last reading of the clock.
    #[must_use]
    pub const fn asked(&self) -> Nanos {
        self.clock.1
    }

    /// Adds the CPU time of a thread since the thread's previous reading.
    pub fn add(&mut self, ran: Nanos) {
        self.threads += ran;
    }

    /// Records that all threads have been read since [`ProcessClock::begin`].
    pub const fn all_read(&mut self) {
        self.all = self.clock;
        self.threads = Nanos::ZERO;
    }

    /// Whether unread threads have used CPU time.
    #[must_use]
    pub fn has_new_cpu_time(&self) -> bool {
        let ran = self.clock.0.saturating_sub(self.all.0);
        let took = self.clock.1.saturating_sub(self.all.1);
        ran.saturating_sub(self.threads).0 > took.0 / UNREAD_PART
    }
}

/// Run-queue waits of one thread, including a wait in progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunqueueWait {
    /// Last values of the kernel: time on CPUs, and completed waits.
    last: Option<(Nanos, Nanos)>,
    /// Beginning of the present wait; `None` if not waiting.
    since: Option<Nanos>,
}

impl RunqueueWait {
    /// Records the kernel's sums at `at`, time on CPUs and completed waits; returns the total wait
    /// including the present wait.
    pub fn read(&mut self, sums: (Nanos, Nanos), at: Nanos) -> Nanos {
        // Changed sums: the thread has run, or its wait has ended and is part of the second sum.
        if self.last.replace(sums) != Some(sums) {
            self.since = None;
        }
        sums.1 + self.since.map_or(Nanos::ZERO, |since| at.saturating_sub(since))
    }

    /// Records whether the thread was runnable at `at` or later, sampled after its sums.
    pub fn could_run(&mut self, could: bool, at: Nanos) {
        // A wait goes on: the first time stays its beginning.
        self.since = could.then(|| self.since.unwrap_or(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls at 10, 20, … ms. It runs for 2 ms and is runnable at the first one, then waits until 37 ms, runs for 1 ms and
    /// sleeps; at 75 ms it wakes, and is first asked for its state at 90 ms, when the kernel has shown nothing yet.
    #[test]
    fn a_wait_that_goes_on() {
        let ms = Nanos::from_millis;
        let mut waits = RunqueueWait::default();
        let mut sample = |at, sums: (u64, u64), state: Option<bool>| {
            let waited = waits.read((ms(sums.0), ms(sums.1)), ms(at));
            if let Some(could) = state {
                waits.could_run(could, ms(at));
            }
            waited.0 / 1_000_000
        };
        assert_eq!(sample(10, (2, 0), Some(true)), 0);
        assert_eq!(sample(20, (2, 0), None), 10);
        assert_eq!(sample(30, (2, 0), None), 20);
        assert_eq!(sample(40, (3, 27), Some(false)), 27, "the kernel has it all now");
        assert_eq!(sample(50, (3, 27), None), 27, "it sleeps");
        assert_eq!(sample(80, (3, 27), None), 27, "it is not known yet that it woke");
        assert_eq!(sample(90, (3, 27), Some(true)), 27);
        let again = sample(100, (3, 27), Some(true));
        assert_eq!(again, 37, "asked again, it has waited since the first time");
        assert_eq!(sample(110, (3, 27), None), 47);
        assert_eq!(sample(120, (4, 65), Some(true)), 65);
    }

    /// A hundredth of the time, and what others did, is allowed for.
    #[test]
    fn sleeping_threads_are_read_when_the_process_has_run_for_more() {
        let ms = Nanos::from_millis;
        let whole = |ran: u64, took: u64, threads: u64| {
            let mut whole = ProcessClock::unread(ms(1_000), ms(5_000));
            whole.all_read();
            whole.begin(ms(1_000 + ran), ms(5_000 + took));
            whole.add(ms(threads));
            whole
        };
        assert!(
            ProcessClock::unread(ms(1_000), ms(5_000)).has_new_cpu_time(),
            "none was ever read"
        );
        assert!(!whole(0, 100, 0).has_new_cpu_time());
        assert!(!whole(1, 100, 0).has_new_cpu_time());
        assert!(whole(2, 100, 0).has_new_cpu_time());
        assert!(!whole(200, 100, 200).has_new_cpu_time(), "two threads that were read");
        assert!(!whole(200, 100, 204).has_new_cpu_time(), "a tick later");
        assert!(whole(300, 100, 200).has_new_cpu_time(), "a third");
        assert!(!whole(9, 1_000, 0).has_new_cpu_time(), "little over a long time");
        let mut read = whole(300, 100, 200);
        read.all_read();
        assert!(!read.has_new_cpu_time());
    }
}
