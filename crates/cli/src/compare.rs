//! `colocate compare`: one workload under several policies, alone on the machine.
//!
//! Every run goes through this executable (`colocate run --policy P`), also under policies that
//! leave the programs to the kernel, so that all runs pay the same for being watched. The policy
//! `bare` starts the programs directly and shows the cost of watching. Other ways to run programs
//! are commands of colocate, and `env`.

mod attachment;
mod check;
mod file;
mod launch;
mod names;
mod score;
mod session;
mod way;

use crate::output::{self, Bar};
use crate::run::server::Server;
use crate::stop::stop_flag;
use crate::{exit, idle, input};
use colocate_figures::comparison::{Comparison, StudyEnvironment};
use colocate_figures::state::{FinishedRun, MOST_REPETITIONS, Quiet};
use colocate_figures::{order, plot, table};
use colocate_machine::printable;
use file::Measurement;
use launch::Launcher;
use session::ComparisonSession;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// Policies compared by default: the kernel, `auto`, one task a core, and by instruction mixes.
const POLICIES: &str = "os,auto,scatter,mix";
/// Default number of runs under each policy. Chosen: ten give an interval of 0.7 standard
/// deviations to either side (Student's t, 9 degrees of freedom: 2.26 / √10).
const REPETITIONS: u32 = 10;
/// Default seed of the order. Chosen.
const SEED: u64 = 1;
/// Default directory of a comparison.
const DIRECTORY: &str = "colocate-compare";

/// Compares policies on one workload, with intervals
///
/// Each policy runs the workload N times. A block holds one run under every policy, in random
/// order. Reported are the slowest program's time, its mean, median and 95 % interval, and the
/// ratio to the baseline with its interval, paired by block. Every finished run is kept in DIR, so
/// an interrupted comparison goes on with --resume. Ctrl-C sends SIGTERM to the programs; once more, and
/// they are killed.
#[derive(clap::Args)]
pub struct Args {
    /// Measurement file with workloads, their scores, and ways to run them
    /// (docs/reference/measurements.md)
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["name", "ready", "ready_s", "until", "command"])]
    file: Option<PathBuf>,

    /// Only the workloads of FILE whose names contain TEXT
    #[arg(long, value_name = "TEXT", requires = "file", conflicts_with = "command")]
    only: Option<String>,

    /// Policies to compare, separated by commas; `bare` is without colocate. Also other ways to run
    /// programs: options of `run`, `schedule`, `profile` or `attach` behind that word, or `env …`
    /// [default: os,auto,scatter,mix]
    #[arg(long, value_name = "P,P,…", value_delimiter = ',')]
    policies: Vec<String>,

    /// Policy that the others are compared to [default: os]
    #[arg(long, value_name = "P")]
    baseline: Option<String>,

    /// Runs under each policy [default: 10, range: 1-10000]
    #[arg(short = 'n', long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_REPETITIONS)))]
    repetitions: Option<u32>,

    /// Seed of the order of the runs, and of policies that draw [default: 1]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,

    /// What to call the workload [default: the programs' names]
    #[arg(long)]
    name: Option<String>,

    /// Where to keep the runs, the programs' output and the results
    #[arg(short, long, value_name = "DIR", default_value = DIRECTORY)]
    output: PathBuf,

    /// Go on with the comparison in DIR; without a command, exactly as it was begun
    #[arg(long)]
    resume: bool,

    /// Run even if another comparison is running on this machine
    #[arg(long)]
    not_alone: bool,

    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,

    /// No progress bar, no warnings
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    server: Server,

    /// The programs, with `:::` between one and the next
    #[arg(last = true, value_name = "CMD", required_unless_present_any = ["resume", "file"])]
    command: Vec<String>,
}

/// Runs `colocate compare`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    // Held to the end of the comparison.
    let _alone = if args.not_alone { None } else { Some(idle::take_lock()?) };
    let stop = stop_flag()?;
    let Some(path) = &args.file else {
        return compare(ComparisonSession::open(args)?, Vec::new(), args, stop);
    };
    let measurement = Measurement::open(path, args, stop)?;
    for (dir, settings) in measurement.workloads(args)? {
        let resume = measurement.resume_command(args);
        let session = ComparisonSession::of_file(dir, settings, args, resume)?;
        compare(session, measurement.environment()?, args, stop)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the remaining runs of `session` and prints its results.
fn compare(
    session: ComparisonSession,
    environment: Vec<(&'static str, OsString)>,
    args: &Args,
    stop: &'static AtomicBool,
) -> anyhow::Result<ExitCode> {
    let launcher = Launcher::new(&session, environment, stop)?;
    let runs = session.state.settings.total_runs() as u64;
    let bar = Bar::new(runs, "{bar:30} {pos}/{len} {wide_msg}", args.quiet);
    let mut study = RunningComparison { session, launcher, bar, quiet: args.quiet };
    let outcome = study.finish();
    // Before an error is shown.
    study.bar.clear();
    outcome?;
    report(&study.session, args.json)
}

/// A comparison in progress.
struct RunningComparison {
    session: ComparisonSession,
    launcher: Launcher,
    bar: Bar,
    quiet: bool,
}

impl RunningComparison {
    /// Makes all remaining runs.
    fn finish(&mut self) -> anyhow::Result<()> {
        let order = self.session.state.settings.order();
        let first = self.session.state.runs.len();
        // The order follows from the seed: the finished runs are its beginning.
        for (number, slot) in order.into_iter().enumerate().skip(first) {
            self.show(slot);
            let before = idle::look(Path::new("/proc"));
            if number == first {
                self.warn_if_busy(before);
            }
            let run = self.one(number, slot, before)?;
            self.session.state.runs.push(run);
            self.session.save()?;
        }
        Ok(())
    }

    fn one(
        &mut self,
        number: usize,
        slot: order::Slot,
        before: Quiet,
    ) -> anyhow::Result<FinishedRun> {
        let settings = &self.session.state.settings;
        let policy = settings.policies[slot.policy].clone();
        let started_unix_s = input::unix_seconds();
        let files = self.session.files(number, &policy);
        let ended = self.launcher.run(&policy, slot.block, &files)?;
        let Some((jobs, scores)) = ended else { return Err(self.stopped()) };
        let run = FinishedRun { block: slot.block, policy, started_unix_s, before, jobs, scores };
        match run.failed_job() {
            None => Ok(run),
            Some((job, status)) => {
                let line = format!(
                    "`{}` ended with status {status} in run {} of {} (policy {}): the comparison \
                     has stopped; its output is in {}; go on with `{}`",
                    settings.jobs[job].command.join(" "),
                    number + 1,
                    settings.total_runs(),
                    run.policy,
                    files.log.display(),
                    self.session.resume_command,
                );
                self.session.state.failures.push(run);
                self.session.save()?;
                Err(anyhow::Error::msg(line))
            }
        }
    }

    fn stopped(&self) -> anyhow::Error {
        let state = &self.session.state;
        let [done, all] = [state.runs.len(), state.settings.total_runs()];
        let resume = &self.session.resume_command;
        exit::stopped(format!("stopped after {done} of {all} runs; go on with `{resume}`"))
    }

    fn show(&self, slot: order::Slot) {
        let bar = &self.bar;
        let state = &self.session.state;
        bar.set_position(state.runs.len() as u64);
        let left = state.time_left().map_or_else(String::new, |left| {
            format!(", {} left", indicatif::HumanDuration(left.into()))
        });
        bar.say(&format!("{}{left}", state.settings.policies[slot.policy]));
    }

    fn warn_if_busy(&self, before: Quiet) {
        if let (Some(line), false) = (idle::warning(before), self.quiet) {
            self.bar.suspend(|| output::remark(&line));
        }
    }
}

/// Writes the results beside the runs and prints the table or the JSON.
fn report(session: &ComparisonSession, json: bool) -> anyhow::Result<ExitCode> {
    let found = Comparison::of(&session.state, place());
    let text = table::text(&found);
    let picture = plot::svg(&found).map_err(anyhow::Error::msg)?;
    let as_json = printable::json(&found);
    for (name, content) in
        [("comparison.json", &as_json), ("comparison.txt", &text), ("comparison.svg", &picture)]
    {
        // Command lines may hold passwords.
        output::write_private(Some(&session.dir.join(name)), content)?;
    }
    let shown = if json {
        as_json
    } else {
        let dir = session.dir.to_string_lossy();
        format!("{text}\nkept in {}: comparison.json, .txt, .svg, logs\n", printable(&dir))
    };
    output::write(None, &shown)?;
    Ok(ExitCode::SUCCESS)
}

fn place() -> StudyEnvironment {
    let usable = std::thread::available_parallelism().ok();
    StudyEnvironment {
        colocate: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: idle::kernel(Path::new("/proc")),
        processor: colocate_machine::read::live().ok().and_then(|machine| machine.processor),
        usable_pus: usable.and_then(|usable| u32::try_from(usable.get()).ok()),
    }
}
