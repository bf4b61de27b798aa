//! `smt-bench`: runs one kernel and prints its iterations per second.

// The binary's output is for the user.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use smt_bench::thread::{ThreadError, pin, side_by_side};
use smt_bench::{Architecture, Control, Kernel, KernelSpec, Runner, by_construction};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const HELP: &str = "\
Runs one kernel and prints how many iterations it does a second

Usage: smt-bench KERNEL[:KB] [--seconds S | --iterations N] [--threads T] [--cpu LIST]
       smt-bench --list

  KERNEL[:KB]     branch, fp-add, fp-mul, fp-div, int-add, int-mul, int-div, int-div-tp, or
                  load-dep with the size of its list in KiB [default: 16]
  --seconds S     run so long [default: 1] [range: 0.001-86400]
  --iterations N  run so many iterations in each thread
  --threads T     how many threads [default: 1] [range: 1-4096]
  --cpu LIST      pin the threads to these PUs in turn, e.g. 0,2
  --list          show the kernels and what an iteration consists of
";

/// Action selected by the command line.
#[derive(Debug, PartialEq)]
enum SelectedAction {
    Help,
    List,
    Run(RunArgs),
}

/// Arguments of a run.
#[derive(Clone, Debug, PartialEq)]
struct RunArgs {
    workload: KernelSpec,
    length: RunLength,
    threads: usize,
    /// PUs to pin the threads to, in turn; empty for no pinning.
    cpus: Vec<u32>,
}

/// End of a run: after a time, or after a number of iterations of each thread.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RunLength {
    Time(Duration),
    Iterations(u64),
}

fn main() -> ExitCode {
    let done = match parse(std::env::args().skip(1)) {
        Err(message) => {
            eprintln!("smt-bench: {message}; see smt-bench --help");
            return ExitCode::from(2);
        }
        Ok(SelectedAction::Help) => Ok(HELP.to_owned()),
        Ok(SelectedAction::List) => Ok(list()),
        Ok(SelectedAction::Run(run)) => report(&run),
    };
    match done {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("smt-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Value of the option `arg`.
fn value(args: &mut impl Iterator<Item = String>, arg: &str) -> Result<String, String> {
    args.next().ok_or_else(|| format!("{arg} needs a value"))
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<SelectedAction, String> {
    let mut workload = None;
    let mut length = None;
    let mut threads = 1;
    let mut cpus = Vec::new();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--help" | "-h" => return Ok(SelectedAction::Help),
            "--list" => return Ok(SelectedAction::List),
            "--seconds" | "--iterations" if length.is_some() => {
                return Err("expected one of --seconds and --iterations, once".to_owned());
            }
            "--seconds" => length = Some(seconds(&value(&mut args, &arg)?)?),
            "--iterations" => length = Some(iterations(&value(&mut args, &arg)?)?),
            "--threads" => threads = thread_count(&value(&mut args, &arg)?)?,
            "--cpu" => cpus = cpu_list(&value(&mut args, &arg)?)?,
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
            name if workload.is_none() => {
                workload = Some(name.parse()?);
            }
            extra => return Err(format!("expected one kernel, found also {extra}")),
        }
    }
    let workload = workload.ok_or("expected a kernel")?;
    let length = length.unwrap_or(RunLength::Time(Duration::from_secs(1)));
    Ok(SelectedAction::Run(RunArgs { workload, length, threads, cpus }))
}

fn seconds(text: &str) -> Result<RunLength, String> {
    let found = text.parse().ok().filter(|s| (0.001..=86_400.0).contains(s));
    let found =
        found.ok_or_else(|| format!("expected seconds from 0.001 to 86400, found {text}"))?;
    Ok(RunLength::Time(Duration::from_secs_f64(found)))
}

fn iterations(text: &str) -> Result<RunLength, String> {
    let found = text.parse().ok().filter(|&n| n > 0);
    found
        .map(RunLength::Iterations)
        .ok_or_else(|| format!("expected iterations above 0, found {text}"))
}

fn thread_count(text: &str) -> Result<usize, String> {
    let found = text.parse().ok().filter(|n| (1..=4096).contains(n));
    found.ok_or_else(|| format!("expected 1 to 4096 threads, found {text}"))
}

fn cpu_list(text: &str) -> Result<Vec<u32>, String> {
    let each = text.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>();
    each.map_err(|_| format!("expected PUs as in 0,2, found {text}"))
}

fn report(run: &RunArgs) -> Result<String, ThreadError> {
    let (done, took) = execute(run)?;
    let rate = done as f64 / took.as_secs_f64();
    Ok(format!(
        "{}: {done} iterations in {:.3} s by {} thread{}: {rate:.0} iterations/s\n",
        run.workload,
        took.as_secs_f64(),
        run.threads,
        if run.threads == 1 { "" } else { "s" },
    ))
}

/// Runs the threads. Returns their total iterations, and the time from the common start to the end
/// of the last.
fn execute(run: &RunArgs) -> Result<(u64, Duration), ThreadError> {
    let controls: Vec<Control> = (0..run.threads).map(|_| Control::new()).collect();
    let iterations = match run.length {
        RunLength::Time(_) => u64::MAX,
        RunLength::Iterations(n) => n,
    };
    let mut begin = Instant::now();
    let done = side_by_side(
        run.threads,
        |number| {
            if !run.cpus.is_empty() {
                pin(run.cpus[number % run.cpus.len()])?;
            }
            Ok(Runner::new(run.workload))
        },
        |number, mut runner: Runner| runner.run(&controls[number], iterations),
        || {
            // Not before: allocating and writing lists takes time.
            begin = Instant::now();
            if let RunLength::Time(length) = run.length {
                std::thread::sleep(length);
                controls.iter().for_each(Control::stop);
            }
        },
    )?;
    Ok((done.into_iter().sum(), begin.elapsed()))
}

/// Table of the kernels: instructions of an iteration and their shares by class.
fn list() -> String {
    let head = format!(
        "{:<12}{:>13}{:>9}{:>9}{:>9}{:>9}{:>9}\n",
        "kernel", "instructions", "branch", "float", "int", "load", "store"
    );
    let rows = Kernel::ALL.map(|kernel| {
        let counts = by_construction(kernel, Architecture::HERE);
        let shares = counts.shares().map(|share| format!("{:>7.1} %", share * 100.0));
        format!("{kernel:<12}{:>13}{}\n", counts.instructions, shares.concat())
    });
    head + &rows.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<SelectedAction, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    fn run(line: &str) -> RunArgs {
        match parsed(line) {
            Ok(SelectedAction::Run(run)) => run,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn defaults() {
        let found = run("fp-add");
        assert_eq!(found.workload, Kernel::FpAdd.into());
        assert_eq!(found.length, RunLength::Time(Duration::from_secs(1)));
        assert_eq!((found.threads, found.cpus), (1, vec![]));
    }

    #[test]
    fn each_option_is_read() {
        assert_eq!(
            run("--seconds 0.5 int-mul").length,
            RunLength::Time(Duration::from_millis(500))
        );
        assert_eq!(run("int-mul --iterations 7").length, RunLength::Iterations(7));
        assert_eq!(run("int-mul --threads 3").threads, 3);
        assert_eq!(run("int-mul --cpu 0,2").cpus, [0, 2]);
        assert_eq!(run("load-dep:32").workload.list.kib(), 32);
        assert_eq!(parsed("--list"), Ok(SelectedAction::List));
        assert_eq!(parsed("fp-add -h"), Ok(SelectedAction::Help));
    }

    #[test]
    fn each_mistake_is_named() {
        for (line, expected) in [
            ("", "expected a kernel"),
            ("fp-add fp-mul", "expected one kernel, found also fp-mul"),
            ("fp-add --fast", "unknown option --fast"),
            ("fp-add --threads", "--threads needs a value"),
            ("fp-add --threads 0", "expected 1 to 4096 threads, found 0"),
            ("fp-add --iterations 0", "expected iterations above 0, found 0"),
            ("fp-add --seconds -1", "expected seconds from 0.001 to 86400, found -1"),
            ("fp-add --seconds nan", "expected seconds from 0.001 to 86400, found nan"),
            ("fp-add --cpu 0-3", "expected PUs as in 0,2, found 0-3"),
            (
                "fp-add --seconds 1 --iterations 2",
                "expected one of --seconds and --iterations, once",
            ),
        ] {
            assert_eq!(parsed(line).unwrap_err(), expected, "{line}");
        }
        assert!(parsed("fp-sub").unwrap_err().starts_with("unknown kernel \"fp-sub\""));
    }

    #[test]
    fn all_threads_do_their_iterations() {
        let (done, _) = execute(&run("int-add --iterations 1000 --threads 3")).unwrap();
        assert_eq!(done, 3_000);
        let (done, took) = execute(&run("int-add --seconds 0.01 --threads 2")).unwrap();
        assert!(done >= 2 && took >= Duration::from_millis(10));
    }

    /// At once, not after the day that was asked for.
    #[test]
    fn an_absent_pu_is_an_error() {
        let message =
            report(&run("int-add --cpu 8000 --threads 2 --seconds 86400")).unwrap_err().to_string();
        assert!(message.starts_with("cannot run on PU 8000: "), "{message}");
    }

    #[test]
    fn the_list_has_a_row_for_each_kernel() {
        let text = list();
        assert_eq!(text.lines().count(), 1 + Kernel::ALL.len());
        for kernel in Kernel::ALL {
            let row = text.lines().find(|line| line.split(' ').next() == Some(kernel.name()));
            let row = row.unwrap_or_else(|| panic!("{kernel} in\n{text}"));
            assert_eq!(row.contains(" 84.2 %"), kernel.name().starts_with("fp-"), "{row}");
        }
    }

    #[test]
    fn the_report_is_one_line() {
        let line = report(&run("load-dep:8 --iterations 100")).unwrap();
        assert!(line.starts_with("load-dep:8: 100 iterations in "), "{line}");
        assert!(line.ends_with(" iterations/s\n") && line.lines().count() == 1, "{line}");
    }
}
