//! How fast the parts of a machine are: what a contention model needs beyond the tree.
//!
//! A [`Machine`](crate::Machine) says what shares what; a [`Performance`] says how much there is of it.
//! It comes from the described machines of `machines/*.toml`, where every figure has its source; a live
//! machine has none until it is described or measured.

use crate::units::{Bytes, BytesPerSecond, Cycles, Hertz, Nanos};
use serde::{Deserialize, Serialize};
use std::fmt;

mod check;

pub use check::{Impossible, Part};

/// Speeds and widths of the parts of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Performance {
    /// Kinds of cores, in the order of `Machine::kinds`.
    pub kinds: Vec<CorePerformance>,
    /// Levels of data and unified caches, nearest first, one a level.
    pub caches: Vec<CachePerformance>,
    /// Memory controllers, in the order of `Machine::nodes`; one entry on a machine without nodes.
    pub memory: Vec<MemoryPerformance>,
    /// What an access from a core of one node to memory of another takes longer than a local one:
    /// `hops[from][to]`, by place in `Machine::nodes`; 0 on the diagonal.
    pub hops: Vec<Vec<Nanos>>,
    /// Links between nodes; an access may cross several or none.
    pub links: Vec<LinkPerformance>,
}

/// A kind of core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorePerformance {
    /// Clock rate under load on all cores, which cycles are converted with.
    pub clock: Hertz,
    /// What LLVM calls the processor (`-mcpu`), if it has a table of ports for it.
    pub llvm_cpu: Option<String>,
    /// Front-end slots: micro-operations that can begin in a cycle.
    pub width: f64,
    /// Names of the ports, in the order of the bits of [`PortSet`]. A divider that is not pipelined is a
    /// port of its own.
    pub ports: Vec<String>,
    /// Which ports do which work, for what is known by kind only. A kind with several entries takes a
    /// port of each of them: a store its address and its data.
    pub units: Vec<Unit>,
    /// Cycles lost to a mispredicted branch.
    pub branch_miss: Cycles,
    /// Whether queues and the window are divided among siblings that are active.
    pub divided: bool,
    /// Sets of threads that slots and ports are split among while siblings are active; 1 where any thread reaches all.
    #[serde(default = "one_set", skip_serializing_if = "is_one_set")]
    pub thread_sets: u32,
}

const fn one_set() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
const fn is_one_set(sets: &u32) -> bool {
    *sets == 1
}

/// Ports of a core: bit `i` is port `i` of [`CorePerformance::ports`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PortSet(pub u32);

impl PortSet {
    /// How many ports.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of these ports are in `other`, too.
    #[must_use]
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The ports of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A kind of work, where no more is known of an instruction. Finer than an instruction mix, since
/// multiplication and division have units of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkKind {
    /// Transfers of control.
    Branch,
    /// Integer arithmetic and logic of one cycle.
    Int,
    /// Integer multiplication.
    IntMul,
    /// Integer division.
    IntDiv,
    /// Floating-point addition, comparison, conversion.
    FloatAdd,
    /// Floating-point multiplication, also fused with an addition.
    FloatMul,
    /// Floating-point division and square root.
    FloatDiv,
    /// Reads of memory.
    Load,
    /// Writes of memory.
    Store,
}

/// The ports that do a kind of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// The work.
    pub kind: WorkKind,
    /// One of these ports does it.
    pub ports: PortSet,
    /// Cycles for which that port can begin nothing else: 1 where it is pipelined.
    pub occupancy: Cycles,
}

/// How a cache's content relates to that of the caches between it and the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Inclusion {
    /// It holds all that they hold.
    Inclusive,
    /// It holds nothing that they hold.
    Exclusive,
    /// Neither is kept to.
    Neither,
}

/// Which line a cache gives up for a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replacement {
    /// The one that was used longest ago, or nearly: what is called pseudo-LRU counts as it.
    #[default]
    Lru,
    /// Any.
    Random,
    /// Something else that protects a part of the content while more passes than fits, as last caches of
    /// Intel do since Ivy Bridge.
    Adaptive,
    /// Not known.
    Unknown,
}

/// A level of caches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachePerformance {
    /// 1 is nearest to the core.
    pub level: u8,
    /// Cycles of the core from a load to its use if the data is here.
    pub latency: Cycles,
    /// How its content relates to that of nearer levels.
    pub inclusion: Inclusion,
    /// Which line it gives up; least recently used if it is not said.
    #[serde(default)]
    pub replacement: Replacement,
    /// Bytes that it can deliver in a second to all that share it, or `None` if unknown: then it never
    /// saturates.
    pub bandwidth: Option<BytesPerSecond>,
}

/// A memory controller, or all of a node's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPerformance {
    /// From a load to its use if no cache has the data and there is no other traffic: all of it, as a pointer
    /// chase over much memory measures it.
    pub latency: Nanos,
    /// Bytes a second that can be had, reads and writes together: what a benchmark reaches, not the
    /// product of clock and width.
    pub bandwidth: BytesPerSecond,
    /// Size of what is transferred on a miss.
    pub line: Bytes,
}

/// A link between nodes, in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPerformance {
    /// Its common name.
    pub name: String,
    /// Accesses that cross it: from a core of the first node to memory of the second, by place in
    /// `Machine::nodes`.
    pub crossed_by: Vec<(u32, u32)>,
    /// Bytes a second of payload.
    pub bandwidth: BytesPerSecond,
}

impl WorkKind {
    /// All kinds in the order used everywhere.
    pub const ALL: [Self; 9] = [
        Self::Branch,
        Self::Int,
        Self::IntMul,
        Self::IntDiv,
        Self::FloatAdd,
        Self::FloatMul,
        Self::FloatDiv,
        Self::Load,
        Self::Store,
    ];

    /// The kind's name in files and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Int => "int",
            Self::IntMul => "int-mul",
            Self::IntDiv => "int-div",
            Self::FloatAdd => "float-add",
            Self::FloatMul => "float-mul",
            Self::FloatDiv => "float-div",
            Self::Load => "load",
            Self::Store => "store",
        }
    }
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
