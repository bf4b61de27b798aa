//! The actuator for affinity: where a thread may run.
//!
//! [`Actuators::pin`] writes to the journal, applies and reads back; [`Actuators::read_back`] reads again later. A thread on the PUs
//! that the journal names gets the original mask.
//!
//! A thread whose mask is neither the original one nor one that we gave to it or its creator has it from its program, which
//! is respected. [`crate::mask_owner`] says which it is.

mod undo;

use crate::actuator::{Actuator, ThreadRef};
use crate::actuators::Actuators;
use crate::attached::MOST_CGROUPS_B;
use crate::journal::{JournalEntry, Mark};
use crate::mask_owner::{MaskFacts, MaskOwner};
use crate::thread::{Inherited, ManagedThread};
use crate::workload::JournalWorkload;
use colocate_linux::clock::now;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::proc::stat::Stat;
use colocate_linux::{Pid, SysError, Tid, affinity as mask};
use colocate_machine::read::Cpusets;
use colocate_machine::{PuNr, PuSet};
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// Message for a filter that refuses sched_setaffinity(2), so that no thread can be placed, with
/// the remedy.
pub const FILTERED: &str =
    "a seccomp filter answers sched_setaffinity with EPERM (colocate doctor has the remedy)";

/// Failed change of a thread's mask.
#[derive(Debug, Error)]
pub enum AffinityError {
    /// The thread has ended (`ESRCH`).
    #[error("the thread has ended")]
    Gone,
    /// The thread's cpuset has none of the PUs, or they are offline (`EINVAL`).
    #[error("expected a PU of the thread's cpuset that is online, found {wanted}")]
    NoneAllowed {
        /// Requested PUs.
        wanted: PuSet,
    },
    /// The thread belongs to another user (`EPERM`); `CAP_SYS_NICE` would allow the change.
    #[error("the thread belongs to another user; run colocate as that user or with CAP_SYS_NICE")]
    Denied,
    /// A filter of this process refuses every call, also for its own threads (`EPERM`).
    #[error("{FILTERED}")]
    Filtered,
    /// The kernel accepted the mask and shows another afterwards: another program moves the thread.
    #[error("expected {wanted} to be read back, found {found}")]
    Elsewhere {
        /// Requested PUs.
        wanted: PuSet,
        /// Actual mask of the thread.
        found: PuSet,
    },
    /// Error undocumented in sched_setaffinity(2).
    #[error("{0}")]
    Other(SysError),
}

impl AffinityError {
    fn of(error: SysError, wanted: &PuSet) -> Self {
        match error.errno() {
            Some(libc::ESRCH) => Self::Gone,
            Some(libc::EINVAL) => Self::NoneAllowed { wanted: wanted.clone() },
            // EPERM has two causes; a trial on a thread of our own tells them apart.
            Some(libc::EPERM) if mask::is_filtered() => Self::Filtered,
            Some(libc::EPERM) => Self::Denied,
            _ => Self::Other(error),
        }
    }
}

/// Mask of this thread.
///
/// # Errors
/// Any error of the kernel; none is known.
pub fn own() -> Result<PuSet, AffinityError> {
    // Thread 0 is the caller.
    mask::of(Tid(0)).map_err(|error| AffinityError::of(error, &PuSet::new()))
}

/// Sets the mask of this thread to `cpus`, as [`place`] does for other threads.
///
/// ```
/// use colocate_act::affinity::{only, own, place_own};
/// let before = own()?;
/// let pu = before.iter().next().expect("a thread has a PU");
/// assert_eq!(place_own(&only(pu))?, only(pu));
/// assert_eq!(own()?, only(pu), "the mask is in force");
/// assert_eq!(place_own(&before)?, before);
/// # Ok::<(), colocate_act::affinity::AffinityError>(())
/// ```
///
/// # Errors
/// As [`place`].
pub fn place_own(cpus: &PuSet) -> Result<PuSet, AffinityError> {
    mask::set(Tid(0), cpus).map_err(|error| AffinityError::of(error, cpus))?;
    read_back(own()?, cpus)
}

/// Mask of thread `tid` of a process.
///
/// # Errors
/// [`AffinityError::Gone`] if the thread has ended.
pub fn allowed(process: &ProcessHandle, tid: Tid) -> Result<PuSet, AffinityError> {
    process.with(tid, mask::of).map_err(|error| AffinityError::of(error, &PuSet::new()))
}

/// Sets the mask of thread `tid` of a process to `cpus` and returns the mask read back: without PUs
/// that are offline or outside the thread's cpuset.
///
/// Success means that the kernel accepted the mask. A running thread on a PU outside is moved
/// before the call returns; a sleeping thread moves at its wake-up.
///
/// # Errors
/// Every variant of [`AffinityError`]; [`AffinityError::Elsewhere`] if none of `cpus` is read back.
pub fn place(process: &ProcessHandle, tid: Tid, cpus: &PuSet) -> Result<PuSet, AffinityError> {
    let mut is_set = false;
    let placed = process.with(tid, |tid| {
        mask::set(tid, cpus)?;
        is_set = true;
        mask::of(tid)
    });
    // The thread ended between both calls, and its number may be another thread's.
    if is_set && matches!(&placed, Err(why) if why.errno() == Some(libc::ESRCH)) {
        restore_successor(tid, cpus);
    }
    read_back(placed.map_err(|error| AffinityError::of(error, cpus))?, cpus)
}

/// Restores the mask of a thread's successor, which has just taken over the thread's number and the
/// mask `cpus`, to its creator's mask, the source of its own. Requires that the kernel gives out
/// all its numbers between two system calls: seen once, in a test with 400 numbers.
fn restore_successor(tid: Tid, cpus: &PuSet) {
    let successor = Stat::read(Path::new("/proc"), Pid(tid.0), tid);
    let creator = successor.and_then(|stat| mask::of(stat.parent.first_thread()).ok());
    if let (Some(given), Ok(current)) = (creator, mask::of(tid))
        // Another mask is not ours: a program has set it since.
        && current == *cpus
    {
        // If it has ended there is nothing to restore.
        let _ = mask::set(tid, &given);
    }
}

fn read_back(found: PuSet, cpus: &PuSet) -> Result<PuSet, AffinityError> {
    // The kernel drops offline PUs and PUs outside the cpuset, so a subset is a success.
    if found.is_subset(cpus) {
        Ok(found)
    } else {
        Err(AffinityError::Elsewhere { wanted: cpus.clone(), found })
    }
}

/// The actuator for masks.
pub(crate) struct MaskActuator;

impl Actuator for MaskActuator {
    type Target<'a> = ThreadRef<'a>;
    type Setting = PuSet;
    type Line = JournalEntry;
    type Record = Mark;
    type Error = AffinityError;

    fn journal(line: &mut JournalEntry, to: Mark) {
        line.mark = to;
    }

    fn apply(thread: ThreadRef<'_>, to: &PuSet) -> Result<Option<PuSet>, AffinityError> {
        unless_gone(place(thread.process, thread.tid, to))
    }

    fn read_back(thread: ThreadRef<'_>) -> Result<Option<PuSet>, AffinityError> {
        unless_gone(allowed(thread.process, thread.tid))
    }

    fn undo(workload: &JournalWorkload<'_>, thread: ThreadRef<'_>) -> Option<PuSet> {
        let ThreadRef { process, tid } = thread;
        let entry = workload.known(tid);
        let is_programs = entry.is_some_and(|entry| entry.mark == Mark::Programs);
        // The process is asked last: that takes longer than to read a mask.
        let is_given = !is_programs
            && undo::has_given_mask(workload, process, tid, entry)
            && (entry.is_some() || !workload.has_only_masks_of_its_own(process.pid()));
        is_given.then(|| workload.journal().original.clone())
    }
}

/// `None` if the thread has ended.
fn unless_gone(mask: Result<PuSet, AffinityError>) -> Result<Option<PuSet>, AffinityError> {
    match mask {
        Err(AffinityError::Gone) => Ok(None),
        mask => mask.map(Some),
    }
}

/// Set with a single PU.
pub fn only(pu: PuNr) -> PuSet {
    [pu].into_iter().collect()
}

/// Only PU of `set`; `None` unless it has exactly one.
pub fn single(set: &PuSet) -> Option<PuNr> {
    let mut pus = set.iter();
    pus.next().filter(|_| pus.next().is_none())
}

/// Online PUs of a thread's cpuset; `None` if no mount shows its control group.
pub fn cpuset_of(cpusets: &Cpusets, process: &ProcessHandle, tid: Tid) -> Option<PuSet> {
    cpusets.of(&process.read(&format!("task/{tid}/cgroup"), MOST_CGROUPS_B).ok()?)
}

/// Mask and cpuset of a thread, both from the same moment: the kernel moves a process to another
/// cpuset first, and sets the masks of its threads afterwards. `None` if the thread has ended; the
/// cpuset is `None` if unreadable.
pub fn mask_and_cpuset(
    cpusets: &Cpusets,
    process: &ProcessHandle,
    tid: Tid,
) -> Option<(PuSet, Option<PuSet>)> {
    let mut before = cpuset_of(cpusets, process, tid);
    for _ in 0..MOST_READINGS {
        let shown = allowed(process, tid).ok()?;
        let after = cpuset_of(cpusets, process, tid);
        // Equal before and after: the mask read in between belongs to this cpuset.
        if before == after {
            return Some((shown, after));
        }
        before = after;
    }
    // A cpuset that never rests has no consistent pair: the latest of each is returned.
    Some((allowed(process, tid).ok()?, before))
}

/// Maximum number of readings of a constantly changing cpuset. Chosen: a change takes a write by
/// hand or by a program.
const MOST_READINGS: usize = 5;

/// Result of placing a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// In place, as read back.
    Done,
    /// The program chose its PUs itself, and keeps them.
    ByProgram,
    /// The thread has ended.
    Ended,
    /// Failure, with the reason.
    Failed(String),
}

impl Actuators {
    /// Puts `thread` where `to` says.
    pub fn pin(&mut self, thread: &mut ManagedThread, to: Mark) -> Pinned {
        let Some(process) = thread.process.clone() else { return Pinned::Ended };
        let target = ThreadRef { process: &process, tid: thread.tid };
        let current = match MaskActuator::read_back(target) {
            Ok(Some(current)) => current,
            Ok(None) => return Pinned::Ended,
            Err(why) => return Pinned::Failed(why.to_string()),
        };
        thread.allowed = current;
        let owner = self.mask_owner(thread);
        if owner == MaskOwner::Program {
            self.respect(thread);
            return Pinned::ByProgram;
        }
        // Its program has set all PUs since, if it had set others.
        thread.programs = None;
        let from_creator = thread
            .recent
            .marks()
            .find(|mark| self.mask(*mark) == thread.allowed)
            .filter(|_| thread.slot.is_none());
        if let Some(from_creator) = from_creator {
            // The journal is to say what it has from its creator, which may have been put elsewhere since.
            thread.mark = from_creator;
        }
        if to == Mark::Original && thread.slot.is_none() && owner == MaskOwner::Original {
            // Nothing was ever done to it, nor to its creator when it was created.
            thread.recent.clear();
            thread.mark = to;
            return Pinned::Done;
        }
        match self.write::<MaskActuator>(thread, to) {
            Ok(true) => {}
            Ok(false) => return Pinned::Ended,
            // What is not in the journal cannot be undone.
            Err(why) => {
                return Pinned::Failed(format!("its start in /proc cannot be read: {why}"));
            }
        }
        // Noted before the change: a thread created during the change has either mask.
        thread.recent.changes(thread.mark, to, now());
        // The mask is uncertain until it is read back.
        thread.set = None;
        let mut placed = MaskActuator::apply(target, &self.mask(to));
        if let Err(AffinityError::Elsewhere { found, .. }) = &placed
            && *found == thread.allowed
        {
            // Its program has set the same mask again in the moment since: some threads do so once, as they begin.
            placed = MaskActuator::apply(target, &self.mask(to));
        }
        match placed {
            Ok(Some(found)) => {
                thread.allowed = found;
                thread.mark = to;
                thread.set = Some(to);
                Pinned::Done
            }
            Ok(None) => Pinned::Ended,
            Err(AffinityError::Elsewhere { wanted, found }) => {
                let before = std::mem::replace(&mut thread.allowed, found.clone());
                if self.mask_owner(thread) != MaskOwner::Program {
                    thread.allowed = before;
                    return Pinned::Failed(AffinityError::Elsewhere { wanted, found }.to_string());
                }
                // Its program has moved it in the moment since we did.
                self.respect(thread);
                Pinned::ByProgram
            }
            Err(why) => Pinned::Failed(why.to_string()),
        }
    }

    /// Updates mask and last PU of `thread`. `None` if the thread has ended or is unreadable.
    pub fn read_back(&self, thread: &mut ManagedThread) -> Option<Stat> {
        let current = allowed(thread.process.as_ref()?, thread.tid).ok()?;
        let stat = Self::read_last_pu(thread)?;
        thread.allowed = current;
        Some(stat)
    }

    /// Reads where `thread` last ran.
    pub fn read_last_pu(thread: &mut ManagedThread) -> Option<Stat> {
        let stat = thread.process.as_ref()?.stat_of(thread.tid)?;
        thread.last_ran = Some(stat.last_ran);
        Some(stat)
    }

    /// Mask for a mark; the original mask for a mark without placement.
    pub fn mask(&self, mark: Mark) -> PuSet {
        let mask = Some(mark).filter(|mark| mark.is_put());
        let mask = mask.and_then(|mark| self.journal.journal().mask(mark));
        mask.unwrap_or_else(|| self.original.clone())
    }

    /// Mark for the set `pus`; [`Mark::Original`] if `pus` is not a set of the journal.
    pub fn mark_of(&self, pus: &PuSet) -> Mark {
        let at = self.journal.journal().sets.iter().position(|set| set == pus);
        at.and_then(|at| u16::try_from(at).ok()).map_or(Mark::Original, Mark::Among)
    }

    /// Origin of the mask of a thread as last read; read again if uncertain.
    pub fn mask_owner(&self, thread: &mut ManagedThread) -> MaskOwner {
        let own = thread.set.filter(|mark| mark.is_put()).map(|mark| self.mask(mark));
        let inherited = self.inherited(thread);
        let programs = thread.programs.clone();
        if programs.is_none() && own.iter().chain(&inherited).any(|mask| *mask == thread.allowed) {
            return MaskOwner::Ours;
        }
        let facts = |shown: &PuSet, cpuset: &PuSet| {
            MaskOwner::of(&MaskFacts {
                shown,
                cpuset,
                original: &self.original,
                own: own.as_ref(),
                inherited: &inherited,
                programs: programs.as_ref(),
            })
        };
        // Without a mask of ours the shown one alone decides, which saves reading the cpuset.
        if own.is_none()
            && programs.is_none()
            && facts(&thread.allowed, &self.usable) == MaskOwner::Original
        {
            return MaskOwner::Original;
        }
        let found = self.read_owner(thread, facts);
        if found == MaskOwner::Program && programs.is_none() && self.is_of_gone(thread) {
            return MaskOwner::Ours;
        }
        if found == MaskOwner::Program && thread.mark.is_put() {
            // Where a cpuset has just changed, the masks of its threads follow one by one.
            std::thread::sleep(MASKS_FOLLOW);
            return self.read_owner(thread, facts);
        }
        found
    }

    /// Whether a first thread has the mask of an ended thread of its process: the ended thread may
    /// have executed a program and be the first thread since.
    fn is_of_gone(&self, thread: &ManagedThread) -> bool {
        // Only a first thread can be the survivor of another thread's exec.
        let process = thread.process.as_ref().filter(|_| thread.is_first());
        process.is_some_and(|process| {
            self.journal.journal().was_of_gone(thread.pid, &thread.allowed, |tid| {
                tid == thread.tid || process.stat_of(tid).is_some()
            })
        })
    }

    /// Reads mask and cpuset of a thread. An unreadable cpuset is assumed to equal our own.
    fn read_owner(
        &self,
        thread: &mut ManagedThread,
        owner: impl Fn(&PuSet, &PuSet) -> MaskOwner,
    ) -> MaskOwner {
        let read = thread
            .process
            .as_ref()
            .and_then(|process| mask_and_cpuset(&self.cpusets, process, thread.tid));
        let ours = || mask::of(Tid(0)).unwrap_or_else(|_| self.usable.clone());
        let Some((shown, cpuset)) = read else {
            let assumed = owner(&thread.allowed, &self.usable);
            // PUs may have gone since the machine was last read.
            return if assumed == MaskOwner::Program {
                owner(&thread.allowed, &ours())
            } else {
                assumed
            };
        };
        thread.allowed = shown;
        owner(&thread.allowed, &cpuset.unwrap_or_else(ours))
    }

    /// Possible masks of a thread beside the mask set on it: its creator's masks, and its own
    /// earlier masks.
    fn inherited(&self, thread: &ManagedThread) -> Vec<PuSet> {
        // Without a mask set on the thread itself, its mark is the creator's.
        let own = (thread.set.is_none()).then_some(thread.mark);
        let marks = thread.recent.marks().chain(own).filter(|mark| mark.is_put());
        // A thread that was given the original mask has lost every inherited one.
        let is_restored = thread.set == Some(Mark::Original);
        marks.filter(|_| !is_restored).map(|mark| self.mask(mark)).collect()
    }

    /// Handles the end of another thread of the process of the first thread `first`. The ended
    /// thread may live on as the first thread, with its mask, after an exec that is seen later. Its
    /// journal line is used again, so the mark moves to the line of `first`.
    pub fn may_live_on_as(&mut self, first: &mut ManagedThread, gone: &Inherited) {
        let process = first.process.as_ref();
        let allowed = process.and_then(|process| allowed(process, first.tid).ok());
        let mut given = [gone.mark].into_iter().chain(gone.recent.marks());
        let inherited =
            given.find(|mark| mark.is_put() && allowed.as_ref() == Some(&self.mask(*mark)));
        let Some(mark) = inherited else { return };
        first.recent.note(mark, now());
        first.set = None;
        let has_it = [mark, Mark::Programs].contains(&first.mark);
        if !has_it && self.write::<MaskActuator>(first, mark).is_ok() {
            first.mark = mark;
        }
    }

    /// Leaves the mask of a thread, as last read, to its program.
    pub fn respect(&mut self, thread: &mut ManagedThread) {
        // What is not in the journal might have its mask from one that we have placed.
        let _ = self.write::<MaskActuator>(thread, Mark::Programs);
        thread.recent.clear();
        thread.mark = Mark::Programs;
        thread.set = None;
        thread.programs = Some(thread.allowed.clone());
    }

    /// At exit, records whose mask a thread without a journal line has: the undoing takes an unknown
    /// mask for one of a creator on this PU, unless the known threads of its process have masks of
    /// their own.
    pub fn note_bound(&mut self, thread: &mut ManagedThread) {
        let process = thread.process.as_ref().filter(|_| thread.slot.is_none());
        let Some(Ok(current)) = process.map(|process| allowed(process, thread.tid)) else { return };
        thread.allowed = current;
        let mark = match self.mask_owner(thread) {
            MaskOwner::Program => Some(Mark::Programs),
            MaskOwner::Ours | MaskOwner::Hidden => {
                let put = || thread.recent.marks().filter(|mark| mark.is_put());
                put().find(|mark| self.mask(*mark) == thread.allowed).or_else(|| put().next())
            }
            MaskOwner::Original | MaskOwner::Widened => None,
        };
        if let Some(mark) = mark {
            let _ = self.write::<MaskActuator>(thread, mark);
        }
    }
}

/// Time within which the masks of threads follow their cpuset. Chosen: setting a mask takes some
/// microseconds.
const MASKS_FOLLOW: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actuators::tests::{actuators, with_sets};
    use crate::journal::JournalEntry;
    use colocate_linux::Pid;
    use colocate_machine::Nanos;
    use colocate_testing::need;
    use colocate_testing::skip::two_pus;
    use std::sync::Arc;

    fn set(list: &str) -> PuSet {
        PuSet::parse_list(list).unwrap()
    }

    /// Pins this thread, reads it back and restores the old mask.
    #[test]
    fn what_is_set_is_read_back() {
        let before = own().unwrap();
        for pu in before.iter() {
            assert_eq!(place_own(&only(pu)).unwrap(), only(pu));
        }
        assert_eq!(place_own(&before).unwrap(), before);
    }

    #[test]
    fn what_took_over_a_number_has_the_mask_of_its_creator() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tid = Tid(child.id().cast_signed());
        for pu in own().unwrap().iter().map(only) {
            mask::set(tid, &pu).unwrap();
            restore_successor(tid, &own().unwrap());
            assert_eq!(mask::of(tid).unwrap(), pu, "it is not what was set");
            restore_successor(tid, &pu);
            assert_eq!(mask::of(tid).unwrap(), own().unwrap());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        restore_successor(tid, &own().unwrap());
    }

    #[test]
    fn a_pu_that_does_not_exist_is_refused() {
        let error = place_own(&set("8191")).unwrap_err();
        assert!(matches!(error, AffinityError::NoneAllowed { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            "expected a PU of the thread's cpuset that is online, found 8191"
        );
    }

    #[test]
    fn an_ended_thread_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tid = Tid(child.id().cast_signed());
        let process = ProcessHandle::open(Path::new("/proc"), Pid(tid.0));
        let process = process.unwrap();
        assert_eq!(allowed(&process, tid).unwrap(), own().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(place(&process, tid, &set("0")), Err(AffinityError::Gone)));
        assert!(matches!(allowed(&process, tid), Err(AffinityError::Gone)));
    }

    /// Put on all PUs of the first set, and then where it was.
    #[test]
    fn a_thread_is_put_on_a_set_of_pus() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let (all, pu) = (own().unwrap(), own().unwrap().iter().next().unwrap());
        mask::set(pid.first_thread(), &only(pu)).unwrap();
        let handle = Arc::new(ProcessHandle::open(Path::new("/proc"), pid).unwrap());
        let sets = [all.clone(), set("8000-8001")];
        let mut actuators = with_sets(actuators(&only(pu)), &sets);
        actuators.usable = all.clone();
        let first = actuators.mark_of(&all);
        assert_eq!((first, actuators.mark_of(&set("3-5"))), (Mark::Among(0), Mark::Original));
        let mut thread =
            ManagedThread::new(pid, pid.first_thread(), Some(handle), Inherited::default());
        for (to, mask) in [(first, &all), (Mark::Original, &only(pu)), (first, &all)] {
            assert_eq!(actuators.pin(&mut thread, to), Pinned::Done);
            assert_eq!(mask::of(thread.tid).unwrap(), *mask);
            assert_ne!(actuators.mask_owner(&mut thread), MaskOwner::Program);
        }
        let unusable = actuators.mark_of(&sets[1]);
        assert!(matches!(actuators.pin(&mut thread, unusable), Pinned::Failed(_)));
        assert_eq!(mask::of(thread.tid).unwrap(), all, "it stays where it was");
        assert_eq!(thread.mark, first);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn thread(pid: i32, tid: i32) -> ManagedThread {
        ManagedThread::new(Pid(pid), Tid(tid), None, Inherited::default())
    }

    /// Whether the mask of one PU is one of ours.
    fn is_ours_on(actuators: &Actuators, thread: &mut ManagedThread, pu: u32) -> bool {
        thread.allowed = only(PuNr(pu));
        actuators.mask_owner(thread) != MaskOwner::Program
    }

    /// A PU goes offline and the kernel frees the thread on it, before the machine was read again.
    #[test]
    fn a_thread_whose_pu_has_just_gone_is_still_ours() {
        let (usable_now, gone) = (own().unwrap(), PuNr(8191));
        let actuators = actuators(&usable_now.iter().chain([gone]).collect());
        let mut thread = thread(10, 10);
        (thread.mark, thread.allowed) = (Mark::On(gone), usable_now);
        assert_eq!(actuators.mask_owner(&mut thread), MaskOwner::Hidden);
        assert!(!is_ours_on(&actuators, &mut thread, 8190), "the program moved it");
    }

    /// A thread was put on the only PU that can be used. One that has what is left of the original mask, which would grow
    /// with what can be used, is another case, and is given that one.
    #[test]
    fn the_only_pu_may_be_a_pin() {
        std::thread::spawn(|| {
            let pu = own().unwrap().iter().next().unwrap();
            place_own(&only(pu)).unwrap();
            let mut actuators = actuators(&[pu, PuNr(8191)].into_iter().collect());
            actuators.usable = only(pu);
            let this = std::fs::read_link("/proc/thread-self").unwrap();
            let tid = Tid(this.file_name().unwrap().to_str().unwrap().parse().unwrap());
            let pid = Pid(std::process::id().cast_signed());
            let handle = ProcessHandle::open(Path::new("/proc"), pid).unwrap();
            let mut thread =
                ManagedThread::new(pid, tid, Some(Arc::new(handle)), Inherited::default());
            assert_eq!(actuators.pin(&mut thread, Mark::Original), Pinned::Done);
            assert!(thread.slot.is_none(), "nothing was ever done to it");
            thread.mark = Mark::On(pu);
            assert_eq!(actuators.pin(&mut thread, Mark::Original), Pinned::Done);
            assert!(thread.set == Some(Mark::Original) && thread.slot.is_some());
        })
        .join()
        .unwrap();
    }

    /// While thread 11 is being created by 10, 10 is put on PU 1, then on 2, then left unpinned; 11 has the
    /// mask that 10 had at the beginning. What 10 left eleven seconds ago was not handed down.
    #[test]
    fn a_new_thread_may_have_any_mask_that_its_creator_had_meanwhile() {
        let actuators = actuators(&set("0-7"));
        let mut creator = thread(10, 10);
        for (pu, left_at) in [(5, 1), (0, 11_001), (1, 11_020), (2, 11_030)] {
            let left_at = Nanos::from_millis(left_at);
            creator.recent.changes(Mark::On(PuNr(pu)), Mark::Original, left_at);
        }
        let mut new = ManagedThread::new(Pid(10), Tid(11), None, creator.hands_down());
        let ours = [0, 1, 2, 5, 6].map(|pu| is_ours_on(&actuators, &mut new, pu));
        assert_eq!(ours, [true, true, true, false, false]);
    }

    /// Another thread of the process was put on the PU that its first thread is on, and is gone: it may have executed a program and be
    /// the first one since. One of another process cannot.
    #[test]
    fn a_first_thread_may_have_the_mask_of_another() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let pu = own().unwrap().iter().next().unwrap();
        mask::set(pid.first_thread(), &only(pu)).unwrap();
        let handle = Arc::new(ProcessHandle::open(Path::new("/proc"), pid).unwrap());
        let owner = |of: Pid, put: PuNr| {
            let original: PuSet = own().unwrap().iter().chain([PuNr(8191)]).collect();
            let mut actuators = actuators(&original);
            let (tid, mark) = (Tid(i32::MAX), Mark::On(put));
            let entry =
                JournalEntry { pid: of, tid, mark, was: Mark::Original, ..JournalEntry::EMPTY };
            let slot = actuators.journal.slot();
            actuators.journal.write(slot, &entry);
            let mut first = ManagedThread::new(
                pid,
                pid.first_thread(),
                Some(handle.clone()),
                Inherited::default(),
            );
            first.allowed = only(pu);
            actuators.mask_owner(&mut first)
        };
        if own().unwrap() != only(pu) {
            assert_eq!(owner(pid, pu), MaskOwner::Ours);
            assert_eq!(owner(pid, PuNr(8190)), MaskOwner::Program, "it was on another PU");
            assert_eq!(owner(Pid(1), pu), MaskOwner::Program, "it is another process's");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The same, and that the other thread is gone is seen before the program.
    #[test]
    fn a_first_thread_may_have_the_mask_of_one_that_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let pu = own().unwrap().iter().next().unwrap();
        mask::set(pid.first_thread(), &only(pu)).unwrap();
        let handle = Arc::new(ProcessHandle::open(Path::new("/proc"), pid).unwrap());
        let noted = |mark| {
            let mut first = ManagedThread::new(
                pid,
                pid.first_thread(),
                Some(handle.clone()),
                Inherited::default(),
            );
            let mut actuators = actuators(&own().unwrap());
            actuators.may_live_on_as(&mut first, &Inherited { mark, ..Inherited::default() });
            let recent: Vec<_> = first.recent.marks().collect();
            let in_journal = actuators.journal.journal().was_of_gone(pid, &only(pu), |_| false);
            assert_eq!(in_journal, recent == [Mark::On(pu)]);
            recent
        };
        assert_eq!(noted(Mark::On(pu)), [Mark::On(pu)]);
        assert_eq!(noted(Mark::On(PuNr(8190))), [], "its program chose its PU");
        assert_eq!(noted(Mark::Original), []);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A process was created on a PU that its creator has left since. The journal names it: another thread of the process
    /// may have it, execute a program and be the first one from then on.
    #[test]
    fn what_a_new_thread_has_inherited_is_in_the_journal() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let pu = own().unwrap().iter().next().unwrap();
        mask::set(pid.first_thread(), &only(pu)).unwrap();
        let handle = Arc::new(ProcessHandle::open(Path::new("/proc"), pid).unwrap());
        // More than one PU, so that this one is not all.
        let original: PuSet = own().unwrap().iter().chain([PuNr(0), PuNr(1)]).collect();
        let mut actuators = actuators(&original);
        let mut from = Inherited::default();
        from.recent.note(Mark::On(pu), now());
        let mut thread = ManagedThread::new(pid, pid.first_thread(), Some(handle), from);
        assert_eq!(actuators.pin(&mut thread, Mark::Original), Pinned::Done);
        assert!(actuators.journal.journal().was_of_gone(pid, &only(pu), |_| false));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The first thread has set its own mask; another one, which has ended since, created one more.
    #[test]
    fn a_new_thread_of_a_program_with_masks_of_its_own_is_in_the_journal() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let pu = own().unwrap().iter().next().unwrap();
        mask::set(pid.first_thread(), &only(pu)).unwrap();
        let handle = Arc::new(ProcessHandle::open(Path::new("/proc"), pid).unwrap());
        let mut actuators = actuators(&[pu, PuNr(pu.0 + 1)].into_iter().collect());
        let mut from = Inherited::default();
        from.recent.note(Mark::On(pu), now());
        let mut thread = ManagedThread::new(pid, pid.first_thread(), Some(handle), from);
        actuators.note_bound(&mut thread);
        let entries = &actuators.journal.journal().entries;
        assert!(entries.iter().any(|it| it.pid == pid && it.mark == Mark::On(pu)), "{entries:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Thread 10 is on PU 0 and was to be put on PU 1: it was, created 11 there, and had ended when its mask was to
    /// be read back.
    #[test]
    fn a_new_thread_may_have_a_mask_that_its_creator_was_not_seen_with() {
        let actuators = actuators(&set("0-7"));
        let mut creator = thread(10, 10);
        creator.mark = Mark::On(PuNr(0));
        creator.recent.changes(creator.mark, Mark::On(PuNr(1)), Nanos(1));
        let mut new = ManagedThread::new(Pid(10), Tid(11), None, creator.hands_down());
        let ours = [0, 1, 2].map(|pu| is_ours_on(&actuators, &mut new, pu));
        assert_eq!(ours, [true, true, false]);
    }

    /// A program binds its thread to the PU that colocate gives it later, after it has set all PUs again: then the mask is ours.
    #[test]
    fn what_is_given_after_a_programs_mask_is_ours() {
        let original = own().unwrap();
        need!(two_pus());
        let pu = original.iter().next().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let set = |mask: &PuSet| mask::set(pid.first_thread(), mask).unwrap();
        let handle = Arc::new(ProcessHandle::open(Path::new("/proc"), pid).unwrap());
        let mut actuators = actuators(&original);
        let mut thread =
            ManagedThread::new(pid, pid.first_thread(), Some(handle), Inherited::default());
        set(&only(pu));
        assert_eq!(actuators.pin(&mut thread, Mark::On(pu)), Pinned::ByProgram);
        assert_eq!(actuators.mask_owner(&mut thread), MaskOwner::Program);
        set(&original);
        assert_eq!(actuators.pin(&mut thread, Mark::On(pu)), Pinned::Done);
        assert_eq!(actuators.mask_owner(&mut thread), MaskOwner::Ours);
        assert_eq!(actuators.pin(&mut thread, Mark::Original), Pinned::Done);
        assert_eq!(allowed(thread.process.as_ref().unwrap(), thread.tid).unwrap(), original);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
