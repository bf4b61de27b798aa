//! The study's programs: parallel parts with a barrier behind each, and a serial part between every two.
//!
//! # Problem
//! The fragment at hand says of its programs only how much of them is sequential, and not what that is a share of.
//! # Approach
//! A program has `n` threads, one for each core. *Serial share* is defined here: the share of its time for which one
//! thread works and all others wait, when it runs with a thread on each core of a machine of the same build that has
//! slow cores only. So the share is the program's and not the scheduler's. The demand of the threads is that of a
//! typical program: all components are unknown, and drawn with the assumptions. Another one streams through memory, for
//! the question of how many threads are worth while; see [`fed`]. Others are those of programs that were recorded.
//! # Terms
//! - `T`: time of the program on the machine of slow cores; `s`: serial share.
//! - `R`: parallel parts, at least 2; there are `R − 1` serial ones.
//! - `p(M, n)`: seconds until threads that do `n` instructions each are done, one on each core of `M`.
//! - `v(M)`: instructions per second of one thread alone, on a core of the fastest kind of `M`.
//! # Equations
//! - A parallel part has as many instructions a thread as take `(1 − s) T / R` on the slow machine.
//! - A serial part has `s T / (R − 1) · v(slow)` instructions.
//! - *Oracle* (Amdahl's law with a faster core for the serial part): `R · p(M, parallel) + (R − 1) · serial / v(M)`. Nothing
//!   moves, nothing is cold, and each thread has a core: the fast ones are done first and wait. It bounds what can be had by
//!   running serial parts on fast cores; a scheduler that also shared the fast cores in parallel parts could be better.
//!
//! # Properties
//! - **The simulator agrees** with the oracle where serial parts are on a fast core and nothing moves, and with `T` on the
//!   slow machine. -> tests `oracle_is_what_is_simulated`, `share_is_of_the_time_on_slow_cores`

use super::layout;
use super::{StudyError, demand};
use colocate_machine::performance::{CorePerformance, WorkKind};
use colocate_machine::{Bytes, Machine, Nanos, Performance, PuIdx};
use colocate_model::phase::{Demand, Known, PhaseFile, Work as PortWork};
use colocate_model::threads::Trained;
use colocate_model::{Assumptions, MissCurve, Model, Phase, Seat};
use std::cmp::Reverse;
use std::sync::LazyLock;

/// What the threads of a program do when they work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What a program does of which nothing is known.
    Typical,
    /// They stream through memory that no cache holds.
    Streaming,
    /// What one of [`recorded`] does, by its place.
    Recorded(usize),
}

/// The nine programs like those of NAS whose demand vectors were recorded; see docs/results/serpa.md.
///
/// # Panics
/// Not with the file that is built in.
#[must_use]
pub fn recorded() -> &'static [Phase] {
    const TEXT: &str = include_str!("../../../../studies/serpa/recorded.json");
    static PHASES: LazyLock<Vec<Phase>> =
        LazyLock::new(|| PhaseFile::from_json(TEXT).expect("what is built in can be read").phases);
    &PHASES
}

/// What a program is to be like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// What its threads do.
    pub kind: Kind,
    /// Serial share, 0 to 1; below 1.
    pub serial: f64,
    /// Time on the machine of slow cores.
    pub length: Nanos,
    /// Parallel parts; at least 2.
    pub parts: u64,
}

/// A program in instructions, for one set of assumptions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Of each thread in a parallel part. Never 0.
    pub parallel: u64,
    /// Of a serial part; 0 if there is none.
    pub serial: u64,
    /// Parallel parts.
    pub parts: u64,
    /// Threads. Never 0.
    pub threads: usize,
}

/// How fast a program is on a machine, under one set of assumptions.
#[derive(Debug)]
pub struct Pace<'a> {
    model: Model<'a>,
    machine: &'a Machine,
    /// By kind of core.
    demands: Vec<Demand>,
}

impl<'a> Pace<'a> {
    /// On that machine.
    ///
    /// # Errors
    /// [`StudyError`] if it cannot be modelled.
    pub fn new(
        machine: &'a Machine,
        performance: &'a Performance,
        assumptions: Assumptions,
        kind: Kind,
    ) -> Result<Self, StudyError> {
        let model = Model::new(machine, performance, assumptions)?;
        let phase = kind.phase();
        let on = |core: &CorePerformance| demand(&phase, core, &assumptions);
        let demands = performance.kinds.iter().map(on).collect::<Result<_, _>>()?;
        Ok(Self { model, machine, demands })
    }

    /// Instructions per second of one thread alone, on the first core of the fastest kind that there is.
    #[must_use]
    pub fn alone(&self) -> f64 {
        self.model.alone(&self.seat(self.fastest_first()[0])).instructions_per_second
    }

    /// Bytes per second that it reads from memory and writes back there.
    #[must_use]
    pub fn traffic_alone(&self) -> f64 {
        self.model.alone(&self.seat(self.fastest_first()[0])).memory.0
    }

    /// Seconds until so many threads that do so many instructions each are done, a core for each, fast ones first: a thread
    /// that is done waits and leaves the others more of what they share.
    #[must_use]
    pub fn together(&self, instructions: f64, threads: usize) -> f64 {
        let cores = self.fastest_first().into_iter().take(threads);
        let mut left: Vec<(PuIdx, f64)> = cores.map(|pu| (pu, instructions)).collect();
        let mut seconds = 0.0;
        while !left.is_empty() {
            let seats: Vec<Seat<'_>> = left.iter().map(|(pu, _)| self.seat(*pu)).collect();
            let rates = self.model.predict(&seats).tasks;
            let rates: Vec<f64> = rates.iter().map(|rate| rate.instructions_per_second).collect();
            let until = left.iter().zip(&rates).map(|((_, left), rate)| left / rate);
            let step = until.fold(f64::INFINITY, f64::min);
            seconds += step;
            left.iter_mut().zip(&rates).for_each(|((_, left), rate)| *left -= rate * step);
            left.retain(|(_, left)| *left > instructions * ROUNDING);
        }
        seconds
    }

    /// The first PU of every core, those of the fastest kind first.
    fn fastest_first(&self) -> Vec<PuIdx> {
        let mut cores: Vec<&colocate_machine::Core> = self.machine.cores.iter().collect();
        cores.sort_by_key(|core| Reverse(core.kind.idx()));
        cores.into_iter().map(|core| core.pus[0]).collect()
    }

    fn seat(&self, pu: PuIdx) -> Seat<'_> {
        let kind = self.machine.cores[self.machine.core_of(pu).idx()].kind;
        Seat { pu, demand: &self.demands[kind.idx()], pages: &[], space: 0 }
    }
}

/// Of the instructions of a part, what rounding can leave.
const ROUNDING: f64 = 1e-9;

impl Sizes {
    /// Of a program on `machine`, whose slow cores say how long things take.
    ///
    /// # Errors
    /// [`StudyError`] if it cannot be modelled.
    pub fn of(
        shape: &Shape,
        machine: &Machine,
        performance: &Performance,
        assumptions: Assumptions,
    ) -> Result<Self, StudyError> {
        let slow = layout::all_slow(machine);
        let pace = Pace::new(&slow, performance, assumptions, shape.kind)?;
        let (length, threads) = (shape.length.as_secs_f64(), machine.cores.len());
        let each = pace.together(1.0, threads);
        let parts = float(shape.parts);
        let parallel = (1.0 - shape.serial) * length / parts / each;
        let serial = shape.serial * length / (parts - 1.0) * pace.alone();
        let (parallel, serial) = (whole(parallel).max(1), whole(serial));
        Ok(Self { parallel, serial, parts: shape.parts, threads })
    }

    /// The same work of the parallel parts, divided among so many threads.
    #[must_use]
    pub fn among(self, threads: usize) -> Self {
        let (from, to) = (self.threads as u64, threads.max(1) as u64);
        Self { parallel: (self.parallel * from / to).max(1), threads: threads.max(1), ..self }
    }

    /// Seconds that the oracle takes on a machine.
    #[must_use]
    pub fn oracle(&self, pace: &Pace<'_>) -> f64 {
        let serial = float(self.serial) / pace.alone();
        let parallel = pace.together(float(self.parallel), self.threads);
        float(self.parts) * parallel + float(self.parts - 1) * serial
    }
}

/// How many threads feedback-driven threading gives a program: one thread runs on a slow core, and says what share of
/// the bandwidth it takes. There are no critical sections. What the machine's peak is was measured, so it is that of the
/// set of assumptions.
///
/// # Errors
/// [`StudyError`] if it cannot be modelled.
pub fn fed(
    shape: &Shape,
    machine: &Machine,
    performance: &Performance,
    assumptions: Assumptions,
) -> Result<usize, StudyError> {
    let slow = layout::all_slow(machine);
    let one = Pace::new(&slow, performance, assumptions, shape.kind)?.traffic_alone();
    let peaks = performance.memory.iter().map(|node| node.bandwidth.0);
    let peak = peaks.fold(0.0, |sum, each| sum + each) * assumptions.bandwidth;
    let trained = Trained { outside: 1.0, inside: 0.0, bandwidth: Some((one / peak).min(1.0)) };
    let cores = u32::try_from(machine.cores.len()).unwrap_or(u32::MAX);
    Ok(trained.advise(cores).threads as usize)
}

/// Lines of an instruction that streams. Chosen: the triad of STREAM takes three lines for eight elements of some five
/// instructions each, 0.075.
const STREAMED: f64 = 0.05;

impl Kind {
    /// The demand of its instructions. What is not said is unknown.
    ///
    /// # Panics
    /// If so many are not recorded.
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

/// A loop that reads a word in its first cache until that changes: a load, a comparison and a branch, which wait for the
/// load (3 cycles on the described cores). Its demand is no more than that; its speed has no effect on cores without
/// siblings.
#[must_use]
pub fn spinning() -> Phase {
    const SOURCE: &str = "a loop of three instructions: load, compare, branch";
    let known = |value: f64| Known::new(value, SOURCE);
    let third = 1.0 / 3.0;
    let kinds = vec![(WorkKind::Load, third), (WorkKind::Int, third), (WorkKind::Branch, third)];
    Phase {
        name: "spinning".to_owned(),
        slots: known(1.0),
        work: Known::new(PortWork::Kinds(kinds), SOURCE),
        dependent_cycles: known(1.0),
        dependent_cycles_divided: known(1.0),
        stall_cycles: known(0.0),
        branch_misses: known(0.0),
        misses: MissCurve::new([(Bytes(64), 0.0)])
            .map_or(Known::Unknown, |curve| Known::new(curve, SOURCE)),
        parallel_misses: known(1.0),
        written_back: known(0.0),
        shared_lines: known(0.0),
        ..Phase::default()
    }
}

#[allow(clippy::cast_precision_loss)] // parts of seconds are far below 2^53 instructions
fn float(count: u64) -> f64 {
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
        Shape { kind: Kind::Typical, serial, length: Nanos::from_secs(1), parts: 5 }
    }

    /// Half of a second serial in four parts, half parallel in five: on the slow machine `5 p + 4 s / v` is the second.
    #[test]
    fn sizes_add_up_to_the_length() {
        let (machine, performance) = machine("amp-4x12");
        let usual = Assumptions::default();
        let slow = layout::all_slow(&machine);
        let pace = Pace::new(&slow, &performance, usual, Kind::Typical).unwrap();
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
        let pace = |machine| Pace::new(machine, &performance, usual, Kind::Typical).unwrap();
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
        let streaming = threads(Kind::Streaming);
        assert_eq!(threads(Kind::Typical), 16);
        assert!((2..16).contains(&streaming), "{streaming}");
        let slow = layout::all_slow(&machine);
        let pace = Pace::new(&slow, &performance, usual, Kind::Streaming).unwrap();
        let shape = Shape { kind: Kind::Streaming, ..shape(0.0) };
        let sizes = Sizes::of(&shape, &machine, &performance, usual).unwrap();
        let few = sizes.among(streaming);
        assert!(few.parallel * streaming as u64 <= sizes.parallel * 16);
        // Queues in the model let more of them have a little more; half of them have far less.
        let times = |threads| sizes.among(threads).oracle(&pace) / sizes.oracle(&pace);
        assert!(times(streaming) < 1.25, "{}", times(streaming));
        assert!(times(streaming / 2) > 1.6, "{}", times(streaming / 2));
    }
}
