//! Threads that run on idle PUs only: SCHED_IDLE, and how it is undone.
//!
//! # Problem
//! Jobs that the plan leaves waiting could use the PUs of chosen jobs that wait for input, a lock or each other; but the
//! chosen jobs must not be slowed down.
//! # Approach
//! Their threads are put under SCHED_IDLE: they weigh 3 where others weigh 1,024 (kernel/sched/sched.h, 6.18), and a
//! thread of another policy takes their PU as soon as it wakes. Threads and processes that they create inherit it.
//!
//! To leave it takes a right that to enter it does not take: without CAP_SYS_NICE the kernel lets a thread leave
//! SCHED_IDLE only if RLIMIT_NICE of its process would allow its nice value (`user_check_sched_setscheduler` in
//! kernel/sched/syscalls.c, 6.18). So that is tried out first, by a process that is made for it.
//!
//! The kernel keeps the nice value of a thread under SCHED_IDLE, its slice, and whether its children are to begin anew
//! (tried on 6.18: the test `what_a_thread_had_is_restored`). So only the policy has to be remembered, which the journal
//! does; a nice value that was changed meanwhile is kept.
//!
//! Threads with fixed priorities or deadlines are not lowered: they must not be made to wait by others
//! at the worst moment, which holding a lock may be.

use crate::actuator::{Actuator, ThreadRef};
use crate::actuators::Actuators;
use crate::fair::Fair;
use crate::journal::JournalEntry;
use crate::thread::ManagedThread;
use crate::workload::JournalWorkload;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::sys::{self, Fork};
use colocate_linux::{Pid, SysError, Tid};
use std::ffi::c_int;
use std::path::Path;
use thiserror::Error;

/// Right to leave SCHED_IDLE again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// CAP_SYS_NICE: for all threads.
    Capability,
    /// RLIMIT_NICE: for threads whose nice value it allows.
    Limit,
}

/// Reason why SCHED_IDLE cannot be left again.
#[derive(Debug, Error)]
pub enum PermissionError {
    /// Neither right is present.
    #[error(
        "to leave SCHED_IDLE again takes CAP_SYS_NICE or an RLIMIT_NICE of {} (`ulimit -e`), found {found}",
        20 - .nice
    )]
    Denied {
        /// Nice value of colocate, inherited by its programs.
        nice: i32,
        /// The soft limit.
        found: u64,
    },
    /// The trial failed.
    #[error(transparent)]
    Sys(#[from] SysError),
}

/// Exit codes of the trial process.
const BY_CAPABILITY: i32 = 0;
const BY_LIMIT: i32 = 1;

/// Determines the right to leave SCHED_IDLE in a process made for the trial. Must be called before
/// threads are created.
///
/// # Errors
/// [`PermissionError`], also if SCHED_IDLE itself is refused.
pub fn permission() -> Result<Permission, PermissionError> {
    let child = match sys::fork()? {
        Fork::Parent(child) => child,
        Fork::Child => sys::exit_now(try_it().map_or(2, |permission| match permission {
            Permission::Capability => BY_CAPABILITY,
            Permission::Limit => BY_LIMIT,
        })),
    };
    match sys::wait(Some(child), true)?.map(|waited| waited.status) {
        Some(BY_CAPABILITY) => Ok(Permission::Capability),
        Some(BY_LIMIT) => Ok(Permission::Limit),
        _ => {
            let me = Pid(std::process::id().cast_signed());
            Err(PermissionError::Denied { nice: sys::nice(), found: sys::limit_of_nice(me)?.0 })
        }
    }
}

/// Trial in a process of its own, which ends up with another policy and limit. Only system calls.
fn try_it() -> Result<Permission, SysError> {
    let me = Tid(0);
    let mine = sys::schedule_of(me)?.under(libc::SCHED_OTHER);
    let (soft, hard) = sys::limit_of_nice(Pid(0))?;
    sys::set_schedule(me, &mine.under(libc::SCHED_IDLE))?;
    // Without the limit, only the capability can allow the return.
    sys::set_limit_of_nice(0, hard)?;
    if sys::set_schedule(me, &mine).is_ok() {
        return Ok(Permission::Capability);
    }
    // A success from here on is due to the limit.
    sys::set_limit_of_nice(soft, hard)?;
    sys::set_schedule(me, &mine).map(|()| Permission::Limit)
}

/// Failed change of a thread's scheduling policy.
#[derive(Debug, Error)]
pub enum ClassError {
    /// The thread has a fixed priority, a deadline or a scheduler of its own (policy by the
    /// kernel's number).
    #[error(
        "one of its threads has a scheduling policy of its own (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE or SCHED_EXT)"
    )]
    OwnPolicy,
    /// The policy could not be restored.
    #[error("RLIMIT_NICE of one of its threads would not let it leave SCHED_IDLE again")]
    NoWayBack,
    /// The kernel accepted the policy and shows another afterwards.
    #[error("expected scheduling policy {wanted} to be read back, found {found}")]
    Elsewhere {
        /// Requested policy.
        wanted: c_int,
        /// Actual policy.
        found: c_int,
    },
    /// Another reason.
    #[error(transparent)]
    Sys(#[from] SysError),
}

impl Actuators {
    /// Puts `thread` under SCHED_IDLE, journal first. No effect on a thread under SCHED_IDLE,
    /// whether by colocate or by its own choice, or on an ended thread.
    ///
    /// # Errors
    /// [`ClassError`]; the thread keeps its policy.
    pub fn lower(
        &mut self,
        thread: &mut ManagedThread,
        permission: Permission,
    ) -> Result<(), ClassError> {
        let Some(process) = thread.process.clone() else { return Ok(()) };
        let target = ThreadRef { process: &process, tid: thread.tid };
        let Some(Policy::Fair(fair)) = ClassActuator::read_back(target)? else { return Ok(()) };
        if permission == Permission::Limit && !may_come_back(&process, thread.tid)? {
            return Err(ClassError::NoWayBack);
        }
        thread.last_lowered = Some(fair);
        if !self.note_lowered(thread, Some(fair)) {
            return Ok(());
        }
        let done = ClassActuator::apply(target, &Policy::Idle);
        if done.is_err() {
            // The thread has kept its policy, so nothing is left to undo.
            self.note_lowered(thread, None);
        }
        done.map(drop)
    }

    /// Writes the policy of a thread before its change to SCHED_IDLE to the journal. False if the thread has ended or is
    /// unreadable.
    fn note_lowered(&mut self, thread: &mut ManagedThread, lowered: Option<Fair>) -> bool {
        thread.lowered = lowered;
        self.write::<ClassActuator>(thread, lowered).is_ok_and(|written| written)
    }

    /// Restores the policy of `thread`, if colocate put it under SCHED_IDLE.
    ///
    /// # Errors
    /// [`ClassError`]; the journal keeps the original policy.
    pub fn raise(&mut self, thread: &mut ManagedThread) -> Result<(), ClassError> {
        let Some(fair) = thread.lowered else { return Ok(()) };
        if let Some(process) = &thread.process {
            ClassActuator::apply(ThreadRef { process, tid: thread.tid }, &Policy::Fair(fair))?;
        }
        self.note_lowered(thread, None);
        Ok(())
    }

    /// Handles a new thread, which may have inherited SCHED_IDLE from a creator put there by
    /// colocate.
    ///
    /// A thread without SCHED_IDLE is recorded in the journal as well: it may choose SCHED_IDLE
    /// later, and so differs from threads unknown at colocate's death.
    pub fn note_inherited(&mut self, thread: &mut ManagedThread) {
        let process = thread.process.as_deref();
        let target = process.map(|process| ThreadRef { process, tid: thread.tid });
        let found = target.map(ClassActuator::read_back);
        if !matches!(found, Some(Ok(Some(Policy::Idle)))) {
            self.note(thread);
        } else if thread.last_lowered.is_some() {
            self.note_lowered(thread, thread.last_lowered);
        }
    }
}

/// Scheduling policy of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// SCHED_IDLE.
    Idle,
    /// Policy of the fair class, to which the thread can return.
    Fair(Fair),
}

impl Policy {
    /// Policy with the kernel's number `policy`.
    fn of(policy: c_int) -> Result<Self, ClassError> {
        if policy == libc::SCHED_IDLE {
            return Ok(Self::Idle);
        }
        Fair::of(policy).map(Self::Fair).ok_or(ClassError::OwnPolicy)
    }

    /// The kernel's number.
    const fn number(self) -> c_int {
        match self {
            Self::Idle => libc::SCHED_IDLE,
            Self::Fair(fair) => fair.policy(),
        }
    }
}

/// The actuator for policies, into SCHED_IDLE and out of it.
pub(crate) struct ClassActuator;

impl Actuator for ClassActuator {
    type Target<'a> = ThreadRef<'a>;
    type Setting = Policy;
    type Line = JournalEntry;
    type Record = Option<Fair>;
    type Error = ClassError;

    fn journal(line: &mut JournalEntry, lowered: Option<Fair>) {
        line.lowered = lowered;
    }

    /// No effect on a thread that is out of SCHED_IDLE, or in it, as wanted.
    fn apply(thread: ThreadRef<'_>, to: &Policy) -> Result<Option<Policy>, ClassError> {
        let wanted = to.number();
        let mut is_set = false;
        let found = living(thread.process.with(thread.tid, |tid| {
            let before = sys::schedule_of(tid)?;
            is_set = (before.policy == libc::SCHED_IDLE) != (*to == Policy::Idle);
            if !is_set {
                return Ok(before.policy);
            }
            sys::set_schedule(tid, &before.under(wanted))?;
            Ok(sys::schedule_of(tid)?.policy)
        }))?;
        match found {
            Some(found) if is_set && found != wanted => {
                Err(ClassError::Elsewhere { wanted, found })
            }
            Some(found) => Ok(Policy::of(found).ok()),
            None => Ok(None),
        }
    }

    fn read_back(thread: ThreadRef<'_>) -> Result<Option<Policy>, ClassError> {
        let found = living(thread.process.with(thread.tid, sys::schedule_of))?;
        found.map(|found| Policy::of(found.policy)).transpose()
    }

    /// Policy of a thread before colocate put it, or its creator, under SCHED_IDLE.
    fn undo(workload: &JournalWorkload<'_>, thread: ThreadRef<'_>) -> Option<Policy> {
        let is_idle = matches!(Self::read_back(thread), Ok(Some(Policy::Idle)));
        is_idle.then(|| workload.policy_before(thread.process.pid(), thread.tid))?.map(Policy::Fair)
    }
}

/// `None` if the thread has ended.
fn living<T>(result: Result<T, SysError>) -> Result<Option<T>, SysError> {
    match result {
        Err(error) if error.errno() == Some(libc::ESRCH) => Ok(None),
        result => result.map(Some),
    }
}

/// Whether the limit of its process lets a thread leave SCHED_IDLE with its nice value
/// (`nice_to_rlimit`, include/linux/sched/prio.h).
fn may_come_back(process: &ProcessHandle, tid: Tid) -> Result<bool, SysError> {
    // An ended thread needs no way back.
    let Some(found) = living(process.with(tid, sys::schedule_of))? else { return Ok(true) };
    let limit = living(sys::limit_of_nice(process.pid()))?;
    let wanted = u64::try_from(20 - found.nice).unwrap_or(0);
    Ok(limit.is_none_or(|(soft, _)| soft >= wanted))
}

/// Whether each session has its own share of the CPU time (`autogroup`, sched(7)), so that
/// SCHED_IDLE is only effective within a session.
pub fn sessions_are_groups(proc: &Path) -> bool {
    let enabled =
        colocate_files::kernel::read_text(&proc.join("sys/kernel/sched_autogroup_enabled"));
    enabled.is_ok_and(|enabled| enabled.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actuators::tests::actuators;
    use crate::affinity;
    use crate::thread::Inherited;
    use colocate_machine::Nanos;
    use colocate_testing::need;
    use colocate_testing::skip::Requirement;
    use std::sync::mpsc::channel;

    /// A thread with a slice of its own, under either policy, has all of it again, and a thread that has it from its
    /// creator, too.
    #[test]
    fn what_a_thread_had_is_restored() {
        let permission = need!(permission().map_err(|why| Requirement::SchedIdle.missing(why)));
        let ((sender, receiver), (end, ended)) = (channel(), channel::<()>());
        let thread = std::thread::spawn(move || {
            sys::set_slice_and_nice(Nanos::from_millis(2), sys::nice()).unwrap();
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            sender.send(link.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
            let _ = ended.recv();
        });
        let (tid, pid) = (Tid(receiver.recv().unwrap()), Pid(std::process::id().cast_signed()));
        let handle = ProcessHandle::open(Path::new("/proc"), pid).unwrap();
        let process = Some(std::sync::Arc::new(handle));
        let mut thread_of = ManagedThread::new(pid, tid, process, Inherited::default());
        let (task, mut actuators) = (&mut thread_of, actuators(&affinity::own().unwrap()));
        let is_idle = || sys::schedule_of(tid).unwrap().policy == libc::SCHED_IDLE;
        for fair in [Fair::Other, Fair::Batch] {
            let before = sys::schedule_of(tid).unwrap().under(fair.policy());
            sys::set_schedule(tid, &before).unwrap();
            actuators.lower(task, permission).unwrap();
            actuators.lower(task, permission).unwrap();
            assert!(is_idle() && task.lowered == Some(fair));
            // As if it were a new thread that inherits this.
            task.lowered = None;
            actuators.note_inherited(task);
            assert_eq!(task.lowered, Some(fair));
            actuators.raise(task).unwrap();
            assert_eq!((sys::schedule_of(tid).unwrap(), task.lowered), (before, None));
        }
        // One that its program has put there stays there.
        let own = sys::schedule_of(tid).unwrap().under(libc::SCHED_IDLE);
        sys::set_schedule(tid, &own).unwrap();
        actuators.lower(task, permission).unwrap();
        actuators.raise(task).unwrap();
        assert!(is_idle() && task.lowered.is_none());
        drop(end);
        thread.join().unwrap();
    }
}
