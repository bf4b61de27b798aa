//! Memory accesses and synchronisation of a program's threads: recorded under QEMU by `tracer`,
//! read by the simulator.
//!
//! # Problem
//! Sharing of data between threads shows only in their accesses, some hundred million a second. A
//! program is to be recorded once and replayed on many machines under many mappings.
//! # Approach
//! Each thread appends blocks of its own to one common file ([`form`]). A reader reads the headers
//! of all blocks once, and then each thread at its own pace, a block at a time ([`TraceFile`]).
//! [`Check`] tests the consistency of a trace.
//! # Limits
//! The order of threads at a lock is not recorded where no thread had to wait: synchronisation is
//! seen at the system calls futex, clone and exit. One process only; virtual addresses.
//! # Example
//! ```
//! use colocate_trace::TraceFile;
//! use colocate_trace::form::{Access, RecordBlock, Records, TraceRecord, header};
//!
//! let read = Access { address: 0x1000, size_log2: 3, writes: false, instructions: 12 };
//! let mut block = RecordBlock::new(0);
//! block.push_access(read);
//! let bytes = [header().as_slice(), block.take().as_ref()].concat();
//!
//! let mut trace = TraceFile::of(std::io::Cursor::new(bytes))?;
//! let mut records = Vec::new();
//! assert!(trace.read(0, 0, &mut records)?, "thread 0 has a first block");
//! assert_eq!(Records::of(&records).collect::<Vec<_>>(), [Ok(TraceRecord::Access(read))]);
//! assert!(!trace.read(0, 1, &mut records)?, "and no second block");
//! # Ok::<(), colocate_trace::ReadError>(())
//! ```

mod check;
pub mod drmemtrace;
mod file;
pub mod form;

pub use check::{Check, Flaw, ThreadSummary};
pub use file::{ReadError, TraceFile};
