//! The simulated machine as it goes on: from event to event, at rates that hold in between.
//!
//! # Problem
//! How fast each task goes on depends on what runs beside it, and that changes with every creation, end, phase,
//! time slice and move.
//!
//! # Approach
//! Between two events the same tasks run in the same phases at the same places, so rates are constant: the
//! next event is the nearest of a few known times. At an event the queues are brought up to date, the rates
//! are predicted anew, and the next event is found.
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

/// Everything there is.
#[derive(Debug)]
pub(crate) struct World<'a> {
    pub platform: &'a Platform<'a>,
    pub scenario: &'a Scenario,
    pub demands: Demands,
    /// By PU: whether it may be used and is online.
    pub usable: Vec<bool>,
    /// When PUs go and come, in the order of time, and how many of these events are over.
    pub hotplug_events: Vec<PuEvent>,
    pub hotplugs_done: usize,
    /// Whether PUs have gone or come since the flag was last taken down.
    pub machine_changed: bool,
    pub pollution: CachePollution,
    /// What jobs do that a plan has wait.
    pub meanwhile: Meanwhile,
    /// Whether it is not reported for how long tasks spin.
    pub hides_spinning: bool,
    /// Bytes of a cache line.
    pub line: f64,
    pub domains: Domains,
    pub rng: SplitMix64,
    pub now: Nanos,
    pub tasks: Vec<Task>,
    pub jobs: Vec<Job>,
    pub regions: Vec<Region>,
    /// Whether it is counted which pages tasks use.
    pub reports_pages: bool,
    /// By PU.
    pub queues: Vec<Queue>,
    pub targets: Targets,
    pub timers: Timers,
    /// When NUMA balancing is due for the first task, or before.
    pub scan_at: Nanos,
    /// The PU that jobs are launched from.
    pub launcher: PuIdx,
    pub creations: BinaryHeap<Reverse<(Nanos, TaskNo)>>,
    pub wakes: BinaryHeap<Reverse<(Nanos, TaskNo)>>,
    pub wake_ups: WakeUpSums,
    pub rates: Rates<'a>,
    /// What runs in this step.
    pub on: Vec<OnPu>,
    pub prediction: Rc<Prediction>,
    /// Whether `on` may no longer be what runs.
    pub stale: bool,
    /// Whether `prediction` is new in this step.
    pub fresh: bool,
    pub tally: Tally,
    pub checker: Checker,
    pub ended: Vec<JobEnd>,
    /// What came of orders to move memory that are not reported yet.
    pub moved: Vec<PagesMoved>,
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
            #[allow(clippy::cast_precision_loss)] // a line is small
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

    /// Goes on until `until`, or until a job ends or PUs go or come.
    pub fn run(&mut self, until: Nanos) -> Result<(), SimError> {
        let until = until.min(self.scenario.horizon);
        (self.job_ended, self.machine_changed) = (false, false);
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

    /// How many predictions were made.
    pub const fn predictions(&self) -> u64 {
        self.rates.predicted
    }

    /// Whatever is due now.
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
        self.scan_pages();
        self.balance();
        self.reschedule_all();
    }

    /// Ends phases, and with them maybe tasks and jobs.
    fn phases(&mut self) {
        for place in 0..self.on.len() {
            let OnPu { task, pu, until, .. } = self.on[place];
            // A thread whose slice is over takes no phase with it that it has done: with a grain longer than slices it would
            // never run when that ends.
            let slice_end = || self.queues[pu.idx()].next_slice_end();
            let leaves =
                self.scenario.grain > Nanos::ZERO && slice_end().is_some_and(|end| end <= self.now);
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

    /// Chooses what runs on each PU.
    fn reschedule_all(&mut self) {
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
                self.note_wake_up(task, PuIdx::new(pu));
            }
            if let Some(task) = before {
                self.tasks[task].since = self.now;
            }
        }
    }

    fn next_event(&self) -> Nanos {
        let first =
            |heap: &BinaryHeap<Reverse<(Nanos, TaskNo)>>| heap.peek().map(|first| first.0.0);
        let slices = self.queues.iter().filter_map(Queue::next_slice_end);
        let phases = self.on.iter().map(|on| on.until);
        let rest = [
            first(&self.creations),
            first(&self.wakes),
            self.next_balance(),
            Some(self.scan_at),
            self.next_hotplug(),
        ];
        slices.chain(phases).chain(rest.into_iter().flatten()).min().unwrap_or(Nanos(u64::MAX))
    }
}

/// The first of what is due.
fn due(heap: &mut BinaryHeap<Reverse<(Nanos, TaskNo)>>, now: Nanos) -> Option<TaskNo> {
    if heap.peek()?.0.0 > now {
        return None;
    }
    heap.pop().map(|Reverse((_, task))| task)
}

fn usable(platform: &Platform<'_>, scenario: &Scenario) -> Vec<bool> {
    let may = |os| scenario.usable.as_ref().is_none_or(|usable| usable.contains(&os));
    platform.machine().pus.iter().map(|pu| may(pu.os)).collect()
}
