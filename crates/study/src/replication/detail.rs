//! One mix in more detail, under the default assumptions and with the first seed: the figures behind
//! the slides' pictures.

use super::definition::{Cells, Shown};
use super::report::{Details, Imbalance, MixTimeline};
use super::{StudyCell, StudyCells, StudyError, TableCells, count, mixes};
use crate::simulate::figures::together;
use colocate_engine::Round;
use colocate_evidence::SeenTask;
use colocate_figures::stats;
use colocate_machine::{Cache, CacheKind, CoreIdx, Machine, Nanos, PuIdx, PuNr};
use colocate_sim::{Outcome, Platform, alone_of};
use std::collections::{BTreeMap, BTreeSet};

/// Tenths of the baseline's turnaround at which unfinished programs are counted.
const TENTHS: u64 = 12;

/// Details of the mix at index `place` of a table, under all its schedulers.
pub(super) fn of(
    work: &StudyCells<'_>,
    table: &TableCells<'_>,
    place: usize,
    what: Shown,
) -> Result<Details, StudyError> {
    let StudyCells { study, programs, .. } = work;
    let (Cells::Mixes(form), StudyCell::Mix(mix)) = (&table.part.cells, &table.cells[place]) else {
        unreachable!("only mixes are shown in detail")
    };
    let platform = Platform::new(study.machine, study.performance, study.draws[0])?;
    let scenario = mixes::scenario(study, form.programs_per_pu, programs, mix, study.seed);
    let alone = alone_of(&platform, &scenario)?;
    let mut ran = Vec::new();
    for (name, policy) in table.part.known() {
        let mut watch = QuantumSamples::new(study.machine, &mix.pus);
        let contender = (policy, &*alone);
        let outcome =
            mixes::under(study, &platform, &scenario, contender, &mut |round: &Round<'_>| {
                watch.sample(round)
            })?;
        ran.push((name.clone(), watch, outcome));
    }
    let baseline = ran.first().and_then(|(_, _, outcome)| outcome.turnaround()).unwrap_or_default();
    let policies = ran.into_iter().map(|(policy, watch, outcome)| MixTimeline {
        policy,
        progress: watch.progress(&outcome),
        left: (0..=TENTHS).map(|k| left(&outcome, Nanos(baseline.0 / 10 * k))).collect(),
        imbalance: watch.imbalance(),
        first_caches: watch.first_caches(&outcome),
        slots: slots(&outcome, study.definition.quantum),
        core_sharing: together(&outcome),
    });
    Ok(Details {
        mix: mix.name.clone(),
        what,
        programs: scenario.jobs.iter().map(|job| job.name.clone()).collect(),
        policies: policies.collect(),
    })
}

/// Programs that have not reached their targets at the time `at`.
fn left(outcome: &Outcome, at: Nanos) -> u32 {
    count(outcome.jobs.iter().filter(|job| job.done.is_none_or(|done| done > at)).count())
}

/// Quanta for which each program had a PU.
fn slots(outcome: &Outcome, quantum: Nanos) -> Vec<f64> {
    let slots = (0..count(outcome.jobs.len())).map(|job| {
        let own = outcome.tasks.iter().filter(|task| task.id.job.0 == job);
        own.fold(0.0, |sum, task| sum + task.ran.as_secs_f64() / quantum.as_secs_f64())
    });
    slots.collect()
}

/// Samples of a run, one a quantum.
struct QuantumSamples<'a> {
    machine: &'a Machine,
    contexts: usize,
    /// Cores that the mix uses.
    cores: BTreeSet<CoreIdx>,
    /// Compared caches, and the index of their level among the levels that hold data, nearest
    /// first.
    shared: Option<(Vec<&'a Cache>, usize)>,
    at: Nanos,
    /// Time of the sample, and instructions by job.
    done: Vec<(Nanos, Vec<f64>)>,
    /// Misses of the next nearer cache at the last sample, by job.
    misses: Vec<u64>,
    /// Requests to the most requested cache less the least requested, t/µs, by quantum.
    differences: Vec<f64>,
    /// Accesses of the first cache at the last sample, by job.
    accesses: Vec<u64>,
    /// Time of the sample, and requests to the least and the most requested first cache, t/µs.
    first_caches: Vec<(Nanos, [f64; 2])>,
}

impl<'a> QuantumSamples<'a> {
    fn new(machine: &'a Machine, pus: &[PuNr]) -> Self {
        let used = pus.iter().filter_map(|pu| Some(machine.core_of(machine.pu_by_os(*pu)?)));
        Self {
            machine,
            contexts: pus.len(),
            cores: used.collect(),
            shared: shared(machine),
            at: Nanos::ZERO,
            done: Vec::new(),
            misses: Vec::new(),
            differences: Vec::new(),
            accesses: Vec::new(),
            first_caches: Vec::new(),
        }
    }

    fn sample(&mut self, round: &Round<'_>) {
        let tasks = &round.seen.tasks;
        let instructions = tasks.iter().map(|task| task.instructions.unwrap_or(0) as f64);
        self.done.push((round.seen.at, instructions.collect()));
        let took_us = round.seen.at.saturating_sub(self.at).as_secs_f64() * 1e6;
        self.at = round.seen.at;
        if took_us > 0.0 {
            self.sample_first_caches(tasks, took_us);
        }
        let Some((caches, place)) = self.shared.as_ref().filter(|_| took_us > 0.0) else { return };
        // Requests to a level are the misses of the next nearer one.
        let misses =
            |task: &SeenTask| task.counts.as_ref()?.misses.as_ref()?.get(*place - 1).copied();
        let mut requests = vec![0.0; caches.len()];
        for (pu, more) in grown(self.machine, tasks, &mut self.misses, misses) {
            let cache = pu.and_then(|pu| caches.iter().position(|it| it.pus.contains(&pu)));
            if let Some(cache) = cache {
                requests[cache] += more as f64 / took_us;
            }
        }
        if tasks.iter().filter(|task| task.alive()).count() < self.contexts {
            return;
        }
        let (least, most) = stats::ends(requests);
        self.differences.push(most - least);
    }

    /// Samples the requests to the first cache of each core, by the tasks last seen on it.
    fn sample_first_caches(&mut self, tasks: &[SeenTask], took_us: f64) {
        let mut requests: BTreeMap<CoreIdx, f64> =
            self.cores.iter().map(|core| (*core, 0.0)).collect();
        let grown =
            grown(self.machine, tasks, &mut self.accesses, |task| task.counts.as_ref()?.accesses);
        for (pu, more) in grown.iter().filter_map(|(pu, more)| Some(((*pu)?, *more))) {
            *requests.entry(self.machine.core_of(pu)).or_default() += more as f64 / took_us;
        }
        if !grown.is_empty() {
            let (least, most) = stats::ends(requests.into_values());
            self.first_caches.push((self.at, [least, most]));
        }
    }

    /// Means of each tenth of the time until the first program is done.
    fn first_caches(&self, outcome: &Outcome) -> Vec<[f64; 2]> {
        let first = outcome.jobs.iter().filter_map(|job| job.done).min();
        let Some(first) = first.filter(|_| !self.first_caches.is_empty()) else {
            return Vec::new();
        };
        let tenths = (0..10).map(|k: u64| {
            let from = Nanos(first.0 / 10 * k);
            let to = Nanos(first.0 / 10 * (k + 1));
            let first = self.first_caches.partition_point(|(at, _)| *at <= from);
            let end = self.first_caches.partition_point(|(at, _)| *at <= to);
            // Where no quantum ends in the tenth, the quantum that lasts beyond it.
            let own = &self.first_caches[first..end.max(first + 1).min(self.first_caches.len())];
            [0, 1].map(|end| {
                let values: Vec<f64> = own.iter().map(|(_, ends)| ends[end]).collect();
                stats::mean(&values).unwrap_or(0.0)
            })
        });
        tenths.collect()
    }

    fn progress(&self, outcome: &Outcome) -> Vec<[f64; 3]> {
        let Some(first) = outcome.jobs.iter().filter_map(|job| job.done).min() else {
            return Vec::new();
        };
        let progress = (0..=10).map(|tenth: u64| {
            // Exact at the end: the division rounds down.
            let when = Nanos(if tenth == 10 { first.0 } else { first.0 / 10 * tenth });
            let seen = self.done.partition_point(|(at, _)| *at <= when);
            // Before the first sample nothing is done.
            let done = seen.checked_sub(1).map(|last| &self.done[last].1);
            let parts = outcome.tasks.iter().enumerate().map(|(job, task)| {
                done.and_then(|done| done.get(job)).map_or(0.0, |done| done / task.instructions)
            });
            let parts: Vec<f64> = parts.collect();
            let (least, most) = stats::ends(parts.iter().copied());
            [least, stats::mean(&parts).unwrap_or(0.0), most]
        });
        progress.collect()
    }

    fn imbalance(&self) -> Option<Imbalance> {
        let mut sorted = self.differences.clone();
        sorted.sort_by(f64::total_cmp);
        let mean = stats::mean(&sorted)?;
        let median = stats::median(&sorted)?;
        let ninth_tenth = sorted[(sorted.len() * 9 / 10).min(sorted.len() - 1)];
        Some(Imbalance { mean, median, ninth_tenth })
    }
}

/// Last PU of each task with a count, and the growth of the count since the last sample, `before`.
fn grown(
    machine: &Machine,
    tasks: &[SeenTask],
    before: &mut Vec<u64>,
    count: impl Fn(&SeenTask) -> Option<u64>,
) -> Vec<(Option<PuIdx>, u64)> {
    // A new task has no counts yet.
    before.resize(tasks.len().max(before.len()), 0);
    let grown = tasks.iter().zip(before).filter_map(|(task, before)| {
        let now = count(task)?;
        let pu = task.last_ran.and_then(|pu| machine.pu_by_os(pu));
        Some((pu, now - std::mem::replace(before, now)))
    });
    grown.collect()
}

/// Caches of the last level with several caches that serve several cores each, and the index of the
/// level among the levels that hold data, nearest first. The first level is left out: requests are
/// counted as misses of the next nearer level, and it has none.
fn shared(machine: &Machine) -> Option<(Vec<&Cache>, usize)> {
    let data = machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction);
    let data: Vec<&Cache> = data.collect();
    let mut levels: Vec<u8> = data.iter().map(|cache| cache.level).collect();
    levels.sort_unstable();
    levels.dedup();
    let place = levels.iter().rposition(|level| {
        let own = data.iter().filter(|cache| cache.level == *level);
        own.filter(|cache| cores_of(machine, cache) > 1).count() > 1
    })?;
    let own = data.into_iter().filter(|cache| cache.level == levels[place]);
    (place > 0).then(|| (own.collect(), place))
}

/// Number of cores under a cache.
fn cores_of(machine: &Machine, cache: &Cache) -> usize {
    let mut cores: Vec<_> = cache.pus.iter().map(|&pu| machine.core_of(pu)).collect();
    cores.dedup();
    cores.len()
}

#[cfg(test)]
mod tests {
    use super::super::Study;
    use super::super::definition::PolicyStudyDefinition;
    use super::*;
    use crate::testing::machine;
    use colocate_model::Assumptions;

    #[test]
    fn caches_that_can_be_balanced() {
        let (machine_of_two, _) = machine("xeon-x3320");
        let (caches, place) = shared(&machine_of_two).unwrap();
        assert_eq!((caches.iter().map(|it| it.level).collect::<Vec<_>>(), place), (vec![2; 2], 1));
        assert_eq!(shared(&machine("xeon-e5645").0), None);
        assert_eq!(shared(&machine("power8-10c").0), None);
    }

    #[test]
    fn a_mix_is_shown_from_its_start_to_its_end() {
        let (machine, performance) = machine("xeon-x3320");
        let mut definition = PolicyStudyDefinition::built_in("feliu-1").unwrap();
        definition.mixes().for_each(|mixes| (mixes.count, mixes.traffic) = (1, None));
        definition.programs = 8;
        definition.length = Nanos::from_millis(100);
        definition.quantum = Nanos::from_millis(10);
        let draws = [Assumptions::default()];
        let work = StudyCells::new(Study {
            definition: &definition,
            machine: &machine,
            performance: &performance,
            draws: &draws,
            seed: 3,
        });
        let work = work.unwrap();
        let table = &work.tables[0];
        let shown = of(&work, table, 0, Shown::Imbalance).unwrap();
        assert_eq!(shown.policies.len(), table.part.policies.len());
        for course in &shown.policies {
            assert_eq!(course.left[0], 8, "{course:?}");
            assert_eq!((course.progress.len(), course.core_sharing.len()), (11, 8));
            // Each has the time of ten quanta alone.
            assert!(course.slots.iter().all(|slots| *slots > 9.99), "{course:?}");
            let ordered = course.first_caches.iter().all(|[least, most]| least <= most);
            assert!(course.first_caches.len() == 10 && ordered, "{course:?}");
            let [least, mean, most] = course.progress[10];
            assert!(least <= mean && mean <= most && (most - 1.0).abs() < 1e-3, "{course:?}");
            assert!(course.imbalance.is_some_and(|it| it.median <= it.ninth_tenth));
        }
    }
}
