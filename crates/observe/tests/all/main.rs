//! Observing real programs, files and tools. One binary: to link many takes longer than to run them.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod assembly;
mod hostile_code;
mod lifecycle;
mod mca;
mod sampler;
mod smt_oracle;
mod spins;
mod stepped;

use colocate_linux::Tid;
use colocate_observe::perf::{Attr, PerfEvent};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by tests that map rings, whose memory is limited for each user, or measure shares of CPU time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the kernel counts the records that found no room in a ring (Linux 6.0).
fn counts_losses() -> bool {
    PerfEvent::open(&Attr::task_events(1).counting_lost(), Tid(0), None).is_ok()
}
