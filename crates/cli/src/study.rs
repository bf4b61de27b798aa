//! `colocate study`: published studies again, simulated.

mod serpa;

use clap::Subcommand;
use std::process::ExitCode;

/// Makes a published study again in the simulator and prints it beside what was published
///
/// All of it is simulated: nothing is measured, and nothing is fitted to the published figures.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    study: Study,
}

#[derive(Subcommand)]
enum Study {
    Serpa(serpa::Args),
}

/// Runs `colocate study`.
///
/// # Errors
/// If the study cannot be made or the output not be written.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.study {
        Study::Serpa(args) => serpa::main(args),
    }
}
