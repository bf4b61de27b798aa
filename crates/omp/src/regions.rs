//! Regions of this process with their learners, and the region observed now.
//!
//! One region of the process is observed at a time: nested regions, and regions begun by other
//! threads meanwhile, pass untouched. While the region learns, its calls of the runtime are
//! counted. With enough calls an execution is divided into windows (`learn`), and threads are held
//! at their next call (`gate`). Only the first loop of a region is: up to a thread's first barrier,
//! or until it gets no chunk.

#![allow(unsafe_code)] // atexit

use crate::clock::now;
use crate::learn::{Execution, Learner, WINDOW};
use crate::region::ParallelRegion;
use crate::team::{self, RegionProgress};
use crate::{env, gate, report};
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Largest number of regions; further regions pass untouched. Chosen: far more than long-running
/// programs have.
const MOST_REGIONS: usize = 1_024;
/// Windows in an execution after which learning is by windows. Chosen: shorter executions are
/// compared as wholes.
const LONG: u32 = 2;
/// Least number of calls per running thread in a window. Chosen: the work between two calls, cut by
/// the end of the window, is then at most a fourth.
const LEAST_CALLS: u64 = 4;
/// No window is due.
const NEVER: u64 = u64::MAX;

/// Settings from the environment.
struct Config {
    folder: PathBuf,
    most: Option<u32>,
    apply: bool,
    /// PID at start; a forked child writes no report.
    pid: u32,
}

/// All regions, and the window of the observed region.
struct RegionTable {
    regions: Vec<ParallelRegion>,
    window: Window,
}

/// Current window.
struct Window {
    /// Index of the region.
    place: usize,
    /// Totals at the begin of the execution.
    begin: Execution,
    /// Totals at the begin of the window.
    before: Execution,
    /// Number of windows that have ended in this execution.
    ended: u32,
}

/// No further region is observed, and no thread is held.
static STOPPED: AtomicBool = AtomicBool::new(false);

static CONFIG: OnceLock<Option<Config>> = OnceLock::new();
static KNOWN: Mutex<RegionTable> = Mutex::new(RegionTable {
    regions: Vec::new(),
    window: Window { place: 0, begin: Execution::NONE, before: Execution::NONE, ended: 0 },
});
/// A region is observed.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Earliest end of the window, in ns; `NEVER`: no window.
static DUE: AtomicU64 = AtomicU64::new(NEVER);
/// The observed region has several loops.
static SEVERAL: AtomicBool = AtomicBool::new(false);
/// The program has called `omp_set_num_threads`.
static THREADS_SET: AtomicBool = AtomicBool::new(false);
/// The program has called `omp_get_max_threads`.
static THREADS_READ: AtomicBool = AtomicBool::new(false);

fn config() -> Option<&'static Config> {
    CONFIG.get_or_init(read_config).as_ref()
}

/// Reads the environment, and registers [`at_exit`] and, for children, [`release_held`]; `None`:
/// nothing is watched.
fn read_config() -> Option<Config> {
    let folder = std::env::var_os(env::REPORT).filter(|folder| !folder.is_empty())?;
    let most = std::env::var(env::MOST).ok().and_then(|text| text.parse().ok());
    let most = most.filter(|most| *most > 0);
    let apply = std::env::var(env::APPLY).is_ok_and(|text| text == "1");
    // SAFETY: the function takes nothing, and stays as long as the process: a preloaded library is
    // never unloaded.
    if unsafe { libc::atexit(at_exit) } != 0 {
        return None;
    }
    // A child has one thread, and none that could release it. If this fails for lack of memory,
    // the thread waits until it is stuck.
    // SAFETY: as above, and the function changes atomics only.
    unsafe { libc::pthread_atfork(None, None, Some(release_held)) };
    Some(Config { folder: folder.into(), most, apply, pid: std::process::id() })
}

/// Stops all observation in this process for good.
pub fn stop() {
    STOPPED.store(true, Ordering::SeqCst);
    release_held();
}

/// Ends the window and releases held threads.
extern "C" fn release_held() {
    // A window that another thread ends just now may hold threads once more, until they are stuck.
    let _known = KNOWN.try_lock();
    DUE.store(NEVER, Ordering::Relaxed);
    gate::set(None);
}

/// True if regions are watched in this process.
pub fn is_enabled() -> bool {
    config().is_some()
}

/// Notes that the program has set a number of threads.
pub fn threads_set() {
    THREADS_SET.store(true, Ordering::Relaxed);
}

/// Notes that the program has read the number of threads. The program may divide work by this
/// number, so numbers of threads are no longer changed.
pub fn threads_read() {
    THREADS_READ.store(true, Ordering::Relaxed);
}

/// Observed region. The holder must call [`Observed::end`].
pub struct Observed {
    /// Number of threads to request; `None`: unchanged.
    pub threads: Option<u32>,
}

/// Begin of a region with `default` threads by the runtime. `None`: passes untouched.
pub fn begin(
    body: *const c_void,
    explicit: bool,
    default: u32,
    said: impl FnOnce() -> Option<String>,
) -> Option<Observed> {
    let config = config().filter(|_| !STOPPED.load(Ordering::Relaxed))?;
    if ACTIVE.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // A region within another, or of another thread at the same time, is not observed.
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
    // A limit never adds threads.
    let most = config.most.map_or(default, |most| most.min(default));
    // A child that was forked while another thread held the lock never gets it.
    let mut known = KNOWN.try_lock().ok()?;
    let place = known.place(body, || ParallelRegion {
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
    // The runtime may give fewer threads than at earlier executions.
    let team = if changes { region.team().min(default) } else { default };
    team::begins();
    let begin = team::totals(now());
    SEVERAL.store(false, Ordering::Relaxed);
    // Only in a whole team can threads be held and admitted again.
    let windows = changes && team == region.learner.most;
    gate::set(region.admitted().filter(|_| windows));
    let due = if windows && region.learner.is_learning() { begin.wall + WINDOW } else { NEVER };
    known.window = Window { place, begin, before: begin, ended: 0 };
    DUE.store(due, Ordering::Relaxed);
    Some(Observed { threads: changes.then_some(team) })
}

impl RegionTable {
    /// Index of the region with this body, added if new; `None` beyond [`MOST_REGIONS`].
    fn place(
        &mut self,
        body: *const c_void,
        new: impl FnOnce() -> ParallelRegion,
    ) -> Option<usize> {
        let known = self.regions.iter().position(|region| region.body == body.addr());
        known.or_else(|| {
            (self.regions.len() < MOST_REGIONS).then(|| {
                self.regions.push(new());
                self.regions.len() - 1
            })
        })
    }

    /// Ends the window if it is complete, else extends it.
    fn window_ends(&mut self, time: u64) {
        let Self { regions, window } = self;
        let Some(region) = regions.get_mut(window.place) else { return };
        let done = team::totals(time);
        let seen = done.since(&window.before).and(&region.open);
        let most = region.learner.most;
        let admitted = region.admitted();
        let threads = admitted.unwrap_or(most);
        let is_whole = seen.wall >= WINDOW && seen.calls >= LEAST_CALLS * u64::from(threads);
        // An incomplete team has not begun: threads are still joining.
        let is_team = done.threads == most;
        if is_team && !is_whole {
            return DUE.store(time + WINDOW / 4, Ordering::Relaxed);
        }
        if is_team {
            window.ended += 1;
            region.open = Execution::NONE;
            let long = (window.ended >= LONG).then(|| done.since(&window.begin).wall);
            region.learn(&seen.of_threads(threads), long);
        }
        window.before = done;
        if region.admitted() != admitted {
            gate::set(region.admitted());
        }
        let due = if region.learner.is_learning() { time + WINDOW } else { NEVER };
        DUE.store(due, Ordering::Relaxed);
    }

    /// Ends the execution.
    fn region_ends(&mut self, time: u64) {
        let Self { regions, window } = self;
        let Some(region) = regions.get_mut(window.place) else { return };
        region.several |= SEVERAL.load(Ordering::Relaxed);
        let total = team::totals(time);
        let done = total.since(&window.begin);
        if !region.learner.windows {
            // Whole executions are compared, so each is one step.
            region.learner.executed(&Execution { steps: 1, ..done });
        } else if region.learner.is_learning() && done.threads == region.learner.most {
            region.open = total.since(&window.before).and(&region.open);
        } else {
            region.learner.passed(total.since(&window.before).wall);
        }
    }

    /// Opens the gate, since running threads wait for held threads.
    fn stuck(&mut self) {
        if let Some(region) = self.regions.get_mut(self.window.place) {
            region.learner.stuck();
        }
        DUE.store(NEVER, Ordering::Relaxed);
        gate::set(None);
    }
}

impl Observed {
    /// Ends the observation, after all threads have added their times.
    pub fn end(self) {
        // As in `observe`, a forked child may never get the lock.
        if let Ok(mut known) = KNOWN.try_lock() {
            known.region_ends(now());
        }
        DUE.store(NEVER, Ordering::Relaxed);
        gate::set(None);
        ACTIVE.store(false, Ordering::Release);
    }
}

/// Hook before a request for a chunk.
pub fn chunk_requested() {
    call(true);
}

/// Hook after a request for a chunk; 0 steps: no chunk was left.
pub fn chunk_given(steps: u64) {
    match steps {
        0 => team::loop_ends(RegionProgress::LoopEnded),
        _ if is_watched() => team::steps(steps),
        _ => {}
    }
}

/// Hook before a critical section.
pub fn mutex_acquire() {
    call(false);
    if is_watched() {
        team::steps(1);
    }
    team::mutex_acquire();
}

/// True if the observed region learns within this execution, or some threads are held.
fn is_watched() -> bool {
    let is_in_window = DUE.load(Ordering::Relaxed) != NEVER || !gate::is_open();
    is_in_window && !STOPPED.load(Ordering::Relaxed)
}

/// Hook before a call of the runtime: may end the window and may hold this thread.
fn call(is_chunk: bool) {
    if !is_watched() {
        return;
    }
    let time = now();
    match team::calls() {
        Some(RegionProgress::FirstLoop) => {}
        // A critical section after a loop, e.g. of a reduction, belongs to this loop.
        Some(RegionProgress::LoopEnded) if !is_chunk => return,
        Some(_) => return SEVERAL.store(true, Ordering::Relaxed),
        None => return,
    }
    if time >= DUE.load(Ordering::Relaxed)
        && let Ok(mut known) = KNOWN.try_lock()
        // Another thread may have ended the window before the lock was free.
        && time >= DUE.load(Ordering::Relaxed)
    {
        known.window_ends(time);
    }
    let mut before = None;
    team::may_be_held(time, || {
        let calls = Some(team::totals(now()).calls);
        // No call since the last wait: the running threads make no progress.
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
        // An error at the program's exit cannot be reported, and must not disturb the exit.
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
