//! Why a machine could not be read.

use crate::check::Flaw;
use crate::described::DescribedError;
use crate::read::child::Unanswered;
use crate::read::xml::XmlError;
use colocate_files::FileError;
use std::path::PathBuf;
use thiserror::Error;

/// Why a machine could not be read. One line each; the path or the text comes first.
///
/// The inner error is part of the line already, so it is called `reason`: a field called `source`
/// would be printed twice where the chain is printed.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A file cannot be read, is too large or is not text.
    #[error("{}: {}", path.display(), reason.reason())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: FileError,
    },
    /// A file is not hwloc XML, or not of a machine that can be.
    #[error("{origin}: {reason}")]
    Xml {
        /// Which file.
        origin: String,
        /// What is wrong.
        reason: XmlError,
    },
    /// A described machine is wrong.
    #[error("{origin}: {reason}")]
    Described {
        /// Which file or name.
        origin: String,
        /// What is wrong.
        reason: DescribedError,
    },
    /// A synthetic string is not one that hwloc understands.
    #[error("expected a synthetic machine like \"pack:2 core:8 pu:2\", found \"{found}\"")]
    Synthetic {
        /// The string.
        found: String,
    },
    /// A synthetic string describes more than can be, or more than hwloc can put together in seconds.
    #[error("expected a synthetic machine of {expected}, found more in \"{found}\"")]
    SyntheticSize {
        /// The limit.
        expected: String,
        /// The string.
        found: String,
    },
    /// hwloc fails on a synthetic string.
    #[error("hwloc cannot make the synthetic machine \"{found}\": {reason}")]
    SyntheticUnanswered {
        /// The string.
        found: String,
        /// How it fails.
        reason: Unanswered,
    },
    /// hwloc fails on this machine.
    #[error("hwloc cannot read this machine: {reason}")]
    Unanswered {
        /// How it fails.
        reason: Unanswered,
    },
    /// hwloc cannot say what this machine is.
    #[error("hwloc cannot read this machine: {reason}")]
    Hwloc {
        /// What hwloc says.
        reason: String,
    },
    /// hwloc is set to show another machine instead of this one.
    #[error(
        "expected this machine from hwloc, found another one: unset HWLOC_XMLFILE, HWLOC_SYNTHETIC and HWLOC_FSROOT, or name the file"
    )]
    Elsewhere,
    /// The machine contradicts itself.
    #[error("{origin}: {reason}")]
    Flaw {
        /// Where the machine came from.
        origin: String,
        /// What is wrong.
        reason: Flaw,
    },
    /// The text names no machine.
    #[error(
        "no machine is called \"{found}\": expected live, {known}, a .toml, .json or .xml file, or synthetic:…"
    )]
    Unknown {
        /// The text.
        found: String,
        /// The names of the described machines that come with colocate.
        known: String,
    },
}

impl ReadError {
    /// What is wrong, without the machine's name.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Unanswered { reason } => reason.to_string(),
            Self::Hwloc { reason } => reason.clone(),
            Self::Flaw { reason, .. } => reason.to_string(),
            other => other.to_string(),
        }
    }
}
