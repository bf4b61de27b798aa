//! Workloads: the programs to schedule, from a file (docs/reference/schedule.md) or from the
//! command line.

use crate::exit::Failure;
use crate::run::jobs;
use crate::{args, demand, input};
use anyhow::anyhow;
use colocate_act::launch::Command;
use colocate_files::MaxSize;
use colocate_host::JobTarget;
use colocate_machine::Nanos;
use colocate_machine::printable::is_unprintable;
use colocate_model::Phase;
use colocate_policy::{PolicySpec, SoloProfile};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Format version of this build.
const VERSION: u32 = 1;
/// Most jobs of a workload.
const MOST: usize = 500;
/// Most bytes of a file. Chosen: 500 jobs with long command lines take far less.
const LIMIT: MaxSize = MaxSize::mib(16);
/// Default quantum of policies that stop jobs: Feliu's.
const QUANTUM: Nanos = Nanos::from_millis(200);
/// Default quantum of policies that stop no job: the period at which phases are sampled. Chosen: a
/// change of phase takes effect within 0.2 s, and sampling 1,000 threads costs some 1 % of a PU
/// (docs/results/benchmarks.md).
const LOOKED: Nanos = Nanos::from_millis(100);
/// Shortest and longest quantum. Chosen: below, launching and stopping take longer than running;
/// above, a job of a full queue waits for hours.
const QUANTA: [Nanos; 2] = [Nanos::from_millis(10), Nanos::from_secs(60)];

/// A workload: the programs to schedule and the quantum.
pub struct Workload {
    /// Time between two decisions; `None` if not given.
    pub quantum: Option<Nanos>,
    /// Whether jobs that have reached their target are started again until all have.
    pub repeat: bool,
    /// All jobs; each copy is a job of its own.
    pub jobs: Vec<ScheduledJob>,
}

/// A program to schedule.
#[derive(Clone)]
pub struct ScheduledJob {
    /// Unique name, as shown.
    pub name: String,
    /// The program.
    pub command: Command,
    /// Runs or instructions at which the job is complete.
    pub target: JobTarget,
    /// Demand vectors: one for all threads, or one for each; empty if unknown.
    pub phases: Vec<Phase>,
    /// Solo profile, if given.
    pub alone: Option<SoloProfile>,
}

/// A workload file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WorkloadFile {
    version: Spanned<u32>,
    quantum: Option<Spanned<String>>,
    #[serde(default)]
    repeat: bool,
    #[serde(default)]
    job: Vec<Spanned<JobForm>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct JobForm {
    name: Option<Spanned<String>>,
    command: Spanned<Vec<String>>,
    copies: Option<Spanned<u32>>,
    dir: Option<Spanned<PathBuf>>,
    env: Option<Spanned<BTreeMap<String, String>>>,
    target: Option<Spanned<TargetForm>>,
    demand: Option<Spanned<PathBuf>>,
    alone: Option<Spanned<SoloProfile>>,
}

/// The target in a workload file.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TargetForm {
    Completion,
    Completions(u32),
    Instructions(u64),
}

/// Parses a quantum: `200 ms` or `0.2`, in seconds.
pub fn quantum(text: &str) -> Result<Nanos, String> {
    args::time(text, &(QUANTA[0]..=QUANTA[1]), "a time from 10ms to 60s, such as 200ms or 0.2")
}

impl Workload {
    /// Reads a workload; errors name the file and, where known, the line.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = input::text(path, LIMIT)?;
        WorkloadReader { path, text: &text }.workload()
    }

    /// The programs of a command line, separated by `:::`.
    pub fn of_words(words: &[OsString]) -> anyhow::Result<Self> {
        let commands = jobs::commands(words)?;
        if commands.len() > MOST {
            return Err(anyhow!("expected at most {MOST} jobs, found {}", commands.len()));
        }
        let jobs = commands.into_iter().map(|command| ScheduledJob {
            name: command.name(),
            command,
            target: JobTarget::default(),
            phases: Vec::new(),
            alone: None,
        });
        Ok(Self { quantum: None, repeat: false, jobs: numbered(jobs.collect()) })
    }

    /// Demand vector of each job's first thread; unknown if not given.
    pub fn demands(&self) -> Vec<Phase> {
        self.jobs.iter().map(|job| job.phases.first().cloned().unwrap_or_default()).collect()
    }

    /// Time between two decisions of `policy`; the default if not given.
    pub fn quantum(&self, policy: &PolicySpec) -> Nanos {
        let default = if policy.waits() { QUANTUM } else { LOOKED };
        self.quantum.unwrap_or(default)
    }
}

/// Numbers jobs of equal names, without producing the name of another job.
fn numbered(mut jobs: Vec<ScheduledJob>) -> Vec<ScheduledJob> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for job in &jobs {
        *times.entry(job.name.clone()).or_default() += 1;
    }
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    for job in jobs.iter_mut().filter(|job| times[&job.name] > 1) {
        let number = last.entry(job.name.clone()).or_default();
        job.name = loop {
            *number += 1;
            let name = format!("{}#{number}", job.name);
            if !times.contains_key(&name) {
                break name;
            }
        };
    }
    jobs
}

/// A reader of a workload file, for errors with a line.
struct WorkloadReader<'a> {
    path: &'a Path,
    text: &'a str,
}

impl WorkloadReader<'_> {
    fn workload(&self) -> anyhow::Result<Workload> {
        let file: WorkloadFile = toml::from_str(self.text).map_err(|error| {
            // Messages of the parser may have several lines.
            let found = error.message().lines().collect::<Vec<_>>().join(", ");
            // An error without a span is about the whole file: line 1.
            let at = error.span().map_or(0, |span| span.start);
            self.wrong(at, "a workload (docs/reference/schedule.md)", &found)
        })?;
        if *file.version.get_ref() != VERSION {
            let found = format!("version {}", file.version.get_ref());
            return Err(self.wrong(file.version.span().start, "version 1", &found));
        }
        let quantum = file.quantum.as_ref().map(|text| {
            quantum(text.get_ref())
                .map_err(|why| anyhow!("{}: {why}", self.place(text.span().start)))
        });
        let quantum = quantum.transpose()?;
        let mut jobs = Vec::new();
        for form in &file.job {
            let copies = form.get_ref().copies.as_ref();
            let count = copies.map_or(1, |copies| *copies.get_ref() as usize);
            let at = copies.map_or(form.span().start, |copies| copies.span().start);
            if count == 0 {
                return Err(self.wrong(at, "copies of at least 1", "0"));
            }
            if jobs.len() + count > MOST {
                let found = (jobs.len() + count).to_string();
                return Err(self.wrong(at, "1 to 500 jobs in all", &found));
            }
            let job = self.job(form.get_ref())?;
            jobs.extend(std::iter::repeat_n(job, count));
        }
        if jobs.is_empty() {
            return Err(self.wrong(0, "1 to 500 jobs in all", "0"));
        }
        Ok(Workload { quantum, repeat: file.repeat, jobs: numbered(jobs) })
    }

    fn job(&self, form: &JobForm) -> anyhow::Result<ScheduledJob> {
        let dir = form.dir.as_ref().map(|dir| self.dir(dir)).transpose()?;
        let mut command = self.command(&form.command, dir.as_deref())?;
        command.dir = dir;
        if let Some(env) = &form.env {
            command.env = self.env(env)?;
        }
        if let Some(name) = form.name.as_ref().filter(|name| !is_name(name.get_ref())) {
            let found = format!("{:?}", name.get_ref());
            return Err(self.wrong(name.span().start, "a name on one line", &found));
        }
        let name = form.name.as_ref().map(|name| name.get_ref().clone());
        Ok(ScheduledJob {
            name: name.unwrap_or_else(|| command.name()),
            command,
            target: form.target.as_ref().map_or(Ok(JobTarget::default()), |it| self.target(it))?,
            phases: form.demand.as_ref().map_or(Ok(Vec::new()), |file| self.demand(file))?,
            alone: form.alone.as_ref().map(|alone| self.alone(alone)).transpose()?,
        })
    }

    /// The command with its program found: a name with a slash from `dir`, if given.
    fn command(&self, argv: &Spanned<Vec<String>>, dir: Option<&Path>) -> anyhow::Result<Command> {
        let at = argv.span().start;
        if let Some(word) = argv.get_ref().iter().find(|word| word.contains('\0')) {
            return Err(self.wrong(at, "words without null bytes", &format!("{word:?}")));
        }
        let argv: Vec<OsString> = argv.get_ref().iter().map(OsString::from).collect();
        let Some(first) = argv.first().filter(|first| !first.is_empty()).cloned() else {
            return Err(self.wrong(at, "a program and its arguments", "none"));
        };
        let mut search = argv.clone();
        // Names without a slash are searched in PATH, as by execvp(3).
        if let Some(dir) = dir.filter(|_| first.to_string_lossy().contains('/')) {
            search[0] = dir.join(&first).into_os_string();
        }
        let mut found = jobs::find(search).map_err(|failure| Failure {
            message: format!("{}: {}", self.place(at), failure.message),
            ..failure
        })?;
        // The program sees its name as given, not as found.
        found.argv = argv;
        if dir.is_some() {
            // The lookup is relative to this process's directory, the launch to `dir`.
            found.path = std::path::absolute(&found.path)?;
        }
        Ok(found)
    }

    /// An existing folder, relative to the workload file's.
    fn dir(&self, dir: &Spanned<PathBuf>) -> anyhow::Result<PathBuf> {
        let found = self.beside(dir.get_ref());
        if !found.is_dir() {
            let found = format!("{:?}", dir.get_ref());
            return Err(self.wrong(dir.span().start, "a directory", &found));
        }
        Ok(std::path::absolute(found)?)
    }

    fn env(
        &self,
        env: &Spanned<BTreeMap<String, String>>,
    ) -> anyhow::Result<Vec<(OsString, OsString)>> {
        let mut names = env.get_ref().keys();
        let name = names.find(|name| name.is_empty() || name.contains(['=', '\0']));
        let name = name.map(|name| ("names of environment variables, without =", name));
        let value = env.get_ref().values().find(|value| value.contains('\0'));
        match name.or(value.map(|value| ("values without null bytes", value))) {
            Some((expected, found)) => {
                Err(self.wrong(env.span().start, expected, &format!("{found:?}")))
            }
            None => {
                Ok(env.get_ref().iter().map(|(name, value)| (name.into(), value.into())).collect())
            }
        }
    }

    fn target(&self, target: &Spanned<TargetForm>) -> anyhow::Result<JobTarget> {
        match *target.get_ref() {
            TargetForm::Completions(0) | TargetForm::Instructions(0) => {
                Err(self.wrong(target.span().start, "a target of at least 1", "0"))
            }
            TargetForm::Completion => Ok(JobTarget::Completions(1)),
            TargetForm::Completions(runs) => Ok(JobTarget::Completions(runs)),
            TargetForm::Instructions(instructions) => Ok(JobTarget::Instructions(instructions)),
        }
    }

    fn demand(&self, file: &Spanned<PathBuf>) -> anyhow::Result<Vec<Phase>> {
        let path = self.beside(file.get_ref());
        let found = demand::phases(&path);
        found.map_err(|why| anyhow!("{}: {why}", self.place(file.span().start)))
    }

    fn alone(&self, alone: &Spanned<SoloProfile>) -> anyhow::Result<SoloProfile> {
        let SoloProfile { seconds, memory, first_cache, loss } = *alone.get_ref();
        if loss > 1.0 {
            let found = loss.to_string();
            return Err(self.wrong(alone.span().start, "a loss from 0 to 1, a share", &found));
        }
        let figures = [seconds, memory, first_cache.unwrap_or(0.0), loss];
        match figures.into_iter().find(|figure| !figure.is_finite() || *figure < 0.0) {
            None => Ok(*alone.get_ref()),
            Some(it) => Err(self.wrong(alone.span().start, "numbers not below 0", &it.to_string())),
        }
    }

    /// Path of a file named in the workload file, relative to its folder.
    fn beside(&self, name: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(name)
    }

    /// `FILE:LINE` of byte `at` of the text.
    fn place(&self, at: usize) -> String {
        let before = self.text.get(..at).unwrap_or(self.text);
        format!("{}:{}", self.path.display(), 1 + before.matches('\n').count())
    }

    fn wrong(&self, at: usize, expected: &str, found: &str) -> anyhow::Error {
        anyhow!("{}: expected {expected}, found {found}", self.place(at))
    }
}

/// Whether a name fits into a table.
fn is_name(name: &str) -> bool {
    !name.trim().is_empty() && name.chars().count() <= 100 && !name.chars().any(is_unprintable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn parse(text: &str) -> Result<Workload, String> {
        let reader = WorkloadReader { path: Path::new("w.toml"), text };
        reader.workload().map_err(|error| error.to_string())
    }

    #[test]
    fn copies_are_jobs() {
        let text = r#"
            version = 1
            quantum = "50 ms"
            repeat = true
            [[job]]
            command = ["true", "b"]
            copies = 2
            env = { A = "1", B = "" }
            target = { instructions = 5_000 }
            [[job]]
            command = ["true"]
            [[job]]
            name = "the last"
            command = ["./sh"]
            dir = "/bin"
            target = "completion"
            alone = { seconds = 1.0, memory = 2.0 }
        "#;
        let found = parse(text).unwrap();
        let names: Vec<&str> = found.jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["true#1", "true#2", "true#3", "the last"]);
        assert_eq!(found.quantum(&PolicySpec::named("bas")), Nanos::from_millis(50));
        assert_eq!(found.quantum(&PolicySpec::named("os")), Nanos::from_millis(50));
        assert_eq!(found.jobs[1].target, JobTarget::Instructions(5_000));
        assert_eq!(found.jobs[0].command.env.len(), 2);
        let last = &found.jobs[3];
        assert_eq!((last.target, found.repeat), (JobTarget::Completions(1), true));
        assert_eq!(last.command.dir.as_deref(), Some(Path::new("/bin")));
        assert_eq!(
            (last.command.path.as_path(), &last.command.argv[0]),
            (Path::new("/bin/./sh"), &OsString::from("./sh"))
        );
        assert_eq!(last.alone.expect("there").first_cache, None);
    }

    #[test]
    fn no_two_are_called_the_same() {
        let job = |name: &str| format!("[[job]]\ncommand = [\"true\"]\nname = \"{name}\"\n");
        let text = ["a", "a#1", "a", "a#3", "a", "b"].map(job).concat();
        let found = parse(&format!("version = 1\n{text}")).unwrap();
        let names: Vec<&str> = found.jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["a#2", "a#1", "a#4", "a#3", "a#5", "b"]);
    }

    #[test]
    fn quanta() {
        let words = ["true".into()];
        let default = |name| {
            let policy = PolicySpec::named(name);
            Workload::of_words(&words).unwrap().quantum(&policy).0 / 1_000_000
        };
        assert_eq!(["bas", "os"].map(default), [200, 100]);
    }

    #[test]
    fn refused_with_the_line() {
        let job = |line: &str| format!("version = 1\n[[job]]\ncommand = [\"true\"]\n{line}\n");
        let texts = [
            "version = 2\n".to_owned(),
            "version = 1\n".to_owned(),
            "version = 1\nquantum = \"5 ms\"\n".to_owned(),
            "version = 1\nquantum-ms = 20\n".to_owned(),
            "version = 1\n[[job]]\ncommand = []\n".to_owned(),
            "version = 1\n[[job]]\ncommand = [\"no-such-program\"]\n".to_owned(),
            job("copys = 3"),
            job("copies = 501"),
            format!("{}[[job]]\ncommand = [\"true\"]\ncopies = 0\n", job("")),
            job("dir = \"nowhere\""),
            job("env = { \"A=B\" = \"1\" }"),
            job("env = { A = \"a\\u0000\" }"),
            "version = 1\n[[job]]\ncommand = [\"true\", \"a\\u0000b\"]\n".to_owned(),
            job("target = \"soon\""),
            job("target = { instructions = 0 }"),
            job("target = { completions = 1, instructions = 5 }"),
            job("demand = \"no-such.toml\""),
            job("alone = { seconds = -1.0, memory = 2.0 }"),
            job("name = \"a\\nb\""),
        ];
        let said: Vec<String> = texts.iter().map(|text| parse(text).err().unwrap()).collect();
        expect![[r#"
            w.toml:1: expected version 1, found version 2
            w.toml:1: expected 1 to 500 jobs in all, found 0
            w.toml:2: expected a time from 10ms to 60s, such as 200ms or 0.2, found "5 ms"
            w.toml:2: expected a workload (docs/reference/schedule.md), found unknown field `quantum-ms`, expected one of `version`, `quantum`, `repeat`, `job`
            w.toml:3: expected a program and its arguments, found none
            w.toml:3: no-such-program: command not found
            w.toml:4: expected a workload (docs/reference/schedule.md), found unknown field `copys`, expected one of `name`, `command`, `copies`, `dir`, `env`, `target`, `demand`, `alone`
            w.toml:4: expected 1 to 500 jobs in all, found 501
            w.toml:7: expected copies of at least 1, found 0
            w.toml:4: expected a directory, found "nowhere"
            w.toml:4: expected names of environment variables, without =, found "A=B"
            w.toml:4: expected values without null bytes, found "a\0"
            w.toml:3: expected words without null bytes, found "a\0b"
            w.toml:4: expected a workload (docs/reference/schedule.md), found unknown variant `soon`, expected one of `completion`, `completions`, `instructions`
            w.toml:4: expected a target of at least 1, found 0
            w.toml:4: expected a workload (docs/reference/schedule.md), found wanted exactly 1 element, more than 1 element
            w.toml:4: no-such.toml: No such file or directory (os error 2)
            w.toml:4: expected numbers not below 0, found -1
            w.toml:4: expected a name on one line, found "a\nb"
        "#]].assert_eq(&(said.join("\n") + "\n"));
    }
}
