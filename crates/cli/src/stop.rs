//! The flag that signals which are to end us set.

use crate::children;
use anyhow::Context;
use signal_hook::flag;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Set by a signal that is to end us, until it was seen. The programs get SIGTERM, and are killed
/// at the second one; the run is not counted.
/// What was inherited as ignored, as `nohup` does with SIGHUP, stays ignored.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    caught(|_, _| Ok(()))
}

/// The same for work of our own, which looks at the flag only between pieces that may take minutes: a second signal ends
/// the process as if it had not been caught.
pub fn stop_flag_once() -> anyhow::Result<Arc<AtomicBool>> {
    caught(|signal, stop| flag::register_conditional_default(signal, stop).map(drop))
}

/// The flag, where `first` is done for each signal before that sets it.
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
