//! `colocate run`.

use std::process::ExitCode;

/// Runs programs placed
#[derive(clap::Args)]
pub struct Args {}

/// Runs `colocate run`.
///
/// # Errors
/// Not built yet.
pub fn main(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
