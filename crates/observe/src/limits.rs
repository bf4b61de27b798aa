//! How many files this process may have open.

#![allow(unsafe_code)] // getrlimit, setrlimit

use crate::sys::SysError;

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
    ///
    /// # Errors
    /// The kernel's; none is known.
    pub fn now() -> Result<Self, SysError> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a valid place to write to.
        let done = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        if done < 0 {
            return Err(SysError::last("getrlimit(RLIMIT_NOFILE)"));
        }
        Ok(Self { soft: limit.rlim_cur, hard: limit.rlim_max })
    }

    /// Raises the soft limit to the hard one, which needs no privilege, and says what holds then.
    ///
    /// Programs launched later inherit it, and some are slow or break with a large one, so they are to get the old one
    /// back.
    ///
    /// # Errors
    /// The kernel's; none is known.
    pub fn raise() -> Result<Self, SysError> {
        let now = Self::now()?;
        let limit = libc::rlimit { rlim_cur: now.hard, rlim_max: now.hard };
        // SAFETY: `limit` is read only during the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } < 0 {
            return Err(SysError::last("setrlimit(RLIMIT_NOFILE)"));
        }
        Self::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_reaches_the_hard_limit_and_no_further() {
        let before = Descriptors::now().unwrap();
        assert!(before.soft > 2 && before.soft <= before.hard);
        let after = Descriptors::raise().unwrap();
        assert_eq!(after, Descriptors { soft: before.hard, hard: before.hard });
    }
}
