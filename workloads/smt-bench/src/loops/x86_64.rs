//! What the loops are made of on x86-64.

use super::Control;
use core::arch::asm;

/// Independent chains in the floating-point loops, as in the paper. Two ports of latency 4
/// (Intel since Skylake, the longest product of both) need eight.
pub const FP_CHAINS: usize = 8;

/// A loop around `body`: every iteration counts itself, shows its count, and ends the loop at the
/// limit or at the stop flag. These are six instructions, so that 32 operations are 84.2 % of an
/// iteration, as in the paper.
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

/// One operation on each of the registers named, in place.
macro_rules! on_each {
    ($operation:expr, $by:literal, [$($register:literal),+]) => {
        concat!($($operation, " {", $register, "}, {", $by, "}\n"),+)
    };
}

/// `counted` with operations on all floating-point registers, in turn by two values.
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

/// How instructions of the loops are written here.
#[rustfmt::skip]
macro_rules! instruction {
    (multiply) => { "imul" };
    (xor) => { "xor" };
    (jump) => { "jmp" };
    (load) => { "mov {at}, qword ptr [{at}]\n" };
    (rotate) => { "rol {pattern}, 1" };
}

/// The address of the jump table.
macro_rules! address_of_table {
    () => {
        ".pushsection .rodata.smt_bench, \"a\"\n.p2align 2\n30:\n.popsection\n\
         lea {table}, [rip + 30b]"
    };
}

/// The beginning of `decision`, up to the jump to a case.
macro_rules! if_else_and_switch {
    ($shift:literal) => {
        concat!(
            "mov {t}, {pattern}\nshr {t}, ",
            $shift,
            "\ntest {t:e}, 1\njz 4f\n",
            "add {a}, {t}\njmp 5f\n4:\nsub {a}, {t}\njmp 5f\n5:\n",
            "and {t:e}, 6\nmovsxd {t}, dword ptr [{table} + 2*{t} + 2*",
            $shift,
            "]\n",
            "add {t}, {table}\njmp {t}\n"
        )
    };
}

/// The divisor, and the upper half of the dividend: smaller, so that no quotient overflows, and
/// large, so that every quotient has 32 bits and no divider leaves early.
const DIVISOR: u32 = 0x9000_0001;
const UPPER: u32 = 0x8000_0000;

/// Divides; the remainder is the lower half of the next dividend, so each division waits.
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

/// The same divisions with a dividend that is always the same, so none waits.
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
