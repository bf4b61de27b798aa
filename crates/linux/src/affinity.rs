//! Which PUs threads may run on, as the kernel has it.
#![allow(unsafe_code)] // sched_getaffinity, sched_setaffinity

use crate::SysError;
use crate::Tid;
use colocate_machine::PuSet;

/// Largest mask accepted by the kernel: 8,192 PUs, the maximum of Linux on x86-64 (`NR_CPUS` in its
/// Kconfig).
pub type Mask = [u64; 128];

/// Number of PUs that a mask can name.
pub const MOST_PUS: usize = size_of::<Mask>() * 8;

/// Mask of thread `tid`; thread 0 is the caller.
///
/// # Errors
/// `ESRCH` if the thread has ended.
pub fn of(tid: Tid) -> Result<PuSet, SysError> {
    let mut mask: Mask = [0; 128];
    // SAFETY: `mask` is as long as said.
    let done =
        unsafe { libc::sched_getaffinity(tid.0, size_of::<Mask>(), mask.as_mut_ptr().cast()) };
    if done < 0 { Err(SysError::last("sched_getaffinity")) } else { Ok(PuSet::of_words(&mask)) }
}

/// Sets the mask of thread `tid` to `pus`; thread 0 is the caller.
///
/// # Errors
/// `ESRCH` if the thread has ended, `EINVAL` if it may use no PU of the mask, `EPERM` for another
/// user's thread.
pub fn set(tid: Tid, pus: &PuSet) -> Result<(), SysError> {
    let mut mask: Mask = [0; 128];
    // PUs beyond the mask are left out: no kernel has them.
    mask.iter_mut().zip(pus.words()).for_each(|(to, word)| *to = *word);
    // SAFETY: `mask` is as long as said.
    let done = unsafe { libc::sched_setaffinity(tid.0, size_of::<Mask>(), mask.as_ptr().cast()) };
    if done < 0 { Err(SysError::last("sched_setaffinity")) } else { Ok(()) }
}

/// Whether the kernel denies (`EPERM`) setting the mask of thread `tid` of another user. Changes
/// nothing: the attempted mask is empty, and the kernel refuses an empty mask (`EINVAL`) after the
/// permission check.
#[must_use]
pub fn is_denied(tid: Tid) -> bool {
    set(tid, &PuSet::new()).is_err_and(|why| why.errno() == Some(libc::EPERM))
}

/// Whether a seccomp filter or a security module refuses to set any mask. Tries the calling
/// thread's own mask.
#[must_use]
pub fn is_filtered() -> bool {
    is_denied(Tid(0))
}

/// Restricts this thread to its PUs in `wanted`.
///
/// Returns false, without a change, if no PU remains or the kernel refuses.
pub fn move_this_thread(wanted: &PuSet) -> bool {
    // The kernel answers an empty mask with EINVAL.
    of(Tid(0)).is_ok_and(|own| set(Tid(0), &own.intersection(wanted)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_tried_and_nothing_is_changed() {
        let before = of(Tid(0)).unwrap();
        assert!(!is_filtered() && !is_denied(Tid(i32::MAX)));
        assert_eq!(of(Tid(0)).unwrap(), before);
    }

    #[test]
    fn a_thread_moves_within_its_mask_or_stays() {
        std::thread::spawn(|| {
            let before = of(Tid(0)).unwrap();
            assert!(!move_this_thread(&PuSet::new()));
            assert_eq!(of(Tid(0)).unwrap(), before);
            let first: PuSet = before.iter().take(1).collect();
            assert!(move_this_thread(&first));
            assert_eq!(of(Tid(0)).unwrap(), first);
        })
        .join()
        .unwrap();
    }
}
