//! The boots that show that `colocate doctor` tells the truth.

use super::{Boot, Size};
use crate::guest::Guest;

const MACHINE: &str = "synthetic:numa:2 core:2 pu:2";
/// What gives and takes privileges, and what the commands that doctor prints are made of.
const PROGRAMS: &[&str] = &["setpriv", "setcap", "prlimit", "sysctl", "mount"];
const CASES: &[&str] = &[
    "doctor-tells-the-tier",
    "doctor-tells-the-paranoid-level",
    "doctor-tells-the-filter",
    "doctor-tells-what-tiers-add",
    "doctor-lifts-what-it-finds",
];

/// On two kernels.
pub(super) const BOOTS: &[Boot] = &[
    Boot {
        name: "doctor",
        machine: MACHINE,
        guest: Guest::X86Linux6_12,
        icount: false,
        size: Size::Quick,
        programs: PROGRAMS,
        cases: CASES,
        limit: super::LIMIT,
    },
    Boot {
        name: "doctor-6.1",
        machine: MACHINE,
        guest: Guest::X86Linux6_1,
        icount: false,
        size: Size::Full,
        programs: PROGRAMS,
        cases: CASES,
        limit: super::LIMIT,
    },
];
