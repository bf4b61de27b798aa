//! What works in this place, why not, and the remedy.
//!
//! Two kinds of input: what `/proc` and `/sys` say ([`Place`]), and what came back when a thing was
//! tried ([`Probes`]). Everything else is a function of the two, so that every message can be
//! tested without being in such a place. A command is printed only where it remedies the cause that
//! was found.

mod advice;
mod checks;
mod place;
mod policies;
mod probe;
pub mod real;
#[cfg(test)]
mod tests;
mod text;

pub use place::Place;
pub use policies::{Needs, Verdict};
pub use probe::{Errno, Probe, Probes};

use serde::Serialize;

/// Version of the JSON form.
pub const VERSION: u32 = 2;

/// Whether something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It does not.
    No,
    /// It does, with a limit that the cause names.
    Partly,
    /// It does.
    Yes,
}

/// How a command changes things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Until the next boot, or for this shell.
    Now,
    /// For good.
    Always,
    /// Another way, which leaves the setting as it is.
    Instead,
}

/// A command that remedies a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// How it changes things.
    pub scope: Scope,
    /// To be typed as it is, or with the parts in capitals filled in.
    pub command: String,
    /// Where or when, if that is not here and now.
    pub note: Option<&'static str>,
}

impl Fix {
    /// Until the next boot, or for this shell.
    #[must_use]
    pub fn now(command: impl Into<String>) -> Self {
        Self { scope: Scope::Now, command: command.into(), note: None }
    }

    /// For good.
    #[must_use]
    pub fn always(command: impl Into<String>) -> Self {
        Self { scope: Scope::Always, command: command.into(), note: None }
    }

    /// Another way.
    #[must_use]
    pub fn instead(command: impl Into<String>) -> Self {
        Self { scope: Scope::Instead, command: command.into(), note: None }
    }

    /// With a note on where or when.
    #[must_use]
    pub fn noting(mut self, note: &'static str) -> Self {
        self.note = Some(note);
        self
    }
}

/// Why something does not work, and the remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// What was found and what was expected, in one line.
    pub why: String,
    /// Commands, best first; empty where none is known or none is needed.
    pub fixes: Vec<Fix>,
}

impl Cause {
    /// A cause without a remedy.
    #[must_use]
    pub fn of(why: impl Into<String>) -> Self {
        Self { why: why.into(), fixes: Vec::new() }
    }

    /// With one more command.
    #[must_use]
    pub fn with(mut self, fix: Fix) -> Self {
        self.fixes.push(fix);
        self
    }
}

/// One thing that colocate can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// Its name, for scripts.
    pub name: &'static str,
    /// What it is used for.
    pub what: &'static str,
    /// Whether it works here.
    pub status: Status,
    /// What was tried or read, and what came back.
    pub found: String,
    /// Why it does not work or only partly; `None` if it works.
    pub cause: Option<Cause>,
}

/// Capabilities that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// Its title.
    pub title: &'static str,
    /// What is in it.
    pub capabilities: Vec<Capability>,
}

/// How much this process may do, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// This user's own processes.
    OwnProcess,
    /// Also counting what other users' programs do, by `CAP_PERFMON`.
    Perfmon,
    /// Also placing other users' tasks, and moving pages that several processes share, by
    /// `CAP_SYS_NICE`.
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

/// What was found of the place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What it is about.
    pub name: &'static str,
    /// What was found.
    pub value: String,
}

/// What the caller provides: where its own files are.
#[derive(Clone, Debug)]
pub struct Own {
    /// The running program, for the commands that name it.
    pub program: String,
    /// The folder for journals, made if it was missing, or why there is none.
    pub journal: Result<String, String>,
    /// The QEMU that loads our plugin, or why there is none.
    pub emulator: Result<String, String>,
    /// What shows where threads' cycles go, as [`crate::pmu::stacks`] says, or why nothing does.
    pub stacks: Result<String, String>,
    /// The policies, with the evidence that each needs here.
    pub policies: Vec<Needs>,
    /// When this machine was measured and where that is kept, or why that is not of use.
    pub measured: Result<String, String>,
}

/// The whole diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Version of this form, [`VERSION`].
    pub version: u32,
    /// Whether `run`, `plan` and one way of watching work.
    pub works: bool,
    /// How much this process may do.
    pub tier: Tier,
    /// What the next tiers would add and how to get there.
    pub next: Vec<Cause>,
    /// What was found of the place.
    pub place: Vec<Fact>,
    /// What works.
    pub sections: Vec<Section>,
    /// Whether each policy has the evidence that it decides by.
    pub policies: Vec<Verdict>,
}

/// Tries everything and says what works.
#[must_use]
pub fn examine(place: &Place, probes: &dyn Probes, own: &Own) -> Diagnosis {
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
    /// The diagnosis as text; with `quiet`, only what does not work fully.
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
