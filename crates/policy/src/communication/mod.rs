//! Which tasks communicate, and which of them should be together.

pub mod filter;
pub mod groups;
pub mod mapping;
pub mod matrix;
pub mod pipeline;
pub mod seen;
pub mod teams;
pub mod traffic;
