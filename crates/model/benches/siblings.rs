//! One core with 2, 4 and 8 tasks: time of the set-up, and of a round with stalls.

use colocate_machine::performance::PortSet;
use colocate_model::phase::{Demand, typical_misses};
use colocate_model::rng::SplitMix64;
use colocate_model::smt::{SharedResources, Siblings};
use colocate_model::{Assumptions, Fairness};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

/// Port groups of a Zen core as in LLVM's znver1: four for integers, one of them multiplies, two of
/// them branch; two for addresses; four for floating point, two of them add and two multiply;
/// dividers.
const GROUPS: [u32; 9] = [
    0b0000_0000_1111,
    0b0000_0000_0010,
    0b0000_0000_1001,
    0b0000_0011_0000,
    0b0011_1100_0000,
    0b0000_1100_0000,
    0b0011_0000_0000,
    0b0100_0000_0000,
    0b1000_0000_0000,
];

/// A task that uses all of them, more or less.
fn demand(rng: &mut SplitMix64) -> Demand {
    let mut ports: Vec<_> = GROUPS.map(|set| (PortSet(set), 0.4 * rng.unit())).into();
    ports.sort_by_key(|(set, _)| *set);
    let dependent_cycles = 0.3 + rng.unit();
    Demand {
        slots: 1.0 + 0.3 * rng.unit(),
        ports,
        dependent_cycles,
        dependent_cycles_divided: 1.2 * dependent_cycles,
        stall_cycles: 0.1,
        misses: typical_misses(1.0),
        parallel_misses: 2.0,
        written_back: 0.3,
        shared_lines: 0.0,
    }
}

fn siblings(c: &mut Criterion) {
    let core = SharedResources {
        width: 5.0,
        divided: true,
        sets: 1.0,
        whole: PortSet(0),
        fairness: Fairness::Progress,
    };
    let overlap = Assumptions::default().overlap;
    for tasks in [2, 4, 8] {
        let mut rng = SplitMix64::new(tasks);
        let demands: Vec<Demand> = (0..tasks).map(|_| demand(&mut rng)).collect();
        let demands: Vec<&Demand> = demands.iter().collect();
        let stalls: Vec<f64> = demands.iter().map(|_| 2.0 * rng.unit()).collect();
        let mut kept = Siblings::new(core, &demands);
        let mut rates = kept.with_stalls(overlap, &stalls);
        c.bench_function(&format!("set of {tasks}"), |b| {
            b.iter(|| kept.set(core, black_box(&demands)));
        });
        c.bench_function(&format!("round of {tasks}"), |b| {
            b.iter(|| kept.round(overlap, black_box(&stalls), &mut rates));
        });
    }
}

criterion_group!(benches, siblings);
criterion_main!(benches);
