//! `colocate restore`: undoes the changes of a killed colocate.
//!
//! The guardian of colocate does so at once; this command is for a guardian that was killed as
//! well.

use crate::output;
use colocate_act::boost;
use colocate_act::restore::{self, FoundError, FoundJournal, Restored};
use colocate_linux::Pid;
use colocate_machine::printable::{self, printable};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Undoes what a killed colocate has left
///
/// Continues everything that a dead colocate had stopped, restores the original mask of every thread that it had
/// pinned, and the policy of those that it had put under SCHED_IDLE. Exit status: 0 if nothing is left to undo,
/// 125 if something could not be undone or a journal could not be read.
#[derive(clap::Args)]
pub struct Args {
    /// Say what would be undone and undo nothing
    #[arg(long)]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Outcome for one journal.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, Serialize)]
pub struct RestoreOutcome {
    /// File of the journal.
    journal: PathBuf,
    /// Error of the journal itself; `None` without an error.
    trouble: Option<String>,
    /// Whether `trouble` means that the journal is not readable at all.
    #[serde(skip)]
    spoilt: bool,
    /// Whether the writing colocate still runs; then nothing is undone.
    alive: bool,
    /// PUs that threads may use without colocate; `None` if the journal is not readable.
    original: Option<String>,
    /// Processes that were stopped, or may have been.
    stopped: Vec<Pid>,
    /// Error while continuing processes; `None` without an error.
    stopped_trouble: Option<String>,
    /// Threads whose PUs were changed.
    threads: Vec<Restored>,
    /// Threads that were under SCHED_IDLE.
    idle: Vec<Restored>,
    /// Whether the search for threads is complete.
    searched: bool,
}

/// Runs `colocate restore`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    // In a folder that others can write to, any user could have written a journal.
    let found = restore::journals_of_user().into_iter();
    let done: Vec<RestoreOutcome> = found.map(|found| undo(found, args.dry_run)).collect();
    let failed = done.iter().any(|done| !done.alive && done.is_left());
    let text = if args.json { printable::json(&done) } else { text(&done, args.dry_run) };
    output::write(None, &text)?;
    Ok(if failed { ExitCode::from(crate::exit::OURS) } else { ExitCode::SUCCESS })
}

impl RestoreOutcome {
    /// Whether changes remain that can still be undone.
    fn is_left(&self) -> bool {
        // A spoilt journal can never be undone.
        let unread = self.trouble.is_some() && !self.spoilt;
        unread
            || !self.searched
            || self.stopped_trouble.is_some()
            || self.threads.iter().chain(&self.idle).any(|thread| thread.trouble.is_some())
    }
}

fn undo(found: FoundJournal, dry: bool) -> RestoreOutcome {
    let FoundJournal { path, dir, owner, journal } = found;
    let proc = Path::new("/proc");
    let mut done = RestoreOutcome {
        journal: path,
        spoilt: matches!(journal, Err(FoundError::Spoilt(_))),
        // A journal under creation is still empty, but its name contains its owner.
        alive: owner.is_some_and(|owner| restore::is_alive(owner, proc)),
        searched: true,
        ..RestoreOutcome::default()
    };
    let journal = journal.map_err(|why| done.trouble = Some(why.to_string())).ok();
    done.original = journal.as_ref().map(|journal| journal.original.to_string());
    if let Some(journal) = journal.filter(|_| !done.alive) {
        if !dry {
            boost::run_first();
        }
        let undone = restore::undo(&journal, proc, dry);
        match undone.continued {
            Ok(pids) => done.stopped = pids,
            Err(why) => done.stopped_trouble = Some(why.to_string()),
        }
        done.idle = undone.raised;
        done.threads = undone.freed;
        done.searched = undone.searched;
    }
    if !dry && !done.alive && !done.is_left() {
        let _ = dir.remove(done.journal.file_name().unwrap_or_default());
    }
    done
}

fn text(done: &[RestoreOutcome], dry: bool) -> String {
    if done.is_empty() {
        return "nothing to undo: no colocate was killed here\n".to_owned();
    }
    let mut text = String::new();
    for done in done {
        let path = done.journal.to_string_lossy();
        let path = printable(&path);
        let nothing = done.threads.is_empty()
            && done.idle.is_empty()
            && done.stopped.is_empty()
            && done.stopped_trouble.is_none()
            && done.searched;
        let _ = match (&done.trouble, nothing) {
            _ if done.alive => writeln!(text, "{path}: its colocate is at work, left alone"),
            (Some(why), _) if !done.spoilt => {
                writeln!(text, "{path}: left alone: {}", printable(why))
            }
            (Some(why), _) if dry => writeln!(text, "{path}: not a journal: {}", printable(why)),
            (Some(why), _) => writeln!(text, "{path}: not a journal, removed: {}", printable(why)),
            (None, true) => writeln!(text, "{path}: nothing is left to undo"),
            (None, false) => writeln!(text, "{path}:"),
        };
        let original = printable(done.original.as_deref().unwrap_or_default());
        if let Some(why) = &done.stopped_trouble {
            let _ = writeln!(text, "  what was stopped: {}", printable(why));
        }
        for pid in &done.stopped {
            let verb = if dry { "would be continued" } else { "was continued" };
            let _ = writeln!(text, "  process {pid}: stopped, {verb}");
        }
        for Restored { pid, tid, what, trouble } in done.idle.iter().chain(&done.threads) {
            let (was, to) = what.change(&original);
            let done = match trouble {
                Some(why) => printable(why).into_owned(),
                None if dry => format!("would be given {to}"),
                None => format!("was given {to}"),
            };
            let _ = writeln!(text, "  thread {tid} of process {pid}: {was}, {done}");
        }
        if !done.searched {
            let _ = writeln!(text, "  others may be left, the machine is too busy: call it again");
        }
    }
    text
}
