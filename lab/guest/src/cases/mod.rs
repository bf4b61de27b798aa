//! The cases, by name.

mod counters;
mod topo;

use crate::Case;

/// Every case there is. Which boot runs which is said by the lab's `suite.rs`.
pub const ALL: &[(&str, Case)] = &[
    ("counters-are-exact", counters::are_exact),
    ("topo-is-described", topo::is_described),
    ("topo-is-the-kernels", topo::is_the_kernels),
];
