//! Misses by a cache's size, as `emulate` counts them, beside caches that cachegrind simulates.
//!
//! `miss_curves FILE NAME COMMAND … [::: NAME COMMAND …]…` writes two tables in Markdown to FILE.
//! `scripts/miss-curves` says which programs.
//!
//! Every program runs once under QEMU, which gives the curve that a demand vector gets, and once under
//! cachegrind for every pair of [`CACHES`]. Both count misses per instruction; their difference, over
//! cachegrind's references per instruction, is the error in points of miss ratio.
#![allow(clippy::print_stderr)] // says how far it is

use anyhow::{Context, bail, ensure};
use colocate_benches::{emulated, emulator, mean};
use colocate_machine::Bytes;
use colocate_model::phase::typical_misses;
use colocate_model::{MissCounts, MissCurve};
use colocate_observe::emulate::Emulator;
use std::fmt::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

/// First and last cache of a run of cachegrind. The first has 8 ways and the last 16, as most have.
const CACHES: [(Bytes, Bytes); 4] = [
    (Bytes::kib(4), Bytes::kib(128)),
    (Bytes::kib(16), Bytes::kib(512)),
    (Bytes::kib(32), Bytes::mib(2)),
    (Bytes::kib(64), Bytes::mib(8)),
];

/// Measurements of a program by cachegrind.
struct Refereed {
    instructions: f64,
    references: f64,
    /// Misses of reads and writes: the first cache's, the last one's.
    missed: [f64; 2],
    seconds: f64,
}

/// Misses of one program in one cache.
struct Point {
    size: Bytes,
    /// Misses per reference, in points.
    referee: f64,
    ours: f64,
    /// Assumption for a program without counts.
    guess: f64,
}

impl Point {
    fn error(&self) -> f64 {
        (self.ours - self.referee).abs()
    }
}

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, programs @ ..] = &words[..] else {
        bail!("usage: miss_curves FILE NAME COMMAND … [::: NAME COMMAND …]…");
    };
    let emulator = emulator()?;
    let mut rows = Vec::new();
    for program in programs.split(|word| word == ":::") {
        let program: Vec<&str> = program.iter().map(String::as_str).collect();
        let [name, command @ ..] = &program[..] else { bail!("expected a name before a command") };
        ensure!(!command.is_empty(), "expected a command after {name}");
        eprintln!("miss_curves: {name}");
        rows.push(row(&emulator, name, command).with_context(|| (*name).to_owned())?);
        std::fs::write(file, tables(&rows)).with_context(|| file.clone())?;
    }
    Ok(())
}

/// A program: its points, and its seconds native, counted, with misses, and under cachegrind.
struct Row {
    name: String,
    instructions: f64,
    references: f64,
    points: Vec<Point>,
    seconds: [f64; 4],
}

fn row(emulator: &Emulator, name: &str, command: &[&str]) -> anyhow::Result<Row> {
    let (native, ()) = cpu_seconds(|| {
        let mut program = Command::new(command[0]);
        let status =
            program.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).status();
        ensure!(status.context("cannot run it")?.success(), "it failed");
        Ok(())
    })?;
    let (_, plain) = counted(emulator, command, false)?;
    let (curve, with_misses) = counted(emulator, command, true)?;
    let (curve, instructions) = curve.context("nothing was counted")?;
    // What the model takes for a program of unknown misses.
    let guess = typical_misses(1.0);
    let mut points = Vec::new();
    let mut referee_s = 0.0;
    let mut references = 0.0;
    for (first, last) in CACHES {
        let referee = cachegrind(command, first, last)?;
        for (size, missed) in [first, last].into_iter().zip(referee.missed) {
            // Misses per instruction to points of misses per reference.
            let points_of =
                |misses: f64| 100.0 * misses * referee.instructions / referee.references;
            let at = |curve: &MissCurve| points_of(curve.at(size.0 as f64));
            points.push(Point {
                size,
                referee: points_of(missed / referee.instructions),
                ours: at(&curve),
                guess: at(&guess),
            });
        }
        referee_s = referee.seconds;
        references = referee.references / referee.instructions;
    }
    points.sort_by_key(|point| point.size);
    let seconds = [native, plain, with_misses, referee_s];
    Ok(Row { name: name.to_owned(), instructions, references, points, seconds })
}

/// Runs `command` under QEMU: the miss curve of its threads and their instructions if misses are
/// counted, and the seconds taken.
fn counted(
    emulator: &Emulator,
    command: &[&str],
    misses: bool,
) -> anyhow::Result<(Option<(MissCurve, f64)>, f64)> {
    let (seconds, ran) = cpu_seconds(|| emulated(emulator, command, misses))?;
    let profile = ran.profile?;
    let instructions = profile.threads.iter().filter_map(|thread| thread.instructions).sum();
    let threads: Vec<&MissCounts> = ran.misses.iter().flatten().collect();
    let curve = MissCounts::together(&threads).and_then(|counts| counts.curve(instructions));
    Ok((curve.map(|curve| (curve, instructions as f64)), seconds))
}

/// Runs `command` under cachegrind with these two caches.
fn cachegrind(command: &[&str], first: Bytes, last: Bytes) -> anyhow::Result<Refereed> {
    let folder = std::env::temp_dir().join(format!("miss-curves-{}", std::process::id()));
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=cachegrind", "--cache-sim=yes", "--I1=1048576,16,64"])
        .arg(format!("--D1={},8,64", first.0))
        .arg(format!("--LL={},16,64", last.0))
        .arg(format!("--cachegrind-out-file={}", folder.display()))
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let (seconds, ()) = cpu_seconds(|| {
        let status = valgrind.status().context("cannot run valgrind; scripts/install bench")?;
        ensure!(status.success(), "it failed under valgrind");
        Ok(())
    })?;
    let text = std::fs::read_to_string(&folder).context("cachegrind left nothing")?;
    std::fs::remove_file(&folder)?;
    let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let names = line("events: ").context("cachegrind's file has no events")?;
    let values = line("summary: ").context("cachegrind's file has no summary")?;
    let value = |event: &str| -> anyhow::Result<f64> {
        let place = names.split_whitespace().position(|name| name == event);
        let word = place.and_then(|place| values.split_whitespace().nth(place));
        Ok(word.with_context(|| format!("cachegrind does not count {event}"))?.parse()?)
    };
    Ok(Refereed {
        instructions: value("Ir")?,
        references: value("Dr")? + value("Dw")?,
        missed: [value("D1mr")? + value("D1mw")?, value("DLmr")? + value("DLmw")?],
        seconds,
    })
}

/// CPU seconds of the children that `run` starts and waits for, and its result; wall seconds where
/// CPU time is unknown.
fn cpu_seconds<T>(run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(f64, T)> {
    let before = children_seconds();
    let began = Instant::now();
    let found = run()?;
    let spent = children_seconds().zip(before).map(|(after, before)| after - before);
    Ok((spent.unwrap_or_else(|| began.elapsed().as_secs_f64()), found))
}

/// User and system time of all reaped children: `/proc/self/stat`, in hundredths of a second
/// (proc(5); the unit is `USER_HZ`, 100 on every supported architecture).
fn children_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut words = text.rsplit_once(')')?.1.split_whitespace().skip(13);
    let mut next = || words.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / 100.0)
}

fn tables(rows: &[Row]) -> String {
    let sizes: Vec<Bytes> = rows
        .first()
        .map(|row| row.points.iter().map(|point| point.size).collect())
        .unwrap_or_default();
    let mut text = String::from("| program | 10⁶ instructions | references each |");
    for size in &sizes {
        let _ = write!(text, " {size} |");
    }
    text += " mean error | with the typical curve | with no misses |\n|---|---|---|";
    text += &"---|".repeat(sizes.len() + 3);
    text.push('\n');
    for row in rows {
        let millions = row.instructions / 1e6;
        let _ = write!(text, "| {} | {millions:.0} | {:.2} |", row.name, row.references);
        for point in &row.points {
            let _ = write!(text, " {:.2} / {:.2} |", point.ours, point.referee);
        }
        text += &errors(row.points.iter());
    }
    let all = rows.iter().flat_map(|row| &row.points);
    let _ = write!(text, "| **all** | | |");
    for size in &sizes {
        let of_size = all.clone().filter(|point| point.size == *size).map(Point::error);
        let _ = write!(text, " {:.2} |", mean(&of_size.collect::<Vec<_>>()));
    }
    text += &errors(all.clone());
    let worst = all.clone().map(Point::error).fold(0.0, f64::max);
    let _ = writeln!(text, "\nLargest error of a single cache: {worst:.2} points.");
    text + &costs(rows)
}

fn errors<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> String {
    let mean = |of: fn(&Point) -> f64| mean(&points.clone().map(of).collect::<Vec<_>>());
    let ours = mean(Point::error);
    let typical = mean(|point| (point.guess - point.referee).abs());
    let nothing = mean(|point| point.referee);
    format!(" {ours:.2} | {typical:.2} | {nothing:.2} |\n")
}

fn costs(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n| program | as it is, s | counted | with misses | one run of cachegrind |\n|---|---|---|---|---|\n",
    );
    // Times are known to a hundredth of a second.
    for Row { name, seconds: [native, counted, misses, referee], .. } in
        rows.iter().filter(|row| row.seconds[0] >= 0.05)
    {
        let times = |seconds: &f64| seconds / native;
        let _ = writeln!(
            text,
            "| {name} | {native:.2} | × {:.1} | × {:.1} | × {:.1} |",
            times(counted),
            times(misses),
            times(referee)
        );
    }
    text
}
