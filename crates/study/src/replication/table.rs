//! Report of a study as text for a terminal: one form of table for all studies.

use super::bound::BOUND;
use super::definition::{Ratios, Shown};
use super::report::{
    Beside, CellFigures, Details, FactFigures, MetricFigures, MixTimeline, OrderComparison,
    PartFigures, PublishedRatio, SimulatedOrder, StudyReport,
};
use crate::metric::Metric;
use crate::printed::Printed;
use crate::simulate::figures::Spread;
use colocate_figures::stats;
use colocate_figures::table::{aligned, row};
use colocate_machine::printable;
use std::fmt::Write;

/// Most programs in a printed matrix. Chosen: a line of 100 characters.
const MOST_IN_MATRIX: usize = 12;
/// Pairs printed where a matrix is too wide. Chosen.
const PAIRS: usize = 5;

impl Printed for StudyReport {
    fn text(&self) -> String {
        let mut out = String::new();
        let StudyReport { study, machine, summary, draws, seeds, programs, .. } = self;
        let machine = printable(machine);
        let _ = writeln!(
            out,
            "{study}, simulated on {machine}: {summary};\nin brackets the range over {draws} sets of assumptions and what \
             chance does ({seeds} seeds); ~: not resolved, less than {:.0} % or of\nanother sign under other assumptions",
            self.resolution * 100.0
        );
        if !programs.is_empty() {
            let (least, most) = stats::ends(programs.iter().map(|program| program.memory));
            let (low, high) = stats::ends(programs.iter().map(|program| program.first_cache));
            let _ = writeln!(
                out,
                "{} programs: {least:.1} to {most:.1} t/µs to memory alone, {low:.0} to {high:.0} t/µs to the first \
                 cache",
                programs.len(),
            );
        }
        self.facts.iter().for_each(|each| facts(&mut out, each));
        // Reason for an open order; with too few repetitions no order is decided.
        let open = match (seeds, draws) {
            (1, _) => "not decided by one seed",
            (_, 1) => "not decided by one set of assumptions",
            _ => "not decided here",
        };
        self.parts.iter().for_each(|each| part(&mut out, each, open));
        if !self.notes.is_empty() {
            out.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        out
    }

    fn svg(&self) -> Result<String, String> {
        super::picture::svg(self)
    }
}

fn facts(out: &mut String, figures: &FactFigures) {
    let _ = writeln!(out, "\n{}", figures.text);
    let rows = figures.facts.iter().map(|fact| {
        let published = fact.published.as_ref().map(|published| published.text.clone());
        vec![format!("  {}", fact.name), percent(fact.value), published.unwrap_or_default()]
    });
    out.push_str(&aligned(&rows.collect::<Vec<_>>()));
}

fn part(out: &mut String, part: &PartFigures, open: &str) {
    let traffic = part.cells.iter().filter_map(|cell| cell.values.get("traffic").copied());
    let traffic: Vec<f64> = traffic.collect();
    let traffic = (!traffic.is_empty()).then(|| {
        let (least, most) = stats::ends(traffic.iter().copied());
        format!(": {} mixes with {least:.0} to {most:.0} t/µs of traffic", traffic.len())
    });
    let _ = writeln!(out, "\n{}{}", part.text, traffic.unwrap_or_default());
    out.push_str(&bound(part));
    let metrics = part.rows.first().and_then(|row| row.policies.first());
    let metrics = metrics.map_or(&[][..], |policy| &policy.metrics);
    for at in (0..metrics.len()).filter(|&at| metrics[at].metric.is_compared()) {
        out.push_str(&metric(part, metrics, at));
    }
    for PublishedRatio { text, source, .. } in &part.published {
        let _ = writeln!(out, "  published: {text} ({source})");
    }
    if !part.orders.is_empty() {
        out.push_str("the published order\n");
        let rows = part.orders.iter().map(|each| order(each, part.ratios, open));
        out.push_str(&aligned(&rows.collect::<Vec<_>>()));
    }
    if let Some(details) = &part.detail {
        match details.what {
            Shown::Imbalance => imbalance(out, details),
            Shown::CoreSharing => {
                details.policies.iter().for_each(|course| core_sharing(out, details, course));
            }
            Shown::Progress => progress(out, details),
            Shown::FirstCaches => first_caches(out, details),
        }
    }
}

/// Geometric mean of the mixes' bounds on turnaround; empty unless every mix has one.
fn bound(part: &PartFigures) -> String {
    let each: Option<Vec<f64>> =
        part.cells.iter().map(|cell| cell.values.get(BOUND).copied()).collect();
    let mean = each.and_then(|each| stats::geometric_mean(&each));
    mean.map_or_else(String::new, |mean| {
        format!("bound: no scheduler has a turnaround below {mean:.1} s, under the default assumptions\n")
    })
}

/// Rows of every policy in every cell for a metric that compares policies. With the first metric,
/// also the metrics that do not.
fn metric(part: &PartFigures, metrics: &[MetricFigures], at: usize) -> String {
    let metric = metrics[at].metric;
    let others: Vec<usize> = (0..metrics.len())
        .filter(|&other| at == 0 && !metrics[other].metric.is_compared())
        .collect();
    let mut policies = part.rows.iter().flat_map(|row| &row.policies);
    let has_oracle = policies.any(|policy| policy.metrics[at].of_oracle.is_some());
    let unit = if metric.is_time() { ", s" } else { "" };
    let mut head = vec![String::new(), String::new(), format!("{}{unit}", metric.name())];
    for base in &part.baselines {
        head.push(match (part.ratios, metric.is_ratio()) {
            (Ratios::Percent, _) => format!("percent of {base}'s"),
            (Ratios::Better, true) => format!("of {base}'s, times"),
            (Ratios::Better, false) => format!("better than {base}, percent"),
        });
    }
    if has_oracle {
        head.push("of oracle's gain".to_owned());
    }
    head.extend(others.iter().map(|&other| metrics[other].metric.name().to_owned()));
    let is_mean = part.rows.iter().any(|row| row.cell.is_none());
    if is_mean {
        head.push("best in".to_owned());
    }
    let mut policies = part.rows.iter().flat_map(|row| &row.policies);
    if policies.any(|policy| policy.metrics[at].published.is_some()) {
        head.push("published".to_owned());
    }
    let mut rows = vec![head];
    for row in &part.rows {
        let cell = row.cell.map_or("", |cell| &part.cells[cell as usize].name);
        for (place, policy) in row.policies.iter().enumerate() {
            let figures = &policy.metrics[at];
            let cell = if place == 0 { format!("  {cell}") } else { String::new() };
            let value = figures.value.map(|value| value.text(3));
            let value = value.unwrap_or_else(|| unended(&policy.policy));
            let mut cells = vec![cell, policy.policy.clone(), value];
            for base in &part.baselines {
                let beside = figures.beside.iter().find(|beside| beside.baseline == *base);
                cells.push(beside.map_or_else(String::new, |beside| {
                    let ratio = beside.ratio.map(|it| gain(metric, part.ratios, it));
                    let ratio = ratio.unwrap_or_else(|| unended(&policy.policy));
                    format!("{ratio} {}", beside.verdict.mark())
                }));
            }
            if has_oracle {
                cells.push(
                    figures
                        .of_oracle
                        .map_or_else(String::new, |share| format!("{:.0} %", share.value * 100.0)),
                );
            }
            cells.extend(others.iter().map(|&other| {
                let other = &policy.metrics[other];
                let decimals = match other.metric {
                    Metric::Uneven => 2,
                    Metric::Busy => 1,
                    _ => 0,
                };
                other.value.map_or("-".to_owned(), |it| it.text(decimals))
            }));
            if is_mean {
                let best = figures.beside.iter().map(|it| best(part, metric, it));
                cells.push(best.collect::<Vec<_>>().join("; "));
            }
            cells.extend(figures.published.iter().map(|it| it.text.clone()));
            rows.push(cells);
        }
    }
    aligned(&rows)
}

/// Text for a missing figure. The oracle is not simulated, so some of its figures are unknown.
fn unended(policy: &str) -> String {
    if policy == "oracle" { "-" } else { "did not end" }.to_owned()
}

/// Name of the cell with the best ratio, and the number of cells in which a run did not end.
fn best(part: &PartFigures, metric: Metric, beside: &Beside) -> String {
    let ended = part.cells.iter().zip(&beside.by_cell);
    let ended: Vec<(&CellFigures, Spread)> =
        ended.filter_map(|(cell, ratio)| Some((cell, (*ratio)?))).collect();
    let sign = if metric.less_is_better() { 1.0 } else { -1.0 };
    let most = ended.iter().min_by(|(_, a), (_, b)| (a.value * sign).total_cmp(&(b.value * sign)));
    let missing = match beside.by_cell.len() - ended.len() {
        0 => String::new(),
        missing => format!("{missing} of {} did not end", beside.by_cell.len()),
    };
    let most = most.map(|(cell, ratio)| {
        let unranged = Spread { low: ratio.value, high: ratio.value, ..*ratio };
        let text = gain(metric, part.ratios, unranged);
        // The value without its range.
        format!("{} {}", cell.name, text.split(' ').next().unwrap_or_default())
    });
    [most.unwrap_or_default(), missing].iter().filter(|it| !it.is_empty()).fold(
        String::new(),
        |text, each| if text.is_empty() { each.clone() } else { format!("{text}, {each}") },
    )
}

/// The ratio, or the percent by which a time is shorter or a speed greater. The ratio of `time` is
/// a speed-up.
fn gain(metric: Metric, ratios: Ratios, ratio: Spread) -> String {
    if ratios == Ratios::Percent {
        return percent(ratio);
    }
    if metric.is_ratio() {
        return ratio.text(3);
    }
    let less = metric.less_is_better() && metric != Metric::Time;
    ratio.map(|ratio| if less { 1.0 / ratio } else { ratio }).percent_more().signed_text(1)
}

fn percent(ratio: Spread) -> String {
    ratio.map(|ratio| ratio * 100.0).text(1)
}

fn order(order: &OrderComparison, ratios: Ratios, open: &str) -> Vec<String> {
    let found = match order.found {
        SimulatedOrder::Same => "the same here",
        SimulatedOrder::Reversed => "the other way round here",
        SimulatedOrder::Open => open,
    };
    let small = order.found != SimulatedOrder::Open && !order.resolved;
    let small = if small { ", less than the model can resolve" } else { "" };
    vec![
        format!("  {}", order.metric.name()),
        format!("{} better than {}", order.better, order.than),
        Spread::or_unended(order.ratio, |by| gain(order.metric, ratios, by)),
        format!("{found}{small}"),
    ]
}

fn imbalance(out: &mut String, details: &Details) {
    let _ =
        writeln!(out, "mix {}: requests of the shared caches, most less least, t/µs", details.mix);
    courses(out, details, &["", "mean", "median", "nine of ten below"], |course| {
        let cells = course.imbalance.map(|it| [it.mean, it.median, it.ninth_tenth]);
        cells.map_or_else(
            || vec!["-".to_owned(); 3],
            |it| it.map(|each| format!("{each:.1}")).to_vec(),
        )
    });
}

fn core_sharing(out: &mut String, details: &Details, course: &MixTimeline) {
    let Details { mix, programs, .. } = details;
    let count = programs.len();
    let _ = writeln!(
        out,
        "mix {mix} under {}: percent of the time for which two share a core",
        course.policy
    );
    let share = &course.core_sharing;
    if count > MOST_IN_MATRIX {
        let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
        let mut pairs: Vec<(usize, usize)> = pairs.collect();
        pairs.sort_by(|x, y| share[y.0][y.1].total_cmp(&share[x.0][x.1]));
        let named = pairs
            .iter()
            .take(PAIRS)
            .map(|&(a, b)| format!("{}+{} {:.0}", programs[a], programs[b], share[a][b] * 100.0));
        let _ = writeln!(out, "  most often: {}", named.collect::<Vec<_>>().join(", "));
        return;
    }
    let mut rows = vec![row("", programs.iter().cloned())];
    for (a, name) in programs.iter().enumerate() {
        let cells = share[a].iter().enumerate().map(|(b, share)| {
            if a == b { "-".to_owned() } else { format!("{:.0}", share * 100.0) }
        });
        rows.push(labelled(name, cells));
    }
    out.push_str(&aligned(&rows));
}

/// A table with a row for each scheduler, under a heading if there is one.
fn courses(
    out: &mut String,
    details: &Details,
    heading: &[&str],
    cells: impl Fn(&MixTimeline) -> Vec<String>,
) {
    let heading: Vec<String> = heading.iter().map(|&cell| cell.to_owned()).collect();
    let heading = Some(heading).filter(|cells| !cells.is_empty());
    let rows = details.policies.iter().map(|course| labelled(&course.policy, cells(course)));
    out.push_str(&aligned(&heading.into_iter().chain(rows).collect::<Vec<_>>()));
}

/// A row with an indented label.
fn labelled(label: &str, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    row(&format!("  {label}"), cells)
}

fn progress(out: &mut String, details: &Details) {
    let _ = writeln!(
        out,
        "mix {}: percent of its target that the least advanced program has reached, at tenths of the time until \
         the first is done",
        details.mix
    );
    courses(out, details, &[], |course| {
        course.progress.iter().map(|[least, ..]| format!("{:.0}", least * 100.0)).collect()
    });
    let _ = writeln!(
        out,
        "mix {}: programs that are left, at tenths of the time that os takes, and two more",
        details.mix
    );
    courses(out, details, &[], |course| course.left.iter().map(ToString::to_string).collect());
}

fn first_caches(out: &mut String, details: &Details) {
    let _ = writeln!(
        out,
        "mix {}: requests of the first caches, t/µs: of the core that is requested most less the one that is requested least, in tenths of \
         the time until the first program is done",
        details.mix
    );
    courses(out, details, &[], |course| {
        course.first_caches.iter().map(|[least, most]| format!("{:.0}", most - least)).collect()
    });
    let _ = writeln!(out, "mix {}: quanta of a PU that programs need", details.mix);
    courses(out, details, &["", "mean", "least", "most"], |course| {
        let (least, most) = stats::ends(course.slots.iter().copied());
        let mean = stats::mean(&course.slots).unwrap_or(0.0);
        [mean, least, most].map(|each| format!("{each:.0}")).to_vec()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::figures::SimulatedVerdict;

    fn exactly(value: f64) -> Spread {
        Spread { value, low: value, high: value }
    }

    /// Half of the time under all assumptions, and 2 % less; of what is not decided, no size is printed.
    #[test]
    fn an_order_has_its_size() {
        let text = |value: f64, found, resolved| {
            let each = OrderComparison {
                metric: Metric::Turnaround,
                better: "mmas".to_owned(),
                than: "os".to_owned(),
                ratio: Some(exactly(value)),
                found,
                resolved,
                source: String::new(),
            };
            order(&each, Ratios::Better, "not decided by one seed").remove(3)
        };
        assert_eq!(text(0.5, SimulatedOrder::Same, true), "the same here");
        assert_eq!(
            text(1.02, SimulatedOrder::Reversed, false),
            "the other way round here, less than the model can resolve"
        );
        assert_eq!(text(0.5, SimulatedOrder::Open, false), "not decided by one seed");
    }

    /// 4/5 of the time is a quarter faster; 5/4 of the throughput a quarter more; unfairness is a ratio; of Fedorova's time the
    /// ratio is a speed-up; Serpa's figures are percent of the baseline.
    #[test]
    fn gains_are_of_speed() {
        let spread = |value, low, high| Spread { value, low, high };
        let time = spread(0.8, 0.5, 1.0);
        let better = |metric, ratio| gain(metric, Ratios::Better, ratio);
        assert_eq!(better(Metric::Turnaround, time), "+25.0 (+0.0 to +100.0)");
        assert_eq!(better(Metric::Stp, spread(1.25, 0.9, 1.5)), "+25.0 (-10.0 to +50.0)");
        assert_eq!(better(Metric::Unfairness, time), "0.800 (0.500 to 1.000)");
        assert_eq!(better(Metric::Time, exactly(1.25)), "+25.0 (+25.0 to +25.0)");
        assert_eq!(gain(Metric::Slowest, Ratios::Percent, time), "80.0 (50.0 to 100.0)");
    }

    /// Of three pairs one did not end beside `os`, and none did beside `round-robin`.
    #[test]
    fn cells_that_did_not_end_are_counted() {
        let cell = |name: &str| CellFigures { name: name.to_owned(), ..CellFigures::default() };
        let part = PartFigures {
            name: String::new(),
            text: String::new(),
            ratios: Ratios::Percent,
            missing: Vec::new(),
            baselines: Vec::new(),
            cells: ["A+Z", "B+Z", "C+Z"].map(cell).to_vec(),
            rows: Vec::new(),
            orders: Vec::new(),
            published: Vec::new(),
            picture: None,
            detail: None,
        };
        let best = |by_cell: [Option<f64>; 3]| {
            let by_cell = by_cell.map(|value| value.map(exactly)).to_vec();
            let verdict = SimulatedVerdict::NotResolved;
            let beside =
                Beside { baseline: String::new(), ratio: None, verdict, unresolved: None, by_cell };
            best(&part, Metric::Slowest, &beside)
        };
        assert_eq!(best([Some(0.9), None, Some(0.8)]), "C+Z 80.0, 1 of 3 did not end");
        assert_eq!(best([None; 3]), "3 of 3 did not end");
    }
}
