//! How many files this process may have open.

use crate::SysError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limits on open descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Soft limit: the maximum number of open descriptors now.
    pub soft: u64,
    /// Hard limit: the maximum to which this process may raise the soft limit.
    pub hard: u64,
}

impl Descriptors {
    /// The limits now (`RLIMIT_NOFILE`).
    #[must_use]
    pub fn now() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        // `None`: no limit (`RLIM_INFINITY`).
        Self { soft: current.unwrap_or(u64::MAX), hard: maximum.unwrap_or(u64::MAX) }
    }

    /// Raises the soft limit to the hard limit, which needs no privilege, and returns the resulting
    /// limits.
    ///
    /// Programs launched later inherit the limit. Some are slow or break with a large limit, so the
    /// old limit must be restored for them.
    ///
    /// # Errors
    /// Any error of the kernel; none is known.
    pub fn raise() -> Result<Self, SysError> {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
            .map_err(|error| SysError::of("setrlimit(RLIMIT_NOFILE)", error.raw_os_error()))?;
        Ok(Self::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_reaches_the_hard_limit_and_no_further() {
        let before = Descriptors::now();
        assert!(before.soft > 2 && before.soft <= before.hard);
        let after = Descriptors::raise().unwrap();
        assert_eq!(after, Descriptors { soft: before.hard, hard: before.hard });
    }
}
