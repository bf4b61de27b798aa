//! A system call that failed, with its name.

use std::io;
use thiserror::Error;

/// Failed system call.
#[derive(Debug, Error)]
#[error("{call}: {source}")]
pub struct SysError {
    /// Name of the call, with its object where helpful.
    pub call: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}

impl SysError {
    /// Error of `call`, from `errno`, right after the call.
    #[must_use]
    pub fn last(call: &'static str) -> Self {
        Self { call, source: io::Error::last_os_error() }
    }

    /// Error of `call` with this error number of the kernel.
    #[must_use]
    pub fn of(call: &'static str, errno: i32) -> Self {
        Self { call, source: io::Error::from_raw_os_error(errno) }
    }

    /// The kernel's error number, e.g. `libc::EPERM`; `None` if the error is not the kernel's.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}
