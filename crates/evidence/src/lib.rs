//! Evidence: what can be known of tasks, from which sources, and what each source reports.
//!
//! A host is asked for [`Source`]s and answers each with a [`Grant`]. Tasks are named by job and order of creation ([`TaskId`]), as a
//! plan is often made before a task exists. Values in, values out: nothing here watches anything.

mod ids;
mod pages;
mod sharing;
mod source;
mod wake_ups;

pub use ids::{JobIdx, TaskId, TaskSpan};
pub use pages::{AddressRange, PageGroup, PageUse, PagesMoved};
pub use sharing::Sharing;
pub use source::{Backend, Grant, Refusal, Source, SourceSet};
pub use wake_ups::WakeUps;
