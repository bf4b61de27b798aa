//! Which options make QEMU a machine of a given topology.

use crate::guest::Guest;
use anyhow::bail;
use colocate_machine::{CacheKind, Machine, PuIdx};
use std::collections::BTreeSet;

/// Memory of a node that has memory, whatever the described one has: enough to boot and to move
/// pages about in.
const NODE_MEMORY_MIB: usize = 256;
/// The least that a whole guest gets.
const LEAST_MEMORY_MIB: usize = 1024;

/// How many of each level one of the level above has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Levels {
    packages: usize,
    dies: usize,
    modules: usize,
    cores: usize,
    threads: usize,
}

impl Levels {
    /// QEMU's name of the level whose members have `cores` cores.
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
/// If QEMU cannot make such a machine: packages or cores that are not alike, or caches shared at
/// more levels than it has.
pub fn options(machine: &Machine, guest: Guest) -> anyhow::Result<Vec<String>> {
    let capacities: BTreeSet<_> = machine.kinds.iter().filter_map(|kind| kind.capacity).collect();
    if capacities.len() > 1 && !guest.is_arm64() {
        bail!("expected cores of one capacity, found {capacities:?}; --guest arm64 has others");
    }
    let levels = levels(machine)?;
    let Levels { packages, dies, modules, cores, threads } = levels;
    let pus = machine.pus.len();
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
    let caches = if guest.is_arm64() { String::new() } else { caches(machine, levels) };
    options.extend(["-M".into(), format!("{kind}{caches}")]);
    options.extend(["-cpu".into(), processor(machine, guest)]);
    options.extend(nodes(machine)?);
    Ok(options)
}

/// A processor model whose SMT threads and shared caches Linux sees; the third level of cache can be
/// left out.
///
/// `level` hides CPUID leaf 0x1f: QEMU 10.0.2 ends with a failed assertion when Linux enumerates it.
/// Leaves 4 and 0xb, of which Linux reads the same sharing, are below.
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

/// The one value that all members have.
fn same(what: &str, mut values: impl Iterator<Item = usize>) -> anyhow::Result<usize> {
    let Some(first) = values.next() else { bail!("expected {what}, found none") };
    match values.find(|&value| value != first) {
        None => Ok(first),
        Some(other) => bail!("expected as many {what} everywhere, found {first} and {other}"),
    }
}

/// Who shares the caches, as properties of the machine.
fn caches(machine: &Machine, levels: Levels) -> String {
    let mut text = String::new();
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

/// The PUs as ranges of neighbours, both ends included.
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
