//! How long a policy takes to place tasks by which wakes which.
//!
//! `cargo run --release -p colocate-benches --bin communicating [SITUATIONS [POLICY]]` prints a table for docs/results/benchmarks.md: 64 tasks on 32 PUs and
//! 1,000 on 256 for `auto`, 8 on 8, 64 on 32 and 256 on 256 for `communication`, of which each wakes three others, drawn at random. A tenth of the tasks have other partners in each situation. Each
//! situation counts by the least time of several runs of the whole sequence, which are all the same. A second table has the stages of
//! `communication`, unless a policy is named.

#![allow(clippy::print_stdout)] // a benchmark's result is what it prints

use anyhow::Context;
use colocate_benches::{ALIKE, cpu_ms, machine, yardstick};
use colocate_evidence::{JobIdx, SourceReports, TaskId, WakeUps};
use colocate_machine::{Machine, Nanos, PuIdx};
use colocate_model::communication::WakeUpCosts;
use colocate_model::rng::SplitMix64;
use colocate_policy::communication::filter::Filter;
use colocate_policy::communication::mapping::{are_symmetric, mapping};
use colocate_policy::communication::matrix::Matrix;
use colocate_policy::communication::seen;
use colocate_policy::places::UsableMachine;
use colocate_policy::schedule::{Quantum, QueuedJob, Thread};
use colocate_policy::{Evidence, Knowledge, PolicySpec};
use std::collections::BTreeMap;

/// Runs of the sequence; the fastest run counts for each situation.
const RUNS: usize = 7;
/// Partners that a task wakes.
const PARTNERS: usize = 3;
/// Time between two situations.
const PERIOD: Nanos = Nanos::from_millis(500);

/// Policies, and the time limit of a decision, in µs.
type Limits = &'static [(&'static str, f64)];
/// Packages, cores of a package with two PUs each, tasks, and policies.
const SIZES: [(usize, usize, u32, Limits); 4] = [
    (1, 4, 8, &[("communication", 20.0)]),
    (1, 16, 64, &[("auto", 100.0), ("communication", 1_000.0)]),
    (2, 64, 256, &[("communication", 20_000.0)]),
    (2, 64, 1_000, &[("auto", 3_000.0)]),
];

fn main() -> anyhow::Result<()> {
    let situations = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(60);
    let named = std::env::args().nth(2);
    println!("yardstick before: {:.2} steps/ns", yardstick());
    println!("| policy | tasks | PUs | median, µs | largest, µs | limit, µs | |");
    println!("|---|--:|--:|--:|--:|--:|---|");
    for (packages, cores, tasks, policies) in SIZES {
        let machine = shaped(packages, cores)?;
        let is_named = |(policy, _): &&(&str, f64)| named.as_deref().is_none_or(|it| it == *policy);
        for (policy, limit) in policies.iter().filter(is_named) {
            let (median, largest) = times(policy, &machine, tasks, situations);
            let kept = if largest <= *limit { "" } else { "not reached" };
            let pus = machine.pus.len();
            println!(
                "| `{policy}` | {tasks} | {pus} | {median:.1} | {largest:.1} | {limit:.0} | {kept} |"
            );
        }
    }
    if named.is_none() {
        print_stages(situations)?;
    }
    println!("yardstick after: {:.2} steps/ns", yardstick());
    Ok(())
}

fn print_stages(situations: usize) -> anyhow::Result<()> {
    println!("| tasks | {} |\n|---{}|", STAGES.join(" | "), "|--:".repeat(STAGES.len()));
    for (packages, cores, tasks, _) in SIZES {
        let machine = shaped(packages, cores)?;
        let medians = stages(&machine, tasks, situations).map(|median| format!("{median:.1}"));
        println!("| {tasks} | {} |", medians.join(" | "));
    }
    Ok(())
}

fn shaped(packages: usize, cores: usize) -> anyhow::Result<Machine> {
    let cache = "[[cache]]\nlevel = 3\nkind = \"unified\"\nsize = \"16 MiB\"\ncores = 4\n";
    machine(packages, cores, "siblings-last", &(cache.to_owned() + ALIKE))
        .context("describe a machine")
}

/// Stages of `communication`: new wake-ups since the last decision; aging of known ones; the filter
/// for changed and uneven communication; a PU for each task; the comparison with the last mapping.
const STAGES: [&str; 5] = ["new", "aging", "filter", "mapping", "symmetry"];

/// The median time of each stage, in µs, each situation by its least of several runs.
fn stages(machine: &Machine, tasks: u32, situations: usize) -> [f64; STAGES.len()] {
    let pus: Vec<PuIdx> = machine.all_pus().collect();
    let places = UsableMachine::new(machine, &pus);
    let wake_up = WakeUpCosts::default().most();
    let mut least = vec![[f64::INFINITY; STAGES.len()]; situations];
    for _ in 0..RUNS {
        let mut traffic = Drawn::new(tasks);
        let mut seen_before = Matrix::default();
        let mut known = Matrix::default();
        let mut filter = Filter::default();
        let mut before = Vec::new();
        for least in &mut least {
            let wake_ups = traffic.goes_on();
            let (first, (now, new)) = cpu_ms(1, || {
                let now = seen::seconds(&wake_ups, wake_up, &[]);
                let new = seen::since(&now, &seen_before);
                (now, new)
            });
            let (second, aged) = cpu_ms(1, || known.aged(filter.aging(), &new));
            seen_before = now;
            known = aged;
            let named = known.tasks();
            let (third, _) = cpu_ms(1, || filter.passes(&known, named.len(), pus.len(), wake_up));
            let (fourth, seats) = cpu_ms(1, || mapping(&known, &named, &places));
            let (fifth, _) = cpu_ms(1, || are_symmetric(&places, &seats, &before));
            before = seats;
            for (least, ms) in least.iter_mut().zip([first, second, third, fourth, fifth]) {
                *least = least.min(ms * 1000.0);
            }
        }
    }
    std::array::from_fn(|stage| {
        let mut times: Vec<f64> = least.iter().map(|times| times[stage]).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    })
}

/// Median and largest time of a decision, in µs.
fn times(policy: &str, machine: &Machine, tasks: u32, situations: usize) -> (f64, f64) {
    let mut least = vec![f64::INFINITY; situations];
    for _ in 0..RUNS {
        let mut traffic = Drawn::new(tasks);
        let mut policy = PolicySpec::named(policy).policy(&Knowledge::default());
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        for (number, least) in (0..).zip(&mut least) {
            let queue = traffic.queue(machine);
            let wake_ups = traffic.goes_on();
            let now = Quantum { number, machine, pus: &pus, queue: &queue };
            let at = Nanos(PERIOD.0 * (number + 1));
            let reports = SourceReports { wake_ups: Some(wake_ups), ..SourceReports::NONE };
            let evidence = Evidence { at, reports: &reports, ..Evidence::of_queue(now) };
            let (ms, _) = cpu_ms(1, || policy.decide(&evidence));
            *least = least.min(ms * 1000.0);
        }
    }
    least.sort_by(f64::total_cmp);
    (least[least.len() / 2], least[least.len() - 1])
}

/// Tasks that wake each other.
struct Drawn {
    rng: SplitMix64,
    partners: Vec<Vec<u32>>,
    sums: BTreeMap<(u32, u32), u64>,
}

impl Drawn {
    fn new(tasks: u32) -> Self {
        let mut drawn =
            Self { rng: SplitMix64::new(1), partners: Vec::new(), sums: BTreeMap::new() };
        drawn.partners = (0..tasks).map(|_| drawn.draw(tasks)).collect();
        drawn
    }

    fn draw(&mut self, tasks: u32) -> Vec<u32> {
        let drawn = (0..PARTNERS).map(|_| self.rng.below(tasks as usize));
        drawn.map(|task| u32::try_from(task).expect("few")).collect()
    }

    /// A period passes.
    fn goes_on(&mut self) -> Vec<WakeUps> {
        let tasks = u32::try_from(self.partners.len()).expect("few");
        for task in 0..tasks {
            if self.rng.below(10) == 0 {
                self.partners[task as usize] = self.draw(tasks);
            }
            for partner in self.partners[task as usize].clone() {
                let more = 1 + self.rng.below(2_000) as u64;
                *self.sums.entry((task, partner)).or_default() += more;
            }
        }
        let wake_ups = self.sums.iter().map(|(&(waker, wakee), &count)| WakeUps {
            waker: Some(task(waker)),
            wakee: task(wakee),
            count,
            same_pu: Some(0),
            waited: Some(Nanos(count * 30_000)),
            both_ran: Some(Nanos(count * 1_000)),
            turns_apart: None,
            turns_together: None,
        });
        wake_ups.collect()
    }

    fn queue(&self, machine: &Machine) -> Vec<QueuedJob> {
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let tasks = u32::try_from(self.partners.len()).expect("few");
        let threads = (0..tasks).map(|order| Thread {
            id: task(order),
            ran: None,
            pu: Some(pus[order as usize % pus.len()]),
            runnable: Some(0.2),
            bound: false,
        });
        vec![QueuedJob {
            job: JobIdx(0),
            threads: threads.collect(),
            runnable: None,
            just_ran: true,
            had_own_cores: false,
        }]
    }
}

fn task(order: u32) -> TaskId {
    TaskId { job: JobIdx(0), order }
}
