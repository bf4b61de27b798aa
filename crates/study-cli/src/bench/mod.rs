//! `colocate-study bench`: measurements with micro-benchmarks.

mod bandwidth;
mod scenario_text;
mod smt;

#[cfg(feature = "schema")]
pub use bandwidth::Report as Bandwidth;

use std::process::ExitCode;

/// Measures this machine with micro-benchmarks
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Smt(smt::Args),
    Bandwidth(bandwidth::Args),
}

/// Runs `colocate-study bench`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Smt(args) => smt::main(args),
        What::Bandwidth(args) => bandwidth::main(args),
    }
}
