//! The directory of a comparison: its settings, the finished runs and their outputs.

use super::names::{RunFiles, file_name, word};
use super::{Args, POLICIES, REPETITIONS, SEED, check};
use crate::exit::usage;
use crate::run::jobs;
use crate::run::server::Server;
use crate::{input, output};
use anyhow::{Context, anyhow};
use colocate_figures::state::{ComparedJob, StudySettings, StudyState};
use colocate_files::Dir;
use colocate_observe::identity;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Finished runs, in the directory of the comparison.
const STATE: &str = "state.json";

/// A comparison with its directory.
pub struct ComparisonSession {
    /// The directory.
    pub dir: PathBuf,
    /// Settings and finished runs.
    pub state: StudyState,
    /// The command that resumes the comparison.
    pub resume_command: String,
    _claim: OwnedFd,
}

impl ComparisonSession {
    /// Begins the comparison requested by `args`, or resumes the one in its directory.
    pub fn open(args: &Args) -> anyhow::Result<Self> {
        let dir = word(&args.output.to_string_lossy());
        let resume_command = format!("colocate compare --resume -o {dir}");
        Self::begin(args.output.clone(), args.resume, resume_command, |begun| {
            if begun.is_none() && args.resume {
                let dir = args.output.display();
                return Err(anyhow!("expected a comparison to resume in {dir}, found none"));
            }
            asked(args, begun.filter(|_| args.resume))
        })
    }

    /// Begins the comparison of `settings` in `dir`, or resumes it where there is one.
    pub fn of_file(
        dir: PathBuf,
        settings: StudySettings,
        args: &Args,
        resume_command: String,
    ) -> anyhow::Result<Self> {
        Self::begin(dir, args.resume, resume_command, |_| Ok(settings))
    }

    /// `settings` gets those of the comparison in `dir`, if there is one.
    fn begin(
        dir: PathBuf,
        resume: bool,
        resume_command: String,
        settings: impl FnOnce(Option<&StudySettings>) -> anyhow::Result<StudySettings>,
    ) -> anyhow::Result<Self> {
        let begun = read_state(&dir.join(STATE))?;
        let settings = settings(begun.as_ref().map(|begun| &begun.settings))?;
        let state = match begun {
            Some(begun) if resume => {
                // The programs must be unchanged, too.
                let same = begun.settings.check_same(&settings);
                same.with_context(|| format!("cannot go on with {}", dir.join(STATE).display()))?;
                begun
            }
            None => StudyState::new(settings),
            Some(_) => {
                return Err(anyhow!(
                    "{} holds a comparison already: go on with --resume, or name another directory with -o",
                    dir.display()
                ));
            }
        };
        let claim = claim(&dir)?;
        for part in ["logs", "reports"] {
            Dir::open_or_make(&dir.join(part), 0o777)?;
        }
        let session = Self { dir, state, resume_command, _claim: claim };
        session.save()?;
        Ok(session)
    }

    /// The files of run `number` under `policy`.
    pub fn files(&self, number: usize, policy: &str) -> RunFiles {
        let name = format!("{:04}-{}", number + 1, file_name(policy));
        RunFiles {
            log: self.dir.join("logs").join(format!("{name}.log")),
            report: self.dir.join("reports").join(format!("{name}.json")),
        }
    }

    /// Keeps the finished runs. The file on disk is complete even if colocate is killed.
    pub fn save(&self) -> anyhow::Result<()> {
        output::write_private(Some(&self.dir.join(STATE)), &self.state.to_json())
    }
}

/// Claims a directory, made if need be, until the returned value is dropped: two comparisons in one would mix their runs.
pub fn claim(dir: &Path) -> anyhow::Result<OwnedFd> {
    Dir::open_or_make(dir, 0o777)?.claim()?.with_context(|| {
        let remedy = "wait for it, or name another directory with -o";
        format!("another comparison is running in {}: {remedy}", dir.display())
    })
}

fn read_state(path: &Path) -> anyhow::Result<Option<StudyState>> {
    let text = match input::text(path, input::STATE) {
        Err(error) if error.is_missing() => return Ok(None),
        read => read?,
    };
    let state = StudyState::from_json(&text);
    state.map(Some).with_context(|| format!("cannot go on with {}", path.display()))
}

/// The settings in `args`, with those of `begun` or the defaults for the rest.
fn asked(args: &Args, begun: Option<&StudySettings>) -> anyhow::Result<StudySettings> {
    let commands: Vec<Vec<String>> = match begun {
        Some(begun) if args.command.is_empty() => {
            begun.jobs.iter().map(|job| job.command.clone()).collect()
        }
        _ => args.command.split(|word| word == jobs::SEPARATOR).map(<[String]>::to_vec).collect(),
    };
    let jobs = commands.into_iter().map(job).collect::<anyhow::Result<Vec<_>>>()?;
    args.server.check_words(jobs.len())?;
    let policies = match begun {
        _ if !args.policies.is_empty() => args.policies.clone(),
        Some(begun) => begun.policies.clone(),
        None => POLICIES.split(',').map(str::to_owned).collect(),
    };
    check::ways(&policies, jobs.len(), &[])?;
    let baseline = args.baseline.clone().or_else(|| begun.map(|begun| begun.baseline.clone()));
    let baseline = baseline.or_else(|| policies.iter().find(|policy| *policy == "os").cloned());
    let repetitions = args.repetitions.or_else(|| begun.map(|begun| begun.repetitions));
    let server = match begun {
        Some(begun) if args.server.is_default() => Server::of_kept(&begun.server)?,
        _ => args.server.clone(),
    };
    let settings = StudySettings {
        server: server.kept(),
        scores: Vec::new(),
        attach: None,
        pause_ms: None,
        beside: Vec::new(),
        name: args.name.clone().unwrap_or_else(|| name_of(&jobs)),
        jobs,
        baseline: baseline.or_else(|| policies.first().cloned()).unwrap_or_default(),
        policies,
        repetitions: repetitions.unwrap_or(REPETITIONS),
        seed: args.seed.or_else(|| begun.map(|begun| begun.seed)).unwrap_or(SEED),
    };
    settings.check().map_err(|error| usage(error.to_string()))?;
    Ok(settings)
}

/// The program of `command`, with its identity.
pub fn job(command: Vec<String>) -> anyhow::Result<ComparedJob> {
    if command.is_empty() {
        return Err(anyhow!("expected a program on both sides of `:::`, found none"));
    }
    let argv = command.iter().map(OsString::from).collect();
    let found = jobs::find(argv)?;
    let identity = identity::of_file(&found.path)
        .with_context(|| format!("cannot read {}", found.path.display()))?;
    Ok(ComparedJob { command, identity })
}

/// The programs' names, joined by `+`.
fn name_of(jobs: &[ComparedJob]) -> String {
    let names = jobs.iter().map(|job| {
        let path = Path::new(&job.command[0]);
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()
    });
    names.collect::<Vec<_>>().join("+")
}
