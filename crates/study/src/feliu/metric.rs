//! Feliu's figures of merit.

use serde::{Deserialize, Serialize};

/// A figure of merit of Feliu's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// From the start until the last program has reached its target, in seconds.
    Turnaround,
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
}

impl Metric {
    /// How many there are.
    pub const COUNT: usize = 6;
    /// All of them in the order used everywhere.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Turnaround, Self::Ipc, Self::HarmonicIpc, Self::Stp, Self::Antt, Self::Unfairness];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turnaround => "turnaround",
            Self::Ipc => "average IPC",
            Self::HarmonicIpc => "harmonic mean of IPC speedups",
            Self::Stp => "STP",
            Self::Antt => "ANTT",
            Self::Unfairness => "unfairness",
        }
    }

    /// Whether less of it is better.
    #[must_use]
    pub const fn less_is_better(self) -> bool {
        matches!(self, Self::Turnaround | Self::Antt | Self::Unfairness)
    }

    /// Where it is in [`Self::ALL`].
    pub(super) fn place(self) -> usize {
        Self::ALL.iter().position(|each| *each == self).unwrap_or(0)
    }
}
