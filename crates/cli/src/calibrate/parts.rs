//! Parts of a calibration.

use colocate_machine::calibrated::What;

/// Part of a calibration. [`Part::Speeds`] is in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Groups of PUs, speed of each PU, kinds of cores
    Speeds,
    /// Which PUs share execution units
    Siblings,
    /// Kernels beside each other on two siblings
    Matrix,
    /// Wake-ups and round trips
    WakeUps,
    /// Caches, memory, page moves
    Memory,
    /// Operations a cycle
    Operations,
    /// Time in which a PU does not run
    Gaps,
}

impl Part {
    /// Part that measures `what`.
    pub const fn of(what: &What) -> Self {
        match what {
            What::LinePass { .. }
            | What::Clock { .. }
            | What::Speed { .. }
            | What::SpeedWhileRunning { .. }
            | What::ShareOfPu { .. } => Self::Speeds,
            What::SharedUnits { .. } => Self::Siblings,
            What::Beside { .. } => Self::Matrix,
            What::WakeUp { .. } | What::WakeCall { .. } | What::RoundTrip { .. } => Self::WakeUps,
            What::CacheLatency { .. }
            | What::CacheSize { .. }
            | What::MemoryLatency { .. }
            | What::MemoryBandwidth { .. }
            | What::MemoryCapacity { .. }
            | What::PageMove { .. } => Self::Memory,
            What::Slots { .. } | What::BranchMiss { .. } | What::Work { .. } => Self::Operations,
            What::Away { .. } | What::Gap { .. } | What::Steal { .. } => Self::Gaps,
        }
    }
}
