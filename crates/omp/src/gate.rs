//! Limit on the running threads of the observed region.
//!
//! # Problem
//! A team's size is fixed when its region begins. To run a loop with fewer threads, some threads of
//! the team have to wait inside the loop.
//! # Approach
//! A thread is held where it calls the runtime: before it requests the next chunk, or enters a
//! critical section. There any program allows a thread to be late, so results do not change. A held
//! thread sleeps (futex(2)).
//! # Terms
//! - *Ticket*: a thread's number in the order of arrival. A thread runs once its ticket is below
//!   `ADMITTED`, and keeps the ticket until it is done, or has run for [`SLICE`] while others wait.
//! - *Round*: the time between two calls of [`set`]; tickets of earlier rounds are void.
//! # Properties
//! - **No more than that many** run. -> test `no_more_than_admitted`
//! - **Each gets its turn**, and all run once it is open. -> test `each_gets_its_turn`

#![allow(unsafe_code)] // futex

use crate::clock::now;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Time slice of a running thread while threads wait, in ns. Chosen: a thousand times the cost of a
/// switch.
const SLICE: u64 = 10_000_000;
/// Time in ns for which a thread is held before it checks that some thread makes progress. Chosen:
/// far longer than the kernel keeps a runnable thread waiting.
const PATIENCE: u64 = 250_000_000;
/// Admits every thread.
const ALL: u32 = 1 << 31;

/// Round in the upper half, number of admitted tickets in the lower half.
static ADMITTED: AtomicU64 = AtomicU64::new(ALL as u64);
/// Round in the upper half, number of tickets given in the lower half.
static GIVEN: AtomicU64 = AtomicU64::new(0);
/// Futex word of held threads, incremented with every change of `ADMITTED`.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Place of a thread in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    round: u32,
    number: u32,
    /// Start of the current time slice; ns.
    since: u64,
}

const fn split(word: u64) -> (u32, u32) {
    #[allow(clippy::cast_possible_truncation)] // each half is 32 bits
    ((word >> 32) as u32, word as u32)
}

const fn joined(round: u32, count: u32) -> u64 {
    (round as u64) << 32 | count as u64
}

/// True if all threads may run.
pub fn is_open() -> bool {
    split(ADMITTED.load(Ordering::Relaxed)).1 >= ALL
}

/// Begins a round with at most `threads` running threads; `None`: all. Not for concurrent callers.
pub fn set(threads: Option<u32>) {
    if threads.is_none() && is_open() {
        return;
    }
    let round = split(ADMITTED.load(Ordering::Relaxed)).0.wrapping_add(1);
    ADMITTED.store(joined(round, threads.unwrap_or(ALL)), Ordering::SeqCst);
    // After `ADMITTED`: a ticket given in between is of the old round, and is taken anew.
    GIVEN.store(joined(round, 0), Ordering::SeqCst);
    wake(u32::MAX);
}

/// Waits until this thread may run; true if it was held. While held for long the thread calls
/// `is_stuck`, and returns once the answer is true.
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
        // The count is the lower half of the word, so that the round stays.
        let (round, number) = split(GIVEN.fetch_add(1, Ordering::SeqCst));
        let mine = Ticket { round, number, since: 0 };
        loop {
            // Before the check below: a later change makes the futex return at once.
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
        // A new round has begun: take a new ticket, or return if the gate is open.
        if is_open() {
            *ticket = None;
            return held;
        }
    }
}

/// Returns the ticket of this thread, so that a waiting thread may run.
pub fn leave(ticket: &mut Option<Ticket>) {
    let Some(mine) = ticket.take() else { return };
    let mut word = ADMITTED.load(Ordering::SeqCst);
    loop {
        let (round, admitted) = split(word);
        if round != mine.round || admitted >= ALL {
            // A void ticket, or an open gate: no thread waits for this one.
            return;
        }
        let next = joined(round, admitted + 1);
        match ADMITTED.compare_exchange(word, next, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) if split(GIVEN.load(Ordering::SeqCst)).1 > admitted => {
                return wake(bit(admitted));
            }
            // No ticket waits. A thread that arrives now reads the new count.
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

/// Futex bit of a ticket, so that a wake-up reaches one in 32 waiting tickets.
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
            // All waiters with this bit.
            i32::MAX,
            nothing,
            nothing,
            bits,
        )
    };
}

/// Sleeps until `CHANGES` differs from `changes`; false if [`PATIENCE`] has passed first.
fn sleep(changes: u32, number: u32) -> bool {
    let until = now() + PATIENCE;
    // FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC, unlike FUTEX_WAIT.
    let until = libc::timespec {
        tv_sec: (until / 1_000_000_000).cast_signed(),
        tv_nsec: (until % 1_000_000_000).cast_signed(),
    };
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
    // `EAGAIN` and `EINTR` count as wake-ups: the caller checks its ticket again.
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
