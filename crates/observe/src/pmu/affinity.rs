//! Affinity masks: reading, setting, and moving the calling thread to some of the CPUs that it may use.

#![allow(unsafe_code)] // sched_getaffinity, sched_setaffinity

use crate::sys::SysError;

/// Room for 8,192 CPUs, the most that a Linux kernel can be built for.
pub(crate) type Mask = [u64; 128];

/// The affinity mask of a thread; 0 is the calling one.
pub(crate) fn mask_of(tid: libc::pid_t) -> Result<Mask, SysError> {
    let mut mask: Mask = [0; 128];
    // SAFETY: `mask` is as long as said.
    let done = unsafe { libc::sched_getaffinity(tid, size_of::<Mask>(), mask.as_mut_ptr().cast()) };
    if done < 0 { Err(SysError::last("sched_getaffinity")) } else { Ok(mask) }
}

/// Sets the affinity mask of a thread.
pub(crate) fn set_mask(tid: libc::pid_t, mask: &Mask) -> Result<(), SysError> {
    // SAFETY: `mask` is as long as said.
    let done = unsafe { libc::sched_setaffinity(tid, size_of::<Mask>(), mask.as_ptr().cast()) };
    if done < 0 { Err(SysError::last("sched_setaffinity")) } else { Ok(()) }
}

/// Lets the calling thread run only on those of its CPUs for which `wanted` holds.
///
/// False, and nothing is changed, if there is none or the kernel refuses.
pub fn move_this_thread(wanted: impl Fn(u32) -> bool) -> bool {
    let Ok(mut mask) = mask_of(0) else { return false };
    for (number, bit) in (0..).zip(0..mask.len() * 64) {
        if !wanted(number) {
            mask[bit / 64] &= !(1 << (bit % 64));
        }
    }
    // The kernel answers an empty mask with EINVAL.
    set_mask(0, &mask).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_moves_within_its_mask_or_stays() {
        std::thread::spawn(|| {
            let before = mask_of(0).unwrap();
            assert!(!move_this_thread(|_| false));
            assert_eq!(mask_of(0).unwrap(), before);
            let word = before.iter().position(|bits| *bits != 0).unwrap();
            let first = u32::try_from(word).unwrap() * 64 + before[word].trailing_zeros();
            assert!(move_this_thread(|number| number == first));
            let after = mask_of(0).unwrap();
            assert_eq!(after.iter().map(|bits| bits.count_ones()).sum::<u32>(), 1);
            assert_eq!(after[word], 1 << (first % 64));
        })
        .join()
        .unwrap();
    }
}
