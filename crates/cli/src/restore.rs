//! `colocate restore`: undoes what a killed colocate left behind.
//!
//! Its guardian does that at once; this is for when the guardian was killed as well.

use crate::output;
use colocate_act::restore::{self, Found, Undone};
use colocate_act::{journal::Journal, rundir, sys};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Undoes what a killed colocate left behind
///
/// Gives every thread that a dead colocate had put on one PU the mask back that it would have had.
/// Exit status: 0 if nothing is left to undo, 125 if a thread could not be given its mask.
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
    /// Whether the colocate that wrote it still lives; then nothing is undone.
    alive: bool,
    original: Option<String>,
    threads: Vec<Thread>,
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
    // In a folder that others can write to, anybody could have written what to do to whom.
    let trusted = dirs.iter().filter(|dir| rundir::check(dir, user).is_ok());
    let found = trusted.flat_map(|dir| restore::journals(dir));
    let done: Vec<Done> = found.map(|found| undo(found, args.dry_run)).collect();
    let failed = done.iter().flat_map(|done| &done.threads).any(|thread| thread.trouble.is_some());
    let text = if args.json { json(&done) } else { text(&done, args.dry_run) };
    output::write(None, &text)?;
    Ok(if failed { ExitCode::from(crate::exit::OURS) } else { ExitCode::SUCCESS })
}

fn undo(found: Found, dry: bool) -> Done {
    let Found { path, journal } = found;
    let mut done =
        Done { journal: path, trouble: None, alive: false, original: None, threads: Vec::new() };
    match journal {
        Err(why) => done.trouble = Some(why),
        Ok(journal) => undo_journal(&mut done, &journal, dry),
    }
    let left = done.threads.iter().any(|thread| thread.trouble.is_some());
    if !dry && !done.alive && !left {
        let _ = std::fs::remove_file(&done.journal);
    }
    done
}

fn undo_journal(done: &mut Done, journal: &Journal, dry: bool) {
    let proc = Path::new("/proc");
    done.original = Some(journal.original.to_string());
    done.alive = restore::is_alive(journal.owner, proc);
    if !done.alive {
        let thread = |undone: Undone| Thread {
            pid: undone.pid.0,
            tid: undone.tid.0,
            from: undone.from.to_string(),
            trouble: undone.trouble,
        };
        done.threads = restore::undo(journal, proc, dry).into_iter().map(thread).collect();
    }
}

fn json(done: &[Done]) -> String {
    let mut text = serde_json::to_string_pretty(done).expect("every field has a JSON form");
    text.push('\n');
    text
}

fn text(done: &[Done], dry: bool) -> String {
    if done.is_empty() {
        return "nothing to undo: no colocate was killed here\n".to_owned();
    }
    let mut text = String::new();
    for done in done {
        let path = done.journal.display();
        let _ = match (&done.trouble, done.alive, done.threads.is_empty()) {
            (Some(why), ..) => writeln!(
                text,
                "{path}: {}: {why}",
                if dry { "not a journal" } else { "not a journal, removed" }
            ),
            (None, true, _) => writeln!(text, "{path}: its colocate is at work, left alone"),
            (None, false, true) => writeln!(text, "{path}: nothing is left to undo"),
            (None, false, false) => writeln!(text, "{path}:"),
        };
        let original = done.original.as_deref().unwrap_or_default();
        for Thread { pid, tid, from, trouble } in &done.threads {
            let verb = if dry { "would be given" } else { "was given" };
            let _ = match trouble {
                None => {
                    writeln!(text, "  thread {tid} of process {pid}: {from}, {verb} {original}")
                }
                Some(why) => writeln!(text, "  thread {tid} of process {pid}: {from}, {why}"),
            };
        }
    }
    text
}
