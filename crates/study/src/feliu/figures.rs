//! What may be said of the schedulers after every mix was simulated under each.
//!
//! A figure of all mixes is the geometric mean over them; ratios, intervals and verdicts are those of
//! [`crate::simulate::figures`]. The *order* of two schedulers is told beside the published one, for each pair
//! of which one was published: their ratio with its interval, and whether its sign is the same whatever
//! is assumed. That needs no difference of a certain size, for what the model leaves out is left
//! out for both; but it is said where the difference is smaller than the model can resolve. One seed or one set of
//! assumptions decides nothing.

use super::Number;
use super::mix::Mix;
use super::shown::Shown;
use crate::published;
use crate::replication::{Grid, count};
use crate::simulate::figures::{Column, RESOLUTION, Spread, Unresolved, Verdict};
use serde::{Deserialize, Serialize};

pub use super::metric::Metric;

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The metric over that under Linux; `None` where the text has no number.
    pub ratio: Option<f64>,
    /// As it stands there.
    pub text: String,
    /// Where.
    pub source: String,
}

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

/// The schedulers of a set-up beside each other.
#[derive(Clone, Copy, Debug)]
pub struct Compared<'a> {
    /// What came of its mixes, a cell each.
    pub grid: Grid<'a, { Metric::COUNT }>,
    /// Names of the schedulers; the first is the baseline.
    pub names: &'a [String],
    /// What is told.
    pub metrics: &'a [Metric],
    /// Of which study.
    pub number: Number,
}

impl Compared<'_> {
    /// A metric of a scheduler: geometric means over the mixes.
    fn column(self, policy: usize, metric: Metric) -> Column {
        let mixes: Vec<usize> = (0..self.grid.cells()).collect();
        self.grid.means(&mixes, policy, metric.place())
    }

    fn metric(self, policy: usize, metric: Metric) -> MetricFigures {
        let column = self.column(policy, metric);
        let base = (policy > 0).then(|| self.column(0, metric));
        let (ratio, verdict, unresolved) = column.beside(base.as_ref(), metric.less_is_better());
        let in_mix = |mix: usize| self.grid.ratio((mix, 0), [policy, 0], metric.place());
        let mixes = if policy > 0 { self.grid.cells() } else { 0 };
        MetricFigures {
            metric,
            value: column.spread(),
            ratio,
            verdict,
            unresolved,
            published: published(self.number, &self.names[policy], metric),
            by_mix: (0..mixes).map(in_mix).collect(),
        }
    }

    /// What may be said of each scheduler.
    #[must_use]
    pub fn policies(self) -> Vec<PolicyFigures> {
        let policy = |(place, name): (usize, &String)| PolicyFigures {
            policy: name.clone(),
            metrics: self.metrics.iter().map(|&metric| self.metric(place, metric)).collect(),
        };
        self.names.iter().enumerate().map(policy).collect()
    }

    /// The orders that were published, of schedulers that are here.
    #[must_use]
    pub fn orders(self) -> Vec<Order> {
        let study = self.number.to_string();
        published::orders(&study).filter_map(|each| self.order(each)).collect()
    }

    /// `None` if the metric is not told, or a scheduler is not here.
    fn order(self, published: &published::Order) -> Option<Order> {
        let &published::Order { figure, better, than, source, .. } = published;
        let metric = *self.metrics.iter().find(|metric| metric.name() == figure)?;
        let place = |name: &str| self.names.iter().position(|each| each == name);
        let ratio = self.column(place(better)?, metric).ratio(&self.column(place(than)?, metric));
        // Only a range over several holds what chance does and what is assumed.
        let known = ratio.filter(|_| self.grid.seeds() > 1 && self.grid.draws > 1);
        let found = found(known, metric.less_is_better());
        let large = known.is_some_and(|ratio| (ratio.value - 1.0).abs() >= RESOLUTION);
        Some(Order {
            metric,
            better: better.to_owned(),
            than: than.to_owned(),
            ratio,
            found,
            resolved: large && found != Found::Open,
            source: source.to_owned(),
        })
    }
}

/// What was published of a scheduler, if anything was.
fn published(number: Number, policy: &str, metric: Metric) -> Option<Published> {
    let study = number.to_string();
    let mut rows = published::rows(&study);
    let row = rows.find(|row| row.case == policy && row.figure == metric.name())?;
    Some(Published { ratio: row.value, text: row.text.to_owned(), source: row.source.to_owned() })
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
            contexts: count(mix.pus.len()),
            traffic: mix.traffic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feliu::run::Kept;
    use crate::replication::Done;

    /// `os` and `mmas` in the first study.
    fn compared<T>(done: &[Done<{ Metric::COUNT }>], draws: usize, of: fn(Compared<'_>) -> T) -> T {
        let names = ["os".to_owned(), "mmas".to_owned()];
        let setup = &Number::One.setups()[0];
        let grid = Grid { done, draws };
        of(Compared { grid, names: &names, metrics: setup.metrics, number: Number::One })
    }

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
        let policies = compared(&done, 1, |it| it.policies());
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
        let first = |draws: usize, seeds: usize| {
            let draw = |os: f64| vec![vec![run(os); seeds], vec![run(os / 2.0); seeds]];
            let done: Vec<_> = [4.0, 6.0].into_iter().take(draws).map(draw).collect();
            let order = compared(&done, draws, |it| it.orders()).remove(0);
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
        let policies = compared(&done, 1, |it| it.policies());
        let mmas = &policies[1].metrics[0];
        assert_eq!((mmas.value, mmas.ratio), (None, None));
        assert_eq!(mmas.unresolved, Some(Unresolved::NotFinished));
    }
}
