//! Programs that the cases watch, and that set up what a program may find: `lab-guest --program NAME
//! ARGUMENTS`.

mod loops;

use anyhow::{Context as _, bail};

/// A program; it gets its arguments.
type Program = fn(&[String]) -> anyhow::Result<()>;

const ALL: &[(&str, Program)] = &[("loops", loops::main)];

/// Runs the program that the first word names.
///
/// # Errors
/// If there is none of that name, or it fails.
pub fn run(words: &[String]) -> anyhow::Result<()> {
    let (name, arguments) = words.split_first().context("expected a program, found none")?;
    match ALL.iter().find(|(known, _)| known == name) {
        Some((_, program)) => program(arguments),
        None => bail!("expected a program of ours, found {name}"),
    }
}
