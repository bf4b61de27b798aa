//! Memory of jobs: regions, and the nodes where they lie.

use crate::region::{MemoryRegion, SPACE_BITS};
use colocate_evidence::AddressRange;
use std::ops::Range;

/// Regions of all jobs.
#[derive(Clone, Debug)]
pub(crate) struct MemoryRegions {
    regions: Vec<MemoryRegion>,
}

impl MemoryRegions {
    pub const fn new(regions: Vec<MemoryRegion>) -> Self {
        Self { regions }
    }

    /// A region by its place.
    pub fn of(&self, region: usize) -> &MemoryRegion {
        &self.regions[region]
    }

    /// All regions with their places.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &MemoryRegion)> {
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

    /// The region of an address range, and its groups with a start in the range. `None` if none.
    pub(crate) fn groups_in(&self, range: AddressRange) -> Option<(usize, Range<usize>)> {
        // Regions begin at multiples of 2^40, the first at 1 of them; see `MemoryRegion::ranges`.
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
        let region = MemoryRegion::new(0, Bytes(4096), Pages::FirstTouch, 2, 2);
        let mut memory = MemoryRegions::new(vec![region]);
        memory.put(0, &[1.0, 0.0]);
        assert!((memory.bring(0, 0..1, 1, 0.25) - 1536.0).abs() < 1e-9);
        assert!((memory.far_bytes(0, 0..2, 1) - 2560.0).abs() < 1e-9);
        assert_eq!([memory.scan(0, 1), memory.scan(0, 1), memory.scan(0, 0)], [false, true, false]);
        memory.begin_run(0);
        assert!(!memory.of(0).is_touched);
    }
}
