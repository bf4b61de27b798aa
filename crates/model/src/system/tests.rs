//! Hand-traced predictions.

mod properties;

use super::*;
use crate::curve::MissCurve;
use colocate_machine::described;
use colocate_machine::performance::{
    CachePerformance, CorePerformance, Inclusion, LinkPerformance, MemoryPerformance, Performance,
    PortSet, Replacement,
};
use colocate_machine::{Bytes, Cycles, Hertz, Nanos};
use std::sync::OnceLock;

/// Round figures on the tree of two EPYC 7301: 2 GHz, 4 slots, 2 ports; L2 12 cycles, L3 40 cycles;
/// memory 100 ns and 16 GB/s a node; 50 ns more within a socket, 100 ns across.
pub fn machine() -> (Machine, Performance) {
    static TREE: OnceLock<Machine> = OnceLock::new();
    let machine = TREE.get_or_init(|| {
        let named = described::MACHINES.iter().find(|(name, _)| *name == "epyc-7301");
        described::from_toml(named.expect("there").1).expect("described").machine
    });
    let machine = machine.clone();
    let cache = |level, cycles, inclusion| CachePerformance {
        level,
        latency: Cycles(cycles),
        inclusion,
        replacement: Replacement::Lru,
        bandwidth: None,
    };
    let hop = |from: u32, to: u32| match (from == to, from / 4 == to / 4) {
        (true, _) => Nanos(0),
        (false, true) => Nanos(50),
        (false, false) => Nanos(100),
    };
    let across = |from: u32| (0..8).filter(move |to| from / 4 != to / 4).map(move |to| (from, to));
    let link = |name: &str, socket: u32| LinkPerformance {
        name: name.into(),
        crossed_by: (4 * socket..4 * socket + 4).flat_map(across).collect(),
        bandwidth: BytesPerSecond(32e9),
    };
    let performance = Performance {
        kinds: vec![CorePerformance {
            clock: Hertz(2_000_000_000),
            llvm_cpu: None,
            width: 4.0,
            ports: vec!["a".into(), "b".into()],
            units: vec![],
            branch_miss: Cycles(20.0),
            divided: true,
            thread_sets: 1,
        }],
        caches: vec![
            cache(1, 4.0, Inclusion::Neither),
            cache(2, 12.0, Inclusion::Neither),
            cache(3, 40.0, Inclusion::Neither),
        ],
        memory: vec![
            MemoryPerformance {
                latency: Nanos(100),
                bandwidth: BytesPerSecond(16e9),
                line: Bytes(64),
            };
            8
        ],
        hops: (0..8).map(|from| (0..8).map(|to| hop(from, to)).collect()).collect(),
        links: vec![link("0 to 1", 0), link("1 to 0", 1)],
    };
    (machine, performance)
}

/// One instruction a cycle on one of two ports, and `misses` per instruction of any cache.
pub fn demand(misses: f64) -> Demand {
    Demand {
        slots: 1.0,
        ports: vec![(PortSet(0b11), 1.0)],
        dependent_cycles: 1.0,
        dependent_cycles_divided: 1.0,
        stall_cycles: 0.0,
        misses: MissCurve::new([(Bytes(1024), misses)]).expect("a curve"),
        parallel_misses: 1.0,
        written_back: 0.0,
        shared_lines: 0.0,
    }
}

pub fn seat(pu: u32, demand: &Demand) -> PlacedTask<'_> {
    PlacedTask { pu: PuIdx(pu), demand, pages: &[], space: pu }
}

pub fn near(found: f64, expected: f64) {
    near_to(found, expected, 1e-5);
}

pub(crate) fn near_to(found: f64, expected: f64, share: f64) {
    assert!((found / expected - 1.0).abs() < share, "expected {expected}, found {found}");
}

/// One cycle of work and 1 % misses of 200 cycles make 3 cycles: 2/3 of 10⁹ instructions a second, which
/// read 64 · 0.01 · 2/3 · 10⁹ = 0.427 GB/s of 16. With that ρ = 0.0267 the wait is
/// 30 ns · 0.0267 / √0.9733 = 0.81 ns, 1.62 cycles a miss and 0.0162 an instruction; so ρ is 0.5 % lower:
/// 0.0265.
#[test]
fn alone_with_misses() {
    let (machine, performance) = machine();
    let model = Model::new(&machine, &performance, Assumptions::default()).expect("a model");
    let demand = demand(0.01);
    let rate = model.alone(&seat(0, &demand));
    near(rate.cpi.core, 1.0);
    near(rate.cpi.memory, 2.0);
    near(rate.cpi.total(), 1.0 / rate.ipc);
    let used = rate.memory.0 / 16e9;
    near(rate.memory.0, 64.0 * 0.01 * rate.instructions_per_second);
    near(rate.cpi.queues, 0.01 * 2.0 * 30.0 * used / (1.0 - used).sqrt());
    assert!((used - 0.0265).abs() < 0.0001, "{used}");
}

fn model<'a>(machine: &'a Machine, performance: &'a Performance) -> Model<'a> {
    Model::new(machine, performance, Assumptions::default()).expect("a model")
}

/// Misses of a first cache of 32 KiB, a second of 512 KiB and a third of 8 MiB.
fn curve(first: f64, second: f64, third: f64) -> MissCurve {
    let points = [(Bytes::kib(32), first), (Bytes::kib(512), second), (Bytes::mib(8), third)];
    MissCurve::new(points).expect("a curve")
}

/// 0.10 − 0.04 hits of 12 cycles and 0.04 − 0.01 of 40 are 1.92 cycles; 0.01 misses of 200 are 2; with two
/// under way at a time half of that.
#[test]
fn every_level_costs_its_latency() {
    let (machine, performance) = machine();
    let model = model(&machine, &performance);
    let mut demand = Demand { misses: curve(0.10, 0.04, 0.01), ..demand(0.0) };
    let rate = model.alone(&seat(0, &demand));
    near(rate.cpi.caches, 1.92);
    near(rate.cpi.memory, 2.0);
    assert_eq!(rate.misses, [0.10, 0.04, 0.01]);
    assert_eq!(rate.occupancy, [32_768.0, 524_288.0, 8_388_608.0]);
    demand.parallel_misses = 2.0;
    let rate = model.alone(&seat(0, &demand));
    near(rate.cpi.caches, 0.96);
    near(rate.cpi.memory, 1.0);
}

/// An exclusive third cache adds 8 MiB to the 512 KiB of the second; an inclusive one of which a task has
/// 256 KiB leaves it no more of the second.
#[test]
fn inclusion() {
    let (mut machine, mut performance) = machine();
    let line = MissCurve::new([(Bytes(0), 0.1), (Bytes::mib(16), 0.0)]).expect("a curve");
    let demand = Demand { misses: line, ..demand(0.0) };
    let missed = |mib: f64| 0.1 * (1.0 - mib / 16.0);
    performance.caches[2].inclusion = Inclusion::Exclusive;
    let rate = model(&machine, &performance).alone(&seat(0, &demand));
    near(rate.misses[2], missed(8.5));
    performance.caches[2].inclusion = Inclusion::Inclusive;
    for cache in machine.caches.iter_mut().filter(|cache| cache.level == 3) {
        cache.size = Some(Bytes::kib(256));
    }
    let rate = model(&machine, &performance).alone(&seat(0, &demand));
    assert_eq!(rate.occupancy, [32_768.0, 262_144.0, 262_144.0]);
    near(rate.misses[1], missed(0.25));
}

/// Siblings with equal streams have half of every cache of their core, and with two cores under it a
/// quarter of the third. Eight tasks of 0.1 · 64 bytes an instruction would use far more than 16 GB/s, so
/// nearly all of it is used, and each has an eighth.
#[test]
fn equal_tasks_get_equal_parts() {
    let (machine, performance) = machine();
    let model = model(&machine, &performance);
    let demand = Demand { parallel_misses: 64.0, ..demand(0.1) };
    let seats: Vec<_> = (0..8).map(|pu| seat(pu, &demand)).collect();
    let found = model.predict(&seats);
    assert!((0.9..1.0).contains(&found.controllers[0]), "{:?}", found.controllers);
    assert_eq!(found.controllers[1..], [0.0; 7]);
    for task in &found.tasks {
        near_to(task.memory.0, 2e9 * found.controllers[0], 1e-3);
        near_to(task.occupancy[0], 16_384.0, 1e-3);
        near_to(task.occupancy[1], 262_144.0, 1e-3);
        near_to(task.occupancy[2], 2_097_152.0, 1e-3);
    }
}

/// Pages on the other socket: 200 ns, 400 cycles, for 1 % of the instructions. The link carries what the
/// controller delivers: at 16 and 32 GB/s one share is twice the other. Half of the pages here, half there:
/// the mean of both latencies.
#[test]
fn pages_on_another_node() {
    let (machine, performance) = machine();
    let model = model(&machine, &performance);
    let demand = Demand { written_back: 0.5, ..demand(0.01) };
    let far = [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];
    let found = model.predict(&[PlacedTask { pages: &far, ..seat(0, &demand) }]);
    near(found.tasks[0].cpi.memory, 4.0);
    near(found.controllers[4], 2.0 * found.links[0]);
    let bytes = found.tasks[0].instructions_per_second * 0.01 * 64.0 * 1.5;
    near(found.tasks[0].memory.0, bytes);
    near(found.controllers[4], bytes / 16e9);
    assert_eq!((found.links[1], found.controllers[0]), (0.0, 0.0));
    let half = [3.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0];
    near(model.alone(&PlacedTask { pages: &half, ..seat(0, &demand) }).cpi.memory, 3.0);
}

/// A line of another task every 100 instructions. On the same core it is in the first cache already, under
/// the same third one 40 cycles away, on another die of the socket 150 ns or 300 cycles.
#[test]
fn lines_of_other_tasks() {
    let (machine, performance) = machine();
    let model = model(&machine, &performance);
    let demand = Demand { shared_lines: 0.01, ..demand(0.0) };
    let of = |pu| PlacedTask { space: 7, ..seat(pu, &demand) };
    let cost = |seats: &[PlacedTask<'_>]| model.predict(seats).tasks[0].cpi.communication;
    assert_eq!(cost(&[of(0)]), 0.0);
    assert_eq!(cost(&[of(0), seat(2, &demand)]), 0.0);
    assert_eq!(cost(&[of(0), of(1)]), 0.0);
    near(cost(&[of(0), of(2)]), 0.4);
    near(cost(&[of(0), of(8)]), 3.0);
    near(cost(&[of(0), of(1), of(2), of(8)]), (0.0 + 0.4 + 3.0) / 3.0);
    // To the other socket over the link: 0.01 · 64 bytes an instruction.
    let found = model.predict(&[of(0), of(32)]);
    near(found.tasks[0].cpi.communication, 4.0);
    near(found.links[0], 0.64 * found.tasks[0].instructions_per_second / 32e9);
    assert_eq!(found.tasks[0].memory.0, 0.0);
}

/// Two instructions a cycle alone on two ports; one each with a sibling.
#[test]
fn siblings_share_ports() {
    let (machine, performance) = machine();
    let model = model(&machine, &performance);
    let demand = Demand { dependent_cycles: 0.25, dependent_cycles_divided: 0.25, ..demand(0.0) };
    near(model.alone(&seat(0, &demand)).ipc, 2.0);
    let found = model.predict(&[seat(0, &demand), seat(1, &demand), seat(2, &demand)]);
    let ipc: Vec<f64> = found.tasks.iter().map(|task| task.ipc).collect();
    near(ipc[0], 1.0);
    near(ipc[1], 1.0);
    near(ipc[2], 2.0);
    near(found.tasks[0].cpi.siblings, 0.5);
    assert_eq!((found.slots[0], found.ports[0]), (0.5, 1.0));
    assert_eq!((found.slots[1], found.ports[1]), (0.5, 1.0));
}

/// 9 misses under way are one and 8 behind it; with half a window 4 behind it.
#[test]
fn a_divided_window_holds_fewer_misses() {
    assert_eq!((parallel(9.0, 1.0), parallel(9.0, 2.0), parallel(1.0, 4.0)), (9.0, 5.0, 1.0));
    let (machine, mut performance) = machine();
    let demand = Demand { parallel_misses: 9.0, misses: curve(0.1, 0.1, 0.0), ..demand(0.0) };
    let with_sibling = |performance: &Performance| {
        let idle = Demand { misses: curve(0.0, 0.0, 0.0), ..demand.clone() };
        let seats = [seat(0, &demand), seat(1, &idle)];
        model(&machine, performance).predict(&seats).tasks[0].cpi.caches
    };
    near(with_sibling(&performance), 0.1 * 40.0 / 5.0);
    performance.kinds[0].divided = false;
    near(with_sibling(&performance), 0.1 * 40.0 / 9.0);
}

/// At half the clock an instruction takes as many cycles on the core and half as many for memory.
#[test]
fn a_slower_core_waits_fewer_cycles() {
    let (machine, mut performance) = machine();
    let demand = demand(0.01);
    let fast = model(&machine, &performance).alone(&seat(0, &demand));
    performance.kinds[0].clock = Hertz(1_000_000_000);
    let slow = model(&machine, &performance).alone(&seat(0, &demand));
    near(slow.cpi.core, fast.cpi.core);
    near(slow.cpi.memory, fast.cpi.memory / 2.0);
    near(slow.instructions_per_second, slow.ipc * 1e9);
}

/// A working set of 256 KiB, 4096 lines, four under way at a time. To the other PU of the core nothing is
/// lost; under the same third cache each line takes 40 cycles, 20 ns: 20.48 µs in all; to another it
/// takes 100 ns from memory: 102.4 µs. A stream of any size loses nothing.
#[test]
fn cost_of_a_migration() {
    let (machine, performance) = machine();
    let model = model(&machine, &performance);
    let set = MissCurve::new([(Bytes(0), 0.1), (Bytes::kib(256), 0.0)]).expect("a curve");
    let demand = Demand { parallel_misses: 4.0, misses: set, ..demand(0.0) };
    let before = model.predict(&[seat(0, &demand)]);
    assert_eq!(before.tasks[0].occupancy, [32_768.0, 262_144.0, 262_144.0]);
    let moved =
        |to| model.refill(&seat(to, &demand), PuIdx(0), &before.tasks[0].occupancy, &[], &before);
    assert_eq!(moved(1), Migration::default());
    near(moved(2).lines, 4096.0);
    near(moved(2).seconds, 20.48e-6);
    near(moved(4).seconds, 102.4e-6);
    let far = [0.0, 0.0, 0.0, 0.0, 1.0];
    let seat = PlacedTask { pages: &far, ..seat(4, &demand) };
    let there = model.refill(&seat, PuIdx(0), &before.tasks[0].occupancy, &[], &before);
    near(there.seconds, 204.8e-6);
    let stream = tests::demand(0.01);
    let before = model.predict(&[tests::seat(0, &stream)]);
    let held = &before.tasks[0].occupancy;
    let moved = model.refill(&tests::seat(4, &stream), PuIdx(0), held, &[], &before);
    assert!(moved.lines < 1e-6, "{moved:?}");
}

/// Latency and bandwidth a fifth higher: 240 cycles a miss instead of 200; 19.2 GB/s.
#[test]
fn assumptions_scale_the_machine() {
    let (machine, performance) = machine();
    let assumptions = Assumptions { bandwidth: 1.2, latency: 1.2, ..Assumptions::default() };
    let model = Model::new(&machine, &performance, assumptions).expect("a model");
    let demand = demand(0.01);
    let found = model.predict(&[seat(0, &demand)]);
    near(found.tasks[0].cpi.memory, 2.4);
    near(found.controllers[0], found.tasks[0].memory.0 / 19.2e9);
}

#[test]
fn figures_of_another_machine() {
    let (machine, mut performance) = machine();
    performance.memory.pop();
    let error = Model::new(&machine, &performance, Assumptions::default()).unwrap_err();
    assert!(error.to_string().contains("expected 8 controllers, found 7"), "{error}");
}

#[test]
fn no_task() {
    let (machine, performance) = machine();
    let found = model(&machine, &performance).predict(&[]);
    assert!(found.tasks.is_empty());
    assert_eq!((found.rounds, found.controllers), (1, vec![0.0; 8]));
}

/// All PUs of every described machine busy, with its own figures: as many tasks on a core as it has PUs,
/// caches of every inclusion, controllers and links.
#[test]
fn every_described_machine() {
    for (name, text) in described::MACHINES {
        let machine = described::from_toml(text).expect(name).machine;
        let performance = described::performance(text).expect(name).expect(name);
        let model = model(&machine, &performance);
        let demands: Vec<Demand> = (1..=5)
            .map(|n| {
                let n = f64::from(n);
                let misses = curve(0.02 * n, 0.01 * n, 0.004 * n);
                Demand { misses, parallel_misses: n, shared_lines: 1e-4 * n, ..demand(0.0) }
            })
            .collect();
        let spread = vec![1.0; machine.nodes.len()];
        let of = |pu: PuIdx| PlacedTask {
            pu,
            demand: &demands[pu.idx() % 5],
            pages: if pu.0.is_multiple_of(3) { &spread } else { &[] },
            space: pu.0 % 4,
        };
        let seats: Vec<_> = machine.all_pus().map(of).collect();
        let found = model.predict(&seats);
        assert!(found.residual <= NEAR, "{name}: {} after {}", found.residual, found.rounds);
        let used = found.controllers.iter().chain(&found.links).chain(&found.slots);
        assert!(used.chain(&found.ports).all(|share| (0.0..=1.001).contains(share)), "{name}");
        for (seat, task) in seats.iter().zip(&found.tasks) {
            let alone = model.alone(seat);
            assert!(task.ipc > 0.0 && task.ipc <= alone.ipc * 1.001, "{name}: {task:?} {alone:?}");
        }
    }
}
