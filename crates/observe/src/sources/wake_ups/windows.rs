//! When wake-ups are counted: as long as that takes little, always, and else in windows, so that it takes little.
//!
//! What is counted in a window stands for the time until the end of the next one.

use colocate_machine::Nanos;

/// Kernel time for counting a wake-up with its context switches. Measured on a virtual machine with
/// 2 PUs (AMD EPYC, Linux 6.18): two threads that only wake each other took 6.1 µs for two wake-ups
/// with counting, and 5.3 µs without.
const EACH: Nanos = Nanos(400);
/// Kernel time for starting and stopping counting, on all PUs together. Measured there: 0.2 ms for
/// the start and 0.3 ms for the stop, while the second PU is interrupted. A start within some
/// milliseconds of a stop takes 12 ms of waiting.
const SWITCHING: Nanos = Nanos::from_millis(1);
/// Maximum share of the PUs' time for counting. Chosen: a quarter of the maximum loss of a program.
const MOST: f64 = 0.0025;
/// Length of a window, and interval of the checks of the cost. Chosen: a pair of threads worth a PU
/// of its own wakes each other some hundred times in a window.
const LENGTH: Nanos = Nanos::from_millis(5);

/// Factor by which a rate is another one. Chosen: a bare pair of threads does some twenty times as much on one
/// PU as on two (virtual machine with 2 PUs).
const FACTOR: f64 = 4.0;
/// A rest is at least this part of the time since the counting began or another rate ended a rest. Chosen: seven
/// windows in the first 3 s, some 1 % of them.
const GROWS: u64 = 2;
/// No rest is longer for that. Chosen: a window each 2 s is 0.25 % of the time.
const LONGEST_REST: Nanos = Nanos::from_secs(2);
/// Time between two windows that do not wait for the end of a rest. Chosen: they take a quarter of [`MOST`].
const HASTENS: Nanos = Nanos::from_secs(1);

/// Schedule of the counting.
#[derive(Debug)]
pub(super) struct Windows {
    pus: f64,
    now: Phase,
    /// When the counting began, or the last rest was ended early.
    since: Nanos,
    /// The last rest that was ended early.
    hastened: Option<Nanos>,
    switches: Switches,
}

/// How often the watched threads switch.
#[derive(Debug, Default)]
struct Switches {
    at: Nanos,
    sum: u64,
    /// Per nanosecond, in the time before `at`; `None` if unknown.
    rate: Option<f64>,
}

impl Switches {
    /// Takes in the sum at `at`. Whether the rate is another one than in the time before.
    fn note(&mut self, at: Nanos, sum: u64) -> bool {
        let passed = at.saturating_sub(self.at);
        if passed < LENGTH {
            return false;
        }
        // Threads that have ended are in the sum no more.
        let rate = sum.checked_sub(self.sum).map(|switches| switches as f64 / passed.0 as f64);
        let before = std::mem::replace(self, Self { at, sum, rate }).rate;
        rate.zip(before)
            .is_some_and(|(rate, before)| rate > FACTOR * before || before > FACTOR * rate)
    }
}

/// Mode of the counting; times are on the clock of the kernel's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// All wake-ups are counted: `count` since `from`.
    Always {
        from: Nanos,
        count: u64,
    },
    Window {
        from: Nanos,
        until: Nanos,
    },
    Rest {
        until: Nanos,
    },
}

/// Change of the counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// All from this time on.
    From(Nanos),
    /// Only wake-ups between these times.
    Between(Nanos, Nanos),
    /// None.
    None,
}

impl Windows {
    /// Counts all wake-ups from `now` on, on `pus` PUs.
    pub fn new(pus: usize, now: Nanos) -> Self {
        Self {
            pus: pus.max(1) as f64,
            now: Phase::Always { from: now, count: 0 },
            since: now,
            hastened: None,
            switches: Switches::default(),
        }
    }

    /// Takes in how often the watched threads have switched until `now`. A rest ends where that says that their wake-ups are
    /// other ones.
    pub fn note_switches(&mut self, now: Nanos, sum: u64) {
        let is_changed = self.switches.note(now, sum);
        let may_hasten = self.hastened.is_none_or(|last| now >= last + HASTENS);
        if is_changed && may_hasten && matches!(self.now, Phase::Rest { .. }) {
            self.hastened = Some(now);
            self.since = now;
            self.now = Phase::Rest { until: now };
        }
    }

    /// Whether the counts are due at `now`.
    pub fn is_taken(&self, now: Nanos) -> bool {
        match self.now {
            Phase::Always { .. } => true,
            Phase::Window { until, .. } => now >= until,
            Phase::Rest { .. } => false,
        }
    }

    /// End of the present window; `None` outside windows.
    pub fn ends(&self) -> Option<Nanos> {
        match self.now {
            Phase::Window { until, .. } => Some(until),
            Phase::Always { .. } | Phase::Rest { .. } => None,
        }
    }

    /// Length of the present window; `None` while all or nothing is counted.
    pub fn length(&self) -> Option<Nanos> {
        match self.now {
            Phase::Window { from, until } => Some(until.saturating_sub(from)),
            Phase::Always { .. } | Phase::Rest { .. } => None,
        }
    }

    /// Processes the number of wake-ups `taken` at `now`, 0 if none was due. Returns the new
    /// counting mode on a change.
    pub fn next(&mut self, taken: u64, now: Nanos) -> Option<Count> {
        match self.now {
            Phase::Always { from, count } => {
                let count = count + taken;
                let passed = now.saturating_sub(from);
                if passed < LENGTH {
                    self.now = Phase::Always { from, count };
                    return None;
                }
                self.now = Phase::Always { from: now, count: 0 };
                let rests = self.rests(count, passed, now)?;
                self.now = Phase::Rest { until: now + rests };
                Some(Count::None)
            }
            Phase::Window { from, until } if now >= until => {
                let Some(rests) = self.rests(taken, until.saturating_sub(from), now) else {
                    self.now = Phase::Always { from: now, count: 0 };
                    return Some(Count::From(now));
                };
                self.now = Phase::Rest { until: until + rests };
                self.open(now).or(Some(Count::None))
            }
            Phase::Window { .. } => None,
            Phase::Rest { .. } => self.open(now),
        }
    }

    /// Opens the next window if due.
    fn open(&mut self, now: Nanos) -> Option<Count> {
        let Phase::Rest { until } = self.now else { return None };
        (now >= until).then(|| {
            self.now = Phase::Window { from: now, until: now + LENGTH };
            Count::Between(now, now + LENGTH)
        })
    }

    /// Rest from `now` on after a window with `count` wake-ups in `passed`; `None` if all may be counted.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    fn rests(&self, count: u64, passed: Nanos, now: Nanos) -> Option<Nanos> {
        let takes = count as f64 * EACH.as_secs_f64() / (self.pus * passed.as_secs_f64());
        let switching = SWITCHING.0 as f64 / self.pus;
        // From (counting + switching) / (window + rest) = MOST.
        let rests = (LENGTH.0 as f64 * takes + switching) / MOST - LENGTH.0 as f64;
        let grown = Nanos(now.saturating_sub(self.since).0 / GROWS).min(LONGEST_REST);
        (takes > MOST).then_some(Nanos(rests as u64).max(grown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// 12 wake-ups a millisecond take less than half of 1 % of a PU, and half of that of two.
    #[test]
    fn few_are_all_counted() {
        let mut windows = Windows::new(2, ms(0));
        for at in 1..100 {
            assert!(windows.is_taken(ms(at)) && windows.length().is_none());
            assert_eq!(windows.next(12, ms(at)), None);
        }
    }

    /// 250 a millisecond take twenty times as much as they may: a window of 5 ms, then 95 ms without, and 200 ms more, as it takes
    /// half a millisecond of either PU to begin and end it.
    #[test]
    fn many_are_counted_in_windows() {
        let mut windows = Windows::new(2, ms(0));
        assert_eq!(windows.next(250, ms(1)), None, "a short burst says nothing");
        assert_eq!(windows.next(1_000, ms(5)), Some(Count::None));
        assert_eq!((windows.is_taken(ms(299)), windows.next(0, ms(299))), (false, None));
        assert_eq!(windows.next(0, ms(310)), Some(Count::Between(ms(310), ms(315))));
        assert_eq!((windows.is_taken(ms(314)), windows.next(0, ms(314))), (false, None));
        assert_eq!((windows.is_taken(ms(320)), windows.length()), (true, Some(ms(5))));
        assert_eq!(
            (windows.ends(), windows.next(1_250, ms(320))),
            (Some(ms(315)), Some(Count::None))
        );
        assert_eq!(windows.next(0, ms(609)), None);
        assert_eq!(windows.next(0, ms(620)), Some(Count::Between(ms(620), ms(625))));
        assert_eq!(windows.next(60, ms(700)), Some(Count::From(ms(700))), "few again");
        assert_eq!(windows.next(12, ms(701)), None);
    }

    /// Rests grow while threads switch at one rate; another rate makes them short again.
    #[test]
    fn rests_grow() {
        let mut windows = Windows::new(2, ms(0));
        let rest = |windows: &mut Windows, at| {
            windows.now = Phase::Window { from: ms(at - 5), until: ms(at) };
            assert_eq!(windows.next(1_250, ms(at)), Some(Count::None));
            let Phase::Rest { until } = windows.now else { panic!("{:?}", windows.now) };
            until.saturating_sub(ms(at))
        };
        assert_eq!(rest(&mut windows, 1_000), ms(500));
        assert_eq!(rest(&mut windows, 9_000), ms(2_000));
        [0, 100_000, 101_000].into_iter().zip(1..).for_each(|(switches, second)| {
            windows.note_switches(ms(8_000 + 1_000 * second), switches);
        });
        assert_eq!(rest(&mut windows, 12_000), ms(500), "since the rate changed at 11 s");
    }

    /// Threads that switch 100,000 times a second begin to do so 10,000 times: the window that follows is not waited for, once a
    /// second.
    #[test]
    fn other_rates_end_a_rest() {
        let mut windows = Windows::new(2, ms(0));
        let rests = |windows: &mut Windows, from, until| {
            windows.now = Phase::Rest { until: ms(until) };
            windows.next(0, ms(from)).is_none()
        };
        windows.note_switches(ms(0), 0);
        windows.note_switches(ms(50), 5_000);
        windows.note_switches(ms(100), 10_000);
        assert!(rests(&mut windows, 100, 300));
        windows.note_switches(ms(150), 10_500);
        assert_eq!(windows.next(0, ms(150)), Some(Count::Between(ms(150), ms(155))));
        windows.note_switches(ms(200), 15_500);
        assert!(rests(&mut windows, 200, 300));
        windows.note_switches(ms(1_200), 15_600);
        assert_eq!(windows.now, Phase::Rest { until: ms(1_200) });
        windows.note_switches(ms(1_250), 100);
        windows.note_switches(ms(1_300), 10_000);
        assert_eq!(windows.hastened, Some(ms(1_200)), "ended threads are no change");
    }

    /// After a window that was taken late the next one begins at once.
    #[test]
    fn rests_are_not_added_to_what_has_passed() {
        let mut windows = Windows::new(2, ms(0));
        windows.next(1_250, ms(5));
        windows.next(0, ms(150));
        assert_eq!(windows.next(1_250, ms(350)), Some(Count::Between(ms(350), ms(355))));
    }
}
