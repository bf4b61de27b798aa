//! The demand of the program that requests lines at a given rate (`smt_bench::traffic`, the published micro-benchmark).

use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Machine, Performance};
use colocate_model::phase::{Guessed, Known, Work};
use colocate_model::{MissCurve, Phase};

/// Instructions of a line without `nop`s: a load, an increment, a store and a branch.
const INSTRUCTIONS: f64 = 4.0;
/// Part of the matrix up to which a cache of least recently used lines keeps none until it comes again.
const NONE_KEPT: f64 = 0.9;

/// What lies between two lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gap {
    /// So many `nop`s, as published.
    Nops(f64),
    /// So many cycles without an instruction: beside a sibling, whose slots `nop`s would take.
    Stalled(f64),
}

impl Gap {
    /// Instructions of a line.
    #[must_use]
    pub fn instructions(self) -> f64 {
        match self {
            Self::Nops(nops) => INSTRUCTIONS + nops,
            Self::Stalled(_) => INSTRUCTIONS,
        }
    }

    /// Cycles of stalls an instruction.
    fn stalls(self) -> f64 {
        match self {
            Self::Nops(_) => 0.0,
            Self::Stalled(cycles) => cycles / INSTRUCTIONS,
        }
    }
}

/// Where its lines come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// No cache holds them.
    Memory,
    /// The cache of this level holds them, nearer ones do not.
    Cache(u8),
}

/// Its demand.
#[must_use]
pub fn phase(machine: &Machine, performance: &Performance, from: Source, gap: Gap) -> Phase {
    let known = |value: f64| Known::new(value, "of the generator's code");
    let each = 1.0 / gap.instructions();
    let kinds =
        [WorkKind::Branch, WorkKind::Int, WorkKind::Load, WorkKind::Store].map(|kind| (kind, each));
    let misses = match from {
        Source::Memory => MissCurve::new([(Bytes(64), each)]),
        Source::Cache(level) => of_cache(matrix(machine, performance, level), each),
    };
    Phase {
        name: "generator".to_owned(),
        slots: known(1.0),
        work: Known::new(Work::Kinds(kinds.to_vec()), "of the generator's code"),
        dependent_cycles: known(0.0),
        dependent_cycles_divided: known(0.0),
        stall_cycles: known(gap.stalls()),
        branch_misses: known(0.0),
        misses: Known::new(misses.unwrap_or_default(), "of the generator's matrix"),
        parallel_misses: Known::new(
            Guessed::ParallelMisses.plausible().most,
            "assumed: its accesses do not depend on each other",
        ),
        written_back: known(1.0),
        shared_lines: known(0.0),
        ..Phase::default()
    }
}

/// Misses of a matrix of so many bytes that is walked again and again.
fn of_cache(matrix: f64, each: f64) -> Result<MissCurve, String> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // sizes of caches
    let bytes = |size: f64| Bytes(size as u64);
    if matrix <= 0.0 {
        return MissCurve::new([(Bytes(64), 0.0)]);
    }
    MissCurve::new([(bytes(NONE_KEPT * matrix), each), (bytes(matrix), 0.0)])
}

/// Bytes of the matrix that only the cache of `level` holds: four times the level before, at most half of this one; 0 for the first.
fn matrix(machine: &Machine, performance: &Performance, level: u8) -> f64 {
    #[allow(clippy::cast_precision_loss)] // sizes of caches are far below 2^53
    let size = |level: u8| {
        let cache = machine.caches.iter().find(|cache| {
            cache.level == level && cache.kind != colocate_machine::CacheKind::Instruction
        });
        cache.and_then(|cache| cache.size).map_or(0.0, |size| size.0 as f64)
    };
    let before = performance.caches.iter().map(|cache| cache.level).filter(|it| *it < level).max();
    before.map_or(0.0, |before| (4.0 * size(before)).min(size(level) / 2.0))
}
