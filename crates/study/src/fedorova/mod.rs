//! Fedorova et al. again, simulated: serial phases of parallel programs on the fast cores of an asymmetric machine.
//!
//! Nothing here was measured, and nothing is fitted to what was published. Programs are made to measure ([`program`]): what
//! the published ones are like is not in the text at hand.

pub mod figures;
pub mod layout;
pub mod picture;
pub mod points;
pub mod program;
pub mod run;
pub mod table;
pub mod work;

use crate::simulate::figures::Spread;
use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::Assumptions;
use serde::{Deserialize, Serialize};

/// Version of the report that this build writes.
pub const VERSION: u32 = 2;

/// The machine that is simulated unless said otherwise, by its name here.
pub const MACHINE: &str = "amp-4x12";

/// How long a program takes on slow cores, unless said otherwise. Chosen: sixteen rounds of [`ROUND`], so that each of sixteen
/// threads has its turn once.
pub const LENGTH: Nanos = Nanos::from_secs(2);

/// How long a parallel and a serial part take together on slow cores, unless said otherwise. Chosen: a hundred times the
/// longest that a phase can go unseen, so that the first question is not about that; the second one varies it.
pub const ROUND: Nanos = Nanos::from_millis(125);

/// Time between two samples, unless said otherwise. Chosen: the published scheduler is in the kernel, which knows at once who
/// can run; a sample a millisecond is what comes nearest to it.
pub const QUANTUM: Nanos = Nanos::from_millis(1);

/// What the study is made with.
#[derive(Clone, Copy, Debug)]
pub struct Study<'a> {
    /// The machine, migration-friendly.
    pub machine: &'a Machine,
    /// How fast it is.
    pub performance: &'a Performance,
    /// The sets of assumptions, the usual one first; never empty.
    pub draws: &'a [Assumptions],
    /// How many seeds for each; at least 1. A seed decides where the kernel lets threads begin, and so who is on a
    /// fast core under `os`.
    pub seeds: u32,
    /// The first seed.
    pub seed: u64,
    /// How long a program takes on slow cores. Never 0.
    pub length: Nanos,
    /// How long a parallel and a serial part take together on slow cores, where nothing else is asked for. Never 0.
    pub round: Nanos,
    /// Time between two samples. Never 0.
    pub quantum: Nanos,
}

/// What came of the study, simulated (`docs/schemas/study-fedorova.json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Always true: nothing here was measured.
    pub simulated: bool,
    /// Version of colocate.
    pub colocate: String,
    /// The machine that is simulated.
    pub machine: String,
    /// Threads of the program, one for each core.
    pub threads: u32,
    /// How many sets of assumptions.
    pub draws: u32,
    /// How many seeds for each.
    pub seeds: u32,
    /// The first seed.
    pub seed: u64,
    /// How long the program takes on slow cores, in seconds.
    pub length_s: f64,
    /// How long a parallel and a serial part take together on slow cores, in seconds.
    pub round_s: f64,
    /// Time between two samples, in seconds.
    pub quantum_s: f64,
    /// A digest of the machine and all that was asked for.
    pub inputs: String,
    /// Least difference that counts as resolved.
    pub resolution: f64,
    /// How many times as fast as a slow core a fast one is for a thread that is alone.
    pub faster: Spread,
    /// Schedulers of the study that this build does not have.
    pub missing: Vec<String>,
    /// The situations, question by question.
    pub points: Vec<figures::PointFigures>,
    /// What was published.
    pub published: Vec<figures::Published>,
    /// What a reader should know, one sentence each.
    pub notes: Vec<String>,
}
