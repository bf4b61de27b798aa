//! Reads and writes files in folders that other users can change.
//!
//! # Problem
//! A path is resolved anew at each use. Between a check and a use another user can replace a
//! folder, a file or a link. A file can be a device, a FIFO without a writer, or larger than the
//! memory.
//! # Approach
//! - **A path is resolved once**, name by name, relative to the descriptor of the previous folder
//!   (`walk`). Later steps use the descriptor.
//! - **A file is checked before it is opened**: `O_PATH` neither runs a driver nor blocks. Only a
//!   file of the right type is opened for reading or writing, through `/proc/self/fd/N`, the same
//!   object. Without /proc the name is opened without following a link, and a changed object is
//!   refused.
//! - **Reads are limited**: the caller passes the limit of its format ([`MaxSize`]).
//! - **A symbolic link is followed only if no other user can have made it**: its folder belongs to
//!   this user or root, and is not world-writable. In a group-writable folder the link itself must
//!   belong to this user or root. The rule is stricter than the kernel's `fs.protected_symlinks`,
//!   which covers only folders with the sticky bit. The owner of `/` counts as root: in a user
//!   namespace root may have another number.
//! - **A file appears whole or not at all**: [`write()`] creates a file with an unpredictable name
//!   and `O_EXCL`, then renames it.
//! - **A folder is used by descriptor** ([`Dir`]): the folder that was checked stays in use when
//!   its path changes.
//!
//! No call blocks on a FIFO for more than [`FIFO_LIMIT`].
//! # Example
//! ```
//! use colocate_files::{Accept, FileMode, MaxSize, read_text, write};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("report.json");
//! write(&path, b"old", FileMode::Private)?;
//! // The new content replaces the old content as a whole.
//! write(&path, b"{}", FileMode::Private)?;
//! assert_eq!(read_text(&path, Accept::File, MaxSize::kib(1))?, "{}");
//! let error = read_text(&path, Accept::File, MaxSize::bytes(1)).unwrap_err();
//! assert_eq!(error.reason(), "expected at most 1 bytes, found 2");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![allow(clippy::missing_errors_doc)] // a `FileError` says what was to be done with which file, and why it was not

pub mod cgroup;
mod dir;
mod error;
pub mod kernel;
mod read;
mod size;
mod walk;
mod write;

pub use dir::{Dir, remove_if_exists};
pub use error::{Action, FileError, Reason};
pub use read::{Accept, LargeFile, open, open_code, open_seen_code, read, read_text};
pub use size::MaxSize;
pub use write::{FIFO_LIMIT, FileMode, append, create, has_place, try_write, write};

use rustix::fs::OFlags;

/// Flags of each open: closed on exec, no controlling terminal, no blocking.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOCTTY).union(OFlags::NONBLOCK);
