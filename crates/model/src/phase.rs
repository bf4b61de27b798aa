//! What a task demands while it does one thing: its demand vector, an instruction's worth of it.
//!
//! Every component says where it comes from, and one that nobody knows is unknown, never 0. What a core
//! makes of it is [`Demand`]: [`Phase::on`] puts in figures for one kind of core.

use crate::curve::MissCurve;
use colocate_machine::performance::{PortSet, WorkKind};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A figure with its source, or unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Known<T> {
    /// It is known.
    Known {
        /// The figure.
        value: T,
        /// Where it comes from, in a few words: a manual, a tool with its version, "measured on …".
        source: String,
    },
    /// It is not.
    Unknown(Unknown),
}

/// The word that stands for a figure that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unknown {
    /// Unknown.
    #[default]
    #[serde(rename = "unknown")]
    Unknown,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self::Unknown(Unknown::Unknown)
    }
}

impl<T> Known<T> {
    /// A figure that is known.
    pub fn new(value: T, source: impl Into<String>) -> Self {
        Self::Known { value, source: source.into() }
    }

    /// The figure, if it is known.
    pub const fn get(&self) -> Option<&T> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

/// Work for the ports of a core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// By kind: how many of each an instruction has on average. The core's table says which ports do
    /// them.
    Kinds(Vec<(WorkKind, f64)>),
    /// For one processor: names of ports, of which one is taken for so many cycles an instruction.
    Ports {
        /// What LLVM calls the processor that it was found out for.
        llvm_cpu: String,
        /// Names of alternative ports, and cycles an instruction.
        groups: Vec<(Vec<String>, f64)>,
    },
}

/// A demand vector: what the instructions of a phase ask for, each on average.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Phase {
    /// For people.
    #[serde(default)]
    pub name: String,
    /// Front-end slots: micro-operations.
    #[serde(default)]
    pub slots: Known<f64>,
    /// Work for the ports.
    #[serde(default)]
    pub work: Known<Work>,
    /// Cycles that dependencies between instructions ask for at least, with the whole window.
    #[serde(default)]
    pub dependent_cycles: Known<f64>,
    /// The same with the part of the window that is left when a sibling is active.
    #[serde(default)]
    pub dependent_cycles_divided: Known<f64>,
    /// Cycles of stalls that neither ports nor shared caches explain: address translation, forwarding
    /// of stores, the instruction cache.
    #[serde(default)]
    pub stall_cycles: Known<f64>,
    /// Branches that are mispredicted.
    #[serde(default)]
    pub branch_misses: Known<f64>,
    /// Misses of a cache that it has for itself, by the cache's size.
    #[serde(default)]
    pub misses: Known<MissCurve>,
    /// Misses that are under way at the same time, with the whole window; at least 1.
    #[serde(default)]
    pub parallel_misses: Known<f64>,
    /// Lines written back, for each that is fetched from memory; 0 to 1.
    #[serde(default)]
    pub written_back: Known<f64>,
    /// Lines that another task of the job has changed since: read from its cache, not from memory.
    #[serde(default)]
    pub shared_lines: Known<f64>,
}

/// A phase in figures, for one kind of core; everything for one instruction on average.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Front-end slots.
    pub slots: f64,
    /// Cycles for which one of the ports is taken; sets are all different and none is empty.
    pub ports: Vec<(PortSet, f64)>,
    /// Least cycles by dependencies, whole window.
    pub dependent_cycles: f64,
    /// The same, divided window; not less.
    pub dependent_cycles_divided: f64,
    /// Stalled cycles that no other task has a part in: `stall_cycles` and mispredicted branches.
    pub stall_cycles: f64,
    /// Misses by a cache's size.
    pub misses: MissCurve,
    /// Misses under way at a time; at least 1.
    pub parallel_misses: f64,
    /// Lines written back for each that is fetched; 0 to 1.
    pub written_back: f64,
    /// Lines read from another task's cache.
    pub shared_lines: f64,
}

/// A component of a demand vector, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// `slots`
    Slots,
    /// `work`
    Work,
    /// `dependent-cycles`
    DependentCycles,
    /// `dependent-cycles-divided`
    DependentCyclesDivided,
    /// `stall-cycles`
    StallCycles,
    /// `branch-misses`
    BranchMisses,
    /// `misses`
    Misses,
    /// `parallel-misses`
    ParallelMisses,
    /// `written-back`
    WrittenBack,
    /// `shared-lines`
    SharedLines,
}

impl Component {
    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slots => "slots",
            Self::Work => "work",
            Self::DependentCycles => "dependent-cycles",
            Self::DependentCyclesDivided => "dependent-cycles-divided",
            Self::StallCycles => "stall-cycles",
            Self::BranchMisses => "branch-misses",
            Self::Misses => "misses",
            Self::ParallelMisses => "parallel-misses",
            Self::WrittenBack => "written-back",
            Self::SharedLines => "shared-lines",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
