//! Hardware counters: what each thread does, counted by the processor itself.
//!
//! [`Counters::find`] says what can be counted here, or why nothing can; [`Watch`] opens those
//! counters on every thread as it is born and reads them when it ends. Which event counts which
//! class is data ([`table`]); a class that a processor cannot count is unknown, never 0, and a
//! processor that the table does not know still gets instructions, cycles and branches.
//!
//! What this costs: one descriptor for each event and thread, and the first 40–50 µs of a thread's
//! life, which pass before its counters are open. A thread that lives for less is reported with
//! unknown figures.

mod affinity;
pub mod counters;
pub mod cpu;
pub mod open;
pub mod pfm;
pub mod plan;
pub mod scale;
pub mod sysfs;
pub mod table;
pub mod watch;

pub use counters::{Counters, PmuError};
pub use open::Start;
pub use watch::{Counted, Watch};
