//! How many threads of the observed region may run at a time.
//!
//! # Problem
//! A team's size is fixed when its region begins. To run a loop with fewer threads than that, some of them have to wait inside of it.
//! # Approach
//! A thread is held where it calls the runtime: before it requests the next chunk, or enters a critical section. There a thread
//! may be late in any program, so no result depends on it. One that is held sleeps (futex(2)).
//! # Terms
//! - *Ticket*: its number in the order of arrival. A thread runs once its ticket is below `ADMITTED`, and keeps it until it is
//!   done, or has run for [`SLICE`] while others wait.
//! - *Round*: from one [`set`] to the next one; tickets of earlier rounds are void.
//! # Properties
//! - **No more than that many** run. -> test `no_more_than_admitted`
//! - **Each gets its turn**, and all run once it is open. -> test `each_gets_its_turn`

#![allow(unsafe_code)] // futex

use crate::clock::now;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How long a thread runs while others wait. Chosen: a thousand times what a change of threads costs.
const SLICE: u64 = 10_000_000;
/// How long a thread is held before it looks whether any thread gets on. Chosen: far longer than the kernel keeps a
/// runnable thread waiting.
const PATIENCE: u64 = 250_000_000;
/// As many admitted as will ever arrive.
const ALL: u32 = 1 << 31;

/// Round in the upper half, how many of its tickets may run in the lower one.
static ADMITTED: AtomicU64 = AtomicU64::new(ALL as u64);
/// Round in the upper half, tickets given in the lower one.
static GIVEN: AtomicU64 = AtomicU64::new(0);
/// Changes with every change of `ADMITTED`: held threads sleep on it.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// A thread's place in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    round: u32,
    number: u32,
    /// Since when it runs; ns.
    since: u64,
}

const fn split(word: u64) -> (u32, u32) {
    #[allow(clippy::cast_possible_truncation)] // each half is 32 bits
    ((word >> 32) as u32, word as u32)
}

const fn joined(round: u32, count: u32) -> u64 {
    (round as u64) << 32 | count as u64
}

/// Whether all may run.
pub fn is_open() -> bool {
    split(ADMITTED.load(Ordering::Relaxed)).1 >= ALL
}

/// Lets so many threads run from now on; all of them if it is `None`. One thread at a time may call it.
pub fn set(threads: Option<u32>) {
    if threads.is_none() && is_open() {
        return;
    }
    let round = split(ADMITTED.load(Ordering::Relaxed)).0.wrapping_add(1);
    ADMITTED.store(joined(round, threads.unwrap_or(ALL)), Ordering::SeqCst);
    GIVEN.store(joined(round, 0), Ordering::SeqCst);
    wake(u32::MAX);
}

/// Returns, at once or later, when this thread may run, and whether it was held. Where it is held for long it calls `is_stuck`, and
/// returns if that is true.
pub fn pass(ticket: &mut Option<Ticket>, time: u64, mut is_stuck: impl FnMut() -> bool) -> bool {
    if is_open() {
        *ticket = None;
        return false;
    }
    if let Some(held) = ticket.as_ref().filter(|held| held.runs()) {
        let given = split(GIVEN.load(Ordering::Relaxed)).1;
        let others_wait = given > split(ADMITTED.load(Ordering::Relaxed)).1;
        if !others_wait || time.saturating_sub(held.since) < SLICE {
            return false;
        }
        leave(ticket);
    }
    let mut held = false;
    loop {
        let (round, number) = split(GIVEN.fetch_add(1, Ordering::SeqCst));
        let mine = Ticket { round, number, since: 0 };
        loop {
            let changes = CHANGES.load(Ordering::SeqCst);
            if mine.runs() {
                *ticket = Some(Ticket { since: now(), ..mine });
                return held;
            }
            if split(ADMITTED.load(Ordering::SeqCst)).0 != round {
                break;
            }
            held = true;
            if !sleep(changes, number) && is_stuck() {
                *ticket = None;
                return held;
            }
        }
        // A new round has begun.
        if is_open() {
            *ticket = None;
            return held;
        }
    }
}

/// This thread is done: another one may run.
pub fn leave(ticket: &mut Option<Ticket>) {
    let Some(mine) = ticket.take() else { return };
    let mut word = ADMITTED.load(Ordering::SeqCst);
    loop {
        let (round, admitted) = split(word);
        if round != mine.round || admitted >= ALL {
            return;
        }
        let next = joined(round, admitted + 1);
        match ADMITTED.compare_exchange(word, next, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) if split(GIVEN.load(Ordering::SeqCst)).1 > admitted => {
                return wake(bit(admitted));
            }
            // One that arrives now finds it changed.
            Ok(_) => return,
            Err(now) => word = now,
        }
    }
}

impl Ticket {
    fn runs(&self) -> bool {
        let (round, admitted) = split(ADMITTED.load(Ordering::SeqCst));
        round == self.round && self.number < admitted
    }
}

/// The bit of the futex by which a ticket is woken.
const fn bit(number: u32) -> u32 {
    1 << (number % 32)
}

fn wake(bits: u32) {
    CHANGES.fetch_add(1, Ordering::SeqCst);
    let operation = libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let nothing = std::ptr::null::<libc::timespec>();
    // SAFETY: the word is a static, and waking reads nothing else.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            CHANGES.as_ptr(),
            operation,
            i32::MAX,
            nothing,
            nothing,
            bits,
        )
    };
}

/// Sleeps until there is a change; whether there was one, or something else, within [`PATIENCE`].
fn sleep(changes: u32, number: u32) -> bool {
    let until = now() + PATIENCE;
    let (seconds, rest) = (until / 1_000_000_000, until % 1_000_000_000);
    let until = libc::timespec { tv_sec: seconds.cast_signed(), tv_nsec: rest.cast_signed() };
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let other = std::ptr::null::<u32>();
    let word = CHANGES.as_ptr();
    // SAFETY: the word is a static; the time is valid until the call returns.
    let slept = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            operation,
            changes,
            &raw const until,
            other,
            bit(number),
        )
    };
    // SAFETY: the address of this thread's own.
    slept == 0 || unsafe { *libc::__errno_location() } != libc::ETIMEDOUT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::GATE;
    use std::thread;

    /// Eight threads pass `passes` times each; the most that ran at a time, and the passes of each.
    fn run(passes: u32, then: impl Fn(u32) + Sync) -> u32 {
        let (running, most) = (AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut ticket = None;
                    for _ in 0..passes {
                        // It counts as running from the end of one pass to the begin of the next one.
                        pass(&mut ticket, now(), || false);
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        then(now);
                        running.fetch_sub(1, Ordering::SeqCst);
                    }
                    leave(&mut ticket);
                });
            }
        });
        most.into_inner()
    }

    #[test]
    fn no_more_than_admitted() {
        let _one = GATE.lock().unwrap();
        for threads in 1..=4 {
            set(Some(threads));
            let most = run(200, |_| thread::sleep(std::time::Duration::from_micros(50)));
            assert!(most <= threads, "{most} of {threads}");
        }
        set(None);
    }

    /// One runs for a slice at most, and the number may change meanwhile.
    #[test]
    fn each_gets_its_turn() {
        let _one = GATE.lock().unwrap();
        set(Some(1));
        let passes = AtomicU32::new(0);
        run(40, |_| {
            thread::sleep(std::time::Duration::from_millis(1));
            match passes.fetch_add(1, Ordering::SeqCst) {
                100 => set(Some(3)),
                200 => set(None),
                _ => {}
            }
        });
        assert_eq!(passes.into_inner(), 320);
        set(None);
    }

    /// A thread that runs and waits for one that is held.
    #[test]
    fn what_is_stuck_goes_on() {
        let _one = GATE.lock().unwrap();
        set(Some(1));
        let (mut first, mut second) = (None, None);
        assert!(!pass(&mut first, now(), || false));
        let asked = AtomicU32::new(0);
        assert!(pass(&mut second, now(), || asked.fetch_add(1, Ordering::SeqCst) == 1));
        assert_eq!((asked.into_inner(), first.is_some(), second.is_some()), (2, true, false));
        set(None);
    }
}
