//! `colocate advise-threads`: the best number of threads for a program, and the reason why not
//! more.

mod advice;
mod apply;
mod command;
mod library;
mod places;
mod regions;
mod report;
mod runs;

use crate::run::jobs;
use crate::stop::stop_flag;
use crate::{args, exit, output};
use advice::Most;
use anyhow::Context;
use colocate_files::FileMode;
use colocate_machine::printable;
use colocate_machine::read::{self, Sysfs};
use report::Allowed;
pub use report::ThreadsReport;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Finds the number of threads that a program should have
///
/// Runs CMD again and again with several numbers of threads, in `OMP_NUM_THREADS` and wherever CMD has `{threads}`, and
/// compares whole runs until it is decided which number takes least time. Runs that are far slower are ended. CMD
/// must do the same every time; it reads nothing, and its standard output is dropped.
///
/// With --apply CMD runs once, as it would, and each parallel region of an OpenMP program (GNU or LLVM) gets the number of threads
/// that was learnt from its first executions. What the program says itself is left alone. Results of a program that relies on
/// the same number of threads from region to region may be wrong: docs/reference/threads.md says which.
///
/// Never more threads than the inherited mask, the CPU quota and `OMP_THREAD_LIMIT` allow (docs/reference/threads.md).
#[derive(clap::Args)]
pub struct Args {
    /// Run CMD once, and set the number of threads of its OpenMP regions while it runs
    #[arg(long)]
    apply: bool,

    /// Time that all runs may take together, in s [range: 1-86400]
    #[arg(long, value_name = "S", default_value_t = 60, conflicts_with = "apply",
        value_parser = |text: &str| args::whole_seconds(text, 1..=86_400))]
    limit_s: u32,

    /// Most threads [range: 1-4096] [default: what is allowed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    max: Option<u32>,

    /// Report as JSON (docs/schemas/threads.json)
    #[arg(long)]
    json: bool,

    /// File for the report, instead of standard output; with --apply instead of standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The program
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs `colocate advise-threads`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    // Looked up before any run, so that a wrong name is reported once and as `env` reports it.
    jobs::find(args.command.clone())?;
    args.output.as_deref().map_or(Ok(()), colocate_files::has_place)?;
    let allowed = allowed(args.max)?;
    let stop = stop_flag()?;
    let command = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut report = ThreadsReport::new(command, allowed);
    let text = |of: &ThreadsReport| if args.json { printable::json(of) } else { of.text() };
    if args.apply {
        let status = apply::run(&args.command, &mut report, stop)?;
        // The program's work is done: its status precedes an error of the report.
        output::keep_aside(args.output.as_deref(), &text(&report)).map_err(|why| match status {
            0 => why,
            code => exit::Failure { code, message: format!("{why:#}") }.into(),
        })?;
        return Ok(ExitCode::from(status));
    }
    runs::study(&args.command, f64::from(args.limit_s), &mut report, stop)?;
    output::keep(args.output.as_deref(), &text(&report), FileMode::Private)?;
    Ok(ExitCode::SUCCESS)
}

/// Most threads allowed here, with the lowest limit.
fn allowed(asked: Option<u32>) -> anyhow::Result<Allowed> {
    let machine = read::live()?;
    let usable = read::usable(&machine, &Sysfs::at(Path::new("/")));
    let pus = u32::try_from(usable.pus.len()).context("expected fewer PUs")?;
    let quota_pus = usable.quota.map(colocate_machine::CpuQuota::pus);
    let limit = std::env::var("OMP_THREAD_LIMIT").ok().and_then(|text| text.trim().parse().ok());
    Ok(Allowed {
        most: Most::of(pus, quota_pus, limit, asked),
        usable_pus: pus,
        quota_pus,
        thread_limit: limit,
    })
}
