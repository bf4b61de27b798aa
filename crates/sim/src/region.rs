//! A region of memory, divided into groups of pages.

use crate::scenario::{Fetch, Pages};
use colocate_evidence::AddressRange;
use colocate_machine::Bytes;
use std::ops::Range;

/// Bytes of a small page.
pub(crate) const PAGE: f64 = 4096.0;

/// log2 of the distance in bytes between the first addresses of simulated regions.
const SPACE_BITS: u32 = 40;

/// Memory whose groups are all used alike.
#[derive(Clone, Debug)]
pub(crate) struct MemoryRegion {
    /// Its job, by place.
    pub job: usize,
    pub bytes: f64,
    /// Placement at the first touch.
    pub pages: Pages,
    /// Share of each group on each node.
    pub groups: Vec<Vec<f64>>,
    /// Whether a task used the region in this run of its job.
    pub is_touched: bool,
    /// Its users, by place in the list of all tasks.
    pub users: Vec<usize>,
    /// Node of the last NUMA balancing scan; `None` before the first.
    pub scanned_from: Option<usize>,
}

/// Use of a region by a task.
#[derive(Clone, Debug)]
pub(crate) struct RegionUse {
    /// Place among all regions.
    pub region: usize,
    /// Share of the task's accesses; of its own memory the rest, whatever this says.
    pub share: f64,
    /// Share of writes among its accesses.
    pub writes: f64,
    /// Stretch of the task's course with this use; `None` for all.
    pub during: Option<usize>,
    pub fetch: Fetch,
    /// Seconds of the task's CPU time at this region, by node.
    pub seconds: Vec<f64>,
}

impl MemoryRegion {
    pub fn new(job: usize, bytes: Bytes, pages: Pages, groups: u32, nodes: usize) -> Self {
        let bytes = bytes.0 as f64;
        let groups = vec![vec![0.0; nodes]; groups as usize];
        Self { job, bytes, pages, groups, is_touched: false, users: Vec::new(), scanned_from: None }
    }

    /// Share on a node, of all groups together.
    pub fn on(&self, node: usize) -> f64 {
        self.groups.iter().map(|group| group[node]).sum::<f64>() / self.groups.len() as f64
    }

    /// Bytes of groups that lie on other nodes.
    #[allow(clippy::cast_precision_loss)] // few groups
    pub fn far_bytes(&self, groups: Range<usize>, node: usize) -> f64 {
        let far: f64 = self.groups[groups].iter().map(|group| (1.0 - group[node]).max(0.0)).sum();
        self.bytes / self.groups.len() as f64 * far
    }

    /// Brings groups to a node, but for the part `stays` of memory elsewhere. Returns the moved
    /// bytes.
    pub fn bring(&mut self, groups: Range<usize>, node: usize, stays: f64) -> f64 {
        let far = self.far_bytes(groups.clone(), node);
        for group in &mut self.groups[groups] {
            group.iter_mut().for_each(|share| *share *= stays);
            // The rest to 1, so that rounding errors of many moves do not add up.
            group[node] += 1.0 - group.iter().sum::<f64>();
        }
        far * (1.0 - stays)
    }

    /// Notes a scan from a node. Whether the scan before was from the same node.
    pub fn scan(&mut self, node: usize) -> bool {
        self.scanned_from.replace(node) == Some(node)
    }

    /// Places all groups, with shares by node.
    pub fn put(&mut self, shares: &[f64]) {
        self.groups.iter_mut().for_each(|group| group.copy_from_slice(shares));
        self.is_touched = true;
    }

    /// Addresses of the groups of the region with this place among all regions.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // sizes
    pub fn ranges(&self, place: usize) -> impl Iterator<Item = AddressRange> + use<> {
        let count = self.groups.len() as u64;
        // Groups consist of whole pages.
        let size = (self.bytes as u64 / count).max(1).next_multiple_of(PAGE as u64);
        // Place 0 is left free, so that no region begins at address 0.
        let first = (place as u64 + 1) << SPACE_BITS;
        (0..count).map(move |group| {
            let start = first + group * size;
            AddressRange { start, end: start + size }
        })
    }
}

/// The region of an address range, and its groups with a start in the range. `None` if none.
pub(crate) fn groups_in(
    regions: &[MemoryRegion],
    range: AddressRange,
) -> Option<(usize, Range<usize>)> {
    // Regions begin at multiples of 2^40, the first at 1 of them; see `MemoryRegion::ranges`.
    let place = usize::try_from(range.start >> SPACE_BITS).ok()?.checked_sub(1)?;
    let groups = regions.get(place)?.ranges(place).enumerate();
    let mut inside =
        groups.filter(|(_, group)| range.start <= group.start && group.start < range.end);
    let (first, _) = inside.next()?;
    Some((place, first..first + 1 + inside.count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_to_a_node_but_for_a_part() {
        let mut region = MemoryRegion::new(0, Bytes(4096), Pages::FirstTouch, 2, 2);
        region.put(&[1.0, 0.0]);
        assert!((region.bring(0..1, 1, 0.25) - 1536.0).abs() < 1e-9);
        assert!((region.far_bytes(0..2, 1) - 2560.0).abs() < 1e-9);
        assert_eq!([region.scan(1), region.scan(1), region.scan(0)], [false, true, false]);
    }
}
