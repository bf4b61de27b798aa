//! The regions of this process, what was learnt of them, and the one that is observed now.
//!
//! One region of the whole process is observed at a time: regions inside of it, and those that other threads begin
//! meanwhile, pass untouched. Times of threads are kept by each thread and added up once an execution.

#![allow(unsafe_code)] // atexit, getpid

use crate::clock::now;
use crate::learn::{Execution, Learner};
use crate::region::Region;
use crate::{env, report};
use std::cell::Cell;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Regions at most; others pass untouched. Chosen: far more than a program has that runs for long.
const MOST_REGIONS: usize = 1_024;

/// What colocate has requested.
struct Config {
    folder: PathBuf,
    most: Option<u32>,
    apply: bool,
    /// This process; one that it forks has no report of its own.
    pid: u32,
}

static CONFIG: OnceLock<Option<Config>> = OnceLock::new();
static REGIONS: Mutex<Vec<Region>> = Mutex::new(Vec::new());
/// Whether a region is observed.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Whether the program has called `omp_set_num_threads`.
static THREADS_SET: AtomicBool = AtomicBool::new(false);
/// Whether it has called `omp_get_max_threads`.
static THREADS_READ: AtomicBool = AtomicBool::new(false);
static TEAM: AtomicU32 = AtomicU32::new(0);
static BUSY: AtomicU64 = AtomicU64::new(0);
static INSIDE: AtomicU64 = AtomicU64::new(0);
static WAITED: AtomicU64 = AtomicU64::new(0);

/// Times of this thread that are not added up yet, in ns.
#[derive(Clone, Copy, Default)]
struct ThreadTimes {
    /// Since when it is at work; 0 if it is not.
    since: u64,
    /// When it began to wait for a critical section, and got it.
    asked: u64,
    got: u64,
    /// How many it is in: only the outermost counts.
    depth: u32,
    inside: u64,
    waited: u64,
}

thread_local! {
    static TIMES: Cell<ThreadTimes> = const { Cell::new(ThreadTimes { since: 0, asked: 0, got: 0, depth: 0, inside: 0, waited: 0 }) };
}

/// Changes this thread's times. A thread that is ending has none.
fn times(change: impl FnOnce(&mut ThreadTimes)) {
    let _ = TIMES.try_with(|cell| {
        let mut times = cell.get();
        change(&mut times);
        cell.set(times);
    });
}

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
    place: usize,
    since: u64,
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
    let mut regions = REGIONS.try_lock().ok()?;
    let known = regions.iter().position(|region| region.body == body.addr());
    let place = match known {
        Some(place) => place,
        None if regions.len() >= MOST_REGIONS => return None,
        None => {
            let learner = Learner::new(most, config.apply && !explicit);
            regions.push(Region { body: body.addr(), said: said(), explicit, learner });
            regions.len() - 1
        }
    };
    let region = &mut regions[place];
    region.explicit |= explicit;
    let changes = config.apply && !region.explicit;
    region.learner.may_have(most, changes);
    let threads = changes.then(|| region.learner.threads().min(default));
    TEAM.store(0, Ordering::Relaxed);
    [&BUSY, &INSIDE, &WAITED].into_iter().for_each(|sum| sum.store(0, Ordering::Relaxed));
    Some(Observed { place, since: now(), threads })
}

impl Observed {
    /// The region has ended, and all its threads have added up their times.
    pub fn end(self) {
        let wall = now().saturating_sub(self.since);
        let execution = Execution {
            threads: TEAM.load(Ordering::Relaxed),
            wall,
            busy: BUSY.load(Ordering::Acquire),
            inside: INSIDE.load(Ordering::Relaxed),
            waited: WAITED.load(Ordering::Relaxed),
        };
        if let Some(region) =
            REGIONS.try_lock().ok().as_mut().and_then(|regions| regions.get_mut(self.place))
        {
            region.learner.executed(&execution);
        }
        ACTIVE.store(false, Ordering::Release);
    }
}

/// This thread joins the team.
pub fn thread_begins() {
    TEAM.fetch_add(1, Ordering::Relaxed);
    work_begins();
}

/// This thread begins to work, or goes on after a barrier.
pub fn work_begins() {
    times(|times| *times = ThreadTimes { since: now(), ..ThreadTimes::default() });
}

/// This thread has come to the end of the region, or to a barrier: its times are added up.
pub fn work_ends() {
    times(|times| {
        if times.since != 0 {
            BUSY.fetch_add(now().saturating_sub(times.since), Ordering::Release);
            INSIDE.fetch_add(times.inside, Ordering::Relaxed);
            WAITED.fetch_add(times.waited, Ordering::Relaxed);
        }
        *times = ThreadTimes::default();
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

extern "C" fn at_exit() {
    let Some(config) = CONFIG.get().and_then(Option::as_ref) else { return };
    let Ok(regions) = REGIONS.try_lock() else { return };
    if config.pid == std::process::id() && !regions.is_empty() {
        let _ = std::fs::write(config.folder.join(config.pid.to_string()), report::text(&regions));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    /// First executed where the program may have one thread only, then with eight.
    #[test]
    fn a_later_larger_limit_is_used() {
        let config = Config { folder: PathBuf::new(), most: Some(8), apply: true, pid: 0 };
        let begun =
            |default| observe(&config, ptr::dangling(), false, default, || None).unwrap().threads;
        assert_eq!([1, 8, 16, 4, 8].map(begun), [1, 8, 8, 4, 8].map(Some));
    }
}
