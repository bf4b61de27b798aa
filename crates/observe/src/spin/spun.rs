//! Time that a thread spent in spin loops, from poll to poll.
//!
//! Between two polls this is the share of spin samples among the thread's samples, applied to its
//! time on PUs and to its run-queue time: a thread preempted in a loop is still in the loop.
//! Samples of unreadable code count as work. Without new samples, as after long run-queue waits,
//! the last share applies.

use super::Share;
use colocate_machine::Nanos;

/// Time of a thread on PUs, and on a run queue.
pub type RunAndWaitTime = (Nanos, Nanos);

/// Spin time of a thread, from samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spun {
    /// Time in spin loops.
    waited: Nanos,
    /// Samples that apply until newer samples come.
    share: Share,
    /// Whether any code of the thread was ever readable.
    was_read: bool,
}

impl Spun {
    /// Adds the samples, time on PUs and run-queue time since the last poll. `most` is the longest
    /// time on PUs that one sample represents; `None` if samples represent a share of all time.
    pub fn add(&mut self, new: Share, (ran, queued): RunAndWaitTime, most: Option<Nanos>) {
        if new != Share::default() {
            self.share = new;
        }
        self.was_read |= new.waits > 0 || new.works > 0;
        let [ran, queued] = [ran, queued].map(|time| self.share.of(time).unwrap_or(Nanos::ZERO));
        let seen =
            most.map_or(ran, |most| ran.min(Nanos(most.0.saturating_mul(u64::from(new.waits)))));
        self.waited += seen + queued;
    }

    /// Time in spin loops; `None` if no code was readable yet. Once known, the time never shrinks,
    /// and unreadable code adds nothing.
    #[must_use]
    pub fn waited(&self) -> Option<Nanos> {
        let is_blind = !self.was_read && self.share.unknown > 0;
        (!is_blind).then_some(self.waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(waits: u32, works: u32, unknown: u32) -> Share {
        Share { waits, works, unknown }
    }

    /// Polls after 100 ms on PUs each: half of the samples wait; then it waits for a PU for 40 ms, and nothing comes; then
    /// all that can be read wait, three of four.
    #[test]
    fn samples_share_the_time_since_the_last_poll() {
        let ms = Nanos::from_millis;
        let mut spun = Spun::default();
        spun.add(share(10, 10, 0), (ms(100), ms(0)), None);
        assert_eq!(spun.waited(), Some(ms(50)));
        spun.add(share(0, 0, 0), (ms(0), ms(40)), None);
        assert_eq!(spun.waited(), Some(ms(70)));
        spun.add(share(24, 0, 8), (ms(100), ms(20)), None);
        assert_eq!(spun.waited(), Some(ms(160)));
        spun.add(share(0, 25, 0), (ms(100), ms(0)), None);
        assert_eq!(spun.waited(), Some(ms(160)));
    }

    /// It waits for 100 ms, and then runs code that cannot be read: for 100 ms with samples, for 50 ms in which none
    /// comes, and for 100 ms in which one of 100 samples waits.
    #[test]
    fn waiting_ends_where_code_cannot_be_read() {
        let ms = Nanos::from_millis;
        let mut spun = Spun::default();
        spun.add(share(25, 0, 0), (ms(100), ms(0)), None);
        assert_eq!(spun.waited(), Some(ms(100)));
        spun.add(share(0, 0, 25), (ms(100), ms(10)), None);
        assert_eq!(spun.waited(), Some(ms(100)));
        spun.add(share(0, 0, 0), (ms(10), ms(40)), None);
        assert_eq!(spun.waited(), Some(ms(100)));
        spun.add(share(1, 0, 99), (ms(100), ms(0)), None);
        assert_eq!(spun.waited(), Some(ms(101)));
    }

    /// Of 100 ms, 60 were in the kernel, where nothing is sampled: 5 of 10 samples are 20 ms at most.
    #[test]
    fn time_in_the_kernel_is_not_waited_where_it_is_not_sampled() {
        let ms = Nanos::from_millis;
        let mut spun = Spun::default();
        spun.add(share(5, 5, 0), (ms(100), ms(0)), Some(ms(4)));
        assert_eq!(spun.waited(), Some(ms(20)));
    }

    #[test]
    fn code_that_cannot_be_read_says_nothing() {
        let ms = Nanos::from_millis;
        let mut spun = Spun::default();
        assert_eq!(spun.waited(), Some(ms(0)));
        spun.add(share(0, 0, 7), (ms(28), ms(0)), None);
        assert_eq!(spun.waited(), None);
        spun.add(share(1, 1, 0), (ms(12), ms(0)), None);
        assert_eq!(spun.waited(), Some(ms(6)));
    }
}
