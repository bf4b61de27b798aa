//! The properties of `parallelism-aware`, by hand and by drawn machines and programs.

use super::super::asymmetric::testing::{
    ThreadOutcome, World, amp_4x12, halves, machines, parallel, serial,
};
use super::*;
use crate::testing::machine;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Serial phases only.
const SERIAL: ParallelismAwareSettings =
    ParallelismAwareSettings { spare: false, ..ParallelismAwareSettings::USUAL };

/// The same, whatever it costs.
const FREE: ParallelismAwareSettings = ParallelismAwareSettings { cost: 0.0, ..SERIAL };

fn new(settings: ParallelismAwareSettings) -> ParallelismAware {
    ParallelismAware::new(settings)
}

/// Job, thread and PU of all that are placed.
fn numbers(placed: &[ThreadOutcome]) -> Vec<(u32, u32, u32)> {
    let each = |placed: &ThreadOutcome| Some((placed.id.job.0, placed.id.order, placed.pu?.0));
    placed.iter().filter_map(each).collect()
}

/// The same of all that are put somewhere and left to the kernel.
fn put(placed: &[ThreadOutcome]) -> Vec<(u32, u32, u32)> {
    let each = |placed: &ThreadOutcome| Some((placed.id.job.0, placed.id.order, placed.put?.0));
    placed.iter().filter_map(each).collect()
}

/// Sixteen threads, one on each core. In a serial phase the sixth goes from the slow core 5 to the
/// fast core 4 beside it. When all run again, all are the kernel's.
#[test]
fn near_first() {
    let mut world = World::new(amp_4x12(), &[16]);
    let mut pa = new(SERIAL);
    let mut quantum = |shares: Vec<f64>| numbers(&world.quantum(&mut pa, &[shares]));
    assert_eq!(quantum(parallel(16)), []);
    assert_eq!(quantum(serial(16, 5)), [(0, 5, 4)]);
    assert_eq!(quantum(serial(16, 5)), [(0, 5, 4)]);
    assert_eq!(quantum(parallel(16)), []);
    assert_eq!(
        pa.state(),
        "0 serial phases have fast cores now; fast cores were given 1 times, 0 of them across last-level caches, and 0 times to threads of parallel phases"
    );
}

/// Two jobs on one fast core and three slow ones. While A's thread 0 has the fast core, B's three
/// are left to the kernel: they have a core each, and none is on the fast one. When A's phase is
/// over and B's begins, A's threads, which both were last on the fast core, are put out of its way:
/// one where B's serial thread was, one where a thread sleeps.
#[test]
fn done_threads_go_back() {
    let mut world = World::new(halves("core:4", &[1]), &[2, 3]);
    // A is on 0 and 1, B on 2, 3 and 0.
    let mut pa = new(SERIAL);
    let mut quantum = |a: Vec<f64>, b: Vec<f64>| {
        let placed = world.quantum(&mut pa, &[a, b]);
        (numbers(&placed), put(&placed))
    };
    assert_eq!(quantum(serial(2, 0), parallel(3)), (vec![(0, 0, 1)], vec![]));
    assert_eq!(quantum(parallel(2), parallel(3)), (vec![], vec![]));
    let second = quantum(parallel(2), serial(3, 2));
    assert_eq!(second, (vec![(1, 2, 1)], vec![(0, 0, 0), (0, 1, 2)]));
}

/// The same with five threads of B, which have no core each: they share the slow ones.
#[test]
fn crowds_are_kept_off() {
    let mut world = World::new(halves("core:4", &[1]), &[2, 5]);
    // A is on 0 and 1, B on 2, 3, 0, 1 and 2.
    let mut pa = new(SERIAL);
    world.quantum(&mut pa, &[serial(2, 0), parallel(5)]);
    let placed = world.quantum(&mut pa, &[serial(2, 0), parallel(5)]);
    let expected = [(0, 0, 1), (1, 0, 2), (1, 1, 3), (1, 2, 0), (1, 3, 0), (1, 4, 2)];
    assert_eq!((numbers(&placed), put(&placed)), (expected.to_vec(), vec![]));
}

/// A's only thread is always runnable, and its program has bound it to the slow core 0; B's threads
/// are on the fast core 1 and on 0. No thread is put anywhere.
#[test]
fn bound_threads_are_left_alone() {
    let mut world = World::new(halves("core:2", &[1]), &[1, 2]);
    world.bound = vec![TaskId { job: JobIdx(0), order: 0 }];
    let mut pa = new(FREE);
    for _ in 0..4 {
        let placed = world.quantum(&mut pa, &[serial(1, 0), vec![1.0, 0.6]]);
        assert_eq!((numbers(&placed), put(&placed)), (vec![], vec![]));
        assert!(pa.state().starts_with("0 serial phases"));
    }
}

/// A's serial thread has the fast core 0; B's three threads share the slow cores 1 and 2. Four jobs
/// that sleep are not asked.
#[test]
fn sleepers_take_no_place() {
    let mut world = World::new(halves("core:3", &[0]), &[1, 3, 1, 1, 1, 1]);
    let mut pa = new(SERIAL);
    let mut shares = vec![serial(1, 0), parallel(3)];
    shares.resize(6, vec![0.0]);
    for _ in 0..3 {
        world.quantum(&mut pa, &shares);
    }
    let placed = world.quantum(&mut pa, &shares);
    let on = |pu| placed.iter().filter(|placed| placed.pu == Some(PuIdx(pu))).count();
    assert_eq!(numbers(&placed).last().unwrap().0, 1, "no job after B is placed");
    assert_eq!((on(0), on(1).max(on(2)), on(1).min(on(2))), (1, 2, 1));
    assert_eq!(put(&placed), []);
}

/// A quantum of 1 ms. LiveThread and back a thread fills 1 MiB and a third of 1 MiB at 2 GB/s, 0.70
/// ms, for a third of the phase's length: after 3 ms that is worth it. The next phase is expected
/// to last as long: when 1 ms of it was seen, 2 ms are left, of which a third is less. It goes on
/// for 9 ms: when it is 3 ms longer than the first one, 3 more are expected. The next one is
/// expected to last 6 ms, and crosses at once.
#[test]
fn short_phases_do_not_cross() {
    let mut world = World::new(machine("core:1 + slow core:3"), &[3]);
    world.quantum = Nanos::from_millis(1);
    let quanta = |settings: ParallelismAwareSettings, world: &mut World| -> String {
        let mut pa = new(settings);
        let longer = [vec![serial(3, 2); 8], vec![parallel(3), serial(3, 1)]].concat();
        // The first question is asked before anything was seen for any time.
        let course =
            [parallel(3), serial(3, 1), serial(3, 1), serial(3, 1), parallel(3), serial(3, 2)];
        let course = course.into_iter().chain(longer);
        let placed = |shares: Vec<f64>| match numbers(&world.quantum(&mut pa, &[shares])).len() {
            0 => '-',
            _ => 'F',
        };
        course.map(placed).collect()
    };
    assert_eq!(quanta(SERIAL, &mut world), "---F------FFFF-F");
    let mut world = World::new(machine("core:1 + slow core:3"), &[3]);
    world.quantum = Nanos::from_millis(1);
    assert_eq!(quanta(FREE, &mut world), "-FFF-FFFFFFFFF-F");
}

/// Quanta of 0.1 ms. A's thread on core 2 would fill half of 1 MiB on each side, 0.52 ms, for 0.05
/// ms: it stays. B's, which is beside the fast core and loses nothing, gets it.
#[test]
fn not_worth_it_is_no_obstacle() {
    let mut world = World::new(halves("l3:2 core:2", &[0]), &[3, 3]);
    world.quantum = Nanos(100_000);
    let mut pa = new(ParallelismAwareSettings::USUAL);
    world.quantum(&mut pa, &[parallel(3), parallel(3)]);
    let placed = world.quantum(&mut pa, &[serial(3, 2), serial(3, 2)]);
    assert_eq!((numbers(&placed), put(&placed)), (vec![(1, 2, 0)], vec![]));
}

#[test]
fn alike_is_os() {
    let mut world = World::new(machine("core:4 pu:2"), &[4, 1]);
    let mut pa = new(ParallelismAwareSettings { spare: true, ..ParallelismAwareSettings::USUAL });
    for _ in 0..3 {
        assert_eq!(numbers(&world.quantum(&mut pa, &[serial(4, 0), serial(1, 0)])), []);
    }
    assert_eq!(
        world.messages,
        ["all cores that may be used are equally fast: everything is left to the kernel"]
    );
}

#[test]
fn unknown_is_os() {
    let world = World::new(amp_4x12(), &[4]);
    let mut pa = new(ParallelismAwareSettings::USUAL);
    for _ in 0..3 {
        let mut queue = world.queue(&[serial(4, 0)]);
        queue[0].runnable = None;
        let now = Quantum { number: 0, machine: &world.machine, pus: &world.pus, queue: &queue };
        assert_eq!(pa.choose(&now), leave_to_kernel(now.queue));
    }
    assert_eq!(pa.messages.drain(), [NO_PHASES]);
    // Before anything has run there is nothing to complain of.
    let mut queue = world.queue(&[serial(4, 0)]);
    (queue[0].runnable, queue[0].just_ran) = (None, false);
    let now = Quantum { number: 0, machine: &world.machine, pus: &world.pus, queue: &queue };
    let mut pa = new(ParallelismAwareSettings::USUAL);
    assert_eq!(pa.choose(&now), leave_to_kernel(now.queue));
    assert!(pa.messages.drain().is_empty());
}

/// Shares of the threads of some jobs in a quantum.
fn any_shares(threads: &[usize]) -> impl Strategy<Value = Vec<Vec<f64>>> + use<> {
    let job = |&threads: &usize| {
        prop_oneof![
            2 => Just(parallel(threads)),
            4 => (0..threads).prop_map(move |one| serial(threads, one)),
            1 => Just(vec![0.0; threads]),
            1 => prop::collection::vec(0.0_f64..=1.0, threads),
        ]
    };
    threads.iter().map(job).collect::<Vec<_>>()
}

const THREADS: [usize; 4] = [4, 1, 6, 2];

/// The phases of all jobs.
fn phases_of(pa: &ParallelismAware) -> Vec<Option<JobPhase>> {
    (0..THREADS.len())
        .map(|job| pa.phases.of(JobIdx(u32::try_from(job).unwrap())).map(|seen| seen.phase))
        .collect()
}

fn serial_places(placed: &[ThreadOutcome]) -> Vec<PuIdx> {
    let serial = placed.iter().filter(|placed| placed.why == Allocated::SerialPhase);
    serial.filter_map(|placed| placed.pu).collect()
}

proptest! {
    #[test]
    fn places_are_sound(
        which in 0_usize..5,
        course in prop::collection::vec(any_shares(&THREADS), 1..10),
        left_out in prop::collection::btree_set(0_usize..16, 0..6),
        spare: bool,
    ) {
        let mut world = World::new(machines()[which].clone(), &THREADS);
        world.pus.retain(|pu| pu.idx() == 0 || !left_out.contains(&pu.idx()));
        let cores = Cores::new(&world.machine, &world.pus);
        let mut pa = new(ParallelismAwareSettings { spare, ..FREE });
        for shares in course {
            let placed = world.quantum(&mut pa, &shares);
            prop_assert!(placed.iter().flat_map(|placed| [placed.pu, placed.put]).flatten().all(|pu| world.pus.contains(&pu)));
            let serial = serial_places(&placed);
            let on: BTreeSet<_> = serial.iter().map(|pu| world.machine.core_of(*pu)).collect();
            prop_assert_eq!(on.len(), serial.len(), "two on one core");
            prop_assert!(serial.iter().all(|pu| world.is_fast(*pu)));
            let candidates = pa.candidates(&threads_of(&world.queue(&shares))).len();
            let seats = if cores.are_alike() { 0 } else { cores.fast().count().min(candidates) };
            prop_assert_eq!(serial.len(), seats);
            // No thread begins where a serial thread is.
            for pu in serial {
                let on = |placed: &&ThreadOutcome| placed.pu.or(placed.put) == Some(pu);
                prop_assert_eq!(placed.iter().filter(on).count(), 1);
                let stays = |placed: &&ThreadOutcome| !pa.phases.sleeps(placed.id.job) && world.queue(&shares).iter()
                    .flat_map(|job| &job.threads).any(|thread| thread.id == placed.id && thread.pu == Some(pu));
                prop_assert_eq!(placed.iter().filter(stays).count(), 1);
            }
        }
    }

    #[test]
    fn still_when_nothing_changes(
        which in 0_usize..5,
        before in prop::collection::vec(any_shares(&THREADS), 0..4),
        shares in any_shares(&THREADS),
    ) {
        let mut world = World::new(machines()[which].clone(), &THREADS);
        let mut pa = new(FREE);
        for shares in before {
            world.quantum(&mut pa, &shares);
        }
        // In the first one threads may seem to have stopped, and the second says whether they have.
        for _ in 0..2 {
            world.quantum(&mut pa, &shares);
        }
        let fast = Cores::new(&world.machine, &world.pus).fast().count();
        prop_assume!(pa.candidates(&threads_of(&world.queue(&shares))).len() <= fast);
        for _ in 0..5 {
            let placed = world.quantum(&mut pa, &shares);
            prop_assert!(placed.iter().all(|placed| !placed.moved), "{:?}", placed);
        }
    }

    #[test]
    fn one_move_for_a_change(
        which in 0_usize..5,
        course in prop::collection::vec(any_shares(&THREADS), 2..6),
    ) {
        let mut world = World::new(machines()[which].clone(), &THREADS);
        let fast = Cores::new(&world.machine, &world.pus).fast().count();
        let mut pa = new(FREE);
        for shares in course {
            let mut moves: BTreeMap<TaskId, u32> = BTreeMap::new();
            let mut crowded = false;
            let mut phases = BTreeSet::new();
            for _ in 0..4 {
                let placed = world.quantum(&mut pa, &shares);
                phases.insert(phases_of(&pa));
                crowded |= pa.candidates(&threads_of(&world.queue(&shares))).len() > fast;
                for placed in placed.iter().filter(|placed| placed.moved) {
                    *moves.entry(placed.id).or_default() += 1;
                }
            }
            // Threads that seem to have stopped and have not are two changes.
            let changes = u32::try_from(phases.len()).unwrap();
            prop_assert!(crowded || moves.values().all(|moves| *moves <= changes), "{:?}", moves);
        }
    }

    #[test]
    fn fair_to_candidates(which in 0_usize..5, jobs in 1_usize..14, quanta in 1_usize..40) {
        let mut world = World::new(machines()[which].clone(), &vec![1; jobs]);
        let fast = Cores::new(&world.machine, &world.pus).fast().count();
        let mut pa = new(ParallelismAwareSettings::USUAL);
        let mut had = vec![0_usize; jobs];
        for _ in 0..quanta {
            let placed = world.quantum(&mut pa, &vec![vec![1.0]; jobs]);
            for placed in placed.iter().filter(|placed| placed.why == Allocated::SerialPhase) {
                had[placed.id.job.0 as usize] += 1;
            }
        }
        // All are worth it from the second quantum on, when a length is known.
        let (least, most) = (had.iter().min().expect("some"), had.iter().max().expect("some"));
        prop_assert!(most - least <= 1, "{:?}", had);
        prop_assert!(*least > 0 || quanta <= jobs.saturating_sub(fast) + 1, "{:?}", had);
    }

    #[test]
    fn parallel_is_os(which in 0_usize..5, quanta in 1_usize..5) {
        let mut world = World::new(machines()[which].clone(), &[4, 3]);
        let mut pa = new(SERIAL);
        for _ in 0..quanta {
            let placed = world.quantum(&mut pa, &[parallel(4), parallel(3)]);
            prop_assert!(placed.iter().all(|placed| placed.pu.or(placed.put).is_none()));
        }
    }
}
