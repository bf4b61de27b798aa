//! From samples to figures with intervals.

use super::cells::{Cell, cache_sizes};
use crate::bench::scenarios::Report;
use colocate_machine::calibrated::{Calibration, Figure, Latency, Pair, What, levels};
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Machine, PuNr};
use colocate_study::stats::{Estimate, geometric_estimate, mean_estimate};
use std::collections::BTreeMap;

/// The samples of a cell: one in every round, with a value for each of [`names`].
type Samples = Vec<Vec<Option<f64>>>;

/// What the values of a cell are of. Empty where a figure needs several cells.
fn names(cell: &Cell) -> Vec<What> {
    match *cell {
        Cell::Line(_) | Cell::Load { .. } => Vec::new(),
        Cell::Wake { pair, busy, .. } => {
            vec![What::WakeUp { pair, busy }, What::WakeCall { pair, busy }]
        }
        Cell::Trip { pair, busy, .. } => vec![What::RoundTrip { pair, busy }],
        Cell::Memory { from, to, .. } => vec![What::MemoryLatency { from, to }],
        Cell::Stream { node, ref pus, .. } => {
            let pus = u32::try_from(pus.len()).unwrap_or(u32::MAX);
            vec![What::MemoryBandwidth { node, pus }]
        }
        Cell::Move { from, to, .. } => vec![What::PageMove { from, to }],
        // Its second value is relative to the fastest PU's.
        Cell::Visit(pu) => vec![What::Clock { pu: PuNr(pu) }],
        Cell::Watch(pu) => {
            let pu = PuNr(pu);
            vec![What::Away { pu }, What::Gap { pu }, What::Steal { pu }]
        }
        Cell::Operations { ref kind, .. } => {
            let kind = || kind.clone();
            let work = WorkKind::ALL.map(|work| What::Work { kind: kind(), work });
            [What::Slots { kind: kind() }, What::BranchMiss { kind: kind() }]
                .into_iter()
                .chain(work)
                .collect()
        }
    }
}

/// How the values of a cell are measured.
fn source(cell: &Cell) -> String {
    match cell {
        Cell::Line(_) => "lines passed between two spinning threads, half of there and back".into(),
        Cell::Wake { busy, .. } => format!("futex wake-ups of a thread that slept 200 us, its PU {}", if *busy { "busy" } else { "idle" }),
        Cell::Trip { .. } => "two threads that wake each other by futex in turn".into(),
        Cell::Load { .. } => "pointer chase over growing sizes, huge pages where possible".into(),
        Cell::Memory { bytes, .. } => format!("pointer chase over {} MiB, huge pages where possible", bytes >> 20),
        Cell::Stream { .. } => "lines read and written back, steps of 576 bytes; at least, where more PUs would reach more".into(),
        Cell::Move { .. } => "move_pages(2) of 255 pages of its own".into(),
        Cell::Visit(_) => "a chain of additions, one PU at a time".into(),
        Cell::Watch(_) => "gaps of 25 us and more in reading the clock; steal of /proc/stat".into(),
        Cell::Operations { pu, .. } => format!("loops of one kind of operation beside a chain of additions, PU {pu}"),
    }
}

/// A figure of `values`, at least two, if they are positive; shares of time may be 0.
fn figure(what: What, values: &[f64], unix_s: u64, source: String) -> Option<Figure> {
    let share = matches!(what, What::Away { .. } | What::Steal { .. });
    let Estimate { value, interval } =
        if share { mean_estimate(values)? } else { geometric_estimate(values)? };
    let interval = interval?;
    let (low, high) = (interval.low.clamp(0.0, value), interval.high.max(value));
    Some(Figure { unit: what.unit(), what, value, low, high, unix_s, source })
}

/// The figures of all cells.
pub fn figures(machine: &Machine, cells: &[Cell], taken: &[Samples], unix_s: u64) -> Vec<Figure> {
    let mut values: BTreeMap<What, (Vec<f64>, String)> = BTreeMap::new();
    let mut add = |what: What, found: &mut dyn Iterator<Item = f64>, source: String| {
        values.entry(what).or_insert_with(|| (Vec::new(), source)).0.extend(found);
    };
    for (cell, samples) in cells.iter().zip(taken) {
        for (at, what) in names(cell).into_iter().enumerate() {
            add(what, &mut samples.iter().filter_map(|sample| sample[at]), source(cell));
        }
    }
    let rate =
        |samples: &Samples| -> Vec<f64> { samples.iter().filter_map(|sample| sample[1]).collect() };
    let visits = || cells.iter().zip(taken).filter(|(cell, _)| matches!(cell, Cell::Visit(_)));
    let means = visits().filter_map(|(_, samples)| Some(geometric_estimate(&rate(samples))?.value));
    let fastest = means.fold(0.0, f64::max);
    for (cell, samples) in visits() {
        let Cell::Visit(pu) = *cell else { continue };
        let speeds = rate(samples).into_iter().map(|rate| rate / fastest);
        let source =
            "a fixed piece of integer, floating-point and branching work, one PU at a time";
        add(What::Speed { pu: PuNr(pu) }, &mut speeds.into_iter(), source.into());
    }
    let sizes = cache_sizes(machine);
    for found in curves(cells, taken).iter().filter(|_| !sizes.is_empty()) {
        let bytes: Vec<f64> = sizes.iter().map(|(_, size)| *size).collect();
        for ((level, _), found) in sizes.iter().zip(levels(found, &bytes)) {
            let Some(found) = found else { continue };
            let source = || source(&Cell::Load { pu: 0, bytes: 0 });
            add(
                What::CacheLatency { level: *level },
                &mut [found.latency_ns].into_iter(),
                source(),
            );
            add(What::CacheSize { level: *level }, &mut [found.size].into_iter(), source());
        }
    }
    let made = values.into_iter().filter_map(|(what, (values, source))| {
        figure(what, &values, unix_s, format!("{source}; {} samples", values.len()))
    });
    made.collect()
}

/// Latency over size in each round, of rounds in which no size is missing; memory is the last point.
#[allow(clippy::cast_precision_loss)] // sizes have few digits
fn curves(cells: &[Cell], taken: &[Samples]) -> Vec<Vec<(f64, f64)>> {
    let size = |cell: &Cell| match *cell {
        Cell::Load { bytes, .. } => Some(bytes),
        Cell::Memory { pus, bytes, .. } if pus[0] == pus[1] => Some(bytes),
        _ => None,
    };
    // The first node's memory is near the PU of all loads.
    let mut points: Vec<(usize, &Samples)> = Vec::new();
    for (cell, samples) in cells.iter().zip(taken) {
        if let Some(bytes) =
            size(cell).filter(|bytes| points.iter().all(|(known, _)| known != bytes))
        {
            points.push((bytes, samples));
        }
    }
    points.sort_by_key(|(bytes, _)| *bytes);
    let rounds = points.first().map_or(0, |(_, samples)| samples.len());
    let curve = |round: usize| {
        points.iter().map(|(bytes, samples)| Some((*bytes as f64, samples[round][0]?))).collect()
    };
    (0..rounds).filter_map(curve).collect()
}

/// Adds what passing a line takes, by how PUs lie to each other on `machine`.
pub fn lines(to: &mut Calibration, machine: &Machine, latencies: &[Latency], unix_s: u64) {
    let mut by_kind: BTreeMap<Pair, Vec<f64>> = BTreeMap::new();
    for latency in latencies {
        let pair = Pair::of(machine, latency.pus.0, latency.pus.1);
        by_kind.entry(pair.unwrap_or(Pair::OtherPackage)).or_default().push(latency.ns);
    }
    for (pair, mut all) in by_kind {
        all.sort_by(f64::total_cmp);
        let source = format!(
            "{}; median, least and most of {} pair(s)",
            source(&Cell::Line([0, 0])),
            all.len()
        );
        let (what, value) = (What::LinePass { pair }, all[all.len() / 2]);
        let (low, high) = (all[0], all[all.len() - 1]);
        to.figures.insert(0, Figure { unit: what.unit(), what, value, low, high, unix_s, source });
    }
    to.figures.sort_by(|a, b| a.what.cmp(&b.what));
}

/// What kernels take beside each other on two siblings.
pub fn beside(report: &Report, pus: [u32; 2], unix_s: u64) -> Vec<Figure> {
    let cell = |cell: &crate::bench::scenarios::Cell| {
        let Estimate { value, interval } = cell.time?;
        let interval = interval?;
        let what =
            What::Beside { kernel: cell.kernel.to_string(), beside: cell.beside.to_string() };
        let source = format!("SMT-Bench on PUs {} and {}, 3 rounds", pus[0], pus[1]);
        let (low, high) = (interval.low.min(value), interval.high.max(value));
        Some(Figure { unit: what.unit(), what, value, low, high, unix_s, source })
    };
    report.matrix.iter().filter_map(cell).collect()
}

/// From which ratio on a measured size of the last cache counts instead of the reported one. Sizes are found half-way between
/// two that are √2 apart.
const WRONG: f64 = 1.5;

/// Gives the last caches of `machine` the measured size where they are clearly smaller than reported, and says so.
pub fn shrink_last_cache(machine: &mut Machine, measured: &Calibration) -> Option<String> {
    let (level, reported) = *cache_sizes(machine).last()?;
    let found = measured.get(&What::CacheSize { level })?;
    if found.high * WRONG > reported {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a size in bytes
    let size = Bytes(found.value.round() as u64);
    let is_last = |cache: &&mut colocate_machine::Cache| cache.level == level;
    machine.caches.iter_mut().filter(is_last).for_each(|cache| cache.size = Some(size));
    let text = |bytes: f64| found.unit.text(bytes);
    Some(format!(
        "L{level} holds {} ({} to {}) by measurement; reported: {}: other users of it, perhaps outside of this machine, have the rest",
        text(found.value),
        text(found.low),
        text(found.high),
        text(reported)
    ))
}
