//! Parts of a calibration.

use colocate_machine::calibrated::Quantity;

/// Part of a calibration. [`CalibrationPart::Speeds`] is in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CalibrationPart {
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

impl CalibrationPart {
    /// Part that measures `what`.
    pub const fn of(what: &Quantity) -> Self {
        match what {
            Quantity::LinePass { .. }
            | Quantity::Clock { .. }
            | Quantity::Speed { .. }
            | Quantity::SpeedWhileRunning { .. }
            | Quantity::ShareOfPu { .. } => Self::Speeds,
            Quantity::SharedUnits { .. } => Self::Siblings,
            Quantity::Beside { .. } => Self::Matrix,
            Quantity::WakeUp { .. } | Quantity::WakeCall { .. } | Quantity::RoundTrip { .. } => {
                Self::WakeUps
            }
            Quantity::CacheLatency { .. }
            | Quantity::CacheSize { .. }
            | Quantity::MemoryLatency { .. }
            | Quantity::MemoryBandwidth { .. }
            | Quantity::MemoryCapacity { .. }
            | Quantity::PageMove { .. } => Self::Memory,
            Quantity::Slots { .. } | Quantity::BranchMiss { .. } | Quantity::Work { .. } => {
                Self::Operations
            }
            Quantity::Away { .. } | Quantity::Gap { .. } | Quantity::Steal { .. } => Self::Gaps,
        }
    }
}
