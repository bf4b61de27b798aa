//! Mixes of drawn programs with traffic over the published range, and one mix under every
//! scheduler.
//!
//! # Terms
//! - *Traffic of a mix*: contexts × the mean traffic of its programs, which take equally long alone.
//!   It is Xu's `IABW`; the slides' "average TR_MM of the workloads" is read in the same way.
//! # Algorithm
//! - Programs are drawn with replacement. A published range of traffic is cut into one equal part
//!   for each mix. Each mix is drawn until its traffic lies in its part. In the published mixes
//!   called *balanced*, half of the programs come from the half with most requests to the first
//!   cache; in the others three quarters or one quarter.
//! - As published, a program that ends before its target begins anew (its course repeats). A program
//!   that has reached its target leaves, so the last programs have less contention.

use super::definition::{Mixes, StudyTable};
use super::drawn::SyntheticProgram;
use super::report::CellFigures;
use super::{PolicyRuns, Study, StudyError, bound, draws};
use crate::parts;
use crate::simulate::contender::Contender;
use colocate_engine::guard::{Guarding, QuantumGuard};
use colocate_engine::{Meanwhile, Round};
use colocate_machine::{Bytes, Machine, Nanos, PuNr};
use colocate_model::Assumptions;
use colocate_model::rng::SplitMix64;
use colocate_policy::table::Prior;
use colocate_policy::{Knowledge, SoloProfile};
use colocate_sim::scenario::{PhaseSpec, Scenario, ThreadSpec, TotalWork};
use colocate_sim::{
    KernelScheduler, Outcome, Platform, SimulationOptions, alone_of, courses_of, demands_of,
    simulate_with,
};

/// Draws of a mix until its traffic must lie in its part of the range. A part in the middle is hit
/// about once in twenty draws, a part at an end about once in some thousand.
const TRIES: u32 = 1_000_000;

/// Concurrent programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Name, as `M3`.
    pub name: String,
    /// Indices of its programs among the drawn programs.
    pub programs: Vec<usize>,
    /// PUs of the mix.
    pub pus: Vec<PuNr>,
    /// Requests of all contexts to memory together, t/µs.
    pub traffic: f64,
}

impl Mix {
    /// Report of the mix.
    pub(super) fn figures(&self, programs: &[SyntheticProgram]) -> CellFigures {
        let values = [("contexts", self.pus.len() as f64), ("traffic", self.traffic)];
        let names = self.programs.iter().map(|&place| programs[place].name.clone());
        CellFigures::of(&[("mix", self.name.clone())], &values, names.collect())
    }
}

/// Checks that the machine has the cores and PUs of the mixes.
pub(super) fn fits(machine: &Machine, form: &Mixes) -> Result<(), StudyError> {
    let cores = form.cores.iter().copied().max().unwrap_or(1);
    let pus = form.pus_per_core;
    let enough = machine.cores.iter().take(cores).all(|core| core.pus.len() >= pus);
    if machine.cores.len() >= cores && enough {
        return Ok(());
    }
    let expected = format!("a machine with {cores} cores of {pus} PUs");
    Err(StudyError::Unsuitable(expected, machine.name.clone()))
}

/// Draws the mixes of a part.
///
/// # Errors
/// [`StudyError::Unsuitable`] if no mix lies in a part of the range.
pub fn draw(
    form: &Mixes,
    machine: &Machine,
    programs: &[SyntheticProgram],
    alone: &[SoloProfile],
    seed: u64,
) -> Result<Vec<Mix>, StudyError> {
    // Another sequence than that of the programs, which are drawn by the seed itself.
    let mut random = SplitMix64::new(seed.wrapping_add(1));
    let order = by_first_cache(
        &alone.iter().map(|alone| alone.first_cache.unwrap_or(0.0)).collect::<Vec<_>>(),
    );
    let mut mixes = Vec::new();
    for number in 0..form.count {
        let pus = pus(machine, form.cores[number % form.cores.len()], form.pus_per_core);
        let count = pus.len() * form.programs_per_pu;
        let part = form.traffic.map(|range| part(range, number, form.count));
        // Without shapes there is no remainder by 0, and `get` finds none.
        let shape = form.shapes.get(number % form.shapes.len().max(1));
        let mut drawn = (0..TRIES).map(|_| choose(&mut random, &order, count, shape));
        let chosen = drawn.find(|chosen| {
            part.is_none_or(|[low, high]| {
                (low..high).contains(&traffic(chosen, programs, pus.len()))
            })
        });
        let chosen = chosen.ok_or_else(|| {
            let [low, high] = part.unwrap_or_default();
            let expected = format!("mixes with {low:.1} to {high:.1} t/µs of memory traffic");
            StudyError::Unsuitable(expected, "none among a million drawn".to_owned())
        })?;
        let traffic = traffic(&chosen, programs, pus.len());
        let name = format!("M{}", number + 1);
        mixes.push(Mix { name, programs: chosen, pus, traffic });
    }
    Ok(mixes)
}

/// The `number`th of `count` equal parts of a range.
fn part([low, high]: [f64; 2], number: usize, count: usize) -> [f64; 2] {
    [number, number + 1].map(|place| low + (high - low) * place as f64 / count as f64)
}

/// Contexts × the mean traffic of the programs.
fn traffic(chosen: &[usize], programs: &[SyntheticProgram], contexts: usize) -> f64 {
    let sum = chosen.iter().map(|&place| programs[place].traffic).fold(0.0, |sum, each| sum + each);
    sum / chosen.len() as f64 * contexts as f64
}

/// Indices of the programs by their requests to the first cache, most requests first.
fn by_first_cache(first_cache: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..first_cache.len()).collect();
    order.sort_by(|&a, &b| first_cache[b].total_cmp(&first_cache[a]));
    order
}

/// Draws `count` programs of all, or `shape` quarters of them from the half with most requests.
fn choose(
    random: &mut SplitMix64,
    order: &[usize],
    count: usize,
    shape: Option<&usize>,
) -> Vec<usize> {
    let Some(&quarters) = shape else {
        return (0..count).map(|_| order[draws::below(random, order.len())]).collect();
    };
    let (most, least) = order.split_at(order.len() / 2);
    let of_most = count * quarters / 4;
    let halves = (0..count).map(|place| if place < of_most { most } else { least });
    halves.map(|half| half[draws::below(random, half.len())]).collect()
}

/// The first `each` PUs of each of the first `cores` cores, in logical order.
fn pus(machine: &Machine, cores: usize, each: usize) -> Vec<PuNr> {
    let pus = machine.cores.iter().take(cores).flat_map(|core| core.pus.iter().take(each));
    pus.map(|pu| machine.pus[pu.idx()].os).collect()
}

/// Solo profiles of all programs, under the default assumptions.
pub(super) fn alone(
    study: &Study<'_>,
    programs: &[SyntheticProgram],
) -> Result<Vec<SoloProfile>, StudyError> {
    let platform = Platform::new(study.machine, study.performance, Assumptions::default())?;
    let all = Mix {
        name: "all".to_owned(),
        programs: (0..programs.len()).collect(),
        pus: study.machine.pus.iter().map(|pu| pu.os).collect(),
        traffic: 0.0,
    };
    if programs.is_empty() {
        return Ok(Vec::new());
    }
    let mut scenario = scenario(study, 1, programs, &all, 0);
    // In the order of the programs, not of their queue.
    scenario.jobs.sort_by_key(|job| programs.iter().position(|program| program.name == job.name));
    Ok(alone_of(&platform, &scenario)?)
}

/// Simulates a mix under each scheduler, with one set of assumptions.
pub(super) fn under_all(
    study: &Study<'_>,
    part: &StudyTable,
    form: &Mixes,
    programs: &[SyntheticProgram],
    mix: &Mix,
    draw: usize,
) -> Result<PolicyRuns, StudyError> {
    let platform = Platform::new(study.machine, study.performance, study.draws[draw])?;
    let mut runs = vec![Vec::new(); part.names().len()];
    for seed in study.seeds() {
        let scenario = scenario(study, form.programs_per_pu, programs, mix, seed);
        let alone = alone_of(&platform, &scenario)?;
        for (runs, (_, policy)) in runs.iter_mut().zip(part.known()) {
            let outcome = under(study, &platform, &scenario, (policy, &alone), &mut |_| ())?;
            runs.push(part.kept(&outcome));
        }
    }
    Ok(runs)
}

/// Bound on the turnaround of a mix under the default assumptions, in seconds; `None` as of
/// [`bound::turnaround`].
pub(super) fn bound(
    study: &Study<'_>,
    form: &Mixes,
    programs: &[SyntheticProgram],
    mix: &Mix,
) -> Result<Option<f64>, StudyError> {
    let platform = Platform::new(study.machine, study.performance, study.draws[0])?;
    // The order of the programs, which the seed draws, does not change the bound.
    bound::turnaround(&platform, &scenario(study, form.programs_per_pu, programs, mix, study.seed))
}

/// Simulates a scenario under a scheduler, which draws by the scenario's seed. `each_quantum` is
/// called after every quantum.
///
/// # Errors
/// [`StudyError`] of the simulation.
pub fn under(
    study: &Study<'_>,
    platform: &Platform<'_>,
    scenario: &Scenario,
    (contender, alone): (Contender, &[SoloProfile]),
    each_quantum: &mut dyn FnMut(&Round<'_>),
) -> Result<Outcome, StudyError> {
    let mut policy = contender.policy;
    let _ = policy.set("seed", &scenario.seed.to_string()); // only those that draw have one
    let name = policy.to_string();
    let courses =
        if policy.has_prior(Prior::Courses) { courses_of(platform, scenario)? } else { Vec::new() };
    let demands = demands_of(scenario);
    let performance = Some(platform.performance);
    let known = Knowledge {
        alone,
        courses: &courses,
        demands: &demands,
        performance,
        ..Knowledge::default()
    };
    let mut made = policy.policy(&known);
    if contender.guarded {
        made = Box::new(QuantumGuard::new(made, &name, Guarding::default()));
    }
    let meanwhile = contender.waiting.unwrap_or(Meanwhile::Stop);
    let options = SimulationOptions { meanwhile, ..SimulationOptions::each_quantum() };
    let mut outcome =
        simulate_with(platform, scenario, (&mut *made, &name), &options, each_quantum)?;
    // The target of a program is its work in this time alone.
    outcome.jobs.iter_mut().for_each(|job| job.alone = Some(study.definition.length));
    Ok(outcome)
}

/// A mix as a scenario. The seed draws the order in which its programs begin.
#[must_use]
pub fn scenario(
    study: &Study<'_>,
    programs_per_pu: usize,
    programs: &[SyntheticProgram],
    mix: &Mix,
    seed: u64,
) -> Scenario {
    let mut chosen = mix.programs.clone();
    draws::shuffle(&mut SplitMix64::new(seed), &mut chosen);
    let mut phases: Vec<PhaseSpec> = Vec::new();
    let mut first = vec![None; programs.len()];
    let mut jobs = Vec::new();
    for &place in &chosen {
        let program = &programs[place];
        let first = *first[place].get_or_insert_with(|| {
            let before = super::count(phases.len());
            phases.extend(program.phases.iter().cloned().map(PhaseSpec::of));
            before
        });
        let work = TotalWork::AloneFor(study.definition.length);
        let thread = parts::thread(&program.name, program.course(first), work);
        let thread = ThreadSpec { resident: Bytes::mib(256), ..thread };
        jobs.push(parts::job(&program.name, vec![thread]));
    }
    let horizon = Nanos(study.definition.length.0.saturating_mul(100));
    let usable = Some(mix.pus.clone());
    let kernel = kernel(mix.pus.len(), programs_per_pu);
    let times = [study.definition.quantum, horizon];
    Scenario { seed, usable, kernel, ..parts::scenario(&mix.name, phases, jobs, times) }
}

/// The CFS of the studies' years, as far as it differs from the simulated kernel. A PU is shared
/// out in `sched_latency`, 6 ms times 1 + log2 of at most 8 CPUs, divided by the runnable threads
/// (kernel/sched/fair.c before 6.6; remembered).
fn kernel(pus: usize, threads_per_pu: usize) -> KernelScheduler {
    const LATENCY: u64 = 6;
    let factor = 1 + u64::from(pus.clamp(1, 8).ilog2());
    let slice = Nanos::from_millis(LATENCY * factor / threads_per_pu.max(1) as u64);
    KernelScheduler { slice, ..KernelScheduler::default() }
}

#[cfg(test)]
mod tests {
    use super::super::StudyCells;
    use super::super::definition::{Cells, PolicyStudyDefinition};
    use super::*;
    use crate::metric::Metric;
    use crate::testing::machine;

    /// 6 ms · (1 + 2) for 4 CPUs, (1 + 3) from 8 on; halved by two threads.
    #[test]
    fn slices_of_cfs() {
        let slice = |pus, threads| kernel(pus, threads).slice.0 / 1_000_000;
        assert_eq!([slice(4, 2), slice(12, 2), slice(40, 1), slice(1, 1)], [9, 12, 24, 6]);
    }

    /// Of twelve programs on all six cores, nine, six or three are of the half with most requests to the first cache.
    #[test]
    fn shapes_are_of_the_first_cache() {
        let (machine, _) = machine("xeon-e5645");
        let rates: Vec<f64> = (0..20_i32).map(f64::from).collect();
        let order = by_first_cache(&rates);
        assert_eq!(order[0], 19);
        for quarters in 0..=4 {
            let chosen = choose(&mut SplitMix64::new(3), &order, 12, Some(&quarters));
            let most = chosen.iter().filter(|&&place| place >= 10).count();
            assert_eq!(most, 3 * quarters);
        }
        assert_eq!(pus(&machine, 2, 2), [PuNr(0), PuNr(6), PuNr(1), PuNr(7)]);
    }

    /// Ten mixes from 20 to 40: the third from 24 to 26.
    #[test]
    fn each_mix_lies_in_its_part() {
        let (machine, performance) = machine("xeon-x3320");
        let definition = PolicyStudyDefinition::built_in("feliu-1").unwrap();
        let draws = [Assumptions::default()];
        let study = Study {
            definition: &definition,
            machine: &machine,
            performance: &performance,
            draws: &draws,
            seed: 0,
        };
        let work = StudyCells::new(study).unwrap();
        let cells = &work.tables[0].reported;
        assert_eq!(cells.len(), 10);
        for (cell, _) in cells {
            assert_eq!((cell.programs.len(), cell.values["contexts"]), (8, 4.0));
            assert!((20.0..40.0).contains(&cell.values["traffic"]));
        }
        assert!((24.0..26.0).contains(&cells[2].0.values["traffic"]));
    }

    /// Of the second study no range was published: one that is given counts there, too.
    #[test]
    fn a_given_range_is_that_of_every_part() {
        let (machine, performance) = machine("xeon-e5645");
        let mut definition = PolicyStudyDefinition::built_in("feliu-2").unwrap();
        definition.mixes().for_each(|mixes| (mixes.count, mixes.traffic) = (3, Some([40.0, 60.0])));
        let draws = [Assumptions::default()];
        let study = Study {
            definition: &definition,
            machine: &machine,
            performance: &performance,
            draws: &draws,
            seed: 0,
        };
        let work = StudyCells::new(study).unwrap();
        let cells: Vec<_> = work.tables.iter().flat_map(|table| &table.reported).collect();
        assert_eq!(cells.len(), 6);
        assert!(cells.iter().all(|(cell, _)| (40.0..60.0).contains(&cell.values["traffic"])));
    }

    /// Every scheduler of every part brings one small mix to its end, in no less time than the work takes.
    #[test]
    fn every_part_runs_to_its_end() {
        for name in ["feliu-1", "feliu-2", "feliu-3", "feliu-4"] {
            let mut definition = PolicyStudyDefinition::built_in(name).unwrap();
            definition.mixes().for_each(|mixes| (mixes.count, mixes.traffic) = (1, None));
            (definition.programs, definition.seeds) = (8, 1);
            definition.length = Nanos::from_millis(60);
            definition.quantum = Nanos::from_millis(20);
            for part in &mut definition.parts {
                part.metrics = vec![Metric::Turnaround, Metric::Unfairness, Metric::HarmonicIpc];
            }
            let (machine, performance) = machine(&definition.machine);
            let draws = [Assumptions::default()];
            let study = Study {
                definition: &definition,
                machine: &machine,
                performance: &performance,
                draws: &draws,
                seed: 3,
            };
            let work = StudyCells::new(study).unwrap();
            for (piece, table) in work.tables.iter().enumerate() {
                let Cells::Mixes(form) = &table.part.cells else { panic!("mixes") };
                let least = 0.06 * form.programs_per_pu as f64;
                for run in work.piece(piece).unwrap().iter().flatten() {
                    assert!(run.iter().all(Option::is_some), "{name} {run:?}");
                    assert!(run[0].unwrap() > 0.999 * least, "{name} {run:?}");
                    assert!(run[1].unwrap() >= 1.0, "{name} {run:?}");
                }
            }
        }
    }
}
