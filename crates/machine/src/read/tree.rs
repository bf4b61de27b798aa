//! The machine as described by the files in `/sys/devices/system`, where hwloc fails.

use crate::cpulist::PuSet;
use crate::ids::{NodeNr, PuNr};
use crate::machine::CacheKind;
use crate::parts::{CachePart, DistancePart, MachineParts, NodePart};
use crate::read::sysfs::Sysfs;
use crate::units::Bytes;
use colocate_files::kernel;
use std::collections::BTreeMap;

/// Most caches read for a PU. x86 has four, and no processor more than three levels of two kinds
/// and one more.
const MOST_CACHES: usize = 16;

/// Caches by level and kind: size and PUs of each.
type Caches = BTreeMap<(u8, CacheKind), Vec<(Bytes, PuSet)>>;

impl Sysfs {
    /// Online PUs; `None` if the kernel does not list them.
    pub(crate) fn online(&self) -> Option<PuSet> {
        let online: Option<PuSet> = self.value("/sys/devices/system/cpu/online");
        online.filter(|set| !set.is_empty())
    }

    /// PUs of the affinity mask, or the number of PUs that the system reports, from 0.
    pub(crate) fn allowed(&self) -> PuSet {
        let status = self.text("/proc/self/status").unwrap_or_default();
        let mask = kernel::field(&status, "Cpus_allowed_list");
        let set = mask.and_then(|list| PuSet::parse_list(list.trim()).ok());
        set.filter(|set| !set.is_empty()).unwrap_or_else(|| {
            // At least one PU is there: this program runs.
            let count = std::thread::available_parallelism().map_or(1, usize::from);
            (0..count).map(PuNr::new).collect()
        })
    }

    /// Parts without structure: PUs, and one node with the memory of the whole machine.
    pub(crate) fn flat_parts(&self) -> MachineParts {
        let online = self.online().unwrap_or_else(|| self.allowed());
        let memory = memory(self, "/proc/meminfo");
        let node = NodePart { os: NodeNr(0), memory, pus: online.clone(), may_be_home: true };
        MachineParts {
            name: self.text("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
            processor: processor(self),
            pus: online.iter().collect(),
            nodes: vec![node],
            ..MachineParts::default()
        }
    }

    /// All parts described by the files.
    pub(crate) fn tree_parts(&self) -> MachineParts {
        let flat = self.flat_parts();
        let packages =
            topology_groups(self, &flat.pus, ["package_cpus_list", "core_siblings_list"]);
        // The second name of each file is the one before Linux 5.3.
        let cores = topology_groups(self, &flat.pus, ["core_cpus_list", "thread_siblings_list"]);
        let caches = caches(self, &flat.pus);
        let nodes = nodes(self);
        let mut pus = flat.pus;
        // Logical order: by package, outermost cache, and core.
        pus.sort_by_cached_key(|&pu| {
            let outermost_first = caches
                .values()
                .rev()
                .map(|level| level.iter().position(|(_, set)| set.contains(pu)));
            (place(&packages, pu), outermost_first.collect::<Vec<_>>(), place(&cores, pu), pu)
        });
        let caches = caches.into_iter().flat_map(|((level, kind), found)| {
            found.into_iter().map(move |(size, pus)| CachePart {
                level,
                kind,
                size,
                pus: pus.iter().collect(),
            })
        });
        MachineParts {
            pus,
            cores: cores.iter().map(|core| core.iter().collect()).collect(),
            packages: packages.iter().map(|package| package.iter().collect()).collect(),
            caches: caches.collect(),
            distances: distances(self, &nodes),
            nodes: if nodes.is_empty() { flat.nodes } else { nodes },
            name: flat.name,
            processor: flat.processor,
            ..MachineParts::default()
        }
    }

    /// Replaces the PUs of each node by the kernel's list. If the PUs of a node fit into no
    /// package, cache or core, hwloc assigns the node all PUs of the part of the machine that
    /// contains them. hwloc's PUs of a node without PUs of its own stay.
    pub(crate) fn correct_nodes(&self, nodes: &mut [NodePart]) {
        for node in nodes {
            let Some(pus) = node_pus(self, node.os) else { continue };
            node.may_be_home = !pus.is_empty();
            if node.may_be_home {
                node.pus = pus;
            }
        }
    }
}

/// Groups of PUs by the first file of `names` in their `topology` folder.
fn topology_groups(files: &Sysfs, pus: &[PuNr], names: [&str; 2]) -> Vec<PuSet> {
    groups(pus, |pu| {
        let folder = format!("/sys/devices/system/cpu/cpu{}/topology", pu.0);
        names.iter().find_map(|name| files.value(&format!("{folder}/{name}")))
    })
}

/// Model of the first processor.
fn processor(files: &Sysfs) -> Option<String> {
    let text = files.text("/proc/cpuinfo")?;
    // Only x86 has this line.
    let model = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(model.split_once(':')?.1.trim().to_owned())
}

fn caches(files: &Sysfs, pus: &[PuNr]) -> Caches {
    let mut caches = Caches::new();
    for &pu in pus {
        for index in 0..MOST_CACHES {
            // Cache folders are numbered without gaps.
            let Some((sort, size, shared)) = cache(files, pu, index) else { break };
            let found = caches.entry(sort).or_default();
            if !found.iter().any(|(_, set)| set.contains(pu)) {
                found.push((size, own_group(pu, shared, pus)));
            }
        }
    }
    caches
}

/// Cache `index` of a PU: level and kind, size, and PUs that share the cache. `None` beyond the
/// last cache.
fn cache(files: &Sysfs, pu: PuNr, index: usize) -> Option<((u8, CacheKind), Bytes, Option<PuSet>)> {
    let folder = format!("/sys/devices/system/cpu/cpu{}/cache/index{index}", pu.0);
    let level = files.value(&format!("{folder}/level"))?;
    let kind = match files.text(&format!("{folder}/type"))?.trim() {
        "Data" => CacheKind::Data,
        "Instruction" => CacheKind::Instruction,
        _ => CacheKind::Unified,
    };
    let size = files.text(&format!("{folder}/size")).and_then(|size| {
        // The kernel prints KiB.
        size.trim().strip_suffix('K')?.parse::<u64>().ok()?.checked_mul(1 << 10)
    });
    let shared = files.value(&format!("{folder}/shared_cpu_list"));
    // `CachePart` has 0 for an unknown size.
    Some(((level, kind), Bytes(size.unwrap_or(0)), shared))
}

/// Nodes that the kernel lists; none on a kernel without NUMA.
fn nodes(files: &Sysfs) -> Vec<NodePart> {
    // A list of nodes has the form of a list of PUs.
    let listed: PuSet = files.value("/sys/devices/system/node/online").unwrap_or_default();
    let nodes = listed.iter().filter_map(|number| {
        let os = NodeNr(number.0);
        let pus = node_pus(files, os)?;
        let memory = memory(files, &format!("/sys/devices/system/node/{os}/meminfo"));
        Some(NodePart { os, memory, may_be_home: !pus.is_empty(), pus })
    });
    nodes.collect()
}

/// PUs of a node, by the kernel's list.
fn node_pus(files: &Sysfs, node: NodeNr) -> Option<PuSet> {
    files.value(&format!("/sys/devices/system/node/{node}/cpulist"))
}

/// `MemTotal` of a file in the form of `/proc/meminfo`.
fn memory(files: &Sysfs, path: &str) -> Option<Bytes> {
    let text = files.text(path)?;
    let (_, total) = text.split_once("MemTotal:")?;
    // The kernel's kB are KiB.
    let kib: u64 = total.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1 << 10).map(Bytes)
}

fn distances(files: &Sysfs, nodes: &[NodePart]) -> Option<DistancePart> {
    let rows = nodes.iter().map(|node| {
        let text = files.text(&format!("/sys/devices/system/node/{}/distance", node.os))?;
        text.split_whitespace().map(|figure| figure.parse().ok()).collect::<Option<Vec<u64>>>()
    });
    let rows: Vec<Vec<u64>> = rows.collect::<Option<_>>()?;
    Some(DistancePart { nodes: nodes.iter().map(|node| node.os).collect(), values: rows.concat() })
}

/// Partitions PUs into groups; `shared` returns the PUs that share a group with a PU.
fn groups(pus: &[PuNr], shared: impl Fn(PuNr) -> Option<PuSet>) -> Vec<PuSet> {
    let mut groups: Vec<PuSet> = Vec::new();
    for &pu in pus {
        if !groups.iter().any(|group| group.contains(pu)) {
            // A PU stays in its first group if lists contradict each other.
            let taken: PuSet = groups.iter().flat_map(PuSet::iter).collect();
            groups.push(own_group(pu, shared(pu), pus).difference(&taken));
        }
    }
    groups
}

/// Group of a PU: the PU, and those of `pus` in `shared`.
fn own_group(pu: PuNr, shared: Option<PuSet>, pus: &[PuNr]) -> PuSet {
    let mut group: PuSet = pus.iter().copied().collect();
    group = group.intersection(&shared.unwrap_or_default());
    group.insert(pu);
    group
}

/// Index of a PU's group.
fn place(groups: &[PuSet], pu: PuNr) -> Option<usize> {
    groups.iter().position(|group| group.contains(pu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::picture::picture;
    use crate::read::testing::Tree;

    /// Two packages of two cores of two PUs, siblings far apart, and two nodes.
    fn machine() -> Tree {
        let tree = Tree::of("tree", &[("cpu/online", "0-7")]);
        for pu in 0..8 {
            let core = format!("{},{}", pu % 4, pu % 4 + 4);
            let package = if pu % 4 < 2 { "0-1,4-5" } else { "2-3,6-7" };
            let file = |name: &str, text: &str| tree.write(&format!("cpu/cpu{pu}/{name}"), text);
            file("topology/core_cpus_list", &core);
            file("topology/package_cpus_list", package);
            for (index, level, kind, size, pus) in [
                (0, "1", "Data", "32K", &*core),
                (1, "1", "Instruction", "32K", &core),
                (2, "3", "Unified", "8192K", package),
            ] {
                let path = |name: &str| format!("cache/index{index}/{name}");
                file(&path("level"), level);
                file(&path("type"), kind);
                file(&path("size"), size);
                file(&path("shared_cpu_list"), pus);
            }
        }
        tree.write("node/online", "0-1");
        for (node, pus, distance) in [(0, "0-1,4-5", "10 21"), (1, "2-3,6-7", "21 10")] {
            let file =
                |name: &str, text: &str| tree.write(&format!("node/node{node}/{name}"), text);
            file("cpulist", pus);
            file("distance", distance);
            file(
                "meminfo",
                &format!("Node {node} MemTotal:       1048576 kB\nNode {node} MemFree: 1 kB\n"),
            );
        }
        tree
    }

    fn read(tree: &Tree) -> Machine {
        MachineParts { name: "tree".into(), ..tree.files().tree_parts() }.assemble().unwrap()
    }

    #[test]
    fn packages_caches_cores_and_nodes_are_read() {
        let expected = "tree\n2 packages, 2 nodes, 4 cores, 8 PUs, 2 GiB\n\n\
                        package 0, node 0  1 GiB\n  L3 8 MiB  [0 4] [1 5]\n\
                        package 1, node 1  1 GiB\n  L3 8 MiB  [2 6] [3 7]\n  [a b] a core with its PUs\n\n\
                        caches\n  L1d  32 KiB  x 4    each over one core\n  L1i  32 KiB  x 4    each over one core\n  \
                        L3    8 MiB  x 2    each over 2 cores\n\n\
                        nodes and distances\n  node 0   1 GiB  PUs 0-1,4-5  10 21\n  node 1   1 GiB  PUs 2-3,6-7  21 10\n";
        assert_eq!(picture(&read(&machine()), None), expected);
    }

    /// Files that are read while a PU goes: its sibling does not list it any more, and it lists itself alone or nothing.
    #[test]
    fn lists_that_contradict_each_other_make_a_machine() {
        let tree = machine();
        tree.write("cpu/cpu3/topology/core_cpus_list", "3");
        tree.write("cpu/cpu6/topology/core_cpus_list", "nonsense");
        tree.write("cpu/cpu7/topology/package_cpus_list", "");
        tree.write("node/node1/cpulist", "2-3,6");
        let machine = read(&tree);
        assert_eq!((machine.check(), machine.pus.len()), (Ok(()), 8));
    }

    fn node(os: u32, pus: &str) -> NodePart {
        let (memory, pus) = (Some(Bytes::mib(1)), PuSet::parse_list(pus).unwrap());
        NodePart { os: NodeNr(os), memory, pus, may_be_home: true }
    }

    /// As hwloc has nodes that cross packages: each beside all PUs.
    #[test]
    fn nodes_have_the_pus_of_the_kernels_lists() {
        let lists = [("node/node0/cpulist", "0-1,4-5\n"), ("node/node1/cpulist", "2-3,6-7\n")];
        let tree = Tree::of("crossing", &lists);
        let mut parts = MachineParts {
            pus: (0..8).map(PuNr).collect(),
            packages: [0..4, 4..8].map(|pus| pus.map(PuNr).collect()).to_vec(),
            nodes: vec![node(0, "0-7"), node(1, "0-7")],
            ..MachineParts::default()
        };
        tree.files().complete(&mut parts);
        let machine = parts.assemble().unwrap();
        let homes = [0, 1].map(|node| {
            let pus = machine.home_pus(crate::ids::NodeIdx(node));
            pus.map(|pu| machine.pus[pu.idx()].os).collect::<PuSet>().to_string()
        });
        assert_eq!(homes, ["0-1,4-5", "2-3,6-7"]);
    }

    /// hwloc has a node without PUs beside those of the nearest other one, which is their home all the same.
    #[test]
    fn a_node_without_pus_is_no_home() {
        let lists = [("node/node0/cpulist", "0-1\n"), ("node/node1/cpulist", "\n")];
        let tree = Tree::of("no-home", &lists);
        let mut parts = MachineParts {
            pus: vec![PuNr(0), PuNr(1)],
            nodes: vec![NodePart { memory: Some(Bytes(0)), ..node(0, "0-1") }, node(1, "0-1")],
            ..MachineParts::default()
        };
        tree.files().complete(&mut parts);
        let machine = parts.assemble().unwrap();
        assert_eq!(machine.cores[0].node.map(|node| node.0), Some(0));
        assert_eq!(machine.memory_nodes()[0].map(|node| node.0), Some(1));
    }

    /// As a virtual machine may have them: siblings in two nodes.
    #[test]
    fn a_core_in_two_nodes_is_in_neither() {
        let lists = [("node/node0/cpulist", "0\n"), ("node/node1/cpulist", "1\n")];
        let tree = Tree::of("split", &lists);
        let pus = || vec![PuNr(0), PuNr(1)];
        let nodes = vec![node(0, "0-1"), node(1, "0-1")];
        let mut parts =
            MachineParts { pus: pus(), cores: vec![pus()], nodes, ..MachineParts::default() };
        tree.files().complete(&mut parts);
        assert_eq!(parts.assemble().unwrap().cores[0].node, None);
    }
}
