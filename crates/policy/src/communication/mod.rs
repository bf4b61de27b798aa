//! Communication between tasks, and placement of communicating tasks near each other.

pub mod filter;
pub mod groups;
pub mod mapping;
pub mod matrix;
pub mod pipeline;
pub mod seen;
pub mod teams;
pub mod traffic;

use colocate_evidence::TaskId;
use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};

/// Values by task. The iteration order is arbitrary.
pub(crate) type ByTask<V> = HashMap<TaskId, V, FixedState>;
/// Set of tasks. The iteration order is arbitrary.
pub(crate) type TaskSet = HashSet<TaskId, FixedState>;
