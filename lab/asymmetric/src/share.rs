//! Search for the share of a PU's time that makes the PU slower by a ratio.
//!
//! Threads with the remaining part 1 − s of a PU's time are 1 / (1 − s) times slower, and a little
//! more: preemption and cold caches cost time. This cost hardly depends on s, so the cost measured
//! at one share corrects the next.

/// Largest number of shares measured. Chosen: one correction suffices if the cost is constant.
const TRIES: u32 = 4;

/// Relative error of the ratio at which the search ends; smaller than the measurements' error.
const NEAR: f64 = 0.002;

/// Largest share. With the measuring loops, which are real-time threads too, this share stays below
/// the kernel's limit on real-time threads (95 % of each second). A ratio of 8 takes 0.875.
pub const MOST: f64 = 0.9;

/// Share at which `measure` returns a ratio near `asked`.
///
/// `measure` takes a share, and returns the PU's slowdown at this share.
///
/// # Errors
/// Errors of `measure`.
pub fn reach<E>(asked: f64, mut measure: impl FnMut(f64) -> Result<f64, E>) -> Result<f64, E> {
    let mut share = 1.0 - 1.0 / asked;
    for _ in 0..TRIES {
        let found = measure(share)?;
        if (found / asked - 1.0).abs() < NEAR {
            break;
        }
        share = (share + 1.0 / found - 1.0 / asked).clamp(0.0, MOST);
    }
    Ok(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Slowdown of a PU that loses `share` to the thread and `cost` to interruptions.
    fn slower(share: f64, cost: f64) -> f64 {
        1.0 / (1.0 - share - cost)
    }

    fn reached(asked: f64, cost: f64) -> (f64, u32) {
        let mut tries = 0;
        let share = reach(asked, |share| {
            tries += 1;
            Ok::<_, ()>(slower(share, cost))
        });
        (share.unwrap(), tries)
    }

    #[test]
    fn what_was_lost_beyond_the_share_is_taken_from_it() {
        // At 0.5 it is 1 / (1 - 0.5 - 0.02) = 2.083 times slower: 2 % less is taken, and then it is
        // right.
        let (share, tries) = reached(2.0, 0.02);
        assert!((share - 0.48).abs() < 1e-9, "{share}");
        assert_eq!(tries, 2);
        assert_eq!(reached(2.0, 0.0), (0.5, 1));
        assert_eq!(reached(1.0, 0.0), (0.0, 1));
    }

    #[test]
    fn a_share_that_would_have_to_be_negative_is_none() {
        let (share, _) = reached(1.0, 0.1);
        assert!(share.abs() < 1e-12, "{share}");
    }

    #[test]
    fn errors_are_passed_on() {
        assert_eq!(reach(2.0, |_| Err::<f64, _>("no")), Err("no"));
    }

    proptest! {
        #[test]
        fn reaches_the_requested_ratio(asked in 1.2_f64..8.0, cost in 0.0_f64..0.06) {
            let (share, _) = reached(asked, cost);
            prop_assert!((slower(share, cost) / asked - 1.0).abs() < NEAR);
        }

        #[test]
        fn stays_below_the_kernels_limit(asked in 1.0_f64..8.0, found in 1.0_f64..100.0) {
            let share = reach(asked, |_| Ok::<_, ()>(found)).unwrap();
            prop_assert!((0.0..=MOST).contains(&share));
        }
    }
}
