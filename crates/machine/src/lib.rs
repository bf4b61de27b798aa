//! The machine: PUs, cores, caches, NUMA nodes, core kinds, as values.
//!
//! Everything here is pure except the module `read` (feature `read`), which reads hwloc and the
//! kernel. A [`Machine`] is the same value whether it was read from the live system, from an hwloc
//! XML file, from a synthetic string or from a described machine in `machines/*.toml`.

pub mod calibrated;
pub mod check;
pub mod cpulist;
pub mod described;
pub mod exact;
pub mod ids;
pub mod machine;
pub mod measured;
pub mod performance;
pub mod picture;
pub mod printable;
#[cfg(feature = "read")]
pub mod read;
pub mod shared;
pub mod speeds;
pub mod units;
pub mod usable;

mod memory;
mod parts;

pub use check::Flaw;
pub use cpulist::{PuSet, PuSetError};
pub use ids::{CacheIdx, CoreIdx, KindIdx, NodeIdx, NodeNr, PackageIdx, PuIdx, PuNr};
pub use machine::{Cache, CacheKind, Core, CoreKind, Distances, Machine, Node, Package, Pu};
pub use performance::Performance;
pub use picture::picture;
pub use printable::{printable, printable_lines};
pub use shared::Shared;
pub use speeds::speeds;
pub use units::{Bytes, BytesPerSecond, Cycles, Hertz, Nanos};
pub use usable::{CpuQuota, Usable};
