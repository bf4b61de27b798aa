//! `sudo COMMAND...`: runs a command as root, from a copy of this program with the set-user-ID bit.

#![allow(unsafe_code)] // setuid, setgid

use anyhow::{Context as _, ensure};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Becomes root and executes the command.
///
/// # Errors
/// If the set-user-ID bit is missing, or the command cannot be executed.
pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let (command, rest) = arguments.split_first().context("expected a command")?;
    // SAFETY: takes a number.
    let group = unsafe { libc::setgid(0) };
    // SAFETY: takes a number.
    let user = unsafe { libc::setuid(0) };
    ensure!(group == 0 && user == 0, "{}", std::io::Error::last_os_error());
    Err(Command::new(command).args(rest).exec()).with_context(|| command.clone())
}
