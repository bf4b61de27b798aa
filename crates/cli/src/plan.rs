//! `colocate plan`.

use std::process::ExitCode;

/// Says where each task of the profiled programs should run, and why
#[derive(clap::Args)]
pub struct Args {}

/// Runs `colocate plan`.
///
/// # Errors
/// Not built yet.
pub fn main(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
