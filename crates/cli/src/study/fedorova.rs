//! `colocate study fedorova`.

use super::given;
use super::runner::{Course, Runner};
use crate::output;
use crate::outputs::{self, Form};
use colocate_files::Mode;
use colocate_machine::Nanos;
use colocate_machine::printable::json;
use colocate_model::Assumptions;
use colocate_study::fedorova::work::Work;
use colocate_study::fedorova::{LENGTH, MACHINE, QUANTUM, ROUND, Study, picture, table};
use std::path::PathBuf;
use std::process::ExitCode;

/// Serial phases on fast cores (Fedorova et al.): what is gained, what moves cost, and what spinning hides
///
/// One program of as many threads as cores, with barriers and a serial share of 0 to 90 percent, on four fast and twelve
/// slow cores; docs/fedorova.md says what came of it.
#[derive(clap::Args)]
pub struct Args {
    /// Machine to simulate: a described one by name, or a file that says how fast it is, with fast and slow
    /// cores under each of several last-level caches
    #[arg(long, value_name = "SPEC", default_value = MACHINE)]
    machine: String,

    /// Sets of assumptions, the usual one among them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    draws: u32,

    /// Seeds for each set: where the kernel lets threads begin, and so who is on a fast core under os
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    seeds: u32,

    /// First seed; also draws the assumptions
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// How long a program takes on slow cores, in milliseconds [range: 1-600000]
    #[arg(long, value_name = "MS", default_value_t = LENGTH.0 / 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=600_000))]
    length_ms: u64,

    /// How long a serial and a parallel part take together on slow cores where their length is not what is
    /// varied, in milliseconds [range: 1-600000]
    #[arg(long, value_name = "MS", default_value_t = ROUND.0 / 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=600_000))]
    round_ms: u64,

    /// Time between two samples, in microseconds [range: 100-10000000]
    #[arg(long, value_name = "US", default_value_t = QUANTUM.0 / 1_000,
        value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    quantum_us: u64,

    #[command(flatten)]
    course: Course,

    /// Print the figures as JSON (docs/schemas/study-fedorova.json)
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output, repeatable: .txt, .json, or .svg, pictures of what is gained
    /// and of what moves cost
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,
}

/// Runs `colocate study fedorova`.
///
/// # Errors
/// If the machine is not of the studied kind or cannot be modelled, a file cannot be used or the output not be written, or
/// it was stopped.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let outputs = outputs::of(&args.output, args.json, Mode::ByUmask)?;
    let (machine, performance) = given::machine(&args.machine)?;
    let draws = Assumptions::sample(args.draws as usize, args.seed);
    let study = Study {
        machine: &machine,
        performance: &performance,
        draws: &draws,
        seeds: args.seeds,
        seed: args.seed,
        length: Nanos::from_millis(args.length_ms),
        round: Nanos::from_millis(args.round_ms),
        quantum: Nanos(args.quantum_us * 1_000),
    };
    let report = Runner::new(&args.course)?.study(&Work::new(study)?)?;
    let told = |form| -> anyhow::Result<String> {
        Ok(match form {
            Form::Text => table::text(&report),
            Form::Json => json(&report),
            Form::Picture => picture::svg(&report).map_err(anyhow::Error::msg)?,
        })
    };
    let written: Vec<anyhow::Result<()>> =
        outputs.iter().map(|output| output.write(told)).collect();
    // What has taken long to find out is told at least.
    if written.iter().all(Result::is_err) {
        output::write(None, &told(if args.json { Form::Json } else { Form::Text })?)?;
    }
    written.into_iter().collect::<anyhow::Result<()>>()?;
    Ok(ExitCode::SUCCESS)
}
