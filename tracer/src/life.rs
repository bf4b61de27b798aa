//! Creation and end of threads, of forked children and of the process.

use crate::STATE;
use crate::accesses::DISTANCES;
use crate::api::{self, Id, Info};
use crate::branches::{BRANCHES, Branches};
use crate::counting::{
    BOARD, CLOCKS, ISA, ISAS, find_flags, on_translated, read_memory, wind_clock,
};
use crate::distances::Distances;
use crate::slots::{SLOTS, Slots};
use crate::snapshot::{self, Snapshot};
use crate::stretches::Stretches;
use crate::sys;
use crate::traces;
use colocate_isa::Isa;
use colocate_isa::counts::{ProcessCounts, ThreadCounts, Unsupported, VERSION};
use std::collections::HashMap;
use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of this process.
pub struct ProcessState {
    /// Assignment of counters to blocks.
    pub slots: Slots,
    /// Translated instructions that QEMU lacks, with true for those that ran.
    pub unsupported: Vec<(Unsupported, bool)>,
    /// Stretches of instructions; `None` if not recorded.
    pub stretches: Option<Stretches>,
    folder: PathBuf,
    file: PathBuf,
    /// Name of the main thread.
    name: Vec<u8>,
    pid: i32,
    parent: i32,
    start_ns: u64,
    /// Position of the next thread in the order of creation.
    next_order: u64,
    /// Created threads that have not ended, by thread ID.
    living: HashMap<i32, Created>,
    /// Thread ID by virtual CPU. QEMU reuses the numbers of ended CPUs.
    on_cpu: HashMap<c_uint, i32>,
    /// Number of threads that began on a virtual CPU before the process ended.
    begun: u64,
    /// True after the records of all threads were ended, at the end of the process.
    ending: bool,
    /// Ended threads with their positions in the order of creation.
    ended: Vec<(u64, ThreadCounts)>,
    /// Time of the request, for CPUs that are creating a thread (CLOCK_MONOTONIC, ns).
    creating: HashMap<c_uint, u64>,
    /// Number of signal handlers that returned.
    handlers: u64,
    /// True if the report was written, or must not be written.
    reported: bool,
}

#[derive(Clone, Copy)]
struct Created {
    order: u64,
    start_ns: u64,
}

/// System call numbers of an architecture; `None` for calls that it lacks.
#[derive(Clone, Copy)]
struct Numbers {
    clone: i64,
    fork: Option<i64>,
    vfork: Option<i64>,
    execve: i64,
    execveat: i64,
    /// True if `child_tid`, the futex that the kernel wakes at a thread's end, is `clone`'s fifth
    /// argument; false for the fourth.
    child_tid_is_fifth: bool,
    rt_sigreturn: i64,
    exit: i64,
    futex: i64,
}

impl Numbers {
    /// Numbers of `asm/unistd_64.h` on x86 and of `asm-generic/unistd.h` on aarch64.
    const fn of(isa: Isa) -> Self {
        match isa {
            Isa::X86_64 => Self {
                clone: 56,
                fork: Some(57),
                vfork: Some(58),
                execve: 59,
                execveat: 322,
                child_tid_is_fifth: false,
                rt_sigreturn: 15,
                exit: 60,
                futex: 202,
            },
            Isa::Aarch64 => Self {
                clone: 220,
                fork: None,
                vfork: None,
                execve: 221,
                execveat: 281,
                child_tid_is_fifth: true,
                rt_sigreturn: 139,
                exit: 93,
                futex: 98,
            },
        }
    }

    /// Numbers of the emulated architecture.
    fn here() -> Self {
        Self::of(ISAS[ISA.load(Ordering::Relaxed)])
    }

    // Without clone3: QEMU fails it with ENOSYS.
    fn makes_task(self, number: i64) -> bool {
        number == self.clone || Some(number) == self.fork || Some(number) == self.vfork
    }

    const fn executes(self, number: i64) -> bool {
        number == self.execve || number == self.execveat
    }
}

impl ProcessState {
    fn new(folder: PathBuf, name: Vec<u8>) -> Self {
        let mut state = Self {
            slots: Slots::default(),
            unsupported: Vec::new(),
            stretches: None,
            folder,
            file: PathBuf::new(),
            name,
            pid: 0,
            parent: 0,
            start_ns: 0,
            next_order: 0,
            living: HashMap::new(),
            on_cpu: HashMap::new(),
            begun: 0,
            ending: false,
            ended: Vec::new(),
            creating: HashMap::new(),
            handlers: 0,
            reported: false,
        };
        state.begin_process();
        state
    }

    /// Starts the records of a process, and creates the empty file that shows its existence.
    fn begin_process(&mut self) {
        (self.pid, self.parent) = sys::pids();
        self.start_ns = sys::now_ns();
        self.file = self.folder.join(format!("counts.{}.{}", self.pid, self.start_ns));
        self.next_order = 0;
        self.living.clear();
        self.on_cpu.clear();
        self.begun = 0;
        self.ending = false;
        self.ended.clear();
        self.creating.clear();
        self.handlers = 0;
        self.reported = false;
        for found in &mut self.unsupported {
            found.1 = false;
        }
        if let Some(stretches) = &mut self.stretches {
            stretches.clear();
        }
        sys::create_empty(&self.file);
    }

    /// Adds thread `tid` unless it is known. The creator and the thread itself both report the
    /// creation, in either order.
    fn add_thread(&mut self, tid: i32) {
        let next = Created { order: self.next_order, start_ns: sys::now_ns() };
        // The entry has the next number only if it was added here.
        if self.living.entry(tid).or_insert(next).order == next.order {
            self.next_order += 1;
        }
    }

    /// Records that thread `tid` begins on `cpu`. A thread that begins while the process ends
    /// executes nothing, and is ignored.
    fn begin_thread(&mut self, cpu: c_uint, tid: i32) {
        if !self.ending {
            self.add_thread(tid);
            self.on_cpu.insert(cpu, tid);
            self.begun += 1;
        }
    }

    /// Records that the thread on `cpu` has created task `tid`.
    fn create(&mut self, cpu: c_uint, tid: i32) {
        let Some(asked_ns) = self.creating.remove(&cpu) else {
            // A process has records of its own, but may end before they begin.
            let noted = sys::create_empty(&self.folder.join(format!("forked.{tid}")));
            // Without the note, a missing child would go unnoticed, so nothing is reported.
            self.reported |= !noted;
            return;
        };
        // A short thread may end before its creation is reported.
        let mut since = self.ended.iter().rev().take_while(|thread| thread.1.end_ns >= asked_ns);
        if !since.any(|(_, thread)| thread.tid == tid && thread.start_ns >= asked_ns) {
            self.add_thread(tid);
        }
    }

    /// Ends the records of the thread on `cpu` with its counters `counts`.
    fn end_thread(&mut self, cpu: c_uint, counts: &mut [u64], name: Vec<u8>) {
        let total = self.slots.total(counts);
        // QEMU gives the counters of an ended CPU to a later thread.
        counts.fill(0);
        let Some(tid) = self.on_cpu.remove(&cpu) else { return };
        let Some(Created { order, start_ns }) = self.living.remove(&tid) else { return };
        let [.., undecoded] = total;
        let counts = snapshot::class_counts(total);
        let misses = DISTANCES.end(cpu).map(|distances| snapshot::misses(distances.counts()));
        let branches = BRANCHES.end(cpu).map(|branches| branches.counts());
        let end_ns = sys::now_ns();
        let thread =
            ThreadCounts { tid, start_ns, end_ns, counts, undecoded, name, misses, branches };
        self.ended.push((order, thread));
    }

    /// Writes the file of counts, once.
    fn report(&mut self, target: &'static str) {
        if std::mem::replace(&mut self.reported, true) {
            return;
        }
        self.ended.sort_by_key(|(order, _)| *order);
        let taken = self.stretches.as_ref().map(Stretches::taken);
        let (blocks, stretches) = taken.unwrap_or_default();
        let ran = self.unsupported.iter().filter(|(_, ran)| *ran);
        let process = ProcessCounts {
            version: VERSION,
            target: target.to_owned(),
            pid: self.pid,
            parent: self.parent,
            start_ns: self.start_ns,
            end_ns: sys::now_ns(),
            threads: self.ended.iter().map(|(_, thread)| thread.clone()).collect(),
            unsupported: ran.map(|(found, _)| found.clone()).collect(),
            blocks,
            stretches,
            handlers: self.handlers,
            begun: self.begun,
        };
        // Every field has a JSON form.
        let text = serde_json::to_string(&process).unwrap_or_default();
        sys::fill(&self.file, &text);
    }

    /// Path of the calling thread's note about the program of its execve.
    fn note_of_execution(&self) -> PathBuf {
        self.folder.join(format!("executes.{}.{}", self.pid, sys::tid()))
    }
}

/// First `used` counters of virtual CPU `cpu`.
///
/// # Safety
/// While the slice lives, the CPU must run no code, and no CPU may begin, since QEMU would move the
/// counters. No CPU begins inside [`api::qemu_plugin_vcpu_for_each`], which holds QEMU's plugin lock.
unsafe fn counters<'a>(cpu: c_uint, used: usize) -> &'a mut [u64] {
    // SAFETY: the board has SLOTS counters for every CPU that ever began.
    unsafe {
        let first = api::qemu_plugin_scoreboard_find(BOARD.load(Ordering::Relaxed), cpu);
        std::slice::from_raw_parts_mut(first.cast(), used.min(SLOTS))
    }
}

/// QEMU's handle of the plugin; set once, before any translation.
static ID: AtomicU64 = AtomicU64::new(0);

/// Keeps the calling thread's counts at the end of a stretch.
pub fn keep_counts() {
    // SAFETY: the function has the type that QEMU calls it with.
    unsafe { api::qemu_plugin_vcpu_for_each(ID.load(Ordering::Relaxed), keep_own_counts) };
}

extern "C" fn keep_own_counts(_id: Id, cpu: c_uint) {
    let mut guard = STATE.lock();
    let Some(state) = guard.as_mut() else { return };
    let tid = sys::tid();
    let (Some(stretches), true) = (&mut state.stretches, state.on_cpu.get(&cpu) == Some(&tid))
    else {
        return;
    };
    // SAFETY: called inside for_each, on the calling thread's own CPU.
    let (counts, distances, branches) =
        unsafe { (counters(cpu, state.slots.used()), DISTANCES.own(cpu), BRANCHES.own(cpu)) };
    let counted = Snapshot {
        total: state.slots.total(counts),
        distances: distances.map(|distances| distances.counts().clone()),
        branches: branches.map(|branches| branches.counts()),
    };
    stretches.counted(tid, counted);
}

/// Installs the plugin; called by QEMU. Returns 0, or 1 for unusable arguments.
///
/// # Safety
/// `info` and the `argc` strings of `argv` must be valid, as in QEMU's interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: see above.
    let (system, target, args) = unsafe {
        // A negative number counts as no argument.
        let count = usize::try_from(argc).unwrap_or(0);
        let args: Vec<&[u8]> =
            (0..count).map(|i| CStr::from_ptr(*argv.add(i)).to_bytes()).collect();
        ((*info).system_emulation, CStr::from_ptr((*info).target_name), args)
    };
    let isa = TARGETS.iter().position(|name| name.as_bytes() == target.to_bytes());
    let (Some(isa), Some(folder), false) = (isa, value(&args, b"out="), system) else { return 1 };
    ISA.store(isa, Ordering::Relaxed);
    ID.store(id, Ordering::Relaxed);
    if value(&args, b"misses=").is_some() {
        DISTANCES.enable();
    }
    if value(&args, b"branches=").is_some() {
        BRANCHES.enable();
    }
    if let Some(file) = value(&args, b"trace=") {
        traces::enable(PathBuf::from(OsString::from_vec(file)));
    }
    let folder = PathBuf::from(OsString::from_vec(folder));
    let mut state = ProcessState::new(folder, value(&args, b"name=").unwrap_or_default());
    state.stretches = stretch_length(&args).map(Stretches::new);
    if state.stretches.is_some() {
        // SAFETY: allocates; QEMU keeps the board until the process ends.
        let clocks = unsafe { api::qemu_plugin_scoreboard_new(size_of::<u64>()) };
        CLOCKS.store(clocks, Ordering::Relaxed);
    }
    *STATE.lock() = Some(state);
    // SAFETY: allocates; QEMU keeps the board until the process ends.
    BOARD.store(
        unsafe { api::qemu_plugin_scoreboard_new(SLOTS * size_of::<u64>()) },
        Ordering::Relaxed,
    );
    sys::at_fork(before_fork, after_fork);
    register(id);
    0
}

/// Bytes of the hexadecimal argument that begins with `key`.
fn value(args: &[&[u8]], key: &[u8]) -> Option<Vec<u8>> {
    args.iter().find_map(|arg| unhex(arg.strip_prefix(key)?))
}

/// Instructions of a stretch, from `stretch=N`; `None` if absent or 0.
fn stretch_length(args: &[&[u8]]) -> Option<usize> {
    let number = args.iter().find_map(|arg| {
        std::str::from_utf8(arg.strip_prefix(b"stretch=")?).ok()?.parse::<usize>().ok()
    });
    number.filter(|length| *length > 0)
}

/// QEMU's names of the instruction sets in [`ISAS`].
const TARGETS: [&str; 2] = ["x86_64", "aarch64"];

fn register(id: Id) {
    // SAFETY: the functions have the types that QEMU calls them with, and are never unloaded.
    unsafe {
        api::qemu_plugin_register_vcpu_init_cb(id, on_cpu_begins);
        api::qemu_plugin_register_vcpu_exit_cb(id, on_cpu_ends);
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
        api::qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
        api::qemu_plugin_register_vcpu_syscall_ret_cb(id, on_syscall_returns);
        api::qemu_plugin_register_atexit_cb(id, on_exit, std::ptr::null_mut());
    }
}

unsafe extern "C" fn before_fork() {
    // In the order of the locks, see `traces`.
    STATE.take();
    traces::take();
}

unsafe extern "C" fn after_fork() {
    traces::release();
    STATE.release();
}

/// Begins a thread; called in the thread, before its first instruction.
extern "C" fn on_cpu_begins(_id: Id, cpu: c_uint) {
    DISTANCES.begin(cpu, Distances::new);
    BRANCHES.begin(cpu, Branches::new);
    traces::begin(cpu);
    // Released before the calls of QEMU below, as QEMU's plugin lock has to come first.
    let first = {
        let mut guard = STATE.lock();
        let Some(state) = guard.as_mut() else { return };
        let tid = sys::tid();
        state.begin_thread(cpu, tid);
        (tid == state.pid).then(|| state.name.clone())
    };
    wind_clock(cpu);
    if let Some(name) = first {
        // Else the name would be QEMU's, and every thread would inherit it.
        if !name.is_empty() {
            sys::set_name(&name);
        }
        find_flags();
    }
}

/// Ends a thread; called in the thread.
extern "C" fn on_cpu_ends(id: Id, _cpu: c_uint) {
    // SAFETY: the function has the type that QEMU calls it with.
    unsafe { api::qemu_plugin_vcpu_for_each(id, harvest_own) };
}

extern "C" fn harvest_own(_id: Id, cpu: c_uint) {
    let mut guard = STATE.lock();
    let Some(state) = guard.as_mut() else { return };
    if state.on_cpu.get(&cpu) == Some(&sys::tid()) {
        // SAFETY: called inside for_each, on the calling thread's own CPU.
        let counts = unsafe { counters(cpu, state.slots.used()) };
        state.end_thread(cpu, counts, sys::own_name());
    }
}

/// Ends the process; called after every thread was stopped and all counting was removed.
///
/// QEMU then reports no further end of a thread. An ending thread first wakes the joining thread,
/// and is then reported and removed from QEMU's list of CPUs. So a thread that ends together with
/// its process may be unreported, and may be in this list or not.
extern "C" fn on_exit(id: Id, _word: *mut c_void) {
    // SAFETY: the function has the type that QEMU calls. The list has at least the caller's CPU.
    unsafe { api::qemu_plugin_vcpu_for_each(id, harvest_all) };
    if let Some(state) = STATE.lock().as_mut() {
        state.report(TARGETS[ISA.load(Ordering::Relaxed)]);
    }
}

/// Called for each CPU in QEMU's list. The first call ends the records of all threads, including
/// threads that are not in the list.
extern "C" fn harvest_all(_id: Id, _cpu: c_uint) {
    let mut guard = STATE.lock();
    let Some(state) = guard.as_mut() else { return };
    state.ending = true;
    // A copy, since `end_thread` removes each entry.
    for (cpu, tid) in state.on_cpu.clone() {
        traces::end(cpu);
        // SAFETY: called inside for_each; no running code and no CPU that begins now counts.
        let counts = unsafe { counters(cpu, state.slots.used()) };
        let name = Some(sys::name_of(tid)).filter(|name| !name.is_empty());
        // The kernel has no name of an ended thread. The main thread's name is the likeliest, since
        // a new thread inherits its creator's.
        state.end_thread(cpu, counts, name.unwrap_or_else(|| state.name.clone()));
    }
}

/// Flag of `clone` for a thread of the same process (`linux/sched.h`). The flags are the first
/// argument on both architectures.
const CLONE_THREAD: u64 = 0x1_0000;

extern "C" fn on_syscall(
    _id: Id,
    cpu: c_uint,
    number: i64,
    first: u64,
    second: u64,
    _: u64,
    fourth: u64,
    fifth: u64,
    _: u64,
    _: u64,
    _: u64,
) {
    let numbers = Numbers::here();
    if number == numbers.futex {
        traces::on_futex(cpu, first, second);
    } else if number == numbers.exit {
        traces::end(cpu);
    } else if number == numbers.rt_sigreturn {
        if let Some(state) = STATE.lock().as_mut() {
            state.handlers += 1;
        }
    } else if number == numbers.clone && first & CLONE_THREAD != 0 {
        if let Some(state) = STATE.lock().as_mut() {
            state.creating.insert(cpu, sys::now_ns());
        }
        traces::on_clone(cpu, if numbers.child_tid_is_fifth { fifth } else { fourth });
    } else if numbers.executes(number) {
        let path = read_string(if number == numbers.execve { first } else { second });
        if let Some(note) = STATE.lock().as_ref().map(ProcessState::note_of_execution) {
            sys::leave_note(&note, &path);
        }
    }
}

/// The terminated string at `address`, truncated to 4,095 bytes, the longest path.
fn read_string(address: u64) -> Vec<u8> {
    const PAGE: u64 = 4096;
    let mut string = Vec::new();
    while string.len() < 4095 {
        let from = address.wrapping_add(string.len() as u64);
        // Up to the end of the page: the next page may be unmapped.
        let Ok(len) = usize::try_from(PAGE - from % PAGE) else { break };
        let Some(bytes) = read_memory(from, len) else { break };
        match bytes.iter().position(|byte| *byte == 0) {
            Some(end) => {
                string.extend_from_slice(&bytes[..end]);
                break;
            }
            None => string.extend_from_slice(&bytes),
        }
    }
    string.truncate(4095);
    string
}

extern "C" fn on_syscall_returns(_id: Id, cpu: c_uint, number: i64, result: i64) {
    let numbers = Numbers::here();
    if numbers.executes(number) {
        // execve returns only if it has failed.
        if let Some(note) = STATE.lock().as_ref().map(ProcessState::note_of_execution) {
            sys::remove_note(&note);
        }
    } else if number == numbers.futex {
        traces::on_futex_returns(cpu);
    } else if numbers.makes_task(number) {
        let mut guard = STATE.lock();
        let Some(state) = guard.as_mut() else { return };
        // Only a forked child has another process ID.
        if sys::pids().0 != state.pid {
            on_forked(state, cpu);
        } else if result < 0 {
            // Else the CPU's next fork would be taken for this failed thread.
            state.creating.remove(&cpu);
        } else if let Ok(tid) = i32::try_from(result) {
            if state.creating.contains_key(&cpu) {
                traces::on_created(cpu, tid);
            }
            state.create(cpu, tid);
        }
    }
}

/// Resets all records in a new process, which has a single thread: earlier counts are the parent's.
fn on_forked(state: &mut ProcessState, cpu: c_uint) {
    let used = state.slots.used();
    for parents in state.on_cpu.keys() {
        // SAFETY: no other thread exists that could move or use the counters.
        unsafe { counters(*parents, used) }.fill(0);
    }
    DISTANCES.forget();
    BRANCHES.forget();
    traces::forget();
    DISTANCES.begin(cpu, Distances::new);
    BRANCHES.begin(cpu, Branches::new);
    state.begin_process();
    state.begin_thread(cpu, sys::tid());
}

/// Bytes of a text of hexadecimal digit pairs.
fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}
