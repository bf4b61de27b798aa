//! Puts tasks under SCHED_IDLE and takes them out again, journal first; see [`colocate_act::idle`].

use crate::placer::Placer;
use crate::task::Task;
use colocate_act::fair::Fair;
use colocate_act::idle::{IdleError, Licence, living, may_come_back, raise, set};
use colocate_act::sys;

impl Placer {
    /// Puts `task` under SCHED_IDLE, journal first. Nothing is done to one that is there already, by our doing or its
    /// own, or has ended.
    ///
    /// # Errors
    /// [`IdleError`]; it has the policy then that it had.
    pub fn lower(&mut self, task: &mut Task, licence: Licence) -> Result<(), IdleError> {
        let Some(process) = task.process.clone() else { return Ok(()) };
        let found = living(process.with(task.tid, sys::schedule_of))?;
        let Some(found) = found else { return Ok(()) };
        if found.policy == libc::SCHED_IDLE {
            return Ok(());
        }
        let fair = Fair::of(found.policy).ok_or(IdleError::OwnPolicy)?;
        if licence == Licence::Limit && !may_come_back(task.pid, found.nice)? {
            return Err(IdleError::NoWayBack);
        }
        (task.placement.lowered, task.placement.was_lowered) = (Some(fair), Some(fair));
        if !self.rewrite(task) {
            return Ok(());
        }
        let done = set(&process, task.tid, &found.under(libc::SCHED_IDLE));
        if done.is_err() {
            task.placement.lowered = None;
            self.rewrite(task);
        }
        done
    }

    /// Gives `task` its policy back, if it is under SCHED_IDLE by our doing.
    ///
    /// # Errors
    /// [`IdleError`]; the journal then still says what it had.
    pub fn raise(&mut self, task: &mut Task) -> Result<(), IdleError> {
        let Some(fair) = task.placement.lowered else { return Ok(()) };
        if let Some(process) = &task.process {
            raise(process, task.tid, fair)?;
        }
        task.placement.lowered = None;
        self.rewrite(task);
        Ok(())
    }

    /// Takes in that a new thread may have inherited SCHED_IDLE from one that we have put there.
    ///
    /// One that has not stands in the journal as well: it may put itself there later, and is then told from those that
    /// are not known when colocate dies.
    pub fn meet(&mut self, task: &mut Task) {
        let found = task.process.as_ref().map(|process| process.with(task.tid, sys::schedule_of));
        let is_idle = matches!(found, Some(Ok(it)) if it.policy == libc::SCHED_IDLE);
        if !is_idle {
            self.note(task);
        } else if task.placement.was_lowered.is_some() {
            task.placement.lowered = task.placement.was_lowered;
            self.rewrite(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;
    use crate::task_table::{Creation, TaskTable};
    use colocate_act::handle::ProcessHandle;
    use colocate_act::idle::licence;
    use colocate_act::journal::Writer;
    use colocate_act::owner::Owner;
    use colocate_act::pin;
    use colocate_machine::Nanos;
    use colocate_observe::{Pid, Tid};
    use std::path::Path;
    use std::path::PathBuf;
    use std::sync::mpsc::channel;

    fn placer() -> Placer {
        let original = pin::own().unwrap();
        let owner = Owner { pid: Pid(1), start_ticks: 0 };
        let journal = Writer::begin(Err(String::new()), owner, None, &original, None);
        let (proc, usable) = (PathBuf::from("/proc"), original.clone());
        Placer { journal, proc, usable, original }
    }

    /// A thread with a slice of its own, under either policy, has all of it again, and a thread that has it from its
    /// creator, too.
    #[test]
    fn what_a_thread_had_comes_back() {
        let licence = match licence() {
            Ok(licence) => licence,
            Err(why) => {
                eprintln!("skipped: {why}");
                return;
            }
        };
        let ((tell, told), (end, ended)) = (channel(), channel::<()>());
        let thread = std::thread::spawn(move || {
            sys::be_prompt(Nanos::from_millis(2), sys::nice()).unwrap();
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            tell.send(link.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
            let _ = ended.recv();
        });
        let (tid, pid) = (Tid(told.recv().unwrap()), Pid(std::process::id().cast_signed()));
        let mut table = TaskTable::default();
        table.add_job("job".into(), pid, Runtime::Plain);
        let creation =
            Creation { at: Nanos(1), pid, tid, parent_pid: pid, parent_tid: tid, lost: false };
        let id = table.created(creation).unwrap();
        let handle = ProcessHandle::open(Path::new("/proc"), pid).unwrap();
        table.hold(id, Some(std::sync::Arc::new(handle)));
        let (task, mut placer) = (table.task(id).unwrap(), placer());
        let is_idle = || sys::schedule_of(tid).unwrap().policy == libc::SCHED_IDLE;
        for fair in [Fair::Other, Fair::Batch] {
            let before = sys::schedule_of(tid).unwrap().under(fair.policy());
            sys::set_schedule(tid, &before).unwrap();
            placer.lower(task, licence).unwrap();
            placer.lower(task, licence).unwrap();
            assert!(is_idle() && task.placement.lowered == Some(fair));
            // As if it were a new thread that inherits this.
            task.placement.lowered = None;
            placer.meet(task);
            assert_eq!(task.placement.lowered, Some(fair));
            placer.raise(task).unwrap();
            assert_eq!((sys::schedule_of(tid).unwrap(), task.placement.lowered), (before, None));
        }
        // One that its program has put there stays there.
        let own = sys::schedule_of(tid).unwrap().under(libc::SCHED_IDLE);
        sys::set_schedule(tid, &own).unwrap();
        placer.lower(task, licence).unwrap();
        placer.raise(task).unwrap();
        assert!(is_idle() && task.placement.lowered.is_none());
        drop(end);
        thread.join().unwrap();
    }
}
