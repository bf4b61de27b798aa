//! Whole simulations under a scheduler: more jobs than PUs, chosen quantum by quantum.

use crate::SimError;
use crate::alone::alone_of;
use crate::host::SimHost;
use crate::outcome::Outcome;
use crate::platform::Platform;
use crate::run::{alone_times, most};
use crate::scenario::{JobSpec, Scenario};
use colocate_engine::Meanwhile;
use colocate_engine::schedule::{Turn, Workload};
use colocate_model::{CpiModel, Phase};
use colocate_policy::schedule::{Alone, Knowledge, Scheduler, SchedulerKind};

/// How a scenario is run under a scheduler. Its quantum is the scenario's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScheduleOptions<'a> {
    /// Whether every job is also simulated alone, for its slowdown.
    pub times_alone: bool,
    /// How many spans are kept for a picture.
    pub spans: usize,
    /// What schedulers that need it are told of the jobs alone, by job; `None` for [`alone_of`], what the
    /// model says.
    pub known: Option<&'a [Alone]>,
    /// What becomes of CPI stacks on a shared core of this machine, for `symbiotic`; `None` for that of
    /// another, [`CpiModel::built_in`].
    pub cpi: Option<&'a CpiModel>,
    /// Whether schedulers are not told of threads that they only spin: as if nobody could look.
    pub hides_spinning: bool,
    /// What jobs do that have to wait.
    pub meanwhile: Meanwhile,
}

/// Simulates `scenario` under the scheduler `kind` to its end.
///
/// # Errors
/// [`SimError`] if the scenario does not make sense on the machine, or the simulation breaks a rule.
pub fn schedule(
    platform: &Platform<'_>,
    scenario: &Scenario,
    kind: SchedulerKind,
    options: &ScheduleOptions<'_>,
) -> Result<Outcome, SimError> {
    let found = match options.known {
        None if kind.needs_alone() => alone_of(platform, scenario)?,
        _ => Vec::new(),
    };
    // The oracle is told what each job does most.
    let first = |job: &JobSpec| job.threads.first().map(|thread| most(scenario, thread));
    let demands: Vec<Phase> =
        scenario.jobs.iter().map(|job| first(job).unwrap_or_default()).collect();
    let known = Knowledge {
        alone: options.known.unwrap_or(&found),
        cpi: options.cpi,
        demands: &demands,
        performance: Some(platform.performance()),
    };
    let mut scheduler = kind.scheduler_knowing(&known);
    let name = kind.to_string();
    schedule_with(platform, scenario, (&mut *scheduler, &name), options, &mut |_| ())
}

/// The same under any scheduler, with its name for plans; `look` is shown every quantum. What is known of the
/// jobs alone is the scheduler's affair.
///
/// # Errors
/// As [`schedule`].
pub fn schedule_with(
    platform: &Platform<'_>,
    scenario: &Scenario,
    (scheduler, name): (&mut dyn Scheduler, &str),
    options: &ScheduleOptions<'_>,
    look: &mut dyn FnMut(&Turn<'_>),
) -> Result<Outcome, SimError> {
    let mut host = SimHost::new(platform, scenario)?;
    host.record(options.spans);
    host.hide_spinning(options.hides_spinning);
    host.meanwhile(options.meanwhile);
    let jobs = u32::try_from(scenario.jobs.len()).unwrap_or(u32::MAX);
    let workload = Workload { jobs, quantum: scenario.quantum, scheduler: name };
    colocate_engine::schedule::schedule(&mut host, scheduler, &workload, look)?;
    let mut outcome = host.outcome();
    if options.times_alone {
        for (job, alone) in outcome.jobs.iter_mut().zip(alone_times(platform, scenario)?) {
            job.alone = alone;
        }
    }
    Ok(outcome)
}
