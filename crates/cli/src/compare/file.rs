//! Measurement files: workloads with scores, and ways to run them.

use super::score::Source;
use super::{Args, REPETITIONS, SEED, session};
use crate::exit::{self, usage};
use crate::run::server::Server;
use crate::{children, input};
use anyhow::{Context, bail};
use colocate_figures::state::{self, AttachPeriod, Score, Settings};
use colocate_files::{Dir, Mode};
use colocate_machine::Nanos;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Version of the format that this build reads.
const VERSION: u32 = 1;

/// A measurement file (docs/reference/measurements.md).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
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
    workload: Vec<Workload>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Workload {
    /// Name of the workload. `{KEY}` is replaced as in `programs`.
    name: String,
    /// Values by key: one workload for each combination, with `{KEY}` replaced by the value.
    #[serde(default)]
    each: BTreeMap<String, Vec<String>>,
    programs: Vec<Program>,
    ways: Option<Vec<String>>,
    baseline: Option<String>,
    #[serde(default)]
    score: Vec<Score>,
    ready: Option<String>,
    ready_s: Option<f64>,
    until: Option<u32>,
    attach: Option<AttachPeriod>,
    pause_ms: Option<u32>,
}

impl Workload {
    /// The workloads for all combinations of the values of `each`.
    fn expanded(mut self) -> Vec<Self> {
        let Some((key, values)) = self.each.pop_first() else { return vec![self] };
        values.iter().flat_map(|value| self.with(&key, value).expanded()).collect()
    }

    fn with(&self, key: &str, value: &str) -> Self {
        let key = format!("{{{key}}}");
        let programs = self.programs.iter().map(|program| match program {
            Program::Shell(text) => Program::Shell(text.replace(&key, value)),
            Program::Words(words) => {
                Program::Words(words.iter().map(|word| word.replace(&key, value)).collect())
            }
        });
        let name = self.name.replace(&key, value);
        Self { name, programs: programs.collect(), ..self.clone() }
    }
}

/// A command: a text for `sh -c`, or words.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Program {
    Shell(String),
    Words(Vec<String>),
}

impl Program {
    fn command(&self) -> Vec<String> {
        match self {
            Self::Shell(text) => ["sh", "-c", text].map(str::to_owned).to_vec(),
            Self::Words(words) => words.clone(),
        }
    }
}

fn seconds(value: f64) -> anyhow::Result<Nanos> {
    let time = Duration::try_from_secs_f64(value);
    time.map(Nanos::from).map_err(|why| usage(format!("ready_s: expected seconds: {why}")))
}

/// A measurement in its directory.
pub struct Measurement {
    file: File,
    path: PathBuf,
    /// Directory of the workloads' sessions.
    dir: PathBuf,
}

impl Measurement {
    /// Reads the file and enters the working directory of its programs, `work` below the directory
    /// of `args`.
    pub fn open(path: &Path, args: &Args, stop: &AtomicBool) -> anyhow::Result<Self> {
        let text = input::text(path, input::FIGURES)?;
        let mut file: File = toml::from_str(&text).map_err(|error| {
            usage(format!("expected a measurement in {}, found: {error}", path.display()))
        })?;
        if file.version != VERSION {
            let found = file.version;
            let path = path.display();
            return Err(usage(format!("expected version 1 in {path}, found {found}")));
        }
        file.workload = file.workload.into_iter().flat_map(Workload::expanded).collect();
        Dir::open_or_make(&args.output, 0o777)?;
        // Absolute, since the working directory changes below.
        let path =
            path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
        let dir = args.output.canonicalize().context("cannot find the directory of -o")?;
        let work = dir.join("work");
        Dir::open_or_make(&work, 0o777)?;
        std::env::set_current_dir(&work).context("cannot enter the programs' directory")?;
        let measurement = Self { file, path, dir };
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
        if self.file.prepare.is_empty() || mark.exists() {
            return Ok(());
        }
        let log = self.dir.join("prepare.log");
        let output = colocate_files::create(&log, Mode::ByUmask)?;
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
        colocate_files::create(&mark, Mode::ByUmask)?;
        Ok(())
    }

    /// Directory and settings of each workload that `args` selects, in the order of the file.
    pub fn workloads(&self, args: &Args) -> anyhow::Result<Vec<(PathBuf, Settings)>> {
        let only = args.only.as_deref().unwrap_or_default();
        let chosen = self.file.workload.iter().filter(|workload| workload.name.contains(only));
        let chosen = chosen.map(|workload| {
            let dir = self.dir.join(session::file_name(&workload.name));
            Ok((dir, self.settings(workload, args)?))
        });
        let chosen: Vec<_> = chosen.collect::<anyhow::Result<_>>()?;
        if chosen.is_empty() {
            let names: Vec<&str> = self.file.workload.iter().map(|it| it.name.as_str()).collect();
            let names = names.join(", ");
            return Err(usage(format!("--only: expected a part of one of: {names}, found {only}")));
        }
        Ok(chosen)
    }

    fn settings(&self, workload: &Workload, args: &Args) -> anyhow::Result<Settings> {
        let file = &self.file;
        let policies = if args.policies.is_empty() {
            workload.ways.clone().unwrap_or_else(|| file.ways.clone())
        } else {
            args.policies.clone()
        };
        policies.iter().try_for_each(|way| session::check_policy(way))?;
        let given = args.baseline.clone().or_else(|| workload.baseline.clone());
        let baseline = given.or_else(|| file.baseline.clone());
        let server = state::Server {
            ready: workload.ready.clone(),
            within_ns: workload.ready_s.map(seconds).transpose()?,
            until: workload.until,
        };
        let jobs = workload.programs.iter().map(|program| session::job(program.command()));
        let scores = if workload.score.is_empty() { &file.score } else { &workload.score };
        scores.iter().try_for_each(|score| score.from.parse().map(|_: Source| ()))?;
        let settings = Settings {
            name: workload.name.clone(),
            jobs: jobs.collect::<anyhow::Result<_>>()?,
            // Without policies there is no name, and `check` refuses the settings.
            baseline: baseline.or_else(|| policies.first().cloned()).unwrap_or_default(),
            server,
            scores: scores.clone(),
            attach: workload.attach,
            pause_ms: workload.pause_ms,
            policies,
            repetitions: args.repetitions.or(file.repetitions).unwrap_or(REPETITIONS),
            seed: args.seed.or(file.seed).unwrap_or(SEED),
        };
        settings.check()?;
        Server::of_kept(&settings.server)?.check_words(settings.jobs.len())?;
        Ok(settings)
    }

    /// The command that resumes this measurement.
    pub fn resume_command(&self) -> String {
        let (file, dir) = (self.path.display(), self.dir.display());
        format!("colocate compare --file {file} --resume -o {dir}")
    }
}
