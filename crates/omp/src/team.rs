//! Threads of the observed region: work and times of each thread in a slot of its own, and the
//! points where a thread may be held.

use crate::clock::now;
use crate::gate::{self, Ticket};
use crate::interval::IntervalSum;
use crate::learn::Execution;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of slots; further threads share slots. Chosen: more than the PUs of most machines.
const PLACES: usize = 512;

/// Sums of a thread over all observed regions, on cache lines of its own.
#[repr(align(128))]
struct ThreadSums {
    calls: AtomicU64,
    steps: AtomicU64,
    /// At work, waiting for critical sections and inside of them included.
    busy: IntervalSum,
    /// Waiting for critical sections.
    waited: IntervalSum,
    /// Inside of critical sections.
    inside: IntervalSum,
}

static DONE: [ThreadSums; PLACES] = [const {
    ThreadSums {
        calls: AtomicU64::new(0),
        steps: AtomicU64::new(0),
        busy: IntervalSum::new(),
        waited: IntervalSum::new(),
        inside: IntervalSum::new(),
    }
}; PLACES];
/// Number of threads that have joined the observed region.
static SIZE: AtomicU32 = AtomicU32::new(0);
/// Largest [`SIZE`] of all regions.
static LARGEST: AtomicU32 = AtomicU32::new(0);

/// Activity of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Activity {
    /// Not at work: held, at a barrier, or in no observed region.
    #[default]
    Away,
    /// Work outside of critical sections.
    Outside,
    /// Waits for a critical section.
    Waiting,
    /// Work inside of a critical section.
    Inside,
}

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

/// State of this thread.
#[derive(Clone, Copy, Default)]
struct ThreadState {
    /// Index in [`DONE`].
    place: usize,
    activity: Activity,
    /// Nesting depth of critical sections: only the outermost counts.
    depth: u32,
    progress: RegionProgress,
    ticket: Option<Ticket>,
}

thread_local! {
    static STATE: Cell<ThreadState> = const {
        Cell::new(ThreadState {
            place: 0, activity: Activity::Away, depth: 0, progress: RegionProgress::FirstLoop, ticket: None,
        })
    };
}

/// Changes this thread's state. No effect while the thread exits.
fn state(change: impl FnOnce(&mut ThreadState)) {
    let _ = STATE.try_with(|cell| {
        let mut state = cell.get();
        change(&mut state);
        cell.set(state);
    });
}

impl ThreadState {
    fn is_at_work(&self) -> bool {
        self.activity != Activity::Away
    }

    /// Ends the current activity at `time` and begins `activity`.
    fn turn_to(&mut self, activity: Activity, time: u64) {
        let sums = &DONE[self.place];
        match self.activity {
            Activity::Away | Activity::Outside => {}
            Activity::Waiting => sums.waited.ends(time),
            Activity::Inside => sums.inside.ends(time),
        }
        match activity {
            Activity::Away | Activity::Outside => {}
            Activity::Waiting => sums.waited.begins(time),
            Activity::Inside => sums.inside.begins(time),
        }
        match (self.activity, activity) {
            (Activity::Away, Activity::Away) => {}
            (Activity::Away, _) => sums.busy.begins(time),
            (_, Activity::Away) => sums.busy.ends(time),
            _ => {}
        }
        self.activity = activity;
    }
}

/// Empties the team at the begin of a region.
pub fn begins() {
    SIZE.store(0, Ordering::Relaxed);
}

/// Number of threads that have joined.
pub fn size() -> u32 {
    SIZE.load(Ordering::Relaxed)
}

/// Sums over all threads and regions until `time`, which is also the wall time.
pub fn totals(time: u64) -> Execution {
    Execution {
        threads: size(),
        calls: sum(|done| done.calls.load(Ordering::Relaxed)),
        steps: sum(|done| done.steps.load(Ordering::Relaxed)),
        wall: time,
        busy: sum(|done| done.busy.until(time)),
        inside: sum(|done| done.inside.until(time)),
        waited: sum(|done| done.waited.until(time)),
    }
}

fn sum(of: impl Fn(&ThreadSums) -> u64) -> u64 {
    DONE.iter().take(LARGEST.load(Ordering::Relaxed) as usize).map(of).sum()
}

/// This thread joins the team.
pub fn thread_begins() {
    let joined = SIZE.fetch_add(1, Ordering::Relaxed);
    LARGEST.fetch_max(joined + 1, Ordering::Relaxed);
    let time = now();
    state(|state| {
        state.turn_to(Activity::Away, time);
        // Threads beyond the places share places; the sums stay right.
        *state = ThreadState { place: joined as usize % PLACES, ..ThreadState::default() };
        state.turn_to(Activity::Outside, time);
    });
}

/// This thread works again, after a barrier or a similar wait.
pub fn work_begins() {
    state(|state| {
        // A thread keeps its critical section while it waits.
        let activity = if state.depth > 0 { Activity::Inside } else { Activity::Outside };
        state.turn_to(activity, now());
    });
}

/// This thread waits for its team, or has come to the end of the region.
pub fn work_ends() {
    state(|state| {
        state.turn_to(Activity::Away, now());
        // A thread that waits for its team must not keep held threads waiting.
        gate::leave(&mut state.ticket);
    });
}

/// This thread is past the region's first loop, or in an ordered loop, and would wait for held
/// threads. From here on it is not held.
pub fn loop_ends(progress: RegionProgress) {
    state(|state| {
        gate::leave(&mut state.ticket);
        state.progress = progress;
    });
}

/// Counts a call of the runtime. Returns the progress if the thread is at work outside critical
/// sections, else `None`.
pub fn calls() -> Option<RegionProgress> {
    let mut progress = None;
    state(|state| {
        if state.is_at_work() && state.depth == 0 {
            progress = Some(state.progress);
            DONE[state.place].calls.fetch_add(1, Ordering::Relaxed);
        }
    });
    progress
}

/// Counts the next steps of this thread.
pub fn steps(count: u64) {
    state(|state| {
        let is_in_loop = state.progress == RegionProgress::FirstLoop;
        if state.is_at_work() && state.depth == 0 && is_in_loop {
            DONE[state.place].steps.fetch_add(count, Ordering::Relaxed);
        }
    });
}

/// May hold this thread, see [`gate::pass`]; `time` is now.
pub fn may_be_held(time: u64, is_stuck: impl FnMut() -> bool) {
    if gate::is_open() {
        return state(|state| state.ticket = None);
    }
    state(|state| {
        let activity = state.activity;
        // Time held at the gate is no work.
        state.turn_to(Activity::Away, time);
        let was_held = gate::pass(&mut state.ticket, time, is_stuck);
        state.turn_to(activity, if was_held { now() } else { time });
    });
}

/// Hook before a critical section that this thread waits for.
pub fn mutex_acquire() {
    state(|state| {
        if state.is_at_work() && state.depth == 0 {
            state.turn_to(Activity::Waiting, now());
        }
    });
}

/// Hook at the begin of a critical section.
pub fn mutex_acquired() {
    state(|state| {
        state.depth = state.depth.saturating_add(1);
        if state.is_at_work() && state.depth == 1 {
            state.turn_to(Activity::Inside, now());
        }
    });
}

/// Hook at the end of a critical section.
pub fn mutex_released() {
    state(|state| {
        // A section may have begun before the region was observed.
        state.depth = state.depth.saturating_sub(1);
        if state.activity == Activity::Inside && state.depth == 0 {
            state.turn_to(Activity::Outside, now());
        }
    });
}
