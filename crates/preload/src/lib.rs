//! What programs load (`LD_PRELOAD`) so that their threads tell when they wait for others in a loop.
//!
//! # Problem
//! The kernel sees a thread that sleeps until others are done. It does not see one that asks again and again whether
//! they are: that one looks as busy as they.
//!
//! # Approach
//! The functions in which threads wait like that are taken by ones that note in shared memory ([`layout`]) since when
//! the thread waits, call those that were meant, and note that it works again. Locks are tried first, so who finds a
//! lock free notes nothing. LLVM's OpenMP tells by its own interface for tools.
//!
//! - `locks`: spin locks and adaptive mutexes of the C library. Barriers, conditions and other mutexes of glibc put
//!   threads to sleep at once, so there is nothing to tell.
//! - `gnu`: GNU OpenMP, between parallel regions too.
//! - `behind`: for a library before this one.
//! - `llvm`: LLVM OpenMP. `teams` is what both have in common.
//!
//! # Manners
//! This lives inside somebody else's process. It allocates nothing, keeps no descriptor, leaves `errno` as it was,
//! prints nothing (but for one line where the program cannot go on, with this library or without), and makes no
//! system call after the start of a program but one in each thread that waits for the first time. Whatever is not as
//! expected, the program runs as if nobody had come in between. It needs nothing but the C library, with no function
//! that only one C library has, so a program with another one starts as well.
#![cfg_attr(not(test), no_std)]
#![allow(unsafe_code)] // a library that C calls and that calls C

pub mod behind;
mod clib;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[allow(non_snake_case)] // libgomp's names
pub mod gnu;
pub mod layout;
pub mod llvm;
pub mod locks;
pub mod ompt;
mod real;
pub mod teams;
pub mod thread;

/// Finds the functions that are in sight when the program is loaded.
pub fn look_around() {
    clib::keeping_errno(|| {
        locks::prepare();
        llvm::prepare();
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        gnu::prepare();
        // What was not found is nothing that the program should be told of.
        // SAFETY: it takes nothing.
        unsafe { clib::dlerror() };
    });
}

/// Called when the program is loaded, before its own code.
#[cfg(preloaded)]
extern "C" fn begin() {
    thread::prepare();
    look_around();
}

#[cfg(preloaded)]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Nothing here panics; a test looks whether this is left out.
#[cfg(all(preloaded, not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
