//! A64 instructions, decoded by yaxpeax-arm.

use crate::x86::starts;
use crate::{Class, ClassSet, Decoded, Flow};
use std::fmt::{self, Write};
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand};

/// Decodes the first instruction of `bytes`, at address `ip`.
pub fn classify(bytes: &[u8], ip: u64) -> Option<Decoded> {
    let instruction = decode(bytes)?;
    let flow = flow_of(&instruction, ip);
    let classes = if flow.is_branch() {
        Class::Branch.into()
    } else if flow == Flow::Trap || is_register_move(&instruction) {
        ClassSet::NONE
    } else {
        class_named(Name::of(instruction.opcode).as_str())
    };
    Some(Decoded { ip, len: 4, classes, flow })
}

/// First instruction of `bytes`, as decoded by yaxpeax-arm.
pub fn decode(bytes: &[u8]) -> Option<Instruction> {
    InstDecoder::default().decode(&mut U8Reader::new(bytes.get(..4)?)).ok()
}

/// Mnemonic of the first instruction of `bytes`, in lower case.
pub fn mnemonic(bytes: &[u8]) -> Option<String> {
    let instruction = decode(bytes)?;
    instruction.to_string().split(' ').next().map(str::to_owned)
}

/// See [`crate::assembly()`].
pub fn assembly(bytes: &[u8], ip: u64) -> Option<String> {
    let instruction = decode(bytes)?;
    let text = instruction.to_string();
    let flow = flow_of(&instruction, ip);
    let name = text.split(' ').next().unwrap_or_default();
    // The target is the last operand.
    Some(match flow {
        Flow::Jump { .. } | Flow::Call { .. } => "b #0".into(),
        Flow::Conditional { .. } => match text.rsplit_once(", ") {
            Some((before, _)) => format!("{before}, #0"),
            None => format!("{name} #0"),
        },
        Flow::IndirectCall | Flow::IndirectJump | Flow::Return => {
            // `ret` without an operand returns to `x30`.
            let register = text.split([' ', ',']).nth(1).filter(|word| word.starts_with('x'));
            format!("br {}", register.unwrap_or("x30"))
        }
        _ => text,
    })
}

fn flow_of(instruction: &Instruction, ip: u64) -> Flow {
    use Opcode::{
        B, BCcc, BL, BLR, BLRAA, BLRAAZ, BLRAB, BLRABZ, BR, BRAA, BRAAZ, BRAB, BRABZ, BRK, Bcc,
        CBNZ, CBZ, DRPS, ERET, ERETAA, ERETAB, HLT, RET, RETAA, RETAASPPC, RETAASPPCR, RETAB,
        RETABSPPC, RETABSPPCR, TBNZ, TBZ, UDF,
    };
    let target = target_of(instruction, ip);
    match instruction.opcode {
        Bcc(_) | BCcc(_) | CBZ | CBNZ | TBZ | TBNZ => Flow::Conditional { target },
        B => Flow::Jump { target },
        BL => Flow::Call { target },
        BR | BRAA | BRAAZ | BRAB | BRABZ => Flow::IndirectJump,
        BLR | BLRAA | BLRAAZ | BLRAB | BLRABZ => Flow::IndirectCall,
        RET | RETAA | RETAB | RETAASPPC | RETAASPPCR | RETABSPPC | RETABSPPCR | ERET | ERETAA
        | ERETAB | DRPS => Flow::Return,
        // `svc` and the like are system calls, after which the next instruction runs.
        BRK | HLT | UDF => Flow::Trap,
        _ => Flow::Next,
    }
}

fn target_of(instruction: &Instruction, ip: u64) -> u64 {
    let offset = instruction.operands.iter().find_map(|operand| match operand {
        Operand::PCOffset(offset) => Some(*offset),
        _ => None,
    });
    // An indirect branch has no offset, and its target is not used.
    ip.wrapping_add_signed(offset.unwrap_or(0))
}

/// Whether the instruction is an alias of `mov`, `sxtb` or the like.
fn is_register_move(instruction: &Instruction) -> bool {
    let [_, first, second, third] = instruction.operands;
    match instruction.opcode {
        Opcode::ORR => match (first, second) {
            // `mov` is `orr` with the zero register, unshifted; of vectors, with the same source
            // twice.
            (Operand::Register(_, 31), Operand::RegShift(_, 0, _, _)) => true,
            (Operand::SIMDRegisterElements(..), _) => first == second,
            _ => false,
        },
        // `mov` from or to the stack pointer is an addition of 0.
        Opcode::ADD => is_zero(second) && matches!(first, Operand::RegisterOrSP(..)),
        Opcode::SBFM | Opcode::UBFM => {
            is_zero(second)
                // Bit fields from bit 0 of 8, 16 and 32 bits are `sxtb`, `uxth` and the like.
                && matches!(third, Operand::Immediate(7 | 15 | 31) | Operand::Imm64(7 | 15 | 31))
        }
        _ => false,
    }
}

fn is_zero(operand: Operand) -> bool {
    matches!(operand, Operand::Immediate(0) | Operand::Imm64(0))
}
/// Name of an opcode, in a buffer on the stack: allocates nothing.
struct Name {
    bytes: [u8; 16],
    len: usize,
}

impl Name {
    fn of(opcode: Opcode) -> Self {
        let mut name = Self { bytes: [0; 16], len: 0 };
        // A name that does not fit is cut; the first letters decide the class.
        let _ = write!(name, "{opcode}");
        name
    }

    fn as_str(&self) -> &str {
        // Names are ASCII, so a cut name is text as well.
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len;
        let taken = text.len().min(room);
        self.bytes[self.len..self.len + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        if taken == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Classes of an instruction without transfer of control, by its name.
///
/// Arm's names are regular enough for rules; tests/aarch64.txt lists the results.
fn class_named(name: &str) -> ClassSet {
    let both = ClassSet::NONE.with(Class::Load).with(Class::Store);
    let atomic =
        ["ldadd", "ldclr", "ldeor", "ldset", "ldsmax", "ldsmin", "ldumax", "ldumin", "cas"];
    let moves = ["mov", "mvni", "fmov", "ins", "dup", "smov", "umov"];
    let system = [
        "mrs", "msr", "sys", "isb", "dsb", "dmb", "ssb", "sssb", "pssbb", "hint", "clrex", "svc",
        "hvc", "smc", "dcps", "prf", "csdb", "nop", "yield", "wf", "sev", "bti", "psb", "tsb",
        "esb", "chkfeat", "dgh",
    ];
    // The order matters: `ldadd` is an atomic, and begins with `ld` too.
    if starts(name, &atomic) {
        both.with(Class::Int)
    } else if name.starts_with("swp") {
        both
    } else if name.starts_with("ld") {
        Class::Load.into()
    } else if name.starts_with("st") {
        Class::Store.into()
    } else if starts(name, &moves) || starts(name, &system) || name == "sb" {
        ClassSet::NONE
    } else if starts(name, &["f", "scvtf", "ucvtf", "bfcvt"]) {
        Class::Float.into()
    } else {
        Class::Int.into()
    }
}
