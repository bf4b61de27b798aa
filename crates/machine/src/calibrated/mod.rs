//! What `colocate calibrate` measured of a machine: figures with intervals, dates and sources, and the speeds that follow.
//!
//! A calibrated machine is a machine in the exact form ([`crate::exact`]) with a [`Calibration`] beside its speeds, so
//! `--machine FILE` takes it as any other. `docs/reference/calibrate.md` says how figures come about.

mod caches;
mod sharing;
mod speeds;

pub use caches::{Level, levels};
pub use sharing::{Latency, Sharing, sharing};
pub use speeds::performance;

use crate::ids::{NodeNr, PuNr};
use crate::machine::Machine;
use crate::performance::WorkKind;
use crate::printable::json;
use crate::units::{BytesPerSecond, Cycles, Hertz};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How two PUs lie to each other: the nearest of what they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pair {
    /// They are one PU.
    SamePu,
    /// They share a core.
    Siblings,
    /// They share a last cache.
    SameCache,
    /// They share a package.
    OtherCache,
    /// They share neither.
    OtherPackage,
}

impl Pair {
    /// All, nearest first.
    pub const ALL: [Self; 5] =
        [Self::SamePu, Self::Siblings, Self::SameCache, Self::OtherCache, Self::OtherPackage];

    /// How two PUs of `machine` lie to each other; `None` if one is not online.
    #[must_use]
    pub fn of(machine: &Machine, a: PuNr, b: PuNr) -> Option<Self> {
        let (a, b) = (machine.pu_by_os(a)?, machine.pu_by_os(b)?);
        let core = |pu| &machine.cores[machine.core_of(pu).idx()];
        let cache = machine.last_level_cache(a);
        Some(match () {
            () if a == b => Self::SamePu,
            () if machine.core_of(a) == machine.core_of(b) => Self::Siblings,
            () if cache.is_some() && cache == machine.last_level_cache(b) => Self::SameCache,
            () if core(a).package == core(b).package => Self::OtherCache,
            () => Self::OtherPackage,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::SamePu => "same PU",
            Self::Siblings => "siblings",
            Self::SameCache => "same cache",
            Self::OtherCache => "other cache",
            Self::OtherPackage => "other package",
        }
    }
}

/// What a figure is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "figure", rename_all = "kebab-case", deny_unknown_fields)]
pub enum What {
    /// A cache line that one PU wrote is read by the other.
    LinePass {
        /// How the two lie.
        pair: Pair,
    },
    /// From before the waker's system call until the woken thread runs.
    WakeUp {
        /// How the PUs of waker and woken thread lie.
        pair: Pair,
        /// Another thread runs on the woken thread's PU.
        busy: bool,
    },
    /// What the waker's system call takes.
    WakeCall {
        /// As for a wake-up.
        pair: Pair,
        /// As for a wake-up.
        busy: bool,
    },
    /// A thread wakes another, sleeps, and is woken by it.
    RoundTrip {
        /// How the two PUs lie.
        pair: Pair,
        /// Another thread runs on the second PU.
        busy: bool,
    },
    /// From a load to its use if the data is in a cache of this level.
    CacheLatency {
        /// 1 is nearest to the core.
        level: u8,
    },
    /// Up to which size a working set is found in a cache of this level.
    CacheSize {
        /// 1 is nearest to the core.
        level: u8,
    },
    /// From a load to its use if no cache has the data.
    MemoryLatency {
        /// Node of the PU; `None` on a machine without nodes.
        from: Option<NodeNr>,
        /// Node of the memory.
        to: Option<NodeNr>,
    },
    /// Bytes a second that PUs of a node read from its memory and write back.
    MemoryBandwidth {
        /// The node; `None` on a machine without nodes.
        node: Option<NodeNr>,
        /// How many PUs did.
        pus: u32,
    },
    /// Bytes a second at which memory of a node would be saturated, by how much longer loads take beside known traffic.
    MemoryCapacity {
        /// The node; `None` on a machine without nodes.
        node: Option<NodeNr>,
    },
    /// Moving a page of memory to another node.
    PageMove {
        /// The node that has it.
        from: NodeNr,
        /// The node that gets it.
        to: NodeNr,
    },
    /// Clock rate while a thread runs.
    Clock {
        /// The PU.
        pu: PuNr,
    },
    /// Work in a second on the wall, relative to the fastest PU.
    Speed {
        /// The PU.
        pu: PuNr,
    },
    /// The share of its time that a PU is away, though no other thread runs there.
    Away {
        /// The PU.
        pu: PuNr,
    },
    /// How long a PU is away at a time: the median of its gaps.
    Gap {
        /// The PU.
        pu: PuNr,
    },
    /// The share of its time that the kernel counts as taken by the hypervisor.
    Steal {
        /// The PU.
        pu: PuNr,
    },
    /// Operations that a core can begin in a cycle.
    Slots {
        /// The kind of core, by name.
        kind: String,
    },
    /// Cycles lost to a mispredicted branch.
    BranchMiss {
        /// The kind of core, by name.
        kind: String,
    },
    /// Cycles from one operation of a kind of work to the next where nothing else runs.
    Work {
        /// The kind of core, by name.
        kind: String,
        /// The work.
        work: WorkKind,
    },
    /// Time of a kernel of SMT-Bench beside another on a sibling, relative to alone.
    Beside {
        /// The kernel that is timed.
        kernel: String,
        /// The kernel on the sibling.
        beside: String,
    },
}

/// What a figure is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Cycles of the core.
    Cycles,
    /// Operations in a cycle.
    PerCycle,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// Cycles in a second.
    Hertz,
    /// A part of a whole, or a multiple of it.
    Ratio,
}

impl Unit {
    /// `value` in this unit, with three digits.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked: 0 to 1e18
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Ns if value < 999.5 => format!("{} ns", digits(value)),
            Self::Ns if value < 999.5e3 => format!("{} us", digits(value / 1e3)),
            Self::Ns => format!("{} ms", digits(value / 1e6)),
            Self::Cycles => Cycles((value * 100.0).round() / 100.0).to_string(),
            Self::PerCycle => format!("{} a cycle", digits(value)),
            Self::Bytes if value < 1_048_576.0 => format!("{} KiB", digits(value / 1024.0)),
            Self::Bytes => format!("{} MiB", digits(value / 1_048_576.0)),
            Self::BytesPerSecond => BytesPerSecond((value / 1e7).round() * 1e7).to_string(),
            Self::Hertz => Hertz((value / 1e7).round() as u64 * 10_000_000).to_string(),
            Self::Ratio => digits(value),
        }
    }
}

/// With three digits, and no more behind the point.
fn digits(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.9995 || value <= 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

impl What {
    /// What it is measured in.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        match self {
            Self::LinePass { .. }
            | Self::WakeUp { .. }
            | Self::WakeCall { .. }
            | Self::RoundTrip { .. }
            | Self::CacheLatency { .. }
            | Self::MemoryLatency { .. }
            | Self::PageMove { .. }
            | Self::Gap { .. } => Unit::Ns,
            Self::CacheSize { .. } => Unit::Bytes,
            Self::MemoryBandwidth { .. } | Self::MemoryCapacity { .. } => Unit::BytesPerSecond,
            Self::Clock { .. } => Unit::Hertz,
            Self::Speed { .. } | Self::Away { .. } | Self::Steal { .. } | Self::Beside { .. } => {
                Unit::Ratio
            }
            Self::Slots { .. } => Unit::PerCycle,
            Self::BranchMiss { .. } | Self::Work { .. } => Unit::Cycles,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = |busy: bool| if busy { "busy" } else { "idle" };
        let node = |node: &Option<NodeNr>| {
            node.map_or("memory".to_owned(), |node| format!("node {}", node.0))
        };
        match self {
            Self::LinePass { pair } => write!(f, "line pass, {}", pair.name()),
            Self::WakeUp { pair, busy } => write!(f, "wake-up, {}, {}", pair.name(), state(*busy)),
            Self::WakeCall { pair, busy } => {
                write!(f, "waker's call, {}, {}", pair.name(), state(*busy))
            }
            Self::RoundTrip { pair, busy } => {
                write!(f, "round trip, {}, {}", pair.name(), state(*busy))
            }
            Self::CacheLatency { level } => write!(f, "L{level} latency"),
            Self::CacheSize { level } => write!(f, "L{level} size"),
            Self::MemoryLatency { from: Some(from), to } if Some(*from) != *to => {
                write!(f, "memory latency, node {} to {}", from.0, node(to))
            }
            Self::MemoryLatency { to, .. } => write!(f, "memory latency, {}", node(to)),
            Self::MemoryBandwidth { node: of, pus } => {
                write!(
                    f,
                    "memory bandwidth, {}, {pus} PU{}",
                    node(of),
                    if *pus == 1 { "" } else { "s" }
                )
            }
            Self::MemoryCapacity { node: of } => write!(f, "memory capacity, {}", node(of)),
            Self::PageMove { from, to } => write!(f, "page move, node {} to {}", from.0, to.0),
            Self::Clock { pu } => write!(f, "clock, PU {}", pu.0),
            Self::Speed { pu } => write!(f, "speed, PU {}", pu.0),
            Self::Away { pu } => write!(f, "share away, PU {}", pu.0),
            Self::Gap { pu } => write!(f, "away at a time, PU {}", pu.0),
            Self::Steal { pu } => write!(f, "steal by the kernel's count, PU {}", pu.0),
            Self::Slots { kind } => write!(f, "slots, {kind}"),
            Self::BranchMiss { kind } => write!(f, "branch miss, {kind}"),
            Self::Work { kind, work } => write!(f, "{work}, {kind}"),
            Self::Beside { kernel, beside } => write!(f, "{kernel} beside {beside} on a sibling"),
        }
    }
}

/// A measured figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What it is of.
    pub what: What,
    /// What it is measured in: that of `what`.
    pub unit: Unit,
    /// The geometric mean of all rounds; the arithmetic one for shares of time.
    pub value: f64,
    /// Lower end of its 95 % interval over rounds. 0 or above, and no more than the value.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// When it was measured, in seconds since 1970.
    pub unix_s: u64,
    /// How it was measured.
    pub source: String,
}

impl Figure {
    /// How far the ends of the interval are from the value, as factors: at most 1, and at least 1.
    #[must_use]
    pub fn reach(&self) -> (f64, f64) {
        if self.value > 0.0 { (self.low / self.value, self.high / self.value) } else { (1.0, 1.0) }
    }
}

/// A figure of the speeds that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumed {
    /// Which one, as in a description (docs/reference/machines.md).
    pub key: String,
    /// What is assumed, and whether predictions vary it.
    pub source: String,
}

/// What was measured of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// [`identity`] of the machine as it is reported.
    pub identity: String,
    /// The kernel's name and release, if known.
    pub kernel: Option<String>,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// Speeds that were not measured.
    pub assumed: Vec<Assumed>,
    /// What cannot be measured here, and why: one line each.
    pub absent: Vec<String>,
    /// Where what is reported differs from what was measured, one line each.
    pub disagreements: Vec<String>,
}

/// Most figures of a calibration: 8,192 PUs have five each.
const MOST: usize = 1 << 17;

impl Calibration {
    /// The figure of `what`, if it was measured.
    #[must_use]
    pub fn get(&self, what: &What) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.what == *what)
    }

    /// What is wrong with it: what was expected and what was found.
    pub(crate) fn flaw(&self) -> Option<(&'static str, String)> {
        if self.figures.len() > MOST {
            return Some(("at most 131072 figures", self.figures.len().to_string()));
        }
        let wrong = |figure: &&Figure| {
            let ordered = (0.0..=figure.value).contains(&figure.low)
                && (figure.value..=1e18).contains(&figure.high);
            !ordered || figure.unit != figure.what.unit()
        };
        let figure = self.figures.iter().find(wrong)?;
        let found = format!(
            "{}: {} to {}, {} {:?}",
            figure.what, figure.low, figure.high, figure.value, figure.unit
        );
        Some(("figures within their intervals, in their units", found))
    }
}

/// How a machine is known again: a hash of its processor and topology, 16 hex digits. Not part of it are the name, how much memory
/// nodes have, which a virtual machine may change while it runs, and what may be used.
#[must_use]
pub fn identity(machine: &Machine) -> String {
    let mut known = machine.clone();
    known.name.clear();
    known.nodes.iter_mut().for_each(|node| node.memory = None);
    // FNV-1a, 64 bits (Fowler, Noll, Vo).
    let hash = json(&known).bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests;
