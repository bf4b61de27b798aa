//! State of a simulation, and its loop from event to event at constant rates.
//!
//! # Problem
//! The speed of each task depends on the tasks beside it, and changes with every creation, end,
//! phase, time slice and move.
//!
//! # Approach
//! Between two events the same tasks run in the same phases at the same places, so rates are
//! constant: the next event is the nearest of a few known times. At an event the queues are brought
//! up to date, the rates are predicted anew, and the next event is found.
//!
//! # Terms
//! - *step*: the time between two events.

use crate::SimError;
use crate::domains::Domains;
use crate::instances::{Job, instantiate, memory};
use crate::invariants::Checker;
use crate::kernel::Kernel;
use crate::on_pu::OnPu;
use crate::platform::{Demands, Platform};
use crate::pollution::CachePollution;
use crate::queues::Queue;
use crate::rates::Rates;
use crate::region::Region;
use crate::scenario::{PuEvent, Scenario};
use crate::tally::Tally;
use crate::targets::Targets;
use crate::task::{Next, State, Task, TaskNo};
use crate::timers::Timers;
use crate::woken::WakeUpSums;
use colocate_engine::Meanwhile;
use colocate_evidence::{JobEnd, PagesMoved};
use colocate_machine::{Nanos, PuIdx};
use colocate_model::Prediction;
use colocate_policy::rng::SplitMix64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

/// Tasks by the time of an event, earliest first.
type TaskTimes = BinaryHeap<Reverse<(Nanos, TaskNo)>>;

/// State of a simulation.
#[derive(Debug)]
pub(crate) struct World<'a> {
    pub platform: &'a Platform<'a>,
    pub scenario: &'a Scenario,
    pub demands: Demands,
    /// By PU: whether online and allowed by the scenario.
    pub usable: Vec<bool>,
    /// Hotplug events in the order of time.
    pub hotplug_events: Vec<PuEvent>,
    /// Number of past hotplug events.
    pub hotplugs_done: usize,
    /// Whether a hotplug event came since `run` was called.
    pub machine_changed: bool,
    pub pollution: CachePollution,
    /// Treatment of waiting jobs.
    pub meanwhile: Meanwhile,
    /// Whether reports leave out spinning.
    pub hides_spinning: bool,
    /// Bytes of a cache line.
    pub line: f64,
    pub domains: Domains,
    pub rng: SplitMix64,
    pub now: Nanos,
    pub tasks: Vec<Task>,
    pub jobs: Vec<Job>,
    pub regions: Vec<Region>,
    /// Whether uses of memory are counted for reports of pages.
    pub reports_pages: bool,
    /// By PU.
    pub queues: Vec<Queue>,
    pub targets: Targets,
    pub timers: Timers,
    /// Time of the next NUMA balancing scan of any task, or earlier.
    pub scan_at: Nanos,
    /// PU from which jobs are launched.
    pub launcher: PuIdx,
    pub creations: TaskTimes,
    /// Ends of sleeps.
    pub wakes: TaskTimes,
    pub wake_ups: WakeUpSums,
    pub rates: Rates<'a>,
    /// Running tasks in this step.
    pub on: Vec<OnPu>,
    pub prediction: Rc<Prediction>,
    /// Whether `on` may be out of date.
    pub stale: bool,
    /// Whether `prediction` differs from the step before.
    pub fresh: bool,
    pub tally: Tally,
    pub checker: Checker,
    pub ended: Vec<JobEnd>,
    /// Results of orders to move memory, not reported yet.
    pub moved: Vec<PagesMoved>,
    /// Whether a job ended since `run` was called.
    pub job_ended: bool,
    /// Whether the simulation has ended.
    pub over: bool,
}

impl<'a> World<'a> {
    /// The state before the first event.
    ///
    /// # Errors
    /// [`SimError::Scenario`] and [`SimError::Phase`], as of [`crate::SimHost::new`].
    pub fn new(platform: &'a Platform<'a>, scenario: &'a Scenario) -> Result<Self, SimError> {
        scenario.check(platform.machine())?;
        let demands = Demands::new(platform, scenario)?;
        let machine = platform.machine();
        let usable = usable(platform, scenario);
        let domains = Domains::new(machine, &usable);
        let mut rng = SplitMix64::new(scenario.seed);
        let pus: Vec<PuIdx> = machine.all_pus().filter(|pu| usable[pu.idx()]).collect();
        // The process that launches the jobs can be on any PU.
        let launcher = pus[rng.below(pus.len())];
        let (mut tasks, jobs) = instantiate(platform, scenario, &demands);
        let regions = memory(scenario, machine.nodes.len(), &jobs, &mut tasks);
        let mut creations = BinaryHeap::new();
        for (job, spec) in jobs.iter().zip(&scenario.jobs) {
            let created = spec.threads.iter().map(|thread| spec.arrives + thread.born);
            creations.extend(created.zip(job.tasks.clone()).map(Reverse));
        }
        let mut hotplug_events = scenario.events.clone();
        hotplug_events.sort_by_key(|event| event.at);
        let mut world = Self {
            hotplug_events,
            hotplugs_done: 0,
            machine_changed: false,
            pollution: CachePollution::new(platform),
            meanwhile: Meanwhile::Stop,
            hides_spinning: false,
            line: platform.performance().memory.first().map_or(64.0, |node| node.line.0 as f64),
            targets: Targets::new(tasks.len()),
            timers: Timers::new(&domains),
            scan_at: Nanos(u64::MAX),
            queues: vec![Queue::default(); machine.pus.len()],
            tally: Tally::new(platform, scenario),
            checker: Checker::new(platform.machine(), &usable, scenario, tasks.len()),
            now: Nanos::ZERO,
            rates: Rates::new(platform),
            on: Vec::new(),
            prediction: Rc::default(),
            stale: true,
            fresh: true,
            wakes: BinaryHeap::new(),
            wake_ups: WakeUpSums::new(),
            ended: Vec::new(),
            moved: Vec::new(),
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
            regions,
            reports_pages: false,
            launcher,
            creations,
        };
        (0..world.jobs.len()).for_each(|job| world.begin_turns(job));
        Ok(world)
    }

    /// Simulates until `until`, the end of a job, or a hotplug event.
    ///
    /// # Errors
    /// [`SimError::Broken`] if the simulation breaks its own rules.
    pub fn run(&mut self, until: Nanos) -> Result<(), SimError> {
        let until = until.min(self.scenario.horizon);
        self.job_ended = false;
        self.machine_changed = false;
        loop {
            self.settle();
            if self.now >= self.scenario.horizon && !self.over {
                self.give_up();
            }
            if self.over {
                let complete = self.jobs.iter().all(|job| job.done.is_some());
                return self.checker.end(&self.tasks, complete).map_err(SimError::Broken);
            }
            if self.job_ended || self.machine_changed || self.now >= until {
                return Ok(());
            }
            self.refresh();
            let next = self.next_event().min(until);
            self.step(next)?;
        }
    }

    /// Number of predictions so far.
    pub const fn predictions(&self) -> u64 {
        self.rates.predicted
    }

    /// Handles all events due now.
    fn settle(&mut self) {
        self.phases();
        self.apply_hotplug();
        loop {
            self.phases();
            let created = due(&mut self.creations, self.now);
            let woken = if created.is_none() { due(&mut self.wakes, self.now) } else { None };
            match (created, woken) {
                (Some(task), _) => self.create(task),
                (_, Some(task)) => self.wake(task),
                _ => break,
            }
        }
        if self.over {
            return;
        }
        // Moves come first, so that no PU chooses a task that leaves at once.
        self.scan_pages();
        self.balance();
        self.reschedule_all();
    }

    /// Ends the phases that are over, and with them tasks and jobs.
    fn phases(&mut self) {
        for place in 0..self.on.len() {
            let OnPu { task, pu, until, .. } = self.on[place];
            // A thread whose slice is over must not keep a phase that is done: with a grain longer
            // than slices it would never run at that phase's end.
            let slice_end = self.queues[pu.idx()].next_slice_end();
            let leaves =
                self.scenario.grain > Nanos::ZERO && slice_end.is_some_and(|end| end <= self.now);
            if until > self.now && !(leaves && self.tasks[task].course.is_due()) {
                continue;
            }
            self.on[place].until = Nanos(u64::MAX);
            self.stale = true;
            while self.tasks[task].state == State::Ready && self.tasks[task].course.is_due() {
                match self.tasks[task].course.next() {
                    Next::Phase => {}
                    Next::Sleep(time) => self.sleep(task, time),
                    Next::Barrier => self.arrive(task),
                    Next::SerialDone => self.end_serial(task),
                    Next::Done => self.finish(task),
                }
            }
            if self.tasks[task].uses.iter().any(|one| one.during.is_some()) {
                self.use_memory(task);
            }
        }
    }

    /// Chooses the running task of each PU.
    fn reschedule_all(&mut self) {
        let Kernel { slice, stagger, .. } = self.scenario.kernel;
        for pu in 0..self.queues.len() {
            let before = self.queues[pu].running;
            let changes = self.queues[pu].reschedule(self.now, slice, &self.tasks, || {
                first_slice(&mut self.rng, slice, stagger)
            });
            if !changes {
                continue;
            }
            self.stale = true;
            if let Some(task) = self.queues[pu].running {
                self.end_wait(task);
                self.note_wake_up(task, PuIdx::new(pu));
            }
            if let Some(task) = before {
                self.tasks[task].since = self.now;
            }
        }
    }

    /// Time of the next event.
    fn next_event(&self) -> Nanos {
        let slices = self.queues.iter().filter_map(Queue::next_slice_end);
        let phases = self.on.iter().map(|on| on.until);
        let rest = [
            self.creations.peek().map(|first| first.0.0),
            self.wakes.peek().map(|first| first.0.0),
            self.next_balance(),
            Some(self.scan_at),
            self.next_hotplug(),
        ];
        slices.chain(phases).chain(rest.into_iter().flatten()).min().unwrap_or(Nanos(u64::MAX))
    }
}

/// Length of the first slice on a newly shared PU: a random number of parts.
fn first_slice(rng: &mut SplitMix64, slice: Nanos, stagger: u32) -> Nanos {
    // Without stagger no random number is drawn.
    if stagger == 1 {
        return slice;
    }
    let parts = 1 + rng.below(stagger as usize) as u64;
    Nanos((slice.0 * parts).div_ceil(stagger.into()))
}

/// Removes the first due task; `None` if none is due.
fn due(heap: &mut TaskTimes, now: Nanos) -> Option<TaskNo> {
    if heap.peek()?.0.0 > now {
        return None;
    }
    heap.pop().map(|Reverse((_, task))| task)
}

/// By PU: whether the scenario's jobs may use it.
fn usable(platform: &Platform<'_>, scenario: &Scenario) -> Vec<bool> {
    platform.machine().pus.iter().map(|pu| scenario.may_use(pu.os)).collect()
}
