//! Loaded into OpenMP programs (`LD_PRELOAD`): watches their parallel regions, and learns how many threads each should have.
//!
//! It runs in other people's processes, so it is small and timid: it does nothing unless [`env::REPORT`] is set, one region
//! at a time is looked at, others pass untouched, and whatever goes wrong the region runs as if we were not there.
//!
//! - GNU OpenMP (`gnu`): regions and critical sections are functions of the runtime, which stand before ours in no way that
//!   matters: ours do what there is to note and call theirs. The number of threads is an argument of theirs, 0 if the program
//!   says none.
//! - LLVM OpenMP (`llvm`, `tool`): times come from its tools interface (OMPT). A tool may not call the runtime from a callback, and
//!   hears of a region when its number is nearly settled; so the number is set before `__kmpc_fork_call`, by the call that
//!   compilers make for a `num_threads` clause.
//!
//! A program that says itself how many threads it wants, by a clause or `omp_set_num_threads`, gets these. One that
//! asks how many it gets (`omp_get_max_threads`) gets as many as it was told.

pub mod env;
pub mod learn;
pub mod report;

mod clock;
mod gnu;
mod llvm;
mod real;
mod region;
mod regions;
mod start;
mod tool;
