//! Report of `colocate-study bench bandwidth` (docs/schemas/bench-bandwidth.json).

use super::places::RequestedLines;
use colocate_figures::state::Quiet;
use colocate_figures::stats::Estimate;
use colocate_study::traffic::{TrafficPoint, TrafficRun};
use serde::{Deserialize, Serialize};

/// Requested rate of a copy, and its calibration.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestedRate {
    /// Requested rate, t/µs.
    pub wanted: f64,
    /// Number of idle instructions of a copy after each line.
    pub nops: u64,
    /// Rate of a copy alone with these, t/µs.
    pub alone: f64,
    /// Whether a copy cannot reach the requested rate.
    pub too_fast: bool,
}

/// A program alone and beside copies that request lines of memory.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BandwidthReport {
    /// Format version.
    #[cfg_attr(feature = "schema", schemars(extend("const" = 1)))]
    pub version: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Source of the lines.
    pub level: RequestedLines,
    /// Processor model; `None` if unknown.
    pub processor: Option<String>,
    /// Name and release of the kernel; `None` if unknown.
    pub kernel: Option<String>,
    /// Start of the measurement, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// The kernel's number of the program's PU.
    pub program_pu: u32,
    /// The kernel's numbers of the copies' PUs, in the order of use.
    pub copy_pus: Vec<u32>,
    /// Rows of 576 bytes in a copy's memory.
    pub rows: u32,
    /// Number of blocks.
    pub repeat: u32,
    /// Seed of the order of runs.
    pub seed: u64,
    /// The rates.
    pub rates: Vec<RequestedRate>,
    /// Load of the machine before the measurement.
    pub before: Quiet,
    /// Load of the machine after it.
    pub after: Quiet,
    /// The runs, in order.
    pub runs: Vec<TrafficRun>,
    /// CPU time of the program alone, in seconds; `None` if not measured.
    pub alone_cpu_s: Option<Estimate>,
    /// Time from its start to its end, alone, in seconds.
    pub alone_wall_s: Option<Estimate>,
    /// Time of the program by rate and number of copies.
    pub points: Vec<TrafficPoint>,
    /// Share of its speed that the program loses for each t/µs of the copies; `None` if not measured.
    pub loss: Option<Estimate>,
    /// Smallest share of its PU that a copy had in a run.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub least_share_of_pu: Option<f64>,
}
