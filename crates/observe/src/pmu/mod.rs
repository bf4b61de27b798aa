//! Hardware counters of threads.
//!
//! [`available`] gives the countable events of this machine, or the reason why there are none.
//! [`ProcessCounters`] opens the counters on every thread at its creation and reads them at its
//! exit. The event of each class is data ([`table`]). A class that a processor cannot count is
//! unknown, never 0; a processor outside the table still gets instructions, cycles and branches.
//!
//! Cost: one descriptor for each event and thread. Counters are open only 40–50 µs after a thread's
//! creation. A thread that lives for less has unknown figures.

mod counters;
pub mod cpu;
mod events;
pub mod extras;
mod meter;
pub(crate) mod open;
pub(crate) mod pfm;
mod plan;
mod scale;
pub(crate) mod specs;
pub mod stack;
pub(crate) mod sysfs;
mod table;
mod trial;
mod watch;

pub use counters::{CounterSet, Counters, PmuError};
pub use events::{Extra, Role};
pub use meter::{Meter, Metered};
pub use open::Start;
pub use watch::{CountedThreads, ProcessCounters};

use std::path::Path;

/// Countable events of this machine.
///
/// Needs no privilege up to `kernel.perf_event_paranoid` 2; takes some microseconds, and up to
/// 20 ms for each group of events whose counters another program holds.
///
/// # Errors
/// [`PmuError`] if not even instructions can be counted.
pub fn available() -> Result<Counters, PmuError> {
    Counters::find(Path::new("/proc"), Path::new("/sys"), CounterSet::Mix)
}

/// CPI stacks of this machine: the table's name and its parts, in a line.
///
/// Takes some tens of milliseconds: an event that does not count is waited for.
///
/// # Errors
/// Reason for the lack of stacks, in a line.
pub fn stacks() -> Result<String, String> {
    let found = Counters::find(Path::new("/proc"), Path::new("/sys"), CounterSet::Stacks);
    let found = found.map_err(|_| "pmu counts nothing here".to_owned())?;
    let parts = found.stack_parts().ok_or_else(|| found.no_stacks.clone().unwrap_or_default())?;
    let mut names: Vec<&str> =
        found.pmus.iter().filter_map(|pmu| Some(&pmu.stack?.table.name[..])).collect();
    names.dedup();
    Ok(format!("{}: {}", names.join(" and "), parts.join(", ")))
}
