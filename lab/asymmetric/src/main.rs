//! `asymmetric`: makes one PU of this machine slow while a program runs (docs/results/asymmetric.md).
//!
//! A real-time thread takes a share of every period on that PU, so other threads on the PU get less
//! time. The share is found by measurement. The thread is the only change to the system and ends
//! with this process, so the PU is always restored.
#![allow(clippy::print_stderr)]

mod hog;
mod report;
mod share;
mod speed;
mod sys;

use anyhow::{Context as _, bail};
use clap::Parser;
use hog::Hog;
use report::{SlowdownReport, interval};
use smt_bench::thread;
use speed::Measured;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

/// Valid ratios. A ratio of 8 takes 87.5 % of the time. The kernel limits real-time threads to 95 %
/// (kernel.sched_rt_runtime_us).
const RATIOS: std::ops::RangeInclusive<f64> = 1.0..=8.0;

/// Largest relative error of the reached ratio. Chosen: a fifth of the smallest effect in
/// docs/results/asymmetric.md.
const TOLERANCE: f64 = 0.02;

/// Searches for a share before failure. Chosen: on a virtual machine the host can take the PUs away
/// for a while.
const ATTEMPTS: u32 = 3;

/// Makes one PU slow while a program runs, and ends with the program's status
///
/// A SCHED_FIFO thread on that PU takes a share of every period, found by measuring how fast a loop
/// runs there and on another PU. Says which ratio was reached, with a 95 % interval. Needs root,
/// CAP_SYS_NICE or a real-time limit of 2 (ulimit -r). When it ends, however it does, the PU is as
/// it was, and a program that still runs gets SIGTERM. Errors after the program's end are printed,
/// and the status is still the program's.
#[derive(Parser)]
#[command(name = "asymmetric", version)]
struct Args {
    /// The PU to make slow, by the kernel's number
    #[arg(long, value_name = "N")]
    cpu: u32,

    /// How many times slower than another PU [range: 1-8]
    #[arg(long, value_name = "R", default_value_t = 2.0, value_parser = ratio)]
    ratio: f64,

    /// Take this share of the PU's time, whatever ratio comes of it, instead of one that is found
    /// by measuring [range: 0-0.9]
    #[arg(long, value_name = "S", conflicts_with = "ratio", value_parser = share)]
    share: Option<f64>,

    /// Period, in µs: long ones are more exact, but threads notice that the PU alternates between
    /// fast and taken [range: 200-20000]
    #[arg(long, value_name = "US", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(200..=20_000))]
    period_us: u32,

    /// Measurements of 0.5 s of the ratio that is reported; half as many of each share that is
    /// tried [range: 2-1000]
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000))]
    windows: u32,

    /// Measure again when the program has ended, and report that, too
    #[arg(long)]
    again: bool,

    /// File for what was measured, as JSON: written before the program begins, and again at its end
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,

    /// The program
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

fn ratio(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|ratio| RATIOS.contains(ratio));
    found.ok_or_else(|| {
        format!("expected a ratio from {} to {}, found {text:?}", RATIOS.start(), RATIOS.end())
    })
}

fn share(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|share| (0.0..=share::MOST).contains(share));
    found.ok_or_else(|| format!("expected a share from 0 to {}, found {text:?}", share::MOST))
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("asymmetric: {error:#}");
            ExitCode::from(OWN_FAILURE)
        }
    }
}

/// Exit status of a failure of the tool itself, the same as `colocate`'s.
const OWN_FAILURE: u8 = 125;

/// Makes the PU slow, measures, runs the program, measures again. Returns the program's status.
///
/// # Errors
/// If the PU cannot be made slow or measured before the program begins.
fn run(args: &Args) -> anyhow::Result<u8> {
    let fast = fast(args.cpu, &thread::usable()?)?;
    let mut hog = Hog::start(args.cpu, Duration::from_micros(args.period_us.into()))?;
    let (share, found) = match args.share {
        Some(share) => {
            hog.take(share);
            (share, speed::ratio(args.cpu, fast, args.windows)?)
        }
        None => reached(args, &hog, fast)?,
    };
    hog.still_there()?;
    let asked = args.share.is_none().then_some(args.ratio);
    let mut report = SlowdownReport::new(args.cpu, fast, asked, hog.period(), share, found);
    publish(args, &report, found)?;
    let status = match start(&args.command) {
        Ok(status) => status_of(status),
        Err(error) => {
            eprintln!("asymmetric: cannot run {}: {error}", args.command[0].to_string_lossy());
            // As shells do: 127 without such a program, 126 if it cannot be executed.
            return Ok(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 });
        }
    };
    // The program has ended with a status of its own, which a later failure must not replace.
    if let Err(error) = check_after(args, &mut hog, &mut report) {
        eprintln!("asymmetric: {error:#}");
    }
    Ok(status)
}

/// Checks after the program's end that the PU was slow, and measures again if requested.
fn check_after(args: &Args, hog: &mut Hog, report: &mut SlowdownReport) -> anyhow::Result<()> {
    hog.still_there()?;
    if args.again {
        let again = speed::ratio(args.cpu, report.fast, args.windows)?;
        hog.still_there()?;
        report.after = Some(again);
        publish(args, report, again)?;
    }
    Ok(())
}

/// The share at which the PU has the requested ratio, and the ratio measured at this share.
fn reached(args: &Args, hog: &Hog, fast: u32) -> anyhow::Result<(f64, Measured)> {
    let asked = args.ratio;
    let mut left = ATTEMPTS;
    loop {
        let share = share::reach(asked, |share| {
            hog.take(share);
            speed::ratio(args.cpu, fast, args.windows / 2).map(|found| found.median)
        })?;
        hog.take(share);
        let found = speed::ratio(args.cpu, fast, args.windows)?;
        left -= 1;
        if (found.mean.value / asked - 1.0).abs() <= TOLERANCE {
            return Ok((share, found));
        }
        if left == 0 {
            bail!(
                "expected PU {} to become {asked} times slower, found {}: are real-time threads limited further \
                 (kernel.sched_rt_runtime_us, cpu.rt_runtime_us), or do others have any?",
                args.cpu,
                interval(found.mean)
            );
        }
    }
}

/// The PU for comparison: the first usable PU other than the slow PU.
fn fast(slow: u32, usable: &[u32]) -> anyhow::Result<u32> {
    if !usable.contains(&slow) {
        let list = usable.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        bail!("expected a PU that may be used here ({list}) with --cpu, found {slow}");
    }
    usable.iter().copied().find(|&cpu| cpu != slow).with_context(|| {
        format!("expected two PUs, a slow one and one to compare it with, found PU {slow} alone")
    })
}

/// Prints the measured ratio, and writes the report.
fn publish(args: &Args, report: &SlowdownReport, found: Measured) -> anyhow::Result<()> {
    if !args.quiet {
        eprintln!("asymmetric: {}", report.line(found.mean));
    }
    match &args.output {
        Some(path) => report.write(path),
        None => Ok(()),
    }
}

/// Runs the program to its end. The program gets SIGTERM if this process ends first.
fn start(words: &[OsString]) -> std::io::Result<ExitStatus> {
    // clap requires one word at least.
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    sys::ends_with_us(&mut command);
    command.status()
}

/// Exit status as shells compute it: 128 + N after signal N.
fn status_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_pu_is_compared_with_another_one() {
        assert_eq!(fast(1, &[0, 1]).unwrap(), 0);
        assert_eq!(fast(0, &[0, 3, 5]).unwrap(), 3);
        let absent = fast(2, &[0, 1]).unwrap_err().to_string();
        assert_eq!(absent, "expected a PU that may be used here (0,1) with --cpu, found 2");
        let alone = fast(0, &[0]).unwrap_err().to_string();
        assert_eq!(
            alone,
            "expected two PUs, a slow one and one to compare it with, found PU 0 alone"
        );
    }

    #[test]
    fn ratios_below_1_and_what_is_no_number_are_refused() {
        for text in ["0.99", "0", "-2", "8.01", "nan", "inf", "two", ""] {
            let error = ratio(text).unwrap_err();
            assert_eq!(error, format!("expected a ratio from 1 to 8, found {text:?}"));
        }
        for (text, found) in [("1", 1.0), ("2", 2.0), ("2.5", 2.5), ("8", 8.0)] {
            assert!((ratio(text).unwrap() - found).abs() < 1e-12);
        }
    }

    #[test]
    fn a_status_is_that_of_shells() {
        assert_eq!(status_of(ExitStatus::from_raw(0)), 0);
        assert_eq!(status_of(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(status_of(ExitStatus::from_raw(libc::SIGTERM)), 143);
    }
}
