//! Tables as text and JSON.

use super::picture::picture;
use super::watch::{Line, Table};
use crate::output::{self, Redraw};
use colocate_machine::printable::{self, printable};
use colocate_machine::{Machine, Nanos, PuNr};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Version of the JSON that is printed.
const VERSION: u32 = 1;
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

/// Which kind of core each PU is on, where kinds differ.
pub struct Places(BTreeMap<PuNr, String>);

impl Places {
    /// Those of a machine, if it is known.
    pub fn of(machine: Option<&Machine>) -> Self {
        let kinds = |machine: &Machine| -> BTreeMap<PuNr, String> {
            let kind = |pu: &colocate_machine::Pu| {
                let kind = machine.cores[pu.core.idx()].kind;
                (pu.os, machine.kinds[kind.idx()].name.clone())
            };
            machine.pus.iter().map(kind).collect()
        };
        let differ = machine.filter(|machine| machine.kinds.len() > 1);
        Self(differ.map(kinds).unwrap_or_default())
    }

    /// The share of CPU time on each kind of core, most first; none where all are alike or nothing ran.
    fn kinds(&self, line: &Line<'_>) -> Vec<(&str, f64)> {
        let mut ran: BTreeMap<&str, Nanos> = BTreeMap::new();
        for (pu, time) in &line.places {
            if let Some(kind) = self.0.get(pu) {
                *ran.entry(kind).or_default() += *time;
            }
        }
        let sum = ran.values().fold(Nanos::ZERO, |sum, time| sum + *time).as_secs_f64();
        let known = ran.into_iter().filter(|_| sum > 0.0);
        let mut shares: Vec<(&str, f64)> =
            known.map(|(kind, time)| (kind, time.as_secs_f64() / sum)).collect();
        shares.sort_by(|one, other| other.1.total_cmp(&one.1));
        shares
    }

    /// Where a row ran, as text: kinds of cores with their shares, then PUs.
    fn text(&self, line: &Line<'_>) -> String {
        let kind = |(kind, share): &(&str, f64)| format!("{kind} {:.0} %", share * 100.0);
        let kinds: Vec<String> = self.kinds(line).iter().map(kind).collect();
        let pus: Vec<String> = pus(line).iter().take(MOST_PUS).map(|pu| pu.0.to_string()).collect();
        let more = if pus.len() < line.places.len().min(MOST_PUS + 1) { " …" } else { "" };
        let pus = pus.join(" ") + more;
        if kinds.is_empty() { pus } else { format!("{} ({pus})", kinds.join(", ")) }
    }
}

/// The PUs where a row's threads were seen that ran, by time, most first.
fn pus(line: &Line<'_>) -> Vec<PuNr> {
    let mut pus: Vec<(PuNr, Nanos)> = line.places.iter().map(|(pu, ran)| (*pu, *ran)).collect();
    pus.retain(|(_, ran)| *ran > Nanos::ZERO);
    pus.sort_by_key(|(pu, ran)| (std::cmp::Reverse(*ran), *pu));
    pus.into_iter().map(|(pu, _)| pu).collect()
}

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
    pub fn show(&mut self, table: &Table<'_>, places: &Places) -> anyhow::Result<bool> {
        let Some(terminal) = &mut self.terminal else {
            let head = if self.is_headed { String::new() } else { head() };
            self.is_headed = true;
            return output::print(&(head + &body(table, places, self.most.unwrap_or(super::ROWS))));
        };
        let fits = terminal.size().lines.saturating_sub(OTHER_LINES).max(1);
        terminal.draw(&(head() + &body(table, places, self.most.unwrap_or(fits).min(fits))))?;
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
fn body(table: &Table<'_>, places: &Places, most: usize) -> String {
    let line = |line: &Line<'_>| {
        let seconds = |time: Nanos| format!("{:.2}", time.as_secs_f64());
        let phase = line.timeline.now.map_or("?", |(phase, _)| phase.name());
        let cells = [
            seconds(table.at),
            line.pid.to_string(),
            line.threads.to_string(),
            number(line.runnable),
            number(line.spinning),
            phase.to_owned(),
            format!("{:.1}", percent(line.ran, table.took)),
            seconds(line.cpu_time),
            picture(line.timeline, table.at, PICTURED),
        ];
        let name = printable(line.name);
        let more = line.processes.saturating_sub(1);
        let name = if more == 0 { name } else { format!("{name} and {more} more").into() };
        row(&cells, &places.text(line), &name)
    };
    let mut text: String = table.lines.iter().take(most).map(line).collect();
    if table.lines.len() > most {
        let _ = writeln!(text, "and {} more", table.lines.len() - most);
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

#[derive(Serialize)]
struct TableReport<'a> {
    version: u32,
    at_ns: Nanos,
    took_ns: Nanos,
    rows: Vec<RowReport<'a>>,
    gone: Vec<i32>,
}

#[derive(Serialize)]
struct RowReport<'a> {
    pid: i32,
    name: &'a str,
    user: u32,
    processes: usize,
    threads: u64,
    /// Means over the interval; `None` if unknown.
    runnable: Option<f64>,
    spinning: Option<f64>,
    /// At the last look.
    phase: Option<&'static str>,
    /// When that phase began, since watching began.
    since_ns: Option<Nanos>,
    /// CPU time in the interval, and since the processes were created.
    ran_ns: Nanos,
    cpu_ns: Nanos,
    /// PUs where threads were seen that ran, most time first.
    pus: Vec<u32>,
    /// Shares of CPU time by kind of core; none where all are alike.
    kinds: Vec<KindReport<'a>>,
    /// For how long each phase was seen since watching began.
    serial_ns: Nanos,
    parallel_ns: Nanos,
    asleep_ns: Nanos,
}

#[derive(Serialize)]
struct KindReport<'a> {
    kind: &'a str,
    share: f64,
}

/// A table as a line of JSON.
pub fn json(table: &Table<'_>, places: &Places) -> String {
    let report = TableReport {
        version: VERSION,
        at_ns: table.at,
        took_ns: table.took,
        rows: table.lines.iter().map(|line| RowReport::of(line, places)).collect(),
        gone: table.gone.iter().map(|pid| pid.0).collect(),
    };
    printable::json_line(&report)
}

impl<'a> RowReport<'a> {
    fn of(line: &'a Line<'_>, places: &'a Places) -> Self {
        let phase = line.timeline.now.map(|(phase, _)| phase);
        let last = line.timeline.backwards().next().filter(|last| Some(last.phase) == phase);
        let [serial_ns, parallel_ns, asleep_ns] = line.timeline.spent;
        let kind = |(kind, share)| KindReport { kind, share };
        Self {
            pid: line.pid.0,
            name: line.name,
            user: line.user,
            processes: line.processes,
            threads: line.threads,
            runnable: line.runnable,
            spinning: line.spinning,
            phase: phase.map(|phase| phase.name()),
            since_ns: last.map(|last| last.from),
            ran_ns: line.ran,
            cpu_ns: line.cpu_time,
            pus: pus(line).iter().map(|pu| pu.0).collect(),
            kinds: places.kinds(line).into_iter().map(kind).collect(),
            serial_ns,
            parallel_ns,
            asleep_ns,
        }
    }
}
