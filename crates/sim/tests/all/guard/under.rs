//! What is guarded.

use colocate_evidence::SourceSet;
use colocate_model::{CpiModel, Phase};
use colocate_policy::schedule::{Allocated, QueuedJob, Selected, SelectedJob};
use colocate_policy::{Evidence, Knowledge, Plan, Policy, PolicySpec};
use colocate_sim::{JobSpec, Platform, Scenario, alone_of};

/// Coefficients for `symbiotic`: `colocate-study train cpi-model --machine FILE`, the file being `common::SMALL`. Machines
/// here differ from it in their caches and their memory, not in their cores.
const CPI_MODEL: &str = include_str!("cpi-model.json");

/// Runs the job that has waited longest, all on the first PU.
#[derive(Debug)]
struct OnePu;

impl Policy for OnePu {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let (head, pu) = (&evidence.now.queue[0], evidence.now.pus[0]);
        let places = vec![(Some(pu), Allocated::Next); head.threads.len()];
        evidence.plan(&[SelectedJob { job: head.job, selected: Selected::HeadOfQueue, places }])
    }
}

/// Leaves everything to the kernel but the last job, which waits until it is alone.
#[derive(Debug)]
struct StarvesOne;

impl Policy for StarvesOne {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let queue = evidence.now.queue;
        let last = queue.iter().map(|job| job.job).max();
        let runs = queue.iter().filter(|job| queue.len() == 1 || Some(job.job) != last);
        let free = |job: &QueuedJob| SelectedJob {
            job: job.job,
            selected: Selected::Drawn,
            places: vec![(None, Allocated::LeftToKernel); job.threads.len()],
        };
        evidence.plan(&runs.map(free).collect::<Vec<_>>())
    }
}

/// A scheduler of ours, or one that is bad on purpose. `os` is there to show what luck does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Under {
    Kind(&'static str),
    OnePu,
    StarvesOne,
}

impl Under {
    /// Its name in tables.
    pub fn name(self) -> String {
        match self {
            Self::Kind(name) => name.to_owned(),
            Self::OnePu => "one PU".to_owned(),
            Self::StarvesOne => "starves one".to_owned(),
        }
    }

    /// With all that it wants to know beforehand.
    pub fn scheduler(self, platform: &Platform<'_>, scenario: &Scenario) -> Box<dyn Policy> {
        let kind = match self {
            Self::Kind(name) => PolicySpec::named(name),
            Self::OnePu => return Box::new(OnePu),
            Self::StarvesOne => return Box::new(StarvesOne),
        };
        let cpi = CpiModel::from_json(CPI_MODEL).unwrap();
        let demands: Vec<Phase> = scenario.jobs.iter().map(|job| most(scenario, job)).collect();
        kind.policy(&Knowledge {
            alone: &alone_of(platform, scenario).unwrap(),
            cpi: Some(&cpi),
            demands: &demands,
            performance: Some(platform.performance),
            shares_cores: platform.machine.smt_width() > 1,
            has_nodes: platform.machine.nodes.len() > 1,
            ..Knowledge::default()
        })
    }
}

/// The phase in which a job does most instructions.
fn most(scenario: &Scenario, job: &JobSpec) -> Phase {
    let course = job.threads.iter().flat_map(|thread| &thread.course);
    let most = course.max_by_key(|stretch| stretch.instructions).unwrap();
    scenario.phases[most.phase.0 as usize].phase.clone()
}
