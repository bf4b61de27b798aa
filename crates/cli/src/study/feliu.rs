//! `colocate study feliu-1` to `feliu-4`.

use super::given;
use super::runner::{Course, Runner};
use crate::output;
use colocate_files::Mode;
use colocate_machine::Nanos;
use colocate_machine::printable::json;
use colocate_model::Assumptions;
use colocate_study::feliu::work::Work;
use colocate_study::feliu::{Number, Study, table};
use std::path::PathBuf;
use std::process::ExitCode;

/// Programs are drawn so that their traffic lies where that of the published mixes does; docs/feliu.md says
/// what came of it.
#[derive(clap::Args)]
pub struct Args {
    /// Machine to simulate instead of the published one: a described one by name, or a file that says how
    /// fast it is
    #[arg(long, value_name = "SPEC")]
    machine: Option<String>,

    /// Sets of assumptions, the usual one among them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    draws: u32,

    /// Seeds for each set: the order in which programs begin, and what the kernel leaves to chance
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    seeds: u32,

    /// First seed; also draws the programs, the mixes and the assumptions
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// How long each program takes alone, in milliseconds [default: 30000, feliu-4: 10000] [range:
    /// 1-600000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    length_ms: Option<u64>,

    /// Time between two decisions, in milliseconds [default: 200, feliu-4: 100] [range: 1-60000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    quantum_ms: Option<u64>,

    /// Mixes of each set-up; docs/feliu.md says which numbers are published, and which chosen [default: 10,
    /// feliu-2: 15 and 5, feliu-4: 10 and 5] [range: 1-1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    mixes: Option<u16>,

    /// What the mixes ask of the memory, in transactions per microsecond, all contexts together [default:
    /// as published, feliu-1: 20-40, feliu-3: 50-130, others: any]
    #[arg(long, value_name = "LEAST-MOST", value_parser = range)]
    traffic: Option<Traffic>,

    #[command(flatten)]
    course: Course,

    /// Print the figures as JSON (docs/schemas/study-feliu.json)
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Least and most.
#[derive(Clone, Copy, Debug)]
struct Traffic([f64; 2]);

fn range(text: &str) -> Result<Traffic, String> {
    let ends = text.split_once('-').and_then(|(least, most)| {
        let number = |text: &str| text.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0);
        number(least).zip(number(most)).filter(|(least, most)| least < most)
    });
    let ends = ends.ok_or_else(|| format!("expected two numbers like 20-40, found {text:?}"))?;
    Ok(Traffic([ends.0, ends.1]))
}

/// Runs one of the four studies.
///
/// # Errors
/// If the machine cannot be modelled, a file cannot be used or the output not be written, or it was stopped.
pub fn main(number: Number, args: &Args) -> anyhow::Result<ExitCode> {
    args.output.as_deref().map_or(Ok(()), colocate_files::has_place)?;
    let name = args.machine.as_deref().unwrap_or(number.machine());
    let (machine, performance) = given::machine(name)?;
    let draws = Assumptions::sample(args.draws as usize, args.seed);
    let study = Study {
        number,
        machine: &machine,
        performance: &performance,
        draws: &draws,
        seeds: args.seeds,
        seed: args.seed,
        alone: args.length_ms.map_or(number.alone(), Nanos::from_millis),
        quantum: args.quantum_ms.map_or(number.quantum(), Nanos::from_millis),
        mixes: args.mixes.map(usize::from),
        traffic: args.traffic.map(|traffic| traffic.0),
    };
    let report = Runner::new(&args.course)?.study(&Work::new(study)?)?;
    let text = if args.json { json(&report) } else { table::text(&report, &study.setups()) };
    output::keep(args.output.as_deref(), &text, Mode::ByUmask)?;
    Ok(ExitCode::SUCCESS)
}
