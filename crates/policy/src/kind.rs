//! Which policy, as people write it.

use colocate_model::Class;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A policy with its settings.
///
/// Written `NAME` or `NAME:SETTING=VALUE`: `os`, `round-robin`, `scatter`, `compact`,
/// `random:seed=7`, `instruction:key=float`, `mix`, `symbiosis-model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PolicyKind {
    /// Leaves every task to the kernel.
    Os,
    /// Fills PUs in hwloc's logical order.
    RoundRobin,
    /// As far apart as possible.
    Scatter,
    /// As close together as possible.
    Compact,
    /// Drawn by a seeded generator.
    Random {
        /// The seed.
        seed: u64,
    },
    /// Pairs tasks that do most with tasks that do least of one class (Serpa et al., Algorithm 1).
    Instruction {
        /// The class; `None` leaves the choice to the policy.
        key: Option<Class>,
    },
    /// Least overlap of whole mixes (minimum-weight matching).
    Mix,
    /// Least slowdown that the contention model predicts (matching of pairs, then of groups).
    SymbiosisModel,
}

impl PolicyKind {
    /// Every policy with its default settings, in the order of this list.
    pub const ALL: [Self; 8] = [
        Self::Os,
        Self::RoundRobin,
        Self::Scatter,
        Self::Compact,
        Self::Random { seed: 0 },
        Self::Instruction { key: None },
        Self::Mix,
        Self::SymbiosisModel,
    ];

    /// The policy's name without its settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Os => "os",
            Self::RoundRobin => "round-robin",
            Self::Scatter => "scatter",
            Self::Compact => "compact",
            Self::Random { .. } => "random",
            Self::Instruction { .. } => "instruction",
            Self::Mix => "mix",
            Self::SymbiosisModel => "symbiosis-model",
        }
    }

    /// Whether the policy looks at what tasks do, so that it needs profiles.
    #[must_use]
    pub const fn needs_mixes(self) -> bool {
        matches!(self, Self::Instruction { .. } | Self::Mix | Self::SymbiosisModel)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Random { seed } => write!(f, ":seed={seed}"),
            Self::Instruction { key: Some(key) } => write!(f, ":key={key}"),
            _ => Ok(()),
        }
    }
}

/// Why a text is not a policy.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum KindError {
    /// No policy has this name.
    #[error(
        "expected os, round-robin, scatter, compact, random, instruction, mix or symbiosis-model, found policy {0:?}"
    )]
    Name(String),
    /// The policy has no such setting.
    #[error("expected {policy} with {expected}, found {found:?}")]
    Setting {
        /// The policy.
        policy: &'static str,
        /// The setting that it has.
        expected: &'static str,
        /// What the text says.
        found: String,
    },
}

impl FromStr for PolicyKind {
    type Err = KindError;

    /// Reads `NAME` or `NAME:SETTING=VALUE`. `random` alone has seed 0.
    fn from_str(text: &str) -> Result<Self, KindError> {
        let (name, setting) = match text.split_once(':') {
            Some((name, setting)) => (name, Some(setting)),
            None => (text, None),
        };
        let mut kinds = Self::ALL.into_iter();
        let kind = kinds
            .find(|kind| kind.name() == name)
            .ok_or_else(|| KindError::Name(name.to_owned()))?;
        setting.map_or(Ok(kind), |setting| kind.with(setting))
    }
}

impl PolicyKind {
    fn with(self, setting: &str) -> Result<Self, KindError> {
        let wrong = |expected| KindError::Setting {
            policy: self.name(),
            expected,
            found: setting.to_owned(),
        };
        let value = setting.split_once('=');
        match (self, value) {
            (Self::Random { .. }, Some(("seed", value))) => value
                .parse()
                .map(|seed| Self::Random { seed })
                .map_err(|_| wrong("seed=N, N from 0 to 18446744073709551615")),
            (Self::Random { .. }, _) => Err(wrong("seed=N")),
            (Self::Instruction { .. }, Some(("key", value))) => value
                .parse()
                .map(|key| Self::Instruction { key: Some(key) })
                .map_err(|_| wrong("key=branch, float, int, load or store")),
            (Self::Instruction { .. }, _) => Err(wrong("key=CLASS")),
            _ => Err(wrong("no setting")),
        }
    }
}

impl TryFrom<String> for PolicyKind {
    type Error = KindError;
    fn try_from(text: String) -> Result<Self, KindError> {
        text.parse()
    }
}

impl From<PolicyKind> for String {
    fn from(kind: PolicyKind) -> Self {
        kind.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_writes() {
        let more = [
            PolicyKind::Random { seed: u64::MAX },
            PolicyKind::Instruction { key: Some(Class::Float) },
        ];
        for kind in PolicyKind::ALL.into_iter().chain(more) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }

    #[test]
    fn refuses_with_one_line() {
        let refusal = |text: &str| text.parse::<PolicyKind>().unwrap_err().to_string();
        assert_eq!(
            refusal("best"),
            "expected os, round-robin, scatter, compact, random, instruction, mix or symbiosis-model, found policy \"best\""
        );
        assert_eq!(refusal("mix:seed=1"), "expected mix with no setting, found \"seed=1\"");
        assert_eq!(
            refusal("random:seed=-1"),
            "expected random with seed=N, N from 0 to 18446744073709551615, found \"seed=-1\""
        );
        assert_eq!(refusal("random:"), "expected random with seed=N, found \"\"");
        assert_eq!(
            refusal("instruction:key=fp"),
            "expected instruction with key=branch, float, int, load or store, found \"key=fp\""
        );
    }
}
