//! One mix under every scheduler.
//!
//! As published: a program that ends before its target begins anew, which its course does; one that has done
//! its target leaves, so that the last ones have more room.

use super::metric::Metric;
use super::mix::Mix;
use super::program::Program;
use super::{Setup, Study};
use crate::replication::{Done, StudyError, seeds};
use crate::simulate::figures;
use crate::stats::{self, Random};
use colocate_engine::Round;
use colocate_machine::{Bytes, Nanos};
use colocate_policy::{Knowledge, PolicySpec, SoloProfile};
use colocate_sim::metrics;
use colocate_sim::scenario::{JobSpec, Method, Pages, PhaseSpec, Scenario, ThreadSpec, Work};
use colocate_sim::{Kernel, Options, Outcome, Platform, TaskOutcome, alone_of, simulate_with};

/// What is kept of a run, in the order of [`Metric::ALL`]; `None` if it did not come to its end.
pub type Kept = [Option<f64>; Metric::COUNT];

/// A mix with one set of assumptions under each of the schedulers, seed by seed: `[policy][seed]`.
pub(super) fn under_all(
    study: &Study<'_>,
    setup: &Setup,
    programs: &[Program],
    mix: &Mix,
    draw: usize,
) -> Result<Done<{ Metric::COUNT }>, StudyError> {
    let platform = Platform::new(study.machine, study.performance, study.draws[draw])?;
    let mut runs = vec![Vec::new(); setup.schedulers(0).len()];
    for seed in seeds(study.seed, study.seeds) {
        let scenario = scenario(study, setup, programs, mix, seed);
        let alone = alone_of(&platform, &scenario)?;
        for (runs, kind) in runs.iter_mut().zip(setup.schedulers(seed)) {
            let outcome = under(study, &platform, &scenario, (&kind, &alone), &mut |_| ())?;
            runs.push(kept(&outcome));
        }
    }
    Ok(runs)
}

/// A scenario under a scheduler, with a look at every quantum.
///
/// # Errors
/// The [`StudyError`] of the simulation.
pub fn under(
    study: &Study<'_>,
    platform: &Platform<'_>,
    scenario: &Scenario,
    (policy, alone): (&PolicySpec, &[SoloProfile]),
    look: &mut dyn FnMut(&Round<'_>),
) -> Result<Outcome, StudyError> {
    let (mut made, name) =
        (policy.policy(&Knowledge { alone, ..Knowledge::default() }), policy.to_string());
    let options = Options::each_quantum();
    let mut outcome = simulate_with(platform, scenario, (&mut *made, &name), &options, look)?;
    // A target is what a program does in so long alone.
    outcome.jobs.iter_mut().for_each(|job| job.alone = Some(study.alone));
    Ok(outcome)
}

/// A mix as a scenario; the seed draws the order in which its programs begin.
#[must_use]
pub fn scenario(
    study: &Study<'_>,
    setup: &Setup,
    programs: &[Program],
    mix: &Mix,
    seed: u64,
) -> Scenario {
    let mut chosen = mix.programs.clone();
    Random::new(seed).shuffle(&mut chosen);
    let mut phases: Vec<PhaseSpec> = Vec::new();
    let mut first = vec![None; programs.len()];
    let mut jobs = Vec::new();
    for &place in &chosen {
        let program = &programs[place];
        let first = *first[place].get_or_insert_with(|| {
            let before = u32::try_from(phases.len()).unwrap_or(u32::MAX);
            phases.extend(program.phases.iter().cloned().map(PhaseSpec::of));
            before
        });
        jobs.push(job(study, program, first));
    }
    Scenario {
        name: mix.name.clone(),
        seed,
        phases,
        jobs,
        method: Method::Leave,
        quantum: study.quantum,
        grain: Nanos::ZERO,
        horizon: Nanos(study.alone.0.saturating_mul(100)),
        usable: Some(mix.pus.clone()),
        events: Vec::new(),
        kernel: kernel(mix.pus.len(), setup.programs_per_context),
    }
}

fn job(study: &Study<'_>, program: &Program, first: u32) -> JobSpec {
    let thread = ThreadSpec {
        name: program.name.clone(),
        born: Nanos::ZERO,
        course: program.course(first),
        work: Work::AloneFor(study.alone),
        pages: Pages::FirstTouch,
        resident: Bytes::mib(256),
    };
    let name = program.name.clone();
    JobSpec { name, arrives: Nanos::ZERO, threads: vec![thread], barrier: None }
}

/// The kernel of those years, CFS, as far as it differs from the simulated one: a PU is shared out in
/// `sched_latency`, 6 ms times 1 + log2 of at most 8 CPUs, divided by the threads that want it
/// (kernel/sched/fair.c before 6.6; remembered).
#[must_use]
pub fn kernel(pus: usize, threads_a_pu: usize) -> Kernel {
    const LATENCY: u64 = 6;
    let factor = 1 + u64::from(pus.clamp(1, 8).ilog2());
    let slice = Nanos::from_millis(LATENCY * factor / threads_a_pu.max(1) as u64);
    Kernel { slice, ..Kernel::default() }
}

/// What is kept of an outcome.
fn kept(outcome: &Outcome) -> Kept {
    let of = |metric| match metric {
        Metric::Turnaround => figures::Metric::Turnaround.of(outcome),
        Metric::Ipc => {
            let each: Vec<f64> = outcome.tasks.iter().filter_map(|task| task.ipc()).collect();
            stats::mean(&each)
        }
        Metric::HarmonicIpc => {
            // Time that it ran over that alone for the same instructions: IPC alone over IPC among others.
            let slower = |task: &TaskOutcome| task.ran.as_secs_f64() / task.alone.as_secs_f64();
            metrics::harmonic_speed(&outcome.tasks.iter().map(slower).collect::<Vec<_>>())
        }
        Metric::Stp => figures::Metric::Stp.of(outcome),
        Metric::Antt => figures::Metric::Antt.of(outcome),
        Metric::Unfairness => figures::Metric::Unfairness.of(outcome),
    };
    Metric::ALL.map(|metric| of(metric).filter(|_| outcome.complete))
}

#[cfg(test)]
mod tests {
    use super::super::{Number, mix, program};
    use super::*;
    use crate::testing::machine;
    use colocate_model::Assumptions;

    /// 6 ms · (1 + 2) for 4 CPUs, (1 + 3) from 8 on; halved by two threads.
    #[test]
    fn slices_of_cfs() {
        let slice = |pus, threads| kernel(pus, threads).slice.0 / 1_000_000;
        assert_eq!([slice(4, 2), slice(12, 2), slice(40, 1), slice(1, 1)], [9, 12, 24, 6]);
    }

    /// Every scheduler of every set-up brings one small mix to its end, in no less time than the work takes.
    #[test]
    fn every_set_up_runs_to_its_end() {
        for number in [Number::One, Number::Two, Number::Three, Number::Four] {
            let (machine, performance) = machine(number.machine());
            let draws = [Assumptions::default()];
            let study = Study {
                number,
                machine: &machine,
                performance: &performance,
                draws: &draws,
                seeds: 1,
                seed: 3,
                alone: Nanos::from_millis(60),
                quantum: Nanos::from_millis(20),
                mixes: Some(1),
                traffic: None,
            };
            let programs = program::draw(&machine, &performance, 8, 1).unwrap();
            for setup in study.setups() {
                let setup = Setup { traffic: None, ..setup };
                let mixes = mix::draw(&setup, &machine, &programs, &[1.0; 8], 0).unwrap();
                let runs = under_all(&study, &setup, &programs, &mixes[0], 0).unwrap();
                assert_eq!(runs.len(), setup.schedulers(0).len());
                #[allow(clippy::cast_precision_loss)]
                let least = 0.06 * setup.programs_per_context as f64;
                for run in runs.iter().flatten() {
                    assert!(run.iter().all(Option::is_some), "{number} {run:?}");
                    assert!(run[0].unwrap() > 0.999 * least, "{number} {run:?}");
                    assert!(run[5].unwrap() >= 1.0, "{number} {run:?}");
                }
            }
        }
    }
}
