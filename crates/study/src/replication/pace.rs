//! The study's programs: parallel parts with a barrier behind each, and a serial part between every two.
//!
//! # Problem
//! The available fragment of the paper gives the sequential part of each program, but not the total
//! of which it is a share.
//! # Approach
//! A program has `n` threads, one for each core. *Serial share* is defined here: the share of the
//! program's time for which one thread works and all others wait, on a machine of the same build
//! with slow cores only and a thread on each core. So the share does not depend on the scheduler.
//! By default the threads have the demand of a typical program: all components are unknown, and
//! drawn with the assumptions. A second kind streams through memory, for the number of threads that
//! pays; see [`fed`]. A third kind has the demand of recorded programs.
//! # Terms
//! - `T`: time of the program on the machine of slow cores; `s`: serial share.
//! - `R`: parallel parts, at least 2; the program has `R − 1` serial parts.
//! - `p(M, n)`: seconds until threads that do `n` instructions each are done, one on each core of
//!   `M`.
//! - `v(M)`: instructions per second of one thread alone, on a core of the fastest kind of `M`.
//! # Equations
//! - A parallel part has as many instructions a thread as take `(1 − s) T / R` on the slow machine.
//! - A serial part has `s T / (R − 1) · v(slow)` instructions.
//! - *Oracle* (Amdahl's law with a faster core for the serial part): `R · p(M, parallel) + (R − 1) ·
//!   serial / v(M)`. No thread moves, no cache is cold, and each thread has a core: threads on fast
//!   cores are done first and wait. The oracle bounds the gain from serial parts on fast cores. A
//!   scheduler that also shares the fast cores in parallel parts could be better.
//!
//! # Properties
//! - **The simulator agrees** with the oracle where serial parts are on a fast core and nothing moves, and with `T` on the
//!   slow machine. -> tests `oracle_is_what_is_simulated`, `share_is_of_the_time_on_slow_cores`

use super::layout;
use super::{StudyError, demand};
use crate::parts::known_phase;
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Machine, Nanos, Performance, PuIdx};
use colocate_model::phase::{Demand, Known, PhaseFile, PortWork};
use colocate_model::threads::Trained;
use colocate_model::{Assumptions, MissCurve, Model, Phase, PlacedTask};
use std::cmp::Reverse;
use std::sync::LazyLock;

/// Demand of a program's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandKind {
    /// A program of unknown demand.
    Typical,
    /// Streams through memory that no cache holds.
    Streaming,
    /// Demand of a program of [`recorded`], by its index.
    Recorded(usize),
}

/// The nine recorded programs, which are like those of NAS; see docs/results/serpa.md.
///
/// # Panics
/// Never with the built-in file.
#[must_use]
pub fn recorded() -> &'static [Phase] {
    const TEXT: &str = include_str!("../../../../studies/serpa/recorded.json");
    static PHASES: LazyLock<Vec<Phase>> =
        LazyLock::new(|| PhaseFile::from_json(TEXT).expect("what is built in can be read").phases);
    &PHASES
}

/// Parameters of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Demand of its threads.
    pub kind: DemandKind,
    /// Serial share, 0 to 1; below 1.
    pub serial: f64,
    /// Time on the machine of slow cores.
    pub length: Nanos,
    /// Parallel parts; at least 2.
    pub parts: u64,
}

/// Sizes of a program in instructions, for one set of assumptions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Instructions of each thread in a parallel part. Never 0.
    pub parallel: u64,
    /// Instructions of a serial part; 0 if there is none.
    pub serial: u64,
    /// Parallel parts.
    pub parts: u64,
    /// Threads. Never 0.
    pub threads: usize,
}

/// Speed of a program on a machine, under one set of assumptions.
#[derive(Debug)]
pub struct ProgramSpeed<'a> {
    model: Model<'a>,
    machine: &'a Machine,
    /// Demand by kind of core.
    demands: Vec<Demand>,
}

impl<'a> ProgramSpeed<'a> {
    /// Models a program of `kind` on `machine`.
    ///
    /// # Errors
    /// [`StudyError`] if the program or the machine cannot be modelled.
    pub fn new(
        machine: &'a Machine,
        performance: &'a Performance,
        assumptions: Assumptions,
        kind: DemandKind,
    ) -> Result<Self, StudyError> {
        let model = Model::new(machine, performance, assumptions)?;
        let phase = kind.phase();
        let demands = performance.kinds.iter().map(|core| demand(&phase, core, &assumptions));
        Ok(Self { model, machine, demands: demands.collect::<Result<_, _>>()? })
    }

    /// Instructions per second of one thread alone, on the first core of the fastest kind.
    #[must_use]
    pub fn alone(&self) -> f64 {
        self.model.alone(&self.seat(self.fastest_first()[0])).instructions_per_second
    }

    /// Bytes per second that one thread alone reads from memory and writes back.
    #[must_use]
    pub fn traffic_alone(&self) -> f64 {
        self.model.alone(&self.seat(self.fastest_first()[0])).memory.0
    }

    /// Seconds until `threads` threads with `instructions` each are done, a core for each, fast
    /// cores first. A thread that is done waits, which leaves the others more of shared resources.
    #[must_use]
    pub fn together(&self, instructions: f64, threads: usize) -> f64 {
        let cores = self.fastest_first().into_iter().take(threads);
        let mut left: Vec<(PuIdx, f64)> = cores.map(|pu| (pu, instructions)).collect();
        let mut seconds = 0.0;
        while !left.is_empty() {
            let seats: Vec<PlacedTask<'_>> = left.iter().map(|(pu, _)| self.seat(*pu)).collect();
            let rates = self.model.predict(&seats).tasks;
            let rates: Vec<f64> = rates.iter().map(|rate| rate.instructions_per_second).collect();
            let until = left.iter().zip(&rates).map(|((_, left), rate)| left / rate);
            // Until the next thread is done, which changes the rates of the others.
            let step = until.fold(f64::INFINITY, f64::min);
            seconds += step;
            left.iter_mut().zip(&rates).for_each(|((_, left), rate)| *left -= rate * step);
            left.retain(|(_, left)| *left > instructions * ROUNDING);
        }
        seconds
    }

    /// First PU of every core, cores of the fastest kind first.
    fn fastest_first(&self) -> Vec<PuIdx> {
        let mut cores: Vec<&colocate_machine::Core> = self.machine.cores.iter().collect();
        // Kinds are in the order of speed, the slowest first.
        cores.sort_by_key(|core| Reverse(core.kind.idx()));
        cores.into_iter().map(|core| core.pus[0]).collect()
    }

    fn seat(&self, pu: PuIdx) -> PlacedTask<'_> {
        let kind = self.machine.cores[self.machine.core_of(pu).idx()].kind;
        PlacedTask { pu, demand: &self.demands[kind.idx()], pages: &[], space: 0 }
    }
}

/// Part of a part's instructions that rounding can leave.
const ROUNDING: f64 = 1e-9;

impl Sizes {
    /// Sizes of a program on `machine`; the times in `shape` hold on its slow cores.
    ///
    /// # Errors
    /// [`StudyError`] if the program or the machine cannot be modelled.
    pub fn of(
        shape: &Shape,
        machine: &Machine,
        performance: &Performance,
        assumptions: Assumptions,
    ) -> Result<Self, StudyError> {
        let slow = layout::all_slow(machine);
        let pace = ProgramSpeed::new(&slow, performance, assumptions, shape.kind)?;
        let length = shape.length.as_secs_f64();
        let threads = machine.cores.len();
        let each = pace.together(1.0, threads);
        let parts = float(shape.parts);
        // A stretch without instructions is not possible.
        let parallel = whole((1.0 - shape.serial) * length / parts / each).max(1);
        let serial = whole(shape.serial * length / (parts - 1.0) * pace.alone());
        Ok(Self { parallel, serial, parts: shape.parts, threads })
    }

    /// The same work of the parallel parts, divided among `threads` threads.
    #[must_use]
    pub fn among(self, threads: usize) -> Self {
        let threads = threads.max(1);
        let parallel = self.parallel * self.threads as u64 / threads as u64;
        Self { parallel: parallel.max(1), threads, ..self }
    }

    /// Seconds of the oracle on a machine.
    #[must_use]
    pub fn oracle(&self, pace: &ProgramSpeed<'_>) -> f64 {
        let serial = float(self.serial) / pace.alone();
        let parallel = pace.together(float(self.parallel), self.threads);
        float(self.parts) * parallel + float(self.parts - 1) * serial
    }
}

/// Number of threads that feedback-driven threading gives a program. One thread runs on a slow
/// core, and its share of the bandwidth is measured. There are no critical sections. The machine's
/// peak was measured, so the set of assumptions scales it.
///
/// # Errors
/// [`StudyError`] if the program or the machine cannot be modelled.
pub fn fed(
    shape: &Shape,
    machine: &Machine,
    performance: &Performance,
    assumptions: Assumptions,
) -> Result<usize, StudyError> {
    let slow = layout::all_slow(machine);
    let one = ProgramSpeed::new(&slow, performance, assumptions, shape.kind)?.traffic_alone();
    let peaks = performance.memory.iter().map(|node| node.bandwidth.0);
    let peak = peaks.fold(0.0, |sum, each| sum + each) * assumptions.bandwidth;
    // An assumed peak may be less than one thread reaches.
    let trained = Trained { outside: 1.0, inside: 0.0, bandwidth: Some((one / peak).min(1.0)) };
    let cores = u32::try_from(machine.cores.len()).unwrap_or(u32::MAX);
    Ok(trained.advise(cores).threads as usize)
}

/// Lines of an instruction of the streaming program. Chosen: STREAM's triad takes three lines for
/// eight elements of about five instructions each, 0.075.
const STREAMED: f64 = 0.05;

impl DemandKind {
    /// Demand of the instructions; components that are not set are unknown.
    ///
    /// # Panics
    /// If [`DemandKind::Recorded`] has no recorded program at its index.
    #[must_use]
    pub fn phase(self) -> Phase {
        match self {
            Self::Typical => Phase { name: "typical".to_owned(), ..Phase::default() },
            Self::Streaming => {
                const SOURCE: &str = "chosen, near the triad of STREAM";
                let misses = MissCurve::new([(Bytes(64), STREAMED)]);
                let misses = misses.map_or(Known::Unknown, |curve| Known::new(curve, SOURCE));
                // As many as `Guessed::ParallelMisses` can be: its lines do not depend on each other.
                let parallel_misses = Known::new(6.0, SOURCE);
                let name = "streaming".to_owned();
                Phase { name, misses, parallel_misses, ..Phase::default() }
            }
            Self::Recorded(place) => recorded()[place].clone(),
        }
    }
}

/// A loop that reads a word in the first cache until it changes: a load, a comparison and a branch,
/// which wait for the load (3 cycles on the described cores). Its speed has no effect on cores
/// without siblings.
#[must_use]
pub fn spinning() -> Phase {
    let third = 1.0 / 3.0;
    let kinds = vec![(WorkKind::Load, third), (WorkKind::Int, third), (WorkKind::Branch, third)];
    Phase {
        work: Known::new(PortWork::Kinds(kinds), SPIN_LOOP),
        dependent_cycles: Known::new(1.0, SPIN_LOOP),
        dependent_cycles_divided: Known::new(1.0, SPIN_LOOP),
        ..known_phase("spinning", SPIN_LOOP)
    }
}

/// Source of the figures of [`spinning`].
const SPIN_LOOP: &str = "a loop of three instructions: load, compare, branch";

pub(super) fn float(count: u64) -> f64 {
    count as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
fn whole(count: f64) -> u64 {
    count.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;

    fn shape(serial: f64) -> Shape {
        Shape { kind: DemandKind::Typical, serial, length: Nanos::from_secs(1), parts: 5 }
    }

    /// Half of a second serial in four parts, half parallel in five: on the slow machine `5 p + 4 s / v` is the second.
    #[test]
    fn sizes_add_up_to_the_length() {
        let (machine, performance) = machine("amp-4x12");
        let usual = Assumptions::default();
        let slow = layout::all_slow(&machine);
        let pace = ProgramSpeed::new(&slow, &performance, usual, DemandKind::Typical).unwrap();
        for serial in [0.0, 0.5, 0.9] {
            let sizes = Sizes::of(&shape(serial), &machine, &performance, usual).unwrap();
            assert!((sizes.oracle(&pace) - 1.0).abs() < 1e-3, "{serial}: {sizes:?}");
            assert_eq!(sizes.serial == 0, serial == 0.0);
        }
    }

    /// Amdahl: with fast cores that are `f` times as fast alone, `1 − s + s / f` of the time, but for what the fast threads
    /// leave to the slow ones when they are done with a parallel part.
    #[test]
    fn oracle_is_amdahls() {
        let (machine, performance) = machine("amp-4x12");
        let usual = Assumptions::default();
        let slow = layout::all_slow(&machine);
        let pace =
            |machine| ProgramSpeed::new(machine, &performance, usual, DemandKind::Typical).unwrap();
        let faster = pace(&machine).alone() / pace(&slow).alone();
        assert!(faster > 1.3 && faster <= 2.0, "{faster}");
        let pace = pace(&machine);
        for serial in [0.0, 0.5, 0.9] {
            let sizes = Sizes::of(&shape(serial), &machine, &performance, usual).unwrap();
            let amdahl = 1.0 - serial + serial / faster;
            assert!((sizes.oracle(&pace) / amdahl - 1.0).abs() < 0.05, "{serial}");
        }
    }

    /// The work stays, but for rounding; a typical program has no use for fewer threads, one that streams has.
    #[test]
    fn fewer_threads_where_memory_is_the_limit() {
        let (machine, performance) = machine("amp-4x12");
        let usual = Assumptions::default();
        let threads = |kind| {
            let shape = Shape { kind, ..shape(0.0) };
            fed(&shape, &machine, &performance, usual).unwrap()
        };
        let streaming = threads(DemandKind::Streaming);
        assert_eq!(threads(DemandKind::Typical), 16);
        assert!((2..16).contains(&streaming), "{streaming}");
        let slow = layout::all_slow(&machine);
        let pace = ProgramSpeed::new(&slow, &performance, usual, DemandKind::Streaming).unwrap();
        let shape = Shape { kind: DemandKind::Streaming, ..shape(0.0) };
        let sizes = Sizes::of(&shape, &machine, &performance, usual).unwrap();
        let few = sizes.among(streaming);
        assert!(few.parallel * streaming as u64 <= sizes.parallel * 16);
        // Queues in the model let more of them have a little more; half of them have far less.
        let times = |threads| sizes.among(threads).oracle(&pace) / sizes.oracle(&pace);
        assert!(times(streaming) < 1.25, "{}", times(streaming));
        assert!(times(streaming / 2) > 1.6, "{}", times(streaming / 2));
    }
}
