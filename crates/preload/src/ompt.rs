//! The OpenMP tools interface, as far as it is used here (OpenMP API 5.0, chapter 4; LLVM's omp-tools.h).

use core::ffi::{c_char, c_int, c_uint, c_void};

/// What a tool gives the runtime that asks for one.
#[repr(C)]
pub struct StartToolResult {
    /// Called first; says whether the tool is to be.
    pub initialize: extern "C" fn(Lookup, c_int, *mut u64) -> c_int,
    /// Called last.
    pub finalize: extern "C" fn(*mut u64),
    /// The tool's own.
    pub tool_data: u64,
}

/// Finds a function of the runtime by its name.
pub type Lookup = extern "C" fn(*const c_char) -> *mut c_void;
/// `ompt_set_callback`: has the runtime call a function when something happens.
pub type SetCallback = extern "C" fn(c_uint, *const c_void) -> c_uint;
/// `ompt_start_tool`, which a tool has and the runtime calls.
pub type StartTool = extern "C" fn(c_uint, *const c_char) -> *mut StartToolResult;

/// A task is made (`ompt_callback_task_create`).
pub const TASK_CREATE: c_uint = 5;
/// A thread begins or ends its part of a region (`ompt_callback_implicit_task`).
pub const IMPLICIT_TASK: c_uint = 7;
/// A thread begins or ends to wait for others of its team (`ompt_callback_sync_region_wait`).
pub const SYNC_REGION_WAIT: c_uint = 16;
/// A thread wants a lock (`ompt_callback_mutex_acquire`).
pub const MUTEX_ACQUIRE: c_uint = 26;
/// It has it (`ompt_callback_mutex_acquired`).
pub const MUTEX_ACQUIRED: c_uint = 27;

/// A lock that is waited for (`ompt_mutex_lock`).
pub const MUTEX_LOCK: c_uint = 1;
/// A lock that is tried (`ompt_mutex_test_lock`).
pub const MUTEX_TEST_LOCK: c_uint = 2;

/// Something begins (`ompt_scope_begin`).
pub const BEGIN: c_uint = 1;
/// The task is the program's first thread's (`ompt_task_initial`).
pub const TASK_INITIAL: c_int = 1;
/// The task is one that the program asked for (`ompt_task_explicit`).
pub const TASK_EXPLICIT: c_int = 4;
