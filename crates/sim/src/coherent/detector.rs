//! The detector of Cruz et al. (JPDC 2014, section 3): which PUs used a line that another PU
//! writes.

use super::sets::IndexSet;
use colocate_machine::PuIdx;

/// Where communication is detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DetectAt {
    /// In the outermost private cache of a core, as in section 3.2; with an access bit for each PU
    /// of the core (3.3.1), and with the PU in the invalidation (3.3.3). PUs of the same core
    /// communicate through their cache, unseen.
    #[default]
    PrivateCache,
    /// In the outermost cache, with an access bit for each sharing PU (section 3.3.2).
    LastCache,
}

/// Communication vectors: for each PU the writes by each other PU to lines used before.
#[derive(Clone, Debug)]
pub(super) struct Detector {
    pus: usize,
    /// For each PU the cache with its access bits.
    domains: Vec<usize>,
    /// Whether writes by PUs of the same cache count too.
    counts_neighbours: bool,
    /// `vectors[pu * pus + writer]`, saturating.
    vectors: Vec<u32>,
}

impl Detector {
    pub fn new(at: DetectAt, domains: Vec<usize>) -> Self {
        let pus = domains.len();
        let vectors = vec![0; pus * pus];
        Self { pus, domains, counts_neighbours: at == DetectAt::LastCache, vectors }
    }

    /// Counts a write to a line with earlier users `used_by`.
    pub fn writes<S: IndexSet>(&mut self, writer: PuIdx, used_by: S) {
        for pu in used_by.members().map(usize::from).filter(|pu| *pu != writer.idx()) {
            if self.counts_neighbours || self.domains[pu] != self.domains[writer.idx()] {
                let count = &mut self.vectors[pu * self.pus + writer.idx()];
                *count = count.saturating_add(1);
            }
        }
    }

    /// Takes and clears the vector of a PU, as a kernel does when another thread gets the PU.
    pub fn take(&mut self, pu: PuIdx) -> Vec<u32> {
        let vector = &mut self.vectors[pu.idx() * self.pus..(pu.idx() + 1) * self.pus];
        let taken = vector.to_vec();
        vector.fill(0);
        taken
    }

    #[cfg(test)]
    pub fn vectors_mut(&mut self) -> &mut [u32] {
        &mut self.vectors
    }
}
