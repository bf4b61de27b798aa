//! `colocate restore`: undoes what a killed colocate left behind.
//!
//! Its guardian does that at once; this is for when the guardian was killed as well.

use crate::output;
use colocate_act::restore::{self, Found, FoundError, Freed, Raised};
use colocate_act::{rundir, sys};
use colocate_files::Dir;
use colocate_machine::printable::{self, printable};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Undoes what a killed colocate left behind
///
/// Lets everything go on that a dead colocate had stopped, gives every thread that it had put on one PU the
/// mask back that it would have had, and takes those out of SCHED_IDLE that it had put there. Exit status: 0
/// if nothing is left to undo, 125 if something could not be undone or a journal could not be read.
#[derive(clap::Args)]
pub struct Args {
    /// Say what would be undone and undo nothing
    #[arg(long)]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done about one journal.
#[derive(Serialize)]
struct Done {
    journal: PathBuf,
    /// What is wrong with the journal itself.
    trouble: Option<String>,
    /// Whether that means that it cannot be read at all.
    #[serde(skip)]
    spoilt: bool,
    /// Whether the colocate that wrote it still lives; then nothing is undone.
    alive: bool,
    original: Option<String>,
    /// Processes that had been stopped, or may have been.
    stopped: Vec<i32>,
    /// Why some of them could not be let go on.
    stopped_trouble: Option<String>,
    threads: Vec<Thread>,
    /// Threads that were under SCHED_IDLE.
    idle: Vec<Idle>,
}

#[derive(Serialize)]
struct Idle {
    pid: i32,
    tid: i32,
    to: String,
    trouble: Option<String>,
}

#[derive(Serialize)]
struct Thread {
    pid: i32,
    tid: i32,
    from: String,
    trouble: Option<String>,
}

/// Runs `colocate restore`.
///
/// # Errors
/// If the result cannot be written.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let xdg = std::env::var_os("XDG_RUNTIME_DIR");
    let user = sys::effective_user();
    let dirs = rundir::candidates(xdg.as_deref(), user);
    // In a folder that others can write to, any user could have written it.
    let trusted = dirs.iter().filter_map(|dir| Dir::open_private(dir, user).ok());
    let found = trusted.flat_map(restore::journals);
    let done: Vec<Done> = found.map(|found| undo(found, args.dry_run)).collect();
    let failed = done.iter().any(|done| !done.alive && done.is_left());
    let text = if args.json { json(&done) } else { text(&done, args.dry_run) };
    output::write(None, &text)?;
    Ok(if failed { ExitCode::from(crate::exit::OURS) } else { ExitCode::SUCCESS })
}

impl Done {
    /// Whether something remains that can still be undone.
    fn is_left(&self) -> bool {
        let unread = self.trouble.is_some() && !self.spoilt;
        unread
            || self.stopped_trouble.is_some()
            || self.threads.iter().any(|thread| thread.trouble.is_some())
            || self.idle.iter().any(|thread| thread.trouble.is_some())
    }
}

fn undo(found: Found, dry: bool) -> Done {
    let Found { path, dir, owner, journal } = found;
    let proc = Path::new("/proc");
    let mut done = Done {
        journal: path,
        trouble: None,
        spoilt: matches!(journal, Err(FoundError::Spoilt(_))),
        // One that is being created is still empty, but has its owner's name.
        alive: owner.is_some_and(|owner| restore::is_alive(owner, proc)),
        original: None,
        stopped: Vec::new(),
        stopped_trouble: None,
        threads: Vec::new(),
        idle: Vec::new(),
    };
    match journal {
        Err(why) => done.trouble = Some(why.to_string()),
        Ok(journal) => {
            done.original = Some(journal.original.to_string());
            if !done.alive {
                let undone = restore::undo(&journal, proc, dry);
                match undone.continued {
                    Ok(pids) => done.stopped = pids.into_iter().map(|pid| pid.0).collect(),
                    Err(why) => done.stopped_trouble = Some(why.to_string()),
                }
                done.idle = undone.raised.into_iter().map(Idle::from).collect();
                done.threads = undone.freed.into_iter().map(Thread::from).collect();
            }
        }
    }
    if !dry && !done.alive && !done.is_left() {
        let _ = dir.remove(done.journal.file_name().unwrap_or_default());
    }
    done
}

impl From<Freed> for Thread {
    fn from(freed: Freed) -> Self {
        let Freed { pid, tid, from, trouble } = freed;
        Self { pid: pid.0, tid: tid.0, from: from.to_string(), trouble }
    }
}

impl From<Raised> for Idle {
    fn from(raised: Raised) -> Self {
        let Raised { pid, tid, to, trouble } = raised;
        Self { pid: pid.0, tid: tid.0, to: to.to_string(), trouble }
    }
}

fn json(done: &[Done]) -> String {
    printable::json(done)
}

fn text(done: &[Done], dry: bool) -> String {
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
            && done.stopped_trouble.is_none();
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
            let verb = if dry { "would be let go on" } else { "was let go on" };
            let _ = writeln!(text, "  process {pid}: stopped, {verb}");
        }
        for Idle { pid, tid, to, trouble } in &done.idle {
            let verb = if dry { "would be given" } else { "was given" };
            let _ = match trouble {
                None => writeln!(text, "  thread {tid} of process {pid}: SCHED_IDLE, {verb} {to}"),
                Some(why) => writeln!(
                    text,
                    "  thread {tid} of process {pid}: SCHED_IDLE, {}",
                    printable(why)
                ),
            };
        }
        for Thread { pid, tid, from, trouble } in &done.threads {
            let verb = if dry { "would be given" } else { "was given" };
            let _ = match trouble {
                None => {
                    writeln!(text, "  thread {tid} of process {pid}: {from}, {verb} {original}")
                }
                Some(why) => {
                    writeln!(text, "  thread {tid} of process {pid}: {from}, {}", printable(why))
                }
            };
        }
    }
    text
}
