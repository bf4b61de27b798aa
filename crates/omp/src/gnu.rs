//! GNU OpenMP's functions for parallel regions and critical sections.
//!
//! Their signatures are those of GCC's libgomp (libgomp_g.h, GCC 4.9 to 15). The body of a region is called through `worker`, on
//! every thread of the team, which is how its time on each is known. Locks (`omp_set_lock`) are not seen, since they may be another
//! runtime's; nor is what threads wait at barriers inside of a region, which counts as work.
//!
//! Regions begun by `GOMP_parallel_start`, which GCC before 4.9 made, are not seen.

#![allow(unsafe_code)] // functions of a C runtime, with its pointers
#![allow(non_snake_case)] // their names

use crate::real::{Real, named, with_caller};
use crate::{regions, tool};
use std::ffi::{c_long, c_uint, c_void};
use std::mem::transmute;

type Body = unsafe extern "C" fn(*mut c_void);

/// A body with what it was to be given.
struct Wrapped {
    body: Body,
    data: *mut c_void,
}

/// The body on one thread of the team.
unsafe extern "C" fn worker(wrapped: *mut c_void) {
    // SAFETY: `region` gives the runtime a `Wrapped` that lives until all threads have left.
    let wrapped = unsafe { &*wrapped.cast::<Wrapped>() };
    regions::joins();
    // SAFETY: as the program would have had it called.
    unsafe { (wrapped.body)(wrapped.data) };
    regions::rests();
}

static MAX_THREADS: Real = Real::new(c"omp_get_max_threads");
/// How many threads the runtime would give a region; `None` if it cannot be asked.
pub fn max_threads(near: *const c_void) -> Option<u32> {
    let ask = MAX_THREADS.get(near)?;
    // SAFETY: `int omp_get_max_threads(void)`, of the OpenMP standard.
    let ask: extern "C" fn() -> i32 = unsafe { transmute(ask) };
    u32::try_from(ask()).ok().filter(|threads| *threads > 0)
}

/// Runs a region by `call`, which hands body, data and number of threads to the runtime.
fn region<T>(
    body: Body,
    data: *mut c_void,
    asked: c_uint,
    call: impl FnOnce(Body, *mut c_void, c_uint) -> T,
) -> T {
    let near = body as *const c_void;
    // One thread is what the compiler asks for where an `if` clause says no. Where LLVM's runtime stands in for GNU's, its
    // tools interface tells all there is.
    if asked == 1 || tool::is_on() || !regions::wanted() {
        return call(body, data, asked);
    }
    let usual = if asked == 0 { max_threads(near) } else { Some(asked) };
    let looked = usual.and_then(|usual| regions::begin(near, asked != 0, usual, || None));
    let Some(looked) = looked else { return call(body, data, asked) };
    let wrapped = Wrapped { body, data };
    let data = (&raw const wrapped).cast_mut().cast();
    let done = call(worker, data, looked.threads.unwrap_or(asked));
    looked.end();
    done
}

/// A function of libgomp that runs a region: its parameters after body, data and number of threads, and what it returns.
macro_rules! regions {
    ($($name:ident ($($parameter:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {$(
        /// As libgomp's.
        ///
        /// # Safety
        /// As libgomp's: compilers call it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(body: Body, data: *mut c_void, threads: c_uint $(, $parameter: $kind)*) $(-> $result)? {
            static REAL: Real = Real::new(named!($name));
            let real = REAL.sure(body as *const c_void);
            // SAFETY: the runtime's function of this name has this signature.
            let real: unsafe extern "C" fn(Body, *mut c_void, c_uint $(, $kind)*) $(-> $result)? = unsafe { transmute(real) };
            // SAFETY: what the program gave is passed on.
            region(body, data, threads, |body, data, threads| unsafe { real(body, data, threads $(, $parameter)*) })
        }
    )*};
}

regions! {
    GOMP_parallel(flags: c_uint);
    GOMP_parallel_reductions(flags: c_uint) -> c_uint;
    GOMP_parallel_sections(count: c_uint, flags: c_uint);
    GOMP_parallel_loop_static(start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_dynamic(start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_guided(start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_nonmonotonic_dynamic(start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_nonmonotonic_guided(start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
    GOMP_parallel_loop_runtime(start: c_long, end: c_long, step: c_long, flags: c_uint);
    GOMP_parallel_loop_nonmonotonic_runtime(start: c_long, end: c_long, step: c_long, flags: c_uint);
    GOMP_parallel_loop_maybe_nonmonotonic_runtime(start: c_long, end: c_long, step: c_long, flags: c_uint);
}

/// A function of libgomp around a critical section: what is noted before and after it is called.
macro_rules! sections {
    ($($name:ident, $inner:ident ($($parameter:ident: $kind:ty)?), $caller:ident, $before:path, $after:path;)*) => {$(
        with_caller! {
            /// As libgomp's.
            ///
            /// # Safety
            /// As libgomp's: compilers call it.
            $name, $caller, $inner
        }

        unsafe extern "C" fn $inner($($parameter: $kind,)? caller: *const c_void) {
            static REAL: Real = Real::new(named!($name));
            let real = REAL.sure(caller);
            // SAFETY: the runtime's function of this name has this signature.
            let real: unsafe extern "C" fn($($kind)?) = unsafe { transmute(real) };
            $before();
            // SAFETY: what the program gave is passed on.
            unsafe { real($($parameter)?) };
            $after();
        }
    )*};
}

fn nothing() {}

sections! {
    GOMP_critical_start, critical_start(), first, regions::asks, regions::gets;
    GOMP_critical_end, critical_end(), first, nothing, regions::leaves;
    GOMP_critical_name_start, critical_name_start(lock: *mut *mut c_void), second, regions::asks, regions::gets;
    GOMP_critical_name_end, critical_name_end(lock: *mut *mut c_void), second, nothing, regions::leaves;
    GOMP_atomic_start, atomic_start(), first, regions::asks, regions::gets;
    GOMP_atomic_end, atomic_end(), first, nothing, regions::leaves;
}

with_caller! {
    /// As the OpenMP standard says. Whoever calls it gets the number of threads that it says.
    ///
    /// # Safety
    /// As the runtime's.
    omp_set_num_threads, second, set_num_threads
}

unsafe extern "C" fn set_num_threads(threads: i32, caller: *const c_void) {
    static REAL: Real = Real::new(c"omp_set_num_threads");
    let real = REAL.sure(caller);
    // SAFETY: `void omp_set_num_threads(int)`, of the OpenMP standard.
    let real: unsafe extern "C" fn(i32) = unsafe { transmute(real) };
    regions::said_so();
    // SAFETY: what the program gave is passed on.
    unsafe { real(threads) };
}
