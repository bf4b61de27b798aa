//! `colocate compare`.

use std::process::ExitCode;

/// Runs one workload under several policies and compares them
#[derive(clap::Args)]
pub struct Args {}

/// Runs `colocate compare`.
///
/// # Errors
/// Not built yet.
pub fn main(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
