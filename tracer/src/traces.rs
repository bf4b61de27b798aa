//! Trace of the program's memory accesses and of its threads' synchronisation, if enabled.
//!
//! Each thread has a block of records ([`colocate_trace::form`]). The block is appended to the
//! common file when full, at each synchronisation, and at the thread's end. Only the first process
//! is recorded, no forked child.

use crate::api::{self, Counter, Insn};
use crate::lock::Lock;
use crate::per_cpu::PerCpu;
use crate::sys;
use colocate_trace::form::{Access, RecordBlock, Sync, SyncKind, TraceRecord};
use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::path::PathBuf;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Unwritten records of each thread.
static RECORDS: PerCpu<ThreadBuffer> = PerCpu::new();
/// Clocks of all CPUs, in begun instructions; set once, before any translation.
static CLOCKS: AtomicPtr<api::Board> = AtomicPtr::new(null_mut());
/// Data shared by threads. If both locks are taken, `STATE`'s comes first.
static SHARED: Lock<TraceState> = Lock::new(TraceState {
    file: None,
    threads: 0,
    numbers: BTreeMap::new(),
    woken: BTreeMap::new(),
    joins: BTreeMap::new(),
});

struct TraceState {
    /// File of the trace; `None` after a failed write.
    file: Option<PathBuf>,
    /// Number of threads so far.
    threads: u32,
    /// Trace number by thread ID, until both the thread and its creator have reported the thread.
    numbers: BTreeMap<i32, u32>,
    /// Number of wakes by futex address.
    woken: BTreeMap<u64, u64>,
    /// Thread ID, and true after the thread's end, by the futex that the kernel wakes at the end.
    joins: BTreeMap<u64, (i32, bool)>,
}

/// Unwritten records of a thread.
struct ThreadBuffer {
    block: RecordBlock,
    tid: i32,
    /// CPU's clock at the last record.
    at: u64,
    /// `child_tid` futex of the thread under creation.
    creates: u64,
    /// Futex of a wait in progress.
    waits: Option<u64>,
}

/// Enables the trace to `file`, which already has a header.
pub fn enable(file: PathBuf) {
    // SAFETY: allocates; QEMU keeps the board until the process ends.
    CLOCKS.store(unsafe { api::qemu_plugin_scoreboard_new(size_of::<u64>()) }, Ordering::Relaxed);
    SHARED.lock().file = Some(file);
    RECORDS.enable();
}

fn clock() -> Counter {
    Counter { board: CLOCKS.load(Ordering::Relaxed), offset: 0 }
}

/// Adds the clock, and callbacks for reads and writes, to `insn`, an instruction under translation.
pub fn watch(insn: *mut Insn) {
    if !RECORDS.is_enabled() {
        return;
    }
    let written = without_provenance_mut(1);
    // SAFETY: the instruction is live; the callback takes the word as a number.
    unsafe {
        let counter = clock();
        api::qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, api::INLINE_ADD, counter, 1);
        let none = api::NO_REGS;
        api::qemu_plugin_register_vcpu_mem_cb(insn, on_access, none, api::READS, null_mut());
        api::qemu_plugin_register_vcpu_mem_cb(insn, on_access, none, api::WRITES, written);
    }
}

extern "C" fn on_access(cpu: c_uint, access: u32, address: u64, written: *mut c_void) {
    // SAFETY: called by the thread that runs on this CPU.
    let Some(thread) = (unsafe { RECORDS.own(cpu) }) else { return };
    // SAFETY: the CPU is the running CPU, and `access` is an argument of this callback.
    let (now, shift) = unsafe {
        (api::qemu_plugin_u64_get(clock(), cpu), api::qemu_plugin_mem_size_shift(access))
    };
    // Beyond 32 bits the greatest number stands for all.
    let instructions = u32::try_from(now.wrapping_sub(thread.at)).unwrap_or(u32::MAX);
    thread.at = now;
    // The largest access, of a 512-bit vector, has 2^6 bytes.
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

impl TraceState {
    /// Trace number of a thread, its position in the order of reports.
    ///
    /// A thread is reported by its creator and by itself, in either order; `is_awaited` says that a
    /// second report follows. The main thread is reported once.
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

impl ThreadBuffer {
    fn write(&mut self, shared: &mut TraceState) {
        let bytes = self.block.take();
        let written = shared.file.as_ref().is_none_or(|file| sys::append(file, bytes.as_ref()));
        if !written {
            // Without further records the trace lacks its end, which a reader detects.
            shared.file = None;
        }
    }

    /// Adds a synchronisation and writes the block, so that the thread's earlier records precede
    /// those of threads released by the synchronisation.
    fn push(&mut self, shared: &mut TraceState, kind: SyncKind, count: u64, object: u64) {
        self.block.push(TraceRecord::Sync(Sync { kind, count, object }));
        self.write(shared);
    }
}

const fn object(tid: i32) -> u64 {
    tid.cast_unsigned() as u64
}

/// Begins a thread on `cpu`; called in the thread.
pub fn begin(cpu: c_uint) {
    if !RECORDS.is_enabled() {
        return;
    }
    let shared = &mut *SHARED.lock();
    let tid = sys::tid();
    // The main thread has no creator that reports it.
    let block = RecordBlock::new(shared.number(tid, tid != sys::pids().0));
    // SAFETY: the CPU exists. The clock of a reused CPU is not 0.
    let at = unsafe { api::qemu_plugin_u64_get(clock(), cpu) };
    let mut thread = ThreadBuffer { block, tid, at, creates: 0, waits: None };
    thread.push(shared, SyncKind::Begins, 0, object(tid));
    RECORDS.begin(cpu, || thread);
}

/// Ends the records of the thread on `cpu`, which is about to end or is stopped for ever.
pub fn end(cpu: c_uint) {
    let Some(mut thread) = RECORDS.end(cpu) else { return };
    let shared = &mut *SHARED.lock();
    let tid = thread.tid;
    thread.push(shared, SyncKind::Ends, 0, object(tid));
    shared.joins.values_mut().filter(|(of, _)| *of == tid).for_each(|(_, ended)| *ended = true);
}

/// Records that the thread on `cpu` is about to create a thread, whose end wakes `futex`.
pub fn on_clone(cpu: c_uint, futex: u64) {
    // SAFETY: called by the thread that runs on this CPU.
    let Some(thread) = (unsafe { RECORDS.own(cpu) }) else { return };
    thread.creates = futex;
}

/// Records that the thread on `cpu` has created thread `tid`.
pub fn on_created(cpu: c_uint, tid: i32) {
    // SAFETY: called by the thread that runs on this CPU.
    let Some(thread) = (unsafe { RECORDS.own(cpu) }) else { return };
    let shared = &mut *SHARED.lock();
    shared.number(tid, true);
    shared.joins.insert(thread.creates, (tid, false));
    thread.push(shared, SyncKind::Creates, 0, object(tid));
}

/// Futex operations that wait (`linux/futex.h`): `WAIT`, `LOCK_PI`, `WAIT_BITSET` and
/// `WAIT_REQUEUE_PI`.
const WAITS: [u64; 4] = [0, 6, 9, 11];
/// Futex operations that wake: `WAKE`, `REQUEUE`, `CMP_REQUEUE`, `WAKE_OP`, `UNLOCK_PI` and
/// `WAKE_BITSET`.
const WAKES: [u64; 6] = [1, 3, 4, 5, 7, 10];
/// Flags of operations: private, and CLOCK_REALTIME.
const FLAGS: u64 = 128 | 256;

/// Records that the thread on `cpu` is about to call futex.
pub fn on_futex(cpu: c_uint, futex: u64, operation: u64) {
    // SAFETY: called by the thread that runs on this CPU.
    let Some(thread) = (unsafe { RECORDS.own(cpu) }) else { return };
    let shared = &mut *SHARED.lock();
    let operation = operation & !FLAGS;
    if WAITS.contains(&operation) {
        thread.waits = Some(futex);
        thread.push(shared, SyncKind::Waits, 0, futex);
    } else if WAKES.contains(&operation) {
        *shared.woken.entry(futex).or_default() += 1;
        thread.push(shared, SyncKind::Wakes, 0, futex);
    }
}

/// Records that a futex call of the thread on `cpu` has returned.
pub fn on_futex_returns(cpu: c_uint) {
    // SAFETY: called by the thread that runs on this CPU.
    let Some(thread) = (unsafe { RECORDS.own(cpu) }) else { return };
    let Some(futex) = thread.waits.take() else { return };
    let shared = &mut *SHARED.lock();
    if let Some((tid, true)) = shared.joins.get(&futex).copied() {
        shared.joins.remove(&futex);
        thread.push(shared, SyncKind::Joins, 0, object(tid));
    } else {
        // 0: no recorded thread has woken it, as after a timeout.
        let woken = shared.woken.get(&futex).copied().unwrap_or(0);
        thread.push(shared, SyncKind::Continues, woken, futex);
    }
}

/// Takes the lock before a fork, so that the child gets a consistent state.
pub fn take() {
    SHARED.take();
}

/// Releases the lock after a fork, in both processes.
pub fn release() {
    SHARED.release();
}

/// Disables the trace in a forked process.
pub fn forget() {
    RECORDS.forget();
    SHARED.lock().file = None;
}
