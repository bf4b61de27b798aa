//! The boots that show that `colocate topo` is right, and that the guests are what they should be.

use super::{Boot, Size};
use crate::guest::Guest;

/// What holds on every machine.
const EVERYWHERE: &[&str] = &["topo-is-described", "topo-is-the-kernels", "topo-is-hwlocs"];
/// What is tried on the smaller ones too: on 64 PUs, taking half of them offline takes a minute.
const SMALL: &[&str] = &[
    "topo-is-described",
    "topo-is-the-kernels",
    "topo-is-hwlocs",
    "topo-has-holes",
    "kernel-freezes-groups",
    "kernel-confines-groups",
    "kernel-limits-groups",
];
const ASYMMETRIC: &[&str] = &[
    "topo-is-described",
    "topo-is-the-kernels",
    "topo-is-hwlocs",
    "topo-capacities-are-described",
    "topo-has-holes",
    "kernel-freezes-groups",
    "kernel-confines-groups",
    "kernel-limits-groups",
    "asymmetric-kinds-are-the-device-trees",
    "asymmetric-phases-are-found",
];
const NEWEST: &[&str] = &[
    "topo-is-described",
    "topo-is-the-kernels",
    "topo-is-hwlocs",
    "topo-has-holes",
    "kernel-has-sched-ext",
    "kernel-freezes-groups",
    "kernel-confines-groups",
    "kernel-limits-groups",
];

/// A node without memory and one without PUs, beside one that has both.
const ODD_NODES: &str = "crates/machine/tests/corpus/cpuless-node.xml";
/// Two nodes far from each other, the second without memory.
const FAR_NODES: &str = "crates/machine/tests/corpus/memoryless-node.xml";
/// 2 packages with two nodes each and SMT, for aarch64.
const SMT_NODES: &str = "synthetic:pack:2 numa:2 l2:2 core:1 pu:2";
const EIGHT_NODES: &str = "synthetic:numa:8 core:1 pu:2";

pub const BOOTS: &[Boot] = &[
    boot("topo-6.1", "xeon-e5405", Guest::X86Linux6_1, Size::Quick, SMALL),
    boot("topo-odd", ODD_NODES, Guest::X86Linux6_12, Size::Full, SMALL),
    boot("topo-amp", "amp-4x12", Guest::Arm64, Size::Quick, ASYMMETRIC),
    boot("topo-7", "xeon-x3320", Guest::X86Linux7, Size::Quick, NEWEST),
    boot("topo-far", FAR_NODES, Guest::X86Linux6_12, Size::Full, SMALL),
    boot("topo-far-6.1", FAR_NODES, Guest::X86Linux6_1, Size::Full, SMALL),
    boot("topo-odd-6.1", ODD_NODES, Guest::X86Linux6_1, Size::Full, SMALL),
    boot("topo-odd-7", ODD_NODES, Guest::X86Linux7, Size::Full, NEWEST),
    boot("topo-eight", EIGHT_NODES, Guest::X86Linux6_12, Size::Full, SMALL),
    boot("topo-smt-arm64", SMT_NODES, Guest::Arm64, Size::Full, SMALL),
    boot("topo-odd-arm64", ODD_NODES, Guest::Arm64, Size::Full, SMALL),
    boot("topo-far-arm64", FAR_NODES, Guest::Arm64, Size::Full, SMALL),
    boot("topo-x3320", "xeon-x3320", Guest::X86Linux6_12, Size::Full, SMALL),
    boot("topo-e5405", "xeon-e5405", Guest::X86Linux6_12, Size::Full, SMALL),
    boot("topo-e5645", "xeon-e5645", Guest::X86Linux6_12, Size::Full, SMALL),
    boot("topo-power8", "power8-10c", Guest::X86Linux6_12, Size::Full, EVERYWHERE),
    boot("topo-epyc", "epyc-7301", Guest::X86Linux6_12, Size::Full, EVERYWHERE),
    boot("topo-epyc-6.1", "epyc-7301", Guest::X86Linux6_1, Size::Full, EVERYWHERE),
    boot("topo-opteron", "opteron-6282se", Guest::X86Linux6_12, Size::Full, EVERYWHERE),
];

const fn boot(
    name: &'static str,
    machine: &'static str,
    guest: Guest,
    size: Size,
    cases: &'static [&'static str],
) -> Boot {
    let programs = &["lstopo-no-graphics"];
    // 64 PUs boot in half a minute here, and every machine is sometimes busy.
    let limit = super::LIMIT;
    Boot { name, machine, guest, icount: false, size, programs, cases, limit }
}
