//! What may be said of the schedulers after every mix was simulated under each.
//!
//! A figure of all mixes is the geometric mean over them; ratios, intervals and verdicts are those of
//! [`crate::simulate::figures`]. The *order* of two schedulers is told beside the published one, for each pair
//! of which one was published: their ratio with its interval, and whether its sign is the same whatever
//! is assumed. That needs no difference of a certain size, for what the model leaves out is left
//! out for both; but it is said where the difference is smaller than the model can resolve. One seed or one set of
//! assumptions decides nothing.

use super::mix::Mix;
use super::published::{self, Published};
use super::run::Kept;
use super::shown::Shown;
use super::{Number, Setup};
use crate::simulate::figures::{Column, RESOLUTION, Spread, Unresolved, Verdict};
use crate::stats;
use serde::{Deserialize, Serialize};

pub use super::metric::Metric;

/// One metric of one scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricFigures {
    /// The metric.
    pub metric: Metric,
    /// Geometric mean over the mixes; `None` if a run did not end.
    pub value: Option<Spread>,
    /// Ratio to the baseline and its interval; `None` for the baseline, and if a run did not end.
    pub ratio: Option<Spread>,
    /// What may be said.
    pub verdict: Verdict,
    /// Why nothing may be said.
    pub unresolved: Option<Unresolved>,
    /// What was published of it, if anything was.
    pub published: Option<Published>,
    /// The ratio in each mix, seeds together, under the usual assumptions; empty for the baseline.
    pub by_mix: Vec<Option<f64>>,
}

/// One scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFigures {
    /// Its name.
    pub policy: String,
    /// What is told of it.
    pub metrics: Vec<MetricFigures>,
}

/// Two schedulers of which it was published which is better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// By what.
    pub metric: Metric,
    /// The one that was published to be better.
    pub better: String,
    /// The other.
    pub than: String,
    /// Ratio of the first to the second; `None` if a run did not end.
    pub ratio: Option<Spread>,
    /// Whether it is so here.
    pub found: Found,
    /// Whether it is decided, and the difference as large as the model can resolve.
    pub resolved: bool,
    /// Where the order was published.
    pub source: String,
}

/// An order beside the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// As published, whatever is assumed.
    Same,
    /// The other way round, whatever is assumed.
    Reversed,
    /// It depends on what is assumed or on chance, or that was not looked at.
    Open,
}

/// A mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixFigures {
    /// Its name.
    pub name: String,
    /// Its programs.
    pub programs: Vec<String>,
    /// PUs.
    pub contexts: u32,
    /// What all contexts ask of the memory together, alone, t/µs.
    pub traffic: f64,
}

/// One set-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Its name.
    pub name: String,
    /// Published schedulers that colocate does not have.
    pub missing: Vec<String>,
    /// The mixes.
    pub mixes: Vec<MixFigures>,
    /// The schedulers; the first is the baseline.
    pub policies: Vec<PolicyFigures>,
    /// The order of the schedulers.
    pub order: Vec<Order>,
    /// More of one mix.
    pub shown: Shown,
}

/// What came of all mixes of a set-up.
#[derive(Clone, Copy, Debug)]
pub struct Grid<'a> {
    /// `[mix × draws + draw][policy][seed]`.
    pub done: &'a [Vec<Vec<Kept>>],
    /// How many mixes.
    pub mixes: usize,
    /// How many sets of assumptions.
    pub draws: usize,
}

impl Grid<'_> {
    fn seeds(self) -> usize {
        self.done.first().and_then(|runs| runs.first()).map_or(1, Vec::len)
    }

    /// Whether a range over its runs holds what chance does and what is assumed.
    fn has_ranges(self) -> bool {
        self.seeds() > 1 && self.draws > 1
    }

    /// A metric of a scheduler: geometric means over the mixes, draw by draw, seed by seed.
    fn column(self, policy: usize, metric: Metric) -> Column {
        let figure = |draw: usize, seed: usize| {
            let of_mix =
                |mix: usize| self.done[mix * self.draws + draw][policy][seed][metric.place()];
            let each = (0..self.mixes).map(of_mix).collect::<Option<Vec<f64>>>()?;
            stats::geometric_mean(&each)
        };
        let draws =
            (0..self.draws).flat_map(|draw| (0..self.seeds()).map(move |seed| (draw, seed)));
        Column {
            figures: draws.map(|(draw, seed)| figure(draw, seed)).collect(),
            seeds: self.seeds(),
        }
    }

    /// The ratio of a scheduler to the baseline in one mix, under the usual assumptions.
    fn in_mix(self, mix: usize, policy: usize, metric: Metric) -> Option<f64> {
        let runs = &self.done[mix * self.draws];
        let both = runs[policy].iter().zip(&runs[0]);
        let ratio =
            |(mine, base): (&Kept, &Kept)| Some(mine[metric.place()]? / base[metric.place()]?);
        stats::geometric_mean(&both.map(ratio).collect::<Option<Vec<f64>>>()?)
    }

    fn metric(
        self,
        names: &[String],
        policy: usize,
        metric: Metric,
        number: Number,
    ) -> MetricFigures {
        let column = self.column(policy, metric);
        let value = column.spread();
        if policy == 0 {
            let verdict = Verdict::Baseline;
            let (ratio, unresolved, published, by_mix) = (None, None, None, Vec::new());
            return MetricFigures { metric, value, ratio, verdict, unresolved, published, by_mix };
        }
        let ratio = column.ratio(&self.column(0, metric));
        let (verdict, unresolved) = column.judged(metric.less_is_better(), ratio);
        let published = published::of(number, &names[policy], metric);
        let by_mix = (0..self.mixes).map(|mix| self.in_mix(mix, policy, metric)).collect();
        MetricFigures { metric, value, ratio, verdict, unresolved, published, by_mix }
    }

    /// The schedulers `names`, the first of which is the baseline.
    #[must_use]
    pub fn policies(self, names: &[String], setup: &Setup, number: Number) -> Vec<PolicyFigures> {
        let policy = |(place, name): (usize, &String)| PolicyFigures {
            policy: name.clone(),
            metrics: setup
                .metrics
                .iter()
                .map(|&metric| self.metric(names, place, metric, number))
                .collect(),
        };
        names.iter().enumerate().map(policy).collect()
    }

    /// The orders that were published, of schedulers that are among `names`.
    #[must_use]
    pub fn orders(self, names: &[String], number: Number, setup: &Setup) -> Vec<Order> {
        let place = |name: &str| names.iter().position(|each| each == name);
        let order = |order: published::PublishedOrder| {
            let (better, than) = (place(order.better)?, place(order.than)?);
            let ratio = self.column(better, order.metric).ratio(&self.column(than, order.metric));
            let known = ratio.filter(|_| self.has_ranges());
            let found = found(known, order.metric.less_is_better());
            let large = known.is_some_and(|ratio| (ratio.value - 1.0).abs() >= RESOLUTION);
            Some(Order {
                metric: order.metric,
                better: order.better.to_owned(),
                than: order.than.to_owned(),
                ratio,
                found,
                resolved: large && found != Found::Open,
                source: order.source.to_owned(),
            })
        };
        let told = published::orders(number).into_iter();
        told.filter(|each| setup.metrics.contains(&each.metric)).filter_map(order).collect()
    }
}

/// Whether the sign of a ratio is that of "better", whatever is assumed.
fn found(ratio: Option<Spread>, less_is_better: bool) -> Found {
    match ratio {
        Some(ratio) if ratio.high < 1.0 && less_is_better => Found::Same,
        Some(ratio) if ratio.low > 1.0 && !less_is_better => Found::Same,
        Some(ratio) if ratio.high < 1.0 || ratio.low > 1.0 => Found::Reversed,
        _ => Found::Open,
    }
}

impl MixFigures {
    /// Of a mix of these programs.
    #[must_use]
    pub fn of(mix: &Mix, programs: &[super::program::Program]) -> Self {
        Self {
            name: mix.name.clone(),
            programs: mix.programs.iter().map(|&place| programs[place].name.clone()).collect(),
            contexts: u32::try_from(mix.pus.len()).unwrap_or(u32::MAX),
            traffic: mix.traffic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(turnaround: f64) -> Kept {
        let mut run = [Some(1.0); Metric::COUNT];
        run[0] = Some(turnaround);
        run
    }

    /// Two mixes, one draw, two seeds. Under `os` 4 and 9, so 6 s; under the other one 2 and 9: 3·√2. The ratio is
    /// √½, in the mixes ½ and 1.
    #[test]
    fn geometric_means_over_mixes() {
        let mix = |os: f64, other: f64| vec![vec![run(os); 2], vec![run(other); 2]];
        let done = [mix(4.0, 2.0), mix(9.0, 9.0)];
        let grid = Grid { done: &done, mixes: 2, draws: 1 };
        let names = ["os".to_owned(), "mmas".to_owned()];
        let setup = &Number::One.setups()[0];
        let policies = grid.policies(&names, setup, Number::One);
        let os = &policies[0].metrics[0];
        assert!((os.value.unwrap().value - 6.0).abs() < 1e-9 && os.ratio.is_none());
        let mmas = &policies[1].metrics[0];
        assert!((mmas.ratio.unwrap().value - 0.5_f64.sqrt()).abs() < 1e-9);
        assert_eq!(mmas.by_mix, [Some(0.5), Some(1.0)]);
        assert_eq!(mmas.unresolved, Some(Unresolved::OneDraw));
        assert!(mmas.published.is_some());
    }

    #[test]
    fn the_sign_makes_the_order() {
        let spread = |low, high| Some(Spread { value: f64::midpoint(low, high), low, high });
        assert_eq!(found(spread(0.9, 0.99), true), Found::Same);
        assert_eq!(found(spread(0.9, 0.99), false), Found::Reversed);
        assert_eq!(found(spread(1.01, 1.1), false), Found::Same);
        assert_eq!(found(spread(0.99, 1.1), true), Found::Open);
        assert_eq!(found(None, true), Found::Open);
    }

    /// Under `mmas` half of the time, whatever is assumed: 2 of 4 and 3 of 6 s. One seed or one set of assumptions
    /// does not say that it is so with others.
    #[test]
    fn one_seed_or_one_set_decides_no_order() {
        let names = ["os".to_owned(), "mmas".to_owned()];
        let setup = &Number::One.setups()[0];
        let first = |draws: usize, seeds: usize| {
            let draw = |os: f64| vec![vec![run(os); seeds], vec![run(os / 2.0); seeds]];
            let done: Vec<_> = [4.0, 6.0].into_iter().take(draws).map(draw).collect();
            let grid = Grid { done: &done, mixes: 1, draws };
            let order = grid.orders(&names, Number::One, setup).remove(0);
            assert!((order.ratio.unwrap().value - 0.5).abs() < 1e-9, "{order:?}");
            (order.found, order.resolved)
        };
        assert_eq!(first(2, 2), (Found::Same, true));
        for [draws, seeds] in [[1, 1], [1, 2], [2, 1]] {
            assert_eq!(first(draws, seeds), (Found::Open, false), "{draws} {seeds}");
        }
    }

    /// A run that did not end leaves nothing to say, and is no zero.
    #[test]
    fn a_run_without_an_end_has_no_figure() {
        let mut done = vec![vec![vec![run(4.0)], vec![run(2.0)]]];
        done[0][1][0] = [None; Metric::COUNT];
        let grid = Grid { done: &done, mixes: 1, draws: 1 };
        let names = ["os".to_owned(), "mmas".to_owned()];
        let policies = grid.policies(&names, &Number::One.setups()[0], Number::One);
        let mmas = &policies[1].metrics[0];
        assert_eq!((mmas.value, mmas.ratio), (None, None));
        assert_eq!(mmas.unresolved, Some(Unresolved::NotFinished));
    }
}
