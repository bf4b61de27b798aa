//! The model on every described machine: consistency of the machines' figures and of the model.

use colocate_machine::described::{self, MACHINES};
use colocate_machine::performance::{CorePerformance, Performance, WorkKind};
use colocate_machine::{Bytes, Machine, PuIdx};
use colocate_model::assumptions::Assumptions;
use colocate_model::curve::MissCurve;
use colocate_model::phase::Demand;
use colocate_model::system::{Model, PlacedTask};

fn machines() -> impl Iterator<Item = (&'static str, Machine, Performance)> {
    MACHINES.into_iter().map(|(name, text)| {
        let exact = described::from_toml(text).expect(name);
        (name, exact.machine, exact.performance.expect(name))
    })
}

/// Independent instructions of one kind, without misses.
fn work(core: &CorePerformance, kind: WorkKind) -> Demand {
    let units = core.units.iter().filter(|unit| unit.kind == kind);
    let mut ports: Vec<_> = units.map(|unit| (unit.ports, unit.occupancy.0)).collect();
    ports.sort_unstable_by_key(|(set, _)| *set);
    Demand {
        slots: 1.0,
        ports,
        dependent_cycles: 0.0,
        dependent_cycles_divided: 0.0,
        stall_cycles: 0.0,
        misses: MissCurve::new([(Bytes(1), 0.0)]).unwrap(),
        parallel_misses: 1.0,
        written_back: 0.0,
        shared_lines: 0.0,
    }
}

/// Instructions per cycle of one task alone on the machine's last PU, on the fastest kind of core
/// if there are several.
fn alone(machine: &Machine, performance: &Performance, kind: WorkKind) -> f64 {
    let core = machine.cores.iter().max_by_key(|core| core.kind.0).unwrap();
    let demand = work(&performance.kinds[core.kind.idx()], kind);
    let model = Model::new(machine, performance, Assumptions::default()).unwrap();
    let seat = PlacedTask { pu: core.pus[0], demand: &demand, pages: &[], space: 0 };
    model.alone(&seat).ipc
}

/// Instructions of a kind per cycle as limited by units and slots, and as stated by the cores'
/// manuals.
#[test]
fn peak_rates() {
    let peaks = [
        ("epyc-7301", WorkKind::Int, 4.0),
        ("xeon-x3320", WorkKind::Int, 3.0),
        ("xeon-e5405", WorkKind::Int, 3.0),
        ("xeon-e5645", WorkKind::Int, 3.0),
        ("power8-10c", WorkKind::Int, 6.0),
        ("opteron-6282se", WorkKind::Int, 2.0),
        ("amp-4x12", WorkKind::Int, 3.0),
        ("epyc-7301", WorkKind::Load, 2.0),
        ("xeon-e5645", WorkKind::Load, 1.0),
        ("power8-10c", WorkKind::Load, 4.0),
        ("epyc-7301", WorkKind::Store, 1.0),
        ("power8-10c", WorkKind::Store, 2.0),
        ("epyc-7301", WorkKind::IntDiv, 1.0 / 41.0),
        ("xeon-e5645", WorkKind::FloatDiv, 1.0 / 22.0),
        ("power8-10c", WorkKind::IntDiv, 2.0 / 68.0),
    ];
    for (name, kind, peak) in peaks {
        let (_, machine, performance) = machines().find(|(found, ..)| *found == name).unwrap();
        let found = alone(&machine, &performance, kind);
        assert!((found - peak).abs() < 1e-9, "{name} {kind}: {found}");
    }
}

/// Tasks that miss with every instruction, one on every PU, all pages local: together they get most of
/// every controller's bandwidth and no more.
#[test]
fn streams_fill_the_controllers() {
    for (name, machine, performance) in machines() {
        let model = Model::new(&machine, &performance, Assumptions::default()).expect(name);
        let stream = |core: &CorePerformance| Demand {
            misses: MissCurve::new([(Bytes(1), 0.5)]).unwrap(),
            parallel_misses: 10.0,
            ..work(core, WorkKind::Load)
        };
        let demands: Vec<Demand> = performance.kinds.iter().map(stream).collect();
        let seats: Vec<PlacedTask<'_>> = (0..machine.pus.len())
            .map(|pu| {
                let kind = machine.core_of(PuIdx::new(pu)).idx();
                let demand = &demands[machine.cores[kind].kind.idx()];
                let space = u32::try_from(pu).unwrap();
                PlacedTask { pu: PuIdx::new(pu), demand, pages: &[], space }
            })
            .collect();
        let prediction = model.predict(&seats);
        let used: f64 = prediction.tasks.iter().map(|task| task.memory.0).sum();
        let there: f64 = performance.memory.iter().map(|memory| memory.bandwidth.0).sum();
        assert!((0.7..=1.0 + 1e-6).contains(&(used / there)), "{name}: {}", used / there);
    }
}
