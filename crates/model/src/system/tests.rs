//! Hand-traced predictions.

use super::*;
use crate::curve::MissCurve;
use colocate_machine::described;
use colocate_machine::performance::{
    CachePerformance, CorePerformance, Inclusion, LinkPerformance, MemoryPerformance, Performance,
    PortSet,
};
use colocate_machine::{Bytes, Cycles, Hertz, Nanos};

/// Round figures on the tree of two EPYC 7301: 2 GHz, 4 slots, 2 ports; L2 12 cycles, L3 40 cycles;
/// memory 100 ns and 16 GB/s a node; 50 ns more within a socket, 100 ns across.
pub fn machine() -> (Machine, Performance) {
    let named = described::MACHINES.iter().find(|(name, _)| *name == "epyc-7301");
    let machine = described::from_toml(named.expect("described").1).expect("described").machine;
    let cache = |level, cycles, inclusion| CachePerformance {
        level,
        latency: Cycles(cycles),
        inclusion,
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

pub fn seat(pu: u32, demand: &Demand) -> Seat<'_> {
    Seat { pu: PuIdx(pu), demand, pages: &[], space: pu }
}

pub fn near(found: f64, expected: f64) {
    near_to(found, expected, 1e-5);
}

pub fn near_to(found: f64, expected: f64, share: f64) {
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
