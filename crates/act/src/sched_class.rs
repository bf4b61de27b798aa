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

use crate::actuators::Actuators;
use crate::fair::Fair;
use crate::thread::Thread;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::sys::{self, Fork, Schedule};
use colocate_linux::{Pid, SysError, Tid};
use std::ffi::c_int;
use std::path::Path;
use thiserror::Error;

/// What lets threads leave SCHED_IDLE again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// CAP_SYS_NICE: all of them.
    Capability,
    /// RLIMIT_NICE: those whose nice value it allows.
    Limit,
}

/// Why SCHED_IDLE could not be left again.
#[derive(Debug, Error)]
pub enum PermissionError {
    /// Neither right is there.
    #[error(
        "to leave SCHED_IDLE again takes CAP_SYS_NICE or an RLIMIT_NICE of {} (`ulimit -e`), found {found}",
        20 - .nice
    )]
    Denied {
        /// The nice value of colocate, which its programs inherit.
        nice: i32,
        /// The soft limit.
        found: u64,
    },
    /// It could not be tried.
    #[error(transparent)]
    Sys(#[from] SysError),
}

/// Exit codes of the process that tries.
const BY_CAPABILITY: i32 = 0;
const BY_LIMIT: i32 = 1;

/// Finds out what would let threads leave SCHED_IDLE, by a process that is made for it. To be called before threads
/// are created.
///
/// # Errors
/// [`PermissionError`], also where SCHED_IDLE itself cannot be had.
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

/// In a process of its own, which ends up with another policy and limit. Only system calls.
fn try_it() -> Result<Permission, SysError> {
    let me = Tid(0);
    let mine = sys::schedule_of(me)?.under(libc::SCHED_OTHER);
    let (soft, hard) = sys::limit_of_nice(Pid(0))?;
    sys::set_schedule(me, &mine.under(libc::SCHED_IDLE))?;
    sys::set_limit_of_nice(0, hard)?;
    if sys::set_schedule(me, &mine).is_ok() {
        return Ok(Permission::Capability);
    }
    sys::set_limit_of_nice(soft, hard)?;
    sys::set_schedule(me, &mine).map(|()| Permission::Limit)
}

/// Why a thread cannot be lowered, or not be raised again.
#[derive(Debug, Error)]
pub enum ClassError {
    /// It has a fixed priority, a deadline or a scheduler of its own (policy by the kernel's number).
    #[error(
        "one of its threads has a scheduling policy of its own (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE or SCHED_EXT)"
    )]
    OwnPolicy,
    /// It could not be raised again.
    #[error("RLIMIT_NICE of one of its threads would not let it leave SCHED_IDLE again")]
    NoWayBack,
    /// The kernel accepted the policy and then has another one.
    #[error("expected scheduling policy {wanted} to be read back, found {found}")]
    Elsewhere {
        /// What was asked for.
        wanted: c_int,
        /// What was found.
        found: c_int,
    },
    /// Another reason.
    #[error(transparent)]
    Sys(#[from] SysError),
}

impl Actuators {
    /// Puts `thread` under SCHED_IDLE, journal first. Nothing is done to one that is there already, by our doing or its
    /// own, or has ended.
    ///
    /// # Errors
    /// [`ClassError`]; it has the policy then that it had.
    pub fn lower(&mut self, thread: &mut Thread, permission: Permission) -> Result<(), ClassError> {
        let Some(process) = thread.process.clone() else { return Ok(()) };
        let found = living(process.with(thread.tid, sys::schedule_of))?;
        let Some(found) = found else { return Ok(()) };
        if found.policy == libc::SCHED_IDLE {
            return Ok(());
        }
        let fair = Fair::of(found.policy).ok_or(ClassError::OwnPolicy)?;
        if permission == Permission::Limit && !may_come_back(thread.pid, found.nice)? {
            return Err(ClassError::NoWayBack);
        }
        (thread.lowered, thread.last_lowered) = (Some(fair), Some(fair));
        if !self.rewrite(thread) {
            return Ok(());
        }
        let done = set(&process, thread.tid, &found.under(libc::SCHED_IDLE));
        if done.is_err() {
            thread.lowered = None;
            self.rewrite(thread);
        }
        done
    }

    /// Restores the policy of `thread`, if it is under SCHED_IDLE by our doing.
    ///
    /// # Errors
    /// [`ClassError`]; the journal then still says what it had.
    pub fn raise(&mut self, thread: &mut Thread) -> Result<(), ClassError> {
        let Some(fair) = thread.lowered else { return Ok(()) };
        if let Some(process) = &thread.process {
            raise(process, thread.tid, fair)?;
        }
        thread.lowered = None;
        self.rewrite(thread);
        Ok(())
    }

    /// Takes in that a new thread may have inherited SCHED_IDLE from one that we have put there.
    ///
    /// One that has not is noted in the journal as well: it may put itself there later, and then differs from those that
    /// are not known when colocate dies.
    pub fn note_inherited(&mut self, thread: &mut Thread) {
        let found =
            thread.process.as_ref().map(|process| process.with(thread.tid, sys::schedule_of));
        let is_idle = matches!(found, Some(Ok(it)) if it.policy == libc::SCHED_IDLE);
        if !is_idle {
            self.note(thread);
        } else if thread.last_lowered.is_some() {
            thread.lowered = thread.last_lowered;
            self.rewrite(thread);
        }
    }
}

/// Restores the policy of a thread, unless it has another one than SCHED_IDLE or has ended.
///
/// # Errors
/// [`ClassError::Sys`] and [`ClassError::Elsewhere`].
pub fn raise(process: &ProcessHandle, tid: Tid, fair: Fair) -> Result<(), ClassError> {
    match living(process.with(tid, sys::schedule_of))? {
        Some(found) if found.policy == libc::SCHED_IDLE => {
            set(process, tid, &found.under(fair.policy()))
        }
        _ => Ok(()),
    }
}

/// Sets the policy and reads it back.
fn set(process: &ProcessHandle, tid: Tid, wanted: &Schedule) -> Result<(), ClassError> {
    let call = |tid| {
        sys::set_schedule(tid, wanted)?;
        sys::schedule_of(tid)
    };
    match living(process.with(tid, call))? {
        Some(found) if found.policy != wanted.policy => {
            Err(ClassError::Elsewhere { wanted: wanted.policy, found: found.policy })
        }
        _ => Ok(()),
    }
}

/// `None` if the thread has ended.
fn living<T>(result: Result<T, SysError>) -> Result<Option<T>, SysError> {
    match result {
        Err(error) if error.errno() == Some(libc::ESRCH) => Ok(None),
        result => result.map(Some),
    }
}

/// Whether the limit of a process lets a thread of this nice value leave SCHED_IDLE (`nice_to_rlimit`,
/// include/linux/sched/prio.h).
fn may_come_back(pid: Pid, nice: i32) -> Result<bool, SysError> {
    let limit = living(sys::limit_of_nice(pid))?;
    let wanted = u64::try_from(20 - nice).unwrap_or(0);
    Ok(limit.is_none_or(|(soft, _)| soft >= wanted))
}

/// Whether each session has a share of the CPU time of its own (`autogroup`, sched(7)), so that SCHED_IDLE counts only
/// within it.
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
        let mut thread_of = Thread::new(pid, tid, process, Inherited::default());
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
