//! The boots that show that hardware counters are read right.

use super::{Boot, Size};
use crate::guest::Guest;

/// All on aarch64, whose counters QEMU has.
pub(super) const BOOTS: &[Boot] = &[
    Boot {
        name: "counters",
        machine: "synthetic:pu:1",
        guest: Guest::Arm64,
        icount: true,
        size: Size::Quick,
        programs: &["perf"],
        cases: &[
            "counters-are-exact",
            "counters-from-exec",
            "counters-make-demand-vectors",
            "counters-serve-schedulers",
            "counters-take-turns",
            "counters-are-all-taken",
            "counters-are-taken-midway",
            "counters-are-forbidden-midway",
            "counters-of-newborns",
            "counters-cannot-be-unbound",
        ],
        limit: super::LIMIT,
    },
    Boot {
        name: "counters-2",
        machine: "synthetic:pu:2",
        guest: Guest::Arm64,
        icount: true,
        size: Size::Quick,
        programs: &[],
        cases: &["counters-outlive-their-pu"],
        limit: super::LIMIT,
    },
];
