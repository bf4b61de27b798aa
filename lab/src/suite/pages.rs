//! The boots that show that pages are moved as `colocate move` says.

use super::{Boot, Size};
use crate::guest::Guest;

/// Four nodes with 256 MiB, a core and two PUs each.
const FOUR_NODES: &str = "synthetic:numa:4 core:1 pu:2";

const QUICK: &[&str] = &[
    "pages-move-small-ones",
    "pages-keep-huge-ones",
    "pages-move-those-of-hugetlbfs",
    "pages-interleave",
    "pages-leave-shared-ones",
    "pages-obey-who-owns-them",
    "pages-refuse-what-cannot-be",
    "pages-leave-policies-alone",
    "pages-are-where-it-says",
    "pages-of-a-job-go-where-a-policy-orders",
    "pages-of-a-job-stay-sound-when-colocate-is-killed",
    "pages-of-a-process-that-ends",
    "pages-of-a-move-that-is-stopped",
    "pages-that-drift-are-noticed",
    "pages-split-where-there-is-no-room",
];

const fn boot(
    name: &'static str,
    machine: &'static str,
    guest: Guest,
    size: Size,
    cases: &'static [&'static str],
) -> Boot {
    let limit = super::LIMIT;
    Boot { name, machine, guest, icount: false, size, programs: &["colocate-mover"], cases, limit }
}

const FULL: &[&str] = &["pages-fill-a-node"];

/// A node without memory and one without PUs, beside one that has both.
const ODD_NODES: &str = "crates/machine/tests/corpus/cpuless-node.xml";
const ODD: &[&str] = &["pages-refuse-a-node-without-memory"];

pub const BOOTS: &[Boot] = &[
    boot("pages", FOUR_NODES, Guest::X86Linux6_12, Size::Quick, QUICK),
    boot("pages-6.1", FOUR_NODES, Guest::X86Linux6_1, Size::Full, QUICK),
    boot("pages-full", FOUR_NODES, Guest::X86Linux6_12, Size::Full, FULL),
    boot("pages-full-6.1", FOUR_NODES, Guest::X86Linux6_1, Size::Full, FULL),
    boot("pages-odd", ODD_NODES, Guest::X86Linux6_12, Size::Full, ODD),
];
