//! Mechanisms for stopping jobs, as the journal has them.

use std::fmt;
use std::path::PathBuf;

/// Mechanism for stopping jobs, as written in the journal's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// The kernel freezes cgroups in this folder.
    Freezer(PathBuf),
    /// SIGSTOP and SIGCONT.
    Signals,
}

impl How {
    /// Parses the output of [`fmt::Display`].
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some(("cgroup", path)) if path.starts_with('/') => Some(Self::Freezer(path.into())),
            None if text == "signals" => Some(Self::Signals),
            _ => None,
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Freezer(path) => write!(f, "cgroup {}", path.display()),
            Self::Signals => f.write_str("signals"),
        }
    }
}

/// The processes of a job, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobProcesses(pub u32);
