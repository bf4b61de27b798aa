//! `colocate-study bench cores`: measured speed of each core, independent of reported capacities.
//!
//! Every round visits each PU once, in random order, and does the same portions of work there
//! (`smt_bench::speed`). The result is a [`CoreSpeeds`], which `colocate schedule --core-speeds`
//! reads.

mod figures;
mod text;

use anyhow::Context;
use colocate_cli::idle;
use colocate_cli::measure::harness::{self, Measurement};
use colocate_cli::{args, exit, input, output};
use colocate_figures::stats::Random;
use colocate_files::Mode;
use colocate_machine::measured::{CoreSpeeds, VERSION, cores_of, disagreements};
use colocate_machine::read::Sysfs;
use colocate_machine::{Machine, Nanos, PuNr, PuSet, read};
use figures::Measured;
use smt_bench::speed::{self, Length, Portion, Visit};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Times a fixed piece of work on each PU, and says which cores are fast and which slow
///
/// What counts is the time on the wall: a PU that others hold half of the time is half as fast for what runs
/// there. How fast it is while it has the PU is said as well, and what firmware and kernel report. Threads that
/// measure are placed; nothing else is, and nothing stays. Without --json a table is printed.
#[derive(clap::Args)]
pub struct Args {
    /// PUs to measure, by the kernel's numbers [default: all usable ones]
    #[arg(long, value_name = "LIST", value_parser = PuSet::parse_list)]
    cpus: Option<PuSet>,

    /// Visits to each PU [range: 3-1000]
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=1000))]
    repeat: u32,

    /// Time of one visit, after a warm-up of a sixth of that [range: 0.001-10]
    #[arg(long, value_name = "S", default_value_t = 0.06, value_parser = seconds)]
    seconds: f64,

    /// Seed of the order of visits
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print JSON, which colocate schedule --core-speeds reads
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    args::seconds(text, 0.001..=10.0).map(|time| time.as_secs_f64())
}

/// Runs `colocate-study bench cores`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    args.output.as_deref().map_or(Ok(()), colocate_files::has_place)?;
    let usable = harness::usable()?;
    let machine = read::live()?;
    let pus = harness::asked(args.cpus.as_ref().map(harness::numbers), &usable)?;
    if pus.is_empty() {
        let usable = harness::list(&usable);
        return Err(exit::usage(format!("--cpus: expected PUs, of {usable}, found none")));
    }
    in_cores(&machine, &pus)?;
    let speeds = measured(args, &machine, &pus)?;
    let text = if args.json { speeds.to_json() } else { text::text(&speeds) };
    output::keep(args.output.as_deref(), &text, Mode::ByUmask)?;
    Ok(ExitCode::SUCCESS)
}

/// Checks that the topology has a core for each of `pus`: without /sys its numbers may differ.
fn in_cores(machine: &Machine, pus: &[u32]) -> anyhow::Result<()> {
    let places = machine.places();
    let lost: PuSet =
        pus.iter().map(|&pu| PuNr(pu)).filter(|pu| !places.contains_key(pu)).collect();
    anyhow::ensure!(
        lost.is_empty(),
        "expected PUs that are in cores (colocate topo), found {lost} in none: measure the others with --cpus"
    );
    Ok(())
}

fn measured(args: &Args, machine: &Machine, pus: &[u32]) -> anyhow::Result<CoreSpeeds> {
    let started = input::unix_seconds();
    let before = idle::look(Path::new("/proc"));
    let timed = Duration::from_secs_f64(args.seconds);
    let mut visits = Visits {
        portion: speed::portion(pus[0]).context("cannot measure")?,
        length: Length { warm_up: timed / 6, timed },
    };
    let random = &mut Random::new(args.seed);
    let taken = harness::rounds(&mut visits, pus, args.repeat, random, false)?;
    let visits = harness::by_cell(taken, pus.len());
    let numbers: Vec<PuNr> = pus.iter().map(|&pu| PuNr(pu)).collect();
    let cores = cores_of(machine);
    let reported = Sysfs::at(Path::new("/")).reported(machine, &numbers);
    let Measured { pus, kinds } = figures::of(&cores, &numbers, &visits, reported)
        .context("expected a time of every visit above 0, found none")?;
    Ok(CoreSpeeds {
        version: VERSION,
        processor: machine.processor.clone(),
        kernel: idle::kernel(Path::new("/proc")),
        started_unix_s: started,
        rounds: args.repeat,
        visit_ns: Nanos::from(timed),
        seed: args.seed,
        others_runnable: before.others_runnable,
        cores,
        disagreements: disagreements(&pus, &kinds),
        pus,
        kinds,
    })
}

/// Visits to PUs of this machine, each with portions of the same size.
struct Visits {
    portion: Portion,
    length: Length,
}

impl Measurement for Visits {
    type Cell = u32;
    type Sample = Visit;
    const UNIT: &'static str = "visits";

    fn measure(&mut self, pu: &u32) -> anyhow::Result<Option<Visit>> {
        speed::visit(*pu, self.portion, self.length).map(Some).context("cannot measure")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pus_without_a_core_are_refused_before_anything_is_measured() {
        let machine = read::open("xeon-x3320").unwrap();
        assert!(in_cores(&machine, &[0, 3]).is_ok());
        assert_eq!(
            in_cores(&machine, &[0, 4, 5]).unwrap_err().to_string(),
            "expected PUs that are in cores (colocate topo), found 4-5 in none: measure the others with --cpus"
        );
    }
}
