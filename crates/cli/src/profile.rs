//! `colocate profile`.

use std::process::ExitCode;

/// Says what each thread of a program does
#[derive(clap::Args)]
pub struct Args {}

/// Runs `colocate profile`.
///
/// # Errors
/// Not built yet.
pub fn main(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
