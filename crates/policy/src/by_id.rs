//! Maps and sets for what is known of jobs, tasks and caches: each is looked up at every decision.
//! Hashes are the same in every run. The order of entries means nothing, so no decision may depend
//! on it.

use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};

/// Values by job, task or cache.
pub(crate) type ById<K, V> = HashMap<K, V, FixedState>;
/// A set of jobs or tasks.
pub(crate) type IdSet<K> = HashSet<K, FixedState>;
