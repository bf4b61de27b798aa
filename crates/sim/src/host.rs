//! The simulated machine as a [`Host`], the trait of a real one.

use crate::SimError;
use crate::crowding::Crowding;
use crate::outcome::Outcome;
use crate::platform::Platform;
use crate::scenario::Scenario;
use crate::sources;
use crate::targets::Allowed;
use crate::task::SimulatedTask;
use crate::woken::WakeChoices;
use crate::world::{World, placement_status};
use colocate_engine::{Host, HostError, Meanwhile, Request};
use colocate_evidence::{Grant, Observation, QuantumEnd, SeenTask, Source, SourceReports};
use colocate_machine::{Machine, Nanos, PuNr};
use colocate_policy::Plan;

/// A simulated machine with a scenario's jobs.
#[derive(Debug)]
pub struct SimHost<'a> {
    world: World<'a>,
    usable: Vec<PuNr>,
    /// Treatment of waiting jobs.
    meanwhile: Meanwhile,
    /// Whether reports leave out spinning.
    pub(crate) hides_spinning: bool,
}

impl<'a> SimHost<'a> {
    /// The jobs of `scenario` on `platform`, none launched yet.
    ///
    /// # Errors
    /// [`SimError::Scenario`] or [`SimError::Phase`] if the scenario or a phase makes no sense on
    /// this machine.
    pub fn new(platform: &'a Platform<'a>, scenario: &'a Scenario) -> Result<Self, SimError> {
        let world = World::new(platform, scenario)?;
        let usable = online(&world);
        Ok(Self { world, usable, meanwhile: Meanwhile::Stop, hides_spinning: false })
    }

    /// Records up to `most` spans of tasks on PUs. Default: none.
    pub fn record(&mut self, most: usize) {
        self.world.record(most);
    }

    /// Sets the treatment of waiting jobs. Default: stopped.
    pub fn meanwhile(&mut self, meanwhile: Meanwhile) {
        self.meanwhile = meanwhile;
    }

    /// Outcome so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.world.outcome()
    }

    /// Whether the simulation has ended.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.world.parts().ends.of_quantum(), QuantumEnd::AllJobsEnded)
    }

    /// The machine's clock.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.world.parts().events.now
    }

    /// Number of the model's predictions so far.
    #[must_use]
    pub const fn predictions(&self) -> u64 {
        self.world.parts().rates.predicted
    }

    /// PUs chosen so far for tasks that others woke.
    #[must_use]
    pub const fn wake_choices(&self) -> WakeChoices {
        self.world.parts().wake_ups.choices
    }

    /// Lets the placed tasks run, as [`Host::run_quantum`] does. Returns only the end's reason.
    ///
    /// # Errors
    /// [`SimError::Plan`] if only a part of a job is to wait; [`SimError::Broken`] if the
    /// simulation breaks its own rules.
    pub fn go_on(&mut self, plan: &Plan, quantum: Nanos) -> Result<QuantumEnd, SimError> {
        self.world.follow(plan, self.meanwhile)?;
        self.world.run(self.world.parts().events.now + quantum)?;
        // Instructions since the last prediction are not in the tasks' counters yet.
        self.world.count();
        self.usable = online(&self.world);
        Ok(self.world.parts().ends.of_quantum())
    }

    /// A task as seen by the engine; `no` is its place in the list of all tasks.
    fn seen_task(&self, no: usize, task: &SimulatedTask, created: Nanos) -> SeenTask {
        let parts = self.world.parts();
        let (target, status) = placement_status(parts, no);
        let allowed = match &parts.targets.allowed[no] {
            Allowed::Pu(pu) => [parts.pus.os(*pu)].into(),
            Allowed::Among(among) => among.iter().map(|pu| parts.pus.os(*pu)).collect(),
            Allowed::All => self.usable.as_slice().into(),
        };
        let mut seen = SeenTask {
            ended: task.ended,
            target,
            status,
            allowed,
            last_ran: parts.queues.pu_of(no).map(|pu| parts.pus.os(pu)),
            ..SeenTask::new(task.id, task.name.as_str().into(), created)
        };
        sources::report(parts, self.hides_spinning, no, &mut seen);
        seen
    }
}

/// Usable PUs, in logical order.
fn online(world: &World<'_>) -> Vec<PuNr> {
    let pus = &world.parts().pus;
    pus.iter().map(|pu| pus.os(pu)).collect()
}

impl Host for SimHost<'_> {
    fn machine(&self) -> &Machine {
        self.world.parts().machine()
    }

    fn usable(&self) -> &[PuNr] {
        &self.usable
    }

    fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant> {
        // A mix that is no longer requested is no longer collected.
        if !requests.iter().any(|request| request.source == Source::Mix) {
            self.world.watch_mixes(&[]);
        }
        let grants = requests.iter().map(|request| Grant {
            source: request.source,
            answer: sources::answer(&mut self.world, self.hides_spinning, request),
        });
        grants.collect()
    }

    fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Observation, HostError> {
        let crowding = Crowding::begin(self.world.parts(), plan);
        let end = self
            .go_on(plan, quantum)
            .map_err(|error| HostError { what: "simulate".to_owned(), why: error.to_string() })?;
        let shared_pus = Some(crowding.end(self.world.parts()));
        let tasks = self.world.parts().tasks.iter().enumerate();
        let tasks = tasks.filter_map(|(no, task)| Some(self.seen_task(no, task, task.created?)));
        Ok(Observation {
            at: self.world.parts().events.now,
            end,
            tasks: tasks.collect(),
            ended: self.world.parts().ends.jobs.clone(),
            moved: self.world.take_moved(),
            reports: SourceReports { shared_pus, ..sources::reports(self.world.parts()) },
        })
    }
}
