//! Access samples of threads by 2 MiB region of memory.

use crate::perf::Accessed;
use colocate_linux::{Pid, Tid};
use std::collections::BTreeMap;

/// Size of a region in bytes: a huge page of x86-64, migrated as a unit.
pub const GROUP_B: u64 = 2 << 20;

/// Limit of regions between two readings. Chosen: 64 GiB.
const MOST: usize = 1 << 15;

/// Access samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Samples.
    pub samples: u64,
    /// Writes among the samples.
    pub writes: u64,
}

/// Samples of each thread in each region, keyed by process and the region's first address.
pub type RegionSamples = BTreeMap<(Pid, u64), BTreeMap<Tid, Count>>;

/// Counts an access. New regions beyond the limit are dropped.
pub(super) fn count(groups: &mut RegionSamples, pid: Pid, tid: Tid, access: &Accessed) {
    let key = (pid, access.address / GROUP_B * GROUP_B);
    if groups.len() >= MOST && !groups.contains_key(&key) {
        return;
    }
    let count = groups.entry(key).or_default().entry(tid).or_default();
    count.samples += 1;
    count.writes += u64::from(access.writes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_part_and_thread() {
        let mut groups = RegionSamples::new();
        let accesses = [(1, 0, false), (1, GROUP_B - 1, true), (2, GROUP_B, true), (2, 1, false)];
        for (tid, address, writes) in accesses {
            let access = Accessed { address, writes, was_modified: false };
            count(&mut groups, Pid(7), Tid(tid), &access);
        }
        let found: Vec<_> = groups
            .iter()
            .flat_map(|((_, part), of)| {
                of.iter().map(move |(tid, n)| (*part, tid.0, n.samples, n.writes))
            })
            .collect();
        assert_eq!(found, [(0, 1, 2, 1), (0, 2, 1, 0), (GROUP_B, 2, 1, 1)]);
    }
}
