//! What `colocate topo` shows is what was booted, what the kernel says and what hwloc says.

use crate::evidence::{list, printed, text};
use anyhow::{Context as _, ensure};
use colocate_machine::exact::Exact;
use colocate_machine::{CacheKind, Machine, NodeIdx, PuIdx};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const CPUS: &str = "/sys/devices/system/cpu";

/// PUs by the kernel's number.
type Pus = BTreeSet<u32>;

/// The machine that the lab was asked for.
fn described() -> anyhow::Result<Machine> {
    Ok(Exact::from_json(&text("/lab/machine.json")?)?.machine)
}

fn seen() -> anyhow::Result<Machine> {
    Ok(Exact::from_json(&printed(&["topo", "--json"])?)?.machine)
}

/// Which PUs share what, by places in the machine's logical order: what a topology is beside numbers,
/// names, sizes and speeds.
#[derive(Debug, PartialEq)]
struct Sharing {
    cores: BTreeSet<Vec<usize>>,
    packages: BTreeSet<Vec<usize>>,
    nodes: Vec<Vec<usize>>,
    caches: BTreeSet<(u8, String, Vec<usize>)>,
    distances: Option<Vec<Vec<u32>>>,
}

fn sharing(machine: &Machine) -> Sharing {
    let core = |core: &colocate_machine::Core| core.pus.iter().map(|pu| pu.idx()).collect();
    let package = |package: &colocate_machine::Package| {
        let cores = package.cores.iter().map(|core| &machine.cores[core.idx()]);
        cores.flat_map(|core| core.pus.iter().map(|pu| pu.idx())).collect()
    };
    let node = |node| machine.home_pus(node).map(PuIdx::idx).collect();
    let cache = |cache: &colocate_machine::Cache| {
        let kind = format!("{:?}", cache.kind);
        (cache.level, kind, cache.pus.iter().map(|pu| pu.idx()).collect())
    };
    Sharing {
        cores: machine.cores.iter().map(core).collect(),
        packages: machine.packages.iter().map(package).collect(),
        nodes: (0..machine.nodes.len()).map(NodeIdx::new).map(node).collect(),
        caches: machine.caches.iter().map(cache).collect(),
        distances: machine.distances.as_ref().map(|distances| distances.rows.clone()),
    }
}

/// `colocate topo` in the guest shows the siblings, packages, nodes, distances and shared caches of
/// the machine that the guest was booted as.
///
/// Not compared: sizes of caches and speeds, which are QEMU's own; what the description leaves out
/// and QEMU has all the same (nodes, distances, levels of cache); and on aarch64 the first level of
/// cache, because in a device tree each PU has its own.
pub fn is_described() -> anyhow::Result<()> {
    let (described, mut seen) = (sharing(&described()?), sharing(&seen()?));
    let least = if cfg!(target_arch = "aarch64") { 2 } else { 1 };
    let of = |caches: &BTreeSet<(u8, String, Vec<usize>)>| -> BTreeSet<_> {
        caches.iter().filter(|(level, ..)| *level >= least).cloned().collect()
    };
    let mut described = Sharing { caches: of(&described.caches), ..described };
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

/// The kernel's `cpu_capacity`, and what `colocate topo` says of the kinds of cores, are the
/// capacities of the machine that the guest was booted as.
pub fn capacities_are_described() -> anyhow::Result<()> {
    let (described, seen) = (described()?, seen()?);
    let capacity = |machine: &Machine, pu: PuIdx| {
        machine.kinds[machine.cores[machine.core_of(pu).idx()].kind.idx()].capacity
    };
    for pu in seen.all_pus() {
        let number = seen.pus[pu.idx()].os.0;
        let kernels: u32 = text(format!("{CPUS}/cpu{number}/cpu_capacity"))?.parse()?;
        let (ours, wanted) = (capacity(&seen, pu), capacity(&described, pu));
        ensure!(
            wanted == Some(kernels) && ours == wanted,
            "cpu{number}: expected capacity {wanted:?}, the kernel says {kernels}, colocate {ours:?}"
        );
    }
    ensure!(described.kinds.len() > 1, "expected a machine with kinds of cores, found one kind");
    Ok(())
}

/// The PUs at these places, by the kernel's number.
fn numbers(machine: &Machine, places: impl IntoIterator<Item = PuIdx>) -> Pus {
    places.into_iter().map(|place| machine.pus[place.idx()].os.0).collect()
}

/// `colocate topo` in the guest shows what the guest's kernel says in `/sys`.
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
        let cores = &machine.packages[core.package.idx()].cores;
        let pus = cores.iter().flat_map(|core| machine.cores[core.idx()].pus.iter().copied());
        let ours = numbers(&machine, pus);
        let kernels = set(&text(format!("{folder}/topology/package_cpus_list"))?)?;
        ensure!(kernels == ours, "cpu{}: package {kernels:?}, found {ours:?}", pu.os.0);
        caches(&machine, pu.os.0, &folder)?;
    }
    nodes(&machine)
}

fn caches(machine: &Machine, pu: u32, folder: &str) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(format!("{folder}/cache")).context("no caches in /sys")? {
        let index = entry?.path();
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

/// The size of a cache in `/sys`, which has none where a device tree says none.
fn size(index: &Path) -> anyhow::Result<Option<u64>> {
    let file = index.join("size");
    if !file.exists() {
        return Ok(None);
    }
    let kibibytes: u64 = text(file)?.trim_end_matches('K').parse()?;
    Ok(Some(kibibytes << 10))
}

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

/// `colocate topo` in the guest shows what `lstopo` shows there.
pub fn is_hwlocs() -> anyhow::Result<()> {
    let machine = seen()?;
    let mut ours: BTreeMap<&str, Vec<Pus>> = BTreeMap::new();
    let mut push = |name, pus: Pus| ours.entry(name).or_default().push(pus);
    machine.all_pus().for_each(|pu| push("pu", numbers(&machine, [pu])));
    machine.cores.iter().for_each(|core| push("core", numbers(&machine, core.pus.clone())));
    for package in &machine.packages {
        let pus = package.cores.iter().flat_map(|core| machine.cores[core.idx()].pus.clone());
        push("package", numbers(&machine, pus));
    }
    machine.nodes.iter().for_each(|node| push("numanode", numbers(&machine, node.pus.clone())));
    for cache in &machine.caches {
        let name = match (cache.level, cache.kind) {
            (1, CacheKind::Instruction) => "l1icache",
            (1, _) => "l1cache",
            (2, _) => "l2cache",
            _ => "l3cache",
        };
        push(name, numbers(&machine, cache.pus.clone()));
    }
    let kinds = ["pu", "core", "package", "numanode", "l1cache", "l1icache", "l2cache", "l3cache"];
    for kind in kinds {
        let theirs = lstopo(kind)?;
        let ours = ours.remove(kind).unwrap_or_default();
        ensure!(ours == theirs, "{kind}: expected {theirs:?}, found {ours:?}");
    }
    Ok(())
}

/// The sets of PUs of all objects of one kind, in hwloc's order.
fn lstopo(kind: &str) -> anyhow::Result<Vec<Pus>> {
    // Disallowed: the root cpuset leaves out nodes without memory.
    let words = ["--only", kind, "--disallowed", "--cpuset-only", "--taskset"];
    let output = Command::new("lstopo-no-graphics").args(words).output();
    let output = output.context("cannot start lstopo-no-graphics")?;
    ensure!(output.status.success(), "lstopo: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)?.lines().map(|line| mask(line.trim())).collect()
}

/// The numbers of the bits that are set in a hexadecimal mask.
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

/// With every second PU offline, a whole core and, where this kernel allows it, CPU 0 among them, the
/// rest is as the kernel and hwloc say; and so is everything once they are back.
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
    let held = is_the_kernels().and_then(|()| is_hwlocs());
    for pu in &allowed {
        std::fs::write(switch(**pu), "1").with_context(|| format!("cpu{pu} stays offline"))?;
    }
    held?;
    let after = seen()?;
    ensure!(after == before, "with all PUs back: expected {before:?}, found {after:?}");
    Ok(())
}

/// The file that says whether a PU is online. CPU 0 has none on x86.
fn switch(pu: u32) -> std::path::PathBuf {
    format!("{CPUS}/cpu{pu}/online").into()
}

fn set(text: &str) -> anyhow::Result<Pus> {
    Ok(list(text)?.into_iter().collect())
}
