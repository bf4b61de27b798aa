//! Figures of merit of a simulated run.

use colocate_figures::stats;
use colocate_machine::Nanos;
use colocate_sim::{Moves, Outcome, TaskOutcome, metrics};
use serde::{Deserialize, Serialize};

/// A figure of merit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// From the first launch until the last program has done its work, in seconds.
    Turnaround,
    /// Time of the slowest program, in seconds (the metric of Serpa et al.).
    Slowest,
    /// Time of the first program, in seconds.
    First,
    /// Mean time of the programs, in seconds; compared as a speed-up.
    Time,
    /// Mean over the programs of instructions per cycle while they ran.
    Ipc,
    /// Harmonic mean over the programs of that relative to alone.
    HarmonicIpc,
    /// Sum of 1 / slowdown, waiting included.
    Stp,
    /// Mean slowdown.
    Antt,
    /// Greatest slowdown over the least.
    Unfairness,
    /// How often a second a thread came to another core.
    Moves,
    /// How often to one under another last-level cache.
    Crossings,
    /// How many cores were busy on average, spinning included.
    Busy,
    /// How many times as long the slowest program took as the fastest.
    Uneven,
}

impl Metric {
    /// Those of a scenario, in the order of its tables.
    pub const OF_SCENARIOS: [Self; 5] =
        [Self::Turnaround, Self::Slowest, Self::Stp, Self::Antt, Self::Unfairness];

    /// Its name in tables of studies and among what was published.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turnaround => "turnaround",
            Self::Slowest => "slower one's time",
            Self::First => "longer one's time",
            Self::Time => "time",
            Self::Ipc => "average IPC",
            Self::HarmonicIpc => "harmonic mean of IPC speedups",
            Self::Stp => "STP",
            Self::Antt => "ANTT",
            Self::Unfairness => "unfairness",
            Self::Moves => "moves/s",
            Self::Crossings => "across caches",
            Self::Busy => "busy cores",
            Self::Uneven => "uneven",
        }
    }

    /// Its name in a sentence.
    #[must_use]
    pub const fn short(self) -> &'static str {
        if matches!(self, Self::Slowest) { "slowest job" } else { self.name() }
    }

    /// What tables of scenarios call it, with its unit.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Turnaround => "turnaround in seconds",
            Self::Slowest => "time of the slowest job in seconds",
            Self::Stp => "STP, the sum of 1 / slowdown",
            Self::Antt => "ANTT, the mean slowdown",
            Self::Unfairness => "unfairness, the greatest slowdown over the least",
            _ => self.name(),
        }
    }

    /// Whether less of it is better.
    #[must_use]
    pub const fn less_is_better(self) -> bool {
        !matches!(self, Self::Ipc | Self::HarmonicIpc | Self::Stp)
    }

    /// Whether it is in seconds.
    #[must_use]
    pub const fn is_time(self) -> bool {
        matches!(self, Self::Turnaround | Self::Slowest | Self::First | Self::Time)
    }

    /// Whether it is shown as a ratio where others are shown in percent.
    #[must_use]
    pub const fn is_ratio(self) -> bool {
        matches!(self, Self::Antt | Self::Unfairness)
    }

    /// Whether policies are compared by it.
    #[must_use]
    pub const fn is_compared(self) -> bool {
        !matches!(self, Self::Moves | Self::Crossings | Self::Busy | Self::Uneven)
    }

    /// Its value of a run; `None` if that did not end.
    pub(crate) fn of(self, outcome: &Outcome) -> Option<f64> {
        let seconds = outcome.lasted.as_secs_f64();
        let a_second = |count: fn(&Moves) -> u32| {
            let moves: f64 = outcome.tasks.iter().map(|task| f64::from(count(&task.moves))).sum();
            moves / seconds
        };
        let times = || -> Option<Vec<f64>> {
            outcome.jobs.iter().map(|job| job.took().map(Nanos::as_secs_f64)).collect()
        };
        let slowdowns = || outcome.slowdowns();
        let value = match self {
            Self::Turnaround => outcome.turnaround().map(Nanos::as_secs_f64),
            Self::Slowest => outcome.slowest().map(Nanos::as_secs_f64),
            Self::First => outcome.jobs[0].took().map(Nanos::as_secs_f64),
            Self::Time => times().and_then(|times| stats::mean(&times)),
            Self::Ipc => {
                let each: Vec<f64> = outcome.tasks.iter().filter_map(TaskOutcome::ipc).collect();
                stats::mean(&each)
            }
            Self::HarmonicIpc => {
                // Time that it ran over that alone for the same instructions: IPC alone over IPC among others.
                let slower = |task: &TaskOutcome| task.ran.as_secs_f64() / task.alone.as_secs_f64();
                metrics::harmonic_speed(&outcome.tasks.iter().map(slower).collect::<Vec<_>>())
            }
            Self::Stp => slowdowns().map(|each| metrics::stp(&each)),
            Self::Antt => slowdowns().and_then(|each| metrics::antt(&each)),
            Self::Unfairness => slowdowns().and_then(|each| metrics::unfairness(&each)),
            Self::Moves => Some(a_second(Moves::total)),
            Self::Crossings => Some(a_second(|moves| moves.same_node + moves.other_node)),
            Self::Busy => {
                let ran: f64 = outcome.tasks.iter().map(|task| task.ran.as_secs_f64()).sum();
                Some(ran / seconds)
            }
            Self::Uneven => times().map(|times| {
                let (least, most) = stats::ends(times.iter().copied());
                most / least
            }),
        };
        value.filter(|_| outcome.complete)
    }
}
