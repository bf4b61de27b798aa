//! Puts one task where it is wanted: journal first, then the deed, then the reading back.

use crate::task::Task;
use colocate_act::handle::is_gone;
use colocate_act::journal::{Entry, Mark, Writer};
use colocate_act::pin::{self, PinError};
use colocate_act::stat::Stat;
use colocate_act::sys;
use colocate_engine::PlacementStatus;
use colocate_machine::PuSet;
use colocate_observe::Tid;
use colocate_observe::sys::now;
use std::io;
use std::path::PathBuf;

/// Puts tasks on PUs.
#[derive(Debug)]
pub struct Placer {
    /// Where what is done is written first.
    pub journal: Writer,
    /// `/proc`.
    pub proc: PathBuf,
    /// The mask of tasks that were not placed; see [`colocate_act::original`].
    pub original: PuSet,
    /// PUs that can be used now.
    pub usable: PuSet,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is where it was wanted, and that was read back.
    Done,
    /// The program chose its PUs itself, and keeps them.
    Respected,
    /// It has ended.
    Gone,
    /// It could not be moved; the task's stand says why.
    Failed,
}

impl Placer {
    /// Puts `task` where `to` says, with the stand `then` if that succeeds.
    ///
    /// A task whose mask is neither the original one nor one that we gave to it or its creator was
    /// given it by its program, which is respected.
    pub fn put(&mut self, task: &mut Task, to: Mark, then: PlacementStatus) -> Put {
        let Some(process) = task.process.clone() else { return Self::gone(task, then) };
        let current = match pin::allowed(&process, task.tid) {
            Ok(current) => current,
            Err(PinError::Gone) => return Self::gone(task, then),
            Err(why) => return Self::failed(task, why.to_string()),
        };
        if !self.is_ours(task, &current) {
            self.respect(task, current);
            return Put::Respected;
        }
        if to == Mark::Original
            && task.placement.slot.is_none()
            && self.has_original(task, &current)
        {
            // Nothing was ever done to it, nor to its creator when it was created.
            task.placement.allowed = current;
            task.placement.had.clear();
            (task.placement.mark, task.placement.status) = (to, then);
            return Put::Done;
        }
        match self.write(task, to) {
            Ok(true) => {}
            Ok(false) => return Self::gone(task, then),
            // What is not in the journal cannot be undone.
            Err(why) => {
                return Self::failed(task, format!("its start in /proc cannot be read: {why}"));
            }
        }
        task.placement.had.goes(task.placement.mark, to, now());
        match pin::place(&process, task.tid, &self.mask(to)) {
            Ok(found) => {
                task.placement.allowed = found;
                (task.placement.mark, task.placement.status) = (to, then);
                task.placement.given_back = to == Mark::Original;
                Put::Done
            }
            Err(PinError::Gone) => Self::gone(task, then),
            // Its program has moved it in the moment since we did.
            Err(PinError::Elsewhere { found, .. }) if !self.is_ours(task, &found) => {
                self.respect(task, found);
                Put::Respected
            }
            Err(why) => {
                task.placement.allowed = current;
                Self::failed(task, why.to_string())
            }
        }
    }

    /// Reads back where `task` last ran.
    pub fn look_where(&self, task: &mut Task) -> Option<Stat> {
        let stat = task.process.as_ref()?.stat_of(task.tid)?;
        task.placement.last_ran = Some(stat.last_ran);
        // Rounded down: what is known better is kept.
        task.usage.note_cpu_time(stat.cpu_time);
        Some(stat)
    }

    /// Reads back where `task` is, and notices when its program has moved it. `None` if it has ended or cannot be read.
    pub fn look(&mut self, task: &mut Task) -> Option<Stat> {
        let current = pin::allowed(task.process.as_ref()?, task.tid).ok()?;
        let stat = self.look_where(task)?;
        let settled = !matches!(
            task.placement.status,
            PlacementStatus::PinnedByProgram | PlacementStatus::Trouble(_)
        );
        if settled && !self.is_ours(task, &current) {
            self.respect(task, current);
        } else {
            task.placement.allowed = current;
        }
        Some(stat)
    }

    /// Whether a mask is what is left of the original one. While only one PU can be used one that we gave to `task` or its
    /// creator looks the same, but would not grow with what can be used.
    fn has_original(&self, task: &Task, current: &PuSet) -> bool {
        let given = |pu| {
            task.placement.mark.pu() == Some(pu) || task.placement.had.pus().any(|had| had == pu)
        };
        let may_be_ours = !task.placement.given_back && pin::single(current).is_some_and(given);
        let looks_so = pin::is_untouched(current, &self.original, &self.usable);
        *current == self.original || looks_so && !may_be_ours
    }

    /// Whether a mask is the original one, or what is left of it.
    pub fn is_original(&self, current: &PuSet) -> bool {
        *current == self.original || pin::is_untouched(current, &self.original, &self.usable)
    }

    fn mask(&self, mark: Mark) -> PuSet {
        mark.pu().map_or_else(|| self.original.clone(), pin::only)
    }

    /// Whether a mask is one that we gave to a task or its creator, or what is left of that.
    fn is_ours(&self, task: &Task, current: &PuSet) -> bool {
        let ours = [Mark::Original, task.placement.mark]
            .into_iter()
            .chain(task.placement.had.pus().map(Mark::On));
        let given = ours.filter(|mark| *mark != Mark::Programs);
        let masks: Vec<PuSet> = given.map(|mark| self.mask(mark)).collect();
        let with =
            |usable: &PuSet| masks.iter().any(|ours| pin::is_untouched(current, ours, usable));
        // Another thread may have executed a program, of which is heard later.
        let is_others = || {
            let mut places = self.journal.journal().places_in(task.pid);
            task.is_first() && places.any(|pu| *current == pin::only(pu))
        };
        // PUs may have gone since our last look at the machine.
        let usable_now = || sys::getaffinity(Tid(0));
        with(&self.usable) || is_others() || usable_now().is_ok_and(|usable| with(&usable))
    }

    fn respect(&mut self, task: &mut Task, current: PuSet) {
        // What is not in the journal might have its mask from one that we have placed.
        let _ = self.write(task, Mark::Programs);
        task.placement.allowed = current;
        task.placement.had.clear();
        (task.placement.mark, task.placement.status) =
            (Mark::Programs, PlacementStatus::PinnedByProgram);
    }

    /// Takes in before the end that a task on one PU to which nothing was ever done has bound itself.
    pub fn leave_bound(&mut self, task: &mut Task) {
        let process = task.process.as_ref().filter(|_| task.placement.slot.is_none());
        let allowed = process.and_then(|process| pin::allowed(process, task.tid).ok());
        if allowed.is_some_and(|allowed| pin::single(&allowed).is_some()) {
            let _ = self.write(task, Mark::Programs);
        }
    }

    /// Writes to the journal that a task is ours, so that it can be found again. False if it has ended, or cannot be
    /// read.
    pub fn note(&mut self, task: &mut Task) -> bool {
        task.placement.slot.is_some()
            || self.write(task, task.placement.mark).is_ok_and(|written| written)
    }

    /// Writes to the journal what is about to be done. False if the task has ended; an error if it may live
    /// and cannot be read.
    fn write(&mut self, task: &mut Task, mark: Mark) -> io::Result<bool> {
        let Some(process) = &task.process else { return Ok(false) };
        let start_ticks = match task.start_ticks {
            Some(start_ticks) => start_ticks,
            None => match process.try_stat_of(task.tid) {
                Ok(stat) => *task.start_ticks.insert(stat.start_ticks),
                Err(why) if is_gone(&why) => return Ok(false),
                Err(why) => return Err(why),
            },
        };
        let slot = *task.placement.slot.get_or_insert_with(|| self.journal.slot());
        let (pid, tid, was, lowered) =
            (task.pid, task.tid, task.placement.mark, task.placement.lowered);
        self.journal.write(slot, &Entry { pid, tid, start_ticks, mark, was, lowered });
        Ok(true)
    }

    /// Writes to the journal what has changed of a task beside its place. False if it has ended, or cannot be read.
    pub(crate) fn rewrite(&mut self, task: &mut Task) -> bool {
        self.write(task, task.placement.mark).is_ok_and(|written| written)
    }

    fn failed(task: &mut Task, why: String) -> Put {
        task.placement.status = PlacementStatus::Trouble(why);
        Put::Failed
    }

    /// It has ended; one that was to be left to the kernel was left to it.
    fn gone(task: &mut Task, then: PlacementStatus) -> Put {
        if then == PlacementStatus::LeftToKernel {
            task.placement.status = then;
        } else if task.placement.status != PlacementStatus::Placed {
            task.placement.status = PlacementStatus::Missed;
        }
        Put::Gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;
    use crate::task_table::{Creation, TaskTable};
    use colocate_act::handle::ProcessHandle;
    use colocate_act::owner::Owner;
    use colocate_machine::{Nanos, PuNr};
    use colocate_observe::Pid;
    use std::path::Path;
    use std::sync::Arc;

    fn placer(original: &PuSet) -> Placer {
        let owner = Owner { pid: Pid(1), start_ticks: 0 };
        let journal = Writer::begin(Err(String::new()), owner, None, original, None);
        let (original, usable) = (original.clone(), original.clone());
        Placer { journal, proc: PathBuf::from("/proc"), original, usable }
    }

    fn creation(pid: Pid, tid: Tid) -> Creation {
        Creation {
            at: Nanos(1),
            pid,
            tid,
            parent_pid: pid,
            parent_tid: pid.first_thread(),
            lost: false,
        }
    }

    /// A PU goes offline and the kernel frees the task on it, before we have looked at the machine.
    #[test]
    fn a_task_whose_pu_has_just_gone_is_still_ours() {
        let usable_now = pin::own().unwrap();
        let gone = PuNr(8191);
        let placer = placer(&usable_now.iter().chain([gone]).collect());
        let (mut table, pid) = (TaskTable::default(), Pid(10));
        table.add_job("job".into(), pid, Runtime::Plain);
        let id = table.created(creation(pid, pid.first_thread())).unwrap();
        let task = table.task(id).unwrap();
        task.placement.mark = Mark::On(gone);
        assert!(placer.is_ours(task, &usable_now));
        assert!(!placer.is_ours(task, &pin::only(PuNr(8190))), "the program moved it");
    }

    /// A thread was put on the only PU that can be used. It is told from one that has what is left of the original mask,
    /// which would grow with what can be used, and is given that one.
    #[test]
    fn the_only_pu_may_be_a_pin() {
        std::thread::spawn(|| {
            let pu = pin::own().unwrap().iter().next().unwrap();
            pin::place_own(&pin::only(pu)).unwrap();
            let mut placer = placer(&[pu, PuNr(8191)].into_iter().collect());
            placer.usable = pin::only(pu);
            let this = std::fs::read_link("/proc/thread-self").unwrap();
            let tid = Tid(this.file_name().unwrap().to_str().unwrap().parse().unwrap());
            let (mut table, own) = (TaskTable::default(), Pid(std::process::id().cast_signed()));
            table.add_job("job".into(), own, Runtime::Plain);
            let id = table.created(creation(own, tid)).unwrap();
            let handle = ProcessHandle::open(Path::new("/proc"), own).unwrap();
            table.hold(id, Some(Arc::new(handle)));
            let task = table.task(id).unwrap();
            assert_eq!(placer.put(task, Mark::Original, PlacementStatus::LeftToKernel), Put::Done);
            assert!(task.placement.slot.is_none(), "nothing was ever done to it");
            task.placement.mark = Mark::On(pu);
            assert_eq!(placer.put(task, Mark::Original, PlacementStatus::LeftToKernel), Put::Done);
            assert!(task.placement.given_back && task.placement.slot.is_some());
        })
        .join()
        .unwrap();
    }

    /// While thread 11 is being created by 10, 10 is put on PU 1, then on 2, then left to the kernel; 11 has the
    /// mask that 10 had at the beginning. What 10 left two seconds ago was not handed down.
    #[test]
    fn a_new_thread_may_have_any_mask_that_its_creator_had_meanwhile() {
        let placer = placer(&PuSet::parse_list("0-7").unwrap());
        let (mut table, pid) = (TaskTable::default(), Pid(10));
        table.add_job("job".into(), pid, Runtime::Plain);
        let first = table.created(creation(pid, pid.first_thread())).unwrap();
        let creator = table.task(first).unwrap();
        for (pu, left_at) in [(5, 1), (0, 2001), (1, 2020), (2, 2030)] {
            creator.placement.had.goes(
                Mark::On(PuNr(pu)),
                Mark::Original,
                Nanos::from_millis(left_at),
            );
        }
        let id = table.created(creation(pid, Tid(11))).unwrap();
        let task = table.task(id).unwrap();
        let ours = |pu| placer.is_ours(task, &pin::only(PuNr(pu)));
        assert_eq!([0, 1, 2, 5, 6].map(ours), [true, true, true, false, false]);
    }

    /// Thread 11 of process 10 is on PU 1, and that of process 20 on PU 2. A program that thread 11 executes has the number
    /// 10, and PU 1.
    #[test]
    fn a_first_thread_may_have_the_mask_of_another() {
        let mut placer = placer(&PuSet::parse_list("0-7").unwrap());
        let mut table = TaskTable::default();
        for (pid, tid, pu) in [(10, 11, 1), (20, 21, 2)] {
            let mark = Mark::On(PuNr(pu));
            let (pid, tid, start_ticks) = (Pid(pid), Tid(tid), 0);
            let entry = Entry { pid, tid, start_ticks, mark, was: Mark::Original, lowered: None };
            let slot = placer.journal.slot();
            placer.journal.write(slot, &entry);
        }
        table.add_job("job".into(), Pid(10), Runtime::Plain);
        let mut ours = |tid| {
            let id = table.created(creation(Pid(10), Tid(tid))).unwrap();
            let task = table.task(id).unwrap();
            [1, 2].map(|pu| placer.is_ours(task, &pin::only(PuNr(pu))))
        };
        assert_eq!((ours(10), ours(12)), ([true, false], [false; 2]));
    }

    /// Thread 10 is on PU 0 and was to be put on PU 1: it was, created 11 there, and had ended when its mask was to
    /// be read back.
    #[test]
    fn a_new_thread_may_have_a_mask_that_its_creator_was_not_seen_with() {
        let placer = placer(&PuSet::parse_list("0-7").unwrap());
        let (mut table, pid) = (TaskTable::default(), Pid(10));
        table.add_job("job".into(), pid, Runtime::Plain);
        let first = table.created(creation(pid, pid.first_thread())).unwrap();
        let creator = table.task(first).unwrap();
        creator.placement.mark = Mark::On(PuNr(0));
        creator.placement.had.goes(creator.placement.mark, Mark::On(PuNr(1)), Nanos(1));
        let id = table.created(creation(pid, Tid(11))).unwrap();
        let task = table.task(id).unwrap();
        let ours = |pu| placer.is_ours(task, &pin::only(PuNr(pu)));
        assert_eq!([0, 1, 2].map(ours), [true, true, false]);
    }
}
