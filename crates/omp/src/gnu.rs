//! GNU OpenMP's functions for parallel regions, for chunks of loops and for critical sections.
//!
//! Signatures are from GCC's libgomp (libgomp_g.h, GCC 4.9 to 15). The body of a region is called
//! through `worker` on every thread of the team, which measures its time per thread. Locks
//! (`omp_set_lock`) are not seen, since they may belong to another runtime. Waiting at barriers
//! inside a region is not seen either, and counts as work. Chunks of ordered loops are not counted.
//!
//! Regions begun by `GOMP_parallel_start` (GCC before 4.9) are not seen. Nor are regions with a
//! reduction over tasks (`GOMP_parallel_reductions`): libgomp itself reads the data of the body, so
//! `Wrapped` cannot replace the data.

#![allow(unsafe_code)] // functions of a C runtime, with its pointers
#![allow(non_snake_case)] // their names

use crate::real::{Real, with_caller};
use crate::team::{self, RegionProgress};
use crate::{regions, tool};
use std::ffi::{c_long, c_uint, c_ulonglong, c_void};
use std::mem::transmute;
use std::ptr;

type Body = unsafe extern "C" fn(*mut c_void);

/// Body of a region with its argument.
struct Wrapped {
    body: Body,
    data: *mut c_void,
}

/// Runs the body on a thread of the team and measures its time.
unsafe extern "C" fn worker(wrapped: *mut c_void) {
    // SAFETY: `region` gives the runtime a `Wrapped` that lives until all threads have left.
    let wrapped = unsafe { &*wrapped.cast::<Wrapped>() };
    team::thread_begins();
    // SAFETY: as the program would have had it called.
    unsafe { (wrapped.body)(wrapped.data) };
    team::work_ends();
}

static MAX_THREADS: Real = Real::new(c"omp_get_max_threads");
/// Default team size of the runtime; `None` without an OpenMP runtime.
pub fn max_threads(near: *const c_void) -> Option<u32> {
    let ask = MAX_THREADS.get(near)?;
    // SAFETY: `int omp_get_max_threads(void)`, of the OpenMP standard.
    let ask: extern "C" fn() -> i32 = unsafe { transmute(ask) };
    u32::try_from(ask()).ok().filter(|threads| *threads > 0)
}

/// Looks up the runtime's functions in the global scope, before the program starts.
pub fn prepare() {
    // A runtime without this function has none of the others.
    if MAX_THREADS.get(ptr::null()).is_some() {
        for real in [of_regions::ALL, of_chunks::ALL, of_sections::ALL, of_numbers::ALL]
            .into_iter()
            .flatten()
        {
            real.get(ptr::null());
        }
    }
}

/// Module of the runtime's functions with these names.
macro_rules! reals {
    ($module:ident: $($name:ident)*) => {
        #[allow(non_upper_case_globals)] // named as the functions are
        mod $module {
            use crate::real::{Real, named};

            $(pub static $name: Real = Real::new(named!($name));)*

            /// All functions of this module.
            pub static ALL: &[&Real] = &[$(&$name),*];
        }
    };
}

/// Runs a region by `call`, which passes body, data and number of threads to the runtime.
fn region(
    body: Body,
    data: *mut c_void,
    asked: c_uint,
    call: impl FnOnce(Body, *mut c_void, c_uint),
) {
    let near = body as *const c_void;
    // Compilers request one thread where an `if` clause is false. Where LLVM's runtime replaces
    // GNU's, its tools interface reports all regions.
    if asked == 1 || tool::is_on() || !regions::is_enabled() {
        return call(body, data, asked);
    }
    let default = if asked == 0 { max_threads(near) } else { Some(asked) };
    let observed = default.and_then(|default| regions::begin(near, asked != 0, default, || None));
    let Some(observed) = observed else { return call(body, data, asked) };
    let wrapped = Wrapped { body, data };
    let data = (&raw const wrapped).cast_mut().cast();
    // Without a decision the program's own number counts.
    call(worker, data, observed.threads.unwrap_or(asked));
    observed.end();
}

/// Functions of libgomp that run a region, with their parameters after body, data and number of
/// threads.
macro_rules! regions {
    ($($name:ident ($($parameter:ident: $kind:ty),*);)*) => {
        reals!(of_regions: $($name)*);

        $(
        /// Replaces libgomp's function.
        ///
        /// # Safety
        /// As for libgomp's function: compilers emit the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(body: Body, data: *mut c_void, threads: c_uint $(, $parameter: $kind)*) {
            let real = of_regions::$name.sure(body as *const c_void);
            // SAFETY: the runtime's function of this name has this signature.
            let real: unsafe extern "C" fn(Body, *mut c_void, c_uint $(, $kind)*) = unsafe { transmute(real) };
            // SAFETY: what the program gave is passed on.
            region(body, data, threads, |body, data, threads| unsafe { real(body, data, threads $(, $parameter)*) })
        }
        )*
    };
}

regions! {
    GOMP_parallel(flags: c_uint);
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

/// Functions of libgomp that give a thread its next chunk of a loop.
macro_rules! chunks {
    ($($name:ident, $inner:ident ($kind:ty);)*) => {
        reals!(of_chunks: $($name)*);

        $(
        with_caller! {
            /// Replaces libgomp's function.
            ///
            /// # Safety
            /// As for libgomp's function: compilers emit the call.
            $name, third, $inner
        }

        unsafe extern "C" fn $inner(begin: *mut $kind, end: *mut $kind, caller: *const c_void) -> bool {
            let real = of_chunks::$name.sure(caller);
            // SAFETY: the runtime's function of this name has this signature.
            let real: unsafe extern "C" fn(*mut $kind, *mut $kind) -> bool = unsafe { transmute(real) };
            regions::chunk_requested();
            // SAFETY: what the program gave is passed on.
            let has_chunk = unsafe { real(begin, end) };
            // SAFETY: the runtime has written both, if it has given a chunk.
            let steps = if has_chunk { unsafe { (*end).abs_diff(*begin).max(1) } } else { 0 };
            regions::chunk_given(steps);
            has_chunk
        }
        )*
    };
}

chunks! {
    GOMP_loop_static_next, static_next(c_long);
    GOMP_loop_dynamic_next, dynamic_next(c_long);
    GOMP_loop_guided_next, guided_next(c_long);
    GOMP_loop_runtime_next, runtime_next(c_long);
    GOMP_loop_nonmonotonic_dynamic_next, nonmonotonic_dynamic_next(c_long);
    GOMP_loop_nonmonotonic_guided_next, nonmonotonic_guided_next(c_long);
    GOMP_loop_nonmonotonic_runtime_next, nonmonotonic_runtime_next(c_long);
    GOMP_loop_maybe_nonmonotonic_runtime_next, maybe_nonmonotonic_runtime_next(c_long);
    GOMP_loop_ull_static_next, ull_static_next(c_ulonglong);
    GOMP_loop_ull_dynamic_next, ull_dynamic_next(c_ulonglong);
    GOMP_loop_ull_guided_next, ull_guided_next(c_ulonglong);
    GOMP_loop_ull_runtime_next, ull_runtime_next(c_ulonglong);
    GOMP_loop_ull_nonmonotonic_dynamic_next, ull_nonmonotonic_dynamic_next(c_ulonglong);
    GOMP_loop_ull_nonmonotonic_guided_next, ull_nonmonotonic_guided_next(c_ulonglong);
    GOMP_loop_ull_nonmonotonic_runtime_next, ull_nonmonotonic_runtime_next(c_ulonglong);
    GOMP_loop_ull_maybe_nonmonotonic_runtime_next, ull_maybe_nonmonotonic_runtime_next(c_ulonglong);
}

/// Functions of libgomp around a critical section, or with a wait for the team, and the hooks
/// before and after each call.
macro_rules! sections {
    ($($name:ident, $inner:ident ($($parameter:ident: $kind:ty)?), $caller:ident, $before:path, $after:path;)*) => {
        reals!(of_sections: $($name)*);

        $(
        with_caller! {
            /// Replaces libgomp's function.
            ///
            /// # Safety
            /// As for libgomp's function: compilers emit the call.
            $name, $caller, $inner
        }

        unsafe extern "C" fn $inner($($parameter: $kind,)? caller: *const c_void) {
            let real = of_sections::$name.sure(caller);
            // SAFETY: the runtime's function of this name has this signature.
            let real: unsafe extern "C" fn($($kind)?) = unsafe { transmute(real) };
            $before();
            // SAFETY: what the program gave is passed on.
            unsafe { real($($parameter)?) };
            $after();
        }
        )*
    };
}

fn nothing() {}

/// Hook before an ordered section. A held thread would block all later iterations, so its loop ends
/// here.
fn ordered() {
    team::loop_ends(RegionProgress::LoopEnded);
}

/// Hook before a barrier. A held thread would block the barrier, so its loop ends here.
fn barrier() {
    team::loop_ends(RegionProgress::Barrier);
}

sections! {
    GOMP_critical_start, critical_start(), first, regions::mutex_acquire, team::mutex_acquired;
    GOMP_critical_end, critical_end(), first, nothing, team::mutex_released;
    GOMP_critical_name_start, critical_name_start(lock: *mut *mut c_void), second, regions::mutex_acquire, team::mutex_acquired;
    GOMP_critical_name_end, critical_name_end(lock: *mut *mut c_void), second, nothing, team::mutex_released;
    GOMP_atomic_start, atomic_start(), first, regions::mutex_acquire, team::mutex_acquired;
    GOMP_atomic_end, atomic_end(), first, nothing, team::mutex_released;
    GOMP_ordered_start, gomp_ordered_start(), first, ordered, nothing;
    GOMP_barrier, gomp_barrier(), first, barrier, nothing;
    GOMP_loop_end, gomp_loop_end(), first, barrier, nothing;
    GOMP_sections_end, gomp_sections_end(), first, barrier, nothing;
}

/// Functions of OpenMP about numbers of threads, for C and Fortran: the hook of each call, and the
/// result without a runtime.
macro_rules! numbers {
    ($($name:ident, $inner:ident ($($parameter:ident: $kind:ty)?) $(-> $result:ty)?, $caller:ident, $note:path,
        $otherwise:expr;)*) => {
        reals!(of_numbers: $($name)*);

        $(
        with_caller! {
            /// Replaces the runtime's function, of the OpenMP standard.
            ///
            /// # Safety
            /// As for the runtime's function.
            $name, $caller, $inner
        }

        unsafe extern "C" fn $inner($($parameter: $kind,)? caller: *const c_void) $(-> $result)? {
            match of_numbers::$name.get(caller) {
                // A program without OpenMP may test for this symbol, finds ours and calls it.
                None => $otherwise,
                Some(real) => {
                    // SAFETY: the runtime's function of this name has this signature.
                    let real: unsafe extern "C" fn($($kind)?) $(-> $result)? = unsafe { transmute(real) };
                    $note();
                    // SAFETY: what the program gave is passed on.
                    unsafe { real($($parameter)?) }
                }
            }
        }
        )*
    };
}

numbers! {
    omp_set_num_threads, set_num_threads(threads: i32), second, regions::threads_set, {};
    omp_set_num_threads_, set_num_threads_at(threads: *const i32), second, regions::threads_set, {};
    omp_set_num_threads_8_, set_num_threads_8_at(threads: *const i64), second, regions::threads_set, {};
    omp_get_max_threads, get_max_threads() -> i32, first, regions::threads_read, 1;
    omp_get_max_threads_, get_max_threads_of_fortran() -> i32, first, regions::threads_read, 1;
}
