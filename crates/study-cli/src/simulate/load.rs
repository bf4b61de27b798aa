//! A scenario from its file, with its machine and the demand vectors that it names.

use anyhow::{Context, anyhow};
use colocate_cli::{demand, input};
use colocate_machine::calibrated::Calibration;
use colocate_machine::exact::Exact;
use colocate_machine::printable;
use colocate_machine::read::{self, KnownMachine};
use colocate_machine::{Machine, Performance, described};
use colocate_model::CpiModel;
use colocate_model::communication::WakeUpCosts;
use colocate_study::simulate::run::ExperimentSetup;
use colocate_study::simulate::scenario::{Experiment, MAX_BYTES, Overrides, ScenarioFile};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// A scenario, ready to be simulated.
pub struct Loaded {
    /// The scenario as simulated, in the file's form.
    pub effective: String,
    /// Name of the file beside it that describes the machine; `None` for a built-in machine.
    pub machine_file: Option<String>,
    /// The scenario in the simulator's form.
    pub experiment: Experiment,
    /// Machine of the scenario.
    pub machine: Machine,
    performance: Performance,
    /// Measurements of the machine; `None` for a described one.
    calibration: Option<Calibration>,
    /// Coefficients of CPI stacks on a shared core; `None` without a file.
    cpi: Option<CpiModel>,
    /// Digest of all inputs of the figures.
    pub inputs: String,
}

impl Loaded {
    /// The scenario on its machine.
    pub fn bench(&self) -> ExperimentSetup<'_> {
        ExperimentSetup::new(&self.machine, &self.performance, &self.experiment)
            .knowing(self.cpi.as_ref())
    }

    /// The scenario with coefficients of CPI stacks on a shared core for the schedulers.
    pub fn knowing(self, cpi: Option<&CpiModel>) -> Self {
        let Some(cpi) = cpi else { return self };
        let inputs = hex(&format!("{}{}", self.inputs, cpi.to_json()));
        Self { cpi: Some(cpi.clone()), inputs, ..self }
    }

    /// The machine with its speeds, as `--machine` reads it.
    pub fn machine_json(&self) -> String {
        let performance = Some(self.performance.clone());
        let calibration = self.calibration.clone();
        Exact { performance, calibration, ..Exact::new(self.machine.clone(), None) }.to_json()
    }

    /// Summary of the simulation, in one line.
    pub fn summary(&self) -> String {
        let settings = self.bench().settings();
        format!(
            "{} on {}: {} jobs, {} threads; {} policies x {} seeds x {} sets of assumptions\n",
            printable(&settings.scenario),
            printable(&settings.machine),
            settings.jobs.len(),
            settings.tasks,
            settings.policies.len(),
            settings.seeds,
            settings.draws
        )
    }
}

/// Reads the scenario in `path`, with `overrides` in place of its values; errors have the path and
/// the line.
pub fn load(path: &Path, overrides: &Overrides) -> anyhow::Result<Loaded> {
    loaded(path, overrides).with_context(|| format!("cannot use scenario {}", path.display()))
}

fn loaded(path: &Path, overrides: &Overrides) -> anyhow::Result<Loaded> {
    let text = input::text_or_reason(path, input::limit(MAX_BYTES))?;
    let mut file = ScenarioFile::from_toml(&text).map_err(anyhow::Error::msg)?;
    // Before `put`, which replaces the machine.
    let line = file.machine_line();
    let folder = path.parent().unwrap_or(Path::new(""));
    file.put(overrides);
    // A path of the command line is relative to the working directory, a path of a file to the file.
    let spec = match &overrides.machine {
        Some(_) => PathBuf::from(file.machine()),
        None if is_file(file.machine()) => folder.join(file.machine()),
        None => PathBuf::from(file.machine()),
    };
    let spec = spec.to_string_lossy();
    let (KnownMachine { machine, calibration, .. }, performance) =
        match (seen(&spec), &overrides.machine) {
            (Err(error), None) => return Err(error.context(format!("line {line}"))),
            (found, _) => found?,
        };
    let experiment =
        file.experiment(&machine, &performance, &|name: &str| demand::phases(&folder.join(name)));
    let mut experiment = experiment.map_err(anyhow::Error::msg)?;
    if let Some(found) = &calibration {
        experiment.scenario.kernel.wake_ups = WakeUpCosts::measured(found);
    }
    // The debug form has every field, so that any change changes the digest.
    let all = format!("{machine:?}{performance:?}{experiment:?}");
    let inputs = hex(&all);
    file.put_demands(&experiment);
    let mut machine_file = None;
    if is_file(&spec) {
        let name =
            format!("{}.machine.json", path.file_stem().unwrap_or_default().to_string_lossy());
        // The kept scenario names the machine's file beside it.
        file.put(&Overrides { machine: Some(name.clone()), ..Overrides::default() });
        machine_file = Some(name);
    }
    let effective = file.to_toml();
    Ok(Loaded {
        effective,
        machine_file,
        experiment,
        machine,
        performance,
        calibration,
        cpi: None,
        inputs,
    })
}

/// SHA-256 digest of a text.
pub fn hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The machine `spec`, if its speeds are known.
pub fn machine(spec: &str) -> anyhow::Result<(Machine, Performance)> {
    seen(spec).map(|(seen, performance)| (seen.machine, performance))
}

/// The machine `spec` and its speeds, with its calibration and other observations.
fn seen(spec: &str) -> anyhow::Result<(KnownMachine, Performance)> {
    let mut seen = read::load(spec)?;
    let performance = seen.performance.take().ok_or_else(|| {
        let known = described::MACHINES.map(|(name, _)| name).join(", ");
        anyhow!(
            "expected a machine whose description says how fast it is ([performance]; {known} do), found {spec}"
        )
    })?;
    Ok((seen, performance))
}

/// Whether a machine is described in a user's file.
fn is_file(machine: &str) -> bool {
    let ending = Path::new(machine).extension().and_then(|extension| extension.to_str());
    ending.is_some_and(|ending| ["toml", "json", "xml"].contains(&ending))
        && !machine.starts_with("synthetic:")
}
