//! Which events show where cycles went, for each family of processors. Data; [`super::stack`] says how they are read.

use super::events::{Code, Formula, StackTable};
use colocate_model::stack::Parts;

const fn code(name: &'static str, config: u64) -> Code {
    Code { name, config }
}

/// The parts of Intel's and Arm's slots.
const TOP_DOWN: Parts = &["retiring", "bad-speculation", "frontend", "backend"];

/// Intel's event that has to lead its group.
pub(super) const SLOTS: Code = code("TOPDOWN:SLOTS", 0x400);

/// Ice Lake and later, performance cores: the register `PERF_METRICS`, in which the processor keeps the parts.
/// The names of the four are the kernel's (`/sys/bus/event_source/devices/cpu/events`), libpfm4 has them too.
pub(super) const INTEL_METRICS: StackTable = StackTable {
    name: "Intel top-down, level 1, counted by the processor",
    parts: TOP_DOWN,
    events: &[
        SLOTS,
        code("topdown-retiring", 0x8000),
        code("topdown-bad-spec", 0x8100),
        code("topdown-fe-bound", 0x8200),
        code("topdown-be-bound", 0x8300),
    ],
    alive: &[&[1], &[2, 3, 4]],
    formula: Formula::Slots,
    source: "SDM",
};

/// Parts of [`Formula::FourIssued`] are those of [`TOP_DOWN`].
const fn four_issued(recovery: u64) -> [Code; 6] {
    [
        code("IDQ_UOPS_NOT_DELIVERED:CORE", 0x19c),
        code("UOPS_ISSUED:ANY", 0x10e),
        code("UOPS_RETIRED:RETIRE_SLOTS", 0x2c2),
        code("INT_MISC:RECOVERY_CYCLES", recovery),
        code("CPU_CLK_UNHALTED:ONE_THREAD_ACTIVE", 0x23c),
        code("CPU_CLK_UNHALTED:REF_XCLK", 0x13c),
    ]
}

/// Haswell and Broadwell.
pub(super) const INTEL_2013: StackTable = StackTable {
    name: "Intel top-down, level 1",
    parts: TOP_DOWN,
    events: &four_issued(0x0100_030d),
    alive: &[&[1], &[2], &[5], &[0, 3]],
    formula: Formula::FourIssued,
    source: "SDM",
};
/// Skylake and its successors up to Cooper Lake.
pub(super) const INTEL_2015: StackTable = StackTable { events: &four_issued(0x10d), ..INTEL_2013 };
/// Gracemont: each part has an event, and a cycle 5 slots.
pub(super) const INTEL_ATOM: StackTable = StackTable {
    name: "Intel top-down, level 1, efficient cores",
    parts: TOP_DOWN,
    events: &[
        code("TOPDOWN_RETIRING:ALL", 0xc2),
        code("TOPDOWN_BAD_SPECULATION:ALL", 0x73),
        code("TOPDOWN_FE_BOUND:ALL", 0x71),
        code("TOPDOWN_BE_BOUND:ALL", 0x74),
    ],
    alive: &[&[0], &[1, 2, 3]],
    formula: Formula::OfWidth(5.0),
    source: "SDM",
};

/// Zen 4 dispatches 6 operations a cycle. What is dispatched and does not retire is the rest.
pub(super) const ZEN4: StackTable = StackTable {
    name: "AMD pipeline utilization, level 1",
    parts: &["retiring", "frontend", "backend", "smt-contention", "bad-speculation"],
    events: &[
        code("RETIRED_OPS", 0xc1),
        code("de_no_dispatch_per_slot.no_ops_from_frontend", 0x1_0000_01a0),
        code("de_no_dispatch_per_slot.backend_stalls", 0x1_0000_1ea0),
        code("de_no_dispatch_per_slot.smt_contention", 0x1_0000_60a0),
    ],
    alive: &[&[0], &[1, 2]],
    formula: Formula::OfWidthAndRest(6.0),
    source: "PPR",
};
/// Zen 5 dispatches 8.
pub(super) const ZEN5: StackTable = StackTable { formula: Formula::OfWidthAndRest(8.0), ..ZEN4 };

/// Arm's cores with slots (PMUv3 for Armv8.4 and later).
pub(super) const ARM_SLOTS: StackTable = StackTable {
    name: "Arm top-down, level 1",
    parts: TOP_DOWN,
    events: &[
        code("STALL_SLOT_FRONTEND", 0x3e),
        code("STALL_SLOT_BACKEND", 0x3d),
        code("OP_RETIRED", 0x3a),
        code("OP_SPEC", 0x3b),
    ],
    alive: &[&[0, 1], &[2], &[3]],
    formula: Formula::Sent,
    source: "TRM",
};
/// Arm's cores without: cycles in which nothing was dispatched, by whose fault.
pub(super) const ARM_CYCLES: StackTable = StackTable {
    name: "Arm cycles without dispatch",
    parts: &["frontend", "backend", "dispatching"],
    events: &[code("STALL_FRONTEND", 0x23), code("STALL_BACKEND", 0x24)],
    alive: &[&[0], &[1]],
    formula: Formula::CyclesAndRest,
    source: "TRM",
};

/// POWER8's top level. Of the two events that can represent completion the one is taken that has a counter of
/// its own: `PM_1PLUS_PPC_CMPL` would need the same one as two others.
pub(super) const POWER8: StackTable = StackTable {
    name: "POWER8 CPI breakdown, top level",
    parts: &["completion", "stall", "waiting-to-complete", "thread-blocked", "gct-empty", "other"],
    events: &[
        code("PM_GRP_CMPL", 0x3_0004),
        code("PM_CMPLU_STALL", 0x4_000a),
        code("PM_NTCG_ALL_FIN", 0x2_001a),
        code("PM_CMPLU_STALL_THRD", 0x1_001c),
        code("PM_GCT_NOSLOT_CYC", 0x1_00f8),
    ],
    alive: &[&[0], &[1]],
    formula: Formula::CyclesAndRest,
    source: "PVR",
};

/// Arm's tables, which go by what the kernel lists and not by the model, best first.
pub const ARM: [&StackTable; 2] = [&ARM_SLOTS, &ARM_CYCLES];
