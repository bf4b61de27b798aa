//! Curve of losses as text, as a line for a workload file, and as a picture.

use super::places::RequestedLines;
use super::report::BandwidthReport;
use colocate_cli::measure::harness::SHARED_WITH_OTHERS;
use colocate_figures::state::Quiet;
use colocate_figures::stats::Estimate;
use colocate_study::curve::Curves;
use colocate_study::traffic::{self, TrafficPoint};
use smt_bench::traffic::ROW_BYTES;
use std::fmt::Write;

/// The whole report; `memory` is the program's traffic to main memory alone, t/µs, if it is known.
pub fn text(report: &BandwidthReport, memory: Option<f64>) -> String {
    let mut text = head(report) + &curve(report);
    text += &remarks(report);
    text += &loss(report);
    if let Some(line) = alone_line(report, memory) {
        text += &line;
    }
    text
}

/// Name of the program: the last part of its path, in one line.
pub fn name(report: &BandwidthReport) -> String {
    let program = report.command.first().map_or("", String::as_str);
    program.rsplit('/').next().unwrap_or(program).to_owned()
}

fn asked(level: RequestedLines) -> &'static str {
    match level {
        RequestedLines::Memory => "main memory",
        RequestedLines::L2 => "the second cache",
    }
}

fn head(report: &BandwidthReport) -> String {
    let kib = u64::from(report.rows) * ROW_BYTES as u64 / 1024;
    let pus: Vec<String> = report.copy_pus.iter().map(u32::to_string).collect();
    let mut text = format!(
        "{} on PU {} beside copies that request lines of {}, on PU {}; {kib} KiB each\n",
        name(report),
        report.program_pu,
        asked(report.level),
        pus.join(", "),
    );
    let plural = if report.repeat == 1 { "" } else { "s" };
    let _ = writeln!(
        text,
        "{} repetition{plural}, seed {}; before: {}; after: {}",
        report.repeat,
        report.seed,
        load(report.before),
        load(report.after)
    );
    let seconds = |estimate: Option<Estimate>| {
        estimate.map_or("-".to_owned(), |e| {
            format!("{:.3} s{}", e.value, bracketed(range(e, 1.0, 3, " s")))
        })
    };
    let _ = writeln!(
        text,
        "alone: {} of CPU time, {} from start to end\n",
        seconds(report.alone_cpu_s),
        seconds(report.alone_wall_s)
    );
    text
}

fn load(quiet: Quiet) -> String {
    let others = quiet.others_runnable.map_or("?".to_owned(), |n| n.to_string());
    let load = quiet.load_1min.map_or("?".to_owned(), |load| format!("{load:.2}"));
    format!("{others} others running, load {load}")
}

/// `LOW to HIGH UNIT`; `None` without an interval.
fn range(estimate: Estimate, scale: f64, digits: usize, unit: &str) -> Option<String> {
    let found = estimate.interval?;
    let low = found.low * scale;
    let high = found.high * scale;
    Some(format!("{low:.digits$} to {high:.digits$}{unit}"))
}

/// The range in brackets, to follow a figure; empty without an interval.
fn bracketed(range: Option<String>) -> String {
    range.map_or_else(String::new, |range| format!(" ({range})"))
}

fn curve(report: &BandwidthReport) -> String {
    let mut text = format!(
        "{:>10}{:>8}{:>14}{:>16}{:>24}\n",
        "t/µs each", "copies", "t/µs reached", "time / alone", "95 % interval"
    );
    for point in &report.points {
        text += &row(point);
    }
    text
}

fn row(point: &TrafficPoint) -> String {
    let reached = point.reached.map_or("-".to_owned(), |reached| format!("{:.1}", reached.value));
    let time = point.time.map_or("-".to_owned(), |time| format!("{:.1} %", time.value * 100.0));
    let interval = point.time.and_then(|time| range(time, 100.0, 1, " %"));
    let interval = interval.unwrap_or_else(|| "-".to_owned());
    let rate = point.beside.rate;
    let copies = point.beside.copies;
    format!("{rate:>10}{copies:>8}{reached:>14}{time:>16}{interval:>24}\n")
}

fn remarks(report: &BandwidthReport) -> String {
    let mut text = String::new();
    for rate in report.rates.iter().filter(|rate| rate.too_fast) {
        let _ = writeln!(
            text,
            "{} t/µs are more than a copy can request here: it requests {:.1}",
            rate.wanted, rate.alone
        );
    }
    if let Some(share) = report.least_share_of_pu.filter(|share| *share < SHARED_WITH_OTHERS) {
        let _ = writeln!(
            text,
            "other load had the copies' PUs, down to {:.0} % were left: less was requested than the rates say",
            share * 100.0
        );
    }
    text
}

fn loss(report: &BandwidthReport) -> String {
    let Some(loss) = report.loss else {
        return "\nloss: not known, because no copy could be counted: the program is too short\n"
            .to_owned();
    };
    let none = loss.interval.is_none_or(|interval| interval.contains(0.0));
    let doubt = if none { "; not distinguished from none" } else { "" };
    let of = asked(report.level);
    let shown = bracketed(range(loss, 100.0, 4, " %"));
    format!(
        "\nloss: {:.4} % of its speed for each t/µs of {of}{shown}{doubt}\n",
        loss.value * 100.0
    )
}

/// Line of the program for a workload file of `colocate schedule`; `None` for traffic of the second
/// cache, which has no key there.
fn alone_line(report: &BandwidthReport, memory: Option<f64>) -> Option<String> {
    let loss = report.loss.filter(|_| report.level == RequestedLines::Memory)?;
    let seconds = report.alone_wall_s?.value;
    let (memory, remark) = match memory {
        Some(memory) => (format!(" memory = {memory:?},"), ""),
        None => (
            String::new(),
            "  # and memory = its own t/µs alone, which was not counted: --memory writes it",
        ),
    };
    // Noise can make the loss negative, which a workload file does not allow.
    let loss = format!("{:.6}", loss.value.max(0.0));
    Some(format!("alone = {{ seconds = {seconds:.3},{memory} loss = {loss} }}{remark}\n"))
}

/// The curve as a picture: a line for each number of copies.
pub fn curves(report: &BandwidthReport) -> Curves {
    let mut counts: Vec<u32> = report.points.iter().map(|point| point.beside.copies).collect();
    counts.sort_unstable();
    counts.dedup();
    let series = counts.into_iter().map(|copies| {
        let here = report.points.iter().filter(|point| point.beside.copies == copies);
        let plural = if copies == 1 { "copy" } else { "copies" };
        traffic::line(format!("{copies} {plural}"), here)
    });
    let caption = format!("{} beside traffic to {}", name(report), asked(report.level));
    traffic::curves(caption, series.collect())
}

#[cfg(test)]
mod tests {
    use super::super::report::RequestedRate;
    use super::*;
    use colocate_machine::Nanos;
    use colocate_study::curve::svg;
    use colocate_study::traffic::{self, Condition, Copied, TrafficRun};
    use expect_test::expect;

    /// A run of `ms` beside copies that each reached the rate.
    fn run(block: u32, beside: Option<(f64, u32)>, ms: u64) -> TrafficRun {
        let beside = beside.map(|(rate, copies)| Condition { rate, copies });
        let copy = |rate| Copied { reached: Some(rate), share_of_pu: Some(0.99) };
        let copies = beside.map_or(Vec::new(), |b| vec![copy(b.rate); b.copies as usize]);
        let time = Nanos::from_millis(ms);
        TrafficRun { block, beside, wall_ns: time + Nanos::from_millis(10), cpu_ns: time, copies }
    }

    fn report(level: RequestedLines, runs: Vec<TrafficRun>, repeat: u32) -> BandwidthReport {
        let conditions = [(10.0, 1), (500.0, 1), (10.0, 2), (500.0, 2)]
            .map(|(rate, copies)| Condition { rate, copies });
        BandwidthReport {
            version: 1,
            command: vec!["/usr/bin/prog".to_owned(), "-x".to_owned()],
            level,
            processor: None,
            kernel: None,
            started_unix_s: 0,
            program_pu: 0,
            copy_pus: vec![1, 3],
            rows: 196_608,
            repeat,
            seed: 1,
            rates: vec![
                RequestedRate { wanted: 10.0, nops: 300, alone: 10.1, too_fast: false },
                RequestedRate { wanted: 500.0, nops: 0, alone: 230.0, too_fast: true },
            ],
            before: Quiet { others_runnable: Some(0), load_1min: Some(0.25) },
            after: Quiet::default(),
            alone_cpu_s: traffic::alone(&runs, |run| run.cpu_ns),
            alone_wall_s: traffic::alone(&runs, |run| run.wall_ns),
            points: traffic::points(&runs, &conditions),
            loss: traffic::loss(&runs, repeat),
            least_share_of_pu: Some(0.5),
            runs,
        }
    }

    fn traced() -> Vec<TrafficRun> {
        let block = |block: u32, more: u64| {
            [
                run(block, None, 1000),
                run(block, Some((10.0, 1)), 1010),
                run(block, Some((500.0, 1)), 1250 + more),
                run(block, Some((10.0, 2)), 1020),
                run(block, Some((500.0, 2)), 1667 + more),
            ]
        };
        [block(0, 0), block(1, 10), block(2, 20)].concat()
    }

    #[test]
    fn everything_is_said() {
        let found = text(&report(RequestedLines::Memory, traced(), 3), Some(3.0));
        expect![[r#"
            prog on PU 0 beside copies that request lines of main memory, on PU 1, 3; 110592 KiB each
            3 repetitions, seed 1; before: 0 others running, load 0.25; after: ? others running, load ?
            alone: 1.000 s (1.000 to 1.000 s) of CPU time, 1.010 s (1.010 to 1.010 s) from start to end

             t/µs each  copies  t/µs reached    time / alone           95 % interval
                    10       1          10.0         101.0 %        101.0 to 101.0 %
                   500       1         500.0         126.0 %        123.5 to 128.5 %
                    10       2          20.0         102.0 %        102.0 to 102.0 %
                   500       2        1000.0         167.7 %        165.2 to 170.2 %
            500 t/µs are more than a copy can request here: it requests 230.0
            other load had the copies' PUs, down to 50 % were left: less was requested than the rates say

            loss: 0.0406 % of its speed for each t/µs of main memory (0.0392 to 0.0419 %)
            alone = { seconds = 1.010, memory = 3.0, loss = 0.000406 }
        "#]]
        .assert_eq(&found);
    }

    #[test]
    fn what_is_unknown_is_not_written() {
        let found = text(&report(RequestedLines::Memory, traced(), 3), None);
        let last = found.lines().last().unwrap();
        assert!(last.starts_with("alone = { seconds = 1.010, loss = 0.0004"), "{last}");
        assert!(last.ends_with(
            "  # and memory = its own t/µs alone, which was not counted: --memory writes it"
        ));
        let l2 = text(&report(RequestedLines::L2, traced(), 3), Some(3.0));
        assert!(
            !l2.contains("alone = {") && l2.contains("for each t/µs of the second cache"),
            "{l2}"
        );
        let none = text(&report(RequestedLines::Memory, Vec::new(), 3), None);
        assert!(none.contains("alone: - of CPU time, - from start to end"), "{none}");
        assert!(none.contains("loss: not known") && !none.contains("alone = {"), "{none}");
    }

    /// The line is what a workload file reads.
    #[test]
    fn the_line_is_read_back() {
        use colocate_policy::SoloProfile;
        let line = alone_line(&report(RequestedLines::Memory, traced(), 3), Some(3.25)).unwrap();
        #[derive(serde::Deserialize)]
        struct File {
            alone: SoloProfile,
        }
        let read: File = toml::from_str(&line).unwrap();
        assert_eq!((read.alone.seconds, read.alone.memory), (1.01, 3.25));
        assert!((read.alone.loss - 0.000_406).abs() < 1e-6);
    }

    /// The program happened to be faster beside copies.
    #[test]
    fn no_loss_is_below_none_in_the_line() {
        let runs =
            [run(0, None, 1000), run(0, Some((10.0, 1)), 990), run(0, Some((500.0, 1)), 900)];
        let report = report(RequestedLines::Memory, runs.to_vec(), 1);
        assert!(report.loss.unwrap().value < 0.0 && loss(&report).contains("loss: -"));
        let line = alone_line(&report, Some(3.0)).unwrap();
        assert!(line.ends_with(" loss = 0.000000 }\n"), "{line}");
    }

    #[test]
    fn one_repetition_is_in_doubt() {
        let found = text(&report(RequestedLines::Memory, traced()[..5].to_vec(), 1), None);
        assert!(
            found.contains("1 repetition, seed 1")
                && found.contains("; not distinguished from none"),
            "{found}"
        );
    }

    #[test]
    fn the_picture_has_a_line_for_each_number_of_copies() {
        let drawn = svg(&[curves(&report(RequestedLines::Memory, traced(), 3))]).unwrap();
        assert_eq!(drawn.matches("<circle").count(), 4);
        assert!(
            drawn.contains("1 copy") && drawn.contains("2 copies") && drawn.contains("prog beside")
        );
    }
}
