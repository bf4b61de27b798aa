//! From samples to figures with intervals.

use super::cells::{Cell, cache_sizes};
use crate::measure::scenarios::SmtBenchReport;
use colocate_figures::stats::{
    Estimate, Interval, geometric_estimate, mean_estimate, without_outliers,
};
use colocate_machine::calibrated::{Calibration, Figure, Latency, PuDistance, Quantity, levels};
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Machine, PuNr};
use colocate_model::memory::capacity;
use std::collections::BTreeMap;

/// Samples of a cell: one a round, with a value for each of [`names`].
pub type CellSamples = Vec<Vec<Option<f64>>>;

fn pair_of(machine: &Machine, [a, b]: [u32; 2]) -> PuDistance {
    PuDistance::of(machine, PuNr(a), PuNr(b)).unwrap_or(PuDistance::OtherPackage)
}

/// Names of a cell's values. Empty where a figure needs several cells.
fn names(machine: &Machine, cell: &Cell) -> Vec<Quantity> {
    match *cell {
        Cell::Line(_) | Cell::Load { .. } | Cell::Beside { .. } => Vec::new(),
        Cell::Wake { pus, busy } => {
            let pair = pair_of(machine, pus);
            vec![Quantity::WakeUp { pair, busy }, Quantity::WakeCall { pair, busy }]
        }
        Cell::Trip { pus, busy } => vec![Quantity::RoundTrip { pair: pair_of(machine, pus), busy }],
        Cell::Memory { from, to, .. } => vec![Quantity::MemoryLatency { from, to }],
        Cell::Stream { node, ref pus, .. } => {
            let pus = u32::try_from(pus.len()).unwrap_or(u32::MAX);
            vec![Quantity::MemoryBandwidth { node, pus }]
        }
        Cell::Move { from, to, .. } => vec![Quantity::PageMove { from, to }],
        // The other values are relative to the fastest PU's; see `figures`.
        Cell::Visit(pu) => vec![Quantity::Clock { pu: PuNr(pu) }],
        Cell::Watch(pu) => {
            let pu = PuNr(pu);
            vec![Quantity::Away { pu }, Quantity::Gap { pu }, Quantity::Steal { pu }]
        }
        Cell::Operations { ref kind, .. } => {
            let slots = Quantity::Slots { kind: kind.clone() };
            let branch_miss = Quantity::BranchMiss { kind: kind.clone() };
            let work = WorkKind::ALL.map(|work| Quantity::Work { kind: kind.clone(), work });
            [slots, branch_miss].into_iter().chain(work).collect()
        }
    }
}

/// Method by which the values of a cell are measured.
fn source(cell: &Cell) -> String {
    match cell {
        Cell::Line(_) => "lines passed between two spinning threads, half of there and back".into(),
        Cell::Wake { busy, .. } => format!("futex wake-ups of a thread that slept 200 us, its PU {}", if *busy { "busy" } else { "idle" }),
        Cell::Trip { .. } => "two threads that wake each other by futex in turn".into(),
        Cell::Load { .. } => "pointer chase over growing sizes, huge pages where possible".into(),
        Cell::Memory { bytes, .. } => format!("pointer chase over {} MiB, huge pages where possible", bytes >> 20),
        Cell::Beside { .. } => "latency beside the traffic of all other PUs, by the model's queue (docs/method/memory-model.md)".into(),
        Cell::Stream { .. } => "lines read and written back, steps of 576 bytes; at least, where more PUs would reach more".into(),
        Cell::Move { .. } => "move_pages(2) of 255 pages of its own".into(),
        Cell::Visit(_) => "a chain of additions, one PU at a time".into(),
        Cell::Watch(_) => "gaps of 25 us and more in reading the clock; steal of /proc/stat".into(),
        Cell::Operations { pu, .. } => format!("loops of one kind of operation beside a chain of additions, PU {pu}"),
    }
}

/// Whether a figure is a share of time, which may be 0.
fn is_share(what: &Quantity) -> bool {
    matches!(what, Quantity::Away { .. } | Quantity::Steal { .. } | Quantity::ShareOfPu { .. })
}

/// A figure with the ends of its interval. With equal values these may be off by a last digit.
pub fn of(what: Quantity, value: f64, interval: Interval, unix_s: u64, source: String) -> Figure {
    let low = interval.low.min(value);
    let high = interval.high.max(value);
    Figure { unit: what.unit(), what, value, low, high, unix_s, source }
}

/// A figure of at least two positive `values`; shares of time may be 0.
fn figure(what: Quantity, values: &[f64], unix_s: u64, source: String) -> Option<Figure> {
    let share = is_share(&what);
    let Estimate { value, interval } =
        if share { mean_estimate(values)? } else { geometric_estimate(values)? };
    // The interval of a share may reach below 0.
    let interval = interval.map(|it| Interval { low: it.low.max(0.0), ..it })?;
    Some(of(what, value, interval, unix_s, source))
}

/// Values of [`Cell::Visit`]: portions of work per second of wall time, and of CPU time; share of
/// the time with the PU.
const WALL: usize = 1;
const CPU: usize = 2;
const SHARE: usize = 3;

/// Method of a visit.
const VISIT: &str = "a fixed piece of integer, floating-point and branching work, one PU at a time";

/// Portions of work per second of wall time in each of a PU's visits.
pub fn visit_rates(samples: &CellSamples) -> Vec<f64> {
    nth(samples, WALL)
}

/// Values at `index` of each sample, without the missing ones.
fn nth(samples: &CellSamples, index: usize) -> Vec<f64> {
    samples.iter().filter_map(|sample| sample[index]).collect()
}

/// Figures of all cells.
pub fn figures(
    machine: &Machine,
    cells: &[Cell],
    taken: &[CellSamples],
    unix_s: u64,
) -> Vec<Figure> {
    let mut values: BTreeMap<Quantity, (Vec<f64>, String)> = BTreeMap::new();
    let mut add = |what: Quantity, found: &mut dyn Iterator<Item = f64>, source: String| {
        values.entry(what).or_insert_with(|| (Vec::new(), source)).0.extend(found);
    };
    for (cell, samples) in cells.iter().zip(taken) {
        for (at, what) in names(machine, cell).into_iter().enumerate() {
            add(what, &mut samples.iter().filter_map(|sample| sample[at]), source(cell));
        }
    }

    let visits = cells.iter().zip(taken).filter_map(|(cell, samples)| match *cell {
        Cell::Visit(pu) => Some((PuNr(pu), samples)),
        _ => None,
    });
    let visits: Vec<(PuNr, &CellSamples)> = visits.collect();
    for value in [WALL, CPU] {
        let means = visits.iter().map(|(_, samples)| geometric_estimate(&nth(samples, value)));
        let fastest = means.flatten().map(|mean| mean.value).fold(0.0, f64::max);
        for &(pu, samples) in &visits {
            let running = Quantity::SpeedWhileRunning { pu };
            let what = if value == WALL { Quantity::Speed { pu } } else { running };
            let mut speeds = nth(samples, value).into_iter().map(|rate| rate / fastest);
            add(what, &mut speeds, VISIT.into());
        }
    }
    for (pu, samples) in &visits {
        add(Quantity::ShareOfPu { pu: *pu }, &mut nth(samples, SHARE).into_iter(), VISIT.into());
    }
    let sizes = cache_sizes(machine);
    // Without known sizes, parts of a curve belong to no level.
    for found in curves(cells, taken).iter().filter(|_| !sizes.is_empty()) {
        let bytes: Vec<f64> = sizes.iter().map(|(_, size)| *size).collect();
        for ((level, _), found) in sizes.iter().zip(levels(found, &bytes)) {
            let Some(found) = found else { continue };
            let source = source(&Cell::Load { pu: 0, bytes: 0 });
            let level = *level;
            let latency = &mut [found.latency_ns].into_iter();
            add(Quantity::CacheLatency { level }, latency, source.clone());
            add(Quantity::CacheSize { level }, &mut found.size.into_iter(), source);
        }
    }
    let made = values.into_iter().filter_map(|(what, (values, source))| {
        // A PU that is descheduled for long in one round is no error of measurement.
        let near = without_outliers(&values);
        // Two values give hardly an interval.
        let kept = if is_share(&what) || near.len() < 3 { values.clone() } else { near };
        let source = format!("{source}; {} of {} samples", kept.len(), values.len());
        figure(what, &kept, unix_s, source)
    });
    made.chain(capacities(cells, taken, unix_s)).collect()
}

/// Largest ratio of a capacity to its interval's ends, which hardly waiting loads leave unknown.
const MOST_REACH: f64 = 10.0;

/// Traffic at which memory saturates, from latencies beside known traffic. The mean is taken of 1
/// over the capacity, which is 0 where loads do not wait.
fn capacities(cells: &[Cell], taken: &[CellSamples], unix_s: u64) -> Vec<Figure> {
    let found = cells.iter().zip(taken).filter_map(|(cell, samples)| {
        let Cell::Beside { node, .. } = *cell else { return None };
        let inverse = samples.iter().filter_map(|it| Some(1.0 / capacity(it[0]?, it[1]?, it[2]?)));
        let Estimate { value, interval } =
            mean_estimate(&without_outliers(&inverse.collect::<Vec<_>>()))?;
        let interval = interval?;
        let what = Quantity::MemoryCapacity { node };
        let far = value / MOST_REACH;
        // An inverse swaps the ends of the interval.
        let [value, low, high] =
            [value, interval.high.max(value), interval.low.clamp(far, value)].map(f64::recip);
        // Not finite: no load had to wait.
        let interval = Interval { low, high };
        value.is_finite().then(|| of(what, value, interval, unix_s, source(cell)))
    });
    found.collect()
}

/// Bytes of loads near a PU; `None` for other cells.
fn load_bytes(cell: &Cell) -> Option<usize> {
    match *cell {
        Cell::Load { bytes, .. } => Some(bytes),
        // The memory near a PU is the largest size of its curve.
        Cell::Memory { pus, bytes, .. } if pus[0] == pus[1] => Some(bytes),
        _ => None,
    }
}

/// Latency over size in each round without a missing size; memory is the last point.
fn curves(cells: &[Cell], taken: &[CellSamples]) -> Vec<Vec<(f64, f64)>> {
    // The memory of the first node is near the PU of all loads.
    let mut points: Vec<(usize, &CellSamples)> = Vec::new();
    for (cell, samples) in cells.iter().zip(taken) {
        let Some(bytes) = load_bytes(cell) else { continue };
        if points.iter().all(|(known, _)| *known != bytes) {
            points.push((bytes, samples));
        }
    }
    points.sort_by_key(|(bytes, _)| *bytes);
    let rounds = points.first().map_or(0, |(_, samples)| samples.len());
    let curves = (0..rounds).filter_map(|round| {
        let points = points.iter();
        points.map(|(bytes, samples)| Some((*bytes as f64, samples[round][0]?))).collect()
    });
    curves.collect()
}

/// Adds the time to pass a line, by the relation of the two PUs on `machine`.
pub fn lines(to: &mut Calibration, machine: &Machine, latencies: &[Latency], unix_s: u64) {
    let mut by_kind: BTreeMap<PuDistance, Vec<Latency>> = BTreeMap::new();
    for latency in latencies {
        let pair = PuDistance::of(machine, latency.pus.0, latency.pus.1);
        by_kind.entry(pair.unwrap_or(PuDistance::OtherPackage)).or_default().push(*latency);
    }
    for (pair, mut all) in by_kind {
        all.sort_by(|a, b| a.ns.total_cmp(&b.ns));
        let how = source(&Cell::Line([0, 0]));
        let source =
            format!("{how}; median, least and most of {} pair(s) and all rounds", all.len());
        let what = Quantity::LinePass { pair };
        let value = all[all.len() / 2].ns;
        let high = all.iter().map(|latency| latency.most_ns).fold(value, f64::max);
        let interval = Interval { low: all[0].ns, high };
        to.figures.push(of(what, value, interval, unix_s, source));
    }
    to.figures.sort_by(|a, b| a.what.cmp(&b.what));
}

/// Times of SMT-Bench kernels beside each other on two siblings.
pub fn beside(report: &SmtBenchReport, pus: [u32; 2], unix_s: u64) -> Vec<Figure> {
    let found = report.matrix.iter().filter_map(|cell| {
        let Estimate { value, interval } = cell.time?;
        let what =
            Quantity::Beside { kernel: cell.kernel.to_string(), beside: cell.beside.to_string() };
        let source = format!("SMT-Bench on PUs {} and {}, 3 rounds", pus[0], pus[1]);
        Some(of(what, value, interval?, unix_s, source))
    });
    found.collect()
}

/// Ratio of reported to measured size from which on the measured size of the last cache counts.
/// Measured sizes lie half-way between two sizes a factor of √2 apart.
const WRONG: f64 = 1.5;

/// Sets the last caches to their measured size where clearly smaller than reported; returns a note.
pub fn shrink_last_cache(machine: &mut Machine, measured: &Calibration) -> Option<String> {
    let (level, reported) = *cache_sizes(machine).last()?;
    let found = measured.get(&Quantity::CacheSize { level })?;
    if found.high * WRONG > reported {
        return None;
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a size in bytes
    let size = Bytes(found.value.round() as u64);
    for cache in machine.caches.iter_mut().filter(|cache| cache.level == level) {
        cache.size = Some(size);
    }
    let [value, low, high, reported] =
        [found.value, found.low, found.high, reported].map(|bytes| found.unit.text(bytes));
    Some(format!(
        "L{level} holds {value} ({low} to {high}) by measurement; reported: {reported}: other users of it, perhaps outside of this machine, have the rest"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::read;

    fn machine() -> Machine {
        read::open("xeon-x3320").unwrap()
    }

    /// Three rounds of one value.
    fn rounds(values: [f64; 3]) -> CellSamples {
        values.map(|value| vec![Some(value)]).into()
    }

    fn found(cells: &[Cell], taken: &[CellSamples]) -> Vec<Figure> {
        figures(&machine(), cells, taken, 7)
    }

    /// Two pairs of PUs, three rounds each: six samples, 4000 their geometric mean.
    #[test]
    fn pairs_of_a_kind_are_one_figure() {
        // PUs 0 and 1 share a cache, and so do 2 and 3.
        let trip = |a| Cell::Trip { pus: [a, a + 1], busy: false };
        let found = found(&[trip(0), trip(2)], &[rounds([2000.0; 3]), rounds([8000.0; 3])]);
        assert_eq!(found.len(), 1);
        let figure = &found[0];
        assert_eq!(figure.what, Quantity::RoundTrip { pair: PuDistance::SameCache, busy: false });
        assert!((figure.value - 4000.0).abs() < 1e-6 && figure.low < 2000.0, "{figure:?}");
        assert!(figure.source.ends_with("; 6 of 6 samples") && figure.unix_s == 7, "{figure:?}");
    }

    #[test]
    fn speeds_are_relative_to_the_fastest() {
        let visit =
            |rate: f64| vec![vec![Some(2e9), Some(rate), Some(100.0), Some(rate / 100.0)]; 3];
        let found = found(&[Cell::Visit(0), Cell::Visit(1)], &[visit(50.0), visit(100.0)]);
        let of = |what| found.iter().find(|it| it.what == what).unwrap().value;
        let speeds = [0, 1].map(PuNr).map(|pu| {
            [Quantity::Speed { pu }, Quantity::SpeedWhileRunning { pu }, Quantity::ShareOfPu { pu }]
                .map(of)
        });
        for (found, expected) in speeds.iter().flatten().zip([0.5, 1.0, 0.5, 1.0, 1.0, 1.0]) {
            assert!((found - expected).abs() < 1e-9, "{speeds:?}");
        }
    }

    /// What other load left no time for is absent, and shares of time may be 0.
    #[test]
    fn what_was_not_measured_is_absent() {
        let watched = vec![vec![Some(0.0), None, None]; 3];
        let found = found(&[Cell::Watch(3)], &[watched]);
        let what: Vec<&Quantity> = found.iter().map(|figure| &figure.what).collect();
        assert_eq!(what, [&Quantity::Away { pu: PuNr(3) }]);
        assert_eq!((found[0].low, found[0].value, found[0].high), (0.0, 0.0, 0.0));
    }

    /// Loads that wait 0.3 · L · ρ / √(1 − ρ) longer at half of the capacity.
    #[test]
    fn capacities_by_hand() {
        let node = machine().nodes.first().map(|node| node.os);
        let cells = [Cell::Beside { node, pus: vec![0, 1], bytes: 1 << 27, rows: 9 }];
        let wait = 0.3 * 100.0 * 0.5 / 0.5_f64.sqrt();
        let taken = [vec![vec![Some(100.0), Some(100.0 + wait), Some(10e9)]; 3]];
        let of = |found: &[Figure]| {
            found.iter().find(|it| it.what == Quantity::MemoryCapacity { node }).cloned()
        };
        let figure = of(&found(&cells, &taken)).unwrap();
        assert!((figure.value - 20e9).abs() < 1.0, "{figure:?}");
        // Loads that do not wait say nothing of it.
        let idle = [vec![vec![Some(100.0), Some(100.0), Some(10e9)]; 3]];
        assert_eq!(of(&found(&cells, &idle)), None);
    }

    /// 32 KiB at 2 ns, 1.5 MiB at 8 ns, memory at 90 ns; the last cache is reported to have 3 MiB.
    #[test]
    fn a_last_cache_that_others_use_is_smaller() {
        let sizes = (0..31).map(|step| 4096.0 * 2_f64.powf(f64::from(step) / 2.0));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let sizes: Vec<usize> = sizes.map(|size| size as usize).collect();
        let ns = |bytes: usize| match bytes >> 10 {
            0..=32 => 2.0,
            33..=1500 => 8.0,
            _ => 90.0,
        };
        let mut cells: Vec<Cell> = sizes.iter().map(|&bytes| Cell::Load { pu: 0, bytes }).collect();
        cells.push(Cell::Memory { from: None, to: None, pus: [0, 0], bytes: 1 << 28 });
        let taken: Vec<CellSamples> =
            sizes.iter().chain([&(1 << 28)]).map(|&bytes| rounds([ns(bytes); 3])).collect();
        let mut machine = machine();
        let mut measured = Calibration {
            identity: String::new(),
            kernel: None,
            started_unix_s: 0,
            seconds: 0.0,
            figures: figures(&machine, &cells, &taken, 0),
            assumed: vec![],
            absent: vec![],
            disagreements: vec![],
        };
        let value = |what| measured.get(&what).unwrap().value;
        assert!((value(Quantity::CacheLatency { level: 1 }) - 2.0).abs() < 1e-9);
        assert!((value(Quantity::CacheLatency { level: 2 }) - 8.0).abs() < 1e-9);
        let line = shrink_last_cache(&mut machine, &measured).unwrap();
        assert!(line.starts_with("L2 holds 1.") && line.contains("reported: 3.00 MiB"), "{line}");
        assert!(cache_sizes(&machine)[1].1 < 2.5e6);
        // The reported size, within what the steps can tell.
        measured.figures.retain(|figure| !matches!(figure.what, Quantity::CacheSize { .. }));
        assert_eq!(shrink_last_cache(&mut machine, &measured), None);
    }
}
