//! How fast the parts of a described machine are: the table `performance`.

use super::figure::{Figure, Text};
use super::{DescribedError, misfit};
use crate::cpulist::PuSet;
use crate::ids::PuNr;
use crate::machine::Machine;
use crate::performance::{
    CachePerformance, CorePerformance, Impossible, Inclusion, LinkPerformance, MemoryPerformance,
    Part, Performance, PortSet, Replacement, Unit, WorkKind,
};
use crate::units::{Bytes, BytesPerSecond, Cycles, Hertz, Nanos};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Most accesses that cross the links of a machine, each counted at every link that it crosses: those of 1,024 nodes to
/// each other, over four links.
const MAX_CROSSINGS: usize = 1 << 22;

/// The table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Speeds {
    kind: Vec<KindSpeed>,
    cache: Vec<CacheSpeed>,
    /// One for all nodes, or one for each.
    memory: Vec<MemorySpeed>,
    /// What an access to another node takes longer: by pair of nodes, or by their distance.
    hops: Option<Figure<Vec<Vec<Text<Nanos>>>>>,
    hops_by_distance: Option<Figure<BTreeMap<String, Text<Nanos>>>>,
    #[serde(default)]
    links: Vec<LinkGroup>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct KindSpeed {
    /// Which `[[kind]]`; may be left out where there is one.
    name: Option<String>,
    clock: Figure<Text<Hertz>>,
    llvm_cpu: Option<Figure<String>>,
    slots_per_cycle: Figure<f64>,
    branch_miss: Figure<Text<Cycles>>,
    divided: Figure<bool>,
    thread_sets: Option<Figure<u32>>,
    ports: Figure<Vec<String>>,
    units: Vec<UnitSpeed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnitSpeed {
    work: WorkKind,
    ports: Vec<String>,
    /// 1 cycle if it is not said: pipelined.
    occupancy: Option<Text<Cycles>>,
    #[serde(rename = "source")]
    _source: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheSpeed {
    level: u8,
    latency: Figure<Text<Cycles>>,
    /// May be left out for level 1, which has nothing nearer.
    inclusion: Option<Figure<Inclusion>>,
    /// Least recently used if it is not said.
    replacement: Option<Figure<Replacement>>,
    bandwidth: Option<Figure<Text<BytesPerSecond>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemorySpeed {
    latency: Figure<Text<Nanos>>,
    bandwidth: Figure<Text<BytesPerSecond>>,
    line: Figure<Text<Bytes>>,
}

/// Links of one bandwidth.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkGroup {
    bandwidth: Figure<Text<BytesPerSecond>>,
    /// A link a line: its name, a colon, and the accesses that cross it, `0>1 0>4-7`.
    routes: Figure<Vec<String>>,
}

impl Speeds {
    /// The speeds of `machine`, checked.
    pub(super) fn performance(&self, machine: &Machine) -> Result<Performance, DescribedError> {
        let nodes = machine.nodes.len().max(1);
        let order = self.order(machine)?;
        let kind = |&at: &usize| self.kind[at].performance(at);
        let (mut links, mut room) = (Vec::new(), MAX_CROSSINGS);
        for (index, group) in self.links.iter().enumerate() {
            let key = format!("performance.links[{index}].routes");
            links.extend(group.links(&key, nodes, &mut room)?);
        }
        let performance = Performance {
            kinds: order.iter().map(kind).collect::<Result<_, _>>()?,
            caches: self.caches()?,
            memory: self.memories(nodes),
            hops: self.hops(machine, nodes)?,
            links,
        };
        match performance.check(machine) {
            Ok(()) => Ok(performance),
            Err(impossible) => Err(self.misfit(impossible, &order)),
        }
    }

    /// The places of the machine's kinds here.
    fn order(&self, machine: &Machine) -> Result<Vec<usize>, DescribedError> {
        let names: Vec<&str> = machine.kinds.iter().map(|kind| &*kind.name).collect();
        if self.kind.len() != names.len() {
            let expected = format!("one for each kind of core: {}", names.join(", "));
            return Err(misfit("performance.kind", expected, self.kind.len()));
        }
        let mut order = vec![None; names.len()];
        for (index, kind) in self.kind.iter().enumerate() {
            let place = match &kind.name {
                None if names.len() == 1 => Some(0),
                name => names.iter().position(|found| Some(*found) == name.as_deref()),
            };
            let free = place.filter(|&place| order[place].is_none());
            let Some(place) = free else {
                let expected = format!("each kind of core once: {}", names.join(", "));
                let found = kind.name.as_deref().unwrap_or("none");
                return Err(misfit(format!("performance.kind[{index}].name"), expected, found));
            };
            order[place] = Some(index);
        }
        Ok(order.into_iter().flatten().collect())
    }

    fn caches(&self) -> Result<Vec<CachePerformance>, DescribedError> {
        let cache = |(index, cache): (usize, &CacheSpeed)| {
            let inclusion = match &cache.inclusion {
                Some(inclusion) => inclusion.value,
                None if cache.level == 1 => Inclusion::Neither,
                None => {
                    let key = format!("performance.cache[{index}].inclusion");
                    return Err(misfit(key, "inclusive, exclusive or neither", "none"));
                }
            };
            Ok(CachePerformance {
                level: cache.level,
                latency: cache.latency.value.0,
                inclusion,
                replacement: cache.replacement.as_ref().map(|it| it.value).unwrap_or_default(),
                bandwidth: cache.bandwidth.as_ref().map(|bandwidth| bandwidth.value.0),
            })
        };
        self.cache.iter().enumerate().map(cache).collect()
    }

    fn memories(&self, nodes: usize) -> Vec<MemoryPerformance> {
        let memory = |memory: &MemorySpeed| MemoryPerformance {
            latency: memory.latency.value.0,
            bandwidth: memory.bandwidth.value.0,
            line: memory.line.value.0,
        };
        match &self.memory[..] {
            [one] => vec![memory(one); nodes],
            some => some.iter().map(memory).collect(),
        }
    }

    fn hops(&self, machine: &Machine, nodes: usize) -> Result<Vec<Vec<Nanos>>, DescribedError> {
        match (&self.hops, &self.hops_by_distance) {
            (None, None) if nodes == 1 => Ok(vec![vec![Nanos::ZERO]]),
            (Some(hops), None) => {
                let row = |row: &Vec<Text<Nanos>>| row.iter().map(|hop| hop.0).collect();
                Ok(hops.value.iter().map(row).collect())
            }
            (None, Some(hops)) => by_distance(&hops.value, machine),
            (None, None) => {
                Err(misfit("performance.hops", "hops or hops-by-distance of the nodes", "neither"))
            }
            (Some(_), Some(_)) => {
                Err(misfit("performance.hops-by-distance", "it or hops alone", "both"))
            }
        }
    }

    /// An impossible figure under the name that it has in the description.
    fn misfit(&self, impossible: Impossible, order: &[usize]) -> DescribedError {
        let Impossible { part, field, expected, found } = impossible;
        let kind = |kind: usize| format!("kind[{}]", order.get(kind).copied().unwrap_or(kind));
        let part = match part {
            Part::Kinds => "kind".into(),
            Part::Kind(index) => kind(index),
            Part::Unit(index, unit) => format!("{}.units[{unit}]", kind(index)),
            Part::Caches => "cache".into(),
            Part::Cache(level) => format!("cache[{level}]"),
            Part::Memories => "memory".into(),
            Part::Memory(node) => {
                format!("memory[{}]", if self.memory.len() == 1 { 0 } else { node })
            }
            Part::Hops if self.hops.is_some() => "hops".into(),
            Part::Hops => "hops-by-distance".into(),
            Part::Link(link) => self.link(link, field == "bandwidth"),
        };
        let field = match field {
            "width" => ".slots-per-cycle".into(),
            "branch_miss" => ".branch-miss".into(),
            "thread_sets" => ".thread-sets".into(),
            "name" | "crossed_by" | "" => String::new(),
            // A link's bandwidth has its group named already.
            "bandwidth" if part.starts_with("links") => String::new(),
            field => format!(".{field}"),
        };
        misfit(format!("performance.{part}{field}"), expected, found)
    }

    /// The group's bandwidth, or the route, of a link.
    fn link(&self, mut link: usize, bandwidth: bool) -> String {
        for (index, group) in self.links.iter().enumerate() {
            let routes = group.routes.value.len();
            if link < routes {
                let figure = if bandwidth { "bandwidth".into() } else { format!("routes[{link}]") };
                return format!("links[{index}].{figure}");
            }
            link -= routes;
        }
        "links".into()
    }
}

impl KindSpeed {
    fn performance(&self, at: usize) -> Result<CorePerformance, DescribedError> {
        let unit = |(index, unit): (usize, &UnitSpeed)| {
            let ports = self.port_set(&unit.ports).map_err(|unknown| {
                let key = format!("performance.kind[{at}].units[{index}].ports");
                misfit(key, format!("names out of {}", self.ports.value.join(", ")), unknown)
            })?;
            let occupancy = unit.occupancy.map_or(Cycles(1.0), |cycles| cycles.0);
            Ok::<_, DescribedError>(Unit { kind: unit.work, ports, occupancy })
        };
        Ok(CorePerformance {
            clock: self.clock.value.0,
            llvm_cpu: self.llvm_cpu.as_ref().map(|cpu| cpu.value.clone()),
            width: self.slots_per_cycle.value,
            ports: self.ports.value.clone(),
            units: self.units.iter().enumerate().map(unit).collect::<Result<_, _>>()?,
            branch_miss: self.branch_miss.value.0,
            divided: self.divided.value,
            thread_sets: self.thread_sets.as_ref().map_or(1, |sets| sets.value),
        })
    }

    /// Ports by their names, or the name that is none.
    fn port_set<'a>(&self, names: &'a [String]) -> Result<PortSet, &'a str> {
        names.iter().try_fold(PortSet::default(), |set, name| {
            let place = self.ports.value.iter().position(|port| port == name);
            let bit = place.and_then(|place| 1_u32.checked_shl(place.try_into().ok()?));
            bit.map(|bit| set.union(PortSet(bit))).ok_or(&**name)
        })
    }
}

impl LinkGroup {
    /// Its links between `nodes` nodes. They take of `room`, which is how many more accesses may cross links.
    fn links(
        &self,
        key: &str,
        nodes: usize,
        room: &mut usize,
    ) -> Result<Vec<LinkPerformance>, DescribedError> {
        let link = |(index, text): (usize, &String)| {
            let wrong = |(expected, found)| misfit(format!("{key}[{index}]"), expected, found);
            let (name, crossed_by) = route(text, nodes, room).map_err(wrong)?;
            let bandwidth = self.bandwidth.value.0;
            Ok(LinkPerformance { name: name.into(), crossed_by, bandwidth })
        };
        self.routes.value.iter().enumerate().map(link).collect()
    }
}

/// A link's name, and the accesses that cross it.
type Route<'a> = (&'a str, Vec<(u32, u32)>);

/// `0 to 1: 0>1 0>4-7` as a route; else what was expected and what was found.
fn route<'a>(text: &'a str, nodes: usize, room: &mut usize) -> Result<Route<'a>, (String, String)> {
    let wrong = || ("a link like \"0 to 1: 0>1 0>4-7\"".to_owned(), format!("\"{text}\""));
    let (name, ways) = text.split_once(": ").ok_or_else(wrong)?;
    let mut crossed_by = Vec::new();
    for way in ways.split_whitespace() {
        let (from, to) = ends(way).ok_or_else(wrong)?;
        if from.iter().chain(to.iter()).any(|node| node.idx() >= nodes) {
            return Err((format!("two different nodes below {nodes}"), way.into()));
        }
        let full = || (format!("at most {MAX_CROSSINGS} accesses across links"), "more".into());
        *room = room.checked_sub(from.len() * to.len()).ok_or_else(full)?;
        let pairs = |from: PuNr| to.iter().map(move |to| (from.0, to.0));
        crossed_by.extend(from.iter().flat_map(pairs));
    }
    Ok((name, crossed_by))
}

/// `0-1>4` as two sets of nodes, which are written like CPUs.
fn ends(way: &str) -> Option<(PuSet, PuSet)> {
    let (from, to) = way.split_once('>')?;
    Some((PuSet::parse_list(from).ok()?, PuSet::parse_list(to).ok()?))
}

/// Detours from the distances that the firmware reports.
fn by_distance(
    hops: &BTreeMap<String, Text<Nanos>>,
    machine: &Machine,
) -> Result<Vec<Vec<Nanos>>, DescribedError> {
    let key = "performance.hops-by-distance";
    let Some(distances) = &machine.distances else {
        return Err(misfit(key, "memory.distances", "none"));
    };
    let hop = |from: usize, to: usize, distance: u32| match hops.get(&distance.to_string()) {
        _ if from == to => Ok(Nanos::ZERO),
        Some(hop) => Ok(hop.0),
        None => Err(misfit(key, format!("a time for the distance {distance}"), "none")),
    };
    let rows = distances.rows.iter().enumerate();
    let row = |(from, row): (usize, &Vec<u32>)| {
        row.iter().enumerate().map(|(to, &distance)| hop(from, to, distance)).collect()
    };
    rows.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link among 1,024 nodes takes a few bytes of text, and the accesses of half of them to the others 2¹⁸ pairs.
    #[test]
    fn accesses_across_all_links_are_limited() {
        let text = "a: 0-511>512-1023";
        let mut room = MAX_CROSSINGS;
        for _ in 0..16 {
            assert_eq!(route(text, 1024, &mut room).map(|(_, pairs)| pairs.len()), Ok(1 << 18));
        }
        let (expected, found) = route(text, 1024, &mut room).expect_err("no room");
        assert_eq!((&*expected, &*found), ("at most 4194304 accesses across links", "more"));
    }
}
