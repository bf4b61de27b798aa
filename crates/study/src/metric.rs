//! Metrics of a simulated run.

use colocate_figures::stats;
use colocate_machine::Nanos;
use colocate_sim::{Outcome, TaskOutcome, metrics};
use serde::{Deserialize, Serialize};

/// A metric of a run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Time from the first launch until the last program has done its work, in seconds.
    Turnaround,
    /// Time of the slowest program, in seconds (the metric of Serpa et al.).
    Slowest,
    /// Time of the first program, in seconds.
    First,
    /// Mean time of the programs, in seconds; compared as a speed-up.
    Time,
    /// Mean over the programs of instructions per cycle, over their time on PUs.
    Ipc,
    /// Harmonic mean over the programs of their IPC relative to alone.
    HarmonicIpc,
    /// Sum of 1 / slowdown, waiting included.
    Stp,
    /// Mean slowdown.
    Antt,
    /// Largest slowdown over the smallest.
    Unfairness,
    /// Moves of threads to another core, a second.
    Moves,
    /// Moves of threads to another last-level cache, a second.
    Crossings,
    /// Mean number of busy cores, spinning included.
    Busy,
    /// Time of the slowest program over that of the fastest.
    Uneven,
}

impl Metric {
    /// Metrics of a scenario, in the order of its tables.
    pub const OF_SCENARIOS: [Self; 5] =
        [Self::Turnaround, Self::Slowest, Self::Stp, Self::Antt, Self::Unfairness];

    /// Name in tables of studies and among published figures.
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

    /// Title in tables of scenarios, with its unit.
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

    /// Whether less is better.
    pub const fn less_is_better(self) -> bool {
        !matches!(self, Self::Ipc | Self::HarmonicIpc | Self::Stp)
    }

    /// Whether its unit is the second.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::Turnaround | Self::Slowest | Self::First | Self::Time)
    }

    /// Whether differences are shown as ratios, not in percent.
    pub const fn is_ratio(self) -> bool {
        matches!(self, Self::Antt | Self::Unfairness)
    }

    /// Whether policies are compared by this metric.
    pub const fn is_compared(self) -> bool {
        !matches!(self, Self::Moves | Self::Crossings | Self::Busy | Self::Uneven)
    }

    /// Value of a run; `None` if the run did not end.
    pub(crate) fn of(self, outcome: &Outcome) -> Option<f64> {
        let seconds = outcome.lasted.as_secs_f64();
        let moves = outcome.tasks.iter().map(|task| task.moves);
        let value = match self {
            Self::Turnaround => outcome.turnaround().map(Nanos::as_secs_f64),
            Self::Slowest => outcome.slowest().map(Nanos::as_secs_f64),
            Self::First => outcome.jobs[0].took().map(Nanos::as_secs_f64),
            Self::Time => times(outcome).and_then(|times| stats::mean(&times)),
            Self::Ipc => {
                let each: Vec<f64> = outcome.tasks.iter().filter_map(TaskOutcome::ipc).collect();
                stats::mean(&each)
            }
            Self::HarmonicIpc => {
                // Run time over the time alone of the same instructions is IPC alone over IPC.
                let tasks = outcome.tasks.iter();
                let slower = tasks.map(|task| task.ran.as_secs_f64() / task.alone.as_secs_f64());
                metrics::harmonic_speed(&slower.collect::<Vec<_>>())
            }
            Self::Stp => outcome.slowdowns().map(|each| metrics::stp(&each)),
            Self::Antt => outcome.slowdowns().and_then(|each| metrics::antt(&each)),
            Self::Unfairness => outcome.slowdowns().and_then(|each| metrics::unfairness(&each)),
            Self::Moves => Some(moves.map(|of| f64::from(of.total())).sum::<f64>() / seconds),
            Self::Crossings => {
                // Another last-level cache may be on the same node or on another.
                let crossings = moves.map(|of| f64::from(of.same_node + of.other_node));
                Some(crossings.sum::<f64>() / seconds)
            }
            Self::Busy => {
                let ran: f64 = outcome.tasks.iter().map(|task| task.ran.as_secs_f64()).sum();
                Some(ran / seconds)
            }
            Self::Uneven => times(outcome).map(|times| {
                let (least, most) = stats::ends(times.iter().copied());
                most / least
            }),
        };
        value.filter(|_| outcome.complete)
    }
}

/// Times of all programs, in seconds; `None` if one did not end.
fn times(outcome: &Outcome) -> Option<Vec<f64>> {
    outcome.jobs.iter().map(|job| job.took().map(Nanos::as_secs_f64)).collect()
}
