//! What is guarded.

use colocate_model::{CpiModel, Phase};
use colocate_policy::schedule::{
    Allocated, Choice, Knowledge, Quantum, Queued, Scheduler, SchedulerKind, Selected,
};
use colocate_sim::{JobSpec, Platform, Scenario, alone_of};

/// Coefficients for `symbiotic`: `colocate train cpi-model --machine FILE`, the file being `common::SMALL`. Machines
/// here differ from it in their caches and their memory, not in their cores.
const CPI_MODEL: &str = include_str!("cpi-model.json");

/// Runs who has waited longest, all on the first PU.
#[derive(Debug)]
struct OnePu;

impl Scheduler for OnePu {
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        let head = &now.queue[0];
        let places = vec![(Some(now.pus[0]), Allocated::Next); head.threads.len()];
        vec![Choice { job: head.job, selected: Selected::HeadOfQueue, places }]
    }
}

/// Leaves everything to the kernel but the last job, which waits until it is alone.
#[derive(Debug)]
struct StarvesOne;

impl Scheduler for StarvesOne {
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        let last = now.queue.iter().map(|job| job.job).max();
        let runs = now.queue.iter().filter(|job| now.queue.len() == 1 || Some(job.job) != last);
        let free = |job: &Queued| Choice {
            job: job.job,
            selected: Selected::Drawn,
            places: vec![(None, Allocated::LeftToKernel); job.threads.len()],
        };
        runs.map(free).collect()
    }
}

/// A scheduler of ours, or one that nobody should want. `os` is there to show what luck does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Under {
    Kind(SchedulerKind),
    OnePu,
    StarvesOne,
}

impl Under {
    /// All of them, but for schedulers of fast and slow cores, which are as `os` where cores are alike.
    pub fn all() -> Vec<Self> {
        let chooses = |kind: &SchedulerKind| !kind.runs_all() || *kind == SchedulerKind::Os;
        let ours = SchedulerKind::ALL.into_iter().filter(chooses).map(Self::Kind);
        ours.chain([Self::OnePu, Self::StarvesOne]).collect()
    }

    /// Those of some names, with commas between.
    pub fn named(names: &str) -> Vec<Self> {
        let mut all = Self::all();
        all.retain(|under| names.split(',').any(|name| name == under.name()));
        all
    }

    /// As people know it.
    pub fn name(self) -> String {
        match self {
            Self::Kind(kind) => kind.name().to_owned(),
            Self::OnePu => "one PU".to_owned(),
            Self::StarvesOne => "starves one".to_owned(),
        }
    }

    /// With all that it wants to know beforehand.
    pub fn scheduler(self, platform: &Platform<'_>, scenario: &Scenario) -> Box<dyn Scheduler> {
        let kind = match self {
            Self::Kind(kind) => kind,
            Self::OnePu => return Box::new(OnePu),
            Self::StarvesOne => return Box::new(StarvesOne),
        };
        let cpi = CpiModel::from_json(CPI_MODEL).unwrap();
        let demands: Vec<Phase> = scenario.jobs.iter().map(|job| most(scenario, job)).collect();
        kind.scheduler_knowing(&Knowledge {
            alone: &alone_of(platform, scenario).unwrap(),
            cpi: Some(&cpi),
            demands: &demands,
            performance: Some(platform.performance()),
        })
    }
}

/// The phase in which a job does most instructions.
fn most(scenario: &Scenario, job: &JobSpec) -> Phase {
    let course = job.threads.iter().flat_map(|thread| &thread.course);
    let most = course.max_by_key(|stretch| stretch.instructions).unwrap();
    scenario.phases[most.phase.0 as usize].phase.clone()
}
