//! Instructions as text that LLVM's assembler reads, for its model of a processor's pipeline.

use crate::Isa;
use crate::aarch64;
use crate::x86;

/// The first instruction of `bytes`, at address `ip`, as LLVM's `llvm-mca` should see it; `None` if the
/// bytes are no instruction that this crate knows. x86 is in AT&T's syntax.
///
/// # What is changed
/// The text asks a core for the same work as the instruction, but three things that `llvm-mca` (14 to
/// 19) gets wrong are said differently:
/// - `push`, `pop`, `call` and `ret` are moves to and from the stack, and jumps. Processors keep the
///   stack pointer in the front end; to `llvm-mca` each of them waits for the one before.
/// - A call is a jump (and, on x86, the store of where to come back to): `llvm-mca` takes a call for
///   code that it does not see, of 100 cycles.
/// - Jumps lead nowhere; only their work counts.
#[must_use]
pub fn assembly(isa: Isa, bytes: &[u8], ip: u64) -> Option<String> {
    match isa {
        Isa::X86_64 => x86::assembly(bytes, ip),
        Isa::Aarch64 => aarch64::assembly(bytes, ip),
    }
}
