//! Communication costs between two PUs: passing a cache line, and waking a thread.
//!
//! Threads wait by spinning on one cache line ([`line()`]), or asleep in the kernel ([`wake_ups`],
//! [`round_trips`]: futex(2), as used by `std::thread::park`). Each call creates its threads and
//! ends them before returning.

use crate::measure::stamp;
use crate::overlap::{Trail, paces};
use crate::thread::{ThreadError, pin, side_by_side, wall_ns};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::{Thread, current, park, sleep};
use std::time::Duration;

/// A number on two cache lines of its own, because processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct PaddedCounter(AtomicU64);

/// Value that ends the thread at the other end of a line.
const END: u64 = u64::MAX;

/// Round trips between two stamps: some 50 µs within a package. Chosen: long compared to reading
/// two clocks (0.3 µs), short compared to a time slice.
const TRIPS: u64 = 256;

/// Time to pass a modified cache line from one PU to the other, in nanoseconds: half of a round
/// trip, the median of the undisturbed chunks of `length`. `None` if other load disturbed every
/// chunk.
///
/// # Errors
/// [`ThreadError`] if a PU cannot be used or no thread can be created.
///
/// # Panics
/// If both PUs are the same: neither spinning thread would let the other run.
pub fn line(pus: [u32; 2], length: Duration) -> Result<Option<f64>, ThreadError> {
    assert_ne!(pus[0], pus[1], "a line passes between two PUs");
    let line = PaddedCounter::default();
    let done = side_by_side(
        2,
        |number| pin(pus[number]),
        |number, ()| if number == 0 { pass(&line, length) } else { return_all(&line) },
        || (),
    );
    Ok(done?.remove(0))
}

/// Waits for a value on the line; false if the value is [`END`].
fn wait_for(line: &PaddedCounter, wanted: u64) -> bool {
    loop {
        let found = line.0.load(SeqCst);
        if found == wanted || found == END {
            return found == wanted;
        }
        std::hint::spin_loop();
    }
}

/// Second thread: answers each odd value with the next even value.
fn return_all(line: &PaddedCounter) -> Option<f64> {
    let mut next = 1;
    while wait_for(line, next) {
        line.0.store(next + 1, SeqCst);
        next += 2;
    }
    None
}

/// First thread: sends odd values for `length`, and returns the nanoseconds of a pass.
fn pass(line: &PaddedCounter, length: Duration) -> Option<f64> {
    let mut stamps = vec![stamp()];
    let end = stamps[0].wall_ns + ns(length);
    let mut next = 0;
    // Two stamps must remain without the first chunk.
    while stamps.len() < 3 || stamps[stamps.len() - 1].wall_ns < end {
        for _ in 0..TRIPS {
            line.0.store(next + 1, SeqCst);
            wait_for(line, next + 2);
            next += 2;
        }
        stamps.push(stamp());
    }
    line.0.store(END, SeqCst);
    // The first chunk includes the start of the other thread.
    stamps.remove(0);
    paces(&[Trail { chunk: 2 * TRIPS, stamps }])[0].map(|pace| pace.iteration_ns)
}

/// Parameters of a measurement of wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeUps {
    /// PU of the waking thread.
    pub waker: u32,
    /// PU of the woken thread; may be the same.
    pub wakee: u32,
    /// True to run a thread that never sleeps on the wakee's PU meanwhile, with the same priority.
    pub busy: bool,
    /// Number of wake-ups.
    pub count: u32,
    /// Sleep of the woken thread before each wake-up.
    pub pause: Duration,
}

/// Cost of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeUp {
    /// Time from before the waker's system call until the woken thread runs, in nanoseconds.
    pub latency_ns: u64,
    /// Duration of the waker's system call, in nanoseconds.
    pub call_ns: u64,
}

/// Shared state of waker and woken thread.
#[derive(Default)]
struct Wakes {
    /// Time of the waker's call, in nanoseconds; 0 once taken by the woken thread.
    posted: PaddedCounter,
    /// Last round, from 1, that the woken thread has begun.
    sleeping: PaddedCounter,
    woken: OnceLock<Thread>,
}

impl Wakes {
    /// The woken thread: returns the latency of each wake-up in nanoseconds.
    fn be_woken(&self, count: u32) -> Vec<u64> {
        // Only this thread sets the handle, once.
        let _ = self.woken.set(current());
        let mut latencies = Vec::new();
        for round in 1..=u64::from(count) {
            self.sleeping.0.store(round, SeqCst);
            // `park` may return without a wake-up.
            while self.posted.0.load(SeqCst) == 0 {
                park();
            }
            latencies.push(wall_ns().saturating_sub(self.posted.0.swap(0, SeqCst)));
        }
        latencies
    }

    /// The waker: returns the duration of each call in nanoseconds.
    fn wake(&self, how: WakeUps) -> Vec<u64> {
        let mut calls = Vec::new();
        for round in 1..=u64::from(how.count) {
            // On a common PU, the other thread runs only while this one sleeps.
            while self.sleeping.0.load(SeqCst) < round || self.woken.get().is_none() {
                sleep(how.pause.min(Duration::from_micros(50)));
            }
            if how.waker == how.wakee {
                sleep(how.pause)
            } else {
                spin(how.pause)
            }
            let before = wall_ns();
            self.posted.0.store(before, SeqCst);
            self.woken.get().into_iter().for_each(Thread::unpark);
            calls.push(wall_ns() - before);
        }
        // The woken thread may not have taken the last wake-up yet.
        while self.posted.0.load(SeqCst) != 0 {
            sleep(Duration::from_micros(50));
        }
        calls
    }
}

/// Results of two threads on two PUs. With `busy`, a thread that never sleeps runs on the second PU
/// until the first thread is done.
fn both(
    pus: [u32; 2],
    busy: bool,
    first: impl Fn() -> Vec<u64> + Sync,
    second: impl Fn() -> Vec<u64> + Sync,
) -> Result<Vec<Vec<u64>>, ThreadError> {
    let ended = AtomicBool::new(false);
    let work = |number, ()| match number {
        0 => {
            let done = first();
            ended.store(true, SeqCst);
            done
        }
        1 => second(),
        _ => {
            while !ended.load(Relaxed) {
                std::hint::spin_loop();
            }
            Vec::new()
        }
    };
    side_by_side(2 + usize::from(busy), |number| pin(pus[number.min(1)]), work, || ())
}

/// Wakes a thread `how.count` times, and returns the cost of each wake-up.
///
/// # Errors
/// As [`line()`].
pub fn wake_ups(how: WakeUps) -> Result<Vec<WakeUp>, ThreadError> {
    let wakes = Wakes::default();
    let wake = || wakes.wake(how);
    let done = both([how.waker, how.wakee], how.busy, wake, || wakes.be_woken(how.count))?;
    let costs = done[1].iter().zip(&done[0]);
    Ok(costs.map(|(&latency_ns, &call_ns)| WakeUp { latency_ns, call_ns }).collect())
}

/// Least sleep of the other thread before a round trip between two PUs. Chosen: several times the
/// cost of going to sleep. Two running threads would never sleep, and would only pass a line.
const SLEPT: Duration = Duration::from_micros(50);

/// Measures `count` round trips in nanoseconds: a thread wakes another and sleeps until woken by
/// it. With `busy`, a thread that never sleeps runs on the second PU meanwhile.
///
/// # Errors
/// As [`line()`].
pub fn round_trips(pus: [u32; 2], busy: bool, count: u32) -> Result<Vec<u64>, ThreadError> {
    let trips = RoundTrips::default();
    let lead = || trips.lead(count, pus[0] != pus[1]);
    let done = both(pus, busy, lead, || trips.answer(count));
    Ok(done?.remove(0))
}

/// Shared state of the two threads of a round trip.
#[derive(Default)]
struct RoundTrips {
    /// Number of the thread to continue.
    turn: PaddedCounter,
    threads: [OnceLock<Thread>; 2],
}

impl RoundTrips {
    /// Registers thread `me` and waits for the other.
    fn meet(&self, me: usize) {
        // Only this thread sets its handle, once.
        let _ = self.threads[me].set(current());
        while self.threads[1 - me].get().is_none() {
            sleep(Duration::from_micros(50));
        }
    }

    fn wake(&self, other: usize) {
        self.turn.0.store(other as u64, SeqCst);
        self.threads[other].get().into_iter().for_each(Thread::unpark);
    }

    fn wait(&self, me: usize) {
        // `park` may return without a wake-up.
        while self.turn.0.load(SeqCst) != me as u64 {
            park();
        }
    }

    /// First thread: returns the duration of each trip. On two PUs, lets the other thread go to
    /// sleep before each trip.
    fn lead(&self, count: u32, on_two_pus: bool) -> Vec<u64> {
        self.meet(0);
        let mut trips = Vec::new();
        for _ in 0..count {
            if on_two_pus {
                spin(SLEPT);
            }
            let before = wall_ns();
            self.wake(1);
            self.wait(0);
            trips.push(wall_ns() - before);
        }
        trips
    }

    /// Second thread.
    fn answer(&self, count: u32) -> Vec<u64> {
        self.meet(1);
        for _ in 0..count {
            self.wait(1);
            self.wake(0);
        }
        Vec::new()
    }
}

fn spin(length: Duration) {
    let end = wall_ns() + ns(length);
    while wall_ns() < end {
        std::hint::spin_loop();
    }
}

fn ns(length: Duration) -> u64 {
    // Half of the range, so that a sum with a time does not overflow.
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::usable;
    use colocate_testing::skip;

    #[test]
    fn a_line_passes_between_two_pus() {
        let pus = usable().unwrap();
        let [a, b, ..] = pus[..] else { skip!(TwoPus, "one PU") };
        match line([a, b], Duration::from_millis(5)).unwrap() {
            Some(found) => assert!(found > 1.0 && found < 1e6, "{found}"),
            None => println!("other load left no undisturbed stretch"),
        }
    }

    #[test]
    fn every_wake_up_is_timed() {
        let pus = usable().unwrap();
        let (waker, other) = (pus[0], pus[pus.len() - 1]);
        for wakee in [waker, other] {
            for busy in [false, true] {
                let pause = Duration::from_micros(50);
                let found = wake_ups(WakeUps { waker, wakee, busy, count: 5, pause }).unwrap();
                assert_eq!(found.len(), 5);
                assert!(found.iter().all(|one| one.latency_ns > 0), "{found:?}");
                assert_eq!(round_trips([waker, wakee], busy, 5).unwrap().len(), 5);
            }
        }
    }

    #[test]
    fn a_pu_that_is_not_there_is_refused() {
        let how = WakeUps { waker: 0, wakee: 8191, busy: false, count: 1, pause: Duration::ZERO };
        assert!(wake_ups(how).is_err());
        assert!(line([0, 8191], Duration::ZERO).is_err());
    }
}
