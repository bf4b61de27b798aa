//! The directory of a comparison: its settings, the finished runs and their outputs.

use super::{Args, POLICIES, REPETITIONS, SEED};
use crate::exit::usage;
use crate::policies::Policies;
use crate::run::jobs;
use crate::run::server::Server;
use crate::{input, output};
use anyhow::{Context, anyhow};
use colocate_figures::state::{BARE, Job, Run, Settings, State};
use colocate_files::Dir;
use colocate_observe::identity;
use colocate_policy::table::Prior;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Separator of programs on the command line.
const SEPARATOR: &str = ":::";
/// Finished runs, in the directory of the comparison.
const STATE: &str = "state.json";

/// A comparison with its directory.
pub struct Session {
    /// The directory.
    pub dir: PathBuf,
    /// Settings and finished runs.
    pub state: State,
}

/// Files of a run.
pub struct RunFiles {
    /// Output of the programs and of colocate.
    pub log: PathBuf,
    /// The report of `colocate run`.
    pub report: PathBuf,
}

impl Session {
    /// Begins the comparison requested by `args`, or resumes the one in its directory.
    pub fn open(args: &Args) -> anyhow::Result<Self> {
        let dir = args.output.clone();
        let begun = read_state(&dir.join(STATE))?;
        let state = match (begun, args.resume) {
            (Some(begun), true) => resumed(begun, args, &dir)?,
            (None, false) => State::new(asked(args, None)?),
            (Some(_), false) => {
                return Err(anyhow!(
                    "{} holds a comparison already: go on with --resume, or name another directory with -o",
                    dir.display()
                ));
            }
            (None, true) => {
                return Err(anyhow!(
                    "expected a comparison to resume in {}, found none",
                    dir.display()
                ));
            }
        };
        for part in ["logs", "reports"] {
            Dir::open_or_make(&dir.join(part), 0o777)?;
        }
        let session = Self { dir, state };
        session.save()?;
        Ok(session)
    }

    /// The files of run `number` under `policy`.
    pub fn files(&self, number: usize, policy: &str) -> RunFiles {
        let name = format!("{:04}-{policy}", number + 1);
        RunFiles {
            log: self.dir.join("logs").join(format!("{name}.log")),
            report: self.dir.join("reports").join(format!("{name}.json")),
        }
    }

    /// Keeps a finished run. The file on disk is complete even if colocate is killed.
    pub fn keep(&mut self, run: Run) -> anyhow::Result<()> {
        self.state.runs.push(run);
        self.save()
    }

    /// Keeps a failed run.
    pub fn keep_failure(&mut self, run: Run) -> anyhow::Result<()> {
        self.state.failures.push(run);
        self.save()
    }

    fn save(&self) -> anyhow::Result<()> {
        output::write_private(Some(&self.dir.join(STATE)), &self.state.to_json())
    }
}

fn read_state(path: &Path) -> anyhow::Result<Option<State>> {
    let text = match input::text(path, input::STATE) {
        Err(error) if error.is_missing() => return Ok(None),
        read => read?,
    };
    State::from_json(&text)
        .map(Some)
        .with_context(|| format!("cannot go on with {}", path.display()))
}

/// `begun`, if `args` request nothing else and the programs are unchanged.
fn resumed(begun: State, args: &Args, dir: &Path) -> anyhow::Result<State> {
    let asked = asked(args, Some(&begun.settings))?;
    begun
        .settings
        .check_same(&asked)
        .with_context(|| format!("cannot go on with {}", dir.join(STATE).display()))?;
    Ok(begun)
}

/// The settings in `args`, with those of `begun` or the defaults for the rest.
fn asked(args: &Args, begun: Option<&Settings>) -> anyhow::Result<Settings> {
    let commands = match begun {
        Some(begun) if args.command.is_empty() => {
            begun.jobs.iter().map(|job| job.command.clone()).collect()
        }
        _ => split(&args.command),
    };
    let jobs = commands.into_iter().map(job).collect::<anyhow::Result<Vec<_>>>()?;
    args.server.check_words(jobs.len())?;
    let policies = if args.policies.is_empty() {
        begun.map_or_else(
            || POLICIES.split(',').map(str::to_owned).collect(),
            |begun| begun.policies.clone(),
        )
    } else {
        args.policies.clone()
    };
    policies.iter().try_for_each(|policy| check_policy(policy))?;
    let baseline = args.baseline.clone().or_else(|| begun.map(|begun| begun.baseline.clone()));
    let repetitions = args.repetitions.or_else(|| begun.map(|begun| begun.repetitions));
    let server = match begun {
        Some(begun) if args.server.is_default() => Server::of_kept(&begun.server)?,
        _ => args.server.clone(),
    };
    let settings = Settings {
        server: server.kept(),
        name: args.name.clone().unwrap_or_else(|| name_of(&jobs)),
        jobs,
        policies,
        baseline: baseline.unwrap_or_else(|| "os".to_owned()),
        repetitions: repetitions.unwrap_or(REPETITIONS),
        seed: args.seed.or_else(|| begun.map(|begun| begun.seed)).unwrap_or(SEED),
    };
    settings.check()?;
    Ok(settings)
}

/// Checks that a policy is known to `colocate run` or is `bare`.
fn check_policy(policy: &str) -> anyhow::Result<()> {
    if policy == BARE {
        return Ok(());
    }
    match Policies::Once.read(policy) {
        Ok(spec) if spec.has_prior(Prior::Speeds) => Err(usage(format!(
            "expected a policy that needs no figures of how fast this machine is, found {policy}"
        ))),
        Ok(_) => Ok(()),
        Err(error) => Err(usage(format!("{error}; `bare` is allowed here too"))),
    }
}

/// The commands on a command line, separated by `:::`.
fn split(words: &[String]) -> Vec<Vec<String>> {
    words.split(|word| word == SEPARATOR).map(<[String]>::to_vec).collect()
}

fn job(command: Vec<String>) -> anyhow::Result<Job> {
    if command.is_empty() {
        return Err(anyhow!("expected a program on both sides of `:::`, found none"));
    }
    let argv = command.iter().map(OsString::from).collect();
    let found = jobs::find(argv)?;
    let identity = identity::of_file(&found.path)
        .with_context(|| format!("cannot read {}", found.path.display()))?;
    Ok(Job { command, identity })
}

/// The programs' names, joined by `+`.
fn name_of(jobs: &[Job]) -> String {
    let names = jobs.iter().map(|job| {
        let path = Path::new(&job.command[0]);
        path.file_name()
            .map_or_else(|| job.command[0].clone(), |n| n.to_string_lossy().into_owned())
    });
    names.collect::<Vec<_>>().join("+")
}
