//! `event`: keeps a perf event open for its whole life.
//!
//! The kernel patches the scheduler's code when the first event is opened and when the last is
//! closed. QEMU's emulation gets this wrong about once in some hundred times (seen with 10.0.2: a
//! removed int3 is executed, and the guest's kernel panics). An open event avoids patches.

#![allow(unsafe_code)] // perf_event_open(2), which the standard library does not have

use super::lives;
use anyhow::ensure;

/// `PERF_TYPE_SOFTWARE`, and in the upper half the size of `perf_event_attr`'s first version, 64.
const SOFTWARE: u64 = 1 | 64 << 32;
/// `PERF_COUNT_SW_DUMMY`, an event without counts.
const DUMMY: u64 = 9;

/// Opens the event, prints `ready`, and sleeps for ever.
///
/// # Errors
/// If the kernel refuses the event.
pub fn main(_: &[String]) -> anyhow::Result<()> {
    let attributes: [u64; 8] = [SOFTWARE, DUMMY, 0, 0, 0, 0, 0, 0];
    // SAFETY: the kernel reads 64 bytes, the size stated in the attributes.
    let event =
        unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0) };
    ensure!(event >= 0, "perf_event_open: {}", std::io::Error::last_os_error());
    println!("ready");
    lives()
}
