//! `colocate study serpa`.

use crate::output;
use crate::workers::{self, Watcher};
use anyhow::Context;
use colocate_machine::read;
use colocate_model::phase::PhaseFile;
use colocate_model::{Assumptions, Phase};
use colocate_study::serpa::pairs::{Pairs, Unit};
use colocate_study::serpa::{Report, Study, VERSION, bench, table, tail};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const KERNELS: &str = include_str!("../../../../studies/serpa/kernels.toml");
const APPLICATIONS: &str = include_str!("../../../../studies/serpa/nas.toml");

/// Instruction-aware mapping (Serpa et al.): SMT-Bench and all pairs of NAS benchmarks
///
/// The demand vectors are those of studies/serpa, each figure with its source; what they leave unknown,
/// and what the model assumes, is drawn.
#[derive(clap::Args)]
pub struct Args {
    /// Machine to simulate: a described one by name, or a file that says how fast it is
    #[arg(long, value_name = "SPEC", default_value = "epyc-7301")]
    machine: String,

    /// Sets of assumptions, the usual one among them
    #[arg(long, value_name = "N", default_value_t = 17, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    draws: u32,

    /// Seeds for each set
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    seeds: u32,

    /// First seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Print the figures as JSON
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `colocate study serpa`.
///
/// # Errors
/// If the machine cannot be modelled or the output not be written.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let seen = read::look(&args.machine)?;
    let performance = seen.performance.with_context(|| {
        format!(
            "expected a machine of which it is described how fast it is (docs/machines.md), found {}",
            args.machine
        )
    })?;
    let draws = Assumptions::sample(args.draws as usize, args.seed);
    let study = Study {
        machine: &seen.machine,
        performance: &performance,
        draws: &draws,
        seeds: args.seeds,
        seed: args.seed,
    };
    let (kernels, applications) = (phases(KERNELS)?, phases(APPLICATIONS)?);
    let pairs = Pairs::new(study, &applications);
    let done = simulated(&pairs)?;
    let report = Report {
        version: VERSION,
        simulated: true,
        colocate: env!("CARGO_PKG_VERSION").to_owned(),
        machine: seen.machine.name.clone(),
        draws: args.draws,
        seeds: args.seeds,
        seed: args.seed,
        bench: bench::figures(&study, &kernels)?,
        pairs: pairs.figures(&done),
        tail: tail::figures(&study, &Phase::default())?,
    };
    let text = if args.json { report.to_json() } else { table::text(&report) };
    output::write(args.output.as_deref(), &text)?;
    Ok(ExitCode::SUCCESS)
}

/// All pairs, on all processors that there are.
fn simulated(pairs: &Pairs<'_>) -> anyhow::Result<Vec<Unit>> {
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let seen = AtomicUsize::new(0);
    let progress = || tell(seen.fetch_add(1, Ordering::Relaxed) + 1, pairs.count());
    let watcher = Watcher { progress: &progress, stop: &AtomicBool::new(false) };
    let done = workers::all(pairs.count(), threads, watcher, |unit| pairs.unit(unit))?;
    done.context("nobody stops this")
}

fn phases(text: &str) -> anyhow::Result<Vec<Phase>> {
    Ok(PhaseFile::from_toml(text).context("studies/serpa")?.phases)
}

/// A line that is written over, where standard error is a terminal.
#[allow(clippy::print_stderr)] // this is where progress is told
fn tell(done: usize, all: usize) {
    use std::io::IsTerminal as _;
    if std::io::stderr().is_terminal() {
        eprint!("\rcolocate: {done} of {all} simulated{}", if done == all { "\n" } else { "" });
    }
}
