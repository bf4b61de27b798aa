//! `colocate bench`: four measurements, and the harness that they share.

mod bandwidth;
pub mod beside;
mod cores;
pub mod harness;
mod scenario_text;
pub mod scenarios;
mod sibling_text;
mod siblings;
mod smt;
#[cfg(test)]
pub mod testing;

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
    Cores(cores::Args),
}

/// Runs `colocate bench`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Smt(args) => smt::main(args),
        What::Bandwidth(args) => bandwidth::main(args),
        What::Cores(args) => cores::main(args),
    }
}
