//! What Feliu and others published, beside which our figures stand. Nothing is fitted to it.

use super::Number;
use super::metric::Metric;
use serde::{Deserialize, Serialize};

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The metric over that under Linux: a speedup of turnaround of 5 % is 1 / 1.05; `None` where
    /// the text has no number.
    pub ratio: Option<f64>,
    /// As it stands there.
    pub text: String,
    /// Where.
    pub source: String,
}

/// An order of two schedulers that was published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedOrder {
    /// By what.
    pub metric: Metric,
    /// Who is better.
    pub better: &'static str,
    /// Than whom.
    pub than: &'static str,
    /// Where that stands.
    pub source: &'static str,
}

const SLIDES: &str = "Feliu, thesis defence, slides";
const MIX_9: &str = "Feliu, thesis defence, slides, of mix 9";
const TPDS_14: &str = "Feliu et al., TPDS 2014, abstract";

/// Study, scheduler, metric, ratio to Linux, text, source.
type Row = (Number, &'static str, Metric, Option<f64>, &'static str, &'static str);

const FIGURES: [Row; 13] = {
    use Metric::{Ipc, Stp, Turnaround, Unfairness};
    use Number::{Four, One, Three, Two};
    [
        (One, "mmas", Turnaround, Some(1.0 / 1.0361), "3.61 % faster", TPDS_14),
        (One, "mhas", Turnaround, Some(1.0 / 1.0538), "5.38 % faster", TPDS_14),
        (One, "idas", Turnaround, Some(1.0 / 1.0664), "6.64 % faster", TPDS_14),
        (Two, "l1-static", Ipc, None, "better, no number", "Feliu et al., PACT 2013, abstract"),
        (Two, "l1-dynamic", Ipc, None, "better, no number", "Feliu et al., PACT 2013, abstract"),
        (Two, "bas", Ipc, Some(1.046), "4.6 % more", SLIDES),
        (Three, "fair", Unfairness, Some(1.0 / 3.0), "to a third", SLIDES),
        (Three, "perf-fair", Unfairness, Some(0.5), "to a half", SLIDES),
        (Three, "fair", Turnaround, None, "faster, no number", SLIDES),
        (Three, "perf-fair", Turnaround, Some(1.0 / 1.056), "5.6 % faster", SLIDES),
        (Four, "l1-dynamic", Stp, None, "no number found", SLIDES),
        (
            Four,
            "symbiotic",
            Stp,
            None,
            "5.2 % (SMT2) and 0.7 % (SMT4) more, if read as of this variant",
            SLIDES,
        ),
        (
            Four,
            "symbiotic-numa",
            Stp,
            None,
            "6.7 % (SMT2) and 5.9 % (SMT4) more, if read as of this variant",
            SLIDES,
        ),
    ]
};

const ORDERS: [(Number, PublishedOrder); 20] = {
    use Metric::{Ipc, Stp, Turnaround, Unfairness};
    use Number::{Four, One, Three, Two};
    const fn order(
        metric: Metric,
        better: &'static str,
        than: &'static str,
        source: &'static str,
    ) -> PublishedOrder {
        PublishedOrder { metric, better, than, source }
    }
    [
        (One, order(Turnaround, "mmas", "os", TPDS_14)),
        (One, order(Turnaround, "mhas", "os", TPDS_14)),
        (One, order(Turnaround, "idas", "os", TPDS_14)),
        (One, order(Turnaround, "mhas", "mmas", TPDS_14)),
        (One, order(Turnaround, "idas", "mhas", TPDS_14)),
        (Two, order(Ipc, "l1-static", "os", "Feliu et al., PACT 2013, abstract")),
        (Two, order(Ipc, "l1-dynamic", "os", "Feliu et al., PACT 2013, abstract")),
        (Two, order(Ipc, "bas", "os", SLIDES)),
        (Three, order(Unfairness, "fair", "perf-fair", SLIDES)),
        (Three, order(Unfairness, "fair", "os", SLIDES)),
        (Three, order(Unfairness, "perf-fair", "os", SLIDES)),
        (Three, order(Unfairness, "perf-fair", "bas", SLIDES)),
        (Three, order(Unfairness, "os", "bas", MIX_9)),
        (Three, order(Turnaround, "perf-fair", "bas", SLIDES)),
        (Three, order(Turnaround, "bas", "fair", SLIDES)),
        (Three, order(Turnaround, "fair", "os", SLIDES)),
        (Three, order(Turnaround, "perf-fair", "os", SLIDES)),
        (Four, order(Stp, "symbiotic", "os", SLIDES)),
        (Four, order(Stp, "symbiotic-numa", "os", SLIDES)),
        (Four, order(Stp, "symbiotic-numa", "symbiotic", SLIDES)),
    ]
};

/// What was published of a scheduler, if anything was.
#[must_use]
pub fn of(number: Number, policy: &str, metric: Metric) -> Option<Published> {
    let wanted = |row: &&Row| row.0 == number && policy == row.1 && row.2 == metric;
    let (_, _, _, ratio, text, source) = FIGURES.iter().find(wanted)?;
    Some(Published { ratio: *ratio, text: (*text).to_owned(), source: (*source).to_owned() })
}

/// The orders that were published.
#[must_use]
pub fn orders(number: Number) -> Vec<PublishedOrder> {
    let mine = ORDERS.iter().filter(|(of, _)| *of == number);
    mine.map(|(_, order)| *order).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_faster_turnaround_is_less_time() {
        let found = of(Number::One, "idas", Metric::Turnaround).unwrap();
        assert!((found.ratio.unwrap() * 1.0664 - 1.0).abs() < 1e-12);
        assert_eq!(of(Number::One, "os", Metric::Turnaround), None);
    }

    /// Who has a figure beside Linux is better or worse than Linux by it.
    #[test]
    fn every_figure_makes_an_order() {
        let ratios = FIGURES.iter().filter_map(|row| Some((row, row.3?)));
        for ((number, policy, metric, ..), ratio) in ratios {
            let better = (ratio < 1.0) == metric.less_is_better();
            let (better, than) = if better { (*policy, "os") } else { ("os", *policy) };
            let told = |order: &PublishedOrder| {
                (order.metric, order.better, order.than) == (*metric, better, than)
            };
            assert!(orders(*number).iter().any(told), "{number} {metric:?} {policy}");
        }
    }

    /// Everything published is of a scheduler and a metric that the study has.
    #[test]
    fn all_is_of_a_set_up() {
        let has = |number: Number, policy: &str, metric: Metric| {
            let all = number.setups();
            all.iter().any(|s| s.policies.contains(&policy) && s.metrics.contains(&metric))
        };
        assert!(FIGURES.iter().all(|row| has(row.0, row.1, row.2)));
        for (number, order) in ORDERS {
            assert!(has(number, order.better, order.metric), "{order:?}");
            assert!(has(number, order.than, order.metric), "{order:?}");
        }
    }
}
