//! Speeds of the parts of a machine: input of a contention model beyond the topology.
//!
//! A [`Machine`](crate::Machine) lists shared parts; a [`Performance`] has their capacities. Speeds
//! come from the descriptions in `machines/*.toml`, with a source for every figure. A live machine
//! has none until described or measured.

use crate::units::{Bytes, BytesPerSecond, Cycles, Hertz, Nanos};
use serde::{Deserialize, Serialize};
use std::fmt;

mod check;

pub use check::{Impossible, PerformancePart};

/// Speeds and widths of the parts of a machine.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Performance {
    /// Kinds of cores, in the order of `Machine::kinds`.
    pub kinds: Vec<CorePerformance>,
    /// Levels of data and unified caches, nearest first, one entry a level.
    pub caches: Vec<CachePerformance>,
    /// Memory controllers, in the order of `Machine::nodes`; one entry on a machine without nodes.
    pub memory: Vec<MemoryPerformance>,
    /// Extra latency of an access from a core of one node to memory of another: `hops[from][to]`,
    /// by index into `Machine::nodes`; 0 on the diagonal.
    pub hops: Vec<Vec<Nanos>>,
    /// Links between nodes; an access may cross several or none.
    pub links: Vec<LinkPerformance>,
}

/// A kind of core.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorePerformance {
    /// Clock rate under load on all cores; converts cycles to time.
    pub clock: Hertz,
    /// LLVM's name of the processor (`-mcpu`); `None` if LLVM has no table of ports for it.
    pub llvm_cpu: Option<String>,
    /// Front-end slots: micro-operations that can begin per cycle.
    pub width: f64,
    /// Names of the ports, in the order of the bits of [`PortSet`]. A divider that is not pipelined
    /// is a separate port.
    pub ports: Vec<String>,
    /// Ports of each kind of work, for instructions known by kind only. A kind with several entries
    /// occupies a port of each entry: a store one for its address and one for its data.
    pub units: Vec<ExecutionUnit>,
    /// Cycles lost to a mispredicted branch.
    pub branch_miss: Cycles,
    /// True if queues and the window are divided among active siblings.
    pub divided: bool,
    /// Number of thread sets among which slots and ports are split while siblings are active; 1 if
    /// any thread can use all.
    #[serde(default = "one_set", skip_serializing_if = "is_one_set")]
    pub thread_sets: u32,
}

/// Default of [`CorePerformance::thread_sets`].
const fn one_set() -> u32 {
    1
}

const fn is_one_set(sets: &u32) -> bool {
    *sets == 1
}

/// Ports of a core: bit `i` is port `i` of [`CorePerformance::ports`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PortSet(pub u32);

impl PortSet {
    /// Number of ports.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// True if the set has no port.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if `other` has all of these ports.
    #[must_use]
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Ports of either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Kind of work, for instructions of which no more is known. Finer than an instruction mix, since
/// multiplication and division have units of their own.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// Execution ports of a kind of work.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutionUnit {
    /// Kind of work.
    pub kind: WorkKind,
    /// Ports that can execute the work; an operation takes one of them.
    pub ports: PortSet,
    /// Cycles for which the port is occupied; 1 if pipelined.
    pub occupancy: Cycles,
}

/// Inclusion of the content of the caches between a cache and the cores.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Inclusion {
    /// Contains all lines of the nearer caches.
    Inclusive,
    /// Contains no line of the nearer caches.
    Exclusive,
    /// Neither inclusive nor exclusive.
    Neither,
}

/// Replacement policy of a cache.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replacement {
    /// Least recently used, or an approximation such as pseudo-LRU.
    #[default]
    Lru,
    /// Random.
    Random,
    /// A policy that protects a part of the content from a stream larger than the cache, as in the
    /// last-level caches of Intel since Ivy Bridge.
    Adaptive,
    /// Unknown.
    Unknown,
}

/// A level of caches.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachePerformance {
    /// Level; 1 is nearest to the core.
    pub level: u8,
    /// Load-to-use latency of a hit, in cycles of the core.
    pub latency: Cycles,
    /// Inclusion of the content of nearer levels.
    pub inclusion: Inclusion,
    /// Replacement policy; defaults to least recently used.
    #[serde(default)]
    pub replacement: Replacement,
    /// Bytes per second to all sharers together; `None` if unknown, so the cache never saturates.
    pub bandwidth: Option<BytesPerSecond>,
}

/// A memory controller, or all controllers of a node.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPerformance {
    /// Load-to-use latency of a miss in all caches without other traffic, in full, as measured by a
    /// pointer chase over a large working set.
    pub latency: Nanos,
    /// Achievable bytes per second, reads and writes together: the result of a benchmark, not the
    /// product of clock and width.
    pub bandwidth: BytesPerSecond,
    /// Bytes transferred per miss.
    pub line: Bytes,
}

/// A link between nodes, in one direction.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPerformance {
    /// Name of the link.
    pub name: String,
    /// Accesses that cross the link: from a core of the first node to memory of the second, by
    /// index into `Machine::nodes`.
    pub crossed_by: Vec<(u32, u32)>,
    /// Payload in bytes per second.
    pub bandwidth: BytesPerSecond,
}

impl WorkKind {
    /// All kinds, in the order of all tables.
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

    /// Name of the kind in files and tables.
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
