//! Undoing what a journal says was done: at colocate's end, by its guardian, and by `colocate restore`.
//!
//! # Problem
//! A thread that was created just before is in no journal, and has inherited its creator's PU and policy. It goes
//! on creating others meanwhile, and may end before it is reached. And a thread whose mask is restored may be in the
//! middle of creating another one: the new thread has the mask of the beginning, and is seen only at the end.
//! # Approach
//! First everything continues. Then rounds over all that may belong to the workload ([`crate::workload`]), until some in a row have
//! found nothing and no thread can be in the middle of creating another one any more. Cgroups are removed last: as long as
//! they are there, what is created in them is found.
//!
//! Where the cpuset hides masks, a new thread with a mask of its creator's looks like any other one, and a program may bind its new
//! threads to a PU that colocate has given as well. Such programs leave something to find for ever. After some rounds that
//! found something, only this counts: each process had a moment at which all of its threads had been restored, and creations
//! that were under way at the round before are over.
//!
//! A thread is given its original mask if it has a mask that it was given, also where its cpuset hides that ([`crate::mask_owner`]), and its
//! policy if it is under SCHED_IDLE.
//! # Terms
//! - *Creating*: what a thread may be doing that had something restored and has hardly run since. A thread of a PU that a
//!   hypervisor stops seems to run: its CPU time counts only from a time on at which every PU has run.

use crate::actuator::{Actuator, ThreadRef};
use crate::affinity::{self, MaskActuator};
use crate::fair::Fair;
use crate::journal::{self, Journal, JournalError};
use crate::owner::Owner;
use crate::pause::freeze::Freeze;
use crate::pause::stop::Stop;
use crate::pause::{How, freezer};
use crate::rundir;
use crate::sched_class::{ClassActuator, Policy};
use crate::workload::{JournalWorkload, nearest};
use colocate_files::{Dir, FileError};
use colocate_linux::clock::now;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::proc::stat::Stat;
use colocate_linux::run_time::RunTime;
use colocate_linux::sys;
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuSet};
use serde::{Serialize, Serializer};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display};
use std::io;
use std::mem::{Discriminant, discriminant};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use thiserror::Error;

pub use crate::workload::Root;

/// Time limit of all rounds after colocate's death. Chosen: with hundreds of processes that create
/// processes, on a machine with a load of 10 to 30, endings took up to 2.4 s, and only `colocate
/// restore` is waited for.
const LIMIT: Nanos = Nanos::from_secs(30);
/// Time limit at colocate's end, for which its user waits. Chosen: with twelve runnable programs
/// per PU, one round took 1.6 s.
const LIMIT_AT_END: Nanos = Nanos::from_secs(5);
/// Number of successive rounds without a find, with [`PAUSE`] between them, that end the search.
/// Chosen: together 50 ms, some slices of the scheduler; with 20 ms, on two PUs with a load of 11,
/// in a seventh of the cases threads were missed.
const QUIET: usize = 10;
/// Maximum number of restarts of the quiet count after a find. Chosen: without ambiguous masks, two
/// or three rounds find something.
const RESTARTS: usize = 10;
/// Maximum number of passes over the threads of a process per round. Chosen: a pass takes some
/// microseconds per thread, so even a process that creates thousands of threads per second has a
/// pass without a new thread.
const PASSES: usize = 50;
/// Time between two rounds, if the first has found nothing.
const PAUSE: Duration = Duration::from_millis(5);
/// CPU time after which the creation of a thread is over. Chosen: twenty times a creation (50 µs in
/// a virtual machine).
const CREATION: Nanos = Nanos::from_millis(1);

/// Completed or, in a dry run, planned restorations of a journal.
#[derive(Debug)]
pub struct Undone {
    /// Processes that were, or may have been, stopped; or the error of continuing a process or
    /// removing a cgroup.
    pub continued: io::Result<Vec<Pid>>,
    /// Threads that were under SCHED_IDLE.
    pub raised: Vec<Restored>,
    /// Threads that were placed.
    pub freed: Vec<Restored>,
    /// Whether the search was complete: the list of processes was readable, and the time limit was
    /// enough.
    pub searched: bool,
}

impl Undone {
    /// Whether nothing is left to undo.
    pub fn is_complete(&self) -> bool {
        let mut all = self.raised.iter().chain(&self.freed);
        all.all(|it| it.trouble.is_none()) && self.continued.is_ok() && self.searched
    }
}

fn text<S: Serializer>(shown: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(shown)
}

/// Restored thread.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Process number.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Restored attribute.
    #[serde(flatten)]
    pub what: RestoredAttribute,
    /// Reason of a failure, in one line; `None` on success or without an attempt.
    pub trouble: Option<String>,
}

/// Restored attribute of a thread.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum RestoredAttribute {
    /// Original mask, with the former placement.
    #[serde(rename = "from", serialize_with = "text")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    Mask(Put),
    /// Policy of the thread, or its creator, before the change to SCHED_IDLE.
    #[serde(rename = "to", serialize_with = "text")]
    #[cfg_attr(feature = "schema", schemars(with = "Fair"))]
    Policy(Fair),
}

impl RestoredAttribute {
    /// Attribute before and after the restoration, for messages. `original` is the original mask.
    pub fn change(&self, original: &str) -> (String, String) {
        match self {
            Self::Policy(policy) => ("SCHED_IDLE".to_owned(), policy.to_string()),
            Self::Mask(put) => (put.to_string(), original.to_owned()),
        }
    }
}

/// Placement of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Put(PuSet);

impl Display for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match affinity::single(&self.0) {
            Some(pu) => pu.fmt(f),
            None => write!(f, "PUs {}", self.0),
        }
    }
}

/// Continues all processes that the journal's workload has, or may have, stopped, and restores the
/// policies and original masks of its living threads. With `dry` only lists them. `proc` is
/// `/proc`. For a colocate that has ended. Takes a twentieth of a second if any process lives, and
/// half a minute at most.
///
/// Needs the same user as the workload's processes, or `CAP_SYS_NICE` and `CAP_KILL`.
pub fn undo(journal: &Journal, proc: &Path, dry: bool) -> Undone {
    if journal.is_of_another_boot(journal::boot(proc).as_deref()) {
        return Undone {
            continued: Ok(Vec::new()),
            raised: Vec::new(),
            freed: Vec::new(),
            searched: true,
        };
    }
    let mut undoing = Undoing::of(journal, proc, dry, None);
    let continued = undoing.continue_all();
    let searched = undoing.scan_until_quiet(LIMIT);
    // To move a process out of a cgroup can take the kernel some hundredths of a second.
    let continued = continued.and_then(|pids| match &journal.pauses {
        Some(How::Freezer(folder)) if !dry => freezer::dissolve(folder).map(|_| pids),
        _ => Ok(pids),
    });
    let (raised, freed) = undoing
        .restored
        .into_iter()
        .partition(|it| matches!(it.what, RestoredAttribute::Policy(_)));
    Undone { continued, raised, freed, searched }
}

/// Restores masks and policies at the end of a colocate, the root process. Takes five seconds at
/// most. Returns the reasons of failed restorations, a line each, and whether the search was
/// complete.
pub fn undo_at_end(journal: &Journal, proc: &Path, root: Root) -> (Vec<String>, bool) {
    let mut undoing = Undoing::of(journal, proc, false, Some(root));
    let searched = undoing.scan_until_quiet(LIMIT_AT_END);
    let failures = undoing
        .restored
        .into_iter()
        .filter_map(|it| Some(format!("cannot restore thread {}: {}", it.tid, it.trouble?)));
    (failures.collect(), searched)
}

/// Result of one scan of all processes.
struct Scanned {
    /// Whether any process lives.
    something_lives: bool,
    /// Whether each process had a moment with all of its threads restored.
    is_settled: bool,
}

/// Restored thread with its start time, the attribute, and the former placement, if any.
type Tried = (Pid, Tid, u64, Discriminant<RestoredAttribute>, Option<Put>);

/// Restores masks and policies of threads.
struct Undoing<'a> {
    journal: &'a Journal,
    proc: &'a Path,
    dry: bool,
    workload: JournalWorkload<'a>,
    /// A failed restoration is not repeated for ever.
    tried: HashSet<Tried>,
    creating: Creating,
    restored: Vec<Restored>,
}

impl<'a> Undoing<'a> {
    fn of(journal: &'a Journal, proc: &'a Path, dry: bool, root: Option<Root>) -> Self {
        Self {
            journal,
            proc,
            dry,
            workload: JournalWorkload::of(journal, proc, root),
            tried: HashSet::new(),
            creating: Creating::default(),
            restored: Vec::new(),
        }
    }

    /// Continues all processes; a dry run only lists them. Returns the processes found stopped, or
    /// in cgroups.
    fn continue_all(&mut self) -> io::Result<Vec<Pid>> {
        match &self.journal.pauses {
            None => Ok(Vec::new()),
            Some(How::Freezer(folder)) if self.dry => freezer::members(folder),
            Some(How::Freezer(folder)) => {
                for cgroup in freezer::cgroups(folder)? {
                    // A cgroup that was removed meanwhile was empty.
                    let _ = self.undo_change::<Freeze>(&cgroup);
                }
                // What cannot be read cannot be removed either, which is then said.
                Ok(freezer::members(folder).unwrap_or_default())
            }
            Some(How::Signals) => {
                let all = self.workload.processes()?;
                let stopped = all
                    .iter()
                    .filter(|process| {
                        let mut tids = process.threads().into_iter();
                        tids.any(|tid| {
                            matches!(Stop::read_back(ThreadRef { process, tid }), Ok(Some(true)))
                        })
                    })
                    .map(ProcessHandle::pid)
                    .collect();
                for process in all.iter().filter(|_| !self.dry) {
                    // SIGCONT continues a process with all of its threads.
                    self.undo_change::<Stop>(ThreadRef::first(process))?;
                }
                Ok(stopped)
            }
        }
    }

    /// Undoes the journal's changes of a target, if it shows any.
    fn undo_change<A: Actuator>(&self, target: A::Target<'_>) -> Result<(), A::Error> {
        let to = A::undo(&self.workload, target);
        to.map_or(Ok(()), |to| A::apply(target, &to).map(drop))
    }

    /// Scans until quiet. False at the time limit, or if processes cannot be listed.
    fn scan_until_quiet(&mut self, limit: Nanos) -> bool {
        let begun = now();
        let mut quiet = 0;
        let mut restarts = 0;
        while now() < begun + limit {
            let before = self.tried.len();
            let scanned = match self.scan() {
                // Without `/proc` no later scan finds one.
                Err(why) if is_missing(&why) => return false,
                scanned => scanned.ok(),
            };
            let has_found = self.tried.len() > before;
            // A dry run changes nothing, so a further scan would find the same.
            if scanned.as_ref().is_some_and(|it| self.dry || !it.something_lives) {
                return true;
            }
            if has_found && restarts < RESTARTS {
                restarts += 1;
                quiet = 0;
                continue;
            }
            if scanned.is_some_and(|it| it.is_settled) && !self.creating.earlier_are_left(self.proc)
            {
                quiet += 1;
            }
            if quiet == QUIET {
                return true;
            }
            std::thread::sleep(PAUSE);
        }
        false
    }

    /// Scans every process once.
    fn scan(&mut self) -> io::Result<Scanned> {
        // Those in cgroups first, which takes some microseconds: while all of /proc is read, many may create others and
        // end.
        for process in self.workload.members() {
            self.scan_process(&process);
        }
        let all = self.workload.processes()?;
        let mut is_settled = true;
        for process in &all {
            is_settled &= self.scan_process(process);
        }
        Ok(Scanned { something_lives: !all.is_empty(), is_settled })
    }

    /// Whether there was a moment with all threads of the process restored.
    fn scan_process(&mut self, process: &ProcessHandle) -> bool {
        let fills = self.workload.fills();
        for _ in 0..PASSES {
            let before = self.tried.len();
            for tid in process.threads() {
                let thread = ThreadRef { process, tid };
                if fills {
                    self.raise(thread);
                }
                self.free(thread);
            }
            if self.tried.len() == before {
                return true;
            }
        }
        false
    }

    /// Restores the policy of a thread that colocate put under SCHED_IDLE, or that inherited
    /// SCHED_IDLE.
    fn raise(&mut self, thread: ThreadRef<'_>) {
        let Some(to) = ClassActuator::undo(&self.workload, thread) else { return };
        if let Policy::Fair(fair) = to {
            self.restore::<ClassActuator>(thread, RestoredAttribute::Policy(fair), &to);
        }
    }

    /// Restores the original mask of a thread that was placed, or that inherited a placement.
    fn free(&mut self, thread: ThreadRef<'_>) {
        let Some(to) = MaskActuator::undo(&self.workload, thread) else { return };
        if let Ok(Some(from)) = MaskActuator::read_back(thread) {
            self.restore::<MaskActuator>(thread, RestoredAttribute::Mask(Put(from)), &to);
        }
    }

    /// Restores a setting of a living thread once; a dry run only lists it.
    fn restore<'t, A: Actuator<Target<'t> = ThreadRef<'t>, Error: Display>>(
        &mut self,
        thread: ThreadRef<'t>,
        what: RestoredAttribute,
        to: &A::Setting,
    ) {
        let ThreadRef { process, tid } = thread;
        let pid = process.pid();
        // A mask is restored again if the thread has got another placement since.
        let left = if let RestoredAttribute::Mask(put) = &what { Some(put.clone()) } else { None };
        let Some(stat) = process.stat_of(tid).filter(|stat| !stat.is_dead()) else { return };
        if !self.tried.insert((pid, tid, stat.start_ticks, discriminant(&what), left)) {
            return;
        }
        let done = (!self.dry).then(|| A::apply(thread, to));
        let trouble = done.and_then(Result::err).map(|why| why.to_string());
        self.restored.push(Restored { pid, tid, what, trouble });
        self.creating.add(self.proc, pid, tid);
    }
}

/// Whether `/proc` is not there, rather than unreadable at this time.
fn is_missing(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Time after which a thread that sleeps in the kernel is not creating another one. Chosen: forks wait
/// for the move of a process between cgroups, which takes a grace period of RCU or two.
const CREATION_ASLEEP: Nanos = Nanos::from_millis(500);

/// Restored threads that may still be in the middle of creating another thread.
#[derive(Default)]
struct Creating {
    threads: HashMap<(Pid, Tid), Restoring>,
    generation: usize,
}

/// Thread at the time of its restoration.
struct Restoring {
    generation: usize,
    at: Nanos,
    /// CPU time of the thread; `None` if the kernel does not report it.
    time: Option<RunTime>,
    /// CPU time used at the restoration; later, when all PUs had run.
    used: Nanos,
    /// Whether all PUs have run since the restoration.
    all_have_run: bool,
}

impl Restoring {
    /// Whether the thread has used as much CPU time since `used` as a creation takes.
    fn has_run(&self) -> bool {
        // An ended thread creates nothing any more.
        let now = self.time.as_ref().and_then(RunTime::read);
        now.is_none_or(|now| now.saturating_sub(self.used) >= CREATION)
    }

    /// Whether the thread may be in the middle of a creation, with the state `stat`.
    fn may_create(&self, stat: &Stat) -> bool {
        stat.could_run() || stat.is_uninterruptible() && now() < self.at + CREATION_ASLEEP
    }
}

impl Creating {
    fn add(&mut self, proc: &Path, pid: Pid, tid: Tid) {
        let time = RunTime::open(proc, pid, tid).ok();
        let used = time.as_ref().and_then(RunTime::read).unwrap_or_default();
        let generation = self.generation;
        let restoring = Restoring { generation, at: now(), time, used, all_have_run: false };
        self.threads.insert((pid, tid), restoring);
    }

    /// Forgets threads that have run or sleep, as they are no longer in the middle of a creation.
    /// Returns whether any remains of the threads added before the last return of false.
    fn earlier_are_left(&mut self, proc: &Path) -> bool {
        self.threads.retain(|(pid, tid), thread| {
            !(thread.all_have_run && thread.has_run())
                && Stat::read(proc, *pid, *tid).is_some_and(|stat| thread.may_create(&stat))
        });
        let is_first = |thread: &&mut Restoring| !thread.all_have_run && thread.has_run();
        let mut ran: Vec<&mut Restoring> = self.threads.values_mut().filter(is_first).collect();
        if !ran.is_empty() {
            sys::wait_for_all_pus();
        }
        for thread in &mut ran {
            thread.all_have_run = true;
            thread.used = thread.time.as_ref().and_then(RunTime::read).unwrap_or_default();
        }
        let are_left = self.threads.values().any(|thread| thread.generation < self.generation);
        if !are_left {
            self.generation += 1;
        }
        are_left
    }
}

/// Whether the colocate that wrote a journal still lives, and will undo the journal by itself.
pub fn is_alive(owner: Owner, proc: &Path) -> bool {
    let stat = Stat::read(proc, owner.pid, owner.pid.first_thread());
    // A colocate that waits to be reaped undoes nothing any more.
    stat.is_some_and(|stat| stat.start_ticks == owner.start_ticks && !stat.is_dead())
}

/// Discovered journal.
#[derive(Debug)]
pub struct FoundJournal {
    /// Path of the journal.
    pub path: PathBuf,
    /// Folder by descriptor: the removed file is the file that was read.
    pub dir: Rc<Dir>,
    /// Colocate that wrote the journal, or is about to; `None` if neither content nor name shows
    /// it.
    pub owner: Option<Owner>,
    /// Content, or the reason why it is unusable.
    pub journal: Result<Journal, FoundError>,
}

/// Reason why a journal is unusable.
#[derive(Debug, Error)]
pub enum FoundError {
    /// The file cannot be read.
    #[error("{}", .0.reason())]
    Unread(#[from] FileError),
    /// Journal of another version, for another colocate.
    #[error("{0}")]
    OtherVersion(JournalError),
    /// Journal of other process or time namespaces: its numbers mean different processes here.
    #[error(
        "it was written in another process or time namespace; call colocate restore there (nsenter --all)"
    )]
    OtherNamespace,
    /// Unusable journal.
    #[error("{0}")]
    Spoilt(JournalError),
}

/// Journals of all colocates of this user, and for root of all root's: from folders that no other
/// user can change.
pub fn journals_of_user() -> Vec<FoundJournal> {
    let user = sys::effective_user();
    let dirs = rundir::candidates(std::env::var_os("XDG_RUNTIME_DIR").as_deref(), user);
    let private = dirs.iter().filter_map(|dir| Dir::open_private(dir, user).ok());
    private.flat_map(journals).collect()
}

/// Process of `pids` or a descendant with threads placed by another living colocate, and the process
/// of that colocate; the same process twice for a colocate among `pids`.
pub fn placed_by_another(pids: &BTreeSet<Pid>, proc: &Path) -> Option<(Pid, Pid)> {
    let working = journals_of_user()
        .into_iter()
        .filter(|found| found.owner.is_some_and(|owner| is_alive(owner, proc)));
    working.filter_map(|found| found.journal.ok()).find_map(|journal| {
        if pids.contains(&journal.owner.pid) {
            return Some((journal.owner.pid, journal.owner.pid));
        }
        let parent = |pid: Pid| Some(Stat::read(proc, pid, pid.first_thread())?.parent);
        let is_of = |pid| nearest(pid, |pid| pids.contains(&pid), parent).is_some();
        let mut entries = journal.entries.iter();
        let placed = entries.find(|entry| entry.mark.is_put() && is_of(entry.pid))?;
        Some((placed.pid, journal.owner.pid))
    })
}

/// Journals in the folder `dir`, in the order of their names; none if it is unreadable.
pub fn journals(dir: Dir) -> Vec<FoundJournal> {
    let mut names = dir.names(MOST_JOURNALS).unwrap_or_default();
    names.retain(|name| Path::new(name).extension().is_some_and(|end| end == "journal"));
    names.sort();
    let dir = Rc::new(dir);
    names
        .into_iter()
        .map(|name: OsString| {
            let path = dir.path().join(&name);
            let journal = read(&dir, &name);
            // The name of a spoilt file still shows its owner.
            let owner = journal.as_ref().map_or_else(|_| Owner::of_file(&path), |j| Some(j.owner));
            FoundJournal { path, dir: Rc::clone(&dir), owner, journal }
        })
        .collect()
}

/// Maximum number of files of one folder. Chosen: a folder has a file per running or killed
/// colocate.
const MOST_JOURNALS: usize = 10_000;

fn read(dir: &Dir, name: &OsStr) -> Result<Journal, FoundError> {
    let bytes = dir.read(name, journal::MAX_SIZE)?;
    let journal = Journal::parse(&String::from_utf8_lossy(&bytes)).map_err(|why| {
        let kind =
            if why.is_other_version() { FoundError::OtherVersion } else { FoundError::Spoilt };
        kind(why)
    })?;
    let ours = journal::namespaces(Path::new("/proc"));
    if journal.is_of_other_namespaces(ours.as_deref()) {
        return Err(FoundError::OtherNamespace);
    }
    Ok(journal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{JournalEntry, Mark};
    use crate::sched_class;
    use colocate_linux::sys;
    use colocate_machine::PuNr;
    use colocate_testing::skip::{Missing, Requirement, two_pus};
    use colocate_testing::{need, wait_until, within};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};

    const PROC: &str = "/proc";

    fn open(pid: Pid) -> ProcessHandle {
        ProcessHandle::open(Path::new(PROC), pid).unwrap()
    }

    fn allowed(pid: Pid) -> PuSet {
        affinity::allowed(&open(pid), pid.first_thread()).unwrap()
    }

    fn place(pid: Pid, pu: PuNr) {
        affinity::place(&open(pid), pid.first_thread(), &affinity::only(pu)).unwrap();
    }

    /// A program that waits, and what a journal says of it. Killed when dropped.
    struct Sleeper {
        child: Child,
        pid: Pid,
    }

    impl Sleeper {
        fn start() -> Self {
            let child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
            let pid = Pid(child.id().cast_signed());
            Self { child, pid }
        }

        fn entry(&self, mark: Mark, was: Mark) -> JournalEntry {
            entry_of(self.pid, mark, was)
        }

        fn mask(&self) -> PuSet {
            allowed(self.pid)
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Entry of the first thread of a process.
    fn entry_of(pid: Pid, mark: Mark, was: Mark) -> JournalEntry {
        let tid = pid.first_thread();
        let start_ticks = Stat::read(Path::new(PROC), pid, tid).unwrap().start_ticks;
        JournalEntry { pid, tid, start_ticks, mark, was, ..JournalEntry::EMPTY }
    }

    fn journal(original: &PuSet, entries: Vec<JournalEntry>) -> Journal {
        let owner = Owner { pid: Pid(1), start_ticks: 0 };
        let (boot, token, original) = (None, None, original.clone());
        let (namespaces, attached) = (None, None);
        Journal {
            owner,
            boot,
            token,
            original,
            sets: Vec::new(),
            pauses: None,
            namespaces,
            attached,
            entries,
        }
    }

    /// The PU to pin to.
    fn a_pu(original: &PuSet) -> Result<PuNr, Missing> {
        two_pus()?;
        Ok(original.iter().next().unwrap())
    }

    #[test]
    fn a_placed_thread_gets_its_mask_back() {
        let sleeper = Sleeper::start();
        let original = sleeper.mask();
        let pu = need!(a_pu(&original));
        place(sleeper.pid, pu);
        let journal = journal(&original, vec![sleeper.entry(Mark::On(pu), Mark::Original)]);

        let undo = |dry| undo(&journal, Path::new(PROC), dry).freed;
        assert_eq!(undo(true).len(), 1);
        assert_eq!(sleeper.mask(), affinity::only(pu), "a dry run changes nothing");
        let undone = undo(false);
        assert_eq!(undone.len(), 1);
        assert_eq!(undone[0].trouble, None);
        assert_eq!(sleeper.mask(), original);
        assert_eq!(undo(false), []);
    }

    /// One that the journal says was put under SCHED_IDLE, and one that its own program has put there.
    #[test]
    fn a_lowered_thread_gets_its_policy_back() {
        need!(sched_idle());
        let (known, other) = (Sleeper::start(), Sleeper::start());
        [&known, &other].into_iter().for_each(|sleeper| lower(sleeper.pid));
        let lowered = Some(Fair::Other);
        let entries = vec![
            JournalEntry { lowered, ..known.entry(Mark::Original, Mark::Original) },
            other.entry(Mark::Original, Mark::Original),
        ];
        let journal = journal(&known.mask(), entries);
        let (tid, what) = (known.pid.first_thread(), RestoredAttribute::Policy(Fair::Other));
        let wanted = Restored { pid: known.pid, tid, what, trouble: None };
        let raised = |dry| undo(&journal, Path::new(PROC), dry).raised;
        assert_eq!(raised(true), std::slice::from_ref(&wanted));
        assert_eq!(policy(known.pid), libc::SCHED_IDLE, "a dry run changes nothing");
        assert_eq!(raised(false), [wanted]);
        assert_eq!([known.pid, other.pid].map(policy), [libc::SCHED_OTHER, libc::SCHED_IDLE]);
        assert_eq!(raised(false), []);
    }

    /// Puts a thread under SCHED_IDLE.
    fn lower(pid: Pid) {
        let tid = pid.first_thread();
        let idle = sys::schedule_of(tid).unwrap().under(libc::SCHED_IDLE);
        sys::set_schedule(tid, &idle).unwrap();
    }

    fn policy(pid: Pid) -> libc::c_int {
        sys::schedule_of(pid.first_thread()).unwrap().policy
    }

    /// A shell that waits for a line and then runs a script, which prints numbers of processes and ends when its input
    /// does; all in one process group.
    struct Family {
        shell: Child,
        pid: Pid,
    }

    impl Family {
        fn start(script: &str) -> Self {
            let script = format!("read go; {script}; read end");
            let mut command = Command::new("sh");
            command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let shell = std::os::unix::process::CommandExt::process_group(&mut command, 0);
            let shell = shell.spawn().unwrap();
            let pid = Pid(shell.id().cast_signed());
            Self { shell, pid }
        }

        /// Lets the script go; returns the numbers.
        fn go(&mut self, numbers: usize) -> Vec<Pid> {
            use std::io::{BufRead, Write};
            self.shell.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            let mut said = io::BufReader::new(self.shell.stdout.take().unwrap());
            let mut line = || {
                let mut line = String::new();
                within("a number of the shell", || said.read_line(&mut line)).unwrap();
                Pid(line.trim().parse().unwrap())
            };
            (0..numbers).map(|_| line()).collect()
        }

        fn entry(&self, lowered: Option<Fair>) -> JournalEntry {
            JournalEntry { lowered, ..entry_of(self.pid, Mark::Original, Mark::Original) }
        }
    }

    impl Drop for Family {
        fn drop(&mut self) {
            // The whole group.
            let _ = sys::kill(Pid(-self.pid.0), libc::SIGKILL);
            let _ = self.shell.wait();
        }
    }

    fn sched_idle() -> Result<(), Missing> {
        let permission = sched_class::permission();
        permission.map(drop).map_err(|why| Requirement::SchedIdle.missing(why))
    }

    /// The journal has the shell alone, and not what it has created by way of another one.
    #[test]
    fn grandchildren_get_their_policy_back() {
        need!(sched_idle());
        let mut family = Family::start("sh -c 'echo $$; sleep 60 & echo $!; wait' & wait");
        lower(family.pid);
        let entry = family.entry(Some(Fair::Batch));
        let mut pids = family.go(2);
        pids.push(family.pid);
        let journal = journal(&allowed(entry.pid), vec![entry]);
        let mut raised: Vec<Pid> =
            undo(&journal, Path::new(PROC), false).raised.iter().map(|it| it.pid).collect();
        raised.sort_unstable();
        pids.sort_unstable();
        assert_eq!(raised, pids);
        assert!(pids.iter().all(|pid| policy(*pid) == libc::SCHED_BATCH));
    }

    /// A shell was taken out of SCHED_IDLE as it created a process; another one has put itself there, with its child.
    /// That there are jobs which fill idle PUs shows by a third one.
    #[test]
    fn a_child_of_a_thread_that_was_just_raised() {
        need!(sched_idle());
        let mut families = [(); 2].map(|()| Family::start("sleep 60 & echo $!"));
        let third = Sleeper::start();
        let entries = vec![
            families[0].entry(None),
            families[1].entry(None),
            JournalEntry {
                lowered: Some(Fair::Other),
                ..third.entry(Mark::Original, Mark::Original)
            },
        ];
        families.iter().for_each(|family| lower(family.pid));
        let children = [0, 1].map(|of| families[of].go(1)[0]);
        let other = sys::schedule_of(families[0].pid.first_thread()).unwrap();
        sys::set_schedule(families[0].pid.first_thread(), &other.under(libc::SCHED_OTHER)).unwrap();
        let journal = journal(&third.mask(), entries);
        let raised = undo(&journal, Path::new(PROC), false).raised;
        assert_eq!(raised.iter().map(|it| it.pid).collect::<Vec<_>>(), [children[0]]);
        assert_eq!(children.map(policy), [libc::SCHED_OTHER, libc::SCHED_IDLE]);
        assert_eq!(policy(families[1].pid), libc::SCHED_IDLE);
    }

    /// Its creator has ended, so it has no known ancestor; but it is in the cgroup of a job.
    #[test]
    fn an_orphan_in_a_cgroup_has_all_of_it_back() {
        let freezer = need!(freezer::cgroups_for_a_test(3, 1));
        // The second number comes when the creator has ended.
        let mut family = Family::start("(sleep 60 & echo $!); echo $$");
        let original = allowed(family.pid);
        need!(sched_idle());
        let pu = need!(a_pu(&original));
        freezer.enter(crate::pause::JobProcesses(0), family.pid).unwrap();
        lower(family.pid);
        place(family.pid, pu);
        let (mark, lowered) = (Mark::On(pu), Some(Fair::Other));
        let entry = JournalEntry { mark, ..family.entry(lowered) };
        let orphan = family.go(2)[0];
        sys::kill(family.pid, libc::SIGKILL).unwrap();
        family.shell.wait().unwrap();
        assert_eq!(policy(orphan), libc::SCHED_IDLE);
        let how = How::Freezer(freezer.folder().to_owned());
        let journal = Journal { pauses: Some(how), ..journal(&original, vec![entry]) };
        let undone = undo(&journal, Path::new(PROC), false);
        assert!(undone.is_complete(), "{undone:?}");
        assert_eq!(undone.raised.iter().map(|it| it.pid).collect::<Vec<_>>(), [orphan]);
        assert_eq!(policy(orphan), libc::SCHED_OTHER);
        assert_eq!(allowed(orphan), original);
        assert!(!freezer.folder().exists());
    }

    /// The journal was written, the deed not done: the thread is still where it was before.
    #[test]
    fn a_crash_between_line_and_deed() {
        let sleeper = Sleeper::start();
        let original = sleeper.mask();
        let pu = need!(a_pu(&original));
        let other = original.iter().last().unwrap();
        place(sleeper.pid, pu);
        let entry = sleeper.entry(Mark::On(other), Mark::On(pu));
        let undone = undo(&journal(&original, vec![entry]), Path::new(PROC), false);
        assert_eq!(undone.freed.len(), 1);
        assert_eq!(sleeper.mask(), original);
    }

    /// A later thread has executed a program and is the first one now, which is not in the journal.
    #[test]
    fn where_a_later_thread_executed_a_program() {
        let sleeper = Sleeper::start();
        let original = sleeper.mask();
        let pu = need!(a_pu(&original));
        let other = original.iter().last().unwrap();
        place(sleeper.pid, pu);
        let first = sleeper.entry(Mark::On(other), Mark::Original);
        let tid = Tid(first.tid.0 + 1);
        let later = JournalEntry { tid, mark: Mark::On(pu), ..first };
        let bound = JournalEntry { mark: Mark::Programs, was: Mark::On(pu), ..later };
        let freed =
            |entries| undo(&journal(&original, entries), Path::new(PROC), false).freed.len();
        assert_eq!(freed(vec![first, bound]), 0, "the program bound that thread itself");
        assert_eq!(freed(vec![first, later]), 1);
        assert_eq!(sleeper.mask(), original);
    }

    /// It may run on two PUs, which a set of the journal has; its original mask is one of them.
    #[test]
    fn a_thread_on_a_set_of_pus_gets_its_mask_back() {
        let sleeper = Sleeper::start();
        let set = sleeper.mask();
        let pu = need!(a_pu(&set));
        let original = affinity::only(pu);
        let put = sleeper.entry(Mark::Among(1), Mark::Original);
        let freed = |entry| {
            let sets = vec![original.clone(), set.clone()];
            let journal = Journal { sets, ..journal(&original, vec![entry]) };
            undo(&journal, Path::new(PROC), false).freed
        };
        let elsewhere = JournalEntry { mark: Mark::Among(7), ..put };
        let programs = JournalEntry { mark: Mark::Programs, ..put };
        assert_eq!([elsewhere, programs].map(freed), [vec![], vec![]]);
        assert_eq!(sleeper.mask(), set);
        let done = freed(put);
        assert_eq!(done[0].what, RestoredAttribute::Mask(Put(set.clone())));
        assert_eq!(Put(set.clone()).to_string(), format!("PUs {set}"));
        assert_eq!(sleeper.mask(), original);
    }

    #[test]
    fn what_is_not_ours_is_left() {
        let sleeper = Sleeper::start();
        let original = sleeper.mask();
        let pu = need!(a_pu(&original));
        let other = original.iter().last().unwrap();
        place(sleeper.pid, pu);
        let ours = sleeper.entry(Mark::On(pu), Mark::Original);
        let reused = JournalEntry { start_ticks: ours.start_ticks + 1, ..ours };
        let programs = JournalEntry { mark: Mark::Programs, ..ours };
        let moved = JournalEntry { mark: Mark::On(other), ..ours };
        for entry in [reused, programs, moved] {
            let journal = journal(&original, vec![entry]);
            assert_eq!(undo(&journal, Path::new(PROC), false).freed, [], "{entry:?}");
        }
        assert_eq!(sleeper.mask(), affinity::only(pu));
    }

    /// A process that gets SIGSTOP stops when it is next on a PU. SIGCONT before that must reach it,
    /// too; here it is kept from a PU by a cgroup.
    #[test]
    fn a_process_that_is_about_to_stop_continues() {
        let proc = Path::new(PROC);
        let freezer = need!(freezer::cgroups_for_a_test(2, 1));
        let (sleeper, job) = (Sleeper::start(), crate::pause::JobProcesses(0));
        freezer.enter(job, sleeper.pid).unwrap();
        let cgroup = freezer.of(job).unwrap();
        Freeze::apply(&cgroup, &true).unwrap();
        wait_until("a freeze of the job", || Freeze::read_back(&cgroup).unwrap() == Some(true));
        open(sleeper.pid).signal(libc::SIGSTOP).unwrap();
        let entry = sleeper.entry(Mark::Original, Mark::Original);
        let journal =
            Journal { pauses: Some(How::Signals), ..journal(&sleeper.mask(), vec![entry]) };
        Undoing::of(&journal, proc, false, None).continue_all().unwrap();
        let pending = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", sleeper.pid)).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        assert_eq!(pending() >> (libc::SIGSTOP - 1) & 1, 0, "the stop is taken back");
        freezer::dissolve(freezer.folder()).unwrap();
    }

    /// A sleeping thread is on the PU that the journal says, and is to be found within no time, or without a list of
    /// processes.
    #[test]
    fn what_could_not_be_searched_is_not_complete() {
        let sleeper = Sleeper::start();
        let journal = journal(&sleeper.mask(), vec![sleeper.entry(Mark::Original, Mark::Original)]);
        let is_searched = |proc: &str, limit| {
            let mut undoing = Undoing::of(&journal, Path::new(proc), false, None);
            undoing.scan_until_quiet(Nanos::from_millis(limit))
        };
        assert!(!is_searched(PROC, 0));
        // Nothing is waited for that does not come.
        let begun = now();
        assert!(!is_searched("/nowhere", 30_000) && !is_searched("/dev/null", 30_000));
        assert!(now() < begun + Nanos::from_secs(30));
        assert!(is_searched(PROC, 30_000));
        let undone = |searched| {
            let (raised, freed) = (Vec::new(), Vec::new());
            Undone { continued: Ok(Vec::new()), raised, freed, searched }.is_complete()
        };
        assert!(undone(true) && !undone(false));
    }

    /// A shell binds each of its processes to a PU that colocate has given to another process.
    #[test]
    fn a_program_with_masks_like_ours_is_no_endless_search() {
        let first = Sleeper::start();
        let original = first.mask();
        let pu = need!(a_pu(&original));
        place(first.pid, pu);
        let entry = first.entry(Mark::On(pu), Mark::Original);
        let mut command = Command::new("sh");
        command
            .args(["-c", "while :; do taskset -c $0 sleep 0.5 & sleep 0.002; done"])
            .arg(affinity::only(pu).to_string());
        let mut child = command.process_group(0).spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let stat = Stat::read(Path::new(PROC), pid, pid.first_thread()).unwrap();
        let start_ticks = stat.start_ticks;
        let second = JournalEntry {
            pid,
            tid: pid.first_thread(),
            start_ticks,
            mark: Mark::Original,
            ..entry
        };
        let undone = undo(&journal(&original, vec![entry, second]), Path::new(PROC), false);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(undone.searched, "{} found", undone.freed.len());
        assert_eq!(first.mask(), original);
    }

    #[test]
    fn an_owner_is_not_a_later_process() {
        let pid = Pid(std::process::id().cast_signed());
        let proc = Path::new(PROC);
        let start_ticks = Stat::read(proc, pid, pid.first_thread()).unwrap().start_ticks;
        assert!(is_alive(Owner { pid, start_ticks }, proc));
        assert!(!is_alive(Owner { pid, start_ticks: start_ticks + 1 }, proc));
    }

    #[test]
    fn a_corrupt_journal_says_so_and_stops_no_other() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.journal"), b"\xff\x00 nonsense").unwrap();
        let text = "colocate-journal 7\nowner 7 9\noriginal 0-1\n\n";
        std::fs::write(dir.path().join("b.journal"), text).unwrap();
        std::fs::write(dir.path().join("c.other"), "").unwrap();
        std::fs::File::create(dir.path().join("d.journal")).unwrap().set_len(10 << 30).unwrap();
        std::os::unix::fs::symlink("b.journal", dir.path().join("e.journal")).unwrap();
        let fifo = Command::new("mkfifo").arg(dir.path().join("f.journal")).status();
        assert!(fifo.unwrap().success());
        let found = journals(Dir::open(dir.path()).unwrap());
        let what = |found: &FoundJournal| found.journal.as_ref().err().map(ToString::to_string);
        let found: Vec<_> = found.iter().map(what).collect();
        assert!(found.len() == 5 && found[0].is_some() && found[1].is_none());
        let expected = ["found 10737418240", "found a symbolic link", "found a FIFO"];
        for (found, expected) in found[2..].iter().zip(expected) {
            assert!(found.as_ref().unwrap().ends_with(expected), "{found:?}");
        }
    }
}
