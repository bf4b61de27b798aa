//! Loops, one for each kernel.
//!
//! Everything except progress and stop flag is in registers, few units other than the one under
//! test are used, and every path through an iteration has the same instructions. Each architecture
//! has a file for its differences: the frame of a loop, the form of an operation on registers, and
//! divisions.

use crate::control::Control;
use crate::list::ListNode;
use core::arch::asm;

/// One operation on each of the registers `r0` to `r7`, in place.
macro_rules! on_eight {
    ($operation:expr, $by:literal) => {
        on_each!($operation, $by, ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"])
    };
}

/// `counted` with the registers `r0` to `r7` of a class.
macro_rules! counted_on_eight {
    ($control:ident, $limit:ident, $class:ident, $r:ident, [$($body:expr),+], $($operand:tt)+) => {
        counted!(
            $control, $limit, "", [$($body),+],
            r0 = inout($class) $r[0], r1 = inout($class) $r[1],
            r2 = inout($class) $r[2], r3 = inout($class) $r[3],
            r4 = inout($class) $r[4], r5 = inout($class) $r[5],
            r6 = inout($class) $r[6], r7 = inout($class) $r[7],
            $($operand)+
        )
    };
}

#[macro_use]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod architecture;

pub use architecture::{FP_CHAINS, int_div, int_div_tp};

/// A loop of 32 floating-point operations, half of them with `$by`, half with `$back`.
macro_rules! float_loop {
    ($(#[$doc:meta])* $name:ident, $operation:literal, $by:expr, $back:expr) => {
        $(#[$doc])*
        #[inline(never)]
        pub fn $name(control: &Control, limit: u64) -> f64 {
            let mut r = [1.0_f64; FP_CHAINS];
            // SAFETY: writes `control`'s atomics, whole and aligned, and the named registers only.
            unsafe { counted_on_floats!(control, limit, r, $operation, $by, $back) };
            r.iter().sum()
        }
    };
}

/// Second factor or divisor. Not a power of two, for which some dividers are faster.
const THERE: f64 = 1.5;
/// The inverse of [`THERE`].
const BACK: f64 = 2.0 / 3.0;

float_loop!(
    /// Adds 1 to all registers until 2⁵³, where the sum stays.
    fp_add, "add", 1.0_f64, 1.0_f64
);
float_loop!(
    /// Multiplies all registers by a number and its inverse in turn.
    fp_mul, "mul", THERE, BACK
);
float_loop!(
    /// Divides all registers by a number and its inverse in turn.
    fp_div, "div", THERE, BACK
);

/// A loop of 32 integer operations in eight chains.
macro_rules! integer_loop {
    ($(#[$doc:meta])* $name:ident, $operation:expr) => {
        $(#[$doc])*
        #[inline(never)]
        pub fn $name(control: &Control, limit: u64) -> f64 {
            let mut r = [1_u64; 8];
            // SAFETY: as in `float_loop`.
            unsafe {
                counted_on_eight!(
                    control, limit, reg, r,
                    [
                        on_eight!($operation, "by"), on_eight!($operation, "by"),
                        on_eight!($operation, "by"), on_eight!($operation, "by")
                    ],
                    by = in(reg) 0x9e37_79b9_7f4a_7c15_u64,
                    options(nostack)
                );
            }
            fold(r)
        }
    };
}

integer_loop!(
    /// Adds to eight registers. The summand is in a register, because some processors fold
    /// additions of constants before the adders (Intel since Alder Lake).
    int_add, "add"
);
integer_loop!(
    /// Multiplies eight registers by an odd number, so that none ever becomes 0.
    int_mul, instruction!(multiply)
);

/// Follows the list for 32 steps per iteration from `at`, and returns the last node.
#[inline(never)]
pub fn load_dep(control: &Control, limit: u64, at: *const ListNode) -> *const ListNode {
    let mut at = at;
    // SAFETY: as in `float_loop`; `at` is a node of a circular list, so is every node reached.
    unsafe {
        counted!(
            control, limit, "", [thirty_two_times!(instruction!(load))],
            at = inout(reg) at,
            options(nostack)
        );
    }
    at
}

/// Decisions of `branch`: a pattern of 64 bits without a short period, rotated by one bit per
/// iteration. Predictors learn the pattern within a few thousand iterations, so mispredictions do
/// not hide the load on the branch units.
const PATTERN: u64 = 0xd1b5_4a32_d192_ed03;

/// A case of the switch.
macro_rules! case {
    ($label:literal, $(($operation:expr, $register:literal)),+) => {
        concat!($label, ":\n", $(on_each!($operation, "pattern", [$register]),)+ instruction!(jump), " 20f\n")
    };
}

/// An if-else on bit `$shift` of the pattern, then a switch on the two bits above: 15 instructions
/// on every path, four of them branches.
macro_rules! decision {
    ($shift:literal) => {
        concat!(
            if_else_and_switch!($shift),
            case!("6", ("add", "a"), (instruction!(xor), "b"), ("sub", "c"), ("add", "d")),
            case!("7", ("sub", "b"), ("add", "c"), (instruction!(xor), "d"), ("add", "a")),
            case!("8", (instruction!(xor), "c"), ("sub", "d"), ("add", "a"), ("add", "b")),
            case!("9", ("add", "d"), (instruction!(xor), "a"), ("sub", "b"), ("add", "c")),
            "20:\n",
            // Offsets of the cases from the table's start, 16 bytes a round.
            ".pushsection .rodata.smt_bench, \"a\"\n",
            ".long 6b - 30b, 7b - 30b, 8b - 30b, 9b - 30b\n",
            ".popsection\n",
        )
    };
}

/// Takes eight two-way and eight four-way decisions per iteration.
#[inline(never)]
pub fn branch(control: &Control, limit: u64) -> f64 {
    let mut r = [0_u64; 4];
    // SAFETY: as in `float_loop`; the jumps lead to labels of this block only, through a read-only
    // table of four offsets a round that is indexed by two bits.
    unsafe {
        counted!(
            control, limit, address_of_table!(),
            [
                instruction!(rotate),
                decision!("0"), decision!("8"), decision!("16"), decision!("24"),
                decision!("32"), decision!("40"), decision!("48"), decision!("56")
            ],
            pattern = inout(reg) PATTERN => _,
            table = out(reg) _,
            t = out(reg) _,
            a = inout(reg) r[0], b = inout(reg) r[1], c = inout(reg) r[2], d = inout(reg) r[3],
            options(nostack)
        );
    }
    fold(r)
}

/// Combines all registers into a number, so that none is unused.
fn fold<const N: usize>(registers: [u64; N]) -> f64 {
    registers.iter().fold(0, |all, register| all ^ register) as f64
}
