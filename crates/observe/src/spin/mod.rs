//! Threads that only wait for others in a loop.

pub mod loops;
