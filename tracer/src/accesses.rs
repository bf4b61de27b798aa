//! The program's accesses to memory, if somebody asked for them.

use crate::api::{self, Insn};
use crate::distances::Distances;
use crate::recency::Line;
use std::ffi::{c_uint, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Size of a line: that of every x86 and of most other processors.
pub const LINE_BYTES: u64 = 64;
/// The longest access that QEMU makes at once, in bytes.
const LONGEST: u64 = 16;

/// Threads whose accesses are known at the same time; there is nothing on those beyond.
const CPUS: usize = 8192;

static ASKED: AtomicBool = AtomicBool::new(false);
/// What is known of the thread on each virtual CPU. Only that thread uses it, and whoever has stopped it.
static OF: [AtomicPtr<Distances>; CPUS] = [const { AtomicPtr::new(null_mut()) }; CPUS];

/// Accesses are to be looked at. Must be said before anything is translated.
pub fn ask() {
    ASKED.store(true, Ordering::Relaxed);
}

/// Has QEMU say what `insn`, which is being translated, reads and writes.
pub fn watch(insn: *mut Insn) {
    if !ASKED.load(Ordering::Relaxed) {
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
    let Some(of) = OF.get(cpu as usize) else { return };
    // SAFETY: it is null or was made by `begin`, and only this thread uses it while it runs.
    let Some(distances) = (unsafe { of.load(Ordering::Relaxed).as_mut() }) else { return };
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

/// A thread begins on `cpu`.
pub fn begin(cpu: c_uint) {
    if let (true, Some(of)) = (ASKED.load(Ordering::Relaxed), OF.get(cpu as usize)) {
        of.store(Box::into_raw(Box::new(Distances::new())), Ordering::Relaxed);
    }
}

/// The thread on `cpu` has ended, or has been stopped for ever: what is known of it.
pub fn end(cpu: c_uint) -> Option<Box<Distances>> {
    let of = OF.get(cpu as usize)?.swap(null_mut(), Ordering::Relaxed);
    // SAFETY: it was made by `begin`, and is no longer where the thread would find it.
    (!of.is_null()).then(|| unsafe { Box::from_raw(of) })
}

/// This is a new process: what is known is of its parent's threads, which are not here. Nothing is
/// freed, since they may have been changing it when the process was made.
pub fn forget() {
    OF.iter().for_each(|of| of.store(null_mut(), Ordering::Relaxed));
}
