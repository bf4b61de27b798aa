//! GNU OpenMP: waits at barriers, for locks and for critical sections, and of its threads between parallel regions.
//!
//! # Problem
//! libgomp's threads wait inside libgomp, most of all between two parallel regions, where nobody calls anything that
//! could be taken.
//!
//! # Approach
//! What a compiler makes of a parallel region is a function and a call of `GOMP_parallel` with it. That function is
//! given another one around it: with it a thread begins to work, and after it, it waits, be it at the end of the
//! region or for the next one. Who called `GOMP_parallel` works again when that returns. Threads that sleep after a
//! while in a loop are seen to sleep by the kernel.
//!
//! # What is odd here
//! Which libgomp was meant depends on who calls (`real`). So each function that is taken is a few instructions that
//! put what it was given and where it returns to where Rust can read it.

use crate::clib;
use crate::real::Real;
use crate::teams::{self, be_unsure, is_unsure, rest};
use crate::thread;
use core::arch::naked_asm;
use core::ffi::c_void;

/// A function with as many arguments as any here has; those that it does not have are never looked at.
type Any = extern "C" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> usize;

/// What is done for a function that was meant.
#[derive(Clone, Copy)]
enum Kind {
    /// Its caller may wait in it.
    Wait,
    /// The same, for a lock that can be tried first.
    Lock,
    /// The same, as Fortran calls it.
    FortranLock,
    /// It has a team do its first argument with its second one.
    Region,
    /// It makes what other threads may do while they wait.
    Tasks,
}

/// A function that is taken.
struct Taken {
    kind: Kind,
    real: Real,
}

/// What a function that is taken was given, as the instructions below put it.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Given {
    registers: [usize; 6],
    back: usize,
    stack: [usize; 6],
}

#[cfg(target_arch = "aarch64")]
#[repr(C)]
struct Given {
    frame: usize,
    back: usize,
    registers: [usize; 8],
    stack: [usize; 4],
}

impl Given {
    /// Calls a function with all of it, but for its first two arguments.
    fn pass_with(&self, function: Any, first: usize, second: usize) -> usize {
        #[cfg(target_arch = "x86_64")]
        let ([_, _, c, d, e, f], [g, h, i, j, k, l]) = (self.registers, self.stack);
        #[cfg(target_arch = "aarch64")]
        let ([_, _, c, d, e, f, g, h], [i, j, k, l]) = (self.registers, self.stack);
        function(first, second, c, d, e, f, g, h, i, j, k, l)
    }

    fn pass(&self, function: Any) -> usize {
        self.pass_with(function, self.registers[0], self.registers[1])
    }
}

/// The body of a region, with what it is given.
#[repr(C)]
struct Body {
    function: extern "C" fn(usize),
    data: usize,
}

/// What a thread of a team does in a region.
extern "C" fn work(body: &Body) {
    thread::end();
    (body.function)(body.data);
    rest();
}

/// Does what was meant, and tells what comes of it.
extern "C" fn instead(given: &Given, taken: &Taken) -> usize {
    let Some(meant) = taken.real.meant_at(given.back) else {
        return without(taken);
    };
    // SAFETY: such a function takes numbers and pointers, no more than these, and returns one or nothing. What is
    // beyond those that its caller gave is on the caller's stack, may be read, and is not looked at.
    let meant = unsafe { core::mem::transmute::<*mut c_void, Any>(meant.as_ptr()) };
    match taken.kind {
        _ if !thread::is_wanted() => given.pass(meant),
        Kind::Wait => teams::waiting(|| given.pass(meant)),
        Kind::Lock | Kind::FortranLock if is_unsure() => given.pass(meant),
        Kind::Lock => lock(given, meant, &TEST),
        Kind::FortranLock => lock(given, meant, &FORTRAN_TEST),
        Kind::Tasks => {
            be_unsure();
            given.pass(meant)
        }
        Kind::Region => region(given, meant),
    }
}

/// What is done where nobody has the function. What waits does not: a program without OpenMP that looks whether there
/// is such a function finds ours. But work is never left undone in silence.
#[cold]
fn without(taken: &Taken) -> usize {
    if matches!(taken.kind, Kind::Wait | Kind::Lock | Kind::FortranLock) {
        return 0;
    }
    let line = b"colocate: no OpenMP has the function that the program calls; without --preload it may run\n";
    // SAFETY: as many bytes as are said.
    unsafe { clib::write(clib::STANDARD_ERROR, line.as_ptr().cast(), line.len()) };
    // SAFETY: it takes nothing.
    unsafe { clib::abort() }
}

static TEST: Real = Real::new(c"omp_test_lock");
static FORTRAN_TEST: Real = Real::new(c"omp_test_lock_");

/// Finds what is in sight now.
pub fn prepare() {
    // Whoever has not this one has none of them.
    if TEST.get().is_some() {
        FORTRAN_TEST.get();
        for taken in taken::ALL {
            taken.real.get();
        }
    }
}

/// Tries a lock, and only who finds it taken notes that it waits.
fn lock(given: &Given, meant: Any, test: &Real) -> usize {
    // SAFETY: functions of these names take a pointer to a lock and return whether it was free.
    let test = test.meant_at(given.back).map(|at| unsafe {
        core::mem::transmute::<*mut c_void, extern "C" fn(usize) -> i32>(at.as_ptr())
    });
    match test {
        Some(test) if test(given.registers[0]) != 0 => 0,
        _ => teams::waiting(|| given.pass(meant)),
    }
}

fn region(given: &Given, meant: Any) -> usize {
    // SAFETY: its first argument is the function of a region, which takes a pointer.
    let function =
        unsafe { core::mem::transmute::<usize, extern "C" fn(usize)>(given.registers[0]) };
    let body = Body { function, data: given.registers[1] };
    // Nobody looks at the body after the region has ended, which is before this returns.
    let done = given.pass_with(meant, work as *const () as usize, (&raw const body).addr());
    thread::end();
    done
}

/// A function that is taken, by name.
macro_rules! take {
    ($($kind:ident: $($name:ident)*;)*) => {
        #[allow(non_upper_case_globals)] // named as the functions are
        mod taken {
            use super::{Kind, Real, Taken};

            $($(pub static $name: Taken = Taken {
                kind: Kind::$kind,
                real: Real::new(match core::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => c"",
                }),
            };)*)*

            /// All of them.
            pub static ALL: &[&Taken] = &[$($(&$name),*),*];
        }

        $($(
        /// Taken; see `instead`.
        ///
        /// # Safety
        /// As of libgomp's function of this name.
        #[unsafe(naked)]
        #[cfg_attr(preloaded, unsafe(no_mangle))]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                ".cfi_startproc",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                ".cfi_adjust_cfa_offset 48",
                "mov rdi, rsp",
                "lea rsi, [rip + {taken}]",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call {instead}",
                "add rsp, 56",
                ".cfi_adjust_cfa_offset -56",
                "ret",
                ".cfi_endproc",
                taken = sym taken::$name,
                instead = sym instead,
            );
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, -80]!",
                ".cfi_def_cfa_offset 80",
                ".cfi_offset 29, -80",
                ".cfi_offset 30, -72",
                "stp x0, x1, [sp, 16]",
                "stp x2, x3, [sp, 32]",
                "stp x4, x5, [sp, 48]",
                "stp x6, x7, [sp, 64]",
                "mov x29, sp",
                "mov x0, sp",
                "adrp x1, {taken}",
                "add x1, x1, :lo12:{taken}",
                "bl {instead}",
                "ldp x29, x30, [sp], 80",
                "ret",
                ".cfi_endproc",
                taken = sym taken::$name,
                instead = sym instead,
            );
        }
        )*)*
    };
}

take! {
    Wait:
        GOMP_barrier GOMP_barrier_cancel GOMP_loop_end GOMP_loop_end_cancel GOMP_sections_end
        GOMP_sections_end_cancel GOMP_single_copy_start GOMP_single_copy_end GOMP_critical_start
        GOMP_critical_name_start GOMP_atomic_start GOMP_ordered_start;
    Lock:
        omp_set_lock;
    FortranLock:
        omp_set_lock_;
    Region:
        GOMP_parallel GOMP_parallel_sections GOMP_parallel_loop_static GOMP_parallel_loop_dynamic
        GOMP_parallel_loop_guided GOMP_parallel_loop_runtime GOMP_parallel_loop_nonmonotonic_dynamic
        GOMP_parallel_loop_nonmonotonic_guided GOMP_parallel_loop_nonmonotonic_runtime
        GOMP_parallel_loop_maybe_nonmonotonic_runtime;
    Tasks:
        GOMP_task GOMP_taskloop GOMP_taskloop_ull GOMP_parallel_reductions GOMP_parallel_start
        GOMP_parallel_loop_static_start GOMP_parallel_loop_dynamic_start GOMP_parallel_loop_guided_start
        GOMP_parallel_loop_runtime_start GOMP_parallel_sections_start GOMP_target_ext
        GOMP_target_update_ext GOMP_target_enter_exit_data;
}
