//! The guard on simulated machines: random workloads on random machines, every scheduler with and without it.
//!
//! The whole of it takes long and is run by
//! `cargo test --release -p colocate-sim --test all -- --ignored --nocapture thousand_workloads`, `CASES=1000`
//! being the workloads, from `FROM=0` on, and `MINUTES=600` the time after which no other one is begun; with `KEEP=FILE` it goes on with
//! what an earlier run has left in the file, and `UNDER=bas,fair` takes only some schedulers; with `WAITING=fill` waiting jobs fill idle PUs. `where_it_is_lost` says of
//! `CASES=40` workloads from `FROM=0` on where their time goes, from `RUNS=6` runs each under the
//! schedulers that `UNDER=random,mmas` names. `memory_and_rhythm` is of one workload. docs/results/guard.md has the figures.

#![allow(clippy::cast_precision_loss)] // small counts

use crate::common;

mod cases;
mod far;
mod kept;
mod loss;
mod study;
mod under;

use cases::{QUANTUM, any_case};
use colocate_engine::Meanwhile;
use colocate_engine::guard::{Guarding, QuantumGuard};
use colocate_evidence::SourceSet;
use colocate_model::Assumptions;
use colocate_policy::schedule::{Allocated, Choice, Selected};
use colocate_policy::{Evidence, Plan, Policy, PolicySpec};
use colocate_sim::{Kernel, Options, Platform, Scenario, simulate_with};
use std::sync::atomic::{AtomicU64, Ordering};
use under::Under;

/// Turnaround in seconds, simulated.
fn turnaround(platform: &Platform<'_>, scenario: &Scenario, scheduler: &mut dyn Policy) -> f64 {
    let waiting = std::env::var("WAITING").map_or(Meanwhile::Stop, |text| text.parse().unwrap());
    turnaround_with(waiting, platform, scenario, scheduler)
}

fn turnaround_with(
    waiting: Meanwhile,
    platform: &Platform<'_>,
    scenario: &Scenario,
    scheduler: &mut dyn Policy,
) -> f64 {
    let options = Options { meanwhile: waiting, ..Options::each_quantum() };
    let look = &mut |_: &colocate_engine::Round<'_>| ();
    let outcome = simulate_with(platform, scenario, (scheduler, "test"), &options, look).unwrap();
    outcome.turnaround().unwrap().as_secs_f64()
}

/// Turnarounds of several runs.
#[derive(Clone, Copy, Debug)]
struct Runs {
    mean: f64,
    /// Variance of the mean; 0 of a single run.
    variance: f64,
}

impl Runs {
    fn of(times: &[f64]) -> Self {
        let n = times.len() as f64;
        let mean = times.iter().sum::<f64>() / n;
        let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
        Self { mean, variance: if n > 1.0 { squares / (n - 1.0) / n } else { 0.0 } }
    }

    /// Effect, see [`study`], and its standard error.
    fn over(self, kernel: Self) -> (f64, f64) {
        let luck = (self.variance + kernel.variance).sqrt() / kernel.mean;
        (self.mean / kernel.mean - 1.0, luck)
    }
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The whole study.
#[test]
#[ignore = "takes an hour; see the head of this file"]
#[allow(clippy::print_stdout)] // its table is what it is run for
fn thousand_workloads() {
    let keep = std::env::var_os("KEEP").map(std::path::PathBuf::from);
    let from = number("FROM", 0);
    let cases = from..from + number("CASES", 1000);
    let unders = std::env::var("UNDER").map_or_else(|_| Under::all(), |names| Under::named(&names));
    let (done, text) = study::study(&unders, cases, number("MINUTES", 600), keep.as_deref());
    println!("{text}");
    assert!(done > 0);
}

/// Where the time goes that guarded schedulers lose.
#[test]
#[ignore = "takes minutes; see the head of this file"]
#[allow(clippy::print_stdout)] // its table is what it is run for
fn where_it_is_lost() {
    let text = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let number = |name: &str, default: &str| text(name, default).parse::<u64>().unwrap();
    let (cases, runs) = (number("CASES", "40"), number("RUNS", "6"));
    let from = number("FROM", "0");
    let names = text("UNDER", "random,mmas,fair,round-robin,symbiotic");
    let unders = Under::named(&names);
    let next = AtomicU64::new(from);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + cases {
                break;
            }
            let case = any_case(seed);
            let alone = loss::Alone::new(&case, 2 * runs);
            for &under in &unders {
                let l = alone.losses(&case, under, Guarding::default(), runs);
                let [s, f, k, t] = l.parts;
                println!(
                    "{:12} {seed:4} {:+6.2} ±{:5.2} | {s:+6.2} {f:+6.2} {k:+6.2} {t:+6.2} | {:5.1} of {:5.1} | {} {} | {}",
                    under.name(),
                    l.all,
                    l.luck,
                    l.quanta.0,
                    l.quanta.1,
                    l.verdicts.0,
                    l.verdicts.1,
                    l.verdicts.2
                );
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
}

/// How much memory is far, and what that has to do with the rhythm of quanta, in the workload `FROM=741` under `UNDER=mmas`.
#[test]
#[ignore = "for docs/results/guard.md"]
#[allow(clippy::print_stdout)] // its table is what it is run for
fn memory_and_rhythm() {
    let name = std::env::var("UNDER").unwrap_or("mmas".to_owned());
    let under = Under::all().into_iter().find(|under| under.name() == name).unwrap();
    print!("{}", far::table(&any_case(number("FROM", 741)), under));
}

/// A thread's memory goes to where it was used at two looks of the kernel in a row, which come every 20 quanta. When
/// two quanta of the kernel came after every two of the scheduler, it was the scheduler's where looks fell, and every control was
/// slower for it: +1.2 %.
#[test]
fn no_rhythm_is_the_schedulers_alone() {
    let effect = study::effect(Under::Kind("mmas"), 741);
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
            scenario.seed ^= study::OTHER_LUCK;
            let mut scheduler = under.scheduler(&platform, &scenario);
            turnaround_with(Meanwhile::Fill, &platform, &scenario, &mut *scheduler);
        }
    }
}

/// What ruins a workload without the guard costs next to nothing with it. The limit is above 1 %, for the luck
/// of four single runs.
#[test]
fn a_guarded_scheduler_does_no_harm() {
    for (under, ruin) in [(Under::OnePu, 1.5), (Under::StarvesOne, 1.05)] {
        let (free, guarded) = study::together(under, &[0, 2, 4, 6]);
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
        Scenario { quantum: QUANTUM, kernel: Kernel::default(), ..common::scenario(jobs) };
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let (mut free, mut guarded) = (0.0, 0.0);
    for seed in scenario.seed..scenario.seed + 4 {
        let scenario = Scenario { seed, ..scenario.clone() };
        let run = |scheduler: &mut dyn Policy| turnaround(&platform, &scenario, scheduler);
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
        let choice = |(job, &pu): (&colocate_policy::schedule::QueuedJob, _)| Choice {
            job: job.job,
            selected: Selected::HeadOfQueue,
            places: vec![(Some(pu), Allocated::Next)],
        };
        evidence.plan(&half(false).chain(half(true)).map(choice).collect::<Vec<_>>())
    }
}
