//! From measured figures to the speeds that predictions use.

use super::{Assumed, Calibration, What};
use crate::ids::NodeNr;
use crate::machine::{CacheKind, Machine};
use crate::performance::{
    CachePerformance, CorePerformance, Inclusion, MemoryPerformance, Performance, PortSet,
    Replacement, Unit, WorkKind,
};
use crate::units::{Bytes, BytesPerSecond, Cycles, Hertz, Nanos};
use std::collections::BTreeSet;

/// Kinds of work with ports in common, each group with the names of its ports. Which share ports is assumed.
const GROUPS: [(&str, &[WorkKind]); 4] = [
    ("int", &[WorkKind::Int, WorkKind::Branch, WorkKind::IntMul]),
    ("float", &[WorkKind::FloatAdd, WorkKind::FloatMul]),
    ("load", &[WorkKind::Load]),
    ("store", &[WorkKind::Store]),
];
/// Dividers are ports of their own, which are not pipelined.
const DIVIDERS: [(&str, WorkKind); 2] =
    [("int-div", WorkKind::IntDiv), ("float-div", WorkKind::FloatDiv)];

/// The speeds of `machine` by what was measured, with `line` bytes transferred on a miss; and what was assumed in them. Else what
/// is missing: a figure, or one that no machine can have.
///
/// # Errors
/// One line that names what is missing.
pub fn performance(
    machine: &Machine,
    measured: &Calibration,
    line: Bytes,
) -> Result<(Performance, Vec<Assumed>), String> {
    let kinds = (0..machine.kinds.len()).map(|kind| core(machine, measured, kind));
    let kinds: Vec<CorePerformance> = kinds.collect::<Result<_, _>>()?;
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

fn value(measured: &Calibration, what: &What) -> Result<f64, String> {
    measured.get(what).map(|figure| figure.value).ok_or_else(|| format!("{what} is not known"))
}

fn core(machine: &Machine, measured: &Calibration, kind: usize) -> Result<CorePerformance, String> {
    let of_kind = machine.pus.iter().filter(|pu| machine.cores[pu.core.idx()].kind.idx() == kind);
    let mut clocks: Vec<f64> = of_kind
        .filter_map(|pu| measured.get(&What::Clock { pu: pu.os }))
        .map(|it| it.value)
        .collect();
    clocks.sort_by(f64::total_cmp);
    let name = || machine.kinds[kind].name.clone();
    let clock = clocks
        .get(clocks.len() / 2)
        .ok_or_else(|| format!("the clock of {} is not known", name()))?;
    let cycles = |work| value(measured, &What::Work { kind: name(), work });
    let (mut ports, mut units) = (Vec::new(), Vec::new());
    for (prefix, works) in GROUPS {
        let first = ports.len();
        for &kind in works {
            let cycles = cycles(kind)?;
            let count = whole(1.0 / cycles).clamp(1, 8);
            for port in ports.len()..first + count {
                ports.push(format!("{prefix}{}", port - first));
            }
            let mask = ((1_u32 << count) - 1) << first;
            let occupancy = cycles_of(if cycles > 1.5 { cycles } else { 1.0 });
            units.push(Unit { kind, ports: PortSet(mask), occupancy });
        }
    }
    for (port, kind) in DIVIDERS {
        units.push(Unit {
            kind,
            ports: PortSet(1 << ports.len()),
            occupancy: cycles_of(cycles(kind)?),
        });
        ports.push(port.to_owned());
    }
    Ok(CorePerformance {
        clock: hertz(*clock),
        llvm_cpu: None,
        width: value(measured, &What::Slots { kind: name() })?.round().max(1.0),
        ports,
        units,
        branch_miss: cycles_of(value(measured, &What::BranchMiss { kind: name() })?),
        divided: true,
        thread_sets: 1,
    })
}

#[allow(clippy::cast_precision_loss)] // a clock rate has few digits
fn caches(
    machine: &Machine,
    measured: &Calibration,
    clock: u64,
) -> Result<Vec<CachePerformance>, String> {
    let holds_data = machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction);
    let there: BTreeSet<u8> = holds_data.map(|cache| cache.level).collect();
    let mut nearer = 0.0_f64;
    let mut cache = |level: u8| {
        let cycles = value(measured, &What::CacheLatency { level })? * clock as f64 / 1e9;
        nearer = nearer.max((cycles * 10.0).round() / 10.0);
        Ok(CachePerformance {
            level,
            latency: Cycles(nearer),
            inclusion: Inclusion::Neither,
            replacement: Replacement::Unknown,
            bandwidth: None,
        })
    };
    there.into_iter().map(&mut cache).collect()
}

/// Controllers, and what other nodes take longer.
type Memory = (Vec<MemoryPerformance>, Vec<Vec<Nanos>>);

fn memory(machine: &Machine, measured: &Calibration, line: Bytes) -> Result<Memory, String> {
    let nodes: Vec<Option<NodeNr>> = match &machine.nodes[..] {
        [] => vec![None],
        nodes => nodes.iter().map(|node| Some(node.os)).collect(),
    };
    let latency = |from: usize, to: usize| {
        let what = What::MemoryLatency { from: nodes[from], to: nodes[to] };
        value(measured, &what)
            .or_else(|missing| by_distance(machine, measured, from, to).ok_or(missing))
    };
    let mut found: Memory = (Vec::new(), Vec::new());
    for node in 0..nodes.len() {
        let local = latency(node, node)?;
        let most = measured.figures.iter().filter(
            |it| matches!(it.what, What::MemoryBandwidth { node: of, .. } | What::MemoryCapacity { node: of } if of == nodes[node]),
        );
        let bandwidth = most.map(|it| it.value).fold(0.0, f64::max);
        if bandwidth <= 0.0 {
            return Err(format!(
                "{} is not known",
                What::MemoryBandwidth { node: nodes[node], pus: 1 }
            ));
        }
        found.0.push(MemoryPerformance {
            latency: nanos(local),
            bandwidth: BytesPerSecond(bandwidth),
            line,
        });
        let hop = |to: usize| {
            if to == node {
                Ok(Nanos::ZERO)
            } else {
                Ok(nanos((latency(node, to)? - latency(to, to)?).max(0.0)))
            }
        };
        found.1.push((0..nodes.len()).map(hop).collect::<Result<_, String>>()?);
    }
    Ok(found)
}

/// The mean of measured latencies between nodes of the same reported distance.
#[allow(clippy::cast_precision_loss)] // few nodes
fn by_distance(machine: &Machine, measured: &Calibration, from: usize, to: usize) -> Option<f64> {
    let rows = &machine.distances.as_ref()?.rows;
    let mut alike = Vec::new();
    for (a, row) in rows.iter().enumerate() {
        for (b, distance) in row.iter().enumerate() {
            if *distance == rows[from][to] && (a == b) == (from == to) {
                let what = What::MemoryLatency {
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

/// Cycles with two digits behind the point: no measurement has more.
fn cycles_of(value: f64) -> Cycles {
    Cycles((value * 100.0).round() / 100.0)
}

fn nanos(value: f64) -> Nanos {
    Nanos(whole(value) as u64)
}

fn hertz(value: f64) -> Hertz {
    Hertz(whole(value) as u64)
}
