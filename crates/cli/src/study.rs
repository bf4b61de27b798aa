//! `colocate study`: published studies again, simulated.

mod fedorova;
mod feliu;
mod given;
mod keep;
mod runner;
mod serpa;

use clap::Subcommand;
use colocate_study::feliu::Number;
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
    /// Bandwidth-aware scheduling without SMT (Feliu, first contribution): MMaS, MHaS and IDaS
    #[command(name = "feliu-1", long_about = None)]
    Feliu1(feliu::Args),
    /// Bandwidth-aware scheduling with SMT (Feliu, second contribution): L1 allocation and BaS
    #[command(name = "feliu-2", long_about = None)]
    Feliu2(feliu::Args),
    /// Progress-aware scheduling (Feliu, third contribution): Fair and Perf&Fair
    #[command(name = "feliu-3", long_about = None)]
    Feliu3(feliu::Args),
    /// Symbiotic scheduling on POWER8 (Feliu, fourth contribution)
    #[command(name = "feliu-4", long_about = None)]
    Feliu4(feliu::Args),
    Fedorova(fedorova::Args),
}

/// Runs `colocate study`.
///
/// # Errors
/// If the study cannot be made or the output not be written.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.study {
        Study::Serpa(args) => serpa::main(args),
        Study::Feliu1(args) => feliu::main(Number::One, args),
        Study::Feliu2(args) => feliu::main(Number::Two, args),
        Study::Feliu3(args) => feliu::main(Number::Three, args),
        Study::Feliu4(args) => feliu::main(Number::Four, args),
        Study::Fedorova(args) => fedorova::main(args),
    }
}
