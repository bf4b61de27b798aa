//! What the kernel does, from its own tracepoints.

use crate::evidence::text;
use anyhow::Context as _;
use std::fs;

const ROOT: &str = "/sys/kernel/tracing";

/// A tracepoint that is recorded from now on until this is dropped.
pub struct Traced {
    enable: String,
}

impl Traced {
    /// Records `event`, a folder of tracefs's `events`, e.g. `syscalls/sys_exit_write`.
    ///
    /// # Errors
    /// If the kernel has none of that name.
    pub fn new(event: &str) -> anyhow::Result<Self> {
        fs::write(format!("{ROOT}/trace"), "").context("trace")?;
        let enable = format!("{ROOT}/events/{event}/enable");
        fs::write(&enable, "1").with_context(|| enable.clone())?;
        Ok(Self { enable })
    }

    /// What was recorded so far, a line each: the task's name and number, the PU, the time, the event.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn text(&self) -> anyhow::Result<String> {
        text(format!("{ROOT}/trace"))
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // That nothing more is recorded changes nothing for the next case.
        let _ = fs::write(&self.enable, "0");
    }
}
