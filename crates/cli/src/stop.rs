//! The flag set by signals that end a command.

use crate::children;
use anyhow::Context;
use colocate_linux::signal::{self, Second};
use std::sync::atomic::AtomicBool;

/// Flag set by signals that end a command, until it was read. The programs get SIGTERM, and are
/// killed at the second signal; the run is not counted. Signals inherited as ignored, as `nohup`
/// does with SIGHUP, stay ignored.
pub fn stop_flag() -> anyhow::Result<&'static AtomicBool> {
    caught(Second::SetsFlag)
}

/// As [`stop_flag`], for a command's own work, with minutes between two polls of the flag: a second
/// signal ends the process as if uncaught.
pub fn stop_flag_once() -> anyhow::Result<&'static AtomicBool> {
    caught(Second::Ends)
}

fn caught(second: Second) -> anyhow::Result<&'static AtomicBool> {
    signal::stop_flag(&children::asking_signals(), second).context("cannot catch signals")
}
