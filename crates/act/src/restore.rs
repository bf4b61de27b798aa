//! Undoing what a journal says was done.
//!
//! A thread is given its original mask if it is on the very PU that it was put on. Threads that the
//! journal does not know, because they were born from a placed one just before the crash, are found
//! below the processes that it does know.

use crate::idle::{self, Fair};
use crate::journal::{Entry, Journal, JournalError, Mark, Owner};
use crate::pause::{self, How, freezer};
use crate::pin;
use crate::stat::{Stat, parents, threads};
use crate::sys;
use colocate_machine::PuNr;
use colocate_observe::{Pid, Tid};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Looks through the processes at most. A thread that is born during one look from one that was not
/// yet undone is found in the next; the third finds nothing unless threads are born faster than
/// they are listed.
const LOOKS: usize = 10;

/// A thread that was, or would be, given back its original mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Where it was.
    pub from: PuNr,
    /// Why it could not be moved, in one line; `None` if it was, or if nothing was tried.
    pub trouble: Option<String>,
}

/// Gives every living thread of the journal's workload its original mask; with `dry` only says
/// which ones. `proc` is `/proc`.
#[must_use]
pub fn undo(journal: &Journal, proc: &Path, dry: bool) -> Vec<Undone> {
    let mut undone = Vec::new();
    let mut seen = HashSet::new();
    for _ in 0..if dry { 1 } else { LOOKS } {
        let before = undone.len();
        let known = living(journal, proc);
        for pid in with_descendants(&known, proc) {
            for tid in threads(proc, pid) {
                let entry = known.get(&tid).copied();
                let Some(from) = placed(journal, tid, entry) else { continue };
                // What only waits to be reaped runs nowhere any more.
                if Stat::read(proc, pid, tid).is_none_or(|stat| stat.is_dead()) {
                    continue;
                }
                // One that cannot be moved is not tried for ever.
                if seen.insert((pid, tid, from)) {
                    undone.push(undo_one(journal, pid, tid, from, dry));
                }
            }
        }
        if undone.len() == before {
            break;
        }
    }
    undone
}

/// Lets everything go on that the journal's workload may have stopped; with `dry` only says what. `proc` is
/// `/proc`. Returns the processes that were found stopped.
///
/// # Errors
/// If cgroups cannot be removed or a process not be told; everything else goes on.
pub fn let_go_on(journal: &Journal, proc: &Path, dry: bool) -> io::Result<Vec<Pid>> {
    match &journal.pauses {
        None => Ok(Vec::new()),
        Some(How::Freezer(folder)) if dry => freezer::members(folder),
        Some(How::Freezer(folder)) => freezer::dissolve(folder),
        Some(How::Signals) => {
            let pids = with_descendants(&living(journal, proc), proc);
            let is_stopped = |pid: &Pid| {
                let stat = Stat::read(proc, *pid, pid.first_thread());
                stat.is_some_and(|stat| stat.state == 'T')
            };
            let stopped: Vec<Pid> = pids.iter().copied().filter(is_stopped).collect();
            if !dry {
                // Not only to those that have stopped: on a busy machine one may still be about to.
                let all: Vec<Pid> = pids.into_iter().collect();
                pause::signal(&all, libc::SIGCONT)?;
            }
            Ok(stopped)
        }
    }
}

/// A thread that was, or would be, given back its scheduling policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The policy that it had before it was put under SCHED_IDLE.
    pub to: Fair,
    /// Why it could not be given back, in one line; `None` if it was, or if nothing was tried.
    pub trouble: Option<String>,
}

/// Takes every living thread of the journal's workload out of SCHED_IDLE that was put there; with `dry` only says
/// which ones. `proc` is `/proc`.
#[must_use]
pub fn raise(journal: &Journal, proc: &Path, dry: bool) -> Vec<Raised> {
    let mut raised = Vec::new();
    let mut seen = HashSet::new();
    for _ in 0..if dry { 1 } else { LOOKS } {
        let before = raised.len();
        let known = living(journal, proc);
        let parents = parents(proc);
        for pid in with_descendants(&known, proc) {
            for tid in threads(proc, pid) {
                let Some(to) = lowered(&known, &parents, pid, tid) else { continue };
                let is_idle = |found: sys::Schedule| found.policy == libc::SCHED_IDLE;
                // What only waits to be reaped runs nowhere any more.
                let dead = || Stat::read(proc, pid, tid).is_none_or(|stat| stat.is_dead());
                if !sys::schedule_of(tid).is_ok_and(is_idle) || dead() {
                    continue;
                }
                // One that cannot be raised is not tried for ever.
                if seen.insert((pid, tid)) {
                    let trouble = (!dry).then(|| idle::raise(tid, to)).and_then(Result::err);
                    let trouble = trouble.map(|why| why.to_string());
                    raised.push(Raised { pid, tid, to, trouble });
                }
            }
        }
        if raised.len() == before {
            break;
        }
    }
    raised
}

/// The policy that we have taken from a thread, or from one that may have created it just before the crash, if the
/// journal does not know it: one of its process, or of its process's parent.
fn lowered(
    known: &HashMap<Tid, &Entry>,
    parents: &HashMap<Pid, Pid>,
    pid: Pid,
    tid: Tid,
) -> Option<Fair> {
    let of_process =
        |pid: Pid| known.values().find_map(|entry| entry.lowered.filter(|_| entry.pid == pid));
    match known.get(&tid) {
        Some(entry) => entry.lowered,
        None => of_process(pid).or_else(|| of_process(*parents.get(&pid)?)),
    }
}

/// The journal's tasks that live, by thread.
fn living<'a>(journal: &'a Journal, proc: &Path) -> HashMap<Tid, &'a Entry> {
    let lives = |entry: &&Entry| {
        Stat::read(proc, entry.pid, entry.tid).is_some_and(|s| s.start_ticks == entry.start_ticks)
    };
    journal.entries.iter().filter(lives).map(|entry| (entry.tid, entry)).collect()
}

/// The processes of known tasks, and all that descend from them.
fn with_descendants(known: &HashMap<Tid, &Entry>, proc: &Path) -> BTreeSet<Pid> {
    let mut pids: BTreeSet<Pid> = known.values().map(|entry| entry.pid).collect();
    let parents = parents(proc);
    loop {
        let children = parents.iter().filter(|(_, parent)| pids.contains(parent));
        let new: Vec<Pid> = children.map(|(pid, _)| *pid).filter(|p| !pids.contains(p)).collect();
        if new.is_empty() {
            return pids;
        }
        pids.extend(new);
    }
}

/// The PU that we have put the thread on; `None` if it is not there, or not by our doing.
fn placed(journal: &Journal, tid: Tid, entry: Option<&Entry>) -> Option<PuNr> {
    if entry.is_some_and(|entry| entry.mark == Mark::Programs) {
        return None;
    }
    let pu = pin::single(&pin::allowed(tid).ok()?)?;
    let by_us = match entry {
        Some(entry) => [entry.mark.pu(), entry.was.pu()].contains(&Some(pu)),
        None => journal.entries.iter().any(|e| [e.mark.pu(), e.was.pu()].contains(&Some(pu))),
    };
    // With one PU in the original mask nothing has changed.
    (by_us && pin::only(pu) != journal.original).then_some(pu)
}

fn undo_one(journal: &Journal, pid: Pid, tid: Tid, from: PuNr, dry: bool) -> Undone {
    let trouble = match (!dry).then(|| pin::place(tid, &journal.original)) {
        None | Some(Ok(_) | Err(pin::PinError::Gone)) => None,
        Some(Err(why)) => Some(why.to_string()),
    };
    Undone { pid, tid, from, trouble }
}

/// Whether the colocate that wrote a journal still lives, and will undo it by itself.
#[must_use]
pub fn is_alive(owner: Owner, proc: &Path) -> bool {
    let stat = Stat::read(proc, owner.pid, owner.pid.first_thread());
    stat.is_some_and(|stat| stat.start_ticks == owner.start_ticks && !stat.is_dead())
}

/// A journal that was found.
#[derive(Debug)]
pub struct Found {
    /// Where.
    pub path: PathBuf,
    /// The colocate that wrote it, or is about to; `None` if neither content nor name tells.
    pub owner: Option<Owner>,
    /// What it says, or why it says nothing.
    pub journal: Result<Journal, FoundError>,
}

/// Why a journal says nothing.
#[derive(Debug, Error)]
pub enum FoundError {
    /// The file cannot be read.
    #[error(transparent)]
    Unread(#[from] io::Error),
    /// It is of another version, which another colocate may understand.
    #[error("{0}")]
    OtherVersion(JournalError),
    /// Nobody can make anything of it.
    #[error("{0}")]
    Spoilt(JournalError),
}

/// The journals in the folder `dir`, in the order of their names; none if it cannot be read.
#[must_use]
pub fn journals(dir: &Path) -> Vec<Found> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "journal")).collect();
    paths.sort();
    let found = |path: PathBuf| {
        let journal = read(&path);
        let owner = journal.as_ref().map_or_else(|_| Owner::of_file(&path), |j| Some(j.owner));
        Found { path, owner, journal }
    };
    paths.into_iter().map(found).collect()
}

fn read(path: &Path) -> Result<Journal, FoundError> {
    let bytes = std::fs::read(path)?;
    Journal::parse(&String::from_utf8_lossy(&bytes)).map_err(|why| {
        let kind =
            if why.is_other_version() { FoundError::OtherVersion } else { FoundError::Spoilt };
        kind(why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::PuSet;
    use std::process::{Child, Command, Stdio};

    const PROC: &str = "/proc";

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

        fn entry(&self, mark: Mark, was: Mark) -> Entry {
            let tid = self.pid.first_thread();
            let start_ticks = Stat::read(Path::new(PROC), self.pid, tid).unwrap().start_ticks;
            Entry { pid: self.pid, tid, start_ticks, mark, was, lowered: None }
        }

        fn mask(&self) -> PuSet {
            pin::allowed(self.pid.first_thread()).unwrap()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn journal(original: &PuSet, entries: Vec<Entry>) -> Journal {
        let owner = Owner { pid: Pid(1), start_ticks: 0 };
        Journal { owner, original: original.clone(), pauses: None, entries }
    }

    /// The PU to pin to, unless this process has only one.
    fn a_pu(original: &PuSet) -> Option<PuNr> {
        if original.len() < 2 {
            eprintln!("skipped: one PU only, nothing can be narrowed");
        }
        original.iter().next().filter(|_| original.len() > 1)
    }

    #[test]
    fn a_placed_thread_gets_its_mask_back() {
        let sleeper = Sleeper::start();
        let original = sleeper.mask();
        let Some(pu) = a_pu(&original) else { return };
        pin::place(sleeper.pid.first_thread(), &pin::only(pu)).unwrap();
        let journal = journal(&original, vec![sleeper.entry(Mark::On(pu), Mark::Original)]);

        assert_eq!(undo(&journal, Path::new(PROC), true).len(), 1);
        assert_eq!(sleeper.mask(), pin::only(pu), "a dry run changes nothing");
        let undone = undo(&journal, Path::new(PROC), false);
        assert_eq!(undone.len(), 1);
        assert_eq!(undone[0].trouble, None);
        assert_eq!(sleeper.mask(), original);
        assert_eq!(undo(&journal, Path::new(PROC), false), []);
    }

    /// One that the journal says was put under SCHED_IDLE, and one that its own program has put there.
    #[test]
    fn a_lowered_thread_gets_its_policy_back() {
        if idle::licence().is_err() {
            eprintln!("skipped: nobody can leave SCHED_IDLE again");
            return;
        }
        let (known, other) = (Sleeper::start(), Sleeper::start());
        let policy = |of: &Sleeper| sys::schedule_of(of.pid.first_thread()).unwrap().policy;
        for sleeper in [&known, &other] {
            let tid = sleeper.pid.first_thread();
            let idle = sys::schedule_of(tid).unwrap().under(libc::SCHED_IDLE);
            sys::set_schedule(tid, &idle).unwrap();
        }
        let lowered = Some(Fair::Other);
        let entries = vec![
            Entry { lowered, ..known.entry(Mark::Original, Mark::Original) },
            other.entry(Mark::Original, Mark::Original),
        ];
        let journal = journal(&known.mask(), entries);
        let wanted = Raised {
            pid: known.pid,
            tid: known.pid.first_thread(),
            to: Fair::Other,
            trouble: None,
        };
        assert_eq!(raise(&journal, Path::new(PROC), true), std::slice::from_ref(&wanted));
        assert_eq!(policy(&known), libc::SCHED_IDLE, "a dry run changes nothing");
        assert_eq!(raise(&journal, Path::new(PROC), false), [wanted]);
        assert_eq!([&known, &other].map(policy), [libc::SCHED_OTHER, libc::SCHED_IDLE]);
        assert_eq!(raise(&journal, Path::new(PROC), false), []);
    }

    #[test]
    fn who_may_have_inherited_it() {
        let entry = |pid, lowered| {
            let (mark, was) = (Mark::Original, Mark::Original);
            Entry { pid: Pid(pid), tid: Tid(pid), start_ticks: 1, mark, was, lowered }
        };
        let entries = [entry(10, Some(Fair::Batch)), entry(20, None)];
        let known = entries.iter().map(|entry| (entry.tid, entry)).collect();
        let parents = [(30, 10), (40, 20), (50, 30)].map(|(child, pid)| (Pid(child), Pid(pid)));
        let parents = parents.into_iter().collect();
        let of = |pid, tid| lowered(&known, &parents, Pid(pid), Tid(tid));
        assert_eq!([of(10, 10), of(10, 11), of(30, 30)], [Some(Fair::Batch); 3]);
        assert_eq!([of(20, 20), of(20, 21), of(40, 40), of(50, 50)], [None; 4]);
    }

    /// The journal was written, the deed not done: the thread is still where it was before.
    #[test]
    fn a_crash_between_line_and_deed() {
        let sleeper = Sleeper::start();
        let original = sleeper.mask();
        let Some(pu) = a_pu(&original) else { return };
        let other = original.iter().last().unwrap();
        pin::place(sleeper.pid.first_thread(), &pin::only(pu)).unwrap();
        let entry = sleeper.entry(Mark::On(other), Mark::On(pu));
        assert_eq!(undo(&journal(&original, vec![entry]), Path::new(PROC), false).len(), 1);
        assert_eq!(sleeper.mask(), original);
    }

    #[test]
    fn what_is_not_ours_is_left() {
        let sleeper = Sleeper::start();
        let original = sleeper.mask();
        let Some(pu) = a_pu(&original) else { return };
        let other = original.iter().last().unwrap();
        pin::place(sleeper.pid.first_thread(), &pin::only(pu)).unwrap();
        let ours = sleeper.entry(Mark::On(pu), Mark::Original);
        let reused = Entry { start_ticks: ours.start_ticks + 1, ..ours };
        let programs = Entry { mark: Mark::Programs, ..ours };
        let moved = Entry { mark: Mark::On(other), ..ours };
        for entry in [reused, programs, moved] {
            let journal = journal(&original, vec![entry]);
            assert_eq!(undo(&journal, Path::new(PROC), false), [], "{entry:?}");
        }
        assert_eq!(sleeper.mask(), pin::only(pu));
    }

    /// A process that is told to stop does so when it is next on a PU. Who lets it go on before that must reach it,
    /// too; here it is kept from a PU by a cgroup.
    #[test]
    fn who_is_about_to_stop_goes_on() {
        let proc = Path::new(PROC);
        let made = freezer::own_cgroup(proc).and_then(|own| freezer::Freezer::create(&own, 1));
        let Ok(freezer) = made else {
            eprintln!("skipped: no cgroups can be made here");
            return;
        };
        let (sleeper, job) = (Sleeper::start(), colocate_policy::JobIdx(0));
        freezer.enter(job, sleeper.pid).unwrap();
        freezer.freeze(job, true).unwrap();
        while !freezer.is_frozen(job) {
            std::thread::yield_now();
        }
        pause::signal(&[sleeper.pid], libc::SIGSTOP).unwrap();
        let entry = sleeper.entry(Mark::Original, Mark::Original);
        let journal =
            Journal { pauses: Some(How::Signals), ..journal(&sleeper.mask(), vec![entry]) };
        let_go_on(&journal, proc, false).unwrap();
        let pending = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", sleeper.pid)).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        assert_eq!(pending() >> (libc::SIGSTOP - 1) & 1, 0, "the stop is taken back");
        freezer::dissolve(freezer.folder()).unwrap();
    }

    #[test]
    fn an_owner_is_told_from_a_later_process() {
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
        let text = "colocate-journal 1\nowner 7 9\noriginal 0-1\n\n";
        std::fs::write(dir.path().join("b.journal"), text).unwrap();
        std::fs::write(dir.path().join("c.other"), "").unwrap();
        let found = journals(dir.path());
        assert_eq!(found.len(), 2);
        assert!(found[0].journal.is_err() && found[1].journal.is_ok());
    }
}
