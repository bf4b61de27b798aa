//! How many files this process may have open.

use crate::SysError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limits on open descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// How many may be open now.
    pub soft: u64,
    /// How far this process may raise that by itself.
    pub hard: u64,
}

impl Descriptors {
    /// The limits now (`RLIMIT_NOFILE`).
    #[must_use]
    pub fn now() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        Self { soft: current.unwrap_or(u64::MAX), hard: maximum.unwrap_or(u64::MAX) }
    }

    /// Raises the soft limit to the hard one, which needs no privilege, and says what holds then.
    ///
    /// Programs launched later inherit it, and some are slow or break with a large one, so they are to get the old one
    /// back.
    ///
    /// # Errors
    /// The kernel's; none is known.
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
