//! Addresses of memory accesses, computed from register values.

use crate::effect::{Transfer, effect, is_read, is_write};
use crate::{Class, Flow, Isa, x86};
use iced_x86::{InstructionInfoFactory, Mnemonic, OpKind, Register, UsedMemory};

/// Most instructions decoded in search of the next access. Chosen: the length of a short loop.
const MOST: usize = 16;

/// Size of a read of code, in bytes. Chosen: some ten instructions.
const WINDOW_B: usize = 64;

/// Memory operand of an x86-64 instruction: base + index · scale + displacement.
///
/// Registers have their hardware numbers: `rax` 0, `rcx` 1, `rdx` 2, `rbx` 3, `rsp` 4, `rbp` 5,
/// `rsi` 6, `rdi` 7, `r8` 8 and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Base register, if any.
    pub base: Option<u8>,
    /// Index register and its scale, if any.
    pub index: Option<(u8, u8)>,
    /// Displacement; the whole address if relative to the instruction pointer.
    pub displacement: u64,
    /// Whether the instruction writes to the operand, perhaps besides reading.
    pub writes: bool,
}

impl Operand {
    /// Address for these values of the general registers, indexed by number.
    #[must_use]
    pub fn address(&self, registers: &[u64; 16]) -> u64 {
        let base = self.base.map_or(0, |base| of(registers, base));
        let index =
            self.index.map_or(0, |(index, scale)| of(registers, index).wrapping_mul(scale.into()));
        base.wrapping_add(index).wrapping_add(self.displacement)
    }

    /// Operand in terms of the registers that held the same values at the start; `None` if no
    /// register did.
    fn at_first(self, holds: &[Option<u8>; 16]) -> Option<Self> {
        let base = match self.base {
            Some(base) => Some(of(holds, base)?),
            None => None,
        };
        let index = match self.index {
            Some((index, scale)) => Some((of(holds, index)?, scale)),
            None => None,
        };
        Some(Self { base, index, ..self })
    }
}

/// Entry of a table of the general registers.
fn of<T: Copy>(table: &[T; 16], register: u8) -> T {
    // The mask keeps any number within the table.
    table[usize::from(register & 15)]
}
/// Next memory access of a thread stopped at the x86-64 instruction at `ip`, with an address that
/// the thread's current registers determine. `read` copies code from an address into a buffer and
/// returns the number of bytes.
///
/// Direct jumps and calls are followed. A conditional jump is taken if it leads back, as in a loop,
/// and not taken if it leads ahead. Accesses to the stack through its registers are skipped.
///
/// Constants added to a register on the way are ignored: in a loop the result is one iteration
/// away. A register copied from another holds the other's value.
///
/// `None` if a register of the address is written otherwise, if a return or an indirect call comes
/// first, or if the access is thread-local (`fs`, `gs`).
#[must_use]
pub fn next_access(mut ip: u64, mut read: impl FnMut(u64, &mut [u8]) -> usize) -> Option<Operand> {
    let mut window = [0; WINDOW_B];
    let mut length = 0;
    let mut at = 0;
    // For each general register: the register that held its current value at the start.
    let mut holds: [Option<u8>; 16] = std::array::from_fn(|number| u8::try_from(number).ok());
    for _ in 0..MOST {
        // An instruction may lie across the end of the window.
        if length - at < Isa::X86_64.max_len() {
            length = read(ip, &mut window).min(WINDOW_B);
            at = 0;
        }
        let bytes = &window[at..length];
        let effect = effect(Isa::X86_64, bytes, ip)?;
        let classes = effect.decoded.classes;
        let is_access = classes.has(Class::Load) || classes.has(Class::Store);
        if is_access && !effect.memory.iter().all(|access| access.address.slot.is_some()) {
            return operand(bytes, ip)?.at_first(&holds);
        }
        let next = effect.decoded.next_ip();
        let to = match effect.decoded.flow {
            Flow::Jump { target } | Flow::Call { target } => target,
            // A jump back is the end of a loop: the next access is in its body.
            Flow::Conditional { target } if target <= ip => target,
            Flow::Next | Flow::Conditional { .. } => next,
            _ => return None,
        };
        // A step of a loop counter or pointer, as `add rax, 8`.
        let is_step = effect.way == Transfer::Sum && effect.reads.without(effect.writes).is_empty();
        if !is_step {
            let copied = copied(bytes, ip).and_then(|from| holds[usize::from(from)]);
            // The general registers have the numbers 0 to 15.
            let general = effect.writes.numbers().filter(|number| *number < 16);
            general.for_each(|number| holds[usize::from(number)] = copied);
        }
        // The target of a jump is outside the window: an empty rest forces a read.
        at = if to == next { at + usize::from(effect.decoded.len) } else { length };
        ip = to;
    }
    None
}

/// Source of an instruction that only copies a general register to another.
fn copied(bytes: &[u8], ip: u64) -> Option<u8> {
    let instruction = x86::decode(bytes, ip)?;
    let is_copy = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register;
    is_copy.then(|| general(instruction.op1_register()))??
}

/// Memory operand of one instruction. Of several, the first written, or else the first.
fn operand(bytes: &[u8], ip: u64) -> Option<Operand> {
    let instruction = x86::decode(bytes, ip)?;
    let mut factory = InstructionInfoFactory::new();
    let accesses = factory.info(&instruction).used_memory();
    // `false` is less than `true`: a written operand precedes operands only read.
    accesses.iter().filter_map(named).min_by_key(|operand| !operand.writes)
}

fn named(memory: &UsedMemory) -> Option<Operand> {
    // Bases of `fs` and `gs` are not among the general registers.
    let is_own = matches!(memory.segment(), Register::FS | Register::GS);
    let reads = is_read(memory.access());
    let writes = is_write(memory.access());
    let base = general(memory.base())?;
    let index = general(memory.index())?;
    let scale = u8::try_from(memory.scale()).ok()?;
    (!is_own && (reads || writes)).then_some(Operand {
        base,
        index: index.map(|index| (index, scale)),
        displacement: memory.displacement(),
        writes,
    })
}

/// Number of a general register; `Some(None)` for no register, `None` for another kind of register.
fn general(register: Register) -> Option<Option<u8>> {
    match register {
        // The decoder has added the instruction pointer to the displacement.
        Register::None | Register::RIP => Some(None),
        _ if register.is_gpr64() => Some(u8::try_from(register.number()).ok()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers that hold a thousand times their number.
    fn registers() -> [u64; 16] {
        std::array::from_fn(|number| 1_000 * number as u64)
    }

    fn accessed(bytes: &[u8]) -> Option<(u64, bool)> {
        accessed_from(0, bytes)
    }

    /// The same from a byte of them on.
    fn accessed_from(first: u64, bytes: &[u8]) -> Option<(u64, bool)> {
        let read = |ip: u64, to: &mut [u8]| {
            let from = usize::try_from(ip - 0x40_0000).unwrap();
            let some = &bytes[from.min(bytes.len())..];
            let length = some.len().min(to.len());
            to[..length].copy_from_slice(&some[..length]);
            length
        };
        let found = next_access(0x40_0000 + first, read)?;
        Some((found.address(&registers()), found.writes))
    }

    /// `mov rax, [rbx + 4 * rcx + 8]`; `mov [r9 - 8], rax`; `add [rdx], eax`; `mov rax, [rip + 16]`.
    #[test]
    fn addresses_by_hand() {
        assert_eq!(accessed(&[0x48, 0x8b, 0x44, 0x8b, 0x08]), Some((3_000 + 4_000 + 8, false)));
        assert_eq!(accessed(&[0x49, 0x89, 0x41, 0xf8]), Some((9_000 - 8, true)));
        assert_eq!(accessed(&[0x01, 0x02]), Some((2_000, true)));
        let relative = [0x48, 0x8b, 0x05, 0x10, 0, 0, 0];
        assert_eq!(accessed(&relative), Some((0x40_0000 + 7 + 16, false)));
    }

    /// `add rbx, 8; mov rax, [rbx]`: the address of the next iteration. `mov rbx, rcx` first: the
    /// address in `rcx`. After `mov rbx, [rcx]`, `mov ebx, ecx` or `imul rbx, rcx` it is unknown,
    /// as after an indirect call.
    #[test]
    fn what_comes_next_counts_while_its_registers_hold() {
        let load = [0x48, 0x8b, 0x03];
        let after = |first: &[u8]| accessed(&[first, &load].concat());
        assert_eq!(after(&[0x48, 0x83, 0xc3, 0x08]), Some((3_000, false)));
        assert_eq!(after(&[0x48, 0x89, 0xcb]), Some((1_000, false)));
        // The same, and then `mov rcx, rdx`, or `mov rbx, rbx` after `mov rbx, rcx`.
        assert_eq!(after(&[0x48, 0x89, 0xcb, 0x48, 0x89, 0xd1]), Some((1_000, false)));
        assert_eq!(after(&[0x48, 0x89, 0xcb, 0x48, 0x89, 0xdb]), Some((1_000, false)));
        assert_eq!(after(&[0x89, 0xcb]), None);
        assert_eq!(after(&[0x48, 0x0f, 0xaf, 0xd9]), None);
        assert_eq!(after(&[0xeb, 0x00]), Some((3_000, false)));
        assert_eq!(after(&[0xff, 0xd0]), None);
        // `call` to the load, and `push rax`.
        assert_eq!(after(&[0xe8, 0, 0, 0, 0]), Some((3_000, false)));
        assert_eq!(after(&[0x50]), Some((3_000, false)));
    }

    /// `add rax, [rdx]; add rdx, 64; cmp rdx, rcx; jne` back: from each of these instructions the
    /// next access is the load. A jump ahead is not taken.
    #[test]
    fn a_loop_goes_round() {
        let head = [0x48, 0x03, 0x02, 0x48, 0x83, 0xc2, 0x40, 0x48, 0x39, 0xca, 0x75, 0xf4];
        for first in [0, 3, 7, 10] {
            assert_eq!(accessed_from(first, &head), Some((2_000, false)), "{first}");
        }
        // `jne` over `mov [rcx], rax`.
        assert_eq!(accessed(&[0x75, 0x03, 0x48, 0x89, 0x01, 0xc3]), Some((1_000, true)));
        // `jmp` to itself.
        assert_eq!(accessed(&[0xeb, 0xfe]), None);
    }

    /// `mov rax, fs:[0x28]`, `lea rax, [rbx]`, `nop [rax]`, `prefetcht0 [rbx]`, `vpgatherdd`, and nothing.
    #[test]
    fn no_access() {
        assert_eq!(accessed(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0]), None);
        assert_eq!(accessed(&[0x48, 0x8d, 0x03]), None);
        assert_eq!(accessed(&[0x0f, 0x1f, 0x00]), None);
        assert_eq!(accessed(&[0x0f, 0x18, 0x0b]), None);
        assert_eq!(accessed(&[0xc4, 0xe2, 0x75, 0x90, 0x04, 0x83]), None);
        assert_eq!(accessed(&[]), None);
    }
}
