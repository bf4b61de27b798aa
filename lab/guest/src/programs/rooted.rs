//! `rooted PROGRAM...`: runs a program with all user IDs of root, by the set-user-ID bit.

#![allow(unsafe_code)] // setresuid(2), which the standard library does not have

use anyhow::{Context as _, ensure};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Becomes root and executes the program.
///
/// # Errors
/// If the set-user-ID bit is missing, or the program cannot be executed.
pub fn main(words: &[String]) -> anyhow::Result<()> {
    let (program, words) = words.split_first().context("expected a program")?;
    // SAFETY: takes no pointer.
    let done = unsafe { libc::setresuid(0, 0, 0) };
    ensure!(done == 0, "setresuid: {}", std::io::Error::last_os_error());
    Err(Command::new(program).args(words).exec()).with_context(|| program.clone())
}
