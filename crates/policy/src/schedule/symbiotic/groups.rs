//! Groups of threads by core: the present groups, and improvement by exchange.

use crate::places::Places;
use crate::schedule::Thread;

/// Threads by usable core.
pub(in crate::schedule) type Groups = Vec<Vec<usize>>;

/// Whether all usable cores have the same number of usable PUs.
pub(in crate::schedule) fn is_even(places: &Places<'_>) -> bool {
    let width = places.width();
    places.cores.iter().all(|core| core.pus.len() == width)
}

/// Number of threads that each usable core may have: its even share where cores are alike or there
/// is a core for each thread, else its number of PUs.
fn rooms(places: &Places<'_>, threads: usize) -> Vec<usize> {
    let cores = &places.cores;
    let share = threads.div_ceil(cores.len().max(1)).max(1);
    let is_shared_out = is_even(places) || threads <= cores.len();
    let pus = cores.iter().map(|core| core.pus.len());
    pus.map(|pus| if is_shared_out { pus.min(share) } else { pus }).collect()
}

/// The present groups: threads on their last cores as far as there is room, the others on the
/// emptiest.
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

/// Puts each thread on the emptiest core with room, the first in the order of spreading.
fn put_on_the_emptiest(
    places: &Places<'_>,
    rooms: &[usize],
    rest: Vec<usize>,
    groups: &mut Groups,
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

/// Most passes over all threads. Chosen: 64 threads never needed more than four.
const PASSES: usize = 8;
/// Least fall of the cost that counts. Below, rounding errors could exchange threads for ever.
const WORTH: f64 = 1e-9;

/// Improves the groups by moves to cores with room and exchanges of two threads, as long as the
/// cost falls. `cost` is the cost of a group on a usable core, equal on cores of one class;
/// `classes` are by core.
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

/// State of the improvement.
struct Search<'a, C> {
    /// By core: number of usable PUs.
    rooms: Vec<usize>,
    groups: Groups,
    /// By core: whether its group changed in the last pass. Two unchanged groups are not tried
    /// again.
    before: Vec<bool>,
    /// By core: whether its group has changed in this pass.
    now: Vec<bool>,
    /// By core: cost of its group.
    costs: Vec<f64>,
    classes: &'a [usize],
    cost: C,
}

impl<C: Fn(usize, &[usize]) -> f64> Search<'_, C> {
    /// One pass over all pairs of cores. True if the cost fell.
    fn pass(&mut self) -> bool {
        self.now.fill(false);
        for a in 0..self.groups.len() {
            for b in a + 1..self.groups.len() {
                // The same test of two unchanged cores would fail again.
                let is_new = self.before[a] || self.before[b] || self.now[a] || self.now[b];
                // `|`, not `||`: all three are tried.
                if is_new && (self.exchange(a, b) | self.moved(a, b) | self.moved(b, a)) {
                    self.now[a] = true;
                    self.now[b] = true;
                }
            }
        }
        std::mem::swap(&mut self.before, &mut self.now);
        self.before.contains(&true)
    }

    /// Exchanges threads of two cores. True if the cost fell.
    fn exchange(&mut self, a: usize, b: usize) -> bool {
        let mut helped = false;
        let are_pairs = self.groups[a].len() == 2 && self.groups[b].len() == 2;
        let is_same = are_pairs && self.classes[a] == self.classes[b];
        for i in 0..self.groups[a].len() {
            // The exchanges of the second thread give the same two pairs, with their cores
            // exchanged.
            if i == 1 && is_same && !helped {
                break;
            }
            for j in 0..self.groups[b].len() {
                self.change_places(a, i, b, j);
                if self.is_better(a, b) {
                    helped = true;
                } else {
                    // The same exchange again undoes it.
                    self.change_places(a, i, b, j);
                }
            }
        }
        helped
    }

    /// Exchanges two threads, without regard to costs.
    fn change_places(&mut self, a: usize, i: usize, b: usize, j: usize) {
        let one = self.groups[a][i];
        self.groups[a][i] = std::mem::replace(&mut self.groups[b][j], one);
    }

    /// Moves threads from core `a` to core `b` while there is room. True if the cost fell.
    fn moved(&mut self, a: usize, b: usize) -> bool {
        let mut helped = false;
        let mut i = 0;
        while i < self.groups[a].len() && self.groups[b].len() < self.rooms[b] {
            let one = self.groups[a].remove(i);
            self.groups[b].push(one);
            if self.is_better(a, b) {
                helped = true;
            } else {
                self.groups[b].pop();
                // At its old place, so that a test without success changes nothing.
                self.groups[a].insert(i, one);
                i += 1;
            }
        }
        helped
    }

    /// Whether two cores cost less than before; if so, stores the new costs.
    fn is_better(&mut self, a: usize, b: usize) -> bool {
        let cost_a = (self.cost)(a, &self.groups[a]);
        let cost_b = (self.cost)(b, &self.groups[b]);
        let better = cost_a + cost_b < self.costs[a] + self.costs[b] - WORTH;
        if better {
            self.costs[a] = cost_a;
            self.costs[b] = cost_b;
        }
        better
    }
}
