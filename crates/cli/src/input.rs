//! Files that are read: which ones, and how large they may be.
//!
//! A file that the user names may be a pipe, as a shell's `<(command)`; a FIFO or a device is refused before it is opened.

use colocate_files::{Accept, FileError, MaxSize};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A plan. Chosen: 256 bytes for each of 65,536 threads.
pub const PLAN: MaxSize = MaxSize::mib(16);
/// What a comparison has measured. Chosen: 100 bytes for each of 100 jobs in some 6,000 runs.
pub const STATE: MaxSize = MaxSize::mib(64);
/// A report of `colocate run`. Chosen: 4 KiB for each of 65,536 threads.
pub const REPORT: MaxSize = MaxSize::mib(256);
/// Figures of a simulated scenario. Chosen: a KiB for each of 65,536 runs.
pub const FIGURES: MaxSize = MaxSize::mib(64);
/// Pieces of a study. Chosen: a KiB for each of 65,536 pieces.
pub const PIECES: MaxSize = MaxSize::mib(64);

/// The text in a file that the user names.
pub fn text(path: &Path, limit: MaxSize) -> Result<String, FileError> {
    colocate_files::read_text(path, Accept::FileOrPipe, limit)
}

/// The same where the error stands behind the path: it says only why.
pub fn text_or_reason(path: &Path, limit: MaxSize) -> anyhow::Result<String> {
    text(path, limit).map_err(|why| anyhow::Error::msg(why.reason()))
}

/// The time, in seconds since 1970.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The limit of a format that says it in bytes.
pub const fn limit(bytes: usize) -> MaxSize {
    MaxSize::bytes(bytes as u64)
}
