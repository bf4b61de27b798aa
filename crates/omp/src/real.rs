//! Lookup of the runtime's functions behind ours.
//!
//! The next library in load order has the functions, unless the runtime came with a library that
//! was loaded later with local scope (a module of a scripting language). Then the lookup uses the
//! dependencies of the calling library.

#![allow(unsafe_code)] // dlsym, dladdr, dlopen

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Size of the cache of callers for a function outside the global scope. Chosen: a power of two,
/// some cache lines; further callers are looked up each time.
const CALLERS: usize = 16;

/// Function of the runtime, looked up once.
pub struct Real {
    name: &'static CStr,
    /// Address in the global scope; null if not found.
    found: AtomicPtr<c_void>,
    /// Cache by caller: an address in the caller's code or data, and the function for this caller.
    /// Each entry is written once, the function before the caller.
    callers: [(AtomicPtr<c_void>, AtomicPtr<c_void>); CALLERS],
}

impl Real {
    /// Function `name`, not looked up yet.
    pub const fn new(name: &'static CStr) -> Self {
        const NONE: *mut c_void = ptr::null_mut();
        let callers = [const { (AtomicPtr::new(NONE), AtomicPtr::new(NONE)) }; CALLERS];
        Self { name, found: AtomicPtr::new(NONE), callers }
    }

    /// Address of the function for a caller with `near` in its code or data; `None` if no library
    /// has the function.
    pub fn get(&self, near: *const c_void) -> Option<*mut c_void> {
        let known = self.found.load(Ordering::Acquire);
        if !known.is_null() {
            return Some(known);
        }
        // Addresses of aarch64 code are multiples of 4.
        let entry = self.callers.get((near.addr() >> 2) % CALLERS)?;
        if !near.is_null() && entry.0.load(Ordering::Acquire).cast_const() == near {
            // Written before the caller, whose load above acquires both.
            return Some(entry.1.load(Ordering::Relaxed));
        }
        if self.is_unused()
            && let Some(found) = next(self.name)
        {
            self.found.store(found, Ordering::Release);
            return Some(found);
        }
        // Another library may be linked to another runtime, so the caller's own dependencies come
        // first. The global scope may have grown since, and serves callers without a runtime of
        // their own.
        let found = of_library(self.name, near).or_else(|| next(self.name))?;
        let empty = ptr::null_mut();
        // The exchange of the function decides which caller gets the entry.
        if entry.1.compare_exchange(empty, found, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            entry.0.store(near.cast_mut(), Ordering::Release);
        }
        Some(found)
    }

    /// True if the cache of callers is empty.
    fn is_unused(&self) -> bool {
        self.callers.iter().all(|entry| entry.1.load(Ordering::Relaxed).is_null())
    }

    /// Address of the function for a caller that already uses the runtime.
    ///
    /// Without the runtime's function the program cannot continue, so the process aborts
    /// (abort(3)).
    pub fn sure(&self, near: *const c_void) -> *mut c_void {
        self.get(near).unwrap_or_else(|| {
            // SAFETY: takes nothing.
            unsafe { libc::abort() }
        })
    }
}

/// Next function of this name in load order.
fn next(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `name` ends in a null byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

fn of_library(name: &CStr, near: *const c_void) -> Option<*mut c_void> {
    let object = object(near)?;
    if object.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name is the loader's own and ends in a null byte; nothing is loaded that is not
    // there.
    let handle = unsafe { libc::dlopen(object.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: `handle` is valid and `name` ends in a null byte. The handle stays open, so that what
    // is found does too.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Loader's description of the object that contains `address`; `None` if unknown.
pub fn object(address: *const c_void) -> Option<libc::Dl_info> {
    if address.is_null() {
        return None;
    }
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: any address may be asked for; `info` is a valid place to write to.
    let known = unsafe { libc::dladdr(address, &raw mut info) };
    (known != 0).then_some(info)
}

/// Name of a function as a C string.
macro_rules! named {
    ($name:ident) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        }
    };
}

/// Exported function that jumps to `$inner` with its return address as an additional parameter: the
/// `first`, the `second` or the `third`.
macro_rules! with_caller {
    ($(#[$doc:meta])* $name:ident, $place:ident, $inner:path) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!($crate::real::$place!(), "jmp {inner}", inner = sym $inner);
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!($crate::real::$place!(), "b {inner}", inner = sym $inner);
        }
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! first {
    () => {
        "mov rdi, [rsp]"
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! second {
    () => {
        "mov rsi, [rsp]"
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! third {
    () => {
        "mov rdx, [rsp]"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! first {
    () => {
        "mov x0, x30"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! second {
    () => {
        "mov x1, x30"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! third {
    () => {
        "mov x2, x30"
    };
}

pub(crate) use {first, named, second, third, with_caller};
