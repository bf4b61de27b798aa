//! Life of tasks and jobs: creation, sleep, end, and the next run of a job.

use crate::loads::Loads;
use crate::placing::{fork_pu, wake_pu};
use crate::scenario::Method;
use crate::task::{State, Task, TaskNo};
use crate::world::World;
use colocate_machine::Nanos;

impl World<'_> {
    /// Puts a task to sleep for a time.
    pub fn sleep(&mut self, task: TaskNo, time: Nanos) {
        self.leave_queue(task);
        self.tasks[task].state = State::Asleep;
        self.tasks[task].since = self.events.now();
        self.events.wake_at(self.events.now() + time, task);
    }

    /// Wakes a task, if asleep.
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

    /// Puts a task with an earlier PU on a queue.
    pub(crate) fn enqueue_woken(&mut self, task: TaskNo) {
        let wake = self.scenario.kernel.wake;
        let pu = self.targets.pinned(task);
        let pu = pu.or_else(|| wake_pu(self.loads(), &self.targets, wake, task));
        let pu = self.pus.near(pu.unwrap_or(self.launcher));
        self.join_queue(task, self.allowed_near(task, pu));
    }

    /// Creates a task; holds the task if its job is stopped.
    pub fn create(&mut self, no: TaskNo) {
        if self.tasks[no].state != State::NotCreated {
            return;
        }
        let job = self.tasks[no].id.job.0 as usize;
        // A job that arrives while it has to wait is launched all the same, and stopped before it
        // runs.
        if self.is_stopped(no) && no != self.jobs[job].tasks.start {
            self.jobs[job].held_creations.push(no);
            return;
        }
        self.jobs[job].launched.get_or_insert(self.events.now());
        // In a later run of its job, the task was over with its work until now.
        if self.tasks[no].created.is_some() {
            self.end_sleep(no);
        }
        self.tasks[no].created.get_or_insert(self.events.now());
        // A new task has no lag.
        self.queues.forget_lag(no);
        if self.is_stopped(no) {
            self.hold(no);
            return;
        }
        self.tasks[no].state = State::Ready;
        self.set_target(no);
        self.begin(no);
        self.await_turn(no);
    }

    /// Puts a new task on a queue, and places its memory.
    pub fn begin(&mut self, no: TaskNo) {
        let first = self.jobs[self.tasks[no].id.job.0 as usize].tasks.start;
        let parent = self.queues.pu_of(first).filter(|_| no != first).unwrap_or(self.launcher);
        let pu = self.targets.pinned(no).unwrap_or_else(|| {
            let loads = Loads::new(&self.pus, &self.queues);
            let fork = self.scenario.kernel.fork;
            let pu = fork_pu(loads, fork, &mut self.rng, self.pus.near(parent));
            self.allowed_near(no, pu)
        });
        self.join_queue(no, pu);
        self.touch_pages(no, pu);
    }

    pub(crate) fn end_sleep(&mut self, task: TaskNo) {
        let slept = self.events.now() - self.tasks[task].since;
        self.tasks[task].total.slept += slept;
    }

    pub(crate) fn end_wait(&mut self, task: TaskNo) {
        let waited = self.events.now() - self.tasks[task].since;
        let task = &mut self.tasks[task];
        task.total.waited += waited;
        if task.course.spins() {
            task.total.waited_to_spin += waited;
        }
    }

    pub(crate) fn end_stop(&mut self, task: TaskNo) {
        let stopped = self.events.now() - self.tasks[task].since;
        self.tasks[task].total.stopped += stopped;
    }

    /// Ends the spinning of a task. A wait for its PU before this is time waited to spin.
    pub(crate) fn end_spin(&mut self, task: TaskNo) {
        if self.waits(task) {
            self.end_wait(task);
            self.tasks[task].since = self.events.now();
        }
    }

    /// Whether a task is ready, but does not have its PU.
    fn waits(&self, task: TaskNo) -> bool {
        self.tasks[task].state == State::Ready && !self.queues.runs(task)
    }

    /// Length of a task's present wait for its PU; 0 without a wait.
    fn wait(&self, task: TaskNo) -> Nanos {
        if self.waits(task) { self.events.now() - self.tasks[task].since } else { Nanos::ZERO }
    }

    /// A task's waits for its PU, with the present wait.
    pub fn waited(&self, task: TaskNo) -> Nanos {
        self.tasks[task].total.waited + self.wait(task)
    }

    /// A task's time spinning, and its waits for its PU to spin, with the present wait.
    pub fn spun(&self, task: TaskNo) -> Nanos {
        let Task { total, course, .. } = &self.tasks[task];
        let now = if course.spins() { self.wait(task) } else { Nanos::ZERO };
        total.spun + total.waited_to_spin + now
    }

    /// Ends a task's work of this run; the last task of a job ends or relaunches the job.
    pub fn finish(&mut self, task: TaskNo) {
        self.leave_queue(task);
        self.tasks[task].state = State::Done;
        self.tasks[task].since = self.events.now();
        let job = self.tasks[task].id.job.0 as usize;
        self.jobs[job].busy -= 1;
        self.hand_on_all(task);
        if self.scenario.method == Method::Leave {
            self.end_task(task);
        }
        if self.jobs[job].busy > 0 {
            if self.turns(job).is_none() {
                self.recheck_barrier(job);
            }
            return;
        }
        self.jobs[job].runs += 1;
        self.jobs[job].done.get_or_insert(self.events.now());
        let all_done = self.jobs.iter().all(|job| job.done.is_some());
        match self.scenario.method {
            Method::Leave => self.end_job(job, 0),
            Method::Restart if all_done => {
                (0..self.jobs.len()).for_each(|job| self.end_job(job, 0))
            }
            Method::Restart => self.relaunch(job),
        }
        if all_done {
            self.ends.end();
        }
    }

    /// Launches a job once more, at the earliest a slice after its last launch. New tasks start
    /// with the virtual time of their PU's queue: without the delay the next run of a shorter job
    /// could go first again, for ever.
    pub(crate) fn relaunch(&mut self, job: usize) {
        let at = self.events.now().max(self.jobs[job].run_launched + self.scenario.kernel.slice);
        self.jobs[job].run_launched = at;
        self.jobs[job].busy = self.jobs[job].tasks.len();
        self.begin_turns(job);
        for no in self.jobs[job].tasks.clone() {
            let thread = no - self.jobs[job].tasks.start;
            self.tasks[no].course.restart();
            self.tasks[no].arrived = 0;
            self.tasks[no].state = State::NotCreated;
            let created = at + self.scenario.jobs[job].threads[thread].born;
            self.events.create_at(created, no);
        }
    }

    /// Ends a task for good.
    pub(crate) fn end_task(&mut self, task: TaskNo) {
        match self.tasks[task].state {
            State::Ended => return,
            State::Ready => self.leave_queue(task),
            State::Stopped => self.end_stop(task),
            // Never created in any run, so it has no times.
            State::NotCreated if self.tasks[task].created.is_none() => {}
            State::Asleep | State::NotCreated | State::Done => self.end_sleep(task),
        }
        self.tasks[task].state = State::Ended;
        if self.tasks[task].created.is_some() {
            self.tasks[task].ended = Some(self.events.now());
        }
    }

    /// Ends a job with all its tasks, with this exit status.
    pub fn end_job(&mut self, job: usize, status: i32) {
        if self.jobs[job].over {
            return;
        }
        self.jobs[job].tasks.clone().for_each(|task| self.end_task(task));
        self.jobs[job].over = true;
        let tasks = self.tasks[self.jobs[job].tasks.clone()].iter();
        let cpu_time = tasks.fold(Nanos::ZERO, |sum, task| sum + task.total.ran);
        self.ends.end_job(job, self.events.now(), status, cpu_time);
    }

    /// Kills all remaining jobs, as `timeout -s KILL` would.
    pub fn give_up(&mut self) {
        // Exit status of a shell for a process ended by signal 9.
        const KILLED: i32 = 128 + 9;
        (0..self.jobs.len()).for_each(|job| self.end_job(job, KILLED));
        self.ends.end();
    }
}
