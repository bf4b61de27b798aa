//! Loaded into OpenMP programs (`LD_PRELOAD`): watches parallel regions, and learns the best number
//! of threads of each.
//!
//! The code runs inside other programs, so it is small and careful. It does nothing unless
//! [`env::REPORT`] is set. One region at a time is observed, all others pass untouched. On any
//! failure the region runs as without the library.
//!
//! - GNU OpenMP (`gnu`): regions and critical sections are functions of the runtime. Ours are found
//!   first, record the call and pass it on. The number of threads is an argument, 0 if the program
//!   does not set it.
//! - LLVM OpenMP (`llvm`, `tool`): times come from its tools interface (OMPT). A tool may not call
//!   the runtime from a callback, and its region callback comes when the number of threads is
//!   nearly settled. So the number is set before `__kmpc_fork_call`, by the function that compilers
//!   call for a `num_threads` clause.
//!
//! A team's size is settled when its region begins. To run fewer threads within an execution, the
//! remaining threads are held where they request a chunk of a loop or enter a critical section
//! (`gate`), which changes no result.
//!
//! A program that sets its number of threads, by a clause or `omp_set_num_threads`, keeps the
//! number. A program that reads the number (`omp_get_max_threads`) gets as many threads as it has
//! read.

pub mod env;
pub mod learn;
pub mod report;

mod clock;
mod gate;
mod gnu;
mod interval;
mod llvm;
mod real;
mod region;
mod regions;
mod start;
mod team;
#[cfg(test)]
mod testing;
mod tool;
