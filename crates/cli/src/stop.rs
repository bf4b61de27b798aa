//! The flag set by signals that end a command.

use crate::children;
use anyhow::Context;
use signal_hook::flag;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Flag set by signals that end a command, until it was read. The programs get SIGTERM, and are
/// killed at the second signal; the run is not counted. Signals inherited as ignored, as `nohup`
/// does with SIGHUP, stay ignored.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    caught(|_, _| Ok(()))
}

/// As [`stop_flag`], for a command's own work, with minutes between two polls of the flag: a second
/// signal ends the process as if uncaught.
pub fn stop_flag_once() -> anyhow::Result<Arc<AtomicBool>> {
    caught(|signal, stop| flag::register_conditional_default(signal, stop).map(drop))
}

/// Registers the flag; `first` is called for each signal before the handler that sets the flag.
fn caught(
    first: impl Fn(c_int, Arc<AtomicBool>) -> std::io::Result<()>,
) -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in children::asking_signals() {
        first(signal, Arc::clone(&stop))
            .and_then(|()| flag::register(signal, Arc::clone(&stop)))
            .context("cannot catch signals")?;
    }
    Ok(stop)
}
