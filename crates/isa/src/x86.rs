//! x86 instructions in 64-bit mode, decoded by iced-x86.

use crate::{Class, ClassSet, Decoded, Flow};
use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, EncodingKind, FlowControl, Formatter,
    GasFormatter, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess,
    OpKind,
};
use std::cell::RefCell;
use std::sync::LazyLock;

thread_local! {
    /// Reused, since each new factory allocates vectors.
    static FACTORY: RefCell<InstructionInfoFactory> = RefCell::new(InstructionInfoFactory::new());
}

/// Decodes the first instruction of `bytes`, at address `ip`.
pub fn classify(bytes: &[u8], ip: u64) -> Option<Decoded> {
    let instruction = decode(bytes, ip)?;
    let flow = flow_of(&instruction);
    let mut classes = work_of(&instruction) | memory_of(&instruction);
    if flow.is_branch() {
        classes = classes.with(Class::Branch);
    }
    let len = u8::try_from(instruction.len()).ok()?;
    Some(Decoded { ip, len, classes, flow })
}

/// Whether the first instruction of `bytes` needs more than AVX2 and FMA: AVX-512, AMX, AVX-VNNI
/// and related extensions, or AMD's XOP and FMA4.
///
/// Processors without these extensions raise SIGILL, QEMU's (10.0) emulated processor included.
#[must_use]
pub fn needs_beyond_avx2(bytes: &[u8]) -> bool {
    // Segment and address-size prefixes may come before the encoding's own.
    let encoding =
        bytes.iter().find(|byte| !matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67));
    let vex_evex_xop = [0xc4, 0xc5, 0x62, 0x8f];
    if !encoding.is_some_and(|byte| vex_evex_xop.contains(byte)) {
        return false;
    }
    decode(bytes, 0).is_some_and(|instruction| {
        let code = instruction.code();
        matches!(code.encoding(), EncodingKind::EVEX | EncodingKind::XOP)
            || code.cpuid_features().iter().any(is_beyond_avx2)
    })
}

/// Whether an extension beyond AVX2 has VEX encoding, as AVX2 itself has.
fn is_beyond_avx2(feature: &CpuidFeature) -> bool {
    use CpuidFeature as F;
    matches!(
        feature,
        F::AVX512F
            | F::AVX512BW
            | F::AVX512DQ
            | F::FMA4
            | F::AMX_TILE
            | F::AMX_INT8
            | F::AMX_BF16
            | F::AMX_FP16
            | F::AMX_COMPLEX
            | F::AVX_VNNI
            | F::AVX_IFMA
            | F::AVX_VNNI_INT8
            | F::AVX_VNNI_INT16
            | F::AVX_NE_CONVERT
            | F::GFNI
            | F::SHA512
            | F::SM3
            | F::SM4
    )
}

/// Whether the first instruction of `bytes` is a string instruction with a repeat prefix.
#[must_use]
pub fn is_repeated_string(bytes: &[u8]) -> bool {
    // At most four legacy prefixes, one of each group, come before an opcode.
    let prefixed = bytes.iter().take(4).any(|byte| matches!(byte, 0xf2 | 0xf3));
    prefixed
        && decode(bytes, 0).is_some_and(|instruction| {
            instruction.is_string_instruction()
                && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
        })
}

/// Mnemonic of the first instruction of `bytes`, in lower case; `None` for an invalid instruction.
#[must_use]
pub fn mnemonic(bytes: &[u8]) -> Option<String> {
    decode(bytes, 0).map(|found| format!("{:?}", found.mnemonic()).to_ascii_lowercase())
}

/// See [`crate::assembly()`].
pub fn assembly(bytes: &[u8], ip: u64) -> Option<String> {
    let instruction = decode(bytes, ip)?;
    let operand = |place: u32| {
        let mut text = String::new();
        // An operand that exists has a text.
        let formatted = GasFormatter::new().format_operand(&instruction, &mut text, place);
        formatted.map(|()| text)
    };
    Some(match instruction.flow_control() {
        FlowControl::UnconditionalBranch => "jmp 0".into(),
        FlowControl::ConditionalBranch => jump(&in_att_syntax(&instruction)),
        FlowControl::Call if instruction.is_call_near() => format!("{RETURN_ADDRESS}\njmp 0"),
        FlowControl::IndirectCall => format!("{RETURN_ADDRESS}\njmp {}", operand(0).ok()?),
        FlowControl::IndirectBranch => format!("jmp {}", operand(0).ok()?),
        FlowControl::Return => "jmp *(%rsp)".into(),
        _ => match instruction.mnemonic() {
            Mnemonic::Push => push(&instruction, &operand(0).ok()?),
            Mnemonic::Pop if instruction.op0_kind() == OpKind::Register => {
                format!("movq (%rsp),{}", operand(0).ok()?)
            }
            Mnemonic::Endbr64 | Mnemonic::Endbr32 => "nop".into(),
            // LLVM's assembler refuses the size suffix of these.
            Mnemonic::Fnstenv | Mnemonic::Fldenv | Mnemonic::Fnsave | Mnemonic::Frstor => {
                in_att_syntax(&instruction).replacen("l ", " ", 1)
            }
            _ => in_att_syntax(&instruction),
        },
    })
}

fn in_att_syntax(instruction: &Instruction) -> String {
    let mut text = String::new();
    let mut formatter = GasFormatter::new();
    formatter.options_mut().set_gas_show_mnemonic_size_suffix(true);
    formatter.options_mut().set_rip_relative_addresses(true);
    formatter.format(instruction, &mut text);
    text
}
/// Store of the return address in a call.
const RETURN_ADDRESS: &str = "movq $0,-8(%rsp)";

/// Conditional jump without a target; `text` is the whole instruction.
fn jump(text: &str) -> String {
    // Prefixes may come first, and a hint may follow after a comma.
    match text.split([' ', ',']).find(|word| word.starts_with('j')) {
        Some(jump) => format!("{jump} 0"),
        // `loop` and related instructions.
        None => "decq %rcx\njne 0".into(),
    }
}

/// Store of a `push`, without the update of the stack pointer.
fn push(instruction: &Instruction, operand: &str) -> String {
    match instruction.op0_kind() {
        OpKind::Register if instruction.op0_register().size() == 8 => {
            format!("movq {operand},-8(%rsp)")
        }
        // x86 has no move from memory to memory.
        OpKind::Memory => format!("movq {operand},%r11\nmovq %r11,-8(%rsp)"),
        // Immediates, and segment registers, which are never pushed.
        _ => RETURN_ADDRESS.into(),
    }
}

/// First instruction of `bytes`, at address `ip`, as decoded by iced-x86.
pub fn decode(bytes: &[u8], ip: u64) -> Option<Instruction> {
    let instruction = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

fn flow_of(instruction: &Instruction) -> Flow {
    let target = instruction.near_branch_target();
    match instruction.flow_control() {
        // `xbegin` jumps only when its transaction aborts.
        FlowControl::Next | FlowControl::XbeginXabortXend => Flow::Next,
        FlowControl::UnconditionalBranch => Flow::Jump { target },
        FlowControl::IndirectBranch => Flow::IndirectJump,
        FlowControl::ConditionalBranch => Flow::Conditional { target },
        FlowControl::Return => Flow::Return,
        FlowControl::Call if instruction.is_call_near() => Flow::Call { target },
        FlowControl::Call => Flow::Next, // system and hypervisor calls
        FlowControl::IndirectCall => Flow::IndirectCall,
        FlowControl::Interrupt if instruction.code() == Code::Int_imm8 => Flow::Next,
        FlowControl::Interrupt | FlowControl::Exception => Flow::Trap,
    }
}

fn memory_of(instruction: &Instruction) -> ClassSet {
    FACTORY.with_borrow_mut(|factory| {
        let options = InstructionInfoOptions::NO_REGISTER_USAGE;
        let mut classes = ClassSet::NONE;
        for memory in factory.info_options(instruction, options).used_memory() {
            classes = classes | access(memory.access());
        }
        if HINTS[instruction.mnemonic() as usize] { ClassSet::NONE } else { classes }
    })
}

fn access(access: OpAccess) -> ClassSet {
    match access {
        OpAccess::None | OpAccess::NoMemAccess => ClassSet::NONE,
        OpAccess::Read | OpAccess::CondRead => Class::Load.into(),
        OpAccess::Write | OpAccess::CondWrite => Class::Store.into(),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
            ClassSet::NONE.with(Class::Load).with(Class::Store)
        }
    }
}

/// Class float or int, or none, by mnemonic.
static WORK: LazyLock<Vec<ClassSet>> =
    LazyLock::new(|| Mnemonic::values().map(|m| work_named(&format!("{m:?}"))).collect());

/// Whether an instruction only hints at a memory operand and does not access it, by mnemonic.
static HINTS: LazyLock<Vec<bool>> = LazyLock::new(|| {
    let hints = ["cldemote", "clflush", "clwb", "prefetch"];
    Mnemonic::values().map(|m| starts(&format!("{m:?}").to_ascii_lowercase(), &hints)).collect()
});

fn work_of(instruction: &Instruction) -> ClassSet {
    // `cmpsd` is the mnemonic of two instructions: a comparison of doubles, and of strings of
    // doublewords.
    if instruction.code() == Code::Cmpsd_m32_m32 {
        return Class::Int.into();
    }
    WORK[instruction.mnemonic() as usize]
}

/// Class of work that a mnemonic names.
///
/// Intel's names are regular enough for rules; tests/x86-mnemonics.txt lists the results.
fn work_named(mnemonic: &str) -> ClassSet {
    let name = mnemonic.to_ascii_lowercase();
    if is_move(&name) {
        ClassSet::NONE
    } else if is_float(&name) {
        Class::Float.into()
    } else if is_int(&name) {
        Class::Int.into()
    } else {
        ClassSet::NONE
    }
}

/// Whether a name begins with one of `prefixes`.
pub fn starts(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn ends(name: &str, suffixes: &[&str]) -> bool {
    suffixes.iter().any(|suffix| name.ends_with(suffix))
}

/// Name without the `v` of the VEX and EVEX encodings.
fn unencoded(name: &str) -> &str {
    name.strip_prefix('v').unwrap_or(name)
}

/// Whether the instruction moves values unchanged, or only widens them.
fn is_move(name: &str) -> bool {
    let base = unencoded(name);
    if starts(base, &["movmsk", "pmovmsk"]) {
        return false;
    }
    let moves = "mov pmov kmov maskmov pmaskmov lddqu broadcast pbroadcast pinsr pextr insertf inserti insertps extractf \
                 extracti extractps gather pgather scatter pscatter loadunpack packstore xchg fxch tileload tilestore umov";
    // x87 loads and stores of floating-point values and constants; fild and fist convert.
    let x87 = "fld fst fstp fld1 fldz fldpi fldl2e fldl2t fldlg2 fldln2 fstpnce";
    moves.split(' ').any(|prefix| base.starts_with(prefix)) || is_one(name, x87)
}

/// Whether the instruction works on floating-point values: its name ends in the type, or begins
/// with `f` (x87).
fn is_float(name: &str) -> bool {
    let base = unencoded(name);
    if starts(base, &["cvt", "bcstne", "fmadd", "fmsub", "fnmadd", "fnmsub"]) {
        return true;
    }
    if name.starts_with('f') {
        return !is_x87_control(name);
    }
    // 3DNow!, and the only permutation that does not end in its type.
    if starts(name, &["pf", "pi2f"]) || base.starts_with("perm2f") {
        return true;
    }
    let typed = ends(base, &["ps", "pd", "ss", "sd", "ph", "sh"]) || base.starts_with("shuff");
    typed && !ends_like_a_type(name)
}

/// Whether a name ends like a floating-point type but means another thing.
fn ends_like_a_type(name: &str) -> bool {
    let others =
        ["ccs_hash", "clflush", "insd", "lodsd", "lss", "outsd", "scasd", "seamops", "stosd"];
    let base = unencoded(name);
    let integers = base.starts_with('p') && !base.starts_with("perm");
    let tiles = name.starts_with("tdp") && !name.ends_with("ps");
    let shadow_stack = starts(name, &["incss", "rdss", "wrss", "wruss"]);
    integers || tiles || shadow_stack || others.contains(&name)
}

/// Whether an instruction in `f...` sets up the x87 unit or saves its state.
fn is_x87_control(name: &str) -> bool {
    is_one(
        name,
        "fclex fnclex fdecstp fincstp fdisi fndisi feni fneni femms ffree ffreep finit fninit fldcw fstcw fnstcw fldenv \
         fstenv fnstenv fsave fnsave frstor fstsw fnstsw fstdw fnstdw fstsg fnstsg fnop fsetpm fnsetpm frstpm fxsave \
         fxsave64 fxrstor fxrstor64",
    )
}

fn is_int(name: &str) -> bool {
    let base = unencoded(name);
    let scalar = "aaa aad aadd aam aand aas adc adcx add adox and andn aor axor bextr bsf bsr bswap bt btc btr bts bzhi \
                  crc32 daa das dec div idiv imul inc lea lzcnt mul mulx neg not or pdep pext popcnt rcl rcr rol ror \
                  rorx salc sal sar sarx sbb shl shld shlx shr shrd shrx sub test tzcnt tzcnti tzmsk t1mskc xadd xor";
    // String comparisons read and compare; other string instructions only move.
    let families = ["cmov", "cmp", "scas", "blc", "bls"];
    // Without `setssbsy`, which concerns the shadow stack. `sets` is listed apart.
    let set_flag = ["seta", "setb", "sete", "setg", "setl", "setn", "seto", "setp"];
    let vector = [
        "aes", "sha", "gf2p8", "mpsadbw", "align", "dbpsadbw", "extrq", "insertq", "sm3", "sm4",
        "shufi", "tdp", "pclmul",
    ];
    is_one(name, scalar)
        || name == "sets"
        || starts(name, &families)
        || starts(name, &set_flag)
        || starts(base, &vector)
        || (name.starts_with('k') && !name.starts_with("kmov"))
        || is_packed_int(base)
}

/// Whether a vector instruction works on integers: `p...`, without the general instructions in
/// `p...`.
fn is_packed_int(base: &str) -> bool {
    let general = "pause pbndkb pcommit pconfig pop popa popad popf popfd popfq psmash ptwrite push pusha pushad pushf \
                   pushfd pushfq pvalidate";
    base.starts_with('p') && !is_one(base, general) && !base.starts_with("prefetch")
}

/// Whether the space-separated list `names` contains `name`.
fn is_one(name: &str, names: &str) -> bool {
    names.split(' ').any(|one| one == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect_file;

    /// Every mnemonic under the kind of work that its name says.
    #[test]
    fn mnemonics() {
        let mut text = String::new();
        for (title, set) in [
            ("float", ClassSet::from(Class::Float)),
            ("int", Class::Int.into()),
            ("neither", ClassSet::NONE),
        ] {
            text += &format!("{title}:\n");
            for mnemonic in Mnemonic::values().filter(|m| WORK[*m as usize] == set) {
                text += &format!("    {mnemonic:?}\n");
            }
        }
        expect_file!["../tests/x86-mnemonics.txt"].assert_eq(&text);
    }
}
