//! What programs do alone and together, instruction by instruction.

use super::{Settings, StudyError, TrainingSet, set};
use colocate_engine::{Host, SeenTask};
use colocate_machine::{Nanos, PuIdx};
use colocate_model::symbiosis::Sample;
use colocate_model::symbiosis::file::{Component, SIMULATED_PARTS, added_up, simulated_components};
use colocate_policy::{Decision, DefaultPlacement, JobIdx, Place, Plan, TaskId, Why};
use colocate_sim::{Kernel, Method, Platform, Scenario, SimError, SimHost};

/// Samples of a program alone, for each interval together. Chosen: cycles pass evenly between two samples only where
/// no phase ends, and there are four times fewer such samples than intervals.
const FINER: u64 = 4;

/// What a thread had done at each sample since its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Track {
    pub instructions: Vec<f64>,
    /// Cycles by component.
    pub cycles: Vec<Vec<f64>>,
}

impl Track {
    /// Cycles by component when so many instructions were done; `None` if it has not come that far.
    fn at(&self, instructions: f64) -> Option<Vec<f64>> {
        let after = self.instructions.partition_point(|&done| done < instructions);
        let (now, cycles) = (*self.instructions.get(after)?, self.cycles.get(after)?);
        let Some(before) = after.checked_sub(1) else {
            return (now <= instructions).then(|| cycles.clone());
        };
        let part = (instructions - self.instructions[before]) / (now - self.instructions[before]);
        let between = |(old, new): (&f64, &f64)| old + part * (new - old);
        Some(self.cycles[before].iter().zip(cycles).map(between).collect())
    }

    /// Cycles by component between two numbers of instructions.
    pub fn between(&self, from: f64, to: f64) -> Option<Vec<f64>> {
        Some(less(&self.at(to)?, &self.at(from)?))
    }

    /// Instructions from and to, and cycles by component, of the interval that ends with sample `at`.
    fn interval(&self, at: usize) -> Option<(f64, f64, Vec<f64>)> {
        let before = at.checked_sub(1)?;
        let cycles = less(self.cycles.get(at)?, &self.cycles[before]);
        Some((self.instructions[before], self.instructions[at], cycles))
    }

    fn note(&mut self, seen: Option<&SeenTask>, parts: &[String], components: &[Component]) {
        let Some(seen) = seen else { return };
        let stack = seen.stack().filter(|stack| stack.parts() == parts);
        let cycles = stack.and_then(|stack| added_up(parts, components, stack.cycles()));
        if let (Some(instructions), Some(cycles)) = (seen.instructions, cycles) {
            #[allow(clippy::cast_precision_loss)] // seconds of instructions are far below 2^53
            self.instructions.push(instructions as f64);
            self.cycles.push(cycles);
        }
    }
}

fn less(of: &[f64], by: &[f64]) -> Vec<f64> {
    of.iter().zip(by).map(|(of, by)| of - by).collect()
}

fn sum(of: &[f64]) -> f64 {
    of.iter().fold(0.0, |sum, each| sum + each)
}

/// One core, and what each program does alone on it, beside siblings that are idle and hold their part of it.
pub(super) struct Bench<'a> {
    platform: &'a Platform<'a>,
    siblings: &'a [PuIdx],
    set: &'a TrainingSet,
    settings: &'a Settings,
    parts: Vec<String>,
    components: Vec<Component>,
    /// How many threads the core is split among.
    threads: usize,
    alone: Vec<Track>,
}

impl<'a> Bench<'a> {
    /// Runs every program alone on a core that is split among so many threads.
    pub fn new(
        platform: &'a Platform<'a>,
        siblings: &'a [PuIdx],
        set: &'a TrainingSet,
        settings: &'a Settings,
        threads: usize,
    ) -> Result<Self, StudyError> {
        let mut bench = Self {
            platform,
            siblings,
            set,
            settings,
            parts: SIMULATED_PARTS.map(str::to_owned).to_vec(),
            components: simulated_components(),
            threads,
            alone: Vec::new(),
        };
        let samples = (u64::from(settings.intervals) + 1) * FINER;
        let fine = Nanos((settings.interval.0 / FINER).max(1));
        for program in 0..set.programs.len() {
            let tracks = bench.run(&[program], fine, samples)?;
            bench.alone.extend(tracks);
        }
        Ok(bench)
    }

    /// What the programs of a group show in each interval but the first.
    pub fn samples(&self, group: &[usize]) -> Result<Vec<(usize, Sample)>, StudyError> {
        let samples = u64::from(self.settings.intervals) + 1;
        let tracks = self.run(group, self.settings.interval, samples)?;
        let interval = |at: usize| of_interval(group, &tracks, &self.alone, at);
        // Sample 0 is the start, and sample 1 the end of the first interval.
        let all = (2..=self.settings.intervals as usize + 1).filter_map(interval);
        Ok(all.flat_map(|samples| group.iter().copied().zip(samples)).collect())
    }

    /// Programs side by side on the core, idle threads on the other siblings; a sample at the start and after each `step`.
    fn run(&self, group: &[usize], step: Nanos, samples: u64) -> Result<Vec<Track>, StudyError> {
        let scenario = self.scenario(group);
        let mut host = SimHost::new(self.platform, &scenario)?;
        let plan = self.plan(self.threads);
        let mut tracks = vec![Track::default(); group.len()];
        for track in &mut tracks {
            track.instructions.push(0.0);
            track.cycles.push(vec![0.0; self.components.len()]);
        }
        for _ in 0..samples {
            let seen = host.run_quantum(&plan, step).map_err(SimError::from)?;
            for (job, track) in tracks.iter_mut().enumerate() {
                let task = seen.tasks.iter().find(|task| task.id.job.0 as usize == job);
                track.note(task, &self.parts, &self.components);
            }
        }
        Ok(tracks)
    }

    fn scenario(&self, group: &[usize]) -> Scenario {
        let mut jobs: Vec<_> = group.iter().map(|&program| self.set.job(program)).collect();
        jobs.resize_with(self.threads, || self.set.idle_job());
        Scenario {
            name: "training".to_owned(),
            seed: 0,
            phases: [&self.set.phases[..], &[set::idle()]].concat(),
            jobs,
            method: Method::Leave,
            quantum: self.settings.interval,
            grain: Nanos::ZERO,
            horizon: Nanos::from_secs(1_000_000),
            usable: None,
            events: Vec::new(),
            kernel: Kernel::default(),
        }
    }

    /// Every job on a sibling of its own.
    fn plan(&self, jobs: usize) -> Plan {
        let machine = self.platform.machine();
        let decision = |(job, pu): (u32, &PuIdx)| Decision {
            task: TaskId { job: JobIdx(job), order: 0 },
            name: "".into(),
            place: Place::from(Some(machine.pus[pu.idx()].os)),
            why: Why::LeftToKernel,
        };
        Plan {
            version: colocate_policy::plan::VERSION,
            machine: machine.name.clone(),
            pus: self.siblings.iter().map(|pu| machine.pus[pu.idx()].os).collect(),
            policy: "training".to_owned(),
            decisions: (0..).zip(self.siblings).take(jobs).map(decision).collect(),
            default_placement: DefaultPlacement::LeaveToKernel,
            ..Plan::default()
        }
    }
}

/// A sample for each thread of an interval; `None` if one of them did nothing, or was not as far alone.
pub(super) fn of_interval(
    group: &[usize],
    tracks: &[Track],
    alone: &[Track],
    at: usize,
) -> Option<Vec<Sample>> {
    let mut did: Vec<(Vec<f64>, Vec<f64>)> = Vec::with_capacity(group.len());
    for (track, &program) in tracks.iter().zip(group) {
        let (from, to, together) = track.interval(at)?;
        let cycles = alone[program].between(from, to)?;
        let all = sum(&cycles);
        if all <= 0.0 {
            return None;
        }
        let of_all = |cycles: &[f64]| cycles.iter().map(|each| each / all).collect();
        did.push((of_all(&cycles), of_all(&together)));
    }
    let sample = |j: usize| {
        let others = did.iter().enumerate().filter(|(k, _)| *k != j);
        let mut sums = vec![0.0; did[j].0.len()];
        for (_, (own, _)) in others {
            sums.iter_mut().zip(own).for_each(|(sum, each)| *sum += each);
        }
        Sample { own: did[j].0.clone(), others: sums, together: did[j].1.clone() }
    };
    Some((0..did.len()).map(sample).collect())
}
