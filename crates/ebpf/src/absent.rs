//! In place of the program where this build has none.

use crate::{EbpfError, Lost, PairCounts};
use std::convert::Infallible;

/// Never there.
#[derive(Debug)]
pub struct Watch(Infallible);

impl Watch {
    /// Says that there is none.
    ///
    /// # Errors
    /// Always.
    pub fn start() -> Result<Self, EbpfError> {
        Err(EbpfError::NotBuilt)
    }

    /// The same.
    ///
    /// # Errors
    /// Always.
    pub fn with_room(_room: u32) -> Result<Self, EbpfError> {
        Err(EbpfError::NotBuilt)
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn add(&self, _tid: u32) -> Result<(), EbpfError> {
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
    pub fn lost(&self) -> Result<Lost, EbpfError> {
        match self.0 {}
    }
}
