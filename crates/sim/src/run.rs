//! Whole simulations: a scenario under a policy, from the launch to the end.

use crate::SimError;
use crate::host::SimHost;
use crate::outcome::Outcome;
use crate::platform::Platform;
use crate::scenario::{JobSpec, Method, PhaseIdx, Scenario, ThreadSpec};
use colocate_engine::{Known, Planner, Settings};
use colocate_machine::Nanos;
use colocate_model::{Backend, Mix, Phase, Profile, Program, ThreadProfile};
use colocate_policy::PolicyKind;

/// How a scenario is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether the policy knows the jobs from profiles; else they are watched for a while first.
    pub profiled: bool,
    /// How long jobs that are not known are watched.
    pub watch: Nanos,
    /// Whether every job is also simulated alone, for its slowdown.
    pub alone: bool,
    /// How many spans are kept for a picture.
    pub spans: usize,
}

impl Default for Options {
    /// Profiled, alone as well, no spans; two seconds of watching, as `colocate run`.
    fn default() -> Self {
        Self { profiled: true, watch: Nanos::from_secs(2), alone: true, spans: 0 }
    }
}

/// Simulates `scenario` under `planner` to its end.
///
/// # Errors
/// [`SimError`] if the scenario does not make sense on the machine, or the simulation breaks a rule.
pub fn simulate(
    platform: &Platform<'_>,
    scenario: &Scenario,
    planner: &dyn Planner,
    options: &Options,
) -> Result<Outcome, SimError> {
    let mut host = SimHost::new(platform, scenario)?;
    host.record(options.spans);
    let known = knowns(scenario, options.profiled);
    let settings = Settings { watch: options.watch };
    colocate_engine::run(&mut host, planner, &known, &settings)?;
    let mut outcome = host.outcome();
    if options.alone {
        for (job, alone) in outcome.jobs.iter_mut().zip(alone_times(platform, scenario)?) {
            job.alone = alone;
        }
    }
    Ok(outcome)
}

/// How long each job takes when nothing else is on the machine and the simulated kernel places its threads;
/// `None` for one that does not end before the horizon.
///
/// # Errors
/// As [`simulate`].
pub fn alone_times(
    platform: &Platform<'_>,
    scenario: &Scenario,
) -> Result<Vec<Option<Nanos>>, SimError> {
    let options = Options { alone: false, ..Options::default() };
    let mut times: Vec<Option<Nanos>> = Vec::new();
    for (place, job) in scenario.jobs.iter().enumerate() {
        // Copies of a program take equally long.
        let same = |other: &JobSpec| other.threads == job.threads && other.barrier == job.barrier;
        let same = scenario.jobs[..place].iter().position(same);
        let time = match same {
            Some(same) => times[same],
            None => {
                let alone = alone(scenario, job);
                simulate(platform, &alone, &PolicyKind::Os, &options)?.jobs[0].took()
            }
        };
        times.push(time);
    }
    Ok(times)
}

/// A scenario with one job of another one, on the whole machine all the time.
#[must_use]
pub fn alone(scenario: &Scenario, job: &JobSpec) -> Scenario {
    let job = JobSpec { arrives: Nanos::ZERO, ..job.clone() };
    Scenario { jobs: vec![job], method: Method::Leave, events: Vec::new(), ..scenario.clone() }
}

/// What a policy knows of the jobs before they start.
#[must_use]
pub fn knowns(scenario: &Scenario, profiled: bool) -> Vec<Known> {
    let known = |job: &JobSpec| Known {
        name: job.name.clone(),
        profile: profiled.then(|| profile(scenario, job)),
        phases: if profiled {
            job.threads.iter().map(|t| most(scenario, t)).collect()
        } else {
            Vec::new()
        },
    };
    scenario.jobs.iter().map(known).collect()
}

/// The profile that a job would have: each thread with the mean mix of its course, busy as long as it does
/// not sleep.
fn profile(scenario: &Scenario, job: &JobSpec) -> Profile {
    let threads = job.threads.iter().zip(0..);
    let threads = threads.map(|(thread, order)| ThreadProfile {
        order,
        process: 0,
        name: thread.name.clone(),
        start_ns: thread.born,
        end_ns: None,
        cpu_time_ns: None,
        instructions: None,
        cycles: None,
        samples: None,
        mix: mean_mix(scenario, thread),
    });
    Profile {
        version: colocate_model::profile::VERSION,
        backend: Backend::Sample,
        program: Program {
            path: job.name.clone(),
            args: Vec::new(),
            identity: "simulated".to_owned(),
        },
        processor: None,
        started_unix_s: 0,
        watched_ns: scenario.horizon,
        complete: true,
        threads: threads.collect(),
        notes: vec!["simulated".to_owned()],
    }
}

/// What a thread does most, by instructions: a policy is told one demand vector a thread.
fn most(scenario: &Scenario, thread: &ThreadSpec) -> Phase {
    let of = |phase: PhaseIdx| -> u64 {
        thread.course.iter().filter(|s| s.phase == phase).map(|s| s.instructions).sum()
    };
    let phases = thread.course.iter().map(|stretch| stretch.phase);
    let most = phases.max_by_key(|&phase| (of(phase), std::cmp::Reverse(phase)));
    most.map_or_else(Phase::default, |most| scenario.phases[most.0 as usize].phase.clone())
}

/// Weighted by instructions; a class is unknown if one of the phases does not say.
#[allow(clippy::cast_precision_loss)] // weights
fn mean_mix(scenario: &Scenario, thread: &ThreadSpec) -> Mix {
    let all: f64 = thread.course.iter().map(|stretch| stretch.instructions as f64).sum();
    let mut mean = Mix::default();
    for class in colocate_model::Class::ALL {
        let share = thread.course.iter().map(|stretch| {
            let mix = &scenario.phases[stretch.phase.0 as usize].mix;
            Some(mix.get(class)?.get() * stretch.instructions as f64 / all)
        });
        let share: Option<f64> = share.sum();
        mean.set(class, share.and_then(|share| colocate_model::Share::new(share.min(1.0))));
    }
    mean
}
