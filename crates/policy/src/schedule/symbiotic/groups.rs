//! Groups of threads by core: those that are, and how to better them step by step.

use super::Groups;
use crate::places::Places;
use crate::schedule::Thread;

/// What a group costs on a usable core.
pub(in crate::schedule) type Cost<'a> = &'a dyn Fn(usize, &[usize]) -> f64;

/// Whether all usable cores have as many usable PUs.
pub(in crate::schedule) fn is_even(places: &Places<'_>) -> bool {
    places.cores().iter().all(|core| core.pus.len() == places.width())
}

/// Threads that a core may have: no more than its share where cores are alike, else as many as it has PUs.
fn rooms(places: &Places<'_>, threads: usize) -> Vec<usize> {
    let cores = places.cores();
    let share = threads.div_ceil(cores.len().max(1)).max(1);
    let room = |pus: usize| if is_even(places) { pus.min(share) } else { pus };
    cores.iter().map(|core| room(core.pus.len())).collect()
}

/// Everybody on the core where they last ran, as far as there is room; the others on the emptiest.
pub(in crate::schedule) fn staying(places: &Places<'_>, threads: &[&Thread]) -> Groups {
    let cores = places.cores();
    let rooms = rooms(places, threads.len());
    let mut core_at = vec![None; places.machine().cores.len()];
    cores.iter().enumerate().for_each(|(at, core)| core_at[core.core.idx()] = Some(at));
    let mut groups: Groups = vec![Vec::new(); cores.len()];
    let mut rest = Vec::new();
    for (at, thread) in threads.iter().enumerate() {
        let last = thread.pu.and_then(|pu| core_at[places.machine().core_of(pu).idx()]);
        match last.filter(|&core| groups[core].len() < rooms[core]) {
            Some(core) => groups[core].push(at),
            None => rest.push(at),
        }
    }
    let order = places.spread_cores();
    for at in rest {
        let free = order.iter().filter(|&&core| groups[core].len() < rooms[core]);
        if let Some(&core) = free.min_by_key(|&&core| groups[core].len()) {
            groups[core].push(at);
        }
    }
    groups
}

/// Passes over all threads at most. Chosen: more than four were not seen to be needed for 64 threads.
const PASSES: usize = 8;
/// Least fall of the cost that counts; below it rounding could exchange back and forth for ever.
const WORTH: f64 = 1e-9;

/// The groups after moving threads to other cores with room, and exchanging two of different cores, as long as
/// that makes them cost less.
pub(in crate::schedule) fn exchanged(
    places: &Places<'_>,
    groups: Groups,
    cost: Cost<'_>,
) -> Groups {
    let mut search = Search {
        rooms: places.cores().iter().map(|core| core.pus.len()).collect(),
        costs: groups.iter().enumerate().map(|(core, group)| cost(core, group)).collect(),
        groups,
        cost,
    };
    for _ in 0..PASSES {
        if !search.pass() {
            break;
        }
    }
    search.groups
}

struct Search<'a> {
    rooms: Vec<usize>,
    groups: Groups,
    /// By core.
    costs: Vec<f64>,
    cost: Cost<'a>,
}

impl Search<'_> {
    /// Whether anything helped.
    fn pass(&mut self) -> bool {
        let mut helped = false;
        for a in 0..self.groups.len() {
            for b in a + 1..self.groups.len() {
                helped |= self.exchange(a, b) | self.moved(a, b) | self.moved(b, a);
            }
        }
        helped
    }

    fn exchange(&mut self, a: usize, b: usize) -> bool {
        let mut helped = false;
        for i in 0..self.groups[a].len() {
            for j in 0..self.groups[b].len() {
                self.change_places(a, i, b, j);
                if self.is_better(a, b) {
                    helped = true;
                } else {
                    self.change_places(a, i, b, j);
                }
            }
        }
        helped
    }

    fn change_places(&mut self, a: usize, i: usize, b: usize, j: usize) {
        let one = self.groups[a][i];
        self.groups[a][i] = std::mem::replace(&mut self.groups[b][j], one);
    }

    fn moved(&mut self, a: usize, b: usize) -> bool {
        let (mut helped, mut i) = (false, 0);
        while i < self.groups[a].len() && self.groups[b].len() < self.rooms[b] {
            let one = self.groups[a].remove(i);
            self.groups[b].push(one);
            if self.is_better(a, b) {
                helped = true;
            } else {
                self.groups[b].pop();
                self.groups[a].insert(i, one);
                i += 1;
            }
        }
        helped
    }

    /// Whether two cores cost less than before; then that is remembered.
    fn is_better(&mut self, a: usize, b: usize) -> bool {
        let costs = ((self.cost)(a, &self.groups[a]), (self.cost)(b, &self.groups[b]));
        let better = costs.0 + costs.1 < self.costs[a] + self.costs[b] - WORTH;
        if better {
            (self.costs[a], self.costs[b]) = costs;
        }
        better
    }
}
