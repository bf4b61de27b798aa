//! Events of each family of processors: `events.toml`, read once.

use super::cpu::Cpu;
use super::events::{Extra, StackTable};
use colocate_model::Class;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

pub use super::events::EventCode;

/// Meaning of a count of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountUnit {
    /// One instruction.
    #[default]
    Instructions,
    /// One micro-operation; few instructions have more than one.
    MicroOps,
    /// One element's operation: a 256-bit double-precision addition counts as 4.
    Elements,
}

/// Events of a class on a family.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassEvents {
    /// Class.
    pub class: Class,
    /// Events whose sum counts the class.
    pub codes: Vec<EventCode>,
    /// Meaning of a count.
    #[serde(default)]
    pub unit: CountUnit,
    /// Whether the class is a share of the instructions started, mispredicted paths included
    /// ([`INST_SPEC`]), not of those retired.
    #[serde(default)]
    pub begun: bool,
}

/// Family of processors with the same events.
#[derive(Clone, Debug)]
pub struct Family {
    /// Common name.
    pub name: String,
    /// Name in libpfm4; empty if libpfm4 4.13 does not know the family or is not used.
    pub pfm: String,
    /// Source of the codes.
    pub source: String,
    /// Row for each countable class.
    pub rows: Vec<ClassEvents>,
    /// Other countable components of a demand vector.
    pub extras: Vec<(Extra, EventCode)>,
    /// Events of a CPI stack, if known. Arm's table depends on the events that the kernel lists.
    pub stack: Option<&'static StackTable>,
    /// Caveat for readers of the figures, one sentence; empty if none.
    pub caveat: String,
    models: Models,
}

/// Arm's `INST_SPEC`, the whole of classes with [`ClassEvents::begun`].
pub const INST_SPEC: EventCode = EventCode { name: "INST_SPEC", config: 0x1b };

/// Form of `events.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsFile {
    class: BTreeMap<String, ClassEvents>,
    extras: BTreeMap<String, BTreeMap<String, EventCode>>,
    stack: BTreeMap<String, StackTable>,
    caveat: BTreeMap<String, String>,
    family: Vec<FamilyForm>,
}

/// Family in the file; classes, extras, stack and caveat are given by name.
#[derive(Deserialize)]
struct FamilyForm {
    name: String,
    #[serde(default)]
    pfm: String,
    source: String,
    classes: Vec<String>,
    extras: Option<String>,
    stack: Option<String>,
    caveat: Option<String>,
    #[serde(flatten)]
    models: Models,
}

/// Processors of a family.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Models {
    intel: Vec<u32>,
    /// PMU's name, if both kinds of cores share one model number.
    pmu: Option<String>,
    amd: Option<Amd>,
    arm: Vec<u32>,
    power: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
struct Amd {
    family: u32,
    models: Vec<(u32, u32)>,
}

impl Models {
    fn have(&self, cpu: Cpu, pmu: &str) -> bool {
        let is_kind = self.pmu.as_ref().is_none_or(|name| name == pmu);
        is_kind
            && match cpu {
                Cpu::Intel { family: 6, model } => self.intel.contains(&model),
                Cpu::Amd { family, model } => self.amd.as_ref().is_some_and(|amd| {
                    amd.family == family
                        && amd.models.iter().any(|(first, last)| (*first..=*last).contains(&model))
                }),
                Cpu::Arm { implementer: 0x41, part } => self.arm.contains(&part),
                Cpu::Power { generation } => self.power == Some(generation),
                Cpu::Intel { .. } | Cpu::Arm { .. } | Cpu::Other => false,
            }
    }
}

/// Content of the file.
struct Tables {
    stacks: BTreeMap<String, &'static StackTable>,
    families: Vec<Family>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let file: EventsFile = toml::from_str(include_str!("events.toml")).expect("a test reads it");
    let stacks: BTreeMap<String, &'static StackTable> =
        file.stack.into_iter().map(|(name, table)| (name, &*Box::leak(Box::new(table)))).collect();
    let families = file.family.into_iter().map(|form| Family {
        name: form.name,
        pfm: form.pfm,
        source: form.source,
        rows: form.classes.iter().map(|name| file.class[name].clone()).collect(),
        extras: form.extras.map_or(Vec::new(), |name| extra_rows(&file.extras[&name])),
        stack: form.stack.map(|name| stacks[&name]),
        caveat: form.caveat.map_or(String::new(), |name| file.caveat[&name].clone()),
        models: form.models,
    });
    Tables { families: families.collect(), stacks }
});

fn extra_rows(codes: &BTreeMap<String, EventCode>) -> Vec<(Extra, EventCode)> {
    let listed = Extra::ALL.into_iter();
    listed.filter_map(|extra| Some((extra, *codes.get(extra.name())?))).collect()
}

/// All families of the table.
pub fn all() -> &'static [Family] {
    &TABLES.families
}

/// CPI stack table, by its name in the file.
///
/// # Panics
/// If the file has no table of this name.
pub fn stack(name: &str) -> &'static StackTable {
    TABLES.stacks[name]
}

/// Family of `cpu` as counted by the PMU `pmu` of sysfs. `None` for a processor outside the table;
/// then only perf's generic events can be used.
pub fn family(cpu: Cpu, pmu: &str) -> Option<&'static Family> {
    let found = all().iter().filter(|family| family.models.have(cpu, pmu));
    // A family of one kind of cores is more specific than the model.
    found.max_by_key(|family| family.models.pmu.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(cpu: Cpu, pmu: &str) -> Option<&'static str> {
        family(cpu, pmu).map(|family| family.name.as_str())
    }

    #[test]
    fn known_models_find_their_family() {
        let intel = |model| Cpu::Intel { family: 6, model };
        assert_eq!(
            name(intel(85), "cpu"),
            Some("Intel Skylake, Cascade Lake or Cooper Lake server")
        );
        assert_eq!(name(intel(143), "cpu"), Some("Intel Sapphire Rapids or Emerald Rapids"));
        assert_eq!(
            name(intel(151), "cpu_core"),
            Some("Intel Alder Lake or Raptor Lake, performance cores")
        );
        assert_eq!(
            name(intel(151), "cpu_atom"),
            Some("Intel Alder Lake or Raptor Lake, efficient cores")
        );
        // The papers' EPYC 7301 is family 0x17 model 1.
        assert_eq!(name(Cpu::Amd { family: 0x17, model: 1 }, "cpu"), Some("AMD Zen"));
        assert_eq!(name(Cpu::Amd { family: 0x19, model: 0x61 }, "cpu"), Some("AMD Zen 4"));
        let fifth = |model| name(Cpu::Amd { family: 0x1a, model }, "cpu");
        let zen5 = Some("AMD Zen 5");
        assert_eq!([0x02, 0x2f, 0x44, 0x60, 0x7f].map(fifth), [zen5; 5]);
        assert_eq!([0x30, 0x50, 0x5f, 0x80].map(fifth), [None; 4], "Zen 6 is not in the table");
        let arm = |part| Cpu::Arm { implementer: 0x41, part };
        assert_eq!(name(arm(0xd0c), "armv8_pmuv3_0"), Some("Arm Neoverse N1"));
        assert_eq!(name(Cpu::Power { generation: 8 }, "cpu"), Some("POWER8"));
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
        for family in all() {
            for class in Class::ALL {
                let rows = family.rows.iter().filter(|row| row.class == class).count();
                assert!(rows <= 1, "{}: {rows} rows for {}", family.name, class.name());
            }
            assert!(family.rows.iter().all(|row| !row.codes.is_empty()), "{}", family.name);
        }
    }

    #[test]
    fn only_arm_counts_integers() {
        for family in all() {
            let int = family.rows.iter().any(|row| row.class == Class::Int);
            assert_eq!(int, family.name.starts_with("Arm"), "{}", family.name);
        }
    }

    /// One line of docs/reference/pmu-events.md.
    fn line(family: &Family, class: Class) -> String {
        let Some(row) = family.rows.iter().find(|row| row.class == class) else {
            return "unknown".to_owned();
        };
        let codes: Vec<String> = row.codes.iter().map(|c| format!("{:#x}", c.config)).collect();
        let base = if row.begun { " of begun" } else { "" };
        let unit = match row.unit {
            CountUnit::Instructions => "",
            CountUnit::MicroOps => " (micro-ops)",
            CountUnit::Elements => " (elements)",
        };
        format!("{}{unit}{base}", codes.join(" + "))
    }

    #[test]
    fn the_documented_table_is_this_one() {
        let mut text = String::from(HEAD);
        for family in all() {
            let cells: Vec<String> = Class::ALL.iter().map(|c| line(family, *c)).collect();
            let pfm = if family.pfm.is_empty() { "–" } else { &family.pfm };
            let source = &family.source;
            text += &format!("| {} | {pfm} | {} | {source} |\n", family.name, cells.join(" | "));
        }
        text += EXTRAS_HEAD;
        for family in all() {
            let cell = |extra| {
                let row = family.extras.iter().find(|row| row.0 == extra);
                row.map_or("unknown".to_owned(), |row| format!("{:#x}", row.1.config))
            };
            let cells: Vec<String> = Extra::ALL.into_iter().map(cell).collect();
            text += &format!("| {} | {} |\n", family.name, cells.join(" | "));
        }
        text += STACKS_HEAD;
        let stacks = all().iter().filter_map(|family| Some((&family.name[..], family.stack?)));
        let arm = crate::pmu::stack::arm()
            .into_iter()
            .map(|table| ("Arm, where the kernel lists them", table));
        for (family, table) in stacks.chain(arm) {
            let codes: Vec<String> =
                table.events.iter().map(|c| format!("`{}` {:#x}", c.name, c.config)).collect();
            let (name, parts, source) = (&table.name, table.parts.join(", "), &table.source);
            text += &format!("| {family} | {name} | {parts} | {} | {source} |\n", codes.join(", "));
        }
        expect_test::expect_file!["../../../../docs/reference/pmu-events.md"].assert_eq(&text);
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

Counted for schedulers that need CPI stacks, between two readings of a thread; docs/reference/pmu.md says how the parts follow
from the events. Families that are not here have no such events.

| family | what it is | parts | events | source |
|---|---|---|---|---|
";

    const HEAD: &str = "\
# Events of each family of processors

Written by the test `the_documented_table_is_this_one` from `crates/observe/src/pmu/events.toml`
(`UPDATE_EXPECT=1 cargo test -p colocate-observe the_documented_table`). Codes are perf's `config` of a
raw event. *Unknown* classes have no event; they are reported as unknown, never as 0. *Begun*: the
share is of the instructions begun (`INST_SPEC`, 0x1b), not of those retired.

| family | libpfm4 | branch | float | int | load | store | source |
|---|---|---|---|---|---|---|---|
";
}
