//! Communication between tasks, and placement of communicating tasks near each other.

pub mod filter;
pub mod groups;
pub mod mapping;
pub mod matched;
pub mod matrix;
pub mod pipeline;
pub mod seen;
pub mod teams;
pub mod traffic;

use crate::by_id::{ById, IdSet};
use colocate_evidence::TaskId;

/// Values by task.
pub(crate) type ByTask<V> = ById<TaskId, V>;
/// Set of tasks.
pub(crate) type TaskSet = IdSet<TaskId>;
