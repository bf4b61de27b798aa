//! The OpenMP tools interface (OMPT, OpenMP 5.0, chapter 4), which LLVM OpenMP has and GNU OpenMP
//! has not.
//!
//! Signatures and numbers are from `omp-tools.h`. No callback calls the runtime, which OMPT
//! forbids. A runtime has a single tool. A tool of the user takes precedence.

#![allow(unsafe_code)] // functions of a C runtime, with its pointers

use crate::regions::{self, Observed};
use crate::team::{self, RegionProgress};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The runtime has accepted this tool.
static ON: AtomicBool = AtomicBool::new(false);

/// `ompt_set_callback` of the runtime.
static SET: OnceLock<SetCallback> = OnceLock::new();

thread_local! {
    /// This thread has initialised the runtime.
    static FIRST: Cell<bool> = const { Cell::new(false) };
    /// Nesting depth of regions begun by this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Nesting depth of implicit tasks on this thread.
    static TASKS: Cell<u32> = const { Cell::new(0) };
    /// Observed region begun by this thread.
    static OBSERVED: Cell<Option<Observed>> = const { Cell::new(None) };
}

/// True if the runtime reports regions.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// True if this thread is inside a region, or exits.
pub fn in_region() -> bool {
    DEPTH.try_with(Cell::get).map_or(true, |depth| depth > 0)
        || TASKS.try_with(Cell::get).map_or(true, |tasks| tasks > 0)
}

/// Sets the observed region that this thread is about to begin.
pub fn set_observed(observed: Observed) {
    // An exiting thread has no cell. The observation then never ends, and all later regions pass
    // untouched.
    let _ = OBSERVED.try_with(|cell| cell.set(Some(observed)));
}

/// `ompt_start_tool_result_t`.
#[repr(C)]
pub struct Started {
    pub initialize: unsafe extern "C" fn(Lookup, c_int, *mut c_void) -> c_int,
    pub finalize: unsafe extern "C" fn(*mut c_void),
    pub data: *mut c_void,
}

// SAFETY: the runtime alone uses it, and the pointer is null.
unsafe impl Sync for Started {}

/// `ompt_function_lookup_t`: finds a function of the runtime by name.
pub type Lookup = Option<unsafe extern "C" fn(*const c_char) -> *mut c_void>;

/// `ompt_set_callback_t`: registers a callback for an event.
type SetCallback = unsafe extern "C" fn(c_int, *const c_void) -> c_int;

static STARTED: Started = Started { initialize, finalize, data: ptr::null_mut() };

/// Entry point by which a runtime finds a tool.
///
/// # Safety
/// As in the OpenMP specification: a runtime calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompt_start_tool(
    version: c_uint,
    runtime: *const c_char,
) -> *const Started {
    let named = std::env::var_os("OMP_TOOL_LIBRARIES").is_some_and(|list| !list.is_empty());
    // SAFETY: what the runtime gave is passed on.
    let other = unsafe { next(version, runtime) };
    if named || !regions::is_enabled() || !other.is_null() {
        return other;
    }
    &raw const STARTED
}

/// Next tool in load order; null: none.
///
/// # Safety
/// As for `ompt_start_tool`: `runtime` is a string.
unsafe fn next(version: c_uint, runtime: *const c_char) -> *const Started {
    // SAFETY: the name ends in a null byte.
    let start = unsafe { libc::dlsym(libc::RTLD_NEXT, c"ompt_start_tool".as_ptr()) };
    if start.is_null() {
        return ptr::null();
    }
    // SAFETY: a function of this name is of this type.
    let start: unsafe extern "C" fn(c_uint, *const c_char) -> *const Started =
        unsafe { transmute(start) };
    // SAFETY: as the caller says.
    unsafe { start(version, runtime) }
}

/// `ompt_callbacks_t`: events used here. `MUTEX_ACQUIRE` comes before a wait, `MUTEX_ACQUIRED`
/// after the wait.
const THREAD_END: c_int = 2;
const PARALLEL_BEGIN: c_int = 3;
const PARALLEL_END: c_int = 4;
const IMPLICIT_TASK: c_int = 7;
const MUTEX_RELEASED: c_int = 17;
const SYNC_REGION: c_int = 23;
const MUTEX_ACQUIRE: c_int = 26;
const MUTEX_ACQUIRED: c_int = 27;
/// `ompt_set_always`: every event of the kind is reported.
const ALWAYS: c_int = 5;
/// `ompt_scope_begin`.
const BEGIN: c_int = 1;
/// `ompt_task_implicit`.
const IMPLICIT: c_int = 2;
/// `ompt_sync_region_t` without a barrier: `taskwait`, `taskgroup` and `reduction`.
const WITHOUT_BARRIER: [c_int; 3] = [5, 6, 7];
/// `ompt_mutex_t` with a wait. Further kinds, as `test_lock`, do not wait.
const LOCK: c_int = 1;
const NEST_LOCK: c_int = 3;
const CRITICAL: c_int = 5;
const ATOMIC: c_int = 6;
const ORDERED: c_int = 7;

unsafe extern "C" fn initialize(lookup: Lookup, _device: c_int, _data: *mut c_void) -> c_int {
    // 0: the runtime does not use the tool.
    let Some(lookup) = lookup else { return 0 };
    let name: &CStr = c"ompt_set_callback";
    // SAFETY: the runtime has given the function for this, and the name ends in a null byte.
    let set = unsafe { lookup(name.as_ptr()) };
    if set.is_null() {
        return 0;
    }
    // SAFETY: `int ompt_set_callback(ompt_callbacks_t, ompt_callback_t)`.
    let set: SetCallback = unsafe { transmute(set) };
    let set = *SET.get_or_init(|| set);
    FIRST.set(true);
    let callbacks: [(c_int, *const c_void); 8] = [
        (THREAD_END, thread_end as *const c_void),
        (PARALLEL_BEGIN, parallel_begin as *const c_void),
        (PARALLEL_END, parallel_end as *const c_void),
        (IMPLICIT_TASK, implicit_task as *const c_void),
        (SYNC_REGION, sync_region as *const c_void),
        (MUTEX_ACQUIRE, mutex_acquire as *const c_void),
        (MUTEX_ACQUIRED, mutex_acquired as *const c_void),
        (MUTEX_RELEASED, mutex_released as *const c_void),
    ];
    // SAFETY: each function has the signature of its event.
    let all = callbacks.iter().all(|&(event, callback)| unsafe { set(event, callback) } == ALWAYS);
    ON.store(all, Ordering::Relaxed);
    // 1: the tool stays.
    1
}

unsafe extern "C" fn finalize(_data: *mut c_void) {
    ON.store(false, Ordering::Relaxed);
}

/// The thread that has initialised the runtime ends. From then on LLVM's `__kmpc_end_critical`
/// would crash if it had to report the end of a section: it looks that thread's data up.
unsafe extern "C" fn thread_end(_thread: *mut c_void) {
    if FIRST.try_with(Cell::get) == Ok(true)
        && let Some(set) = SET.get()
    {
        // SAFETY: a null pointer removes the callback.
        unsafe { set(MUTEX_RELEASED, ptr::null()) };
        regions::stop();
    }
}

unsafe extern "C" fn parallel_begin(
    _task: *mut c_void,
    _frame: *const c_void,
    _parallel: *mut c_void,
    _requested: c_uint,
    _flags: c_int,
    _caller: *const c_void,
) {
    let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_add(1)));
}

unsafe extern "C" fn parallel_end(
    _parallel: *mut c_void,
    _task: *mut c_void,
    _flags: c_int,
    _caller: *const c_void,
) {
    let left = DEPTH.try_with(|depth| {
        depth.set(depth.get().saturating_sub(1));
        depth.get()
    });
    if left == Ok(0) {
        let observed = OBSERVED.try_with(Cell::take).ok().flatten();
        observed.into_iter().for_each(Observed::end);
    }
}

/// A thread joins or leaves a team. The runtime reports the end late to a worker, at its next use,
/// long after the barrier at the end, where its times were added.
unsafe extern "C" fn implicit_task(
    endpoint: c_int,
    _parallel: *mut c_void,
    _task: *mut c_void,
    _threads: c_uint,
    _index: c_uint,
    flags: c_int,
) {
    if flags & IMPLICIT == 0 {
        return;
    }
    let step = if endpoint == BEGIN { 1 } else { -1 };
    let tasks = TASKS.try_with(|tasks| {
        tasks.set(tasks.get().saturating_add_signed(step));
        tasks.get()
    });
    match (endpoint == BEGIN, tasks) {
        (true, Ok(1)) => team::thread_begins(),
        (false, Ok(0)) => team::work_ends(),
        _ => {}
    }
}

unsafe extern "C" fn sync_region(
    kind: c_int,
    endpoint: c_int,
    _parallel: *mut c_void,
    _task: *mut c_void,
    _caller: *const c_void,
) {
    // Barriers of regions inside are work of the outer one.
    if TASKS.try_with(Cell::get) == Ok(1) {
        if endpoint == BEGIN {
            team::work_ends()
        } else {
            team::work_begins()
        }
        if !WITHOUT_BARRIER.contains(&kind) {
            team::loop_ends(RegionProgress::Barrier);
        }
    }
}

unsafe extern "C" fn mutex_acquire(
    kind: c_int,
    _hint: c_uint,
    _how: c_uint,
    _wait: u64,
    _caller: *const c_void,
) {
    match kind {
        LOCK | NEST_LOCK | CRITICAL | ATOMIC => regions::mutex_acquire(),
        ORDERED => {
            team::loop_ends(RegionProgress::LoopEnded);
            team::mutex_acquire();
        }
        // A test of a lock: the thread does not wait, and has no section if the lock is taken.
        _ => {}
    }
}

unsafe extern "C" fn mutex_acquired(_kind: c_int, _wait: u64, _caller: *const c_void) {
    team::mutex_acquired();
}

unsafe extern "C" fn mutex_released(_kind: c_int, _wait: u64, _caller: *const c_void) {
    team::mutex_released();
}
