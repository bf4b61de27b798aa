//! Evidence: what can be known of tasks, from which sources, and what each source reports.
//!
//! A host is asked for [`Source`]s and answers each with a [`Grant`]. Tasks are named by job and order of creation ([`TaskId`]), as a
//! plan is often made before a task exists. Values in, values out: nothing here watches anything.

mod exemption;
mod ids;
mod observation;
mod pages;
mod place;
mod sharing;
mod source;
mod wake_ups;

pub use exemption::Exemption;
pub use ids::{JobIdx, TaskId, TaskSpan};
pub use observation::{Counts, JobEnd, Observation, PlacementStatus, QuantumEnd, SeenTask};
pub use pages::{AddressRange, PageGroup, PageUse, PagesMoved};
pub use place::Place;
pub use sharing::Sharing;
pub use source::{Grant, Provider, Refusal, Reports, Source, SourceSet};
pub use wake_ups::WakeUps;
