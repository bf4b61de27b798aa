//! Benches for a training set: a core of a simulated machine here; a real core elsewhere.

use super::track::{Track, TrackSettings};
use super::{StudyError, TrainingSet, set};
use crate::parts;
use colocate_machine::{Nanos, PuIdx};
use colocate_model::symbiosis::file::{SIMULATED_PARTS, simulated_components};
use colocate_sim::{Platform, Scenario, SimError, SimHost};

/// A core for programs of a training set, one on each sibling.
pub trait TrainingBench {
    /// Runs the programs of `group`, given by place in the set, side by side from their start, and
    /// samples their counters after each `step`: `samples` times, or until one ends. The core is
    /// split among `threads`; other siblings are idle.
    ///
    /// # Errors
    /// [`StudyError`] if the programs cannot be run, or one fails.
    fn run(
        &mut self,
        group: &[usize],
        threads: usize,
        step: Nanos,
        samples: u32,
    ) -> Result<Vec<Track>, StudyError>;
}

/// A core of a simulated machine. Idle threads hold their part of it ([`set::idle`]).
pub(super) struct SimBench<'a> {
    pub platform: &'a Platform<'a>,
    pub siblings: &'a [PuIdx],
    pub set: &'a TrainingSet,
    pub interval: Nanos,
}

impl TrainingBench for SimBench<'_> {
    fn run(
        &mut self,
        group: &[usize],
        threads: usize,
        step: Nanos,
        samples: u32,
    ) -> Result<Vec<Track>, StudyError> {
        let scenario = self.scenario(group, threads);
        let mut host = SimHost::new(self.platform, &scenario)?;
        let parts = SIMULATED_PARTS.map(str::to_owned);
        let components = simulated_components();
        let siblings = &self.siblings[..threads];
        let watch =
            TrackSettings { siblings, parts: &parts, components: &components, step, samples };
        Ok(watch.tracks(&mut host, group.len()).map_err(SimError::from)?.tracks)
    }
}

impl SimBench<'_> {
    /// The programs as jobs, with idle jobs on the other threads.
    fn scenario(&self, group: &[usize], threads: usize) -> Scenario {
        let mut jobs: Vec<_> = group.iter().map(|&program| self.set.job(program)).collect();
        jobs.resize_with(threads, || self.set.idle_job());
        let phases = [&self.set.phases[..], &[set::idle()]].concat();
        // Beyond any training: the number of samples ends the run.
        let horizon = Nanos::from_secs(1_000_000);
        parts::scenario("training", phases, jobs, [self.interval, horizon])
    }
}
