//! The tables below the drawing.

use super::{cache_name, count, list, size_or_unknown};
use crate::cpulist::PuSet;
use crate::ids::{NodeIdx, PuIdx};
use crate::machine::{Machine, Node};
use crate::printable::{cell, printable};
use crate::units::Bytes;
use crate::usable::Usable;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Most nodes with a matrix of distances; of more nodes, the distinct distances are printed.
const MATRIX: usize = 16;

/// Longest list of PUs in the table of nodes, in characters.
const LIST_WIDTH: usize = 40;

/// Memory of a node; empty if unknown.
pub(super) fn memory(node: &Node) -> String {
    match node.memory {
        None => String::new(),
        Some(Bytes(0)) => "no memory".into(),
        Some(memory) => memory.to_string(),
    }
}

/// Name, processor and numbers of parts, two lines.
pub(super) fn header(machine: &Machine) -> String {
    let mut text = printable(&machine.name).into_owned();
    // Names of described machines often contain the processor.
    if let Some(processor) =
        machine.processor.as_ref().filter(|found| !machine.name.contains(*found))
    {
        let _ = write!(text, ": {}", printable(processor));
    }
    let mut figures = vec![count(machine.packages.len(), "package")];
    match machine.nodes.len() {
        0 => figures.push("no NUMA information".into()),
        nodes => figures.push(count(nodes, "node")),
    }
    figures.push(count(machine.cores.len(), "core"));
    figures.push(count(machine.pus.len(), "PU"));
    let memory = machine.nodes.iter().filter_map(|node| node.memory).map(|memory| memory.0);
    // Sizes from a hostile file may add up to more than 64 bits.
    match memory.fold(0_u64, u64::saturating_add) {
        0 => {}
        total => figures.push(Bytes(total).to_string()),
    }
    if let [kind] = &machine.kinds[..]
        && let Some(frequency) = kind.max_frequency
    {
        figures.push(format!("up to {frequency}"));
    }
    format!("{text}\n{}\n", figures.join(", "))
}

/// One line for each sort of cache: name, size, number, cores per cache.
pub(super) fn caches(machine: &Machine) -> String {
    let mut sorts: BTreeMap<_, usize> = BTreeMap::new();
    for cache in &machine.caches {
        let cores: BTreeMap<_, usize> =
            cache.pus.iter().map(|&pu| (machine.core_of(pu), 0)).collect();
        let size = size_or_unknown(cache.size);
        let sort = (cache.level, cache.kind, cores.len(), cache_name(cache), size);
        *sorts.entry(sort).or_default() += 1;
    }
    let width = sorts.keys().map(|(.., size)| size.len()).max().unwrap_or(0);
    let mut text = String::new();
    for ((_, _, cores, name, size), number) in sorts {
        let sharers = match cores {
            1 => "one core".into(),
            more => format!("{more} cores"),
        };
        let each = if number == 1 { "over" } else { "each over" };
        let _ = writeln!(text, "  {name:4} {size:>width$}  x {number:<4} {each} {sharers}");
    }
    titled("caches", text)
}

/// One line for each kind of core; empty for a single kind.
pub(super) fn kinds(machine: &Machine) -> String {
    if machine.kinds.len() < 2 {
        return String::new();
    }
    let names: Vec<_> = machine.kinds.iter().map(|kind| cell(&kind.name)).collect();
    // Formatting pads by characters, not by bytes.
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (index, kind) in machine.kinds.iter().enumerate() {
        let of_kind = machine.cores.iter().filter(|core| core.kind.idx() == index);
        let pus: Vec<_> = of_kind.clone().flat_map(|core| core.pus.iter().copied()).collect();
        let capacity = kind.capacity.map_or("unknown".into(), |capacity| capacity.to_string());
        let clock = kind.max_frequency.map_or(String::new(), |clock| format!(", up to {clock}"));
        let _ = writeln!(
            text,
            "  {:width$}  capacity {capacity:>4}{clock}, {}: PUs {}",
            names[index],
            count(of_kind.count(), "core"),
            list(machine, &pus)
        );
    }
    titled("kinds of cores, slowest first (capacity 1024 is the fastest)", text)
}

/// One line for each node with its row of distances; empty for a single node.
pub(super) fn nodes(machine: &Machine) -> String {
    if machine.nodes.len() < 2 {
        return String::new();
    }
    let memories: Vec<String> = machine.nodes.iter().map(memory).collect();
    let homes: Vec<String> = (0..machine.nodes.len()).map(|node| home_pus(machine, node)).collect();
    let wide = memories.iter().map(String::len).max().unwrap_or(0);
    let wider = homes.iter().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for (index, node) in machine.nodes.iter().enumerate() {
        let row = format!(
            "  node {:<3} {:>wide$}  {:wider$}  {}",
            node.os.0,
            memories[index],
            homes[index],
            distances(machine, index)
        );
        // Unknown distances leave blanks at the end.
        let _ = writeln!(text, "{}", row.trim_end());
    }
    let title = match &machine.distances {
        None => "nodes (distances unknown)".into(),
        Some(_) if machine.nodes.len() <= MATRIX => "nodes and distances".into(),
        Some(found) => {
            let mut figures: Vec<u32> = found.rows.concat();
            figures.sort_unstable();
            figures.dedup();
            let figures: Vec<String> = figures.iter().map(ToString::to_string).collect();
            format!("nodes (distances {})", figures.join(", "))
        }
    };
    titled(&title, text)
}

/// PUs whose home is a node, as a list if short, otherwise as a number.
fn home_pus(machine: &Machine, node: usize) -> String {
    let home: Vec<PuIdx> = machine.home_pus(NodeIdx::new(node)).collect();
    match list(machine, &home) {
        none if none.is_empty() => "no PUs".into(),
        short if short.len() <= LIST_WIDTH => format!("PUs {short}"),
        _ => count(home.len(), "PU"),
    }
}

/// Row of distances of one node; empty for very many nodes.
fn distances(machine: &Machine, node: usize) -> String {
    let Some(found) = machine.distances.as_ref().filter(|_| machine.nodes.len() <= MATRIX) else {
        return String::new();
    };
    let wide = found.rows.iter().flatten().max().map_or(0, |most| most.to_string().len());
    let figures: Vec<String> =
        found.rows[node].iter().map(|distance| format!("{distance:>wide$}")).collect();
    figures.join(" ")
}

pub(super) fn offline(machine: &Machine) -> String {
    let offline: PuSet = machine.offline.iter().copied().collect();
    if offline.is_empty() {
        return String::new();
    }
    format!("offline: {} ({})\n", offline, count(offline.len(), "PU"))
}

/// A set of PUs that limits a process; `none` without a limit.
fn limit(set: Option<&PuSet>, none: &str) -> String {
    match set {
        None => none.into(),
        Some(set) if set.is_empty() => "none".into(),
        Some(set) => set.to_string(),
    }
}

pub(super) fn usable(machine: &Machine, usable: &Usable) -> String {
    let mut text = format!("usable: {} of {}", usable.pus.len(), count(machine.pus.len(), "PU"));
    if !usable.pus.is_empty() {
        let _ = write!(text, ": {}", list(machine, &usable.pus));
    }
    let quota = usable.quota.map_or("no limit".into(), |quota| quota.to_string());
    let _ = writeln!(text);
    let _ = writeln!(text, "  affinity mask  {}", limit(usable.affinity.as_ref(), "unknown"));
    let _ = writeln!(text, "  cpuset         {}", limit(usable.cpuset.as_ref(), "no limit"));
    let _ = writeln!(text, "  CPU quota      {quota}");
    text
}

fn titled(title: &str, text: String) -> String {
    if text.is_empty() { text } else { format!("{title}\n{text}") }
}
