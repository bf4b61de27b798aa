//! Curves of many programs in one table and one picture: `bandwidth FILE TABLE.md PICTURE.svg`.
//!
//! FILE is what `scripts/bandwidth-curves measure` wrote: a line of JSON on the machine, then one for each
//! program with the report of `colocate-study bench bandwidth --json`. Nothing is measured here.

use anyhow::{Context, bail};
use colocate_figures::stats::Estimate;
use colocate_study::curve::{Curves, svg};
use colocate_study::traffic::{self, Condition, TrafficPoint, line};
use serde::Deserialize;
use std::fmt::Write;

/// The first line.
#[derive(Deserialize)]
struct Head {
    version: u32,
    command: String,
    processor: String,
    system: String,
    date: String,
    load: String,
}

/// A program's line.
#[derive(Deserialize)]
struct Program {
    program: String,
    report: Report,
}

/// Used part of docs/schemas/bench-bandwidth.json.
#[derive(Deserialize)]
struct Report {
    level: String,
    alone_cpu_s: Option<Estimate>,
    points: Vec<TrafficPoint>,
    loss: Option<Estimate>,
    least_share_of_pu: Option<f64>,
}

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, table, picture] = &words[..] else {
        bail!("usage: bandwidth FILE TABLE.md PICTURE.svg");
    };
    let text = std::fs::read_to_string(file).with_context(|| file.clone())?;
    let (head, programs) = read(&text).with_context(|| file.clone())?;
    std::fs::write(table, markdown(&head, &programs)).with_context(|| table.clone())?;
    let drawn = svg(&[curves(&programs)]).map_err(anyhow::Error::msg)?;
    std::fs::write(picture, drawn).with_context(|| picture.clone())
}

fn read(text: &str) -> anyhow::Result<(Head, Vec<Program>)> {
    let mut lines = text.lines();
    let head = lines.next().context("expected a line on the machine, found none")?;
    let head: Head =
        serde_json::from_str(head).context("line 1: expected a line on the machine")?;
    if head.version != 1 {
        bail!("line 1: expected version 1, found {}", head.version);
    }
    let programs = lines.enumerate().map(|(number, line)| {
        serde_json::from_str(line)
            .with_context(|| format!("line {}: expected a program", number + 2))
    });
    let programs: Vec<Program> = programs.collect::<anyhow::Result<_>>()?;
    let Some(first) = programs.first() else { bail!("expected a program, found none") };
    let alike = |other: &Program| {
        other.report.level == first.report.level
            && other.report.points.iter().map(|p| &p.beside).eq(first
                .report
                .points
                .iter()
                .map(|p| &p.beside))
    };
    match programs.iter().find(|other| !alike(other)) {
        Some(other) => {
            bail!("expected one curve for all programs, found others for {}", other.program)
        }
        None => Ok((head, programs)),
    }
}

fn markdown(head: &Head, programs: &[Program]) -> String {
    let mut text = format!(
        "{}, {}; {}; load {}. `{}`\n\n",
        head.processor, head.system, head.date, head.load, head.command
    );
    let _ = write!(text, "| program | alone, s |");
    let points = &programs[0].report.points;
    for Condition { rate, copies } in points.iter().map(|point| &point.beside) {
        let _ = write!(text, " {copies} × {rate} t/µs |");
    }
    text += " loss by 10 t/µs | copies' least share of a PU |\n|---|---|";
    text += &"---|".repeat(points.len() + 2);
    text += "\n";
    for program in programs {
        text += &row(program);
    }
    text
}

fn row(program: &Program) -> String {
    let report = &program.report;
    let alone = report.alone_cpu_s.map_or("-".to_owned(), |alone| format!("{:.2}", alone.value));
    let mut text = format!("| {} | {alone} |", program.program);
    for point in &report.points {
        let time = percent(point.time, 100.0, 1);
        let reached = point.reached.map_or("?".to_owned(), |found| format!("{:.0}", found.value));
        let _ = write!(text, " {time}, reached {reached} |");
    }
    let share = report.least_share_of_pu.map_or("-".to_owned(), |s| format!("{:.0} %", s * 100.0));
    let _ = writeln!(text, " {} | {share} |", percent(report.loss, 1000.0, 2));
    text
}

/// `VALUE % (LOW to HIGH)`.
fn percent(found: Option<Estimate>, scale: f64, digits: usize) -> String {
    let Some(found) = found else { return "-".to_owned() };
    let value = format!("{:.digits$} %", found.value * scale);
    found.interval.map_or_else(
        || value.clone(),
        |within| {
            format!("{value} ({:.digits$} to {:.digits$})", within.low * scale, within.high * scale)
        },
    )
}

fn curves(programs: &[Program]) -> Curves {
    let series = programs.iter().map(|it| line(it.program.clone(), it.report.points.iter()));
    let to = if programs[0].report.level == "l2" { "the second cache" } else { "main memory" };
    traffic::curves(format!("Programs beside traffic to {to}"), series.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"version":1,"command":"c","processor":"p","system":"s","date":"d","load":"0.1 before"}"#;

    fn program(name: &str, rate: f64) -> String {
        format!(
            r#"{{"program":"{name}","report":{{"level":"memory","alone_cpu_s":{{"value":2.0,"interval":null}},
            "points":[{{"beside":{{"rate":{rate},"copies":1}},"reached":{{"value":49.0,"interval":null}},
            "time":{{"value":1.25,"interval":{{"low":1.2,"high":1.3}}}}}}],
            "loss":{{"value":0.004,"interval":{{"low":0.003,"high":0.005}}}},"least_share_of_pu":0.98}}}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn a_row_by_hand() {
        let (head, programs) = read(&format!("{HEAD}\n{}\n", program("gzip", 50.0))).unwrap();
        let expected = "p, s; d; load 0.1 before. `c`\n\n\
            | program | alone, s | 1 × 50 t/µs | loss by 10 t/µs | copies' least share of a PU |\n\
            |---|---|---|---|---|\n\
            | gzip | 2.00 | 125.0 % (120.0 to 130.0), reached 49 | 4.00 % (3.00 to 5.00) | 98 % |\n";
        assert_eq!(markdown(&head, &programs), expected);
        let drawn = svg(&[curves(&programs)]).unwrap();
        assert!(drawn.contains("gzip") && drawn.contains("main memory"));
    }

    #[test]
    fn what_is_no_such_file_is_said() {
        let told = |text: &str| format!("{:#}", read(text).err().unwrap());
        assert_eq!(told(""), "expected a line on the machine, found none");
        assert!(told("{}").starts_with("line 1: expected a line on the machine: missing field"));
        assert_eq!(told(&HEAD.replace(":1,", ":2,")), "line 1: expected version 1, found 2");
        assert_eq!(told(HEAD), "expected a program, found none");
        assert!(told(&format!("{HEAD}\nx")).starts_with("line 2: expected a program: "));
        let two = format!("{HEAD}\n{}\n{}", program("a", 10.0), program("b", 50.0));
        assert_eq!(told(&two), "expected one curve for all programs, found others for b");
    }
}
