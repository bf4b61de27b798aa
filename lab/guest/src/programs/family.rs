//! `family`: grows on demand. Each line of standard input requests one more, and the answer names it
//! it is: `thread`, `fork` (a process with a thread of its own), `exec` (a process that becomes
//! another program) or `shell` (a shell that starts a program). At the end of standard input it ends;
//! what it has forked and executed stays.

#![allow(unsafe_code)] // fork(2), which the standard library does not have

use super::{lives, own_tid};
use anyhow::{Context as _, bail};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

/// Does what the lines request.
///
/// # Errors
/// If a line is none of ours, or something cannot be had.
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

/// A thread that lives as long as its process. Returns its number.
fn thread() -> anyhow::Result<i32> {
    let (send, received) = channel();
    std::thread::Builder::new().spawn(move || {
        // A missing receiver is no reason to end.
        let _ = send.send(own_tid());
        lives()
    })?;
    received.recv().context("a thread ended at once")?
}

/// A copy of this process that makes a thread and says both numbers.
fn fork() -> anyhow::Result<()> {
    // SAFETY: only this thread ever holds a lock of the standard library for long: the others sleep.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).context("fork"),
        0 => {
            println!("{} {}", std::process::id(), thread()?);
            lives()
        }
        _ => Ok(()),
    }
}

fn quiet(program: &str, words: &[&str]) -> anyhow::Result<u32> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command.spawn().with_context(|| program.to_owned())?.id())
}
