//! The threads of the observed region: what each of them has done, in a place of its own, and where it is held.

use crate::clock::now;
use crate::gate::{self, Ticket};
use crate::learn::Execution;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Places for threads; more share them. Chosen: more than most machines have PUs.
const PLACES: usize = 512;

/// What a thread has done in the observed region. On cache lines of its own.
#[repr(align(128))]
struct Done {
    calls: AtomicU64,
    steps: AtomicU64,
    busy: AtomicU64,
    inside: AtomicU64,
    waited: AtomicU64,
}

static DONE: [Done; PLACES] = [const {
    Done {
        calls: AtomicU64::new(0),
        steps: AtomicU64::new(0),
        busy: AtomicU64::new(0),
        inside: AtomicU64::new(0),
        waited: AtomicU64::new(0),
    }
}; PLACES];
/// Threads that have joined.
static SIZE: AtomicU32 = AtomicU32::new(0);

/// How far a thread is in its region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// It may be in the region's first loop.
    #[default]
    FirstLoop,
    /// It has got all its chunks of that loop.
    LoopEnded,
    /// It has come to a barrier.
    Barrier,
}

/// Times of this thread that are not added up yet, in ns.
#[derive(Clone, Copy, Default)]
struct ThreadTimes {
    /// Its place in [`DONE`].
    place: usize,
    /// Since when it is at work; 0 if it is not.
    since: u64,
    /// When it began to wait for a critical section, and got it.
    asked: u64,
    got: u64,
    /// How many it is in: only the outermost counts.
    depth: u32,
    inside: u64,
    waited: u64,
    progress: Progress,
    ticket: Option<Ticket>,
}

thread_local! {
    static TIMES: Cell<ThreadTimes> = const {
        Cell::new(ThreadTimes {
            place: 0, since: 0, asked: 0, got: 0, depth: 0, inside: 0, waited: 0, progress: Progress::FirstLoop, ticket: None,
        })
    };
}

/// Changes this thread's times. A thread that is ending has none.
fn times(change: impl FnOnce(&mut ThreadTimes)) {
    let _ = TIMES.try_with(|cell| {
        let mut times = cell.get();
        change(&mut times);
        cell.set(times);
    });
}

impl ThreadTimes {
    /// Adds up what it has done until `time`.
    fn add_up(&mut self, time: u64) {
        let done = &DONE[self.place];
        done.inside.fetch_add(std::mem::take(&mut self.inside), Ordering::Relaxed);
        done.waited.fetch_add(std::mem::take(&mut self.waited), Ordering::Relaxed);
        done.busy.fetch_add(time.saturating_sub(self.since), Ordering::Release);
        self.since = time;
    }
}

/// A region begins: nothing was done.
pub fn begins() {
    for done in DONE.iter().take(SIZE.swap(0, Ordering::Relaxed) as usize) {
        let all = [&done.calls, &done.steps, &done.busy, &done.inside, &done.waited];
        all.into_iter().for_each(|sum| sum.store(0, Ordering::Relaxed));
    }
}

/// Threads that have joined.
pub fn size() -> u32 {
    SIZE.load(Ordering::Relaxed)
}

/// What all threads have done since the region has begun, which took `wall`.
pub fn done(wall: u64) -> Execution {
    let threads = size();
    let sum = |of: fn(&Done) -> &AtomicU64| -> u64 {
        DONE.iter().take(threads as usize).map(|done| of(done).load(Ordering::Acquire)).sum()
    };
    let (calls, steps, busy) =
        (sum(|done| &done.calls), sum(|done| &done.steps), sum(|done| &done.busy));
    let (inside, waited) = (sum(|done| &done.inside), sum(|done| &done.waited));
    Execution { threads, calls, steps, wall, busy, inside, waited }
}

/// This thread joins the team.
pub fn thread_begins() {
    let place = SIZE.fetch_add(1, Ordering::Relaxed) as usize % PLACES;
    times(|times| *times = ThreadTimes { place, since: now(), ..ThreadTimes::default() });
}

/// This thread works again, after a barrier or something like it.
pub fn work_begins() {
    times(|times| {
        let (place, progress) = (times.place, times.progress);
        *times = ThreadTimes { place, progress, since: now(), ..ThreadTimes::default() };
    });
}

/// This thread has come to the end of the region, or waits for others of its team: its times are added up.
pub fn work_ends() {
    times(|times| {
        if times.since != 0 {
            times.add_up(now());
        }
        gate::leave(&mut times.ticket);
        let (place, progress) = (times.place, times.progress);
        *times = ThreadTimes { place, progress, ..ThreadTimes::default() };
    });
}

/// This thread is past the region's first loop, or its loop is ordered: it would wait for threads that are held. It is not held
/// any more.
pub fn loop_ends(progress: Progress) {
    times(|times| {
        gate::leave(&mut times.ticket);
        times.progress = progress;
    });
}

/// This thread calls the runtime: its times until `time` are added up. Says how far it is, if it is at work and in no critical
/// section.
pub fn calls(time: u64) -> Option<Progress> {
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

/// This thread does so many steps next.
pub fn steps(count: u64) {
    times(|times| {
        if times.since != 0 && times.depth == 0 && times.progress == Progress::FirstLoop {
            DONE[times.place].steps.fetch_add(count, Ordering::Relaxed);
        }
    });
}

/// This thread may be held here, where `time` is now. While it is held for long, `is_stuck` is called.
pub fn may_be_held(time: u64, is_stuck: impl FnMut() -> bool) {
    times(|times| {
        if gate::pass(&mut times.ticket, time, is_stuck) {
            times.since = now();
        }
    });
}

/// This thread is about to enter a critical section.
pub fn mutex_acquire() {
    times(|times| {
        if times.since != 0 && times.depth == 0 {
            times.asked = now();
        }
    });
}

/// It has entered.
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

/// It has left.
pub fn mutex_released() {
    times(|times| {
        times.depth = times.depth.saturating_sub(1);
        if times.since != 0 && times.depth == 0 && times.got != 0 {
            times.inside += now().saturating_sub(times.got);
            (times.asked, times.got) = (0, 0);
        }
    });
}
