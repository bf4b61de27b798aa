//! The guard on simulated machines: random workloads on random machines, with and without it. The experiment `guard` of
//! `benches` runs a thousand of them under every scheduler.

use crate::common;

mod cases;
mod runs;
mod under;

use cases::{QUANTUM, any_case};
use colocate_engine::Meanwhile;
use colocate_engine::guard::{Guarding, QuantumGuard};
use colocate_evidence::SourceSet;
use colocate_model::Assumptions;
use colocate_policy::schedule::{Allocated, Selected, SelectedJob};
use colocate_policy::{Evidence, Plan, Policy, PolicySpec};
use colocate_sim::{KernelScheduler, Platform, Scenario};
use runs::{Bench, OTHER_LUCK, turnaround};
use under::Under;

/// The effect of a single run with the guard.
fn effect(under: Under, seed: u64) -> f64 {
    let case = any_case(seed);
    let mut bench = Bench::new(&case, Meanwhile::Stop);
    let kernel = bench.kernel(0, 1);
    bench.under(under, true, 0, 1).0.over(kernel).0
}

/// Turnarounds of plain workloads in sum, over that of the kernel: without the guard, with it.
fn together(under: Under, cases: &[u64]) -> (f64, f64) {
    let effects = cases.iter().map(|&seed| {
        let case = any_case(seed);
        let mut bench = Bench::new(&case, Meanwhile::Stop);
        let kernel = bench.kernel(0, 1);
        let effect = |guarded| 1.0 + bench.under(under, guarded, 0, 1).0.over(kernel).0;
        (effect(false), effect(true))
    });
    let sum = effects.fold((0.0, 0.0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
    (sum.0 / cases.len() as f64, sum.1 / cases.len() as f64)
}

/// A thread's memory goes to where it was used at two looks of the kernel in a row, which come every 20 quanta. When
/// two quanta of the kernel came after every two of the scheduler, it was the scheduler's where looks fell, and every control was
/// slower for it: +1.2 %.
#[test]
fn no_rhythm_is_the_schedulers_alone() {
    let effect = effect(Under::Kind("mmas"), 741);
    assert!(effect < 0.01, "{effect}");
}

/// A filler has its slice beside a pinned thread when the last thread of another PU sleeps, so that none waits to be taken at
/// once. Every simulation refuses one that waits beside an idle PU for longer than balancing takes.
#[test]
fn a_filler_gets_an_idle_pu_later() {
    for (kind, seed) in [("symbiotic", 1), ("fair", 3), ("bas", 7)] {
        let (case, under) = (any_case(seed), Under::Kind(kind));
        let platform = case.platform();
        for mut scenario in case.again(0, 4) {
            scenario.seed ^= OTHER_LUCK;
            let mut scheduler = under.scheduler(&platform, &scenario);
            turnaround(Meanwhile::Fill, &platform, &scenario, &mut *scheduler);
        }
    }
}

/// What ruins a workload without the guard costs next to nothing with it. The limit is above 1 %, for the luck
/// of four single runs.
#[test]
fn a_guarded_scheduler_does_no_harm() {
    for (under, ruin) in [(Under::OnePu, 1.5), (Under::StarvesOne, 1.05)] {
        let (free, guarded) = together(under, &[0, 2, 4, 6]);
        assert!(free > ruin, "{under:?}: {free} without the guard");
        assert!(guarded < 1.015, "{under:?}: {guarded}");
    }
}

/// Two jobs a PU, one on additions and one on multiplications, for cores of two PUs: the kernel has them beside
/// each other as it happens. A scheduler that mixes them gains, and keeps what it gains in the part of the quanta that it
/// gets with the guard. Four runs are added up.
#[test]
fn a_guarded_scheduler_keeps_what_it_gains() {
    let (machine, performance) = common::machine(common::SMALL);
    let jobs = (0..16).map(|n| common::job("j", [common::INT, common::MUL][n / 8], 8000)).collect();
    let scenario =
        Scenario { quantum: QUANTUM, kernel: KernelScheduler::default(), ..common::scenario(jobs) };
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let (mut free, mut guarded) = (0.0, 0.0);
    for seed in scenario.seed..scenario.seed + 4 {
        let scenario = Scenario { seed, ..scenario.clone() };
        let run = |scheduler: &mut dyn Policy| {
            turnaround(Meanwhile::Stop, &platform, &scenario, scheduler)
        };
        let kernel = run(&mut *PolicySpec::named("os").plain());
        let gained = kernel - run(&mut Mixes);
        assert!(gained > 0.1 * kernel, "{gained} of {kernel} s gained");
        free += gained;
        guarded +=
            kernel - run(&mut QuantumGuard::new(Box::new(Mixes), "mixes", Guarding::default()));
    }
    assert!(guarded > 0.7 * free, "{guarded} of {free} s gained");
}

/// Runs the job that has waited longest of each half of the jobs on every core.
#[derive(Debug)]
struct Mixes;

impl Policy for Mixes {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let now = &evidence.now;
        let half = |second: bool| {
            let jobs = now.queue.iter().filter(move |job| (job.job.0 >= 8) == second);
            jobs.zip(now.pus.iter().skip(usize::from(second)).step_by(2))
        };
        let choice = |(job, &pu): (&colocate_policy::schedule::QueuedJob, _)| SelectedJob {
            job: job.job,
            selected: Selected::HeadOfQueue,
            places: vec![(Some(pu), Allocated::Next)],
        };
        evidence.plan(&half(false).chain(half(true)).map(choice).collect::<Vec<_>>())
    }
}
