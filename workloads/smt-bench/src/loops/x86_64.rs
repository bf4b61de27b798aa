//! Building blocks of the loops on x86-64.

use super::Control;
use core::arch::asm;

/// Independent chains of the floating-point loops, as in the paper. Two ports of latency 4 (Intel
/// since Skylake, the greatest product) need eight.
pub const FP_CHAINS: usize = 8;

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

/// One operation on each named register, in place.
macro_rules! on_each {
    ($operation:expr, $by:literal, [$($register:literal),+]) => {
        concat!($($operation, " {", $register, "}, {", $by, "}\n"),+)
    };
}

/// `counted` with operations on all floating-point registers, alternately by two values.
macro_rules! counted_on_floats {
    ($control:ident, $limit:ident, $r:ident, $operation:literal, $by:expr, $back:expr) => {
        counted_on_eight!(
            $control, $limit, xmm_reg, $r,
            [
                on_eight!(concat!($operation, "sd"), "by"), on_eight!(concat!($operation, "sd"), "back"),
                on_eight!(concat!($operation, "sd"), "by"), on_eight!(concat!($operation, "sd"), "back")
            ],
            by = in(xmm_reg) $by, back = in(xmm_reg) $back,
            options(nostack)
        )
    };
}

/// Instructions that differ between architectures.
#[rustfmt::skip]
macro_rules! instruction {
    (multiply) => { "imul" };
    (xor) => { "xor" };
    (jump) => { "jmp" };
    (load) => { "mov {at}, qword ptr [{at}]\n" };
    (rotate) => { "rol {pattern}, 1" };
}

/// Loads the address of the jump table.
macro_rules! address_of_table {
    () => {
        ".pushsection .rodata.smt_bench, \"a\"\n.p2align 2\n30:\n.popsection\n\
         lea {table}, [rip + 30b]"
    };
}

/// Beginning of `decision`, up to the jump to a case.
macro_rules! if_else_and_switch {
    ($shift:literal) => {
        concat!(
            "mov {t}, {pattern}\nshr {t}, ",
            $shift,
            "\ntest {t:e}, 1\njz 4f\n",
            "add {a}, {t}\njmp 5f\n4:\nsub {a}, {t}\njmp 5f\n5:\n",
            // The number of the case, doubled. Entries have 4 bytes, and a round has 16.
            "and {t:e}, 6\nmovsxd {t}, dword ptr [{table} + 2*{t} + 2*",
            $shift,
            "]\n",
            "add {t}, {table}\njmp {t}\n"
        )
    };
}

/// Divisor, and upper half of the dividend: less than the divisor, so that no quotient overflows,
/// and large, so that every quotient has 32 bits and no divider ends early.
const DIVISOR: u32 = 0x9000_0001;
const UPPER: u32 = 0x8000_0000;

/// Divides; the remainder is the lower half of the next dividend, so the divisions are dependent.
#[inline(never)]
pub fn int_div(control: &Control, limit: u64) -> f64 {
    let mut remainder = 1_u32;
    // SAFETY: as in `float_loop`; the quotient fits because `UPPER` < `DIVISOR`.
    unsafe {
        counted!(
            control, limit, "",
            [thirty_two_times!("mov eax, edx\nmov edx, {upper:e}\ndiv {by:e}\n")],
            upper = in(reg) UPPER, by = in(reg) DIVISOR,
            inout("edx") remainder, out("eax") _,
            options(nostack)
        );
    }
    f64::from(remainder)
}

/// The same divisions with a constant dividend, so the divisions are independent.
#[inline(never)]
pub fn int_div_tp(control: &Control, limit: u64) -> f64 {
    let remainder: u32;
    // SAFETY: as in `int_div`.
    unsafe {
        counted!(
            control, limit, "",
            [thirty_two_times!("mov eax, {lower:e}\nmov edx, {upper:e}\ndiv {by:e}\n")],
            upper = in(reg) UPPER, lower = in(reg) 1_u32, by = in(reg) DIVISOR,
            out("edx") remainder, out("eax") _,
            options(nostack)
        );
    }
    f64::from(remainder)
}
