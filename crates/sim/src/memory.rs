//! Memory of jobs: regions, the nodes where they lie, and their users.

use crate::region::{Region, SPACE_BITS, Use};
use crate::task::Task;
use colocate_evidence::{AddressRange, JobIdx, PageGroup, PageUse};
use colocate_machine::NodeIdx;
use std::ops::Range;

/// Samples a second of CPU time in reports of pages: the default of a real host.
const RATE_HZ: f64 = 250.0;

impl Task {
    /// Regions in use now, with their shares of its accesses.
    pub fn uses_now(&self) -> impl Iterator<Item = (&Use, f64)> {
        let at = self.course.stretch();
        let (own, shared) = self
            .uses
            .split_last()
            .map_or((None, &self.uses[..]), |(own, shared)| (Some(own), shared));
        let shared = shared.iter();
        let shared = shared.filter(move |one| one.during.is_none_or(|during| during == at));
        let taken: f64 = shared.clone().map(|one| one.share).sum();
        // Shares may sum to a little more than 1; see `check_memory`.
        let own = own.map(|own| (own, (1.0 - taken).max(0.0)));
        shared.map(|one| (one, one.share)).chain(own)
    }
}

/// Regions of all jobs.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    regions: Vec<Region>,
}

impl Memory {
    pub const fn new(regions: Vec<Region>) -> Self {
        Self { regions }
    }

    /// A region by its place.
    pub fn of(&self, region: usize) -> &Region {
        &self.regions[region]
    }

    /// All regions with their places.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Region)> {
        self.regions.iter().enumerate()
    }

    /// Begins a new run of a job, whose memory is new.
    pub fn begin_run(&mut self, job: usize) {
        let of_job = self.regions.iter_mut().filter(|region| region.job == job);
        of_job.for_each(|region| region.is_touched = false);
    }

    /// Places a region, with shares by node.
    pub fn put(&mut self, region: usize, shares: &[f64]) {
        self.regions[region].put(shares);
    }

    /// Makes the next scan of a region its first.
    pub fn forget_scans(&mut self, region: usize) {
        self.regions[region].scanned_from = None;
    }

    /// Notes a scan of a region from a node. Whether the scan before was from the same node.
    pub fn scan(&mut self, region: usize, node: usize) -> bool {
        self.regions[region].scanned_from.replace(node) == Some(node)
    }

    /// Bytes of groups of a region that lie on other nodes.
    #[allow(clippy::cast_precision_loss)] // few groups
    pub fn far_bytes(&self, region: usize, groups: Range<usize>, node: usize) -> f64 {
        let of = &self.regions[region];
        let far: f64 = of.groups[groups].iter().map(|group| (1.0 - group[node]).max(0.0)).sum();
        of.bytes / of.groups.len() as f64 * far
    }

    /// Brings groups of a region to a node, but for the part `stays` of memory elsewhere. Returns
    /// the moved bytes.
    pub fn bring(&mut self, region: usize, groups: Range<usize>, node: usize, stays: f64) -> f64 {
        let far = self.far_bytes(region, groups.clone(), node);
        self.regions[region].bring(groups, node, stays);
        far * (1.0 - stays)
    }

    /// Shares of a task's accesses by node.
    pub fn shares(&self, task: &Task, nodes: usize) -> Vec<f64> {
        let mut shares = vec![0.0; nodes];
        for (one, share) in task.uses_now() {
            let region = &self.regions[one.region];
            shares.iter_mut().enumerate().for_each(|(node, sum)| *sum += share * region.on(node));
        }
        shares
    }

    /// Regions in use by a task now, regions without accesses left out.
    pub fn used_by(task: &Task) -> Vec<usize> {
        task.uses_now().filter(|(_, share)| *share > 0.0).map(|(one, _)| one.region).collect()
    }

    /// Memory in use by a task now, in bytes.
    pub fn resident(&self, task: &Task) -> f64 {
        Self::used_by(task).into_iter().map(|region| self.regions[region].bytes).sum()
    }

    /// Page groups of touched memory, as in a host's reports.
    pub fn page_groups(&self, tasks: &[Task]) -> Vec<PageGroup> {
        let touched = self.regions.iter().enumerate();
        let touched = touched.filter(|(_, region)| region.is_touched && region.bytes > 0.0);
        touched.flat_map(|(place, region)| Self::groups_of(place, region, tasks)).collect()
    }

    /// Page groups of the region at `place` among all. Uses are spread evenly over the groups.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // samples
    fn groups_of(place: usize, region: &Region, tasks: &[Task]) -> Vec<PageGroup> {
        let count = region.groups.len() as f64;
        let mut uses = Vec::new();
        for no in &region.users {
            let task = &tasks[*no];
            let of_region = task.uses.iter().filter(|one| one.region == place);
            for (one, node) in
                of_region.flat_map(|one| (0..one.seconds.len()).map(move |node| (one, node)))
            {
                let seconds = one.seconds[node] / count;
                let samples = (seconds * RATE_HZ) as u64;
                if samples > 0 {
                    uses.push(PageUse {
                        task: task.id,
                        node: NodeIdx::new(node),
                        time: colocate_machine::Nanos((seconds * 1e9) as u64),
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

    /// The region of an address range, and its groups with a start in the range. `None` if none.
    pub(crate) fn groups_in(&self, range: AddressRange) -> Option<(usize, Range<usize>)> {
        // Regions begin at multiples of 2^40, the first at 1 of them; see `Region::ranges`.
        let place = usize::try_from(range.start >> SPACE_BITS).ok()?.checked_sub(1)?;
        let region = self.regions.get(place)?;
        let groups = region.ranges(place).enumerate();
        let mut inside =
            groups.filter(|(_, group)| range.start <= group.start && group.start < range.end);
        let (first, _) = inside.next()?;
        Some((place, first..first + 1 + inside.count()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Pages;
    use colocate_machine::Bytes;

    #[test]
    fn memory_comes_to_a_node_but_for_a_part() {
        let region = Region::new(0, Bytes(4096), Pages::FirstTouch, 2, 2);
        let mut memory = Memory::new(vec![region]);
        memory.put(0, &[1.0, 0.0]);
        assert!((memory.bring(0, 0..1, 1, 0.25) - 1536.0).abs() < 1e-9);
        assert!((memory.far_bytes(0, 0..2, 1) - 2560.0).abs() < 1e-9);
        assert_eq!([memory.scan(0, 1), memory.scan(0, 1), memory.scan(0, 0)], [false, true, false]);
        memory.begin_run(0);
        assert!(!memory.of(0).is_touched && memory.page_groups(&[]).is_empty());
    }
}
