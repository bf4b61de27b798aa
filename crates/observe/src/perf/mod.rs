//! A thin layer over `perf_event_open(2)`: events, their ring buffers, the records in them.

pub mod event;
pub mod record;
pub mod ring;
pub mod rings;

pub use event::{Attr, Event};
pub use record::{Mapping, Record, Stamp, parse, split};
pub use ring::Ring;
pub use rings::Rings;
