//! What `colocate topo` shows is what was booted, and what the kernel says.

use crate::evidence::{list, printed, text};
use anyhow::{Context as _, ensure};
use colocate_machine::exact::Exact;
use colocate_machine::{CacheKind, Machine};
use std::collections::BTreeSet;

/// The machine that the lab was asked for.
fn described() -> anyhow::Result<Machine> {
    Ok(Exact::from_json(&text("/lab/machine.json")?)?.machine)
}

fn seen() -> anyhow::Result<Machine> {
    Ok(Exact::from_json(&printed(&["topo", "--json"])?)?.machine)
}

/// Who shares what, by places in the machine's logical order: what a topology is beside numbers,
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
    let node = |node| machine.home_pus(node).map(colocate_machine::PuIdx::idx).collect();
    let cache = |cache: &colocate_machine::Cache| {
        let kind = format!("{:?}", cache.kind);
        (cache.level, kind, cache.pus.iter().map(|pu| pu.idx()).collect())
    };
    Sharing {
        cores: machine.cores.iter().map(core).collect(),
        packages: machine.packages.iter().map(package).collect(),
        nodes: (0..machine.nodes.len()).map(colocate_machine::NodeIdx::new).map(node).collect(),
        caches: machine.caches.iter().map(cache).collect(),
        distances: machine.distances.as_ref().map(|distances| distances.rows.clone()),
    }
}

/// `colocate topo` in the guest shows the siblings, packages, nodes, distances and shared caches of
/// the machine that the guest was booted as.
pub fn is_described() -> anyhow::Result<()> {
    let (described, seen) = (sharing(&described()?), sharing(&seen()?));
    ensure!(seen == described, "expected {described:?}, found {seen:?}");
    Ok(())
}

/// `colocate topo` in the guest shows what the guest's kernel says in `/sys`.
pub fn is_the_kernels() -> anyhow::Result<()> {
    let machine = seen()?;
    for pu in &machine.pus {
        let folder = format!("/sys/devices/system/cpu/cpu{}", pu.os.0);
        let numbers = |places: &[colocate_machine::PuIdx]| -> BTreeSet<u32> {
            places.iter().map(|place| machine.pus[place.idx()].os.0).collect()
        };
        let core = &machine.cores[pu.core.idx()];
        let kernels = set(&text(format!("{folder}/topology/thread_siblings_list"))?)?;
        ensure!(
            numbers(&core.pus) == kernels,
            "cpu{}: siblings {kernels:?}, found {:?}",
            pu.os.0,
            core.pus
        );
        let package = &machine.packages[core.package.idx()];
        let ours =
            package.cores.iter().flat_map(|core| numbers(&machine.cores[core.idx()].pus)).collect();
        let kernels = set(&text(format!("{folder}/topology/package_cpus_list"))?)?;
        ensure!(kernels == ours, "cpu{}: package {kernels:?}, found {ours:?}", pu.os.0);
        caches(&machine, pu.os.0, &folder, numbers)?;
    }
    nodes(&machine)
}

fn caches(
    machine: &Machine,
    pu: u32,
    folder: &str,
    numbers: impl Fn(&[colocate_machine::PuIdx]) -> BTreeSet<u32>,
) -> anyhow::Result<()> {
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
        let kibibytes: u64 = text(index.join("size"))?.trim_end_matches('K').parse()?;
        let shared = set(&text(index.join("shared_cpu_list"))?)?;
        let found = machine.caches.iter().any(|cache| {
            let size = cache.size.is_some_and(|size| size.0 == kibibytes << 10);
            cache.level == level && cache.kind == kind && size && numbers(&cache.pus) == shared
        });
        ensure!(
            found,
            "cpu{pu}: expected a cache L{level} {kind:?} of {kibibytes} KiB over {shared:?}, found none"
        );
    }
    Ok(())
}

fn nodes(machine: &Machine) -> anyhow::Result<()> {
    for (place, node) in machine.nodes.iter().enumerate() {
        let folder = format!("/sys/devices/system/node/node{}", node.os.0);
        let kernels = set(&text(format!("{folder}/cpulist"))?)?;
        let home = machine.home_pus(colocate_machine::NodeIdx::new(place));
        let ours: BTreeSet<_> = home.map(|pu| machine.pus[pu.idx()].os.0).collect();
        ensure!(kernels == ours, "node {}: expected PUs {kernels:?}, found {ours:?}", node.os.0);
        let distances: Result<Vec<u32>, _> =
            text(format!("{folder}/distance"))?.split(' ').map(str::parse).collect();
        if let Some(ours) = &machine.distances {
            ensure!(
                ours.rows[place] == distances?,
                "node {}: distances {:?}",
                node.os.0,
                ours.rows[place]
            );
        }
    }
    let online = list(&text("/sys/devices/system/node/online")?)?;
    ensure!(
        online.len() == machine.nodes.len(),
        "expected nodes {online:?}, found {}",
        machine.nodes.len()
    );
    Ok(())
}

fn set(text: &str) -> anyhow::Result<BTreeSet<u32>> {
    Ok(list(text)?.into_iter().collect())
}
