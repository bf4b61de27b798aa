//! A second tool beside ours: the library that tells of waits (`colocate schedule --preload`, docs/waits.md).
//!
//! A runtime knows one tool, and one function for each event. So ours stands for both: the other one is given a function to
//! set callbacks that keeps those for events which we hear of ourselves, and ours call them. All others are set as usual.
//! Other tools are no business of ours: if there is one, it is the tool.

#![allow(unsafe_code)] // functions of a C runtime, with its pointers

use crate::real;
use crate::tool::{self, SetCallback, Started};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::mem::{size_of, transmute_copy};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The name of that library, which act/src/told.rs has programs load.
const LIBRARY: &str = "libcolocate_waits.so";

/// A callback of the other tool, once it has set it.
pub struct Callback<F>(AtomicPtr<c_void>, PhantomData<F>);

impl<F: Copy> Callback<F> {
    const fn none() -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        Self(AtomicPtr::new(ptr::null_mut()), PhantomData)
    }

    /// What it is.
    pub fn get(&self) -> Option<F> {
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: it was given for the event whose callbacks are of this type, which has the size of a pointer.
        (!found.is_null()).then(|| unsafe { transmute_copy::<*mut c_void, F>(&found) })
    }
}

type ImplicitTask = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void, c_uint, c_uint, c_int);
type MutexAcquire = unsafe extern "C" fn(c_int, c_uint, c_uint, u64, *const c_void);
type MutexAcquired = unsafe extern "C" fn(c_int, u64, *const c_void);

/// `ompt_callback_implicit_task`.
pub static IMPLICIT_TASK: Callback<ImplicitTask> = Callback::none();
/// `ompt_callback_mutex_acquire`.
pub static MUTEX_ACQUIRE: Callback<MutexAcquire> = Callback::none();
/// `ompt_callback_mutex_acquired`.
pub static MUTEX_ACQUIRED: Callback<MutexAcquired> = Callback::none();

/// The other tool, if we are to stand for it.
static OTHER: AtomicPtr<Started> = AtomicPtr::new(ptr::null_mut());
/// What the runtime has given us.
static RUNTIME: OnceLock<(unsafe extern "C" fn(*const c_char) -> *mut c_void, SetCallback)> =
    OnceLock::new();

/// The tool that there would be without us; null if none.
///
/// # Safety
/// As of `ompt_start_tool`: `runtime` is a string.
pub unsafe fn next(version: c_uint, runtime: *const c_char) -> *const Started {
    // SAFETY: the name ends in a null byte.
    let start = unsafe { libc::dlsym(libc::RTLD_NEXT, c"ompt_start_tool".as_ptr()) };
    if start.is_null() {
        return ptr::null();
    }
    // SAFETY: a function of this name is of this type.
    let start: unsafe extern "C" fn(c_uint, *const c_char) -> *const Started =
        unsafe { std::mem::transmute(start) };
    // SAFETY: as the caller says.
    unsafe { start(version, runtime) }
}

/// Whether we can stand for this tool; then we will.
pub fn takes(other: *const Started) -> bool {
    let file = real::object(other.cast()).map(|object| object.dli_fname);
    let Some(file) = file.filter(|file| !file.is_null()) else { return false };
    // SAFETY: the loader's own name of an object, which ends in a null byte.
    let file = unsafe { CStr::from_ptr(file) };
    let is_ours = file.to_str().is_ok_and(|file| Path::new(file).ends_with(LIBRARY));
    if is_ours {
        OTHER.store(other.cast_mut(), Ordering::Release);
    }
    is_ours
}

/// Begins the other tool, if there is one.
///
/// # Safety
/// Both are the runtime's, in the call in which it begins us.
pub unsafe fn initialize(
    lookup: unsafe extern "C" fn(*const c_char) -> *mut c_void,
    set: SetCallback,
) {
    let other = OTHER.load(Ordering::Acquire);
    if other.is_null() || RUNTIME.set((lookup, set)).is_err() {
        return;
    }
    // SAFETY: the library gave it to be used for as long as the runtime is there, and its data is its own.
    unsafe { ((*other).initialize)(Some(find), 0, (&raw mut (*other).data).cast()) };
}

/// Ends the other tool, if there is one.
pub fn finalize() {
    let other = OTHER.swap(ptr::null_mut(), Ordering::AcqRel);
    if !other.is_null() && RUNTIME.get().is_some() {
        // SAFETY: it was begun, and ends once.
        unsafe { ((*other).finalize)((&raw mut (*other).data).cast()) };
    }
}

/// The runtime's function of a name, for the other tool.
unsafe extern "C" fn find(name: *const c_char) -> *mut c_void {
    // SAFETY: a tool asks with a string.
    if unsafe { CStr::from_ptr(name) } == c"ompt_set_callback" {
        return set_callback as *mut c_void;
    }
    // SAFETY: what the tool gave is passed on.
    RUNTIME.get().map_or(ptr::null_mut(), |(lookup, _)| unsafe { lookup(name) })
}

/// Keeps a callback of the other tool for an event that we hear of, or has the runtime call it.
unsafe extern "C" fn set_callback(event: c_int, callback: *const c_void) -> c_int {
    let place = match event {
        tool::IMPLICIT_TASK => &IMPLICIT_TASK.0,
        tool::MUTEX_ACQUIRE => &MUTEX_ACQUIRE.0,
        tool::MUTEX_ACQUIRED => &MUTEX_ACQUIRED.0,
        // SAFETY: what the tool gave is passed on.
        _ => return RUNTIME.get().map_or(0, |(_, set)| unsafe { set(event, callback) }),
    };
    place.store(callback.cast_mut(), Ordering::Release);
    tool::ALWAYS
}
