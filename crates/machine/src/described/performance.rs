//! Table `performance` of a description: speeds of the parts of a machine.

use super::figure::{DescribedFigure, Text};
use super::{Misfit, misfit};
use crate::cpulist::PuSet;
use crate::machine::Machine;
use crate::performance::{
    CachePerformance, CorePerformance, ExecutionUnit, Impossible, Inclusion, LinkPerformance,
    MemoryPerformance, Performance, PerformancePart, PortSet, Replacement, WorkKind,
};
use crate::units::{Bytes, BytesPerSecond, Cycles, Hertz, Nanos};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Most accesses across the links of a machine, each counted at every link it crosses: 1,024 nodes,
/// each to every other, over four links.
const MAX_CROSSINGS: usize = 1 << 22;

/// Content of the table `performance`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PerformanceForm {
    kind: Vec<KindSpeed>,
    cache: Vec<CacheSpeed>,
    /// One entry for all nodes, or one for each.
    memory: Vec<MemorySpeed>,
    /// Extra latency of an access to another node, by pair of nodes.
    hops: Option<DescribedFigure<Vec<Vec<Text<Nanos>>>>>,
    /// The same by distance of the nodes; excludes `hops`.
    hops_by_distance: Option<DescribedFigure<BTreeMap<String, Text<Nanos>>>>,
    #[serde(default)]
    links: Vec<LinkGroup>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct KindSpeed {
    /// Name of the `[[kind]]`; optional on a machine of one kind.
    name: Option<String>,
    clock: DescribedFigure<Text<Hertz>>,
    llvm_cpu: Option<DescribedFigure<String>>,
    slots_per_cycle: DescribedFigure<f64>,
    branch_miss: DescribedFigure<Text<Cycles>>,
    divided: DescribedFigure<bool>,
    thread_sets: Option<DescribedFigure<u32>>,
    ports: DescribedFigure<Vec<String>>,
    units: Vec<UnitSpeed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnitSpeed {
    work: WorkKind,
    ports: Vec<String>,
    /// Defaults to 1 cycle: pipelined.
    occupancy: Option<Text<Cycles>>,
    #[serde(rename = "source")]
    _source: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheSpeed {
    level: u8,
    latency: DescribedFigure<Text<Cycles>>,
    /// Optional for level 1, the nearest level.
    inclusion: Option<DescribedFigure<Inclusion>>,
    /// Defaults to least recently used.
    replacement: Option<DescribedFigure<Replacement>>,
    bandwidth: Option<DescribedFigure<Text<BytesPerSecond>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemorySpeed {
    latency: DescribedFigure<Text<Nanos>>,
    bandwidth: DescribedFigure<Text<BytesPerSecond>>,
    line: DescribedFigure<Text<Bytes>>,
}

/// Links of the same bandwidth.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkGroup {
    bandwidth: DescribedFigure<Text<BytesPerSecond>>,
    /// One link a line: name, colon, and the accesses that cross the link, `0>1 0>4-7`.
    routes: DescribedFigure<Vec<String>>,
}

impl PerformanceForm {
    /// Builds and checks the speeds of `machine`.
    pub(super) fn performance(&self, machine: &Machine) -> Result<Performance, Misfit> {
        // A machine without nodes has one memory.
        let nodes = machine.nodes.len().max(1);
        let order = self.order(machine)?;
        let mut links = Vec::new();
        let mut room = MAX_CROSSINGS;
        for (index, group) in self.links.iter().enumerate() {
            let key = format!("performance.links[{index}].routes");
            links.extend(group.links(&key, nodes, &mut room)?);
        }
        let performance = Performance {
            kinds: order
                .iter()
                .map(|&at| self.kind[at].performance(at))
                .collect::<Result<_, _>>()?,
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

    /// Index in `self.kind` of each of the machine's kinds.
    fn order(&self, machine: &Machine) -> Result<Vec<usize>, Misfit> {
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
        // As many entries as kinds, each at a place of its own: none is missing.
        Ok(order.into_iter().flatten().collect())
    }

    fn caches(&self) -> Result<Vec<CachePerformance>, Misfit> {
        self.cache.iter().enumerate().map(|(index, cache)| cache.performance(index)).collect()
    }

    fn memories(&self, nodes: usize) -> Vec<MemoryPerformance> {
        match &self.memory[..] {
            [one] => vec![one.performance(); nodes],
            some => some.iter().map(MemorySpeed::performance).collect(),
        }
    }

    fn hops(&self, machine: &Machine, nodes: usize) -> Result<Vec<Vec<Nanos>>, Misfit> {
        match (&self.hops, &self.hops_by_distance) {
            (None, None) if nodes == 1 => Ok(vec![vec![Nanos::ZERO]]),
            (Some(hops), None) => {
                let rows = hops.value.iter();
                Ok(rows.map(|row| row.iter().map(|hop| hop.0).collect()).collect())
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

    /// Renames an impossible figure to its key in the description.
    fn misfit(&self, impossible: Impossible, order: &[usize]) -> Misfit {
        let Impossible { part, field, expected, found } = impossible;
        let part = match part {
            PerformancePart::Kinds => "kind".into(),
            PerformancePart::Kind(index) => kind_key(index, order),
            PerformancePart::Unit(index, unit) => {
                format!("{}.units[{unit}]", kind_key(index, order))
            }
            PerformancePart::Caches => "cache".into(),
            PerformancePart::Cache(level) => format!("cache[{level}]"),
            PerformancePart::Memories => "memory".into(),
            PerformancePart::Memory(node) => {
                format!("memory[{}]", if self.memory.len() == 1 { 0 } else { node })
            }
            PerformancePart::Hops if self.hops.is_some() => "hops".into(),
            PerformancePart::Hops => "hops-by-distance".into(),
            PerformancePart::Link(link) => self.link(link, field == "bandwidth"),
        };
        let field = match field {
            "width" => ".slots-per-cycle".into(),
            "branch_miss" => ".branch-miss".into(),
            "thread_sets" => ".thread-sets".into(),
            "name" | "crossed_by" | "" => String::new(),
            // The part already names the bandwidth of the link's group.
            "bandwidth" if part.starts_with("links") => String::new(),
            field => format!(".{field}"),
        };
        misfit(format!("performance.{part}{field}"), expected, found)
    }

    /// Key of a link: its group's bandwidth, or its route.
    fn link(&self, mut link: usize, bandwidth: bool) -> String {
        for (index, group) in self.links.iter().enumerate() {
            let routes = group.routes.value.len();
            if link < routes {
                let figure = if bandwidth { "bandwidth".into() } else { format!("routes[{link}]") };
                return format!("links[{index}].{figure}");
            }
            link -= routes;
        }
        // Not reached: every link is in a group.
        "links".into()
    }
}

/// Key of the kind at index `kind` of the machine.
fn kind_key(kind: usize, order: &[usize]) -> String {
    // The order has every kind: the default is not used.
    format!("kind[{}]", order.get(kind).copied().unwrap_or(kind))
}

impl CacheSpeed {
    fn performance(&self, index: usize) -> Result<CachePerformance, Misfit> {
        let inclusion = match &self.inclusion {
            Some(inclusion) => inclusion.value,
            None if self.level == 1 => Inclusion::Neither,
            None => {
                let key = format!("performance.cache[{index}].inclusion");
                return Err(misfit(key, "inclusive, exclusive or neither", "none"));
            }
        };
        Ok(CachePerformance {
            level: self.level,
            latency: self.latency.value.0,
            inclusion,
            replacement: self.replacement.as_ref().map(|it| it.value).unwrap_or_default(),
            bandwidth: self.bandwidth.as_ref().map(|bandwidth| bandwidth.value.0),
        })
    }
}

impl MemorySpeed {
    fn performance(&self) -> MemoryPerformance {
        MemoryPerformance {
            latency: self.latency.value.0,
            bandwidth: self.bandwidth.value.0,
            line: self.line.value.0,
        }
    }
}

impl KindSpeed {
    fn performance(&self, at: usize) -> Result<CorePerformance, Misfit> {
        let units = self.units.iter().enumerate();
        Ok(CorePerformance {
            clock: self.clock.value.0,
            llvm_cpu: self.llvm_cpu.as_ref().map(|cpu| cpu.value.clone()),
            width: self.slots_per_cycle.value,
            ports: self.ports.value.clone(),
            units: units
                .map(|(index, unit)| self.unit(at, index, unit))
                .collect::<Result<_, _>>()?,
            branch_miss: self.branch_miss.value.0,
            divided: self.divided.value,
            thread_sets: self.thread_sets.as_ref().map_or(1, |sets| sets.value),
        })
    }

    fn unit(&self, at: usize, index: usize, unit: &UnitSpeed) -> Result<ExecutionUnit, Misfit> {
        let ports = self.port_set(&unit.ports).map_err(|unknown| {
            let key = format!("performance.kind[{at}].units[{index}].ports");
            misfit(key, format!("names out of {}", self.ports.value.join(", ")), unknown)
        })?;
        let occupancy = unit.occupancy.map_or(Cycles(1.0), |cycles| cycles.0);
        Ok(ExecutionUnit { kind: unit.work, ports, occupancy })
    }

    /// Looks up ports by name.
    ///
    /// # Errors
    /// The unknown name.
    fn port_set<'a>(&self, names: &'a [String]) -> Result<PortSet, &'a str> {
        names.iter().try_fold(PortSet::default(), |set, name| {
            let place = self.ports.value.iter().position(|port| port == name);
            // A `PortSet` has 32 bits; ports beyond are refused like unknown ones.
            let bit = place.and_then(|place| 1_u32.checked_shl(place.try_into().ok()?));
            bit.map(|bit| set.union(PortSet(bit))).ok_or(&**name)
        })
    }
}

impl LinkGroup {
    /// Builds the links of the group between `nodes` nodes. `room` is the number of accesses that
    /// may still cross links, and is reduced.
    fn links(
        &self,
        key: &str,
        nodes: usize,
        room: &mut usize,
    ) -> Result<Vec<LinkPerformance>, Misfit> {
        let mut links = Vec::new();
        for (index, text) in self.routes.value.iter().enumerate() {
            let (name, crossed_by) = route(text, nodes, room)
                .map_err(|(expected, found)| misfit(format!("{key}[{index}]"), expected, found))?;
            let bandwidth = self.bandwidth.value.0;
            links.push(LinkPerformance { name: name.into(), crossed_by, bandwidth });
        }
        Ok(links)
    }
}

/// Name of a link, and the accesses that cross it: pairs of nodes.
type Route<'a> = (&'a str, Vec<(u32, u32)>);

/// Parses a route such as `0 to 1: 0>1 0>4-7`.
///
/// # Errors
/// What was expected, and what was found.
fn route<'a>(text: &'a str, nodes: usize, room: &mut usize) -> Result<Route<'a>, (String, String)> {
    let (name, ways) = text.split_once(": ").ok_or_else(|| malformed_route(text))?;
    let mut crossed_by = Vec::new();
    for way in ways.split_whitespace() {
        let (from, to) = ends(way).ok_or_else(|| malformed_route(text))?;
        if from.iter().chain(to.iter()).any(|node| node.idx() >= nodes) {
            return Err((format!("two different nodes below {nodes}"), way.into()));
        }
        // Before the pairs are built: a short text can name very many accesses.
        *room = room.checked_sub(from.len() * to.len()).ok_or_else(|| {
            (format!("at most {MAX_CROSSINGS} accesses across links"), "more".to_owned())
        })?;
        crossed_by.extend(from.iter().flat_map(|from| to.iter().map(move |to| (from.0, to.0))));
    }
    Ok((name, crossed_by))
}

fn malformed_route(text: &str) -> (String, String) {
    ("a link like \"0 to 1: 0>1 0>4-7\"".to_owned(), format!("\"{text}\""))
}

/// Parses `0-1>4` as two sets of nodes, in the list form of CPUs.
fn ends(way: &str) -> Option<(PuSet, PuSet)> {
    let (from, to) = way.split_once('>')?;
    Some((PuSet::parse_list(from).ok()?, PuSet::parse_list(to).ok()?))
}

/// Extra latencies from the distances that the firmware reports.
fn by_distance(
    hops: &BTreeMap<String, Text<Nanos>>,
    machine: &Machine,
) -> Result<Vec<Vec<Nanos>>, Misfit> {
    let key = "performance.hops-by-distance";
    let Some(distances) = &machine.distances else {
        return Err(misfit(key, "memory.distances", "none"));
    };
    let mut rows = Vec::new();
    for (from, distances) in distances.rows.iter().enumerate() {
        let mut row = Vec::new();
        for (to, distance) in distances.iter().enumerate() {
            row.push(match hops.get(&distance.to_string()) {
                // No time is required for the local distance.
                _ if from == to => Nanos::ZERO,
                Some(hop) => hop.0,
                None => {
                    return Err(misfit(key, format!("a time for the distance {distance}"), "none"));
                }
            });
        }
        rows.push(row);
    }
    Ok(rows)
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
