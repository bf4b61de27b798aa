//! Errors of reading a machine.

use crate::check::Flaw;
use crate::described::DescribedError;
use crate::read::child::Unanswered;
use crate::read::xml::XmlError;
use colocate_files::FileError;
use std::path::PathBuf;
use thiserror::Error;

/// Error of reading a machine. A message of one line that begins with the path or the text.
///
/// The inner error is part of the message, so its field is called `reason`: a field called `source`
/// would be printed twice with the error chain.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be read, is too large or is not text.
    #[error("{}: {}", path.display(), reason.reason())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: FileError,
    },
    /// The file is not hwloc XML, or describes an impossible machine.
    #[error("{origin}: {reason}")]
    Xml {
        /// Path of the file.
        origin: String,
        /// Reason.
        reason: XmlError,
    },
    /// The description of a machine is wrong.
    #[error("{origin}: {reason}")]
    Described {
        /// Path or name.
        origin: String,
        /// Reason.
        reason: DescribedError,
    },
    /// The synthetic string has a syntax error.
    #[error("expected a synthetic machine like \"pack:2 core:8 pu:2\", found \"{found}\"")]
    Synthetic {
        /// The string.
        found: String,
    },
    /// The synthetic string describes more than is possible, or more than hwloc can build in
    /// seconds.
    #[error("expected a synthetic machine of {expected}, found more in \"{found}\"")]
    SyntheticSize {
        /// The limit.
        expected: String,
        /// The string.
        found: String,
    },
    /// hwloc fails on the synthetic string.
    #[error("hwloc cannot make the synthetic machine \"{found}\": {reason}")]
    SyntheticUnanswered {
        /// The string.
        found: String,
        /// Kind of failure.
        reason: Unanswered,
    },
    /// hwloc fails on this machine.
    #[error("hwloc cannot read this machine: {reason}")]
    Unanswered {
        /// Kind of failure.
        reason: Unanswered,
    },
    /// hwloc reports an error on this machine.
    #[error("hwloc cannot read this machine: {reason}")]
    Hwloc {
        /// Message of hwloc.
        reason: String,
    },
    /// hwloc is configured to show another machine.
    #[error(
        "expected this machine from hwloc, found another one: unset HWLOC_XMLFILE, HWLOC_SYNTHETIC and HWLOC_FSROOT, or name the file"
    )]
    Elsewhere,
    /// The machine contradicts itself.
    #[error("{origin}: {reason}")]
    Flaw {
        /// Origin of the machine.
        origin: String,
        /// Violated invariant.
        reason: Flaw,
    },
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
}

impl ReadError {
    /// The reason, without the machine's name.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Unanswered { reason } => reason.to_string(),
            Self::Hwloc { reason } => reason.clone(),
            Self::Flaw { reason, .. } => reason.to_string(),
            other => other.to_string(),
        }
    }
}
