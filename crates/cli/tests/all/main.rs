//! What the programs `colocate` and `colocated` do, whole, and what holds for the sources. One binary: to link many takes
//! longer than to run them.
//!
//! Tests run side by side, so each has folders and programs of its own, and nothing of this process is changed: signals,
//! limits, masks, variables and the current folder are set by programs that are started.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)] // a failed test stops; a skipped one prints why

mod architecture;
mod attach;
mod auto;
mod book;
mod bounded_cost;
mod calibrate;
mod compare;
mod compile;
mod counted;
mod demand;
mod doctor;
mod emulate;
mod exec_by_thread;
mod few_files;
mod files;
mod generate;
mod guarded;
mod hangup;
mod help;
mod hostile_names;
mod imports;
mod kernels_scheduler;
mod masks;
mod misses;
mod nothing_stays;
mod output;
mod pages;
mod plan;
mod plan_demand;
mod privilege;
mod profile;
mod restore;
mod run;
mod run_support;
mod schedule;
mod schedule_ends;
mod schedule_fill;
mod schedule_host;
mod schedule_phases;
mod schedule_runs;
mod schedule_spins;
mod schedule_support;
mod schedule_terminal;
mod scripts;
mod security;
mod sharing;
mod terminal_support;
mod threads;
mod top;
mod top_terminal;
mod topo;
mod unanswered;
mod wake_ups;
