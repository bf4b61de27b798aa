//! Declarations of the used parts of QEMU's plugin interface, version 4.
//!
//! Written anew after `qemu-plugin.h` of QEMU 10.0.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Version of the interface; QEMU reads this symbol.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 4;

/// QEMU's handle of the plugin.
pub type Id = u64;
/// A block under translation.
#[repr(C)]
pub struct TranslationBlock {
    opaque: [u8; 0],
}
/// An instruction under translation.
#[repr(C)]
pub struct Insn {
    opaque: [u8; 0],
}
/// Counters of every virtual CPU.
#[repr(C)]
pub struct Board {
    opaque: [u8; 0],
}
/// A register of the emulated CPU.
#[repr(C)]
pub struct Register {
    opaque: [u8; 0],
}

/// A 64-bit counter at `offset` in each virtual CPU's part of `board`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Counter {
    /// Board with the counter.
    pub board: *mut Board,
    /// Offset in each CPU's part, in bytes.
    pub offset: usize,
}

/// QEMU's description of itself. Further fields are not used.
#[repr(C)]
pub struct Info {
    /// Emulated architecture, such as `x86_64`.
    pub target_name: *const c_char,
    /// Oldest supported version of the interface.
    pub min_version: c_int,
    /// Newest supported version of the interface.
    pub cur_version: c_int,
    /// True if a whole machine is emulated, false for one process.
    pub system_emulation: bool,
}

/// Description of a register.
#[repr(C)]
pub struct RegisterInfo {
    /// Handle for reads.
    pub handle: *mut Register,
    /// Name in GDB's descriptions.
    pub name: *const c_char,
    /// GDB feature of the register.
    pub feature: *const c_char,
}

/// GLib's growable array; only these fields are public.
#[repr(C)]
pub struct GArray {
    /// Elements.
    pub data: *mut u8,
    /// Number of elements.
    pub len: c_uint,
}

/// Inline operation: addition to a counter (`QEMU_PLUGIN_INLINE_ADD_U64`).
pub const INLINE_ADD: c_int = 0;
/// Condition of a callback: counter at least an operand (`QEMU_PLUGIN_COND_GE`).
pub const AT_LEAST: c_int = 7;
/// Callback that accesses no registers.
pub const NO_REGS: c_int = 0;
/// Callback that reads registers.
pub const READS_REGS: c_int = 1;

/// Read accesses.
pub const READS: c_int = 1;
/// Write accesses.
pub const WRITES: c_int = 2;

/// Callback about a virtual CPU: plugin's handle, CPU.
pub type OnCpu = extern "C" fn(Id, c_uint);
/// Callback of translated code: CPU, user word.
pub type OnExec = extern "C" fn(c_uint, *mut c_void);
/// Callback after a memory access: CPU, handle of the access, address, user word.
pub type OnAccess = extern "C" fn(c_uint, u32, u64, *mut c_void);
/// Callback before a system call: plugin's handle, CPU, number and eight arguments.
pub type OnSyscall = extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
/// Callback after a system call: plugin's handle, CPU, number and result.
pub type OnSyscallRet = extern "C" fn(Id, c_uint, i64, i64);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: Id, call: OnCpu);
    pub fn qemu_plugin_register_vcpu_exit_cb(id: Id, call: OnCpu);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: Id,
        call: extern "C" fn(Id, *mut TranslationBlock),
    );
    pub fn qemu_plugin_register_vcpu_syscall_cb(id: Id, call: OnSyscall);
    pub fn qemu_plugin_register_vcpu_syscall_ret_cb(id: Id, call: OnSyscallRet);
    pub fn qemu_plugin_register_atexit_cb(
        id: Id,
        call: extern "C" fn(Id, *mut c_void),
        word: *mut c_void,
    );
    pub fn qemu_plugin_vcpu_for_each(id: Id, call: OnCpu);

    pub fn qemu_plugin_tb_n_insns(block: *const TranslationBlock) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const TranslationBlock, place: usize) -> *mut Insn;
    pub fn qemu_plugin_insn_data(insn: *const Insn, to: *mut c_void, len: usize) -> usize;
    pub fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;

    pub fn qemu_plugin_scoreboard_new(bytes_per_cpu: usize) -> *mut Board;
    pub fn qemu_plugin_scoreboard_find(board: *mut Board, cpu: c_uint) -> *mut c_void;
    pub fn qemu_plugin_u64_add(counter: Counter, cpu: c_uint, added: u64);
    pub fn qemu_plugin_u64_get(counter: Counter, cpu: c_uint) -> u64;
    pub fn qemu_plugin_u64_set(counter: Counter, cpu: c_uint, value: u64);
    pub fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        block: *mut TranslationBlock,
        operation: c_int,
        counter: Counter,
        operand: u64,
    );
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut TranslationBlock,
        call: OnExec,
        registers: c_int,
        word: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_tb_exec_cond_cb(
        block: *mut TranslationBlock,
        call: OnExec,
        registers: c_int,
        condition: c_int,
        counter: Counter,
        operand: u64,
        word: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
        insn: *mut Insn,
        operation: c_int,
        counter: Counter,
        operand: u64,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        call: OnExec,
        registers: c_int,
        word: *mut c_void,
    );

    pub fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        call: OnAccess,
        registers: c_int,
        which: c_int,
        word: *mut c_void,
    );
    pub fn qemu_plugin_mem_size_shift(access: u32) -> c_uint;

    pub fn qemu_plugin_get_registers() -> *mut GArray;
    pub fn qemu_plugin_read_register(register: *mut Register, to: *mut GArray) -> c_int;
    pub fn qemu_plugin_read_memory_vaddr(address: u64, to: *mut GArray, len: usize) -> bool;

    // GLib, which every QEMU is linked with.
    pub fn g_byte_array_new() -> *mut GArray;
    pub fn g_byte_array_free(array: *mut GArray, free_segment: c_int) -> *mut u8;
    pub fn g_array_free(array: *mut GArray, free_segment: c_int) -> *mut c_char;
}
