//! The loops for aarch64.
//!
//! As those for x86-64, with sixteen floating-point chains: current cores have four pipes of
//! latency 3 or 4 (Neoverse V2's and Apple's multipliers), and there are registers for it.

use crate::control::Control;
use crate::list::Node;
use core::arch::asm;

/// Independent chains in the floating-point loops.
#[cfg(test)]
pub const FP_CHAINS: u32 = 16;

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
            "add {done}, {done}, #1",
            "str {done}, [{control}]",
            "cmp {done}, {limit}",
            "b.eq 3f",
            "ldrb {stop:w}, [{control}, #8]",
            "cbz {stop:w}, 2b",
            "3:",
            control = in(reg) $control.address(),
            done = inout(reg) $control.done() => _,
            limit = in(reg) $limit,
            stop = out(reg) _,
            $($operand)+
        )
    };
}

/// One operation on each of the registers named, in place.
macro_rules! on_each {
    ($operation:literal, $by:literal, [$($register:literal),+]) => {
        concat!($($operation, " {", $register, "}, {", $register, "}, {", $by, "}\n"),+)
    };
}

/// One operation on each of the sixteen floating-point registers.
macro_rules! on_sixteen {
    ($operation:literal, $by:literal) => {
        on_each!(
            $operation,
            $by,
            [
                "r0:d", "r1:d", "r2:d", "r3:d", "r4:d", "r5:d", "r6:d", "r7:d", "r8:d", "r9:d",
                "r10:d", "r11:d", "r12:d", "r13:d", "r14:d", "r15:d"
            ]
        )
    };
}

/// One operation on each of the eight integer registers.
macro_rules! on_eight {
    ($operation:literal) => {
        on_each!($operation, "by", ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"])
    };
}

/// [`counted`] with sixteen floating-point registers.
macro_rules! counted_on_sixteen {
    ($control:ident, $limit:ident, $r:ident, [$($body:expr),+], $($operand:tt)+) => {
        counted!(
            $control, $limit, [$($body),+],
            r0 = inout(vreg) $r[0], r1 = inout(vreg) $r[1],
            r2 = inout(vreg) $r[2], r3 = inout(vreg) $r[3],
            r4 = inout(vreg) $r[4], r5 = inout(vreg) $r[5],
            r6 = inout(vreg) $r[6], r7 = inout(vreg) $r[7],
            r8 = inout(vreg) $r[8], r9 = inout(vreg) $r[9],
            r10 = inout(vreg) $r[10], r11 = inout(vreg) $r[11],
            r12 = inout(vreg) $r[12], r13 = inout(vreg) $r[13],
            r14 = inout(vreg) $r[14], r15 = inout(vreg) $r[15],
            $($operand)+
        )
    };
}

/// [`counted`] with eight integer registers.
macro_rules! counted_on_eight {
    ($control:ident, $limit:ident, $r:ident, [$($body:expr),+], $($operand:tt)+) => {
        counted!(
            $control, $limit, [$($body),+],
            r0 = inout(reg) $r[0], r1 = inout(reg) $r[1],
            r2 = inout(reg) $r[2], r3 = inout(reg) $r[3],
            r4 = inout(reg) $r[4], r5 = inout(reg) $r[5],
            r6 = inout(reg) $r[6], r7 = inout(reg) $r[7],
            $($operand)+
        )
    };
}

/// Adds 1 to sixteen registers until they reach 2⁵³, where the sum stays.
#[inline(never)]
pub fn fp_add(control: &Control, limit: u64) -> f64 {
    let mut r = [1.0_f64; 16];
    // SAFETY: writes `control`'s atomics, whole and aligned, and the named registers only.
    unsafe {
        counted_on_sixteen!(
            control, limit, r,
            [on_sixteen!("fadd", "by:d"), on_sixteen!("fadd", "by:d")],
            by = in(vreg) 1.0_f64,
            options(nostack)
        );
    }
    r.iter().sum()
}

/// The second factor or divisor, and the one that undoes it: not powers of two, which some
/// dividers are quicker with.
const THERE: f64 = 1.5;
const BACK: f64 = 2.0 / 3.0;

/// Multiplies sixteen registers there and back.
#[inline(never)]
pub fn fp_mul(control: &Control, limit: u64) -> f64 {
    let mut r = [1.0_f64; 16];
    // SAFETY: as in `fp_add`.
    unsafe {
        counted_on_sixteen!(
            control, limit, r,
            [on_sixteen!("fmul", "by:d"), on_sixteen!("fmul", "back:d")],
            by = in(vreg) THERE, back = in(vreg) BACK,
            options(nostack)
        );
    }
    r.iter().sum()
}

/// Divides sixteen registers there and back.
#[inline(never)]
pub fn fp_div(control: &Control, limit: u64) -> f64 {
    let mut r = [1.0_f64; 16];
    // SAFETY: as in `fp_add`.
    unsafe {
        counted_on_sixteen!(
            control, limit, r,
            [on_sixteen!("fdiv", "by:d"), on_sixteen!("fdiv", "back:d")],
            by = in(vreg) THERE, back = in(vreg) BACK,
            options(nostack)
        );
    }
    r.iter().sum()
}

/// Adds to eight registers.
#[inline(never)]
pub fn int_add(control: &Control, limit: u64) -> f64 {
    let mut r = [1_u64; 8];
    // SAFETY: as in `fp_add`.
    unsafe {
        counted_on_eight!(
            control, limit, r,
            [on_eight!("add"), on_eight!("add"), on_eight!("add"), on_eight!("add")],
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
            control, limit, r,
            [on_eight!("mul"), on_eight!("mul"), on_eight!("mul"), on_eight!("mul")],
            by = in(reg) 0x9e37_79b9_7f4a_7c15_u64,
            options(nostack)
        );
    }
    fold(r)
}

/// What is divided, and what it is divided by first: about its square root, so that every quotient
/// has 32 bits and no divider leaves early.
const DIVIDEND: u64 = 0x9000_0000_0000_0001;
const DIVISOR: u64 = 0xc000_0001;
const _: () = assert!(DIVIDEND / DIVISOR >> 31 == 1 && DIVIDEND / (DIVIDEND / DIVISOR) >> 31 == 1);

/// Eight times the line or lines given.
macro_rules! eight_times {
    ($lines:literal) => {
        concat!($lines, $lines, $lines, $lines, $lines, $lines, $lines, $lines)
    };
}

/// Divides by the quotient of the division before, so each one waits.
///
/// Dividing the same number by its own quotient leads back to the divisor: two numbers alternate.
#[inline(never)]
pub fn int_div(control: &Control, limit: u64) -> f64 {
    let mut quotient = DIVISOR;
    // SAFETY: as in `fp_add`; a division by zero would not trap on this architecture either.
    unsafe {
        counted!(
            control, limit,
            [
                eight_times!("udiv {quotient}, {dividend}, {quotient}\n"),
                eight_times!("udiv {quotient}, {dividend}, {quotient}\n"),
                eight_times!("udiv {quotient}, {dividend}, {quotient}\n"),
                eight_times!("udiv {quotient}, {dividend}, {quotient}\n")
            ],
            quotient = inout(reg) quotient, dividend = in(reg) DIVIDEND,
            options(nostack)
        );
    }
    fold([quotient])
}

/// The same divisions of a dividend and by a divisor that never change, so none waits.
#[inline(never)]
pub fn int_div_tp(control: &Control, limit: u64) -> f64 {
    let quotient: u64;
    // SAFETY: as in `int_div`.
    unsafe {
        counted!(
            control, limit,
            [
                eight_times!("udiv {quotient}, {dividend}, {divisor}\n"),
                eight_times!("udiv {quotient}, {dividend}, {divisor}\n"),
                eight_times!("udiv {quotient}, {dividend}, {divisor}\n"),
                eight_times!("udiv {quotient}, {dividend}, {divisor}\n")
            ],
            quotient = out(reg) quotient, dividend = in(reg) DIVIDEND, divisor = in(reg) DIVISOR,
            options(nostack)
        );
    }
    fold([quotient])
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
                eight_times!("ldr {at}, [{at}]\n"),
                eight_times!("ldr {at}, [{at}]\n"),
                eight_times!("ldr {at}, [{at}]\n"),
                eight_times!("ldr {at}, [{at}]\n")
            ],
            at = inout(reg) at,
            options(nostack)
        );
    }
    at
}

/// Where `branch` takes its decisions from: a pattern of 64 bits without a short period, rotated
/// by one bit an iteration. Predictors learn it within a few thousand iterations, so the branch
/// units work and mispredictions do not drown them.
const PATTERN: u64 = 0xd1b5_4a32_d192_ed03;

/// An if-else on bit `$shift` of the pattern, then a switch on the two bits above it: 15
/// instructions, four of them branches, whichever way it goes.
macro_rules! decision {
    ($shift:literal) => {
        concat!(
            "lsr {t}, {pattern}, #",
            $shift,
            "\n",
            "tst {t}, #1\n",
            "b.eq 4f\n",
            "add {a}, {a}, {t}\n",
            "b 5f\n",
            "4:\n",
            "sub {a}, {a}, {t}\n",
            "b 5f\n",
            "5:\n",
            "ubfx {t}, {t}, #1, #2\n",
            "add {t}, {t}, #(4 + ",
            $shift,
            " / 2)\n",
            "ldrsw {t}, [{table}, {t}, lsl #2]\n",
            "add {t}, {t}, {table}\n",
            "br {t}\n",
            "6:\n",
            "add {a}, {a}, {pattern}\neor {b}, {b}, {pattern}\n",
            "sub {c}, {c}, {pattern}\nadd {d}, {d}, {pattern}\nb 20f\n",
            "7:\n",
            "sub {b}, {b}, {pattern}\nadd {c}, {c}, {pattern}\n",
            "eor {d}, {d}, {pattern}\nadd {a}, {a}, {pattern}\nb 20f\n",
            "8:\n",
            "eor {c}, {c}, {pattern}\nsub {d}, {d}, {pattern}\n",
            "add {a}, {a}, {pattern}\nadd {b}, {b}, {pattern}\nb 20f\n",
            "9:\n",
            "add {d}, {d}, {pattern}\neor {a}, {a}, {pattern}\n",
            "sub {b}, {b}, {pattern}\nadd {c}, {c}, {pattern}\nb 20f\n",
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
    // The table begins with four unused words, so that no round adds 0 to its index: decoders
    // disagree on whether that is an addition or a move.
    // SAFETY: as in `fp_add`; the jumps lead to labels of this block only, through a read-only
    // table of four offsets a round that is indexed by two bits.
    unsafe {
        counted!(
            control, limit,
            ".pushsection .rodata.smt_bench, \"a\"\n.p2align 2\n30:\n.zero 16\n.popsection\n\
             adrp {table}, 30b\nadd {table}, {table}, :lo12:30b",
            [
                "ror {pattern}, {pattern}, #63",
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
