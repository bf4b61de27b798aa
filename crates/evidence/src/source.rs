//! Kinds of evidence, and what a host answers to a request.

use serde::Serialize;

/// One kind of evidence. That tasks are created and end is always known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Instruction mixes.
    Mix,
    /// Instructions, cycles, requests to caches and memory.
    Counters,
    /// CPI stacks.
    Stacks,
    /// How long threads had a PU or waited for one.
    RunStates,
    /// At once, when a job begins or ceases to have more than one runnable thread.
    Phases,
    /// How long threads only waited for others in a loop.
    Spinning,
    /// Which threads wake which.
    WakeUps,
    /// Which threads use the same memory.
    Sharing,
    /// How often threads wait for others, or read or write.
    Switches,
    /// Which threads use which pages, and where these are.
    Pages,
}

impl Source {
    /// All of them.
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

    /// Its name, for scripts.
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

    /// What it reports, for messages: what follows "cannot report".
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

    /// What becomes of decisions without it.
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

    /// These sources.
    #[must_use]
    pub const fn of(sources: &[Source]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < sources.len() {
            set |= 1 << sources[at] as u16;
            at += 1;
        }
        Self(set)
    }

    /// Whether `source` is one of them.
    #[must_use]
    pub const fn has(self, source: Source) -> bool {
        self.0 & (1 << source as u16) != 0
    }

    /// These and those.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Each of them, in the order of [`Source::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Source> {
        Source::ALL.into_iter().filter(move |source| self.has(*source))
    }
}

/// What a host answers to the request for a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Which source.
    pub source: Source,
    /// What provides it, or why nothing does.
    pub answer: Result<Provider, Refusal>,
}

/// What provides a source on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Provider {
    /// What it is, e.g. "perf events: instruction pointers".
    pub name: &'static str,
    /// What it costs the programs or the machine, for messages.
    pub cost: String,
    /// What it does not report here, one line each.
    pub limits: Vec<String>,
}

/// Why a host does not provide a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// What was found, in a line.
    pub why: String,
    /// What to do about it.
    pub remedy: &'static str,
}

impl Refusal {
    /// A cause that `colocate doctor` explains.
    #[must_use]
    pub fn of(why: impl ToString) -> Self {
        Self { why: why.to_string(), remedy: "`colocate doctor` names the remedy" }
    }
}

impl Grant {
    /// Messages: that the source is not there, or what its backend does not report.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        match &self.answer {
            Ok(backend) => backend.limits.clone(),
            Err(Refusal { why, remedy }) => {
                let (reports, without) = (self.source.reports(), self.source.without());
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
