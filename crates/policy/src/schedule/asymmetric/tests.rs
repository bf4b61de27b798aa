//! What holds of all schedulers for fast and slow cores, by drawn machines and programs.

use super::testing::{ThreadOutcome, World, amp_4x12, machines, parallel, serial};
use crate::{Policy, PolicySpec};
use colocate_evidence::TaskId;
use colocate_machine::PuIdx;
use proptest::prelude::*;
use std::collections::BTreeMap;

const ALL: [&str; 4] = ["parallelism-aware", "efficiency", "utility", "all-fast-first"];

/// Those that move no thread but for changes of phases; moves cost `parallelism-aware` nothing, so
/// that it makes all of them.
const BY_PHASE: [&str; 3] = ["parallelism-aware:spare=no:cost=0", "utility", "all-fast-first"];

fn scheduler(name: &str) -> Box<dyn Policy> {
    PolicySpec::named(name).plain()
}

/// What threads do in a quantum: one of each job, or all.
fn any_phases(threads: &[usize]) -> impl Strategy<Value = Vec<Vec<f64>>> + use<> {
    let job = |&threads: &usize| {
        prop_oneof![Just(parallel(threads)), (0..threads).prop_map(move |one| serial(threads, one)),]
    };
    threads.iter().map(job).collect::<Vec<_>>()
}

const THREADS: [usize; 3] = [4, 7, 2];

/// So many jobs have one runnable thread.
fn serial_jobs(shares: &[Vec<f64>]) -> usize {
    shares.iter().filter(|job| job.iter().filter(|share| **share > 0.0).count() == 1).count()
}

/// How many of `placed` begin on each PU.
fn loads(world: &World, shares: &[Vec<f64>]) -> BTreeMap<PuIdx, usize> {
    let mut loads: BTreeMap<PuIdx, usize> = world.pus.iter().map(|pu| (*pu, 0)).collect();
    for thread in world.queue(shares).iter().flat_map(|job| &job.threads) {
        *loads.entry(thread.pu.expect("it is somewhere")).or_default() += 1;
    }
    loads
}

proptest! {
    /// No thread waits for a PU longer than others have to: where there are as many PUs as threads
    /// and one more for each that keeps its core to itself, no thread shares one with two others.
    #[test]
    fn no_pu_is_crowded(name in prop::sample::select(&ALL), which in 0_usize..5, course in prop::collection::vec(any_phases(&THREADS), 1..8)) {
        let mut world = World::new(machines()[which].clone(), &THREADS);
        let mut scheduler = scheduler(name);
        for shares in course {
            let before = loads(&world, &shares);
            world.quantum(&mut *scheduler, &shares);
            let (now, all) = (loads(&world, &shares), before.values().sum::<usize>());
            let fair = all.div_ceil(world.pus.len());
            // The kernel's affair is what is not placed: that was so before.
            let most = before.values().copied().max().unwrap_or(0).max(fair + 1);
            prop_assert!(now.values().all(|load| *load <= most), "{before:?} {now:?}");
            prop_assert_eq!(now.len(), world.pus.len(), "usable PUs only");
        }
    }

    /// In a phase that lasts no thread moves after the first quantum, and then once at most. As
    /// long as there is a fast core for each serial phase; and a boost that ends makes no
    /// difference.
    #[test]
    fn one_move_for_a_change(
        name in prop::sample::select(&BY_PHASE),
        which in 0_usize..5,
        course in prop::collection::vec(any_phases(&THREADS), 1..6),
    ) {
        let mut world = World::new(machines()[which].clone(), &THREADS);
        let fast = world.pus.iter().filter(|pu| world.is_fast(**pu)).map(|pu| world.machine.core_of(*pu));
        let fast = fast.collect::<std::collections::BTreeSet<_>>().len();
        let mut scheduler = scheduler(name);
        for shares in course {
            // Fewer threads than that are useful enough to take turns.
            if name == "utility" && !useless(&shares, fast) {
                continue;
            }
            if serial_jobs(&shares) > fast {
                continue;
            }
            let mut moves: BTreeMap<TaskId, usize> = BTreeMap::new();
            for number in 0..10 {
                let placed = world.quantum(&mut *scheduler, &shares);
                let moved: Vec<&ThreadOutcome> = placed.iter().filter(|placed| placed.moved).collect();
                prop_assert!(number == 0 || moved.is_empty(), "{number}: {moved:?}");
                moved.iter().for_each(|placed| *moves.entry(placed.id).or_default() += 1);
            }
            prop_assert!(moves.values().all(|moves| *moves == 1), "{moves:?}");
        }
    }

    /// A thread that is alone goes to the fast core beside it.
    #[test]
    fn near_first(name in prop::sample::select(&ALL), one in 0_usize..16) {
        let mut world = World::new(amp_4x12(), &[16]);
        let mut scheduler = scheduler(name);
        world.ipc = Box::new(|_, _| Some(1.0));
        for _ in 0..3 {
            let placed = world.quantum(&mut *scheduler, &[serial(16, one)]);
            let on: Vec<usize> = placed.iter().filter_map(|placed| placed.pu).map(PuIdx::idx).collect();
            // To find out how fast it is on a slow core, it goes there for a quantum.
            prop_assert!(on.iter().all(|pu| pu / 4 == one / 4), "{on:?}");
        }
    }
}

/// Whether all threads of parallel jobs are of low utility: (SF − 1) / (N − (F − 1))², of two times
/// as fast cores, is less than a third.
fn useless(shares: &[Vec<f64>], fast: usize) -> bool {
    let count = |job: &Vec<f64>| job.iter().filter(|share| **share > 0.0).count();
    shares.iter().map(count).all(|count| count == 1 || count > fast)
}
