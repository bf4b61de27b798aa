//! Contenders of a simulation: policies with the time of their decisions.

use colocate_engine::Meanwhile;
use colocate_policy::PolicySpec;
use colocate_policy::table::{self, Cadence, listed};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Prefix of a policy that could decide once, to decide each quantum.
const EACH_QUANTUM: &str = "schedule:";

/// Suffix of a policy whose waiting jobs fill idle PUs.
const FILLS: &str = "+fill";

/// Suffix of a guarded policy.
const GUARDED: &str = "+guard";

/// A policy with its settings. A policy that can decide once does; with the prefix `schedule:` it
/// decides each quantum. With the suffix `+fill` it decides each quantum, and waiting jobs fill
/// idle PUs; with the suffix `+guard` it decides each quantum and is guarded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Contender {
    /// The policy.
    pub policy: PolicySpec,
    /// Treatment of waiting jobs, for decisions each quantum; `None` for a single decision.
    pub waiting: Option<Meanwhile>,
    /// Whether the policy is guarded.
    pub guarded: bool,
}

impl Contender {
    /// Whether the policy decides each quantum.
    #[must_use]
    pub const fn each_quantum(&self) -> bool {
        self.waiting.is_some()
    }

    /// A policy that decides each quantum.
    fn each(policy: PolicySpec, waiting: Meanwhile) -> Result<Self, String> {
        if policy.row().cadence.each_quantum() {
            return Ok(Self { policy, waiting: Some(waiting), guarded: false });
        }
        let names: Vec<_> = table::each_quantum().map(|policy| policy.name()).collect();
        let names = listed(&names);
        let found = policy.name();
        Err(format!("expected a policy that decides each quantum, {names}, found {found}"))
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.each_quantum() && self.policy.row().cadence == Cadence::Either {
            f.write_str(EACH_QUANTUM)?;
        }
        let fills = if self.waiting == Some(Meanwhile::Fill) { FILLS } else { "" };
        let guarded = if self.guarded { GUARDED } else { "" };
        write!(f, "{}{fills}{guarded}", self.policy)
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // In the reverse order of `Display`.
        let (rest, guarded) = without(text, GUARDED);
        let (rest, fills) = without(rest, FILLS);
        let (name, each) = match rest.strip_prefix(EACH_QUANTUM) {
            Some(name) => (name, true),
            None => (rest, false),
        };
        let policy = name.parse::<PolicySpec>().map_err(|why| why.to_string())?;
        if policy.file().is_some() {
            return Err(format!(
                "expected {} without model=FILE (see --cpi-model), found one",
                policy.name()
            ));
        }
        let each = each || guarded || policy.row().cadence == Cadence::EachQuantum;
        let contender = match (fills, each) {
            (true, _) => Self::each(policy, Meanwhile::Fill)?,
            (false, true) => Self::each(policy, Meanwhile::Stop)?,
            (false, false) => Self { policy, waiting: None, guarded: false },
        };
        Ok(Self { guarded, ..contender })
    }
}

/// A text without a suffix, and whether it had the suffix.
fn without<'a>(text: &'a str, suffix: &str) -> (&'a str, bool) {
    text.strip_suffix(suffix).map_or((text, false), |rest| (rest, true))
}

impl TryFrom<String> for Contender {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Contender> for String {
    fn from(contender: Contender) -> Self {
        contender.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Contender {
        text.parse().unwrap()
    }

    #[test]
    fn reads_back_what_it_writes() {
        let once = table::once().map(|policy| Contender { policy, waiting: None, guarded: false });
        let each = |waiting, guarded| {
            let waiting = Some(waiting);
            table::each_quantum().map(move |policy| Contender { policy, waiting, guarded })
        };
        let stopped = [false, true].map(|guarded| each(Meanwhile::Stop, guarded));
        let filling = [false, true].map(|guarded| each(Meanwhile::Fill, guarded));
        let mut written: Vec<String> = Vec::new();
        for contender in once.chain(stopped.into_iter().chain(filling).flatten()) {
            let text = contender.to_string();
            assert_eq!(text.parse(), Ok(contender));
            assert!(!written.contains(&text), "{text} is written by two");
            written.push(text);
        }
    }

    #[test]
    fn what_can_decide_once_does() {
        assert_eq!(parsed("round-robin").waiting, None);
        assert_eq!(parsed("schedule:round-robin").waiting, Some(Meanwhile::Stop));
        assert_eq!(parsed("schedule:bas"), parsed("bas"));
        assert_eq!(parsed("bas").to_string(), "bas");
        assert_eq!(parsed("bas+fill").to_string(), "bas+fill");
        assert_eq!(parsed("round-robin+fill").waiting, Some(Meanwhile::Fill));
        assert_eq!(parsed("schedule:round-robin+fill"), parsed("round-robin+fill"));
        assert_eq!(parsed("round-robin+guard"), parsed("schedule:round-robin+guard"));
        assert!(parsed("bas+fill+guard").guarded && !parsed("bas+fill").guarded);
    }

    #[test]
    fn refuses_with_one_line() {
        let refusal = |text: &str| text.parse::<Contender>().unwrap_err().to_string();
        let said = refusal("best");
        assert!(said.starts_with("expected os, auto, round-robin,"), "{said}");
        assert!(said.ends_with("found policy \"best\""), "{said}");
        assert!(refusal("random:seat=1").ends_with("found \"seat=1\""));
        assert_eq!(
            refusal("bas:a=1"),
            "expected bas with oatr=waiting or delivered, found \"a=1\""
        );
        let said = refusal("schedule:mix");
        assert!(said.starts_with("expected a policy that decides each quantum, os, "), "{said}");
        assert!(refusal("mix+fill").ends_with("found mix"));
        assert!(refusal("symbiotic:model=x").starts_with("expected symbiotic without model=FILE"));
    }
}
