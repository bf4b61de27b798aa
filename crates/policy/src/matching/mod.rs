//! Which tasks should be together: minimum-weight perfect matching, exact and near-exact.

pub mod exchange;
