//! `colocate bench`: four measurements, and the harness that they share.

mod bandwidth;
mod beside;
mod cores;
mod harness;
#[cfg(test)]
mod pretend;
mod scenario_text;
mod scenarios;
mod sibling_text;
mod siblings;
mod smt;

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
///
/// # Errors
/// If the PUs asked for cannot be used or the output cannot be written.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Smt(args) => smt::main(args),
        What::Bandwidth(args) => bandwidth::main(args),
        What::Cores(args) => cores::main(args),
    }
}
