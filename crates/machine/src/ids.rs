//! Identifiers of the parts of a machine: one type for each number space.
//!
//! `…Nr` is the kernel's number; numbers may have gaps. `…Idx` is an index into a vector of
//! [`Machine`](crate::Machine): dense, from 0, in hwloc's logical order, and valid for that machine
//! only.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The ID as an index into a slice.
            #[must_use]
            #[inline]
            pub fn idx(self) -> usize {
                self.0 as usize
            }

            /// The ID of index `index`.
            ///
            /// # Panics
            /// If `index` does not fit in 32 bits; no machine has that many parts.
            #[must_use]
            #[inline]
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
    /// Index into `Machine::pus`.
    PuIdx, "PU L#"
}
id! {
    /// Index into `Machine::cores`.
    CoreIdx, "core L#"
}
id! {
    /// Index into `Machine::packages`.
    PackageIdx, "package L#"
}
id! {
    /// Index into `Machine::nodes`.
    NodeIdx, "node L#"
}
id! {
    /// Index into `Machine::caches`.
    CacheIdx, "cache L#"
}
id! {
    /// Index into `Machine::kinds`.
    KindIdx, "kind "
}
