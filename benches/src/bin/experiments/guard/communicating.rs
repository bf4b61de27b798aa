//! `auto` beside the kernel alone, on drawn workloads of threads that wake each other.
//!
//! # Terms
//! - *Effect* on a workload: the geometric mean over its jobs of a job's instructions under `auto` over those under the kernel,
//!   in the second half of the run, less 1.
//! # Algorithm
//! 1. Each workload once under the kernel, and once under `auto`.
//! 2. A workload that loses more than [`LIMIT`] is run [`FRESH`] times again both ways, with other seeds. It *surely* loses if
//!    the mean of these effects is beyond the limit by more than [`SURE`] standard errors.
//!
//! The environment sets `CASES`, so many workloads, from `FROM` on, and `GUARD=no`.

use super::cases::{between, one_of, shaped};
use super::number;
use super::runs::Runs;
use crate::common;
use colocate_engine::Round;
use colocate_engine::guard::{Guarding, StandingGuard};
use colocate_evidence::SourceSet;
use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::Assumptions;
use colocate_policy::rng::SplitMix64;
use colocate_policy::{Evidence, Knowledge, Plan, Policy, PolicySpec};
use colocate_sim::{
    Barrier, BarrierWait, JobSpec, KernelScheduler, Platform, Scenario, SimulationOptions,
    TotalWork, simulate_with,
};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Loss that a workload may have: 1 %.
const LIMIT: f64 = 0.01;
/// Runs of a workload that loses more, each way.
const FRESH: u64 = 8;
/// Standard errors. Chosen: beyond that by luck in one of a hundred.
const SURE: f64 = 2.5;
/// Length of a run. Chosen: `auto` has decided by the middle of it.
const LENGTH: Nanos = Nanos::from_secs(2);
/// Instructions of a thread without an end.
const ENDLESS: u64 = u64::MAX >> 12;
/// Workloads that are printed one by one.
const WORST: usize = 5;

/// A drawn workload.
struct Drawn {
    machine: Machine,
    performance: Performance,
    scenario: Scenario,
}

/// How the threads of a group wake each other.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Pair,
    Ring,
    Star,
    Pipeline,
}

/// Effects on a workload.
struct Found {
    words: String,
    /// From the launch on.
    all: f64,
    /// In the second half.
    half: f64,
    /// Mean and standard error in fresh runs, if it lost.
    fresh: Option<(f64, f64)>,
}

/// One of the effects.
type EffectOf = fn(&Found) -> f64;

/// 2 to 16 PUs on one or two sockets, one to eight groups, and up to four busy loops.
fn drawn(seed: u64) -> Drawn {
    let rng = &mut SplitMix64::new(seed);
    let shape = loop {
        let shape = (one_of(rng, &[1, 1, 2]), 1 + rng.below(8), one_of(rng, &[1, 2]));
        if (2..=16).contains(&(shape.0 * shape.1 * shape.2)) {
            break shape;
        }
    };
    let (machine, performance) = common::machine(&shaped(rng, shape));
    let groups = 1 + rng.below(8);
    let loops = rng.below(5);
    let mut jobs: Vec<JobSpec> = (0..groups).map(|_| group(rng)).collect();
    let busy = TotalWork::Instructions(ENDLESS);
    jobs.extend((0..loops).map(|_| {
        let mut job = common::job("loop", common::INT, 1_000);
        job.threads[0].work = busy;
        job
    }));
    let (packages, cores, pus) = shape;
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    let scenario = Scenario {
        name: format!("{packages} × {cores} × {pus} PUs: {}", names.join(", ")),
        seed,
        quantum: Nanos::from_millis(50),
        horizon: LENGTH,
        kernel: KernelScheduler::default(),
        ..common::scenario(jobs)
    };
    Drawn { machine, performance, scenario }
}

/// Threads that wake each other after up to 200 µs of work each.
fn group(rng: &mut SplitMix64) -> JobSpec {
    let kind = one_of(rng, &[Kind::Pair, Kind::Ring, Kind::Star, Kind::Pipeline]);
    let threads = match kind {
        Kind::Pair => 2,
        Kind::Ring | Kind::Star | Kind::Pipeline => 3 + rng.below(4),
    };
    // Passing a message on takes a microsecond by itself.
    let us = 1.0 + between(rng, 0.0, 200.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small
    let instructions = (us * 1_000.0) as u64;
    let wait = match kind {
        Kind::Pair | Kind::Ring => BarrierWait::Turns(1),
        Kind::Star => BarrierWait::Served,
        // Full: a message waits at every stage.
        Kind::Pipeline => BarrierWait::Turns(2 * u32::try_from(threads).unwrap()),
    };
    let part =
        colocate_sim::PhaseSegment { barrier: true, ..common::stretch(common::INT, instructions) };
    let mut thread = common::thread(&[part]);
    thread.work = TotalWork::Instructions(ENDLESS);
    JobSpec {
        name: format!("{kind:?} of {threads}, {us:.0} µs").to_lowercase(),
        threads: vec![thread; threads],
        barrier: Some(Barrier { wait, serial: None }),
        ..common::job("", common::INT, 1)
    }
}

/// Instructions of each job: from the launch on, and in the second half.
type Done = Vec<[f64; 2]>;

/// The kernel alone, seen once in a quantum. A policy that decides in each quantum of the scenario would stop the jobs at their
/// launch, and threads created after that get other PUs.
struct KernelAlone;

impl Policy for KernelAlone {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn period(&self) -> Option<Nanos> {
        Some(Nanos::from_millis(50))
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        evidence.empty_plan()
    }
}

/// Runs a workload under a policy.
fn run(case: &Drawn, seed: u64, policy: &mut dyn Policy) -> Done {
    let Drawn { machine, performance, scenario } = case;
    let platform = Platform::new(machine, performance, Assumptions::default()).unwrap();
    let scenario = Scenario { seed, ..scenario.clone() };
    let options = SimulationOptions { alone: false, ..SimulationOptions::default() };
    let mut done = vec![[0.0; 2]; scenario.jobs.len()];
    // Rounds do not end at the middle.
    let mut half = Nanos::ZERO;
    let look = &mut |round: &Round<'_>| {
        let is_late = round.began >= Nanos(LENGTH.0 / 2);
        half += if is_late { round.seen.at - round.began } else { Nanos::ZERO };
        for usage in round.all {
            let instructions = usage.instructions.unwrap_or(0) as f64;
            let of_job = &mut done[usage.job.0 as usize];
            of_job[0] += instructions;
            of_job[1] += if is_late { instructions } else { 0.0 };
        }
    };
    simulate_with(&platform, &scenario, (policy, "test"), &options, look).unwrap();
    done.iter_mut().for_each(|of_job| of_job[1] /= half.as_secs_f64());
    done
}

/// Effects of `auto` with a seed: from the launch on, and in the second half.
fn effects(case: &Drawn, seed: u64, is_guarded: bool) -> [f64; 2] {
    let kernel = run(case, seed, &mut KernelAlone);
    let inner = PolicySpec::named("auto").policy(&Knowledge {
        wake_ups: Some(case.scenario.kernel.wake_ups),
        performance: Some(&case.performance),
        shares_cores: case.machine.smt_width() > 1,
        has_nodes: case.machine.nodes.len() > 1,
        ..Knowledge::default()
    });
    let auto = if is_guarded {
        let mut guard = StandingGuard::new(inner, "auto", Guarding::STANDING);
        run(case, seed, &mut guard)
    } else {
        let mut inner = inner;
        run(case, seed, &mut *inner)
    };
    [0, 1].map(|part| {
        let ratios = auto.iter().zip(&kernel);
        let logs = ratios.map(|(auto, kernel)| (auto[part].max(1.0) / kernel[part].max(1.0)).ln());
        (logs.sum::<f64>() / kernel.len() as f64).exp() - 1.0
    })
}

fn found(seed: u64, is_guarded: bool) -> Found {
    let case = drawn(seed);
    let [all, half] = effects(&case, seed, is_guarded);
    let fresh = (half < -LIMIT).then(|| {
        let seeds = (1..=FRESH).map(|n| seed + 1_000_003 * n);
        let halves: Vec<f64> = seeds.map(|seed| effects(&case, seed, is_guarded)[1]).collect();
        let runs = Runs::of(&halves);
        (runs.mean, runs.variance.sqrt())
    });
    Found { words: format!("case {seed}: {}", case.scenario.name), all, half, fresh }
}

/// Prints the figures.
pub fn table() {
    let is_guarded = std::env::var("GUARD").map_or(true, |text| text != "no");
    let from = number("FROM", 0);
    let end = from + number("CASES", 1000);
    let (next, all) = (AtomicU64::new(from), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            let one = found(seed, is_guarded);
            all.lock().unwrap().push(one);
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    print!("{}", summary(all.into_inner().unwrap(), is_guarded));
}

fn summary(mut all: Vec<Found>, is_guarded: bool) -> String {
    let guarded = if is_guarded { "with the guard" } else { "without the guard" };
    let mut text = format!(
        "simulated: {} workloads of threads that wake each other under auto {guarded}; instructions of a job over those \
         under the kernel alone, less 1, in %\n{:14} | {:>7} {:>7} {:>7} {:>7} | worse than 1 %\n",
        all.len(),
        "",
        "mean",
        "median",
        "worst",
        "best",
    );
    let lines: [(&str, EffectOf); 2] =
        [("from launch", |found| found.all), ("second half", |found| found.half)];
    for (name, of) in lines {
        let mut effects: Vec<f64> = all.iter().map(of).collect();
        effects.sort_by(f64::total_cmp);
        let logs: f64 = effects.iter().map(|effect| effect.ln_1p()).sum();
        let mean = (logs / effects.len() as f64).exp_m1();
        let (worst, best) = (effects[0], effects[effects.len() - 1]);
        let [mean, median, worst, best] =
            [mean, effects[effects.len() / 2], worst, best].map(|effect| 100.0 * effect);
        let worse = effects.iter().filter(|&&effect| effect < -LIMIT).count();
        let _ = writeln!(
            text,
            "{name:14} | {mean:+7.2} {median:+7.2} {worst:+7.2} {best:+7.0} | {worse}"
        );
    }
    all.retain(|found| found.fresh.is_some_and(|(effect, error)| effect + SURE * error < -LIMIT));
    all.sort_by(|a, b| a.fresh.unwrap().0.total_cmp(&b.fresh.unwrap().0));
    let _ = writeln!(
        text,
        "surely worse than 1 % in the second half of {FRESH} fresh runs: {}",
        all.len()
    );
    for Found { words, fresh, .. } in all.iter().take(WORST) {
        let (effect, error) = fresh.unwrap();
        let _ = writeln!(text, "{:+.2} ± {:.2}, {words}", 100.0 * effect, 100.0 * error);
    }
    text
}
