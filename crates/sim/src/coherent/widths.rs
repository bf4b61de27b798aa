//! Coherent caches of any machine: with narrow sets of caches and PUs where these are few.

use super::GeometryError;
use super::detector::DetectAt;
use super::geometry::Geometry;
use super::protocol::{CoherenceCounts, CoherentCaches, Protocol, Served, run};
use super::replay::MemoryAccess;
use super::sets::IndexSet;
use colocate_machine::PuIdx;

/// Coherent caches of a machine, with the detector of communication.
#[derive(Clone, Debug)]
pub struct Coherent(Width);

/// Caches, by the width of their sets.
#[derive(Clone, Debug)]
enum Width {
    Few(CoherentCaches<u32>),
    Many(CoherentCaches<u128>),
}

/// Calls a method of the caches, whatever their width.
macro_rules! caches {
    ($of:expr, $caches:ident => $call:expr) => {
        match $of {
            Width::Few($caches) => $call,
            Width::Many($caches) => $call,
        }
    };
}

impl Coherent {
    /// Empty caches of a machine.
    ///
    /// # Errors
    /// [`GeometryError`] of [`Geometry::check`], or if more than eight PUs share a nearest cache.
    pub fn new(
        geometry: Geometry,
        protocol: Protocol,
        at: DetectAt,
    ) -> Result<Self, GeometryError> {
        geometry.check()?;
        let most = geometry.caches.len().max(geometry.packages.len());
        Ok(Self(if most <= u32::MOST {
            Width::Few(CoherentCaches::new(geometry, protocol, at)?)
        } else {
            Width::Many(CoherentCaches::new(geometry, protocol, at)?)
        }))
    }

    /// Number of PUs of the machine.
    #[must_use]
    pub fn pus(&self) -> usize {
        caches!(&self.0, caches => caches.pus())
    }

    /// Counts of all accesses so far.
    #[must_use]
    pub fn counts(&self) -> &CoherenceCounts {
        caches!(&self.0, caches => caches.counts())
    }

    /// Takes and clears the communication vector of a PU.
    pub fn take_vector(&mut self, pu: PuIdx) -> Vec<u32> {
        caches!(&mut self.0, caches => caches.take_vector(pu))
    }

    /// Makes accesses of a PU one after the other while its clock is before a time, and advances the
    /// clock. Returns the number of accesses made.
    #[inline]
    pub fn run(
        &mut self,
        pu: PuIdx,
        accesses: &[MemoryAccess],
        clock: &mut u64,
        until: u64,
        instruction_ps: u64,
    ) -> usize {
        caches!(&mut self.0, caches => run(caches, pu, accesses, clock, until, instruction_ps))
    }

    /// Reads or writes at an address. Returns the source of the data; for a write to a line with
    /// other copies, the source or the farthest copy, whichever is slower.
    #[inline]
    pub fn serve(&mut self, pu: PuIdx, address: u64, writes: bool) -> Served {
        caches!(&mut self.0, caches => caches.serve(pu, address, writes))
    }

    /// Latency of data from a source, in picoseconds.
    #[must_use]
    pub fn time(&self, pu: PuIdx, served: Served) -> u64 {
        caches!(&self.0, caches => caches.time(pu, served))
    }

    /// Checks caches and directory against each other.
    ///
    /// # Errors
    /// A line about the first contradiction.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        caches!(&self.0, caches => caches.check())
    }
}
