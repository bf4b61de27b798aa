//! Places that a task can have.

use colocate_machine::{PuNr, Shared};
use std::fmt;

/// Placement of a task until the next decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// No PU: kernel-scheduled.
    #[default]
    LeftToKernel,
    /// A single PU, by the kernel's number.
    Pu(PuNr),
    /// Any PU that shares this resource with a PU, by the kernel's number.
    Sharing(Shared, PuNr),
    /// No PU: the task does not run, or only on idle PUs, if the host fills them. Either all tasks
    /// of a job wait or none, since a job is stopped as a whole.
    Waiting,
}

impl Place {
    /// The PU of a placement on a single PU; `None` otherwise.
    #[must_use]
    pub const fn pu(self) -> Option<PuNr> {
        match self {
            Self::Pu(pu) => Some(pu),
            Self::LeftToKernel | Self::Sharing(..) | Self::Waiting => None,
        }
    }

    /// The PU named by the place, alone or with its siblings.
    #[must_use]
    pub const fn named_pu(self) -> Option<PuNr> {
        match self {
            Self::Pu(pu) | Self::Sharing(_, pu) => Some(pu),
            Self::LeftToKernel | Self::Waiting => None,
        }
    }

    /// Resource shared with the named PU; `None` for a single PU.
    #[must_use]
    pub const fn shared(self) -> Option<Shared> {
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
    /// A single PU, or for `None` kernel-scheduled.
    fn from(pu: Option<PuNr>) -> Self {
        pu.map_or(Self::LeftToKernel, Self::Pu)
    }
}
