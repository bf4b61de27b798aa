//! The study as text for a terminal.

use super::length::{LAST, Step, settled, start_of};
use super::pairs::{PairFigures, PolicyFigures};
use super::{Report, Study};
use crate::published;
use crate::replication::lines;
use crate::simulate::figures::{MetricFigures, RESOLUTION, Spread};
use colocate_machine::printable;
use std::fmt::Write;

/// The report as tables and their legend; ends in a newline.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let Report { machine, draws, seeds, .. } = report;
    let machine = printable(machine);
    let _ = writeln!(
        out,
        "simulated {machine}; in brackets the range over {draws} sets of assumptions and what chance does ({seeds} \
         seeds);\n~: not resolved, less than {:.0} % or of another sign under other assumptions",
        report.resolution * 100.0
    );
    bench(&mut out, report);
    pairs(&mut out, report);
    tail(&mut out, report);
    out
}

/// The steps of the search for the length, with what came of it; ends in a newline.
#[must_use]
pub fn steps(study: &Study<'_>, steps: &[Step]) -> String {
    let mut out = format!(
        "simulated {}; all pairs under os, {} sets of assumptions, {} seeds each\n  {:>9}  {:24}  {:24}  changed by\n",
        printable(&study.machine.name),
        study.draws.len(),
        study.seeds,
        "length",
        "slower one's time/length",
        "STP"
    );
    for step in steps {
        let changed = step.changed.map_or("-".to_owned(), |part| format!("{:.1} %", part * 100.0));
        let _ = writeln!(
            out,
            "  {:7} s  {:24}  {:24}  {changed}",
            step.alone_s,
            ended(step.slower),
            ended(step.stp)
        );
    }
    let start = start_of(study);
    let _ = match steps.last().filter(|step| settled(step, start)) {
        Some(step) => writeln!(
            out,
            "{} s: half of it is longer than a start, {} s, and neither figure changes by {:.0} % or more under \
             any assumptions",
            step.alone_s,
            start.as_secs_f64(),
            RESOLUTION * 100.0
        ),
        None => writeln!(out, "not settled at {} s, the longest that is tried", LAST.as_secs_f64()),
    };
    out
}

/// In percent, if all runs came to their end.
fn ended(spread: Option<Spread>) -> String {
    Spread::or_unended(spread, |spread| percent(&spread))
}

/// In percent.
fn percent(spread: &Spread) -> String {
    let Spread { value, low, high } = spread;
    format!("{:6.1} ({:.1} to {:.1})", value * 100.0, low * 100.0, high * 100.0)
}

fn bench(out: &mut String, report: &Report) {
    let bench = &report.bench;
    let _ = writeln!(out, "\nSMT-Bench, time on one core relative to alone, percent");
    for (kernel, same) in bench.kernels.iter().zip(&bench.same) {
        let _ = writeln!(out, "  {kernel:10} beside itself        {}", percent(same));
    }
    let spreads = [&bench.scenario_b, &bench.worst_b, &bench.scenario_c, &bench.best_c];
    for (row, spread) in published::rows("serpa").zip(spreads) {
        let _ = writeln!(out, "  {:32} {}; {}", row.case, percent(spread), row.text);
    }
}

fn pairs(out: &mut String, report: &Report) {
    let pairs = &report.pairs;
    let _ = writeln!(
        out,
        "\n{} pairs of {} applications, {} threads and {} s alone each, none ever alone: percent of",
        pairs.pairs.len(),
        pairs.applications.join(" "),
        pairs.threads,
        report.alone_s
    );
    for (base, beside) in [
        ("os", (|policy| &policy.over_os) as fn(&PolicyFigures) -> &Vec<MetricFigures>),
        ("round-robin", |policy| &policy.over_round_robin),
    ] {
        line(out, &format!("  {base:17}"), &lines(&["slower one's time", "STP", "unfairness"]));
        for policy in pairs.policies.iter().filter(|policy| policy.policy != base) {
            let cells: Vec<String> = beside(policy).iter().map(cell).collect();
            line(out, &format!("    {:15}", policy.policy), &cells);
        }
    }
    most(out, &pairs.pairs);
    out.push_str(PUBLISHED);
}

/// The pair that gains most by the paper's mapping, beside each baseline.
fn most(out: &mut String, pairs: &[PairFigures]) {
    for (base, of) in [
        ("os", (|pair| pair.over_os) as fn(&PairFigures) -> Option<Spread>),
        ("round-robin", |pair| pair.over_round_robin),
    ] {
        let ended: Vec<(&PairFigures, Spread)> =
            pairs.iter().filter_map(|pair| Some((pair, of(pair)?))).collect();
        if let Some((pair, most)) = ended.iter().min_by(|a, b| a.1.value.total_cmp(&b.1.value)) {
            let name = pair.pair.join("+");
            let _ = writeln!(
                out,
                "  instruction beside {base}, the pair that gains most: {name} {}",
                percent(most)
            );
        }
        let missing = pairs.len() - ended.len();
        if missing > 0 {
            let _ = writeln!(
                out,
                "  instruction beside {base}: {missing} of {} pairs did not end",
                pairs.len()
            );
        }
    }
}

/// A line of a label and cells of equal width.
fn line(out: &mut String, label: &str, cells: &[String]) {
    let cells: String = cells.iter().map(|cell| format!("  {cell:30}")).collect();
    let _ = writeln!(out, "{}", format!("{label}{cells}").trim_end());
}

/// A ratio and what may be said of it.
fn cell(figures: &MetricFigures) -> String {
    let mark = figures.verdict.mark();
    Spread::or_unended(figures.ratio, |ratio| format!("{} {mark}", percent(&ratio)))
}

/// Serpa et al., section 5: means over all pairs, times of the slower application.
const PUBLISHED: &str = "  published, time of the slower one under instruction-aware mapping: 70.9 of Linux's \
    (EP+SP 48.8),\n  82.6 of round-robin's (IS+UA 56.0); there with applications of unequal length, see the tail\n";

fn tail(out: &mut String, report: &Report) {
    let _ = writeln!(
        out,
        "\nthe metric's tail: two copies of one application, the second shorter; time of the longer one with one\n\
         thread of each a core, where there is nothing to match, percent of that under\n  {:16}  {:30}  os",
        "", "round-robin"
    );
    for tail in &report.tail {
        let scatter = tail.policies.iter().filter(|policy| policy.policy == "scatter");
        let figures = scatter.flat_map(|it| it.over_round_robin.iter().chain(&it.over_os));
        let cells: Vec<String> = figures.map(cell).collect();
        line(out, &format!("  length {:3.0} %    ", tail.length * 100.0), &cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of three pairs one did not end beside `os`, and none did beside `round-robin`.
    #[test]
    fn pairs_that_did_not_end_are_counted() {
        let pair = |name: &str, over_os: Option<f64>| PairFigures {
            pair: [name.to_owned(), "Z".to_owned()],
            over_os: over_os.map(|value| Spread { value, low: value, high: value }),
            over_round_robin: None,
        };
        let mut out = String::new();
        most(&mut out, &[pair("A", Some(0.9)), pair("B", None), pair("C", Some(0.8))]);
        let lines: Vec<&str> = out.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "instruction beside os, the pair that gains most: C+Z   80.0 (80.0 to 80.0)",
                "instruction beside os: 1 of 3 pairs did not end",
                "instruction beside round-robin: 3 of 3 pairs did not end",
            ]
        );
    }

    #[test]
    fn a_length_at_which_a_run_did_not_end_is_told() {
        assert_eq!(ended(None), "did not end");
        let spread = Spread { value: 1.5, low: 1.0, high: 2.0 };
        assert_eq!(ended(Some(spread)).trim(), "150.0 (100.0 to 200.0)");
    }
}
