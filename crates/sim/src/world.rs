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
//! Parts own their state: clock and times of tasks ([`Events`]), PUs ([`UsablePus`]), regions of memory
//! ([`Memory`]), timers of balancing ([`Timers`]), predictions ([`Rates`]), wake-ups ([`WakeUpSums`]), ends
//! ([`Ends`]) and counts ([`Tally`]). The kernel's rules are in the modules below this one.
//!
//! # Terms
//! - *step*: the time between two events.

mod balance;
mod barrier;
mod filling;
mod follow;
mod invariants;
mod life;
mod memory;
mod moves;
mod numa;
mod pace;
mod pages;
mod stop;
mod summary;
mod turns;

use crate::SimError;
use crate::ends::Ends;
use crate::events::{Due, Events};
use crate::hotplug::UsablePus;
use crate::instances::{Job, instantiate, regions};
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::on_pu::OnPu;
use crate::platform::{Demands, Platform};
use crate::pollution::CachePollution;
use crate::queues::Queues;
use crate::rates::Rates;
use crate::scenario::Scenario;
use crate::tally::Tally;
use crate::targets::{Allowed, Targets};
use crate::task::{Next, State, Task, TaskNo};
use crate::timers::Timers;
use crate::woken::WakeUpSums;
use colocate_engine::Meanwhile;
use colocate_evidence::{JobEnd, JobIdx, PageGroup, PagesMoved, QuantumEnd};
use colocate_machine::{Machine, Nanos, PuIdx};
use colocate_policy::rng::SplitMix64;
use invariants::Checker;

/// State of a simulation.
#[derive(Debug)]
pub(crate) struct World<'a> {
    platform: &'a Platform<'a>,
    scenario: &'a Scenario,
    demands: Demands,
    pus: UsablePus<'a>,
    pollution: CachePollution,
    /// Treatment of waiting jobs.
    meanwhile: Meanwhile,
    /// Whether reports leave out spinning.
    hides_spinning: bool,
    rng: SplitMix64,
    events: Events,
    tasks: Vec<Task>,
    jobs: Vec<Job>,
    memory: Memory,
    /// Whether uses of memory are counted for reports of pages.
    reports_pages: bool,
    queues: Queues,
    targets: Targets,
    timers: Timers,
    /// Time of the next NUMA balancing scan of any task, or earlier.
    scan_at: Nanos,
    /// PU from which jobs are launched.
    launcher: PuIdx,
    wake_ups: WakeUpSums,
    rates: Rates<'a>,
    /// Running tasks in this step.
    on: Vec<OnPu>,
    tally: Tally,
    checker: Checker,
    ends: Ends,
    /// Results of orders to move memory, not reported yet.
    moved: Vec<PagesMoved>,
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
        let pus = UsablePus::new(platform, scenario);
        let mut rng = SplitMix64::new(scenario.seed);
        let usable: Vec<PuIdx> = pus.iter().collect();
        // The process that launches the jobs can be on any PU.
        let launcher = usable[rng.below(usable.len())];
        let (mut tasks, jobs) = instantiate(platform, scenario, &demands);
        let regions = regions(scenario, machine.nodes.len(), &jobs, &mut tasks);
        let mut events = Events::default();
        for (job, spec) in jobs.iter().zip(&scenario.jobs) {
            for (thread, task) in spec.threads.iter().zip(job.tasks.clone()) {
                events.create_at(spec.arrives + thread.born, task);
            }
        }
        let mut world = Self {
            pollution: CachePollution::new(platform),
            meanwhile: Meanwhile::Stop,
            hides_spinning: false,
            targets: Targets::new(tasks.len()),
            timers: Timers::new(pus.domains()),
            scan_at: Nanos(u64::MAX),
            queues: Queues::new(machine.pus.len(), tasks.len(), scenario.kernel.slice),
            tally: Tally::new(platform, scenario),
            checker: Checker::new(platform.machine(), pus.all(), scenario, tasks.len()),
            events,
            rates: Rates::new(platform),
            on: Vec::new(),
            wake_ups: WakeUpSums::default(),
            ends: Ends::default(),
            moved: Vec::new(),
            platform,
            scenario,
            demands,
            pus,
            rng,
            tasks,
            jobs,
            memory: Memory::new(regions),
            reports_pages: false,
            launcher,
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
        self.ends.begin_quantum();
        loop {
            self.settle();
            if self.events.now() >= self.scenario.horizon && !self.ends.is_over() {
                self.give_up();
            }
            if self.ends.is_over() {
                let complete = self.jobs.iter().all(|job| job.done.is_some());
                return self.checker.end(&self.tasks, complete).map_err(SimError::Broken);
            }
            if self.ends.of_quantum() != QuantumEnd::Elapsed || self.events.now() >= until {
                return Ok(());
            }
            self.refresh();
            let next = self.next_event().min(until);
            self.step(next)?;
        }
    }

    /// The machine.
    pub fn machine(&self) -> &'a Machine {
        self.platform.machine()
    }

    /// The scenario.
    pub const fn scenario(&self) -> &'a Scenario {
        self.scenario
    }

    /// The machine's clock.
    pub const fn now(&self) -> Nanos {
        self.events.now()
    }

    /// PUs that jobs may use, in logical order.
    pub fn usable(&self) -> impl Iterator<Item = PuIdx> + '_ {
        self.pus.iter()
    }

    /// All tasks.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// PUs allowed for a task.
    pub fn allowed(&self, task: TaskNo) -> &Allowed {
        self.targets.allowed(task)
    }

    /// PU where a task runs, waits or last ran.
    pub fn pu_of(&self, task: TaskNo) -> Option<PuIdx> {
        self.queues.pu_of(task)
    }

    /// All ended jobs.
    pub fn ended(&self) -> &[JobEnd] {
        self.ends.jobs()
    }

    /// Reason for the end of the last quantum.
    pub const fn end_of_quantum(&self) -> QuantumEnd {
        self.ends.of_quantum()
    }

    /// Results of orders to move memory since the last call.
    pub fn take_moved(&mut self) -> Vec<PagesMoved> {
        std::mem::take(&mut self.moved)
    }

    /// Records up to `most` spans of tasks on PUs.
    pub const fn record(&mut self, most: usize) {
        self.tally.most_spans = most;
    }

    /// Sets the treatment of waiting jobs.
    pub const fn set_meanwhile(&mut self, meanwhile: Meanwhile) {
        self.meanwhile = meanwhile;
    }

    /// Sets whether reports leave out spinning.
    pub const fn hide_spinning(&mut self, hidden: bool) {
        self.hides_spinning = hidden;
    }

    /// Whether reports leave out spinning.
    pub const fn hides_spinning(&self) -> bool {
        self.hides_spinning
    }

    /// Page groups of touched memory, as in a host's reports.
    pub fn page_groups(&self) -> Vec<PageGroup> {
        self.memory.page_groups(&self.tasks)
    }

    /// Counts uses of memory from now on, for reports of pages.
    pub const fn report_pages(&mut self) {
        self.reports_pages = true;
    }

    /// Whether uses of memory are counted.
    pub const fn reports_pages(&self) -> bool {
        self.reports_pages
    }

    /// Counts instructions by phase for `jobs`, and for no other.
    pub fn watch_mixes(&mut self, jobs: &[JobIdx]) {
        for (job, number) in self.jobs.iter_mut().zip(0..) {
            job.watched = jobs.contains(&JobIdx(number));
        }
    }

    /// Number of predictions so far.
    pub const fn predictions(&self) -> u64 {
        self.rates.predicted()
    }

    /// Handles all events due now.
    fn settle(&mut self) {
        self.phases();
        self.apply_hotplug();
        loop {
            self.phases();
            match self.events.pop_due() {
                Some(Due::Creation(task)) => self.create(task),
                Some(Due::WakeUp(task)) => self.wake(task),
                None => break,
            }
        }
        if self.ends.is_over() {
            return;
        }
        // Moves come first, so that no PU chooses a task that leaves at once.
        self.scan_pages();
        self.balance();
        self.reschedule_all();
    }

    /// Applies the hotplug events that are due.
    fn apply_hotplug(&mut self) {
        if !self.pus.apply(self.events.now()) {
            return;
        }
        self.ends.note_machine_change();
        self.timers = Timers::new(self.pus.domains());
        self.rates.note_change();
        (0..self.tasks.len()).for_each(|task| self.leave_offline(task));
    }

    /// Ends the phases that are over, and with them tasks and jobs.
    fn phases(&mut self) {
        for place in 0..self.on.len() {
            let OnPu { task, pu, until, .. } = self.on[place];
            // A thread whose slice is over must not keep a phase that is done: with a grain longer
            // than slices it would never run at that phase's end.
            let slice_end = self.queues.slice_end(pu);
            let leaves = self.scenario.grain > Nanos::ZERO
                && slice_end.is_some_and(|end| end <= self.events.now());
            if until > self.events.now() && !(leaves && self.tasks[task].course.is_due()) {
                continue;
            }
            self.on[place].until = Nanos(u64::MAX);
            self.rates.note_change();
            while self.tasks[task].state == State::Ready && self.tasks[task].course.is_due() {
                match self.tasks[task].course.next() {
                    Next::Phase => {}
                    Next::Sleep(time) => self.sleep(task, time),
                    Next::Barrier => self.arrive(task),
                    Next::SerialDone => self.end_serial(task),
                    Next::Done => self.finish(task),
                }
            }
            // Only memory that is used in single stretches changes with the stretch.
            if self.tasks[task].uses.iter().any(|one| one.during.is_some()) {
                self.use_memory(task);
            }
        }
    }

    /// Chooses the running task of each PU.
    fn reschedule_all(&mut self) {
        let Kernel { slice, stagger, .. } = self.scenario.kernel;
        for pu in self.platform.machine().all_pus() {
            let before = self.queues.running(pu);
            let changes = self
                .queues
                .reschedule(pu, self.events.now(), || first_slice(&mut self.rng, slice, stagger));
            if !changes {
                continue;
            }
            self.rates.note_change();
            if let Some(task) = self.queues.running(pu) {
                self.end_wait(task);
                self.note_wake_up(task, pu);
            }
            if let Some(task) = before {
                self.tasks[task].since = self.events.now();
            }
        }
    }

    /// Time of the next event.
    fn next_event(&self) -> Nanos {
        let phases = self.on.iter().map(|on| on.until);
        let rest = [
            self.queues.next_slice_end(),
            self.events.next(),
            self.timers.next(),
            Some(self.scan_at),
            self.pus.next(),
        ];
        phases.chain(rest.into_iter().flatten()).min().unwrap_or(Nanos(u64::MAX))
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
