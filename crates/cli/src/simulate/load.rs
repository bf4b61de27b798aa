//! A scenario from its file, with its machine and the demand vectors that it names.

use anyhow::{Context, anyhow};
use colocate_machine::{Machine, Performance, described, read};
use colocate_model::Phase;
use colocate_study::simulate::run::Bench;
use colocate_study::simulate::scenario::{Experiment, MAX_BYTES, Overrides, ScenarioFile};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A scenario that can be simulated.
pub struct Loaded {
    /// The scenario as it is simulated, which can be read again.
    pub effective: String,
    /// The same, ready to run.
    pub experiment: Experiment,
    /// The machine it is on.
    pub machine: Machine,
    performance: Performance,
    /// A digest of all that the figures depend on.
    pub inputs: String,
}

impl Loaded {
    /// The scenario on its machine.
    pub fn bench(&self) -> Bench<'_> {
        Bench::new(&self.machine, &self.performance, &self.experiment)
    }

    /// What would be simulated, on one line.
    pub fn summary(&self) -> String {
        let settings = self.bench().settings();
        format!(
            "{} on {}: {} jobs, {} threads; {} policies x {} seeds x {} sets of assumptions\n",
            settings.scenario,
            settings.machine,
            settings.jobs.len(),
            settings.tasks,
            settings.policies.len(),
            settings.seeds,
            settings.draws
        )
    }
}

/// Reads the scenario in `path`, with what is decided elsewhere in place of what it says.
///
/// # Errors
/// With the path, the line and the reason.
pub fn load(path: &Path, overrides: &Overrides) -> anyhow::Result<Loaded> {
    loaded(path, overrides).with_context(|| format!("cannot use scenario {}", path.display()))
}

fn loaded(path: &Path, overrides: &Overrides) -> anyhow::Result<Loaded> {
    let mut file = ScenarioFile::from_toml(&text(path)?)?;
    let line = file.machine_line();
    let folder = path.parent().unwrap_or(Path::new(""));
    // What the command line names is relative to where we are, what a file names to the file.
    if overrides.machine.is_none()
        && let Some(machine) = beside(folder, file.machine())
    {
        file.put(&Overrides { machine: Some(machine), ..Overrides::default() });
    }
    file.put(overrides);
    let (machine, performance) = match (machine(file.machine()), &overrides.machine) {
        (Err(error), None) => return Err(error.context(format!("line {line}"))),
        (found, _) => found?,
    };
    let phase = |name: &str| phase(&folder.join(name));
    let experiment = file.experiment(&machine, &performance, &phase)?;
    let all = format!("{machine:?}{performance:?}{experiment:?}");
    let digest = Sha256::digest(all.as_bytes());
    let inputs = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Loaded { effective: file.to_toml(), experiment, machine, performance, inputs })
}

/// The machine that `spec` names, if its speeds are known.
fn machine(spec: &str) -> anyhow::Result<(Machine, Performance)> {
    let seen = read::look(spec)?;
    let performance = seen.performance.ok_or_else(|| without_speeds(spec))?;
    Ok((seen.machine, performance))
}

/// The path of a machine's file beside the scenario; `None` for a machine that has no file, or one whose
/// place needs no folder.
fn beside(folder: &Path, machine: &str) -> Option<String> {
    let is_file = ["toml", "json", "xml"]
        .iter()
        .any(|ending| Path::new(machine).extension().is_some_and(|extension| extension == *ending));
    let path: PathBuf = folder.join(machine);
    (is_file && !machine.starts_with("synthetic:")).then(|| path.to_string_lossy().into_owned())
}

fn without_speeds(machine: &str) -> anyhow::Error {
    let known = described::MACHINES.map(|(name, _)| name).join(", ");
    anyhow!(
        "expected a machine whose description says how fast it is ([performance]; {known} do), found \
         {machine}"
    )
}

/// The demand vector in a file of its own, TOML or JSON.
fn phase(path: &Path) -> Result<Phase, String> {
    let cannot = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let text = text(path).map_err(|error| cannot(&format!("{error:#}")))?;
    if path.extension().is_some_and(|extension| extension == "json") {
        return serde_json::from_str(&text).map_err(|error| cannot(&error));
    }
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        cannot(&format!("line {line}: {}", error.message()))
    })
}

/// The text of a file of at most [`MAX_BYTES`].
fn text(path: &Path) -> anyhow::Result<String> {
    let file = std::fs::File::open(path)?;
    let mut text = String::new();
    // A device or a pipe has no size, and perhaps no end.
    file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
