//! Slowdown of each task of a plan against running alone, as the contention model predicts.
//!
//! The model's parameters and the unknown demands of programs are assumptions. A slowdown is
//! therefore given with its range over all assumptions. Where a task's rate was measured on this
//! machine's processor, only assumptions that reproduce the rate count ([`Model::demand`]), so the
//! range is narrower.

use crate::judge::{distinct, unnamed};
use crate::plan::{Plan, Slowdown, Task};
use colocate_evidence::TaskId;
use colocate_machine::performance::Impossible;
use colocate_machine::{KindIdx, Machine, Performance, PuIdx};
use colocate_model::phase::{Demand, PhaseError};
use colocate_model::system::{Model, PlacedTask};
use colocate_model::{Assumptions, Phase};
use std::collections::HashMap;
use thiserror::Error;

/// Reason for a missing forecast.
#[derive(Debug, Error)]
pub enum ForecastError {
    /// A task has no PU of its own.
    #[error("task {0} has no PU of its own: the model is of tasks that run all the time")]
    NoPuOfItsOwn(TaskId),
    /// The machine cannot be modelled.
    #[error(transparent)]
    Model(#[from] Impossible),
    /// A task's demand vector is not possible on this machine.
    #[error("demand of task {0}: {1}")]
    Phase(TaskId, PhaseError),
}

/// Slowdown of each task over all `assumptions`, in the order of `plan`'s decisions.
///
/// Tasks of one job share lines of memory; all memory is on the node of the PU that uses it. A task
/// missing from `tasks` has an unknown demand.
///
/// # Errors
/// Every variant of [`ForecastError`].
pub fn slowdowns(
    machine: &Machine,
    performance: &Performance,
    plan: &Plan,
    tasks: &[Task],
    assumptions: &[Assumptions],
) -> Result<Vec<Slowdown>, ForecastError> {
    let pus = own_pus(machine, plan)?;
    // Most tasks are alike: each distinct demand is computed once.
    let (phases, of) = distinct(plan.decisions.iter().map(|decision| {
        let task = tasks.iter().find(|task| task.id == decision.task);
        unnamed(task.map_or_else(Phase::default, Task::demanded))
    }));
    // Alike tasks have one demand, and one rate alone, on all cores of a kind.
    let kinds = pus.iter().map(|&pu| machine.cores[machine.core_of(pu).idx()].kind);
    let keys: Vec<(usize, KindIdx)> = of.into_iter().zip(kinds).collect();
    let mut found: Vec<Slowdown> = Vec::new();
    for assumed in assumptions {
        let model = Model::new(machine, performance, *assumed)?;
        let mut known: HashMap<(usize, KindIdx), (Demand, f64)> = HashMap::new();
        for ((it, &pu), &key) in plan.decisions.iter().zip(&pus).zip(&keys) {
            if known.contains_key(&key) {
                continue;
            }
            let demand = model.demand(&phases[key.0], pu);
            let demand = demand.map_err(|reason| ForecastError::Phase(it.task, reason))?;
            let seat = PlacedTask { pu, demand: &demand, pages: &[], space: it.task.job.0 };
            let alone = model.alone(&seat).instructions_per_second;
            known.insert(key, (demand, alone));
        }
        let seats = plan.decisions.iter().zip(&pus).zip(&keys).map(|((it, &pu), key)| PlacedTask {
            pu,
            demand: &known[key].0,
            pages: &[],
            space: it.task.job.0,
        });
        let together = model.predict(&seats.collect::<Vec<_>>());
        for (place, (key, rate)) in keys.iter().zip(&together.tasks).enumerate() {
            note(&mut found, place, known[key].1 / rate.instructions_per_second);
        }
    }
    Ok(found)
}

/// Extends the range at `place` by `slowdown`; the first value is the default.
fn note(found: &mut Vec<Slowdown>, place: usize, slowdown: f64) {
    match found.get_mut(place) {
        Some(range) => {
            range.least = range.least.min(slowdown);
            range.most = range.most.max(slowdown);
        }
        None => found.push(Slowdown { usual: slowdown, least: slowdown, most: slowdown }),
    }
}

/// PU of every decision, if no two decisions share a PU.
fn own_pus(machine: &Machine, plan: &Plan) -> Result<Vec<PuIdx>, ForecastError> {
    let mut taken = vec![false; machine.pus.len()];
    let pus = plan.decisions.iter().map(|decision| {
        let pu = decision.place.pu().and_then(|pu| machine.pu_by_os(pu));
        // A second task on the PU finds the flag set.
        pu.filter(|pu| !std::mem::replace(&mut taken[pu.idx()], true))
            .ok_or(ForecastError::NoPuOfItsOwn(decision.task))
    });
    pus.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::testing::{plan, random_tasks};
    use colocate_machine::described;
    use colocate_model::phase::{Guessed, Guesses, Known, MeasuredCycles};
    use colocate_model::{Class, Mix, Share};

    fn epyc() -> (Machine, Performance) {
        let text = described::MACHINES[0].1;
        let exact = described::from_toml(text).unwrap();
        (exact.machine, exact.performance.unwrap())
    }

    /// One task alone is not slowed down, whatever is assumed.
    #[test]
    fn alone_is_one() {
        let (machine, performance) = epyc();
        let tasks = random_tasks(&mut SplitMix64::new(3), 1);
        let usable: Vec<_> = machine.all_pus().collect();
        let made = plan("mix", &machine, &usable, &tasks);
        let found =
            slowdowns(&machine, &performance, &made, &tasks, &Assumptions::sample(9, 1)).unwrap();
        let Slowdown { usual, least, most } = found[0];
        assert!((usual - 1.0).abs() < 1e-6 && most - least < 1e-6, "{found:?}");
    }

    /// Siblings take something from each other, and the usual figure is within the range.
    #[test]
    fn siblings_are_slower() {
        let (machine, performance) = epyc();
        let tasks = random_tasks(&mut SplitMix64::new(3), 4);
        let usable: Vec<_> = machine.cores[..2].iter().flat_map(|c| c.pus.clone()).collect();
        let made = plan("mix", &machine, &usable, &tasks);
        let found =
            slowdowns(&machine, &performance, &made, &tasks, &Assumptions::sample(17, 1)).unwrap();
        assert_eq!(found.len(), 4);
        for Slowdown { usual, least, most } in found {
            assert!(1.0 - 1e-9 <= least && least <= usual && usual <= most && most < 4.0);
            assert!(usual > 1.01, "{usual}");
        }
    }

    #[test]
    fn alternating_tasks_have_no_forecast() {
        let (machine, performance) = epyc();
        let tasks = random_tasks(&mut SplitMix64::new(3), 3);
        let made = plan("mix", &machine, &[PuIdx(0), PuIdx(1)], &tasks);
        let found = slowdowns(&machine, &performance, &made, &tasks, &[Assumptions::default()]);
        let error = found.unwrap_err().to_string();
        assert!(error.starts_with("task ") && error.contains("no PU of its own"), "{error}");
    }

    /// Tasks whose truth is drawn: all that a mix does not show is that of some set of assumptions.
    struct Truth {
        mix: Mix,
        demand: Demand,
        cycles: f64,
    }

    impl Truth {
        fn of(model: &Model<'_>, guesses: Guesses) -> Self {
            let mut mix = Mix::default();
            for class in Class::ALL {
                mix.set(class, Share::new(guesses.get(Guessed::share(class))));
            }
            let phase = Phase::of_mix("", mix, "drawn");
            let demand = phase.on(&epyc().1.kinds[0], &guesses).unwrap().demand;
            let seat = PlacedTask { pu: PuIdx(0), demand: &demand, pages: &[], space: 0 };
            let cycles = model.alone(&seat).cpi.total();
            Self { mix, demand, cycles }
        }

        /// Observed part of the task: its mix, and its rate if counted.
        fn task(&self, machine: &Machine, job: u32, counted: bool) -> Task {
            let mut phase = Phase::of_mix("", self.mix, "counted");
            if counted {
                let processor = machine.processor.clone().unwrap();
                let measured = MeasuredCycles { processor, cycles: self.cycles };
                phase.cycles = Known::new(measured, "counted");
            }
            let mut task = random_tasks(&mut SplitMix64::new(3), 1).remove(0);
            task.id = TaskId { job: colocate_evidence::JobIdx(job), order: 0 };
            (task.mix, task.phase) = (self.mix, Some(phase));
            task
        }
    }

    /// Pairs of tasks on one core. With known rates slowdowns have a narrower range, and
    /// the truth is still within it. (Of 20 pairs: 0.62 wide on average with rates, 0.76 without; the truth
    /// was within 39 and 40 of 40.)
    #[test]
    fn a_rate_narrows_the_range() {
        const PAIRS: usize = 8;
        let (machine, performance) = epyc();
        let model = Model::new(&machine, &performance, Assumptions::default()).unwrap();
        let drawn = Assumptions::sample(2 * PAIRS + 1, 11);
        let truths: Vec<Truth> =
            drawn[1..].iter().map(|one| Truth::of(&model, one.guesses)).collect();
        let assumed = Assumptions::sample(65, 0);
        let core = &machine.cores[0].pus;
        let (mut widths, mut within) = ([0.0; 2], [0; 2]);
        for pair in truths.chunks_exact(2) {
            let seats: Vec<PlacedTask<'_>> = (0..)
                .zip(core.iter().zip(pair))
                .map(|(space, (&pu, one))| PlacedTask {
                    pu,
                    demand: &one.demand,
                    pages: &[],
                    space,
                })
                .collect();
            let together = model.predict(&seats);
            for counted in [false, true] {
                let tasks: Vec<Task> =
                    (0..).zip(pair).map(|(job, one)| one.task(&machine, job, counted)).collect();
                let made = plan("mix", &machine, core, &tasks);
                let found = slowdowns(&machine, &performance, &made, &tasks, &assumed).unwrap();
                for ((one, found), rate) in pair.iter().zip(found).zip(&together.tasks) {
                    let truth = rate.cpi.total() / one.cycles;
                    widths[usize::from(counted)] += found.most - found.least;
                    within[usize::from(counted)] +=
                        usize::from((found.least..=found.most).contains(&truth));
                }
            }
        }
        let [mixes, rates] = widths.map(|width| width / (2 * PAIRS) as f64);
        assert!(rates < 0.9 * mixes, "{rates} of {mixes}; within {within:?}");
        assert!(within[1] >= 2 * PAIRS - 1, "{within:?}");
    }
}
