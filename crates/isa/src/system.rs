//! System call of a thread, from the code before its program counter.

use crate::Isa;

/// Number of `sched_yield`: arch/x86/entry/syscalls/syscall_64.tbl and
/// include/uapi/asm-generic/unistd.h of Linux.
const fn yields(isa: Isa) -> u32 {
    match isa {
        Isa::X86_64 => 24,
        Isa::Aarch64 => 124,
    }
}

/// Most bytes that [`gives_way`] needs.
pub const LONGEST_CALL_B: usize = 9;

/// Whether `before`, the code before a thread's program counter, ends in a call of `sched_yield`:
/// its number, as a constant, and the system call.
///
/// No other instruction may come between the two; in the libraries of GNU, musl and Go none does. A
/// number passed as an argument, as to the function `syscall`, is not found.
#[must_use]
pub fn gives_way(isa: Isa, before: &[u8]) -> bool {
    let number = match isa {
        Isa::X86_64 => x86_number(before),
        Isa::Aarch64 => aarch64_number(before),
    };
    number == Some(yields(isa))
}

/// Number in `mov eax, N; syscall`, or in the shortest form for `rax`, which is sign-extended.
fn x86_number(before: &[u8]) -> Option<u32> {
    // `0f 05` is `syscall`.
    let before = before.strip_suffix(&[0x0f, 0x05])?;
    let (front, number) = before.split_last_chunk::<4>()?;
    // `b8` is `mov eax, imm32`, and `48 c7 c0` is `mov rax, imm32`.
    let loads = front.ends_with(&[0xb8]) || front.ends_with(&[0x48, 0xc7, 0xc0]);
    loads.then(|| u32::from_le_bytes(*number))
}

/// Number in `mov x8, N; svc #0`, or the same with `w8`: `movz` without a shift.
fn aarch64_number(before: &[u8]) -> Option<u32> {
    let (front, call) = before.split_last_chunk::<4>()?;
    let (_, load) = front.split_last_chunk::<4>()?;
    let load = u32::from_le_bytes(*load);
    let call = u32::from_le_bytes(*call);
    // The mask leaves out bit 31 (`x8` or `w8`) and bits 5 to 20 (N).
    let loads = load & 0x7fe0_001f == 0x5280_0008;
    (loads && call == 0xd400_0001).then_some(load >> 5 & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_x86() {
        let is = |bytes: &[u8]| gives_way(Isa::X86_64, bytes);
        assert!(is(&[0xb8, 0x18, 0, 0, 0, 0x0f, 0x05])); // mov eax, 24; syscall
        assert!(is(&[0x90, 0x48, 0xc7, 0xc0, 0x18, 0, 0, 0, 0x0f, 0x05])); // mov rax, 24; syscall
        assert!(!is(&[0xb8, 0xca, 0, 0, 0, 0x0f, 0x05])); // futex
        assert!(!is(&[0xb9, 0x18, 0, 0, 0, 0x0f, 0x05])); // mov ecx, 24
        assert!(!is(&[0xb8, 0x18, 0, 0, 0, 0x0f, 0x05, 0x90])); // it goes on later
        assert!(!is(&[0xb8, 0x18, 0, 0, 0, 0x90, 0x90])); // no call
        assert!(!is(&[0x0f, 0x05]) && !is(&[]));
    }

    #[test]
    fn of_aarch64() {
        let is = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            gives_way(Isa::Aarch64, &bytes)
        };
        assert!(is(&[0xd280_0f88, 0xd400_0001])); // mov x8, #124; svc #0
        assert!(is(&[0x5280_0f88, 0xd400_0001])); // mov w8, #124
        assert!(!is(&[0xd280_0f89, 0xd400_0001])); // mov x9, #124
        assert!(!is(&[0xd280_0c48, 0xd400_0001])); // mov x8, #98: futex
        assert!(!is(&[0xd280_0f88, 0xd400_0001, 0xd503_201f])); // it goes on later
        assert!(!is(&[0xd400_0001]));
    }
}
