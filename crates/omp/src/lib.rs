//! Loaded into OpenMP programs (`LD_PRELOAD`): watches their parallel regions, and learns how many threads each should have.
//!
//! It runs in programs of others, so it is small and careful: it does nothing unless [`env::REPORT`] is set, one region
//! at a time is observed, others pass untouched, and on any failure the region runs as without it.
//!
//! - GNU OpenMP (`gnu`): regions and critical sections are functions of the runtime. Ours precede them, record
//!   what there is to record, and call them. The number of threads is an argument of theirs, 0 if the program
//!   says none.
//! - LLVM OpenMP (`llvm`, `tool`): times come from its tools interface (OMPT). A tool may not call the runtime from a callback, and
//!   is called for a region when its number is nearly settled; so the number is set before `__kmpc_fork_call`, by the call that
//!   compilers make for a `num_threads` clause.
//!
//! A team's size is settled when its region begins. To run fewer of its threads within one execution, the others are held where they
//! request a chunk of a loop or enter a critical section (`gate`), which changes no result.
//!
//! A program that says itself how many threads it wants, by a clause or `omp_set_num_threads`, gets these. One that
//! asks how many it gets (`omp_get_max_threads`) gets as many as it was answered.

pub mod env;
pub mod learn;
pub mod report;

mod clock;
mod gate;
mod gnu;
mod llvm;
mod real;
mod region;
mod regions;
mod start;
mod team;
#[cfg(test)]
mod testing;
mod tool;
