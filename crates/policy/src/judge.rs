//! Losses that the contention model predicts for tasks on one core: the edge costs of
//! `symbiosis-model`. A task's rate measured on this machine's processor is used
//! ([`Model::demand`]).

use crate::places::UsableMachine;
use crate::plan::Task;
use colocate_machine::{Performance, PuIdx};
use colocate_model::phase::Demand;
use colocate_model::system::{Model, PlacedTask};
use colocate_model::{Assumptions, Phase};
use std::collections::BTreeMap;

/// Predictor of slowdowns on one core while the rest of the machine is idle.
pub(crate) struct SlowdownPredictor<'a> {
    model: Model<'a>,
    /// PUs of the core.
    siblings: Vec<PuIdx>,
    /// Distinct demands; most programs have many equal threads.
    demands: Vec<Demand>,
    /// Index in `demands` of each task.
    kinds: Vec<usize>,
    /// Busy share of each task, see [`Task::weight`].
    weights: Vec<f64>,
    /// Job of each task.
    jobs: Vec<u32>,
    /// Rate alone on the core in instructions per second, by index in `demands`.
    alone: Vec<f64>,
    /// Cached slowdowns of tasks together, by their sorted kinds and jobs.
    together: BTreeMap<Vec<(usize, u32)>, Vec<f64>>,
}

impl<'a> SlowdownPredictor<'a> {
    /// A judge of `tasks` on the core with the most usable PUs, of several the fastest; `None` without a
    /// usable core, or if the model rejects these figures or demands.
    pub fn new(
        places: &UsableMachine<'a>,
        performance: &'a Performance,
        tasks: &[&Task],
    ) -> Option<Self> {
        let assumptions = Assumptions::default();
        let model = Model::new(places.machine, performance, assumptions).ok()?;
        // The widest core holds every group; of several, the fastest: later kinds are faster.
        let core = places.cores.iter().max_by_key(|core| (core.pus.len(), core.kind))?;
        let (phases, of) = distinct(tasks.iter().map(|task| unnamed(task.demanded())));
        let demands = phases.iter().map(|phase| model.demand(phase, core.pus[0]).ok());
        // Different phases can have equal demands on this kind of core.
        let (demands, kinds) = distinct(demands.collect::<Option<Vec<_>>>()?);
        let kinds = of.into_iter().map(|phase| kinds[phase]).collect();
        let mut judge = Self {
            model,
            siblings: core.pus.clone(),
            demands,
            kinds,
            weights: tasks.iter().map(|task| task.weight()).collect(),
            jobs: tasks.iter().map(|task| task.id.job.0).collect(),
            alone: Vec::new(),
            together: BTreeMap::new(),
        };
        // Job 0 stands for any job: alone there is nothing to share.
        judge.alone = (0..judge.demands.len()).map(|kind| judge.rates(&[(kind, 0)])[0]).collect();
        Some(judge)
    }

    /// Loss of the tasks `members` (indexes in the list of tasks) on one core: the sum of `slowdown
    /// − 1`, each term weighted by the task's busy share and the mean busy share of the rest.
    ///
    /// Members beyond the number of the core's PUs do not count.
    pub fn loss(&mut self, members: &[usize]) -> f64 {
        let members = &members[..members.len().min(self.siblings.len())];
        if members.len() < 2 {
            return 0.0;
        }
        let mut members = members.to_vec();
        // Sorted, so that equal groups in any order share a cache entry.
        members.sort_by_key(|&task| (self.kinds[task], self.jobs[task]));
        let key: Vec<_> = members.iter().map(|&task| (self.kinds[task], self.jobs[task])).collect();
        if !self.together.contains_key(&key) {
            let rates = key.iter().zip(self.rates(&key));
            let slowdowns = rates.map(|(&(kind, _), rate)| self.alone[kind] / rate).collect();
            self.together.insert(key.clone(), slowdowns);
        }
        let all: f64 = members.iter().map(|&task| self.weights[task]).sum();
        let others = (members.len() - 1) as f64;
        let losses = members.iter().zip(&self.together[&key]).map(|(&task, slowdown)| {
            let weight = self.weights[task];
            (slowdown - 1.0) * weight * (all - weight) / others
        });
        // Rounding may make a slowdown slightly less than 1.
        losses.sum::<f64>().max(0.0)
    }

    fn rates(&self, tasks: &[(usize, u32)]) -> Vec<f64> {
        let seats = tasks.iter().zip(&self.siblings);
        let seats = seats.map(|(&(kind, space), &pu)| PlacedTask {
            pu,
            demand: &self.demands[kind],
            pages: &[],
            space,
        });
        let found = self.model.predict(&seats.collect::<Vec<_>>());
        found.tasks.iter().map(|task| task.instructions_per_second).collect()
    }
}

/// `phase` without its name, for comparison by demand.
pub(crate) fn unnamed(phase: Phase) -> Phase {
    Phase { name: String::new(), ..phase }
}

/// Distinct items of `all`, and the index of each item among them.
pub(crate) fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> (Vec<T>, Vec<usize>) {
    let mut different: Vec<T> = Vec::new();
    let mut of = Vec::new();
    for each in all {
        let known = different.iter().position(|other| *other == each);
        of.push(known.unwrap_or(different.len()));
        if known.is_none() {
            different.push(each);
        }
    }
    (different, of)
}

impl Task {
    /// Demand vector; derived from the mix if no vector is given.
    #[must_use]
    pub fn demanded(&self) -> Phase {
        let phase = self.phase.clone();
        phase.unwrap_or_else(|| Phase::of_mix(self.name.clone(), self.mix, "instruction mix"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::testing::random_tasks;
    use colocate_machine::described;
    use colocate_model::phase::{Known, MeasuredCycles};

    /// Three threads of one mix: the second takes fifty cycles an instruction, the others one.
    #[test]
    fn rates_that_were_counted_count() {
        let exact = described::from_toml(described::MACHINES[0].1).unwrap();
        let (machine, performance) = (exact.machine, exact.performance.unwrap());
        let mut tasks = random_tasks(&mut SplitMix64::new(3), 3);
        let mix = tasks[0].mix;
        for (task, cycles) in tasks.iter_mut().zip([1.0, 50.0, 1.0]) {
            let processor = machine.processor.clone().unwrap();
            let cycles = Known::new(MeasuredCycles { processor, cycles }, "counted");
            let phase = Phase::of_mix(task.name.clone(), mix, "counted");
            (task.mix, task.phase) = (mix, Some(Phase { cycles, ..phase }));
        }
        let places = UsableMachine::new(&machine, &machine.cores[0].pus);
        let judge =
            SlowdownPredictor::new(&places, &performance, &tasks.iter().collect::<Vec<_>>())
                .unwrap();
        assert_eq!(judge.kinds, [0, 1, 0]);
        let clock = performance.kinds[0].clock.0 as f64;
        for (rate, cycles) in judge.alone.iter().zip([1.0, 50.0]) {
            assert!((clock / rate / cycles - 1.0).abs() < 1e-3, "{}, not {cycles}", clock / rate);
        }
    }
}
