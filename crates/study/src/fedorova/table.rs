//! The study as text for a terminal.

use super::Report;
use super::figures::{PointFigures, PolicyFigures};
use super::points::Question;
use crate::simulate::figures::{Spread, Verdict};
use crate::table::aligned;
use colocate_machine::printable;
use std::fmt::Write;

/// The report as tables and their legend; ends in a newline.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let Report { machine, threads, draws, seeds, length_s, quantum_s, .. } = report;
    let machine = printable(machine);
    let _ = writeln!(
        out,
        "fedorova, simulated on {machine}: {threads} threads, programs of {length_s} s on slow cores, a sample every {quantum_s} s;\n\
         in brackets the range over {draws} sets of assumptions and what chance does ({seeds} seeds); ~: not resolved, less than \
         {:.0} % or of\nanother sign under other assumptions. A fast core is {} times as fast as a slow one for a thread alone",
        report.resolution * 100.0,
        report.faster.text(2),
    );
    for question in Question::ALL {
        let points: Vec<&PointFigures> =
            report.points.iter().filter(|point| point.question == question).collect();
        let _ = writeln!(out, "\n{}", heading(question, report));
        out.push_str(&aligned(&rows(question, &points)));
        for published in report.published.iter().filter(|each| each.question == question) {
            let _ = writeln!(out, "  published: {} ({})", published.text, published.source);
        }
    }
    out.push('\n');
    if !report.missing.is_empty() {
        let _ = writeln!(out, "note: without {}, which are not there", report.missing.join(", "));
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

fn heading(question: Question, report: &Report) -> String {
    match question {
        Question::Shares => format!(
            "simulated: faster than os by serial share, percent; migration-friendly layout, a serial and a parallel part take {} s \
             together on slow cores, who waits sleeps",
            report.round_s
        ),
        Question::Migrations => "simulated: what moves cost, percent of speed beside os; fast cores are only said to be fast, so there \
             is nothing to gain; half of the time serial, phases as long as said on slow cores"
            .to_owned(),
        Question::Waiting => {
            "simulated: faster than os where threads spin that wait, percent; otherwise as the first table".to_owned()
        }
        Question::Threads => {
            "simulated: faster than os with a thread on each core where all stream through memory, percent; fdt: as many threads as \
             feedback-driven threading says"
                .to_owned()
        }
        Question::Programs => {
            "simulated: faster than os, the mean of several programs at once that share the cores, percent; uneven: how many \
             times as long the slowest takes as the fastest"
                .to_owned()
        }
    }
}

/// What [`moves`] tells.
const MOVES: &str = "of oracle's gain; moves/s, across";

fn rows(question: Question, points: &[&PointFigures]) -> Vec<Vec<String>> {
    let (first, more, cell): (_, _, fn(&PolicyFigures) -> String) = match question {
        Question::Shares => ("  serial, by", MOVES, moves),
        Question::Migrations => ("  layout, phases", MOVES, moves),
        Question::Waiting => ("  serial, waiting", MOVES, moves),
        Question::Threads => ("  serial", "busy cores", busy),
        Question::Programs => ("  serial, programs", "uneven", uneven),
    };
    let mut head = vec![first.to_owned(), "os, s".to_owned()];
    let policies = points.first().map_or(&[][..], |point| &point.policies);
    head.extend(told(question, policies).map(|policy| policy.policy.clone()));
    head.extend(movers(question, policies).map(|policy| format!("{}: {more}", policy.policy)));
    let mut rows = vec![head];
    for point in points {
        let mut row = vec![label(point)];
        row.push(Spread::or_unended(point.policies[0].seconds, |seconds| seconds.text(3)));
        row.extend(told(question, &point.policies).map(speedup));
        row.extend(movers(question, &point.policies).map(cell));
        rows.push(row);
    }
    rows
}

/// The policies of which a speed-up is told: the oracle has nothing to say of what moves cost, nor of several programs.
fn told(question: Question, policies: &[PolicyFigures]) -> impl Iterator<Item = &PolicyFigures> {
    let oracle = !matches!(question, Question::Migrations | Question::Programs);
    let count = policies.len().saturating_sub(1) + usize::from(oracle);
    policies.iter().take(count).skip(1)
}

/// The policies of which more is told: how often they move threads, or how many cores are busy.
fn movers(question: Question, policies: &[PolicyFigures]) -> impl Iterator<Item = &PolicyFigures> {
    let first = usize::from(!matches!(question, Question::Threads | Question::Programs));
    policies.iter().take(policies.len().saturating_sub(1)).skip(first)
}

fn label(point: &PointFigures) -> String {
    let of = match point.question {
        Question::Migrations => {
            return format!("  {}, {:.0} ms", point.layout.name(), point.parallel_s * 1000.0);
        }
        Question::Threads => String::new(),
        Question::Shares => format!(", {}", point.serial_by.name()),
        Question::Waiting => format!(", {}", point.waiting.name()),
        Question::Programs => format!(", {}", point.programs),
    };
    format!("  {:.0} %{of}", point.serial * 100.0)
}

fn speedup(policy: &PolicyFigures) -> String {
    let open = if policy.verdict == Verdict::NotResolved { " ~" } else { "" };
    Spread::or_unended(policy.speedup, |it| it.percent_more().signed_text(1) + open)
}

fn moves(policy: &PolicyFigures) -> String {
    let part =
        policy.of_oracle.map_or("-".to_owned(), |part| format!("{:.0} %", part.value * 100.0));
    let count =
        |count: Option<Spread>| count.map_or("-".to_owned(), |count| format!("{:.0}", count.value));
    format!("{part}; {}, {}", count(policy.moves), count(policy.crossings))
}

fn uneven(policy: &PolicyFigures) -> String {
    Spread::or_unended(policy.uneven, |uneven| uneven.text(2))
}

fn busy(policy: &PolicyFigures) -> String {
    Spread::or_unended(policy.busy, |busy| busy.text(1))
}
