//! Reads and writes files that other users may have prepared.
//!
//! # Problem
//! A path is resolved anew at each use. Between a check and a use another user can replace a folder, a file or a
//! link, and a file can be a device, a FIFO without a writer, or larger than the memory.
//! # Approach
//! - **A path is resolved once**, name by name, each relative to the descriptor of the folder before it
//!   (`walk`). All that follows uses the descriptor.
//! - **A file is looked at before it is opened**: `O_PATH` neither runs a driver nor blocks. Only what has the right
//!   type is opened for reading or writing, by `/proc/self/fd/N`, which is the same object. Where /proc is not mounted,
//!   the name is opened without following a link, and refused if it is another object than before.
//! - **At most a limit is read**, which the caller names for its format ([`MaxSize`]).
//! - **A symbolic link is followed only if no other user can have made it**: the folder that it is in belongs to
//!   this user or root, the world cannot write to the folder, and if the group can, the link belongs to this user or
//!   root. That is stricter than the kernel's `fs.protected_symlinks`, which covers only folders with the sticky bit.
//!   The owner of `/` counts as root, since in a user namespace root may have another number.
//! - **A file appears whole or not at all**: [`write()`] makes a new file of an unpredictable name with `O_EXCL`, and
//!   renames it.
//! - **A folder is used by descriptor** ([`Dir`]): it stays the folder that was checked, whatever its path leads to later.
//!
//! No call blocks on a FIFO for more than [`FIFO_LIMIT`].

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
pub use read::{Accept, Code, open, open_code, open_seen_code, read, read_text};
pub use size::MaxSize;
pub use write::{FIFO_LIMIT, Mode, append, create, has_place, try_write, write};

use rustix::fs::OFlags;

/// Flags of every open: nothing is inherited by a program, no terminal becomes ours, nothing is waited for.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOCTTY).union(OFlags::NONBLOCK);
