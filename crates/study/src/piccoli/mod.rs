//! The dissertation of Piccoli (Unicamp 2014): selective page migration and what it was compared with, simulated.
//!
//! # Problem
//! One thread sets up all memory, so that it lies on one node; 64 threads on eight nodes then use it. What do pages gain that move to
//! their users, how much of it is contention for the node, and how much distance?
//! # Approach
//! Each thread has the demand of its kernel ([`kernels`]) and uses one set of arrays after the other. A mode ([`modes`]) says which
//! arrays it moves before, or what the kernel does about them.
//! # Terms
//! - *Speed-up*: time of the default over that of a mode, with the same assumptions.
//! - *Interval*: the least and the greatest over the sets of assumptions.
//! - *Controller alone*: the speed-up of SPM with lock where other nodes are no farther away, and links have [`AMPLE`] times the
//!   bandwidth. *Links and distance*: where controllers have it. *Distance alone*: where both have it.

pub mod kernels;
pub mod modes;
pub mod table;

use colocate_figures::stats::{Estimate, Interval};
use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::Assumptions;
use colocate_sim::{Platform, SimError};
use kernels::Kernel;
use modes::{Costs, Mode, Situation};
use serde::Serialize;
use thiserror::Error;

/// Version of the report.
pub const VERSION: u32 = 1;
/// Nothing waits for so many times the bandwidth.
const AMPLE: f64 = 1e3;

/// What the study is made with.
#[derive(Debug)]
pub struct Study<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// How fast it is.
    pub performance: &'a Performance,
    /// The sets of assumptions, the default one first; never empty.
    pub draws: &'a [Assumptions],
    /// Draws the costs of pages, and what the simulated kernel leaves to chance.
    pub seed: u64,
    /// How many of the ten sizes of each benchmark: the last ones. At least 1.
    pub sizes: usize,
}

/// A size of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The size, in the benchmark's unit.
    pub size: u32,
    /// Time of the default under the default assumptions.
    pub seconds: f64,
    /// Arrays that SPM moves, with the costs of the default assumptions.
    pub moved: Vec<&'static str>,
    /// Those that move by the published rule.
    pub moved_as_published: Vec<&'static str>,
    /// Speed-ups, in the order of [`Mode::ALL`] without the default.
    pub speedups: Vec<Speedup>,
    /// SPM with lock, default assumptions: by the home's memory controller alone.
    pub controller_alone: f64,
    /// The same, by links and distance.
    pub links_and_distance: f64,
    /// The same, by distance alone.
    pub distance_alone: f64,
}

/// What a mode gains.
#[derive(Clone, Debug, Serialize)]
pub struct Speedup {
    /// The mode.
    pub mode: &'static str,
    /// Under the default assumptions; the interval is over all.
    #[serde(flatten)]
    pub over_default: Estimate,
}

/// A benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Benchmark {
    /// Its name.
    pub benchmark: &'static str,
    /// What a size counts.
    pub unit: &'static str,
    /// By size.
    pub sizes: Vec<Row>,
}

/// All benchmarks.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The machine's name.
    pub machine: String,
    /// Sets of assumptions.
    pub draws: usize,
    /// The seed.
    pub seed: u64,
    /// In the order of the tables.
    pub benchmarks: Vec<Benchmark>,
}

/// Why there is no report.
#[derive(Debug, Error)]
pub enum PiccoliError {
    /// A simulation cannot be made.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The machine does not fit.
    #[error("expected {0}, found {1}")]
    Unsuitable(&'static str, String),
    /// A demand vector is not one: an error of ours.
    #[error("demand of {0}: {1}")]
    Demand(&'static str, String),
}

/// Times of a piece: one size of a benchmark under one set of assumptions.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// By mode.
    seconds: Vec<f64>,
    /// Speed-ups by the controller, by links and distance, by distance; of the default assumptions only.
    apart: Option<[f64; 3]>,
}

impl Study<'_> {
    /// Benchmark, size and set of assumptions of each piece. Pieces do not depend on each other.
    fn pieces(&self) -> impl Iterator<Item = (Kernel, u32, usize)> {
        let draws = self.draws.len();
        let sizes = |kernel: Kernel| {
            let all = kernel.sizes();
            all[all.len().saturating_sub(self.sizes)..].to_vec()
        };
        let rows = Kernel::ALL
            .into_iter()
            .flat_map(move |kernel| sizes(kernel).into_iter().map(move |size| (kernel, size)));
        rows.flat_map(move |(kernel, size)| (0..draws).map(move |draw| (kernel, size, draw)))
    }

    /// How many pieces there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pieces().count()
    }

    /// Checks that the machine is one that the study can be made on.
    ///
    /// # Errors
    /// [`PiccoliError::Unsuitable`].
    pub fn check(&self) -> Result<(), PiccoliError> {
        let (nodes, pus) = (self.machine.nodes.len(), self.machine.pus.len());
        if nodes < 2 {
            let found = format!("{} with {nodes}", self.machine.name);
            return Err(PiccoliError::Unsuitable("a machine with at least 2 nodes", found));
        }
        if pus < modes::THREADS {
            let found = format!("{} with {pus}", self.machine.name);
            return Err(PiccoliError::Unsuitable("a machine with at least 64 PUs", found));
        }
        Ok(())
    }

    /// Simulates one piece.
    ///
    /// # Errors
    /// That of a simulation.
    ///
    /// # Panics
    /// If there is no such piece.
    pub fn piece(&self, piece: usize) -> Result<Times, PiccoliError> {
        let (kernel, size, draw) = self.pieces().nth(piece).expect("one of the pieces");
        let all = |performance: &Performance, modes: &[Mode]| {
            let platform = Platform::new(self.machine, performance, self.draws[draw]);
            let platform = platform.map_err(SimError::from)?;
            let situation = Situation {
                platform: &platform,
                task: kernel.task(size),
                costs: self.costs(draw),
                home: draw % self.machine.nodes.len(),
                seed: self.seed.wrapping_add(draw as u64),
            };
            situation.seconds(modes)
        };
        let seconds = all(self.performance, &Mode::ALL)?;
        let apart = |performance: &Performance| -> Result<f64, PiccoliError> {
            let seconds = all(performance, &[Mode::Default, Mode::SpmLock])?;
            Ok(seconds[0] / seconds[1])
        };
        let apart = match draw {
            0 => Some([
                apart(&near(ample_links(self.performance.clone())))?,
                apart(&ample_memory(self.performance.clone()))?,
                apart(&ample_links(ample_memory(self.performance.clone())))?,
            ]),
            _ => None,
        };
        Ok(Times { seconds, apart })
    }

    /// What pages cost in a set of assumptions.
    fn costs(&self, draw: usize) -> Costs {
        Costs::drawn(self.machine, self.performance, draw, self.seed)
    }

    /// The report of all pieces in their order.
    #[must_use]
    pub fn report(&self, done: &[Times]) -> Report {
        let mut benchmarks: Vec<Benchmark> = Vec::new();
        let rows: Vec<(Kernel, u32, usize)> =
            self.pieces().step_by(self.draws.len().max(1)).collect();
        for ((kernel, size, _), times) in rows.into_iter().zip(done.chunks(self.draws.len().max(1)))
        {
            let row = self.row(kernel, size, times);
            match benchmarks.last_mut() {
                Some(last) if last.benchmark == kernel.name() => last.sizes.push(row),
                _ => benchmarks.push(Benchmark {
                    benchmark: kernel.name(),
                    unit: kernel.unit(),
                    sizes: vec![row],
                }),
            }
        }
        Report {
            version: VERSION,
            machine: self.machine.name.clone(),
            draws: self.draws.len(),
            seed: self.seed,
            benchmarks,
        }
    }

    fn row(&self, kernel: Kernel, size: u32, times: &[Times]) -> Row {
        let (task, costs) = (kernel.task(size), self.costs(0));
        let speedup = |(at, mode): (usize, &Mode)| {
            let each = times.iter().map(|times| times.seconds[0] / times.seconds[at]);
            let (low, high) = each.clone().fold((f64::INFINITY, 0.0_f64), |(low, high), each| {
                (low.min(each), high.max(each))
            });
            let interval = (times.len() > 1).then_some(Interval { low, high });
            let value = each.clone().next().unwrap_or(f64::NAN);
            Speedup { mode: mode.name(), over_default: Estimate { value, interval } }
        };
        let apart = times[0].apart.unwrap_or([f64::NAN; 3]);
        Row {
            size,
            seconds: times[0].seconds[0],
            moved: modes::moved(Mode::Spm, &task, &costs),
            moved_as_published: modes::moved(Mode::Published, &task, &costs),
            speedups: Mode::ALL.iter().enumerate().skip(1).map(speedup).collect(),
            controller_alone: apart[0],
            links_and_distance: apart[1],
            distance_alone: apart[2],
        }
    }
}

/// All nodes equally near.
fn near(mut performance: Performance) -> Performance {
    performance.hops.iter_mut().flatten().for_each(|hop| *hop = Nanos::ZERO);
    performance
}

/// Controllers that are never busy.
fn ample_memory(mut performance: Performance) -> Performance {
    performance.memory.iter_mut().for_each(|node| node.bandwidth.0 *= AMPLE);
    performance
}

/// Links that are never busy.
fn ample_links(mut performance: Performance) -> Performance {
    performance.links.iter_mut().for_each(|link| link.bandwidth.0 *= AMPLE);
    performance
}

#[cfg(test)]
mod tests;
