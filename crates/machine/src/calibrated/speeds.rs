//! Speeds for predictions, derived from measured figures.

use super::{Assumed, Calibration, Quantity};
use crate::ids::NodeNr;
use crate::machine::{CacheKind, Machine};
use crate::performance::{
    CachePerformance, CorePerformance, ExecutionUnit, Inclusion, MemoryPerformance, Performance,
    PortSet, Replacement, WorkKind,
};
use crate::units::{Bytes, BytesPerSecond, Cycles, Hertz, Nanos};
use std::collections::BTreeSet;

/// Kinds of work that share ports, each group with the name of its ports. The sharing is assumed,
/// not measured.
const GROUPS: [(&str, &[WorkKind]); 4] = [
    ("int", &[WorkKind::Int, WorkKind::Branch, WorkKind::IntMul]),
    ("float", &[WorkKind::FloatAdd, WorkKind::FloatMul]),
    ("load", &[WorkKind::Load]),
    ("store", &[WorkKind::Store]),
];
/// Dividers: separate ports, not pipelined.
const DIVIDERS: [(&str, WorkKind); 2] =
    [("int-div", WorkKind::IntDiv), ("float-div", WorkKind::FloatDiv)];

/// Derives the speeds of `machine` from measured figures, with `line` bytes transferred per miss.
/// Also returns the assumptions.
///
/// # Errors
/// A line that names a missing figure, or a figure that no machine can have.
pub fn performance(
    machine: &Machine,
    measured: &Calibration,
    line: Bytes,
) -> Result<(Performance, Vec<Assumed>), String> {
    let kinds = (0..machine.kinds.len()).map(|kind| core(machine, measured, kind));
    let kinds: Vec<CorePerformance> = kinds.collect::<Result<_, _>>()?;
    // Every machine has a kind of core: the default is not used.
    let clock = kinds.iter().map(|kind| kind.clock.0).max().unwrap_or(1);
    let (memory, hops) = memory(machine, measured, line)?;
    let found = Performance {
        kinds,
        caches: caches(machine, measured, clock)?,
        memory,
        hops,
        links: Vec::new(),
    };
    found.check(machine).map_err(|why| why.to_string())?;
    let assumed = [
        (
            "kind.ports",
            "integer work, multiplications and branches share ports, and so do floating-point additions and multiplications; not varied",
        ),
        ("kind.divided", "the window is divided among siblings; not varied"),
        ("cache.inclusion", "neither; not varied"),
        ("cache.replacement", "unknown; varied"),
        ("cache.bandwidth", "no cache saturates; not varied"),
        ("links", "no link saturates; not varied"),
    ];
    let assumed = assumed.map(|(key, source)| Assumed { key: key.into(), source: source.into() });
    Ok((found, assumed.into()))
}

/// Value of a figure, or the message that it is unknown.
fn value(measured: &Calibration, what: &Quantity) -> Result<f64, String> {
    measured.get(what).map(|figure| figure.value).ok_or_else(|| format!("{what} is not known"))
}

/// Measured cycles per operation of a kind of work.
fn work_cycles(measured: &Calibration, kind: &str, work: WorkKind) -> Result<f64, String> {
    value(measured, &Quantity::Work { kind: kind.to_owned(), work })
}

fn core(machine: &Machine, measured: &Calibration, kind: usize) -> Result<CorePerformance, String> {
    let of_kind = machine.pus.iter().filter(|pu| machine.cores[pu.core.idx()].kind.idx() == kind);
    let mut clocks: Vec<f64> = of_kind
        .filter_map(|pu| measured.get(&Quantity::Clock { pu: pu.os }))
        .map(|it| it.value)
        .collect();
    clocks.sort_by(f64::total_cmp);
    let name = &machine.kinds[kind].name;
    // The median of the kind's PUs.
    let clock =
        clocks.get(clocks.len() / 2).ok_or_else(|| format!("the clock of {name} is not known"))?;
    let mut ports = Vec::new();
    let mut units = Vec::new();
    for (prefix, works) in GROUPS {
        let first = ports.len();
        for &kind in works {
            let cycles = work_cycles(measured, name, kind)?;
            // An operation that takes a half cycle has two ports.
            let count = whole(1.0 / cycles).clamp(1, 8);
            // Kinds of a group share its first ports, so only missing ports are added.
            for port in ports.len()..first + count {
                ports.push(format!("{prefix}{}", port - first));
            }
            let mask = ((1_u32 << count) - 1) << first;
            // Up to 1.5 cycles counts as pipelined: the rest is noise.

            let occupancy = cycles_of(if cycles > 1.5 { cycles } else { 1.0 });
            units.push(ExecutionUnit { kind, ports: PortSet(mask), occupancy });
        }
    }
    for (port, kind) in DIVIDERS {
        units.push(ExecutionUnit {
            kind,
            ports: PortSet(1 << ports.len()),
            occupancy: cycles_of(work_cycles(measured, name, kind)?),
        });
        ports.push(port.to_owned());
    }
    Ok(CorePerformance {
        clock: hertz(*clock),
        llvm_cpu: None,
        width: value(measured, &Quantity::Slots { kind: name.clone() })?.round().max(1.0),
        ports,
        units,
        branch_miss: cycles_of(value(measured, &Quantity::BranchMiss { kind: name.clone() })?),
        divided: true,
        thread_sets: 1,
    })
}

fn caches(
    machine: &Machine,
    measured: &Calibration,
    clock: u64,
) -> Result<Vec<CachePerformance>, String> {
    let holds_data = machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction);
    let there: BTreeSet<u8> = holds_data.map(|cache| cache.level).collect();
    let mut nearer = 0.0_f64;
    let mut caches = Vec::new();
    for level in there {
        let cycles = value(measured, &Quantity::CacheLatency { level })? * clock as f64 / 1e9;
        // A level faster than the one before is noise: Performance::check refuses it.
        nearer = nearer.max((cycles * 10.0).round() / 10.0);
        caches.push(CachePerformance {
            level,
            latency: Cycles(nearer),
            inclusion: Inclusion::Neither,
            replacement: Replacement::Unknown,
            bandwidth: None,
        });
    }
    Ok(caches)
}

/// Memory controllers, and the extra latency of each node's accesses to each other node.
type MemorySpeeds = (Vec<MemoryPerformance>, Vec<Vec<Nanos>>);

fn memory(machine: &Machine, measured: &Calibration, line: Bytes) -> Result<MemorySpeeds, String> {
    let nodes: Vec<Option<NodeNr>> = match &machine.nodes[..] {
        [] => vec![None],
        nodes => nodes.iter().map(|node| Some(node.os)).collect(),
    };
    let mut controllers = Vec::new();
    let mut hops = Vec::new();
    for node in 0..nodes.len() {
        let local = latency(machine, measured, &nodes, [node, node])?;
        let most = measured.figures.iter().filter(
            |it| matches!(it.what, Quantity::MemoryBandwidth { node: of, .. } | Quantity::MemoryCapacity { node: of } if of == nodes[node]),
        );
        // The greatest measured bandwidth, or the extrapolated capacity if greater.
        let bandwidth = most.map(|it| it.value).fold(0.0, f64::max);
        if bandwidth <= 0.0 {
            return Err(format!(
                "{} is not known",
                Quantity::MemoryBandwidth { node: nodes[node], pus: 1 }
            ));
        }
        controllers.push(MemoryPerformance {
            latency: nanos(local),
            bandwidth: BytesPerSecond(bandwidth),
            line,
        });
        let mut row = Vec::new();
        for to in 0..nodes.len() {
            let remote = latency(machine, measured, &nodes, [node, to])?;
            let extra = remote - latency(machine, measured, &nodes, [to, to])?;
            // A remote access faster than a local one is noise.
            row.push(nanos(extra.max(0.0)));
        }
        hops.push(row);
    }
    Ok((controllers, hops))
}

/// Latency from one node's PUs to another node's memory, in ns: measured, or by the
/// reported distance.
fn latency(
    machine: &Machine,
    measured: &Calibration,
    nodes: &[Option<NodeNr>],
    [from, to]: [usize; 2],
) -> Result<f64, String> {
    let what = Quantity::MemoryLatency { from: nodes[from], to: nodes[to] };
    value(measured, &what)
        .or_else(|missing| by_distance(machine, measured, from, to).ok_or(missing))
}

/// Mean of the measured latencies between nodes of the same reported distance; `None` if none was
/// measured.
fn by_distance(machine: &Machine, measured: &Calibration, from: usize, to: usize) -> Option<f64> {
    let rows = &machine.distances.as_ref()?.rows;
    let mut alike = Vec::new();
    for (a, row) in rows.iter().enumerate() {
        for (b, distance) in row.iter().enumerate() {
            // Local and remote accesses are never alike, even at equal reported distances.
            if *distance == rows[from][to] && (a == b) == (from == to) {
                let what = Quantity::MemoryLatency {
                    from: Some(machine.nodes[a].os),
                    to: Some(machine.nodes[b].os),
                };
                alike.extend(measured.get(&what).map(|it| it.value));
            }
        }
    }
    (!alike.is_empty()).then(|| alike.iter().sum::<f64>() / alike.len() as f64)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked to be within 0 and 1e18
fn whole(value: f64) -> usize {
    value.round() as usize
}

/// Rounds to two decimals of a cycle: no measurement is more exact.
fn cycles_of(value: f64) -> Cycles {
    Cycles((value * 100.0).round() / 100.0)
}

fn nanos(value: f64) -> Nanos {
    Nanos(whole(value) as u64)
}

fn hertz(value: f64) -> Hertz {
    Hertz(whole(value) as u64)
}
