//! Why a file was not read or written.

use crate::MaxSize;
use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

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
#[derive(Debug)]
pub struct FileError {
    action: Action,
    path: PathBuf,
    reason: Reason,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The kernel refused it.
    #[error(transparent)]
    Os(#[from] io::Error),
    /// It is not what it should be.
    #[error("expected {expected}, found {found}")]
    Unfit {
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// It is larger than its format allows: the limit, and its size, or that it has none, as a pipe.
    #[error("expected at most {0}, found {1}")]
    TooLarge(MaxSize, String),
    /// It is not UTF-8: the first byte that is wrong, and its offset from the begin.
    #[error("expected UTF-8 text, found byte {0:#04x} at offset {1}")]
    NotText(u8, usize),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.action, self.path.display())?;
        // What the kernel says is the source.
        if let Reason::Os(_) = self.reason { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

impl Error for FileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if let Reason::Os(source) = &self.reason { Some(source) } else { None }
    }
}

impl FileError {
    /// The file that it is about.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is no such file.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(&self.reason, Reason::Os(source) if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the kernel denies access to it, or to a folder on the way.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(&self.reason, Reason::Os(source) if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// What the kernel said, if it was the kernel.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        if let Reason::Os(source) = &self.reason { source.raw_os_error() } else { None }
    }

    /// Why, without what was to be done and with which file.
    #[must_use]
    pub fn reason(&self) -> String {
        self.reason.to_string()
    }

    /// In one line with its cause.
    #[must_use]
    pub fn line(&self) -> String {
        format!("cannot {} {}: {}", self.action, self.path.display(), self.reason)
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        match error.reason {
            Reason::Os(source) => source,
            _ => Self::new(io::ErrorKind::InvalidInput, error.to_string()),
        }
    }
}

impl Reason {
    pub(crate) fn of(self, action: Action, path: &Path) -> FileError {
        FileError { action, path: path.to_owned(), reason: self }
    }
}

impl From<Errno> for Reason {
    fn from(error: Errno) -> Self {
        Self::Os(error.into())
    }
}
