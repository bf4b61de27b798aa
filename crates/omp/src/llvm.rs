//! LLVM OpenMP's functions that set a number of threads, begin a parallel region, and give chunks
//! of loops.
//!
//! A region is begun by `__kmpc_fork_call`, which takes as many parameters as the region has
//! variables. So ours is a few instructions that save all registers, call `fork`, and jump to the
//! address that `fork` returns: the runtime's function, on the same stack. When the region ends,
//! `tool` is called.

#![allow(unsafe_code)] // functions of a C runtime, with its pointers

use crate::real::Real;
use crate::{gnu, regions, tool};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr;

/// Source location as LLVM's compilers pass it (`ident_t` of kmp.h).
#[repr(C)]
pub struct Ident {
    reserved: [i32; 4],
    source: *const c_char,
}

thread_local! {
    /// The program has set the number of threads of this thread's next region (`num_threads`
    /// clause).
    static SAID: Cell<bool> = const { Cell::new(false) };
}

static PUSH: Real = Real::new(c"__kmpc_push_num_threads");
static NUMBER: Real = Real::new(c"__kmpc_global_thread_num");
static FORK: Real = Real::new(c"__kmpc_fork_call");

/// Looks up the runtime's functions in the global scope, before the program starts.
pub fn prepare() {
    // A runtime without this function has none of the others.
    if FORK.get(ptr::null()).is_some() {
        let chunks = [&NEXT_4, &NEXT_4U, &NEXT_8, &NEXT_8U];
        for real in [&PUSH, &NUMBER].into_iter().chain(chunks) {
            real.get(ptr::null());
        }
    }
}

/// Replaces libomp's function, which compilers call for a `num_threads` clause.
///
/// # Safety
/// As for libomp's function: compilers emit the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __kmpc_push_num_threads(place: *const Ident, thread: i32, threads: i32) {
    // The variable is gone only at the end of the thread, where no region follows.
    let _ = SAID.try_with(|said| said.set(true));
    // SAFETY: what the program gave is passed on.
    unsafe { push(place, thread, threads) };
}

/// # Safety
/// As libomp's `__kmpc_push_num_threads`.
unsafe fn push(place: *const Ident, thread: i32, threads: i32) {
    let real = PUSH.sure(place.cast());
    // SAFETY: the runtime's function of this name has this signature.
    let real: unsafe extern "C" fn(*const Ident, i32, i32) = unsafe { transmute(real) };
    // SAFETY: as the caller says.
    unsafe { real(place, thread, threads) };
}

/// Hook before a region; returns the address of the runtime's `__kmpc_fork_call`.
unsafe extern "C" fn fork(place: *const Ident, _count: i32, body: *const c_void) -> *mut c_void {
    // Without the variable the number counts as the program's, and the region is left alone.
    let said = SAID.try_with(|said| said.replace(false)).unwrap_or(true);
    if !tool::is_on() && regions::is_enabled() {
        // The runtime starts its tool at the first call that needs a thread number, which may be
        // the region itself. Without this call the first region would not be reported.
        // SAFETY: `place` is from the program, for this call.
        unsafe { number(place, body) };
    }
    if tool::is_on() && !tool::in_region() {
        // SAFETY: the program has given `place` for this call.
        unsafe { before(place, body, said) };
    }
    FORK.sure(body)
}

/// # Safety
/// `place` is what a compiler gave, or null.
unsafe fn before(place: *const Ident, body: *const c_void, said: bool) {
    let Some(default) = gnu::max_threads(body) else { return };
    // SAFETY: as the caller says.
    let Some(thread) = (unsafe { number(place, body) }) else { return };
    // SAFETY: `place` lives as long as the program.
    let Some(observed) = regions::begin(body, said, default, || unsafe { source(place) }) else {
        return;
    };
    if let Some(threads) = observed.threads.and_then(|threads| i32::try_from(threads).ok()) {
        // SAFETY: `place` is what the program gave; the thread is the calling one. This is what
        // compilers do themselves.
        unsafe { push(place, thread, threads) };
    }
    tool::set_observed(observed);
}

/// Thread number in the runtime; `None` without a runtime.
///
/// # Safety
/// `place` is what a compiler gave, or null.
unsafe fn number(place: *const Ident, body: *const c_void) -> Option<i32> {
    let number = NUMBER.get(body)?;
    // SAFETY: the runtime's function of this name has this signature.
    let number: unsafe extern "C" fn(*const Ident) -> i32 = unsafe { transmute(number) };
    // SAFETY: as the caller says.
    Some(unsafe { number(place) })
}

/// Source location as text.
///
/// # Safety
/// `place` is what a compiler gave, or null.
unsafe fn source(place: *const Ident) -> Option<String> {
    // SAFETY: as the caller says.
    let text = unsafe { place.as_ref()? }.source;
    if text.is_null() {
        return None;
    }
    // SAFETY: a constant of the program that ends in a null byte.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// Replaces libomp's function, which runs a parallel region.
///
/// # Safety
/// As for libomp's function: compilers emit the call.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __kmpc_fork_call() {
    // Seven registers and the return address keep the stack aligned to 16 bytes, as a call
    // requires. `al` holds the number of vector registers with variadic parameters, here none.
    std::arch::naked_asm!(
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
        "call {fork}",
        "mov r11, rax",
        "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "jmp r11",
        fork = sym fork,
    );
}

/// Replaces libomp's function, which runs a parallel region.
///
/// # Safety
/// As for libomp's function: compilers emit the call.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __kmpc_fork_call() {
    // `bl` overwrites `x30`, the return address. 80 bytes keep the stack aligned to 16. `x16` is
    // free at every call (AAPCS64: `IP0`).
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-80]!",
        "stp x0, x1, [sp, #16]", "stp x2, x3, [sp, #32]", "stp x4, x5, [sp, #48]", "stp x6, x7, [sp, #64]",
        "bl {fork}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]", "ldp x2, x3, [sp, #32]", "ldp x4, x5, [sp, #48]", "ldp x6, x7, [sp, #64]",
        "ldp x29, x30, [sp], #80",
        "br x16",
        fork = sym fork,
    );
}

static NEXT_4: Real = Real::new(c"__kmpc_dispatch_next_4");
static NEXT_4U: Real = Real::new(c"__kmpc_dispatch_next_4u");
static NEXT_8: Real = Real::new(c"__kmpc_dispatch_next_8");
static NEXT_8U: Real = Real::new(c"__kmpc_dispatch_next_8u");

/// Functions of libomp that give a thread its next chunk of a loop, by the type of its iterations.
macro_rules! chunks {
    ($($name:ident, $real:ident ($kind:ty, $step:ty);)*) => {$(
        /// Replaces libomp's function.
        ///
        /// # Safety
        /// As for libomp's function: compilers emit the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            place: *const Ident,
            thread: i32,
            is_last: *mut i32,
            begin: *mut $kind,
            end: *mut $kind,
            step: *mut $step,
        ) -> c_int {
            let real = $real.sure(place.cast());
            type Next = unsafe extern "C" fn(*const Ident, i32, *mut i32, *mut $kind, *mut $kind, *mut $step) -> c_int;
            // SAFETY: the runtime's function of this name has this signature.
            let real: Next = unsafe { transmute(real) };
            regions::chunk_requested();
            // SAFETY: what the program gave is passed on.
            let has_chunk = unsafe { real(place, thread, is_last, begin, end, step) };
            // SAFETY: the runtime has written both, if it has given a chunk; the end is in it.
            let steps = if has_chunk == 0 { 0 } else { unsafe { (*end).abs_diff(*begin) } };
            regions::chunk_given(u64::from(steps) + u64::from(has_chunk != 0));
            has_chunk
        }
    )*};
}

chunks! {
    __kmpc_dispatch_next_4, NEXT_4(i32, i32);
    __kmpc_dispatch_next_4u, NEXT_4U(u32, i32);
    __kmpc_dispatch_next_8, NEXT_8(i64, i64);
    __kmpc_dispatch_next_8u, NEXT_8U(u64, i64);
}
