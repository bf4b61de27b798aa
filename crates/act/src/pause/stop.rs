//! Stops of single processes by signals.

use super::{How, send};
use crate::actuator::{Actuator, ThreadRef};
use crate::journal::JournalEntry;
use crate::workload::JournalWorkload;

/// The actuator that stops the process of a thread by a signal and continues it. The setting is whether the thread is stopped.
pub(crate) struct Stop;

impl Actuator for Stop {
    type Target<'a> = ThreadRef<'a>;
    type Setting = bool;
    type Line = JournalEntry;
    type Record = ();
    type Error = std::io::Error;

    /// The line as such names the process, and the journal's head says that signals stop it.
    fn journal(_: &mut JournalEntry, (): ()) {}

    fn apply(thread: ThreadRef<'_>, to: &bool) -> std::io::Result<Option<bool>> {
        send(thread.process, if *to { libc::SIGSTOP } else { libc::SIGCONT })?;
        Ok(None)
    }

    fn read_back(thread: ThreadRef<'_>) -> std::io::Result<Option<bool>> {
        // A tracer's stop shows as `t` (proc(5)).
        Ok(thread.process.stat_of(thread.tid).map(|stat| stat.state == 'T'))
    }

    /// Every process is continued: on a busy machine one that does not show as stopped may still be about to stop.
    fn undo(workload: &JournalWorkload<'_>, _: ThreadRef<'_>) -> Option<bool> {
        (workload.journal().pauses == Some(How::Signals)).then_some(false)
    }
}
