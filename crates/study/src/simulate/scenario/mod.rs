//! Scenario files: what is to be simulated on which machine, under which policies.
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
//! `docs/reference/scenario.md` says what every key means. A file is read in two steps, because what it says can
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

use super::contender::Contender;
use colocate_machine::cpulist::PuSet;
use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::Phase;
use colocate_sim::{Scenario, ScenarioError};
use form::File;
pub(crate) use form::Text;
use std::ops::Range;
use thiserror::Error;
use toml::Spanned;

/// Version of the format that this build reads and writes.
pub const VERSION: u32 = 1;

/// Most bytes of a file. Chosen: a thousand demand vectors are a tenth of it.
pub const MAX_BYTES: usize = 16 << 20;

/// Most tasks of all jobs together. Chosen: as many as the largest kernels have CPUs, eight times.
pub const MAX_TASKS: usize = 65_536;

/// Most jobs: for every pair of them the time on one core is counted. Chosen: 8 MiB.
pub const MAX_JOBS: usize = 1_024;

/// Most phases that one task goes through in a row, times the number of tasks. Chosen: 24 MiB.
const MAX_STRETCHES: usize = 1_000_000;

/// Most seeds. Chosen.
pub const MAX_SEEDS: u32 = 1_000;

/// Most draws from the ensemble. Chosen.
pub const MAX_DRAWS: u32 = 10_000;

/// Most policies. Chosen.
const MAX_POLICIES: usize = 64;

/// Longest name, in characters. Chosen: a line.
const MAX_NAME: usize = 100;

/// Why a text is not a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FileError {
    /// The text is larger than [`MAX_BYTES`].
    #[error("expected at most {MAX_BYTES} bytes, found {0}")]
    TooLarge(usize),
    /// The text is not TOML, or has a key or a value that a scenario does not have.
    #[error("line {line}: {detail}")]
    Syntax {
        /// Where it is.
        line: usize,
        /// What is wrong, in one line.
        detail: String,
    },
    /// A value makes no sense.
    #[error("line {line}: expected {expected}, found {found}")]
    Value {
        /// Where it is.
        line: usize,
        /// What would do.
        expected: String,
        /// What is there.
        found: String,
    },
    /// All values make sense, but not together.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// A scenario file that was read, but not yet held against its machine.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioFile {
    form: File,
    lines: Lines,
}

/// A scenario and how it is to be simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// What is simulated, with the first seed.
    pub scenario: Scenario,
    /// What it is for, if the file says so.
    pub note: Option<String>,
    /// Under which policies and schedulers; never empty, none twice.
    pub policies: Vec<Contender>,
    /// Which of them the others are compared to.
    pub baseline: Contender,
    /// With how many seeds each; at least 1.
    pub seeds: u32,
    /// With how many sets of assumptions each; 1 is the default one alone.
    pub draws: u32,
    /// Whether policies have earlier profiles of the programs. Otherwise they are sampled first.
    pub profiled: bool,
    /// How long programs without a profile are sampled.
    pub watch: Nanos,
}

/// Settings in place of the file's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// The machine.
    pub machine: Option<String>,
    /// The policies; the baseline becomes the first of them if the file's is not among them.
    pub policies: Option<Vec<Contender>>,
    /// The baseline.
    pub baseline: Option<Contender>,
    /// The first seed, at most 2^63 - 1: the largest number of TOML.
    pub seed: Option<u64>,
    /// How many seeds.
    pub seeds: Option<u32>,
    /// How many draws from the ensemble.
    pub draws: Option<u32>,
}

impl ScenarioFile {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// [`FileError`], one line each, with the line in the file.
    pub fn from_toml(text: &str) -> Result<Self, FileError> {
        if text.len() > MAX_BYTES {
            return Err(FileError::TooLarge(text.len()));
        }
        let lines = Lines::of(text);
        let syntax = |error: toml::de::Error| FileError::Syntax {
            line: error.span().map_or(1, |span| lines.at(span)),
            detail: error.message().lines().collect::<Vec<_>>().join(", "),
        };
        // A file of another version is refused for that, whatever else it says.
        let table: toml::Table = toml::from_str(text).map_err(syntax)?;
        match table.get("version").and_then(toml::Value::as_integer) {
            Some(found) if found != i64::from(VERSION) => {
                return Err(FileError::Syntax {
                    line: 1,
                    detail: format!("expected version = {VERSION}, found {found}"),
                });
            }
            _ => {}
        }
        let form = toml::from_str(text).map_err(syntax)?;
        Ok(Self { form, lines })
    }

    /// The file as TOML, with what was overridden.
    ///
    /// # Panics
    /// Never: every value has a TOML form.
    #[must_use]
    pub fn to_toml(&self) -> String {
        colocate_machine::printable::toml(&self.form).expect("every value has a TOML form")
    }

    /// What it calls the workload.
    #[must_use]
    pub fn name(&self) -> &str {
        self.form.name.get_ref()
    }

    /// The machine that it is for, as `--machine` takes it; a file's path is relative to the scenario.
    #[must_use]
    pub fn machine(&self) -> &str {
        self.form.machine.get_ref()
    }

    /// The line where it names the machine.
    #[must_use]
    pub fn machine_line(&self) -> usize {
        self.lines.at(self.form.machine.span())
    }

    /// Puts what was decided elsewhere in place of what the file says.
    pub fn put(&mut self, instead: &Overrides) {
        let form = &mut self.form;
        let nowhere = |policy: &Contender| Spanned::new(0..0, policy.clone());
        if let Some(machine) = &instead.machine {
            form.machine = Spanned::new(0..0, machine.clone());
        }
        if let Some(policies) = &instead.policies {
            let policies = policies.iter().map(nowhere).collect::<Vec<_>>();
            form.baseline = form.baseline.take().filter(|baseline| policies.contains(baseline));
            form.policies = Some(Spanned::new(0..0, policies));
        }
        if let Some(baseline) = &instead.baseline {
            form.baseline = Some(nowhere(baseline));
        }
        form.seed = instead.seed.or(form.seed);
        let count = |count: Option<u32>| count.map(|count| Spanned::new(0..0, count));
        form.seeds = count(instead.seeds).or(form.seeds.take());
        form.draws = count(instead.draws).or(form.draws.take());
    }

    /// Puts the demand vectors that came from other files into this one, so that it needs no others.
    pub fn put_demands(&mut self, found: &Experiment) {
        for (form, spec) in self.form.phase.iter_mut().zip(&found.scenario.phases) {
            let form = form.get_mut();
            if form.file.take().is_some() {
                form.phase = None;
                form.demand = Some(Spanned::new(0..0, spec.phase.clone()));
            }
        }
    }

    /// What is to be simulated on `machine`, which is the one that [`Self::machine`] names, with these
    /// speeds. `phases` reads the demand vectors in a file that the scenario names.
    ///
    /// # Errors
    /// [`FileError`], one line each; those of `phases` with the line that names the file.
    pub fn experiment(
        &self,
        machine: &Machine,
        performance: &Performance,
        phases: &dyn Fn(&str) -> Result<Vec<Phase>, String>,
    ) -> Result<Experiment, FileError> {
        let experiment =
            build::Build { lines: &self.lines, machine, performance }.all(&self.form, phases)?;
        experiment.scenario.check(machine)?;
        Ok(experiment)
    }
}

/// Where the lines of a text begin.
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

    fn misfit<T>(
        &self,
        at: &Spanned<T>,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> FileError {
        let (expected, found) = (expected.into(), found.to_string());
        FileError::Value { line: self.at(at.span()), expected, found }
    }
}

/// The PUs that the file allows, if it names some.
fn cpus(form: &File) -> Option<(&Spanned<Text<PuSet>>, &PuSet)> {
    form.cpus.as_ref().map(|cpus| (cpus, &cpus.get_ref().0))
}
