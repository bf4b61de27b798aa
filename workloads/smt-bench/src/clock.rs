//! Current clock rate of a core, measured without performance counters.
//!
//! An addition of two registers takes one cycle on every processor with these loops. So a chain of
//! dependent additions takes a known number of cycles.

use crate::thread::cpu_ns;
use core::arch::asm;

/// Additions between two jumps; the jump executes in parallel.
pub(crate) const IN_A_ROW: u64 = 64;

/// Additions of one reading: about 5 ms, a thousand times the cost of reading the clock.
const ADDITIONS: u64 = 1 << 24;

/// Cycles per second of CPU time on the calling thread's core: the greatest of `readings`, since
/// interruptions only make a reading smaller.
#[must_use]
pub fn cycles_per_second(readings: u32) -> f64 {
    (0..readings).map(|_| reading()).fold(0.0, f64::max)
}

fn reading() -> f64 {
    let before = cpu_ns();
    chain(ADDITIONS / IN_A_ROW);
    // A sandbox with a stopped CPU clock must not divide by 0.
    ADDITIONS as f64 * 1e9 / (cpu_ns() - before).max(1) as f64
}

/// An addition. The summand is in a register, because some processors fold additions of constants
/// before the adders (Intel since Alder Lake).
#[rustfmt::skip]
#[cfg(target_arch = "x86_64")]
macro_rules! addition { () => { "add {sum}, {by}\n" } }
#[rustfmt::skip]
#[cfg(target_arch = "aarch64")]
macro_rules! addition { () => { "add {sum}, {sum}, {by}\n" } }

/// Executes `rounds` times [`IN_A_ROW`] additions, at least one round, and returns their sum.
#[inline(never)]
pub(crate) fn chain(rounds: u64) -> u64 {
    let rounds = rounds.max(1);
    let mut sum: u64 = 1;
    // SAFETY: changes the named registers and the flags only; `rounds` is above 0, so the loop ends.
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            eight_times!(eight_times!(addition!())),
            back!("left", "2b"),
            sum = inout(reg) sum,
            by = in(reg) 3_u64,
            left = inout(reg) rounds => _,
            options(nostack, nomem)
        );
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_has_as_many_additions_as_it_says() {
        for rounds in [1, 2, 1000] {
            assert_eq!(chain(rounds), 1 + 3 * IN_A_ROW * rounds);
        }
    }

    /// Processors that exist run at 0.1 to 10 GHz.
    #[test]
    fn a_rate_that_a_processor_can_have() {
        let found = cycles_per_second(3);
        assert!((1e8..1e10).contains(&found), "{found}");
    }
}
