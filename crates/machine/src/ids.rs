//! One type per ID space.
//!
//! `…Nr` is the kernel's number and may have gaps; `…Idx` is a place in one of the vectors of a
//! [`Machine`](crate::Machine), dense, from 0, in hwloc's logical order, and only valid for that
//! machine.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The ID as an index into a slice.
            #[must_use]
            pub fn idx(self) -> usize {
                self.0 as usize
            }

            /// The ID of place `index`.
            ///
            /// # Panics
            /// If `index` does not fit in 32 bits; no machine has that many parts.
            #[must_use]
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("fewer than 2^32 parts"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id! {
    /// The kernel's number of a PU (`cpuN` in sysfs, hwloc's OS index). Numbers can have gaps.
    PuNr, "cpu"
}
id! {
    /// The kernel's number of a NUMA node (`nodeN` in sysfs). Numbers can have gaps.
    NodeNr, "node"
}
id! {
    /// A place in `Machine::pus`.
    PuIdx, "PU L#"
}
id! {
    /// A place in `Machine::cores`.
    CoreIdx, "core L#"
}
id! {
    /// A place in `Machine::packages`.
    PackageIdx, "package L#"
}
id! {
    /// A place in `Machine::nodes`.
    NodeIdx, "node L#"
}
id! {
    /// A place in `Machine::caches`.
    CacheIdx, "cache L#"
}
id! {
    /// A place in `Machine::kinds`.
    KindIdx, "kind "
}
