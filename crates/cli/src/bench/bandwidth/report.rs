//! What `colocate bench bandwidth` reports (docs/schemas/bench-bandwidth.json).

use super::places::Level;
use colocate_study::state::Quiet;
use colocate_study::stats::Estimate;
use colocate_study::traffic::{Point, Run};
use serde::{Deserialize, Serialize};

/// A rate and what was found for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// What was asked for, t/µs.
    pub wanted: f64,
    /// How many times a copy does nothing after each line.
    pub nops: u64,
    /// What a copy asks for with these when it runs alone, t/µs.
    pub alone: f64,
    /// It cannot ask for as many as wanted.
    pub too_fast: bool,
}

/// The report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Of this form.
    pub version: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What the copies ask.
    pub level: Level,
    /// The processor's name.
    pub processor: Option<String>,
    /// The kernel's name and release.
    pub kernel: Option<String>,
    /// Seconds since 1970 when it was begun.
    pub started_unix_s: u64,
    /// The program's PU, by the kernel's number.
    pub program_pu: u32,
    /// The copies' PUs, in the order in which they are used.
    pub copy_pus: Vec<u32>,
    /// Rows of 576 bytes that a copy walks over.
    pub rows: u32,
    /// Runs under each condition.
    pub repeat: u32,
    /// Seed of the order.
    pub seed: u64,
    /// The rates.
    pub rates: Vec<Rate>,
    /// What else the machine was doing before.
    pub before: Quiet,
    /// And after.
    pub after: Quiet,
    /// Every run, in the order in which they were made.
    pub runs: Vec<Run>,
    /// The program's time alone, in seconds.
    pub alone_cpu_s: Option<Estimate>,
    /// The same from its start to its end.
    pub alone_wall_s: Option<Estimate>,
    /// The curve.
    pub points: Vec<Point>,
    /// The share of its speed that the program loses for each t/µs.
    pub loss: Option<Estimate>,
    /// The smallest share of its PU that a copy had in a run.
    pub least_share_of_pu: Option<f64>,
}
