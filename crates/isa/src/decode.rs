//! Decoding of single instructions and of stretches of code.

use crate::{ClassSet, aarch64, x86};

/// Instruction set supported by this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// x86 in 64-bit mode.
    X86_64,
    /// A64, little-endian.
    Aarch64,
}

impl Isa {
    /// Instruction set that this program was compiled for, or `None` if unsupported.
    #[must_use]
    pub const fn native() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Self::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::Aarch64)
        } else {
            None
        }
    }

    /// Size of the longest instruction, in bytes.
    #[must_use]
    pub const fn max_len(self) -> usize {
        match self {
            Self::X86_64 => 15,
            Self::Aarch64 => 4,
        }
    }
}

/// Transfer of control after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// To the next instruction. System calls are included: control returns from them.
    Next,
    /// To `target` or to the next instruction.
    Conditional {
        /// Address jumped to if the condition holds.
        target: u64,
    },
    /// Always to `target`.
    Jump {
        /// Address jumped to.
        target: u64,
    },
    /// To an address in a register or in memory.
    IndirectJump,
    /// To a function at `target`, with a return in most cases.
    Call {
        /// Address called.
        target: u64,
    },
    /// To a function at an address in a register or in memory.
    IndirectCall,
    /// Back to the caller.
    Return,
    /// Into a debugger or a signal handler: breakpoints and instructions undefined by design.
    Trap,
}

impl Flow {
    /// Whether the instruction transfers control, as counted by the class *branch*.
    #[must_use]
    pub const fn is_branch(self) -> bool {
        !matches!(self, Self::Next | Self::Trap)
    }

    /// Whether the next instruction in memory may run after this instruction or after its callee.
    #[must_use]
    pub const fn falls_through(self) -> bool {
        matches!(
            self,
            Self::Next | Self::Conditional { .. } | Self::Call { .. } | Self::IndirectCall
        )
    }

    /// Target of a direct jump; `None` for calls and unknown addresses.
    #[must_use]
    pub const fn jump_target(self) -> Option<u64> {
        match self {
            Self::Conditional { target } | Self::Jump { target } => Some(target),
            _ => None,
        }
    }
}

/// Decoded properties of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decoded {
    /// Address of the instruction.
    pub ip: u64,
    /// Length in bytes: 1 ..= 15 on x86, 4 on aarch64.
    pub len: u8,
    /// Classes of work.
    pub classes: ClassSet,
    /// Transfer of control.
    pub flow: Flow,
}

impl Decoded {
    /// Address of the next instruction in memory.
    #[must_use]
    pub const fn next_ip(self) -> u64 {
        self.ip + self.len as u64
    }
}

/// Decodes the first instruction of `bytes`, at address `ip`.
///
/// `None` if the bytes are no known instruction of `isa` or end within one, or if the next address
/// overflows. Allocates only on a thread's first call.
///
/// ```
/// use colocate_isa::{Class, Flow, Isa, classify};
/// // add [rdi], rax: loads, adds and stores.
/// let add = classify(Isa::X86_64, &[0x48, 0x01, 0x07], 0x1000).expect("an instruction");
/// let classes: Vec<_> = Class::ALL.into_iter().filter(|&class| add.classes.has(class)).collect();
/// assert_eq!(classes, [Class::Int, Class::Load, Class::Store]);
/// assert_eq!((add.flow, add.next_ip()), (Flow::Next, 0x1003));
/// // Two of the three bytes are no instruction.
/// assert_eq!(classify(Isa::X86_64, &[0x48, 0x01], 0x1000), None);
/// ```
#[must_use]
pub fn classify(isa: Isa, bytes: &[u8], ip: u64) -> Option<Decoded> {
    let decoded = match isa {
        Isa::X86_64 => x86::classify(bytes, ip),
        Isa::Aarch64 => aarch64::classify(bytes, ip),
    }?;
    // `Decoded::next_ip` must not overflow.
    ip.checked_add(u64::from(decoded.len)).map(|_| decoded)
}

/// Iterator over instructions in the order of memory, regardless of control flow.
///
/// Ends at bytes without a whole instruction.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    isa: Isa,
    bytes: &'a [u8],
    ip: u64,
}

impl<'a> Decoder<'a> {
    /// Starts at the first byte of `bytes`, at address `ip`.
    #[must_use]
    pub const fn new(isa: Isa, bytes: &'a [u8], ip: u64) -> Self {
        Self { isa, bytes, ip }
    }

    /// Address of the next instruction.
    #[must_use]
    pub const fn ip(&self) -> u64 {
        self.ip
    }
}

impl Iterator for Decoder<'_> {
    type Item = Decoded;

    fn next(&mut self) -> Option<Decoded> {
        let found = classify(self.isa, self.bytes, self.ip)?;
        self.bytes = &self.bytes[usize::from(found.len)..];
        self.ip = found.next_ip();
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_behind_the_last_address() {
        let (nops, ret) = ([0x90; 4], [0xc0, 0x03, 0x5f, 0xd6]);
        for (isa, code, at_end) in [(Isa::X86_64, &nops, 3), (Isa::Aarch64, &ret, 0)] {
            let walk = |ip| Decoder::new(isa, code, ip).count();
            assert_eq!(walk(u64::MAX - 3), at_end, "{isa:?}: the last one would end at 2^64");
            assert!(walk(u64::MAX - 7) >= 1, "{isa:?}");
        }
    }
}
