//! Evidence: what can be known of tasks, from which sources, and what each source reports.
//!
//! A host is asked for [`Source`]s and answers each with a [`Grant`]. Tasks are named by job and order of creation ([`TaskId`]), as a
//! plan is often made before a task exists. Values in, values out: nothing here watches anything.
//!
//! ```
//! use colocate_evidence::{Grant, JobIdx, Refusal, SeenTask, Source, TaskId};
//! use colocate_machine::Nanos;
//! let refusal = Refusal { why: "this kernel has no perf".into(), remedy: "use another kernel" };
//! let grant = Grant { source: Source::Counters, answer: Err(refusal) };
//! assert!(grant.lines()[0].contains("because this kernel has no perf"));
//! // Counts that are not reported are unknown, not 0.
//! let id = TaskId { job: JobIdx(0), order: 1 };
//! let mut task = SeenTask::new(id, "make/cc1".into(), Nanos::ZERO);
//! assert_eq!((id.to_string().as_str(), task.ipc()), ("0.1", None));
//! (task.instructions, task.cycles) = (Some(3_000), Some(2_000));
//! assert_eq!(task.ipc(), Some(1.5));
//! ```

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
pub use observation::{JobEnd, Observation, PlacementStatus, QuantumEnd, SeenTask, TaskCounts};
pub use pages::{AddressRange, PageGroup, PageUse, PagesMoved};
pub use place::Place;
pub use sharing::Sharing;
pub use source::{Grant, Provider, Refusal, SharedPu, Source, SourceReports, SourceSet};
pub use wake_ups::{Turns, WakeUps};
