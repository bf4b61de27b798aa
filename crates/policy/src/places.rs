//! The PUs that a plan may use, core by core, and the orders in which to fill them.

use colocate_machine::{CacheIdx, CacheKind, CoreIdx, KindIdx, Machine, PuIdx, PuNr};

/// A core with at least one usable PU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsableCore {
    /// The core.
    pub core: CoreIdx,
    /// Which kind it is; a later kind is faster.
    pub kind: KindIdx,
    /// Its usable PUs in logical order; never empty, fewer than the core has if some are forbidden.
    pub pus: Vec<PuIdx>,
}

/// The usable part of a machine.
#[derive(Clone, Debug)]
pub struct Places<'a> {
    /// The whole machine.
    pub machine: &'a Machine,
    /// In logical order: siblings follow each other.
    pub pus: Vec<PuIdx>,
    /// In logical order.
    pub cores: Vec<UsableCore>,
}

impl<'a> Places<'a> {
    /// The part of `machine` that `usable` names, in any order; repeated PUs count once and PUs that
    /// the machine does not have not at all.
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

    /// The most usable PUs that one core has; 0 if none is usable.
    pub fn width(&self) -> usize {
        self.cores.iter().map(|core| core.pus.len()).max().unwrap_or(0)
    }

    /// Whether the usable cores are of more than one kind.
    pub(crate) fn is_hybrid(&self) -> bool {
        self.cores.windows(2).any(|pair| pair[0].kind != pair[1].kind)
    }

    /// The kernel's number of `pu`.
    pub fn nr(&self, pu: PuIdx) -> PuNr {
        self.machine.pus[pu.idx()].os
    }

    /// The kernel's numbers of `pus`.
    pub(crate) fn nrs(&self, pus: &[PuIdx]) -> Vec<PuNr> {
        pus.iter().map(|&pu| self.nr(pu)).collect()
    }

    /// Where a PU is: package, node, last-level cache, core and PU. `usize::MAX` where there is none.
    pub fn path(&self, pu: PuIdx) -> [usize; 5] {
        let core_at = self.machine.core_of(pu);
        let core = &self.machine.cores[core_at.idx()];
        let cache = self.machine.last_level_cache(pu).map_or(usize::MAX, CacheIdx::idx);
        let node = core.node.map_or(usize::MAX, colocate_machine::NodeIdx::idx);
        [core.package.idx(), node, cache, core_at.idx(), pu.idx()]
    }

    /// Places in [`Self::cores`], farthest apart first: the fastest kind before slower ones, and
    /// within a kind each next core in the package, then node, then last-level cache that has had
    /// the fewest so far.
    pub(crate) fn spread_cores(&self) -> Vec<usize> {
        let caches = self.last_level_caches();
        let mut order = Vec::with_capacity(self.cores.len());
        let mut kinds: Vec<KindIdx> = self.cores.iter().map(|core| core.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds.into_iter().rev() {
            let of_kind = (0..self.cores.len()).filter(|&at| self.cores[at].kind == kind).collect();
            let domain = |level: usize, at: usize| self.domain(&caches, level, at);
            order.extend(interleave(of_kind, 0, &domain));
        }
        order
    }

    /// Usable PUs, farthest apart first: one PU of every core in the order of
    /// [`Self::spread_cores`], then every core's second, and so on.
    pub(crate) fn spread_pus(&self) -> Vec<PuIdx> {
        let order = self.spread_cores();
        let sibling = |n: usize| {
            order
                .iter()
                .filter_map(move |&at| self.cores[at].pus.get(n))
                .copied()
                .collect::<Vec<_>>()
        };
        (0..self.width()).flat_map(sibling).collect()
    }

    /// Usable PUs for `tasks` tasks, closest together first.
    ///
    /// At each level, package, then node, then last-level cache, then core: the smallest domain with
    /// room for all of them; if none has, the largest is filled and the rest goes on in the others.
    /// PUs beyond the first `tasks` follow in logical order.
    pub(crate) fn close_pus(&self, tasks: usize) -> Vec<PuIdx> {
        let caches = self.last_level_caches();
        let domain = |level: usize, at: usize| self.domain(&caches, level, at);
        let mut order = self.closest((0..self.cores.len()).collect(), tasks, 0, &domain);
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
        domain: &impl Fn(usize, usize) -> usize,
    ) -> Vec<PuIdx> {
        let room =
            |cores: &[usize]| cores.iter().map(|&at| self.cores[at].pus.len()).sum::<usize>();
        let (Some(&first), true) = (cores.first(), tasks > 0) else { return Vec::new() };
        if level > LEVELS {
            return self.cores[first].pus.iter().take(tasks).copied().collect();
        }
        let mut groups = group_by(cores, |at| if level < LEVELS { domain(level, at) } else { at });
        let mut order = Vec::new();
        while order.len() < tasks && !groups.is_empty() {
            let left = tasks - order.len();
            let fits = (0..groups.len()).filter(|&g| room(&groups[g]) >= left);
            let smallest = fits.min_by_key(|&g| room(&groups[g]));
            let largest =
                || (0..groups.len()).max_by_key(|&g| (room(&groups[g]), groups.len() - g));
            let chosen = smallest.or_else(largest).expect("some group is left");
            order.extend(self.closest(groups.remove(chosen), left, level + 1, domain));
        }
        order
    }

    /// What core `at` is in at `level`: 0 package, 1 node, 2 last-level cache.
    fn domain(&self, caches: &[usize], level: usize, at: usize) -> usize {
        let core = &self.machine.cores[self.cores[at].core.idx()];
        match level {
            0 => core.package.idx(),
            1 => core.node.map_or(usize::MAX, colocate_machine::NodeIdx::idx),
            _ => caches[self.cores[at].pus[0].idx()],
        }
    }

    /// The last-level cache over each PU of the machine, `usize::MAX` where there is none.
    ///
    /// As [`Machine::last_level_cache`], for all PUs in one pass.
    fn last_level_caches(&self) -> Vec<usize> {
        let mut last = vec![(0, usize::MAX); self.machine.pus.len()];
        for (index, cache) in self.machine.caches.iter().enumerate() {
            if cache.kind == CacheKind::Instruction {
                continue;
            }
            for pu in &cache.pus {
                if let Some(best) = last.get_mut(pu.idx()).filter(|best| best.0 <= cache.level) {
                    *best = (cache.level, index);
                }
            }
        }
        last.into_iter().map(|(_, index)| index).collect()
    }
}

/// Levels of domains above the core that [`Places::domain`] distinguishes.
const LEVELS: usize = 3;

/// `items` by the domain they are in, domains in the order in which they first appear.
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

/// Takes turns between the domains of `level`, and within each between those of the next level.
fn interleave(
    items: Vec<usize>,
    level: usize,
    domain: &impl Fn(usize, usize) -> usize,
) -> Vec<usize> {
    if level == LEVELS {
        return items;
    }
    let count = items.len();
    let mut groups: Vec<_> = group_by(items, |at| domain(level, at))
        .into_iter()
        .map(|group| interleave(group, level + 1, domain).into_iter())
        .collect();
    let mut order = Vec::with_capacity(count);
    while order.len() < count {
        order.extend(groups.iter_mut().filter_map(Iterator::next));
    }
    order
}
