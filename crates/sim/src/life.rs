//! Creation, sleep, ends, and what becomes of a job whose work is done.

use crate::scenario::Method;
use crate::task::{State, Task, TaskNo};
use crate::world::World;
use colocate_evidence::{JobEnd, JobIdx};
use colocate_machine::Nanos;
use std::cmp::Reverse;

impl World<'_> {
    pub fn sleep(&mut self, task: TaskNo, time: Nanos) {
        self.leave_queue(task);
        self.tasks[task].state = State::Asleep;
        self.tasks[task].since = self.now;
        self.wakes.push(Reverse((self.now + time, task)));
    }

    pub fn wake(&mut self, task: TaskNo) {
        if self.tasks[task].state != State::Asleep {
            return;
        }
        self.end_sleep(task);
        if self.is_stopped(task) {
            self.hold(task);
            return;
        }
        self.tasks[task].state = State::Ready;
        self.enqueue_woken(task);
    }

    /// Puts a task on a queue that has run before.
    pub(crate) fn enqueue_woken(&mut self, task: TaskNo) {
        let pu = self.tasks[task].pinned.or_else(|| self.wake_pu(task));
        let pu = self.online_near(pu.unwrap_or(self.launcher));
        self.join_queue(task, self.allowed_near(task, pu));
    }

    pub fn create(&mut self, no: TaskNo) {
        if self.tasks[no].state != State::NotCreated {
            return;
        }
        let job = self.tasks[no].id.job.0 as usize;
        if self.is_stopped(no) && no != self.jobs[job].tasks.start {
            self.jobs[job].held_creations.push(no);
            return;
        }
        self.jobs[job].launched.get_or_insert(self.now);
        if self.tasks[no].created.is_some() {
            self.end_sleep(no);
        }
        self.tasks[no].created.get_or_insert(self.now);
        self.tasks[no].virtual_time = 0;
        if self.is_stopped(no) {
            self.hold(no);
            return;
        }
        self.tasks[no].state = State::Ready;
        self.set_target(no);
        self.begin(no);
        self.await_turn(no);
    }

    /// Puts a new task on a queue, where it touches its memory.
    pub fn begin(&mut self, no: TaskNo) {
        let first = self.jobs[self.tasks[no].id.job.0 as usize].tasks.start;
        let parent = self.tasks[first].pu.filter(|_| no != first).unwrap_or(self.launcher);
        let pu = match self.tasks[no].pinned {
            Some(pu) => pu,
            None => {
                let pu = self.fork_pu(self.online_near(parent));
                self.allowed_near(no, pu)
            }
        };
        self.join_queue(no, pu);
        self.touch_pages(no, pu);
    }

    pub(crate) fn end_sleep(&mut self, task: TaskNo) {
        let slept = self.now - self.tasks[task].since;
        self.tasks[task].total.slept += slept;
    }

    pub(crate) fn end_wait(&mut self, task: TaskNo) {
        let waited = self.now - self.tasks[task].since;
        let task = &mut self.tasks[task];
        task.total.waited += waited;
        if task.course.spins() {
            task.total.waited_to_spin += waited;
        }
    }

    pub(crate) fn end_stop(&mut self, task: TaskNo) {
        let stopped = self.now - self.tasks[task].since;
        self.tasks[task].total.stopped += stopped;
    }

    /// A task spins no more. If it waits for its PU, what it waits for is another thing from now on.
    pub(crate) fn end_spin(&mut self, task: TaskNo) {
        if self.waits(task) {
            self.end_wait(task);
            self.tasks[task].since = self.now;
        }
    }

    /// Whether a task could run and waits for its PU.
    fn waits(&self, task: TaskNo) -> bool {
        let Task { state, pu, .. } = &self.tasks[task];
        let has_pu = pu.is_some_and(|pu| self.queues[pu.idx()].running == Some(task));
        *state == State::Ready && !has_pu
    }

    /// The wait for its PU that goes on.
    fn wait(&self, task: TaskNo) -> Nanos {
        if self.waits(task) { self.now - self.tasks[task].since } else { Nanos::ZERO }
    }

    /// For how long a task could run and waited for its PU, with a wait that goes on.
    pub fn waited(&self, task: TaskNo) -> Nanos {
        self.tasks[task].total.waited + self.wait(task)
    }

    /// For how long a task spun, or waited for its PU to spin, with a wait that goes on.
    pub fn spun(&self, task: TaskNo) -> Nanos {
        let Task { total, course, .. } = &self.tasks[task];
        let now = if course.spins() { self.wait(task) } else { Nanos::ZERO };
        total.spun + total.waited_to_spin + now
    }

    pub fn finish(&mut self, task: TaskNo) {
        self.leave_queue(task);
        self.tasks[task].state = State::Done;
        self.tasks[task].since = self.now;
        let job = self.tasks[task].id.job.0 as usize;
        self.jobs[job].busy -= 1;
        self.hand_on_all(task);
        let leaves = self.scenario.method == Method::Leave;
        if leaves {
            self.end_task(task);
        }
        if self.jobs[job].busy > 0 {
            if self.turns(job).is_none() {
                self.is_missed_no_more(job);
            }
            return;
        }
        self.jobs[job].runs += 1;
        self.jobs[job].done.get_or_insert(self.now);
        let all_done = self.jobs.iter().all(|job| job.done.is_some());
        match self.scenario.method {
            Method::Leave => self.end_job(job, 0),
            Method::Restart if all_done => {
                (0..self.jobs.len()).for_each(|job| self.end_job(job, 0))
            }
            Method::Restart => self.relaunch(job),
        }
        self.over = all_done;
    }

    /// Launches a job once more, a slice after it was last launched at the earliest: what is created has as much virtual time as
    /// others on its PU, and as soon as a shorter run ended the next one might go first again, for ever.
    pub(crate) fn relaunch(&mut self, job: usize) {
        let at = self.now.max(self.jobs[job].run_launched + self.scenario.kernel.slice);
        self.jobs[job].run_launched = at;
        self.jobs[job].busy = self.jobs[job].tasks.len();
        self.begin_turns(job);
        for no in self.jobs[job].tasks.clone() {
            let thread = no - self.jobs[job].tasks.start;
            self.tasks[no].course.restart();
            self.tasks[no].arrived = 0;
            self.tasks[no].state = State::NotCreated;
            let created = at + self.scenario.jobs[job].threads[thread].born;
            self.creations.push(Reverse((created, no)));
        }
    }

    pub(crate) fn end_task(&mut self, task: TaskNo) {
        match self.tasks[task].state {
            State::Ended => return,
            State::Ready => self.leave_queue(task),
            State::Stopped => self.end_stop(task),
            State::NotCreated if self.tasks[task].created.is_none() => {}
            State::Asleep | State::NotCreated | State::Done => self.end_sleep(task),
        }
        self.tasks[task].state = State::Ended;
        if self.tasks[task].created.is_some() {
            self.tasks[task].ended = Some(self.now);
        }
    }

    pub fn end_job(&mut self, job: usize, status: i32) {
        if self.jobs[job].over {
            return;
        }
        self.jobs[job].tasks.clone().for_each(|task| self.end_task(task));
        self.jobs[job].over = true;
        self.job_ended = true;
        let ran = |sum: Nanos, task: &Task| sum + task.total.ran;
        let cpu_time = self.tasks[self.jobs[job].tasks.clone()].iter().fold(Nanos::ZERO, ran);
        let number = u32::try_from(job).unwrap_or(u32::MAX);
        self.ended.push(JobEnd {
            job: JobIdx(number),
            at: self.now,
            status,
            cpu_time: Some(cpu_time),
        });
    }

    /// Kills what still runs, as `timeout` would.
    pub fn give_up(&mut self) {
        const KILLED: i32 = 128 + 9;
        (0..self.jobs.len()).for_each(|job| self.end_job(job, KILLED));
        self.over = true;
    }
}
