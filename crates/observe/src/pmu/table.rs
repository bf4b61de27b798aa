//! Which event counts which class of work, for each family of processors.
//!
//! Data. A class without a row is unknown on that family; nothing is derived from the others,
//! because the classes overlap (an x86 `add [mem], reg` loads, computes and stores) and so do not
//! add up to the whole. Every event code has its name in libpfm4 beside it; a test asks
//! libpfm4 for each name that it knows and compares. Where libpfm4 does not know a processor, or is
//! not installed, the codes of this table are used.
//!
//! Sources, by the mark in `source`:
//! - `SDM`: Intel's event lists of that family, as in the kernel's
//!   `tools/perf/pmu-events/arch/x86/<family>/`.
//! - `PPR`: AMD's Processor Programming References, as in `.../arch/x86/amdzen*/`.
//! - `TRM`: Arm's Technical Reference Manuals, chapter PMU, as in `.../arch/arm64/arm/`; the codes
//!   are the Arm Architecture Reference Manual's, D13 "recommended events".
//! - `PVR`: the kernel's `arch/powerpc/perf/power*-events-list.h` and
//!   `tools/perf/pmu-events/arch/powerpc/`.

use super::cpu::Cpu;
use super::events::{ExtraRow, StackTable};
use super::{extra_rows, stack_rows};

pub use super::events::Code;
use colocate_model::Class;

/// What one count of an event means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// One instruction.
    Instructions,
    /// One operation inside the processor; few instructions are more than one.
    MicroOps,
    /// One element's operation: a 256-bit double-precision addition counts as 4.
    Elements,
}

/// What a class is a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Instructions that retired: perf's generic event `instructions`.
    Retired,
    /// Instructions that were begun, mispredicted paths included: Arm's `INST_SPEC`.
    Begun,
}

/// How one class is counted on one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The class.
    pub class: Class,
    /// The events whose sum counts it.
    pub codes: &'static [Code],
    /// What one count means.
    pub unit: Unit,
    /// What the count is a share of.
    pub base: Base,
    /// Where the codes are from.
    pub source: &'static str,
}

/// A family of processors that count alike.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its common name.
    pub name: &'static str,
    /// Its name in libpfm4, or empty where libpfm4 4.13 does not know it or is not asked.
    pub pfm: &'static str,
    /// One row for each class that can be counted.
    pub rows: &'static [Row],
    /// What else of a demand vector can be counted; sources as of the rows.
    pub extras: &'static [ExtraRow],
    /// What shows where cycles went; `None` where nothing is known to. Arm's goes by what the kernel lists.
    pub stack: Option<&'static StackTable>,
    /// What a reader of the figures should know, one sentence; empty if nothing.
    pub caveat: &'static str,
}

/// Arm's `INST_SPEC`, the whole that [`Base::Begun`] means.
pub const INST_SPEC: Code = Code { name: "INST_SPEC", config: 0x1b };

const fn code(name: &'static str, config: u64) -> Code {
    Code { name, config }
}

const fn row(class: Class, codes: &'static [Code], source: &'static str) -> Row {
    Row { class, codes, unit: Unit::Instructions, base: Base::Retired, source }
}

const fn in_unit(unit: Unit, row: Row) -> Row {
    Row { unit, ..row }
}

const fn begun(row: Row) -> Row {
    Row { base: Base::Begun, ..row }
}

const INTEL_BRANCH: Row = row(Class::Branch, &[code("BR_INST_RETIRED:ALL_BRANCHES", 0xc4)], "SDM");
const INTEL_LOAD: Row = row(Class::Load, &[code("MEM_INST_RETIRED:ALL_LOADS", 0x81d0)], "SDM");
const INTEL_STORE: Row = row(Class::Store, &[code("MEM_INST_RETIRED:ALL_STORES", 0x82d0)], "SDM");
const OLD_LOAD: Row =
    in_unit(Unit::MicroOps, row(Class::Load, &[code("MEM_UOPS_RETIRED:ALL_LOADS", 0x81d0)], "SDM"));
const OLD_STORE: Row = in_unit(
    Unit::MicroOps,
    row(Class::Store, &[code("MEM_UOPS_RETIRED:ALL_STORES", 0x82d0)], "SDM"),
);
const FP_256: Row = row(
    Class::Float,
    &[code(
        "FP_ARITH_INST_RETIRED:SCALAR_DOUBLE:SCALAR_SINGLE:128B_PACKED_DOUBLE:\
         128B_PACKED_SINGLE:256B_PACKED_DOUBLE:256B_PACKED_SINGLE",
        0x3fc7,
    )],
    "SDM",
);
const FP_512: Row = row(
    Class::Float,
    &[code(
        "FP_ARITH_INST_RETIRED:SCALAR_DOUBLE:SCALAR_SINGLE:128B_PACKED_DOUBLE:\
         128B_PACKED_SINGLE:256B_PACKED_DOUBLE:256B_PACKED_SINGLE:512B_PACKED_DOUBLE:\
         512B_PACKED_SINGLE",
        0xffc7,
    )],
    "SDM",
);

// libpfm4 refuses to join the masks of the newer ones.
const FP_JOINED: Row = row(
    Class::Float,
    &[code("FP_ARITH_INST_RETIRED:SCALAR FP_ARITH_INST_RETIRED:VECTOR", 0xffc7)],
    "SDM",
);

const INTEL_CAVEAT: &str = "float counts SSE and AVX arithmetic, a fused multiply-add as two, and \
                            neither x87 nor conversions nor comparisons";

const AMD_BRANCH: Row = row(Class::Branch, &[code("RETIRED_BRANCH_INSTRUCTIONS", 0xc2)], "PPR");
const AMD_LOAD: Row = in_unit(
    Unit::MicroOps,
    row(Class::Load, &[code("LS_DISPATCH:LD_DISPATCH:LD_ST_DISPATCH", 0x529)], "PPR"),
);
const AMD_STORE: Row = in_unit(
    Unit::MicroOps,
    row(Class::Store, &[code("LS_DISPATCH:STORE_DISPATCH:LD_ST_DISPATCH", 0x629)], "PPR"),
);
const ZEN1_FLOPS: Row = in_unit(
    Unit::Elements,
    row(
        Class::Float,
        &[code(
            "RETIRED_SSE_AVX_OPERATIONS:SP_ADD_SUB_FLOPS:SP_MULT_FLOPS:SP_DIV_FLOPS:\
             SP_MULT_ADD_FLOPS:DP_ADD_SUB_FLOPS:DP_MULT_FLOPS:DP_DIV_FLOPS:DP_MULT_ADD_FLOPS",
            0xff03,
        )],
        "PPR",
    ),
);
const ZEN2_FLOPS: Row =
    in_unit(Unit::Elements, row(Class::Float, &[code("RETIRED_SSE_AVX_FLOPS:ANY", 0xf03)], "PPR"));
const ZEN4_FP_OPS: Row = in_unit(
    Unit::MicroOps,
    row(
        Class::Float,
        &[code("RETIRED_FP_OPS_BY_TYPE:SCALAR_ALL RETIRED_FP_OPS_BY_TYPE:VECTOR_ALL", 0xff0a)],
        "PPR",
    ),
);

const ZEN_CAVEAT: &str = "float counts operations on elements, not instructions: a 256-bit \
                          operation counts as 4 or 8; loads and stores are counted when they are \
                          dispatched";
const ZEN4_CAVEAT: &str = "float counts micro-operations of the floating-point unit; loads and \
                           stores are counted when they are dispatched";

const ARM_SPEC: [Row; 4] = [
    // Advanced SIMD runs on the floating-point pipes whatever it computes, and no event shows its
    // integer part from the rest.
    begun(row(Class::Float, &[code("VFP_SPEC", 0x75), code("ASE_SPEC", 0x74)], "TRM")),
    begun(row(Class::Int, &[code("DP_SPEC", 0x73)], "TRM")),
    begun(row(Class::Load, &[code("LD_SPEC", 0x70)], "TRM")),
    begun(row(Class::Store, &[code("ST_SPEC", 0x71)], "TRM")),
];
const ARM_ROWS: &[Row] = &[
    row(Class::Branch, &[code("BR_RETIRED", 0x21)], "TRM"),
    ARM_SPEC[0],
    ARM_SPEC[1],
    ARM_SPEC[2],
    ARM_SPEC[3],
];
// These two have no BR_RETIRED; a software write of the program counter is a branch.
const A57_ROWS: &[Row] = &[
    begun(row(Class::Branch, &[code("PC_WRITE_SPEC", 0x76)], "TRM")),
    ARM_SPEC[0],
    ARM_SPEC[1],
    ARM_SPEC[2],
    ARM_SPEC[3],
];
const ARM_CAVEAT: &str = "float counts all advanced SIMD, integer included; float, int, load and \
                          store are shares of the instructions begun, not of those retired";

const HASWELL: Family = Family {
    name: "Intel Haswell",
    pfm: "hsw",
    rows: &[INTEL_BRANCH, OLD_LOAD, OLD_STORE],
    extras: extra_rows::INTEL_2013,
    stack: Some(&stack_rows::INTEL_2013),
    caveat: "",
};
const BROADWELL: Family = Family {
    name: "Intel Broadwell",
    pfm: "bdw",
    rows: &[INTEL_BRANCH, FP_256, OLD_LOAD, OLD_STORE],
    extras: extra_rows::INTEL_2013,
    stack: Some(&stack_rows::INTEL_2013),
    caveat: INTEL_CAVEAT,
};
const SKYLAKE: Family = Family {
    name: "Intel Skylake client",
    pfm: "skl",
    rows: &[INTEL_BRANCH, FP_256, INTEL_LOAD, INTEL_STORE],
    extras: extra_rows::INTEL_2015,
    stack: Some(&stack_rows::INTEL_2015),
    caveat: INTEL_CAVEAT,
};
const SKYLAKE_X: Family = Family {
    name: "Intel Skylake, Cascade Lake or Cooper Lake server",
    pfm: "skx",
    rows: &[INTEL_BRANCH, FP_512, INTEL_LOAD, INTEL_STORE],
    extras: extra_rows::INTEL_2015,
    stack: Some(&stack_rows::INTEL_2015),
    caveat: INTEL_CAVEAT,
};
const ICE_LAKE: Family = Family {
    name: "Intel Ice Lake, Tiger Lake or Rocket Lake",
    pfm: "icl",
    rows: &[INTEL_BRANCH, FP_JOINED, INTEL_LOAD, INTEL_STORE],
    extras: extra_rows::INTEL_2019,
    stack: Some(&stack_rows::INTEL_METRICS),
    caveat: INTEL_CAVEAT,
};
const ICE_LAKE_X: Family = Family { name: "Intel Ice Lake server", pfm: "icx", ..ICE_LAKE };
const SAPPHIRE_RAPIDS: Family = Family {
    name: "Intel Sapphire Rapids or Emerald Rapids",
    pfm: "spr",
    extras: extra_rows::INTEL_2021,
    ..ICE_LAKE
};
const GOLDEN_COVE: Family = Family {
    name: "Intel Alder Lake or Raptor Lake, performance cores",
    pfm: "",
    rows: &[INTEL_BRANCH, FP_256, INTEL_LOAD, INTEL_STORE],
    extras: extra_rows::INTEL_2021,
    stack: Some(&stack_rows::INTEL_METRICS),
    caveat: INTEL_CAVEAT,
};
const GRACEMONT: Family = Family {
    name: "Intel Alder Lake or Raptor Lake, efficient cores",
    pfm: "",
    rows: &[INTEL_BRANCH, OLD_LOAD, OLD_STORE],
    extras: extra_rows::INTEL_ATOM,
    stack: Some(&stack_rows::INTEL_ATOM),
    caveat: "",
};
const ZEN1: Family = Family {
    name: "AMD Zen",
    pfm: "amd64_fam17h_zen1",
    rows: &[AMD_BRANCH, ZEN1_FLOPS, AMD_LOAD, AMD_STORE],
    extras: extra_rows::ZEN1,
    stack: None,
    caveat: ZEN_CAVEAT,
};
const ZEN2: Family = Family {
    name: "AMD Zen 2",
    pfm: "amd64_fam17h_zen2",
    rows: &[AMD_BRANCH, ZEN2_FLOPS, AMD_LOAD, AMD_STORE],
    extras: extra_rows::ZEN2,
    stack: None,
    caveat: ZEN_CAVEAT,
};
const ZEN3: Family =
    Family { name: "AMD Zen 3", pfm: "amd64_fam19h_zen3", extras: extra_rows::ZEN3, ..ZEN2 };
const ZEN4: Family = Family {
    name: "AMD Zen 4",
    pfm: "amd64_fam19h_zen4",
    rows: &[AMD_BRANCH, ZEN4_FP_OPS, AMD_LOAD, AMD_STORE],
    extras: extra_rows::ZEN4,
    stack: Some(&stack_rows::ZEN4),
    caveat: ZEN4_CAVEAT,
};
const ZEN5: Family = Family { name: "AMD Zen 5", pfm: "", stack: Some(&stack_rows::ZEN5), ..ZEN4 };
const CORTEX_A57: Family = Family {
    name: "Arm Cortex-A57 or A72",
    pfm: "",
    rows: A57_ROWS,
    extras: extra_rows::ARM,
    stack: None,
    caveat: ARM_CAVEAT,
};
const NEOVERSE_N1: Family = Family {
    name: "Arm Neoverse N1",
    pfm: "arm_n1",
    rows: ARM_ROWS,
    extras: extra_rows::ARM,
    stack: None,
    caveat: ARM_CAVEAT,
};
const ARM_RECENT: Family = Family {
    name: "Arm Cortex-A76 to A710, X1, X2, Neoverse V1, N2 or V2",
    pfm: "",
    rows: ARM_ROWS,
    extras: extra_rows::ARM,
    stack: None,
    caveat: ARM_CAVEAT,
};
const POWER8: Family = Family {
    name: "POWER8",
    pfm: "",
    rows: &[
        row(Class::Branch, &[code("PM_BRU_FIN", 0x1_0068)], "PVR"),
        row(Class::Load, &[code("PM_LD_REF_L1", 0x1_00ee)], "PVR"),
    ],
    extras: &[],
    stack: Some(&stack_rows::POWER8),
    caveat: "branches and loads are counted when they finish, mispredicted paths included",
};
const POWER9: Family = Family {
    name: "POWER9",
    pfm: "",
    rows: &[
        row(Class::Branch, &[code("PM_BR_CMPL", 0x4_d05e)], "PVR"),
        in_unit(Unit::MicroOps, row(Class::Float, &[code("PM_FLOP_CMPL", 0x4_505e)], "PVR")),
        row(Class::Load, &[code("PM_LD_REF_L1", 0x1_00fc)], "PVR"),
    ],
    extras: &[],
    stack: None,
    caveat: "loads are counted when they finish, mispredicted paths included",
};

/// Every family of the table, for the test that compares codes and for the documentation.
pub const ALL: &[&Family] = &[
    &HASWELL,
    &BROADWELL,
    &SKYLAKE,
    &SKYLAKE_X,
    &ICE_LAKE,
    &ICE_LAKE_X,
    &SAPPHIRE_RAPIDS,
    &GOLDEN_COVE,
    &GRACEMONT,
    &ZEN1,
    &ZEN2,
    &ZEN3,
    &ZEN4,
    &ZEN5,
    &CORTEX_A57,
    &NEOVERSE_N1,
    &ARM_RECENT,
    &POWER8,
    &POWER9,
];

/// The family of `cpu` as counted by the PMU named `pmu` in sysfs, or `None` if the table does not
/// have it; then only perf's generic events can be used.
///
/// The PMU's name matters on hybrid x86 alone, where both kinds of cores share one model number.
#[must_use]
pub fn family(cpu: Cpu, pmu: &str) -> Option<&'static Family> {
    match cpu {
        Cpu::Intel { family: 6, model } => intel(model, pmu),
        Cpu::Amd { family, model } => amd(family, model),
        Cpu::Arm { implementer: 0x41, part } => arm(part),
        Cpu::Power { generation: 8 } => Some(&POWER8),
        Cpu::Power { generation: 9 } => Some(&POWER9),
        _ => None,
    }
}

/// Model numbers as in the kernel's `arch/x86/include/asm/intel-family.h`.
fn intel(model: u32, pmu: &str) -> Option<&'static Family> {
    match model {
        60 | 63 | 69 | 70 => Some(&HASWELL),
        61 | 71 | 79 | 86 => Some(&BROADWELL),
        78 | 94 | 142 | 158 | 165 | 166 => Some(&SKYLAKE),
        85 => Some(&SKYLAKE_X),
        125 | 126 | 140 | 141 | 167 => Some(&ICE_LAKE),
        106 | 108 => Some(&ICE_LAKE_X),
        143 | 207 => Some(&SAPPHIRE_RAPIDS),
        151 | 154 | 183 | 186 | 191 if pmu == "cpu_atom" => Some(&GRACEMONT),
        151 | 154 | 183 | 186 | 191 => Some(&GOLDEN_COVE),
        _ => None,
    }
}

/// Model ranges as in the kernel's `arch/x86/kernel/cpu/amd.c`. Those in between are of other generations (Zen 6 has
/// 0x1a with 0x50 to 0x5f) or unassigned.
fn amd(family: u32, model: u32) -> Option<&'static Family> {
    match (family, model) {
        (0x17, 0x00..=0x2f | 0x50..=0x5f) => Some(&ZEN1),
        (0x17, 0x30..=0x4f | 0x60..=0x7f | 0x84..=0x87 | 0x90..=0xaf) => Some(&ZEN2),
        (0x19, 0x00..=0x0f | 0x20..=0x5f) => Some(&ZEN3),
        (0x19, 0x10..=0x1f | 0x60..=0xaf) => Some(&ZEN4),
        (0x1a, 0x00..=0x2f | 0x40..=0x4f | 0x60..=0x7f) => Some(&ZEN5),
        _ => None,
    }
}

/// Part numbers as in the kernel's `arch/arm64/include/asm/cputype.h`.
fn arm(part: u32) -> Option<&'static Family> {
    match part {
        0xd07 | 0xd08 => Some(&CORTEX_A57),
        0xd0c => Some(&NEOVERSE_N1),
        0xd0b | 0xd0d | 0xd40 | 0xd41 | 0xd44 | 0xd47 | 0xd48 | 0xd49 | 0xd4b | 0xd4c | 0xd4f => {
            Some(&ARM_RECENT)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::extras::Extra;

    fn name(cpu: Cpu, pmu: &str) -> Option<&'static str> {
        family(cpu, pmu).map(|family| family.name)
    }

    #[test]
    fn known_models_find_their_family() {
        let intel = |model| Cpu::Intel { family: 6, model };
        assert_eq!(name(intel(85), "cpu"), Some(SKYLAKE_X.name));
        assert_eq!(name(intel(143), "cpu"), Some(SAPPHIRE_RAPIDS.name));
        assert_eq!(name(intel(151), "cpu_core"), Some(GOLDEN_COVE.name));
        assert_eq!(name(intel(151), "cpu_atom"), Some(GRACEMONT.name));
        // The papers' EPYC 7301 is family 0x17 model 1.
        assert_eq!(name(Cpu::Amd { family: 0x17, model: 1 }, "cpu"), Some(ZEN1.name));
        assert_eq!(name(Cpu::Amd { family: 0x19, model: 0x61 }, "cpu"), Some(ZEN4.name));
        let fifth = |model| name(Cpu::Amd { family: 0x1a, model }, "cpu");
        let zen5 = Some(ZEN5.name);
        assert_eq!([0x02, 0x2f, 0x44, 0x60, 0x7f].map(fifth), [zen5; 5]);
        assert_eq!([0x30, 0x50, 0x5f, 0x80].map(fifth), [None; 4], "Zen 6 is not in the table");
        let arm = |part| Cpu::Arm { implementer: 0x41, part };
        assert_eq!(name(arm(0xd0c), "armv8_pmuv3_0"), Some(NEOVERSE_N1.name));
        assert_eq!(name(Cpu::Power { generation: 8 }, "cpu"), Some(POWER8.name));
    }

    #[test]
    fn unknown_models_have_no_family() {
        assert_eq!(name(Cpu::Intel { family: 6, model: 9999 }, "cpu"), None);
        assert_eq!(name(Cpu::Intel { family: 15, model: 85 }, "cpu"), None);
        assert_eq!(name(Cpu::Amd { family: 0x15, model: 1 }, "cpu"), None);
        // Apple's parts are another implementer's numbers.
        assert_eq!(name(Cpu::Arm { implementer: 0x61, part: 0xd0c }, "x"), None);
        assert_eq!(name(Cpu::Power { generation: 42 }, "cpu"), None);
        assert_eq!(name(Cpu::Other, ""), None);
    }

    #[test]
    fn a_family_counts_each_class_at_most_once() {
        for family in ALL {
            for class in Class::ALL {
                let rows = family.rows.iter().filter(|row| row.class == class).count();
                assert!(rows <= 1, "{}: {rows} rows for {}", family.name, class.name());
            }
            assert!(family.rows.iter().all(|row| !row.codes.is_empty()), "{}", family.name);
        }
    }

    #[test]
    fn only_arm_counts_integers() {
        for family in ALL {
            let int = family.rows.iter().any(|row| row.class == Class::Int);
            assert_eq!(int, family.name.starts_with("Arm"), "{}", family.name);
        }
    }

    /// One line of docs/pmu-events.md.
    fn line(family: &Family, class: Class) -> String {
        let Some(row) = family.rows.iter().find(|row| row.class == class) else {
            return "unknown".to_owned();
        };
        let codes: Vec<String> = row.codes.iter().map(|c| format!("{:#x}", c.config)).collect();
        let base = if row.base == Base::Begun { " of begun" } else { "" };
        let unit = match row.unit {
            Unit::Instructions => "",
            Unit::MicroOps => " (micro-ops)",
            Unit::Elements => " (elements)",
        };
        format!("{}{unit}{base}", codes.join(" + "))
    }

    #[test]
    fn the_documented_table_is_this_one() {
        let mut text = String::from(HEAD);
        for family in ALL {
            let cells: Vec<String> = Class::ALL.iter().map(|c| line(family, *c)).collect();
            let pfm = if family.pfm.is_empty() { "–" } else { family.pfm };
            let source = family.rows[0].source;
            text += &format!("| {} | {pfm} | {} | {source} |\n", family.name, cells.join(" | "));
        }
        text += EXTRAS_HEAD;
        for family in ALL {
            let cell = |extra| {
                let row = family.extras.iter().find(|row| row.extra == extra);
                row.map_or("unknown".to_owned(), |row| format!("{:#x}", row.code.config))
            };
            let cells: Vec<String> = Extra::ALL.into_iter().map(cell).collect();
            text += &format!("| {} | {} |\n", family.name, cells.join(" | "));
        }
        text += STACKS_HEAD;
        let stacks = ALL.iter().filter_map(|family| Some((family.name, family.stack?)));
        let arm =
            stack_rows::ARM.into_iter().map(|table| ("Arm, where the kernel lists them", table));
        for (family, table) in stacks.chain(arm) {
            let codes: Vec<String> =
                table.events.iter().map(|c| format!("`{}` {:#x}", c.name, c.config)).collect();
            let (name, parts, source) = (table.name, table.parts.join(", "), table.source);
            text += &format!("| {family} | {name} | {parts} | {} | {source} |\n", codes.join(", "));
        }
        expect_test::expect_file!["../../../../docs/pmu-events.md"].assert_eq(&text);
    }

    const EXTRAS_HEAD: &str = "
## For demand vectors

Counted beside the classes with `--phase`, for each instruction retired. Where the table does not know the
processor, mispredicted branches are perf's generic event.

| family | mispredicted branches | misses of L1 | of L2 | of L3 | slots |
|---|---|---|---|---|---|
";

    const STACKS_HEAD: &str = "
## Where cycles go

Counted for schedulers that ask for CPI stacks, between two readings of a thread; docs/pmu.md says how the parts follow
from the events. Families that are not here have no such events.

| family | what it is | parts | events | source |
|---|---|---|---|---|
";

    const HEAD: &str = "\
# Events of each family of processors

Written by the test `the_documented_table_is_this_one` from `crates/observe/src/pmu/table.rs`
(`UPDATE_EXPECT=1 cargo test -p colocate-observe the_documented_table`). Codes are perf's `config` of a
raw event. *Unknown* classes have no event; they are reported as unknown, never as 0. *Begun*: the
share is of the instructions begun (`INST_SPEC`, 0x1b), not of those retired.

| family | libpfm4 | branch | float | int | load | store | source |
|---|---|---|---|---|---|---|---|
";
}
