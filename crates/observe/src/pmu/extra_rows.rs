//! Which events count what demand vectors say beside the classes, for each family of processors. Data; sources as in
//! [`super::table`].

use super::events::{Code, Extra, ExtraRow};

const fn row(extra: Extra, name: &'static str, config: u64) -> ExtraRow {
    ExtraRow { extra, code: Code { name, config } }
}

const INTEL_BRANCH: ExtraRow = row(Extra::BranchMisses, "BR_MISP_RETIRED:ALL_BRANCHES", 0xc5);
const INTEL_L1: ExtraRow = row(Extra::Misses(1), "L1D:REPLACEMENT", 0x151);
const INTEL_L3: ExtraRow = row(Extra::Misses(3), "LONGEST_LAT_CACHE:MISS", 0x412e);
const INTEL_OLD_SLOTS: ExtraRow = row(Extra::Slots, "UOPS_RETIRED:RETIRE_SLOTS", 0x2c2);
const INTEL_SLOTS: ExtraRow = row(Extra::Slots, "UOPS_RETIRED:SLOTS", 0x2c2);

/// Haswell and Broadwell.
pub(super) const INTEL_2013: &[ExtraRow] = &[
    INTEL_BRANCH,
    INTEL_L1,
    row(Extra::Misses(2), "L2_LINES_IN:ALL", 0x7f1),
    INTEL_L3,
    INTEL_OLD_SLOTS,
];
/// Skylake and its successors up to Cooper Lake.
pub(super) const INTEL_2015: &[ExtraRow] = &[
    INTEL_BRANCH,
    INTEL_L1,
    row(Extra::Misses(2), "L2_LINES_IN:ALL", 0x1ff1),
    INTEL_L3,
    INTEL_OLD_SLOTS,
];
/// Ice Lake.
pub(super) const INTEL_2019: &[ExtraRow] = &[
    INTEL_BRANCH,
    INTEL_L1,
    row(Extra::Misses(2), "L2_LINES_IN:ALL", 0x1ff1),
    INTEL_L3,
    INTEL_SLOTS,
];
/// Golden Cove, in clients and servers.
pub(super) const INTEL_2021: &[ExtraRow] = &[
    INTEL_BRANCH,
    INTEL_L1,
    row(Extra::Misses(2), "L2_LINES_IN:ALL", 0x1f25),
    INTEL_L3,
    INTEL_SLOTS,
];
/// Gracemont: what is architectural.
pub(super) const INTEL_ATOM: &[ExtraRow] = &[INTEL_BRANCH];

const AMD_BRANCH: ExtraRow =
    row(Extra::BranchMisses, "RETIRED_BRANCH_INSTRUCTIONS_MISPREDICTED", 0xc3);
const AMD_OLD_SLOTS: ExtraRow = row(Extra::Slots, "RETIRED_UOPS", 0xc1);
const AMD_SLOTS: ExtraRow = row(Extra::Slots, "RETIRED_OPS", 0xc1);

/// Zen: where its data comes from, no event shows.
pub(super) const ZEN1: &[ExtraRow] = &[AMD_BRANCH, AMD_OLD_SLOTS];
/// Zen 2. Its own last cache and others of the same node cannot be distinguished.
pub(super) const ZEN2: &[ExtraRow] = &[
    AMD_BRANCH,
    row(
        Extra::Misses(1),
        "DATA_CACHE_REFILLS_FROM_SYSTEM:MABRESP_LCL_L2:LS_MABRESP_LCL_CACHE:LS_MABRESP_LCL_DRAM:\
         LS_MABRESP_RMT_CACHE:LS_MABRESP_RMT_DRAM",
        0x5b43,
    ),
    row(
        Extra::Misses(2),
        "DATA_CACHE_REFILLS_FROM_SYSTEM:LS_MABRESP_LCL_CACHE:LS_MABRESP_LCL_DRAM:\
         LS_MABRESP_RMT_CACHE:LS_MABRESP_RMT_DRAM",
        0x5a43,
    ),
    row(
        Extra::Misses(3),
        "DATA_CACHE_REFILLS_FROM_SYSTEM:LS_MABRESP_LCL_DRAM:LS_MABRESP_RMT_CACHE:LS_MABRESP_RMT_DRAM",
        0x5843,
    ),
    AMD_OLD_SLOTS,
];
/// Zen 3.
pub(super) const ZEN3: &[ExtraRow] = &[
    AMD_BRANCH,
    row(
        Extra::Misses(1),
        "DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM:LCL_L2:INT_CACHE:EXT_CACHE_LCL:MEM_IO_LCL:EXT_CACHE_RMT:\
         MEM_IO_RMT",
        0x5f43,
    ),
    row(
        Extra::Misses(2),
        "DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM:INT_CACHE:EXT_CACHE_LCL:MEM_IO_LCL:EXT_CACHE_RMT:\
         MEM_IO_RMT",
        0x5e43,
    ),
    row(
        Extra::Misses(3),
        "DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM:EXT_CACHE_LCL:MEM_IO_LCL:EXT_CACHE_RMT:MEM_IO_RMT",
        0x5c43,
    ),
    AMD_SLOTS,
];
/// Zen 4 and 5.
pub(super) const ZEN4: &[ExtraRow] = &[
    AMD_BRANCH,
    row(
        Extra::Misses(1),
        "DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM:LCL_L2:LOCAL_CCX:NEAR_CACHE_NEAR_FAR:DRAM_IO_NEAR:\
         FAR_CACHE_NEAR_FAR:DRAM_IO_FAR:ALT_MEM_NEAR_FAR",
        0xdf43,
    ),
    row(
        Extra::Misses(2),
        "DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM:LOCAL_CCX:NEAR_CACHE_NEAR_FAR:DRAM_IO_NEAR:\
         FAR_CACHE_NEAR_FAR:DRAM_IO_FAR:ALT_MEM_NEAR_FAR",
        0xde43,
    ),
    row(
        Extra::Misses(3),
        "DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM:NEAR_CACHE_NEAR_FAR:DRAM_IO_NEAR:FAR_CACHE_NEAR_FAR:\
         DRAM_IO_FAR:ALT_MEM_NEAR_FAR",
        0xdc43,
    ),
    AMD_SLOTS,
];
/// Arm: events of the architecture, where the kernel lists them.
pub(super) const ARM: &[ExtraRow] = &[
    row(Extra::BranchMisses, "BR_MIS_PRED_RETIRED", 0x22),
    row(Extra::Misses(1), "L1D_CACHE_REFILL", 0x03),
    row(Extra::Misses(2), "L2D_CACHE_REFILL", 0x17),
    row(Extra::Misses(3), "LL_CACHE_MISS_RD", 0x37),
    row(Extra::Slots, "OP_RETIRED", 0x3a),
];
