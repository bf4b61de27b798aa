//! What programs tell of their threads' waits, where they were asked to (`crates/preload`).
//!
//! A file in memory without a name, which programs open through this process's `/proc` entry: nothing is inherited,
//! nothing is left behind, and its length is sealed, so that nobody's mistake ends anybody else. Programs may write
//! there what they want. All that can come of it is that fewer of their own threads count as runnable: no thread can be
//! said to have waited in a loop for longer than the kernel says that it could run.

#![allow(unsafe_code)] // mmap, fcntl, clock_gettime

use colocate_machine::Nanos;
use colocate_observe::{SysError, Tid};
use colocate_policy::TaskId;
use colocate_waits::layout::{self, Table, VARIABLE};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

/// How much earlier than its birth a thread may have taken its slot. Chosen: where births are looked for in `/proc`,
/// they are dated some milliseconds late; and thread numbers come round much later than that.
const BORN_LATE: Nanos = Nanos::from_secs(1);

/// The end of the path of what `colocate advise-threads` has programs load (`omp::env::LIBRARY`).
const FIRST: &[u8] = b"/libcolocate_omp.so";

/// The memory in which threads tell of their waits.
#[derive(Debug)]
pub struct Told {
    table: NonNull<Table>,
    file: File,
    both: HashMap<TaskId, Both>,
}

/// What a task has told and what samples of it have said, put together.
#[derive(Clone, Copy, Debug, Default)]
struct Both {
    told: Nanos,
    sampled: Nanos,
    sum: Nanos,
}

impl Both {
    /// Takes in a look. Of the time since the last one the greater counts: a thread does not tell of loops of its own, nor of
    /// OpenMP once it makes tasks, and samples may be denied.
    fn look(&mut self, told: Nanos, sampled: Nanos) -> Nanos {
        let grown = told.saturating_sub(self.told).max(sampled.saturating_sub(self.sampled));
        let sum = self.sum + grown;
        *self = Self { told: told.max(self.told), sampled: sampled.max(self.sampled), sum };
        sum
    }
}

impl Told {
    /// Memory in which nobody has told anything yet. To be made before programs are started.
    ///
    /// # Errors
    /// If memory or descriptors are short, or `/proc` does not say in which namespace of process IDs this process is.
    pub fn new() -> Result<Self, SysError> {
        let length = size_of::<Table>();
        let file = sealed_file(length)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (nowhere, how) = (ptr::null_mut(), libc::MAP_SHARED);
        // SAFETY: a new mapping of our own file, as long as that.
        let at = unsafe { libc::mmap(nowhere, length, protection, how, file.as_raw_fd(), 0) };
        let table = NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED);
        let told = Self {
            table: table.ok_or_else(|| SysError::last("mmap"))?,
            file,
            both: HashMap::new(),
        };
        told.table().head.begin(namespace()?);
        Ok(told)
    }

    fn table(&self) -> &Table {
        // SAFETY: it was mapped as long as it lives, all of it is atomic, and any bytes are a table.
        unsafe { self.table.as_ref() }
    }

    /// What a program's environment has to have beside `environment`, of which it asks for values, so that it loads
    /// `library` and tells. Programs that load others first (`LD_PRELOAD`) still do, after it; but the library of `colocate
    /// advise-threads` comes before it, as that one has to see the program's own calls.
    #[must_use]
    pub fn environment(
        &self,
        library: &Path,
        environment: impl Fn(&OsStr) -> Option<OsString>,
    ) -> [(OsString, OsString); 2] {
        let preload = OsStr::new("LD_PRELOAD");
        let others = environment(preload).filter(|others| !others.is_empty());
        let list = others.map_or_else(|| library.into(), |others| among(library, &others));
        let file = format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd());
        let variable = OsStr::from_bytes(VARIABLE.to_bytes());
        [(preload.to_owned(), list), (variable.to_owned(), file.into())]
    }

    /// Now, on the clock of what is told.
    #[must_use]
    pub fn now() -> Nanos {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place to write to; this clock exists since Linux 2.6.32.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Nanos(seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// For how long a thread that was born at `born` has waited until `now`, asleep or not, by its own word; `None` if
    /// it has told nothing. May go back by a wait that is over.
    #[must_use]
    pub fn waited(&self, tid: Tid, born: Nanos, now: Nanos) -> Option<Nanos> {
        let slot = self.table().slot_of(u32::try_from(tid.0).ok()?)?;
        let taken = Nanos(slot.taken_ns.load(Ordering::Acquire));
        // Who had this number before has left it there; and another time namespace has other times.
        let its_own = taken + BORN_LATE >= born && taken <= now + BORN_LATE;
        its_own.then(|| Nanos(slot.waited(now.0)))
    }

    /// Frees the slot of a thread that has ended at `at`, of a process that was killed.
    pub fn ended(&self, tid: Tid, at: Nanos) {
        let Ok(tid) = u32::try_from(tid.0) else { return };
        let slot = self.table().slot_of(tid);
        if let Some(slot) = slot.filter(|slot| slot.taken_ns.load(Ordering::Acquire) <= at.0) {
            let free = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = slot.tid.compare_exchange(tid, 0, free.0, free.1);
        }
    }

    /// For how long a task has waited in loops, by what it has told and what samples say of it, as far as there is either. To be
    /// asked once a look.
    pub fn with_samples(
        &mut self,
        id: TaskId,
        told: Option<Nanos>,
        sampled: Option<Nanos>,
    ) -> Option<Nanos> {
        let known = told.is_some() || sampled.is_some();
        let both = self.both.entry(id).or_default();
        known.then(|| both.look(told.unwrap_or(both.told), sampled.unwrap_or(both.sampled)))
    }

    /// Forgets all tasks but these.
    pub fn keep(&mut self, tasks: impl ExactSizeIterator<Item = TaskId>) {
        if self.both.len() > tasks.len() {
            let tasks: HashSet<TaskId> = tasks.collect();
            self.both.retain(|id, _| tasks.contains(id));
        }
    }

    /// Programs that have begun to tell so far.
    #[must_use]
    pub fn programs(&self) -> u32 {
        self.table().head.programs.load(Ordering::Relaxed)
    }

    /// Threads that could not tell since all slots were taken.
    #[must_use]
    pub fn without_slot(&self) -> u32 {
        self.table().head.without_slot.load(Ordering::Relaxed)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and nobody has a reference into it any more.
        unsafe { libc::munmap(self.table.as_ptr().cast(), size_of::<Table>()) };
    }
}

/// A file in memory that is so long and stays so.
fn sealed_file(length: usize) -> Result<File, SysError> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a valid string.
    let fd = unsafe { libc::memfd_create(c"colocate waits".as_ptr(), flags) };
    if fd < 0 {
        return Err(SysError::last("memfd_create"));
    }
    // SAFETY: the kernel has just opened `fd` for us and nobody else has it.
    let file = unsafe { File::from_raw_fd(fd) };
    let long = file.set_len(length as u64);
    long.map_err(|source| SysError { call: "ftruncate", source })?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: it takes no pointer.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } < 0 {
        return Err(SysError::last("fcntl(F_ADD_SEALS)"));
    }
    Ok(file)
}

/// The inode number of this process's namespace of process IDs.
fn namespace() -> Result<u64, SysError> {
    let call = "readlink(/proc/self/ns/pid)";
    let found = colocate_files::kernel::link(Path::new("/proc/self/ns/pid"));
    let found = found.map_err(|source| SysError { call, source })?;
    let number = layout::namespace(found.as_os_str().as_bytes());
    number.ok_or_else(|| SysError { call, source: io::ErrorKind::InvalidData.into() })
}

/// Where the library is that programs load, beside our own executable in `beside`: where it is built, and where it
/// is installed.
#[must_use]
pub fn library(beside: &Path) -> Option<PathBuf> {
    let folders = ["", "../lib/colocate", "../release"];
    let all = folders.map(|folder| beside.join(folder).join("libcolocate_waits.so"));
    all.into_iter().find_map(|path| path.canonicalize().ok())
}

/// How long one thread has waited in a loop, from look to look.
///
/// Of what it tells, that in which it slept is none of it, and of its sleep it is not known whether it waited or did
/// something else meanwhile, such as reading a file. It is taken for waiting, as far as it waited at all; so the time in
/// a loop is rather too short.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loops {
    /// At the last look: when that was, for how long it had waited by its own word, and for how long it had been able to
    /// run by the kernel's.
    last: Option<Look>,
    sum: Nanos,
}

/// What is known of a thread at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// When.
    pub at: Nanos,
    /// For how long it has waited so far, as it says.
    pub waited: Nanos,
    /// For how long it has had a PU or waited for one so far, as the kernel says.
    pub wanted: Nanos,
}

impl Loops {
    /// Of a thread that was born then.
    #[must_use]
    pub fn since(born: Nanos) -> Self {
        let last = Look { at: born, waited: Nanos::ZERO, wanted: Nanos::ZERO };
        Self { last: Some(last), sum: Nanos::ZERO }
    }

    /// Takes in a look; returns for how long the thread has waited in a loop so far.
    pub fn look(&mut self, now: Look) -> Nanos {
        if let Some(last) = self.last.replace(now) {
            let since = |now: Nanos, last: Nanos| now.saturating_sub(last);
            let wanted = since(now.wanted, last.wanted);
            let asleep = since(since(now.at, last.at), wanted);
            self.sum += since(since(now.waited, last.waited), asleep).min(wanted);
        }
        self.sum
    }
}

/// `library` before what is loaded anyway, but after that of `colocate advise-threads` if it is among them.
fn among(library: &Path, others: &OsStr) -> OsString {
    let others = others.as_bytes();
    let ends = |place: &usize| matches!(others.get(*place), None | Some(b':' | b' '));
    let names = (1..=others.len()).filter(ends);
    let cut = names.rev().find(|end| others[..*end].ends_with(FIRST));
    let (front, back) = others.split_at(cut.unwrap_or(0));
    let back = back.strip_prefix(b":").or(back.strip_prefix(b" ")).unwrap_or(back);
    let pieces = [front, library.as_os_str().as_bytes(), back];
    let pieces: Vec<&[u8]> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
    OsString::from_vec(pieces.join(&b':'))
}

#[cfg(test)]
mod tests;
