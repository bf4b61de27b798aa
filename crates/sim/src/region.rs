//! A region of memory: where its groups are.

use crate::scenario::{Fetch, Pages};
use colocate_evidence::AddressRange;
use colocate_machine::Bytes;
use std::ops::Range;

/// Bytes of a small page.
pub(crate) const PAGE: f64 = 4096.0;

/// Simulated regions begin at multiples of so many bytes, as a power of 2.
pub(crate) const SPACE_BITS: u32 = 40;

/// Memory whose groups are used alike.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub job: usize,
    pub bytes: f64,
    /// Where it comes to be when it is first used.
    pub pages: Pages,
    /// Each group's share on each node.
    pub groups: Vec<Vec<f64>>,
    pub is_touched: bool,
    /// Tasks, by their places.
    pub users: Vec<usize>,
    /// The node from which NUMA balancing last scanned it.
    pub scanned_from: Option<usize>,
}

/// How a task uses a region.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub region: usize,
    /// Its share of the task's accesses; of its own memory what is left.
    pub share: f64,
    pub writes: f64,
    /// In which stretch of its course; `None` for all.
    pub during: Option<usize>,
    pub fetch: Fetch,
    /// CPU time of it, by node.
    pub seconds: Vec<f64>,
}

impl Region {
    pub fn new(job: usize, bytes: Bytes, pages: Pages, groups: u32, nodes: usize) -> Self {
        #[allow(clippy::cast_precision_loss)] // below 2^53
        let bytes = bytes.0 as f64;
        let groups = vec![vec![0.0; nodes]; groups as usize];
        Self { job, bytes, pages, groups, is_touched: false, users: Vec::new(), scanned_from: None }
    }

    /// Its share on a node.
    #[allow(clippy::cast_precision_loss)] // few groups
    pub fn on(&self, node: usize) -> f64 {
        self.groups.iter().map(|group| group[node]).sum::<f64>() / self.groups.len() as f64
    }

    /// Brings some of its groups to a node; of what is on other nodes this part `stays`.
    pub fn bring(&mut self, groups: Range<usize>, node: usize, stays: f64) {
        for group in &mut self.groups[groups] {
            group.iter_mut().for_each(|share| *share *= stays);
            group[node] += 1.0 - group.iter().sum::<f64>();
        }
    }

    pub fn put(&mut self, shares: &[f64]) {
        self.groups.iter_mut().for_each(|group| group.copy_from_slice(shares));
        self.is_touched = true;
    }

    /// The addresses of its groups, where it has this place among all regions.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // sizes
    pub fn ranges(&self, place: usize) -> impl Iterator<Item = AddressRange> + use<> {
        let count = self.groups.len() as u64;
        let size = (self.bytes as u64 / count).max(1).next_multiple_of(PAGE as u64);
        let first = (place as u64 + 1) << SPACE_BITS;
        (0..count).map(move |group| {
            let start = first + group * size;
            AddressRange { start, end: start + size }
        })
    }
}
