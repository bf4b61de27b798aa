//! Least possible turnaround of a mix, by linear programming.
//!
//! # Problem
//! A gain of selection and placement says little without the greatest gain possible.
//! # Approach
//! A schedule is a sequence of *sets*: programs in a phase each, on PUs. The bound keeps the time
//! of each set and forgets their order.
//! # Terms
//! - `C`: all sets of at most as many programs as PUs, in every phase and on every choice of PUs,
//!   PUs idle included. Choices that differ only among equal caches are one set.
//! - `r(c, j, p)`: speed of program `j` in its phase `p` in the set `c`, relative to alone, by the
//!   model.
//! - `w(j, p)`: time alone of the program's phase, in seconds.
//! # Algorithm
//! Least `Σ x(c)` with `Σ r(c, j, p) · x(c) ≥ w(j, p)` for every `j` and `p`, and `x ≥ 0`.
//!
//! Proof: let `x(c)` be the time that a schedule spends in set `c`. Every phase is done at its end,
//! so the constraints hold. The turnaround is at least `Σ x(c)`, which is at least the minimum.
//!
//! The proof takes the speeds of a set as constant. Caches that refill after a move, and threads
//! that share a PU, change speeds for a while: the bound leaves that out.
//! # Properties
//! - **Least**: as the best of a grid of schedules. -> test `best_by_brute_force`
//! - **No scheduler is below** -> test `no_scheduler_is_below`

use super::StudyError;
use colocate_machine::{Machine, PuIdx};
use colocate_model::Phase;
use colocate_model::phase::Demand;
use colocate_model::system::{PlacedTask, Solver};
use colocate_sim::scenario::{JobSpec, Scenario, TotalWork};
use colocate_sim::{Platform, courses_of};
use microlp::{ComparisonOp, OptimizationDirection, Problem, SolutionStatus, Variable};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the bound among the values of a cell.
pub const BOUND: &str = "bound_s";

/// Most sets. Chosen: eight programs of up to four phases on four PUs have some 70,000.
const MOST: usize = 200_000;

/// Part of the bound left out for the tolerances of the model and of the linear program: ten times
/// the model's.
const TOLERANCE: f64 = 0.001;

/// A program in one of its phases.
struct ProgramPhase {
    demand: Demand,
    /// Instructions per second alone.
    alone: f64,
    /// Time alone of all its instructions, in seconds.
    work: f64,
}

/// All programs of a scenario.
struct ProgramPhases {
    phases: Vec<ProgramPhase>,
    /// By program: the places of its phases.
    by_program: Vec<Vec<usize>>,
}

/// Programs, by place in all program phases, on each cache.
type CacheGroups = Vec<Vec<usize>>;

/// Bound on the turnaround of a scenario, in seconds. `None` for jobs of several threads, for cores
/// of several usable PUs, for several nodes, for unequal caches, and for more than [`MOST`] sets.
///
/// # Errors
/// [`StudyError`] if the scenario cannot be modelled.
pub fn turnaround(platform: &Platform<'_>, scenario: &Scenario) -> Result<Option<f64>, StudyError> {
    let Some(caches) = equal_caches(platform.machine, scenario) else { return Ok(None) };
    let Some(programs) = program_phases(platform, scenario)? else { return Ok(None) };
    let mut sets = Vec::new();
    let mut groups = vec![Vec::new(); caches.len()];
    if !add_sets(&programs.by_program, caches[0].len(), &mut groups, &mut sets) {
        return Ok(None);
    }
    let phases = &programs.phases;
    Ok(least_time(phases, &speeds(platform, phases, &caches, &sets)))
}

/// Usable PUs by last-level cache; `None` unless all are of one node, one kind and cores of their
/// own, and every cache has as many.
fn equal_caches(machine: &Machine, scenario: &Scenario) -> Option<Vec<Vec<PuIdx>>> {
    let usable = scenario.usable.as_ref()?;
    let mut caches: BTreeMap<_, Vec<PuIdx>> = BTreeMap::new();
    let mut cores = BTreeSet::new();
    for &nr in usable {
        let pu = machine.pu_by_os(nr)?;
        caches.entry(machine.last_level_cache(pu)?).or_default().push(pu);
        if !cores.insert(machine.core_of(pu)) {
            return None;
        }
    }
    let caches: Vec<Vec<PuIdx>> = caches.into_values().collect();
    let width = caches.first()?.len();
    let is_even = caches.iter().all(|pus| pus.len() == width);
    let is_uniform = machine.nodes.len() <= 1 && machine.kinds.len() == 1;
    (is_even && is_uniform).then_some(caches)
}

/// All phases of all programs; `None` as of [`work_by_phase`].
fn program_phases(
    platform: &Platform<'_>,
    scenario: &Scenario,
) -> Result<Option<ProgramPhases>, StudyError> {
    let courses = courses_of(platform, scenario)?;
    let mut phases = Vec::new();
    let mut by_program = Vec::new();
    for (job, course) in scenario.jobs.iter().zip(&courses) {
        let seconds: Vec<f64> = course.0.iter().map(|part| part.seconds).collect();
        let Some(work) = work_by_phase(job, &seconds) else { return Ok(None) };
        let first = phases.len();
        for (phase, (work, alone)) in work {
            let phase: &Phase = &scenario.phases[phase].phase;
            let core = &platform.performance.kinds[0];
            let demand = super::demand(phase, core, &platform.assumptions)?;
            phases.push(ProgramPhase { demand, alone, work });
        }
        by_program.push((first..phases.len()).collect());
    }
    Ok(Some(ProgramPhases { phases, by_program }))
}

/// By phase: time alone of a program's work, and instructions per second alone. `seconds` are the
/// times alone of the parts of its course. `None` for several threads, or work not given as a time.
fn work_by_phase(job: &JobSpec, seconds: &[f64]) -> Option<BTreeMap<usize, (f64, f64)>> {
    let [thread] = &job.threads[..] else { return None };
    let TotalWork::AloneFor(length) = thread.work else { return None };
    let round: f64 = seconds.iter().sum();
    let rounds = (length.as_secs_f64() / round).floor();
    let mut rest = length.as_secs_f64() - rounds * round;
    let mut work = BTreeMap::new();
    for (segment, &seconds) in thread.course.iter().zip(seconds) {
        let rate = segment.instructions as f64 / seconds;
        let of_phase = work.entry(segment.phase.0 as usize).or_insert((0.0, rate));
        let last = rest.clamp(0.0, seconds);
        of_phase.0 += rounds * seconds + last;
        rest -= last;
    }
    Some(work)
}

/// Adds every set of the remaining programs to `sets`; false after more than [`MOST`].
fn add_sets(
    programs: &[Vec<usize>],
    width: usize,
    groups: &mut CacheGroups,
    sets: &mut Vec<CacheGroups>,
) -> bool {
    let Some((program, others)) = programs.split_first() else {
        sets.push(groups.clone());
        return sets.len() <= MOST;
    };
    // The program does not run.
    if !add_sets(others, width, groups, sets) {
        return false;
    }
    for cache in open_caches(groups, width) {
        for &phase in program {
            groups[cache].push(phase);
            let few = add_sets(others, width, groups, sets);
            groups[cache].pop();
            if !few {
                return false;
            }
        }
    }
    true
}

/// Caches with a free PU; of the empty ones, which are equal, only the first.
fn open_caches(groups: &CacheGroups, width: usize) -> Vec<usize> {
    let first_empty = groups.iter().position(Vec::is_empty);
    let is_open = |&at: &usize| {
        let count = groups[at].len();
        count < width && (count > 0 || first_empty == Some(at))
    };
    (0..groups.len()).filter(is_open).collect()
}

/// Programs of each set by place, with their speeds relative to alone.
fn speeds(
    platform: &Platform<'_>,
    phases: &[ProgramPhase],
    caches: &[Vec<PuIdx>],
    sets: &[CacheGroups],
) -> Vec<Vec<(usize, f64)>> {
    let mut solver = Solver::new(&platform.model);
    let mut speeds_of = |groups: &CacheGroups| -> Vec<(usize, f64)> {
        let placed = groups.iter().zip(caches);
        let placed = placed.flat_map(|(group, pus)| group.iter().copied().zip(pus.iter().copied()));
        let placed: Vec<(usize, PuIdx)> = placed.collect();
        let tasks = placed.iter().enumerate().map(|(space, &(at, pu))| PlacedTask {
            pu,
            demand: &phases[at].demand,
            pages: &[],
            space: super::count(space),
        });
        let found = solver.predict(&tasks.collect::<Vec<_>>());
        let rates = placed.iter().zip(&found.tasks);
        rates
            .map(|(&(at, _), rate)| (at, rate.instructions_per_second / phases[at].alone))
            .collect()
    };
    sets.iter().map(&mut speeds_of).collect()
}

/// Least time in which all work is done, in seconds; `None` if the linear program has no solution.
fn least_time(phases: &[ProgramPhase], speeds: &[Vec<(usize, f64)>]) -> Option<f64> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let mut by_phase: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); phases.len()];
    for set in speeds.iter().filter(|set| !set.is_empty()) {
        let time = problem.add_var(1.0, (0.0, f64::INFINITY));
        for &(at, speed) in set {
            by_phase[at].push((time, speed));
        }
    }
    for (phase, terms) in phases.iter().zip(&by_phase) {
        problem.add_constraint(&terms[..], ComparisonOp::Ge, phase.work);
    }
    let solution = problem.solve().ok()?.into_solution().ok()?;
    // A solution that is only feasible is no bound.
    let is_optimal = solution.status() == SolutionStatus::Optimal;
    is_optimal.then(|| solution.objective() * (1.0 - TOLERANCE))
}

#[cfg(test)]
mod tests {
    use super::super::definition::PolicyStudyDefinition;
    use super::super::mixes::{self, Mix};
    use super::super::{Study, drawn};
    use super::*;
    use crate::metric::Metric;
    use crate::simulate::contender::Contender;
    use crate::testing::machine;
    use colocate_machine::Nanos;
    use colocate_model::Assumptions;
    use colocate_sim::alone_of;

    /// Calls `test` with drawn programs on the first two PUs of an X3320, which share a cache.
    fn with_programs(
        seed: u64,
        programs: usize,
        mut test: impl FnMut(&Study<'_>, &Platform<'_>, &Scenario),
    ) {
        let (machine, performance) = machine("xeon-x3320");
        let mut definition = PolicyStudyDefinition::built_in("feliu-1").unwrap();
        definition.length = Nanos::from_millis(3000);
        definition.quantum = Nanos::from_millis(50);
        let assumptions = [Assumptions::default()];
        let study = Study {
            definition: &definition,
            machine: &machine,
            performance: &performance,
            draws: &assumptions,
            seed,
        };
        let drawn = drawn::draw(&machine, &performance, programs, seed).unwrap();
        let mix = Mix {
            name: "drawn".to_owned(),
            programs: (0..programs).collect(),
            pus: machine.pus[..2].iter().map(|pu| pu.os).collect(),
            traffic: 0.0,
        };
        let platform = Platform::new(&machine, &performance, assumptions[0]).unwrap();
        let scenario = mixes::scenario(&study, 2, &drawn, &mix, seed);
        test(&study, &platform, &scenario);
    }

    /// Three programs in their first phase on two PUs: times of the three pairs on a grid, then what is left of
    /// each program alone.
    #[test]
    fn best_by_brute_force() {
        for seed in 0..4 {
            with_programs(seed, 3, |_, platform, scenario| {
                let mut scenario = scenario.clone();
                scenario.jobs.iter_mut().for_each(|job| job.threads[0].course.truncate(1));
                let bound = turnaround(platform, &scenario).unwrap().unwrap();
                let caches = equal_caches(platform.machine, &scenario).unwrap();
                let programs = program_phases(platform, &scenario).unwrap().unwrap().phases;
                let pairs = [[0, 1], [0, 2], [1, 2]];
                let sets: Vec<CacheGroups> = pairs.iter().map(|pair| vec![pair.to_vec()]).collect();
                let speeds = speeds(platform, &programs, &caches, &sets);
                let step = 0.05;
                let mut best = f64::INFINITY;
                for grid in 0..80_usize.pow(3) {
                    let times = [grid % 80, grid / 80 % 80, grid / 6400].map(|at| at as f64 * step);
                    let mut left: Vec<f64> = programs.iter().map(|each| each.work).collect();
                    for (time, set) in times.iter().zip(&speeds) {
                        set.iter().for_each(|&(at, speed)| left[at] -= speed * time);
                    }
                    let alone: f64 = left.iter().map(|left| left.max(0.0)).sum();
                    best = best.min(times.iter().sum::<f64>() + alone);
                }
                assert!(bound <= best, "seed {seed}: {bound}, but {best} is possible");
                assert!(bound >= best - 3.0 * step, "seed {seed}: {bound} is far from {best}");
            });
        }
    }

    #[test]
    fn no_scheduler_is_below() {
        for seed in 0..6 {
            with_programs(seed, 4, |study, platform, scenario| {
                let bound = turnaround(platform, scenario).unwrap().unwrap();
                assert!(bound >= 6.0 * (1.0 - 2.0 * TOLERANCE), "12 s of work on two PUs: {bound}");
                let alone = alone_of(platform, scenario).unwrap();
                for name in ["os", "round-robin", "mmas", "mhas", "idas", "fair-oracle"] {
                    let policy: Contender = name.parse().unwrap();
                    let run = (policy, &alone[..]);
                    let outcome =
                        mixes::under(study, platform, scenario, run, &mut |_| ()).unwrap();
                    let took = Metric::Turnaround.of(&outcome).unwrap();
                    assert!(
                        took >= bound,
                        "seed {seed}: {name} takes {took}, the bound is {bound}"
                    );
                }
            });
        }
    }

    /// The X3320 has two caches of two PUs. Two programs of one phase: none, either one, or both, together or apart.
    #[test]
    fn sets_by_hand() {
        let mut sets = Vec::new();
        assert!(add_sets(&[vec![0], vec![1]], 2, &mut vec![Vec::new(); 2], &mut sets));
        let two = |a: &[usize], b: &[usize]| vec![a.to_vec(), b.to_vec()];
        let all =
            [two(&[], &[]), two(&[1], &[]), two(&[0], &[]), two(&[0, 1], &[]), two(&[0], &[1])];
        assert_eq!(sets, all);
    }
}
