//! The dissertation of Piccoli (Unicamp 2014): selective page migration (SPM) and its alternatives,
//! simulated.
//!
//! # Problem
//! One thread sets up all memory, so that it lies on one node; 64 threads on eight nodes then use
//! it. How much is gained by moving pages to their users, which part of it is contention for the
//! node, and which part distance?
//! # Approach
//! Each thread has the demand of its kernel ([`kernels`]) and uses one set of arrays after the
//! other. A mode ([`modes`]) determines the arrays that the thread moves before use, or the page
//! placement by the kernel.
//! # Terms
//! - *Speed-up*: time of the default over that of a mode, with the same assumptions.
//! - *Interval*: the least and the greatest over the sets of assumptions.
//! - *Controller alone*: the speed-up of SPM with lock where other nodes are no farther away, and
//!   links have [`AMPLE`] times the bandwidth. *Links and distance*: where controllers have that
//!   bandwidth. *Distance alone*: where both have it.

mod kernels;
mod modes;
mod table;

use crate::replication::StudyError;
use colocate_figures::stats::{Estimate, Interval};
use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::Assumptions;
use colocate_sim::Platform;
use kernels::BenchmarkKernel;
use modes::{Assumed, ModeSituation, PageCosts, PageMode};
use serde::{Deserialize, Serialize};

/// Version of the report.
pub const VERSION: u32 = 1;
/// Factor on a bandwidth with which nothing waits for it.
const AMPLE: f64 = 1e3;

/// The study, as read from its TOML file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PiccoliDefinition {
    /// Version of the file's form.
    pub version: u32,
    /// Name of the study.
    pub name: String,
    /// Default machine.
    pub machine: String,
    /// Number of sets of assumptions; at least 1.
    pub draws: u32,
    /// Modes, in the order of the tables; the first is the default.
    pub modes: Vec<PageMode>,
    /// Assumed costs of pages.
    pub costs: Assumed,
    /// Benchmarks, in the order of the tables.
    #[serde(rename = "benchmark")]
    pub benchmarks: Vec<Benchmark>,
}

/// A benchmark with its sizes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Benchmark {
    /// The kernel.
    pub kernel: BenchmarkKernel,
    /// Unit of a size.
    pub unit: String,
    /// Sizes, the smallest first.
    pub sizes: Vec<u32>,
    /// Number of sets of arrays that a thread uses, one after the other.
    pub sets: usize,
    /// Published result on the real machine.
    pub published: String,
}

impl PiccoliDefinition {
    /// Keeps only the `count` largest sizes of each benchmark.
    pub fn keep_largest(&mut self, count: usize) {
        for Benchmark { sizes, .. } in &mut self.benchmarks {
            sizes.drain(..sizes.len().saturating_sub(count));
        }
    }
}

/// Input of the study.
#[derive(Debug)]
pub struct PiccoliStudy<'a> {
    /// The definition.
    pub definition: &'a PiccoliDefinition,
    /// The machine.
    pub machine: &'a Machine,
    /// Speeds of the machine.
    pub performance: &'a Performance,
    /// Sets of assumptions, the default set first; never empty.
    pub draws: &'a [Assumptions],
    /// Seed of the costs of pages and of the simulated kernel.
    pub seed: u64,
}

/// Figures of a size of a benchmark.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct SizeFigures {
    /// The size, in the benchmark's unit.
    pub size: u32,
    /// Time of the default under the default assumptions.
    pub seconds: f64,
    /// Arrays that SPM moves, with the costs of the default assumptions.
    pub moved: Vec<&'static str>,
    /// Arrays that move by the published rule.
    pub moved_as_published: Vec<&'static str>,
    /// Speed-ups, in the order of the modes without the default.
    pub speedups: Vec<Speedup>,
    /// Speed-up of SPM with lock by the home's memory controller alone, default assumptions.
    pub controller_alone: f64,
    /// Speed-up of SPM with lock by links and distance, default assumptions.
    pub links_and_distance: f64,
    /// Speed-up of SPM with lock by distance alone, default assumptions.
    pub distance_alone: f64,
}

/// Speed-up of a mode.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct Speedup {
    /// The mode.
    pub mode: &'static str,
    /// Speed-up over the default mode, under the default assumptions; the interval is over all
    /// assumptions.
    #[serde(flatten)]
    pub over_default: Estimate,
}

/// Figures of a benchmark.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct BenchmarkFigures {
    /// Name of the benchmark.
    pub benchmark: &'static str,
    /// Unit of a size.
    pub unit: String,
    /// Published result on the real machine.
    #[serde(skip)]
    pub published: String,
    /// Figures by size.
    pub sizes: Vec<SizeFigures>,
}

/// Speed-ups of modes of page placement, by benchmark and size, simulated.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct PiccoliReport {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// Name of the machine.
    pub machine: String,
    /// Number of sets of assumptions.
    pub draws: usize,
    /// The seed.
    pub seed: u64,
    /// Benchmarks, in the order of the tables.
    pub benchmarks: Vec<BenchmarkFigures>,
}

/// Times of a piece: a size of a benchmark under a set of assumptions.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseTimes {
    /// Seconds, by mode.
    seconds: Vec<f64>,
    /// Speed-ups by the controller, by links and distance, by distance; `None` but for the default
    /// assumptions.
    apart: Option<[f64; 3]>,
}

/// Benchmark, size and set of assumptions of a piece.
type BenchmarkCase<'a> = (&'a Benchmark, u32, usize);

impl PiccoliStudy<'_> {
    /// All pieces, which do not depend on each other.
    fn pieces(&self) -> impl Iterator<Item = BenchmarkCase<'_>> {
        let benchmarks = self.definition.benchmarks.iter();
        let rows = benchmarks.flat_map(|each| each.sizes.iter().map(move |size| (each, *size)));
        rows.flat_map(|(each, size)| (0..self.draws.len()).map(move |draw| (each, size, draw)))
    }

    /// Number of pieces.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pieces().count()
    }

    /// Checks that the machine has enough nodes and PUs for the study.
    ///
    /// # Errors
    /// [`StudyError::Unsuitable`] if not.
    pub fn check(&self) -> Result<(), StudyError> {
        let nodes = (self.machine.nodes.len(), 2, "nodes");
        let pus = (self.machine.pus.len(), modes::THREADS, "PUs");
        let few = [nodes, pus].into_iter().find(|(count, least, _)| count < least);
        few.map_or(Ok(()), |(count, least, what)| {
            let expected = format!("a machine with at least {least} {what}");
            let found = format!("{} with {count}", self.machine.name);
            Err(StudyError::Unsuitable(expected, found))
        })
    }

    /// Simulates a piece, given by its number.
    ///
    /// # Errors
    /// [`StudyError`] of a simulation.
    ///
    /// # Panics
    /// If `piece` is not below [`Self::count`].
    pub fn piece(&self, piece: usize) -> Result<CaseTimes, StudyError> {
        let piece = self.pieces().nth(piece).expect("one of the pieces");
        let seconds = self.seconds(self.performance, piece, &self.definition.modes)?;
        let apart = match piece {
            (_, _, 0) => Some([
                self.spm_lock(&near(ample_links(self.performance.clone())), piece)?,
                self.spm_lock(&ample_memory(self.performance.clone()), piece)?,
                self.spm_lock(&ample_links(ample_memory(self.performance.clone())), piece)?,
            ]),
            _ => None,
        };
        Ok(CaseTimes { seconds, apart })
    }

    /// Times of a piece with these speeds of the machine, by mode.
    fn seconds(
        &self,
        performance: &Performance,
        (benchmark, size, draw): BenchmarkCase<'_>,
        modes: &[PageMode],
    ) -> Result<Vec<f64>, StudyError> {
        let platform = Platform::new(self.machine, performance, self.draws[draw])?;
        let situation = ModeSituation {
            platform: &platform,
            task: benchmark.kernel.task(size),
            sets: benchmark.sets,
            costs: self.costs(draw),
            home: draw % self.machine.nodes.len(),
            seed: self.seed.wrapping_add(draw as u64),
        };
        situation.seconds(modes)
    }

    /// Speed-up of SPM with lock, with these speeds of the machine.
    fn spm_lock(
        &self,
        performance: &Performance,
        piece: BenchmarkCase<'_>,
    ) -> Result<f64, StudyError> {
        let seconds = self.seconds(performance, piece, &[PageMode::Default, PageMode::SpmLock])?;
        Ok(seconds[0] / seconds[1])
    }

    /// Costs of pages in a set of assumptions.
    fn costs(&self, draw: usize) -> PageCosts {
        PageCosts::drawn(&self.definition.costs, self.machine, self.performance, draw, self.seed)
    }

    /// The report on all pieces, given in their order.
    #[must_use]
    pub fn report(&self, done: &[CaseTimes]) -> PiccoliReport {
        // `chunks` needs a size above 0.
        let mut times = done.chunks(self.draws.len().max(1));
        let benchmarks = self.definition.benchmarks.iter().map(|each| BenchmarkFigures {
            benchmark: each.kernel.name(),
            unit: each.unit.clone(),
            published: each.published.clone(),
            sizes: each
                .sizes
                .iter()
                .zip(times.by_ref())
                .map(|(size, times)| self.row(each.kernel, *size, times))
                .collect(),
        });
        let benchmarks = benchmarks.collect();
        PiccoliReport {
            version: VERSION,
            machine: self.machine.name.clone(),
            draws: self.draws.len(),
            seed: self.seed,
            benchmarks,
        }
    }

    fn row(&self, kernel: BenchmarkKernel, size: u32, times: &[CaseTimes]) -> SizeFigures {
        let task = kernel.task(size);
        let costs = self.costs(0);
        let speedups = self.definition.modes.iter().enumerate().skip(1).map(|(at, mode)| {
            let each = times.iter().map(|times| times.seconds[0] / times.seconds[at]);
            let (low, high) = each.clone().fold((f64::INFINITY, 0.0_f64), |(low, high), each| {
                (low.min(each), high.max(each))
            });
            let interval = (times.len() > 1).then_some(Interval { low, high });
            let value = each.clone().next().unwrap_or(f64::NAN);
            Speedup { mode: mode.name(), over_default: Estimate { value, interval } }
        });
        // The first times are those of the default assumptions, which have these figures.
        let apart = times[0].apart.unwrap_or([f64::NAN; 3]);
        SizeFigures {
            size,
            seconds: times[0].seconds[0],
            moved: modes::moved(PageMode::Spm, &task, &costs),
            moved_as_published: modes::moved(PageMode::Published, &task, &costs),
            speedups: speedups.collect(),
            controller_alone: apart[0],
            links_and_distance: apart[1],
            distance_alone: apart[2],
        }
    }
}

/// A machine with all nodes equally near.
fn near(mut performance: Performance) -> Performance {
    performance.hops.iter_mut().flatten().for_each(|hop| *hop = Nanos::ZERO);
    performance
}

/// A machine with memory controllers that are never busy.
fn ample_memory(mut performance: Performance) -> Performance {
    performance.memory.iter_mut().for_each(|node| node.bandwidth.0 *= AMPLE);
    performance
}

/// A machine with links that are never busy.
fn ample_links(mut performance: Performance) -> Performance {
    performance.links.iter_mut().for_each(|link| link.bandwidth.0 *= AMPLE);
    performance
}

#[cfg(test)]
mod tests;
