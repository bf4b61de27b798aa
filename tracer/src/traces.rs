//! The program's accesses to memory and its threads' synchronisation, if they are recorded.
//!
//! Each thread has a block of records of its own ([`colocate_trace::form`]), which is appended to the one file of all when it is
//! full, at each synchronisation, and at the thread's end. Only the first process is recorded, not those that it forks.

use crate::api::{self, Counter, Insn};
use crate::lock::Lock;
use crate::per_cpu::PerCpu;
use crate::sys;
use colocate_trace::form::{Access, Block, Record, Sync, SyncKind};
use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::path::PathBuf;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The records of each thread.
static RECORDS: PerCpu<Thread> = PerCpu::new();
/// How many instructions each CPU has begun; set once, before anything is translated.
static CLOCKS: AtomicPtr<api::Board> = AtomicPtr::new(null_mut());
/// What threads share. Taken after `STATE`'s lock where both are.
static SHARED: Lock<Shared> = Lock::new(Shared {
    file: None,
    threads: 0,
    numbers: BTreeMap::new(),
    woken: BTreeMap::new(),
    joins: BTreeMap::new(),
});

struct Shared {
    /// Where records are written, as long as that works.
    file: Option<PathBuf>,
    /// Threads so far.
    threads: u32,
    /// By a thread's number in the kernel: its own, while only it or only its creator has reported it.
    numbers: BTreeMap<i32, u32>,
    /// By futex: how often others have woken there.
    woken: BTreeMap<u64, u64>,
    /// By the futex at which the kernel wakes when a thread ends: its number, and whether it has.
    joins: BTreeMap<u64, (i32, bool)>,
}

/// One thread's records that are not written yet.
struct Thread {
    block: Block,
    tid: i32,
    /// Its CPU's clock at its last record.
    at: u64,
    /// The futex of the thread that it is creating, and the one at which it waits.
    creates: u64,
    waits: Option<u64>,
}

/// Records to this file, which has a header.
pub fn enable(file: PathBuf) {
    // SAFETY: allocates; QEMU keeps the board until the process ends.
    CLOCKS.store(unsafe { api::qemu_plugin_scoreboard_new(size_of::<u64>()) }, Ordering::Relaxed);
    SHARED.lock().file = Some(file);
    RECORDS.enable();
}

fn clock() -> Counter {
    Counter { board: CLOCKS.load(Ordering::Relaxed), offset: 0 }
}

/// Has QEMU count `insn`, which is being translated, and report what it reads and writes.
pub fn watch(insn: *mut Insn) {
    if !RECORDS.is_enabled() {
        return;
    }
    let written = without_provenance_mut(1);
    // SAFETY: the instruction is live; the callback takes the word as a number.
    unsafe {
        let counter = clock();
        api::qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, api::INLINE_ADD, counter, 1);
        let (to, registers) = (on_access, api::NO_REGS);
        api::qemu_plugin_register_vcpu_mem_cb(insn, to, registers, api::READS, null_mut());
        api::qemu_plugin_register_vcpu_mem_cb(insn, to, registers, api::WRITES, written);
    }
}

extern "C" fn on_access(cpu: c_uint, access: u32, address: u64, written: *mut c_void) {
    // SAFETY: called by the thread that runs on this CPU.
    let Some(thread) = (unsafe { RECORDS.own(cpu) }) else { return };
    // SAFETY: the CPU is the one that runs; what to ask with is what this callback was given.
    let (now, shift) = unsafe {
        (api::qemu_plugin_u64_get(clock(), cpu), api::qemu_plugin_mem_size_shift(access))
    };
    let instructions = u32::try_from(now.wrapping_sub(thread.at)).unwrap_or(u32::MAX);
    thread.at = now;
    let size_log2 = u8::try_from(shift.min(6)).unwrap_or(6);
    thread.block.push_access(Access {
        address,
        size_log2,
        writes: !written.is_null(),
        instructions,
    });
    if thread.block.is_full() {
        thread.write(&mut SHARED.lock());
    }
}

impl Shared {
    /// A thread's place in the order of creation. Another one begins now and then before it; then its creator has reported it.
    /// `is_awaited`: whether it is reported twice.
    fn number(&mut self, tid: i32, is_awaited: bool) -> u32 {
        if let Some(number) = self.numbers.remove(&tid) {
            return number;
        }
        let number = self.threads;
        self.threads = number.saturating_add(1);
        if is_awaited {
            self.numbers.insert(tid, number);
        }
        number
    }
}

impl Thread {
    fn write(&mut self, shared: &mut Shared) {
        let bytes = self.block.take();
        let written = shared.file.as_ref().is_none_or(|file| sys::append(file, bytes.as_ref()));
        if !written {
            // The trace has no end from here on, which its reader sees.
            shared.file = None;
        }
    }

    /// What it did before is written with it, so that it stands before what others do then.
    fn push(&mut self, shared: &mut Shared, kind: SyncKind, count: u64, object: u64) {
        self.block.push(Record::Sync(Sync { kind, count, object }));
        self.write(shared);
    }
}

const fn object(tid: i32) -> u64 {
    tid.cast_unsigned() as u64
}

/// A thread begins on `cpu`; called in it.
pub fn begin(cpu: c_uint) {
    if !RECORDS.is_enabled() {
        return;
    }
    let (shared, tid) = (&mut *SHARED.lock(), sys::tid());
    let block = Block::new(shared.number(tid, tid != sys::pids().0));
    // SAFETY: the CPU exists; its clock may be that of an ended one.
    let at = unsafe { api::qemu_plugin_u64_get(clock(), cpu) };
    let mut thread = Thread { block, tid, at, creates: 0, waits: None };
    thread.push(shared, SyncKind::Begins, 0, object(tid));
    RECORDS.begin(cpu, || thread);
}

/// The thread on `cpu` is about to end, or has been stopped for ever.
pub fn end(cpu: c_uint) {
    let Some(mut thread) = RECORDS.end(cpu) else { return };
    let (shared, tid) = (&mut *SHARED.lock(), thread.tid);
    thread.push(shared, SyncKind::Ends, 0, object(tid));
    shared.joins.values_mut().filter(|(of, _)| *of == tid).for_each(|(_, ended)| *ended = true);
}

/// The thread on `cpu` is about to create another one, at whose end the kernel wakes at `futex`.
pub fn on_clone(cpu: c_uint, futex: u64) {
    // SAFETY: called by the thread that runs on this CPU.
    let Some(thread) = (unsafe { RECORDS.own(cpu) }) else { return };
    thread.creates = futex;
}

/// It has got it.
pub fn on_created(cpu: c_uint, tid: i32) {
    // SAFETY: called by the thread that runs on this CPU.
    let Some(thread) = (unsafe { RECORDS.own(cpu) }) else { return };
    let shared = &mut *SHARED.lock();
    shared.number(tid, true);
    shared.joins.insert(thread.creates, (tid, false));
    thread.push(shared, SyncKind::Creates, 0, object(tid));
}

/// What a futex call does: `linux/futex.h`, without flags.
const WAITS: [u64; 4] = [0, 6, 9, 11];
const WAKES: [u64; 6] = [1, 3, 4, 5, 7, 10];
const FLAGS: u64 = 128 | 256;

/// The thread on `cpu` is about to call futex.
pub fn on_futex(cpu: c_uint, futex: u64, operation: u64) {
    // SAFETY: called by the thread that runs on this CPU.
    let Some(thread) = (unsafe { RECORDS.own(cpu) }) else { return };
    let (shared, operation) = (&mut *SHARED.lock(), operation & !FLAGS);
    if WAITS.contains(&operation) {
        thread.waits = Some(futex);
        thread.push(shared, SyncKind::Waits, 0, futex);
    } else if WAKES.contains(&operation) {
        *shared.woken.entry(futex).or_default() += 1;
        thread.push(shared, SyncKind::Wakes, 0, futex);
    }
}

/// The call has returned.
pub fn on_futex_returns(cpu: c_uint) {
    // SAFETY: called by the thread that runs on this CPU.
    let Some(thread) = (unsafe { RECORDS.own(cpu) }) else { return };
    let Some(futex) = thread.waits.take() else { return };
    let shared = &mut *SHARED.lock();
    if let Some((tid, true)) = shared.joins.get(&futex).copied() {
        shared.joins.remove(&futex);
        thread.push(shared, SyncKind::Joins, 0, object(tid));
    } else {
        let woken = shared.woken.get(&futex).copied().unwrap_or(0);
        thread.push(shared, SyncKind::Continues, woken, futex);
    }
}

/// Before the process forks: nothing is half done then.
pub fn take() {
    SHARED.take();
}

/// After it has forked, in both processes.
pub fn release() {
    SHARED.release();
}

/// This is a new process, which is not recorded.
pub fn forget() {
    RECORDS.forget();
    SHARED.lock().file = None;
}
