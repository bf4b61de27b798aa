//! Threads of the observed region: work and times of each thread in a slot of its own, and the
//! points where a thread may be held.

use crate::clock::now;
use crate::gate::{self, Ticket};
use crate::learn::Execution;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of slots; further threads share slots. Chosen: more than the PUs of most machines.
const PLACES: usize = 512;

/// Sums of a thread in the observed region, on cache lines of its own; times in ns.
#[repr(align(128))]
struct ThreadSums {
    calls: AtomicU64,
    steps: AtomicU64,
    busy: AtomicU64,
    inside: AtomicU64,
    waited: AtomicU64,
}

static DONE: [ThreadSums; PLACES] = [const {
    ThreadSums {
        calls: AtomicU64::new(0),
        steps: AtomicU64::new(0),
        busy: AtomicU64::new(0),
        inside: AtomicU64::new(0),
        waited: AtomicU64::new(0),
    }
}; PLACES];
/// Number of threads that have joined.
static SIZE: AtomicU32 = AtomicU32::new(0);

/// Progress of a thread in its region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegionProgress {
    /// The thread may be in the region's first loop.
    #[default]
    FirstLoop,
    /// The thread has got all its chunks of the first loop.
    LoopEnded,
    /// The thread has come to a barrier.
    Barrier,
}

/// Times of this thread that are not yet in [`DONE`], in ns.
#[derive(Clone, Copy, Default)]
struct ThreadTimes {
    /// Index in [`DONE`].
    place: usize,
    /// Begin of the current work; 0: not at work.
    since: u64,
    /// Begin of the wait for a critical section; `got` is the begin of the section.
    asked: u64,
    got: u64,
    /// Nesting depth of critical sections: only the outermost counts.
    depth: u32,
    inside: u64,
    waited: u64,
    progress: RegionProgress,
    ticket: Option<Ticket>,
}

thread_local! {
    static TIMES: Cell<ThreadTimes> = const {
        Cell::new(ThreadTimes {
            place: 0, since: 0, asked: 0, got: 0, depth: 0, inside: 0, waited: 0, progress: RegionProgress::FirstLoop, ticket: None,
        })
    };
}

/// Changes this thread's times. No effect while the thread exits.
fn times(change: impl FnOnce(&mut ThreadTimes)) {
    let _ = TIMES.try_with(|cell| {
        let mut times = cell.get();
        change(&mut times);
        cell.set(times);
    });
}

impl ThreadTimes {
    /// Adds the times until `time` to [`DONE`].
    fn add_up(&mut self, time: u64) {
        let done = &DONE[self.place];
        done.inside.fetch_add(std::mem::take(&mut self.inside), Ordering::Relaxed);
        done.waited.fetch_add(std::mem::take(&mut self.waited), Ordering::Relaxed);
        // Last, with release: a reader of the new `busy` sees its parts too.
        done.busy.fetch_add(time.saturating_sub(self.since), Ordering::Release);
        self.since = time;
    }
}

/// Resets all sums at the begin of a region.
pub fn begins() {
    for done in DONE.iter().take(SIZE.swap(0, Ordering::Relaxed) as usize) {
        let all = [&done.calls, &done.steps, &done.busy, &done.inside, &done.waited];
        all.into_iter().for_each(|sum| sum.store(0, Ordering::Relaxed));
    }
}

/// Number of threads that have joined.
pub fn size() -> u32 {
    SIZE.load(Ordering::Relaxed)
}

/// Sums over all threads since the begin of the region, `wall` ns ago.
pub fn done(wall: u64) -> Execution {
    let threads = size();
    Execution {
        threads,
        calls: sum(threads, |done| &done.calls),
        steps: sum(threads, |done| &done.steps),
        wall,
        // Before its parts: as `busy` is stored last, they are at least as new.
        busy: sum(threads, |done| &done.busy),
        inside: sum(threads, |done| &done.inside),
        waited: sum(threads, |done| &done.waited),
    }
}

fn sum(threads: u32, of: fn(&ThreadSums) -> &AtomicU64) -> u64 {
    DONE.iter().take(threads as usize).map(|done| of(done).load(Ordering::Acquire)).sum()
}

/// This thread joins the team.
pub fn thread_begins() {
    // Threads beyond the places share places; the sums stay right.
    let place = SIZE.fetch_add(1, Ordering::Relaxed) as usize % PLACES;
    times(|times| *times = ThreadTimes { place, since: now(), ..ThreadTimes::default() });
}

/// This thread works again, after a barrier or a similar wait.
pub fn work_begins() {
    times(|times| {
        let ThreadTimes { place, progress, .. } = *times;
        *times = ThreadTimes { place, progress, since: now(), ..ThreadTimes::default() };
    });
}

/// This thread waits for its team, or has come to the end of the region: adds its times to
/// [`DONE`].
pub fn work_ends() {
    times(|times| {
        if times.since != 0 {
            times.add_up(now());
        }
        // A thread that waits for its team must not keep held threads waiting.
        gate::leave(&mut times.ticket);
        let ThreadTimes { place, progress, .. } = *times;
        *times = ThreadTimes { place, progress, ..ThreadTimes::default() };
    });
}

/// This thread is past the region's first loop, or in an ordered loop, and would wait for held
/// threads. From here on it is not held.
pub fn loop_ends(progress: RegionProgress) {
    times(|times| {
        gate::leave(&mut times.ticket);
        times.progress = progress;
    });
}

/// Adds this thread's times until `time` to [`DONE`] at a call of the runtime. Returns the progress
/// if the thread is at work outside critical sections, else `None`.
pub fn calls(time: u64) -> Option<RegionProgress> {
    let mut progress = None;
    times(|times| {
        if times.since != 0 && times.depth == 0 {
            progress = Some(times.progress);
            times.add_up(time);
            DONE[times.place].calls.fetch_add(1, Ordering::Relaxed);
        }
    });
    progress
}

/// Counts the next steps of this thread.
pub fn steps(count: u64) {
    times(|times| {
        if times.since != 0 && times.depth == 0 && times.progress == RegionProgress::FirstLoop {
            DONE[times.place].steps.fetch_add(count, Ordering::Relaxed);
        }
    });
}

/// May hold this thread, see [`gate::pass`]; `time` is now.
pub fn may_be_held(time: u64, is_stuck: impl FnMut() -> bool) {
    times(|times| {
        if gate::pass(&mut times.ticket, time, is_stuck) {
            // Time held at the gate is no work.
            times.since = now();
        }
    });
}

/// Hook before a critical section.
pub fn mutex_acquire() {
    times(|times| {
        if times.since != 0 && times.depth == 0 {
            times.asked = now();
        }
    });
}

/// Hook at the begin of a critical section.
pub fn mutex_acquired() {
    times(|times| {
        times.depth = times.depth.saturating_add(1);
        if times.since != 0 && times.depth == 1 {
            times.got = now();
            if times.asked != 0 {
                times.waited += times.got.saturating_sub(times.asked);
            }
        }
    });
}

/// Hook at the end of a critical section.
pub fn mutex_released() {
    times(|times| {
        // A section may have begun before the region was observed.
        times.depth = times.depth.saturating_sub(1);
        if times.since != 0 && times.depth == 0 && times.got != 0 {
            times.inside += now().saturating_sub(times.got);
            times.asked = 0;
            times.got = 0;
        }
    });
}
