//! `colocate-study bench`: measurements with micro-benchmarks.

mod bandwidth;
mod scenario_text;
mod smt;

#[cfg(feature = "schema")]
pub use bandwidth::BandwidthReport as Bandwidth;

use std::process::ExitCode;

/// Measures this machine with micro-benchmarks
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: BenchCommand,
}

#[derive(clap::Subcommand)]
enum BenchCommand {
    Smt(smt::Args),
    Bandwidth(bandwidth::Args),
}

/// Runs `colocate-study bench`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        BenchCommand::Smt(args) => smt::main(args),
        BenchCommand::Bandwidth(args) => bandwidth::main(args),
    }
}
