//! `colocate bench`.

use std::process::ExitCode;

/// Measures this machine with micro-benchmarks
#[derive(clap::Args)]
pub struct Args {}

/// Runs `colocate bench`.
///
/// # Errors
/// Not built yet.
pub fn main(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
