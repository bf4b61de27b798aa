//! Parts of a simulated machine with its jobs, each with its own state.

use crate::SimError;
use crate::accesses::Accesses;
use crate::ends::QuantumEnds;
use crate::events::EventQueue;
use crate::hotplug::UsablePus;
use crate::instances::{instantiate, regions};
use crate::job::SimulatedJob;
use crate::load_averages::LoadAverages;
use crate::loads::Loads;
use crate::platform::{Demands, Platform};
use crate::pollution::CachePollution;
use crate::queues::Queues;
use crate::rates::PredictionCache;
use crate::region::MemoryRegion;
use crate::scans::Scans;
use crate::scenario::{BarrierWait, Scenario};
use crate::targets::Targets;
use crate::task::{SimulatedTask, TaskNo, TaskState};
use crate::teams::TeamMember;
use crate::timers::Timers;
use crate::wake_history::WakeHistory;
use crate::woken::WakeUpSums;
use colocate_machine::{Machine, Nanos, PuIdx};
use colocate_policy::rng::SplitMix64;

/// Parts on which the rules of `crate::world` act. A rule that needs few of them takes only those.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub platform: &'a Platform<'a>,
    pub scenario: &'a Scenario,
    pub demands: Demands,
    pub rng: SplitMix64,
    /// PU from which jobs are launched.
    pub launcher: PuIdx,
    pub events: EventQueue,
    pub pus: UsablePus<'a>,
    pub queues: Queues,
    pub targets: Targets,
    pub timers: Timers,
    pub tasks: Vec<SimulatedTask>,
    pub jobs: Vec<SimulatedJob>,
    /// By task.
    pub teams: Vec<TeamMember>,
    pub wake_ups: WakeUpSums,
    pub wake_history: WakeHistory,
    pub averages: LoadAverages,
    /// Regions of all jobs.
    pub memory: Vec<MemoryRegion>,
    pub accesses: Accesses,
    pub scans: Scans,
    pub pollution: CachePollution,
    pub rates: PredictionCache<'a>,
    pub ends: QuantumEnds,
}

impl<'a> Parts<'a> {
    /// The parts before the first event.
    ///
    /// # Errors
    /// [`SimError::Phase`] if a phase cannot run on the machine.
    pub fn new(platform: &'a Platform<'a>, scenario: &'a Scenario) -> Result<Self, SimError> {
        let demands = Demands::new(platform, scenario)?;
        let machine = platform.machine;
        let pus = UsablePus::new(platform, scenario);
        let mut rng = SplitMix64::new(scenario.seed);
        let usable: Vec<PuIdx> = pus.iter().collect();
        // The process that launches the jobs can be on any PU.
        let launcher = usable[rng.below(usable.len())];
        let (tasks, jobs) = instantiate(scenario, &demands);
        let (regions, uses) = regions(scenario, machine.nodes.len(), &jobs, tasks.len());
        let mut events = EventQueue::default();
        for (job, spec) in jobs.iter().zip(&scenario.jobs) {
            for (thread, task) in spec.threads.iter().zip(job.tasks()) {
                events.create_at(spec.arrives + thread.born, task);
            }
        }
        let period = scenario.kernel.numa_balancing.map(|settings| settings.period);
        Ok(Self {
            timers: Timers::new(&pus.domains),
            queues: Queues::new(machine.pus.len(), tasks.len(), scenario.kernel.slice),
            targets: Targets::new(tasks.len()),
            teams: vec![TeamMember::default(); tasks.len()],
            wake_ups: WakeUpSums::new(tasks.len()),
            wake_history: WakeHistory::new(tasks.len()),
            averages: LoadAverages::new(tasks.len()),
            memory: regions,
            accesses: Accesses::new(uses, machine.nodes.len()),
            scans: Scans::new(period, tasks.len()),
            pollution: CachePollution::new(platform, tasks.len()),
            rates: PredictionCache::new(platform, tasks.len()),
            ends: QuantumEnds::default(),
            platform,
            scenario,
            demands,
            rng,
            launcher,
            events,
            pus,
            tasks,
            jobs,
        })
    }

    /// The machine.
    pub const fn machine(&self) -> &'a Machine {
        self.platform.machine
    }

    /// Loads of the queues.
    pub const fn loads(&self) -> Loads<'_> {
        Loads::new(&self.pus, &self.queues)
    }

    /// Home node of the PU where a task runs, waits or last ran; `None` if unknown.
    pub fn node_of(&self, task: TaskNo) -> Option<usize> {
        self.platform.node_of(self.queues.pu_of(task)?)
    }

    /// The job of a task.
    pub fn job_of(&self, task: TaskNo) -> &SimulatedJob {
        &self.jobs[self.tasks[task].job()]
    }

    /// Present stretch of a task's course.
    pub fn stretch(&self, task: TaskNo) -> usize {
        self.tasks[task].course.stretch
    }

    /// Whether all jobs have done their work once.
    pub fn is_complete(&self) -> bool {
        self.jobs.iter().all(|job| job.done.is_some())
    }

    /// Whether the threads of a job take turns.
    pub fn takes_turns(&self, job: usize) -> bool {
        self.scenario.jobs[job].barrier.is_some_and(|barrier| barrier.takes_turns())
    }

    /// Whether the first thread of a job serves the others.
    pub fn is_served(&self, job: usize) -> bool {
        let barrier = self.scenario.jobs[job].barrier;
        barrier.is_some_and(|barrier| barrier.wait == BarrierWait::Served)
    }

    /// Whether the threads of any job take turns.
    pub fn has_turns(&self) -> bool {
        (0..self.jobs.len()).any(|job| self.takes_turns(job))
    }

    /// Length of a task's present wait for its PU; 0 without a wait.
    fn wait(&self, task: TaskNo) -> Nanos {
        let of_task = &self.tasks[task];
        if self.waits(task) { of_task.wait(self.events.now) } else { Nanos::ZERO }
    }

    /// Whether a task is ready, but does not have its PU.
    pub fn waits(&self, task: TaskNo) -> bool {
        self.tasks[task].state == TaskState::Ready && !self.queues.runs(task)
    }

    /// A task's waits for its PU, with the present wait.
    pub fn waited(&self, task: TaskNo) -> Nanos {
        self.tasks[task].total.waited + self.wait(task)
    }

    /// A task's time spinning, and its waits for its PU to spin, with the present wait.
    pub fn spun(&self, task: TaskNo) -> Nanos {
        let of_task = &self.tasks[task];
        let now = if of_task.course.spins() { self.wait(task) } else { Nanos::ZERO };
        of_task.total.spun + of_task.total.waited_to_spin + now
    }
}
