//! Where a guarded workload's time goes that the kernel alone would not have needed.
//!
//! # Approach
//! A turnaround times the PUs is what jobs ran plus what PUs idled. What jobs ran is what their work takes at the
//! speed that each has on average under the kernel alone, plus what they were slower. The work is the same in every
//! run, so what a guarded run takes longer is the difference of idling and being slower, quantum by quantum:
//! - in the *scheduler's* quanta: what the guard can see;
//! - in the kernel's *first* quantum after them, and in its *later* ones: what the scheduler's spoil
//!   beyond themselves, as cold caches and memory on another node;
//! - in the *tail*, when fewer threads are left than PUs: jobs left behind.

use super::cases::Case;
use super::runs::{OTHER_LUCK, Runs};
use super::under::Under;
use colocate_engine::Round;
use colocate_engine::guard::{Guarding, QuantumGuard};
use colocate_evidence::JobIdx;
use colocate_machine::Nanos;
use colocate_policy::{Policy, PolicySpec};
use colocate_sim::{Scenario, SimulationOptions, simulate_with};
use std::collections::BTreeMap;

/// Kinds of quanta.
const SCHEDULERS: usize = 0;
const FIRST: usize = 1;
const LATER: usize = 2;
const TAIL: usize = 3;

/// What came of one run, in PU seconds by kind of quanta.
#[derive(Clone, Debug, Default)]
struct Run {
    seconds: f64,
    capacity: [f64; 4],
    idle: [f64; 4],
    /// By kind and job: CPU time and instructions.
    ran: [BTreeMap<JobIdx, (f64, f64)>; 4],
    quanta: u64,
    schedulers: u64,
    verdicts: u64,
    first: Option<String>,
}

/// By job: instructions a second of CPU time.
type Speeds = BTreeMap<JobIdx, f64>;

impl Run {
    fn slower(&self, kind: usize, speeds: &Speeds) -> f64 {
        let ran = self.ran[kind].iter();
        ran.map(|(job, (cpu, work))| cpu - work / speeds[job]).fold(0.0, |sum, each| sum + each)
    }

    fn lost(&self, kind: usize, speeds: &Speeds) -> f64 {
        self.idle[kind] + self.slower(kind, speeds)
    }
}

fn run(case: &Case, scenario: &Scenario, scheduler: &mut dyn Policy) -> Run {
    let platform = case.platform();
    let pus = case.machine.pus.len() as f64;
    let mut run = Run::default();
    let mut before: BTreeMap<colocate_evidence::TaskId, (Nanos, u64)> = BTreeMap::new();
    let (mut at, mut after_schedulers) = (Nanos::ZERO, false);
    let mut look = |turn: &Round<'_>| {
        let kernels = turn.plan.decisions.iter().all(|decision| decision.place.pu().is_none());
        let alive = turn.seen.tasks.iter().filter(|task| task.alive()).count();
        let kind = match (alive as f64) < pus {
            true => TAIL,
            false if !kernels => SCHEDULERS,
            false if after_schedulers => FIRST,
            false => LATER,
        };
        after_schedulers = !kernels;
        run.quanta += 1;
        run.schedulers += u64::from(!kernels);
        run.verdicts += turn.plan.messages.len() as u64;
        if run.first.is_none() {
            run.first = turn.plan.messages.first().map(|news| format!("{} {news}", turn.number));
        }
        let capacity = turn.seen.at.saturating_sub(at).as_secs_f64() * pus;
        at = turn.seen.at;
        let mut busy = 0.0;
        for task in &turn.seen.tasks {
            let now = (task.cpu_time.unwrap(), task.instructions.unwrap());
            let then = before.insert(task.id, now).unwrap_or_default();
            let cpu = now.0.saturating_sub(then.0).as_secs_f64();
            let sum = run.ran[kind].entry(task.id.job).or_default();
            *sum = (sum.0 + cpu, sum.1 + (now.1 - then.1) as f64);
            busy += cpu;
        }
        run.capacity[kind] += capacity;
        run.idle[kind] += capacity - busy;
    };
    let options = SimulationOptions::each_quantum();
    let outcome =
        simulate_with(&platform, scenario, (scheduler, "test"), &options, &mut look).unwrap();
    run.seconds = outcome.turnaround().unwrap().as_secs_f64();
    run
}

/// Mean losses of a guarded scheduler, in % of the kernel's turnaround.
pub struct Losses {
    /// All of it.
    pub all: f64,
    /// Its standard error.
    pub luck: f64,
    /// By kind.
    pub parts: [f64; 4],
    /// Quanta of the scheduler, and all.
    pub quanta: (f64, f64),
    /// Of the last run: verdicts that it reported, the first of them, and the state in the end.
    pub verdicts: (u64, String, String),
}

/// The kernel's runs.
pub struct Alone {
    runs: Vec<Run>,
    speeds: Speeds,
}

impl Alone {
    /// So many.
    pub fn new(case: &Case, times: u64) -> Self {
        let os = |scenario: Scenario| run(case, &scenario, &mut *PolicySpec::named("os").plain());
        let runs: Vec<Run> = case.again(0, times).into_iter().map(os).collect();
        let mut sums: BTreeMap<JobIdx, (f64, f64)> = BTreeMap::new();
        for (job, ran) in runs.iter().flat_map(|run| run.ran.iter().flatten()) {
            let sum = sums.entry(*job).or_default();
            *sum = (sum.0 + ran.0, sum.1 + ran.1);
        }
        let speeds = sums.into_iter().map(|(job, (cpu, work))| (job, work / cpu)).collect();
        Self { runs, speeds }
    }

    /// What `under` with the guard loses against these.
    pub fn losses(&self, case: &Case, under: Under, settings: Guarding, times: u64) -> Losses {
        let platform = case.platform();
        let mut verdicts = (0, String::new(), String::new());
        let mut runs = Vec::new();
        for mut scenario in case.again(0, times) {
            scenario.seed ^= OTHER_LUCK;
            let inner = under.scheduler(&platform, &scenario);
            let mut guard = QuantumGuard::new(inner, &under.name(), settings);
            let one = run(case, &scenario, &mut guard);
            let first = one.first.clone().unwrap_or_default();
            verdicts = (one.verdicts, first, guard.state());
            runs.push(one);
        }
        let mean = |runs: &[Run], of: &dyn Fn(&Run) -> f64| {
            runs.iter().map(of).sum::<f64>() / runs.len() as f64
        };
        let seconds =
            |runs: &[Run]| Runs::of(&runs.iter().map(|r| r.seconds).collect::<Vec<f64>>());
        let (os, with) = (seconds(&self.runs), seconds(&runs));
        let percent = 100.0 / os.mean;
        let per_pu = percent / case.machine.pus.len() as f64;
        let speeds = &self.speeds;
        // What the kernel alone loses as long as all PUs have something to do.
        let usual =
            mean(&self.runs, &|r| r.lost(LATER, speeds)) / mean(&self.runs, &|r| r.capacity[LATER]);
        let mut parts = [SCHEDULERS, FIRST, LATER]
            .map(|kind| mean(&runs, &|r| r.lost(kind, speeds) - usual * r.capacity[kind]) * per_pu)
            .to_vec();
        let seen: f64 = parts.iter().sum();
        parts.push((with.mean - os.mean) * percent - seen);
        Losses {
            all: (with.mean - os.mean) * percent,
            luck: (with.variance + os.variance).sqrt() * percent,
            parts: parts.try_into().unwrap(),
            quanta: (mean(&runs, &|r| r.schedulers as f64), mean(&runs, &|r| r.quanta as f64)),
            verdicts,
        }
    }
}
