//! The simulated machine behind the same trait as a real one.

use crate::SimError;
use crate::outcome::Outcome;
use crate::platform::Platform;
use crate::scenario::Scenario;
use crate::sources;
use crate::task::{State, Task};
use crate::world::World;
use colocate_engine::{Host, HostError, Meanwhile, Request};
use colocate_evidence::{Grant, Observation, QuantumEnd, SeenTask, Source};
use colocate_machine::{Machine, Nanos, PuIdx, PuNr};
use colocate_policy::Plan;

/// A machine that is not here, with a scenario's jobs on it.
#[derive(Debug)]
pub struct SimHost<'a> {
    world: World<'a>,
    usable: Vec<PuNr>,
}

impl<'a> SimHost<'a> {
    /// The jobs of `scenario` on `platform`, none launched yet.
    ///
    /// # Errors
    /// [`SimError::Scenario`] if the scenario does not make sense on this machine; [`SimError::Phase`] if
    /// one of its phases does not.
    pub fn new(platform: &'a Platform<'a>, scenario: &'a Scenario) -> Result<Self, SimError> {
        let world = World::new(platform, scenario)?;
        Ok(Self { usable: online(&world), world })
    }

    /// Keeps up to `most` spans of which task ran where, for a picture. None are kept unless this is called.
    pub fn record(&mut self, most: usize) {
        self.world.tally.most_spans = most;
    }

    /// Whether it is not reported for how long tasks spin. It is unless this is called.
    pub(crate) fn hide_spinning(&mut self, hidden: bool) {
        self.world.hides_spinning = hidden;
    }

    /// What jobs do that a plan has wait. They are stopped unless this is called.
    pub fn meanwhile(&mut self, meanwhile: Meanwhile) {
        self.world.meanwhile = meanwhile;
    }

    /// What has come of it so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.world.outcome()
    }

    /// Whether everything is over.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.world.over
    }

    /// The machine's clock.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.world.now
    }

    /// How many predictions were made so far.
    #[must_use]
    pub const fn predictions(&self) -> u64 {
        self.world.predictions()
    }

    /// Lets the placed tasks run, as [`Host::run_quantum`] does, and says only why that ended.
    ///
    /// # Errors
    /// [`SimError::Plan`] if a job is to wait in part; [`SimError::Broken`] if the simulation breaks one of its own rules.
    pub fn go_on(&mut self, plan: &Plan, quantum: Nanos) -> Result<QuantumEnd, SimError> {
        self.world.follow(plan)?;
        self.world.run(self.world.now + quantum)?;
        self.world.count();
        if self.world.machine_changed {
            self.usable = online(&self.world);
        }
        Ok(match self.world {
            World { over: true, .. } => QuantumEnd::AllJobsEnded,
            World { machine_changed: true, .. } => QuantumEnd::MachineChanged,
            World { job_ended: true, .. } => QuantumEnd::JobEnded,
            _ => QuantumEnd::Elapsed,
        })
    }

    fn seen_task(&self, no: usize, task: &Task, created: Nanos) -> SeenTask {
        let os = |pu: PuIdx| self.world.platform.machine().pus[pu.idx()].os;
        let (target, status) = self.world.placement_status(no);
        let allowed = match (task.pinned, &task.among) {
            (Some(pu), _) => [os(pu)].into(),
            (None, Some(among)) => among.iter().map(|pu| os(*pu)).collect(),
            (None, None) => self.usable.as_slice().into(),
        };
        let mut seen = SeenTask {
            ended: task.ended.filter(|_| task.state == State::Ended),
            target,
            status,
            allowed,
            last_ran: task.pu.map(os),
            ..SeenTask::new(task.id, task.name.as_str().into(), created)
        };
        sources::report(&self.world, no, &mut seen);
        seen
    }
}

/// The PUs that may be used now, in logical order.
fn online(world: &World<'_>) -> Vec<PuNr> {
    let machine = world.platform.machine();
    let usable = machine.all_pus().filter(|pu| world.usable[pu.idx()]);
    usable.map(|pu| machine.pus[pu.idx()].os).collect()
}

impl Host for SimHost<'_> {
    fn machine(&self) -> &Machine {
        self.world.platform.machine()
    }

    fn usable(&self) -> &[PuNr] {
        &self.usable
    }

    fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant> {
        if !requests.iter().any(|request| request.source == Source::Mix) {
            sources::mix::watch(&mut self.world, &[]);
        }
        let world = &mut self.world;
        let grant = |request: &Request<'_>| Grant {
            source: request.source,
            answer: sources::answer(world, request),
        };
        requests.iter().map(grant).collect()
    }

    fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Observation, HostError> {
        let end = self
            .go_on(plan, quantum)
            .map_err(|error| HostError { what: "simulate".to_owned(), why: error.to_string() })?;
        let tasks = self.world.tasks.iter().enumerate();
        let tasks = tasks.filter_map(|(no, task)| Some(self.seen_task(no, task, task.created?)));
        Ok(Observation {
            at: self.world.now,
            end,
            tasks: tasks.collect(),
            ended: self.world.ended.clone(),
            moved: std::mem::take(&mut self.world.moved),
            reports: sources::reports(&self.world),
        })
    }
}
