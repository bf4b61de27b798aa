//! Core PMUs, as the kernel lists them in `/sys/bus/event_source`.

use super::cpu::{self, Cpu};
use super::table::{self, EventCode, Family};
use colocate_files::kernel;
use colocate_machine::{PuNr, PuSet};
use std::collections::BTreeSet;
use std::path::Path;

/// PMU of all cores, or of a kind of cores.
#[derive(Clone, Debug, Default)]
pub struct CorePmu {
    /// Name: `cpu`, `cpu_core`, `armv8_cortex_a72`, …
    pub name: String,
    /// perf's type number.
    pub kind: u32,
    /// Cores of the PMU; `None` for all cores.
    pub cpus: Option<PuSet>,
    /// Processor model of the cores.
    pub cpu: Cpu,
    /// Events of the processor family; `None` for a processor outside the table.
    pub family: Option<&'static Family>,
    /// Names of the events in the kernel's list; possibly empty.
    pub listed: BTreeSet<String>,
    /// Issue slots per cycle, as the kernel reports them in Arm's `caps/slots`. Never 0.
    pub slots: Option<u32>,
}

impl CorePmu {
    /// Whether the processor has `code`, by the kernel's list.
    ///
    /// Only Arm's PMUs are listed completely, and only for the architecture's events up to 0x3f.
    /// Other events are taken to exist.
    pub fn has(&self, code: EventCode) -> bool {
        let is_listed_kind = matches!(self.cpu, Cpu::Arm { .. }) && code.config <= 0x3f;
        !is_listed_kind || self.listed.is_empty() || self.listed.contains(&code.name.to_lowercase())
    }
}

/// Core PMUs under `sys` (usually `/sys`), by name, with the processors listed under `proc`
/// (usually `/proc`). Empty on a machine without counters.
///
/// As in the perf tool, a core PMU is called `cpu` or has a file `cpus`; PMUs of caches and memory
/// controllers have `cpumask` instead. An unreadable PMU is left out.
pub fn core_pmus(proc: &Path, sys: &Path) -> Vec<CorePmu> {
    let listed = kernel::read_text(&proc.join("cpuinfo")).unwrap_or_default();
    let processors = cpu::from_cpuinfo(&listed);
    let devices = sys.join("bus/event_source/devices");
    let names = kernel::names(&devices).unwrap_or_default().into_iter();
    let mut pmus: Vec<CorePmu> =
        names.filter_map(|name| core_pmu(&devices.join(name), &processors)).collect();
    pmus.sort_by(|a, b| a.name.cmp(&b.name));
    pmus
}

fn core_pmu(device: &Path, processors: &[(PuNr, Cpu)]) -> Option<CorePmu> {
    let name = device.file_name()?.to_str()?.to_owned();
    let cpus = text(device, "cpus").and_then(|list| PuSet::parse_list(&list).ok());
    let cpus = cpus.filter(|cpus| !cpus.is_empty());
    // PMUs of caches and memory controllers have `cpumask`, not `cpus`.
    if name != "cpu" && cpus.is_none() {
        return None;
    }
    let kind = text(device, "type")?.trim().parse().ok()?;
    // All cores of a PMU are of one model, so the first is enough.
    let mut processors = processors.iter();
    let own = processors.find(|(pu, _)| cpus.as_ref().is_none_or(|cpus| cpus.contains(*pu)));
    let cpu = own.map_or(Cpu::Other, |(_, cpu)| *cpu);
    let family = table::family(cpu, &name);
    let events = kernel::names(&device.join("events")).unwrap_or_default();
    let listed = events.into_iter().filter_map(|event| event.into_string().ok()).collect();
    let slots = text(device, "caps/slots").and_then(|text| cpu::number(text.trim()));
    let slots = slots.filter(|slots| *slots > 0);
    Some(CorePmu { name, kind, cpus, cpu, family, listed, slots })
}

fn text(device: &Path, file: &str) -> Option<String> {
    kernel::read_text(&device.join(file)).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::pmu::plan::{grouping, wanted};
    use std::fs;
    use tempfile::TempDir;

    /// A tree with `files`, each a path and its content.
    pub fn tree(files: &[(&str, &str)]) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }

    /// One line a PMU: name, number, model, family.
    fn read(tree: &TempDir) -> Vec<String> {
        let pmus = core_pmus(&tree.path().join("proc"), &tree.path().join("sys"));
        let line = |pmu: &CorePmu| {
            let family = pmu.family.map_or("unknown", |family| &family.name);
            format!("{} {} {}: {family}", pmu.name, pmu.kind, pmu.cpu)
        };
        pmus.iter().map(line).collect()
    }

    const DEVICES: &str = "sys/bus/event_source/devices";

    #[test]
    fn a_plain_server_with_uncore_pmus() {
        let cpuinfo = "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 85\n\n";
        let tree = tree(&[
            ("proc/cpuinfo", cpuinfo),
            (&format!("{DEVICES}/cpu/type"), "4\n"),
            (&format!("{DEVICES}/uncore_imc_0/type"), "14\n"),
            (&format!("{DEVICES}/uncore_imc_0/cpumask"), "0\n"),
            (&format!("{DEVICES}/software/type"), "1\n"),
        ]);
        assert_eq!(
            read(&tree),
            ["cpu 4 Intel family 6 model 85: Intel Skylake, Cascade Lake or Cooper Lake server"]
        );
    }

    #[test]
    fn hybrid_cores_have_a_pmu_each() {
        let one = |n| {
            format!("processor : {n}\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 151\n\n")
        };
        let tree = tree(&[
            ("proc/cpuinfo", &(one(0) + &one(16))),
            (&format!("{DEVICES}/cpu_core/type"), "4\n"),
            (&format!("{DEVICES}/cpu_core/cpus"), "0-15\n"),
            (&format!("{DEVICES}/cpu_atom/type"), "10\n"),
            (&format!("{DEVICES}/cpu_atom/cpus"), "16-23\n"),
        ]);
        assert_eq!(
            read(&tree),
            [
                "cpu_atom 10 Intel family 6 model 151: Intel Alder Lake or Raptor Lake, \
                 efficient cores",
                "cpu_core 4 Intel family 6 model 151: Intel Alder Lake or Raptor Lake, \
                 performance cores",
            ]
        );
    }

    #[test]
    fn big_and_little_arm_cores() {
        let one =
            |n, part| format!("processor\t: {n}\nCPU implementer\t: 0x41\nCPU part\t: {part}\n\n");
        let tree = tree(&[
            ("proc/cpuinfo", &(one(0, "0xd03") + &one(4, "0xd08"))),
            (&format!("{DEVICES}/armv8_cortex_a53/type"), "8\n"),
            (&format!("{DEVICES}/armv8_cortex_a53/cpus"), "0-3\n"),
            (&format!("{DEVICES}/armv8_cortex_a72/type"), "9\n"),
            (&format!("{DEVICES}/armv8_cortex_a72/cpus"), "4-5\n"),
            (&format!("{DEVICES}/arm_spe_0/type"), "10\n"),
            (&format!("{DEVICES}/arm_spe_0/cpumask"), "4-5\n"),
        ]);
        assert_eq!(
            read(&tree),
            [
                "armv8_cortex_a53 8 Arm implementer 0x41 part 0xd03: unknown",
                "armv8_cortex_a72 9 Arm implementer 0x41 part 0xd08: Arm Cortex-A57 or A72",
            ]
        );
    }

    #[test]
    fn an_emulated_arm_core_counts_only_what_the_kernel_lists() {
        // What a Linux guest of QEMU's `-cpu neoverse-n1` lists.
        let names = ["cpu_cycles", "inst_retired", "sw_incr", "stall_frontend", "stall_backend"];
        let cpuinfo = "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0c\n\n";
        let pmu = format!("{DEVICES}/armv8_pmuv3_0");
        let tree = tree(&[
            ("proc/cpuinfo", cpuinfo),
            (&format!("{pmu}/type"), "8\n"),
            (&format!("{pmu}/cpus"), "0-3\n"),
        ]);
        for name in names {
            let events = tree.path().join(&pmu).join("events");
            fs::create_dir_all(&events).unwrap();
            fs::write(events.join(name), "event=0x00\n").unwrap();
        }
        let pmus = core_pmus(&tree.path().join("proc"), &tree.path().join("sys"));
        let wanted = wanted(pmus[0].family, |code| pmus[0].has(code));
        // The listed events could show where its cycles go; whether they do is for a trial to find out.
        let stack = crate::pmu::stack::plan(&pmus[0]).unwrap();
        assert_eq!(stack.table.name, "Arm cycles without dispatch");
        // Cycles and nothing else beside the instructions.
        assert_eq!(grouping(&wanted, |_| true).groups[0].events.len(), 2);
        assert_eq!(wanted.len(), 1);
    }

    /// A core with slots is read by them, where the kernel says how many a cycle has.
    #[test]
    fn arms_slots_where_the_kernel_says_how_many() {
        let names = ["stall_slot_frontend", "stall_slot_backend", "op_retired", "op_spec"];
        let stalls = ["stall_frontend", "stall_backend"];
        let pmu = format!("{DEVICES}/armv8_pmuv3_0");
        let cpuinfo = "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd40\n\n";
        let name = |names: &[&str], slots: &str| {
            let mut files = vec![
                ("proc/cpuinfo".to_owned(), cpuinfo),
                (format!("{pmu}/type"), "8\n"),
                (format!("{pmu}/cpus"), "0-3\n"),
                (format!("{pmu}/caps/slots"), slots),
            ];
            files.extend(names.iter().map(|name| (format!("{pmu}/events/{name}"), "event=0\n")));
            let files: Vec<(&str, &str)> = files.iter().map(|(a, b)| (a.as_str(), *b)).collect();
            let tree = tree(&files);
            let pmus = core_pmus(&tree.path().join("proc"), &tree.path().join("sys"));
            crate::pmu::stack::plan(&pmus[0]).map(|plan| (plan.table.name.clone(), plan.width))
        };
        let all = [&names[..], &stalls].concat();
        assert_eq!(name(&all, "0x00000008\n"), Ok(("Arm top-down, level 1".to_owned(), 8.0)));
        assert_eq!(name(&all, "0x00000000\n"), Ok(("Arm cycles without dispatch".to_owned(), 0.0)));
        let none = name(&stalls[..1], "0x8\n").unwrap_err();
        assert!(none.starts_with("expected STALL_FRONTEND and STALL_BACKEND"), "{none}");
    }

    #[test]
    fn no_counters_and_no_tree() {
        assert_eq!(read(&tree(&[("sys/bus/event_source/devices/software/type", "1\n")])), [""; 0]);
        assert_eq!(read(&tree(&[])), [""; 0]);
    }

    #[test]
    fn broken_files_are_passed_over() {
        let tree = tree(&[
            (&format!("{DEVICES}/cpu/type"), "four\n"),
            (&format!("{DEVICES}/cpu_x/type"), "5\n"),
            (&format!("{DEVICES}/cpu_x/cpus"), "3-1\n"),
        ]);
        assert_eq!(read(&tree), [""; 0]);
    }
}
