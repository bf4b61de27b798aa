//! A thin layer over `perf_event_open(2)`: events, ring buffers and records.

mod event;
mod record;
pub(crate) mod ring;
mod rings;
mod tracepoint;

pub use event::{Attr, PerfEvent};
pub use record::{
    Accessed, ExecutableMapping, PerfRecord, SampleId, accessed, caller, general_registers, parse,
    split,
};
pub(crate) use ring::Ring;
pub(crate) use rings::{EVERY, Rings};
pub(crate) use tracepoint::{Tracepoint, TracepointError, TracepointRecord};
