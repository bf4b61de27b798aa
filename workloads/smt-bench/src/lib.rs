//! Small loops that each saturate one execution unit, after SMT-Bench of Serpa et al., and a timer
//! for two of them in parallel; tunable memory [`traffic`], after Feliu et al.; and [`speed`], the
//! speed of a PU for a fixed piece of work. `colocate calibrate` also measures [`pair`], [`chase`],
//! [`operations`] and [`gaps`].
//!
//! Every loop is one block of assembly, so the compiler can neither remove nor merge an operation,
//! and the instructions of an iteration are known: see [`by_construction`]. The crate draws no
//! conclusions; `colocate-study bench smt` does.
//!
//! ```
//! use smt_bench::{Architecture, Kernel, by_construction, run_iterations};
//! let counts = by_construction(Kernel::FpAdd, Architecture::HERE);
//! let [_, float, _, load, _] = counts.of;
//! assert_eq!((float, load), (32, 1), "32 additions, and the loop's read of its stop flag");
//! let begin = std::time::Instant::now();
//! assert_eq!(run_iterations(Kernel::FpAdd, 1_000), 1_000);
//! let additions_per_s = 1_000.0 * f64::from(float) / begin.elapsed().as_secs_f64();
//! assert!(additions_per_s > 0.0);
//! ```

// The kernels are assembly, and pinning a thread and reading its clock are system calls.
#![allow(unsafe_code)]

#[macro_use]
mod repeat;

pub mod chase;
pub mod clock;
mod control;
pub mod gaps;
mod kernel;
mod list;
mod loops;
pub mod measure;
mod mix;
pub mod operations;
pub mod overlap;
pub mod pair;
mod runner;
pub mod speed;
pub mod thread;
pub mod traffic;

pub use control::Control;
pub use kernel::{Kernel, KernelSpec, ListSize};
pub use mix::{Architecture, LoopCounts, by_construction};
pub use runner::{Runner, run_iterations};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("smt-bench has loops for x86-64 and aarch64 only");
