//! `colocate-study bench smt`: arguments, and their meaning on this machine.

use super::scenario_text;
use colocate_cli::measure::beside::LocalBench;
use colocate_cli::measure::harness::{self, list};
use colocate_cli::measure::scenarios;
use colocate_cli::{args, exit, output};
use colocate_files::FileMode;
use colocate_machine::{Machine, PuSet, printable};
use smt_bench::{Kernel, KernelSpec};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Times kernels that load one execution unit each, alone and beside each other on two PUs
///
/// Scenario A is a kernel alone, B the same kernel on both PUs, C two different kernels. Times are
/// relative to A. Without --cpus, two PUs of one core are taken, or the first two usable ones if
/// the topology shows no such core.
#[derive(clap::Args)]
pub struct Args {
    /// The two PUs to use, by the kernel's numbers
    #[arg(long, value_name = "LIST", value_parser = PuSet::parse_list)]
    cpus: Option<PuSet>,

    /// Time of one measurement [range: 0.001-60]
    #[arg(long, value_name = "S", default_value_t = 0.1, value_parser = seconds)]
    seconds: f64,

    /// Repetitions [range: 1-1000]
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// Kernels, separated by commas, or "all" for the paper's eight and int-div-tp
    /// [default: the paper's eight]
    #[arg(long, value_name = "LIST", value_parser = kernels)]
    kernels: Option<Kernels>,

    /// Seed of the order of measurements
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Show also the time of each kernel beside each
    #[arg(long)]
    matrix: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone)]
struct Kernels(Vec<KernelSpec>);

fn kernels(text: &str) -> Result<Kernels, String> {
    if text == "all" {
        return Ok(Kernels(Kernel::ALL.map(KernelSpec::from).to_vec()));
    }
    let mut list = Vec::new();
    for name in text.split(',') {
        let workload: KernelSpec = name.trim().parse()?;
        if list.contains(&workload) {
            return Err(format!("{workload} is named twice"));
        }
        list.push(workload);
    }
    Ok(Kernels(list))
}

fn seconds(text: &str) -> Result<f64, String> {
    args::seconds(text, 0.001..=60.0).map(|time| time.as_secs_f64())
}

/// Runs `colocate-study bench smt`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    args.output.as_deref().map_or(Ok(()), colocate_files::has_place)?;
    let usable = harness::usable()?;
    let asked = harness::asked(args.cpus.as_ref().map(harness::numbers), &usable)?;
    let claimed = harness::machine(false).map(|machine| claimed(&machine, &asked));
    let pus = two(&asked, args.cpus.is_some(), claimed.as_deref().unwrap_or_default())?;
    let share = claimed.map(|sets| sets.iter().any(|set| pus.iter().all(|pu| set.contains(pu))));
    let text = measure(args, pus, share)?;
    output::keep(args.output.as_deref(), &text, FileMode::ByUmask)?;
    Ok(ExitCode::SUCCESS)
}

/// Sets of at least two of `pus` that share a core by the topology.
fn claimed(machine: &Machine, pus: &[u32]) -> Vec<Vec<u32>> {
    let cores = machine.core_sets();
    let sets = cores.iter().map(|core| -> Vec<u32> {
        harness::numbers(core).into_iter().filter(|pu| pus.contains(pu)).collect()
    });
    let mut sets: Vec<_> = sets.filter(|set| set.len() > 1).collect();
    sets.sort();
    sets
}

/// The PUs of the scenarios.
fn two(asked: &[u32], named: bool, claimed: &[Vec<u32>]) -> anyhow::Result<[u32; 2]> {
    match (asked, claimed) {
        (&[a, b], _) => Ok([a, b]),
        (_, _) if named => Err(exit::usage(format!(
            "--cpus: expected two different PUs, found {}",
            if asked.is_empty() { "none".to_owned() } else { list(asked) }
        ))),
        (_, [core, ..]) => Ok([core[0], core[1]]),
        (&[a, b, ..], []) => Ok([a, b]),
        (few, []) => Err(exit::no_capability(format!(
            "bench smt needs two usable PUs, found {}: widen the affinity mask or cpuset",
            if few.is_empty() { "none".to_owned() } else { format!("only {}", list(few)) }
        ))),
    }
}

fn measure(args: &Args, pus: [u32; 2], share_core: Option<bool>) -> anyhow::Result<String> {
    let kernels = args.kernels.clone();
    let Kernels(kernels) =
        kernels.unwrap_or_else(|| Kernels(Kernel::PAPER.map(KernelSpec::from).to_vec()));
    let Args { seconds, repeat, seed, .. } = *args;
    let settings = scenarios::MeasurementSettings { pus, share_core, seconds, repeat, seed };
    let mut here = LocalBench::new(Duration::from_secs_f64(seconds), &[4]);
    let report = scenarios::measure(&mut here, settings, &kernels)?;
    Ok(if args.json { printable::json(&report) } else { scenario_text::text(&report, args.matrix) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_cli::exit::{Failure, NO_CAPABILITY};
    use colocate_machine::read;

    #[test]
    fn siblings_are_preferred() {
        let core = || vec![vec![1, 5]];
        assert_eq!(two(&[0, 1, 4, 5], false, &core()).unwrap(), [1, 5]);
        assert_eq!(two(&[0, 1, 4], false, &[]).unwrap(), [0, 1]);
        assert_eq!(two(&[0, 4], true, &core()).unwrap(), [0, 4]);
    }

    #[test]
    fn two_pus_are_needed() {
        let code = |done: anyhow::Result<[u32; 2]>| {
            let error = done.unwrap_err();
            (error.downcast_ref::<Failure>().unwrap().code, error.to_string())
        };
        assert_eq!(
            code(two(&[4], false, &[])),
            (
                NO_CAPABILITY,
                "bench smt needs two usable PUs, found only 4: widen the affinity mask or cpuset"
                    .to_owned()
            )
        );
        let expected = "--cpus: expected two different PUs, found 0-2".to_owned();
        assert_eq!(code(two(&[0, 1, 2], true, &[])), (2, expected));
    }

    #[test]
    fn lists_of_kernels() {
        let names = |text: &str| kernels(text).map(|Kernels(list)| list.len());
        assert_eq!((names("all"), names("fp-add, load-dep:32,load-dep")), (Ok(9), Ok(3)));
        assert_eq!(names("fp-add,fp-add"), Err("fp-add is named twice".to_owned()));
        assert!(names("fp-add,").unwrap_err().starts_with("unknown kernel \"\": expected one of"));
    }

    /// Two packages of two cores of two PUs, numbered as hwloc's synthetic machines are: in order.
    #[test]
    fn claims_come_from_the_cores() {
        let machine = read::synthetic("pack:2 core:2 pu:2").unwrap();
        assert_eq!(claimed(&machine, &[0, 1, 3, 6, 7]), [vec![0, 1], vec![6, 7]]);
    }
}
