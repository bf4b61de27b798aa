//! Building blocks of the loops on aarch64.

use super::{Control, fold};
use core::arch::asm;

/// Independent chains of the floating-point loops. Current cores have four pipes of latency 3 or 4
/// (Neoverse V2's and Apple's multipliers), and the architecture has enough registers.
pub const FP_CHAINS: usize = 16;

/// A loop around `body`. Every iteration counts itself, publishes its count, and ends the loop at
/// the limit or the stop flag: six instructions, so that 32 operations are 84.2 % of an iteration,
/// as in the paper.
macro_rules! counted {
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

/// One operation on each named register, in place.
macro_rules! on_each {
    ($operation:expr, $by:literal, [$($register:literal),+]) => {
        concat!($($operation, " {", $register, "}, {", $register, "}, {", $by, "}\n"),+)
    };
}

/// One operation on each of the sixteen floating-point registers.
macro_rules! on_floats {
    ($operation:literal, $by:literal) => {
        on_each!(
            concat!("f", $operation),
            $by,
            [
                "r0:d", "r1:d", "r2:d", "r3:d", "r4:d", "r5:d", "r6:d", "r7:d", "r8:d", "r9:d",
                "r10:d", "r11:d", "r12:d", "r13:d", "r14:d", "r15:d"
            ]
        )
    };
}

/// `counted` with operations on all floating-point registers, alternately by two values.
macro_rules! counted_on_floats {
    ($control:ident, $limit:ident, $r:ident, $operation:literal, $by:expr, $back:expr) => {
        counted_on_eight!(
            $control, $limit, vreg, $r,
            [on_floats!($operation, "by:d"), on_floats!($operation, "back:d")],
            r8 = inout(vreg) $r[8], r9 = inout(vreg) $r[9],
            r10 = inout(vreg) $r[10], r11 = inout(vreg) $r[11],
            r12 = inout(vreg) $r[12], r13 = inout(vreg) $r[13],
            r14 = inout(vreg) $r[14], r15 = inout(vreg) $r[15],
            by = in(vreg) $by, back = in(vreg) $back,
            options(nostack)
        )
    };
}

/// Instructions that differ between architectures.
#[rustfmt::skip]
macro_rules! instruction {
    (multiply) => { "mul" };
    (xor) => { "eor" };
    (jump) => { "b" };
    (load) => { "ldr {at}, [{at}]\n" };
    (rotate) => { "ror {pattern}, {pattern}, #63" };
}

/// Loads the address of the jump table. The table begins with four unused words, so that no round
/// adds 0 to its index: decoders disagree on whether an addition of 0 is a move.
macro_rules! address_of_table {
    () => {
        ".pushsection .rodata.smt_bench, \"a\"\n.p2align 2\n30:\n.zero 16\n.popsection\n\
         adrp {table}, 30b\nadd {table}, {table}, :lo12:30b"
    };
}

/// Beginning of `decision`, up to the jump to a case.
macro_rules! if_else_and_switch {
    ($shift:literal) => {
        concat!(
            "lsr {t}, {pattern}, #",
            $shift,
            "\ntst {t}, #1\nb.eq 4f\n",
            "add {a}, {a}, {t}\nb 5f\n4:\nsub {a}, {a}, {t}\nb 5f\n5:\n",
            // The table has four unused words, then four words a round.
            "ubfx {t}, {t}, #1, #2\nadd {t}, {t}, #(4 + ",
            $shift,
            " / 2)\n",
            "ldrsw {t}, [{table}, {t}, lsl #2]\nadd {t}, {t}, {table}\nbr {t}\n"
        )
    };
}

/// Dividend, and first divisor: about its square root, so that every quotient has 32 bits and no
/// divider ends early.
const DIVIDEND: u64 = 0x9000_0000_0000_0001;
const DIVISOR: u64 = 0xc000_0001;
const _: () = assert!(DIVIDEND / DIVISOR >> 31 == 1 && DIVIDEND / (DIVIDEND / DIVISOR) >> 31 == 1);

/// Divides by the quotient of the division before, so the divisions are dependent.
///
/// The dividend divided by its quotient is the divisor again: two numbers alternate.
#[inline(never)]
pub fn int_div(control: &Control, limit: u64) -> f64 {
    let mut quotient = DIVISOR;
    // SAFETY: as in `float_loop`; a division by zero would not trap on this architecture either.
    unsafe {
        counted!(
            control, limit, "",
            [thirty_two_times!("udiv {quotient}, {dividend}, {quotient}\n")],
            quotient = inout(reg) quotient, dividend = in(reg) DIVIDEND,
            options(nostack)
        );
    }
    fold([quotient])
}

/// The same divisions with constant operands, so the divisions are independent.
#[inline(never)]
pub fn int_div_tp(control: &Control, limit: u64) -> f64 {
    let quotient: u64;
    // SAFETY: as in `int_div`.
    unsafe {
        counted!(
            control, limit, "",
            [thirty_two_times!("udiv {quotient}, {dividend}, {divisor}\n")],
            quotient = out(reg) quotient, dividend = in(reg) DIVIDEND, divisor = in(reg) DIVISOR,
            options(nostack)
        );
    }
    fold([quotient])
}
