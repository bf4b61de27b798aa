//! QEMU TCG plugin that counts instructions by class and thread.
//!
//! # Problem
//! Exact counts of branch, float, int, load and store instructions per thread of an unmodified
//! program, at little more than the cost of emulating it.
//!
//! # Approach
//! QEMU translates a program block by block; a block runs from its first instruction to its last.
//! When a block is translated, its instructions are decoded once and summed up into a *tally*.
//! Blocks with equal tallies share one 64-bit counter, and the only thing added to the translated
//! code is one addition to that counter, which every thread has of its own. When a thread ends,
//! its counters are multiplied with their tallies. A few thousand tallies describe the largest
//! programs, so the counters of a thread fit into 64 KiB, however much code a JIT compiler makes;
//! should they not suffice, a block adds to one counter for each class that it has.
//!
//! # What is not one block, one count
//! - A repeated string instruction is one instruction, but QEMU enters it anew after every 65,536
//!   repetitions. Blocks that begin with one look at the resume flag to tell.
//! - A fault in the middle of a block leaves the block counted whole. The number of signal handlers
//!   that returned is reported, so that a reader knows whether this can have happened.
//! - An instruction that QEMU lacks raises SIGILL. Those beyond AVX2 are reported if they ran.
//!
//! # Manners
//! The plugin lives inside another program's process. It writes to one file, which it opens when the
//! process has ended, so that no descriptor of the program is ever taken; it never touches standard
//! output or error; on any trouble it stays silent and the file stays empty.
//!
//! # Arguments
//! `out=HEX`: the folder for the files, its path's bytes in hexadecimal. `name=HEX`: the name that
//! the first thread gets, as the kernel would have given it. `stretch=N`: takes stretches of `N`
//! instructions, see `stretches`. `branches=`: guesses branches, see `branches`.
//! `trace=HEX`: records accesses to this file, see `traces`.
//!
//! # Locks
//! QEMU's plugin lock comes before `STATE`'s: fork takes both, in this order. So no function of
//! QEMU that takes its lock is called while `STATE` is held.
#![allow(unsafe_code)] // a plugin is called by C and calls C

mod accesses;
mod api;
mod branches;
mod counting;
mod distances;
mod life;
mod lock;
mod per_cpu;
mod predictor;
mod recency;
mod slots;
mod snapshot;
mod stretches;
mod sys;
mod traces;

use lock::Lock;

/// The plugin's state; `None` until it is installed.
static STATE: Lock<Option<life::State>> = Lock::new(None);
