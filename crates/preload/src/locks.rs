//! Locks of the C library that are waited for in a loop: spin locks, and adaptive mutexes until they sleep.

use crate::clib;
use crate::real::Real;
use crate::thread;
use core::ffi::{c_int, c_void};

type Take = extern "C" fn(*mut c_void) -> c_int;

static SPIN_LOCK: Real = Real::new(c"pthread_spin_lock");
static SPIN_TRY: Real = Real::new(c"pthread_spin_trylock");
static MUTEX_LOCK: Real = Real::new(c"pthread_mutex_lock");
static MUTEX_TRY: Real = Real::new(c"pthread_mutex_trylock");

/// Where the kind is in a mutex of glibc, in bytes (`__kind`, bits/struct_mutex.h, of 64-bit programs). Another
/// library has something else there; then a mutex may be tried before it is waited for, which changes nothing.
const KIND_AT: usize = 16;
/// The part of it that tells what is done when it is taken (`PTHREAD_MUTEX_TYPE` of nptl/pthreadP.h).
const KIND: u32 = 127;
/// Looks for some time whether it is free, then sleeps (`PTHREAD_MUTEX_ADAPTIVE_NP`, pthread.h).
const ADAPTIVE: u32 = 3;

/// Finds what is in sight now.
pub fn prepare() {
    for real in [&SPIN_LOCK, &SPIN_TRY, &MUTEX_LOCK, &MUTEX_TRY] {
        real.get();
    }
}

fn meant(real: &Real) -> Option<Take> {
    // SAFETY: all functions of this file take a pointer to a lock and return a number.
    real.get().map(|at| unsafe { core::mem::transmute::<*mut c_void, Take>(at.as_ptr()) })
}

/// Tries, and only who finds the lock taken notes that it waits.
#[inline]
fn try_then_wait(lock: *mut c_void, attempt: Take, wait: Take) -> c_int {
    match attempt(lock) {
        clib::EBUSY => thread::waiting(|| wait(lock)),
        done => done,
    }
}

/// Takes a spin lock.
///
/// # Safety
/// As of pthread_spin_lock(3): `lock` is one.
#[cfg_attr(preloaded, unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_spin_lock(lock: *mut c_void) -> c_int {
    match (meant(&SPIN_TRY), meant(&SPIN_LOCK)) {
        (Some(attempt), Some(wait)) => try_then_wait(lock, attempt, wait),
        (_, Some(wait)) => wait(lock),
        // Nobody can call what nobody has.
        (_, None) => clib::ENOSYS,
    }
}

/// Takes a mutex.
///
/// # Safety
/// As of pthread_mutex_lock(3): `mutex` is one.
#[cfg_attr(preloaded, unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut c_void) -> c_int {
    let Some(wait) = meant(&MUTEX_LOCK) else { return clib::ENOSYS };
    // SAFETY: a mutex is longer than that, and its kind does not change.
    let kind = unsafe { mutex.cast::<u8>().add(KIND_AT).cast::<u32>().read() };
    match meant(&MUTEX_TRY).filter(|_| kind & KIND == ADAPTIVE) {
        Some(attempt) => try_then_wait(mutex, attempt, wait),
        None => wait(mutex),
    }
}
