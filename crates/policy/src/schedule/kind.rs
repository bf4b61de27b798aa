//! Which scheduler, as people write it, and what it has to know beforehand.

use super::Scheduler;
use super::bas::Bas;
use super::baselines::{Os, Random, RoundRobin};
use super::fair::{self, Fair};
use super::idas::{self, Idas};
use super::l1::{L1Dynamic, L1Static};
use super::mhas::Mhas;
use super::mmas::Mmas;
use super::progress::Estimating;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// What is known of a job from runs before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Alone {
    /// How long it takes, in seconds.
    pub seconds: f64,
    /// Its requests to main memory on average, in transactions per microsecond.
    pub memory: f64,
    /// Its requests to the first cache on average, in transactions per microsecond, all threads together.
    #[serde(default)]
    pub first_cache: f64,
    /// The share of its speed that it loses for each t/µs that others ask of the memory.
    #[serde(default)]
    pub loss: f64,
}

/// A scheduler with its settings, written `NAME` or `NAME:SETTING=VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SchedulerKind {
    /// Lets everything run and leaves it to the kernel.
    Os,
    /// Who has waited longest, PUs far apart first.
    RoundRobin,
    /// Drawn by a seeded generator.
    Random {
        /// The seed.
        seed: u64,
    },
    /// Main-memory bandwidth-aware.
    Mmas,
    /// Memory-hierarchy bandwidth-aware.
    Mhas,
    /// IPC-degradation-aware.
    Idas {
        /// Scale of the penalties, see [`idas`].
        kappa: f64,
    },
    /// First-cache bandwidth-aware by averages of runs alone.
    L1Static,
    /// First-cache bandwidth-aware by the last quantum.
    L1Dynamic,
    /// Bandwidth-aware without anything known beforehand.
    Bas,
    /// Progress-aware: who has come least far runs.
    Fair,
    /// Progress-aware for some of the contexts, bandwidth-aware for the others.
    PerfFair {
        /// The share of the contexts that is given by progress.
        share: f64,
    },
}

impl SchedulerKind {
    /// Every scheduler with its default settings, in the order of this list.
    pub const ALL: [Self; 11] = [
        Self::Os,
        Self::RoundRobin,
        Self::Random { seed: 0 },
        Self::Mmas,
        Self::Mhas,
        Self::Idas { kappa: idas::KAPPA },
        Self::L1Static,
        Self::L1Dynamic,
        Self::Bas,
        Self::Fair,
        Self::PerfFair { share: fair::FAIR_SHARE },
    ];

    /// Its name without settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Os => "os",
            Self::RoundRobin => "round-robin",
            Self::Random { .. } => "random",
            Self::Mmas => "mmas",
            Self::Mhas => "mhas",
            Self::Idas { .. } => "idas",
            Self::L1Static => "l1-static",
            Self::L1Dynamic => "l1-dynamic",
            Self::Bas => "bas",
            Self::Fair => "fair",
            Self::PerfFair { .. } => "perf-fair",
        }
    }

    /// Whether it has to know the jobs alone, which takes runs beforehand.
    #[must_use]
    pub const fn needs_alone(self) -> bool {
        matches!(self, Self::Mmas | Self::Mhas | Self::Idas { .. } | Self::L1Static)
    }

    /// The scheduler. `alone` is what is known of the jobs alone, by job; only those that need it look at it.
    #[must_use]
    pub fn scheduler(self, alone: &[Alone]) -> Box<dyn Scheduler> {
        match self {
            Self::Os => Box::new(Os),
            Self::RoundRobin => Box::new(RoundRobin),
            Self::Random { seed } => Box::new(Random::new(seed)),
            Self::Mmas => Box::new(Mmas { alone: alone.to_vec() }),
            Self::Mhas => Box::new(Mhas { alone: alone.to_vec() }),
            Self::Idas { kappa } => Box::new(Idas::new(alone.to_vec(), kappa)),
            Self::L1Static => {
                Box::new(L1Static { rates: alone.iter().map(|job| job.first_cache).collect() })
            }
            Self::L1Dynamic => Box::new(L1Dynamic),
            Self::Bas => Box::new(Bas),
            Self::Fair => Box::new(Fair::new(1.0, Estimating::default())),
            Self::PerfFair { share } => Box::new(Fair::new(share, Estimating::default())),
        }
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Random { seed } => write!(f, ":seed={seed}"),
            Self::Idas { kappa } => write!(f, ":kappa={kappa}"),
            Self::PerfFair { share } => write!(f, ":share={share}"),
            _ => Ok(()),
        }
    }
}

/// Why a text is not a scheduler.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SchedulerError {
    /// None has this name.
    #[error("expected {}, found scheduler {found:?}", names())]
    Name {
        /// What the text says.
        found: String,
    },
    /// It has no such setting.
    #[error("expected {scheduler} with {expected}, found {found:?}")]
    Setting {
        /// The scheduler.
        scheduler: &'static str,
        /// The setting that it has.
        expected: &'static str,
        /// What the text says.
        found: String,
    },
}

fn names() -> String {
    let names: Vec<&str> = SchedulerKind::ALL.iter().map(|kind| kind.name()).collect();
    let (last, others) = names.split_last().expect("there are some");
    format!("{} or {last}", others.join(", "))
}

impl FromStr for SchedulerKind {
    type Err = SchedulerError;

    fn from_str(text: &str) -> Result<Self, SchedulerError> {
        let (name, setting) = match text.split_once(':') {
            Some((name, setting)) => (name, Some(setting)),
            None => (text, None),
        };
        let kind = Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| SchedulerError::Name { found: name.to_owned() })?;
        setting.map_or(Ok(kind), |setting| kind.with(setting))
    }
}

impl SchedulerKind {
    fn with(self, setting: &str) -> Result<Self, SchedulerError> {
        let wrong = |expected| SchedulerError::Setting {
            scheduler: self.name(),
            expected,
            found: setting.to_owned(),
        };
        match (self, setting.split_once('=')) {
            (Self::Random { .. }, Some(("seed", value))) => value
                .parse()
                .map(|seed| Self::Random { seed })
                .map_err(|_| wrong("seed=N, N from 0 to 18446744073709551615")),
            (Self::Random { .. }, _) => Err(wrong("seed=N")),
            (Self::Idas { .. }, Some(("kappa", value))) => value
                .parse()
                .ok()
                .filter(|kappa: &f64| kappa.is_finite() && *kappa >= 0.0)
                .map(|kappa| Self::Idas { kappa })
                .ok_or_else(|| wrong("kappa=K, K not below 0")),
            (Self::Idas { .. }, _) => Err(wrong("kappa=K")),
            (Self::PerfFair { .. }, Some(("share", value))) => value
                .parse()
                .ok()
                .filter(|share| (0.0..1.0).contains(share))
                .map(|share| Self::PerfFair { share })
                .ok_or_else(|| wrong("share=F, F from 0 to less than 1")),
            (Self::PerfFair { .. }, _) => Err(wrong("share=F")),
            _ => Err(wrong("no setting")),
        }
    }
}

impl TryFrom<String> for SchedulerKind {
    type Error = SchedulerError;
    fn try_from(text: String) -> Result<Self, SchedulerError> {
        text.parse()
    }
}

impl From<SchedulerKind> for String {
    fn from(kind: SchedulerKind) -> Self {
        kind.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_writes() {
        let more = [SchedulerKind::Random { seed: u64::MAX }, SchedulerKind::Idas { kappa: 0.1 }];
        for kind in SchedulerKind::ALL.into_iter().chain(more) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }

    #[test]
    fn refuses_with_one_line() {
        let refusal = |text: &str| text.parse::<SchedulerKind>().unwrap_err().to_string();
        assert_eq!(
            refusal("best"),
            "expected os, round-robin, random, mmas, mhas, idas, l1-static, l1-dynamic, bas, fair or perf-fair, found scheduler \"best\""
        );
        assert_eq!(refusal("bas:seed=1"), "expected bas with no setting, found \"seed=1\"");
        assert_eq!(
            refusal("idas:kappa=-1"),
            "expected idas with kappa=K, K not below 0, found \"kappa=-1\""
        );
    }
}
