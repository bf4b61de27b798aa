//! Model of a machine: PUs, cores, caches, NUMA nodes and core kinds, as values.
//!
//! All modules are pure except `read` (feature `read`), which reads hwloc and the kernel. The
//! origin of a [`Machine`] makes no difference: the live system, an hwloc XML file, a synthetic
//! string or a description in `machines/*.toml`.
//!
//! ```
//! use colocate_machine::{PuNr, described};
//! let (name, text) = described::MACHINES[0];
//! let machine = described::from_toml(text)?.machine;
//! assert_eq!((name, machine.cores.len(), machine.smt_width()), ("epyc-7301", 32, 2));
//! // Siblings, by the kernel's numbers.
//! let pu = machine.pu_by_os(PuNr(0)).expect("PU 0 is online");
//! assert_eq!(machine.core_sets()[machine.core_of(pu).idx()].to_string(), "0,32");
//! # Ok::<(), colocate_machine::Flaw>(())
//! ```

pub mod calibrated;
pub mod check;
pub mod cpulist;
pub mod described;
pub mod exact;
pub mod ids;
pub mod machine;
pub mod performance;
pub mod picture;
pub mod printable;
#[cfg(feature = "read")]
pub mod read;
pub mod shared;
pub mod speeds;
pub mod units;
pub mod usable;

mod flaw;
mod memory;
mod parts;

pub use cpulist::PuSet;
pub use flaw::Flaw;
pub use ids::{CacheIdx, CoreIdx, KindIdx, NodeIdx, NodeNr, PackageIdx, PuIdx, PuNr};
pub use machine::{Cache, CacheKind, Core, CoreKind, Distances, Machine, Node, Package, Pu};
pub use performance::Performance;
pub use picture::picture;
pub use printable::{printable, printable_lines};
pub use shared::SharedPart;
pub use speeds::speeds;
pub use units::{Bytes, BytesPerSecond, Cycles, Hertz, Nanos};
pub use usable::{CpuQuota, Usable};
