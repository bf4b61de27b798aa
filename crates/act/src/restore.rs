//! Undoing what a journal says was done.
//!
//! # Problem
//! Who was born just before colocate died stands in no journal, and has inherited its creator's PU and policy. It goes
//! on creating others while we look, and may end before we come to it. And who is given back what it had may be in the
//! middle of creating a thread, which has it not, and is seen only when its birth is over.
//! # Approach
//! Everything goes on first. Then looks at all that may belong to the workload (`workload`), until some in a row have
//! found nothing and nobody can be in the middle of creating a thread any more. Cgroups are removed last: as long as
//! they are there, whoever is born in them is found.
//!
//! A thread is given its original mask if it is on the very PU that it was put on, and its policy if it is under
//! SCHED_IDLE.

mod workload;

use crate::idle::{self, Fair};
use crate::journal::{Entry, Journal, JournalError, Mark, Owner};
use crate::pause::{self, How, freezer};
use crate::pin;
use crate::stat::{Stat, threads};
use crate::sys;
use colocate_machine::{Nanos, PuNr};
use colocate_observe::runstate::RunTime;
use colocate_observe::sys::now;
use colocate_observe::{Pid, Tid};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;
use workload::Workload;

/// How long is looked at most. Chosen: where hundreds of processes bear others on a machine with a load of 10 to 30, endings
/// took up to 2.4 s, and only who runs `colocate restore` waits for it.
const LOOKS_FOR: Nanos = Nanos::from_secs(30);
/// So many looks in a row must find nothing, with [`PAUSE`] between them. This and what follows is as for a normal end,
/// and for the same reasons (`host/giving_back.rs`).
const QUIET: usize = 10;
/// Time between two looks, if the first has found nothing.
const PAUSE: Duration = Duration::from_millis(5);
/// CPU time after which a birth is over.
const BIRTH: Nanos = Nanos::from_millis(1);

/// What was, or would be, undone of a journal.
#[derive(Debug)]
pub struct Undone {
    /// Processes that were stopped, or may have been; or why one could not be let go on, or a cgroup not be removed.
    pub let_go: io::Result<Vec<Pid>>,
    /// Threads that were under SCHED_IDLE.
    pub raised: Vec<Raised>,
    /// Threads that were on a PU.
    pub freed: Vec<Freed>,
}

impl Undone {
    /// Whether nothing is left to undo.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let raised = self.raised.iter().all(|raised| raised.trouble.is_none());
        raised && self.freed.iter().all(|freed| freed.trouble.is_none()) && self.let_go.is_ok()
    }
}

/// A thread that was, or would be, given back its original mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freed {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Where it was.
    pub from: PuNr,
    /// Why it could not be moved, in one line; `None` if it was, or if nothing was tried.
    pub trouble: Option<String>,
}

/// A thread that was, or would be, given back its scheduling policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The policy that it, or its creator, had before it was put under SCHED_IDLE.
    pub to: Fair,
    /// Why it could not be given back, in one line; `None` if it was, or if nothing was tried.
    pub trouble: Option<String>,
}

/// Lets everything go on that the journal's workload has, or may have, stopped, takes its living threads out of
/// SCHED_IDLE that were put there, and gives them their original mask; with `dry` only says which ones. `proc` is
/// `/proc`. Takes a twentieth of a second if somebody lives, and half a minute at most.
#[must_use]
pub fn undo(journal: &Journal, proc: &Path, dry: bool) -> Undone {
    // To move a process out of a cgroup can take the kernel some hundredths of a second.
    let let_go = let_go_on(journal, proc, dry);
    let mut undoing = Undoing::of(journal, proc, dry);
    undoing.look_until_quiet();
    let let_go = let_go.and_then(|pids| match &journal.pauses {
        Some(How::Freezer(folder)) if !dry => freezer::dissolve(folder).map(|_| pids),
        _ => Ok(pids),
    });
    Undone { let_go, raised: undoing.raised, freed: undoing.freed }
}

/// Lets everything go on; with `dry` only says what. Returns the processes that were found stopped, or in cgroups.
fn let_go_on(journal: &Journal, proc: &Path, dry: bool) -> io::Result<Vec<Pid>> {
    match &journal.pauses {
        None => Ok(Vec::new()),
        Some(How::Freezer(folder)) => {
            if dry {
                return freezer::members(folder);
            }
            freezer::thaw(folder)?;
            // What cannot be read cannot be removed either, which is then said.
            Ok(freezer::members(folder).unwrap_or_default())
        }
        Some(How::Signals) => {
            let all: Vec<Pid> = Workload::of(journal, proc).processes().into_iter().collect();
            let is_stopped = |pid: &Pid| {
                let stats = threads(proc, *pid).into_iter().map(|tid| Stat::read(proc, *pid, tid));
                stats.flatten().any(|stat| stat.state == 'T')
            };
            let stopped = all.iter().copied().filter(is_stopped).collect();
            if !dry {
                // Not only to those that have stopped: on a busy machine one may still be about to.
                pause::signal(&all, libc::SIGCONT)?;
            }
            Ok(stopped)
        }
    }
}

/// Gives threads back what was taken from them.
struct Undoing<'a> {
    journal: &'a Journal,
    proc: &'a Path,
    dry: bool,
    workload: Workload<'a>,
    /// Threads, with the PUs that they were to leave, if any: what cannot be given back is not tried for ever.
    tried: HashSet<(Pid, Tid, Option<PuNr>)>,
    creating: Creating,
    raised: Vec<Raised>,
    freed: Vec<Freed>,
}

impl<'a> Undoing<'a> {
    fn of(journal: &'a Journal, proc: &'a Path, dry: bool) -> Self {
        Self {
            journal,
            proc,
            dry,
            workload: Workload::of(journal, proc),
            tried: HashSet::new(),
            creating: Creating::default(),
            raised: Vec::new(),
            freed: Vec::new(),
        }
    }

    fn look_until_quiet(&mut self) {
        let (begun, mut quiet) = (now(), 0);
        while quiet < QUIET && now() < begun + LOOKS_FOR {
            let before = self.tried.len();
            let somebody_lives = self.look();
            if self.dry || !somebody_lives {
                return;
            }
            if self.tried.len() > before {
                quiet = 0;
                continue;
            }
            quiet = if self.creating.are_left(self.proc) { 0 } else { quiet + 1 };
            std::thread::sleep(PAUSE);
        }
    }

    /// Looks at every process once. False if there is none.
    fn look(&mut self) -> bool {
        // Those in cgroups first, which takes some microseconds: while all of /proc is read, many may bear others and
        // end.
        let members = self.workload.members();
        members.iter().for_each(|pid| self.look_at(*pid));
        let all = self.workload.processes();
        all.difference(&members).for_each(|pid| self.look_at(*pid));
        !all.is_empty()
    }

    fn look_at(&mut self, pid: Pid) {
        for tid in threads(self.proc, pid) {
            self.raise(pid, tid);
            self.free(pid, tid);
        }
    }

    /// Takes a thread out of SCHED_IDLE that was put there, or has inherited it.
    fn raise(&mut self, pid: Pid, tid: Tid) {
        let is_idle = || sys::schedule_of(tid).is_ok_and(|it| it.policy == libc::SCHED_IDLE);
        if !self.workload.fills() || !is_idle() {
            return;
        }
        let Some(to) = self.workload.policy_before(pid, tid) else { return };
        if self.is_dead(pid, tid) || !self.tried.insert((pid, tid, None)) {
            return;
        }
        let trouble = (!self.dry).then(|| idle::raise(tid, to)).and_then(Result::err);
        let trouble = trouble.map(|why| why.to_string());
        self.raised.push(Raised { pid, tid, to, trouble });
        self.creating.add(self.proc, pid, tid);
    }

    /// Gives a thread its original mask that was put on a PU, or has inherited that.
    fn free(&mut self, pid: Pid, tid: Tid) {
        let Some(from) = placed(self.journal, tid, self.workload.known(tid)) else { return };
        if self.is_dead(pid, tid) || !self.tried.insert((pid, tid, Some(from))) {
            return;
        }
        let trouble = match (!self.dry).then(|| pin::place(tid, &self.journal.original)) {
            None | Some(Ok(_) | Err(pin::PinError::Gone)) => None,
            Some(Err(why)) => Some(why.to_string()),
        };
        self.freed.push(Freed { pid, tid, from, trouble });
        self.creating.add(self.proc, pid, tid);
    }

    /// What only waits to be reaped runs nowhere any more.
    fn is_dead(&self, pid: Pid, tid: Tid) -> bool {
        Stat::read(self.proc, pid, tid).is_none_or(|stat| stat.is_dead())
    }
}

/// Who may be in the middle of creating a thread since something was given back to it, with the CPU time that it had
/// used then; `None` if the kernel does not say.
#[derive(Default)]
struct Creating(HashMap<(Pid, Tid), Option<(Nanos, RunTime)>>);

impl Creating {
    fn add(&mut self, proc: &Path, pid: Pid, tid: Tid) {
        let time = RunTime::open(proc, pid, tid).ok();
        self.0.insert((pid, tid), time.and_then(|time| Some((time.read()?, time))));
    }

    /// Forgets who cannot be any more: it has used as much CPU time as a birth takes, or sleeps. False if nobody is
    /// left.
    fn are_left(&mut self, proc: &Path) -> bool {
        self.0.retain(|(pid, tid), time| {
            let has_run = time.as_ref().is_none_or(|(then, time)| {
                time.read().is_none_or(|now| now.saturating_sub(*then) >= BIRTH)
            });
            !has_run && Stat::read(proc, *pid, *tid).is_some_and(|stat| stat.could_run())
        });
        !self.0.is_empty()
    }
}

/// The PU that we have put the thread on; `None` if it is not there, or not by our doing.
fn placed(journal: &Journal, tid: Tid, entry: Option<&Entry>) -> Option<PuNr> {
    if entry.is_some_and(|entry| entry.mark == Mark::Programs) {
        return None;
    }
    let pu = pin::single(&pin::allowed(tid).ok()?)?;
    let names = |entry: &Entry| [entry.mark.pu(), entry.was.pu()].contains(&Some(pu));
    let by_us = match entry {
        // Another thread may have executed a program: that made it the first one, with the mask that it had.
        Some(entry) if tid == entry.pid.first_thread() => {
            let threads = journal.entries.iter().filter(|other| other.pid == entry.pid);
            threads.filter(|thread| thread.mark != Mark::Programs).any(names)
        }
        Some(entry) => names(entry),
        None => journal.entries.iter().any(names),
    };
    // With one PU in the original mask nothing has changed.
    (by_us && pin::only(pu) != journal.original).then_some(pu)
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

        let undo = |dry| undo(&journal, Path::new(PROC), dry).freed;
        assert_eq!(undo(true).len(), 1);
        assert_eq!(sleeper.mask(), pin::only(pu), "a dry run changes nothing");
        let undone = undo(false);
        assert_eq!(undone.len(), 1);
        assert_eq!(undone[0].trouble, None);
        assert_eq!(sleeper.mask(), original);
        assert_eq!(undo(false), []);
    }

    /// One that the journal says was put under SCHED_IDLE, and one that its own program has put there.
    #[test]
    fn a_lowered_thread_gets_its_policy_back() {
        if !may_idle() {
            return;
        }
        let (known, other) = (Sleeper::start(), Sleeper::start());
        [&known, &other].into_iter().for_each(|sleeper| lower(sleeper.pid));
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
                said.read_line(&mut line).unwrap();
                Pid(line.trim().parse().unwrap())
            };
            (0..numbers).map(|_| line()).collect()
        }

        fn entry(&self, lowered: Option<Fair>) -> Entry {
            let tid = self.pid.first_thread();
            let start_ticks = Stat::read(Path::new(PROC), self.pid, tid).unwrap().start_ticks;
            let (mark, was) = (Mark::Original, Mark::Original);
            Entry { pid: self.pid, tid, start_ticks, mark, was, lowered }
        }
    }

    impl Drop for Family {
        fn drop(&mut self) {
            // The whole group.
            let _ = sys::kill(Pid(-self.pid.0), libc::SIGKILL);
            let _ = self.shell.wait();
        }
    }

    fn may_idle() -> bool {
        let may = idle::licence().is_ok();
        if !may {
            eprintln!("skipped: nobody can leave SCHED_IDLE again");
        }
        may
    }

    /// The journal knows the shell alone, and not what it has created by way of another one.
    #[test]
    fn grandchildren_get_their_policy_back() {
        if !may_idle() {
            return;
        }
        let mut family = Family::start("sh -c 'echo $$; sleep 60 & echo $!; wait' & wait");
        lower(family.pid);
        let entry = family.entry(Some(Fair::Batch));
        let mut pids = family.go(2);
        pids.push(family.pid);
        let journal = journal(&pin::allowed(entry.tid).unwrap(), vec![entry]);
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
    fn who_has_a_creator_that_was_just_raised() {
        if !may_idle() {
            return;
        }
        let mut families = [(); 2].map(|()| Family::start("sleep 60 & echo $!"));
        let third = Sleeper::start();
        let entries = vec![
            families[0].entry(None),
            families[1].entry(None),
            Entry { lowered: Some(Fair::Other), ..third.entry(Mark::Original, Mark::Original) },
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

    /// Its creator has ended, so it descends from nobody; but it is in the cgroup of a job.
    #[test]
    fn an_orphan_in_a_cgroup_has_all_of_it_back() {
        let Some(freezer) = freezer::cgroups_for_a_test(3, 1) else { return };
        // The second number comes when the creator has ended.
        let mut family = Family::start("(sleep 60 & echo $!); echo $$");
        let original = pin::allowed(family.pid.first_thread()).unwrap();
        let Some(pu) = a_pu(&original).filter(|_| may_idle()) else { return };
        freezer.enter(colocate_policy::JobIdx(0), family.pid).unwrap();
        lower(family.pid);
        pin::place(family.pid.first_thread(), &pin::only(pu)).unwrap();
        let (mark, lowered) = (Mark::On(pu), Some(Fair::Other));
        let entry = Entry { mark, ..family.entry(lowered) };
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
        assert_eq!(pin::allowed(orphan.first_thread()).unwrap(), original);
        assert!(!freezer.folder().exists());
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
        let undone = undo(&journal(&original, vec![entry]), Path::new(PROC), false);
        assert_eq!(undone.freed.len(), 1);
        assert_eq!(sleeper.mask(), original);
    }

    /// A later thread has executed a program and is the first one now, and who wrote the journal never knew.
    #[test]
    fn where_a_later_thread_executed_a_program() {
        let sleeper = Sleeper::start();
        let original = sleeper.mask();
        let Some(pu) = a_pu(&original) else { return };
        let other = original.iter().last().unwrap();
        pin::place(sleeper.pid.first_thread(), &pin::only(pu)).unwrap();
        let first = sleeper.entry(Mark::On(other), Mark::Original);
        let tid = Tid(first.tid.0 + 1);
        let later = Entry { tid, mark: Mark::On(pu), ..first };
        let bound = Entry { mark: Mark::Programs, was: Mark::On(pu), ..later };
        let freed =
            |entries| undo(&journal(&original, entries), Path::new(PROC), false).freed.len();
        assert_eq!(freed(vec![first, bound]), 0, "the program bound that thread itself");
        assert_eq!(freed(vec![first, later]), 1);
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
            assert_eq!(undo(&journal, Path::new(PROC), false).freed, [], "{entry:?}");
        }
        assert_eq!(sleeper.mask(), pin::only(pu));
    }

    /// A process that is told to stop does so when it is next on a PU. Who lets it go on before that must reach it,
    /// too; here it is kept from a PU by a cgroup.
    #[test]
    fn who_is_about_to_stop_goes_on() {
        let proc = Path::new(PROC);
        let Some(freezer) = freezer::cgroups_for_a_test(2, 1) else { return };
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
