//! Groups of threads by core: the present groups. Threads sorted for look-up.

use crate::places::UsableMachine;
use crate::schedule::{QueuedJob, Thread};

/// Threads by usable core.
pub(in crate::schedule) type CoreGroups = Vec<Vec<usize>>;

/// Number of usable PUs of each usable core.
pub(in crate::schedule) fn pus_of_cores(places: &UsableMachine<'_>) -> Vec<usize> {
    places.cores.iter().map(|core| core.pus.len()).collect()
}

/// Number of threads that each usable core may have: its even share where cores are alike or there
/// is a core for each thread, else its number of PUs.
fn rooms(places: &UsableMachine<'_>, threads: usize) -> Vec<usize> {
    let cores = &places.cores;
    let share = threads.div_ceil(cores.len().max(1)).max(1);
    let is_shared_out = places.is_even() || threads <= cores.len();
    let pus = cores.iter().map(|core| core.pus.len());
    pus.map(|pus| if is_shared_out { pus.min(share) } else { pus }).collect()
}

/// The present groups: threads on their last cores while there is room, or on the emptiest.
pub(in crate::schedule) fn staying(places: &UsableMachine<'_>, threads: &[&Thread]) -> CoreGroups {
    let cores = &places.cores;
    let rooms = rooms(places, threads.len());
    let mut core_at = vec![None; places.machine.cores.len()];
    cores.iter().enumerate().for_each(|(at, core)| core_at[core.core.idx()] = Some(at));
    let mut groups: CoreGroups = vec![Vec::new(); cores.len()];
    let mut rest = Vec::new();
    for (at, thread) in threads.iter().enumerate() {
        let last = thread.pu.and_then(|pu| core_at[places.machine.core_of(pu).idx()]);
        match last.filter(|&core| groups[core].len() < rooms[core]) {
            Some(core) => groups[core].push(at),
            None => rest.push(at),
        }
    }
    if !rest.is_empty() {
        put_on_the_emptiest(places, &rooms, rest, &mut groups);
    }
    groups
}

/// Puts each thread on the emptiest core with room, the first in the order of spreading.
fn put_on_the_emptiest(
    places: &UsableMachine<'_>,
    rooms: &[usize],
    rest: Vec<usize>,
    groups: &mut CoreGroups,
) {
    let order = places.spread_cores();
    let mut rest = rest.into_iter();
    // A core that gets a thread has one more than the emptiest, so its turn comes again when all
    // have as many.
    for level in 0..places.width() {
        for &core in &order {
            if groups[core].len() == level && level < rooms[core] {
                let Some(at) = rest.next() else { return };
                groups[core].push(at);
            }
        }
    }
}

/// A thread of the queue, and whether its job ran in the last quantum.
pub(in crate::schedule) type LiveThread<'a> = (&'a Thread, bool);

/// All threads of the queue, in the order of their ids; of equal ids only the first.
pub(in crate::schedule) fn live_threads(queue: &[QueuedJob]) -> Vec<LiveThread<'_>> {
    let threads = queue.iter().flat_map(|job| job.threads.iter().map(|it| (it, job.just_ran)));
    let mut found: Vec<LiveThread<'_>> = threads.collect();
    // Queues are runs of sorted threads, which this sort makes use of.
    found.sort_by_key(|(thread, _)| thread.id);
    found.dedup_by_key(|(thread, _)| thread.id);
    found
}
