//! Tracks of programs alone and together: cycles by instructions.

use colocate_engine::{Host, HostError};
use colocate_evidence::{JobEnd, JobIdx, Observation, QuantumEnd, SeenTask, TaskId};
use colocate_machine::{Nanos, PuIdx, PuNr};
use colocate_model::symbiosis::FitSample;
use colocate_model::symbiosis::file::{Component, added_up};
use colocate_policy::{Decision, DefaultPlacement, Place, PlaceReason, Plan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Least share of the cycles that a stack has to explain; it is then scaled to all cycles. Chosen:
/// what counted parts may miss.
const EXPLAINED: f64 = 0.9;

/// Progress of a program at each sample since its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Track {
    /// Instructions until each sample; 0 at the first, the start.
    pub instructions: Vec<f64>,
    /// Cycles by component between each sample and the next; `None` where unknown.
    pub cycles: Vec<Option<Vec<f64>>>,
}

impl Default for Track {
    fn default() -> Self {
        Self { instructions: vec![0.0], cycles: Vec::new() }
    }
}

impl Track {
    /// Cycles by component between two numbers of instructions, taken to pass evenly between
    /// samples. `None` if the program has not come that far, or if the cycles are unknown.
    pub(super) fn between(&self, from: f64, to: f64) -> Option<Vec<f64>> {
        self.instructions.last().filter(|done| to <= **done)?;
        let first = self.instructions.partition_point(|done| *done <= from).checked_sub(1)?;
        let intervals = self.instructions.windows(2).zip(&self.cycles).skip(first);
        let mut sums: Option<Vec<f64>> = None;
        for (ends, cycles) in intervals.take_while(|(ends, _)| ends[0] < to) {
            let part = (to.min(ends[1]) - from.max(ends[0])) / (ends[1] - ends[0]);
            // Without instructions the part is NaN, which is not above 0.
            if part > 0.0 {
                let cycles = cycles.as_ref()?;
                let sums = sums.get_or_insert_with(|| vec![0.0; cycles.len()]);
                sums.iter_mut().zip(cycles).for_each(|(sum, each)| *sum += part * each);
            }
        }
        sums
    }

    /// First and last instruction, and cycles by component, of the interval that ends with sample
    /// `at`.
    fn interval(&self, at: usize) -> Option<(f64, f64, Vec<f64>)> {
        let before = at.checked_sub(1)?;
        let cycles = self.cycles.get(before)?.clone()?;
        Some((self.instructions[before], self.instructions[at], cycles))
    }

    /// Whether any interval after this many samples has instructions and known cycles.
    pub(super) fn is_known_after(&self, samples: usize) -> bool {
        let intervals = self.instructions.windows(2).zip(&self.cycles).skip(samples);
        intervals.into_iter().any(|(ends, cycles)| ends[1] > ends[0] && cycles.is_some())
    }
}

/// Settings of runs side by side.
#[derive(Clone, Copy, Debug)]
pub struct TrackSettings<'a> {
    /// A PU for each job of the host, in the jobs' order.
    pub siblings: &'a [PuIdx],
    /// Parts of the host's stacks.
    pub parts: &'a [String],
    /// Components, as sums of parts.
    pub components: &'a [Component],
    /// Time between two samples.
    pub step: Nanos,
    /// Number of samples after the start.
    pub samples: u32,
}

/// Result of a run side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Watched {
    /// Track of each program, as long as all ran.
    pub tracks: Vec<Track>,
    /// Ends of programs.
    pub ended: Vec<JobEnd>,
}

impl TrackSettings<'_> {
    /// Runs the first `jobs` jobs of `host`, each on its PU, until all samples are taken, a job has
    /// ended, or the counts of a job are unknown. The host provides counters and stacks.
    ///
    /// # Errors
    /// As [`Host::run_quantum`].
    pub fn tracks(&self, host: &mut dyn Host, jobs: usize) -> Result<Watched, HostError> {
        let mut watched = Watched { tracks: vec![Track::default(); jobs], ended: Vec::new() };
        let firsts = (0..).take(self.siblings.len());
        let firsts = firsts.map(|job| TaskId { job: JobIdx(job), order: 0 });
        let mut plan = self.plan(host, firsts);
        let mut before = BTreeMap::new();
        for _ in 0..self.samples {
            let seen = host.run_quantum(&plan, self.step)?;
            watched.ended.clone_from(&seen.ended);
            let did: Option<Vec<Did>> =
                (0..jobs).map(|job| self.did(host, job, &seen, &before)).collect();
            let Some(did) = did.filter(|_| seen.end == QuantumEnd::Elapsed) else { break };
            for (track, did) in watched.tracks.iter_mut().zip(did) {
                let done = track.instructions.last().copied().unwrap_or(0.0);
                track.instructions.push(done + did.instructions);
                track.cycles.push(did.cycles);
            }
            let living = seen.tasks.iter().filter(|task| task.alive()).map(|task| task.id);
            plan = self.plan(host, living);
            before = seen.tasks.into_iter().map(|task| (task.id, task)).collect();
        }
        Ok(watched)
    }

    /// Counts of a job's tasks since `before`, together; `None` if their instructions are unknown.
    fn did(
        &self,
        host: &dyn Host,
        job: usize,
        seen: &Observation,
        before: &BTreeMap<TaskId, SeenTask>,
    ) -> Option<Did> {
        let own = seen.tasks.iter().filter(|task| task.id.job.0 as usize == job);
        let pu = self.pu(host, job)?;
        let zeros = vec![0.0; self.components.len()];
        let mut did = Did { instructions: 0.0, cycles: Some(zeros) };
        let mut is_there = false;
        for task in own {
            let earlier = before.get(&task.id);
            did.instructions += since(task, earlier, |task| task.instructions)?;
            let cycles = self.cycles(task, earlier, pu);
            did.cycles = did.cycles.zip(cycles).map(|(mut sums, cycles)| {
                sums.iter_mut().zip(cycles).for_each(|(sum, each)| *sum += each);
                sums
            });
            is_there = true;
        }
        is_there.then_some(did)
    }

    /// Cycles of a task by component since `earlier`; `None` if unknown, or if the task may run
    /// elsewhere than on `pu`.
    fn cycles(&self, task: &SeenTask, earlier: Option<&SeenTask>, pu: PuNr) -> Option<Vec<f64>> {
        let all = since(task, earlier, |task| task.cycles)?;
        // A task that did not run has no stack.
        if all == 0.0 {
            return Some(vec![0.0; self.components.len()]);
        }
        // Cycles on another PU are not those of the shared core.
        if task.alive() && *task.allowed != [pu] {
            return None;
        }
        let mut stack = task.stack().filter(|stack| stack.parts() == self.parts)?;
        if let Some(earlier) = earlier.and_then(SeenTask::stack) {
            stack = stack.since(&earlier)?;
        }
        let explained = Some(stack.total()).filter(|total| *total >= EXPLAINED * all)?;
        let cycles = added_up(self.parts, self.components, stack.cycles())?;
        Some(cycles.into_iter().map(|each| each * all / explained).collect())
    }

    fn pu(&self, host: &dyn Host, job: usize) -> Option<PuNr> {
        self.siblings.get(job).map(|pu| host.machine().pus[pu.idx()].os)
    }

    /// A plan with every task on the PU of its job.
    fn plan(&self, host: &dyn Host, tasks: impl Iterator<Item = TaskId>) -> Plan {
        let decisions = tasks.map(|task| Decision {
            task,
            name: "".into(),
            place: Place::from(self.pu(host, task.job.0 as usize)),
            why: PlaceReason::LeftToKernel,
        });
        Plan {
            version: colocate_policy::plan::VERSION,
            machine: host.machine().name.clone(),
            pus: (0..self.siblings.len()).filter_map(|job| self.pu(host, job)).collect(),
            policy: "training".to_owned(),
            decisions: decisions.collect(),
            default_placement: DefaultPlacement::LeaveToKernel,
            ..Plan::default()
        }
    }
}

/// Counts of a job between two samples.
struct Did {
    instructions: f64,
    cycles: Option<Vec<f64>>,
}

/// Growth of a count since `earlier`, or since the task's start; `None` if unknown.
fn since(
    task: &SeenTask,
    earlier: Option<&SeenTask>,
    count: fn(&SeenTask) -> Option<u64>,
) -> Option<f64> {
    let then = earlier.and_then(count).unwrap_or(0);
    Some(count(task)?.saturating_sub(then) as f64)
}

/// A sample for each thread of an interval; `None` if a thread did nothing, or was not as far
/// alone.
pub(super) fn of_interval(
    group: &[usize],
    tracks: &[Track],
    alone: &[Track],
    at: usize,
) -> Option<Vec<FitSample>> {
    let mut did: Vec<(Vec<f64>, Vec<f64>)> = Vec::with_capacity(group.len());
    for (track, &program) in tracks.iter().zip(group) {
        let (from, to, together) = track.interval(at)?;
        let cycles = alone[program].between(from, to)?;
        let all = cycles.iter().fold(0.0, |sum, each| sum + each);
        if all <= 0.0 {
            return None;
        }
        did.push((shares(&cycles, all), shares(&together, all)));
    }
    let samples = (0..did.len()).map(|j| {
        let others = did.iter().enumerate().filter(|(k, _)| *k != j);
        let mut sums = vec![0.0; did[j].0.len()];
        for (_, (own, _)) in others {
            sums.iter_mut().zip(own).for_each(|(sum, each)| *sum += each);
        }
        FitSample { own: did[j].0.clone(), others: sums, together: did[j].1.clone() }
    });
    Some(samples.collect())
}

fn shares(cycles: &[f64], all: f64) -> Vec<f64> {
    cycles.iter().map(|each| each / all).collect()
}
