//! Instructions as text for LLVM's assembler and its pipeline model, `llvm-mca`.

use crate::Isa;
use crate::aarch64;
use crate::x86;

/// First instruction of `bytes`, at address `ip`, as assembly for LLVM's `llvm-mca`. `None` if the
/// bytes are no known instruction. x86 is in AT&T syntax.
///
/// # Differences from the instruction
/// The text costs a core the same work as the instruction. Three kinds of instruction are
/// rewritten, since `llvm-mca` (14 to 19) models them wrongly:
/// - `push`, `pop`, `call` and `ret` become moves to and from the stack, and jumps. Processors
///   track the stack pointer in the front end; in `llvm-mca` each waits for the previous.
/// - A call becomes a jump (on x86 with the store of the return address). `llvm-mca` charges 100
///   cycles for a call, as for unknown code.
/// - Jumps have no target; only their own work counts.
#[must_use]
pub fn assembly(isa: Isa, bytes: &[u8], ip: u64) -> Option<String> {
    match isa {
        Isa::X86_64 => x86::assembly(bytes, ip),
        Isa::Aarch64 => aarch64::assembly(bytes, ip),
    }
}

/// Kind of arithmetic of an instruction, where execution units differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Other arithmetic, or none.
    Other,
    /// Multiplication, also fused with an addition.
    Multiply,
    /// Division, square root.
    Divide,
}

/// Arithmetic of the first instruction of `bytes`, by its mnemonic. `None` if the bytes are no
/// known instruction.
#[must_use]
pub fn arithmetic(isa: Isa, bytes: &[u8]) -> Option<Arithmetic> {
    let name = match isa {
        Isa::X86_64 => x86::mnemonic(bytes)?,
        Isa::Aarch64 => aarch64::mnemonic(bytes)?,
    };
    Some(if contains_any(&name, &["div", "sqrt"]) {
        Arithmetic::Divide
    } else if contains_any(&name, &["mul", "madd", "msub", "mla", "mls", "mlal", "mlsl", "mneg"]) {
        Arithmetic::Multiply
    } else {
        Arithmetic::Other
    })
}

fn contains_any(name: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_llvm_mca_gets_wrong_is_said_differently() {
        let check = |bytes: &[u8], text: &str| {
            assert_eq!(assembly(Isa::X86_64, bytes, 0x40_1000).as_deref(), Some(text));
        };
        check(&[0x53], "movq %rbx,-8(%rsp)");
        check(&[0x41, 0x5c], "movq (%rsp),%r12");
        check(&[0x68, 1, 0, 0, 0], "movq $0,-8(%rsp)");
        check(&[0xe8, 1, 0, 0, 0], "movq $0,-8(%rsp)\njmp 0");
        check(&[0xff, 0xd0], "movq $0,-8(%rsp)\njmp *%rax");
        check(&[0xc3], "jmp *(%rsp)");
        check(&[0x75, 0xf0], "jne 0");
        check(&[0xe2, 0xf0], "decq %rcx\njne 0");
        check(&[0x48, 0x01, 0xd8], "addq %rbx,%rax");
        check(&[0x8b, 0x05, 0, 1, 0, 0], "movl 0x100(%rip),%eax");
        assert_eq!(assembly(Isa::X86_64, &[0x06], 0), None);
        let check = |word: u32, text: &str| {
            assert_eq!(assembly(Isa::Aarch64, &word.to_le_bytes(), 0).as_deref(), Some(text));
        };
        check(0x9400_0010, "b #0");
        check(0xd65f_03c0, "br x30");
        check(0xd63f_0100, "br x8");
        check(0x5400_0041, "b.ne #0");
        check(0xb400_0041, "cbz x1, #0");
        check(0x8b01_0000, "add x0, x0, x1");
    }

    #[test]
    fn multiplications_and_divisions() {
        let x86 = |bytes: &[u8]| arithmetic(Isa::X86_64, bytes);
        assert_eq!(x86(&[0x0f, 0xaf, 0xc3]), Some(Arithmetic::Multiply));
        assert_eq!(x86(&[0xf7, 0xf3]), Some(Arithmetic::Divide));
        assert_eq!(x86(&[0xf2, 0x0f, 0x51, 0xc1]), Some(Arithmetic::Divide));
        assert_eq!(x86(&[0x01, 0xd8]), Some(Arithmetic::Other));
        let arm = |word: u32| arithmetic(Isa::Aarch64, &word.to_le_bytes());
        assert_eq!(arm(0x9b01_7c00), Some(Arithmetic::Multiply));
        assert_eq!(arm(0x9ac1_0c00), Some(Arithmetic::Divide));
        assert_eq!(arm(0x8b01_0000), Some(Arithmetic::Other));
    }
}
