//! The boots that show that `colocate doctor` tells the truth.

use super::{Boot, Size};
use crate::guest::Guest;

const MACHINE: &str = "synthetic:numa:2 core:2 pu:2";
/// What gives and takes privileges, and what the commands that doctor prints are made of.
const PROGRAMS: &[&str] = &["setpriv", "setcap", "prlimit", "sysctl", "mount"];
const TELLS: &[&str] = &[
    "doctor-tells-the-tier",
    "doctor-tells-the-paranoid-level",
    "doctor-tells-the-filter",
    "doctor-tells-what-tiers-add",
];
const LIFTS: &[&str] = &["doctor-lifts-what-it-finds"];

const fn boot(
    name: &'static str,
    guest: Guest,
    size: Size,
    cases: &'static [&'static str],
) -> Boot {
    let (machine, programs, limit) = (MACHINE, PROGRAMS, super::LIMIT);
    Boot { name, machine, guest, icount: false, size, programs, cases, limit }
}

/// On two kernels.
pub(super) const BOOTS: &[Boot] = &[
    boot("doctor", Guest::X86Linux6_12, Size::Quick, TELLS),
    boot("doctor-lifts", Guest::X86Linux6_12, Size::Full, LIFTS),
    boot("doctor-6.1", Guest::X86Linux6_1, Size::Full, TELLS),
    boot("doctor-lifts-6.1", Guest::X86Linux6_1, Size::Full, LIFTS),
];
