//! Machines as hwloc sees them: the live one and synthetic ones.

use crate::cpulist::{MAX_PU_NR, PuSet};
use crate::ids::{NodeNr, PuNr};
use crate::machine::CacheKind;
use crate::parts::{CachePart, DistancePart, KindPart, NodePart, Parts};
use crate::read::error::ReadError;
use crate::read::kinds::{self, KindFacts};
use crate::units::Bytes;
use hwlocality::Topology;
use hwlocality::cpu::cpuset::CpuSet;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::distance::DistancesKind;
use hwlocality::object::types::{CacheType, ObjectType};
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder, TypeFilter};

/// Most parts of a synthetic machine, all levels together: 16 times the PUs of the largest machine
/// that Linux runs on. hwloc itself would take whatever memory the string asks for.
const MAX_SYNTHETIC: u64 = 131_072;

const CACHES: [ObjectType; 8] = [
    ObjectType::L1Cache,
    ObjectType::L2Cache,
    ObjectType::L3Cache,
    ObjectType::L4Cache,
    ObjectType::L5Cache,
    ObjectType::L1ICache,
    ObjectType::L2ICache,
    ObjectType::L3ICache,
];

/// This machine, with PUs that this process may not use.
pub(crate) fn live() -> Result<Parts, ReadError> {
    let topology = load(Topology::builder())?;
    if !topology.is_this_system() {
        return Err(ReadError::Elsewhere);
    }
    Ok(parts(&topology))
}

/// The machine that hwloc's synthetic string describes.
pub(crate) fn synthetic(text: &str) -> Result<Parts, ReadError> {
    let found = || text.chars().take(60).collect::<String>();
    let size = synthetic_size(text).ok_or_else(|| ReadError::Synthetic { found: found() })?;
    if size > MAX_SYNTHETIC {
        return Err(ReadError::SyntheticSize { limit: MAX_SYNTHETIC, found: found() });
    }
    let builder = Topology::builder()
        .from_synthetic(text)
        .map_err(|_| ReadError::Synthetic { found: found() })?;
    let topology = load(builder).map_err(|_| ReadError::Synthetic { found: found() })?;
    let mut parts = parts(&topology);
    parts.name = text.into();
    Ok(parts)
}

/// How many parts hwloc makes of `text`, all levels together, at most; `None` if it is none of the strings that are
/// let through to hwloc.
///
/// Reads as hwloc does (`hwloc_backend_synthetic_init`): a level is a type, a colon and a count, or a count alone,
/// with attributes in parentheses behind it; the next one may follow without a blank. Memory in brackets is attached
/// to every part of the level before. hwloc reads counts like C, hexadecimal and octal ones too, which are not let
/// through.
fn synthetic_size(text: &str) -> Option<u64> {
    let (mut size, mut all) = (1_u64, 1_u64);
    let mut rest = after_attributes(text)?.trim_start();
    while !rest.is_empty() {
        if let Some(attached) = rest.strip_prefix('[') {
            rest = attached.split_once(']')?.1;
        } else {
            let bare = rest.starts_with(|first: char| first.is_ascii_digit());
            let count = if bare { rest } else { rest.split_once(':')?.1.trim_start() };
            let end = count.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(count.len());
            let (digits, behind) = count.split_at(end);
            if digits.is_empty() || digits.starts_with('0') {
                return None;
            }
            // More digits than fit are more than fits.
            size = size.saturating_mul(digits.parse().unwrap_or(u64::MAX));
            rest = after_attributes(behind)?;
        }
        all = all.saturating_add(size);
        rest = rest.trim_start();
    }
    Some(all)
}

/// What follows the attributes with which `text` begins, if it does; `None` if they do not end. They end at the first
/// closing parenthesis, whatever was opened before.
fn after_attributes(text: &str) -> Option<&str> {
    match text.strip_prefix('(') {
        Some(inside) => inside.split_once(')').map(|(_, behind)| behind),
        None => Some(text),
    }
}

/// Loads a topology with all PUs, also those that this process may not use, and all caches.
pub(crate) fn load(builder: TopologyBuilder) -> Result<Topology, ReadError> {
    let wrong = |reason: Box<dyn std::error::Error + Send + Sync>| ReadError::Hwloc { reason };
    builder
        // Left to itself hwloc binds its thread to one PU after the other, and at the end to those that
        // it found: programs that we start later would never use a PU that is offline now.
        .with_flags(BuildFlags::INCLUDE_DISALLOWED | BuildFlags::DONT_CHANGE_BINDING)
        .map_err(|error| wrong(error.into()))?
        .with_cpu_cache_type_filter(TypeFilter::KeepAll)
        .map_err(|error| wrong(error.into()))?
        .build()
        .map_err(|error| wrong(error.into()))
}

/// The parts of a loaded topology.
pub(crate) fn parts(topology: &Topology) -> Parts {
    let sets = |ty| topology.objects_with_type(ty).map(pus_of).collect();
    let online = pu_set(&topology.cpuset());
    let root = topology.root_object();
    Parts {
        name: info(root, c"HostName").unwrap_or_default(),
        processor: processor(topology),
        pus: topology.objects_with_type(ObjectType::PU).filter_map(pu_number).collect(),
        offline: pu_set(&topology.complete_cpuset()).difference(&online),
        cores: sets(ObjectType::Core),
        packages: sets(ObjectType::Package),
        nodes: topology.objects_with_type(ObjectType::NUMANode).filter_map(node).collect(),
        caches: CACHES
            .iter()
            .flat_map(|&ty| topology.objects_with_type(ty).filter_map(cache))
            .collect(),
        kinds: core_kinds(topology),
        distances: distances(topology),
    }
}

fn pu_set(set: &CpuSet) -> PuSet {
    let numbers = set.iter_set().map(usize::from).take_while(|&nr| nr <= MAX_PU_NR as usize);
    numbers.map(PuNr::new).collect()
}

fn set_of(object: &TopologyObject) -> PuSet {
    object.cpuset().map(|set| pu_set(&set)).unwrap_or_default()
}

fn pus_of(object: &TopologyObject) -> Vec<PuNr> {
    set_of(object).iter().collect()
}

fn pu_number(pu: &TopologyObject) -> Option<PuNr> {
    pu.os_index().map(PuNr::new)
}

fn info(object: &TopologyObject, key: &std::ffi::CStr) -> Option<String> {
    let found = object.infos().iter().find(|info| info.name() == key)?;
    let text = found.value().to_string_lossy().trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn processor(topology: &Topology) -> Option<String> {
    let packages = topology.objects_with_type(ObjectType::Package);
    packages.chain([topology.root_object()]).find_map(|object| info(object, c"CPUModel"))
}

fn node(object: &TopologyObject) -> Option<NodePart> {
    let memory = match object.attributes() {
        Some(ObjectAttributes::NUMANode(numa)) => numa.local_memory().map_or(0, u64::from),
        _ => 0,
    };
    let os = NodeNr::new(object.os_index()?);
    Some(NodePart { os, memory: Some(Bytes(memory)), pus: set_of(object) })
}

fn cache(object: &TopologyObject) -> Option<CachePart> {
    let Some(ObjectAttributes::Cache(cache)) = object.attributes() else { return None };
    let kind = match cache.cache_type() {
        CacheType::Data => CacheKind::Data,
        CacheType::Instruction => CacheKind::Instruction,
        _ => CacheKind::Unified,
    };
    let level = u8::try_from(cache.depth()).ok()?;
    let size = Bytes(cache.size().map_or(0, u64::from));
    Some(CachePart { level, kind, size, pus: pus_of(object) })
}

/// Kinds in hwloc's order, which is by efficiency where it knows one.
fn core_kinds(topology: &Topology) -> Vec<KindPart> {
    let Ok(found) = topology.cpu_kinds() else { return Vec::new() };
    let text = |bytes: &std::ffi::CStr| bytes.to_string_lossy().into_owned();
    let facts = found.map(|kind| KindFacts {
        pus: pu_set(&kind.cpuset),
        efficiency: kind.efficiency.and_then(|rank| u32::try_from(rank).ok()),
        infos: kind.infos.iter().map(|info| (text(info.name()), text(info.value()))).collect(),
    });
    kinds::ranked(facts.collect())
}

fn distances(topology: &Topology) -> Option<DistancePart> {
    let kind = Some(DistancesKind::MEANS_LATENCY);
    let all = topology.distances_with_type(kind, ObjectType::NUMANode).ok()?;
    let matrix = all.first()?;
    let number = |node: Option<&TopologyObject>| node?.os_index().map(NodeNr::new);
    let nodes = matrix.objects().map(number).collect::<Option<Vec<_>>>()?;
    Some(DistancePart { nodes, values: matrix.distances().to_vec() })
}

#[cfg(test)]
mod tests {
    use super::synthetic_size;

    #[test]
    fn synthetic_size_bounds_every_level() {
        // 1 machine + 2 packages + 16 cores + 32 PUs.
        assert_eq!(synthetic_size("pack:2 core:8 pu:2"), Some(51));
        // Bare counts, attributes and attached nodes.
        assert_eq!(
            synthetic_size("2 [numa(memory=8GB)] l3:2(size=4MB) 4"),
            Some(1 + 2 + 2 + 4 + 16)
        );
        // Without blanks, and with attributes of the machine.
        assert_eq!(synthetic_size("(memory=1GB)pack:3core:5(a=(b)pu:7 "), Some(1 + 3 + 15 + 105));
        assert_eq!(synthetic_size("pack: 3"), Some(4));
        assert_eq!(synthetic_size("pack:9999core:9999pu:9"), Some(1 + 9_999 + 9_999 * 9_999 * 10));
        let too_many = ["pu:99999999999999999999", "pack:4294967296 core:4294967296"];
        assert_eq!(too_many.map(synthetic_size), [Some(u64::MAX); 2]);
    }

    /// Most of these hwloc reads, and some as more than they look like.
    #[test]
    fn other_strings_are_not_let_through() {
        for text in [
            "pu:0x10000000",
            "pu:010",
            "pu:0",
            "pu:+5",
            "pu:-18446744073441116160",
            "pu:",
            "pu",
            "pack:2(indexes=( core:1000000",
            "pack:2 [numa(memory=1GB) core:4",
        ] {
            assert_eq!(synthetic_size(text), None, "{text}");
        }
        // To hwloc the attributes end at the first parenthesis.
        let hidden = "pack:2(indexes=() core:1000000 pu:1000";
        assert_eq!(synthetic_size(hidden), Some(1 + 2 + 2_000_000 + 2_000_000_000));
    }
}
