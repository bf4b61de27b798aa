//! What the seats on fast cores are held to.

use super::super::super::testing::queue;
use super::super::testing::{amp_4x12, halves, machines};
use super::*;
use crate::testing::machine;
use colocate_machine::Hertz;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Threads that last ran on these PUs.
fn threads(pus: &[u32]) -> Vec<Thread> {
    let jobs = queue(&vec![0.0; pus.len()]);
    let place = |(job, &pu): (super::super::super::QueuedJob, &u32)| Thread {
        pu: Some(PuIdx(pu)),
        ..job.threads[0].clone()
    };
    jobs.into_iter().zip(pus).map(place).collect()
}

fn cores(machine: &Machine) -> Cores {
    Cores::new(machine, &machine.all_pus().collect::<Vec<_>>())
}

fn always(_: usize, _: Move) -> bool {
    true
}

#[test]
fn fast_and_slow() {
    let amp = cores(&amp_4x12());
    let mut fast: Vec<usize> = amp.fast().collect();
    fast.sort_unstable();
    assert_eq!(fast, [0, 4, 8, 12]);
    assert!((amp.ratio - 2.0).abs() < 1e-12 && !amp.are_alike());
    assert!(cores(&machine("core:4 pu:2")).are_alike());
    // Nothing known but the order of the kinds.
    let unknown = cores(&machine("core:1 + slow core:1"));
    assert!((unknown.ratio - ASSUMED_RATIO).abs() < 1e-12 && !unknown.are_alike());
    // Only slow ones may be used: they are alike.
    let slow: Vec<PuIdx> = [1, 2, 3, 5].map(PuIdx).to_vec();
    assert!(Cores::new(&amp_4x12(), &slow).are_alike());
}

/// Capacities of 1024, 900 and 400: two kinds are fast, the fastest comes first. Without capacities
/// clocks say it.
#[test]
fn three_kinds() {
    let mut machine = halves("core:3", &[2]);
    machine.kinds.insert(1, machine.kinds[1].clone());
    machine.kinds[0].capacity = Some(400);
    machine.kinds[1].capacity = Some(900);
    machine.cores[1].kind = colocate_machine::KindIdx(1);
    machine.cores[2].kind = colocate_machine::KindIdx(2);
    assert_eq!(cores(&machine).fast().collect::<Vec<_>>(), [2, 1]);
    for (kind, mhz) in machine.kinds.iter_mut().zip([1000, 1400, 2000]) {
        (kind.capacity, kind.max_frequency) = (None, Some(Hertz::mhz(mhz)));
    }
    assert_eq!(cores(&machine).fast().collect::<Vec<_>>(), [2]);
}

/// 64 + 512 KiB of its own and a quarter of 2 MiB, on either side: near 2 · 576 KiB at 2 GB/s, far
/// 2 · 1,088 KiB.
#[test]
fn refill_by_hand() {
    let cores = cores(&amp_4x12());
    let one = &threads(&[1])[0];
    let kib = |kib: f64| kib * 1024.0 / REFILL;
    let (near, far) = (cores.migration(one, 0), cores.migration(one, 4));
    assert!((near.cost - kib(2.0 * 576.0)).abs() < 1e-12 && !near.crossing);
    assert!((far.cost - kib(2.0 * 1088.0)).abs() < 1e-12 && far.crossing);
    assert!((near.gain - 0.5).abs() < 1e-12);
    let stays = cores.migration(one, 1);
    assert_eq!(stays, Move { gain: 0.0, cost: 0.0, crossing: false });
}

/// Five threads on a machine with two fast cores with siblings and one taken: the other four cores
/// get one each, one of them two, where it is already; the taken core's sibling stays empty.
#[test]
fn siblings_last() {
    let machine = halves("core:5 pu:2", &[0]);
    let cores = cores(&machine);
    let taken = [(0, PuIdx(0))];
    let groups = cores.groups_beside(&taken);
    let found = |pus: &[u32]| -> Vec<u32> {
        let threads = threads(pus);
        let found = cores.spread(&threads.iter().collect::<Vec<_>>(), &groups, &taken);
        found.into_iter().map(|pu| pu.expect("a place").0).collect()
    };
    assert_eq!(found(&[0, 1, 6, 7, 7]), [2, 4, 6, 7, 8]);
    // Nine: all eight others, then the sibling.
    assert_eq!(found(&[2, 3, 4, 5, 6, 7, 8, 9, 0]), [2, 3, 4, 5, 6, 7, 8, 9, 1]);
}

/// The least number of crossings of all ways to give each thread a core of its own.
fn fewest_crossings(cores: &Cores, threads: &[&Thread], free: &[usize]) -> usize {
    let Some((first, rest)) = threads.split_first() else { return 0 };
    let with = |place: usize| {
        let mut left = free.to_vec();
        let core = left.remove(place);
        usize::from(cores.migration(first, core).crossing) + fewest_crossings(cores, rest, &left)
    };
    (0..free.len()).map(with).min().expect("a core each")
}

proptest! {
    #[test]
    fn one_each_and_near_first(which in 0_usize..5, pus in prop::collection::vec(0_u32..64, 0..4)) {
        let machine = &machines()[which];
        let cores = cores(machine);
        let free: Vec<usize> = cores.fast().collect();
        let count = u32::try_from(machine.pus.len()).expect("few");
        let pus: Vec<u32> = pus.iter().take(free.len()).map(|pu| pu % count).collect();
        let threads = threads(&pus);
        let threads: Vec<&Thread> = threads.iter().collect();
        let seats = cores.seats(&threads, &free, &always);
        let seats: Vec<usize> = seats.into_iter().map(|seat| seat.expect("one each")).collect();
        prop_assert_eq!(seats.iter().collect::<BTreeSet<_>>().len(), threads.len());
        prop_assert!(seats.iter().all(|seat| free.contains(seat)));
        let crossings = threads.iter().zip(&seats).filter(|(thread, core)| cores.migration(thread, **core).crossing).count();
        prop_assert_eq!(crossings, fewest_crossings(&cores, &threads, &free));
    }

    #[test]
    fn even_and_still(which in 0_usize..5, pus in prop::collection::vec(0_u32..64, 1..40), takes in 0_usize..4) {
        let machine = &machines()[which];
        let cores = cores(machine);
        let taken: Vec<(usize, PuIdx)> = cores.fast().take(takes).map(|core| (core, cores.all[core].pus[0])).collect();
        let count = u32::try_from(machine.pus.len()).expect("few");
        let mut threads = threads(&pus.iter().map(|pu| pu % count).collect::<Vec<_>>());
        let groups = cores.groups_beside(&taken);
        let ask = |threads: &[Thread]| cores.spread(&threads.iter().collect::<Vec<_>>(), &groups, &taken);
        let found: Vec<PuIdx> = ask(&threads).into_iter().map(|pu| pu.expect("a place")).collect();
        let load = |pu: &PuIdx| found.iter().filter(|found| *found == pu).count();
        let is_taken = |core: usize| taken.iter().any(|(taken, _)| *taken == core);
        prop_assert!(taken.iter().all(|(_, pu)| load(pu) == 0));
        let on = |taken: bool| (0..cores.all.len()).filter(move |&core| is_taken(core) == taken);
        let of = |core: usize| cores.all[core].pus.iter().map(load).sum::<usize>();
        for (a, b) in on(false).flat_map(|a| on(false).map(move |b| (a, b))) {
            let width = cores.all[a].pus.len();
            if width == cores.all[b].pus.len() {
                prop_assert!(of(a).abs_diff(of(b)) <= 1, "{:?}", found);
            }
        }
        let beside_full = on(false).all(|core| cores.all[core].pus.iter().all(|pu| load(pu) > 0));
        prop_assert!(beside_full || on(true).all(|core| of(core) == 0), "{:?}", found);
        let free = machine.all_pus().filter(|pu| taken.iter().all(|(_, taken)| taken != pu));
        let loads: Vec<usize> = free.map(|pu| load(&pu)).collect();
        let (least, most) = (loads.iter().min().expect("some"), loads.iter().max().expect("some"));
        prop_assert!(most - least <= 1, "{:?}", loads);
        threads.iter_mut().zip(&found).for_each(|(thread, pu)| thread.pu = Some(*pu));
        prop_assert_eq!(ask(&threads).into_iter().flatten().collect::<Vec<_>>(), found.clone());
    }
}
