//! Simulation of a scenario under every policy and scheduler, with every draw and seed, unit by
//! unit.
//!
//! # Approach
//! A *unit* is one draw with one seed: all policies of a unit have the same machine and the same
//! random choices, and share the times of the jobs alone. Units do not depend on each other, so
//! several threads can simulate them at a time; each leaves only a few numbers.

use super::contender::Contender;
use super::figures::{ComparisonSettings, RunSummary, Simulated};
use super::scenario::Experiment;
use colocate_machine::{Machine, Performance};
use colocate_model::{Assumptions, CpiModel};
use colocate_policy::PolicySpec;
use colocate_policy::table::Prior;
use colocate_sim::run::alone_times;
use colocate_sim::{Outcome, Platform, Scenario, SimError, SimulationOptions, simulate};

/// Most recorded spans of a run, for its picture. Chosen: 32 MiB.
const MAX_SPANS: usize = 1_000_000;

/// An experiment on its machine.
#[derive(Debug)]
pub struct ExperimentSetup<'a> {
    machine: &'a Machine,
    performance: &'a Performance,
    experiment: &'a Experiment,
    draws: Vec<Assumptions>,
    cpi: Option<&'a CpiModel>,
}

impl<'a> ExperimentSetup<'a> {
    /// An experiment on a machine with its speeds.
    #[must_use]
    pub fn new(
        machine: &'a Machine,
        performance: &'a Performance,
        experiment: &'a Experiment,
    ) -> Self {
        let draws = Assumptions::sample(experiment.draws as usize, experiment.scenario.seed);
        Self { machine, performance, experiment, draws, cpi: None }
    }

    /// The bench with this CPI model of a shared core for `symbiotic`; `None` for that of another
    /// machine ([`CpiModel::built_in`]).
    #[must_use]
    pub fn knowing(self, cpi: Option<&'a CpiModel>) -> Self {
        Self { cpi, ..self }
    }

    /// Number of units.
    #[must_use]
    pub fn units(&self) -> usize {
        self.draws.len() * self.experiment.seeds as usize
    }

    /// Figures of all units, given as by [`Self::unit`], in order.
    ///
    /// # Panics
    /// If the number of units is not [`Self::units`].
    #[must_use]
    pub fn figures(&self, units: &[Vec<RunSummary>]) -> Simulated {
        assert_eq!(units.len(), self.units(), "every unit");
        let policies = 0..self.experiment.policies.len();
        // From unit by unit to policy by policy.
        let runs = policies.flat_map(|policy| units.iter().map(move |unit| unit[policy].clone()));
        let runs: Vec<RunSummary> = runs.collect();
        let mut found = Simulated::of(self.settings(), &runs);
        found.notes.extend(notes(&self.experiment.policies, self.cpi));
        found
    }

    /// A run under `policy` with the default assumptions and the first seed, with the spans of all
    /// threads on PUs.
    ///
    /// # Errors
    /// [`SimError`] of the run.
    pub fn traced(&self, policy: &Contender) -> Result<Outcome, SimError> {
        let platform = Platform::new(self.machine, self.performance, Assumptions::default())?;
        let mut outcome = self.run(&platform, &self.experiment.scenario, policy, MAX_SPANS)?;
        if outcome.spans.len() >= MAX_SPANS {
            // Later spans were dropped: the picture shows the beginning.
            outcome.lasted = outcome.spans.iter().map(|span| span.to).max().unwrap_or_default();
        }
        Ok(outcome)
    }

    /// Settings of the comparison.
    #[must_use]
    pub fn settings(&self) -> ComparisonSettings {
        let Experiment { scenario, policies, baseline, seeds, draws, note, .. } = self.experiment;
        let tasks: usize = scenario.jobs.iter().map(|job| job.threads.len()).sum();
        ComparisonSettings {
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

    /// A run with at most this many `spans` of threads on PUs.
    fn run(
        &self,
        platform: &Platform<'_>,
        scenario: &Scenario,
        contender: &Contender,
        spans: usize,
    ) -> Result<Outcome, SimError> {
        let Experiment { profiled, watch, .. } = *self.experiment;
        // Profiles of jobs alone were measured on this machine, so they are those of this draw.
        let options = SimulationOptions {
            each_quantum: contender.each_quantum(),
            profiled,
            watch,
            alone: false,
            spans,
            cpi: self.cpi,
            meanwhile: contender.waiting.unwrap_or_default(),
            guarded: contender.guarded,
            ..SimulationOptions::default()
        };
        simulate(platform, scenario, &contender.policy, &options)
    }

    /// Runs of all policies with one draw and one seed; units count from 0.
    ///
    /// # Errors
    /// [`SimError`] of the first policy with one.
    ///
    /// # Panics
    /// If `unit` is not below [`Self::units`].
    pub fn unit(&self, unit: usize) -> Result<Vec<RunSummary>, SimError> {
        let seeds = self.experiment.seeds as usize;
        let draw = unit / seeds;
        let seed = unit % seeds;
        let platform = Platform::new(self.machine, self.performance, self.draws[draw])?;
        let first = &self.experiment.scenario;
        let scenario = Scenario { seed: first.seed.wrapping_add(seed as u64), ..first.clone() };
        let alone = alone_times(&platform, &scenario)?;
        let runs = self.experiment.policies.iter().map(|policy| {
            // Without spans: only `traced` has a picture.
            let mut outcome = self.run(&platform, &scenario, policy, 0)?;
            for (job, alone) in outcome.jobs.iter_mut().zip(&alone) {
                job.alone = *alone;
            }
            Ok(RunSummary::of(&outcome, draw == 0))
        });
        runs.collect()
    }
}

/// Notes on the compared schedulers, for the reader.
fn notes(policies: &[Contender], cpi: Option<&CpiModel>) -> Vec<String> {
    let schedulers = policies.iter().filter(|contender| contender.each_quantum());
    let schedulers: Vec<&PolicySpec> = schedulers.map(|contender| &contender.policy).collect();
    let mut notes = Vec::new();
    if !schedulers.is_empty() {
        notes.push(
            "schedulers decide in no time, and stopping jobs costs nothing but what they find in the \
             caches later"
                .to_owned(),
        );
    }
    if let Some(names) = with_prior(&schedulers, Prior::Solo) {
        notes.push(format!(
            "with solo profiles of all jobs from the model that simulates, which favours them: {names}"
        ));
    }
    if let Some(names) = with_prior(&schedulers, Prior::Demands) {
        notes.push(format!(
            "{names} plans with the model that simulates and has all demands, which no real machine \
             offers"
        ));
    }
    if let Some(names) = with_prior(&schedulers, Prior::CpiModel) {
        let model = cpi.cloned().unwrap_or_else(CpiModel::built_in);
        let by = if model.simulated { "trained in simulation of" } else { "measured on" };
        notes.push(format!(
            "with coefficients of CPI stacks on a shared core, {by} {} on {}: {names}",
            model.machine, model.date
        ));
    }
    notes
}

/// Names of the policies with this prior knowledge; `None` without any.
fn with_prior(policies: &[&PolicySpec], prior: Prior) -> Option<String> {
    let informed = policies.iter().filter(|policy| policy.has_prior(prior));
    let names: Vec<&str> = informed.map(|policy| policy.name()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knowledge_of_schedulers_is_in_the_notes() {
        let knowing = |names: &[&str], cpi: Option<&CpiModel>| -> Vec<String> {
            let policies = names.iter().map(|name| name.parse().unwrap());
            notes(&policies.collect::<Vec<Contender>>(), cpi)
        };
        let of = |names: &[&str]| knowing(names, None);
        assert!(of(&["os", "mix"]).is_empty());
        assert_eq!(of(&["os", "bas"]).len(), 1);
        let stacks = of(&["symbiotic", "bas"]);
        assert!(stacks[1].contains("trained in simulation of IBM POWER8"), "{}", stacks[1]);
        assert!(stacks[1].ends_with(": symbiotic"), "{}", stacks[1]);
        let measured = CpiModel { simulated: false, ..CpiModel::built_in() };
        let stacks = knowing(&["symbiotic"], Some(&measured));
        assert!(stacks[1].contains(", measured on IBM POWER8"), "{}", stacks[1]);
        let all = of(&["mmas", "bas", "idas:kappa=0.5", "oracle"]);
        assert!(all[1].ends_with("favours them: mmas, idas"), "{}", all[1]);
        assert!(all[2].starts_with("oracle plans with the model that simulates"), "{}", all[2]);
    }
}
