//! For a library that stands before this one and takes some of the same functions: that of `colocate advise-threads`.

use crate::clib;
use core::ffi::{c_char, c_void};

/// Where a function is, in sight of the whole program behind this library; null if it is not: where a runtime is in sight of
/// its callers only, this library cannot know whose it is if somebody calls for them.
///
/// # Safety
/// `name` is a string.
#[cfg_attr(preloaded, unsafe(no_mangle))]
pub unsafe extern "C" fn colocate_waits_next(name: *const c_char) -> *mut c_void {
    // SAFETY: as the caller says.
    let found = unsafe { clib::dlsym(clib::RTLD_NEXT, name) };
    // Which library is the next one is told by where dlsym returns to: that must be here, so it must not be the last thing done.
    core::hint::black_box(found)
}
