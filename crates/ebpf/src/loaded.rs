//! The program, loaded by libbpf.

use crate::{EbpfError, Follow, Lost, PairCounts, ROOM, State, TaskTimes};
use libbpf_rs::{
    ErrorKind, Link, Map, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBuffer,
    RingBufferBuilder,
};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};

/// Pairs that are read with one system call.
const AT_ONCE: u32 = 1_024;

impl From<libbpf_rs::Error> for EbpfError {
    fn from(why: libbpf_rs::Error) -> Self {
        match why.kind() {
            ErrorKind::PermissionDenied => Self::Denied,
            _ => Self::Refused(why.to_string()),
        }
    }
}

/// The loaded program.
pub struct Watch {
    /// Reports of phases that have ended, and the map that they are in.
    ended: RingBuffer<'static>,
    reports: MapHandle,
    /// Reports of threads whose times have changed, and what came of them.
    changed: RingBuffer<'static>,
    changes: Receiver<u32>,
    /// How often times were read.
    readings: AtomicU32,
    object: Object,
    /// They hold it where creations and ends of threads are seen.
    _lives: Vec<Link>,
    /// And where wake-ups and switches are; empty while these are not followed.
    events: Vec<Link>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("object", &self.object).finish_non_exhaustive()
    }
}

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/watch.bpf.o"));

impl Watch {
    /// Loads the program to follow this. No thread is watched yet.
    ///
    /// # Errors
    /// If the kernel does not take it, or this build has none.
    pub fn start(follow: Follow) -> Result<Self, EbpfError> {
        Self::with_room(follow, ROOM)
    }

    /// The same with room for so many threads, and as many pairs of them.
    ///
    /// # Errors
    /// As [`Watch::start`].
    pub fn with_room(follow: Follow, room: u32) -> Result<Self, EbpfError> {
        // Errors are returned; libbpf would print them as well.
        libbpf_rs::set_print(None);
        let namespace = namespace();
        let mut open = ObjectBuilder::default().open_memory(PROGRAM)?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            match name.as_str() {
                "tasks" => map.set_max_entries(room)?,
                "numbers" => map.set_max_entries(if namespace > 0 { room } else { 1 })?,
                "pairs" => map.set_max_entries(if follow.pairs { room } else { 1 })?,
                // In the order of their declaration.
                constants if constants.ends_with(".rodata") => {
                    let wanted = [follow.pairs, follow.phases].map(u8::from);
                    let [a, b, c, d] = namespace.to_ne_bytes();
                    map.set_initial_value(&[a, b, c, d, wanted[0], wanted[1]])?;
                }
                _ => {}
            }
        }
        let object = open.load()?;
        let lives = attach(&object, |name| !EVENTS.contains(&name))?;
        let reports = MapHandle::try_from(&map(&object, "ended"))?;
        let mut ended = RingBufferBuilder::new();
        ended.add(&reports, |_| 0)?;
        let ended = ended.build()?;
        let (sender, changes) = mpsc::channel();
        let mut changed = RingBufferBuilder::new();
        let reported = map(&object, "changed");
        changed.add(&reported, move |tid| {
            // The receiver lives as long as this.
            let _ = sender.send(u32::from_ne_bytes(bytes(tid, 0)));
            0
        })?;
        let changed = changed.build()?;
        let readings = AtomicU32::new(0);
        let (_lives, events) = (lives, Vec::new());
        let mut watch = Self { ended, reports, changed, changes, readings, object, _lives, events };
        watch.follow(0, u64::MAX)?;
        Ok(watch)
    }

    /// From now on follows wake-ups and switches from one time on and until another one, `CLOCK_MONOTONIC`, in nanoseconds. As it
    /// is loaded it follows all.
    ///
    /// # Errors
    /// If the kernel does not take it.
    pub fn follow(&mut self, from: u64, until: u64) -> Result<(), EbpfError> {
        let window = [from, until].map(u64::to_ne_bytes).concat();
        let windows = map(&self.object, "windows");
        windows.update(&0_u32.to_ne_bytes(), &window, MapFlags::ANY)?;
        if self.events.is_empty() {
            self.events = attach(&self.object, |name| EVENTS.contains(&name))?;
        }
        Ok(())
    }

    /// Follows neither wake-ups nor switches until [`Watch::follow`] is called: they cost nothing then.
    pub fn detach(&mut self) {
        self.events.clear();
    }

    /// Watches a thread of a job, and all that it creates from now on. More than 1,024 jobs have no phases.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn add(&self, tid: u32, job: u32) -> Result<(), EbpfError> {
        let tasks = map(&self.object, "tasks");
        let mut task = vec![0; usize::try_from(tasks.value_size()).unwrap_or(0)];
        if let Some(place) = task.get_mut(JOB_AT..JOB_AT + 4) {
            place.copy_from_slice(&job.to_ne_bytes());
        }
        Ok(tasks.update(&tid.to_ne_bytes(), &task, MapFlags::ANY)?)
    }

    /// Threads that have been woken, or have got or left a PU, since this was last called. Where they are very many some are
    /// left out until they change again.
    ///
    /// # Errors
    /// If the kernel does not give them.
    pub fn changed(&self) -> Result<Vec<u32>, EbpfError> {
        let reading = self.readings.fetch_add(1, Ordering::Relaxed) + 1;
        let readings = map(&self.object, "readings");
        readings.update(&0_u32.to_ne_bytes(), &reading.to_ne_bytes(), MapFlags::ANY)?;
        self.changed.consume()?;
        Ok(self.changes.try_iter().collect())
    }

    /// What a watched thread has done so far; `None` if it has ended, or has not changed since it is watched.
    ///
    /// # Errors
    /// If the kernel does not give it.
    pub fn times(&self, tid: u32) -> Result<Option<TaskTimes>, EbpfError> {
        let tasks = map(&self.object, "tasks");
        let Some(task) = tasks.lookup(&tid.to_ne_bytes(), MapFlags::ANY)? else { return Ok(None) };
        let [since, woken, ran_ns, waited_ns] =
            [0, 8, 40, 48].map(|at| u64::from_ne_bytes(bytes(&task, at)));
        let state = match u32::from_ne_bytes(bytes(&task, 16)) {
            2 => State::Runs { since },
            1 => State::Waits { since },
            _ if woken > since => State::Waits { since: woken },
            _ => State::Sleeps,
        };
        Ok((since > 0).then_some(TaskTimes { ran_ns, waited_ns, state }))
    }

    /// Becomes readable when a phase of a job ends that has lasted for 20 ms.
    pub fn phase_ends(&self) -> BorrowedFd<'_> {
        self.reports.as_fd()
    }

    /// Whether one has ended since this was last called.
    pub fn take_phase_ends(&self) -> bool {
        self.ended.consume_raw() > 0
    }

    /// Takes out what came together since this was last called.
    ///
    /// # Errors
    /// If the kernel does not give it.
    pub fn take(&self) -> Result<Vec<PairCounts>, EbpfError> {
        let pairs = map(&self.object, "pairs");
        let mut taken = Vec::new();
        let batches = pairs.lookup_and_delete_batch(AT_ONCE, MapFlags::ANY, MapFlags::ANY)?;
        for (pair, counts) in batches {
            let [waker, wakee] = [0, 4].map(|at| u32::from_ne_bytes(bytes(&pair, at)));
            let [count, same_pu, waited_ns, both_ran_ns] =
                [0, 8, 16, 24].map(|at| u64::from_ne_bytes(bytes(&counts, at)));
            taken.push(PairCounts { waker, wakee, count, same_pu, waited_ns, both_ran_ns });
        }
        Ok(taken)
    }

    /// Processes without a watched thread that have woken watched ones, and how often so far.
    ///
    /// # Errors
    /// If the kernel does not give them.
    pub fn outside(&self) -> Result<Vec<(u32, u64)>, EbpfError> {
        let outside = map(&self.object, "outside");
        let mut found = Vec::new();
        for pid in outside.keys() {
            let count = outside.lookup(&pid, MapFlags::ANY)?.unwrap_or_default();
            found.push((u32::from_ne_bytes(bytes(&pid, 0)), u64::from_ne_bytes(bytes(&count, 0))));
        }
        Ok(found)
    }

    /// What found no room so far.
    ///
    /// # Errors
    /// If the kernel does not give it.
    pub fn lost(&self) -> Result<Lost, EbpfError> {
        let variables =
            self.object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss"));
        let value =
            variables.map(|map| map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)).transpose()?;
        let value = value.flatten().unwrap_or_default();
        let [tasks, wake_ups] = [0, 8].map(|at| u64::from_ne_bytes(bytes(&value, at)));
        Ok(Lost { tasks, wake_ups })
    }
}

/// The inode number of this process's PID namespace; 0 if it is the first one, or there are none.
fn namespace() -> u32 {
    /// Of the first one: `PROC_PID_INIT_INO` of include/linux/proc_ns.h.
    const FIRST: u32 = 0xEFFF_FFFC;
    let inode = std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
    u32::try_from(inode).ok().filter(|inode| *inode != FIRST).unwrap_or(0)
}

/// What is called for each wake-up and each switch.
const EVENTS: [&str; 2] = ["on_waking", "on_switch"];

/// Attaches the programs with these names.
fn attach(object: &Object, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Link>, EbpfError> {
    let wanted =
        object.progs_mut().filter(|program| program.name().to_str().is_some_and(&is_wanted));
    Ok(wanted.map(|program| program.attach()).collect::<Result<_, _>>()?)
}

/// Where `struct task` has the job.
const JOB_AT: usize = 32;

fn map<'o>(object: &'o Object, name: &str) -> Map<'o> {
    object.maps().find(|map| map.name() == name).expect("the program has it")
}

/// The bytes of a number; zeros where there are too few.
fn bytes<const N: usize>(of: &[u8], at: usize) -> [u8; N] {
    of.get(at..at + N).and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}
