//! The regions of this process, what was learnt of them, and the one that is observed now.
//!
//! One region of the whole process is observed at a time: regions inside of it, and those that other threads begin
//! meanwhile, pass untouched. While it learns, its calls of the runtime are counted; where there are enough of them an execution is divided
//! into windows (`learn`), and threads are held at their next call (`gate`). Only the first loop of a region is: up to a thread's
//! first barrier, or until it has got no chunk.

#![allow(unsafe_code)] // atexit

use crate::clock::now;
use crate::learn::{Execution, Learner, WINDOW};
use crate::region::Region;
use crate::team::{self, Progress};
use crate::{env, gate, report};
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Regions at most; others pass untouched. Chosen: far more than a program has that runs for long.
const MOST_REGIONS: usize = 1_024;
/// Windows of one execution after which it is learnt by windows. Chosen: shorter executions are compared as wholes.
const LONG: u32 = 2;
/// Calls of each thread that runs in a window at least. Chosen: what is between two calls and cut by an end of the window is a
/// fourth of it at most.
const LEAST_CALLS: u64 = 4;
/// No window is due.
const NEVER: u64 = u64::MAX;

/// What colocate has requested.
struct Config {
    folder: PathBuf,
    most: Option<u32>,
    apply: bool,
    /// This process; one that it forks has no report of its own.
    pid: u32,
}

/// All regions, and the window of the observed one.
struct Known {
    regions: Vec<Region>,
    window: Window,
}

/// The window that is open.
#[derive(Default)]
struct Window {
    /// Its region.
    place: usize,
    /// When the execution has begun, and the window.
    begin: u64,
    since: u64,
    /// What was done when it began.
    before: Execution,
    /// How many have ended in this execution.
    ended: u32,
}

static CONFIG: OnceLock<Option<Config>> = OnceLock::new();
static KNOWN: Mutex<Known> = Mutex::new(Known {
    regions: Vec::new(),
    window: Window { place: 0, begin: 0, since: 0, before: Execution::NONE, ended: 0 },
});
/// Whether a region is observed.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// When the window may end; `NEVER` if there is none.
static DUE: AtomicU64 = AtomicU64::new(NEVER);
/// Whether the observed region has more than one loop.
static SEVERAL: AtomicBool = AtomicBool::new(false);
/// Whether the program has called `omp_set_num_threads`.
static THREADS_SET: AtomicBool = AtomicBool::new(false);
/// Whether it has called `omp_get_max_threads`.
static THREADS_READ: AtomicBool = AtomicBool::new(false);

fn config() -> Option<&'static Config> {
    let read = || {
        let folder =
            PathBuf::from(std::env::var_os(env::REPORT).filter(|folder| !folder.is_empty())?);
        let most = std::env::var(env::MOST)
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|most| *most > 0);
        let apply = std::env::var(env::APPLY).is_ok_and(|text| text == "1");
        // SAFETY: the function takes nothing, and stays as long as the process: what was preloaded is never unloaded.
        if unsafe { libc::atexit(at_exit) } != 0 {
            return None;
        }
        Some(Config { folder, most, apply, pid: std::process::id() })
    };
    CONFIG.get_or_init(read).as_ref()
}

/// Whether anything is to be watched in this process.
pub fn is_enabled() -> bool {
    config().is_some()
}

/// The program has set a number of threads.
pub fn threads_set() {
    THREADS_SET.store(true, Ordering::Relaxed);
}

/// The program has read how many threads a region gets. It may share work out among so many, so nothing is changed
/// any more.
pub fn threads_read() {
    THREADS_READ.store(true, Ordering::Relaxed);
}

/// A region that is observed. Its holder must call [`Observed::end`].
pub struct Observed {
    /// How many threads it shall have; `None` if nothing is to be changed.
    pub threads: Option<u32>,
}

/// A region begins, which the runtime would give `default` threads. `None` if it passes untouched.
pub fn begin(
    body: *const c_void,
    explicit: bool,
    default: u32,
    said: impl FnOnce() -> Option<String>,
) -> Option<Observed> {
    let config = config()?;
    if ACTIVE.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return None;
    }
    let observed = observe(config, body, explicit, default, said);
    if observed.is_none() {
        ACTIVE.store(false, Ordering::Release);
    }
    observed
}

fn observe(
    config: &Config,
    body: *const c_void,
    explicit: bool,
    default: u32,
    said: impl FnOnce() -> Option<String>,
) -> Option<Observed> {
    let relies = config.apply && THREADS_READ.load(Ordering::Relaxed);
    let explicit = explicit || relies || THREADS_SET.load(Ordering::Relaxed);
    let most = config.most.map_or(default, |most| most.min(default));
    // A child that was forked while another thread held the lock never gets it.
    let mut known = KNOWN.try_lock().ok()?;
    let place = known.place(body, || Region {
        body: body.addr(),
        said: said(),
        explicit,
        several: false,
        open: Execution::NONE,
        learner: Learner::new(most, config.apply && !explicit),
    })?;
    let region = &mut known.regions[place];
    region.explicit |= explicit;
    let changes = config.apply && !region.explicit;
    region.learner.may_have(most, changes);
    let team = if changes { region.team().min(default) } else { default };
    let begin = now();
    team::begins();
    SEVERAL.store(false, Ordering::Relaxed);
    let windows = changes && team == region.learner.most();
    gate::set(region.admitted().filter(|_| windows));
    let due = if windows && region.learner.is_learning() { begin + WINDOW } else { NEVER };
    known.window = Window { place, begin, since: begin, ..Window::default() };
    DUE.store(due, Ordering::Relaxed);
    Some(Observed { threads: changes.then_some(team) })
}

impl Known {
    /// The region with this body, a new one if it is not known; `None` if there are too many.
    fn place(&mut self, body: *const c_void, new: impl FnOnce() -> Region) -> Option<usize> {
        let known = self.regions.iter().position(|region| region.body == body.addr());
        known.or_else(|| {
            (self.regions.len() < MOST_REGIONS).then(|| {
                self.regions.push(new());
                self.regions.len() - 1
            })
        })
    }

    /// The window may have ended.
    fn window_ends(&mut self, time: u64) {
        let Self { regions, window } = self;
        let Some(region) = regions.get_mut(window.place) else { return };
        let done = team::done(time.saturating_sub(window.begin));
        let seen = done.since(&window.before).and(&region.open);
        let (most, admitted) = (region.learner.most(), region.admitted());
        let threads = admitted.unwrap_or(most);
        let is_whole = seen.wall >= WINDOW && seen.calls >= LEAST_CALLS * u64::from(threads);
        // A team that is not complete has not begun.
        let is_team = done.threads == most;
        if is_team && !is_whole {
            return DUE.store(time + WINDOW / 4, Ordering::Relaxed);
        }
        if is_team {
            window.ended += 1;
            region.open = Execution::NONE;
            let long = (window.ended >= LONG).then_some(done.wall);
            region.learn(&Execution { threads, ..seen }, long);
        }
        (window.since, window.before) = (time, done);
        if region.admitted() != admitted {
            gate::set(region.admitted());
        }
        let due = if region.learner.is_learning() { time + WINDOW } else { NEVER };
        DUE.store(due, Ordering::Relaxed);
    }

    /// The execution has ended.
    fn region_ends(&mut self, time: u64) {
        let Self { regions, window } = self;
        let Some(region) = regions.get_mut(window.place) else { return };
        region.several |= SEVERAL.load(Ordering::Relaxed);
        let done = team::done(time.saturating_sub(window.begin));
        if !region.learner.has_windows() {
            region.learner.executed(&Execution { steps: 1, ..done });
        } else if region.learner.is_learning() && done.threads == region.learner.most() {
            region.open = done.since(&window.before).and(&region.open);
        } else {
            region.learner.passed(time.saturating_sub(window.since));
        }
    }

    /// Threads that run wait for those that are held.
    fn stuck(&mut self) {
        if let Some(region) = self.regions.get_mut(self.window.place) {
            region.learner.stuck();
        }
        DUE.store(NEVER, Ordering::Relaxed);
        gate::set(None);
    }
}

impl Observed {
    /// The region has ended, and all its threads have added up their times.
    pub fn end(self) {
        if let Ok(mut known) = KNOWN.try_lock() {
            known.region_ends(now());
        }
        DUE.store(NEVER, Ordering::Relaxed);
        gate::set(None);
        ACTIVE.store(false, Ordering::Release);
    }
}

/// This thread is about to request a chunk.
pub fn chunk_requested() {
    call(true);
}

/// It has got one with so many steps; none if there are 0.
pub fn chunk_given(steps: u64) {
    match steps {
        0 => team::loop_ends(Progress::LoopEnded),
        _ if is_watched() => team::steps(steps),
        _ => {}
    }
}

/// This thread is about to enter a critical section.
pub fn mutex_acquire() {
    call(false);
    if is_watched() {
        team::steps(1);
    }
    team::mutex_acquire();
}

/// Whether the observed region learns within this execution, or some of its threads are held.
fn is_watched() -> bool {
    DUE.load(Ordering::Relaxed) != NEVER || !gate::is_open()
}

/// A call of the runtime, before which this thread may be held.
fn call(is_chunk: bool) {
    if !is_watched() {
        return;
    }
    let time = now();
    match team::calls(time) {
        Some(Progress::FirstLoop) => {}
        // What is merged after a loop belongs to it.
        Some(Progress::LoopEnded) if !is_chunk => return,
        Some(_) => return SEVERAL.store(true, Ordering::Relaxed),
        None => return,
    }
    if time >= DUE.load(Ordering::Relaxed)
        && let Ok(mut known) = KNOWN.try_lock()
        && time >= DUE.load(Ordering::Relaxed)
    {
        known.window_ends(time);
    }
    let mut before = None;
    team::may_be_held(time, || {
        let calls = Some(team::done(0).calls);
        let is_stuck = std::mem::replace(&mut before, calls) == calls;
        is_stuck
            && KNOWN.try_lock().is_ok_and(|mut known| {
                known.stuck();
                true
            })
    });
}

extern "C" fn at_exit() {
    let Some(config) = CONFIG.get().and_then(Option::as_ref) else { return };
    let Ok(known) = KNOWN.try_lock() else { return };
    if config.pid == std::process::id() && !known.regions.is_empty() {
        let text = report::text(&known.regions);
        let _ = std::fs::write(config.folder.join(config.pid.to_string()), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::GATE;
    use std::ptr;

    /// First executed where the program may have one thread only, then with eight.
    #[test]
    fn a_later_larger_limit_is_used() {
        let _gate = GATE.lock().unwrap();
        let config = Config { folder: PathBuf::new(), most: Some(8), apply: true, pid: 0 };
        let begun =
            |default| observe(&config, ptr::dangling(), false, default, || None).unwrap().threads;
        assert_eq!([1, 8, 16, 4, 8].map(begun), [1, 8, 8, 4, 8].map(Some));
    }
}
