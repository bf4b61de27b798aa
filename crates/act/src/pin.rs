//! Putting a thread somewhere, and reading back where it may run.

use crate::handle::ProcessHandle;
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

/// PUs that this thread may run on.
///
/// # Errors
/// None known; passed on if the kernel has one.
pub fn own() -> Result<PuSet, PinError> {
    sys::getaffinity(Tid(0)).map_err(|error| PinError::of(error, &PuSet::new()))
}

/// Lets this thread run on `cpus`, as [`place`] does it for others.
///
/// # Errors
/// As [`place`].
pub fn place_own(cpus: &PuSet) -> Result<PuSet, PinError> {
    sys::setaffinity(Tid(0), cpus).map_err(|error| PinError::of(error, cpus))?;
    read_back(own()?, cpus)
}

/// PUs that thread `tid` of a process may run on.
///
/// # Errors
/// [`PinError::Gone`] if it has ended.
pub fn allowed(process: &ProcessHandle, tid: Tid) -> Result<PuSet, PinError> {
    process.with(tid, sys::getaffinity).map_err(|error| PinError::of(error, &PuSet::new()))
}

/// Lets thread `tid` of a process run on `cpus` and says what the kernel made of it: without PUs that are
/// offline or outside the thread's cpuset.
///
/// Success means that the kernel accepted the mask, and a thread that runs elsewhere is moved
/// before the call returns; one that sleeps moves when it wakes.
///
/// # Errors
/// Every variant of [`PinError`]; [`PinError::Elsewhere`] if none of `cpus` is read back.
pub fn place(process: &ProcessHandle, tid: Tid, cpus: &PuSet) -> Result<PuSet, PinError> {
    let placed = process.with(tid, |tid| {
        sys::setaffinity(tid, cpus)?;
        sys::getaffinity(tid)
    });
    read_back(placed.map_err(|error| PinError::of(error, cpus))?, cpus)
}

fn read_back(found: PuSet, cpus: &PuSet) -> Result<PuSet, PinError> {
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

/// Whether a thread that was given `ours` and now has `current` was moved by the kernel only.
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

    /// Pins this thread, reads it back and restores the old mask.
    #[test]
    fn what_is_set_is_read_back() {
        let before = own().unwrap();
        for pu in before.iter() {
            assert_eq!(place_own(&only(pu)).unwrap(), only(pu));
        }
        assert_eq!(place_own(&before).unwrap(), before);
    }

    #[test]
    fn a_pu_that_does_not_exist_is_refused() {
        let error = place_own(&set("8191")).unwrap_err();
        assert!(matches!(error, PinError::NoneAllowed { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            "expected a PU of the thread's cpuset that is online, found 8191"
        );
    }

    #[test]
    fn an_ended_thread_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tid = Tid(child.id().cast_signed());
        let process =
            ProcessHandle::open(std::path::Path::new("/proc"), colocate_observe::Pid(tid.0));
        let process = process.unwrap();
        assert_eq!(allowed(&process, tid).unwrap(), own().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(place(&process, tid, &set("0")), Err(PinError::Gone)));
        assert!(matches!(allowed(&process, tid), Err(PinError::Gone)));
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
