//! `colocate restore`.

use std::process::ExitCode;

/// Undoes what a killed colocate left behind
#[derive(clap::Args)]
pub struct Args {}

/// Runs `colocate restore`.
///
/// # Errors
/// Not built yet.
pub fn main(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
