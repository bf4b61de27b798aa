//! Hardware counters: what each thread does, counted by the processor itself.
//!
//! [`available`] says what can be counted here, or why nothing can; [`Watch`] opens those
//! counters on every thread as it is created and reads them when it ends. Which event counts which
//! class is data ([`table`]); a class that a processor cannot count is unknown, never 0, and a
//! processor that the table does not know still gets instructions, cycles and branches.
//!
//! What this costs: one descriptor for each event and thread, and the first 40–50 µs of a thread's
//! life, which pass before its counters are open. A thread that lives for less is reported with
//! unknown figures.

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
pub use watch::{Counted, Watch};

use std::path::Path;

/// What this machine's counters can count.
///
/// Needs no privilege up to `kernel.perf_event_paranoid` 2; takes some microseconds, and up to
/// 20 ms for each group of events whose counters another program holds.
///
/// # Errors
/// [`PmuError`] if not even instructions can be counted.
pub fn available() -> Result<Counters, PmuError> {
    Counters::find(Path::new("/proc"), Path::new("/sys"), CounterSet::Mix)
}

/// What shows where threads' cycles go here: the table's name and its parts, in a line.
///
/// Takes some tens of milliseconds, as what does not count is waited for.
///
/// # Errors
/// Why nothing does, in a line.
pub fn stacks() -> Result<String, String> {
    let found = Counters::find(Path::new("/proc"), Path::new("/sys"), CounterSet::Stacks);
    let found = found.map_err(|_| "pmu counts nothing here".to_owned())?;
    let parts = found.stack_parts().ok_or_else(|| found.no_stacks.clone().unwrap_or_default())?;
    let mut names: Vec<&str> =
        found.pmus.iter().filter_map(|pmu| Some(&pmu.stack?.table.name[..])).collect();
    names.dedup();
    Ok(format!("{}: {}", names.join(" and "), parts.join(", ")))
}
