//! Tables as text and JSON.

use super::kinds::KindShare;
use super::picture::picture;
use super::watch::{Line, Table};
use crate::output::{self, Redraw};
use colocate_machine::{Nanos, printable};
use std::fmt::Write;

/// Columns and their widths; a negative one is of text, which begins at the left.
const COLUMNS: [(&str, isize); 9] = [
    ("time, s", 8),
    ("PID", 8),
    ("threads", 7),
    ("runnable", 8),
    ("spinning", 8),
    ("phase", -8),
    ("CPU, %", 7),
    ("CPU, s", 9),
    ("last 2 s", -20),
];
/// The picture shows so much time, a character for each poll of the default length.
const PICTURED: Nanos = Nanos::from_secs(2);
/// Lines of a terminal beside those of rows: the heading, how many are left out, one that stays free.
const OTHER_LINES: usize = 3;
/// Most PUs that are named in a line.
const MOST_PUS: usize = 4;

/// Where tables as text go: a terminal, on which each takes the place of the one before, or lines below each other.
pub struct Screen {
    terminal: Option<Redraw>,
    most: Option<usize>,
    /// Whether the heading was written.
    is_headed: bool,
}

impl Screen {
    /// Of standard output; with at most so many rows, if given.
    pub fn new(most: Option<usize>) -> anyhow::Result<Self> {
        Ok(Self { terminal: Redraw::of_stdout()?, most, is_headed: false })
    }

    /// Shows a table. False if its reader has ended.
    pub fn show(&mut self, table: &Table<'_>) -> anyhow::Result<bool> {
        let Some(terminal) = &mut self.terminal else {
            let head = if self.is_headed { String::new() } else { head() };
            self.is_headed = true;
            return output::print(&(head + &body(table, self.most.unwrap_or(super::ROWS))));
        };
        let fits = terminal.size().lines.saturating_sub(OTHER_LINES).max(1);
        terminal.draw(&(head() + &body(table, self.most.unwrap_or(fits).min(fits))))?;
        Ok(true)
    }

    /// Says a line on standard error.
    pub fn remark(&mut self, line: &str) {
        match &mut self.terminal {
            Some(terminal) => terminal.remark(line),
            None => output::remark(line),
        }
    }
}

fn head() -> String {
    let cells = COLUMNS.map(|(name, _)| name.to_owned());
    row(&cells, "on PU", "command")
}

fn row(cells: &[String; COLUMNS.len()], places: &str, name: &str) -> String {
    let mut text = String::new();
    for (cell, (_, width)) in cells.iter().zip(COLUMNS) {
        let size = width.unsigned_abs();
        let _ = if width < 0 {
            write!(text, "{cell:size$}  ")
        } else {
            write!(text, "{cell:>size$}  ")
        };
    }
    let _ = write!(text, "{places:9}  {name}");
    text.trim_end().to_owned() + "\n"
}

/// The lines of a table, and how many are left out.
fn body(table: &Table<'_>, most: usize) -> String {
    let line = |line: &Line<'_>| {
        let seconds = |time: Nanos| format!("{:.2}", time.as_secs_f64());
        let phase = line.timeline.now.map_or("?", |(phase, _)| phase.name());
        let cells = [
            seconds(table.at),
            line.pid.to_string(),
            line.threads.to_string(),
            number(line.runnable.get()),
            number(line.spinning.get()),
            phase.to_owned(),
            format!("{:.1}", percent(line.ran, table.took)),
            seconds(line.cpu_time),
            picture(line.timeline, table.at, PICTURED),
        ];
        let name = printable(line.name);
        let more = line.processes.saturating_sub(1);
        let name = if more == 0 { name } else { format!("{name} and {more} more").into() };
        row(&cells, &on_pus(line), &name)
    };
    let mut text: String = table.rows.iter().take(most).map(line).collect();
    if table.rows.len() > most {
        let _ = writeln!(text, "and {} more", table.rows.len() - most);
    }
    text
}

/// A number of threads.
fn number(of: Option<f64>) -> String {
    of.map_or_else(|| "?".to_owned(), |of| format!("{of:.2}"))
}

/// Percent of one PU.
fn percent(ran: Nanos, took: Nanos) -> f64 {
    let share = ran.as_secs_f64() / took.as_secs_f64();
    if share.is_finite() { 100.0 * share } else { 0.0 }
}

/// Where a row ran: kinds of cores with their shares, then PUs.
fn on_pus(line: &Line<'_>) -> String {
    let kind = |of: &KindShare<'_>| format!("{} {:.0} %", of.kind, of.share * 100.0);
    let kinds: Vec<String> = line.kinds.iter().map(kind).collect();
    let shown = line.pus.iter().take(MOST_PUS).map(|pu| pu.0.to_string());
    let more = (line.pus.len() > MOST_PUS).then(|| "…".to_owned());
    let pus = shown.chain(more).collect::<Vec<_>>().join(" ");
    if kinds.is_empty() { pus } else { format!("{} ({pus})", kinds.join(", ")) }
}
