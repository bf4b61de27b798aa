//! The boots that show that serial phases are put on fast cores, where the kernel knows these and where it does not, and
//! that nothing of that remains.

use super::{Boot, Size};
use crate::guest::Guest;

/// 2 packages with a node each, 4 cores, 2 PUs.
const TWO_SOCKETS: &str = "synthetic:pack:2 node:1 l3:1 core:4 pu:2";

const BIG_LITTLE: &[&str] = &[
    "asymmetric-kinds-are-measured",
    "asymmetric-undone-after-a-kill",
    "asymmetric-undone-after-all-else",
    "asymmetric-follow-a-fast-core-that-goes",
    "asymmetric-fast-cores-are-shared",
    "asymmetric-all-fast-first-is-undone",
    "asymmetric-efficiency-is-undone",
    "asymmetric-utility-is-undone",
];
/// Where the kernel tells no kinds, so what was measured does.
const MEASURED: &[&str] = &[
    "asymmetric-kinds-are-told-by-nobody",
    "asymmetric-kinds-are-measured",
    "asymmetric-phases-are-found",
    "asymmetric-undone-after-a-kill",
    "asymmetric-undone-after-all-else",
    "asymmetric-follow-a-fast-core-that-goes",
    "asymmetric-fast-cores-are-shared",
    "asymmetric-crowds-are-kept-off",
    "asymmetric-all-fast-first-is-undone",
    "asymmetric-efficiency-is-undone",
    "asymmetric-utility-is-undone",
];

const fn boot(
    name: &'static str,
    machine: &'static str,
    guest: Guest,
    cases: &'static [&'static str],
) -> Boot {
    let (size, limit) = (Size::Full, super::LIMIT);
    Boot { name, machine, guest, icount: false, size, programs: &[], cases, limit }
}

pub const BOOTS: &[Boot] = &[
    boot("asymmetric", "amp-4x12", Guest::Arm64, BIG_LITTLE),
    boot("asymmetric-x86", TWO_SOCKETS, Guest::X86Linux6_12, MEASURED),
];
