//! `colocate bench cores`: how fast each core is, whatever is reported of it.
//!
//! Every round visits each PU once, in random order, and does the same portions of work there
//! (`smt_bench::speed`). What comes of it is a [`CoreSpeeds`], which `colocate schedule --core-speeds` reads.

mod figures;
mod text;

use crate::compare::idle;
use crate::exit::Failure;
use crate::output::{self, Bar};
use anyhow::Context;
use colocate_files::Mode;
use colocate_machine::measured::{CoreSpeeds, VERSION, cores_of, disagreements};
use colocate_machine::read::Sysfs;
use colocate_machine::{Machine, Nanos, PuNr, PuSet, read};
use colocate_study::order;
use figures::Measured;
use smt_bench::speed::{self, Length, Portion, Visit};
use smt_bench::thread;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Times a fixed piece of work on each PU, and says which cores are fast and which slow
///
/// What counts is the time on the wall: a PU that others hold half of the time is half as fast for whoever runs
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
    let found = text.parse().ok().filter(|s| (0.001..=10.0).contains(s));
    found.ok_or_else(|| format!("expected seconds from 0.001 to 10, found {text}"))
}

/// Runs `colocate bench cores`.
///
/// # Errors
/// If the PUs asked for cannot be used, the machine cannot be read or the output cannot be written.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    args.output.as_deref().map_or(Ok(()), colocate_files::has_place)?;
    let usable = thread::usable().context("cannot tell which PUs may be used")?;
    let machine = read::live()?;
    let pus = asked(args.cpus.as_ref(), &usable)?;
    in_cores(&machine, &pus)?;
    let speeds = measured(args, &machine, &pus)?;
    let text = if args.json { speeds.to_json() } else { text::text(&speeds) };
    output::keep(args.output.as_deref(), &text, Mode::ByUmask)?;
    Ok(ExitCode::SUCCESS)
}

/// The PUs to measure, in ascending order.
fn asked(cpus: Option<&PuSet>, usable: &[u32]) -> anyhow::Result<Vec<u32>> {
    let asked: Vec<u32> =
        cpus.map_or_else(|| usable.to_vec(), |cpus| cpus.iter().map(|pu| pu.0).collect());
    let usable: PuSet = usable.iter().map(|&pu| PuNr(pu)).collect();
    let lost: PuSet = asked.iter().map(|&pu| PuNr(pu)).filter(|&pu| !usable.contains(pu)).collect();
    let message = if asked.is_empty() {
        format!("--cpus: expected PUs, of {usable}, found none")
    } else if lost.is_empty() {
        return Ok(asked);
    } else {
        format!(
            "--cpus: {lost} cannot be used: expected PUs that are online and in the inherited affinity mask and \
             cpuset, which are {usable}"
        )
    };
    Err(Failure { code: 2, message }.into())
}

/// Whether the topology has a core for each of `pus`: where /sys is not mounted it may have other numbers.
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
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let before = idle::look(Path::new("/proc"));
    let timed = Duration::from_secs_f64(args.seconds);
    let bar = Bar::new(
        pus.len() as u64 * u64::from(args.repeat),
        "{bar:40} {pos}/{len} visits, {eta} left",
        false,
    );
    let mut here = Here {
        portion: speed::portion(pus[0]).context("cannot measure")?,
        length: Length { warm_up: timed / 6, timed },
    };
    let visits = rounds(&mut here, pus, args.repeat, args.seed, || bar.advance(1))?;
    bar.clear();
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

/// PUs that can be visited: those of this machine, or pretended ones in tests.
trait Visits {
    /// Does portions on PU `pu`.
    ///
    /// # Errors
    /// If it cannot be used.
    fn visit(&mut self, pu: u32) -> anyhow::Result<Visit>;
}

/// This machine.
struct Here {
    portion: Portion,
    length: Length,
}

impl Visits for Here {
    fn visit(&mut self, pu: u32) -> anyhow::Result<Visit> {
        speed::visit(pu, self.portion, self.length).context("cannot measure")
    }
}

/// What `repeat` visits to each of `pus` found: for each PU, its visits by round. Every round visits all of them in
/// an order of its own, so that what drifts hits all alike.
fn rounds(
    visits: &mut impl Visits,
    pus: &[u32],
    repeat: u32,
    seed: u64,
    mut progress: impl FnMut(),
) -> anyhow::Result<Vec<Vec<Visit>>> {
    let mut found = vec![Vec::new(); pus.len()];
    for slot in order::blocks(pus.len(), repeat, seed) {
        found[slot.policy].push(visits.visit(pus[slot.policy])?);
        progress();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usable_pus_are_the_default() {
        assert_eq!(asked(None, &[0, 3]).unwrap(), [0, 3]);
        let set = PuSet::parse_list("3").unwrap();
        assert_eq!(asked(Some(&set), &[0, 3]).unwrap(), [3]);
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        let told = |list: &str| {
            asked(Some(&PuSet::parse_list(list).unwrap()), &[0, 1, 2, 3]).unwrap_err().to_string()
        };
        assert_eq!(
            told("0,5-6"),
            "--cpus: 5-6 cannot be used: expected PUs that are online and in the inherited affinity mask and \
             cpuset, which are 0-3"
        );
        assert_eq!(told(""), "--cpus: expected PUs, of 0-3, found none");
    }

    #[test]
    fn pus_without_a_core_are_refused_before_anything_is_measured() {
        let machine = read::open("xeon-x3320").unwrap();
        assert!(in_cores(&machine, &[0, 3]).is_ok());
        assert_eq!(
            in_cores(&machine, &[0, 4, 5]).unwrap_err().to_string(),
            "expected PUs that are in cores (colocate topo), found 4-5 in none: measure the others with --cpus"
        );
    }

    #[test]
    fn seconds_have_a_range() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for wrong in ["0", "11", "-1", "nan", "x"] {
            let expected = format!("expected seconds from 0.001 to 10, found {wrong}");
            assert_eq!(seconds(wrong), Err(expected));
        }
    }

    /// Notes who was visited, and fails at PU 9.
    struct Noting(Vec<u32>);

    impl Visits for Noting {
        fn visit(&mut self, pu: u32) -> anyhow::Result<Visit> {
            anyhow::ensure!(pu != 9, "no PU 9");
            self.0.push(pu);
            let portions = self.0.len() as u64;
            Ok(Visit { portions, wall_ns: 1, cpu_ns: 1, additions: 1, additions_cpu_ns: 1 })
        }
    }

    #[test]
    fn every_round_visits_every_pu_once() {
        let mut noting = Noting(Vec::new());
        let mut progress = 0;
        let found = rounds(&mut noting, &[0, 2, 5], 4, 7, || progress += 1).unwrap();
        assert_eq!((noting.0.len(), progress), (12, 12));
        for (round, visited) in noting.0.chunks(3).enumerate() {
            for (place, pu) in [0, 2, 5].into_iter().enumerate() {
                let at = visited.iter().position(|&found| found == pu).unwrap();
                assert_eq!(found[place][round].portions, (3 * round + at + 1) as u64);
            }
        }
        assert_eq!(rounds(&mut noting, &[9], 3, 1, || ()).unwrap_err().to_string(), "no PU 9");
    }
}
