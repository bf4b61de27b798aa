//! Rows of the table of policies: name, help text, settings and constructor of each policy.

use crate::policy::Policy;
use colocate_machine::Performance;
use colocate_model::communication::WakeUpCosts;
use colocate_model::{CpiModel, Phase};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// A policy as commands, help and docs show it, with its constructor.
#[derive(Debug)]
pub struct PolicyRow {
    /// Name: small letters, digits and `-`.
    pub name: &'static str,
    /// Purpose of the policy in about ten words.
    pub summary: &'static str,
    /// Group of the policy in lists.
    pub purpose: Purpose,
    /// Publication; else "baseline" or "ours".
    pub source: &'static str,
    /// Settings.
    pub settings: &'static [Setting],
    /// Prior knowledge required by the policy.
    pub prior: &'static [Prior],
    /// Time of decisions.
    pub cadence: Cadence,
    /// The policy may let jobs wait if it decides each quantum.
    pub waits: bool,
    /// Constructor.
    pub make: fn(&PolicySpec, &Knowledge<'_>) -> Box<dyn Policy>,
}

impl PolicyRow {
    /// Defaults for policies that decide once; `make` panics.
    pub const ONCE: Self = Self {
        name: "",
        summary: "",
        purpose: Purpose::Published,
        source: "",
        settings: &[],
        prior: &[],
        cadence: Cadence::Once,
        waits: false,
        make: |_, _| unreachable!("each row has its own"),
    };

    /// Defaults for policies that decide each quantum; `make` panics.
    pub const EACH_QUANTUM: Self =
        Self { cadence: Cadence::EachQuantum, waits: true, ..Self::ONCE };
}

/// Group of a policy in lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Production use.
    Recommended,
    /// Comparison with publications.
    Published,
    /// Comparison with placement without evidence.
    Baseline,
    /// Comparison in simulations: uses knowledge that no real machine provides.
    Simulated,
}

impl Purpose {
    /// Groups for real machines, in the order of lists.
    pub const REAL: [Self; 3] = [Self::Recommended, Self::Published, Self::Baseline];

    /// Heading in lists.
    #[must_use]
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Recommended => "Recommended",
            Self::Published => "Published, for comparison",
            Self::Baseline => "Baselines",
            Self::Simulated => "In simulations only",
        }
    }
}

/// Time of a policy's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// At launch, and again when a new plan pays: `colocate run`.
    Once,
    /// Each quantum: `colocate schedule`.
    EachQuantum,
    /// Either.
    Either,
}

impl Cadence {
    /// The policy may decide once.
    #[must_use]
    pub const fn once(self) -> bool {
        matches!(self, Self::Once | Self::Either)
    }

    /// The policy may decide each quantum.
    #[must_use]
    pub const fn each_quantum(self) -> bool {
        matches!(self, Self::EachQuantum | Self::Either)
    }
}

/// Knowledge required before the first decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prior {
    /// Profile of each job alone, from earlier runs ([`SoloProfile`]).
    Solo,
    /// Model of CPI stacks on a shared core of this machine ([`CpiModel`]).
    CpiModel,
    /// Speed of the machine ([`Performance`]).
    Speeds,
    /// Demand vector of each job ([`Phase`]).
    Demands,
    /// Progress of each job alone, known in simulations only ([`SoloProgress`]).
    Courses,
}

/// Profile of a job alone, from earlier runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SoloProfile {
    /// Run time in seconds.
    pub seconds: f64,
    /// Mean rate of requests to main memory, in transactions per microsecond.
    pub memory: f64,
    /// Mean rate of requests to the level 1 cache, in transactions per microsecond, summed over
    /// threads; `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_cache: Option<f64>,
    /// Share of speed lost per t/µs of the memory traffic of competing jobs.
    #[serde(default)]
    pub loss: f64,
}

/// Progress of a job alone: its parts in order, repeated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SoloProgress(pub Vec<CoursePart>);

/// A part of a [`SoloProgress`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoursePart {
    /// Number of instructions.
    pub instructions: u64,
    /// Run time alone, in seconds.
    pub seconds: f64,
}

impl SoloProgress {
    /// Run time alone of the first `instructions`, in seconds; 0 for an empty course.
    #[must_use]
    pub fn seconds(&self, instructions: u64) -> f64 {
        let all: u64 = self.0.iter().map(|part| part.instructions).sum();
        // Whole rounds first, then the parts of the last round.
        let Some(times) = instructions.checked_div(all) else { return 0.0 };
        let once: f64 = self.0.iter().map(|part| part.seconds).sum();
        let mut left = instructions % all;
        let mut seconds = once * times as f64;
        // A part without instructions would divide by 0.
        for part in self.0.iter().filter(|part| part.instructions > 0) {
            let done = left.min(part.instructions);
            seconds += part.seconds * (done as f64 / part.instructions as f64);
            left -= done;
        }
        seconds
    }
}

/// Knowledge before the first decision. Each policy uses the fields that it needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Knowledge<'a> {
    /// Profiles of the jobs alone, by job.
    pub alone: &'a [SoloProfile],
    /// Model of CPI stacks on a shared core; `None`: [`CpiModel::built_in`], of another machine.
    pub cpi: Option<&'a CpiModel>,
    /// Demand vectors by job, for the oracle and for speed-up factors.
    pub demands: &'a [Phase],
    /// Speed of the machine, for the oracle and for speed-up factors; `None`: unknown.
    pub performance: Option<&'a Performance>,
    /// Wake-up costs on this machine; `None`: [`WakeUpCosts::default`].
    pub wake_ups: Option<WakeUpCosts>,
    /// Some cores of the machine have several PUs.
    pub shares_cores: bool,
    /// The machine has several memory nodes.
    pub has_nodes: bool,
    /// Progress alone, by job, for comparison with the optimum.
    pub courses: &'a [SoloProgress],
}

/// One setting of a policy.
#[derive(Debug)]
pub struct Setting {
    /// Name of the setting.
    pub name: &'static str,
    /// Type and range of the value.
    pub kind: SettingKind,
    /// Default value; `None`: the policy chooses.
    pub default: Option<Value>,
    /// A policy's name shows the value even if it is the default.
    pub is_shown: bool,
    /// Effect, in some words.
    pub meaning: &'static str,
}

/// Type and range of a setting's value.
#[derive(Debug)]
pub enum SettingKind {
    /// Whole number with a minimum.
    Count(u64),
    /// Number: range in words, and the test for membership.
    Number(&'static str, fn(f64) -> bool),
    /// Number not below the value of another setting: name of that setting, range in words, test.
    NumberNotBelow(&'static str, &'static str, fn(f64) -> bool),
    /// A word of the list.
    Word(&'static [&'static str]),
    /// Path of a file.
    File,
    /// Flag, written without a value.
    Flag,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Whole number.
    Count(u64),
    /// Number.
    Number(f64),
    /// Word.
    Word(&'static str),
    /// Path of a file.
    File(PathBuf),
    /// Flag that is set.
    Set,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => f.write_str(word),
            Self::File(path) => path.display().fmt(f),
            Self::Set => Ok(()),
        }
    }
}

/// A text of a row.
type Text = &'static str;

impl Setting {
    /// A setting, shown only if its value is not the default.
    pub const fn new(name: Text, kind: SettingKind, default: Option<Value>, meaning: Text) -> Self {
        Self { name, kind, default, is_shown: false, meaning }
    }

    /// A whole number, `least` or more.
    pub const fn count(name: Text, least: u64, default: u64, meaning: Text) -> Self {
        Self::new(name, SettingKind::Count(least), Some(Value::Count(default)), meaning)
    }

    /// A finite number, 0 or more.
    pub(crate) const fn not_below_0(name: Text, default: f64, meaning: Text) -> Self {
        let kind = SettingKind::Number("not below 0", |it| it.is_finite() && it >= 0.0);
        Self::new(name, kind, Some(Value::Number(default)), meaning)
    }

    /// A word of the list, by default the first.
    pub(crate) const fn word(name: Text, words: &'static [Text], meaning: Text) -> Self {
        Self::new(name, SettingKind::Word(words), Some(Value::Word(words[0])), meaning)
    }

    /// The same setting, always shown.
    pub(crate) const fn shown(mut self) -> Self {
        self.is_shown = true;
        self
    }

    /// The value that `text` says; `None` as a text is for a flag.
    pub(crate) fn read(&self, text: Option<&str>) -> Option<Value> {
        let Some(text) = text else {
            return matches!(self.kind, SettingKind::Flag).then_some(Value::Set);
        };
        match self.kind {
            SettingKind::Count(least) => {
                text.parse().ok().filter(|count| *count >= least).map(Value::Count)
            }
            SettingKind::Number(_, is) | SettingKind::NumberNotBelow(_, _, is) => {
                text.parse().ok().filter(|number| is(*number)).map(Value::Number)
            }
            SettingKind::Word(words) => {
                words.iter().find(|word| **word == text).map(|it| Value::Word(it))
            }
            SettingKind::File => (!text.is_empty()).then(|| Value::File(PathBuf::from(text))),
            // Flags have no `=VALUE`.
            SettingKind::Flag => None,
        }
    }

    /// Syntax and range, e.g. `seed=N, N from 0`.
    #[must_use]
    pub fn range(&self) -> String {
        let name = self.name;
        match self.kind {
            SettingKind::Count(least) => format!("{name}=N, N from {least}"),
            SettingKind::Number(range, _) => format!("{name}=X, X {range}"),
            SettingKind::NumberNotBelow(other, range, _) => {
                format!("{name}=X, X {range} and not below {other}")
            }
            SettingKind::Word(words) => format!("{name}={}", listed(words)),
            SettingKind::File => format!("{name}=FILE"),
            SettingKind::Flag => name.to_owned(),
        }
    }
}

/// A policy with its settings, written `NAME` or `NAME:SETTING=VALUE:…`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicySpec {
    pub(crate) row: &'static PolicyRow,
    /// In the order of the row's settings; `None` for a setting without value or default.
    pub(crate) values: Vec<Option<Value>>,
}

impl PolicySpec {
    fn get(&self, name: &str) -> Option<&Value> {
        let at = self.row.settings.iter().position(|setting| setting.name == name);
        self.values[at.expect("a row reads its own settings")].as_ref()
    }

    /// Value of the whole number `name`, capped at `u32::MAX`.
    ///
    /// # Panics
    /// If the row has no setting `name` of this kind, or the setting has no default.
    #[must_use]
    pub fn count(&self, name: &str) -> u32 {
        u32::try_from(self.long(name)).unwrap_or(u32::MAX)
    }

    /// Value of the whole number `name`. Panics as [`Self::count`].
    #[must_use]
    pub fn long(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(Value::Count(count)) => *count,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Value of the number `name`. Panics as [`Self::count`].
    #[must_use]
    pub fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            Some(Value::Number(number)) => *number,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// True if the flag `name` is set.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.get(name) == Some(&Value::Set)
    }

    /// Value of the word `name`; `None` if not set.
    #[must_use]
    pub fn word(&self, name: &str) -> Option<&'static str> {
        match self.get(name) {
            Some(Value::Word(word)) => Some(word),
            _ => None,
        }
    }
}

/// `a, b or c`.
#[must_use]
pub fn listed(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}
