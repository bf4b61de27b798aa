//! Memory accesses of the program, counted by distance if enabled.

use crate::api::{self, Insn};
use crate::distances::Distances;
use crate::per_cpu::PerCpu;
use crate::recency::CacheLine;
use crate::snapshot::LINE_BYTES;
use std::ffi::{c_uint, c_void};
use std::ptr::{null_mut, without_provenance_mut};

/// Largest access of QEMU, in bytes.
const LONGEST: u64 = 16;

/// Distances between the accesses of each thread.
pub static DISTANCES: PerCpu<Distances> = PerCpu::new();

/// Adds callbacks for the reads and writes of `insn`, an instruction under translation.
pub fn watch(insn: *mut Insn) {
    if !DISTANCES.is_enabled() {
        return;
    }
    // The callback's word distinguishes writes, 1, from reads, null.
    let written = without_provenance_mut(1);
    let none = api::NO_REGS;
    // SAFETY: the instruction is live; the callback takes the word as a number.
    unsafe {
        api::qemu_plugin_register_vcpu_mem_cb(insn, on_access, none, api::READS, null_mut());
        api::qemu_plugin_register_vcpu_mem_cb(insn, on_access, none, api::WRITES, written);
    }
}

extern "C" fn on_access(cpu: c_uint, access: u32, address: u64, written: *mut c_void) {
    // SAFETY: called by the thread that runs on this CPU.
    let Some(distances) = (unsafe { DISTANCES.own(cpu) }) else { return };
    let written = !written.is_null();
    let line = address / LINE_BYTES;
    distances.access(CacheLine::new(line, written));
    // Only an access near the end of a line can reach the next; the size costs a call.
    if address % LINE_BYTES > LINE_BYTES - LONGEST {
        // SAFETY: `access` is an argument of this callback.
        let size = 1 << unsafe { api::qemu_plugin_mem_size_shift(access) };
        let last = address.wrapping_add(size - 1) / LINE_BYTES;
        if last != line {
            distances.access(CacheLine::new(last, written));
        }
    }
}
