//! Hardware counters: what each thread does, counted by the processor itself.

pub mod cpu;
pub mod pfm;
pub mod plan;
pub mod scale;
pub mod sysfs;
pub mod table;
