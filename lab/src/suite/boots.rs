//! The table of boots with their cases.

use super::build::STUDY;
use super::{Boot, SuiteSize};
use crate::guest::Guest::{self, Arm64, X86Linux6_1, X86Linux6_12, X86Linux7};
use SuiteSize::{Full, Quick, Soak};
use std::time::Duration;

type Cases = &'static [&'static [&'static str]];

/// Time limit of most boots. Chosen: a boot takes up to a minute; with 18 runnable threads on the
/// host's two CPUs a boot took more than 300 s.
const LIMIT: Duration = Duration::from_secs(900);

const fn boot(
    name: &'static str,
    size: SuiteSize,
    machine: &'static str,
    guest: Guest,
    programs: &'static [&'static str],
    cases: Cases,
) -> Boot {
    Boot { name, size, machine, guest, programs, cases, icount: false, limit: LIMIT }
}

const fn hours(hours: u64) -> Duration {
    Duration::from_secs(3600 * hours)
}

/// 2 packages with a node each, 4 cores, 2 PUs.
const TWO_SOCKETS: &str = "synthetic:pack:2 node:1 l3:1 core:4 pu:2";
const TWO_NODES: &str = "synthetic:numa:2 core:2 pu:2";
/// Four nodes with 256 MiB, a core and two PUs each.
const FOUR_NODES: &str = "synthetic:numa:4 core:1 pu:2";
const EIGHT_NODES: &str = "synthetic:numa:8 core:1 pu:2";
/// Three nodes: one without memory, one without PUs, one with both.
const ODD_NODES: &str = "crates/machine/tests/corpus/cpuless-node.xml";
/// Two distant nodes, the second without memory.
const FAR_NODES: &str = "crates/machine/tests/corpus/memoryless-node.xml";
/// Two packages, each with PUs of both nodes. hwloc's tools report all PUs for each node.
const CROSSING_NODES: &str = "crates/machine/tests/corpus/crossing-nodes.json";
/// 2 packages with two nodes each and SMT, for aarch64.
const SMT_NODES: &str = "synthetic:pack:2 numa:2 l2:2 core:1 pu:2";

const TOPO_TOOLS: &[&str] = &["lstopo-no-graphics"];
/// Programs that change privileges, and the programs in the remedies that doctor prints.
const DOCTOR_TOOLS: &[&str] = &["setpriv", "setcap", "prlimit", "sysctl", "mount"];
/// `colocate` with a policy that moves pages.
const PAGES_TOOLS: &[&str] = &["colocate-mover"];
/// Programs compiled by `colocate cc`.
const SPM_TOOLS: &[&str] = &[
    "spm-lu",
    "spm-cholesky",
    "spm-product",
    "spm-add",
    "spm-search",
    "spm-hostile",
    "spm-hostile-library",
    "spm-rate",
    "spm-omp-lu",
    "spm-omp-product",
    "spm-omp-search",
];
/// A program compiled without `colocate cc`.
const NUMA_TOOLS: &[&str] = &["numa-cholesky"];
const RUN_TOOLS: &[&str] = &["setpriv", "taskset", "threads-static"];

/// Cases for every machine.
const TOPO: &[&str] = &["topo-is-described", "topo-is-the-kernels", "topo-is-hwlocs"];
/// Cases of [`TOPO`] without hwloc's tools.
const TOPO_OF_THE_KERNEL: &[&str] = &["topo-is-described", "topo-is-the-kernels"];
/// Cases of wake-up counts by eBPF, for each kernel.
const WAKE_UPS: &[&str] = &["wake-ups-are-counted"];
const COMMUNICATION: Cases = &[&[
    "communication-pairs-share-cores",
    "communication-ring-lies-close",
    "communication-star-lies-close",
    "communication-all-to-all-is-left-alone",
    "communication-memory-pairs-share-cores",
    "communication-memory-ring-lies-close",
]];
const CALIBRATE: Cases = &[&["calibrate-measures-nodes-and-siblings"]];
/// Cases for small machines: to take half of 64 PUs offline takes a minute.
const HOLES_AND_GROUPS: &[&str] =
    &["topo-has-holes", "kernel-freezes-groups", "kernel-confines-groups", "kernel-limits-groups"];
const SMALL: Cases = &[TOPO, HOLES_AND_GROUPS];
const SMALL_WAKE_UPS: Cases = &[TOPO, HOLES_AND_GROUPS, WAKE_UPS];
const NEWEST: Cases = &[TOPO, HOLES_AND_GROUPS, &["kernel-has-sched-ext"]];
const NEWEST_WAKE_UPS: Cases = &[TOPO, HOLES_AND_GROUPS, &["kernel-has-sched-ext"], WAKE_UPS];
const TOPO_BIG_LITTLE: Cases = &[
    TOPO,
    &["topo-capacities-are-described"],
    HOLES_AND_GROUPS,
    &["asymmetric-kinds-are-the-device-trees"],
];

/// Cases for kernels that report core kinds.
const REPORTED_KINDS: &[&str] = &["asymmetric-phases-are-found"];
const ASYMMETRIC: &[&str] = &[
    "asymmetric-kinds-are-measured",
    "asymmetric-undone-after-a-kill",
    "asymmetric-undone-after-all-else",
    "asymmetric-follow-a-fast-core-that-goes",
    "asymmetric-fast-cores-are-shared",
    "asymmetric-all-fast-first-is-undone",
    "asymmetric-efficiency-is-undone",
    "asymmetric-utility-is-undone",
];
/// Cases for kernels that report no core kinds, so that measured kinds are used.
const MEASURED_KINDS: &[&str] = &[
    "asymmetric-kinds-are-not-reported",
    "asymmetric-phases-are-found",
    "asymmetric-crowds-are-excluded",
];

/// Cases for aarch64, whose counters QEMU emulates.
const COUNTERS: &[&str] = &[
    "counters-are-exact",
    "counters-from-exec",
    "counters-serve-schedulers",
    "counters-take-turns",
    "counters-are-all-taken",
    "counters-are-taken-midway",
    "counters-are-forbidden-midway",
    "counters-of-new-threads",
    "counters-cannot-be-unbound",
];

const COUNTED_FOR_STUDY: Cases =
    &[&["counters-make-demand-vectors", "counters-train-no-model-without-stacks"]];

const DOCTOR: &[&str] = &[
    "doctor-reports-the-tier",
    "doctor-reports-the-paranoid-level",
    "doctor-reports-the-filter",
    "doctor-reports-what-tiers-add",
];
const DOCTOR_REMEDIES: Cases = &[&["doctor-remedies-work"]];

const PAGES: &[&str] = &[
    "pages-move-small-ones",
    "pages-keep-huge-ones",
    "pages-move-those-of-hugetlbfs",
    "pages-interleave",
    "pages-leave-shared-ones",
    "pages-obey-their-owner",
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
const PAGES_FULL: Cases = &[&["pages-fill-a-node"]];
const PAGES_ODD: Cases = &[&["pages-refuse-a-node-without-memory"]];

const RUN: &[&str] = &[
    "run-follows-os",
    "run-follows-round-robin",
    "run-follows-scatter",
    "run-follows-compact",
    "run-follows-random",
    "run-follows-instruction",
    "run-follows-mix",
    "run-watches-then-places",
    "run-places-new-threads",
    "run-places-forks-and-execs",
    "run-places-static-programs",
    "run-parts-are-given-and-restored",
    "run-a-shell-keeps-its-part",
    "run-follows-within-a-cpuset",
    "run-follows-a-cpuset-that-changes",
    "run-follows-a-pu-that-goes-and-returns",
    "run-follows-a-pu-that-comes",
    "run-stays-within-a-quota",
    "run-leaves-what-it-may-not-touch",
];
const UNDO: &[&str] =
    &["undo-after-the-end", "undo-after-the-programs-are-killed", "undo-after-sigterm"];
const UNDO_FEW: Cases = &[UNDO, &["undo-after-2-kills", "undo-restored-2-times"]];
const FEW_HISTORIES: &[&str] = &["masks-after-4-histories"];
const HISTORIES: Cases = &[&["masks-after-500-histories"]];
const UNDO_FOLLOWS: &[&str] = &["undo-follows-a-cpuset-that-grows", "undo-follows-a-pu-that-comes"];
const UNDO_OFTEN: Cases =
    &[UNDO, &["undo-after-200-kills", "undo-restored-50-times"], UNDO_FOLLOWS];
const SCHEDULE_FEW: &[&str] = &["schedule-undone-after-2-kills"];
const SCHEDULE_FOLLOWS: &[&str] =
    &["schedule-follows-a-pu-that-goes-and-returns", "schedule-follows-a-cpuset-that-changes"];
const SCHEDULE_OFTEN: Cases = &[SCHEDULE_FOLLOWS, &["schedule-undone-after-100-kills"]];

const PAGE_POLICIES: Cases = &[&["page-policies-bring-pages-near", "page-policies-spread-pages"]];
const SPM: Cases = &[&[
    "spm-places-matrices",
    "spm-leaves-what-is-used-once",
    "spm-places-parts",
    "spm-places-huge-pages",
    "spm-places-teams",
    "spm-binds-no-more-than-pus",
    "spm-changes-no-result",
    "spm-beside-the-kernels-balancing",
    "spm-moves-as-fast",
]];

/// All boots.
#[rustfmt::skip] // a row each
pub const BOOTS: &[Boot] = &[
    Boot { icount: true, ..boot("counters", Quick, "synthetic:pu:1", Arm64, &["perf"], &[COUNTERS]) },
    Boot { icount: true, ..boot("counters-2", Quick, "synthetic:pu:2", Arm64, &[], &[&["counters-outlive-their-pu"]]) },
    Boot { icount: true, ..boot("counters-study", Full, "synthetic:pu:1", Arm64, &[STUDY], COUNTED_FOR_STUDY) },
    boot("doctor", Quick, TWO_NODES, X86Linux6_12, DOCTOR_TOOLS, &[DOCTOR]),
    boot("doctor-remedies", Full, TWO_NODES, X86Linux6_12, DOCTOR_TOOLS, DOCTOR_REMEDIES),
    boot("doctor-6.1", Full, TWO_NODES, X86Linux6_1, DOCTOR_TOOLS, &[DOCTOR]),
    boot("doctor-remedies-6.1", Full, TWO_NODES, X86Linux6_1, DOCTOR_TOOLS, DOCTOR_REMEDIES),
    boot("calibrate", Full, TWO_NODES, X86Linux6_12, &[], CALIBRATE),
    boot("communication", Full, TWO_SOCKETS, X86Linux6_12, RUN_TOOLS, COMMUNICATION),
    boot("communication-eight", Full, EIGHT_NODES, X86Linux6_12, RUN_TOOLS, COMMUNICATION),
    boot("page-policies", Full, FOUR_NODES, X86Linux6_12, NUMA_TOOLS, PAGE_POLICIES),
    boot("pages", Quick, FOUR_NODES, X86Linux6_12, PAGES_TOOLS, &[PAGES]),
    boot("pages-6.1", Full, FOUR_NODES, X86Linux6_1, PAGES_TOOLS, &[PAGES]),
    boot("pages-full", Full, FOUR_NODES, X86Linux6_12, PAGES_TOOLS, PAGES_FULL),
    boot("pages-full-6.1", Full, FOUR_NODES, X86Linux6_1, PAGES_TOOLS, PAGES_FULL),
    boot("pages-odd", Full, ODD_NODES, X86Linux6_12, PAGES_TOOLS, PAGES_ODD),
    boot("run", Quick, TWO_SOCKETS, X86Linux6_12, RUN_TOOLS, &[RUN, WAKE_UPS, SCHEDULE_FEW]),
    boot("run-6.1", Full, TWO_SOCKETS, X86Linux6_1, RUN_TOOLS, &[RUN]),
    boot("run-epyc", Full, "epyc-7301", X86Linux6_12, RUN_TOOLS, &[RUN]),
    boot("schedule-follows", Full, TWO_SOCKETS, X86Linux6_12, RUN_TOOLS, &[SCHEDULE_FOLLOWS]),
    Boot { limit: hours(1), ..boot("schedule-often", Full, TWO_SOCKETS, X86Linux6_1, RUN_TOOLS, SCHEDULE_OFTEN) },
    boot("spm", Full, EIGHT_NODES, X86Linux6_12, SPM_TOOLS, SPM),
    boot("spm-6.1", Full, EIGHT_NODES, X86Linux6_1, SPM_TOOLS, SPM),
    boot("few-histories", Full, TWO_SOCKETS, X86Linux6_12, RUN_TOOLS, &[FEW_HISTORIES]),
    boot("few-histories-6.1", Full, TWO_SOCKETS, X86Linux6_1, RUN_TOOLS, &[FEW_HISTORIES]),
    Boot { limit: hours(10), ..boot("histories", Soak, TWO_SOCKETS, X86Linux6_12, RUN_TOOLS, HISTORIES) },
    Boot { limit: hours(10), ..boot("histories-6.1", Soak, TWO_SOCKETS, X86Linux6_1, RUN_TOOLS, HISTORIES) },
    boot("undo", Quick, TWO_SOCKETS, X86Linux6_1, RUN_TOOLS, UNDO_FEW),
    boot("undo-follows", Full, TWO_SOCKETS, X86Linux6_1, RUN_TOOLS, &[UNDO_FOLLOWS]),
    Boot { limit: hours(1), ..boot("undo-often", Full, TWO_SOCKETS, X86Linux6_12, RUN_TOOLS, UNDO_OFTEN) },
    Boot { limit: hours(10), ..boot("undo-for-hours", Soak, TWO_SOCKETS, X86Linux6_12, RUN_TOOLS, &[&["undo-after-5000-kills"]]) },
    boot("topo-6.1", Quick, "xeon-e5405", X86Linux6_1, TOPO_TOOLS, SMALL_WAKE_UPS),
    boot("topo-crossing", Full, CROSSING_NODES, X86Linux6_12, &[], &[TOPO_OF_THE_KERNEL]),
    boot("topo-odd", Full, ODD_NODES, X86Linux6_12, TOPO_TOOLS, SMALL),
    boot("topo-amp", Quick, "amp-4x12", Arm64, TOPO_TOOLS, TOPO_BIG_LITTLE),
    boot("topo-7", Quick, "xeon-x3320", X86Linux7, TOPO_TOOLS, NEWEST_WAKE_UPS),
    boot("topo-far", Full, FAR_NODES, X86Linux6_12, TOPO_TOOLS, SMALL),
    boot("topo-far-6.1", Full, FAR_NODES, X86Linux6_1, TOPO_TOOLS, SMALL),
    boot("topo-odd-6.1", Full, ODD_NODES, X86Linux6_1, TOPO_TOOLS, SMALL),
    boot("topo-odd-7", Full, ODD_NODES, X86Linux7, TOPO_TOOLS, NEWEST),
    boot("topo-eight", Full, EIGHT_NODES, X86Linux6_12, TOPO_TOOLS, SMALL),
    boot("topo-smt-arm64", Full, SMT_NODES, Arm64, TOPO_TOOLS, SMALL),
    boot("topo-odd-arm64", Full, ODD_NODES, Arm64, TOPO_TOOLS, SMALL),
    boot("topo-far-arm64", Full, FAR_NODES, Arm64, TOPO_TOOLS, SMALL),
    boot("topo-x3320", Full, "xeon-x3320", X86Linux6_12, TOPO_TOOLS, SMALL),
    boot("topo-e5405", Full, "xeon-e5405", X86Linux6_12, TOPO_TOOLS, SMALL),
    boot("topo-e5645", Full, "xeon-e5645", X86Linux6_12, TOPO_TOOLS, SMALL),
    boot("topo-power8", Full, "power8-10c", X86Linux6_12, TOPO_TOOLS, &[TOPO]),
    boot("topo-epyc", Full, "epyc-7301", X86Linux6_12, TOPO_TOOLS, &[TOPO]),
    boot("topo-epyc-6.1", Full, "epyc-7301", X86Linux6_1, TOPO_TOOLS, &[TOPO]),
    boot("topo-opteron", Full, "opteron-6282se", X86Linux6_12, TOPO_TOOLS, &[TOPO]),
    boot("asymmetric", Full, "amp-4x12", Arm64, &[STUDY], &[REPORTED_KINDS, ASYMMETRIC]),
    boot("asymmetric-x86", Full, TWO_SOCKETS, X86Linux6_12, &[STUDY], &[MEASURED_KINDS, ASYMMETRIC]),
];
