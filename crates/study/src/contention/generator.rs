//! Demand of a generator of memory traffic at a given rate (`smt_bench::traffic`, the published
//! micro-benchmark).

use crate::parts::known_phase;
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, CacheKind, Machine, Performance};
use colocate_model::phase::{Guessed, Known, PortWork};
use colocate_model::{MissCurve, Phase};

/// Source of most figures.
const CODE: &str = "of the generator's code";
/// Instructions of a line without `nop`s: a load, an increment, a store and a branch.
const INSTRUCTIONS: f64 = 4.0;
/// Size of an LRU cache, as a part of the matrix, up to which no line is kept until its next use.
const NONE_KEPT: f64 = 0.9;

/// Gap between the requests of two lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gap {
    /// A number of `nop`s, as published.
    Nops(f64),
    /// A number of cycles without an instruction: beside a sibling, whose slots `nop`s would take.
    Stalled(f64),
}

impl Gap {
    /// Instructions of a line.
    pub fn instructions(self) -> f64 {
        match self {
            Self::Nops(nops) => INSTRUCTIONS + nops,
            Self::Stalled(_) => INSTRUCTIONS,
        }
    }

    /// Stall cycles for each instruction.
    fn stalls(self) -> f64 {
        match self {
            Self::Nops(_) => 0.0,
            Self::Stalled(cycles) => cycles / INSTRUCTIONS,
        }
    }
}

/// Source of the generator's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSource {
    /// Memory: no cache holds the lines.
    Memory,
    /// The caches of a level: nearer caches do not hold the lines.
    Cache(u8),
}

/// Demand of the generator.
pub fn phase(machine: &Machine, performance: &Performance, from: LineSource, gap: Gap) -> Phase {
    // Each kind of work, and a miss, occurs once for every line.
    let each = 1.0 / gap.instructions();
    let kinds =
        [WorkKind::Branch, WorkKind::Int, WorkKind::Load, WorkKind::Store].map(|kind| (kind, each));
    let misses = match from {
        LineSource::Memory => MissCurve::new([(Bytes(64), each)]),
        LineSource::Cache(level) => of_cache(matrix(machine, performance, level), each),
    };
    Phase {
        work: Known::new(PortWork::Kinds(kinds.to_vec()), CODE),
        stall_cycles: Known::new(gap.stalls(), CODE),
        misses: Known::new(misses.unwrap_or_default(), "of the generator's matrix"),
        parallel_misses: Known::new(
            Guessed::ParallelMisses.plausible().most,
            "assumed: its accesses do not depend on each other",
        ),
        written_back: Known::new(1.0, CODE),
        ..known_phase("generator", CODE)
    }
}

/// Misses of repeated walks over a matrix of this many bytes, with `each` for a miss of every line.
fn of_cache(matrix: f64, each: f64) -> Result<MissCurve, String> {
    // Without a matrix, all lines stay in the first cache.
    if matrix <= 0.0 {
        return MissCurve::new([(Bytes(64), 0.0)]);
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // sizes of caches
    let [none, all] = [NONE_KEPT * matrix, matrix].map(|size| Bytes(size as u64));
    MissCurve::new([(none, each), (all, 0.0)])
}

/// Bytes of a matrix that only caches of `level` and beyond hold: four times the level before, at
/// most half of this level; 0 for the first.
fn matrix(machine: &Machine, performance: &Performance, level: u8) -> f64 {
    let before = performance.caches.iter().map(|cache| cache.level).filter(|it| *it < level).max();
    before.map_or(0.0, |before| (4.0 * size(machine, before)).min(size(machine, level) / 2.0))
}

/// Bytes of a data cache of `level`; 0 if unknown.
fn size(machine: &Machine, level: u8) -> f64 {
    let mut caches = machine.caches.iter();
    let cache = caches.find(|cache| cache.level == level && cache.kind != CacheKind::Instruction);
    cache.and_then(|cache| cache.size).map_or(0.0, |size| size.0 as f64)
}
