//! Which tasks should be together: minimum-weight perfect matching, exact and near-exact.

pub mod blossom;
mod costs;
pub mod exchange;
#[cfg(test)]
mod oracle;

pub use costs::{Costs, MAX_COST};
