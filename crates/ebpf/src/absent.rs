//! In place of the program where this build has none.

use crate::{EbpfError, Follow, Lost, PairCounts, TaskTimes};
use std::convert::Infallible;
use std::os::fd::BorrowedFd;

/// Never there.
#[derive(Debug)]
pub struct Watch(Infallible);

impl Watch {
    /// Says that there is none.
    ///
    /// # Errors
    /// Always.
    pub fn start(_follow: Follow) -> Result<Self, EbpfError> {
        Err(EbpfError::NotBuilt)
    }

    /// The same.
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
