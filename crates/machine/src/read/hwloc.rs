//! Machines read by hwloc: the live machine and synthetic machines.

use crate::check::MAX_PUS;
use crate::cpulist::{MAX_PU_NR, PuSet};
use crate::ids::{NodeNr, PuNr};
use crate::machine::CacheKind;
use crate::parts::{CachePart, DistancePart, KindPart, MachineParts, NodePart};
use crate::read::child;
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
/// that Linux runs on. hwloc itself would allocate any amount of memory.
const MAX_SYNTHETIC: u64 = 131_072;

/// Most words of PU sets that hwloc compares to build a synthetic machine: it searches the place of
/// each part among all siblings, level by level. On one core of a Xeon, 0.3 thousand million
/// (`pu:2200`) took 0.4 s, 2.3 (`numa:1024 pu:8`) 1.1 s, 19 (`pack:256 core:128 pu:1`) 40 s.
const MAX_WORDS: u64 = 3_000_000_000;

/// Types of caches, in the order of the machine's caches.
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

/// Reads this machine, including PUs that this process may not use.
pub(crate) fn live() -> Result<MachineParts, ReadError> {
    // `None`: hwloc is configured to show another machine.
    let answer = child::answer(|| {
        let topology = load(Topology::builder())?;
        Ok(topology.is_this_system().then(|| parts(&topology)))
    });
    answer.and_then(|parts| parts).map_err(ReadError::Hwloc)?.ok_or(ReadError::Elsewhere)
}

/// Builds the machine of one of hwloc's synthetic strings.
pub(crate) fn synthetic(text: &str) -> Result<MachineParts, ReadError> {
    let found: String = text.chars().take(60).collect();
    let malformed = || {
        let expected = "a synthetic machine like \"pack:2 core:8 pu:2\"";
        ReadError::Synthetic(format!("expected {expected}, found \"{found}\""))
    };
    let size = SyntheticSize::of(text).ok_or_else(malformed)?;
    size.check().map_err(|most| {
        let expected = format!("expected a synthetic machine of {most}");
        ReadError::Synthetic(format!("{expected}, found more in \"{found}\""))
    })?;
    let answer = child::answer(|| {
        let builder = Topology::builder().from_synthetic(text).ok()?;
        Some(parts(&load(builder).ok()?))
    });
    match answer {
        Ok(Some(parts)) => Ok(MachineParts { name: text.into(), ..parts }),
        Ok(None) => Err(malformed()),
        Err(reason) => Err(ReadError::Synthetic(format!(
            "hwloc cannot make the synthetic machine \"{found}\": {reason}"
        ))),
    }
}

/// Upper bounds on the work of hwloc for a synthetic string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SyntheticSize {
    /// Parts, all levels together.
    parts: u64,
    /// Parts of the last level: the PUs.
    pus: u64,
    /// Siblings with which a new part may be compared, all levels together.
    siblings: u64,
}

impl SyntheticSize {
    /// Computes the size of `text`; `None` for a string outside the accepted syntax.
    ///
    /// Parses as hwloc does (`hwloc_backend_synthetic_init`). A level is a type, a colon and a
    /// count, or a count alone, followed by attributes in parentheses. A blank before the next
    /// level is optional. Memory in brackets is attached to every part of the level before. hwloc
    /// parses counts like C; hexadecimal and octal counts are not accepted here.
    fn of(text: &str) -> Option<Self> {
        let mut found = Self { parts: 1, pus: 1, siblings: 0 };
        let mut rest = after_attributes(text)?.trim_start();
        while !rest.is_empty() {
            if let Some(attached) = rest.strip_prefix('[') {
                let (attached, behind) = attached.split_once(']')?;
                after_attributes(attached.get(attached.find('(').unwrap_or(attached.len())..)?)?;
                found.siblings = found.siblings.saturating_add(1);
                rest = behind;
            } else {
                let bare = rest.starts_with(|first: char| first.is_ascii_digit());
                let count = if bare { rest } else { rest.split_once(':')?.1.trim_start() };
                let end =
                    count.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(count.len());
                let (digits, behind) = count.split_at(end);
                if digits.is_empty() || digits.starts_with('0') {
                    return None;
                }
                // Overflow of the parser: more than any limit.
                let count = digits.parse().unwrap_or(u64::MAX);
                found.pus = found.pus.saturating_mul(count);
                found.siblings = found.siblings.saturating_add(count);
                rest = after_attributes(behind)?;
            }
            found.parts = found.parts.saturating_add(found.pus);
            rest = rest.trim_start();
        }
        Some(found)
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// The limit exceeded.
    fn check(self) -> Result<(), String> {
        if self.parts > MAX_SYNTHETIC {
            return Err(format!("at most {MAX_SYNTHETIC} parts"));
        }
        if self.pus > MAX_PUS as u64 {
            return Err(format!("at most {MAX_PUS} PUs"));
        }
        // hwloc adds a level of cores if there is none.
        let compared = self.parts.saturating_add(self.pus).saturating_mul(self.siblings);
        // A set of PUs has a word for every 64.
        if compared.saturating_mul(self.pus / 64 + 1) > MAX_WORDS {
            return Err("parts with fewer siblings each, so that hwloc takes seconds".to_owned());
        }
        Ok(())
    }
}

/// Rest of `text` after its leading attributes, if any. `None` if the attributes do not end, or
/// have an index beyond every part: hwloc allocates memory for all indexes below. Attributes end at
/// the first closing parenthesis, even within nested ones.
fn after_attributes(text: &str) -> Option<&str> {
    let Some(inside) = text.strip_prefix('(') else { return Some(text) };
    let (attributes, behind) = inside.split_once(')')?;
    let indexes = attributes.split_once("indexes").map_or("", |(_, indexes)| indexes);
    let indexes = indexes.split(' ').next().unwrap_or_default();
    let mut numbers = indexes.split(|letter: char| !letter.is_ascii_digit());
    let fits = numbers
        .all(|number| number.is_empty() || number.parse().is_ok_and(|nr: u32| nr <= MAX_PU_NR));
    fits.then_some(behind)
}

/// Loads a topology with all PUs, including those that this process may not use, and all caches.
/// Call only in a child process ([`child::answer`]).
///
/// # Errors
/// Message of hwloc.
pub(crate) fn load(builder: TopologyBuilder) -> Result<Topology, String> {
    builder
        // By default hwloc binds its thread to one PU after another, and at the end to the PUs
        // found: programs started later would never use a PU that is offline now.
        .with_flags(BuildFlags::INCLUDE_DISALLOWED | BuildFlags::DONT_CHANGE_BINDING)
        .map_err(|error| error.to_string())?
        .with_cpu_cache_type_filter(TypeFilter::KeepAll)
        .map_err(|error| error.to_string())?
        .build()
        .map_err(|error| error.to_string())
}

/// Converts a loaded topology to parts.
pub(crate) fn parts(topology: &Topology) -> MachineParts {
    let cores = topology.objects_with_type(ObjectType::Core);
    let packages = topology.objects_with_type(ObjectType::Package);
    let online = pu_set(&topology.cpuset());
    let root = topology.root_object();
    MachineParts {
        name: info(root, c"HostName").unwrap_or_default(),
        processor: processor(topology),
        pus: topology.objects_with_type(ObjectType::PU).filter_map(pu_number).collect(),
        offline: pu_set(&topology.complete_cpuset()).difference(&online),
        cores: cores.map(pus_of).collect(),
        packages: packages.map(pus_of).collect(),
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
    // Sets of hwloc may be infinite.
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

/// Value of an info of an object; `None` if absent or blank.
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
        // hwloc has no size both for no memory and for unknown; `parts::nodes` decides which.
        Some(ObjectAttributes::NUMANode(numa)) => numa.local_memory().map_or(0, u64::from),
        _ => 0,
    };
    let os = NodeNr::new(object.os_index()?);
    Some(NodePart { os, memory: Some(Bytes(memory)), pus: set_of(object), may_be_home: true })
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

/// Kinds of cores in hwloc's order, which is by efficiency if known.
fn core_kinds(topology: &Topology) -> Vec<KindPart> {
    let Ok(found) = topology.cpu_kinds() else { return Vec::new() };
    let facts = found.map(|kind| KindFacts {
        pus: pu_set(&kind.cpuset),
        efficiency: kind.efficiency.and_then(|rank| u32::try_from(rank).ok()),
        infos: kind
            .infos
            .iter()
            .map(|info| [info.name(), info.value()].map(|text| text.to_string_lossy().into_owned()))
            .map(|[name, value]| (name, value))
            .collect(),
    });
    kinds::ranked(facts.collect())
}

/// The first matrix of latencies between NUMA nodes.
fn distances(topology: &Topology) -> Option<DistancePart> {
    let kind = Some(DistancesKind::MEANS_LATENCY);
    let all = topology.distances_with_type(kind, ObjectType::NUMANode).ok()?;
    let matrix = all.first()?;
    let numbers = matrix.objects().map(|node| node?.os_index().map(NodeNr::new));
    let nodes = numbers.collect::<Option<Vec<_>>>()?;
    Some(DistancePart { nodes, values: matrix.distances().to_vec() })
}

#[cfg(test)]
mod tests {
    use super::SyntheticSize;

    fn parts(text: &str) -> Option<u64> {
        SyntheticSize::of(text).map(|size| size.parts)
    }

    #[test]
    fn synthetic_size_bounds_every_level() {
        // 1 machine + 2 packages + 16 cores + 32 PUs.
        let size = SyntheticSize { parts: 51, pus: 32, siblings: 12 };
        assert_eq!(SyntheticSize::of("pack:2 core:8 pu:2"), Some(size));
        // Bare counts, attributes and attached nodes.
        assert_eq!(parts("2 [numa(memory=8GB)] l3:2(size=4MB) 4"), Some(1 + 2 + 2 + 4 + 16));
        // Without blanks, and with attributes of the machine.
        assert_eq!(parts("(memory=1GB)pack:3core:5(a=(b)pu:7 "), Some(1 + 3 + 15 + 105));
        assert_eq!(parts("pack: 3"), Some(4));
        assert_eq!(parts("pack:9999core:9999pu:9"), Some(1 + 9_999 + 9_999 * 9_999 * 10));
        let too_many = ["pu:99999999999999999999", "pack:4294967296 core:4294967296"];
        assert_eq!(too_many.map(parts), [Some(u64::MAX); 2]);
    }

    #[test]
    fn what_hwloc_would_take_minutes_for_is_refused() {
        let check = |text| SyntheticSize::of(text).unwrap().check();
        for text in ["pu:4000000000", "pack:65536 core:65536 pu:65536", "pack:257 core:256 pu:1"] {
            assert!(check(text).is_err(), "{text}");
        }
        for text in [
            "pu:8192",
            "core:8192 pu:1",
            "l3:8192 l2:1 l1:1 core:1 pu:1",
            "numa:8192 pu:1",
            "pack:256 core:128 pu:1",
        ] {
            assert!(check(text).unwrap_err().contains("siblings"), "{text}");
        }
        for text in
            ["pack:64 core:64 pu:2", "numa:1024 pu:8", "pack:2 l3:12 core:8 pu:2", "pu:2048"]
        {
            check(text).unwrap();
        }
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
            "core:2 pu:2(indexes=4294967295,1,2,3)",
            "pu:2(memory=1GB indexes=0,65536)",
            "(indexes=99999)pu:2",
            "pack:2 [numa(indexes=99999,1)] pu:2",
        ] {
            assert_eq!(SyntheticSize::of(text), None, "{text}");
        }
        // To hwloc the attributes end at the first parenthesis.
        let hidden = "pack:2(indexes=() core:1000000 pu:1000";
        assert_eq!(parts(hidden), Some(1 + 2 + 2_000_000 + 2_000_000_000));
        assert_eq!(parts("pu:4(memory=99999999999 indexes=2*2:1*2)"), Some(5));
    }
}
