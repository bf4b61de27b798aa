//! How fast cores go round, by hand and by drawn machines.

use super::super::super::Allocated;
use super::super::super::asymmetric::testing::{
    ThreadOutcome, World, amp_4x12, halves, machines, parallel, serial,
};
use super::super::{ParallelismAware, ParallelismAwareSettings};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Moves cost nothing.
const FREE: ParallelismAwareSettings =
    ParallelismAwareSettings { cost: 0.0, ..ParallelismAwareSettings::USUAL };

/// The thread on the fast core of three, each under a cache of its own, quantum by quantum, in a
/// job that is parallel all the time.
fn on_fast(settings: ParallelismAwareSettings, quanta: usize) -> Vec<u32> {
    let mut world = World::new(halves("l3:3 core:1", &[0]), &[3]);
    world.quantum = Nanos::from_millis(1);
    let mut pa = ParallelismAware::new(settings);
    let mut fast = 0;
    let mut next = |_| {
        for placed in world.quantum(&mut pa, &[parallel(3)]) {
            assert_eq!(placed.pu, None, "every thread is left to the kernel");
            if placed.put == Some(PuIdx(0)) {
                fast = placed.id.order;
            }
        }
        fast
    };
    (0..quanta).map(&mut next).collect()
}

/// Quanta of 1 ms. 0 begins on the fast core, and leaves it when it had a quantum more than the
/// least, as every thread does at no cost; where all had as much, the one that is there stays.
///
/// With caches of 1 MiB to fill there and back, 1.05 ms, no thread moves for the first 2.8 ms: a
/// quarter of them is less than √(1.05 · 2.8 · 0.5 / 3). Then `m` grows with the phase: √(1.05 · 3
/// / 3 / 0.5) = 1.4 ms after 3 ms, when 0 is ahead by 3; 1 is by 2 after 5 ms, when it is 1.9 less
/// half a quantum; 2 is ahead of 1 by 2 after 9 ms, when it is 2.5, and by 3 a quantum later.
#[test]
fn turns_by_hand() {
    assert_eq!(on_fast(FREE, 12), [0, 1, 2, 2, 0, 1, 1, 0, 2, 2, 0, 1]);
    assert_eq!(on_fast(ParallelismAwareSettings::USUAL, 12), [0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 1, 1]);
}

/// Two threads on two cores take turns as long as their phases are long; in phases of which 1 ms is
/// expected, 0.33 ms could be saved, and as long as √(1.05 · 1 · 0.5 · 0.5) = 0.5 ms would be
/// spent.
#[test]
fn short_phases_are_left_alone() {
    assert!(!pays(0.001, 0.5, 0.00105, 0.5));
    assert!(pays(0.003, 0.5, 0.00105, 0.5));
    assert!((margin(0.004, 1.0 / 3.0, 0.00105, 0.5) - 0.001_67).abs() < 1e-5);
    let mut world = World::new(halves("l3:2 core:1", &[0]), &[2]);
    world.quantum = Nanos::from_millis(1);
    let mut pa = ParallelismAware::new(ParallelismAwareSettings::USUAL);
    for number in 0..30 {
        let shares = if number % 2 == 0 { parallel(2) } else { serial(2, 0) };
        let placed = world.quantum(&mut pa, &[shares]);
        let turns = placed.iter().filter(|it| it.put == Some(PuIdx(0))).count();
        assert_eq!(turns, 0, "{number}");
    }
}

/// One fast core of three. While B sleeps there one of A's two threads goes there, and B is let
/// alone. While B is runnable it has the fast core for itself.
#[test]
fn sleepers_make_room_for_sharers() {
    let first = |b: f64| {
        let mut world = World::new(halves("core:3", &[0]), &[1, 2]);
        let mut pa = ParallelismAware::new(FREE);
        world.quantum(&mut pa, &[vec![b], parallel(2)])
    };
    let asleep = first(0.0);
    let found: Vec<(Option<PuIdx>, &Allocated)> =
        asleep.iter().map(|placed| (placed.put, &placed.why)).collect();
    let kernels = (None, &Allocated::LeftToKernel);
    assert_eq!(found, [kernels, (Some(PuIdx(0)), &Allocated::FastTurn), kernels]);
    assert!(first(1.0).iter().all(|placed| placed.why != Allocated::FastTurn));
}

/// Four domains of a fast and three slow cores: threads change with those beside them.
#[test]
fn near_first() {
    let mut world = World::new(amp_4x12(), &[16]);
    let mut pa = ParallelismAware::new(FREE);
    for _ in 0..20 {
        let placed: Vec<ThreadOutcome> = world.quantum(&mut pa, &[parallel(16)]);
        for placed in placed.iter().filter(|placed| placed.moved) {
            // Threads are created on the core of their number.
            let domain = |pu: u32| pu / 4;
            assert_eq!(placed.put.map(|pu| domain(pu.0)), Some(domain(placed.id.order)));
        }
    }
}

proptest! {
    /// No thread gets far ahead, whatever the machine, where all are there all the time and moves
    /// cost nothing.
    #[test]
    fn shares_are_even(which in 0_usize..5, jobs in prop::collection::vec(2_usize..6, 1..4), quanta in 20_u64..60) {
        let machine = machines()[which].clone();
        let mut world = World::new(machine, &jobs);
        let shares: Vec<Vec<f64>> = jobs.iter().map(|&threads| parallel(threads)).collect();
        let mut pa = ParallelismAware::new(FREE);
        for _ in 0..quanta {
            world.quantum(&mut pa, &shares);
        }
        let all: usize = jobs.iter().sum();
        let pus = world.pus.len();
        // Where PUs have several threads each, one of several on a fast core leaves it at a time.
        prop_assume!(all <= pus);
        let had: Vec<f64> = pa.sharing.known.values().map(|had| had.seconds).collect();
        let (least, most) = had.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), &had| (a.min(had), b.max(had)));
        prop_assert!(most - least <= 2.5 * world.quantum.as_secs_f64(), "{had:?}");
    }

    /// As many on each PU as before, but on fast ones that were idle and where those came from.
    #[test]
    fn exchanges_keep_loads(which in 0_usize..5, jobs in prop::collection::vec(1_usize..8, 1..5), quanta in 1_u64..12) {
        let mut world = World::new(machines()[which].clone(), &jobs);
        let shares: Vec<Vec<f64>> = jobs.iter().map(|&threads| parallel(threads.max(2))).collect();
        let jobs: Vec<usize> = shares.iter().map(Vec::len).collect();
        world = World::new(world.machine, &jobs);
        let mut pa = ParallelismAware::new(FREE);
        let load = |world: &World| {
            let mut load: BTreeMap<PuIdx, usize> = BTreeMap::new();
            for thread in world.queue(&shares).iter().flat_map(|job| &job.threads) {
                *load.entry(thread.pu.expect("it is somewhere")).or_default() += 1;
            }
            load
        };
        for _ in 0..quanta {
            let before = load(&world);
            world.quantum(&mut pa, &shares);
            for (pu, now) in load(&world) {
                let was = before.get(&pu).copied().unwrap_or(0);
                prop_assert!(now <= was || (was == 0 && now == 1 && world.is_fast(pu)), "{pu:?}: {was}, {now}");
            }
        }
    }
}
