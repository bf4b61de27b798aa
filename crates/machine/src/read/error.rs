//! Errors of reading a machine.

use colocate_files::FileError;
use std::path::Path;
use thiserror::Error;

/// Error of reading a machine. A message of one line that begins with the path or the text.
#[derive(Debug, Error)]
pub enum ReadError {
    /// hwloc is configured to show another machine.
    #[error(
        "expected this machine from hwloc, found another one: unset HWLOC_XMLFILE, HWLOC_SYNTHETIC and HWLOC_FSROOT, or name the file"
    )]
    Elsewhere,
    /// hwloc fails or reports an error on this machine.
    #[error("hwloc cannot read this machine: {0}")]
    Hwloc(String),
    /// The synthetic string is wrong, describes more than hwloc can build in seconds, or hwloc fails
    /// on it.
    #[error("{0}")]
    Synthetic(String),
    /// The text names no machine.
    #[error(
        "no machine is called \"{found}\": expected live, {known}, a .toml, .json or .xml file, or synthetic:…"
    )]
    Unknown {
        /// The text.
        found: String,
        /// Names of the described machines that come with colocate.
        known: String,
    },
    /// The file cannot be read, or the machine or its description is wrong.
    #[error("{origin}: {reason}")]
    Wrong {
        /// Path, or origin of the machine.
        origin: String,
        /// Reason in one line, without the origin.
        reason: String,
    },
}

impl ReadError {
    /// The error of a wrong machine.
    pub(super) fn wrong(origin: impl Into<String>, reason: impl ToString) -> Self {
        Self::Wrong { origin: origin.into(), reason: reason.to_string() }
    }

    /// The error of a file that cannot be read, is too large or is not text.
    pub(super) fn file(path: &Path, why: &FileError) -> Self {
        Self::wrong(path.display().to_string(), why.reason())
    }

    /// The reason, without the machine's name.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Hwloc(reason) | Self::Wrong { reason, .. } => reason.clone(),
            other => other.to_string(),
        }
    }
}
