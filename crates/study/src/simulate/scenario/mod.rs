//! Scenario files: workload, machine and policies of a simulation.
//!
//! ```toml
//! version = 1
//! name = "adders beside multipliers"
//! machine = "epyc-7301"
//! policies = ["os", "round-robin", "mix"]
//!
//! [[phase]]
//! name = "adds"
//! [phase.demand]
//! slots = { value = 1.0, source = "one micro-operation each" }
//! work = { value = { kinds = { int = 1.0 } }, source = "the kernel's loop" }
//!
//! [[job]]
//! name = "adder"
//! [[job.thread]]
//! copies = 32
//! phase = "adds"
//! alone-for = "2 s"
//! ```
//!
//! `docs/reference/scenario.md` describes every key. A file is read in two steps, because most values can
//! only be checked against the machine that it names.
//!
//! # Properties
//! - **Strict**: keys, units and values that make no sense are refused with the line.  -> tests
//!   `a_wrong_…_is_refused_with_its_line`
//! - **Written back**: what is written is read again as the same. -> test `what_is_written_is_read`

mod build;
mod form;
mod kernel;
#[cfg(test)]
mod tests;
mod values;

use super::contender::Contender;
use colocate_machine::cpulist::PuSet;
use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::Phase;
use colocate_sim::Scenario;
use form::ScenarioForm;
pub(crate) use form::Text;
use std::fmt::Display;
use std::ops::Range;
use toml::Spanned;

/// Version of the format that is read and written.
pub const VERSION: u32 = 1;

/// Most bytes of a file. Chosen: a thousand demand vectors take a tenth.
pub const MAX_BYTES: usize = 16 << 20;

/// Most tasks of all jobs together. Chosen: eight times the CPUs of the largest kernels.
pub const MAX_TASKS: usize = 65_536;

/// Most jobs: for every pair the time on a shared core is counted. Chosen: 8 MiB.
pub const MAX_JOBS: usize = 1_024;

/// Most stretches of a course, summed over all tasks. Chosen: 24 MiB.
const MAX_STRETCHES: usize = 1_000_000;

/// Most seeds. Chosen.
pub const MAX_SEEDS: u32 = 1_000;

/// Most draws from the ensemble. Chosen.
pub const MAX_DRAWS: u32 = 10_000;

/// Most policies. Chosen.
const MAX_POLICIES: usize = 64;

/// Longest name, in characters. Chosen: a line.
const MAX_NAME: usize = 100;

/// A scenario file, read but not yet checked against its machine.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioFile {
    form: ScenarioForm,
    lines: Lines,
}

/// A scenario with the settings of its simulations.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// The scenario, with the first seed.
    pub scenario: Scenario,
    /// Purpose of the scenario, if the file has a note.
    pub note: Option<String>,
    /// Policies and schedulers to simulate; never empty, none twice.
    pub policies: Vec<Contender>,
    /// Baseline of comparisons, one of `policies`.
    pub baseline: Contender,
    /// Seeds for each policy; at least 1.
    pub seeds: u32,
    /// Sets of assumptions for each policy and seed; 1 is the default set alone.
    pub draws: u32,
    /// Whether policies have profiles of the programs; else programs are sampled first.
    pub profiled: bool,
    /// Sampling time of programs without a profile.
    pub watch: Nanos,
}

/// Settings in place of the file's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// The machine.
    pub machine: Option<String>,
    /// The policies; the baseline becomes the first of them if the file's is not among these.
    pub policies: Option<Vec<Contender>>,
    /// The baseline.
    pub baseline: Option<Contender>,
    /// The first seed, at most 2^63 - 1: the largest number of TOML.
    pub seed: Option<u64>,
    /// Number of seeds.
    pub seeds: Option<u32>,
    /// Number of draws from the ensemble.
    pub draws: Option<u32>,
}

impl ScenarioFile {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// A line, with the line in the file.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("expected at most {MAX_BYTES} bytes, found {}", text.len()));
        }
        let lines = Lines::of(text);
        // A file of another version is refused for that, whatever else it says.
        let table: toml::Table = toml::from_str(text).map_err(|error| lines.toml(&error))?;
        // If the version is missing, the second reading says so, with its line.
        let version = table.get("version").and_then(toml::Value::as_integer);
        if let Some(found) = version.filter(|found| *found != i64::from(VERSION)) {
            return Err(format!("line 1: expected version = {VERSION}, found {found}"));
        }
        let form = toml::from_str(text).map_err(|error| lines.toml(&error))?;
        Ok(Self { form, lines })
    }

    /// The file as TOML, overrides included.
    ///
    /// # Panics
    /// Never: every value has a TOML form.
    #[must_use]
    pub fn to_toml(&self) -> String {
        colocate_machine::printable::toml(&self.form).expect("every value has a TOML form")
    }

    /// Name of the workload.
    #[must_use]
    pub fn name(&self) -> &str {
        self.form.name.get_ref()
    }

    /// The machine, as `--machine` takes it; a file's path is relative to the scenario.
    #[must_use]
    pub fn machine(&self) -> &str {
        self.form.machine.get_ref()
    }

    /// Line with the machine's name, from 1.
    #[must_use]
    pub fn machine_line(&self) -> usize {
        self.lines.at(self.form.machine.span())
    }

    /// Replaces values of the file.
    pub fn put(&mut self, instead: &Overrides) {
        let form = &mut self.form;
        if let Some(machine) = &instead.machine {
            form.machine = unplaced(machine.clone());
        }
        if let Some(policies) = &instead.policies {
            let policies = policies.iter().cloned().map(unplaced).collect::<Vec<_>>();
            form.baseline = form.baseline.take().filter(|baseline| policies.contains(baseline));
            form.policies = Some(unplaced(policies));
        }
        if let Some(baseline) = &instead.baseline {
            form.baseline = Some(unplaced(baseline.clone()));
        }
        form.seed = instead.seed.or(form.seed);
        form.seeds = instead.seeds.map(unplaced).or(form.seeds.take());
        form.draws = instead.draws.map(unplaced).or(form.draws.take());
    }

    /// Copies demand vectors from other files into this one, which then needs no others.
    pub fn put_demands(&mut self, found: &Experiment) {
        for (form, spec) in self.form.phase.iter_mut().zip(&found.scenario.phases) {
            let form = form.get_mut();
            if form.file.take().is_some() {
                form.phase = None;
                form.demand = Some(unplaced(spec.phase.clone()));
            }
        }
    }

    /// The experiment on `machine`, the machine of [`Self::machine`], with these speeds. `phases`
    /// reads the demand vectors in a file that the scenario names.
    ///
    /// # Errors
    /// A line; for errors of `phases` with the line that names the file.
    pub fn experiment(
        &self,
        machine: &Machine,
        performance: &Performance,
        phases: &dyn Fn(&str) -> Result<Vec<Phase>, String>,
    ) -> Result<Experiment, String> {
        let experiment =
            build::Build { lines: &self.lines, machine, performance }.all(&self.form, phases)?;
        experiment.scenario.check(machine).map_err(|why| why.to_string())?;
        Ok(experiment)
    }
}

/// A value from elsewhere than the file, without a place in it.
fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

/// Offsets of the second and later lines of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at + 1).collect())
    }

    /// The line where `span` begins, from 1.
    fn at(&self, span: Range<usize>) -> usize {
        1 + self.0.partition_point(|&begin| begin <= span.start)
    }

    /// A syntax error at a place in the text.
    fn syntax(&self, at: Range<usize>, detail: String) -> String {
        format!("line {}: {detail}", self.at(at))
    }

    /// A syntax error of the TOML parser, in one line.
    fn toml(&self, error: &toml::de::Error) -> String {
        let detail = error.message().lines().collect::<Vec<_>>().join(", ");
        // An error without a place is about the whole file: line 1.
        self.syntax(error.span().unwrap_or(0..0), detail)
    }

    /// A wrong value at a place in the text.
    fn misfit<T>(&self, at: &Spanned<T>, expected: impl Display, found: impl Display) -> String {
        self.syntax(at.span(), format!("expected {expected}, found {found}"))
    }
}

/// The PUs that the file allows, with their place; `None` if it names none.
fn cpus(form: &ScenarioForm) -> Option<(&Spanned<Text<PuSet>>, &PuSet)> {
    form.cpus.as_ref().map(|cpus| (cpus, &cpus.get_ref().0))
}
