//! Speeds from figures, and calibrated machines written and read.

use super::*;
use crate::described;
use crate::exact::Exact;
use crate::units::{Bytes, Nanos};

fn machine() -> Machine {
    let text = described::MACHINES.iter().find(|(name, _)| *name == "xeon-x3320").unwrap().1;
    described::from_toml(text).unwrap().machine
}

fn figure(what: Quantity, value: f64) -> Figure {
    let (low, high) = (value * 0.9, value * 1.1);
    Figure { unit: what.unit(), what, value, low, high, unix_s: 1, source: "made up".into() }
}

/// Everything of a machine with four PUs of one kind, two levels of caches and one memory.
fn measured(machine: &Machine) -> Calibration {
    let kind = || machine.kinds[0].name.clone();
    let mut figures: Vec<Figure> =
        machine.pus.iter().map(|pu| figure(Quantity::Clock { pu: pu.os }, 2.5e9)).collect();
    figures.push(figure(Quantity::Slots { kind: kind() }, 3.96));
    figures.push(figure(Quantity::BranchMiss { kind: kind() }, 15.2));
    let cycles = [0.5, 0.34, 1.0, 20.0, 0.5, 0.52, 14.0, 0.98, 1.0];
    for (work, cycles) in WorkKind::ALL.into_iter().zip(cycles) {
        figures.push(figure(Quantity::Work { kind: kind(), work }, cycles));
    }
    for (level, ns) in [(1, 1.2), (2, 6.0)] {
        figures.push(figure(Quantity::CacheLatency { level }, ns));
    }
    let node = machine.nodes.first().map(|node| node.os);
    figures.push(figure(Quantity::MemoryLatency { from: node, to: node }, 80.0));
    figures.push(figure(Quantity::MemoryBandwidth { node, pus: 1 }, 4e9));
    figures.push(figure(Quantity::MemoryBandwidth { node, pus: 4 }, 7e9));
    Calibration {
        identity: identity(machine),
        kernel: None,
        started_unix_s: 1,
        seconds: 2.0,
        figures,
        assumed: Vec::new(),
        absent: Vec::new(),
        disagreements: Vec::new(),
    }
}

#[test]
fn speeds_follow_from_figures() {
    let machine = machine();
    let (found, assumed) = performance(&machine, &measured(&machine), Bytes(64)).unwrap();
    assert_eq!(found.check(&machine), Ok(()));
    let core = &found.kinds[0];
    assert_eq!((core.clock, core.width), (Hertz(2_500_000_000), 4.0));
    assert_eq!(core.ports.join(" "), "int0 int1 int2 float0 float1 load0 store0 int-div float-div");
    let of = |kind| {
        let unit = core.units.iter().find(|unit| unit.kind == kind).unwrap();
        (unit.ports.0, unit.occupancy.0)
    };
    assert_eq!((of(WorkKind::Int), of(WorkKind::Branch)), ((0b111, 1.0), (0b11, 1.0)));
    assert_eq!((of(WorkKind::IntMul), of(WorkKind::FloatMul)), ((0b1, 1.0), (0b1_1000, 1.0)));
    assert_eq!(of(WorkKind::IntDiv), (1 << 7, 20.0));
    let latencies: Vec<f64> = found.caches.iter().map(|cache| cache.latency.0).collect();
    assert_eq!(latencies, [3.0, 15.0]);
    assert_eq!(found.memory[0].latency, Nanos(80));
    assert_eq!(found.memory[0].bandwidth, BytesPerSecond(7e9));
    assert!(assumed.iter().any(|assumed| assumed.key == "cache.inclusion"));
}

#[test]
fn what_is_missing_is_named() {
    let machine = machine();
    let mut few = measured(&machine);
    few.figures.retain(|figure| !matches!(figure.what, Quantity::CacheLatency { level: 2 }));
    assert_eq!(performance(&machine, &few, Bytes(64)).unwrap_err(), "L2 latency is not known");
    few.figures.clear();
    assert_eq!(
        performance(&machine, &few, Bytes(64)).unwrap_err(),
        "the clock of core is not known"
    );
}

#[test]
fn a_calibrated_machine_is_written_and_read() {
    let machine = machine();
    let calibration = measured(&machine);
    let (performance, _) = performance(&machine, &calibration, Bytes(64)).unwrap();
    let exact = Exact {
        performance: Some(performance),
        calibration: Some(calibration),
        ..Exact::new(machine, None)
    };
    assert_eq!(Exact::from_json(&exact.to_json()), Ok(exact.clone()));
    assert_eq!(described::from_toml(&exact.to_toml().unwrap()), Ok(exact.clone()));
    let mut wrong = exact;
    wrong.calibration.as_mut().unwrap().figures[0].low = 1e12;
    assert_eq!(
        Exact::from_json(&wrong.to_json()).unwrap_err().to_string(),
        "calibration: expected figures within their intervals, in their units, found clock, PU 0: 1000000000000 to \
         2750000000, 2500000000 Hertz"
    );
}

#[test]
fn a_machine_is_known_again() {
    let machine = machine();
    let mut other = machine.clone();
    other.name = "renamed".into();
    other.nodes.iter_mut().for_each(|node| node.memory = Some(Bytes(7)));
    assert_eq!(identity(&machine), identity(&other));
    other.caches[0].size = Some(Bytes(7));
    assert_ne!(identity(&machine), identity(&other));
}

#[test]
fn figures_have_three_digits() {
    let text = |unit: FigureUnit, value| unit.text(value);
    assert_eq!(text(FigureUnit::Ns, 1.1349), "1.13 ns");
    assert_eq!(text(FigureUnit::Ns, 678_335.0), "678 us");
    assert_eq!(text(FigureUnit::Ns, 12_345_678.0), "12.3 ms");
    assert_eq!(text(FigureUnit::Bytes, 36_000.0), "35.2 KiB");
    assert_eq!(text(FigureUnit::Bytes, 9e6), "8.58 MiB");
    assert_eq!(text(FigureUnit::Ratio, 0.0), "0.00");
    assert_eq!(text(FigureUnit::Ratio, 0.0123), "0.012");
    assert_eq!(text(FigureUnit::Hertz, 3_524_000_000.0), "3.52 GHz");
}
