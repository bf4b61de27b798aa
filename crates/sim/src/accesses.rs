//! Accesses of tasks to memory: the regions in use, and the nodes where these lie.
//!
//! A task uses regions that its job's threads share, as the scenario says, and memory of its own
//! for the rest of its accesses. Which of them are in use depends on the stretch of its course.

use crate::region::{MemoryRegion, RegionUse};
use crate::scenario::Fetch;
use crate::task::TaskNo;
use colocate_evidence::{JobIdx, PageGroup, PageUse, TaskId};
use colocate_machine::{Nanos, NodeIdx};

/// Samples a second of CPU time in reports of pages: the default of a real host.
const RATE_HZ: f64 = 250.0;

/// Accesses of a task.
#[derive(Clone, Debug)]
pub(crate) struct TaskAccesses {
    /// Uses of memory, its own last; none on a machine without nodes.
    uses: Vec<RegionUse>,
    /// Node on which it stays by its own choice.
    pub stays_on: Option<usize>,
    /// Share of its accesses by node; empty on a machine without nodes.
    pub pages: Vec<f64>,
    /// Number of changes of `pages`.
    pub version: u32,
}

impl TaskAccesses {
    /// Regions in use in a stretch, with their shares of the accesses.
    fn in_stretch(&self, stretch: usize) -> impl Iterator<Item = (&RegionUse, f64)> {
        let (own, shared) = self
            .uses
            .split_last()
            .map_or((None, &self.uses[..]), |(own, shared)| (Some(own), shared));
        let shared = shared.iter();
        let shared = shared.filter(move |one| one.during.is_none_or(|during| during == stretch));
        let taken: f64 = shared.clone().map(|one| one.share).sum();
        // Shares may sum to a little more than 1; see `check_memory`.
        let own = own.map(|own| (own, (1.0 - taken).max(0.0)));
        shared.map(|one| (one, one.share)).chain(own)
    }
}

/// Accesses of all tasks.
#[derive(Clone, Debug)]
pub(crate) struct Accesses {
    /// By task.
    pub of: Vec<TaskAccesses>,
    /// Whether uses are counted for reports of pages.
    pub counts: bool,
}

impl Accesses {
    /// Accesses with these uses by task, on a machine with this many nodes.
    pub fn new(uses: Vec<Vec<RegionUse>>, nodes: usize) -> Self {
        let of = uses.into_iter().map(|uses| {
            let pages = vec![0.0; nodes];
            TaskAccesses { uses, stays_on: None, pages, version: 0 }
        });
        Self { of: of.collect(), counts: false }
    }

    /// Share of a task's memory off a node; 0 off an unknown node.
    pub fn far_share(&self, task: TaskNo, node: Option<usize>) -> f64 {
        let near = node.and_then(|node| self.of[task].pages.get(node));
        near.map_or(0.0, |near| (1.0 - near).max(0.0))
    }

    /// The region of a task's own memory; `None` on a machine without nodes.
    pub fn own_region(&self, task: TaskNo) -> Option<usize> {
        self.of[task].uses.last().map(|own| own.region)
    }

    /// Whether the regions in use by a task change with its stretch.
    pub fn change_with_stretch(&self, task: TaskNo) -> bool {
        self.of[task].uses.iter().any(|one| one.during.is_some())
    }

    /// Regions in use by a task in a stretch, each with its fetch.
    pub fn fetches(&self, task: TaskNo, stretch: usize) -> Vec<(usize, Fetch)> {
        self.of[task].in_stretch(stretch).map(|(one, _)| (one.region, one.fetch)).collect()
    }

    /// Regions in use by a task in a stretch, regions without accesses left out.
    pub fn regions(&self, task: TaskNo, stretch: usize) -> Vec<usize> {
        let uses = self.of[task].in_stretch(stretch);
        uses.filter(|(_, share)| *share > 0.0).map(|(one, _)| one.region).collect()
    }

    /// Updates the shares of a task's accesses by node. Whether they have changed.
    pub fn update(&mut self, task: TaskNo, stretch: usize, memory: &[MemoryRegion]) -> bool {
        let of_task = &mut self.of[task];
        let mut shares = vec![0.0; of_task.pages.len()];
        for (one, share) in of_task.in_stretch(stretch) {
            let region = &memory[one.region];
            shares.iter_mut().enumerate().for_each(|(node, sum)| *sum += share * region.on(node));
        }
        if of_task.pages == shares {
            return false;
        }
        of_task.pages = shares;
        // Part of the key under which predictions are kept (`crate::rates`).
        of_task.version += 1;
        true
    }

    /// Adds seconds of a task's CPU time on a node to its uses.
    pub fn count(&mut self, task: TaskNo, stretch: usize, node: Option<usize>, seconds: f64) {
        let Some(node) = node else { return };
        let of_task = &mut self.of[task];
        let now = of_task.in_stretch(stretch);
        let shares: Vec<(usize, f64)> = now.map(|(one, share)| (one.region, share)).collect();
        for one in &mut of_task.uses {
            let now = shares.iter().find(|(region, _)| *region == one.region);
            one.seconds[node] += now.map_or(0.0, |(_, share)| share * seconds);
        }
    }

    /// Page groups of touched memory, as in a host's reports; `id` is the ID of a task.
    pub fn page_groups(
        &self,
        memory: &[MemoryRegion],
        id: impl Fn(TaskNo) -> TaskId,
    ) -> Vec<PageGroup> {
        let touched = memory.iter().enumerate();
        let touched = touched.filter(|(_, region)| region.is_touched && region.bytes > 0.0);
        touched.flat_map(|(place, region)| self.groups_of(place, region, &id)).collect()
    }

    /// Page groups of the region at `place` among all. Uses are spread evenly over the groups.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // samples
    fn groups_of(
        &self,
        place: usize,
        region: &MemoryRegion,
        id: &impl Fn(TaskNo) -> TaskId,
    ) -> Vec<PageGroup> {
        let count = region.groups.len() as f64;
        let mut uses = Vec::new();
        for &task in &region.users {
            let of_region = self.of[task].uses.iter().filter(|one| one.region == place);
            for (one, node) in
                of_region.flat_map(|one| (0..one.seconds.len()).map(move |node| (one, node)))
            {
                let seconds = one.seconds[node] / count;
                let samples = (seconds * RATE_HZ) as u64;
                if samples > 0 {
                    uses.push(PageUse {
                        task: id(task),
                        node: NodeIdx::new(node),
                        time: Nanos((seconds * 1e9) as u64),
                        samples,
                        writes: (samples as f64 * one.writes) as u64,
                    });
                }
            }
        }
        let job = JobIdx(u32::try_from(region.job).unwrap_or(u32::MAX));
        let groups = region.ranges(place).zip(&region.groups).map(|(range, on)| PageGroup {
            job,
            range,
            on: on.clone(),
            uses: uses.clone(),
        });
        groups.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Pages;
    use colocate_machine::Bytes;

    #[test]
    fn shares_follow_the_memory() {
        let mut region = MemoryRegion::new(0, Bytes(4096), Pages::FirstTouch, 1, 2);
        region.users.push(0);
        let mut memory = vec![region];
        let own = RegionUse {
            region: 0,
            share: 1.0,
            writes: 0.5,
            during: None,
            fetch: Fetch::No,
            seconds: vec![0.0; 2],
        };
        let mut accesses = Accesses::new(vec![vec![own]], 2);
        memory[0].put(&[0.25, 0.75]);
        assert!(accesses.update(0, 0, &memory) && !accesses.update(0, 0, &memory));
        assert_eq!((&accesses.of[0].pages[..], accesses.of[0].version), (&[0.25, 0.75][..], 1));
        assert!((accesses.far_share(0, Some(1)) - 0.25).abs() < 1e-12);
        assert_eq!((accesses.regions(0, 0), accesses.own_region(0)), (vec![0], Some(0)));
        let id = |_| TaskId { job: JobIdx(0), order: 0 };
        accesses.count(0, 0, Some(1), 1.0);
        assert_eq!(accesses.page_groups(&memory, id)[0].uses[0].samples, 250);
    }
}
