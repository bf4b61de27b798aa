//! Measurement files: workloads with scores, and ways to run them.

use super::names::{file_name, word};
use super::score::ScoreSource;
use super::{Args, REPETITIONS, SEED, check, session};
use crate::exit::{self, usage};
use crate::run::server::Server;
use crate::{children, input, output};
use anyhow::{Context, bail};
use colocate_figures::state::{self, AttachPeriod, Score, StudySettings};
use colocate_files::{Dir, FileMode};
use colocate_machine::Nanos;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Version of the format that this build reads.
const VERSION: u32 = 1;
/// Most workloads of a file. Chosen: at a second a run, ten thousand runs take hours.
const MOST_WORKLOADS: usize = 10_000;

/// A measurement file (docs/reference/measurements.md).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasurementFile {
    version: u32,
    /// Shell commands that run once, in the working directory of the programs.
    #[serde(default)]
    prepare: String,
    ways: Vec<String>,
    baseline: Option<String>,
    repetitions: Option<u32>,
    seed: Option<u64>,
    /// Scores of workloads without scores of their own.
    #[serde(default)]
    score: Vec<Score>,
    workload: Vec<WorkloadForm>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadForm {
    /// Name of the workload. `{KEY}` is replaced as in `programs`.
    name: String,
    /// Values by key: one workload for each combination, with `{KEY}` replaced by the value.
    #[serde(default)]
    each: BTreeMap<String, Vec<String>>,
    programs: Vec<ProgramCommand>,
    ways: Option<Vec<String>>,
    baseline: Option<String>,
    #[serde(default)]
    score: Vec<Score>,
    ready: Option<String>,
    ready_s: Option<f64>,
    until: Option<u32>,
    attach: Option<AttachPeriod>,
    pause_ms: Option<u32>,
    /// Programs beside each run, not watched by colocate. `{KEY}` is replaced as in `programs`.
    #[serde(default)]
    beside: Vec<ProgramCommand>,
}

impl WorkloadForm {
    /// The number of combinations of the values of `each`.
    fn combinations(&self) -> usize {
        self.each.values().fold(1, |all, values| all.saturating_mul(values.len()))
    }

    /// The workloads for all combinations of the values of `each`.
    fn expanded(mut self) -> Vec<Self> {
        let Some((key, values)) = self.each.pop_first() else { return vec![self] };
        values.iter().flat_map(|value| self.with(&key, value).expanded()).collect()
    }

    fn with(&self, key: &str, value: &str) -> Self {
        let key = format!("{{{key}}}");
        let replaced = |program: &ProgramCommand| {
            let words = program.command().into_iter().map(|word| word.replace(&key, value));
            ProgramCommand::Words(words.collect())
        };
        let programs = self.programs.iter().map(replaced).collect();
        let beside = self.beside.iter().map(replaced).collect();
        let name = self.name.replace(&key, value);
        Self { name, programs, beside, ..self.clone() }
    }
}

/// A command: a text for `sh -c`, or words.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum ProgramCommand {
    Shell(String),
    Words(Vec<String>),
}

impl ProgramCommand {
    fn command(&self) -> Vec<String> {
        match self {
            Self::Shell(text) => ["sh", "-c", text].map(str::to_owned).to_vec(),
            Self::Words(words) => words.clone(),
        }
    }
}

impl MeasurementFile {
    /// Reads a file, with one workload for each combination of values.
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = input::text(path, input::FIGURES)?;
        let path = path.display();
        let mut file: Self = toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let found = error.message();
            usage(format!("expected a measurement in {path}, found in line {line}: {found}"))
        })?;
        if file.version != VERSION {
            return Err(usage(format!("expected version 1 in {path}, found {}", file.version)));
        }
        let count =
            file.workload.iter().fold(0, |all: usize, it| all.saturating_add(it.combinations()));
        let is_empty = file.workload.iter().any(|workload| workload.combinations() == 0);
        if is_empty || !(1..=MOST_WORKLOADS).contains(&count) {
            return Err(usage(format!(
                "expected 1 to {MOST_WORKLOADS} workloads in {path}, with a value for each key, found {count}"
            )));
        }
        file.workload = file.workload.into_iter().flat_map(WorkloadForm::expanded).collect();
        Ok(file)
    }

    /// Checks all that can be checked before the preparation.
    fn check(&self, args: &Args) -> anyhow::Result<()> {
        let names: Vec<&str> = self.workload.iter().map(|it| it.name.as_str()).collect();
        check::names(names.iter().copied())?;
        let only = args.only.as_deref().unwrap_or_default();
        if !names.iter().any(|name| name.contains(only)) {
            let names = names.join(", ");
            return Err(usage(format!("--only: expected a part of one of: {names}, found {only}")));
        }
        for workload in &self.workload {
            self.check_workload(workload, args)
                .map_err(|error| usage(format!("workload {}: {error}", workload.name)))?;
        }
        Ok(())
    }

    fn check_workload(&self, workload: &WorkloadForm, args: &Args) -> anyhow::Result<()> {
        let scores = self.scores_of(workload).iter().map(|score| score.from.parse());
        let scores = scores.collect::<anyhow::Result<Vec<ScoreSource>>>()?;
        if workload.programs.is_empty() {
            return Err(usage("expected at least one program, found none".to_owned()));
        }
        let ways = self.ways_of(workload, args);
        if ways.is_empty() {
            return Err(usage("expected at least one way to run it, found none".to_owned()));
        }
        check::ways(ways, workload.programs.len(), &scores)
    }

    fn ways_of<'a>(&'a self, workload: &'a WorkloadForm, args: &'a Args) -> &'a [String] {
        if args.policies.is_empty() {
            workload.ways.as_ref().unwrap_or(&self.ways)
        } else {
            &args.policies
        }
    }

    fn scores_of<'a>(&'a self, workload: &'a WorkloadForm) -> &'a [Score] {
        if workload.score.is_empty() { &self.score } else { &workload.score }
    }
}

fn seconds(value: f64) -> anyhow::Result<Nanos> {
    let time = Duration::try_from_secs_f64(value);
    time.map(Nanos::from).map_err(|why| usage(format!("ready_s: expected seconds: {why}")))
}

/// A measurement in its directory.
pub struct Measurement {
    file: MeasurementFile,
    path: PathBuf,
    /// Directory of the workloads' sessions.
    dir: PathBuf,
    _claim: OwnedFd,
}

impl Measurement {
    /// Reads the file and enters the working directory of its programs, `work` in that of `args`.
    pub fn open(path: &Path, args: &Args, stop: &AtomicBool) -> anyhow::Result<Self> {
        let file = MeasurementFile::read(path)?;
        file.check(args).map_err(|error| usage(format!("{}: {error}", path.display())))?;
        let claim = session::claim(&args.output)?;
        // Absolute, since the working directory changes below.
        let path =
            path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
        let dir = args.output.canonicalize().context("cannot find the directory of -o")?;
        let work = dir.join("work");
        Dir::open_or_make(&work, 0o777)?;
        std::env::set_current_dir(&work).context("cannot enter the programs' directory")?;
        let measurement = Self { file, path, dir, _claim: claim };
        measurement.prepare(stop)?;
        Ok(measurement)
    }

    /// Environment of the programs: where the file and colocate are.
    pub fn environment(&self) -> anyhow::Result<Vec<(&'static str, OsString)>> {
        let folder = self.path.parent().context("expected a file in a folder")?;
        let ourselves = std::env::current_exe().context("cannot find our own executable")?;
        Ok(vec![("MEASUREMENT", folder.into()), ("COLOCATE", ourselves.into())])
    }

    /// Runs the file's preparation, unless it has succeeded before.
    fn prepare(&self, stop: &AtomicBool) -> anyhow::Result<()> {
        let mark = self.dir.join("prepared");
        if self.file.prepare.is_empty() {
            return Ok(());
        }
        match input::text(&mark, input::FIGURES) {
            Ok(before) if before == self.file.prepare => return Ok(()),
            Ok(_) => bail!(
                "{} was prepared by other commands than those of {}: name another directory with -o",
                self.dir.display(),
                self.path.display()
            ),
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error.into()),
        }
        let log = self.dir.join("prepare.log");
        let output = colocate_files::create(&log, FileMode::ByUmask)?;
        let mut command = Command::new("sh");
        command.args(["-euc", &self.file.prepare]).envs(self.environment()?);
        let child = children::start_into(&mut command, &output).context("cannot start sh")?;
        let ask = children::terminate_group;
        let ends = children::wait_all(&[child], &[], stop, ask, || Ok(()))?;
        let Some(ends) = ends else {
            return Err(exit::stopped("stopped during the preparation".to_owned()));
        };
        let status = ends[0].waited.status;
        if status != 0 {
            bail!("the preparation ended with status {status}; see {}", log.display());
        }
        // Only after success: otherwise the preparation runs again.
        output::write_private(Some(&mark), &self.file.prepare)
    }

    /// Directory and settings of each workload that `args` selects, in the order of the file.
    pub fn workloads(&self, args: &Args) -> anyhow::Result<Vec<(PathBuf, StudySettings)>> {
        let only = args.only.as_deref().unwrap_or_default();
        let chosen = self.file.workload.iter().filter(|workload| workload.name.contains(only));
        let found = chosen.map(|workload| {
            Ok((self.dir.join(file_name(&workload.name)), self.settings(workload, args)?))
        });
        found.collect()
    }

    fn settings(&self, workload: &WorkloadForm, args: &Args) -> anyhow::Result<StudySettings> {
        let file = &self.file;
        let policies = file.ways_of(workload, args).to_vec();
        let given = args.baseline.clone().or_else(|| workload.baseline.clone());
        let baseline = given.or_else(|| file.baseline.clone());
        let server = state::Server {
            ready: workload.ready.clone(),
            within_ns: workload.ready_s.map(seconds).transpose()?,
            until: workload.until,
        };
        let jobs = workload.programs.iter().map(|program| session::job(program.command()));
        let scores = file.scores_of(workload);
        let settings = StudySettings {
            name: workload.name.clone(),
            jobs: jobs.collect::<anyhow::Result<_>>()?,
            // Without policies there is no name, and `check` refuses the settings.
            baseline: baseline.or_else(|| policies.first().cloned()).unwrap_or_default(),
            server,
            scores: scores.to_vec(),
            attach: workload.attach,
            pause_ms: workload.pause_ms,
            beside: workload.beside.iter().map(ProgramCommand::command).collect(),
            policies,
            repetitions: args.repetitions.or(file.repetitions).unwrap_or(REPETITIONS),
            seed: args.seed.or(file.seed).unwrap_or(SEED),
        };
        settings.check().map_err(|error| usage(format!("workload {}: {error}", workload.name)))?;
        Server::of_kept(&settings.server)?.check_words(settings.jobs.len())?;
        Ok(settings)
    }

    /// The command that resumes this measurement, begun with `args`.
    pub fn resume_command(&self, args: &Args) -> String {
        let file = word(&self.path.to_string_lossy());
        let dir = word(&self.dir.to_string_lossy());
        let mut command = format!("colocate compare --file {file} --resume -o {dir}");
        let repetitions = args.repetitions.map(|it| it.to_string());
        let seed = args.seed.map(|it| it.to_string());
        let policies = Some(args.policies.join(",")).filter(|it| !it.is_empty());
        for (option, value) in [
            ("--only", &args.only),
            ("--policies", &policies),
            ("--baseline", &args.baseline),
            ("-n", &repetitions),
            ("--seed", &seed),
        ] {
            if let Some(value) = value {
                command += &format!(" {option} {}", word(value));
            }
        }
        command
    }
}
