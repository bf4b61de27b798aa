//! Table of policies, the source of command lines, scenarios, help and docs.

use crate::evidence::{Evidence, Quantum};
use crate::paging;
use crate::plan::{Plan, Task};
use crate::policies;
use crate::policy::Policy;
use crate::schedule;
use colocate_machine::{Machine, PuIdx};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;
use thiserror::Error;

pub use crate::row::{
    Cadence, CoursePart, Knowledge, PolicyRow, PolicySpec, Prior, Purpose, Setting, SettingKind,
    SoloProfile, SoloProgress, Value, listed,
};

impl PartialEq for PolicySpec {
    fn eq(&self, other: &Self) -> bool {
        self.row.name == other.row.name && self.values == other.values
    }
}

impl fmt::Debug for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<&'static PolicyRow> for PolicySpec {
    /// The policy with its default settings.
    fn from(row: &'static PolicyRow) -> Self {
        let values = row.settings.iter().map(|setting| setting.default.clone()).collect();
        Self { row, values }
    }
}

impl PolicySpec {
    /// Parses the policy `text`, a literal in the program.
    ///
    /// # Panics
    /// If `text` is not a policy.
    #[must_use]
    pub fn named(text: &str) -> Self {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Row of the policy.
    #[must_use]
    pub const fn row(&self) -> &'static PolicyRow {
        self.row
    }

    /// Name without settings.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.row.name
    }

    /// True if the policy requires `prior`.
    #[must_use]
    pub fn has_prior(&self, prior: Prior) -> bool {
        self.row.prior.contains(&prior)
    }

    /// True if the policy may let jobs wait when it decides each quantum.
    #[must_use]
    pub const fn waits(&self) -> bool {
        self.row.waits
    }

    /// File named by a setting; `None` without one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.values.iter().find_map(|value| match value {
            Some(Value::File(path)) => Some(path.as_path()),
            _ => None,
        })
    }

    /// Sets `name` to `text`.
    ///
    /// # Errors
    /// [`SpecError::Setting`] if the policy has no setting `name` or the value is not allowed.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), SpecError> {
        self.put(name, Some(text)).ok_or_else(|| self.wrong(&format!("{name}={text}")))
    }

    /// Sets `name` to `text`, or sets the flag `name`.
    fn put(&mut self, name: &str, text: Option<&str>) -> Option<()> {
        let at = self.row.settings.iter().position(|setting| setting.name == name)?;
        self.values[at] = Some(self.row.settings[at].read(text)?);
        Some(())
    }

    fn wrong(&self, found: &str) -> SpecError {
        let ranges: Vec<String> = self.row.settings.iter().map(Setting::range).collect();
        let expected = match ranges.len() {
            0 => "no setting".to_owned(),
            1 => ranges[0].clone(),
            _ => format!("{}, a colon between two", ranges.join("; ")),
        };
        SpecError::Setting(self.row.name, expected, found.to_owned())
    }

    /// True if all [`SettingKind::NumberNotBelow`] constraints hold.
    fn is_consistent(&self) -> bool {
        self.row.settings.iter().all(|setting| match setting.kind {
            SettingKind::NumberNotBelow(other, ..) => {
                self.number(setting.name) >= self.number(other)
            }
            _ => true,
        })
    }

    /// Creates the policy with prior knowledge.
    #[must_use]
    pub fn policy(&self, known: &Knowledge<'_>) -> Box<dyn Policy> {
        (self.row.make)(self, known)
    }

    /// Creates the policy without prior knowledge.
    #[must_use]
    pub fn plain(&self) -> Box<dyn Policy> {
        self.policy(&Knowledge::default())
    }

    /// Single plan for `tasks` on the PUs `usable` of `machine`, without a host.
    #[must_use]
    pub fn plan(
        &self,
        known: &Knowledge<'_>,
        machine: &Machine,
        usable: &[PuIdx],
        tasks: &[Task],
    ) -> Plan {
        let now = Quantum { number: 0, machine, pus: usable, queue: &[] };
        let evidence =
            Evidence { may_wait: false, expected: &|| tasks.to_vec(), ..Evidence::of_queue(now) };
        Plan { policy: self.to_string(), ..self.policy(known).decide(&evidence) }
    }
}

impl fmt::Display for PolicySpec {
    /// Name and the settings that differ from their defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row.name)?;
        for (setting, value) in self.row.settings.iter().zip(&self.values) {
            let Some(value) = value else { continue };
            if *value == Value::Set {
                write!(f, ":{}", setting.name)?;
                continue;
            }
            if setting.is_shown || setting.default.as_ref() != Some(value) {
                write!(f, ":{}={value}", setting.name)?;
            }
        }
        Ok(())
    }
}

/// Reason why a text is not a policy.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SpecError {
    /// No policy has this name.
    #[error("expected {all}, found policy {0:?}{meant}", all = listed(&names()), meant = did_you_mean(.0, &names()))]
    Name(String),
    /// The policy has no such setting, or the value is not allowed: policy, its settings with
    /// ranges, setting in the text.
    #[error("expected {0} with {1}, found {2:?}")]
    Setting(&'static str, String, String),
}

impl FromStr for PolicySpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, settings) = at_first(text, ':');
        let row = rows().find(|row| row.name == name);
        let mut spec: Self = row.ok_or_else(|| SpecError::Name(name.to_owned()))?.into();
        // No settings are fine, but an empty list (`mix:`) is an error.
        let Some(settings) = settings else { return Ok(spec) };
        let mut names = BTreeSet::new();
        let all = settings.split(':').all(|one| {
            let (name, text) = at_first(one, '=');
            names.insert(name) && spec.put(name, text).is_some()
        });
        if all && spec.is_consistent() { Ok(spec) } else { Err(spec.wrong(settings)) }
    }
}

/// `text` before and after the first `mark`; `None` without a mark.
fn at_first(text: &str, mark: char) -> (&str, Option<&str>) {
    text.split_once(mark).map_or((text, None), |(before, after)| (before, Some(after)))
}

impl TryFrom<String> for PolicySpec {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<PolicySpec> for String {
    fn from(spec: PolicySpec) -> Self {
        spec.to_string()
    }
}

/// Policies added by the program.
static ADDED: OnceLock<&'static [&'static PolicyRow]> = OnceLock::new();

/// Appends rows to the table. Call once, before any policy is parsed; later calls have no effect.
pub fn add(rows: &'static [&'static PolicyRow]) {
    let _ = ADDED.set(rows);
}

/// Every row, in the order of lists.
pub fn rows() -> impl Iterator<Item = &'static PolicyRow> {
    let added = ADDED.get().copied().unwrap_or_default();
    let ours = policies::ROWS.iter().chain(paging::ROWS).chain(schedule::ROWS);
    ours.copied().chain(added.iter().copied())
}

/// Every policy with its default settings.
pub fn all() -> impl Iterator<Item = PolicySpec> {
    rows().map(PolicySpec::from)
}

/// Policies that may decide once.
pub fn once() -> impl Iterator<Item = PolicySpec> {
    all().filter(|spec| spec.row.cadence.once())
}

/// Policies that may decide each quantum.
pub fn each_quantum() -> impl Iterator<Item = PolicySpec> {
    all().filter(|spec| spec.row.cadence.each_quantum())
}

/// `; did you mean mix?` if a name is similar to `found`, else empty. Similar: an edit distance
/// (OSA) of at most a third of the letters of `found`.
#[must_use]
pub fn did_you_mean(found: &str, names: &[&str]) -> String {
    let distances = names.iter().map(|name| (strsim::osa_distance(name, found), name));
    let like = distances.filter(|(distance, _)| distance * 3 <= found.chars().count());
    let nearest = like.min_by_key(|(distance, _)| *distance);
    nearest.map_or_else(String::new, |(_, name)| format!("; did you mean {name}?"))
}

fn names() -> Vec<&'static str> {
    rows().map(|row| row.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_writes() {
        let more = [
            "parallelism-aware:serial=2:parallel=3.5:confirm=3:cost=0:spare=no",
            "efficiency:gain=0",
            "utility:serial=2:parallel=3.5:confirm=2",
            "random:seed=18446744073709551615",
            "idas:kappa=0.1",
            "symbiotic:cost=antt:weight=1:gain=0",
            "symbiotic-numa:cost=antt:weight=1:gain=0:away=0.25",
            "symbiotic:model=/a/b.json",
            "fair:valid=1:doubt=0",
            "perf-fair:share=0.25:limit=inf:apart=4",
            "instruction:key=float",
            "instruction:key=float:published",
            "mmas:published",
            "idas:kappa=50:published",
            "bas:oatr=delivered",
        ];
        for text in more {
            assert_eq!(PolicySpec::named(text).to_string(), text);
        }
        for spec in all().chain(more.map(PolicySpec::named)) {
            assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }

    #[test]
    fn rows_are_complete() {
        let mut names: Vec<&str> = names();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for row in rows() {
            let words = row.summary.split_whitespace().count();
            assert!((3..=14).contains(&words), "{}: {words} words", row.name);
            assert!(!row.source.is_empty());
            let defaults = row.settings.iter().filter_map(|it| Some((it, it.default.clone()?)));
            for (setting, value) in defaults {
                assert_eq!(setting.read(Some(&value.to_string())), Some(value), "{}", setting.name);
            }
        }
    }

    #[test]
    fn refuses_with_one_line() {
        let refusal = |text: &str| text.parse::<PolicySpec>().unwrap_err().to_string();
        let said = refusal("best");
        assert!(said.starts_with("expected os, auto, round-robin, "), "{said}");
        assert!(said.ends_with(" or all-fast-first, found policy \"best\""), "{said}");
        for (found, meant) in [("mxi", "mix"), ("round_robin", "round-robin"), ("kmfa:x=1", "kmaf")]
        {
            let said = refusal(found);
            assert!(said.ends_with(&format!("\"; did you mean {meant}?")), "{said}");
        }
        assert_eq!(refusal("os:seed=1"), "expected os with no setting, found \"seed=1\"");
        assert_eq!(refusal("mmas:new"), "expected mmas with published, found \"new\"");
        assert_eq!(
            refusal("mmas:published=1"),
            "expected mmas with published, found \"published=1\""
        );
        assert_eq!(
            refusal("random:seed=-1"),
            "expected random with seed=N, N from 0, found \"seed=-1\""
        );
        assert_eq!(refusal("random:"), "expected random with seed=N, N from 0, found \"\"");
        assert_eq!(
            refusal("instruction:key=fp"),
            "expected instruction with key=branch, float, int, load or store; published, a colon between two, found \"key=fp\""
        );
        assert_eq!(
            refusal("utility:serial=9"),
            "expected utility with serial=X, X from 1; parallel=X, X from 1 and not below serial; confirm=N, N from 1, a \
             colon between two, found \"serial=9\""
        );
        let odd = [
            "idas:kappa=-1",
            "symbiotic:weight=0",
            "symbiotic:cost=ipc",
            "symbiotic:gain=-1:cost=stp",
            "symbiotic:",
            "symbiotic:away=1",
            "symbiotic:model=",
            "fair:share=0.5",
            "fair:valid=0",
            "fair:doubt=-1",
            "fair:published",
            "perf-fair:share=1",
            "perf-fair:limit=0.9",
            "perf-fair:limit=NaN",
            "symbiotic-numa:away=-1",
            "parallelism-aware:serial=0.5",
            "parallelism-aware:serial=2",
            "parallelism-aware:confirm=0",
            "parallelism-aware:spare=maybe",
            "efficiency:gain=inf",
            "random:seed=1:seed=2",
        ];
        for text in odd {
            let (name, settings) = text.split_once(':').unwrap();
            let said = refusal(text);
            assert!(said.starts_with(&format!("expected {name} with ")), "{said}");
            assert!(said.ends_with(&format!(", found {settings:?}")), "{said}");
        }
    }
}
