//! The book of jobs, processes and tasks: who lives, who created whom, who is meant to be where.
//!
//! Bookkeeping only: nothing here makes a system call.

use crate::journal::{Mark, Slot};
use crate::runtime::Runtime;
use colocate_engine::{Counts, JobEnd, SeenTask, Stand};
use colocate_machine::{Nanos, PuNr, PuSet};
use colocate_model::Mix;
use colocate_observe::{Pid, Tid};
use colocate_policy::{JobIdx, Newborn, Place, Plan, TaskId};
use std::collections::{BTreeMap, HashMap};

/// Ended tasks that are remembered one by one. A report of more helps nobody, and a program can
/// create millions.
const REMEMBERED: usize = 10_000;

/// A command that was started.
#[derive(Debug)]
pub struct Job {
    /// Its name, for people.
    pub name: String,
    /// Its first process.
    pub pid: Pid,
    /// How it ended; `None` while it runs.
    pub end: Option<JobEnd>,
    born: u32,
}

/// A living process.
#[derive(Debug)]
pub struct Process {
    /// The job it belongs to.
    pub job: JobIdx,
    /// How its program counts PUs.
    pub runtime: Runtime,
    /// When it will have counted them, on the kernel's clock.
    pub settled_at: Nanos,
    /// Threads born since its program began, without the first one.
    pub further: u32,
    living: u32,
}

/// A task, living or remembered.
#[derive(Debug)]
pub struct Task {
    /// Which one.
    pub id: TaskId,
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// When it was born, on the kernel's clock.
    pub born: Nanos,
    /// When it ended; `None` while it lives.
    pub ended: Option<Nanos>,
    /// Clock ticks since boot at its birth, once asked for.
    pub start_ticks: Option<u64>,
    /// Its line in the journal, once it has one.
    pub slot: Option<Slot>,
    /// What was done to it last; what was done to its creator, for a newborn.
    pub mark: Mark,
    /// What was done to it before that.
    pub was: Mark,
    /// Where plan or newborn rule want it.
    pub aim: Option<PuNr>,
    /// How it stands to that.
    pub stand: Stand,
    /// Why it must not be put on one PU, if so.
    pub exempt: Option<&'static str>,
    /// Where it may run, as last read back.
    pub allowed: PuSet,
    /// Where it was last seen to run.
    pub last_ran: Option<PuNr>,
    /// CPU time, as last read.
    pub cpu_time: Option<Nanos>,
}

impl Task {
    /// Whether it is the first thread of its process.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.tid == self.pid.first_thread()
    }
}

/// Everything that was started, and what became of it.
#[derive(Debug, Default)]
pub struct Book {
    jobs: Vec<Job>,
    processes: HashMap<Pid, Process>,
    tasks: BTreeMap<TaskId, Task>,
    by_tid: HashMap<Tid, TaskId>,
    load: HashMap<PuNr, u32>,
    ended: usize,
    /// Ended tasks that were forgotten.
    pub forgotten: u64,
    /// Most tasks that lived at once.
    pub most_living: usize,
}

/// A birth, as the kernel tells of it.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// When, on the kernel's clock.
    pub at: Nanos,
    /// The newborn's process.
    pub pid: Pid,
    /// The newborn.
    pub tid: Tid,
    /// The process of its creator.
    pub parent_pid: Pid,
    /// Its creator.
    pub parent_tid: Tid,
}

impl Book {
    /// Enters a job whose first process is `pid`.
    pub fn add_job(&mut self, name: String, pid: Pid, runtime: Runtime) {
        let job = JobIdx(u32::try_from(self.jobs.len()).unwrap_or(u32::MAX));
        self.jobs.push(Job { name, pid, end: None, born: 0 });
        let process = Process { job, runtime, settled_at: Nanos::ZERO, further: 0, living: 0 };
        self.processes.insert(pid, process);
    }

    /// The jobs, in the order they were entered.
    #[must_use]
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Notes that the first process of a job has ended. `None` if `pid` is no such process.
    pub fn end_job(&mut self, pid: Pid, end: impl FnOnce(JobIdx) -> JobEnd) -> Option<JobEnd> {
        let place = self.jobs.iter().position(|job| job.pid == pid && job.end.is_none())?;
        let end = end(JobIdx(u32::try_from(place).unwrap_or(u32::MAX)));
        self.jobs[place].end = Some(end);
        Some(end)
    }

    /// Whether every job has ended.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.jobs.iter().all(|job| job.end.is_some())
    }

    /// The living processes of a job, lowest number first.
    #[must_use]
    pub fn processes_of(&self, job: JobIdx) -> Vec<Pid> {
        let of_job = self.processes.iter().filter(|(_, process)| process.job == job);
        let mut pids: Vec<Pid> = of_job.map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids
    }

    /// A living process.
    pub fn process(&mut self, pid: Pid) -> Option<&mut Process> {
        self.processes.get_mut(&pid)
    }

    /// A living task by its thread.
    #[must_use]
    pub fn living(&self, tid: Tid) -> Option<TaskId> {
        self.by_tid.get(&tid).copied()
    }

    /// The threads of all living tasks with their IDs.
    pub fn all_living(&self) -> impl Iterator<Item = (Tid, TaskId)> + '_ {
        self.by_tid.iter().map(|(tid, id)| (*tid, *id))
    }

    /// A task by its ID, unless it was forgotten.
    pub fn task(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.get_mut(&id)
    }

    /// Enters a newborn. `None` if its process belongs to no job.
    pub fn born(&mut self, birth: Birth) -> Option<TaskId> {
        let Birth { at, pid, tid, parent_pid, parent_tid } = birth;
        let creator = self.living(parent_tid).and_then(|id| self.tasks.get(&id));
        let (name, mark, was) = creator.map_or_else(
            || (String::new(), Mark::Original, Mark::Original),
            |task| (task.name.clone(), task.mark, task.was),
        );
        let job = self.processes.get(&pid).or_else(|| self.processes.get(&parent_pid))?.job;
        let runtime = self.processes.get(&parent_pid).map(|process| process.runtime);
        let process = self.processes.entry(pid).or_insert_with(|| Process {
            job,
            runtime: runtime.unwrap_or_default(),
            settled_at: Nanos::ZERO,
            further: 0,
            living: 0,
        });
        process.living += 1;
        process.further += u32::from(tid != pid.first_thread());
        let entry = &mut self.jobs[job.0 as usize];
        let id = TaskId { job, order: entry.born };
        entry.born += 1;
        let name = if name.is_empty() { entry.name.clone() } else { name };
        let task = Task {
            id,
            pid,
            tid,
            name,
            born: at,
            ended: None,
            start_ticks: None,
            slot: None,
            mark,
            was,
            aim: None,
            stand: Stand::LeftToKernel,
            exempt: None,
            allowed: PuSet::new(),
            last_ran: None,
            cpu_time: None,
        };
        self.tasks.insert(id, task);
        self.by_tid.insert(tid, id);
        self.most_living = self.most_living.max(self.by_tid.len());
        Some(id)
    }

    /// Notes that a thread has ended, and gives back the place of its journal line, if it had one.
    pub fn ended(&mut self, tid: Tid, at: Nanos) -> Option<Slot> {
        let id = self.by_tid.remove(&tid)?;
        self.set_load(id, None);
        let task = self.tasks.get_mut(&id)?;
        task.ended = Some(at);
        if task.stand == Stand::Settling {
            task.stand = Stand::Missed;
        }
        let (slot, pid) = (task.slot.take(), task.pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.living = process.living.saturating_sub(1);
            if process.living == 0 {
                self.processes.remove(&pid);
            }
        }
        self.ended += 1;
        if self.ended > REMEMBERED {
            self.tasks.remove(&id);
            self.forgotten += 1;
        }
        slot
    }

    /// First threads of jobs that were reported as ended although their job has not.
    #[must_use]
    pub fn doubtful(&self) -> Vec<TaskId> {
        let running = self.jobs.iter().enumerate().filter(|(_, job)| job.end.is_none());
        let first = running.map(|(job, _)| TaskId {
            job: JobIdx(u32::try_from(job).unwrap_or(u32::MAX)),
            order: 0,
        });
        first.filter(|id| self.tasks.get(id).is_some_and(|task| task.ended.is_some())).collect()
    }

    /// Notes that a task lives although it was reported as ended.
    pub fn revive(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.ended = None;
        self.by_tid.insert(task.tid, id);
        let (pid, aim) = (task.pid, task.aim.take());
        let process = Process {
            job: id.job,
            runtime: Runtime::Plain,
            settled_at: Nanos::ZERO,
            further: 0,
            living: 0,
        };
        self.processes.entry(pid).or_insert(process).living += 1;
        self.aim(id, aim);
    }

    /// Aims a living task at a PU, or at none.
    pub fn aim(&mut self, id: TaskId, pu: Option<PuNr>) {
        self.set_load(id, pu);
        if let Some(task) = self.tasks.get_mut(&id) {
            task.aim = pu;
        }
    }

    /// Moves a task's weight from the PU it is aimed at to `to`.
    fn set_load(&mut self, id: TaskId, to: Option<PuNr>) {
        let from = self.tasks.get(&id).and_then(|task| task.aim);
        if let Some(count) = from.and_then(|pu| self.load.get_mut(&pu)) {
            *count = count.saturating_sub(1);
        }
        if let Some(pu) = to {
            *self.load.entry(pu).or_default() += 1;
        }
    }

    /// The PU that a plan gives to a task that is born; `None` leaves it to the kernel.
    #[must_use]
    pub fn aim_of(&self, plan: &Plan, id: TaskId) -> Option<PuNr> {
        plan.place_of(id).map_or_else(|| self.newborn_aim(&plan.newborn), Place::pu)
    }

    /// The PU that the newborn rule gives to a task: the one with the fewest living tasks aimed at
    /// it, the earliest in the list if several have as few.
    #[must_use]
    pub fn newborn_aim(&self, rule: &Newborn) -> Option<PuNr> {
        let load = |pu: &PuNr| self.load.get(pu).copied().unwrap_or(0);
        match rule {
            Newborn::LeaveToKernel => None,
            Newborn::FillInOrder { pus } => pus.iter().copied().min_by_key(load),
        }
    }

    /// All tasks that are remembered, in the order of their IDs, with times since `launch`.
    ///
    /// `watched` gives mix and CPU time of a thread by its number and birth, if it was watched.
    #[must_use]
    pub fn seen(
        &self,
        launch: Nanos,
        watched: impl Fn(Tid, Nanos) -> Option<(Mix, Option<Nanos>)>,
    ) -> Vec<SeenTask> {
        let seen = |task: &Task| {
            let (mix, cpu_time) = watched(task.tid, task.born).unwrap_or_default();
            SeenTask { mix, cpu_time: cpu_time.max(task.cpu_time), ..self.seen_task(task, launch) }
        };
        self.tasks.values().map(seen).collect()
    }

    fn seen_task(&self, task: &Task, launch: Nanos) -> SeenTask {
        SeenTask {
            id: task.id,
            name: format!("{}/{}", self.jobs[task.id.job.0 as usize].name, task.name),
            born: task.born.saturating_sub(launch),
            ended: task.ended.map(|end| end.saturating_sub(launch)),
            cpu_time: task.cpu_time,
            instructions: None,
            cycles: None,
            counts: Counts::default(),
            mix: Mix::default(),
            aim: task.aim,
            stand: task.stand.clone(),
            allowed: task.allowed.iter().collect(),
            last_ran: task.last_ran,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn birth(pid: i32, tid: i32, parent: (i32, i32)) -> Birth {
        let (parent_pid, parent_tid) = (Pid(parent.0), Tid(parent.1));
        Birth { at: Nanos(1), pid: Pid(pid), tid: Tid(tid), parent_pid, parent_tid }
    }

    fn book() -> Book {
        let mut book = Book::default();
        book.add_job("job".into(), Pid(10), Runtime::Plain);
        book.born(birth(10, 10, (1, 1))).unwrap();
        book
    }

    #[test]
    fn children_count_on_in_their_job() {
        let mut book = book();
        assert_eq!(book.born(birth(10, 11, (10, 10))).unwrap().to_string(), "0.1");
        assert_eq!(book.born(birth(20, 20, (10, 11))).unwrap().to_string(), "0.2");
        assert_eq!(book.born(birth(20, 21, (20, 20))).unwrap().to_string(), "0.3");
        assert_eq!(book.born(birth(99, 99, (98, 98))), None, "a stranger");
        assert_eq!(book.most_living, 4);
    }

    /// cpu0 and cpu1 in turn; when the task of cpu0 ends, the next newborn goes there.
    #[test]
    fn newborns_fill_in_order() {
        let mut book = book();
        let rule = Newborn::FillInOrder { pus: vec![PuNr(0), PuNr(1)] };
        let place = |book: &mut Book, tid| {
            let id = book.born(birth(10, tid, (10, 10))).unwrap();
            let aim = book.newborn_aim(&rule);
            book.aim(id, aim);
            aim.unwrap().0
        };
        assert_eq!([11, 12, 13].map(|tid| place(&mut book, tid)), [0, 1, 0]);
        book.ended(Tid(11), Nanos(2));
        book.ended(Tid(13), Nanos(2));
        assert_eq!([14, 15].map(|tid| place(&mut book, tid)), [0, 0]);
        assert_eq!(book.newborn_aim(&Newborn::LeaveToKernel), None);
    }

    #[test]
    fn a_million_ended_tasks_are_not_remembered() {
        let mut book = book();
        for tid in 100..30_100 {
            book.born(birth(10, tid, (10, 10))).unwrap();
            book.ended(Tid(tid), Nanos(2));
        }
        assert_eq!(book.seen(Nanos(0), |_, _| None).len(), REMEMBERED + 1);
        assert_eq!(book.forgotten, 20_000);
        assert_eq!(book.all_living().count(), 1);
    }

    #[test]
    fn a_newborn_inherits_its_creators_mark() {
        let mut book = book();
        let first = book.living(Tid(10)).unwrap();
        book.task(first).unwrap().mark = Mark::On(PuNr(3));
        let id = book.born(birth(10, 11, (10, 10))).unwrap();
        assert_eq!(book.task(id).unwrap().mark, Mark::On(PuNr(3)));
    }

    #[test]
    fn a_task_that_ends_while_it_settles_was_missed() {
        let mut book = book();
        let first = book.living(Tid(10)).unwrap();
        book.task(first).unwrap().stand = Stand::Settling;
        book.ended(Tid(10), Nanos(5));
        assert_eq!(book.seen(Nanos(1), |_, _| None)[0].stand, Stand::Missed);
        assert_eq!(book.seen(Nanos(1), |_, _| None)[0].ended, Some(Nanos(4)));
    }
}
