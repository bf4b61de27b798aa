//! `colocate topo` agrees with the booted machine, with the kernel and with hwloc.

use crate::evidence::{list, printed, text};
use anyhow::{Context as _, ensure};
use colocate_machine::exact::Exact;
use colocate_machine::{CacheKind, Machine, NodeIdx, PuIdx};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const CPUS: &str = "/sys/devices/system/cpu";

/// PUs by the kernel's number.
type Pus = BTreeSet<u32>;

/// The machine described to the lab, from which QEMU's options were made.
fn described() -> anyhow::Result<Machine> {
    Ok(Exact::from_json(&text("/lab/machine.json")?)?.machine)
}

/// The machine as `colocate topo` reads it in the guest.
fn seen() -> anyhow::Result<Machine> {
    Ok(Exact::from_json(&printed(&["topo", "--json"])?)?.machine)
}

/// Sharing among PUs, by indexes in the machine's logical order; without the kernel's numbers,
/// names, sizes and speeds.
#[derive(Debug, PartialEq)]
struct PuSharing {
    cores: BTreeSet<Vec<usize>>,
    packages: BTreeSet<Vec<usize>>,
    nodes: Vec<Vec<usize>>,
    caches: BTreeSet<(u8, String, Vec<usize>)>,
    distances: Option<Vec<Vec<u32>>>,
}

fn indexes<'a>(pus: impl IntoIterator<Item = &'a PuIdx>) -> Vec<usize> {
    pus.into_iter().map(|pu| pu.idx()).collect()
}

/// PUs of a package, in logical order.
fn package_pus<'a>(
    machine: &'a Machine,
    package: &'a colocate_machine::Package,
) -> impl Iterator<Item = &'a PuIdx> {
    package.cores.iter().flat_map(|core| machine.cores[core.idx()].pus.iter())
}

fn sharing(machine: &Machine) -> PuSharing {
    let nodes = (0..machine.nodes.len()).map(NodeIdx::new);
    let packages = machine.packages.iter();
    let caches = machine.caches.iter();
    PuSharing {
        cores: machine.cores.iter().map(|core| indexes(&core.pus)).collect(),
        packages: packages.map(|package| indexes(package_pus(machine, package))).collect(),
        nodes: nodes.map(|node| machine.home_pus(node).map(PuIdx::idx).collect()).collect(),
        caches: caches
            .map(|cache| (cache.level, format!("{:?}", cache.kind), indexes(&cache.pus)))
            .collect(),
        distances: machine.distances.as_ref().map(|distances| distances.rows.clone()),
    }
}

/// `colocate topo` in the guest shows the siblings, packages, nodes, distances and shared caches of
/// the booted machine.
///
/// Not compared: sizes of caches and speeds, which are QEMU's own; nodes, distances and levels of
/// cache that the description omits and QEMU adds; and on aarch64 the L1, because in a device tree
/// each PU has an L1 of its own.
pub fn is_described() -> anyhow::Result<()> {
    let mut described = sharing(&described()?);
    let mut seen = sharing(&seen()?);
    let least = if cfg!(target_arch = "aarch64") { 2 } else { 1 };
    described.caches.retain(|(level, ..)| *level >= least);
    let levels: BTreeSet<_> =
        described.caches.iter().map(|(level, kind, _)| (*level, kind.clone())).collect();
    seen.caches.retain(|(level, kind, _)| levels.contains(&(*level, kind.clone())));
    if described.nodes.is_empty() {
        described.nodes = vec![(0..seen.cores.iter().flatten().count()).collect()];
    }
    if described.distances.is_none() {
        seen.distances = None;
    }
    ensure!(seen == described, "expected {described:?}, found {seen:?}");
    Ok(())
}

/// Capacity of a PU's core; `None` if unknown.
fn capacity(machine: &Machine, pu: PuIdx) -> Option<u32> {
    machine.kinds[machine.cores[machine.core_of(pu).idx()].kind.idx()].capacity
}

/// The kernel's `cpu_capacity` and the capacities of `colocate topo` match the booted machine.
pub fn capacities_are_described() -> anyhow::Result<()> {
    let described = described()?;
    let seen = seen()?;
    for pu in seen.all_pus() {
        let number = seen.pus[pu.idx()].os.0;
        let kernels: u32 = text(format!("{CPUS}/cpu{number}/cpu_capacity"))?.parse()?;
        let ours = capacity(&seen, pu);
        let wanted = capacity(&described, pu);
        ensure!(
            wanted == Some(kernels) && ours == wanted,
            "cpu{number}: expected capacity {wanted:?}, the kernel says {kernels}, colocate {ours:?}"
        );
    }
    ensure!(described.kinds.len() > 1, "expected a machine with kinds of cores, found one kind");
    Ok(())
}

/// The kernel's numbers of PUs.
fn numbers(machine: &Machine, places: impl IntoIterator<Item = PuIdx>) -> Pus {
    places.into_iter().map(|place| machine.pus[place.idx()].os.0).collect()
}

/// `colocate topo` in the guest agrees with the guest's `/sys`.
pub fn is_the_kernels() -> anyhow::Result<()> {
    let machine = seen()?;
    let online = set(&text(format!("{CPUS}/online"))?)?;
    let ours = numbers(&machine, machine.all_pus());
    ensure!(online == ours, "expected PUs {online:?}, found {ours:?}");
    let offline = set(&text(format!("{CPUS}/offline"))?)?;
    let ours: Pus = machine.offline.iter().map(|pu| pu.0).collect();
    ensure!(offline == ours, "expected offline PUs {offline:?}, found {ours:?}");
    for pu in &machine.pus {
        let folder = format!("{CPUS}/cpu{}", pu.os.0);
        let core = &machine.cores[pu.core.idx()];
        let ours = numbers(&machine, core.pus.iter().copied());
        let kernels = set(&text(format!("{folder}/topology/thread_siblings_list"))?)?;
        ensure!(ours == kernels, "cpu{}: siblings {kernels:?}, found {ours:?}", pu.os.0);
        let package = &machine.packages[core.package.idx()];
        let ours = numbers(&machine, package_pus(&machine, package).copied());
        let kernels = set(&text(format!("{folder}/topology/package_cpus_list"))?)?;
        ensure!(kernels == ours, "cpu{}: package {kernels:?}, found {ours:?}", pu.os.0);
        caches(&machine, pu.os.0, &folder)?;
    }
    nodes(&machine)
}

/// Checks that the machine has each cache that `/sys` lists for a PU.
fn caches(machine: &Machine, pu: u32, folder: &str) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(format!("{folder}/cache")).context("no caches in /sys")? {
        let index = entry?.path();
        // The folder also has files that are no cache, such as `uevent`.
        if !index.join("level").exists() {
            continue;
        }
        let level: u8 = text(index.join("level"))?.parse()?;
        let kind = match text(index.join("type"))?.as_str() {
            "Data" => CacheKind::Data,
            "Instruction" => CacheKind::Instruction,
            _ => CacheKind::Unified,
        };
        let bytes = size(&index)?;
        let shared = set(&text(index.join("shared_cpu_list"))?)?;
        let found = machine.caches.iter().any(|cache| {
            let same = cache.level == level && cache.kind == kind;
            let size = cache.size.map(|size| size.0) == bytes;
            same && size && numbers(machine, cache.pus.iter().copied()) == shared
        });
        ensure!(
            found,
            "cpu{pu}: expected a cache L{level} {kind:?} of {bytes:?} bytes over {shared:?}, found none"
        );
    }
    Ok(())
}

/// Size of a cache in bytes, from `/sys`. `None` if the device tree has no size.
fn size(index: &Path) -> anyhow::Result<Option<u64>> {
    let file = index.join("size");
    if !file.exists() {
        return Ok(None);
    }
    let kibibytes: u64 = text(file)?.trim_end_matches('K').parse()?;
    Ok(Some(kibibytes << 10))
}

/// Checks PUs, distances and memory of each node.
fn nodes(machine: &Machine) -> anyhow::Result<()> {
    for (place, node) in machine.nodes.iter().enumerate() {
        let folder = format!("/sys/devices/system/node/node{}", node.os.0);
        let kernels = set(&text(format!("{folder}/cpulist"))?)?;
        let ours = numbers(machine, machine.home_pus(NodeIdx::new(place)));
        ensure!(kernels == ours, "node {}: expected PUs {kernels:?}, found {ours:?}", node.os.0);
        let distances: Result<Vec<u32>, _> =
            text(format!("{folder}/distance"))?.split(' ').map(str::parse).collect();
        if let Some(ours) = &machine.distances {
            let ours = &ours.rows[place];
            ensure!(*ours == distances?, "node {}: distances {ours:?}", node.os.0);
        }
        memory(node, &folder)?;
    }
    let online = list(&text("/sys/devices/system/node/online")?)?;
    ensure!(
        online.len() == machine.nodes.len(),
        "expected nodes {online:?}, found {}",
        machine.nodes.len()
    );
    Ok(())
}

fn memory(node: &colocate_machine::Node, folder: &str) -> anyhow::Result<()> {
    let meminfo = text(format!("{folder}/meminfo"))?;
    let total = meminfo.lines().find_map(|line| line.split_once("MemTotal:"));
    let total = total.context("no MemTotal")?.1.trim().trim_end_matches(" kB");
    let kernels = total.parse::<u64>()? << 10;
    let ours = node.memory.map(|memory| memory.0);
    ensure!(
        ours == Some(kernels),
        "node {}: expected {kernels} bytes of memory, found {ours:?}",
        node.os.0
    );
    Ok(())
}

/// `colocate topo` in the guest agrees with the guest's `lstopo`.
pub fn is_hwlocs() -> anyhow::Result<()> {
    let machine = seen()?;
    let mut ours: Vec<(&str, Pus)> = Vec::new();
    for pu in machine.all_pus() {
        ours.push(("pu", numbers(&machine, [pu])));
    }
    for core in &machine.cores {
        ours.push(("core", numbers(&machine, core.pus.clone())));
    }
    for package in &machine.packages {
        ours.push(("package", numbers(&machine, package_pus(&machine, package).copied())));
    }
    for node in &machine.nodes {
        ours.push(("numanode", numbers(&machine, node.pus.clone())));
    }
    for cache in &machine.caches {
        let name = match (cache.level, cache.kind) {
            (1, CacheKind::Instruction) => "l1icache",
            (1, _) => "l1cache",
            (2, _) => "l2cache",
            _ => "l3cache",
        };
        ours.push((name, numbers(&machine, cache.pus.clone())));
    }
    let kinds = ["pu", "core", "package", "numanode", "l1cache", "l1icache", "l2cache", "l3cache"];
    for kind in kinds {
        let theirs = lstopo(kind)?;
        let of_kind = ours.iter().filter(|(name, _)| *name == kind);
        let ours: Vec<Pus> = of_kind.map(|(_, pus)| pus.clone()).collect();
        ensure!(ours == theirs, "{kind}: expected {theirs:?}, found {ours:?}");
    }
    Ok(())
}

/// PUs of each object of a kind, in hwloc's order.
fn lstopo(kind: &str) -> anyhow::Result<Vec<Pus>> {
    // --disallowed: the root cpuset has no nodes without memory.
    let words = ["--only", kind, "--disallowed", "--cpuset-only", "--taskset"];
    let output = Command::new("lstopo-no-graphics").args(words).output();
    let output = output.context("cannot start lstopo-no-graphics")?;
    ensure!(output.status.success(), "lstopo: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)?.lines().map(|line| mask(line.trim())).collect()
}

/// Numbers of the set bits of a hexadecimal mask, `0x...`.
fn mask(text: &str) -> anyhow::Result<Pus> {
    let digits =
        text.strip_prefix("0x").with_context(|| format!("expected a mask, found {text}"))?;
    let mut numbers = Pus::new();
    for (place, digit) in digits.chars().rev().enumerate() {
        let bits = digit.to_digit(16).with_context(|| format!("expected a mask, found {text}"))?;
        let first = 4 * u32::try_from(place)?;
        numbers.extend((0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
    }
    Ok(numbers)
}

/// With every second PU and a whole core offline, `colocate topo` agrees with the kernel and hwloc.
/// After the PUs' return the machine is as before. CPU 0 is included where the kernel allows.
pub fn has_holes() -> anyhow::Result<()> {
    let before = seen()?;
    let last = before.cores.last().context("a machine without cores")?;
    let whole_core = numbers(&before, last.pus.clone());
    let second = numbers(&before, before.all_pus().step_by(2));
    let allowed: Vec<_> = second.union(&whole_core).filter(|pu| switch(**pu).exists()).collect();
    ensure!(!allowed.is_empty(), "expected PUs that can be taken offline, found none");
    for pu in &allowed {
        std::fs::write(switch(**pu), "0").with_context(|| format!("cpu{pu} stays online"))?;
    }
    println!("  offline: {}", text(format!("{CPUS}/offline"))?);
    // The PUs come back online before a failure is reported.
    let held = is_the_kernels().and_then(|()| is_hwlocs());
    for pu in &allowed {
        std::fs::write(switch(**pu), "1").with_context(|| format!("cpu{pu} stays offline"))?;
    }
    held?;
    let after = seen()?;
    ensure!(after == before, "with all PUs back: expected {before:?}, found {after:?}");
    Ok(())
}

/// The file that switches a PU on and offline. CPU 0 has no such file on x86.
fn switch(pu: u32) -> std::path::PathBuf {
    format!("{CPUS}/cpu{pu}/online").into()
}

fn set(text: &str) -> anyhow::Result<Pus> {
    Ok(list(text)?.into_iter().collect())
}
