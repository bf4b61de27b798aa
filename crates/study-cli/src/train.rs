//! `colocate-study train`: coefficients of a machine that schedulers read.

mod group;
mod here;

use crate::simulate::load;
use crate::study;
use anyhow::Context;
use clap::Subcommand;
use colocate_cli::date;
use colocate_cli::output;
use colocate_files::FileMode;
use colocate_machine::printable;
use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::CpiModel;
use colocate_model::symbiosis::{Quality, TrainedMode};
use colocate_study::replication::recorded;
use colocate_study::simulate::scenario::Overrides;
use colocate_study::train::{EVERY, ModelMetadata, TrainingSet, TrainingSettings, train};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use toml::value::Datetime;

/// Finds out coefficients of a machine that schedulers need
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: TrainCommand,
}

#[derive(Subcommand)]
enum TrainCommand {
    CpiModel(CpiModelArgs),
    #[command(hide = true)]
    Group(group::Args),
}

/// What sharing a core makes of CPI stacks, for the scheduler symbiotic
///
/// Runs a training set alone and together on one core, of a described machine by simulation or of this one, and fits what
/// its CPI stacks become (docs/results/symbiotic.md). Every fourth program is held out to say how well that holds for
/// others.
#[derive(clap::Args)]
struct CpiModelArgs {
    /// Machine to simulate: a described one by name, or a file that says how fast it is
    #[arg(long, value_name = "SPEC", required_unless_present = "here")]
    machine: Option<String>,

    /// Measure this machine instead, by its counters, with the jobs of a workload file as the training set
    /// (docs/reference/schedule.md): programs of one thread that run alike each time. Nothing else should run meanwhile
    #[arg(long, value_name = "WORKLOAD.toml", conflicts_with_all = ["machine", "scenarios", "recorded", "programs"])]
    here: Option<PathBuf>,

    /// Scenarios whose programs are the training set, instead of drawn ones
    #[arg(long = "scenario", value_name = "FILE", num_args = 1..)]
    scenarios: Vec<PathBuf>,

    /// Recorded programs (colocate profile --phases) as the training set, instead of drawn ones: a folder with
    /// their files
    #[arg(long, value_name = "DIR", conflicts_with = "scenarios")]
    recorded: Option<PathBuf>,

    /// How many programs are drawn [range: 4-500]
    #[arg(long, value_name = "N", default_value_t = 24, conflicts_with_all = ["scenarios", "recorded"],
        value_parser = clap::value_parser!(u16).range(4..=500))]
    programs: u16,

    /// Intervals of each group that are used [range: 1-1000; default: 6, with --here 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    intervals: Option<u32>,

    /// Length of an interval, in milliseconds [range: 1-10000; default: 20, with --here 100]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    interval_ms: Option<u64>,

    /// How many groups of more than two programs are drawn [range: 4-100000]
    #[arg(long, value_name = "N", default_value_t = TrainingSettings::default().groups,
        value_parser = clap::value_parser!(u32).range(4..=100_000))]
    groups: u32,

    /// Seed of what is drawn
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Date that is written into the file, as YYYY-MM-DD [default: today]
    #[arg(long, value_name = "DATE", value_parser = date)]
    date: Option<String>,

    /// File for the coefficients (docs/schemas/cpi-model.json)
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Count without a processor's counters, and take two PUs for siblings, for tests of that
    #[arg(long, hide = true, requires = "here")]
    pretend: bool,
}

/// Runs `colocate-study train`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let args = match &args.what {
        TrainCommand::CpiModel(args) => args,
        TrainCommand::Group(args) => return group::main(args),
    };
    colocate_files::has_place(&args.output)?;
    let date = args.date.clone().unwrap_or_else(today);
    let model = match &args.here {
        Some(workload) => here::trained(args, workload, &date)?,
        None => simulated(args, &date)?,
    };
    // A model that cannot be written to its file is printed.
    let written = output::keep(Some(&args.output), &model.to_json(), FileMode::ByUmask);
    let text = text(&model);
    // Standard output has the model.
    let printed = if written.is_err() || args.output == Path::new("-") {
        output::aside(&text);
        Ok(())
    } else {
        output::write(None, &text)
    };
    written.and(printed)?;
    Ok(ExitCode::SUCCESS)
}

impl CpiModelArgs {
    fn settings(&self) -> TrainingSettings {
        let default =
            if self.here.is_some() { here::SETTINGS } else { TrainingSettings::default() };
        TrainingSettings {
            interval: self.interval_ms.map_or(default.interval, Nanos::from_millis),
            intervals: self.intervals.unwrap_or(default.intervals),
            groups: self.groups,
            seed: self.seed,
        }
    }

    /// The length and number of intervals, in words.
    fn intervals(&self) -> String {
        let TrainingSettings { interval, intervals, .. } = self.settings();
        format!("{intervals} intervals of {} ms a group", interval.0 / 1_000_000)
    }
}

fn simulated(args: &CpiModelArgs, date: &str) -> anyhow::Result<CpiModel> {
    // clap requires one of the two.
    let spec = args.machine.as_deref().unwrap_or_default();
    let (machine, performance) = load::machine(spec)?;
    let (set, data) = match &args.recorded {
        Some(folder) => recorded_set(args, folder, (&machine, &performance))?,
        None => set(args, spec)?,
    };
    let stamp = ModelMetadata { colocate: env!("CARGO_PKG_VERSION"), date, data: &data };
    train(&machine, &performance, &set, &args.settings(), &stamp)
        .with_context(|| format!("cannot train for {spec}"))
}

/// Recorded programs, each with a length that fits the watched time.
fn recorded_set(
    args: &CpiModelArgs,
    folder: &Path,
    (machine, performance): (&Machine, &Performance),
) -> anyhow::Result<(TrainingSet, String)> {
    let TrainingSettings { interval, intervals, .. } = args.settings();
    // One interval more, since the first one is left out.
    let length = Nanos(interval.0 * u64::from(intervals + 1));
    let programs = recorded::programs(machine, performance, &study::recorded(folder)?, length)?;
    let set = TrainingSet::of_programs(&programs);
    let data =
        format!("{} recorded programs, seed {}, {}", programs.len(), args.seed, args.intervals());
    Ok((set, data))
}

/// The training set and its description in a line.
fn set(args: &CpiModelArgs, machine: &str) -> anyhow::Result<(TrainingSet, String)> {
    if args.scenarios.is_empty() {
        let set = TrainingSet::drawn(usize::from(args.programs), args.seed);
        let data =
            format!("{} drawn programs, seed {}, {}", args.programs, args.seed, args.intervals());
        return Ok((set, data));
    }
    let overrides = Overrides { machine: Some(machine.to_owned()), ..Overrides::default() };
    let loaded = args.scenarios.iter().map(|path| load::load(path, &overrides));
    let loaded = loaded.collect::<anyhow::Result<Vec<_>>>()?;
    let set = TrainingSet::of(loaded.iter().map(|loaded| &loaded.experiment.scenario));
    let names: Vec<&str> = loaded.iter().map(|loaded| &*loaded.experiment.scenario.name).collect();
    let data =
        format!("{} programs of {}, {}", set.programs.len(), names.join(", "), args.intervals());
    Ok((set, data))
}

/// Coefficients and errors as text.
fn text(model: &CpiModel) -> String {
    let mut text = format!(
        "{}: {}, {}, {}; every {EVERY}th program held out\n",
        if model.simulated { "simulated" } else { "measured" },
        printable(&model.machine),
        model.date,
        printable(&model.data)
    );
    for mode in &model.modes {
        let _ = writeln!(text, "\n{} threads on a core, {} samples", mode.threads, mode.samples);
        rows(&mut text, model, mode);
    }
    text
}

/// Errors on held-out programs, in columns; `-` without any.
fn errors(quality: Option<&Quality>) -> String {
    match quality {
        None => format!("{:>6} {:>10} {:>7}", "-", "-", "-"),
        Some(Quality { r2, mean_error, worst_error }) => {
            let r2 = r2.map_or_else(|| "-".to_owned(), |r2| format!("{r2:.3}"));
            format!("{r2:>6} {mean_error:>10.4} {worst_error:>7.3}")
        }
    }
}

fn rows(text: &mut String, model: &CpiModel, mode: &TrainedMode) {
    let _ = writeln!(
        text,
        "{:<14} {:>7} {:>7} {:>7} {:>7}   held out: {:>6} {:>10} {:>7}",
        "component", "alpha", "beta", "gamma", "delta", "R2", "mean error", "worst"
    );
    let held_out = mode.held_out.as_ref();
    for (at, (component, c)) in model.components.iter().zip(&mode.coefficients).enumerate() {
        let _ = writeln!(
            text,
            "{:<14} {:>7.3} {:>7.3} {:>7.3} {:>7.3}             {}",
            component.name,
            c.alpha,
            c.beta,
            c.gamma,
            c.delta,
            errors(held_out.and_then(|held_out| held_out.components.get(at)))
        );
    }
    let slowdown = errors(held_out.map(|held_out| &held_out.slowdown));
    let _ = writeln!(text, "{:<14} {:31}             {slowdown}", "slowdown", "");
    let conditioning = mode.conditioning;
    let unique = if conditioning.unique {
        "stacks alone follow uniquely from stacks together".to_owned()
    } else {
        format!(
            "stacks alone do NOT follow uniquely from stacks together: off by up to {:.1} % of all cycles, and \
             slowdowns by {:.1} %",
            100.0 * conditioning.stack_error,
            100.0 * conditioning.slowdown_error
        )
    };
    let _ = writeln!(text, "{unique}; greatest gamma/beta {:.2}", conditioning.coupling);
}

fn date(text: &str) -> Result<String, String> {
    let read: Result<Datetime, _> = text.parse();
    let is_day = read.is_ok_and(|read| read.date.is_some() && read.to_string() == text);
    // A date with a time is longer.
    let is_day = is_day && text.len() == "YYYY-MM-DD".len();
    is_day.then(|| text.to_owned()).ok_or("expected a day of the calendar as YYYY-MM-DD".to_owned())
}

fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date::day(since.as_secs() / 86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_a_form() {
        for real in ["2026-11-21", "2024-02-29", "2026-12-31"] {
            assert!(date(real).is_ok(), "{real}");
        }
        let no_form = ["21.11.2026", "2026-11", "2026-11-2x", "26-11-21", "", "2026-+1-21"];
        let no_day = ["2026-99-99", "0000-00-00", "2026-13-01", "2026-02-29", "2026-11-31"];
        for odd in no_form.into_iter().chain(no_day) {
            assert!(date(odd).is_err(), "{odd}");
        }
    }
}
