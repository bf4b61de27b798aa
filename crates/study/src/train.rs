//! Training of a machine's interference model, on a training set that is simulated or measured.
//!
//! # Problem
//! The cost of a shared core depends on the machine, and no coefficients of any machine were
//! published.
//! # Approach
//! As Feliu et al. (HPCA 2016): run the training set alone and together on one core, and fit the
//! components together to the components alone ([`colocate_model::symbiosis`]). As in their TPDS
//! 2017 paper, *alone* is on a core that is split as it is together: siblings are idle and hold
//! their part of it. The cost of the split itself, the same whatever is beside the program, is then
//! no part of the slowdown. A real core whose siblings are idle need not be split; there that cost
//! is in the coefficients. On a simulated machine training shows how well the equation can follow
//! the contention model.
//! # Terms
//! - *Interval*: a piece of a run together, [`TrainingSettings::interval`] long.
//! - *Held out*: every [`EVERY`]-th program. Groups with such a program are not fitted to. Of these
//!   groups only the samples of the held-out programs judge the coefficients, as for programs not
//!   seen before; the programs beside them may have been seen.
//!   beside them may have been.
//! # Algorithm
//! 1. For each number of threads: each program alone, then groups of two, four, … programs on the
//!    siblings of one core: all pairs, pairs of a program with itself included; of larger groups
//!    [`TrainingSettings::groups`] drawn ones.
//! 2. Align by instructions: a thread's interval together is compared with the same instructions
//!    alone. Between samples alone, cycles are taken to pass evenly.
//! 3. Least squares for each component and each number of threads; errors on the held-out programs.
//!
//! The first interval is left out: caches are cold.
//! # Properties
//! - **By instructions**: a thread that is half as fast is held against half of the time alone. ->
//!   test `aligned_by_instructions`
//! - **Repeatable**: the same set and seed give the same coefficients. -> test `repeatable`
//! - **Not seen**: errors are of no program that is fitted to. -> test
//!   `only_programs_held_out_are_judged`
//! - **Found again**: from programs that follow the equation come its coefficients. -> test
//!   `coefficients_are_found_again`

mod bench;
mod set;
mod track;

use crate::replication::{StudyError, count};
use bench::SimBench;
use colocate_machine::{Machine, Nanos, Performance, PuIdx};
use colocate_model::Assumptions;
use colocate_model::rng::SplitMix64;
use colocate_model::symbiosis::file::{
    Component, CpiModel, HeldOut, SIMULATED_PARTS, TrainedMode, VERSION, simulated_components,
};
use colocate_model::symbiosis::{CoreCoefficients, FitSample, fit, inverse};
use colocate_sim::Platform;
use track::of_interval;

pub use bench::TrainingBench;
pub use set::{TrainingProgram, TrainingSet};
pub use track::{Track, TrackSettings, Watched};

/// Every how many programs one is held out, the last of them. Chosen: a quarter.
pub const EVERY: usize = 4;

/// Fewest groups of each size to fit to. Chosen: as many as a component has coefficients.
pub const LEAST_GROUPS: usize = 4;

/// Samples of a program alone for each interval together. Chosen: cycles pass evenly between two
/// samples only where no phase ends, and samples with an end are four times rarer than intervals.
const FINER: u32 = 4;

/// Most samples of groups of one size. Chosen: a quarter of a gigabyte.
pub const MOST_SAMPLES: u64 = 1_000_000;

/// Settings of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingSettings {
    /// Length of an interval. Never 0.
    pub interval: Nanos,
    /// Used intervals of a group; at least 1.
    pub intervals: u32,
    /// Number of drawn groups of more than two programs, for each size.
    pub groups: u32,
    /// Seed of the draw.
    pub seed: u64,
}

impl Default for TrainingSettings {
    /// Chosen: intervals of a tenth of a quantum, six of them, and as many larger groups as the
    /// default training set of 24 programs has pairs.
    fn default() -> Self {
        Self { interval: Nanos::from_millis(20), intervals: 6, groups: 300, seed: 0 }
    }
}

/// Metadata of a trained model.
#[derive(Clone, Copy, Debug)]
pub struct ModelMetadata<'a> {
    /// Version of colocate.
    pub colocate: &'a str,
    /// The date, as YYYY-MM-DD.
    pub date: &'a str,
    /// Training set, in a line.
    pub data: &'a str,
}

fn unsuitable(expected: impl Into<String>, found: impl ToString) -> StudyError {
    StudyError::Unsuitable(expected.into(), found.to_string())
}

/// Machine and programs of a training.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Whether the machine is simulated.
    pub simulated: bool,
    /// Number of used siblings of a core.
    pub siblings: usize,
    /// Parts of its stacks, in its order.
    pub parts: Vec<String>,
    /// Components, as sums of parts.
    pub components: Vec<Component>,
    /// Names of the programs.
    pub programs: Vec<String>,
}

/// Trains the coefficients of a described `machine` by simulation.
///
/// # Errors
/// [`StudyError`] if the machine has no siblings or cannot be modelled, if programs or groups are
/// too few or too many, or if a simulation fails.
pub fn train(
    machine: &Machine,
    performance: &Performance,
    set: &TrainingSet,
    settings: &TrainingSettings,
    stamp: &ModelMetadata<'_>,
) -> Result<CpiModel, StudyError> {
    simulated(machine, performance, set, settings, |bench, subject| {
        train_on(bench, subject, settings, stamp)
    })
}

/// Calls `work` with a simulated core of `machine`.
fn simulated<T>(
    machine: &Machine,
    performance: &Performance,
    set: &TrainingSet,
    settings: &TrainingSettings,
    work: impl FnOnce(&mut dyn TrainingBench, &Subject<'_>) -> Result<T, StudyError>,
) -> Result<T, StudyError> {
    let siblings = siblings(machine)?;
    let platform = Platform::new(machine, performance, Assumptions::default())?;
    let interval = settings.interval;
    let mut bench = SimBench { platform: &platform, siblings: &siblings, set, interval };
    let subject = Subject {
        machine,
        simulated: true,
        siblings: siblings.len(),
        parts: SIMULATED_PARTS.map(str::to_owned).to_vec(),
        components: simulated_components(),
        programs: set.programs.iter().map(|program| program.name.clone()).collect(),
    };
    work(&mut bench, &subject)
}

/// Trains coefficients by runs of programs on `bench`.
///
/// # Errors
/// [`StudyError`] if programs or groups are too few or too many, a run fails, or the stacks of a
/// program alone are unknown.
pub fn train_on(
    bench: &mut dyn TrainingBench,
    subject: &Subject<'_>,
    settings: &TrainingSettings,
    stamp: &ModelMetadata<'_>,
) -> Result<CpiModel, StudyError> {
    let groups = all_groups(subject, settings)?;
    let mut training = Training { bench, subject, settings };
    let modes = groups.iter().map(|groups| training.mode(groups)).collect::<Result<_, _>>()?;
    Ok(CpiModel {
        version: VERSION,
        simulated: subject.simulated,
        colocate: stamp.colocate.to_owned(),
        machine: subject.machine.name.clone(),
        processor: subject.machine.processor.clone(),
        date: stamp.date.to_owned(),
        data: stamp.data.to_owned(),
        parts: subject.parts.clone(),
        components: subject.components.clone(),
        modes,
    })
}

/// Number of runs for `subject`, of single programs and of groups.
///
/// # Errors
/// [`StudyError::Unsuitable`] where [`train_on`] would refuse the programs or settings.
pub fn runs(subject: &Subject<'_>, settings: &TrainingSettings) -> Result<usize, StudyError> {
    let groups = all_groups(subject, settings)?;
    Ok(groups.iter().map(|groups| subject.programs.len() + groups.all.len()).sum())
}

/// Groups of each size.
fn all_groups(
    subject: &Subject<'_>,
    settings: &TrainingSettings,
) -> Result<Vec<ProgramGroups>, StudyError> {
    let programs = subject.programs.len();
    if programs < EVERY {
        let expected = format!("a training set of {EVERY} programs or more");
        return Err(unsuitable(expected, programs));
    }
    let sizes = sizes(subject.siblings).into_iter();
    sizes.map(|threads| groups(programs, threads, settings)).collect()
}

/// PUs of the first core with the most PUs.
fn siblings(machine: &Machine) -> Result<Vec<PuIdx>, StudyError> {
    let most = machine.cores.iter().map(|core| core.pus.len()).max().unwrap_or(0);
    let core = machine.cores.iter().find(|core| core.pus.len() == most && most > 1);
    core.map(|core| core.pus.clone()).ok_or_else(|| {
        let found = format!("{}, whose cores have one PU each", machine.name);
        unsuitable("a machine with SMT", found)
    })
}

/// Group sizes to train: two, four, … and the whole core.
fn sizes(width: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        std::iter::successors(Some(2), |size| Some(size * 2)).take_while(|s| *s < width).collect();
    sizes.push(width);
    sizes
}

/// Groups of as many programs as threads, by place in the set.
#[derive(Debug)]
struct ProgramGroups {
    threads: usize,
    all: Vec<Vec<usize>>,
}

/// The groups of a size; an error, before anything is simulated, if samples are too many or groups
/// too few.
fn groups(
    programs: usize,
    threads: usize,
    settings: &TrainingSettings,
) -> Result<ProgramGroups, StudyError> {
    let drawn = settings.groups as usize;
    let count = if threads == 2 { programs * (programs + 1) / 2 } else { drawn };
    let found = (count * threads) as u64 * u64::from(settings.intervals);
    if found > MOST_SAMPLES {
        let expected = format!("at most {MOST_SAMPLES} samples of {threads} threads on a core");
        return Err(unsuitable(
            expected,
            format!("{found}: take fewer programs, groups or intervals"),
        ));
    }
    let mut rng = SplitMix64::new(settings.seed);
    let all: Vec<Vec<usize>> = match threads {
        2 => (0..programs).flat_map(|a| (a..programs).map(move |b| vec![a, b])).collect(),
        _ => (0..count).map(|_| (0..threads).map(|_| rng.below(programs)).collect()).collect(),
    };
    let found = all.iter().filter(|group| is_fitted(group)).count();
    if found < LEAST_GROUPS {
        let expected = format!(
            "{LEAST_GROUPS} groups or more of {threads} programs none of which is held out"
        );
        return Err(unsuitable(expected, format!("{found} of {count}: draw more groups")));
    }
    Ok(ProgramGroups { threads, all })
}

const fn is_held_out(program: usize) -> bool {
    program % EVERY == EVERY - 1
}

/// Whether coefficients are fitted to the samples of a group.
fn is_fitted(group: &[usize]) -> bool {
    !group.iter().any(|&program| is_held_out(program))
}

/// Samples of groups of a size.
#[derive(Clone, Debug, Default)]
pub struct GroupSamples {
    /// Samples that coefficients are fitted to.
    pub fitted: Vec<FitSample>,
    /// Samples of held-out programs.
    pub judged: Vec<FitSample>,
}

/// Samples of the training of a described `machine`, by the number of threads on a core.
///
/// # Errors
/// As [`train`].
pub fn samples(
    machine: &Machine,
    performance: &Performance,
    set: &TrainingSet,
    settings: &TrainingSettings,
) -> Result<Vec<(usize, GroupSamples)>, StudyError> {
    simulated(machine, performance, set, settings, |bench, subject| {
        let groups = all_groups(subject, settings)?.into_iter();
        let mut training = Training { bench, subject, settings };
        groups.map(|it| Ok((it.threads, training.collect(&it)?))).collect()
    })
}

/// A training under way.
struct Training<'a> {
    bench: &'a mut dyn TrainingBench,
    subject: &'a Subject<'a>,
    settings: &'a TrainingSettings,
}

impl Training<'_> {
    /// Runs every program alone, and every group.
    fn collect(&mut self, groups: &ProgramGroups) -> Result<GroupSamples, StudyError> {
        let threads = groups.threads;
        let alone = self.alone(threads)?;
        let TrainingSettings { interval, intervals, .. } = *self.settings;
        let GroupSamples { mut fitted, mut judged } = GroupSamples::default();
        for group in &groups.all {
            let tracks = self.bench.run(group, threads, interval, intervals + 1)?;
            // Sample 0 is the start, and sample 1 the end of the first interval.
            let intervals = 2..=intervals as usize + 1;
            let samples = intervals.filter_map(|at| of_interval(group, &tracks, &alone, at));
            let samples = samples.flat_map(|samples| group.iter().copied().zip(samples));
            if is_fitted(group) {
                fitted.extend(samples.map(|(_, sample)| sample));
            } else {
                let own = samples.filter(|(program, _)| is_held_out(*program));
                judged.extend(own.map(|(_, sample)| sample));
            }
        }
        Ok(GroupSamples { fitted, judged })
    }

    /// Trains the coefficients for a number of threads.
    fn mode(&mut self, groups: &ProgramGroups) -> Result<TrainedMode, StudyError> {
        let threads = groups.threads;
        let GroupSamples { fitted, judged } = self.collect(groups)?;
        let Some(coefficients) = fit::fit(&fitted) else {
            let expected = format!("samples of {threads} threads on a core");
            return Err(unsuitable(expected, format!("{}: take longer intervals", fitted.len())));
        };
        let mode = CoreCoefficients { threads: count(threads), coefficients };
        let stacks: Vec<&[f64]> = fitted.iter().map(|sample| &sample.own[..]).collect();
        Ok(TrainedMode {
            threads: mode.threads,
            samples: count(fitted.len()),
            held_out: held_out(&self.subject.programs, &mode, &judged),
            conditioning: inverse::conditioning(&mode, &stacks, self.settings.seed),
            coefficients: mode.coefficients,
        })
    }

    /// Tracks of every program alone on a core that is split among `threads`.
    fn alone(&mut self, threads: usize) -> Result<Vec<Track>, StudyError> {
        let TrainingSettings { interval, intervals, .. } = *self.settings;
        // A step of 0 would make no progress.
        let step = Nanos((interval.0 / u64::from(FINER)).max(1));
        // One interval more, since the first one is left out.
        let samples = (intervals + 1) * FINER;
        let tracks = self.subject.programs.iter().enumerate().map(|(program, name)| {
            let track = self.bench.run(&[program], threads, step, samples)?.pop();
            let track = track.unwrap_or_default();
            if track.is_known_after(FINER as usize) {
                return Ok(track);
            }
            let found = format!("none of {name}, which ended, did nothing, or was not counted");
            Err(unsuitable("stacks of every program alone after its first interval", found))
        });
        tracks.collect()
    }
}

/// Quality of the coefficients on held-out programs; `None` if no group has any.
fn held_out(programs: &[String], mode: &CoreCoefficients, judged: &[FitSample]) -> Option<HeldOut> {
    let mut components = fit::quality(mode, judged);
    // The last quality is that of the slowdown.
    let slowdown = components.pop().filter(|_| !judged.is_empty())?;
    let programs = programs.iter().enumerate().filter(|(at, _)| is_held_out(*at));
    Some(HeldOut {
        programs: programs.map(|(_, name)| name.clone()).collect(),
        samples: count(judged.len()),
        components,
        slowdown,
    })
}

#[cfg(test)]
mod tests;
