//! Published figures of the replicated studies. Our figures stand beside them; nothing is fitted to
//! them.

/// A published figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedFigure {
    /// Name of the study, as `feliu-1`.
    pub study: &'static str,
    /// Figure of the study: a metric, a question or an experiment.
    pub figure: &'static str,
    /// Case: a scheduler or a scenario; empty where there is only one.
    pub case: &'static str,
    /// Ratio to Linux or to alone: a turnaround 5 % faster is 1 / 1.05; `None` where the text has
    /// no number.
    pub value: Option<f64>,
    /// Wording of the publication.
    pub text: &'static str,
    /// The publication, and the place in it.
    pub source: &'static str,
}

/// A published order of two schedulers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedOrder {
    /// Name of the study.
    pub study: &'static str,
    /// Metric of the comparison.
    pub figure: &'static str,
    /// The better scheduler.
    pub better: &'static str,
    /// The worse scheduler.
    pub than: &'static str,
    /// The publication, and the place in it.
    pub source: &'static str,
}

/// The figures of a study, in their order.
pub fn rows(study: &str) -> impl Iterator<Item = &'static PublishedFigure> {
    ROWS.iter().filter(move |row| row.study == study)
}

/// The orders of a study, in their order.
pub fn orders(study: &str) -> impl Iterator<Item = &'static PublishedOrder> {
    ORDERS.iter().filter(move |order| order.study == study)
}

const fn row(
    [study, figure, case]: [&'static str; 3],
    value: Option<f64>,
    text: &'static str,
    source: &'static str,
) -> PublishedFigure {
    PublishedFigure { study, figure, case, value, text, source }
}

const fn order([study, figure, better, than, source]: [&'static str; 5]) -> PublishedOrder {
    PublishedOrder { study, figure, better, than, source }
}

const SLIDES: &str = "Feliu, thesis defence, slides";
const MIX_9: &str = "Feliu, thesis defence, slides, of mix 9";
const TPDS_14: &str = "Feliu et al., TPDS 2014, abstract";
const PACT_13: &str = "Feliu et al., PACT 2013, abstract";
const AMP: &str =
    "Fedorova et al., Maximizing power efficiency with asymmetric multicore systems, text";
const FIGURE_6: &str =
    "the same, figure 6: its axis; what was lost on which topology is not in the text";
/// Source of the SMT-Bench figures; the partners of scenario C are not in the text.
const SECTION_3: &str = "Serpa et al., section 3.2";
const SECTION_5: &str = "Serpa et al., section 5, means over all pairs";

#[rustfmt::skip] // a row a line
static ROWS: [PublishedFigure; 23] = [
    row(["feliu-1", "turnaround", "mmas"], Some(1.0 / 1.0361), "3.61 % faster", TPDS_14),
    row(["feliu-1", "turnaround", "mhas"], Some(1.0 / 1.0538), "5.38 % faster", TPDS_14),
    row(["feliu-1", "turnaround", "idas"], Some(1.0 / 1.0664), "6.64 % faster", TPDS_14),
    row(["feliu-2", "average IPC", "l1-static"], None, "better, no number", PACT_13),
    row(["feliu-2", "average IPC", "l1-dynamic"], None, "better, no number", PACT_13),
    row(["feliu-2", "average IPC", "bas"], Some(1.046), "4.6 % more", SLIDES),
    row(["feliu-3", "unfairness", "fair"], Some(1.0 / 3.0), "to a third", SLIDES),
    row(["feliu-3", "unfairness", "perf-fair"], Some(0.5), "to a half", SLIDES),
    row(["feliu-3", "turnaround", "fair"], None, "faster, no number", SLIDES),
    row(["feliu-3", "turnaround", "perf-fair"], Some(1.0 / 1.056), "5.6 % faster", SLIDES),
    row(["feliu-4", "STP", "l1-dynamic"], None, "no number found", SLIDES),
    row(["feliu-4", "STP", "symbiotic"], None, "5.2 % (SMT2) and 0.7 % (SMT4) more, if read as of this variant", SLIDES),
    row(["feliu-4", "STP", "symbiotic-numa"], None, "6.7 % (SMT2) and 5.9 % (SMT4) more, if read as of this variant", SLIDES),
    row(["fedorova", "shares", ""], Some(1.0 / 1.26), "up to 26 % faster than an asymmetry-unaware scheduler where 40 to 60 % are sequential", AMP),
    row(["fedorova", "shares", ""], None, "no speed-up where sequential phases are small (wupwise)", AMP),
    row(["fedorova", "migrations", ""], None, "an axis from 5 to 25 % lost, for the migration-unfriendly and the friendly topology together", FIGURE_6),
    row(["fedorova", "threads", ""], None, "fewer threads up to where an application is at its peak efficiency, where memory is the limit; no number", AMP),
    row(["fedorova", "waiting", ""], None, "threads that spin can hide sequential phases from the runnable count; no number", AMP),
    row(["serpa", "SMT-Bench", "B: beside itself, geometric mean"], Some(1.872), "published 187.2", SECTION_3),
    row(["serpa", "SMT-Bench", "B: the worst kernel"], Some(2.2), "published 220, \"up to 120 % more\"", SECTION_3),
    row(["serpa", "SMT-Bench", "C: beside another, all pairs"], Some(1.027), "published 102.7", SECTION_3),
    row(["serpa", "SMT-Bench", "C: beside the best partner"], Some(1.027), "the same", SECTION_3),
    row(["serpa", "pairs", ""], None, "time of the slower one under instruction-aware mapping: 70.9 percent of Linux's (EP+SP 48.8), 82.6 of round-robin's (IS+UA 56.0); there with applications of unequal length, see the tail", SECTION_5),
];

#[rustfmt::skip] // a row a line
static ORDERS: [PublishedOrder; 20] = [
    order(["feliu-1", "turnaround", "mmas", "os", TPDS_14]),
    order(["feliu-1", "turnaround", "mhas", "os", TPDS_14]),
    order(["feliu-1", "turnaround", "idas", "os", TPDS_14]),
    order(["feliu-1", "turnaround", "mhas", "mmas", TPDS_14]),
    order(["feliu-1", "turnaround", "idas", "mhas", TPDS_14]),
    order(["feliu-2", "average IPC", "l1-static", "os", PACT_13]),
    order(["feliu-2", "average IPC", "l1-dynamic", "os", PACT_13]),
    order(["feliu-2", "average IPC", "bas", "os", SLIDES]),
    order(["feliu-3", "unfairness", "fair", "perf-fair", SLIDES]),
    order(["feliu-3", "unfairness", "fair", "os", SLIDES]),
    order(["feliu-3", "unfairness", "perf-fair", "os", SLIDES]),
    order(["feliu-3", "unfairness", "perf-fair", "bas", SLIDES]),
    order(["feliu-3", "unfairness", "os", "bas", MIX_9]),
    order(["feliu-3", "turnaround", "perf-fair", "bas", SLIDES]),
    order(["feliu-3", "turnaround", "bas", "fair", SLIDES]),
    order(["feliu-3", "turnaround", "fair", "os", SLIDES]),
    order(["feliu-3", "turnaround", "perf-fair", "os", SLIDES]),
    order(["feliu-4", "STP", "symbiotic", "os", SLIDES]),
    order(["feliu-4", "STP", "symbiotic-numa", "os", SLIDES]),
    order(["feliu-4", "STP", "symbiotic-numa", "symbiotic", SLIDES]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;
    use crate::replication::definition::PolicyStudyDefinition;

    const FELIU: [&str; 4] = ["feliu-1", "feliu-2", "feliu-3", "feliu-4"];

    #[test]
    fn a_faster_turnaround_is_less_time() {
        let idas = rows("feliu-1").find(|row| row.case == "idas").unwrap();
        assert!((idas.value.unwrap() * 1.0664 - 1.0).abs() < 1e-12);
    }

    /// The metrics of a study that a policy is compared by.
    fn metrics(study: &str, policy: &str) -> Vec<Metric> {
        let parts = PolicyStudyDefinition::built_in(study).unwrap().parts.into_iter();
        let of_policy = parts.filter(|part| part.policies.iter().any(|name| name == policy));
        of_policy.flat_map(|part| part.metrics).collect()
    }

    /// A scheduler with a figure beside Linux is better or worse than Linux by it.
    #[test]
    fn every_figure_makes_an_order() {
        for PublishedFigure { study, figure, case, value, .. } in
            FELIU.iter().flat_map(|study| rows(study))
        {
            let Some(ratio) = *value else { continue };
            let mut metrics = metrics(study, case).into_iter();
            let metric = metrics.find(|metric| metric.name() == *figure).unwrap();
            let better = (ratio < 1.0) == metric.less_is_better();
            let (better, than) = if better { (*case, "os") } else { ("os", *case) };
            let found = |order: &PublishedOrder| {
                (order.figure, order.better, order.than) == (*figure, better, than)
            };
            assert!(orders(study).any(found), "{study} {figure} {case}");
        }
    }

    /// All published figures are of a scheduler and a metric, or of a part, that the study has.
    #[test]
    fn all_is_of_a_study() {
        let has = |study: &str, figure: &str, policy: &str| {
            metrics(study, policy).iter().any(|metric| metric.name() == figure)
        };
        for study in FELIU {
            assert!(rows(study).all(|row| has(study, row.figure, row.case)));
            assert!(orders(study).all(|order| has(study, order.figure, order.better)));
            assert!(orders(study).all(|order| has(study, order.figure, order.than)));
        }
        for study in ["fedorova", "serpa"] {
            let parts = PolicyStudyDefinition::built_in(study).unwrap().parts;
            let is_part = |row: &PublishedFigure| parts.iter().any(|part| part.name == row.figure);
            assert!(rows(study).all(|row| is_part(row) || row.figure == "SMT-Bench"));
        }
    }
}
