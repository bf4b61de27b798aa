//! The loops for x86-64.
//!
//! Registers hold everything but progress and stop flag, as few units as possible are touched
//! beside the one under test, and every way through an iteration has the same instructions.

use crate::control::Control;
use crate::list::Node;
use core::arch::asm;

/// Independent chains in the floating-point loops, as in the paper. Two ports of latency 4
/// (Intel since Skylake, the longest product of both) need eight.
#[cfg(test)]
pub const FP_CHAINS: u32 = 8;

/// A loop around `body`: every iteration counts itself, shows its count, and ends the loop at the
/// limit or when told to stop. These are six instructions, so that 32 operations are 84.2 % of an
/// iteration, as in the paper.
macro_rules! counted {
    ($control:ident, $limit:ident, [$($body:expr),+], $($operand:tt)+) => {
        counted!($control, $limit, "", [$($body),+], $($operand)+)
    };
    ($control:ident, $limit:ident, $before:expr, [$($body:expr),+], $($operand:tt)+) => {
        asm!(
            $before,
            ".p2align 6",
            "2:",
            $($body,)+
            "inc {done}",
            "mov qword ptr [{control}], {done}",
            "cmp {done}, {limit}",
            "je 3f",
            "cmp byte ptr [{control} + 8], 0",
            "je 2b",
            "3:",
            control = in(reg) $control.address(),
            done = inout(reg) $control.done() => _,
            limit = in(reg) $limit,
            $($operand)+
        )
    };
}

/// One operation on each of the registers `r0` to `r7`, in place.
macro_rules! on_eight {
    ($operation:literal, $by:literal) => {
        on_eight!($operation, $by, ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"])
    };
    ($operation:literal, $by:literal, [$($register:literal),+]) => {
        concat!($($operation, " {", $register, "}, {", $by, "}\n"),+)
    };
}

/// [`counted`] with the registers `r0` to `r7` of a class.
macro_rules! counted_on_eight {
    ($control:ident, $limit:ident, $class:ident, $r:ident, [$($body:expr),+], $($operand:tt)+) => {
        counted!(
            $control, $limit, [$($body),+],
            r0 = inout($class) $r[0],
            r1 = inout($class) $r[1],
            r2 = inout($class) $r[2],
            r3 = inout($class) $r[3],
            r4 = inout($class) $r[4],
            r5 = inout($class) $r[5],
            r6 = inout($class) $r[6],
            r7 = inout($class) $r[7],
            $($operand)+
        )
    };
}

/// Adds 1 to eight registers until they reach 2⁵³, where the sum stays.
#[inline(never)]
pub fn fp_add(control: &Control, limit: u64) -> f64 {
    let mut r = [1.0_f64; 8];
    // SAFETY: writes `control`'s atomics, whole and aligned, and the named registers only.
    unsafe {
        counted_on_eight!(
            control, limit, xmm_reg, r,
            [on_eight!("addsd", "by"), on_eight!("addsd", "by"), on_eight!("addsd", "by"), on_eight!("addsd", "by")],
            by = in(xmm_reg) 1.0_f64,
            options(nostack)
        );
    }
    r.iter().sum()
}

/// The second factor or divisor, and the one that undoes it: not powers of two, which some
/// dividers are quicker with.
const THERE: f64 = 1.5;
const BACK: f64 = 2.0 / 3.0;

/// Multiplies eight registers there and back.
#[inline(never)]
pub fn fp_mul(control: &Control, limit: u64) -> f64 {
    let mut r = [1.0_f64; 8];
    // SAFETY: as in `fp_add`.
    unsafe {
        counted_on_eight!(
            control, limit, xmm_reg, r,
            [
                on_eight!("mulsd", "by"), on_eight!("mulsd", "back"),
                on_eight!("mulsd", "by"), on_eight!("mulsd", "back")
            ],
            by = in(xmm_reg) THERE, back = in(xmm_reg) BACK,
            options(nostack)
        );
    }
    r.iter().sum()
}

/// Divides eight registers there and back.
#[inline(never)]
pub fn fp_div(control: &Control, limit: u64) -> f64 {
    let mut r = [1.0_f64; 8];
    // SAFETY: as in `fp_add`.
    unsafe {
        counted_on_eight!(
            control, limit, xmm_reg, r,
            [
                on_eight!("divsd", "by"), on_eight!("divsd", "back"),
                on_eight!("divsd", "by"), on_eight!("divsd", "back")
            ],
            by = in(xmm_reg) THERE, back = in(xmm_reg) BACK,
            options(nostack)
        );
    }
    r.iter().sum()
}

/// Adds to eight registers. The summand is in a register, because additions of constants are
/// folded away before the adders on some processors (Intel since Alder Lake).
#[inline(never)]
pub fn int_add(control: &Control, limit: u64) -> f64 {
    let mut r = [1_u64; 8];
    // SAFETY: as in `fp_add`.
    unsafe {
        counted_on_eight!(
            control, limit, reg, r,
            [on_eight!("add", "by"), on_eight!("add", "by"), on_eight!("add", "by"), on_eight!("add", "by")],
            by = in(reg) 0x9e37_79b9_7f4a_7c15_u64,
            options(nostack)
        );
    }
    fold(r)
}

/// Multiplies eight registers by an odd number, so that none ever becomes 0.
#[inline(never)]
pub fn int_mul(control: &Control, limit: u64) -> f64 {
    let mut r = [1_u64; 8];
    // SAFETY: as in `fp_add`.
    unsafe {
        counted_on_eight!(
            control, limit, reg, r,
            [on_eight!("imul", "by"), on_eight!("imul", "by"), on_eight!("imul", "by"), on_eight!("imul", "by")],
            by = in(reg) 0x9e37_79b9_7f4a_7c15_u64,
            options(nostack)
        );
    }
    fold(r)
}

/// The divisor, and the upper half of the dividend: smaller, so that no quotient overflows, and
/// large, so that every quotient has 32 bits and no divider leaves early.
const DIVISOR: u32 = 0x9000_0001;
const UPPER: u32 = 0x8000_0000;

/// Eight times the line or lines given.
macro_rules! eight_times {
    ($lines:literal) => {
        concat!($lines, $lines, $lines, $lines, $lines, $lines, $lines, $lines)
    };
}

/// Divides; the remainder is the lower half of the next dividend, so each division waits.
#[inline(never)]
pub fn int_div(control: &Control, limit: u64) -> f64 {
    let mut remainder = 1_u32;
    // SAFETY: as in `fp_add`; the quotient fits because `UPPER` < `DIVISOR`.
    unsafe {
        counted!(
            control, limit,
            [
                eight_times!("mov eax, edx\nmov edx, {upper:e}\ndiv {by:e}\n"),
                eight_times!("mov eax, edx\nmov edx, {upper:e}\ndiv {by:e}\n"),
                eight_times!("mov eax, edx\nmov edx, {upper:e}\ndiv {by:e}\n"),
                eight_times!("mov eax, edx\nmov edx, {upper:e}\ndiv {by:e}\n")
            ],
            upper = in(reg) UPPER, by = in(reg) DIVISOR,
            inout("edx") remainder, out("eax") _,
            options(nostack)
        );
    }
    f64::from(remainder)
}

/// The same divisions with a dividend that is always the same, so none waits.
#[inline(never)]
pub fn int_div_tp(control: &Control, limit: u64) -> f64 {
    let remainder: u32;
    // SAFETY: as in `int_div`.
    unsafe {
        counted!(
            control, limit,
            [
                eight_times!("mov eax, {lower:e}\nmov edx, {upper:e}\ndiv {by:e}\n"),
                eight_times!("mov eax, {lower:e}\nmov edx, {upper:e}\ndiv {by:e}\n"),
                eight_times!("mov eax, {lower:e}\nmov edx, {upper:e}\ndiv {by:e}\n"),
                eight_times!("mov eax, {lower:e}\nmov edx, {upper:e}\ndiv {by:e}\n")
            ],
            upper = in(reg) UPPER, lower = in(reg) 1_u32, by = in(reg) DIVISOR,
            out("edx") remainder, out("eax") _,
            options(nostack)
        );
    }
    f64::from(remainder)
}

/// Walks 32 steps an iteration, from `at`, and returns where it ends.
#[inline(never)]
pub fn load_dep(control: &Control, limit: u64, at: *const Node) -> *const Node {
    let mut at = at;
    // SAFETY: as in `fp_add`; `at` is a node of a circular list, so is every node reached.
    unsafe {
        counted!(
            control, limit,
            [
                eight_times!("mov {at}, qword ptr [{at}]\n"),
                eight_times!("mov {at}, qword ptr [{at}]\n"),
                eight_times!("mov {at}, qword ptr [{at}]\n"),
                eight_times!("mov {at}, qword ptr [{at}]\n")
            ],
            at = inout(reg) at,
            options(nostack)
        );
    }
    at
}

/// Where one round of `branch` takes its decisions from: a pattern of 64 bits without a short
/// period, rotated by one bit an iteration. Predictors learn it within a few thousand iterations,
/// so the branch units work and mispredictions do not drown them.
const PATTERN: u64 = 0xd1b5_4a32_d192_ed03;

/// An if-else on bit `$shift` of the pattern, then a switch on the two bits above it: 15
/// instructions, four of them branches, whichever way it goes.
macro_rules! decision {
    ($shift:literal) => {
        concat!(
            "mov {t}, {pattern}\n",
            "shr {t}, ", $shift, "\n",
            "test {t:e}, 1\n",
            "jz 4f\n",
            "add {a}, {t}\n",
            "jmp 5f\n",
            "4:\n",
            "sub {a}, {t}\n",
            "jmp 5f\n",
            "5:\n",
            "and {t:e}, 6\n",
            "movsxd {t}, dword ptr [{table} + 2*{t} + 2*", $shift, "]\n",
            "add {t}, {table}\n",
            "jmp {t}\n",
            "6:\nadd {a}, {pattern}\nxor {b}, {pattern}\nsub {c}, {pattern}\nadd {d}, {pattern}\njmp 20f\n",
            "7:\nsub {b}, {pattern}\nadd {c}, {pattern}\nxor {d}, {pattern}\nadd {a}, {pattern}\njmp 20f\n",
            "8:\nxor {c}, {pattern}\nsub {d}, {pattern}\nadd {a}, {pattern}\nadd {b}, {pattern}\njmp 20f\n",
            "9:\nadd {d}, {pattern}\nxor {a}, {pattern}\nsub {b}, {pattern}\nadd {c}, {pattern}\njmp 20f\n",
            "20:\n",
            // Offsets of the cases from the table's start, 16 bytes a round.
            ".pushsection .rodata.smt_bench, \"a\"\n",
            ".long 6b - 30b, 7b - 30b, 8b - 30b, 9b - 30b\n",
            ".popsection\n",
        )
    };
}

/// Takes eight two-way and eight four-way decisions an iteration.
#[inline(never)]
pub fn branch(control: &Control, limit: u64) -> f64 {
    let mut r = [0_u64; 4];
    // SAFETY: as in `fp_add`; the jumps lead to labels of this block only, through a read-only
    // table of four offsets a round that is indexed by two bits.
    unsafe {
        counted!(
            control, limit,
            ".pushsection .rodata.smt_bench, \"a\"\n.p2align 2\n30:\n.popsection\n\
             lea {table}, [rip + 30b]",
            [
                "rol {pattern}, 1",
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

/// One number that depends on all registers.
#[allow(clippy::cast_precision_loss)] // nobody reads its digits
fn fold<const N: usize>(registers: [u64; N]) -> f64 {
    registers.iter().fold(0, |all, register| all ^ register) as f64
}
