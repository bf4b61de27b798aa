//! The program's accesses to memory, if they are counted.

use crate::api::{self, Insn};
use crate::distances::Distances;
use crate::per_cpu::PerCpu;
use crate::recency::Line;
use crate::snapshot::LINE_BYTES;
use std::ffi::{c_uint, c_void};
use std::ptr::{null_mut, without_provenance_mut};

/// The longest access that QEMU makes at once, in bytes.
const LONGEST: u64 = 16;

/// The distances between accesses of each thread.
pub static DISTANCES: PerCpu<Distances> = PerCpu::new();

/// Has QEMU report what `insn`, which is being translated, reads and writes.
pub fn watch(insn: *mut Insn) {
    if !DISTANCES.is_enabled() {
        return;
    }
    let written = without_provenance_mut(1);
    // SAFETY: the instruction is live; the callback takes the word as a number.
    unsafe {
        let (to, registers) = (on_access, api::NO_REGS);
        api::qemu_plugin_register_vcpu_mem_cb(insn, to, registers, api::READS, null_mut());
        api::qemu_plugin_register_vcpu_mem_cb(insn, to, registers, api::WRITES, written);
    }
}

extern "C" fn on_access(cpu: c_uint, access: u32, address: u64, written: *mut c_void) {
    // SAFETY: called by the thread that runs on this CPU.
    let Some(distances) = (unsafe { DISTANCES.own(cpu) }) else { return };
    let written = !written.is_null();
    let line = address / LINE_BYTES;
    distances.access(Line::new(line, written));
    if address % LINE_BYTES > LINE_BYTES - LONGEST {
        // SAFETY: what to ask with is what this callback was given.
        let size = 1 << unsafe { api::qemu_plugin_mem_size_shift(access) };
        let last = address.wrapping_add(size - 1) / LINE_BYTES;
        if last != line {
            distances.access(Line::new(last, written));
        }
    }
}
