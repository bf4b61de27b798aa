//! Coefficients of the interference model for a described machine, from a training set that is simulated.
//!
//! # Problem
//! What sharing a core costs depends on the machine, and the coefficients of nobody's machine were published.
//! # Approach
//! As Feliu et al. (HPCA 2016): run the training set alone and together on one core, and fit what its
//! components became together to what they were alone ([`colocate_model::symbiosis`]). Here the machine is
//! simulated, so what is trained is how well the equation can follow the contention model.
//! # Terms
//! - *Interval*: a piece of a run together, [`Settings::interval`] long.
//! - *Held out*: every [`EVERY`]-th program. No group with one of them is fitted to; they say how well the
//!   coefficients hold for programs that they have not seen.
//! # Algorithm
//! 1. Each program alone, then groups of two, four, … programs on the siblings of one core: all pairs, a program
//!    with itself among them; of larger groups [`Settings::groups`] drawn ones.
//! 2. Align by instructions: what a thread did in an interval together is held against the same instructions
//!    alone, between whose looks cycles are taken to pass evenly.
//! 3. Least squares for each component and each number of threads; errors on the groups with a held-out program.
//!
//! The first interval is left out: caches are cold.
//! # Properties
//! - **By instructions**: a thread that is half as fast is held against half of the time alone. -> test
//!   `aligned_by_instructions`
//! - **Repeatable**: the same set and seed give the same coefficients. -> test `repeatable`

mod set;
mod track;

use colocate_machine::{Machine, Nanos, Performance, PuIdx};
use colocate_model::rng::SplitMix64;
use colocate_model::symbiosis::file::{
    CpiModel, HeldOut, SIMULATED_PARTS, TrainedMode, VERSION, simulated_components,
};
use colocate_model::symbiosis::{Mode, Sample, fit, inverse};
use colocate_model::{Assumptions, ModelError};
use colocate_sim::{Platform, SimError};
use thiserror::Error;
use track::Bench;

pub use set::{Program, TrainingSet};

/// Which programs are held out: the last of so many. Chosen: a quarter.
pub const EVERY: usize = 4;

/// How it is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Length of an interval. Never 0.
    pub interval: Nanos,
    /// Intervals of a group that are used; at least 1.
    pub intervals: u32,
    /// How many groups of more than two programs are drawn, for each size.
    pub groups: u32,
    /// The seed that draws them.
    pub seed: u64,
}

impl Default for Settings {
    /// Chosen: intervals of a tenth of a quantum, six of them, and as many larger groups as the usual training
    /// set of 24 programs has pairs.
    fn default() -> Self {
        Self { interval: Nanos::from_millis(20), intervals: 6, groups: 300, seed: 0 }
    }
}

/// What a model is stamped with.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// Version of colocate.
    pub colocate: &'a str,
    /// The date, as YYYY-MM-DD.
    pub date: &'a str,
    /// What the training set is, in a line.
    pub data: &'a str,
}

/// Why there are no coefficients.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The machine cannot be modelled.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A simulation cannot be made.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The machine has no core with two PUs.
    #[error("expected a machine with SMT, found {found}, whose cores have one PU each")]
    NoSiblings {
        /// The machine.
        found: String,
    },
    /// The training set is too small for the fit, or for something to be held out.
    #[error("expected a training set of {least} programs or more, found {found}")]
    TooFew {
        /// How many there must be.
        least: usize,
        /// How many there are.
        found: usize,
    },
}

/// Trains the coefficients of `machine`.
///
/// # Errors
/// [`TrainError`] if the machine has no siblings or cannot be modelled, the set is too small, or a simulation
/// fails.
pub fn train(
    machine: &Machine,
    performance: &Performance,
    set: &TrainingSet,
    settings: &Settings,
    stamp: &Stamp<'_>,
) -> Result<CpiModel, TrainError> {
    let siblings = siblings(machine)?;
    if set.programs.len() < EVERY {
        return Err(TrainError::TooFew { least: EVERY, found: set.programs.len() });
    }
    let platform = Platform::new(machine, performance, Assumptions::default())?;
    let bench = Bench::new(&platform, &siblings, set, settings)?;
    let sizes = sizes(siblings.len());
    let modes = sizes.into_iter().map(|threads| mode(&bench, set, settings, threads));
    Ok(CpiModel {
        version: VERSION,
        simulated: true,
        colocate: stamp.colocate.to_owned(),
        machine: machine.name.clone(),
        processor: machine.processor.clone(),
        date: stamp.date.to_owned(),
        data: stamp.data.to_owned(),
        parts: SIMULATED_PARTS.map(str::to_owned).to_vec(),
        components: simulated_components(),
        modes: modes.collect::<Result<_, _>>()?,
    })
}

/// The PUs of the first core that has most.
fn siblings(machine: &Machine) -> Result<Vec<PuIdx>, TrainError> {
    let most = machine.cores.iter().map(|core| core.pus.len()).max().unwrap_or(0);
    let core = machine.cores.iter().find(|core| core.pus.len() == most && most > 1);
    let no = || TrainError::NoSiblings { found: machine.name.clone() };
    core.map(|core| core.pus.clone()).ok_or_else(no)
}

/// Group sizes that are trained: two, four, … and the whole core.
fn sizes(width: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        std::iter::successors(Some(2), |size| Some(size * 2)).take_while(|s| *s < width).collect();
    sizes.push(width);
    sizes
}

/// Groups of programs, by place in the set.
fn groups(programs: usize, threads: usize, settings: &Settings) -> Vec<Vec<usize>> {
    if threads == 2 {
        return (0..programs).flat_map(|a| (a..programs).map(move |b| vec![a, b])).collect();
    }
    let mut rng = SplitMix64::new(settings.seed);
    let mut group = |_| (0..threads).map(|_| rng.below(programs)).collect();
    (0..settings.groups).map(&mut group).collect()
}

const fn is_held_out(program: usize) -> bool {
    program % EVERY == EVERY - 1
}

fn mode(
    bench: &Bench<'_>,
    set: &TrainingSet,
    settings: &Settings,
    threads: usize,
) -> Result<TrainedMode, TrainError> {
    let (mut fitted, mut judged): (Vec<Sample>, Vec<Sample>) = (Vec::new(), Vec::new());
    for group in groups(set.programs.len(), threads, settings) {
        let samples = bench.samples(&group)?;
        let of = if group.iter().any(|&p| is_held_out(p)) { &mut judged } else { &mut fitted };
        of.extend(samples);
    }
    let too_few = || TrainError::TooFew { least: EVERY, found: set.programs.len() };
    let coefficients = fit::fit(&fitted).ok_or_else(too_few)?;
    let mode = Mode { threads: count(threads), coefficients };
    let mut quality = fit::quality(&mode, &judged);
    let slowdown = quality.pop().ok_or_else(too_few)?;
    let programs = set.programs.iter().enumerate().filter(|(at, _)| is_held_out(*at));
    let stacks: Vec<Vec<f64>> = fitted.iter().map(|sample| sample.own.clone()).collect();
    Ok(TrainedMode {
        threads: mode.threads,
        samples: count(fitted.len()),
        held_out: Some(HeldOut {
            programs: programs.map(|(_, program)| program.name.clone()).collect(),
            samples: count(judged.len()),
            components: quality,
            slowdown,
        }),
        conditioning: inverse::conditioning(&mode, &stacks, settings.seed),
        coefficients: mode.coefficients,
    })
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
