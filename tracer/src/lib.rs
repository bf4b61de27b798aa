//! QEMU TCG plugin that counts instructions by class and thread.
//!
//! # Problem
//! Exact counts of branch, float, int, load and store instructions per thread of an unmodified
//! program, at little more than the cost of emulating it.
//!
//! # Approach
//! QEMU translates a program block by block; a block runs from its first instruction to its last.
//! When a block is translated, its instructions are decoded once and summed up into a *tally*.
//! Blocks with equal tallies share a 64-bit counter per thread. The translated code has a single
//! addition more, to this counter. When a thread ends, its counters are multiplied with their
//! tallies. A few thousand tallies describe the largest programs, so the counters of a thread fit
//! into 64 KiB, even for JIT compilers. If all counters are in use, a further block adds to one
//! counter per class.
//!
//! # Exceptions to one count per block
//! - A repeated string instruction is one instruction, but QEMU enters it again after every 65,536
//!   repetitions. A block that begins with such an instruction checks the resume flag.
//! - A block with a fault in the middle is counted whole. The number of returned signal handlers is
//!   reported, which shows whether this can have happened.
//! - An instruction that QEMU lacks raises SIGILL. Executed instructions beyond AVX2 are reported.
//!
//! # Constraints
//! The plugin lives inside another program's process. It writes to one file, opened at the end of the
//! process, so it never occupies a descriptor of the program. It never uses standard output or
//! error. After any failure it stays silent and the file stays empty.
//!
//! # Arguments
//! - `out=HEX`: folder for the files, the path's bytes in hexadecimal
//! - `name=HEX`: name of the main thread, as the kernel would have set it
//! - `stretch=N`: records stretches of `N` instructions, see `stretches`
//! - `misses=`: counts distances between accesses, see `distances`
//! - `branches=`: predicts branches, see `branches`
//! - `trace=HEX`: records accesses to this file, see `traces`
//!
//! # Locks
//! QEMU's plugin lock comes before `STATE`'s: fork takes both, in this order. So while `STATE` is
//! held, no function of QEMU that takes the plugin lock is called.
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
static STATE: Lock<Option<life::ProcessState>> = Lock::new(None);
