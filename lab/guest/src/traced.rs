//! Recording of the kernel's tracepoints, by tracefs.

use crate::evidence::text;
use anyhow::Context as _;
use std::fs;

const ROOT: &str = "/sys/kernel/tracing";

/// A tracepoint, recorded until this is dropped.
pub struct RecordedTracepoint {
    enable: String,
}

impl RecordedTracepoint {
    /// Records `event`, a folder of tracefs's `events`, e.g. `syscalls/sys_exit_write`.
    ///
    /// # Errors
    /// If the kernel has no such tracepoint.
    pub fn new(event: &str) -> anyhow::Result<Self> {
        fs::write(format!("{ROOT}/trace"), "").context("trace")?;
        let enable = format!("{ROOT}/events/{event}/enable");
        fs::write(&enable, "1").with_context(|| enable.clone())?;
        Ok(Self { enable })
    }

    /// Recorded events, one per line: the task's name and number, the PU, the time, the event.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn text(&self) -> anyhow::Result<String> {
        text(format!("{ROOT}/trace"))
    }
}

impl Drop for RecordedTracepoint {
    fn drop(&mut self) {
        // A tracepoint that stays enabled does not disturb the next case, which clears the trace.
        let _ = fs::write(&self.enable, "0");
    }
}
