//! Runs of `fair` in which its estimates are compared with the jobs' progress.

#![allow(clippy::print_stdout)] // the errors are to be read, too

use crate::common;

use colocate_engine::{Host, HostError, Request};
use colocate_engine::{RunSettings, Until};
use colocate_evidence::Observation;
use colocate_evidence::{Grant, SourceSet};
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Machine, Nanos, PuNr, described};
use colocate_model::phase::{Known, PortWork};
use colocate_model::rng::SplitMix64;
use colocate_model::{Assumptions, MissCurve, Phase};
use colocate_policy::Plan;
use colocate_policy::schedule::Selected;
use colocate_policy::schedule::fair::{Fair, Mixing};
use colocate_policy::schedule::progress::Estimating;
use colocate_policy::{Evidence, Policy};
use colocate_sim::run::knowns;
use colocate_sim::{JobSpec, Method, PhaseSpec, Platform, Scenario, SimHost, TotalWork};
use common::{ms, scenario, stretch, thread};
use std::cell::RefCell;
use std::rc::Rc;

/// Seconds that what each job has done takes alone on a core with the memory near.
type Truth = Rc<RefCell<Vec<f64>>>;

/// A simulated machine that reports how far the jobs have come.
struct Reporting<'a> {
    host: SimHost<'a>,
    truth: Truth,
}

impl Host for Reporting<'_> {
    fn machine(&self) -> &Machine {
        self.host.machine()
    }

    fn usable(&self) -> &[PuNr] {
        self.host.usable()
    }

    fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant> {
        self.host.request(requests)
    }

    fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Observation, HostError> {
        let seen = self.host.run_quantum(plan, quantum)?;
        let mut truth = self.truth.borrow_mut();
        truth.fill(0.0);
        for task in self.host.outcome().tasks {
            truth[task.id.job.0 as usize] += task.alone.as_secs_f64();
        }
        Ok(seen)
    }
}

/// `fair`, and at every decision how far off it is for each job that it has an estimate of.
#[derive(Debug)]
struct Compared {
    fair: Fair,
    truth: Truth,
    found: Found,
}

/// What was found in a run, or in several.
#[derive(Debug, Default)]
pub struct Found {
    /// Estimated progress / true one, at every decision of every job with an estimate.
    pub ratios: Vec<f64>,
    /// Quanta, and those of them that made estimates.
    quanta: [f64; 2],
    /// When the last job was done, in seconds, and over when the first was.
    ends: Vec<[f64; 2]>,
}

impl Policy for Compared {
    fn needs(&self) -> SourceSet {
        self.fair.needs()
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let plan = self.fair.decide(evidence);
        for job in evidence.now.queue {
            let Some(known) = self.fair.table().of(job.job) else { continue };
            let truth = self.truth.borrow()[job.job.0 as usize];
            if known.is_estimated() {
                self.found.ratios.push(known.done / truth);
            }
        }
        let estimates = plan.selected().values().any(|it| **it == Selected::Estimated);
        self.found.quanta[0] += 1.0;
        self.found.quanta[1] += f64::from(u8::from(estimates));
        plan
    }
}

/// A scenario on a described machine.
pub fn found(text: &str, scenario: &Scenario, mixing: Mixing, settings: Estimating) -> Found {
    let (machine, performance) = common::machine(text);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let truth: Truth = Rc::new(RefCell::new(vec![0.0; scenario.jobs.len()]));
    let host = SimHost::new(&platform, scenario).unwrap();
    let mut reporting = Reporting { host, truth: truth.clone() };
    let fair = Fair::new(mixing, settings);
    let mut compared = Compared { fair, truth, found: Found::default() };
    let jobs = knowns(&platform, scenario, false).unwrap();
    let (until, watch) = (Until::Time(scenario.quantum), Nanos::ZERO);
    let workload = RunSettings {
        jobs: &jobs,
        policy: "fair",
        until,
        watch,
        also: SourceSet::NONE,
        without: SourceSet::NONE,
    };
    colocate_engine::run(&mut reporting, &mut compared, &workload, None, &mut |_| ()).unwrap();
    let outcome = reporting.host.outcome();
    assert!(outcome.complete);
    let mut done: Vec<f64> =
        outcome.jobs.iter().map(|job| job.done.unwrap().as_secs_f64()).collect();
    done.sort_by(f64::total_cmp);
    let last = done[done.len() - 1];
    compared.found.ends.push([last, last / done[0]]);
    compared.found
}

/// Mean and 90th percentile of how far the ratios are from 1.
pub fn errors(ratios: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut errors: Vec<f64> = ratios.map(|ratio| (ratio - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    (mean, errors[errors.len() * 9 / 10])
}

fn known<T>(value: T) -> Known<T> {
    Known::new(value, "drawn")
}

fn between(rng: &mut SplitMix64, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.unit()
}

/// A phase of usual work, whose misses span three orders of magnitude, so that some are bound by the core,
/// some by the caches and some by the memory.
fn drawn(rng: &mut SplitMix64) -> PhaseSpec {
    let work = [
        (WorkKind::Int, 0.2, 0.5),
        (WorkKind::Load, 0.1, 0.4),
        (WorkKind::Store, 0.02, 0.2),
        (WorkKind::Branch, 0.05, 0.2),
        (WorkKind::FloatAdd, 0.0, 0.3),
        (WorkKind::FloatMul, 0.0, 0.2),
    ];
    let work = work.map(|(kind, low, high)| (kind, between(rng, low, high)));
    let mut misses = 0.06 * 10.0_f64.powf(-3.0 * rng.unit());
    let curve = [32 << 10, 256 << 10, 2 << 20, 12 << 20, 64 << 20].map(|size| {
        misses *= between(rng, 0.2, 1.0);
        (Bytes(size), misses)
    });
    let dependent = between(rng, 0.2, 0.8);
    PhaseSpec::of(Phase {
        name: "drawn".into(),
        slots: known(between(rng, 1.0, 1.2)),
        work: known(PortWork::Kinds(work.to_vec())),
        dependent_cycles: known(dependent),
        dependent_cycles_divided: known(dependent * between(rng, 1.0, 1.3)),
        stall_cycles: known(between(rng, 0.0, 0.2)),
        branch_misses: known(between(rng, 0.0, 0.01)),
        misses: known(MissCurve::new(curve).unwrap()),
        parallel_misses: known(between(rng, 1.0, 6.0)),
        written_back: known(between(rng, 0.0, 0.5)),
        shared_lines: known(0.0),
        ..Phase::default()
    })
}

/// Twenty-four jobs of one thread that take so long alone, in one to `phases` phases of 0.2 to 4 G
/// instructions, again and again until all have done their work once.
fn random(seed: u64, phases: usize, alone: Nanos) -> Scenario {
    let mut rng = SplitMix64::new(seed);
    let mut all = Vec::new();
    let mut jobs: Vec<JobSpec> = Vec::new();
    for _ in 0..24 {
        let course: Vec<_> = (0..=rng.below(phases))
            .map(|_| {
                all.push(drawn(&mut rng));
                let number = u32::try_from(all.len() - 1).unwrap();
                stretch(number, 200_000_000 + rng.below(3_800_000_000) as u64)
            })
            .collect();
        let mut thread = thread(&course);
        thread.work = TotalWork::AloneFor(alone);
        let threads = vec![thread];
        jobs.push(JobSpec {
            memory: Vec::new(),
            name: "drawn".into(),
            arrives: Nanos::ZERO,
            threads,
            barrier: None,
        });
    }
    Scenario {
        phases: all,
        jobs,
        seed,
        method: Method::Restart,
        quantum: ms(200),
        ..scenario(vec![])
    }
}

/// Prints and returns mean and 90th percentile of the errors of 24 random jobs on the machine of the papers'
/// progress-aware schedulers, of so many seeds with so many seconds alone.
pub fn on_the_e5645_for(
    mixing: Mixing,
    phases: usize,
    settings: Estimating,
    (seeds, seconds): (u64, u64),
) -> (f64, f64) {
    let text = described::MACHINES.iter().find(|(name, _)| *name == "xeon-e5645").unwrap().1;
    let mut all = Found::default();
    for seed in 0..seeds {
        let found = found(text, &random(seed, phases, Nanos::from_secs(seconds)), mixing, settings);
        all.ratios.extend(found.ratios);
        all.ends.extend(found.ends);
        all.quanta = [0, 1].map(|n| all.quanta[n] + found.quanta[n]);
    }
    let (mean, most) = errors(all.ratios.iter().copied());
    let bias = all.ratios.iter().map(|ratio| ratio - 1.0).sum::<f64>() / all.ratios.len() as f64;
    let ends =
        |which: usize| all.ends.iter().map(|ends| ends[which]).sum::<f64>() / all.ends.len() as f64;
    println!(
        "{mixing:?}, up to {phases} phases, {settings:?}: {:.0} % of {} quanta estimate, mean error {:.1} %, \
         90th percentile {:.1} %, bias {:+.1} %; last job done at {:.1} s, {:.2} times the first (simulated)",
        100.0 * all.quanta[1] / all.quanta[0],
        all.quanta[0],
        mean * 100.0,
        most * 100.0,
        bias * 100.0,
        ends(0),
        ends(1)
    );
    (mean, most)
}
