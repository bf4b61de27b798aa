//! [`EbpfProgram`] of a build without the eBPF program: no value of the type exists.

use crate::{EbpfError, Follow, Lost, PairCounts, TaskTimes};
use std::convert::Infallible;
use std::os::fd::BorrowedFd;

/// A loaded eBPF program. This build has none, so no value exists.
#[derive(Debug)]
pub struct EbpfProgram(Infallible);

impl EbpfProgram {
    /// Returns [`EbpfError::NotBuilt`].
    ///
    /// # Errors
    /// Always.
    pub fn start(_follow: Follow) -> Result<Self, EbpfError> {
        Err(EbpfError::NotBuilt)
    }

    /// Returns [`EbpfError::NotBuilt`].
    ///
    /// # Errors
    /// Always.
    pub fn with_room(_follow: Follow, _room: u32) -> Result<Self, EbpfError> {
        Err(EbpfError::NotBuilt)
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn add(&self, _tid: u32, _job: u32) -> Result<(), EbpfError> {
        match self.0 {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn follow(&mut self, _from: u64, _until: u64) -> Result<(), EbpfError> {
        match self.0 {}
    }

    /// Cannot be called.
    pub fn detach(&mut self) {
        match self.0 {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn take(&self) -> Result<Vec<PairCounts>, EbpfError> {
        match self.0 {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn outside(&self) -> Result<Vec<(u32, u64)>, EbpfError> {
        match self.0 {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn lost(&self) -> Result<Lost, EbpfError> {
        match self.0 {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn changed(&self) -> Result<Vec<u32>, EbpfError> {
        match self.0 {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn times(&self, _tid: u32) -> Result<Option<TaskTimes>, EbpfError> {
        match self.0 {}
    }

    /// Cannot be called.
    pub fn phase_ends(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }

    /// Cannot be called.
    pub fn take_phase_ends(&self) -> bool {
        match self.0 {}
    }
}
