//! Kinds of evidence, the answers of a host to requests, and the slots for reports.

use crate::{PageGroup, Sharing, WakeUps};
use colocate_machine::{Nanos, PuNr};
use serde::Serialize;

/// Kind of evidence. Creation and end of tasks are always known.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Instruction mixes.
    Mix,
    /// Instructions, cycles, requests to caches and memory.
    Counters,
    /// CPI stacks.
    Stacks,
    /// CPU time and run-queue wait of threads.
    RunStates,
    /// Immediate report when a job begins or ceases to have more than one runnable thread.
    Phases,
    /// Spin time of threads: time in loops that only wait for another thread.
    Spinning,
    /// Wake-ups between threads.
    WakeUps,
    /// Shared memory of threads.
    Sharing,
    /// Numbers of voluntary waits, and of reads and writes, per thread.
    Switches,
    /// Pages used per thread, and their nodes.
    Pages,
}

impl Source {
    /// All sources.
    pub const ALL: [Self; 10] = [
        Self::Mix,
        Self::Counters,
        Self::Stacks,
        Self::RunStates,
        Self::Phases,
        Self::Spinning,
        Self::WakeUps,
        Self::Sharing,
        Self::Switches,
        Self::Pages,
    ];

    /// Name for scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mix => "mix",
            Self::Counters => "counters",
            Self::Stacks => "stacks",
            Self::RunStates => "run-states",
            Self::Phases => "phases",
            Self::Spinning => "spinning",
            Self::WakeUps => "wake-ups",
            Self::Sharing => "sharing",
            Self::Switches => "switches",
            Self::Pages => "pages",
        }
    }

    /// Evidence of the source, for messages, to follow "cannot report".
    #[must_use]
    pub const fn reports(self) -> &'static str {
        match self {
            Self::Mix => "which instructions programs execute",
            Self::Counters => {
                "how many instructions threads execute and what they request from caches and memory"
            }
            Self::Stacks => "where threads' cycles go",
            Self::RunStates => "how long threads run and wait for a PU",
            Self::Phases => "at once when a serial phase begins or ends",
            Self::Spinning => "which threads only wait for others in a loop",
            Self::WakeUps => "which threads wake which",
            Self::Sharing => "which threads use the same memory",
            Self::Switches => "how often threads wait for others, read and write",
            Self::Pages => "which threads use which pages",
        }
    }

    /// Consequence for decisions without the source, for messages.
    #[must_use]
    pub const fn without(self) -> &'static str {
        match self {
            Self::Mix => "they are placed by their number alone",
            Self::Counters | Self::WakeUps | Self::Sharing => "policies decide without it",
            Self::Stacks => "policies that need it keep groups as they are",
            Self::RunStates => "CPU times are those of the kernel's clock ticks",
            Self::Phases => "it is seen when the quantum is over",
            Self::Spinning => "they count as working",
            Self::Switches => "progress of programs that communicate is taken for their CPU time",
            Self::Pages => "pages stay where they are",
        }
    }
}

/// Several sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceSet(u16);

impl SourceSet {
    /// No source.
    pub const NONE: Self = Self(0);

    /// Set of the given sources.
    #[must_use]
    pub const fn of(sources: &[Source]) -> Self {
        let mut set = 0;
        let mut at = 0;
        // A `const fn` cannot call iterators, so there is no `for`.
        while at < sources.len() {
            set |= 1 << sources[at] as u16;
            at += 1;
        }
        Self(set)
    }

    /// Whether `source` is in the set.
    #[must_use]
    pub const fn has(self, source: Source) -> bool {
        self.0 & (1 << source as u16) != 0
    }

    /// Union.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Difference: the sources of this set not in `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Sources of the set in the order of [`Source::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Source> {
        Source::ALL.into_iter().filter(move |source| self.has(*source))
    }
}

/// Reports about several tasks at once; `None` for a source without reports on this host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceReports {
    /// Wake-ups since the start of the source, without forgotten tasks.
    pub wake_ups: Option<Vec<WakeUps>>,
    /// Memory sharing since the start of the source, without forgotten tasks.
    pub sharing: Option<Vec<Sharing>>,
    /// Page groups used by tasks, in the order of jobs and addresses, with their present nodes.
    pub pages: Option<Vec<PageGroup>>,
    /// PUs that tasks share under the plan, where they were read since the last observation.
    pub shared_pus: Option<Vec<SharedPu>>,
}

/// Times of the tasks that share a PU under the plan, in a part of the last quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPu {
    /// The PU.
    pub pu: PuNr,
    /// Length of the part of the quantum.
    pub over: Nanos,
    /// CPU time of the tasks together.
    pub ran: Nanos,
    /// Their run-queue wait together.
    pub waited: Nanos,
}

impl SharedPu {
    /// Share of the time in which a task waited for the PU and none of them ran, at most: in this
    /// time the PU was others'.
    #[must_use]
    pub fn displaced(&self) -> f64 {
        let displaced = self.waited.min(self.over.saturating_sub(self.ran));
        displaced.as_secs_f64() / self.over.max(Nanos(1)).as_secs_f64()
    }
}

impl SourceReports {
    /// No report: every slot is unknown.
    pub const NONE: Self = Self { wake_ups: None, sharing: None, pages: None, shared_pus: None };
}

/// Answer of a host to the request for a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The requested source.
    pub source: Source,
    /// Provider of the source, or the reason of the refusal.
    pub answer: Result<Provider, Refusal>,
}

/// Backend for a source on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Provider {
    /// Description, e.g. "perf events: instruction pointers".
    pub name: &'static str,
    /// Cost for the programs or the machine, for messages.
    pub cost: String,
    /// Missing reports on this host, one line each.
    pub limits: Vec<String>,
}

/// Refusal of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Cause, in one line.
    pub why: String,
    /// Remedy.
    pub remedy: &'static str,
}

impl Refusal {
    /// Refusal for a cause that `colocate doctor` explains.
    #[must_use]
    pub fn of(why: impl ToString) -> Self {
        Self { why: why.to_string(), remedy: "`colocate doctor` names the remedy" }
    }
}

impl Grant {
    /// Messages: the refusal with its remedy, or the limits of the backend.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        match &self.answer {
            Ok(backend) => backend.limits.clone(),
            Err(Refusal { why, remedy }) => {
                let reports = self.source.reports();
                let without = self.source.without();
                vec![format!("cannot report {reports}, because {why}; {without}; {remedy}")]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_was_put_in() {
        let two = SourceSet::of(&[Source::Spinning, Source::Mix]);
        assert_eq!(two.iter().collect::<Vec<_>>(), [Source::Mix, Source::Spinning]);
        assert!(
            !two.has(Source::Stacks)
                && two.and(SourceSet::of(&[Source::Stacks])).has(Source::Stacks)
        );
        let all =
            Source::ALL.iter().fold(SourceSet::NONE, |set, one| set.and(SourceSet::of(&[*one])));
        assert_eq!(all, SourceSet::of(&Source::ALL));
        assert_eq!(all.iter().count(), Source::ALL.len());
    }

    #[test]
    fn a_refusal_says_what_was_found_what_follows_and_what_to_do() {
        let refused = Grant { source: Source::Spinning, answer: Err(Refusal::of("perf is off")) };
        assert_eq!(
            refused.lines(),
            [
                "cannot report which threads only wait for others in a loop, because perf is off; they count as working; \
              `colocate doctor` names the remedy"
            ]
        );
        let limits = vec!["misses of level 2 are unknown".to_owned()];
        let backend = Provider { name: "perf events", cost: "none".into(), limits: limits.clone() };
        assert_eq!(Grant { source: Source::Counters, answer: Ok(backend) }.lines(), limits);
    }
}
