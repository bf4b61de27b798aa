//! How long a scheduler takes to decide which jobs run in the next quantum, and where.
//!
//! `cargo run --release -p colocate-benches --bin deciding [SITUATIONS [SCHEDULER…]]` prints a table for
//! docs/results/benchmarks.md: every scheduler, or those that are named, 64 jobs on 32 PUs and 500 on 256; `symbiotic`
//! also with `gain=0`, where a proof that nothing better is worth it never spares the search. A situation follows from the one
//! before: jobs that were selected ran there, go to the tail of the queue and have new rates, which are drawn. Each
//! situation counts by the least time of several runs of the whole sequence, which are all the same;
//! the table has median and largest over the situations. Schedulers for fast and slow cores have a machine of which every
//! fourth core is fast, and half of the jobs are in serial phases, others each quantum.

#![allow(clippy::print_stdout)] // a benchmark's result is what it prints

use anyhow::Context;
use colocate_benches::{ALIKE, cpu_ms, yardstick};
use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::{CoreIdx, Machine, Nanos, PuIdx};
use colocate_model::rng::SplitMix64;
use colocate_model::symbiosis::file::SIMULATED_PARTS;
use colocate_policy::schedule::{Quantum, QuantumOutcome, QueuedJob, Rates, Thread, Traffic};
use colocate_policy::table::{self, Cadence};
use colocate_policy::{Evidence, Knowledge, Place, Plan, Policy, PolicySpec, SoloProfile};
use std::collections::{BTreeMap, BTreeSet};

/// Runs of the sequence; the fastest run counts for each situation.
const RUNS: usize = 7;

/// Size of a decision: packages and cores of a package (two PUs a core, four cores a last-level
/// cache), jobs, most threads of a job, and the time limit of a decision in µs.
struct Size {
    packages: usize,
    cores: usize,
    jobs: u32,
    threads: usize,
    limit_us: f64,
}

const SIZES: [Size; 4] = [
    Size { packages: 1, cores: 16, jobs: 64, threads: 1, limit_us: 100.0 },
    Size { packages: 1, cores: 16, jobs: 64, threads: 4, limit_us: 100.0 },
    Size { packages: 2, cores: 64, jobs: 500, threads: 1, limit_us: 5_000.0 },
    Size { packages: 2, cores: 64, jobs: 500, threads: 4, limit_us: 5_000.0 },
];

/// Policies that search for better groups in every quantum, since any gain is worth a change.
const SEARCHING: [&str; 2] = ["symbiotic:gain=0", "symbiotic-numa:gain=0"];

fn main() -> anyhow::Result<()> {
    let situations = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200);
    let named: Vec<String> = std::env::args().skip(2).collect();
    let is_named = |kind: &PolicySpec| named.is_empty() || named.contains(&kind.to_string());
    println!("yardstick before: {:.2} steps/ns", yardstick());
    println!("| scheduler | jobs | threads each | PUs | median, µs | largest, µs | limit, µs | |");
    println!("|---|---|---|---|---|---|---|---|");
    for size in &SIZES {
        let alike = machine(size, ALIKE).context("describe a machine")?;
        let hybrid = machine(size, &hybrid(size)).context("describe a machine")?;
        let searching = SEARCHING.iter().map(|name| PolicySpec::named(name));
        for kind in table::each_quantum().chain(searching).filter(is_named) {
            row(size, if is_for_hybrids(&kind) { &hybrid } else { &alike }, &kind, situations);
        }
    }
    println!("yardstick after: {:.2} steps/ns", yardstick());
    Ok(())
}

fn row(size: &Size, machine: &Machine, kind: &PolicySpec, situations: u64) {
    let mut least = vec![f64::INFINITY; usize::try_from(situations).expect("few")];
    for _ in 0..RUNS {
        let mut rng = SplitMix64::new(1);
        let mut jobs: Vec<QueuedJob> =
            (0..size.jobs).map(|job| new_job(job, size, &mut rng)).collect();
        let alone: Vec<SoloProfile> = jobs.iter().map(|_| drawn_alone(&mut rng)).collect();
        let mut policy = kind.policy(&Knowledge { alone: &alone, ..Knowledge::default() });
        for (number, least) in (0..).zip(&mut least) {
            let (us, plan) = decide(&mut *policy, machine, number, &jobs);
            *least = least.min(us);
            run(machine, &mut jobs, &plan, &mut rng);
            if is_for_hybrids(kind) {
                jobs.iter_mut().for_each(|job| draw_phase(job, &mut rng));
            }
        }
    }
    least.sort_by(f64::total_cmp);
    let median = least[least.len() / 2];
    let largest = least[least.len() - 1];
    let threads = if size.threads == 1 { "1".to_owned() } else { format!("1 to {}", size.threads) };
    let kept = if largest <= size.limit_us { "" } else { "not reached" };
    println!(
        "| {kind} | {} | {threads} | {} | {median:.1} | {largest:.1} | {:.0} | {kept} |",
        size.jobs,
        machine.pus.len(),
        size.limit_us,
    );
}

/// Microseconds, and the plan.
fn decide(
    policy: &mut dyn Policy,
    machine: &Machine,
    number: u64,
    queue: &[QueuedJob],
) -> (f64, Plan) {
    let pus: Vec<PuIdx> = machine.all_pus().collect();
    let now = Quantum { number, machine, pus: &pus, queue };
    let last = (number > 0).then_some(QuantumOutcome {
        took: Nanos::from_millis(200),
        did: &[],
        throttled: false,
    });
    let (ms, plan) = cpu_ms(1, || policy.decide(&Evidence { last, ..Evidence::of_queue(now) }));
    (ms * 1000.0, plan)
}

/// Whether a policy leaves everything to the kernel where all cores are alike.
fn is_for_hybrids(kind: &PolicySpec) -> bool {
    !kind.waits() && kind.row().cadence == Cadence::EachQuantum
}

/// Makes one thread runnable, or all.
fn draw_phase(job: &mut QueuedJob, rng: &mut SplitMix64) {
    let serial = rng.below(2) == 0;
    for (at, thread) in job.threads.iter_mut().enumerate() {
        thread.runnable = Some(if serial && at > 0 { 0.0 } else { 1.0 });
    }
    job.runnable = job.threads.iter().map(|thread| thread.runnable).sum();
}

/// Every fourth core is twice as fast.
fn hybrid(size: &Size) -> String {
    let (fast, slow): (Vec<usize>, Vec<usize>) =
        (0..size.packages * size.cores).partition(|core| core.is_multiple_of(4));
    kind("slow", &slow, 512) + &kind("fast", &fast, 1024)
}

/// A kind of cores as text of a described machine.
fn kind(name: &str, cores: &[usize], capacity: u32) -> String {
    let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
    let cores = cores.join(",");
    format!("[[kind]]\nname = \"{name}\"\ncores = \"{cores}\"\ncapacity = {capacity}\n")
}

/// Caches of `kib` KiB for `cores` cores each, as text of a described machine.
fn cache(level: u8, kind: &str, kib: u32, cores: u8) -> String {
    format!(
        "[[cache]]\nlevel = {level}\nkind = \"{kind}\"\nsize = \"{kib} KiB\"\ncores = {cores}\n"
    )
}

/// A machine with caches of three levels and these kinds of cores.
fn machine(size: &Size, kinds: &str) -> anyhow::Result<Machine> {
    let Size { packages, cores, .. } = size;
    let caches = [
        cache(1, "data", 32, 1),
        cache(1, "instruction", 32, 1),
        cache(2, "unified", 512, 1),
        cache(3, "unified", 16 << 10, 4),
    ];
    colocate_benches::machine(*packages, *cores, "siblings-last", &(caches.concat() + kinds))
}

/// A job that has run once, at an unknown place.
fn new_job(job: u32, size: &Size, rng: &mut SplitMix64) -> QueuedJob {
    let job = JobIdx(job);
    let count = u32::try_from(1 + rng.below(size.threads)).expect("few");
    let threads = (0..count).map(|order| Thread {
        id: TaskId { job, order },
        ran: None,
        pu: None,
        runnable: None,
        bound: false,
    });
    let mut queued = QueuedJob {
        job,
        threads: threads.collect(),
        runnable: None,
        just_ran: false,
        had_own_cores: false,
    };
    queued.threads.iter_mut().for_each(|thread| thread.ran = Some(drawn_ran(rng)));
    queued
}

/// Rates over four orders of magnitude: of programs served by caches and of streaming programs.
fn drawn_ran(rng: &mut SplitMix64) -> Rates {
    let first = 100.0 + 2_000.0 * rng.unit();
    let second = first * rng.unit() * 0.2;
    let third = second * rng.unit();
    let traffic = Traffic {
        caches: [Some(first), Some(second), Some(third), None],
        memory: Some(third * rng.unit()),
    };
    let parts: Vec<f64> = SIMULATED_PARTS.iter().map(|_| rng.unit()).collect();
    let all: f64 = parts.iter().sum();
    let stack = Some(parts.into_iter().map(|part| part / all).collect());
    Rates { ipc: Some(0.1 + 2.0 * rng.unit()), traffic, stack, parts: &SIMULATED_PARTS }
}

fn drawn_alone(rng: &mut SplitMix64) -> SoloProfile {
    SoloProfile {
        seconds: 10.0 + 100.0 * rng.unit(),
        memory: 60.0 * rng.unit() * rng.unit(),
        first_cache: Some(100.0 + 2_000.0 * rng.unit()),
        loss: 0.01 * rng.unit(),
    }
}

/// Runs the chosen jobs and moves them to the tail.
fn run(machine: &Machine, jobs: &mut [QueuedJob], plan: &Plan, rng: &mut SplitMix64) {
    let index = |place: Place| place.pu().and_then(|pu| machine.pu_by_os(pu));
    let running = plan.decisions.iter().filter(|decision| decision.place != Place::Waiting);
    let on: BTreeMap<TaskId, Option<PuIdx>> =
        running.map(|decision| (decision.task, index(decision.place))).collect();
    let mut owners: BTreeMap<CoreIdx, BTreeSet<JobIdx>> = BTreeMap::new();
    for (task, pu) in &on {
        if let Some(pu) = pu {
            owners.entry(machine.core_of(*pu)).or_default().insert(task.job);
        }
    }
    for job in jobs.iter_mut() {
        job.just_ran = on.contains_key(&job.threads[0].id);
        if !job.just_ran {
            continue;
        }
        let is_own =
            |pu: Option<PuIdx>| pu.is_some_and(|pu| owners[&machine.core_of(pu)].len() == 1);
        job.had_own_cores = job.threads.iter().all(|thread| is_own(on[&thread.id]));
        for thread in &mut job.threads {
            thread.pu = on[&thread.id];
            thread.ran = Some(drawn_ran(rng));
        }
    }
    jobs.sort_by_key(|job| job.just_ran);
}
