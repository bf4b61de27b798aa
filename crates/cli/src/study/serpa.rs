//! `colocate study serpa`.

mod settle;

use super::given;
use super::runner::{Course, Runner};
use crate::output;
use crate::simulate::load;
use anyhow::Context;
use colocate_files::Mode;
use colocate_machine::Nanos;
use colocate_machine::printable::json;
use colocate_model::phase::PhaseFile;
use colocate_model::{Assumptions, Phase};
use colocate_study::serpa::work::Work;
use colocate_study::serpa::{ALONE, Study, table};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const KERNELS: &str = include_str!("../../../../studies/serpa/kernels.toml");
const APPLICATIONS: &str = include_str!("../../../../studies/serpa/nas.toml");

/// Instruction-aware mapping (Serpa et al.): SMT-Bench and all pairs of NAS benchmarks
///
/// The demand vectors are those of studies/serpa, each figure with its source; what they leave unknown,
/// and what the model assumes, is drawn. docs/serpa.md says what came of it.
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

    /// How long each application takes alone, in milliseconds [range: 1-600000]
    #[arg(long, value_name = "MS", default_value_t = ALONE.0 / 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=600_000))]
    length_ms: u64,

    /// Only find out how long the applications have to be: double the length until the figures of the
    /// simulated kernel stay as they are
    #[arg(long, conflicts_with_all = ["length_ms", "keep", "json"])]
    find_length: bool,

    /// Demand vectors instead of SMT-Bench's, .toml or .json (docs/schemas/demand.json)
    #[arg(long, value_name = "FILE")]
    kernels: Option<PathBuf>,

    /// Demand vectors instead of the NAS benchmarks', two or more
    #[arg(long, value_name = "FILE")]
    applications: Option<PathBuf>,

    #[command(flatten)]
    course: Course,

    /// Print the figures as JSON (docs/schemas/study-serpa.json)
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `colocate study serpa`.
///
/// # Errors
/// If the machine cannot be modelled, a file cannot be used or the output not be written, or it was stopped.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    args.output.as_deref().map_or(Ok(()), colocate_files::has_place)?;
    let (machine, performance) = given::machine(&args.machine)?;
    let applications = phases(args.applications.as_deref(), APPLICATIONS)?;
    let kernels = phases(args.kernels.as_deref(), KERNELS)?;
    let draws = Assumptions::sample(args.draws as usize, args.seed);
    let study = Study {
        machine: &machine,
        performance: &performance,
        draws: &draws,
        seeds: args.seeds,
        seed: args.seed,
        alone: Nanos::from_millis(args.length_ms),
    };
    let runner = Runner::new(&args.course)?;
    let simulated = || -> anyhow::Result<String> {
        let report = runner.study(&Work::new(study, &kernels, &applications)?)?;
        Ok(if args.json { json(&report) } else { table::text(&report) })
    };
    let text =
        if args.find_length { settle::find(&runner, study, &applications)? } else { simulated()? };
    output::keep(args.output.as_deref(), &text, Mode::ByUmask)?;
    Ok(ExitCode::SUCCESS)
}

/// At least two demand vectors, of a file or our own.
fn phases(file: Option<&Path>, ours: &str) -> anyhow::Result<Vec<Phase>> {
    let Some(path) = file else {
        return Ok(PhaseFile::from_toml(ours).context("studies/serpa")?.phases);
    };
    let phases = load::phases(path).map_err(anyhow::Error::msg)?;
    if phases.len() < 2 {
        let found = phases.len();
        anyhow::bail!("{}: expected at least 2 phases, found {found}", path.display());
    }
    Ok(phases)
}
