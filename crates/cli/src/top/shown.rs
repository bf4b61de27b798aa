//! Tables as text and JSON.

use super::picture::picture;
use super::watch::{TopRow, TopTable};
use crate::columns::{few, seconds, unknown};
use crate::output::{self, Redraw};
use colocate_machine::{Nanos, printable};
use std::fmt::Write;

/// Columns and their widths; a negative width is that of left-aligned text.
const COLUMNS: [(&str, isize); 10] = [
    ("time, s", 8),
    ("PID", 8),
    ("threads", 7),
    ("runnable", 8),
    ("spinning", 8),
    ("phase", -8),
    ("CPU, %", 7),
    ("CPU, s", 9),
    ("last 2 s", -20),
    ("on PU", -9),
];
/// Blanks between two columns.
const GAP: usize = 2;
/// Columns that a narrow terminal leaves out, in this order, until a command has [`COMMAND`].
const LEFT_OUT: [&str; 4] = ["last 2 s", "spinning", "CPU, s", "runnable"];
/// Characters for a command on a narrow terminal: the length of `comm` and some more.
const COMMAND: usize = 20;
/// Time covered by the picture: a character for each poll of the default interval.
const PICTURED: Nanos = Nanos::from_secs(2);
/// Lines of a terminal beside the rows: the heading, the number of rows left out, a free line.
const OTHER_LINES: usize = 3;

/// A terminal, with each table in place of the previous, or lines below each other.
pub struct Screen {
    terminal: Option<Redraw>,
    most: Option<usize>,
    /// Whether the heading was written.
    is_headed: bool,
}

impl Screen {
    /// Standard output as a screen, with at most `most` rows, if given.
    pub fn new(most: Option<usize>) -> anyhow::Result<Self> {
        Ok(Self { terminal: Redraw::of_stdout()?, most, is_headed: false })
    }

    /// Shows a table. Returns false if the reader has gone away.
    pub fn show(&mut self, table: &TopTable<'_>) -> anyhow::Result<bool> {
        let Some(terminal) = &mut self.terminal else {
            let shown = Shown::default();
            let head = if self.is_headed { String::new() } else { shown.head() };
            self.is_headed = true;
            return output::print(&(head + &shown.body(table, self.most.unwrap_or(super::ROWS))));
        };
        let size = terminal.size();
        let shown = Shown::within(size.columns);
        // A terminal of few lines still shows a row.
        let fits = size.lines.saturating_sub(OTHER_LINES).max(1);
        terminal.draw(&(shown.head() + &shown.body(table, self.most.unwrap_or(fits).min(fits))))?;
        Ok(true)
    }

    /// Writes a line to standard error.
    pub fn remark(&mut self, line: &str) {
        match &mut self.terminal {
            Some(terminal) => terminal.remark(line),
            None => output::remark(line),
        }
    }
}

/// The columns in use; the command follows them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shown {
    left_out: &'static [&'static str],
}

impl Shown {
    /// The columns for which a line of `characters` has room.
    fn within(characters: usize) -> Self {
        let mut some = (0..LEFT_OUT.len()).map(|count| Self { left_out: &LEFT_OUT[..count] });
        some.find(|it: &Self| it.width() + COMMAND <= characters)
            .unwrap_or(Self { left_out: &LEFT_OUT })
    }

    fn has(&self, name: &str) -> bool {
        !self.left_out.contains(&name)
    }

    /// Characters before the command.
    fn width(&self) -> usize {
        let shown = COLUMNS.iter().filter(|(name, _)| self.has(name));
        shown.map(|(_, width)| width.unsigned_abs() + GAP).sum()
    }

    fn head(&self) -> String {
        self.row(&COLUMNS.map(|(name, _)| name.to_owned()), "command")
    }

    fn row(&self, cells: &[String; COLUMNS.len()], command: &str) -> String {
        let mut text = String::new();
        for (cell, (name, width)) in cells.iter().zip(COLUMNS) {
            let size = width.unsigned_abs();
            let _ = match width < 0 {
                _ if !self.has(name) => Ok(()),
                true => write!(text, "{cell:size$}  "),
                false => write!(text, "{cell:>size$}  "),
            };
        }
        text.push_str(command);
        text.trim_end().to_owned() + "\n"
    }

    /// The rows of a table, and the number of rows left out.
    fn body(&self, table: &TopTable<'_>, most: usize) -> String {
        let mut text: String =
            table.rows.iter().take(most).map(|line| self.line(table, line)).collect();
        if table.rows.is_empty() {
            text.push_str("no process to show\n");
        }
        if table.rows.len() > most {
            let _ = writeln!(text, "and {} more", table.rows.len() - most);
        }
        text
    }

    fn line(&self, table: &TopTable<'_>, line: &TopRow<'_>) -> String {
        let phase = line.timeline.now.map_or("?", |(phase, _)| phase.name());
        let cells = [
            seconds(Some(table.at)),
            line.pid.to_string(),
            line.threads.to_string(),
            number(line.runnable.get()),
            number(line.spinning.get()),
            phase.to_owned(),
            format!("{:.1}", percent(line.ran, table.took)),
            seconds(Some(line.cpu_time)),
            picture(line.timeline, table.at, PICTURED),
            on_pus(line),
        ];
        let name = printable(line.name);
        let more = line.processes.saturating_sub(1);
        let name = if more == 0 { name } else { format!("{name} and {more} more").into() };
        self.row(&cells, &name)
    }
}

/// A number of threads as text.
fn number(of: Option<f64>) -> String {
    of.map_or_else(unknown, |of| format!("{of:.2}"))
}

/// CPU time in percent of a PU.
fn percent(ran: Nanos, took: Nanos) -> f64 {
    let share = ran.as_secs_f64() / took.as_secs_f64();
    // Two tables at the same time divide by 0.
    if share.is_finite() { 100.0 * share } else { 0.0 }
}

/// PUs of a row: kinds of cores with their shares, then PU numbers.
fn on_pus(line: &TopRow<'_>) -> String {
    let kinds = line.kinds.iter().map(|of| format!("{} {:.0} %", of.kind, of.share * 100.0));
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    let pus = few(&line.pus);
    if kinds.is_empty() { pus } else { format!("{kinds} ({pus})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All columns take 8 + 8 + 7 + 8 + 8 + 8 + 7 + 9 + 20 + 9 characters and 2 behind each: 112.
    #[test]
    fn a_narrow_terminal_has_the_command() {
        assert_eq!(Shown::within(132), Shown::default());
        assert_eq!(Shown::within(132).width(), 112);
        assert_eq!(Shown::within(131).left_out, ["last 2 s"]);
        for characters in [80, 100] {
            let shown = Shown::within(characters);
            assert!(
                shown.head().trim_end().ends_with("command") && shown.width() + 20 <= characters
            );
        }
        assert_eq!(
            Shown::within(80).head(),
            " time, s       PID  threads  phase      CPU, %  on PU      command\n"
        );
        assert_eq!(Shown::within(1), Shown { left_out: &LEFT_OUT });
    }
}
