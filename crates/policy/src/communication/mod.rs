//! Which tasks communicate, and which of them should be together.

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

/// What is known of tasks, to look it up: its order says nothing.
pub(crate) type ByTask<V> = HashMap<TaskId, V, FixedState>;
/// Tasks, to look one up.
pub(crate) type TaskSet = HashSet<TaskId, FixedState>;
