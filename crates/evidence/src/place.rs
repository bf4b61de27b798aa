//! Places that a task can have.

use colocate_machine::{PuNr, Shared};
use std::fmt;

/// Where a task may be until the next decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Wherever the kernel puts it.
    #[default]
    LeftToKernel,
    /// On this PU, by the kernel's number.
    Pu(PuNr),
    /// On any of the PUs that share this with a PU, by the kernel's number.
    Sharing(Shared, PuNr),
    /// On none: it does not run, or only on PUs that are idle, if the host fills these. All tasks of a job wait, or none does, since a job is stopped as a whole.
    Waiting,
}

impl Place {
    /// The PU, if it is one.
    #[must_use]
    pub const fn pu(self) -> Option<PuNr> {
        match self {
            Self::Pu(pu) => Some(pu),
            Self::LeftToKernel | Self::Sharing(..) | Self::Waiting => None,
        }
    }

    /// The PU that it names, alone or with others.
    #[must_use]
    pub const fn named_pu(self) -> Option<PuNr> {
        match self {
            Self::Pu(pu) | Self::Sharing(_, pu) => Some(pu),
            Self::LeftToKernel | Self::Waiting => None,
        }
    }

    /// What is shared with that PU, if it is not the only one.
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
    /// A PU, or else what the kernel chooses.
    fn from(pu: Option<PuNr>) -> Self {
        pu.map_or(Self::LeftToKernel, Self::Pu)
    }
}
