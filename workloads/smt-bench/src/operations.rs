//! Cycles of a core's operations in isolation, and the cost of a mispredicted branch.
//!
//! Cycles are measured by a chain of additions beside every loop ([`crate::clock`]), so the clock
//! rate cancels out. The fastest of several tries counts, since interruptions only add time.

use crate::chase::xorshift;
use crate::clock;
use crate::kernel::Kernel;
use crate::measure::{sized, timed};
use crate::runner::Runner;
use crate::speed::on;
use crate::thread::ThreadError;
use core::arch::asm;

/// Operations of an iteration of [`simple`].
const IN_A_ROW: u64 = 64;
/// Operations of an iteration of a kernel.
const IN_A_KERNEL: u64 = 32;
/// Decisions of the unpredictable loop: more than any predictor remembers. Chosen.
const DECISIONS: usize = 1 << 18;
/// CPU time of a try, in nanoseconds. Chosen: a thousand times the cost of reading the clock.
const TRY_NS: u64 = 250_000;
/// Tries of each loop. Chosen.
const TRIES: u32 = 4;

/// Cost of each operation of a core, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operations {
    /// An operation of a mix of loads and integer operations bound by the front end: the inverse of
    /// its slots.
    pub slot: f64,
    /// A predicted branch, not taken.
    pub branch: f64,
    /// A load from the first-level cache.
    pub load: f64,
    /// A store to the first-level cache.
    pub store: f64,
    /// An integer operation.
    pub int: f64,
    /// An integer multiplication.
    pub int_mul: f64,
    /// An integer division.
    pub int_div: f64,
    /// A double-precision addition.
    pub float_add: f64,
    /// A double-precision multiplication.
    pub float_mul: f64,
    /// A double-precision division.
    pub float_div: f64,
    /// Extra cost of a mispredicted branch.
    pub branch_miss: f64,
}

/// Measures operations on PU `cpu`.
///
/// # Errors
/// [`ThreadError`] if the PU cannot be used or no thread can be created.
pub fn measure(cpu: u32) -> Result<Operations, ThreadError> {
    on(cpu, || {
        let random: Vec<u8> = random().take(DECISIONS).collect();
        // Half of all random decisions are predicted by chance.
        let missed = 2.0 * (decision_cycles(&random) - decision_cycles(&vec![0; DECISIONS]));
        Operations {
            slot: cycles(3 * IN_A_ROW, |rounds| simple(Simple::Mixed, rounds)),
            branch: cycles(IN_A_ROW, |rounds| simple(Simple::Branch, rounds)),
            load: cycles(IN_A_ROW, |rounds| simple(Simple::Load, rounds)),
            store: cycles(IN_A_ROW, |rounds| simple(Simple::Store, rounds)),
            int: cycles(IN_A_ROW, |rounds| simple(Simple::Int, rounds)),
            int_mul: kernel_cycles(Kernel::IntMul),
            int_div: kernel_cycles(Kernel::IntDivTp),
            float_add: kernel_cycles(Kernel::FpAdd),
            float_mul: kernel_cycles(Kernel::FpMul),
            float_div: kernel_cycles(Kernel::FpDiv),
            // Noise can make random decisions the faster ones.
            branch_miss: missed.max(0.0),
        }
    })
}

/// Cycles per operation of a kernel.
fn kernel_cycles(kernel: Kernel) -> f64 {
    cycles(IN_A_KERNEL, Runner::new(kernel.into()).repeated())
}

/// Cycles per decision by the lowest bits of `bytes`.
fn decision_cycles(bytes: &[u8]) -> f64 {
    cycles(bytes.len() as u64, |times| decide(bytes, times))
}

/// Cycles per operation of `run`, with `operations` per iteration.
fn cycles(operations: u64, mut run: impl FnMut(u64)) -> f64 {
    let iterations = sized(TRY_NS, &mut run);
    // About `TRY_NS` at an addition a nanosecond.
    let rounds = TRY_NS / IN_A_ROW;
    let mut own = u64::MAX;
    let mut chain = u64::MAX;
    // Interleaved, so that both see the same clock rate.
    for _ in 0..TRIES {
        chain = chain.min(timed(&mut |rounds| _ = clock::chain(rounds), rounds));
        own = own.min(timed(&mut run, iterations));
    }
    let cycle = chain as f64 / (rounds * clock::IN_A_ROW) as f64;
    own as f64 / (iterations * operations) as f64 / cycle
}

/// Random bytes.
fn random() -> impl Iterator<Item = u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    std::iter::repeat_with(move || xorshift(&mut state).to_le_bytes()[4])
}

/// Simple operations, measured by loops of their own.
#[derive(Clone, Copy)]
enum Simple {
    /// A load and two integer operations: the core has more units for each than the mix needs.
    Mixed,
    Int,
    Branch,
    Load,
    Store,
}

/// Instructions that differ between architectures.
#[rustfmt::skip]
#[cfg(target_arch = "x86_64")]
macro_rules! instruction {
    // Independent of the operation before, unlike an addition to a register.
    (int) => { "test {t}, {t}\n" };
    (load) => { "mov {u}, [{place}]\n" };
    (store) => { "mov [{place}], {t}\n" };
    // `dec` preserves the carry flag, so that it is cleared once a round.
    (clear) => { "clc" };
    (branch) => { "jc 9f\n" };
    (decide) => { "movzx {t:e}, byte ptr [{at}]\ninc {at}\ntest {t:e}, 1\njz 3f\ninc {odd}" };
}
#[rustfmt::skip]
#[cfg(target_arch = "aarch64")]
macro_rules! instruction {
    (int) => { "add {u}, {place}, #8\n" };
    (load) => { "ldr {u}, [{place}]\n" };
    (store) => { "str {t}, [{place}]\n" };
    (clear) => { "" };
    (branch) => { "cbnz {t}, 9f\n" };
    (decide) => { "ldrb {t:w}, [{at}]\nadd {at}, {at}, #1\ntbz {t:w}, #0, 3f\nadd {odd}, {odd}, #1" };
}

/// [`IN_A_ROW`] times one instruction, `rounds` times; `$clear` before each round.
macro_rules! in_a_row {
    ($rounds:ident, $clear:expr, $one:expr) => {{
        let mut place = 0_u64;
        // SAFETY: reads or writes the eight bytes of `place`, and the named registers and flags only; the jumps lead to
        // labels of this block.
        unsafe {
            asm!(
                ".p2align 6",
                "2:",
                $clear,
                eight_times!(eight_times!($one)),
                back!("left", "2b"),
                "9:",
                // Names the operands, since most instructions do not use all of them.
                "/* {place} {t} {u} */",
                left = inout(reg) $rounds => _,
                place = in(reg) &raw mut place,
                t = inout(reg) 0_u64 => _,
                u = out(reg) _,
                options(nostack)
            );
        }
    }};
}

fn simple(what: Simple, rounds: u64) {
    match what {
        Simple::Mixed => {
            in_a_row!(rounds, "", concat!(instruction!(load), instruction!(int), instruction!(int)))
        }
        Simple::Int => in_a_row!(rounds, "", instruction!(int)),
        Simple::Branch => in_a_row!(rounds, instruction!(clear), instruction!(branch)),
        Simple::Load => in_a_row!(rounds, "", instruction!(load)),
        Simple::Store => in_a_row!(rounds, "", instruction!(store)),
    }
}

/// Takes a branch decision on the lowest bit of each of `bytes`, at least one, `times` times.
fn decide(bytes: &[u8], times: u64) {
    for _ in 0..times {
        // SAFETY: reads `bytes` from its first to its last, and writes the named registers and flags only.
        unsafe {
            asm!(
                "2:",
                instruction!(decide),
                "3:",
                back!("left", "2b"),
                at = inout(reg) bytes.as_ptr() => _,
                left = inout(reg) bytes.len() => _,
                odd = inout(reg) 0_u64 => _,
                t = out(reg) _,
                options(nostack, readonly)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processors that exist begin one to sixteen operations in a cycle, and lose five to sixty for a mispredicted branch.
    #[test]
    fn cycles_that_a_processor_can_take() {
        let found = measure(crate::thread::usable().unwrap()[0]).unwrap();
        println!("{found:?}");
        assert!((0.04..2.0).contains(&found.slot), "{found:?}");
        for each in [found.branch, found.load, found.store, found.int, found.float_add] {
            assert!((0.04..4.0).contains(&each), "{found:?}");
        }
        assert!(found.int_div > 0.5 && found.float_div > 0.5, "{found:?}");
        assert!((0.0..200.0).contains(&found.branch_miss), "{found:?}");
    }
}
