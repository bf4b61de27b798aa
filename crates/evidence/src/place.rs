//! Places of tasks.

use colocate_machine::{PuNr, SharedPart};
use std::fmt;

/// Place of a task until the next decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Not pinned.
    #[default]
    LeftToKernel,
    /// Pinned to one PU, by kernel number.
    Pu(PuNr),
    /// Any PU that shares a cache, node or package with this PU, by kernel number.
    Sharing(SharedPart, PuNr),
    /// No PU: the task is stopped, or runs on idle PUs only if the host fills them. A job is
    /// stopped as a whole, so all of its tasks wait or none.
    Waiting,
}

impl Place {
    /// The PU of a place on a single PU; `None` for every other place.
    #[must_use]
    pub const fn pu(self) -> Option<PuNr> {
        match self {
            Self::Pu(pu) => Some(pu),
            Self::LeftToKernel | Self::Sharing(..) | Self::Waiting => None,
        }
    }

    /// The PU named by the place: its only PU, or a member of its shared part; `None` without one.
    #[must_use]
    pub const fn named_pu(self) -> Option<PuNr> {
        match self {
            Self::Pu(pu) | Self::Sharing(_, pu) => Some(pu),
            Self::LeftToKernel | Self::Waiting => None,
        }
    }

    /// Shared part of the machine; `None` for every other place.
    #[must_use]
    pub const fn shared(self) -> Option<SharedPart> {
        match self {
            Self::Sharing(shared, _) => Some(shared),
            Self::Pu(_) | Self::LeftToKernel | Self::Waiting => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeftToKernel => f.write_str("kernel"),
            Self::Pu(pu) => pu.fmt(f),
            Self::Sharing(shared, pu) => write!(f, "{shared} of {pu}"),
            Self::Waiting => f.write_str("waits"),
        }
    }
}

impl From<Option<PuNr>> for Place {
    /// `None`: not pinned.
    fn from(pu: Option<PuNr>) -> Self {
        pu.map_or(Self::LeftToKernel, Self::Pu)
    }
}
