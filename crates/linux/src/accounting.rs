//! CPU time and run-queue wait of threads, without reading every sleeping or waiting thread again.
//!
//! One system call returns how long all threads of a process have run. Time beyond that of the threads that were read
//! belongs to those assumed to sleep; as long as it is next to nothing, none has woken ([`ProcessClock`]).
//!
//! The kernel adds a wait for a CPU to its sum when the wait is over, so of a thread that waits through a whole interval the
//! sums show nothing, as if it slept. But a thread that was runnable when polled, and whose sums have not changed since,
//! has waited all the time: it cannot have gone to sleep without having run ([`RunqueueWait`]).

use colocate_machine::Nanos;

/// Sleeping threads are not read unless their process has run for more than this part of the time that was not its other
/// threads'. Chosen: a fifth of what a thread has to use to count as active; what runs less is noticed when it has
/// summed up, or when all are read.
const UNREAD_PART: u64 = 100;

/// CPU time of a process as a whole, beside that of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessClock {
    /// Its clock, before its threads were last read, and when that was.
    clock: (Nanos, Nanos),
    /// The same before all of them were read.
    all: (Nanos, Nanos),
    /// What was read of its threads since then.
    threads: Nanos,
}

impl ProcessClock {
    /// Of a process none of whose threads have been read, whose clock shows `ran` at `at`: as if none of it were
    /// explained.
    #[must_use]
    pub const fn unread(ran: Nanos, at: Nanos) -> Self {
        Self { clock: (ran, at), all: (Nanos::ZERO, at), threads: Nanos::ZERO }
    }

    /// Takes in what its clock shows at `at`, before its threads are read.
    pub const fn begin(&mut self, ran: Nanos, at: Nanos) {
        self.clock = (ran, at);
    }

    /// What its clock showed when it was last read.
    #[must_use]
    pub const fn time(&self) -> Nanos {
        self.clock.0
    }

    /// When its clock was last asked for.
    #[must_use]
    pub const fn asked(&self) -> Nanos {
        self.clock.1
    }

    /// Notes that a thread was read which has run for so long since it was last read.
    pub fn add(&mut self, ran: Nanos) {
        self.threads += ran;
    }

    /// Notes that all its threads have been read since [`ProcessClock::begin`].
    pub const fn all_read(&mut self) {
        (self.all, self.threads) = (self.clock, Nanos::ZERO);
    }

    /// Whether threads have run that were not read.
    #[must_use]
    pub fn has_new_cpu_time(&self) -> bool {
        let ran = self.clock.0.saturating_sub(self.all.0);
        let took = self.clock.1.saturating_sub(self.all.1);
        ran.saturating_sub(self.threads).0 > took.0 / UNREAD_PART
    }
}

/// The waits of one thread for a CPU, with one that goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunqueueWait {
    /// What the kernel said last: time on CPUs, and waits that are over.
    last: Option<(Nanos, Nanos)>,
    /// Since when it could run and has not run.
    since: Option<Nanos>,
}

impl RunqueueWait {
    /// Takes in what the kernel says at `at`, time on CPUs and waits that are over; returns for how long it has waited,
    /// also now.
    pub fn read(&mut self, sums: (Nanos, Nanos), at: Nanos) -> Nanos {
        if self.last.replace(sums) != Some(sums) {
            self.since = None;
        }
        sums.1 + self.since.map_or(Nanos::ZERO, |since| at.saturating_sub(since))
    }

    /// Takes in whether it could run, asked at `at` or later, after its sums were read.
    pub fn could_run(&mut self, could: bool, at: Nanos) {
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
