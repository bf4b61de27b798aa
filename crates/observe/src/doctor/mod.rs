//! What works in this place, why not, and the remedy.
//!
//! Two kinds of input: what `/proc` and `/sys` say ([`SystemFacts`]), and what came back when a
//! thing was tried ([`Probes`]). Everything else is a function of the two, so that every message
//! can be tested without being in such a place. A command is printed only where it remedies the
//! cause that was found.

pub(crate) mod advice;
mod checks;
pub(crate) mod finding;
mod place;
mod policies;
mod probe;
pub mod real;
#[cfg(test)]
mod tests;
mod text;

pub use place::SystemFacts;
pub use policies::{Needs, PolicyDiagnosis};
pub use probe::{Errno, Probe, Probes};

use serde::Serialize;

/// Version of the JSON form.
pub const VERSION: u32 = 2;

/// Status of a capability.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Does not work.
    No,
    /// Works with a limit, named by the cause.
    Partly,
    /// Works.
    Yes,
}

/// Scope of a command.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Until the next boot, or for this shell.
    Now,
    /// Permanent.
    Always,
    /// Alternative that leaves the setting unchanged.
    Instead,
}

/// Command that remedies a cause.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// Scope of the change.
    pub scope: Scope,
    /// Command line, complete or with parts in capitals to be filled in.
    pub command: String,
    /// Place or time of the command, if not here and now.
    pub note: Option<&'static str>,
}

impl Fix {
    /// Until the next boot, or for this shell.
    #[must_use]
    pub fn now(command: impl Into<String>) -> Self {
        Self { scope: Scope::Now, command: command.into(), note: None }
    }

    /// Permanent.
    #[must_use]
    pub fn always(command: impl Into<String>) -> Self {
        Self { scope: Scope::Always, command: command.into(), note: None }
    }

    /// Another way.
    #[must_use]
    pub fn instead(command: impl Into<String>) -> Self {
        Self { scope: Scope::Instead, command: command.into(), note: None }
    }

    /// Adds a note on place or time.
    #[must_use]
    pub fn noting(mut self, note: &'static str) -> Self {
        self.note = Some(note);
        self
    }
}

/// Cause of a failure or limit, with remedies.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FailureCause {
    /// Found and expected state, in one line.
    pub why: String,
    /// Commands, best first; empty where none is known or none is needed.
    pub fixes: Vec<Fix>,
}

impl<T: Into<String>> From<T> for FailureCause {
    fn from(why: T) -> Self {
        Self::of(why)
    }
}

impl FailureCause {
    /// A cause without a remedy.
    #[must_use]
    pub fn of(why: impl Into<String>) -> Self {
        Self { why: why.into(), fixes: Vec::new() }
    }

    /// Adds a command.
    #[must_use]
    pub fn with(mut self, fix: Fix) -> Self {
        self.fixes.push(fix);
        self
    }
}

/// Mechanism usable by colocate.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// Name for scripts.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = "^[a-z][a-z-]*$")))]
    pub name: &'static str,
    /// Purpose.
    pub what: &'static str,
    /// Whether the mechanism works here.
    pub status: Status,
    /// Attempted call or file read, and its result.
    pub found: String,
    /// Cause of a failure or limit; `None` if the mechanism works.
    pub cause: Option<FailureCause>,
}

/// Group of related capabilities.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// Title.
    pub title: &'static str,
    /// Capabilities of the group.
    pub capabilities: Vec<Capability>,
}

/// Privileges of this process, from least to most.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// This user's own processes.
    OwnProcess,
    /// Also counting events of other users' programs, by `CAP_PERFMON`.
    Perfmon,
    /// Also placing other users' tasks, and moving shared pages, by `CAP_SYS_NICE`.
    SysNice,
    /// Everything.
    Root,
}

impl Tier {
    /// The tier's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OwnProcess => "own-process",
            Self::Perfmon => "perfmon",
            Self::SysNice => "sys-nice",
            Self::Root => "root",
        }
    }
}

/// Property of the machine or environment.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Name of the property.
    pub name: &'static str,
    /// Value.
    pub value: String,
}

/// Input of the caller: the places of its own files.
#[derive(Clone, Debug)]
pub struct Own {
    /// Running program, for the commands that name it.
    pub program: String,
    /// Folder of journals, created if missing, or the reason for its absence.
    pub journal: Result<String, String>,
    /// QEMU that loads our plugin, or the reason for its absence.
    pub emulator: Result<String, String>,
    /// Counters of CPI stacks by [`crate::pmu::stacks`], or the reason for their absence.
    pub stacks: Result<String, String>,
    /// Policies, with the evidence needed by each on this machine.
    pub policies: Vec<Needs>,
    /// Date and file of this machine's measurements, or the reason why they are unusable.
    pub measured: Result<String, String>,
}

/// Capabilities of colocate on this machine, with causes and remedies.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Version of this form, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// Whether `run`, `plan` and at least one way of watching work.
    pub works: bool,
    /// Privileges of this process.
    pub tier: Tier,
    /// Additions of the next tiers, and their commands.
    pub next: Vec<FailureCause>,
    /// Properties of the machine and environment.
    pub place: Vec<Fact>,
    /// Status of the capabilities.
    pub sections: Vec<Section>,
    /// Verdict per policy: whether its evidence is available.
    pub policies: Vec<PolicyDiagnosis>,
}

/// Runs all checks and reports their results.
#[must_use]
pub fn examine(place: &SystemFacts, probes: &dyn Probes, own: &Own) -> Diagnosis {
    let sections = checks::all(place, probes, own);
    let status = |name: &str| {
        let mut all = sections.iter().flat_map(|section| &section.capabilities);
        all.find(|capability| capability.name == name).map_or(Status::No, |found| found.status)
    };
    // Thread-creation events have /proc to fall back on, which is there when anything is.
    let watching = ["counters", "mix", "emulate"].into_iter().any(|way| status(way) > Status::No);
    let policies = policies::verdicts(&own.policies, |source| status(source.name()));
    let works = status("affinity") > Status::No && watching;
    Diagnosis {
        version: VERSION,
        works,
        tier: place.tier(),
        next: advice::next_tiers(place, own),
        place: place.facts(),
        sections,
        policies,
    }
}

impl Diagnosis {
    /// Diagnosis as text; with `quiet`, only capabilities that do not work fully.
    #[must_use]
    pub fn text(&self, quiet: bool) -> String {
        text::of(self, quiet)
    }

    /// The diagnosis as JSON, ending in a newline.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        colocate_machine::printable::json(self)
    }
}
