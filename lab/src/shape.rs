//! QEMU's options for a machine of a given topology.

use crate::guest::Guest;
use anyhow::bail;
use colocate_machine::{CacheKind, Machine, PuIdx};
use std::collections::BTreeSet;

/// Memory of a node that has memory, whatever its described size: enough to boot and move pages.
const NODE_MEMORY_MIB: usize = 256;
/// Least memory of a guest.
const LEAST_MEMORY_MIB: usize = 1024;

/// Members of each level per member of the level above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Levels {
    packages: usize,
    dies: usize,
    modules: usize,
    cores: usize,
    threads: usize,
}

impl Levels {
    /// QEMU's name of the level of members with `cores` cores.
    fn named(self, cores: usize) -> &'static str {
        let module = self.cores;
        let die = module * self.modules;
        match cores {
            1 => "core",
            _ if cores == module && self.modules > 1 => "module",
            _ if cores == die && self.dies > 1 => "die",
            _ => "socket",
        }
    }
}

/// QEMU's options for the processors, caches, nodes, memory and distances of `machine`.
///
/// PU n of the machine's logical order becomes the guest's CPU n. Sizes of caches and speeds of
/// cores are QEMU's own.
///
/// # Errors
/// If QEMU cannot be the machine: packages or cores differ, caches are shared at more levels than
/// QEMU has, or cores of an x86 guest differ in capacity.
pub fn options(machine: &Machine, guest: Guest) -> anyhow::Result<Vec<String>> {
    let capacities: BTreeSet<_> = machine.kinds.iter().filter_map(|kind| kind.capacity).collect();
    if capacities.len() > 1 && !guest.is_arm64() {
        bail!("expected cores of one capacity, found {capacities:?}; --guest arm64 has others");
    }
    let levels = levels(machine)?;
    let Levels { packages, dies, modules, cores, threads } = levels;
    let pus = machine.pus.len();
    // QEMU's `virt` has clusters, but neither dies nor modules.
    let middle = if guest.is_arm64() {
        format!("clusters={}", dies * modules)
    } else {
        format!("dies={dies},modules={modules}")
    };
    let mut options = vec![
        "-smp".into(),
        format!("{pus},sockets={packages},{middle},cores={cores},threads={threads}"),
    ];
    let kind = if guest.is_arm64() { "virt,gic-version=3" } else { "q35" };
    // An aarch64 guest has its caches in the device tree, see `tree`.
    let caches = if guest.is_arm64() { String::new() } else { caches(machine, levels) };
    options.extend(["-M".into(), format!("{kind}{caches}")]);
    options.extend(["-cpu".into(), processor(machine, guest)]);
    options.extend(nodes(machine)?);
    Ok(options)
}

/// A processor model with SMT threads and shared caches that Linux sees; the L3 is optional.
///
/// `level` hides CPUID leaf 0x1f: QEMU 10.0.2 ends with a failed assertion when Linux enumerates
/// the leaf. Leaves 4 and 0xb have smaller numbers and report the same sharing.
fn processor(machine: &Machine, guest: Guest) -> String {
    if guest.is_arm64() {
        return "max".into();
    }
    let third = machine.caches.iter().any(|cache| cache.level == 3);
    format!("Skylake-Server-v4,level=0xd{}", if third { "" } else { ",l3-cache=off" })
}

fn levels(machine: &Machine) -> anyhow::Result<Levels> {
    let threads = same("PUs of a core", machine.cores.iter().map(|core| core.pus.len()))?;
    let package = same("cores of a package", machine.packages.iter().map(|p| p.cores.len()))?;
    let sharing: BTreeSet<_> = machine
        .caches
        .iter()
        .map(|cache| cache.pus.len() / threads)
        // Caches of one core or of a whole package need no level of their own.
        .filter(|&cores| cores > 1 && cores < package)
        .collect();
    let (module, die) = match *sharing.iter().collect::<Vec<_>>() {
        [] => (package, package),
        [&module] => (module, package),
        [&module, &die] => (module, die),
        _ => bail!(
            "expected caches shared by cores at two levels below the package at most, found {sharing:?} cores"
        ),
    };
    if package % die != 0 || die % module != 0 {
        bail!("expected caches that divide a package evenly, found {sharing:?} of {package} cores");
    }
    Ok(Levels {
        packages: machine.packages.len(),
        dies: package / die,
        modules: die / module,
        cores: module,
        threads,
    })
}

/// The common value of all members, named `what` in messages.
///
/// # Errors
/// If the values differ or there are none.
fn same(what: &str, mut values: impl Iterator<Item = usize>) -> anyhow::Result<usize> {
    let Some(first) = values.next() else { bail!("expected {what}, found none") };
    match values.find(|&value| value != first) {
        None => Ok(first),
        Some(other) => bail!("expected as many {what} everywhere, found {first} and {other}"),
    }
}

/// Topology level of each cache, as properties of QEMU's machine.
fn caches(machine: &Machine, levels: Levels) -> String {
    let mut text = String::new();
    // QEMU requires consecutive indexes, so absent caches get none.
    let mut number = 0;
    for (level, kind, name) in [
        (1, CacheKind::Data, "l1d"),
        (1, CacheKind::Instruction, "l1i"),
        (2, CacheKind::Unified, "l2"),
        (3, CacheKind::Unified, "l3"),
    ] {
        let found = machine.caches.iter().find(|cache| cache.level == level && cache.kind == kind);
        let Some(cache) = found else { continue };
        let place = levels.named(cache.pus.len() / levels.threads);
        text.push_str(&format!(
            ",smp-cache.{number}.cache={name},smp-cache.{number}.topology={place}"
        ));
        number += 1;
    }
    text
}

/// Nodes with their memory, PUs and distances.
fn nodes(machine: &Machine) -> anyhow::Result<Vec<String>> {
    if machine.nodes.is_empty() {
        return Ok(vec!["-m".into(), format!("{LEAST_MEMORY_MIB}M")]);
    }
    let with_memory = machine.nodes.iter().filter(|node| has_memory(node)).count();
    if with_memory == 0 {
        bail!("expected a node with memory, found none");
    }
    let each = NODE_MEMORY_MIB.max(LEAST_MEMORY_MIB / with_memory);
    let mut options = vec!["-m".into(), format!("{}M", each * with_memory)];
    for (number, node) in machine.nodes.iter().enumerate() {
        let mut option = format!("node,nodeid={number}");
        if has_memory(node) {
            options.extend([
                "-object".into(),
                format!("memory-backend-ram,id=m{number},size={each}M"),
            ]);
            option.push_str(&format!(",memdev=m{number}"));
        }
        // QEMU allows each CPU in one node only.
        let home: Vec<_> = machine.home_pus(colocate_machine::NodeIdx::new(number)).collect();
        for (first, last) in ranges(&home) {
            option.push_str(&format!(",cpus={first}-{last}"));
        }
        options.extend(["-numa".into(), option]);
    }
    for (from, row) in machine.distances.iter().flat_map(|distances| &distances.rows).enumerate() {
        for (to, distance) in row.iter().enumerate() {
            options.extend(["-numa".into(), format!("dist,src={from},dst={to},val={distance}")]);
        }
    }
    Ok(options)
}

fn has_memory(node: &colocate_machine::Node) -> bool {
    node.memory.is_none_or(|memory| memory.0 > 0)
}

/// Ranges of consecutive PUs, both ends included.
fn ranges(pus: &[PuIdx]) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for pu in pus.iter().map(|pu| pu.idx()) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == pu => *last = pu,
            _ => ranges.push((pu, pu)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(machine: &str, guest: Guest, expected: &Expect) {
        let machine = colocate_machine::read::open(machine).expect("a machine");
        let text = match options(&machine, guest) {
            Ok(options) => short(&options.join(" ").replace(" -", "\n-")),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&text);
    }

    /// One line for each row of the distances.
    fn short(options: &str) -> String {
        let mut text = String::new();
        for line in options.lines() {
            match line.strip_prefix("-numa dist,").and_then(|rest| rest.split_once(",dst=")) {
                Some((from, to)) if to.starts_with("0,") => {
                    text.push_str(&format!("\n{from}: {to}"))
                }
                Some((_, to)) => text.push_str(&format!(" {to}")),
                None => text.push_str(&format!("\n{line}")),
            }
        }
        text.replace("val=", "").trim_start().to_owned()
    }

    #[test]
    fn the_described_machines_with_eight_nodes() {
        let x86 = |name: &str, expected: &Expect| check(name, Guest::X86Linux6_12, expected);
        x86(
            "epyc-7301",
            &expect![[r#"
            -smp 64,sockets=2,dies=1,modules=8,cores=2,threads=2
            -M q35,smp-cache.0.cache=l1d,smp-cache.0.topology=core,smp-cache.1.cache=l1i,smp-cache.1.topology=core,smp-cache.2.cache=l2,smp-cache.2.topology=core,smp-cache.3.cache=l3,smp-cache.3.topology=module
            -cpu Skylake-Server-v4,level=0xd
            -m 2048M
            -object memory-backend-ram,id=m0,size=256M
            -numa node,nodeid=0,memdev=m0,cpus=0-7
            -object memory-backend-ram,id=m1,size=256M
            -numa node,nodeid=1,memdev=m1,cpus=8-15
            -object memory-backend-ram,id=m2,size=256M
            -numa node,nodeid=2,memdev=m2,cpus=16-23
            -object memory-backend-ram,id=m3,size=256M
            -numa node,nodeid=3,memdev=m3,cpus=24-31
            -object memory-backend-ram,id=m4,size=256M
            -numa node,nodeid=4,memdev=m4,cpus=32-39
            -object memory-backend-ram,id=m5,size=256M
            -numa node,nodeid=5,memdev=m5,cpus=40-47
            -object memory-backend-ram,id=m6,size=256M
            -numa node,nodeid=6,memdev=m6,cpus=48-55
            -object memory-backend-ram,id=m7,size=256M
            -numa node,nodeid=7,memdev=m7,cpus=56-63
            src=0: 0,10 1,16 2,16 3,16 4,32 5,32 6,32 7,32
            src=1: 0,16 1,10 2,16 3,16 4,32 5,32 6,32 7,32
            src=2: 0,16 1,16 2,10 3,16 4,32 5,32 6,32 7,32
            src=3: 0,16 1,16 2,16 3,10 4,32 5,32 6,32 7,32
            src=4: 0,32 1,32 2,32 3,32 4,10 5,16 6,16 7,16
            src=5: 0,32 1,32 2,32 3,32 4,16 5,10 6,16 7,16
            src=6: 0,32 1,32 2,32 3,32 4,16 5,16 6,10 7,16
            src=7: 0,32 1,32 2,32 3,32 4,16 5,16 6,16 7,10"#]],
        );
        x86(
            "opteron-6282se",
            &expect![[r#"
            -smp 64,sockets=4,dies=2,modules=4,cores=2,threads=1
            -M q35,smp-cache.0.cache=l1d,smp-cache.0.topology=core,smp-cache.1.cache=l1i,smp-cache.1.topology=module,smp-cache.2.cache=l2,smp-cache.2.topology=module,smp-cache.3.cache=l3,smp-cache.3.topology=die
            -cpu Skylake-Server-v4,level=0xd
            -m 2048M
            -object memory-backend-ram,id=m0,size=256M
            -numa node,nodeid=0,memdev=m0,cpus=0-7
            -object memory-backend-ram,id=m1,size=256M
            -numa node,nodeid=1,memdev=m1,cpus=8-15
            -object memory-backend-ram,id=m2,size=256M
            -numa node,nodeid=2,memdev=m2,cpus=16-23
            -object memory-backend-ram,id=m3,size=256M
            -numa node,nodeid=3,memdev=m3,cpus=24-31
            -object memory-backend-ram,id=m4,size=256M
            -numa node,nodeid=4,memdev=m4,cpus=32-39
            -object memory-backend-ram,id=m5,size=256M
            -numa node,nodeid=5,memdev=m5,cpus=40-47
            -object memory-backend-ram,id=m6,size=256M
            -numa node,nodeid=6,memdev=m6,cpus=48-55
            -object memory-backend-ram,id=m7,size=256M
            -numa node,nodeid=7,memdev=m7,cpus=56-63
            src=0: 0,10 1,16 2,16 3,22 4,16 5,22 6,16 7,22
            src=1: 0,16 1,10 2,22 3,16 4,16 5,22 6,22 7,16
            src=2: 0,16 1,22 2,10 3,16 4,16 5,16 6,16 7,16
            src=3: 0,22 1,16 2,16 3,10 4,16 5,16 6,22 7,22
            src=4: 0,16 1,16 2,16 3,16 4,10 5,16 6,16 7,22
            src=5: 0,22 1,22 2,16 3,16 4,16 5,10 6,22 7,16
            src=6: 0,16 1,22 2,16 3,22 4,16 5,22 6,10 7,16
            src=7: 0,22 1,16 2,16 3,22 4,22 5,16 6,16 7,10"#]],
        );
    }

    #[test]
    fn the_described_machines_with_one_or_two_nodes() {
        let x86 = |name: &str, expected: &Expect| check(name, Guest::X86Linux6_12, expected);
        x86(
            "power8-10c",
            &expect![[r#"
            -smp 40,sockets=1,dies=1,modules=1,cores=10,threads=4
            -M q35,smp-cache.0.cache=l1d,smp-cache.0.topology=core,smp-cache.1.cache=l1i,smp-cache.1.topology=core,smp-cache.2.cache=l2,smp-cache.2.topology=core,smp-cache.3.cache=l3,smp-cache.3.topology=core
            -cpu Skylake-Server-v4,level=0xd
            -m 1024M
            -object memory-backend-ram,id=m0,size=512M
            -numa node,nodeid=0,memdev=m0,cpus=0-19
            -object memory-backend-ram,id=m1,size=512M
            -numa node,nodeid=1,memdev=m1,cpus=20-39
            src=0: 0,10 1,20
            src=1: 0,20 1,10"#]],
        );
        x86(
            "xeon-e5405",
            &expect![[r#"
            -smp 8,sockets=2,dies=1,modules=2,cores=2,threads=1
            -M q35,smp-cache.0.cache=l1d,smp-cache.0.topology=core,smp-cache.1.cache=l1i,smp-cache.1.topology=core,smp-cache.2.cache=l2,smp-cache.2.topology=module
            -cpu Skylake-Server-v4,level=0xd,l3-cache=off
            -m 1024M
            -object memory-backend-ram,id=m0,size=1024M
            -numa node,nodeid=0,memdev=m0,cpus=0-7"#]],
        );
        x86(
            "xeon-e5645",
            &expect![[r#"
            -smp 12,sockets=1,dies=1,modules=1,cores=6,threads=2
            -M q35,smp-cache.0.cache=l1d,smp-cache.0.topology=core,smp-cache.1.cache=l1i,smp-cache.1.topology=core,smp-cache.2.cache=l2,smp-cache.2.topology=core,smp-cache.3.cache=l3,smp-cache.3.topology=socket
            -cpu Skylake-Server-v4,level=0xd
            -m 1024M
            -object memory-backend-ram,id=m0,size=1024M
            -numa node,nodeid=0,memdev=m0,cpus=0-11"#]],
        );
        x86(
            "xeon-x3320",
            &expect![[r#"
            -smp 4,sockets=1,dies=1,modules=2,cores=2,threads=1
            -M q35,smp-cache.0.cache=l1d,smp-cache.0.topology=core,smp-cache.1.cache=l1i,smp-cache.1.topology=core,smp-cache.2.cache=l2,smp-cache.2.topology=module
            -cpu Skylake-Server-v4,level=0xd,l3-cache=off
            -m 1024M
            -object memory-backend-ram,id=m0,size=1024M
            -numa node,nodeid=0,memdev=m0,cpus=0-3"#]],
        );
        check(
            "amp-4x12",
            Guest::Arm64,
            &expect![[r#"
            -smp 16,sockets=4,clusters=1,cores=4,threads=1
            -M virt,gic-version=3
            -cpu max
            -m 1024M"#]],
        );
    }

    #[test]
    fn an_aarch64_guest_has_clusters_where_x86_has_modules_and_dies() {
        check(
            "xeon-e5405",
            Guest::Arm64,
            &expect![[r#"
            -smp 8,sockets=2,clusters=2,cores=2,threads=1
            -M virt,gic-version=3
            -cpu max
            -m 1024M
            -object memory-backend-ram,id=m0,size=1024M
            -numa node,nodeid=0,memdev=m0,cpus=0-7"#]],
        );
    }

    #[test]
    fn nodes_without_memory_have_none_and_nodes_without_pus_neither() {
        let without_memory = "synthetic:pack:2 numa:1(memory=0) core:2 pu:1";
        check(
            without_memory,
            Guest::X86Linux6_12,
            &expect![[r#"
            -smp 4,sockets=2,dies=1,modules=1,cores=2,threads=1
            -M q35
            -cpu Skylake-Server-v4,level=0xd,l3-cache=off
            -m 1024M
            -object memory-backend-ram,id=m0,size=512M
            -numa node,nodeid=0,memdev=m0,cpus=0-1
            -object memory-backend-ram,id=m1,size=512M
            -numa node,nodeid=1,memdev=m1,cpus=2-3"#]],
        );
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/machine/tests/corpus/");
        check(
            &format!("{file}memoryless-node.xml"),
            Guest::X86Linux6_12,
            &expect![[r#"
            -smp 8,sockets=2,dies=1,modules=1,cores=2,threads=2
            -M q35,smp-cache.0.cache=l3,smp-cache.0.topology=socket
            -cpu Skylake-Server-v4,level=0xd
            -m 1024M
            -object memory-backend-ram,id=m0,size=1024M
            -numa node,nodeid=0,memdev=m0,cpus=0-3
            -numa node,nodeid=1,cpus=4-7
            src=0: 0,10 1,21
            src=1: 0,21 1,10"#]],
        );
        check(
            &format!("{file}cpuless-node.xml"),
            Guest::X86Linux6_12,
            &expect![[r#"
            -smp 8,sockets=2,dies=1,modules=1,cores=2,threads=2
            -M q35,smp-cache.0.cache=l3,smp-cache.0.topology=socket
            -cpu Skylake-Server-v4,level=0xd
            -m 1024M
            -object memory-backend-ram,id=m0,size=512M
            -numa node,nodeid=0,memdev=m0,cpus=0-3
            -numa node,nodeid=1,cpus=4-7
            -object memory-backend-ram,id=m2,size=512M
            -numa node,nodeid=2,memdev=m2"#]],
        );
    }

    #[test]
    fn machines_that_qemu_cannot_be() {
        let x86 = |name: &str, expected: &Expect| check(name, Guest::X86Linux6_12, expected);
        x86(
            "amp-4x12",
            &expect!["expected cores of one capacity, found {512, 1024}; --guest arm64 has others"],
        );
        x86(
            "synthetic:l3:2 l2:2 l1d:2 core:2 pu:1",
            &expect![
                "expected caches shared by cores at two levels below the package at most, found {2, 4, 8} cores"
            ],
        );
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/machine/tests/corpus/");
        x86(
            &format!("{file}hybrid.xml"),
            &expect!["expected cores of one capacity, found {658, 1024}; --guest arm64 has others"],
        );
        x86(
            &format!("{file}holes.xml"),
            &expect![[r#"
            -smp 8,sockets=1,dies=1,modules=1,cores=4,threads=2
            -M q35,smp-cache.0.cache=l3,smp-cache.0.topology=socket
            -cpu Skylake-Server-v4,level=0xd
            -m 1024M
            -object memory-backend-ram,id=m0,size=1024M
            -numa node,nodeid=0,memdev=m0,cpus=0-7"#]],
        );
    }
}
