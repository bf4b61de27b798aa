//! Instrumentation of a translated block, and the callbacks of blocks.

use crate::STATE;
use crate::accesses;
use crate::api::{self, Counter, GArray, Id, Insn, TranslationBlock};
use crate::branches;
use crate::life::keep_counts;
use crate::slots::{BlockTally, KINDS, with_instruction};
use crate::stretches::STRIKES;
use crate::sys;
use crate::traces;
use colocate_isa::counts::{CodeBlock, Unsupported};
use colocate_isa::{Decoded, Isa, classify, is_repeated_string, needs_beyond_avx2};
use std::ffi::{CStr, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Counters of all threads; set once, before any translation.
pub static BOARD: AtomicPtr<api::Board> = AtomicPtr::new(std::ptr::null_mut());
/// Handle of the flags register; null until [`find_flags`] has found it.
static FLAGS: AtomicPtr<api::Register> = AtomicPtr::new(std::ptr::null_mut());
/// Clocks of all CPUs for stretches; null if no stretches are recorded.
pub static CLOCKS: AtomicPtr<api::Board> = AtomicPtr::new(std::ptr::null_mut());
/// Emulated instruction set, as an index into [`ISAS`].
pub static ISA: AtomicUsize = AtomicUsize::new(0);
/// Supported instruction sets.
pub const ISAS: [Isa; 2] = [Isa::X86_64, Isa::Aarch64];

/// Resume flag of EFLAGS, set during a repeated string instruction.
const RESUME: u32 = 1 << 16;

/// The counter of a slot.
fn counter(slot: usize) -> Counter {
    Counter { board: BOARD.load(Ordering::Relaxed), offset: slot * size_of::<u64>() }
}

/// Decodes a block after its translation, and adds counting to the block.
pub extern "C" fn on_translated(_id: Id, block: *mut TranslationBlock) {
    let isa = ISAS[ISA.load(Ordering::Relaxed)];
    let mut tally: BlockTally = [0; KINDS];
    let mut repeats = false;
    let mut instructions = Vec::new();
    let mut start = 0;
    let mut last = None;
    // SAFETY: the block is live, and has the stated number of instructions.
    unsafe {
        for place in 0..api::qemu_plugin_tb_n_insns(block) {
            let insn = api::qemu_plugin_tb_get_insn(block, place);
            // The longest x86 instruction has 15 bytes.
            let mut bytes = [0_u8; 15];
            let len = api::qemu_plugin_insn_data(insn, bytes.as_mut_ptr().cast(), bytes.len());
            let address = api::qemu_plugin_insn_vaddr(insn);
            let code = &bytes[..len.min(bytes.len())];
            let found = classify(isa, code, address);
            if place == 0 {
                start = address;
            }
            last = found;
            if !CLOCKS.load(Ordering::Relaxed).is_null() {
                instructions.push((address, code.to_vec()));
            }
            tally = with_instruction(tally, found.map(|found| found.classes));
            accesses::watch(insn);
            traces::watch(insn);
            repeats |= place == 0 && isa == Isa::X86_64 && is_repeated_string(code);
            if isa == Isa::X86_64 {
                watch_if_unsupported(insn, address, code, found);
            }
        }
    }
    add_counting(block, tally, repeats);
    if let Some(last) = last {
        branches::watch(block, start, last.ip, last.len, last.flow);
    }
    if let Some((address, _)) = instructions.first() {
        let address = *address;
        let instructions = instructions.into_iter().map(|(_, bytes)| bytes).collect();
        add_clock(block, CodeBlock { address, instructions });
    }
}

/// Clock of each CPU, in instructions.
fn clock() -> Counter {
    Counter { board: CLOCKS.load(Ordering::Relaxed), offset: 0 }
}

/// Adds the block's instructions to the clock, and a callback that runs during a stretch.
fn add_clock(block: *mut TranslationBlock, code: CodeBlock) {
    let count = code.instructions.len() as u64;
    let place = STATE.lock().as_mut().and_then(|state| Some(state.stretches.as_mut()?.block(code)));
    let Some(place) = place else { return };
    let word = std::ptr::without_provenance_mut(place);
    // SAFETY: the block is live and each CPU has a clock; the callback takes the word as a number.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
            block,
            api::INLINE_ADD,
            clock(),
            count,
        );
        api::qemu_plugin_register_vcpu_tb_exec_cond_cb(
            block,
            on_struck,
            api::NO_REGS,
            api::AT_LEAST,
            clock(),
            STRIKES,
            word,
        );
    }
}

/// Adds a block to the stretch under way; called before the block runs.
extern "C" fn on_struck(cpu: c_uint, place: *mut c_void) {
    let wound_up = STATE.lock().as_mut().and_then(|state| {
        let tid = sys::tid();
        state.stretches.as_mut()?.note(cpu, tid, place.addr())
    });
    // Without the lock of `STATE`: QEMU's plugin lock has to come first.
    if let Some(value) = wound_up {
        // SAFETY: the CPU is the running CPU.
        unsafe { api::qemu_plugin_u64_set(clock(), cpu, value) };
        keep_counts();
    }
}

/// Sets the clock of a CPU that begins. Its number may be that of an ended CPU.
pub fn wind_clock(cpu: c_uint) {
    let value = STATE.lock().as_mut().and_then(|state| {
        let stretches = state.stretches.as_mut()?;
        stretches.drop_open(cpu);
        Some(stretches.wound_up())
    });
    if let Some(value) = value {
        // SAFETY: the CPU exists and runs no code yet.
        unsafe { api::qemu_plugin_u64_set(clock(), cpu, value) };
    }
}

/// Adds the counter additions of a tally to a block. `repeats`: the block begins with a repeated
/// string instruction.
fn add_counting(block: *mut TranslationBlock, tally: BlockTally, repeats: bool) {
    let Some(additions) = STATE.lock().as_mut().map(|state| state.slots.additions(tally)) else {
        return;
    };
    // A block of several additions is counted at each entry: the callback has room for one slot.
    if let ([one], true) = (&additions[..], repeats) {
        let word = std::ptr::without_provenance_mut(one.slot);
        // SAFETY: the block is live; the callback takes the word as a number.
        unsafe {
            api::qemu_plugin_register_vcpu_tb_exec_cb(block, on_repeated, api::READS_REGS, word);
        }
        return;
    }
    for addition in additions {
        // SAFETY: the block is live and the counter lies on the board.
        unsafe {
            api::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
                block,
                api::INLINE_ADD,
                counter(addition.slot),
                addition.amount,
            );
        }
    }
}

/// Counts a block with a repeated string instruction, unless the instruction is resumed.
extern "C" fn on_repeated(cpu: c_uint, slot: *mut c_void) {
    // Without the register every entry counts.
    if read_flags().is_none_or(|flags| flags & RESUME == 0) {
        // SAFETY: the board has the slot, and the CPU is the running CPU.
        unsafe { api::qemu_plugin_u64_add(counter(slot.addr()), cpu, 1) };
    }
}

/// Flags register of the running CPU; `None` if QEMU does not offer the register.
fn read_flags() -> Option<u32> {
    let register = FLAGS.load(Ordering::Relaxed);
    if register.is_null() {
        return None;
    }
    let read = with_bytes(|bytes| {
        // SAFETY: the register is one of the running CPU.
        unsafe { api::qemu_plugin_read_register(register, bytes) > 0 }
    })?;
    Some(u32::from_le_bytes(*read.first_chunk()?))
}

/// Finds the flags register. Must run on a virtual CPU's thread.
pub fn find_flags() {
    // SAFETY: the array's elements are register descriptions with terminated names. QEMU keeps the
    // names and handles; the caller frees the array.
    unsafe {
        let list = api::qemu_plugin_get_registers();
        let found = std::slice::from_raw_parts(
            (*list).data.cast::<api::RegisterInfo>(),
            (*list).len as usize,
        );
        let flags = found.iter().find(|register| {
            !register.name.is_null() && CStr::from_ptr(register.name) == c"eflags"
        });
        if let Some(flags) = flags {
            FLAGS.store(flags.handle, Ordering::Relaxed);
        }
        // 1: with its elements.
        api::g_array_free(list, 1);
    }
}

/// Bytes of a new array filled by `fill`; `None` if `fill` returns false.
fn with_bytes(fill: impl FnOnce(*mut GArray) -> bool) -> Option<Vec<u8>> {
    // SAFETY: GLib's array holds `len` bytes at `data`; it is freed after they are copied.
    unsafe {
        let array = api::g_byte_array_new();
        let bytes = fill(array)
            .then(|| std::slice::from_raw_parts((*array).data, (*array).len as usize).to_vec());
        // 1: with its bytes.
        api::g_byte_array_free(array, 1);
        bytes
    }
}

/// `len` bytes of the program's memory; `None` if any byte cannot be read.
pub fn read_memory(address: u64, len: usize) -> Option<Vec<u8>> {
    // SAFETY: called on a virtual CPU's thread; QEMU checks the address.
    with_bytes(|bytes| unsafe { api::qemu_plugin_read_memory_vaddr(address, bytes, len) })
}

/// Adds a callback to an instruction that QEMU lacks.
fn watch_if_unsupported(insn: *mut Insn, address: u64, code: &[u8], found: Option<Decoded>) {
    // QEMU's decoder stops at the first unknown byte, so `code` may be incomplete. The program's
    // memory may end before 15 bytes.
    let read = match found {
        None => (1..=15).rev().find_map(|len| read_memory(address, len)),
        Some(_) => None,
    };
    if !needs_beyond_avx2(read.as_deref().unwrap_or(code)) {
        return;
    }
    let mut bytes = read.unwrap_or_else(|| code.to_vec());
    if let Some(whole) = classify(Isa::X86_64, &bytes, address) {
        bytes.truncate(usize::from(whole.len));
    }
    let Some(place) = STATE.lock().as_mut().map(|state| {
        state.unsupported.push((Unsupported { address, bytes }, false));
        state.unsupported.len() - 1
    }) else {
        return;
    };
    let word = std::ptr::without_provenance_mut(place);
    // SAFETY: the instruction is live; the callback takes the word as a number.
    unsafe {
        api::qemu_plugin_register_vcpu_insn_exec_cb(insn, on_unsupported, api::NO_REGS, word);
    }
}

extern "C" fn on_unsupported(_cpu: c_uint, place: *mut c_void) {
    let mut guard = STATE.lock();
    if let Some(found) = guard.as_mut().and_then(|state| state.unsupported.get_mut(place.addr())) {
        found.1 = true;
    }
}
