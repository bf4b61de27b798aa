//! Groups of threads by core: those that are, and how to better them step by step.

use crate::places::Places;
use crate::schedule::Thread;

/// Threads by usable core.
pub(in crate::schedule) type Groups = Vec<Vec<usize>>;

/// Whether all usable cores have as many usable PUs.
pub(in crate::schedule) fn is_even(places: &Places<'_>) -> bool {
    let width = places.width();
    places.cores.iter().all(|core| core.pus.len() == width)
}

/// Threads that a core may have: no more than its share where cores are alike or there is one for
/// each thread, else as many as it has PUs.
fn rooms(places: &Places<'_>, threads: usize) -> Vec<usize> {
    let cores = &places.cores;
    let share = threads.div_ceil(cores.len().max(1)).max(1);
    let is_shared_out = is_even(places) || threads <= cores.len();
    let room = |pus: usize| if is_shared_out { pus.min(share) } else { pus };
    cores.iter().map(|core| room(core.pus.len())).collect()
}

/// Each on the core where it last ran, as far as there is room; the others on the emptiest.
pub(in crate::schedule) fn staying(places: &Places<'_>, threads: &[&Thread]) -> Groups {
    let cores = &places.cores;
    let rooms = rooms(places, threads.len());
    let mut core_at = vec![None; places.machine.cores.len()];
    cores.iter().enumerate().for_each(|(at, core)| core_at[core.core.idx()] = Some(at));
    let mut groups: Groups = vec![Vec::new(); cores.len()];
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

/// Each goes to the emptiest core, the first in the order of spreading, as long as there is room.
fn put_on_the_emptiest(
    places: &Places<'_>,
    rooms: &[usize],
    rest: Vec<usize>,
    groups: &mut Groups,
) {
    let order = places.spread_cores();
    let mut rest = rest.into_iter();
    // A core that gets one has one more than the emptiest, so its turn comes again when all have as
    // many.
    for level in 0..places.width() {
        for &core in &order {
            if groups[core].len() == level && level < rooms[core] {
                let Some(at) = rest.next() else { return };
                groups[core].push(at);
            }
        }
    }
}

/// Passes over all threads at most. Chosen: more than four were not seen to be needed for 64
/// threads.
const PASSES: usize = 8;
/// Least fall of the cost that counts; below it rounding could exchange back and forth for ever.
const WORTH: f64 = 1e-9;

/// The groups after moving threads to other cores with room, and exchanging two of different cores,
/// as long as that makes them cost less. `cost` is that of a group on a usable core; on cores of
/// the same of the `classes`, which are by core, it is the same.
pub(in crate::schedule) fn exchanged(
    places: &Places<'_>,
    groups: Groups,
    classes: &[usize],
    cost: impl Fn(usize, &[usize]) -> f64,
) -> Groups {
    let mut search = Search {
        before: vec![true; groups.len()],
        now: vec![false; groups.len()],
        rooms: places.cores.iter().map(|core| core.pus.len()).collect(),
        costs: groups.iter().enumerate().map(|(core, group)| cost(core, group)).collect(),
        groups,
        classes,
        cost,
    };
    for _ in 0..PASSES {
        if !search.pass() {
            break;
        }
    }
    search.groups
}

struct Search<'a, C> {
    rooms: Vec<usize>,
    groups: Groups,
    /// By core, whether its group changed in the pass before, and whether it did in this one: two
    /// that are as they were in the pass before have nothing to exchange.
    before: Vec<bool>,
    now: Vec<bool>,
    /// By core.
    costs: Vec<f64>,
    classes: &'a [usize],
    cost: C,
}

impl<C: Fn(usize, &[usize]) -> f64> Search<'_, C> {
    /// Whether anything helped.
    fn pass(&mut self) -> bool {
        self.now.fill(false);
        for a in 0..self.groups.len() {
            for b in a + 1..self.groups.len() {
                let is_new = self.before[a] || self.before[b] || self.now[a] || self.now[b];
                if is_new && (self.exchange(a, b) | self.moved(a, b) | self.moved(b, a)) {
                    (self.now[a], self.now[b]) = (true, true);
                }
            }
        }
        std::mem::swap(&mut self.before, &mut self.now);
        self.before.contains(&true)
    }

    fn exchange(&mut self, a: usize, b: usize) -> bool {
        let mut helped = false;
        let are_pairs = self.groups[a].len() == 2 && self.groups[b].len() == 2;
        let is_same = are_pairs && self.classes[a] == self.classes[b];
        for i in 0..self.groups[a].len() {
            // Both pairs as they would be, but with their cores exchanged.
            if i == 1 && is_same && !helped {
                break;
            }
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
