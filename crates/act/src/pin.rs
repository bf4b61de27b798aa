//! Putting a thread somewhere, and reading back where it may run.

use crate::sys;
use colocate_machine::{PuNr, PuSet};
use colocate_observe::{SysError, Tid};
use thiserror::Error;

/// Why a thread could not be put somewhere.
#[derive(Debug, Error)]
pub enum PinError {
    /// It has ended (`ESRCH`).
    #[error("the thread has ended")]
    Gone,
    /// Its cpuset has none of the PUs, or they are offline (`EINVAL`).
    #[error("expected a PU of the thread's cpuset that is online, found {wanted}")]
    NoneAllowed {
        /// The PUs that were asked for.
        wanted: PuSet,
    },
    /// It is another user's (`EPERM`); `CAP_SYS_NICE` would allow it.
    #[error("the thread belongs to another user; run colocate as that user or with CAP_SYS_NICE")]
    Denied,
    /// The kernel accepted the mask and then has another one: something else moves the thread.
    #[error("expected {wanted} to be read back, found {found}")]
    Elsewhere {
        /// The PUs that were asked for.
        wanted: PuSet,
        /// The PUs that it may run on.
        found: PuSet,
    },
    /// Something that sched_setaffinity(2) does not speak of.
    #[error("{0}")]
    Other(SysError),
}

impl PinError {
    fn of(error: SysError, wanted: &PuSet) -> Self {
        match error.errno() {
            Some(libc::ESRCH) => Self::Gone,
            Some(libc::EINVAL) => Self::NoneAllowed { wanted: wanted.clone() },
            Some(libc::EPERM) => Self::Denied,
            _ => Self::Other(error),
        }
    }
}

/// PUs that thread `tid` may run on.
///
/// # Errors
/// [`PinError::Gone`] if it has ended.
pub fn allowed(tid: Tid) -> Result<PuSet, PinError> {
    sys::getaffinity(tid).map_err(|error| PinError::of(error, &PuSet::new()))
}

/// Lets thread `tid` run on `cpus` and says what the kernel made of it: without PUs that are
/// offline or outside the thread's cpuset.
///
/// Success means that the kernel accepted the mask, and a thread that runs elsewhere is moved
/// before the call returns; one that sleeps moves when it wakes.
///
/// # Errors
/// Every variant of [`PinError`]; [`PinError::Elsewhere`] if none of `cpus` is read back.
pub fn place(tid: Tid, cpus: &PuSet) -> Result<PuSet, PinError> {
    sys::setaffinity(tid, cpus).map_err(|error| PinError::of(error, cpus))?;
    let found = allowed(tid)?;
    if found.is_subset(cpus) {
        Ok(found)
    } else {
        Err(PinError::Elsewhere { wanted: cpus.clone(), found })
    }
}

/// The set of one PU.
#[must_use]
pub fn only(pu: PuNr) -> PuSet {
    [pu].into_iter().collect()
}

/// The only PU of `set`, if it has exactly one.
#[must_use]
pub fn single(set: &PuSet) -> Option<PuNr> {
    let mut pus = set.iter();
    pus.next().filter(|_| pus.next().is_none())
}

/// Whether a thread that was given `ours` and now has `current` was moved by nobody but the kernel.
///
/// When PUs go offline or the cpuset shrinks to `usable`, the kernel takes away what is not usable
/// any more, and if nothing is left it gives the thread all that is (cpuset(7)).
#[must_use]
pub fn is_untouched(current: &PuSet, ours: &PuSet, usable: &PuSet) -> bool {
    let left = ours.intersection(usable);
    *current == *ours || *current == left || (left.is_empty() && usable.is_subset(current))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> PuSet {
        PuSet::parse_list(list).unwrap()
    }

    /// Pins this thread, reads it back and puts the old mask back.
    #[test]
    fn what_is_set_is_read_back() {
        let before = allowed(Tid(0)).unwrap();
        for pu in before.iter() {
            assert_eq!(place(Tid(0), &only(pu)).unwrap(), only(pu));
        }
        assert_eq!(place(Tid(0), &before).unwrap(), before);
    }

    #[test]
    fn a_pu_that_does_not_exist_is_refused() {
        let nowhere = set("8191");
        let error = place(Tid(0), &nowhere).unwrap_err();
        assert!(matches!(error, PinError::NoneAllowed { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            "expected a PU of the thread's cpuset that is online, found 8191"
        );
    }

    #[test]
    fn an_ended_thread_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let tid = Tid(child.id().cast_signed());
        child.wait().unwrap();
        assert!(matches!(place(tid, &set("0")), Err(PinError::Gone)));
        assert!(matches!(allowed(tid), Err(PinError::Gone)));
    }

    #[test]
    fn the_kernels_own_changes_are_told_from_the_programs() {
        let untouched =
            |current, ours, usable| is_untouched(&set(current), &set(ours), &set(usable));
        assert!(untouched("3", "3", "0-7"));
        assert!(untouched("0-3", "0-7", "0-3"), "the cpuset shrank");
        assert!(untouched("0-3", "5", "0-3"), "the PU left the cpuset");
        assert!(untouched("0-7", "5", "0-3"), "the PU went offline");
        assert!(!untouched("2", "3", "0-7"), "the program moved it");
        assert!(!untouched("0-7", "3", "0-7"), "the program freed it");
        assert!(!untouched("1", "5", "0-3"), "the program moved it after the cpuset shrank");
    }
}
