//! LLVM OpenMP, which tells tools what its threads do (OMPT).
//!
//! Threads wait at barriers, for locks, and after their part of a region, until they get one of the next.
//! A program that makes tasks tells nothing from then on (`teams`).
//!
//! A runtime knows one tool. If the program brings one, or one is named in `OMP_TOOL_LIBRARIES`, that is it.

use crate::clib;
use crate::ompt::{self, Lookup, SetCallback, StartTool, StartToolResult};
use crate::real::Real;
use crate::teams::{be_unsure, rest};
use crate::thread;
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr;

static OTHERS: Real = Real::new(c"ompt_start_tool");

/// Finds what is in sight now.
pub fn prepare() {
    OTHERS.get();
}

/// What the runtime is given, which has a place for data that is the runtime's to write.
struct Tool(UnsafeCell<StartToolResult>);

// SAFETY: nobody here reads or writes it; only the runtime does.
unsafe impl Sync for Tool {}

static TOOL: Tool = Tool(UnsafeCell::new(StartToolResult { initialize, finalize, tool_data: 0 }));

/// The tool for a runtime that asks for one; null if it is not to be this one.
///
/// # Safety
/// As of `ompt_start_tool`: `runtime` is a string.
#[cfg_attr(preloaded, unsafe(no_mangle))]
pub unsafe extern "C" fn ompt_start_tool(
    version: c_uint,
    runtime: *const c_char,
) -> *mut StartToolResult {
    // SAFETY: a function of this name is of this type.
    let others = OTHERS
        .get()
        .map(|at| unsafe { core::mem::transmute::<*mut c_void, StartTool>(at.as_ptr()) });
    let theirs = others.map_or(ptr::null_mut(), |start| start(version, runtime));
    // SAFETY: the name is a string; a runtime that starts does not change the environment.
    let named = unsafe { clib::getenv(c"OMP_TOOL_LIBRARIES".as_ptr()) };
    // SAFETY: null, or a string.
    let named = unsafe { named.as_ref() }.is_some_and(|first| *first != 0);
    if !theirs.is_null() || named || !thread::is_wanted() {
        return theirs;
    }
    TOOL.0.get()
}

extern "C" fn initialize(lookup: Lookup, _device: c_int, _data: *mut u64) -> c_int {
    let set = lookup(c"ompt_set_callback".as_ptr());
    if set.is_null() {
        return 0;
    }
    // SAFETY: a function of this name is of this type.
    let set = unsafe { core::mem::transmute::<*mut c_void, SetCallback>(set) };
    set(ompt::TASK_CREATE, task_create as *const c_void);
    set(ompt::IMPLICIT_TASK, implicit_task as *const c_void);
    set(ompt::SYNC_REGION_WAIT, sync_region_wait as *const c_void);
    set(ompt::MUTEX_ACQUIRE, mutex_acquire as *const c_void);
    set(ompt::MUTEX_ACQUIRED, mutex_acquired as *const c_void);
    1
}

extern "C" fn finalize(_data: *mut u64) {}

/// Begins to wait, or works again.
fn waits(now: bool) {
    if now {
        rest();
    } else {
        thread::end();
    }
}

extern "C" fn task_create(
    _by: *mut u64,
    _frame: *const c_void,
    _task: *mut u64,
    flags: c_int,
    _dependences: c_int,
    _code: *const c_void,
) {
    if flags & ompt::TASK_EXPLICIT != 0 {
        be_unsure();
    }
}

extern "C" fn implicit_task(
    endpoint: c_uint,
    _region: *mut u64,
    _task: *mut u64,
    _threads: c_uint,
    index: c_uint,
    flags: c_int,
) {
    // The first thread of a team goes on behind the region.
    waits(endpoint != ompt::BEGIN && index != 0 && flags & ompt::TASK_INITIAL == 0);
}

extern "C" fn sync_region_wait(
    _kind: c_uint,
    endpoint: c_uint,
    _region: *mut u64,
    _task: *mut u64,
    _code: *const c_void,
) {
    waits(endpoint == ompt::BEGIN);
}

/// Of locks `omp_set_lock` tells, which is taken, and can try them first.
const fn is_lock(kind: c_uint) -> bool {
    matches!(kind, ompt::MUTEX_LOCK | ompt::MUTEX_TEST_LOCK)
}

extern "C" fn mutex_acquire(
    kind: c_uint,
    _hint: c_uint,
    _how: c_uint,
    _lock: u64,
    _code: *const c_void,
) {
    if !is_lock(kind) {
        waits(true);
    }
}

extern "C" fn mutex_acquired(kind: c_uint, _lock: u64, _code: *const c_void) {
    if !is_lock(kind) {
        waits(false);
    }
}
