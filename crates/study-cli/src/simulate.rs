//! `colocate-study simulate`: scenarios on described machines, under several policies.

mod keep;
pub mod load;

use crate::workers::{Workers, bar};
use anyhow::{Context, bail};
use colocate_cli::exit::{self, usage};
use colocate_cli::output::{self, Bar};
use colocate_cli::schedule::policy::cpi_model;
use colocate_machine::printable;
use colocate_model::CpiModel;
use colocate_model::symbiosis::file::SIMULATED_PARTS;
use colocate_study::simulate::contender::Contender;
use colocate_study::simulate::figures::Simulated;
use colocate_study::simulate::run::ExperimentSetup;
use colocate_study::simulate::scenario::{MAX_DRAWS, MAX_SEEDS, Overrides};
use colocate_study::simulate::{gantt, picture, table};
use keep::Folder;
use load::Loaded;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Simulates scenarios on machines that are not here, and compares policies
///
/// A scenario (docs/reference/scenario.md) says which programs do what on which described machine. Each policy
/// is simulated with several seeds under several sets of assumptions. Reported are turnaround, the
/// slowest job's time, STP, ANTT, unfairness, each job's slowdown and progress, the use of the machine
/// and which jobs shared a core; and of a difference to the baseline whether it holds whatever is
/// assumed. Nothing of it is measured.
#[derive(clap::Args)]
pub struct Args {
    /// Scenario files
    #[arg(value_name = "SCENARIO", required = true)]
    scenarios: Vec<PathBuf>,

    /// Policies and schedulers (docs/reference/policies.md) instead of the scenario's, separated by commas;
    /// schedule:NAME is the scheduler of a name that a policy has, too, and with SCHEDULER+fill jobs that have to
    /// wait fill idle PUs; SCHEDULER+guard and SCHEDULER+fill+guard are guarded
    #[arg(long = "policy", value_name = "P,P,…", value_delimiter = ',')]
    policies: Option<Vec<Contender>>,

    /// Policy that the others are compared to, instead of the scenario's
    #[arg(long, value_name = "P")]
    baseline: Option<Contender>,

    /// Machine instead of the scenario's: a described one by name or a .toml file
    #[arg(long, value_name = "SPEC")]
    machine: Option<String>,

    /// What sharing a core of the machine makes of CPI stacks, for the schedulers symbiotic and
    /// symbiotic-numa: a file of colocate-study train cpi-model [default: that of power8-10c]
    #[arg(long, value_name = "FILE")]
    cpi_model: Option<PathBuf>,

    /// First seed instead of the scenario's [range: 0-4294967295]
    #[arg(long, value_name = "S")]
    seed: Option<u32>,

    /// Number of seeds instead of the scenario's [range: 1-1000]
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SEEDS)))]
    seeds: Option<u32>,

    /// Number of sets of assumptions instead of the scenario's, the first of which is the default one
    /// [range: 1-10000]
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DRAWS)))]
    draws: Option<u32>,

    /// Directory for each scenario's figures as .json, .txt and .svg, a picture of which job ran where for
    /// each policy (.POLICY.gantt.svg), and the scenario as it was simulated (.toml)
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Leave out the scenarios whose figures are in DIR already
    #[arg(long, requires = "output")]
    resume: bool,

    /// File for the figures as an SVG picture; for one scenario
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// File for an SVG picture of which job ran where, under the first of the policies; for one scenario
    #[arg(long, value_name = "FILE")]
    gantt: Option<PathBuf>,

    /// Print the figures as JSON (docs/schemas/simulated.json); for one scenario
    #[arg(long)]
    json: bool,

    /// Only read the scenarios and check them against their machines
    #[arg(long, conflicts_with_all = ["resume", "svg", "gantt", "json"])]
    check: bool,

    /// Threads to simulate on [default: as many as there are PUs]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
}

/// Runs `colocate-study simulate`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let several = args.scenarios.len() > 1;
    if several && (args.svg.is_some() || args.gantt.is_some() || args.json) {
        let message =
            "expected one scenario with --svg, --gantt or --json; -o DIR keeps all of them";
        return Err(usage(message.to_owned()));
    }
    check_policies(args)?;
    // Fails before the simulation if a file could not be written.
    for path in args.svg.iter().chain(&args.gantt) {
        colocate_files::has_place(path)?;
    }
    let overrides = overrides(args);
    let cpi = args.cpi_model.as_deref().map(simulated_cpi_model).transpose()?;
    let units = check_all(args, &overrides)?;
    if args.check {
        return Ok(ExitCode::SUCCESS);
    }
    let workers = Workers::new(args.threads)?;
    let folder =
        args.output.as_deref().map(|dir| Folder::open(dir, &args.scenarios)).transpose()?;
    let run = CommandRun { args, overrides, cpi, folder, workers, bar: bar(args.quiet, units) };
    let done = run.all();
    run.bar.clear();
    done
}

/// Reads coefficients from a file; they must be of simulated stacks.
fn simulated_cpi_model(path: &Path) -> anyhow::Result<CpiModel> {
    let model = cpi_model(path)?;
    if model.parts != SIMULATED_PARTS {
        bail!(
            "{}: expected coefficients of simulated stacks, which are of {}, found {}",
            path.display(),
            SIMULATED_PARTS.join(", "),
            model.parts.join(", ")
        );
    }
    Ok(model)
}

/// Refuses policies that are invalid in every scenario.
fn check_policies(args: &Args) -> anyhow::Result<()> {
    let policies = args.policies.as_deref().unwrap_or_default();
    let twice = (1..policies.len()).find(|&at| policies[..at].contains(&policies[at]));
    let stranger =
        args.baseline.as_ref().filter(|it| !policies.is_empty() && !policies.contains(it));
    let message = match (twice, stranger) {
        (Some(at), _) => {
            format!("expected every policy once with --policy, found {} twice", policies[at])
        }
        (_, Some(other)) => {
            format!("expected --baseline among the policies of --policy, found {other}")
        }
        _ => return Ok(()),
    };
    Err(usage(message))
}

fn overrides(args: &Args) -> Overrides {
    Overrides {
        machine: args.machine.clone(),
        policies: args.policies.clone(),
        baseline: args.baseline.clone(),
        seed: args.seed.map(u64::from),
        seeds: args.seeds,
        draws: args.draws,
    }
}

/// Reads every scenario, so that an error in the last shows before the first is simulated. Returns
/// the number of units of work.
fn check_all(args: &Args, overrides: &Overrides) -> anyhow::Result<u64> {
    let mut units = 0;
    let mut said = String::new();
    let mut trouble: Vec<anyhow::Error> = Vec::new();
    for path in &args.scenarios {
        match load::load(path, overrides) {
            Ok(loaded) => {
                units += loaded.bench().units() as u64;
                if args.check {
                    said.push_str(&loaded.summary());
                }
            }
            Err(error) => trouble.push(error),
        }
    }
    output::write(None, &said)?;
    // The last error is returned, and printed by the caller.
    let last = trouble.pop();
    for error in trouble {
        output::remark(&exit::one_line(&error));
    }
    last.map_or(Ok(units), Err)
}

/// A run of the command.
struct CommandRun<'a> {
    args: &'a Args,
    overrides: Overrides,
    cpi: Option<CpiModel>,
    folder: Option<Folder>,
    workers: Workers,
    bar: Bar,
}

impl CommandRun<'_> {
    fn all(&self) -> anyhow::Result<ExitCode> {
        for (done, path) in self.args.scenarios.iter().enumerate() {
            let loaded = load::load(path, &self.overrides)?.knowing(self.cpi.as_ref());
            self.bar.say(&loaded.experiment.scenario.name);
            let kept = match &self.folder {
                Some(folder) => folder.finished(path, &loaded, self.args.resume)?,
                None => None,
            };
            if let Some(found) = kept {
                self.bar.advance(loaded.bench().units() as u64);
                self.print(&found)?;
                continue;
            }
            let Some(found) = self.one(path, &loaded)? else { return Err(self.stopped(done)) };
            self.bar.suspend(|| self.print(&found))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Simulates a scenario and keeps its figures; `None` if a signal stopped it.
    fn one(&self, path: &Path, loaded: &Loaded) -> anyhow::Result<Option<Simulated>> {
        let bench = loaded.bench();
        let cannot = || format!("cannot simulate {}", path.display());
        let units = self.workers.all(bench.units(), Some(&self.bar), |unit| bench.unit(unit));
        let Some(units) = units.with_context(cannot)? else { return Ok(None) };
        let mut found = bench.figures(&units);
        found.settings.inputs.clone_from(&loaded.inputs);
        let kept = self.keep(path, loaded, &bench, &found);
        if kept.is_err() {
            // A long simulation is not lost where no file can be written.
            let _ = self.bar.suspend(|| self.print(&found));
        }
        Ok(kept?.then_some(found))
    }

    /// Writes the files of the options; false if a signal stopped the work.
    fn keep(
        &self,
        path: &Path,
        loaded: &Loaded,
        bench: &ExperimentSetup<'_>,
        found: &Simulated,
    ) -> anyhow::Result<bool> {
        let cannot = || format!("cannot simulate {}", path.display());
        if let Some(file) = &self.args.svg {
            output::write(Some(file), &picture::svg(found).map_err(anyhow::Error::msg)?)?;
        }
        if let Some(file) = &self.args.gantt {
            let first = &loaded.experiment.policies[0];
            output::write(Some(file), &gantt_of(bench, loaded, first).with_context(cannot)?)?;
        }
        if let Some(folder) = &self.folder {
            let policies = &loaded.experiment.policies;
            let drawn =
                self.workers.all(policies.len(), None, |at| gantt_of(bench, loaded, &policies[at]));
            let Some(drawn) = drawn.with_context(cannot)? else { return Ok(false) };
            for (policy, drawn) in policies.iter().zip(&drawn) {
                folder.keep_gantt(path, policy, drawn)?;
            }
            folder.keep(path, loaded, found)?;
        }
        Ok(true)
    }

    fn print(&self, found: &Simulated) -> anyhow::Result<()> {
        let text = if self.args.json {
            printable::json(found)
        } else if self.args.scenarios.len() > 1 {
            table::summary(found)
        } else {
            table::text(found)
        };
        output::write(None, &text)
    }

    fn stopped(&self, done: usize) -> anyhow::Error {
        let hint = match &self.args.output {
            Some(dir) => format!("; go on with --resume -o {}", dir.display()),
            None => String::new(),
        };
        let all = self.args.scenarios.len();
        exit::stopped(format!("stopped after {done} of {all} scenarios{hint}"))
    }
}

fn gantt_of(
    bench: &ExperimentSetup<'_>,
    loaded: &Loaded,
    policy: &Contender,
) -> anyhow::Result<String> {
    let outcome = bench.traced(policy)?;
    gantt::svg(&loaded.machine, &policy.to_string(), &outcome).map_err(anyhow::Error::msg)
}
