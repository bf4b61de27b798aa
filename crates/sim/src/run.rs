//! Whole simulations: a scenario under a policy, from the launch to the end.

use crate::SimError;
use crate::alone::{alone_of, courses_of};
use crate::host::SimHost;
use crate::outcome::Outcome;
use crate::platform::{Demands, Life, Platform, float};
use crate::scenario::{JobSpec, Method, PhaseIdx, Scenario, ThreadSpec};
use crate::sources::mix::mean_mix;
use colocate_engine::guard::{Guarding, QuantumGuard};
use colocate_engine::{KnownJob, Meanwhile, Round, Until, Workload};
use colocate_evidence::SourceSet;
use colocate_machine::Nanos;
use colocate_model::{Backend, CpiModel, Mix, Phase, Profile, Program, ThreadProfile};
use colocate_policy::table::Prior;
use colocate_policy::{Knowledge, Policy, PolicySpec, SoloProfile};

/// How a scenario is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options<'a> {
    /// Whether the policy decides each quantum of the scenario, so that jobs may wait; else it decides when there is a
    /// reason to.
    pub each_quantum: bool,
    /// Whether the policy has profiles of the jobs; else they are watched for a while first, if it needs to know what
    /// they do.
    pub profiled: bool,
    /// How long jobs that are not known are watched.
    pub watch: Nanos,
    /// Whether every job is also simulated alone, for its slowdown.
    pub alone: bool,
    /// How many spans are kept for a picture.
    pub spans: usize,
    /// Profiles of the jobs alone, by job, for policies that need them; `None` for [`alone_of`], what the
    /// model says.
    pub known: Option<&'a [SoloProfile]>,
    /// What becomes of CPI stacks on a shared core of this machine, for `symbiotic`; `None` for that of
    /// another, [`CpiModel::built_in`].
    pub cpi: Option<&'a CpiModel>,
    /// Whether it is hidden from policies that threads only spin, as if nothing could see it.
    pub hides_spinning: bool,
    /// What jobs do that have to wait.
    pub meanwhile: Meanwhile,
    /// Whether a policy that decides each quantum is guarded ([`simulate`]).
    pub guarded: bool,
}

impl Default for Options<'_> {
    /// As `colocate run`: one plan, with two seconds of watching where there is no profile, which there is; alone as well,
    /// no spans.
    fn default() -> Self {
        Self {
            each_quantum: false,
            profiled: true,
            watch: Nanos::from_secs(2),
            alone: true,
            spans: 0,
            known: None,
            cpi: None,
            hides_spinning: false,
            meanwhile: Meanwhile::Stop,
            guarded: false,
        }
    }
}

impl Options<'_> {
    /// As `colocate schedule`: a plan each quantum, of jobs without profiles; not alone as well, no spans.
    #[must_use]
    pub fn each_quantum() -> Self {
        Self { each_quantum: true, profiled: false, alone: false, ..Self::default() }
    }
}

/// Simulates `scenario` under `policy` to its end.
///
/// # Errors
/// [`SimError`] if the scenario does not make sense on the machine, or the simulation breaks a rule.
pub fn simulate(
    platform: &Platform<'_>,
    scenario: &Scenario,
    policy: &PolicySpec,
    options: &Options<'_>,
) -> Result<Outcome, SimError> {
    let found = match options.known {
        None if policy.has_prior(Prior::Solo) => alone_of(platform, scenario)?,
        _ => Vec::new(),
    };
    let demands = demands_of(scenario);
    let courses = match policy.has_prior(Prior::Courses) {
        true => courses_of(platform, scenario)?,
        false => Vec::new(),
    };
    let known = Knowledge {
        courses: &courses,
        alone: options.known.unwrap_or(&found),
        cpi: options.cpi,
        demands: &demands,
        performance: Some(platform.performance()),
        wake_ups: Some(scenario.kernel.wake_ups),
        shares_cores: platform.machine().smt_width() > 1,
        has_nodes: platform.machine().nodes.len() > 1,
    };
    let (mut made, name) = (policy.policy(&known), policy.to_string());
    if options.guarded && options.each_quantum {
        made = Box::new(QuantumGuard::new(made, &name, Guarding::default()));
    }
    simulate_with(platform, scenario, (&mut *made, &name), options, &mut |_| ())
}

/// What the first thread of each job does most: what an oracle goes by.
#[must_use]
pub fn demands_of(scenario: &Scenario) -> Vec<Phase> {
    let first = |job: &JobSpec| job.threads.first().map(|thread| most(scenario, thread));
    scenario.jobs.iter().map(|job| first(job).unwrap_or_default()).collect()
}

/// The same under any policy, with its name for plans; `look` sees every round. What is known beforehand is the
/// policy's own.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_with(
    platform: &Platform<'_>,
    scenario: &Scenario,
    (policy, name): (&mut dyn Policy, &str),
    options: &Options<'_>,
    look: &mut dyn FnMut(&Round<'_>),
) -> Result<Outcome, SimError> {
    let mut host = SimHost::new(platform, scenario)?;
    host.record(options.spans);
    host.hide_spinning(options.hides_spinning);
    host.meanwhile(options.meanwhile);
    let jobs = knowns(platform, scenario, options.profiled)?;
    let until = match policy.period() {
        _ if options.each_quantum => Until::Time(scenario.quantum),
        Some(period) => Until::TimeOrEvents(period),
        None => Until::Events,
    };
    let workload = Workload {
        jobs: &jobs,
        policy: name,
        until,
        watch: options.watch,
        also: SourceSet::NONE,
        without: SourceSet::NONE,
    };
    colocate_engine::run(&mut host, policy, &workload, None, look)?;
    let mut outcome = host.outcome();
    if options.alone {
        for (job, alone) in outcome.jobs.iter_mut().zip(alone_times(platform, scenario)?) {
            job.alone = alone;
        }
    }
    Ok(outcome)
}

/// How long each job takes when nothing else is on the machine: where the simulated kernel places its threads, or where they are spread
/// over the cores if that is shorter, as a slowdown is relative to the best that is known. `None` for one that does not end
/// before the horizon.
///
/// # Errors
/// As [`simulate`].
pub fn alone_times(
    platform: &Platform<'_>,
    scenario: &Scenario,
) -> Result<Vec<Option<Nanos>>, SimError> {
    let options = Options { alone: false, ..Options::default() };
    let placements = ["os", "scatter"].map(PolicySpec::named);
    let mut times: Vec<Option<Nanos>> = Vec::new();
    for (place, job) in scenario.jobs.iter().enumerate() {
        // Copies of a program take equally long.
        let same = |other: &JobSpec| other.threads == job.threads && other.barrier == job.barrier;
        let same = scenario.jobs[..place].iter().position(same);
        let time = match same {
            Some(same) => times[same],
            None => {
                let alone = alone(scenario, job);
                let took = placements.iter().map(|placement| {
                    Ok(simulate(platform, &alone, placement, &options)?.jobs[0].took())
                });
                took.collect::<Result<Vec<_>, SimError>>()?.into_iter().flatten().min()
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

/// What is known of the jobs before they start, those included that arrive later.
///
/// # Errors
/// [`SimError::Phase`] if a phase cannot run on the machine.
pub fn knowns(
    platform: &Platform<'_>,
    scenario: &Scenario,
    profiled: bool,
) -> Result<Vec<KnownJob>, SimError> {
    let demands = Demands::new(platform, scenario)?;
    let known = |job: &JobSpec| KnownJob {
        name: job.name.clone(),
        profile: profiled.then(|| profile(&demands, scenario, job)),
        phases: if profiled {
            job.threads.iter().map(|t| most(scenario, t)).collect()
        } else {
            Vec::new()
        },
    };
    Ok(scenario.jobs.iter().map(known).collect())
}

/// The profile that a job would have: each thread with the mean mix of its course, busy as long as it does
/// not sleep, for all of the simulation.
fn profile(demands: &Demands, scenario: &Scenario, job: &JobSpec) -> Profile {
    let threads = job.threads.iter().zip(0..);
    let threads = threads.map(|(thread, order)| ThreadProfile {
        order,
        process: 0,
        name: thread.name.clone(),
        start_ns: thread.born,
        end_ns: None,
        cpu_time_ns: cpu_time(demands, scenario, thread),
        instructions: None,
        cycles: None,
        samples: None,
        mix: course_mix(scenario, thread),
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

/// The CPU time of a thread that sleeps, from its creation to the horizon; `None` for one that is always busy.
fn cpu_time(demands: &Demands, scenario: &Scenario, thread: &ThreadSpec) -> Option<Nanos> {
    let Life { busy, asleep, .. } = demands.life(thread);
    let lives = scenario.horizon.saturating_sub(thread.born);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of it
    let of = |share: f64| Nanos((share * float(lives.0)) as u64);
    (asleep > 0.0).then(|| of(busy / (busy + asleep)))
}

/// What a thread does most, by instructions: a policy gets one demand vector a thread, without the cycles that it
/// took on a real processor, since here it takes what the model says.
pub(crate) fn most(scenario: &Scenario, thread: &ThreadSpec) -> Phase {
    let of = |phase: PhaseIdx| -> u64 {
        thread.course.iter().filter(|s| s.phase == phase).map(|s| s.instructions).sum()
    };
    let phases = thread.course.iter().map(|stretch| stretch.phase);
    let most = phases.max_by_key(|&phase| (of(phase), std::cmp::Reverse(phase)));
    let phase = |most: PhaseIdx| scenario.phases[most.0 as usize].phase.clone();
    let unknown = colocate_model::phase::Known::Unknown;
    Phase { cycles: unknown, ..most.map_or_else(Phase::default, phase) }
}

/// The mean mix of a course.
fn course_mix(scenario: &Scenario, thread: &ThreadSpec) -> Mix {
    let stretches = thread.course.iter();
    mean_mix(scenario, stretches.map(|s| (s.phase.0 as usize, float(s.instructions))))
        .unwrap_or_default()
}
