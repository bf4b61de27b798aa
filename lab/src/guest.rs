//! Kernels that can be booted.

use clap::ValueEnum;

/// A kernel, by version and architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Guest {
    /// Linux 6.1 on x86-64
    #[value(name = "x86-6.1")]
    X86Linux6_1,
    /// Linux 6.12 on x86-64
    #[value(name = "x86-6.12")]
    X86Linux6_12,
    /// The newest Linux of Debian's backports on x86-64; has sched_ext
    #[value(name = "x86-7")]
    X86Linux7,
    /// Linux 6.12 on aarch64: capacities of cores; with one PU also counters
    #[value(name = "arm64")]
    Arm64,
}

impl Guest {
    /// The set of packages with its kernel.
    #[must_use]
    pub const fn set(self) -> &'static str {
        match self {
            Self::X86Linux6_1 => "x86-6.1",
            Self::X86Linux6_12 => "x86-6.12",
            Self::X86Linux7 => "x86-7",
            Self::Arm64 => "arm64",
        }
    }

    /// True if the guest is aarch64 and needs cross-built programs.
    #[must_use]
    pub const fn is_arm64(self) -> bool {
        matches!(self, Self::Arm64)
    }

    /// The kernel's name of the serial line for the console.
    #[must_use]
    pub const fn console(self) -> &'static str {
        if self.is_arm64() { "ttyAMA0" } else { "ttyS0" }
    }

    /// The kernel's name of the serial line for the command's output.
    #[must_use]
    pub const fn output(self) -> &'static str {
        if self.is_arm64() { "ttyAMA1" } else { "ttyS1" }
    }
}
