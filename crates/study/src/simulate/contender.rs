//! What a simulation compares: policies, which place threads, and schedulers, which also choose quantum by
//! quantum who runs.

use colocate_policy::PolicyKind;
use colocate_policy::kind::KindError;
use colocate_policy::schedule::{SchedulerError, SchedulerKind};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// What stands before the name of a scheduler that is also a policy's.
const SCHEDULER: &str = "schedule:";

/// What stands behind a scheduler whose waiting jobs fill idle PUs.
const FILLS: &str = "+fill";

/// A policy or a scheduler, with its settings, written as either is. A name that both have is the policy's;
/// `schedule:NAME` is the scheduler. With `+fill` behind a scheduler, jobs that have to wait fill idle PUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Contender {
    /// Places threads, and all of them run.
    Policy(PolicyKind),
    /// Chooses who runs as well; who waits is stopped.
    Scheduler(SchedulerKind),
    /// The same, where who waits fills idle PUs.
    Filling(SchedulerKind),
}

impl Contender {
    /// The scheduler, if it is one.
    #[must_use]
    pub const fn scheduler(self) -> Option<SchedulerKind> {
        match self {
            Self::Policy(_) => None,
            Self::Scheduler(kind) | Self::Filling(kind) => Some(kind),
        }
    }
}

/// Why a text is neither a policy nor a scheduler.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ContenderError {
    /// Nothing has this name.
    #[error("expected a policy, {}, or a scheduler, {}, found {found:?}", policies(), schedulers())]
    Name {
        /// What the text says.
        found: String,
    },
    /// A policy has no such setting.
    #[error(transparent)]
    Policy(KindError),
    /// There is no such scheduler, or it has no such setting.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
}

fn policies() -> String {
    listed(PolicyKind::ALL.iter().map(|kind| kind.name().to_owned()).collect())
}

fn schedulers() -> String {
    listed(SchedulerKind::ALL.iter().map(|&kind| name(kind, kind.name())).collect())
}

fn listed(names: Vec<String>) -> String {
    match names.split_last() {
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// How a scheduler is told from a policy of the same name; `written` is the scheduler as it writes itself.
fn name(kind: SchedulerKind, written: &str) -> String {
    let shared = PolicyKind::ALL.iter().any(|policy| policy.name() == kind.name());
    format!("{}{written}", if shared { SCHEDULER } else { "" })
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(kind) => kind.fmt(f),
            Self::Scheduler(kind) => f.write_str(&name(*kind, &kind.to_string())),
            Self::Filling(kind) => write!(f, "{}{FILLS}", name(*kind, &kind.to_string())),
        }
    }
}

impl FromStr for Contender {
    type Err = ContenderError;

    fn from_str(text: &str) -> Result<Self, ContenderError> {
        if let Some(scheduler) = text.strip_suffix(FILLS) {
            let scheduler = scheduler.strip_prefix(SCHEDULER).unwrap_or(scheduler);
            return Ok(Self::Filling(scheduler.parse()?));
        }
        if let Some(scheduler) = text.strip_prefix(SCHEDULER) {
            return Ok(Self::Scheduler(scheduler.parse()?));
        }
        match text.parse() {
            Ok(policy) => return Ok(Self::Policy(policy)),
            Err(KindError::Name(_)) => {}
            Err(setting) => return Err(ContenderError::Policy(setting)),
        }
        text.parse().map(Self::Scheduler).map_err(|error| match error {
            SchedulerError::Name { found } => ContenderError::Name { found },
            setting => ContenderError::Scheduler(setting),
        })
    }
}

impl TryFrom<String> for Contender {
    type Error = ContenderError;
    fn try_from(text: String) -> Result<Self, ContenderError> {
        text.parse()
    }
}

impl From<Contender> for String {
    fn from(contender: Contender) -> Self {
        contender.to_string()
    }
}

impl From<PolicyKind> for Contender {
    fn from(kind: PolicyKind) -> Self {
        Self::Policy(kind)
    }
}

impl PartialEq<PolicyKind> for Contender {
    fn eq(&self, other: &PolicyKind) -> bool {
        *self == Self::Policy(*other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_writes() {
        let policies = PolicyKind::ALL.into_iter().map(Contender::Policy);
        let schedulers = SchedulerKind::ALL.into_iter().map(Contender::Scheduler);
        let filling = SchedulerKind::ALL.into_iter().map(Contender::Filling);
        let mut written: Vec<String> = Vec::new();
        for contender in policies.chain(schedulers).chain(filling) {
            let text = contender.to_string();
            assert_eq!(text.parse(), Ok(contender));
            assert!(!written.contains(&text), "{text} is written by two");
            written.push(text);
        }
    }

    #[test]
    fn a_policys_name_is_the_policys() {
        let policy = Contender::Policy(PolicyKind::RoundRobin);
        assert_eq!("round-robin".parse(), Ok(policy));
        let scheduler = Contender::Scheduler(SchedulerKind::RoundRobin);
        assert_eq!("schedule:round-robin".parse(), Ok(scheduler));
        assert_eq!("schedule:bas".parse(), Ok(Contender::Scheduler(SchedulerKind::Bas)));
        assert_eq!(Contender::Scheduler(SchedulerKind::Bas).to_string(), "bas");
        assert_eq!(Contender::Filling(SchedulerKind::Bas).to_string(), "bas+fill");
        let filling = Contender::Filling(SchedulerKind::RoundRobin);
        assert_eq!("round-robin+fill".parse(), Ok(filling), "policies stop nobody");
    }

    #[test]
    fn refuses_with_one_line() {
        let refusal = |text: &str| text.parse::<Contender>().unwrap_err().to_string();
        let said = refusal("best");
        assert!(said.starts_with("expected a policy, os, round-robin,"), "{said}");
        assert!(said.ends_with("found \"best\"") && said.contains("schedule:os"), "{said}");
        assert_eq!(refusal("random:seat=1"), "expected random with seed=N, found \"seat=1\"");
        assert_eq!(refusal("bas:a=1"), "expected bas with no setting, found \"a=1\"");
        assert!(refusal("schedule:mix").contains("found scheduler \"mix\""));
        assert!(refusal("mix+fill").contains("found scheduler \"mix\""));
    }
}
