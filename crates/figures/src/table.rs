//! A comparison as text for a terminal.

use crate::comparison::{Comparison, ComparisonVerdict, PolicyFigures};
use crate::state::StudySettings;
use crate::stats::{Estimate, Interval, Summary};
use colocate_machine::printable::{CELL, cell, printable};
use std::borrow::Cow;
use std::fmt::Write;

/// Formats the comparison: table, legend and notes. Ends in a newline.
#[must_use]
pub fn text(found: &Comparison) -> String {
    let settings = &found.settings;
    let mut out = String::new();
    let jobs = settings.jobs.len();
    let StudySettings { name, repetitions, seed, .. } = settings;
    let name = printable(name);
    let plural = if jobs == 1 { "" } else { "s" };
    let _ = writeln!(
        out,
        "workload {name}: {jobs} program{plural} together, up to {repetitions} runs a policy, \
         blocks in random order, seed {seed}"
    );
    if settings.scores.is_empty() {
        let slowest =
            aligned(&rows(found, |of| (of.slowest_seconds, of.ratio, of.verdict, verdict(of))));
        let _ = write!(out, "\nslowest program's time, seconds\n{slowest}");
        if jobs > 1 {
            let each = aligned(&job_rows(found));
            let _ = write!(out, "\neach program's time, mean seconds (95 % interval)\n{each}");
        }
    }
    for (place, score) in settings.scores.iter().enumerate() {
        let _ = writeln!(out, "\n{}", printable(&score.name));
        out.push_str(&aligned(&rows(found, |figures| {
            let of = &figures.scores[place];
            (of.values, of.ratio, of.verdict, plain_verdict(of.verdict).to_owned())
        })));
    }
    let base = printable(&settings.baseline);
    let what = if settings.scores.is_empty() { "time" } else { "value" };
    let _ = writeln!(
        out,
        "\nratio: geometric mean over the blocks of the {what} divided by {base}'s in the same block; \
         interval: 95 %,\nStudent t on the ratios' logarithms. `not resolved`: the interval holds 1, \
         or there is none."
    );
    for note in &found.notes {
        let _ = writeln!(out, "note: {}", printable(note));
    }
    out
}

/// Verdict on a policy, in words.
#[must_use]
pub fn verdict(figures: &PolicyFigures) -> String {
    let percent = figures.ratio.map_or(0.0, |ratio| (ratio.value - 1.0).abs() * 100.0);
    match figures.verdict {
        ComparisonVerdict::Faster => format!("{percent:.1} % less time"),
        ComparisonVerdict::Slower => format!("{percent:.1} % more time"),
        other => plain_verdict(other).to_owned(),
    }
}

fn plain_verdict(verdict: ComparisonVerdict) -> &'static str {
    match verdict {
        ComparisonVerdict::Baseline => "baseline",
        ComparisonVerdict::Faster | ComparisonVerdict::Better => "better",
        ComparisonVerdict::Slower | ComparisonVerdict::Worse => "worse",
        ComparisonVerdict::NotResolved => "not resolved",
    }
}

/// Formats seconds with four significant digits, or more from 10,000 s on.
#[must_use]
pub fn seconds(value: f64) -> String {
    // The first digit of 0.001234 is the third decimal: three more make four.
    let decimals = match value.abs() {
        v if v >= 1_000.0 || v == 0.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        v if v >= 1.0 => 3,
        v if v >= 0.1 => 4,
        v if v >= 0.01 => 5,
        _ => 6,
    };
    format!("{value:.decimals$}")
}

/// Values of a row, their ratio to the baseline, and the verdict, also in words.
type RatioCell = (Option<Summary>, Option<Estimate>, ComparisonVerdict, String);

fn rows(found: &Comparison, column: impl Fn(&PolicyFigures) -> RatioCell) -> Vec<Vec<String>> {
    let ratio_head = format!("ratio to {}", found.settings.baseline);
    let head =
        ["policy", "runs", "mean", "95 % interval", "median", &ratio_head, "95 % interval", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for figures in &found.policies {
        let (values, ratio, verdict, in_words) = column(figures);
        let is_baseline = verdict == ComparisonVerdict::Baseline;
        let relative = ratio.map_or_else(unknown, |ratio| three_decimals(ratio.value));
        rows.push(vec![
            figures.policy.clone(),
            values.map_or(0, |s| s.count).to_string(),
            values.map_or_else(unknown, |s| seconds(s.mean.value)),
            range(values.and_then(|s| s.mean.interval), seconds),
            values.map_or_else(unknown, |s| seconds(s.median)),
            if is_baseline { "1".to_owned() } else { relative },
            range(ratio.and_then(|ratio| ratio.interval), three_decimals),
            in_words,
        ]);
    }
    rows
}

fn job_rows(found: &Comparison) -> Vec<Vec<String>> {
    let mut rows = vec![row("program", found.policies.iter().map(|it| it.policy.clone()))];
    for (place, job) in found.settings.jobs.iter().enumerate() {
        let cells = found.policies.iter().map(|figures| job_cell(figures.jobs[place].seconds));
        rows.push(row(&shortened(&job.command.join(" ")), cells));
    }
    rows
}

fn job_cell(summary: Option<Summary>) -> String {
    let Some(summary) = summary else { return unknown() };
    let Estimate { value, interval } = summary.mean;
    match interval {
        Some(_) => format!("{} ({})", seconds(value), range(interval, seconds)),
        None => seconds(value),
    }
}

/// Formats an interval as `LOW .. HIGH`, each end by `form`.
#[must_use]
pub fn range(interval: Option<Interval>, form: impl Fn(f64) -> String) -> String {
    interval.map_or_else(unknown, |i| format!("{} .. {}", form(i.low), form(i.high)))
}

/// Formats a number with three decimals.
#[must_use]
pub fn three_decimals(value: f64) -> String {
    format!("{value:.3}")
}

/// Cell of an unknown value.
#[must_use]
pub fn unknown() -> String {
    "-".to_owned()
}

/// Cuts a command to at most 40 characters; a cut command ends in `…`.
fn shortened(command: &str) -> String {
    let command = printable(command);
    if command.chars().count() <= 40 {
        return command.into_owned();
    }
    command.chars().take(39).chain(['…']).collect()
}

/// A row: a label, then cells.
pub fn row(label: &str, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    [label.to_owned()].into_iter().chain(cells).collect()
}

/// Formats a square matrix; `cell` gets the indices of its row and column in `names`.
#[must_use]
pub fn matrix(names: &[String], cell: impl Fn(usize, usize) -> String) -> String {
    let mut rows = vec![row("", names.iter().cloned())];
    for (a, name) in names.iter().enumerate() {
        rows.push(row(name, (0..names.len()).map(|b| cell(a, b))));
    }
    aligned(&rows)
}

/// Formats rows in columns of equal width, two spaces apart, without trailing spaces. Control
/// characters are escaped. A long cell is cut, except in the last column.
#[must_use]
pub fn aligned(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> = rows.iter().map(|row| cells(row)).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(|column| width(&rows, column)).collect();
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        // The last cell is not padded, so that it may be long. An empty row is an empty line.
        let (last, before) = row.split_last().map_or(("", &[][..]), |(last, rest)| (&**last, rest));
        for (cell, width) in before.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        line.push_str(last);
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Width of a column in characters, at most [`CELL`].
fn width(rows: &[Vec<Cow<'_, str>>], column: usize) -> usize {
    let cells = rows.iter().filter_map(|row| row.get(column));
    cells.map(|cell| cell.chars().count().min(CELL)).max().unwrap_or(0)
}

/// Printable cells of a row, cut to [`CELL`]; the last cell is not cut.
fn cells(row: &[String]) -> Vec<Cow<'_, str>> {
    let Some((last, before)) = row.split_last() else { return Vec::new() };
    before.iter().map(|text| cell(text)).chain([printable(last)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rust pads to at most 65,535 characters, and panics beyond.
    #[test]
    fn long_cells_are_cut() {
        let long = "é".repeat(70_000);
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let rows = [row(["name", "PU"]), row([&long, "1"]), row(["a", &long]), vec![long.clone()]];
        let text = aligned(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], format!("{}…  1", "é".repeat(239)));
        assert_eq!(lines[2].chars().count(), 240 + 2 + 70_000, "nothing follows the last one");
    }
    use crate::comparison::tests::place;
    use crate::state::StudyState;
    use crate::state::tests::{finished, settings};
    use expect_test::expect;

    #[test]
    fn three_policies() {
        let state = finished(settings(&["os", "mix", "scatter"], 4), |policy, block| {
            let drift = u64::from(block) * 10;
            match policy {
                "os" => 4_000 + drift,
                "mix" => 3_000 + drift * (u64::from(block) % 2 + 1),
                _ => 3_900 + u64::from(block) * 120,
            }
        });
        expect![[r#"
            workload pair: 2 programs together, up to 4 runs a policy, blocks in random order, seed 3

            slowest program's time, seconds
            policy   runs  mean   95 % interval   median  ratio to os  95 % interval
            os       4     4.015  3.994 .. 4.036  4.015   1            -               baseline
            mix      4     3.025  2.985 .. 3.065  3.020   0.753        0.747 .. 0.760  24.7 % less time
            scatter  4     4.080  3.833 .. 4.327  4.080   1.016        0.961 .. 1.073  not resolved

            each program's time, mean seconds (95 % interval)
            program   os                      mix                     scatter
            a --fast  4.015 (3.994 .. 4.036)  3.025 (2.985 .. 3.065)  4.080 (3.833 .. 4.327)
            b --fast  2.007 (1.997 .. 2.018)  1.512 (1.492 .. 1.533)  2.040 (1.917 .. 2.163)

            ratio: geometric mean over the blocks of the time divided by os's in the same block; interval: 95 %,
            Student t on the ratios' logarithms. `not resolved`: the interval holds 1, or there is none.
        "#]]
        .assert_eq(&text(&Comparison::of(&state, place())));
    }

    #[test]
    fn nothing_finished_shows_no_number() {
        let state = StudyState::new(settings(&["os", "mix"], 2));
        expect![[r"
            workload pair: 2 programs together, up to 2 runs a policy, blocks in random order, seed 3

            slowest program's time, seconds
            policy  runs  mean  95 % interval  median  ratio to os  95 % interval
            os      0     -     -              -       1            -              baseline
            mix     0     -     -              -       -            -              not resolved

            each program's time, mean seconds (95 % interval)
            program   os  mix
            a --fast  -   -
            b --fast  -   -

            ratio: geometric mean over the blocks of the time divided by os's in the same block; interval: 95 %,
            Student t on the ratios' logarithms. `not resolved`: the interval holds 1, or there is none.
            note: only 0 of 4 runs are finished
        "]]
        .assert_eq(&text(&Comparison::of(&state, place())));
    }

    #[test]
    fn seconds_keep_four_digits() {
        let shown = [12_345.6, 123.45, 12.345, 1.234_5, 0.123_45, 0.012_345, 0.0012, 0.0];
        let shown = shown.map(seconds).join(" ");
        expect!["12346 123.5 12.35 1.234 0.1235 0.01235 0.001200 0"].assert_eq(&shown);
    }

    #[test]
    fn long_commands_are_cut_between_characters() {
        assert_eq!(shortened("äß"), "äß");
        assert_eq!(shortened("sh -c a\nb"), r"sh -c a\x0ab");
        assert_eq!(shortened(&"ä".repeat(41)), format!("{}…", "ä".repeat(39)));
    }
}
