//! `colocate topo`.

use std::process::ExitCode;

/// Shows the machine: packages, nodes, caches, cores, PUs, and what is usable
#[derive(clap::Args)]
pub struct Args {}

/// Runs `colocate topo`.
///
/// # Errors
/// Not built yet.
pub fn main(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
