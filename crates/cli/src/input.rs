//! Input files and their largest sizes.
//!
//! A file given by the user may be a pipe, such as a shell's `<(command)`; a FIFO or a device is
//! refused before it is opened.

use colocate_files::{Accept, FileError, MaxSize};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Largest plan. Chosen: 256 bytes for each of 65,536 threads.
pub const PLAN: MaxSize = MaxSize::mib(16);
/// Largest state of a comparison. Chosen: 100 bytes for each of 100 jobs in some 6,000 runs.
pub const STATE: MaxSize = MaxSize::mib(64);
/// Largest report of `colocate run`. Chosen: 4 KiB for each of 65,536 threads.
pub const REPORT: MaxSize = MaxSize::mib(256);
/// Largest figures of a simulated scenario. Chosen: a KiB for each of 65,536 runs.
pub const FIGURES: MaxSize = MaxSize::mib(64);
/// Largest list of a study's pieces. Chosen: a KiB for each of 65,536 pieces.
pub const PIECES: MaxSize = MaxSize::mib(64);

/// Text of a file given by the user.
pub fn text(path: &Path, limit: MaxSize) -> Result<String, FileError> {
    colocate_files::read_text(path, Accept::FileOrPipe, limit)
}

/// As [`text`], with errors to be shown after the path.
pub fn text_or_reason(path: &Path, limit: MaxSize) -> anyhow::Result<String> {
    text(path, limit).map_err(|why| anyhow::Error::msg(why.reason()))
}

/// Present time, in seconds since 1970.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Size limit from a number of bytes.
pub const fn limit(bytes: usize) -> MaxSize {
    MaxSize::bytes(bytes as u64)
}
