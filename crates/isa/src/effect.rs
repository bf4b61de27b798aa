//! Effects of an instruction on registers and memory, in enough detail to recognise spin loops.
//!
//! [`effect`] returns the registers and memory that an instruction reads and writes, and the kind
//! of function from old to new values ([`Transfer`]), not the values.
//!
//! # Limits
//! A write of part of a register counts as a write of the whole. All flags are one register. Of A64
//! only the instructions of spin loops are known; all others are [`Transfer::Unknown`]. A loop with
//! an unknown instruction never counts as a spin loop.

mod aarch64;
mod x86;

pub(crate) use x86::{is_read, is_write};

use crate::{Decoded, Isa, classify};
use std::ops::BitOr;

/// Set of registers: general registers are 0 to 31, vectors 32 to 63, flags 64, masks 65 to 72, x87
/// and MMX 73 to 80.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Registers(u128);

impl Registers {
    /// Empty set.
    pub const NONE: Self = Self(0);
    /// Flags.
    pub const FLAGS: Self = Self(1 << 64);

    /// Set of the register with this number, below 128.
    #[must_use]
    pub const fn one(number: u8) -> Self {
        // The mask prevents a shift overflow.
        Self(1 << (number & 127))
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Registers not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Numbers of the registers, ascending.
    pub fn numbers(self) -> impl Iterator<Item = u8> {
        (0..128).filter(move |number| self.0 & (1 << number) != 0)
    }
}

impl BitOr for Registers {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Address of a memory access, as computed by the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Registers from which the address is computed.
    pub registers: Registers,
    /// Stack slot: the number of a stack or frame pointer (`rsp`, `rbp`, `sp`, `x29`) and the
    /// offset in bytes. `None` for an address computed otherwise.
    pub slot: Option<(u8, i64)>,
    /// Number of the only register in the address and the offset in bytes; `None` for no or several
    /// registers.
    pub near: Option<(u8, i64)>,
}

/// A memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryAccess {
    /// Address.
    pub address: Address,
    /// Whether the access reads.
    pub reads: bool,
    /// Whether the access writes, perhaps only under a condition.
    pub writes: bool,
}

/// Function that maps the values read to the values written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// One of the values read, unchanged.
    Copy,
    /// Sum of the values read and of constants, or one value shifted by a constant.
    Sum,
    /// Any other function of the values read.
    Mix,
    /// Exchange of a register with memory (`xchg`, `swp`), or a store-exclusive (`stxr`).
    Swap,
    /// Write to memory if memory holds the expected value (`lock cmpxchg`, `cas`).
    CompareSwap,
    /// Set or clear bits in memory (`lock bts`, `lock or`): repeating the instruction changes
    /// nothing.
    SetBits,
    /// Hint to the processor that the program waits: `pause`, `tpause`, `umwait`, `yield`, `wfe`,
    /// and `isb`, a substitute where `yield` does nothing.
    Hint,
    /// Read of a clock: `rdtsc`, `mrs x0, cntvct_el0`.
    Clock,
    /// System call.
    System,
    /// Effect not modelled here.
    Unknown,
}

/// Effect of one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Decoded instruction.
    pub decoded: Decoded,
    /// Function from values read to values written.
    pub way: Transfer,
    /// Registers whose values determine results or the direction of a jump, without address
    /// registers.
    pub reads: Registers,
    /// Registers written.
    pub writes: Registers,
    /// Registers read whose values go to memory, for [`Transfer::Swap`], [`Transfer::CompareSwap`]
    /// and [`Transfer::SetBits`].
    pub stored: Registers,
    /// Memory accesses.
    pub memory: Vec<MemoryAccess>,
    /// Stack slot, as [`Address::slot`], whose address is the only result (`lea`).
    pub points: Option<(u8, i64)>,
}

/// Effect of the first instruction of `bytes`, at address `ip`; `None` if [`classify`] returns
/// `None`.
#[must_use]
pub fn effect(isa: Isa, bytes: &[u8], ip: u64) -> Option<Effect> {
    let decoded = classify(isa, bytes, ip)?;
    match isa {
        Isa::X86_64 => x86::effect(bytes, decoded),
        Isa::Aarch64 => aarch64::effect(bytes, decoded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Effect {
        effect(Isa::X86_64, bytes, 0x1000).unwrap()
    }

    fn of_word(word: u32) -> Effect {
        effect(Isa::Aarch64, &word.to_le_bytes(), 0x1000).unwrap()
    }

    fn set(numbers: &[u8]) -> Registers {
        numbers.iter().fold(Registers::NONE, |all, number| all | Registers::one(*number))
    }

    const FLAGS: u8 = 64;

    #[test]
    fn values_and_addresses_are_apart() {
        // mov eax, [rdi+rcx*4]
        let load = of(&[0x8b, 0x04, 0x8f]);
        assert_eq!((load.way, load.reads, load.writes), (Transfer::Copy, set(&[]), set(&[0])));
        let [access] = load.memory[..] else { panic!("{load:?}") };
        assert_eq!(access.address, Address { registers: set(&[1, 7]), slot: None, near: None });
        assert!(access.reads && !access.writes);
        // cmp dword [rsp+8], edx
        let compared = of(&[0x39, 0x54, 0x24, 0x08]);
        assert_eq!((compared.reads, compared.writes), (set(&[2]), set(&[FLAGS])));
        assert_eq!(compared.memory[0].address.slot, Some((4, 8)));
        // jne
        let jump = of(&[0x75, 0xfe]);
        assert_eq!((jump.reads, jump.writes), (set(&[FLAGS]), set(&[])));
    }

    #[test]
    fn ways_of_x86() {
        let cases: [(&[u8], Transfer); 19] = [
            (&[0xf3, 0x90], Transfer::Hint),                      // pause
            (&[0x66, 0x0f, 0xae, 0xf0], Transfer::Hint),          // tpause eax
            (&[0xf2, 0x0f, 0xae, 0xf0], Transfer::Hint),          // umwait eax
            (&[0x0f, 0x31], Transfer::Clock),                     // rdtsc
            (&[0x0f, 0x05], Transfer::System),                    // syscall
            (&[0x48, 0x89, 0xc8], Transfer::Copy),                // mov rax, rcx
            (&[0x0f, 0x44, 0xc1], Transfer::Copy),                // cmove eax, ecx
            (&[0xff, 0xc8], Transfer::Sum),                       // dec eax
            (&[0x83, 0x45, 0xfc, 0x01], Transfer::Sum),           // add dword [rbp-4], 1
            (&[0x48, 0x8d, 0x40, 0x01], Transfer::Sum),           // lea rax, [rax+1]
            (&[0xd1, 0xe0], Transfer::Sum),                       // shl eax, 1
            (&[0xd3, 0xe0], Transfer::Mix),                       // shl eax, cl
            (&[0x0f, 0xaf, 0xc1], Transfer::Mix),                 // imul eax, ecx
            (&[0x87, 0x07], Transfer::Swap),                      // xchg [rdi], eax
            (&[0xf0, 0x0f, 0xb1, 0x17], Transfer::CompareSwap),   // lock cmpxchg [rdi], edx
            (&[0xf0, 0x0f, 0xba, 0x2f, 0x00], Transfer::SetBits), // lock bts dword [rdi], 0
            (&[0xf0, 0xff, 0x0f], Transfer::Sum),                 // lock dec dword [rdi]
            (&[0xf0, 0x0f, 0xc1, 0x07], Transfer::Mix),           // lock xadd [rdi], eax
            (&[0xf3, 0xa4], Transfer::Unknown),                   // rep movsb
        ];
        for (bytes, way) in cases {
            assert_eq!(of(bytes).way, way, "{bytes:02x?}");
        }
        assert_eq!(of(&[0xf0, 0x0f, 0xb1, 0x17]).stored, set(&[2]));
        assert_eq!(of(&[0x87, 0x07]).stored, set(&[0]));
        // Set to zero: nothing is read.
        assert_eq!(of(&[0x31, 0xc0]).reads, Registers::NONE);
    }

    #[test]
    fn ways_of_aarch64() {
        let cases: [(u32, Transfer); 15] = [
            (0xd503_203f, Transfer::Hint),        // yield
            (0xd503_205f, Transfer::Hint),        // wfe
            (0xd503_3fdf, Transfer::Hint),        // isb
            (0xd503_201f, Transfer::Copy),        // nop
            (0xd53b_e040, Transfer::Clock),       // mrs x0, cntvct_el0
            (0xd400_0001, Transfer::System),      // svc #0
            (0x88df_fc20, Transfer::Copy),        // ldar w0, [x1]
            (0xb940_0020, Transfer::Copy),        // ldr w0, [x1]
            (0x9100_0400, Transfer::Sum),         // add x0, x0, #1
            (0x6b02_001f, Transfer::Sum),         // cmp w0, w2
            (0x8804_fc22, Transfer::Swap),        // stlxr w4, w2, [x1]
            (0x88e0_7c22, Transfer::CompareSwap), // casa w0, w2, [x1]
            (0xb8e0_8022, Transfer::Swap),        // swpal w0, w2, [x1]
            (0x9b02_7c20, Transfer::Mix),         // mul x0, x1, x2
            (0x4ea1_1c20, Transfer::Unknown),     // mov v0.16b, v1.16b
        ];
        for (word, way) in cases {
            assert_eq!(of_word(word).way, way, "{word:08x}");
        }
        // ldr w0, [x1], #4 moves on; cbz w0 reads it.
        let walks = of_word(0xb840_4420);
        assert_eq!((walks.way, walks.writes), (Transfer::Unknown, set(&[0, 1])));
        assert_eq!(of_word(0x3400_0000).reads, set(&[0]));
        // b.ne reads the flags, cmp writes them.
        assert_eq!(of_word(0x54ff_ffc1).reads, set(&[FLAGS]));
        let compared = of_word(0x6b02_001f);
        assert_eq!((compared.reads, compared.writes), (set(&[0, 2]), set(&[FLAGS])));
        // str w0, [sp, #12]
        let spill = of_word(0xb900_0fe0);
        assert_eq!((spill.reads, spill.memory[0].address.slot), (set(&[0]), Some((31, 12))));
        assert!(spill.memory[0].writes && !spill.memory[0].reads);
    }
}
