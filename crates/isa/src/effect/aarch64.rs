//! Effects of the A64 instructions found in spin loops.

use super::{Address, Effect, MemoryAccess, Registers, Transfer};
use crate::aarch64::decode;
use crate::{Decoded, Flow};
use yaxpeax_arm::armv8::a64::{Instruction, Opcode, Operand, SizeCode};

/// Number of the stack pointer.
const STACK: u16 = 31;
/// Number of the frame pointer.
const FRAME: u16 = 29;

/// Hint numbers (bits 5 to 11) of `yield`, `wfe` and `wfi`.
const WAITING_HINTS: std::ops::RangeInclusive<u32> = 1..=3;
/// Mask and encoding of `mrs Xt, cntvct_el0` and related clocks. The mask leaves out the register
/// and the last bits of the clock's name.
const CLOCK: (u32, u32) = (0xffff_ff00, 0xd53b_e000);

pub fn effect(bytes: &[u8], decoded: Decoded) -> Option<Effect> {
    let word = u32::from_le_bytes(*bytes.first_chunk::<4>()?);
    let instruction = decode(bytes)?;
    let mut effect = Effect {
        decoded,
        way: Transfer::Unknown,
        reads: Registers::NONE,
        writes: Registers::NONE,
        stored: Registers::NONE,
        memory: Vec::new(),
        points: None,
    };
    let [first, second, third, _] = instruction.operands;
    let name = instruction.opcode.to_string();
    effect.memory.extend(instruction.operands.iter().filter_map(|one| address(*one)));
    match &name[..] {
        _ if decoded.flow != Flow::Next => {
            effect.way = Transfer::Mix;
            effect.reads = branch_reads(&instruction);
        }
        _ if word & CLOCK.0 == CLOCK.1 => {
            effect.way = Transfer::Clock;
            effect.writes = value(first);
        }
        "isb" => effect.way = Transfer::Hint,
        "hint" | "yield" | "wfe" | "wfi" | "nop" | "sevl" | "sev" => {
            let waits = WAITING_HINTS.contains(&(word >> 5 & 0x7f));
            effect.way = if waits { Transfer::Hint } else { Transfer::Copy };
        }
        // Barriers order accesses and change no value.
        "dmb" | "dsb" | "bti" => effect.way = Transfer::Copy,
        "svc" => effect.way = Transfer::System,
        _ if is_load(&name) => {
            effect.way = Transfer::Copy;
            effect.writes = value(first);
            mark(&mut effect.memory, true, false);
        }
        "str" | "strb" | "strh" | "stur" | "sturb" | "sturh" => {
            effect.way = Transfer::Copy;
            effect.reads = value(first);
            mark(&mut effect.memory, false, true);
        }
        _ if name.starts_with("stxr") || name.starts_with("stlxr") => {
            effect.way = Transfer::Swap;
            effect.writes = value(first);
            effect.reads = value(second);
            effect.stored = value(second);
            mark(&mut effect.memory, false, true);
        }
        _ if name.starts_with("swp") || (name.starts_with("cas") && !name.starts_with("casp")) => {
            let swaps = name.starts_with("swp");
            effect.way = if swaps { Transfer::Swap } else { Transfer::CompareSwap };
            // `swp` stores the first and loads the second; `cas` compares and loads the first, and
            // stores the second.
            let (stored, loaded) = if swaps { (first, second) } else { (second, first) };
            effect.writes = value(loaded);
            effect.stored = value(stored);
            effect.reads = value(first) | value(second);
            mark(&mut effect.memory, true, true);
        }
        _ => compute(&mut effect, &name, [first, second, third]),
    }
    // The register written besides is the base or half of a pair: neither is modelled.
    if has_writeback(&instruction) || is_pair(&name) {
        effect.way = Transfer::Unknown;
        effect.writes = effect.writes
            | effect.memory.iter().fold(Registers::NONE, |all, one| all | one.address.registers);
    }
    Some(effect)
}

fn mark(memory: &mut [MemoryAccess], reads: bool, writes: bool) {
    for access in memory {
        access.reads |= reads;
        access.writes |= writes;
    }
}
/// Sets the effect of arithmetic: the first operand is computed from the others.
fn compute(effect: &mut Effect, name: &str, [first, second, third]: [Operand; 3]) {
    let vector = [first, second, third].iter().any(|one| is_vector(*one));
    let sum = ["add", "sub", "adds", "subs"].contains(&name);
    let flags = ["adds", "subs", "ands", "bics"].contains(&name);
    let mix = [
        "and", "orr", "eor", "bic", "orn", "eon", "lsl", "lsr", "asr", "ubfm", "sbfm", "mul",
        "madd", "msub", "udiv", "sdiv",
    ];
    let set = ["movz", "movn", "adrp", "adr"].contains(&name);
    let select = ["csel", "csinc", "csinv", "csneg"].contains(&name);
    let compare = ["ccmp", "ccmn"].contains(&name);
    if vector || !(sum || flags || set || select || compare || mix.contains(&name)) {
        return;
    }
    effect.way = match name {
        // `orr` with the zero register is the alias `mov`.
        "csel" | "orr" if value(second).is_empty() || select => Transfer::Copy,
        _ if set => Transfer::Copy,
        _ if sum => Transfer::Sum,
        _ => Transfer::Mix,
    };
    effect.reads = value(second) | value(third);
    effect.writes = value(first);
    if compare {
        effect.reads = effect.reads | value(first);
        effect.writes = Registers::NONE;
    }
    if select || compare {
        effect.reads = effect.reads | Registers::FLAGS;
    }
    if flags || compare {
        effect.writes = effect.writes | Registers::FLAGS;
    }
}

fn branch_reads(instruction: &Instruction) -> Registers {
    match instruction.opcode {
        Opcode::Bcc(_) | Opcode::BCcc(_) => Registers::FLAGS,
        Opcode::CBZ | Opcode::CBNZ | Opcode::TBZ | Opcode::TBNZ => value(instruction.operands[0]),
        _ => Registers::NONE,
    }
}

/// Whether the instruction loads one register.
fn is_load(name: &str) -> bool {
    let loads = ["ldr", "ldur", "ldar", "ldapr", "ldxr", "ldaxr"];
    let base = name.trim_end_matches(['b', 'h']);
    loads.contains(&base) || ["ldrsw", "ldursw", "ldrsb", "ldrsh", "ldrs"].contains(&base)
}

/// Whether the instruction loads or stores two registers.
fn is_pair(name: &str) -> bool {
    ["ldp", "stp", "ldxp", "stxp", "ldaxp", "stlxp", "casp", "ldnp", "stnp"]
        .iter()
        .any(|pair| name.starts_with(pair))
}

/// Whether the instruction changes the register of the address.
fn has_writeback(instruction: &Instruction) -> bool {
    instruction.operands.iter().any(|operand| {
        matches!(
            operand,
            Operand::RegPreIndex(_, _, true)
                | Operand::RegPostIndex(..)
                | Operand::RegPostIndexReg(..)
        )
    })
}

fn is_vector(operand: Operand) -> bool {
    matches!(
        operand,
        Operand::SIMDRegister(..)
            | Operand::SIMDRegisterElements(..)
            | Operand::SIMDRegisterElementsLane(..)
            | Operand::SIMDRegisterElementsMultipleLane(..)
            | Operand::SIMDRegisterGroup(..)
            | Operand::SIMDRegisterGroupLane(..)
    )
}

/// Register of an operand; empty for the zero register, constants and addresses. Vectors have
/// numbers from 32.
fn value(operand: Operand) -> Registers {
    let number = match operand {
        Operand::Register(_, 31) => return Registers::NONE,
        Operand::RegShift(_, _, _, 31) => return Registers::NONE,
        Operand::Register(_, number)
        | Operand::RegisterPair(_, number)
        | Operand::RegisterOrSP(_, number)
        | Operand::RegShift(_, _, _, number) => number,
        Operand::SIMDRegister(_, number) => 32 + number,
        _ => return Registers::NONE,
    };
    u8::try_from(number).map_or(Registers::NONE, Registers::one)
}

/// Memory access of an operand, not yet marked as a read or a write.
fn address(operand: Operand) -> Option<MemoryAccess> {
    let mut slot = None;
    let registers = match operand {
        Operand::RegPreIndex(base, offset, _) => {
            slot = [STACK, FRAME].contains(&base).then_some((base, offset));
            address_register(base)
        }
        Operand::RegPostIndex(base, _) => address_register(base),
        Operand::RegRegOffset(base, index, ..) | Operand::RegPostIndexReg(base, index) => {
            address_register(base) | address_register(index)
        }
        // The address of a literal: the offset from the program counter is constant.
        Operand::PCOffset(_) => Registers::NONE,
        _ => return None,
    };
    let slot = slot.and_then(|(base, offset)| Some((u8::try_from(base).ok()?, i64::from(offset))));
    Some(MemoryAccess {
        address: Address { registers, slot, near: None },
        reads: false,
        writes: false,
    })
}

/// Register of an address, where 31 is the stack pointer.
fn address_register(number: u16) -> Registers {
    value(Operand::RegisterOrSP(SizeCode::X, number))
}
