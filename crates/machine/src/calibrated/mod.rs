//! Figures that `colocate calibrate` measured, with intervals, dates and sources, and the speeds
//! derived from them.
//!
//! A calibrated machine is a machine in the exact form ([`crate::exact`]) with a [`Calibration`]
//! beside its speeds, so `--machine FILE` reads it like any other. `docs/reference/calibrate.md` describes
//! the measurements.

mod apply;
mod caches;
mod kinds;
mod reported;
mod sharing;
mod speeds;

pub use apply::{keep_kinds, with_kinds};
pub use caches::{MeasuredLevel, levels};
pub use kinds::{CONFIDENCE, MeasuredKind, NOISE, PuSpeed, Speed, kinds_of};
pub use reported::{Reported, disagreements};
pub use sharing::{CorrectedMachine, Latency, sharing};
pub use speeds::performance;

use crate::ids::{NodeNr, PuNr};
use crate::machine::Machine;
use crate::performance::WorkKind;
use crate::printable::json;
use crate::units::{BytesPerSecond, Cycles, Hertz};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Distance of two PUs in the machine: the nearest part they share.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PuDistance {
    /// Both are the same PU.
    SamePu,
    /// Siblings: both are on one core.
    Siblings,
    /// Both share a last-level cache.
    SameCache,
    /// Both are in one package.
    OtherCache,
    /// Both are in different packages.
    OtherPackage,
}

impl PuDistance {
    /// All distances, nearest first.
    pub const ALL: [Self; 5] =
        [Self::SamePu, Self::Siblings, Self::SameCache, Self::OtherCache, Self::OtherPackage];

    /// Distance of two PUs of `machine`; `None` if one is not online.
    #[must_use]
    pub fn of(machine: &Machine, a: PuNr, b: PuNr) -> Option<Self> {
        let a = machine.pu_by_os(a)?;
        let b = machine.pu_by_os(b)?;
        let [core_a, core_b] = [a, b].map(|pu| &machine.cores[machine.core_of(pu).idx()]);
        let cache = machine.last_level_cache(a);
        Some(if a == b {
            Self::SamePu
        } else if machine.core_of(a) == machine.core_of(b) {
            Self::Siblings
        } else if cache.is_some() && cache == machine.last_level_cache(b) {
            Self::SameCache
        } else if core_a.package == core_b.package {
            Self::OtherCache
        } else {
            Self::OtherPackage
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

/// Measured quantity.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "figure", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Quantity {
    /// Time to pass a modified cache line from one PU to another.
    LinePass {
        /// Distance of the two PUs.
        pair: PuDistance,
    },
    /// Time from before the waker's system call until the woken thread runs.
    WakeUp {
        /// Distance of the PUs of waker and woken thread.
        pair: PuDistance,
        /// True if another thread runs on the woken thread's PU.
        busy: bool,
    },
    /// Duration of the waker's system call.
    WakeCall {
        /// As for a wake-up.
        pair: PuDistance,
        /// As for a wake-up.
        busy: bool,
    },
    /// Time for a thread to wake another, sleep, and be woken by it.
    RoundTrip {
        /// Distance of the two PUs.
        pair: PuDistance,
        /// True if another thread runs on the second PU.
        busy: bool,
    },
    /// Load-to-use latency of a hit in a cache of this level.
    CacheLatency {
        /// Level; 1 is nearest to the core.
        level: u8,
    },
    /// Largest working set that fits in a cache of this level.
    CacheSize {
        /// Level; 1 is nearest to the core.
        level: u8,
    },
    /// Load-to-use latency of a miss in all caches.
    MemoryLatency {
        /// Node of the PU; `None` on a machine without nodes.
        from: Option<NodeNr>,
        /// Node of the memory.
        to: Option<NodeNr>,
    },
    /// Bandwidth between the PUs of a node and its memory, read and written back, in bytes a
    /// second.
    MemoryBandwidth {
        /// The node; `None` on a machine without nodes.
        node: Option<NodeNr>,
        /// Number of PUs that ran.
        pus: u32,
    },
    /// Bandwidth that would saturate the memory of a node, in bytes a second, extrapolated from the
    /// latency of loads beside known traffic.
    MemoryCapacity {
        /// The node; `None` on a machine without nodes.
        node: Option<NodeNr>,
    },
    /// Time to migrate a page of memory to another node.
    PageMove {
        /// Source node.
        from: NodeNr,
        /// Destination node.
        to: NodeNr,
    },
    /// Clock rate while a thread runs.
    Clock {
        /// The PU.
        pu: PuNr,
    },
    /// Work per second of wall time, relative to the fastest PU.
    Speed {
        /// The PU.
        pu: PuNr,
    },
    /// Work per second of CPU time, relative to the fastest PU by this measure: as if nothing else
    /// ran.
    SpeedWhileRunning {
        /// The PU.
        pu: PuNr,
    },
    /// Share of time in which the measuring thread had the PU.
    ShareOfPu {
        /// The PU.
        pu: PuNr,
    },
    /// Time of a loop that saturates an execution unit beside itself on another PU, relative to its
    /// time alone: near 2 if the PUs share the unit.
    SharedUnits {
        /// The PU with the lower number.
        pu: PuNr,
        /// The other PU.
        other: PuNr,
    },
    /// Share of time in which the PU does not run although no other thread is on it, as under a
    /// hypervisor.
    Away {
        /// The PU.
        pu: PuNr,
    },
    /// Length of the gaps of a PU: the median.
    Gap {
        /// The PU.
        pu: PuNr,
    },
    /// Share of time that the kernel counts as stolen by the hypervisor.
    Steal {
        /// The PU.
        pu: PuNr,
    },
    /// Operations that a core can begin per cycle.
    Slots {
        /// The kind of core, by name.
        kind: String,
    },
    /// Cycles lost to a mispredicted branch.
    BranchMiss {
        /// The kind of core, by name.
        kind: String,
    },
    /// Cycles per operation of a kind of work, if nothing else runs on the core.
    Work {
        /// The kind of core, by name.
        kind: String,
        /// Kind of work.
        work: WorkKind,
    },
    /// Time of an SMT-Bench kernel beside another on a sibling PU, relative to its time alone.
    Beside {
        /// The timed kernel.
        kernel: String,
        /// The kernel on the sibling.
        beside: String,
    },
}

/// Unit of a figure.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "FigureUnit"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureUnit {
    /// Nanoseconds.
    Ns,
    /// Cycles of the core.
    Cycles,
    /// Operations per cycle.
    PerCycle,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Cycles per second.
    Hertz,
    /// Dimensionless: a share or a multiple.
    Ratio,
}

impl FigureUnit {
    /// Formats `value` in this unit with three digits.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked: 0 to 1e18
    pub fn text(self, value: f64) -> String {
        match self {
            // From 999.5 on, rounding to three digits gives 1000.
            Self::Ns if value < 999.5 => format!("{} ns", digits(value)),
            Self::Ns if value < 999.5e3 => format!("{} us", digits(value / 1e3)),
            Self::Ns => format!("{} ms", digits(value / 1e6)),
            // Two decimals of a cycle.
            Self::Cycles => Cycles((value * 100.0).round() / 100.0).to_string(),
            Self::PerCycle => format!("{} a cycle", digits(value)),
            Self::Bytes if value < 1_048_576.0 => format!("{} KiB", digits(value / 1024.0)),
            Self::Bytes => format!("{} MiB", digits(value / 1_048_576.0)),
            // Two decimals of a GB/s or GHz.
            Self::BytesPerSecond => BytesPerSecond((value / 1e7).round() * 1e7).to_string(),
            Self::Hertz => Hertz((value / 1e7).round() as u64 * 10_000_000).to_string(),
            Self::Ratio => digits(value),
        }
    }
}

/// Formats with three digits, at most three of them decimals.
fn digits(value: f64) -> String {
    // 99.95 would round to 100.0: four digits.
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.9995 || value <= 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

impl Quantity {
    /// Unit of this quantity.
    #[must_use]
    pub const fn unit(&self) -> FigureUnit {
        match self {
            Self::LinePass { .. }
            | Self::WakeUp { .. }
            | Self::WakeCall { .. }
            | Self::RoundTrip { .. }
            | Self::CacheLatency { .. }
            | Self::MemoryLatency { .. }
            | Self::PageMove { .. }
            | Self::Gap { .. } => FigureUnit::Ns,
            Self::CacheSize { .. } => FigureUnit::Bytes,
            Self::MemoryBandwidth { .. } | Self::MemoryCapacity { .. } => {
                FigureUnit::BytesPerSecond
            }
            Self::Clock { .. } => FigureUnit::Hertz,
            Self::Speed { .. }
            | Self::SpeedWhileRunning { .. }
            | Self::ShareOfPu { .. }
            | Self::SharedUnits { .. }
            | Self::Away { .. }
            | Self::Steal { .. }
            | Self::Beside { .. } => FigureUnit::Ratio,
            Self::Slots { .. } => FigureUnit::PerCycle,
            Self::BranchMiss { .. } | Self::Work { .. } => FigureUnit::Cycles,
        }
    }
}

/// State of the second PU, in words.
const fn load(busy: bool) -> &'static str {
    if busy { "busy" } else { "idle" }
}

/// `node 1`, or `memory` on a machine without nodes.
fn node_name(node: Option<NodeNr>) -> String {
    node.map_or("memory".to_owned(), |node| format!("node {}", node.0))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinePass { pair } => write!(f, "line pass, {}", pair.name()),
            Self::WakeUp { pair, busy } => write!(f, "wake-up, {}, {}", pair.name(), load(*busy)),
            Self::WakeCall { pair, busy } => {
                write!(f, "waker's call, {}, {}", pair.name(), load(*busy))
            }
            Self::RoundTrip { pair, busy } => {
                write!(f, "round trip, {}, {}", pair.name(), load(*busy))
            }
            Self::CacheLatency { level } => write!(f, "L{level} latency"),
            Self::CacheSize { level } => write!(f, "L{level} size"),
            Self::MemoryLatency { from: Some(from), to } if Some(*from) != *to => {
                write!(f, "memory latency, node {} to {}", from.0, node_name(*to))
            }
            Self::MemoryLatency { to, .. } => write!(f, "memory latency, {}", node_name(*to)),
            Self::MemoryBandwidth { node, pus } => {
                let plural = if *pus == 1 { "" } else { "s" };
                write!(f, "memory bandwidth, {}, {pus} PU{plural}", node_name(*node))
            }
            Self::MemoryCapacity { node } => write!(f, "memory capacity, {}", node_name(*node)),
            Self::PageMove { from, to } => write!(f, "page move, node {} to {}", from.0, to.0),
            Self::Clock { pu } => write!(f, "clock, PU {}", pu.0),
            Self::Speed { pu } => write!(f, "speed, PU {}", pu.0),
            Self::SpeedWhileRunning { pu } => write!(f, "speed while running, PU {}", pu.0),
            Self::ShareOfPu { pu } => write!(f, "share of the time, PU {}", pu.0),
            Self::SharedUnits { pu, other } => {
                write!(f, "shared units, PU {} and {}", pu.0, other.0)
            }
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Measured quantity.
    pub what: Quantity,
    /// Unit of `value`, `low` and `high`; the unit of `what`.
    pub unit: FigureUnit,
    /// Geometric mean of all rounds; the arithmetic mean for shares of time.
    pub value: f64,
    /// Lower end of the 95 % interval over rounds: at least 0, at most the value.
    pub low: f64,
    /// Upper end of the interval; at least the value.
    pub high: f64,
    /// Time of the measurement, in seconds since 1970.
    pub unix_s: u64,
    /// Method of the measurement.
    pub source: String,
}

impl Figure {
    /// Ends of the interval relative to the value: at most 1, and at least 1. Both are 1 for a
    /// value of 0.
    #[must_use]
    pub fn reach(&self) -> (f64, f64) {
        if self.value > 0.0 { (self.low / self.value, self.high / self.value) } else { (1.0, 1.0) }
    }

    /// True if the value lies within its interval, up to 1e18, in the unit of its quantity.
    fn is_sane(&self) -> bool {
        // `contains` is false for NaN.
        (0.0..=self.value).contains(&self.low)
            && (self.value..=1e18).contains(&self.high)
            && self.unit == self.what.unit()
    }
}

/// An assumption in place of a measurement.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumed {
    /// Key of the figure in a description (docs/reference/machines.md).
    pub key: String,
    /// The assumption, and whether predictions vary it.
    pub source: String,
}

/// All measurements of a machine.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// [`identity`] of the reported machine.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = "^[0-9a-f]{16}$")))]
    pub identity: String,
    /// Name and release of the kernel, if known.
    pub kernel: Option<String>,
    /// Beginning of the calibration, in seconds since 1970.
    pub started_unix_s: u64,
    /// Duration, in seconds.
    pub seconds: f64,
    /// Measured figures.
    pub figures: Vec<Figure>,
    /// Assumptions for speeds that were not measured.
    pub assumed: Vec<Assumed>,
    /// Figures that cannot be measured here, with the reason, one line each.
    pub absent: Vec<String>,
    /// Differences between report and measurement, one line each.
    pub disagreements: Vec<String>,
}

/// Most figures of a calibration. Five each for 8,192 PUs would be 40,960.
const MOST: usize = 1 << 17;

impl Calibration {
    /// Figure of `what`; `None` if not measured.
    #[must_use]
    pub fn get(&self, what: &Quantity) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.what == *what)
    }

    /// First invalid entry: what was expected, and what was found.
    pub(crate) fn flaw(&self) -> Option<(&'static str, String)> {
        if self.figures.len() > MOST {
            return Some(("at most 131072 figures", self.figures.len().to_string()));
        }
        let figure = self.figures.iter().find(|figure| !figure.is_sane())?;
        let found = format!(
            "{}: {} to {}, {} {:?}",
            figure.what, figure.low, figure.high, figure.value, figure.unit
        );
        Some(("figures within their intervals, in their units", found))
    }
}

/// Fingerprint of a machine: a hash of its processor and topology, 16 hex digits. The hash leaves
/// out the name, the usable PUs, and the memory of nodes, which may change while a virtual machine
/// runs.
#[must_use]
pub fn identity(machine: &Machine) -> String {
    let mut known = machine.clone();
    // The name is a host's or a file's.
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
