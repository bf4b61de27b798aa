//! Why a file was not read or written.

use crate::MaxSize;
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What was to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read a file.
    Read,
    /// Write a file.
    Write,
    /// Make a folder.
    Make,
    /// Use a folder.
    Use,
    /// Remove a file or folder.
    Remove,
    /// Rename a file.
    Rename,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Make => "make",
            Self::Use => "use",
            Self::Remove => "remove",
            Self::Rename => "rename",
        })
    }
}

/// Why a file was not read or written.
#[derive(Debug, Error)]
pub enum FileError {
    /// The kernel refused it.
    #[error("cannot {action} {}", path.display())]
    Os {
        /// What was to be done.
        action: Action,
        /// Of which file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// It is not what it should be.
    #[error("cannot {action} {}: {}", path.display(), self.reason())]
    Unfit {
        /// What was to be done.
        action: Action,
        /// Of which file.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// It is larger than its format allows.
    #[error("cannot read {}: {}", path.display(), self.reason())]
    TooLarge {
        /// Of which file.
        path: PathBuf,
        /// What is allowed.
        limit: MaxSize,
        /// Its size in bytes; `None` if it has none, as a pipe.
        found: Option<u64>,
    },
    /// It is not UTF-8.
    #[error("cannot read {}: {}", path.display(), self.reason())]
    NotText {
        /// Of which file.
        path: PathBuf,
        /// The first byte that is wrong.
        byte: u8,
        /// Its offset, in bytes from the begin.
        offset: usize,
    },
}

impl FileError {
    /// The file that it is about.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Os { path, .. }
            | Self::Unfit { path, .. }
            | Self::TooLarge { path, .. }
            | Self::NotText { path, .. } => path,
        }
    }

    /// Whether there is no such file.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Os { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// What the kernel said, if it was the kernel.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        if let Self::Os { source, .. } = self { source.raw_os_error() } else { None }
    }

    /// Why, without what was to be done and with which file.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Os { source, .. } => source.to_string(),
            Self::Unfit { expected, found, .. } => format!("expected {expected}, found {found}"),
            Self::TooLarge { limit, found: Some(found), .. } => {
                format!("expected at most {limit}, found {found}")
            }
            Self::TooLarge { limit, found: None, .. } => {
                format!("expected at most {limit}, found more")
            }
            Self::NotText { byte, offset, .. } => {
                format!("expected UTF-8 text, found byte {byte:#04x} at offset {offset}")
            }
        }
    }

    /// In one line with its cause.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Os { source, .. } => format!("{self}: {source}"),
            _ => self.to_string(),
        }
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Os { source, .. } => source,
            other => Self::new(io::ErrorKind::InvalidInput, other.to_string()),
        }
    }
}

/// What a call says of a file: its action and path are added where the caller is known.
#[derive(Debug)]
pub(crate) enum Why {
    Os(io::Error),
    Unfit { expected: &'static str, found: String },
}

impl Why {
    pub(crate) fn of(self, action: Action, path: &Path) -> FileError {
        let path = path.to_owned();
        match self {
            Self::Os(source) => FileError::Os { action, path, source },
            Self::Unfit { expected, found } => FileError::Unfit { action, path, expected, found },
        }
    }
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        Self::Os(error)
    }
}

impl From<Errno> for Why {
    fn from(error: Errno) -> Self {
        Self::Os(error.into())
    }
}
