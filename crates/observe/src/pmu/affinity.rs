//! Moving the calling thread to some of the CPUs that it may use.

#![allow(unsafe_code)] // sched_getaffinity, sched_setaffinity

/// Room for 8,192 CPUs, the most that a Linux kernel can be built for.
const WORDS: usize = 128;

/// Lets the calling thread run only on those of its CPUs for which `wanted` holds.
///
/// False, and nothing is changed, if there is none or the kernel refuses.
pub fn move_this_thread(wanted: impl Fn(u32) -> bool) -> bool {
    let Some(allowed) = allowed() else { return false };
    let mut mask = [0_u64; WORDS];
    for (word, bits) in mask.iter_mut().enumerate() {
        for bit in 0..u64::BITS {
            let number = u32::try_from(word).unwrap_or(u32::MAX) * u64::BITS + bit;
            let both = allowed[word] >> bit & 1 == 1 && wanted(number);
            *bits |= u64::from(both) << bit;
        }
    }
    // The kernel answers an empty mask with EINVAL.
    // SAFETY: `mask` is as long as said, and 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) == 0 }
}

/// The calling thread's affinity mask.
fn allowed() -> Option<[u64; WORDS]> {
    let mut mask = [0_u64; WORDS];
    // SAFETY: `mask` is as long as said, and 0 is the calling thread.
    let done = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    (done >= 0).then_some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_moves_within_its_mask_or_stays() {
        std::thread::spawn(|| {
            let before = allowed().unwrap();
            assert!(!move_this_thread(|_| false));
            assert_eq!(allowed().unwrap(), before);
            let word = before.iter().position(|bits| *bits != 0).unwrap();
            let first = u32::try_from(word).unwrap() * 64 + before[word].trailing_zeros();
            assert!(move_this_thread(|number| number == first));
            let after = allowed().unwrap();
            assert_eq!(after.iter().map(|bits| bits.count_ones()).sum::<u32>(), 1);
            assert_eq!(after[word], 1 << (first % 64));
        })
        .join()
        .unwrap();
    }
}
