//! Usable PUs of a machine by core, and the orders in which policies fill the PUs.

use colocate_machine::{CacheIdx, CoreIdx, KindIdx, Machine, PuIdx, PuNr};

/// A core with at least one usable PU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsableCore {
    /// The core.
    pub core: CoreIdx,
    /// Kind of the core; a later kind is faster.
    pub kind: KindIdx,
    /// Usable PUs of the core in logical order; never empty.
    pub pus: Vec<PuIdx>,
}

/// The usable part of a machine.
#[derive(Clone, Debug)]
pub struct UsableMachine<'a> {
    /// The whole machine.
    pub machine: &'a Machine,
    /// Usable PUs in logical order: siblings are adjacent.
    pub pus: Vec<PuIdx>,
    /// Usable cores in logical order.
    pub cores: Vec<UsableCore>,
}

impl<'a> UsableMachine<'a> {
    /// Usable part of `machine`. `usable` may be in any order; repeated PUs count once, and PUs
    /// missing from the machine are ignored.
    pub fn new(machine: &'a Machine, usable: &[PuIdx]) -> Self {
        let mut pus: Vec<PuIdx> = usable.to_vec();
        pus.retain(|pu| pu.idx() < machine.pus.len());
        pus.sort_unstable();
        pus.dedup();
        let mut on_core = vec![Vec::new(); machine.cores.len()];
        for &pu in &pus {
            on_core[machine.core_of(pu).idx()].push(pu);
        }
        let with_pus = on_core.into_iter().enumerate().filter(|(_, pus)| !pus.is_empty());
        let cores = with_pus
            .map(|(index, pus)| UsableCore {
                core: CoreIdx::new(index),
                kind: machine.cores[index].kind,
                pus,
            })
            .collect();
        Self { machine, pus, cores }
    }

    /// Largest number of usable PUs on a core; 0 if no PU is usable.
    pub fn width(&self) -> usize {
        self.cores.iter().map(|core| core.pus.len()).max().unwrap_or(0)
    }

    /// Whether all usable cores have the same number of usable PUs.
    pub fn is_even(&self) -> bool {
        let width = self.width();
        self.cores.iter().all(|core| core.pus.len() == width)
    }

    /// True if the usable cores have more than one kind.
    pub(crate) fn is_hybrid(&self) -> bool {
        self.cores.windows(2).any(|pair| pair[0].kind != pair[1].kind)
    }

    /// Kernel number of `pu`.
    pub fn nr(&self, pu: PuIdx) -> PuNr {
        self.machine.pus[pu.idx()].os
    }

    /// Kernel numbers of `pus`.
    pub(crate) fn nrs(&self, pus: &[PuIdx]) -> Vec<PuNr> {
        pus.iter().map(|&pu| self.nr(pu)).collect()
    }

    /// Path to a PU: package, node, last-level cache, core, PU. `usize::MAX`: no node or cache.
    pub fn path(&self, pu: PuIdx) -> [usize; 5] {
        let core_at = self.machine.core_of(pu);
        let core = &self.machine.cores[core_at.idx()];
        let cache = self.machine.last_level_cache(pu).map_or(usize::MAX, CacheIdx::idx);
        let node = core.node.map_or(usize::MAX, colocate_machine::NodeIdx::idx);
        [core.package.idx(), node, cache, core_at.idx(), pu.idx()]
    }

    /// Indexes into [`Self::cores`], farthest apart first. The fastest kind is first. Within a
    /// kind, each next core is in the package, then node, then last-level cache with the fewest
    /// cores so far.
    pub(crate) fn spread_cores(&self) -> Vec<usize> {
        let paths = self.paths();
        let mut order = Vec::with_capacity(self.cores.len());
        let mut kinds: Vec<KindIdx> = self.cores.iter().map(|core| core.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        // A later kind is faster.
        for kind in kinds.into_iter().rev() {
            let of_kind = (0..self.cores.len()).filter(|&at| self.cores[at].kind == kind).collect();
            order.extend(interleave(of_kind, 0, &paths));
        }
        order
    }

    /// Usable PUs, farthest apart first: the first PU of every core in the order of
    /// [`Self::spread_cores`], then every core's second PU, and so on.
    pub(crate) fn spread_pus(&self) -> Vec<PuIdx> {
        let order = self.spread_cores();
        let mut pus = Vec::with_capacity(self.pus.len());
        for sibling in 0..self.width() {
            pus.extend(order.iter().filter_map(|&at| self.cores[at].pus.get(sibling)));
        }
        pus
    }

    /// Usable PUs for `tasks` tasks, closest together first.
    ///
    /// The levels are package, node, last-level cache and core. At each level, the smallest domain
    /// with room for all tasks is taken. If no domain has room, the largest is filled and the
    /// remaining tasks go to the next domains. PUs beyond the first `tasks` follow in logical
    /// order.
    pub(crate) fn close_pus(&self, tasks: usize) -> Vec<PuIdx> {
        let mut order = self.closest((0..self.cores.len()).collect(), tasks, 0, &self.paths());
        // A flag per PU, since `contains` would be quadratic on large machines.
        let mut taken = vec![false; self.machine.pus.len()];
        for pu in &order {
            taken[pu.idx()] = true;
        }
        order.extend(self.pus.iter().filter(|pu| !taken[pu.idx()]));
        order
    }

    fn closest(
        &self,
        cores: Vec<usize>,
        tasks: usize,
        level: usize,
        paths: &[[usize; 5]],
    ) -> Vec<PuIdx> {
        let (Some(&first), true) = (cores.first(), tasks > 0) else { return Vec::new() };
        // Below the core there is a single one.
        if level > LEVELS {
            return self.cores[first].pus.iter().take(tasks).copied().collect();
        }
        let mut groups = group_by(cores, |at| paths[at][level]);
        let mut order = Vec::new();
        while order.len() < tasks && !groups.is_empty() {
            let left = tasks - order.len();
            let rooms: Vec<usize> = groups
                .iter()
                .map(|cores| cores.iter().map(|&at| self.cores[at].pus.len()).sum())
                .collect();
            let count = groups.len();
            let smallest = (0..count).filter(|&at| rooms[at] >= left).min_by_key(|&at| rooms[at]);
            // `max_by_key` takes the last of equals; the second key makes it the first.
            let largest = (0..count).max_by_key(|&at| (rooms[at], count - at));
            let chosen = smallest.or(largest).expect("some group is left");
            order.extend(self.closest(groups.remove(chosen), left, level + 1, paths));
        }
        order
    }

    /// Path to the first PU of each usable core.
    fn paths(&self) -> Vec<[usize; 5]> {
        self.cores.iter().map(|core| self.path(core.pus[0])).collect()
    }
}

/// Levels above the core in [`UsableMachine::path`].
const LEVELS: usize = 3;

/// Groups `items` by domain, domains in the order of first appearance.
fn group_by(items: Vec<usize>, domain: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
    let mut places = std::collections::HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for item in items {
        let place = *places.entry(domain(item)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(item);
    }
    groups
}

/// Interleaves `items` round-robin over the domains of `level`, and recursively within each domain.
fn interleave(items: Vec<usize>, level: usize, paths: &[[usize; 5]]) -> Vec<usize> {
    if level == LEVELS {
        return items;
    }
    let count = items.len();
    let mut groups: Vec<_> = group_by(items, |at| paths[at][level])
        .into_iter()
        .map(|group| interleave(group, level + 1, paths).into_iter())
        .collect();
    let mut order = Vec::with_capacity(count);
    while order.len() < count {
        order.extend(groups.iter_mut().filter_map(Iterator::next));
    }
    order
}
