//! Whole simulations of a scenario under a policy.

use crate::SimError;
use crate::alone::{alone_of, courses_of};
use crate::host::SimHost;
use crate::outcome::Outcome;
use crate::platform::{Demands, Life, Platform};
use crate::scenario::{JobSpec, Method, Scenario, ThreadSpec};
use crate::sources::mix::mean_mix;
use colocate_engine::guard::{Guarding, QuantumGuard};
use colocate_engine::{KnownJob, Meanwhile, Round, RunSettings, Until};
use colocate_evidence::SourceSet;
use colocate_machine::Nanos;
use colocate_model::{Backend, CpiModel, Mix, Phase, Profile, ProfiledProgram, ThreadProfile};
use colocate_policy::table::Prior;
use colocate_policy::{Knowledge, Policy, PolicySpec, SoloProfile};
use std::cmp::Reverse;

/// Options of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulationOptions<'a> {
    /// Whether the policy decides each quantum of the scenario, and may let jobs wait; else only at
    /// events.
    pub each_quantum: bool,
    /// Whether the policy has profiles of the jobs; else jobs are watched first, if it needs their
    /// mixes.
    pub profiled: bool,
    /// Time for which jobs without a profile are watched.
    pub watch: Nanos,
    /// Whether every job is also simulated alone, for its slowdown.
    pub alone: bool,
    /// Most spans of tasks on PUs that are recorded.
    pub spans: usize,
    /// Solo profiles by job, for policies that need them; `None` for the model's, [`alone_of`].
    pub known: Option<&'a [SoloProfile]>,
    /// CPI model of a shared core of this machine, for `symbiotic`; `None` for
    /// [`CpiModel::built_in`], of another machine.
    pub cpi: Option<&'a CpiModel>,
    /// Whether spinning is hidden from policies, as on a host without this source.
    pub hides_spinning: bool,
    /// Treatment of waiting jobs.
    pub meanwhile: Meanwhile,
    /// Whether a policy with decisions each quantum is guarded ([`simulate`] only).
    pub guarded: bool,
}

impl Default for SimulationOptions<'_> {
    /// As `colocate run`: one plan, with profiles, and two seconds of watching without. Jobs are
    /// also simulated alone; no spans.
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

impl SimulationOptions<'_> {
    /// As `colocate schedule`: a plan each quantum, of jobs without profiles, not also alone; no
    /// spans.
    #[must_use]
    pub fn each_quantum() -> Self {
        Self { each_quantum: true, profiled: false, alone: false, ..Self::default() }
    }
}

/// Simulates `scenario` under `policy` to its end.
///
/// # Errors
/// [`SimError`] if the scenario does not make sense on the machine, or the simulation breaks a
/// rule.
pub fn simulate(
    platform: &Platform<'_>,
    scenario: &Scenario,
    policy: &PolicySpec,
    options: &SimulationOptions<'_>,
) -> Result<Outcome, SimError> {
    // Solo profiles and courses take predictions of every phase, so only policies that need them
    // get any.
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
        performance: Some(platform.performance),
        wake_ups: Some(scenario.kernel.wake_ups),
        shares_cores: platform.machine.smt_width() > 1,
        has_nodes: platform.machine.nodes.len() > 1,
    };
    let mut made = policy.policy(&known);
    let name = policy.to_string();
    if options.guarded && options.each_quantum {
        made = Box::new(QuantumGuard::new(made, &name, Guarding::default()));
    }
    simulate_with(platform, scenario, (&mut *made, &name), options, &mut |_| ())
}

/// The main phase of each job's first thread, for oracles; of a job without threads the default.
#[must_use]
pub fn demands_of(scenario: &Scenario) -> Vec<Phase> {
    let first = scenario.jobs.iter().map(|job| job.threads.first());
    first
        .map(|thread| thread.map_or_else(Phase::default, |thread| most(scenario, thread)))
        .collect()
}

/// Simulates `scenario` under any policy, given with its name for plans; `look` is called each
/// round. The policy itself has all prior knowledge.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_with(
    platform: &Platform<'_>,
    scenario: &Scenario,
    (policy, name): (&mut dyn Policy, &str),
    options: &SimulationOptions<'_>,
    look: &mut dyn FnMut(&Round<'_>),
) -> Result<Outcome, SimError> {
    let mut host = SimHost::new(platform, scenario)?;
    host.record(options.spans);
    host.hides_spinning = options.hides_spinning;
    host.meanwhile(options.meanwhile);
    let jobs = knowns(platform, scenario, options.profiled)?;
    let until = match policy.period() {
        // With a quantum of the scenario's own, the policy's period does not count.
        _ if options.each_quantum => Until::Time(scenario.quantum),
        Some(period) => Until::TimeOrEvents(period),
        None => Until::Events,
    };
    let workload = RunSettings {
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

/// Time of each job with nothing else on the machine: with threads placed by the simulated kernel,
/// or spread over the cores if faster, as a slowdown is relative to the best known time. `None` for
/// a job without an end before the horizon.
///
/// # Errors
/// As [`simulate`].
pub fn alone_times(
    platform: &Platform<'_>,
    scenario: &Scenario,
) -> Result<Vec<Option<Nanos>>, SimError> {
    let options = SimulationOptions { alone: false, ..SimulationOptions::default() };
    let placements = ["os", "scatter"].map(PolicySpec::named);
    let mut times: Vec<Option<Nanos>> = Vec::new();
    for (place, job) in scenario.jobs.iter().enumerate() {
        // Copies of a program take the same time.
        let same = scenario.jobs[..place]
            .iter()
            .position(|other| other.threads == job.threads && other.barrier == job.barrier);
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

/// A scenario with a single job of another scenario, on the whole machine all the time.
#[must_use]
pub fn alone(scenario: &Scenario, job: &JobSpec) -> Scenario {
    let job = JobSpec { arrives: Nanos::ZERO, ..job.clone() };
    Scenario { jobs: vec![job], method: Method::Leave, events: Vec::new(), ..scenario.clone() }
}

/// Knowledge of all jobs before the first starts.
///
/// # Errors
/// [`SimError::Phase`] if a phase cannot run on the machine.
pub fn knowns(
    platform: &Platform<'_>,
    scenario: &Scenario,
    profiled: bool,
) -> Result<Vec<KnownJob>, SimError> {
    let demands = Demands::new(platform, scenario)?;
    let jobs = scenario.jobs.iter().map(|job| KnownJob {
        name: job.name.clone(),
        profile: profiled.then(|| profile(&demands, scenario, job)),
        phases: if profiled {
            job.threads.iter().map(|t| most(scenario, t)).collect()
        } else {
            Vec::new()
        },
    });
    Ok(jobs.collect())
}

/// Profile of a job as a profiler would write: each thread with the mean mix of its course, busy
/// but for its sleep, over the whole simulation.
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
        program: ProfiledProgram {
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

/// CPU time of a thread from its creation to the horizon; `None` without sleep.
fn cpu_time(demands: &Demands, scenario: &Scenario, thread: &ThreadSpec) -> Option<Nanos> {
    let Life { busy, asleep, .. } = demands.life(thread);
    let lives = scenario.horizon.saturating_sub(thread.born);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of it
    let ran = Nanos((busy / (busy + asleep) * (lives.0 as f64)) as u64);
    (asleep > 0.0).then_some(ran)
}

/// The phase with the most instructions of a thread: a policy gets a single demand vector a thread.
/// Measured cycles are left out, since the model's count here.
pub(crate) fn most(scenario: &Scenario, thread: &ThreadSpec) -> Phase {
    let phases = thread.course.iter().map(|stretch| stretch.phase);
    let most = phases.max_by_key(|&phase| {
        let of_phase = thread.course.iter().filter(|stretch| stretch.phase == phase);
        let instructions: u64 = of_phase.map(|stretch| stretch.instructions).sum();
        // `max_by_key` keeps the last of equals; `Reverse` makes that the first phase.
        (instructions, Reverse(phase))
    });
    let most = most.map(|most| scenario.phases[most.0 as usize].phase.clone());
    let unknown = colocate_model::phase::Known::Unknown;
    Phase { cycles: unknown, ..most.unwrap_or_default() }
}

/// Mean mix of a thread's course, weighted by instructions.
fn course_mix(scenario: &Scenario, thread: &ThreadSpec) -> Mix {
    let stretches = thread.course.iter();
    mean_mix(scenario, stretches.map(|s| (s.phase.0 as usize, s.instructions as f64)))
        .unwrap_or_default()
}
