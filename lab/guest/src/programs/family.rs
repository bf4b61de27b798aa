//! `family`: creates tasks on request. Each line of standard input requests a task, and the answer
//! is its ID: `thread`, `fork` (a process with a second thread), `exec` (a process that executes
//! another program) or `shell` (a shell that starts a program). The program ends at the end of
//! standard input; its child processes stay.

#![allow(unsafe_code)] // fork(2), which the standard library does not have

use super::{lives, own_tid};
use anyhow::{Context as _, bail};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

/// Serves the requests of standard input.
///
/// # Errors
/// If a request is unknown, or a task cannot be created.
pub fn main(_: &[String]) -> anyhow::Result<()> {
    for line in std::io::stdin().lines() {
        match line?.as_str() {
            "thread" => println!("{}", thread()?),
            "fork" => fork()?,
            "exec" => println!("{}", quiet("sleep", &["1000"])?),
            "shell" => println!("{}", quiet("sh", &["-c", "sleep 1000 & wait"])?),
            other => bail!("expected thread, fork, exec or shell, found {other}"),
        }
    }
    Ok(())
}

/// Creates a thread that lives as long as its process. Returns the thread ID.
fn thread() -> anyhow::Result<i32> {
    let (send, received) = channel();
    std::thread::Builder::new().spawn(move || {
        // Fails only if the receiver has failed first.
        let _ = send.send(own_tid());
        lives()
    })?;
    received.recv().context("a thread ended at once")?
}

/// Forks a process that creates a thread and prints both IDs.
fn fork() -> anyhow::Result<()> {
    // SAFETY: the other threads sleep, so no other thread holds a lock of the standard library.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).context("fork"),
        0 => {
            println!("{} {}", std::process::id(), thread()?);
            lives()
        }
        _ => Ok(()),
    }
}

/// Starts a program without standard input and output. Returns its process ID.
fn quiet(program: &str, words: &[&str]) -> anyhow::Result<u32> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command.spawn().with_context(|| program.to_owned())?.id())
}
