//! A row of the table of policies: what commands, help and docs say of one, and how it is made.

use crate::policy::Policy;
use colocate_machine::Performance;
use colocate_model::communication::WakeUpCosts;
use colocate_model::{CpiModel, Phase};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// A policy: what commands, help and docs show of it, and how it is made.
#[derive(Debug)]
pub struct Row {
    /// Its name: small letters, digits and `-`.
    pub name: &'static str,
    /// What it does, in about ten words.
    pub summary: &'static str,
    /// For whom it is.
    pub purpose: Purpose,
    /// Where it was published, or that it is a baseline or ours.
    pub source: &'static str,
    /// What can be set.
    pub settings: &'static [Setting],
    /// Prior knowledge that it needs.
    pub prior: &'static [Prior],
    /// When it decides.
    pub cadence: Cadence,
    /// Whether it lets jobs wait, where it decides each quantum.
    pub waits: bool,
    /// Makes it.
    pub make: fn(&Values<'_>, &Knowledge<'_>) -> Box<dyn Policy>,
}

impl Row {
    /// What most policies that decide once have; it makes none.
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

    /// What most policies that decide each quantum have; it makes none.
    pub const EACH_QUANTUM: Self =
        Self { cadence: Cadence::EachQuantum, waits: true, ..Self::ONCE };
}

/// For whom a policy is, as lists are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Programs that matter.
    Recommended,
    /// Comparison with what was published.
    Published,
    /// Comparison with what takes no evidence.
    Baseline,
    /// Comparison in simulations: it knows what no real machine tells.
    Simulated,
}

impl Purpose {
    /// The groups of policies for real machines, in the order of lists.
    pub const REAL: [Self; 3] = [Self::Recommended, Self::Published, Self::Baseline];

    /// Its heading in lists.
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

/// When a policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// At the launch, and again when that is worth while: `colocate run`.
    Once,
    /// Each quantum: `colocate schedule`.
    EachQuantum,
    /// Either.
    Either,
}

impl Cadence {
    /// Whether it may decide once.
    #[must_use]
    pub const fn once(self) -> bool {
        matches!(self, Self::Once | Self::Either)
    }

    /// Whether it may decide each quantum.
    #[must_use]
    pub const fn each_quantum(self) -> bool {
        matches!(self, Self::EachQuantum | Self::Either)
    }
}

/// Knowledge that a policy needs before the first decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prior {
    /// What each job does alone, from runs before ([`SoloProfile`]).
    Solo,
    /// What becomes of CPI stacks on a shared core of this machine.
    CpiModel,
    /// How fast the machine is.
    Speeds,
    /// What each job demands.
    Demands,
    /// What each job does alone, part after part, which is known in simulations only.
    Courses,
}

/// What is known of a job from runs before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SoloProfile {
    /// How long it takes, in seconds.
    pub seconds: f64,
    /// Its requests to main memory on average, in transactions per microsecond.
    pub memory: f64,
    /// Its requests to the first cache on average, in transactions per microsecond, all threads together; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_cache: Option<f64>,
    /// The share of its speed that it loses for each t/µs of others' memory traffic.
    #[serde(default)]
    pub loss: f64,
}

/// What a job does alone, one part after the other, again and again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course(pub Vec<CoursePart>);

/// A part of a [`Course`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoursePart {
    /// How many instructions it has.
    pub instructions: u64,
    /// How long they take alone, in seconds.
    pub seconds: f64,
}

impl Course {
    /// How long so many instructions take alone from its beginning, in seconds; 0 if it has none.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counts of instructions are far below 2^53
    pub fn seconds(&self, instructions: u64) -> f64 {
        let all: u64 = self.0.iter().map(|part| part.instructions).sum();
        let Some(times) = instructions.checked_div(all) else { return 0.0 };
        let once: f64 = self.0.iter().map(|part| part.seconds).sum();
        let (mut left, mut seconds) = (instructions % all, once * times as f64);
        for part in self.0.iter().filter(|part| part.instructions > 0) {
            let done = left.min(part.instructions);
            seconds += part.seconds * (done as f64 / part.instructions as f64);
            left -= done;
        }
        seconds
    }
}

/// What is known before the first decision. Policies use the parts that they need.
#[derive(Clone, Copy, Debug, Default)]
pub struct Knowledge<'a> {
    /// What is known of the jobs alone, by job.
    pub alone: &'a [SoloProfile],
    /// What becomes of CPI stacks on a shared core of this machine; without it
    /// [`CpiModel::built_in`], which is that of another.
    pub cpi: Option<&'a CpiModel>,
    /// What each job demands, by job: for the oracle and for speed-up factors.
    pub demands: &'a [Phase],
    /// How fast the machine is, for the same.
    pub performance: Option<&'a Performance>,
    /// What wake-ups cost on this machine; without it [`WakeUpCosts::default`].
    pub wake_ups: Option<WakeUpCosts>,
    /// Whether cores of the machine have several PUs.
    pub shares_cores: bool,
    /// Whether the machine has several memory nodes.
    pub has_nodes: bool,
    /// What each job does alone, part after part, by job: for comparison with what is possible.
    pub courses: &'a [Course],
}

/// One setting of a policy.
#[derive(Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What its value can be.
    pub kind: Kind,
    /// Its value where none is given.
    pub default: Preset,
    /// What it does, in some words.
    pub meaning: &'static str,
}

/// What the value of a setting can be.
#[derive(Debug)]
pub enum Kind {
    /// A whole number, at least this.
    Count(u64),
    /// A number: its range in words, and whether a number is in it.
    Number(&'static str, fn(f64) -> bool),
    /// The same, and not below the value of another setting.
    NumberNotBelow(&'static str, &'static str, fn(f64) -> bool),
    /// One of these words.
    Word(&'static [&'static str]),
    /// The path of a file.
    File,
    /// Nothing: it is written without a value.
    Flag,
}

/// The value of a setting where none is given.
#[derive(Clone, Copy, Debug)]
pub enum Preset {
    /// A whole number.
    Count(u64),
    /// A number.
    Number(f64),
    /// A word.
    Word(&'static str),
    /// One that is always written.
    Shown(&'static Self),
    /// None: the policy chooses.
    Unset,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// A number.
    Number(f64),
    /// A word.
    Word(&'static str),
    /// The path of a file.
    File(PathBuf),
    /// It is set, and has no value.
    Set,
}

impl Preset {
    pub(crate) fn value(self) -> Option<Value> {
        Some(match self {
            Self::Count(count) => Value::Count(count),
            Self::Number(number) => Value::Number(number),
            Self::Word(word) => Value::Word(word),
            Self::Shown(preset) => return preset.value(),
            Self::Unset => return None,
        })
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().map_or(Ok(()), |value| value.fmt(f))
    }
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

impl Setting {
    pub(crate) fn read(&self, text: &str) -> Option<Value> {
        match self.kind {
            Kind::Count(least) => {
                text.parse().ok().filter(|count| *count >= least).map(Value::Count)
            }
            Kind::Number(_, is) | Kind::NumberNotBelow(_, _, is) => {
                text.parse().ok().filter(|number| is(*number)).map(Value::Number)
            }
            Kind::Word(words) => words.iter().find(|word| **word == text).map(|it| Value::Word(it)),
            Kind::File => (!text.is_empty()).then(|| Value::File(PathBuf::from(text))),
            Kind::Flag => None,
        }
    }

    /// What it can be, in words, e.g. `seed=N, N from 0`.
    #[must_use]
    pub fn range(&self) -> String {
        let name = self.name;
        match self.kind {
            Kind::Count(least) => format!("{name}=N, N from {least}"),
            Kind::Number(range, _) => format!("{name}=X, X {range}"),
            Kind::NumberNotBelow(other, range, _) => {
                format!("{name}=X, X {range} and not below {other}")
            }
            Kind::Word(words) => format!("{name}={}", listed(words)),
            Kind::File => format!("{name}=FILE"),
            Kind::Flag => name.to_owned(),
        }
    }
}

/// The settings of a policy, each with a value unless it has no default.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    row: &'static Row,
    values: &'a [Option<Value>],
}

impl<'a> Values<'a> {
    pub(crate) const fn new(row: &'static Row, values: &'a [Option<Value>]) -> Self {
        Self { row, values }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        let at = self.row.settings.iter().position(|setting| setting.name == name);
        self.values[at.expect("a row reads its own settings")].as_ref()
    }

    /// The whole number `name`; at most what a `u32` holds.
    ///
    /// # Panics
    /// If the row has no such setting of that kind, or it has no default.
    #[must_use]
    pub fn count(&self, name: &str) -> u32 {
        u32::try_from(self.long(name)).unwrap_or(u32::MAX)
    }

    /// The whole number `name`.
    ///
    /// # Panics
    /// As [`Self::count`].
    #[must_use]
    pub fn long(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(Value::Count(count)) => *count,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// The number `name`.
    ///
    /// # Panics
    /// As [`Self::count`].
    #[must_use]
    pub fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            Some(Value::Number(number)) => *number,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Whether `name`, which has no value, is set.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.get(name) == Some(&Value::Set)
    }

    /// The word `name`, if it is set.
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
