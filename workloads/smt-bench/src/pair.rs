//! What two PUs cost each other: passing a cache line, and waking a thread.
//!
//! Threads wait for each other by spinning on one cache line ([`line()`]), or sleeping in the kernel ([`wake_ups`],
//! [`round_trips`]: futex(2), as `std::thread::park` uses it). All are threads of their own, and end before the call does.

use crate::overlap::{Stamp, Trail, paces};
use crate::thread::{ThreadError, cpu_ns, pin, side_by_side, wall_ns};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::{Thread, current, park, sleep};
use std::time::Duration;

/// A number alone on two cache lines, because processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// What ends the thread at the other end of a line.
const END: u64 = u64::MAX;

/// There-and-back trips between two stamps: some 50 µs on one package. Chosen: long beside reading two clocks
/// (0.3 µs), short beside a time slice.
const TRIPS: u64 = 256;

/// Nanoseconds in which a cache line that one of two PUs has written is read by the other, half of there and back: the
/// median of undisturbed stretches in `length`. `None` if other load left no undisturbed stretch.
///
/// # Errors
/// [`ThreadError`] if a PU cannot be used or a thread cannot be made.
///
/// # Panics
/// If both PUs are the same: neither thread would let the other run.
pub fn line(pus: [u32; 2], length: Duration) -> Result<Option<f64>, ThreadError> {
    assert_ne!(pus[0], pus[1], "a line passes between two PUs");
    let line = Line::default();
    let wait_for = |wanted: u64| {
        loop {
            let found = line.0.load(SeqCst);
            if found == wanted || found == END {
                return found == wanted;
            }
            std::hint::spin_loop();
        }
    };
    let work = |number, ()| {
        if number == 1 {
            let mut next = 1;
            while wait_for(next) {
                line.0.store(next + 1, SeqCst);
                next += 2;
            }
            return None;
        }
        let stamp = || Stamp { wall_ns: wall_ns(), cpu_ns: cpu_ns() };
        let mut stamps = vec![stamp()];
        let end = stamps[0].wall_ns + ns(length);
        let mut next = 0;
        while stamps.len() < 3 || stamps[stamps.len() - 1].wall_ns < end {
            for _ in 0..TRIPS {
                line.0.store(next + 1, SeqCst);
                wait_for(next + 2);
                next += 2;
            }
            stamps.push(stamp());
        }
        line.0.store(END, SeqCst);
        // The first stretch has the start of the other thread in it.
        stamps.remove(0);
        paces(&[Trail { chunk: 2 * TRIPS, stamps }])[0].map(|pace| pace.iteration_ns)
    };
    Ok(side_by_side(2, |number| pin(pus[number]), work, || ())?.remove(0))
}

/// How wake-ups are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeUps {
    /// PU of the thread that wakes.
    pub waker: u32,
    /// PU of the thread that is woken; it may be the same.
    pub wakee: u32,
    /// A thread that never sleeps runs on the wakee's PU meanwhile, with the same priority.
    pub busy: bool,
    /// How many wake-ups.
    pub count: u32,
    /// How long the woken thread sleeps before.
    pub pause: Duration,
}

/// What a wake-up took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeUp {
    /// From before the system call of the waker until the woken thread runs, in nanoseconds.
    pub latency_ns: u64,
    /// How long the waker was in the call, in nanoseconds.
    pub call_ns: u64,
}

/// Wakes a thread so often, and says what each wake-up took.
///
/// # Errors
/// As [`line()`].
pub fn wake_ups(how: WakeUps) -> Result<Vec<WakeUp>, ThreadError> {
    let (posted, sleeping, ended) = (Line::default(), Line::default(), AtomicBool::new(false));
    let woken: OnceLock<Thread> = OnceLock::new();
    let prepare = |number: usize| pin(if number == 0 { how.waker } else { how.wakee });
    let wakee = || {
        let _ = woken.set(current());
        let mut latencies = Vec::new();
        for round in 1..=u64::from(how.count) {
            sleeping.0.store(round, SeqCst);
            while posted.0.load(SeqCst) == 0 {
                park();
            }
            latencies.push(wall_ns().saturating_sub(posted.0.swap(0, SeqCst)));
        }
        latencies
    };
    let waker = || {
        let mut calls = Vec::new();
        for round in 1..=u64::from(how.count) {
            // On one PU the other thread runs only while this one sleeps.
            while sleeping.0.load(SeqCst) < round || woken.get().is_none() {
                sleep(how.pause.min(Duration::from_micros(50)));
            }
            if how.waker == how.wakee {
                sleep(how.pause)
            } else {
                spin(how.pause)
            }
            let before = wall_ns();
            posted.0.store(before, SeqCst);
            woken.get().into_iter().for_each(Thread::unpark);
            calls.push(wall_ns() - before);
        }
        // The last wake-up has not been taken yet, perhaps.
        while posted.0.load(SeqCst) != 0 {
            sleep(Duration::from_micros(50));
        }
        ended.store(true, SeqCst);
        calls
    };
    let work = |number, ()| match number {
        0 => waker(),
        1 => wakee(),
        _ => {
            while !ended.load(Relaxed) {
                std::hint::spin_loop();
            }
            Vec::new()
        }
    };
    let done = side_by_side(2 + usize::from(how.busy), prepare, work, || ())?;
    let both = done[1].iter().zip(&done[0]);
    Ok(both.map(|(&latency_ns, &call_ns)| WakeUp { latency_ns, call_ns }).collect())
}

/// How long the other thread has slept, at least, before a round trip between two PUs begins. Chosen: several times what
/// going to sleep takes. Threads that find each other running would never sleep, and pass a line only.
const SLEPT: Duration = Duration::from_micros(50);

/// Nanoseconds of `count` round trips: a thread wakes another and sleeps until that one wakes it. With `busy` a thread
/// that never sleeps runs on the second PU meanwhile.
///
/// # Errors
/// As [`line()`].
pub fn round_trips(pus: [u32; 2], busy: bool, count: u32) -> Result<Vec<u64>, ThreadError> {
    let (turn, ended) = (Line::default(), AtomicBool::new(false));
    let threads: [OnceLock<Thread>; 2] = [OnceLock::new(), OnceLock::new()];
    // The line has the number of the thread that continues.
    let play = |me: usize| {
        let other = 1 - me;
        let _ = threads[me].set(current());
        while threads[other].get().is_none() {
            sleep(Duration::from_micros(50));
        }
        let mut trips = Vec::new();
        for _ in 0..count {
            if me == 0 && pus[0] != pus[1] {
                spin(SLEPT);
            }
            let before = wall_ns();
            if me == 0 {
                turn.0.store(1, SeqCst);
                threads[1].get().into_iter().for_each(Thread::unpark);
            }
            while turn.0.load(SeqCst) != me as u64 {
                park();
            }
            if me == 1 {
                turn.0.store(0, SeqCst);
                threads[0].get().into_iter().for_each(Thread::unpark);
            }
            trips.push(wall_ns() - before);
        }
        trips
    };
    let work = |number, ()| {
        if number < 2 {
            let trips = play(number);
            if number == 0 {
                ended.store(true, SeqCst);
            }
            return trips;
        }
        while !ended.load(Relaxed) {
            std::hint::spin_loop();
        }
        Vec::new()
    };
    let prepare = |number: usize| pin(pus[number.min(1)]);
    Ok(side_by_side(2 + usize::from(busy), prepare, work, || ())?.remove(0))
}

fn spin(length: Duration) {
    let end = wall_ns() + ns(length);
    while wall_ns() < end {
        std::hint::spin_loop();
    }
}

fn ns(length: Duration) -> u64 {
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
