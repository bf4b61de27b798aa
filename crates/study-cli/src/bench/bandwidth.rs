//! `colocate-study bench bandwidth`: loss of a program by memory traffic of co-runners.
//!
//! After Feliu et al.: the program runs alone, and beside copies of a program that requests lines of
//! one level of the memory at an adjustable rate (`smt_bench::traffic`).

mod keeper;
mod measure;
mod places;
mod program;
mod report;
mod text;

use colocate_cli::idle;
use colocate_cli::measure::harness::{self, Taken};
use colocate_cli::run::jobs;
use colocate_cli::stop::stop_flag;
use colocate_cli::{args, exit, input, output};
use colocate_files::{FileMode, kernel};
use colocate_machine::Machine;
use colocate_machine::printable;
use colocate_model::rng::SplitMix64;
use colocate_study::curve;
use colocate_study::traffic::{self, Condition, TrafficRun};
use keeper::Keeper;
use measure::{LocalMeasurement, Measured};
use places::{MeasurementPus, RequestedLines};
use program::MeasuredProgram;
pub use report::BandwidthReport;
use report::RequestedRate;
use smt_bench::traffic::Generator;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Times a program alone and beside copies that request lines of memory
///
/// The copies request each of --rates, with each number of --copies, in blocks of random order. Printed are
/// the program's time relative to alone, what the copies really requested, and the share of its speed that the
/// program loses for each t/µs (a line in a microsecond): `loss` in a workload file. Its output is
/// thrown away. Ctrl-C sends it SIGTERM; once more, and it is killed.
#[derive(clap::Args)]
pub struct Args {
    /// Which lines the copies request
    #[arg(long, value_enum, default_value_t = RequestedLines::Memory)]
    level: RequestedLines,

    /// What each copy is to request, in t/µs, separated by commas [range: 0.1-10000]
    #[arg(long, value_name = "R,R,…", default_value = "10,50,100", value_delimiter = ',', value_parser = rate)]
    rates: Vec<f64>,

    /// Numbers of copies, as in 1-3 or 1,3 [default: 1 to 3 for memory, as far as there are PUs; 1 for l2]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = copies)]
    copies: Vec<RangeInclusive<u32>>,

    /// PUs to use, by the kernel's numbers: the program's, then the copies' [default: one of each core first;
    /// for l2 those of a second cache]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = cpus)]
    cpus: Vec<RangeInclusive<u32>>,

    /// Runs under each condition [range: 1-1000]
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// Seed of the order of the runs
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Rows of 576 bytes that a copy traverses [default: four times the cache that must not hold them, for
    /// memory at least 196608] [range: 1-16777216]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    rows: Option<u32>,

    /// What the program itself requests of memory when alone, in t/µs, for the line of the workload file
    #[arg(long, value_name = "R", value_parser = memory)]
    memory: Option<f64>,

    /// Draw the curve to this file
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,

    /// Print JSON, with every run
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// No progress bar, no warnings
    #[arg(short, long)]
    quiet: bool,

    /// The program
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

/// Greatest number of copies: more PUs than one machine has today.
const MOST_COPIES: u32 = 4096;

fn rate(text: &str) -> Result<f64, String> {
    args::number(text, "t/µs", 0.1..=10_000.0)
}

fn memory(text: &str) -> Result<f64, String> {
    args::number(text, "t/µs", 0.0..=1e6)
}

fn copies(text: &str) -> Result<RangeInclusive<u32>, String> {
    span(text, 1..=MOST_COPIES).ok_or_else(|| {
        format!("expected numbers of copies from 1 to {MOST_COPIES}, as in 1-3, found {text:?}")
    })
}

fn cpus(text: &str) -> Result<RangeInclusive<u32>, String> {
    span(text, 0..=8191).ok_or_else(|| format!("expected PUs, as in 0,2-3, found {text:?}"))
}

/// A number or a range of numbers, as in `1-3`, all within `allowed`.
fn span(text: &str, allowed: RangeInclusive<u32>) -> Option<RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first: u32 = first.trim().parse().ok()?;
    let last: u32 = last.trim().parse().ok()?;
    let sound = first <= last && allowed.contains(&first) && allowed.contains(&last);
    sound.then_some(first..=last)
}

/// The request, resolved for this machine.
struct Question {
    places: MeasurementPus,
    rates: Vec<f64>,
    rows: u32,
    copies: Vec<u32>,
    machine: Option<Machine>,
}

/// Runs `colocate-study bench bandwidth`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let found = jobs::find(args.command.clone())?;
    // Fails before the measurement if a file could not be written.
    args.output.iter().chain(&args.svg).try_for_each(|path| colocate_files::has_place(path))?;
    let question = question(args)?;
    // Forks, so before the generators start their threads.
    let keeper = Keeper::start()?;
    let stop = stop_flag()?;
    let program = MeasuredProgram::new(found, question.places.program, keeper, stop)?;
    let report = measured(args, &question, program)?;
    // Both are tried: hours of measurement are not lost if one file cannot be written.
    let kept = keep(args, &report);
    let drawn = draw(args, &report);
    kept.and(drawn)?;
    Ok(ExitCode::SUCCESS)
}

fn keep(args: &Args, report: &BandwidthReport) -> anyhow::Result<()> {
    let shown = if args.json { printable::json(report) } else { text::text(report, args.memory) };
    output::keep(args.output.as_deref(), &shown, FileMode::Private)
}

fn draw(args: &Args, report: &BandwidthReport) -> anyhow::Result<()> {
    let Some(path) = &args.svg else { return Ok(()) };
    let picture = curve::svg(&[text::curves(report)]).map_err(anyhow::Error::msg)?;
    output::write(Some(path), &picture)
}

fn question(args: &Args) -> anyhow::Result<Question> {
    let usable = harness::usable()?;
    let machine = harness::machine(args.quiet);
    let cpus: Vec<u32> = args.cpus.iter().cloned().flatten().collect();
    let cpus = Some(cpus).filter(|cpus| !cpus.is_empty());
    let asked: BTreeSet<u32> = args.copies.iter().cloned().flatten().collect();
    let most = asked.last().copied();
    let places = places::places(machine.as_ref(), &usable, cpus, args.level, most)?;
    let rows = rows(args, machine.as_ref(), places.program)?;
    // Unknown memory refuses no number of copies.
    let meminfo = kernel::read_text(Path::new("/proc/meminfo")).unwrap_or_default();
    places::check_memory(&meminfo, places.copies.len(), rows)?;
    let all = (1..).take(places.copies.len());
    let copies = if asked.is_empty() { all.collect() } else { asked.into_iter().collect() };
    let mut rates = args.rates.clone();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    Ok(Question { places, rates, rows, copies, machine })
}

fn rows(args: &Args, machine: Option<&Machine>, pu: u32) -> anyhow::Result<u32> {
    let rows =
        args.rows.or_else(|| machine.and_then(|machine| places::rows(machine, pu, args.level)));
    match (rows, args.level) {
        (Some(rows), _) => Ok(rows),
        (None, RequestedLines::Memory) => {
            if !args.quiet {
                output::remark(
                    "the caches' sizes are unknown: copies traverse 108 MiB; see --rows",
                );
            }
            Ok(places::PUBLISHED_ROWS)
        }
        (None, RequestedLines::L2) => Err(exit::no_capability(format!(
            "the sizes of the first and second cache of PU {pu} are unknown: say with --rows how many rows \
                 of 576 bytes do not fit in the first"
        ))),
    }
}

fn measured(
    args: &Args,
    question: &Question,
    program: MeasuredProgram,
) -> anyhow::Result<BandwidthReport> {
    let started = input::unix_seconds();
    let before = idle::look(Path::new("/proc"));
    if let (Some(line), false) = (idle::warning(before), args.quiet) {
        output::remark(&line);
    }
    let generators = question.places.copies.iter().map(|&pu| Generator::start(pu, question.rows));
    let generators: Vec<Generator> = generators.collect::<Result<_, _>>()?;
    let rates = question.rates.iter().map(|&rate| calibrated(&generators[0], rate));
    let rates: Vec<RequestedRate> = rates.collect::<Result<_, _>>()?;
    let conditions = question
        .copies
        .iter()
        .flat_map(|&copies| question.rates.iter().map(move |&rate| Condition { rate, copies }));
    let conditions: Vec<Condition> = conditions.collect();
    // `None` is the program alone.
    let cells: Vec<_> = conditions.iter().copied().map(Some).chain([None]).collect();
    let nops = rates.iter().map(|rate| (rate.wanted, rate.nops)).collect();
    let mut here = LocalMeasurement { program, generators, nops };
    let random = &mut SplitMix64::new(args.seed);
    let taken = harness::rounds(&mut here, &cells, args.repeat, random, args.quiet)?;
    let runs = taken.into_iter().map(|Taken { round, cell, sample }: Taken<Measured>| TrafficRun {
        block: round,
        beside: cells[cell],
        wall_ns: sample.times.wall,
        cpu_ns: sample.times.cpu,
        copies: sample.copies,
    });
    let runs: Vec<TrafficRun> = runs.collect();
    Ok(BandwidthReport {
        version: 1,
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        level: args.level,
        processor: question.machine.as_ref().and_then(|machine| machine.processor.clone()),
        kernel: idle::kernel(Path::new("/proc")),
        started_unix_s: started,
        program_pu: question.places.program,
        copy_pus: question.places.copies.clone(),
        rows: question.rows,
        repeat: args.repeat,
        seed: args.seed,
        rates,
        before,
        after: idle::look(Path::new("/proc")),
        alone_cpu_s: traffic::alone(&runs, |run| run.cpu_ns),
        alone_wall_s: traffic::alone(&runs, |run| run.wall_ns),
        points: traffic::points(&runs, &conditions),
        loss: traffic::loss(&runs, args.repeat),
        least_share_of_pu: traffic::least_share(&runs),
        runs,
    })
}

fn calibrated(generator: &Generator, wanted: f64) -> anyhow::Result<RequestedRate> {
    let found = generator.calibrate(wanted);
    let nops = found.found.nops;
    let alone = found.found.rate();
    anyhow::ensure!(
        alone > 0.0,
        "a copy on PU {} never had it: others have all of it",
        generator.cpu()
    );
    Ok(RequestedRate { wanted, nops, alone, too_fast: found.too_fast })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_are_read() {
        assert_eq!((copies("3"), copies(" 1-4096")), (Ok(3..=3), Ok(1..=4096)));
        assert_eq!((cpus("0"), memory("12.5")), (Ok(0..=0), Ok(12.5)));
    }

    #[test]
    fn mistakes_are_named() {
        for text in ["", "0", "x", "nan", "-5", "10001"] {
            let expected = format!("expected t/µs from 0.1 to 10000, found {text}");
            assert_eq!(rate(text), Err(expected));
        }
        for text in ["", "0", "3-1", "1-5000", "x", "1-2-3"] {
            let expected =
                format!("expected numbers of copies from 1 to 4096, as in 1-3, found {text:?}");
            assert_eq!(copies(text), Err(expected));
        }
        assert_eq!(cpus("1-"), Err("expected PUs, as in 0,2-3, found \"1-\"".to_owned()));
        assert_eq!(memory("-1"), Err("expected t/µs from 0 to 1000000, found -1".to_owned()));
    }
}
