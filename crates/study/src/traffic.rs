//! Loss of a program from others' traffic: its time beside copies of a generator, by their traffic.
//!
//! # Terms
//! - *time*: CPU time of the program and of the children that it waited for. Waits for memory are
//!   in it, waits for a PU are not.
//! - *reached*: requests of all copies together while the program ran, by their own count of lines
//!   and CPU time, t/µs.
//! - *loss*: the share of its speed, 1 − alone / beside, that the program loses for each t/µs: the
//!   slope of the straight line from 0 by least squares, one for each block, and their mean.
//!
//! # Properties
//! - **Paired**: drift that hits a whole block moves no ratio. -> test
//!   `drift_between_blocks_is_no_loss`
//! - **Unknown is none**: no reached traffic, no loss.         -> test `what_cannot_be_said_is_not`

use crate::curve::{Curves, Series};
use colocate_figures::stats::{self, Estimate};
use colocate_machine::Nanos;
use serde::{Deserialize, Serialize};

/// Load beside the program.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Requests of each copy when alone, t/µs, as ordered.
    pub rate: f64,
    /// Number of copies.
    pub copies: u32,
}

/// A copy's counts during a run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copied {
    /// Lines a microsecond of its CPU time, t/µs; `None` if the run was too short to count any.
    pub reached: Option<f64>,
    /// Share of the run in which it had its PU.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub share_of_pu: Option<f64>,
}

/// One run of the program.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficRun {
    /// Block, from 0: one run under each condition.
    pub block: u32,
    /// Load beside the program; `None` for a run alone.
    pub beside: Option<Condition>,
    /// Time from its start to its end.
    pub wall_ns: Nanos,
    /// CPU time of the program and of the children that it waited for.
    pub cpu_ns: Nanos,
    /// Counts of each copy.
    pub copies: Vec<Copied>,
}

impl TrafficRun {
    /// Traffic of all copies together, t/µs; `None` if that of a copy is unknown.
    fn reached(&self) -> Option<f64> {
        self.copies.iter().map(|copy| copy.reached).sum()
    }
}

/// A point of the curve.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficPoint {
    /// Load beside the program.
    pub beside: Condition,
    /// Traffic of all copies together, t/µs.
    pub reached: Option<Estimate>,
    /// Time of the program relative to alone.
    pub time: Option<Estimate>,
}

/// Time of the program alone, in seconds, by `time`; `None` without runs alone.
#[must_use]
pub fn alone(runs: &[TrafficRun], time: fn(&TrafficRun) -> Nanos) -> Option<Estimate> {
    let alone = runs.iter().filter(|run| run.beside.is_none());
    let seconds: Vec<f64> = alone.map(|run| time(run).as_secs_f64()).collect();
    stats::mean_estimate(&seconds)
}

/// The points of the curve, one for each condition.
#[must_use]
pub fn points(runs: &[TrafficRun], conditions: &[Condition]) -> Vec<TrafficPoint> {
    let points = conditions.iter().map(|&beside| {
        let here: Vec<&TrafficRun> = runs.iter().filter(|run| run.beside == Some(beside)).collect();
        let reached: Option<Vec<f64>> = here.iter().map(|run| run.reached()).collect();
        let ratios: Option<Vec<f64>> = here.iter().map(|run| ratio(runs, run)).collect();
        TrafficPoint {
            beside,
            reached: reached.and_then(|all| stats::mean_estimate(&all)),
            time: ratios.and_then(|all| stats::geometric_estimate(&all)),
        }
    });
    points.collect()
}

/// A line of a picture: the times of some points, by the traffic of all copies.
#[must_use]
pub fn line<'a>(name: String, points: impl Iterator<Item = &'a TrafficPoint>) -> Series {
    let mut points: Vec<(f64, Estimate)> =
        points.filter_map(|point| Some((point.reached?.value, point.time?))).collect();
    // The reached traffic need not rise with the ordered rate.
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Series { name, points }
}

/// A picture of lines of [`line()`].
#[must_use]
pub fn curves(caption: String, series: Vec<Series>) -> Curves {
    Curves {
        caption,
        across: "t/µs of all copies together".to_owned(),
        up: "CPU time / alone; 95 % interval".to_owned(),
        level: Some(1.0),
        series,
    }
}

/// Time of `run` relative to the run alone in its block; `None` without one.
fn ratio(runs: &[TrafficRun], run: &TrafficRun) -> Option<f64> {
    let alone = runs.iter().find(|other| other.beside.is_none() && other.block == run.block)?;
    // Ratios within a block: drift between blocks cancels out.
    let beside = run.cpu_ns.as_secs_f64();
    let alone = alone.cpu_ns.as_secs_f64();
    (beside > 0.0 && alone > 0.0).then(|| beside / alone)
}

/// Share of its speed that the program loses for each t/µs of others' traffic; `None` if a block
/// has no slope.
#[must_use]
pub fn loss(runs: &[TrafficRun], repeat: u32) -> Option<Estimate> {
    let slopes: Option<Vec<f64>> = (0..repeat).map(|block| slope(runs, block)).collect();
    stats::mean_estimate(&slopes?)
}

/// Slope of a block: Σ x·y / Σ x², over its runs beside copies.
fn slope(runs: &[TrafficRun], block: u32) -> Option<f64> {
    let here = runs.iter().filter(|run| run.block == block && run.beside.is_some());
    let mut products = 0.0;
    let mut squares = 0.0;
    for run in here {
        let traffic = run.reached()?;
        let lost = 1.0 - 1.0 / ratio(runs, run)?;
        products += traffic * lost;
        squares += traffic * traffic;
    }
    (squares > 0.0).then(|| products / squares)
}

/// Smallest share of its PU that any copy had; `None` without a known share.
#[must_use]
pub fn least_share(runs: &[TrafficRun]) -> Option<f64> {
    let shares = runs.iter().flat_map(|run| &run.copies).filter_map(|copy| copy.share_of_pu);
    shares.reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of `ms` beside copies that each reached the rate.
    fn run(block: u32, beside: Option<(f64, u32)>, ms: u64) -> TrafficRun {
        let beside = beside.map(|(rate, copies)| Condition { rate, copies });
        let copy = |rate| Copied { reached: Some(rate), share_of_pu: Some(0.99) };
        let copies = beside.map_or(Vec::new(), |b| vec![copy(b.rate); b.copies as usize]);
        let time = Nanos::from_millis(ms);
        TrafficRun { block, beside, wall_ns: time + Nanos::from_millis(10), cpu_ns: time, copies }
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "expected {expected}, found {found}");
    }

    const CONDITIONS: [Condition; 2] =
        [Condition { rate: 50.0, copies: 1 }, Condition { rate: 50.0, copies: 2 }];

    /// 1 s alone; 1.25 s beside 50 t/µs loses a fifth of the speed, 5/3 s beside 100 two fifths:
    /// 0.004 for each t/µs, in the second block half of that at 1/0.9 and 1.25 s.
    fn traced() -> Vec<TrafficRun> {
        vec![
            run(0, Some((50.0, 1)), 1250),
            run(0, None, 1000),
            run(0, Some((50.0, 2)), 1667),
            run(1, None, 1000),
            run(1, Some((50.0, 2)), 1250),
            run(1, Some((50.0, 1)), 1111),
        ]
    }

    #[test]
    fn the_curve_by_hand() {
        let found = points(&traced(), &CONDITIONS);
        close(found[0].reached.unwrap().value, 50.0);
        close(found[1].reached.unwrap().value, 100.0);
        close(found[0].time.unwrap().value, (1.25_f64 * 1.111).sqrt());
        close(found[1].time.unwrap().value, (1.667_f64 * 1.25).sqrt());
        let alone = alone(&traced(), |run| run.wall_ns).unwrap();
        close(alone.value, 1.01);
    }

    #[test]
    fn the_loss_by_hand() {
        let found = loss(&traced(), 2).unwrap();
        assert!((found.value - 0.003).abs() < 1e-5, "{found:?}");
        // Two slopes, 0.004 and 0.002: 12.706 · 0.001 to either side.
        let interval = found.interval.unwrap();
        assert!((interval.high - 0.003 - 0.012_706).abs() < 2e-5, "{found:?}");
    }

    /// Everything takes twice as long in the second block.
    #[test]
    fn drift_between_blocks_is_no_loss() {
        let slow = |block| if block == 1 { 2 } else { 1 };
        let runs: Vec<TrafficRun> = (0..2)
            .flat_map(|block| {
                [None, Some((50.0, 1))].map(|beside| run(block, beside, 1000 * slow(block)))
            })
            .collect();
        close(loss(&runs, 2).unwrap().value, 0.0);
        close(points(&runs, &CONDITIONS[..1])[0].time.unwrap().value, 1.0);
    }

    #[test]
    fn what_cannot_be_said_is_not() {
        let mut runs = traced();
        runs[0].copies[0].reached = None;
        assert_eq!(loss(&runs, 2), None);
        let found = points(&runs, &CONDITIONS)[0];
        assert!(found.reached.is_none() && found.time.is_some());
        runs[1].cpu_ns = Nanos(0);
        assert!(points(&runs, &CONDITIONS).iter().all(|point| point.time.is_none()));
        assert_eq!(
            (loss(&[], 1), alone(&[], |run| run.cpu_ns), least_share(&[])),
            (None, None, None)
        );
    }

    #[test]
    fn one_repetition_has_no_interval() {
        let runs = [run(0, None, 1000), run(0, Some((50.0, 1)), 1250)];
        let found = loss(&runs, 1).unwrap();
        close(found.value, 0.004);
        assert_eq!(found.interval, None);
    }

    #[test]
    fn the_smallest_share_is_kept() {
        let mut runs = traced();
        runs[2].copies[1].share_of_pu = Some(0.5);
        assert_eq!(least_share(&runs), Some(0.5));
    }
}
