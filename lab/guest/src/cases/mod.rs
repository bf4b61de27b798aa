//! The cases, by name.

mod counters;
mod topo;

use crate::Case;

/// Every case there is. Which boot runs which is said by the lab's `suite.rs`.
pub const ALL: &[(&str, Case)] = &[
    ("counters-are-exact", counters::are_exact),
    ("counters-from-exec", counters::from_exec),
    ("counters-take-turns", counters::take_turns),
    ("counters-are-all-taken", counters::are_all_taken),
    ("counters-are-taken-midway", counters::are_taken_midway),
    ("counters-are-forbidden-midway", counters::are_forbidden_midway),
    ("counters-of-newborns", counters::of_newborns),
    ("counters-cannot-be-unbound", counters::cannot_be_unbound),
    ("counters-outlive-their-pu", counters::outlive_their_pu),
    ("topo-is-described", topo::is_described),
    ("topo-is-the-kernels", topo::is_the_kernels),
];
