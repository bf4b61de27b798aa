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

/// What colocate asked for.
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
static SAID: AtomicBool = AtomicBool::new(false);
/// Whether it has called `omp_get_max_threads`.
static ASKED: AtomicBool = AtomicBool::new(false);
static TEAM: AtomicU32 = AtomicU32::new(0);
static BUSY: AtomicU64 = AtomicU64::new(0);
static INSIDE: AtomicU64 = AtomicU64::new(0);
static WAITED: AtomicU64 = AtomicU64::new(0);

/// Times of this thread that are not added up yet, in ns.
#[derive(Clone, Copy, Default)]
struct Mine {
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
    static MINE: Cell<Mine> = const { Cell::new(Mine { since: 0, asked: 0, got: 0, depth: 0, inside: 0, waited: 0 }) };
}

/// Changes this thread's times. A thread that is ending has none.
fn mine(change: impl FnOnce(&mut Mine)) {
    let _ = MINE.try_with(|cell| {
        let mut mine = cell.get();
        change(&mut mine);
        cell.set(mine);
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
pub fn wanted() -> bool {
    config().is_some()
}

/// The program has said how many threads it wants.
pub fn said_so() {
    SAID.store(true, Ordering::Relaxed);
}

/// The program has asked how many threads a region gets. It may share work out among so many, so nothing is changed
/// any more.
pub fn asked() {
    ASKED.store(true, Ordering::Relaxed);
}

/// A region that is observed. Its holder must call [`Observed::end`].
pub struct Observed {
    place: usize,
    since: u64,
    /// How many threads it shall have; `None` if nothing is to be changed.
    pub threads: Option<u32>,
}

/// A region begins, which the runtime would give `usual` threads. `None` if it passes untouched.
pub fn begin(
    body: *const c_void,
    explicit: bool,
    usual: u32,
    said: impl FnOnce() -> Option<String>,
) -> Option<Observed> {
    let config = config()?;
    if ACTIVE.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return None;
    }
    let observed = observe(config, body, explicit, usual, said);
    if observed.is_none() {
        ACTIVE.store(false, Ordering::Release);
    }
    observed
}

fn observe(
    config: &Config,
    body: *const c_void,
    explicit: bool,
    usual: u32,
    said: impl FnOnce() -> Option<String>,
) -> Option<Observed> {
    let relies = config.apply && ASKED.load(Ordering::Relaxed);
    let explicit = explicit || relies || SAID.load(Ordering::Relaxed);
    let most = config.most.map_or(usual, |most| most.min(usual));
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
    let threads = changes.then(|| region.learner.threads().min(usual));
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
pub fn joins() {
    TEAM.fetch_add(1, Ordering::Relaxed);
    works();
}

/// This thread begins to work, or goes on after a barrier.
pub fn works() {
    mine(|mine| *mine = Mine { since: now(), ..Mine::default() });
}

/// This thread has come to the end of the region, or to a barrier: its times are added up.
pub fn rests() {
    mine(|mine| {
        if mine.since != 0 {
            BUSY.fetch_add(now().saturating_sub(mine.since), Ordering::Release);
            INSIDE.fetch_add(mine.inside, Ordering::Relaxed);
            WAITED.fetch_add(mine.waited, Ordering::Relaxed);
        }
        *mine = Mine::default();
    });
}

/// This thread wants to enter a critical section.
pub fn asks() {
    mine(|mine| {
        if mine.since != 0 && mine.depth == 0 {
            mine.asked = now();
        }
    });
}

/// It has entered.
pub fn gets() {
    mine(|mine| {
        mine.depth = mine.depth.saturating_add(1);
        if mine.since != 0 && mine.depth == 1 {
            mine.got = now();
            if mine.asked != 0 {
                mine.waited += mine.got.saturating_sub(mine.asked);
            }
        }
    });
}

/// It has left.
pub fn leaves() {
    mine(|mine| {
        mine.depth = mine.depth.saturating_sub(1);
        if mine.since != 0 && mine.depth == 0 && mine.got != 0 {
            mine.inside += now().saturating_sub(mine.got);
            (mine.asked, mine.got) = (0, 0);
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
            |usual| observe(&config, ptr::dangling(), false, usual, || None).unwrap().threads;
        assert_eq!([1, 8, 16, 4, 8].map(begun), [1, 8, 8, 4, 8].map(Some));
    }
}
