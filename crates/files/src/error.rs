//! Errors of file access: operation, path and reason.

use crate::MaxSize;
use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Operation that failed.
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

/// Error of a file operation: the operation, the path and the reason.
#[derive(Debug)]
pub struct FileError {
    action: Action,
    path: PathBuf,
    reason: Reason,
}

/// Reason of a failed file operation.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// Error of a system call.
    #[error(transparent)]
    Os(#[from] io::Error),
    /// Wrong type, owner or permissions.
    #[error("expected {expected}, found {found}")]
    Unfit {
        /// Acceptable object.
        expected: &'static str,
        /// Object found.
        found: String,
    },
    /// Size above the limit of the format: the limit, and the size found. A pipe has no size.
    #[error("expected at most {0}, found {1}")]
    TooLarge(MaxSize, String),
    /// Invalid UTF-8: the first invalid byte, and its offset in bytes from the start.
    #[error("expected UTF-8 text, found byte {0:#04x} at offset {1}")]
    NotText(u8, usize),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.action, self.path.display())?;
        // The text of an OS error is printed by `source`, so that no chain of errors repeats it.
        if let Reason::Os(_) = self.reason { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

impl Error for FileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if let Reason::Os(source) = &self.reason { Some(source) } else { None }
    }
}

impl FileError {
    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(&self.reason, Reason::Os(source) if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether access to the file, or to a folder on its path, is denied.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(&self.reason, Reason::Os(source) if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Error number (errno) of a failed system call; `None` for other reasons.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        if let Reason::Os(source) = &self.reason { source.raw_os_error() } else { None }
    }

    /// Reason alone, without operation and path.
    #[must_use]
    pub fn reason(&self) -> String {
        self.reason.to_string()
    }

    /// Message of one line: operation, path and reason.
    #[must_use]
    pub fn line(&self) -> String {
        format!("cannot {} {}: {}", self.action, self.path.display(), self.reason)
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        match error.reason {
            // Unwrapped, so that the caller sees the error number.
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
