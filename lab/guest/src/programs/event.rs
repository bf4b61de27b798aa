//! `event`: has a perf event open for as long as it lives.
//!
//! The kernel rewrites its scheduler's code whenever the first event is opened or the last one closed.
//! QEMU's emulation gets that wrong once in some hundred times (seen with 10.0.2: an int3 that is not
//! there any more is executed, and the guest's kernel dies). With an event that stays, nothing is
//! rewritten.

#![allow(unsafe_code)] // perf_event_open(2), which the standard library does not have

use super::lives;
use anyhow::ensure;

/// `PERF_TYPE_SOFTWARE`, with the size of the attributes' first version above it.
const SOFTWARE: u64 = 1 | 64 << 32;
/// `PERF_COUNT_SW_DUMMY`: counts nothing.
const DUMMY: u64 = 9;

/// Opens it, says `ready`, and lives on.
///
/// # Errors
/// If the kernel refuses.
pub fn main(_: &[String]) -> anyhow::Result<()> {
    let attributes: [u64; 8] = [SOFTWARE, DUMMY, 0, 0, 0, 0, 0, 0];
    // SAFETY: the kernel reads the 64 bytes that the attributes say that they have.
    let event =
        unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0) };
    ensure!(event >= 0, "perf_event_open: {}", std::io::Error::last_os_error());
    println!("ready");
    lives()
}
