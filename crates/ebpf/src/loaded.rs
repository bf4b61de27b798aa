//! The eBPF program, loaded by libbpf.

use crate::{EbpfError, Follow, Lost, PairCounts, ROOM, SchedulingState, TaskTimes, Turns};
use libbpf_rs::{
    ErrorKind, Link, Map, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBuffer,
    RingBufferBuilder,
};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};

/// Pairs read by one system call.
const AT_ONCE: u32 = 1_024;

impl From<libbpf_rs::Error> for EbpfError {
    fn from(why: libbpf_rs::Error) -> Self {
        match why.kind() {
            ErrorKind::PermissionDenied => Self::Denied,
            _ => Self::Refused(why.to_string()),
        }
    }
}

/// The loaded eBPF program. Dropping the value unloads the program.
pub struct EbpfProgram {
    /// Reports of phases that have ended.
    ended: RingBuffer<'static>,
    /// Map of `ended`; its file descriptor becomes readable.
    reports: MapHandle,
    /// Reports of threads whose times have changed.
    changed: RingBuffer<'static>,
    /// Thread numbers that `changed` has delivered.
    changes: Receiver<u32>,
    /// Number of calls of [`EbpfProgram::changed`]. The kernel reports a thread once a call.
    readings: AtomicU32,
    object: Object,
    /// Links to the tracepoints of creation, exec and end of threads.
    _lives: Vec<Link>,
    /// Links to the tracepoints of wake-ups and switches; empty while detached.
    events: Vec<Link>,
}

impl fmt::Debug for EbpfProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("object", &self.object).finish_non_exhaustive()
    }
}

/// Compiled object file of `watch.bpf.c`.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/watch.bpf.o"));

impl EbpfProgram {
    /// Loads the program and attaches it for `follow`. No thread is watched yet.
    ///
    /// # Errors
    /// [`EbpfError::Denied`] without the privilege, [`EbpfError::Refused`] if the kernel rejects
    /// the program.
    pub fn start(follow: Follow) -> Result<Self, EbpfError> {
        Self::with_room(follow, ROOM)
    }

    /// As [`EbpfProgram::start`], with tables for `room` threads and `room` pairs.
    ///
    /// # Errors
    /// As [`EbpfProgram::start`].
    pub fn with_room(follow: Follow, room: u32) -> Result<Self, EbpfError> {
        // Errors are returned; libbpf would print them as well.
        libbpf_rs::set_print(None);
        let namespace = namespace();
        let mut open = ObjectBuilder::default().open_memory(PROGRAM)?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            match name.as_str() {
                "tasks" => map.set_max_entries(room)?,
                // An unused map still needs one entry.
                "numbers" => map.set_max_entries(if namespace > 0 { room } else { 1 })?,
                "pairs" => map.set_max_entries(if follow.pairs { room } else { 1 })?,
                // The constants lie in the order of their declaration in watch.bpf.c.
                constants if constants.ends_with(".rodata") => {
                    let wanted = [follow.pairs, follow.phases].map(u8::from);
                    let [a, b, c, d] = namespace.to_ne_bytes();
                    map.set_initial_value(&[a, b, c, d, wanted[0], wanted[1]])?;
                }
                _ => {}
            }
        }
        let object = open.load()?;
        let _lives = attach(&object, |name| !EVENTS.contains(&name))?;
        let reports = MapHandle::try_from(&map(&object, "ended"))?;
        let mut ended = RingBufferBuilder::new();
        // Only the existence of a report counts, not its content.
        ended.add(&reports, |_| 0)?;
        let ended = ended.build()?;
        let (sender, changes) = mpsc::channel();
        let mut changed = RingBufferBuilder::new();
        let reported = map(&object, "changed");
        changed.add(&reported, move |tid| {
            // The receiver lives as long as the ring buffer, so the send cannot fail.
            let _ = sender.send(u32::from_ne_bytes(bytes(tid, 0)));
            0
        })?;
        let changed = changed.build()?;
        let mut watch = Self {
            ended,
            reports,
            changed,
            changes,
            readings: AtomicU32::new(0),
            object,
            _lives,
            events: Vec::new(),
        };
        watch.follow(0, u64::MAX)?;
        Ok(watch)
    }

    /// Sets the window in which wake-ups and switches are followed: `CLOCK_MONOTONIC`, in
    /// nanoseconds. A newly loaded program follows all.
    ///
    /// # Errors
    /// If the kernel rejects the window.
    pub fn follow(&mut self, from: u64, until: u64) -> Result<(), EbpfError> {
        let window = [from, until].map(u64::to_ne_bytes).concat();
        let windows = map(&self.object, "windows");
        windows.update(&0_u32.to_ne_bytes(), &window, MapFlags::ANY)?;
        if self.events.is_empty() {
            self.events = attach(&self.object, |name| EVENTS.contains(&name))?;
        }
        Ok(())
    }

    /// Detaches from wake-ups and switches, which then cost nothing, until [`EbpfProgram::follow`]
    /// is called.
    pub fn detach(&mut self) {
        self.events.clear();
    }

    /// Watches thread `tid` of job `job`, and every thread it creates from now on. Jobs from number
    /// 1,024 on have no phases.
    ///
    /// # Errors
    /// If the table of threads is full.
    pub fn add(&self, tid: u32, job: u32) -> Result<(), EbpfError> {
        let tasks = map(&self.object, "tasks");
        let mut task = vec![0; usize::try_from(tasks.value_size()).unwrap_or(0)];
        if let Some(place) = task.get_mut(JOB_AT..JOB_AT + 4) {
            place.copy_from_slice(&job.to_ne_bytes());
        }
        Ok(tasks.update(&tid.to_ne_bytes(), &task, MapFlags::ANY)?)
    }

    /// Threads that were woken, or got or left a PU, since the last call. If the ring buffer
    /// overflows, a thread is missing until its next change.
    ///
    /// # Errors
    /// If the kernel does not return the reports.
    pub fn changed(&self) -> Result<Vec<u32>, EbpfError> {
        // The kernel reports a thread once for each number, so each call has a new one.
        let reading = self.readings.fetch_add(1, Ordering::Relaxed) + 1;
        let readings = map(&self.object, "readings");
        readings.update(&0_u32.to_ne_bytes(), &reading.to_ne_bytes(), MapFlags::ANY)?;
        self.changed.consume()?;
        Ok(self.changes.try_iter().collect())
    }

    /// Times of a watched thread; `None` if the thread has ended, or has not changed since the
    /// watch began.
    ///
    /// # Errors
    /// If the kernel does not return the times.
    pub fn times(&self, tid: u32) -> Result<Option<TaskTimes>, EbpfError> {
        let tasks = map(&self.object, "tasks");
        let Some(task) = tasks.lookup(&tid.to_ne_bytes(), MapFlags::ANY)? else { return Ok(None) };
        // Offsets in `struct task` of types.bpf.h.
        let [since, woken, ran_ns, waited_ns] =
            [0, 8, 40, 48].map(|at| u64::from_ne_bytes(bytes(&task, at)));
        let state = match u32::from_ne_bytes(bytes(&task, 16)) {
            // `enum state` of types.bpf.h: SLEEPS, WAITS, RUNS.
            2 => SchedulingState::Runs { since },
            1 => SchedulingState::Waits { since },
            // The kernel's state stays SLEEPS from the wake-up until the thread gets a PU.
            _ if woken > since => SchedulingState::Waits { since: woken },
            _ => SchedulingState::Sleeps,
        };
        // `since` is 0 until the first change.
        Ok((since > 0).then_some(TaskTimes { ran_ns, waited_ns, state }))
    }

    /// File descriptor that becomes readable at the end of a phase of at least 20 ms.
    pub fn phase_ends(&self) -> BorrowedFd<'_> {
        self.reports.as_fd()
    }

    /// True if a phase has ended since the last call.
    pub fn take_phase_ends(&self) -> bool {
        self.ended.consume_raw() > 0
    }

    /// Reads and clears the sums of all pairs.
    ///
    /// # Errors
    /// If the kernel does not return the sums.
    pub fn take(&self) -> Result<Vec<PairCounts>, EbpfError> {
        let pairs = map(&self.object, "pairs");
        let mut taken = Vec::new();
        let batches = pairs.lookup_and_delete_batch(AT_ONCE, MapFlags::ANY, MapFlags::ANY)?;
        for (pair, counts) in batches {
            let [waker, wakee] = [0, 4].map(|at| u32::from_ne_bytes(bytes(&pair, at)));
            let [count, same_pu, waited_ns, both_ran_ns] =
                [0, 8, 16, 24].map(|at| u64::from_ne_bytes(bytes(&counts, at)));
            let [apart, together] = [32, 40].map(|at| {
                let [count, ns] = [at, at + 16].map(|at| u64::from_ne_bytes(bytes(&counts, at)));
                Turns { count, ns }
            });
            taken.push(PairCounts {
                waker,
                wakee,
                count,
                same_pu,
                waited_ns,
                both_ran_ns,
                apart,
                together,
            });
        }
        Ok(taken)
    }

    /// Processes without a watched thread that have woken watched threads: process number and
    /// number of wake-ups so far.
    ///
    /// # Errors
    /// If the kernel does not return the counts.
    pub fn outside(&self) -> Result<Vec<(u32, u64)>, EbpfError> {
        let outside = map(&self.object, "outside");
        let mut found = Vec::new();
        for pid in outside.keys() {
            // An entry that was removed meanwhile counts 0.
            let count = outside.lookup(&pid, MapFlags::ANY)?.unwrap_or_default();
            found.push((u32::from_ne_bytes(bytes(&pid, 0)), u64::from_ne_bytes(bytes(&count, 0))));
        }
        Ok(found)
    }

    /// Events lost to full tables so far.
    ///
    /// # Errors
    /// If the kernel does not return the counts.
    pub fn lost(&self) -> Result<Lost, EbpfError> {
        // The global `lost` of watch.bpf.c lies in `.bss`.
        let variables =
            self.object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss"));
        let value =
            variables.map(|map| map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)).transpose()?;
        let value = value.flatten().unwrap_or_default();
        let [tasks, wake_ups] = [0, 8].map(|at| u64::from_ne_bytes(bytes(&value, at)));
        Ok(Lost { tasks, wake_ups })
    }
}

/// Inode number of this process's PID namespace; 0 for the first namespace, or a kernel without PID
/// namespaces.
fn namespace() -> u32 {
    /// Inode of the first namespace: `PROC_PID_INIT_INO` of include/linux/proc_ns.h.
    const FIRST: u32 = 0xEFFF_FFFC;
    let inode = std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
    u32::try_from(inode).ok().filter(|inode| *inode != FIRST).unwrap_or(0)
}

/// Programs that run at every wake-up and every switch.
const EVENTS: [&str; 2] = ["on_waking", "on_switch"];

/// Attaches the programs whose names are wanted.
fn attach(object: &Object, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Link>, EbpfError> {
    let wanted =
        object.progs_mut().filter(|program| program.name().to_str().is_some_and(&is_wanted));
    Ok(wanted.map(|program| program.attach()).collect::<Result<_, _>>()?)
}

/// Offset of the job in `struct task` of types.bpf.h, in bytes.
const JOB_AT: usize = 32;

/// The map of the program with this name.
fn map<'o>(object: &'o Object, name: &str) -> Map<'o> {
    object.maps().find(|map| map.name() == name).expect("the program has it")
}

/// The `N` bytes from offset `at`; zeros if the slice is too short.
fn bytes<const N: usize>(of: &[u8], at: usize) -> [u8; N] {
    of.get(at..at + N).and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}
