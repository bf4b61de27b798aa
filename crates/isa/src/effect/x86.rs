//! Effects of x86 instructions, from what iced-x86 knows of their operands.

use super::{Access, Address, Effect, Registers, Way};
use crate::{Decoded, Flow, x86};
use iced_x86::{
    ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};

/// Where the numbers of vectors, masks and x87 begin.
const VECTORS: usize = 32;
const MASKS: usize = 65;
const X87: usize = 73;

pub fn effect(bytes: &[u8], decoded: Decoded) -> Option<Effect> {
    let instruction = x86::decode(bytes, decoded.ip)?;
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&instruction);
    let memory: Vec<Access> = info.used_memory().iter().filter_map(access).collect();
    let in_addresses =
        memory.iter().fold(Registers::NONE, |all, access| all | access.address.registers);
    let (mut reads, mut writes) = (Registers::NONE, Registers::NONE);
    let (mut values, mut first) = (Registers::NONE, true);
    for place in 0..instruction.op_count() {
        if instruction.op_kind(place) == OpKind::Register {
            let register = number(instruction.op_register(place));
            if is_read(info.op_access(place)) {
                reads = reads | register;
            }
            if !(first && instruction.op0_kind() == OpKind::Register) {
                values = values | register;
            }
        }
        first = false;
    }
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
        Way::Swap if instruction.op0_kind() == OpKind::Register => {
            number(instruction.op0_register())
        }
        Way::Swap | Way::CompareSwap | Way::SetBits => values,
        _ => Registers::NONE,
    };
    let points = (instruction.mnemonic() == Mnemonic::Lea)
        .then(|| slot(instruction.memory_base(), instruction.memory_index()))
        .flatten()
        .map(|base| (base, instruction.memory_displacement64().cast_signed()));
    Some(Effect { decoded, way, reads, writes, stored, memory, points })
}

fn way(instruction: &Instruction, decoded: Decoded, memory: &[Access]) -> Way {
    use Mnemonic as M;
    let constant = || instruction.op1_kind() == OpKind::Immediate8;
    let changes_memory = memory.iter().any(|access| access.reads && access.writes);
    match instruction.mnemonic() {
        M::Pause | M::Tpause | M::Umwait | M::Umonitor | M::Monitorx | M::Mwaitx => Way::Hint,
        M::Rdtsc | M::Rdtscp => Way::Clock,
        _ if decoded.flow == Flow::Trap || instruction.is_string_instruction() => Way::Unknown,
        M::Syscall | M::Sysenter | M::Int => Way::System,
        M::Xchg if changes_memory => Way::Swap,
        M::Cmpxchg if changes_memory => Way::CompareSwap,
        M::Bts | M::Btr | M::Or | M::And if changes_memory && instruction.has_lock_prefix() => {
            Way::SetBits
        }
        M::Mov | M::Movzx | M::Movsx | M::Movsxd | M::Movd | M::Movq | M::Nop | M::Endbr64 => {
            Way::Copy
        }
        M::Cdqe | M::Cwde => Way::Copy,
        // A conditional move: of the others with a condition, jumps and `setcc` have one operand.
        _ if instruction.condition_code() != ConditionCode::None && instruction.op_count() == 2 => {
            Way::Copy
        }
        M::Inc | M::Dec | M::Add | M::Sub | M::Lea => Way::Sum,
        M::Shl | M::Sal | M::Shr | M::Sar if constant() => Way::Sum,
        _ => Way::Mix,
    }
}

fn access(memory: &UsedMemory) -> Option<Access> {
    let (reads, writes) = (is_read(memory.access()), is_write(memory.access()));
    let (base, index) = (memory.base(), memory.index());
    let from = |base: u8| (base, memory.displacement().cast_signed());
    let only = number(base).numbers().next().filter(|_| index == Register::None);
    let address = Address {
        registers: number(base) | number(index),
        slot: slot(base, index).map(from),
        near: only.map(from),
    };
    (reads || writes).then_some(Access { address, reads, writes })
}

/// The number of a stack or frame pointer that is all that an address is computed from.
fn slot(base: Register, index: Register) -> Option<u8> {
    match base {
        Register::RSP if index == Register::None => Some(4),
        Register::RBP if index == Register::None => Some(5),
        _ => None,
    }
}

/// The set of one register; none for those that loops leave alone, such as segments and the instruction pointer.
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
