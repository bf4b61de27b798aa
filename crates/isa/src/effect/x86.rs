//! Effects of x86 instructions, from the operand information of iced-x86.

use super::{Address, Effect, MemoryAccess, Registers, Transfer};
use crate::{Decoded, Flow, x86};
use iced_x86::{
    ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};

/// Number of the first vector register.
const VECTORS: usize = 32;
/// Number of the first mask register.
const MASKS: usize = 65;
/// Number of the first x87 register.
const X87: usize = 73;

pub fn effect(bytes: &[u8], decoded: Decoded) -> Option<Effect> {
    let instruction = x86::decode(bytes, decoded.ip)?;
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&instruction);
    let memory: Vec<MemoryAccess> = info.used_memory().iter().filter_map(access).collect();
    let in_addresses =
        memory.iter().fold(Registers::NONE, |all, access| all | access.address.registers);
    let mut reads = Registers::NONE;
    let mut writes = Registers::NONE;
    // Values that can go to memory: register operands but for a destination in a register.
    let mut values = Registers::NONE;
    for place in 0..instruction.op_count() {
        if instruction.op_kind(place) == OpKind::Register {
            let register = number(instruction.op_register(place));
            if is_read(info.op_access(place)) {
                reads = reads | register;
            }
            if place > 0 {
                values = values | register;
            }
        }
    }
    // The list has implicit registers too, and those of addresses, whose values go into no result.
    for used in info.used_registers() {
        let register = number(used.register());
        if is_read(used.access()) {
            reads = reads | register.without(in_addresses);
        }
        if is_write(used.access()) {
            writes = writes | register;
        }
    }
    if instruction.rflags_read() != 0 {
        reads = reads | Registers::FLAGS;
    }
    if instruction.rflags_modified() != 0 {
        writes = writes | Registers::FLAGS;
    }
    let way = way(&instruction, decoded, &memory);
    let stored = match way {
        Transfer::Swap if instruction.op0_kind() == OpKind::Register => {
            number(instruction.op0_register())
        }
        Transfer::Swap | Transfer::CompareSwap | Transfer::SetBits => values,
        _ => Registers::NONE,
    };
    // `lea` computes an address without accessing memory.
    let points = (instruction.mnemonic() == Mnemonic::Lea)
        .then(|| slot(instruction.memory_base(), instruction.memory_index()))
        .flatten()
        .map(|base| (base, instruction.memory_displacement64().cast_signed()));
    Some(Effect { decoded, way, reads, writes, stored, memory, points })
}

fn way(instruction: &Instruction, decoded: Decoded, memory: &[MemoryAccess]) -> Transfer {
    use Mnemonic as M;
    let changes_memory = memory.iter().any(|access| access.reads && access.writes);
    match instruction.mnemonic() {
        M::Pause | M::Tpause | M::Umwait | M::Umonitor | M::Monitorx | M::Mwaitx => Transfer::Hint,
        M::Rdtsc | M::Rdtscp => Transfer::Clock,
        _ if decoded.flow == Flow::Trap || instruction.is_string_instruction() => Transfer::Unknown,
        M::Syscall | M::Sysenter | M::Int => Transfer::System,
        // `xchg` with memory is atomic even without a lock prefix.
        M::Xchg if changes_memory => Transfer::Swap,
        M::Cmpxchg if changes_memory => Transfer::CompareSwap,
        M::Bts | M::Btr | M::Or | M::And if changes_memory && instruction.has_lock_prefix() => {
            Transfer::SetBits
        }
        M::Mov | M::Movzx | M::Movsx | M::Movsxd | M::Movd | M::Movq | M::Nop | M::Endbr64 => {
            Transfer::Copy
        }
        M::Cdqe | M::Cwde => Transfer::Copy,
        // A conditional move: other conditional instructions, jumps and `setcc`, have one operand.
        _ if instruction.condition_code() != ConditionCode::None && instruction.op_count() == 2 => {
            Transfer::Copy
        }
        M::Inc | M::Dec | M::Add | M::Sub | M::Lea => Transfer::Sum,
        M::Shl | M::Sal | M::Shr | M::Sar if instruction.op1_kind() == OpKind::Immediate8 => {
            Transfer::Sum
        }
        _ => Transfer::Mix,
    }
}

fn access(memory: &UsedMemory) -> Option<MemoryAccess> {
    let reads = is_read(memory.access());
    let writes = is_write(memory.access());
    let base = memory.base();
    let index = memory.index();
    let displacement = memory.displacement().cast_signed();
    let only = number(base).numbers().next().filter(|_| index == Register::None);
    let address = Address {
        registers: number(base) | number(index),
        slot: slot(base, index).map(|base| (base, displacement)),
        near: only.map(|base| (base, displacement)),
    };
    (reads || writes).then_some(MemoryAccess { address, reads, writes })
}

/// Number of a stack or frame pointer, if an address is computed from that register alone.
fn slot(base: Register, index: Register) -> Option<u8> {
    match base {
        Register::RSP if index == Register::None => Some(4),
        Register::RBP if index == Register::None => Some(5),
        _ => None,
    }
}

/// Set of one register; empty for registers that loops do not change, as segments and the
/// instruction pointer.
fn number(register: Register) -> Registers {
    let full = register.full_register();
    let number = if full.is_gpr64() {
        full.number()
    } else if full.is_zmm() {
        VECTORS + full.number()
    } else if full.is_k() {
        MASKS + full.number()
    } else if full.is_st() || full.is_mm() {
        X87 + full.number()
    } else {
        return Registers::NONE;
    };
    u8::try_from(number).map_or(Registers::NONE, Registers::one)
}

pub fn is_read(access: OpAccess) -> bool {
    use OpAccess::{CondRead, Read, ReadCondWrite, ReadWrite};
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

pub fn is_write(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}
