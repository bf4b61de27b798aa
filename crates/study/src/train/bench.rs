//! Where a training set runs: a core of a simulated machine here; a real one elsewhere.

use super::track::{Track, Watch};
use super::{StudyError, TrainingSet, set};
use colocate_machine::{Nanos, PuIdx};
use colocate_model::symbiosis::file::{SIMULATED_PARTS, simulated_components};
use colocate_sim::{Kernel, Method, Platform, Scenario, SimError, SimHost};

/// A core on whose siblings programs of a training set run.
pub trait Bench {
    /// What the programs of `group`, by place in the set, do side by side from their start on: a sample after each `step`,
    /// `samples` of them, as long as all run. The core is split among `threads`; the other siblings are idle.
    ///
    /// # Errors
    /// [`StudyError`] if they cannot be run, or one of them fails.
    fn run(
        &mut self,
        group: &[usize],
        threads: usize,
        step: Nanos,
        samples: u32,
    ) -> Result<Vec<Track>, StudyError>;
}

/// A core of a simulated machine. Idle threads hold their part of it.
pub(super) struct SimBench<'a> {
    pub platform: &'a Platform<'a>,
    pub siblings: &'a [PuIdx],
    pub set: &'a TrainingSet,
    pub interval: Nanos,
}

impl Bench for SimBench<'_> {
    fn run(
        &mut self,
        group: &[usize],
        threads: usize,
        step: Nanos,
        samples: u32,
    ) -> Result<Vec<Track>, StudyError> {
        let scenario = self.scenario(group, threads);
        let mut host = SimHost::new(self.platform, &scenario)?;
        let (siblings, parts) = (&self.siblings[..threads], SIMULATED_PARTS.map(str::to_owned));
        let components = simulated_components();
        let watch = Watch { siblings, parts: &parts, components: &components, step, samples };
        Ok(watch.tracks(&mut host, group.len()).map_err(SimError::from)?.tracks)
    }
}

impl SimBench<'_> {
    fn scenario(&self, group: &[usize], threads: usize) -> Scenario {
        let mut jobs: Vec<_> = group.iter().map(|&program| self.set.job(program)).collect();
        jobs.resize_with(threads, || self.set.idle_job());
        Scenario {
            name: "training".to_owned(),
            seed: 0,
            phases: [&self.set.phases[..], &[set::idle()]].concat(),
            jobs,
            method: Method::Leave,
            quantum: self.interval,
            grain: Nanos::ZERO,
            horizon: Nanos::from_secs(1_000_000),
            usable: None,
            events: Vec::new(),
            kernel: Kernel::default(),
        }
    }
}
