//! Simulates a scenario under every policy, with every draw and every seed, on as many threads as asked
//! for.
//!
//! # Approach
//! A *unit* is one draw with one seed: all policies of a unit face the same machine and the same chance,
//! and share what each job takes alone. Threads take unit after unit; what is kept of a run is a few
//! numbers, put in its place, so the figures do not depend on how many threads there were.

use super::figures::{Run, Settings, Simulated};
use super::scenario::Experiment;
use colocate_engine::planner::Modelled;
use colocate_machine::{Machine, Performance};
use colocate_model::Assumptions;
use colocate_policy::PolicyKind;
use colocate_sim::run::alone_times;
use colocate_sim::{Options, Outcome, Platform, Scenario, SimError, simulate};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Most spans that are kept of a run for its picture. Chosen: 32 MiB.
const MAX_SPANS: usize = 1_000_000;

/// An experiment on its machine.
#[derive(Debug)]
pub struct Bench<'a> {
    machine: &'a Machine,
    performance: &'a Performance,
    experiment: &'a Experiment,
    draws: Vec<Assumptions>,
}

/// Who watches while a scenario is simulated.
#[derive(Clone, Copy)]
pub struct Watcher<'a> {
    /// Called after every unit, from any thread.
    pub progress: &'a (dyn Fn() + Sync),
    /// Ends everything after the units that are under way.
    pub stop: &'a AtomicBool,
}

impl<'a> Bench<'a> {
    /// The experiment on this machine with these speeds.
    #[must_use]
    pub fn new(
        machine: &'a Machine,
        performance: &'a Performance,
        experiment: &'a Experiment,
    ) -> Self {
        let draws = Assumptions::sample(experiment.draws as usize, experiment.scenario.seed);
        Self { machine, performance, experiment, draws }
    }

    /// How many units there are.
    #[must_use]
    pub fn units(&self) -> usize {
        self.draws.len() * self.experiment.seeds as usize
    }

    /// Simulates everything on `threads` threads, at least one. `None` if it was stopped before the end.
    ///
    /// # Errors
    /// [`SimError`] of the first unit that has one.
    pub fn simulate(
        &self,
        threads: usize,
        watcher: Watcher<'_>,
    ) -> Result<Option<Simulated>, SimError> {
        let done: Mutex<Vec<Option<Vec<Run>>>> = Mutex::new(vec![None; self.units()]);
        let failed: Mutex<Option<(usize, SimError)>> = Mutex::new(None);
        let next = AtomicUsize::new(0);
        let work = || {
            while !watcher.stop.load(Ordering::Relaxed) {
                let unit = next.fetch_add(1, Ordering::Relaxed);
                if unit >= self.units() || locked(&failed).is_some() {
                    return;
                }
                match self.unit(unit) {
                    Ok(runs) => locked(&done)[unit] = Some(runs),
                    Err(error) => keep_first(&mut locked(&failed), unit, error),
                }
                (watcher.progress)();
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.clamp(1, self.units()) {
                scope.spawn(work);
            }
            work();
        });
        if let Some((_, error)) = into_inner(failed) {
            return Err(error);
        }
        let done: Option<Vec<Vec<Run>>> = into_inner(done).into_iter().collect();
        Ok(done.map(|units| Simulated::of(self.settings(), &by_policy(units))))
    }

    /// One run under `policy` with the usual assumptions and the first seed, with who ran where and when.
    ///
    /// # Errors
    /// [`SimError`] of the run.
    pub fn traced(&self, policy: PolicyKind) -> Result<Outcome, SimError> {
        let platform = Platform::new(self.machine, self.performance, Assumptions::default())?;
        let options = Options { spans: MAX_SPANS, ..self.options() };
        let mut outcome =
            simulate(&platform, &self.experiment.scenario, &self.planner(policy), &options)?;
        if outcome.spans.len() >= MAX_SPANS {
            // The picture then shows the beginning.
            outcome.lasted = outcome.spans.iter().map(|span| span.to).max().unwrap_or_default();
        }
        Ok(outcome)
    }

    /// What is simulated, for people and files.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let Experiment { scenario, policies, baseline, seeds, draws, note, .. } = self.experiment;
        let tasks: usize = scenario.jobs.iter().map(|job| job.threads.len()).sum();
        Settings {
            colocate: env!("CARGO_PKG_VERSION").to_owned(),
            scenario: scenario.name.clone(),
            note: note.clone(),
            machine: self.machine.name.clone(),
            jobs: scenario.jobs.iter().map(|job| job.name.clone()).collect(),
            tasks: u32::try_from(tasks).unwrap_or(u32::MAX),
            method: scenario.method,
            policies: policies.iter().map(ToString::to_string).collect(),
            baseline: baseline.to_string(),
            seed: scenario.seed,
            seeds: *seeds,
            draws: *draws,
            inputs: String::new(),
        }
    }

    /// Who makes the plans: it knows how fast the machine is, as described, and not what a draw assumes.
    const fn planner(&self, policy: PolicyKind) -> Modelled<'a> {
        Modelled { policy, performance: self.performance }
    }

    const fn options(&self) -> Options {
        let Experiment { profiled, watch, .. } = *self.experiment;
        Options { profiled, watch, alone: false, spans: 0 }
    }

    /// All policies with one draw and one seed.
    fn unit(&self, unit: usize) -> Result<Vec<Run>, SimError> {
        let seeds = self.experiment.seeds as usize;
        let (draw, seed) = (unit / seeds, unit % seeds);
        let platform = Platform::new(self.machine, self.performance, self.draws[draw])?;
        let first = &self.experiment.scenario;
        let scenario = Scenario { seed: first.seed.wrapping_add(seed as u64), ..first.clone() };
        let alone = alone_times(&platform, &scenario)?;
        let one = |policy: &PolicyKind| {
            let mut outcome =
                simulate(&platform, &scenario, &self.planner(*policy), &self.options())?;
            for (job, alone) in outcome.jobs.iter_mut().zip(&alone) {
                job.alone = *alone;
            }
            Ok(Run::of(&outcome, draw == 0))
        };
        self.experiment.policies.iter().map(one).collect()
    }
}

/// From runs unit by unit to runs policy by policy.
fn by_policy(mut units: Vec<Vec<Run>>) -> Vec<Run> {
    let policies = units.first().map_or(0, Vec::len);
    let mut runs = Vec::with_capacity(policies * units.len());
    for policy in 0..policies {
        runs.extend(units.iter_mut().map(|unit| unit[policy].clone()));
    }
    runs
}

/// Keeps the error of the earliest unit, so that the same one is told whoever came first.
fn keep_first(failed: &mut Option<(usize, SimError)>, unit: usize, error: SimError) {
    if failed.as_ref().is_none_or(|(earliest, _)| unit < *earliest) {
        *failed = Some((unit, error));
    }
}

/// A thread that panicked ends the scope, so what it held is never looked at.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
