//! `colocate doctor`.

use std::process::ExitCode;

/// Says what works here, why not, and what lifts it
#[derive(clap::Args)]
pub struct Args {}

/// Runs `colocate doctor`.
///
/// # Errors
/// Not built yet.
pub fn main(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
