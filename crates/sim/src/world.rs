//! The simulated machine as it goes on: from event to event, at rates that hold in between.
//!
//! # Problem
//! How fast each task goes on depends on who runs beside it, and that changes with every birth, end, phase,
//! turn and move.
//!
//! # Approach
//! Between two events the same tasks run in the same phases at the same places, so rates are constant: the
//! next event is the nearest of a few known times. At an event the queues are brought up to date, the rates
//! are asked for anew, and the next event is looked for.
//!
//! # Terms
//! - *step*: the time between two events.

use crate::SimError;
use crate::aims::Aims;
use crate::balance::Looks;
use crate::cold;
use crate::domains::Domains;
use crate::invariants::{Checker, Step};
use crate::kernel::Kernel;
use crate::platform::{Demands, Platform};
use crate::queues::{Queue, TaskNo};
use crate::rates::Rates;
use crate::scenario::{Method, Pages, Scenario};
use crate::tally::{Tally, count_move};
use crate::task::{Course, Next, State, Task, Totals};
use colocate_engine::JobEnd;
use colocate_machine::{Nanos, PuIdx};
use colocate_model::Prediction;
use colocate_policy::rng::SplitMix64;
use colocate_policy::{JobIdx, TaskId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::rc::Rc;

/// A job as it goes on.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Its tasks.
    pub tasks: Range<TaskNo>,
    /// Tasks that have not done their work of this run.
    pub busy: usize,
    /// When it was first launched.
    pub launched: Option<Nanos>,
    /// When its work was first done.
    pub done: Option<Nanos>,
    pub runs: u32,
    pub over: bool,
    /// Whether the plan has it wait.
    pub stopped: bool,
    /// Threads that were due to be born while it was stopped.
    pub held_births: Vec<TaskNo>,
}

/// A task on a PU, and how it goes on there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnPu {
    pub task: TaskNo,
    pub pu: PuIdx,
    /// Instructions per second, here and alone on the best core.
    pub speed: f64,
    pub alone: f64,
    /// Bytes per second.
    pub memory: f64,
    pub clock: f64,
    /// Part of its memory that is on other nodes.
    pub far: f64,
    /// When its phase or its work is over.
    pub until: Nanos,
}

/// Everything there is.
#[derive(Debug)]
pub(crate) struct World<'a> {
    pub platform: &'a Platform<'a>,
    pub scenario: &'a Scenario,
    pub demands: Demands,
    pub usable: Vec<bool>,
    pub domains: Domains,
    pub rng: SplitMix64,
    pub now: Nanos,
    pub tasks: Vec<Task>,
    pub jobs: Vec<Job>,
    /// By PU.
    pub queues: Vec<Queue>,
    pub aims: Aims,
    pub looks: Looks,
    /// When NUMA balancing looks at the first task next, or before.
    pub scan_at: Nanos,
    /// The PU that jobs are launched from.
    launcher: PuIdx,
    pub births: BinaryHeap<Reverse<(Nanos, TaskNo)>>,
    wakes: BinaryHeap<Reverse<(Nanos, TaskNo)>>,
    rates: Rates,
    /// What runs in this step.
    pub on: Vec<OnPu>,
    pub prediction: Rc<Prediction>,
    /// Whether `on` may no longer be what runs.
    pub stale: bool,
    /// Whether `prediction` is new in this step.
    fresh: bool,
    pub tally: Tally,
    pub checker: Checker,
    pub ended: Vec<JobEnd>,
    /// Whether a job ended since the flag was last taken down.
    pub job_ended: bool,
    pub over: bool,
}

impl<'a> World<'a> {
    pub fn new(platform: &'a Platform<'a>, scenario: &'a Scenario) -> Result<Self, SimError> {
        scenario.check(platform.machine())?;
        let demands = Demands::new(platform, scenario)?;
        let machine = platform.machine();
        let usable = usable(platform, scenario);
        let domains = Domains::new(machine, &usable);
        let mut rng = SplitMix64::new(scenario.seed);
        let pus: Vec<PuIdx> = machine.all_pus().filter(|pu| usable[pu.idx()]).collect();
        let launcher = pus[rng.below(pus.len())];
        let (tasks, jobs) = people(platform, scenario, &demands);
        let mut births = BinaryHeap::new();
        for (job, spec) in jobs.iter().zip(&scenario.jobs) {
            let born = spec.threads.iter().map(|thread| spec.arrives + thread.born);
            births.extend(born.zip(job.tasks.clone()).map(Reverse));
        }
        Ok(Self {
            aims: Aims::new(tasks.len()),
            looks: Looks::new(&domains),
            scan_at: Nanos(u64::MAX),
            queues: vec![Queue::default(); machine.pus.len()],
            tally: Tally::new(platform, scenario),
            checker: Checker::new(&usable, tasks.len()),
            now: Nanos::ZERO,
            rates: Rates::default(),
            on: Vec::new(),
            prediction: Rc::default(),
            stale: true,
            fresh: true,
            wakes: BinaryHeap::new(),
            ended: Vec::new(),
            job_ended: false,
            over: false,
            platform,
            scenario,
            demands,
            usable,
            domains,
            rng,
            tasks,
            jobs,
            launcher,
            births,
        })
    }

    /// Goes on until `until`, or until a job ends.
    pub fn run(&mut self, until: Nanos) -> Result<(), SimError> {
        let until = until.min(self.scenario.horizon);
        self.job_ended = false;
        loop {
            self.settle();
            if self.now >= self.scenario.horizon && !self.over {
                self.give_up();
            }
            if self.over {
                let complete = self.jobs.iter().all(|job| job.done.is_some());
                return self.checker.end(&self.tasks, complete).map_err(SimError::Broken);
            }
            if self.job_ended || self.now >= until {
                return Ok(());
            }
            self.refresh();
            let next = self.next_event().min(until);
            self.step(next)?;
        }
    }

    /// How often the model was asked.
    pub const fn predictions(&self) -> u64 {
        self.rates.asked
    }

    /// Whatever is due now.
    fn settle(&mut self) {
        loop {
            self.phases();
            let born = due(&mut self.births, self.now);
            let woken = if born.is_none() { due(&mut self.wakes, self.now) } else { None };
            match (born, woken) {
                (Some(task), _) => self.bear(task),
                (_, Some(task)) => self.wake(task),
                _ => break,
            }
        }
        if self.over {
            return;
        }
        self.look_at_pages();
        self.balance();
        self.take_turns();
    }

    /// Ends phases, and with them maybe tasks and jobs.
    fn phases(&mut self) {
        for place in 0..self.on.len() {
            let OnPu { task, until, .. } = self.on[place];
            if until > self.now {
                continue;
            }
            self.on[place].until = Nanos(u64::MAX);
            self.stale = true;
            while self.tasks[task].state == State::Ready && self.tasks[task].course.is_due() {
                match self.tasks[task].course.next() {
                    Next::Phase => {}
                    Next::Sleep(time) => self.sleep(task, time),
                    Next::Done => self.finish(task),
                }
            }
        }
    }

    fn sleep(&mut self, task: TaskNo, time: Nanos) {
        self.leave_queue(task);
        self.tasks[task].state = State::Asleep;
        self.tasks[task].since = self.now;
        self.wakes.push(Reverse((self.now + time, task)));
    }

    fn wake(&mut self, task: TaskNo) {
        if self.tasks[task].state != State::Asleep {
            return;
        }
        self.end_sleep(task);
        if self.is_stopped(task) {
            self.hold(task);
            return;
        }
        self.tasks[task].state = State::Ready;
        self.rouse(task);
    }

    /// Puts a task on a queue that has run before.
    pub fn rouse(&mut self, task: TaskNo) {
        let pu = self.tasks[task].pinned.or_else(|| self.wake_pu(task));
        self.join_queue(task, pu.unwrap_or(self.launcher));
    }

    fn bear(&mut self, no: TaskNo) {
        if self.tasks[no].state != State::Unborn {
            return;
        }
        let job = self.tasks[no].id.job.0 as usize;
        if self.is_stopped(no) && no != self.jobs[job].tasks.start {
            self.jobs[job].held_births.push(no);
            return;
        }
        self.jobs[job].launched.get_or_insert(self.now);
        if self.tasks[no].born.is_some() {
            self.end_sleep(no);
        }
        self.tasks[no].born.get_or_insert(self.now);
        self.tasks[no].virtual_time = 0;
        if self.is_stopped(no) {
            self.hold(no);
            return;
        }
        self.tasks[no].state = State::Ready;
        self.aim(no);
        self.begin(no);
    }

    /// Puts a new task on a queue, where it touches its memory.
    pub fn begin(&mut self, no: TaskNo) {
        let first = self.jobs[self.tasks[no].id.job.0 as usize].tasks.start;
        let parent = self.tasks[first].pu.filter(|_| no != first).unwrap_or(self.launcher);
        let pu = match self.tasks[no].pinned {
            Some(pu) => pu,
            None => self.fork_pu(parent),
        };
        self.join_queue(no, pu);
        self.touch_pages(no, pu);
    }

    /// Puts a task that is ready on a queue.
    pub fn join_queue(&mut self, task: TaskNo, pu: PuIdx) {
        self.note_move(task, pu);
        self.queues[pu.idx()].enqueue(task, pu, &mut self.tasks);
        self.tasks[task].since = self.now;
        self.looks.stale = true;
        self.watch_pages(task);
    }

    pub fn leave_queue(&mut self, task: TaskNo) {
        let Some(pu) = self.tasks[task].pu else { return };
        let queue = &mut self.queues[pu.idx()];
        let ran = queue.running == Some(task);
        queue.dequeue(task, self.scenario.kernel.slice, &mut self.tasks);
        if ran {
            self.stale = true;
        } else {
            self.end_wait(task);
        }
        self.looks.stale = true;
    }

    /// Brings a ready task to another PU.
    pub fn migrate(&mut self, task: TaskNo, to: PuIdx) {
        if self.tasks[task].pu == Some(to) {
            return;
        }
        self.leave_queue(task);
        self.join_queue(task, to);
    }

    fn end_sleep(&mut self, task: TaskNo) {
        let slept = self.now - self.tasks[task].since;
        self.tasks[task].total.slept += slept;
    }

    pub fn end_wait(&mut self, task: TaskNo) {
        let waited = self.now - self.tasks[task].since;
        self.tasks[task].total.waited += waited;
    }

    fn finish(&mut self, task: TaskNo) {
        self.leave_queue(task);
        self.tasks[task].state = State::Done;
        self.tasks[task].since = self.now;
        let job = self.tasks[task].id.job.0 as usize;
        self.jobs[job].busy -= 1;
        let leaves = self.scenario.method == Method::Leave;
        if leaves {
            self.end_task(task);
        }
        if self.jobs[job].busy > 0 {
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

    fn relaunch(&mut self, job: usize) {
        self.jobs[job].busy = self.jobs[job].tasks.len();
        for no in self.jobs[job].tasks.clone() {
            let thread = no - self.jobs[job].tasks.start;
            self.tasks[no].course.restart();
            self.tasks[no].state = State::Unborn;
            let born = self.now + self.scenario.jobs[job].threads[thread].born;
            self.births.push(Reverse((born, no)));
        }
    }

    fn end_task(&mut self, task: TaskNo) {
        match self.tasks[task].state {
            State::Ended => return,
            State::Ready => self.leave_queue(task),
            State::Stopped => self.end_wait(task),
            State::Unborn if self.tasks[task].born.is_none() => {}
            State::Asleep | State::Unborn | State::Done => self.end_sleep(task),
        }
        self.tasks[task].state = State::Ended;
        if self.tasks[task].born.is_some() {
            self.tasks[task].ended = Some(self.now);
        }
    }

    fn end_job(&mut self, job: usize, status: i32) {
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
    fn give_up(&mut self) {
        const KILLED: i32 = 128 + 9;
        (0..self.jobs.len()).for_each(|job| self.end_job(job, KILLED));
        self.over = true;
    }

    /// Lets each PU run whose turn it is.
    fn take_turns(&mut self) {
        let Kernel { slice, stagger, .. } = self.scenario.kernel;
        for pu in 0..self.queues.len() {
            let before = self.queues[pu].running;
            let rng = &mut self.rng;
            let first = || match stagger {
                1 => slice,
                parts => {
                    Nanos((slice.0 * (1 + rng.below(parts as usize) as u64)).div_ceil(parts.into()))
                }
            };
            if !self.queues[pu].reschedule(self.now, slice, &self.tasks, first) {
                continue;
            }
            self.stale = true;
            if let Some(task) = self.queues[pu].running {
                self.end_wait(task);
            }
            if let Some(task) = before {
                self.tasks[task].since = self.now;
            }
        }
    }

    /// Asks the model anew, if what runs has changed.
    fn refresh(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let pus = self.platform.machine().all_pus();
        let running: Vec<_> =
            pus.filter_map(|pu| Some((self.queues[pu.idx()].running?, pu))).collect();
        self.prediction = self.rates.of(self.platform, &self.demands, &self.tasks, &running);
        self.fresh = true;
        let prediction = Rc::clone(&self.prediction);
        for (&(task, _), rate) in running.iter().zip(&prediction.tasks) {
            self.tasks[task].occupancy.clone_from(&rate.occupancy);
        }
        let on = running.iter().zip(&prediction.tasks).map(|(&(task, pu), rate)| {
            let speed = rate.instructions_per_second;
            let phase = self.tasks[task].course.phase();
            OnPu {
                task,
                pu,
                speed,
                alone: self.demands.alone(phase),
                memory: rate.memory.0,
                clock: self.platform.clock_of(pu),
                far: self.far_share(task, pu),
                until: self.until(task, speed),
            }
        });
        self.on = on.collect();
    }

    /// When a task that goes on at `speed` comes to the end of its phase or work.
    fn until(&self, task: TaskNo, speed: f64) -> Nanos {
        let task = &self.tasks[task];
        let (left, exact) = task.course.until_next();
        let at = self.now + nanos_up(task.debt + left / speed);
        let grain = self.scenario.grain.0;
        if exact || grain == 0 { at } else { Nanos(at.0.div_ceil(grain).saturating_mul(grain)) }
    }

    fn next_event(&self) -> Nanos {
        let first =
            |heap: &BinaryHeap<Reverse<(Nanos, TaskNo)>>| heap.peek().map(|first| first.0.0);
        let turns = self.queues.iter().filter_map(Queue::next_turn);
        let phases = self.on.iter().map(|on| on.until);
        let rest = [first(&self.births), first(&self.wakes), self.next_look(), Some(self.scan_at)];
        turns.chain(phases).chain(rest.into_iter().flatten()).min().unwrap_or(Nanos(u64::MAX))
    }

    /// Lets time go on to `to`; nothing may happen before.
    fn step(&mut self, to: Nanos) -> Result<(), SimError> {
        // An event that is due and not dealt with would hold time up.
        if to <= self.now {
            return Err(SimError::Broken(format!(
                "expected time to go on, found {to} after {}",
                self.now
            )));
        }
        let time = to - self.now;
        let seconds = time.as_secs_f64();
        for on in &self.on {
            let task = &mut self.tasks[on.task];
            let warm = (seconds - task.debt).max(0.0);
            task.debt = (task.debt - seconds).max(0.0);
            let done = task.course.go_on(on.speed * warm);
            task.total.ran += time;
            task.virtual_time += i64::try_from(time.0).unwrap_or(i64::MAX);
            task.total.instructions += done;
            task.total.cycles += on.clock * seconds;
            task.total.alone_s += done / on.alone;
            task.total.memory_bytes += on.memory * warm;
            task.total.far_instructions += on.far * done;
        }
        self.tally.step(self.now, to, &self.on, &self.prediction, &self.tasks);
        let step = Step {
            from: std::mem::replace(&mut self.now, to),
            to,
            on: &self.on,
            queues: &self.queues,
            tasks: &self.tasks,
            new: std::mem::take(&mut self.fresh).then_some(&self.prediction),
            idle_balance: self.scenario.kernel.idle_balance,
        };
        self.checker.step(&step).map_err(SimError::Broken)
    }

    /// Counts a move to `to`, and what it costs.
    fn note_move(&mut self, task: TaskNo, to: PuIdx) {
        let Some(from) = self.tasks[task].pu.filter(|&from| from != to) else { return };
        count_move(self.platform.machine(), &mut self.tasks[task].total.moves, from, to);
        let task = &mut self.tasks[task];
        let demand = self.demands.of(task.course.phase(), self.platform.kind_of(to));
        let cold = cold::seconds(self.platform, demand, &task.occupancy, from, to);
        // It cannot be colder than all cold.
        task.debt = task.debt.max(cold);
    }

    /// Where its memory comes to be at its birth.
    fn touch_pages(&mut self, no: TaskNo, pu: PuIdx) {
        let nodes = self.platform.machine().nodes.len();
        if nodes == 0 {
            return;
        }
        let job = self.tasks[no].id.job.0 as usize;
        let first = self.jobs[job].tasks.start;
        let node_of = |pu: Option<PuIdx>| pu.and_then(|pu| self.platform.node_of(pu)).unwrap_or(0);
        let all_on = |node: usize| {
            let mut pages = vec![0.0; nodes];
            pages[node] = 1.0;
            pages
        };
        let pages = match self.scenario.jobs[job].threads[no - first].pages {
            Pages::FirstTouch => all_on(node_of(Some(pu))),
            Pages::FirstThread => all_on(node_of(self.tasks[first].pu)),
            Pages::Interleaved => self.everywhere(),
            Pages::On(node) => all_on(node.idx()),
        };
        if self.tasks[no].pages != pages {
            self.tasks[no].pages = pages;
            self.tasks[no].pages_version += 1;
        }
        self.watch_pages(no);
    }

    /// Evenly on all nodes that have memory, as far as is known.
    #[allow(clippy::cast_precision_loss)] // few nodes
    fn everywhere(&self) -> Vec<f64> {
        let nodes = &self.platform.machine().nodes;
        let has: Vec<bool> = nodes.iter().map(|node| node.memory.is_none_or(|m| m.0 > 0)).collect();
        let share = 1.0 / has.iter().filter(|&&has| has).count().max(1) as f64;
        has.into_iter().map(|has| if has { share } else { 0.0 }).collect()
    }
}

/// The first of what is due.
fn due(heap: &mut BinaryHeap<Reverse<(Nanos, TaskNo)>>, now: Nanos) -> Option<TaskNo> {
    if heap.peek()?.0.0 > now {
        return None;
    }
    heap.pop().map(|Reverse((_, task))| task)
}

/// Whole nanoseconds, rounded up; a time that never comes is the last one there is.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
fn nanos_up(seconds: f64) -> Nanos {
    if seconds.is_nan() { Nanos(u64::MAX) } else { Nanos((seconds * 1e9).ceil().max(1.0) as u64) }
}

fn usable(platform: &Platform<'_>, scenario: &Scenario) -> Vec<bool> {
    let may = |os| scenario.usable.as_ref().is_none_or(|usable| usable.contains(&os));
    platform.machine().pus.iter().map(|pu| may(pu.os)).collect()
}

/// All tasks and jobs, none born yet.
fn people(
    platform: &Platform<'_>,
    scenario: &Scenario,
    demands: &Demands,
) -> (Vec<Task>, Vec<Job>) {
    let nodes = platform.machine().nodes.len();
    let (mut tasks, mut jobs) = (Vec::new(), Vec::new());
    for (job, spec) in scenario.jobs.iter().enumerate() {
        let start = tasks.len();
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        for (order, thread) in spec.threads.iter().enumerate() {
            let work = demands.work(&thread.course, thread.work);
            tasks.push(Task {
                id: TaskId { job: JobIdx(number(job)), order: number(order) },
                name: format!("{}/{}", spec.name, thread.name),
                state: State::Unborn,
                pu: None,
                pinned: None,
                course: Course::new(thread.course.clone(), work),
                virtual_time: 0,
                debt: 0.0,
                occupancy: Vec::new(),
                pages: vec![0.0; nodes],
                pages_version: 0,
                next_scan: Nanos(u64::MAX),
                scanned_from: None,
                since: Nanos::ZERO,
                born: None,
                ended: None,
                total: Totals::default(),
            });
        }
        let busy = tasks.len() - start;
        jobs.push(Job {
            tasks: start..tasks.len(),
            busy,
            launched: None,
            done: None,
            runs: 0,
            over: false,
            stopped: false,
            held_births: Vec::new(),
        });
    }
    (tasks, jobs)
}
