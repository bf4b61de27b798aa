//! `colocate schedule`: more programs than hardware threads, chosen quantum by quantum.

mod report;
mod workload;

use crate::output;
use crate::run::{give_up, jobs, run_dirs};
use anyhow::bail;
use colocate_act::launch::Command;
use colocate_act::host::GRACE;
use colocate_act::{Count, LinuxHost, Setup};
use colocate_engine::schedule::{Workload as Quanta, schedule};
use colocate_machine::Nanos;
use colocate_machine::read;
use colocate_observe::{births, sample};
use colocate_policy::schedule::{Alone, SchedulerKind};
use report::Tally;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use workload::Workload;

/// Runs more programs than hardware threads, chosen quantum by quantum
///
/// Every quantum the scheduler chooses programs and a PU for each of their threads; the others are
/// stopped. When colocate ends, however it does, nothing stays stopped or placed. Exit status: 0 if
/// every program's is 0, else the first one in the file's order that is not.
#[derive(clap::Args)]
pub struct Args {
    /// Workload file (docs/schedule.md)
    #[arg(value_name = "WORKLOAD.toml")]
    workload: PathBuf,

    /// Scheduler: os, round-robin, random[:seed=N], mmas, mhas, idas[:kappa=K], l1-static, l1-dynamic,
    /// bas, fair or perf-fair[:share=F]
    #[arg(long, value_name = "P", default_value = "bas")]
    policy: SchedulerKind,

    /// Time between two decisions, in ms; else as the file says, else 200 [range: 10-60000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=60_000))]
    quantum_ms: Option<u64>,

    /// Report as JSON
    #[arg(long)]
    json: bool,

    /// File for the report, instead of standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `colocate schedule`.
///
/// # Errors
/// If the workload makes no sense, a program cannot be found or executed (127, 126), or the machine cannot
/// be read (125).
#[allow(clippy::print_stderr)] // this is where it speaks
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let workload = Workload::read(&args.workload)?;
    let alone = alone(args, &workload)?;
    let setup = setup(&workload)?;
    let quantum = args.quantum_ms.map_or_else(|| workload.quantum(), Nanos::from_millis);
    let names: Vec<String> = workload
        .each()
        .zip(&setup.commands)
        .map(|(job, command)| job.name.clone().unwrap_or_else(|| command.name()))
        .collect();
    let mut host = LinuxHost::prepare(read::live()?, &setup).map_err(|why| jobs::failure(&why))?;
    let tell = |host: &mut LinuxHost| {
        host.notes().iter().for_each(|note| eprintln!("colocate: {note}"));
    };
    tell(&mut host);
    let name = args.policy.to_string();
    let jobs = u32::try_from(names.len()).unwrap_or(u32::MAX);
    let quanta = Quanta { jobs, quantum, scheduler: &name };
    let mut scheduler = args.policy.scheduler(&alone);
    let mut tally = Tally::new(names, name.clone(), quantum);
    let done = schedule(&mut host, &mut *scheduler, &quanta, &mut |turn| tally.note(turn));
    tell(&mut host);
    let last = match done {
        Ok(last) => last,
        Err(why) => return Err(give_up(host, why)),
    };
    host.finish().iter().for_each(|note| eprintln!("colocate: {note}"));
    let report = tally.report(&last);
    let text = if args.json { report.to_json() } else { report.text() };
    match &args.output {
        Some(path) => output::write(Some(path), &text)?,
        None => eprint!("{text}"),
    }
    Ok(ExitCode::from(report.exit_status()))
}

/// What is known of the jobs alone, if the scheduler has to know it.
fn alone(args: &Args, workload: &Workload) -> anyhow::Result<Vec<Alone>> {
    if !args.policy.needs_alone() {
        return Ok(Vec::new());
    }
    let known: Option<Vec<Alone>> = workload.each().map(|job| job.alone).collect();
    match known {
        Some(known) => Ok(known),
        None => bail!(
            "{}: expected for {} what every job does alone (alone = {{ seconds, memory, first-cache, loss }}), \
             found a job without it",
            args.workload.display(),
            args.policy
        ),
    }
}

fn setup(workload: &Workload) -> anyhow::Result<Setup> {
    let path = std::env::var_os("PATH");
    let command = |job: &workload::Job| {
        let argv: Vec<OsString> = job.command.iter().map(OsString::from).collect();
        Command::find(argv, path.as_deref()).map_err(|why| jobs::failure(&why))
    };
    Ok(Setup {
        may_pause: true,
        only_signals: false,
        count: Count::Hardware,
        targets: Vec::new(),
        repeat: false,
        grace: GRACE,
        commands: workload.each().map(command).collect::<Result<_, _>>()?,
        settle: Nanos::ZERO,
        births: births::Options::here()?,
        rate_hz: sample::DEFAULT_RATE_HZ,
        run_dirs: run_dirs(),
        proc: PathBuf::from("/proc"),
    })
}
