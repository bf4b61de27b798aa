//! Report of `colocate-study bench bandwidth` (docs/schemas/bench-bandwidth.json).

use super::places::Level;
use colocate_figures::state::Quiet;
use colocate_figures::stats::Estimate;
use colocate_study::traffic::{Point, Run};
use serde::{Deserialize, Serialize};

/// A requested rate in t/µs, and its calibration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    pub wanted: f64,
    pub nops: u64,
    pub alone: f64,
    pub too_fast: bool,
}

/// The report; the schema describes each field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub version: u32,
    pub command: Vec<String>,
    pub level: Level,
    pub processor: Option<String>,
    pub kernel: Option<String>,
    pub started_unix_s: u64,
    pub program_pu: u32,
    pub copy_pus: Vec<u32>,
    pub rows: u32,
    pub repeat: u32,
    pub seed: u64,
    pub rates: Vec<Rate>,
    pub before: Quiet,
    pub after: Quiet,
    pub runs: Vec<Run>,
    pub alone_cpu_s: Option<Estimate>,
    pub alone_wall_s: Option<Estimate>,
    pub points: Vec<Point>,
    pub loss: Option<Estimate>,
    pub least_share_of_pu: Option<f64>,
}
