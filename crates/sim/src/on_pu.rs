//! Running tasks, and the passing of their time.

use crate::job::SimulatedJob;
use crate::queues::Queues;
use crate::scenario::PhaseSpec;
use crate::task::{Pace, SimulatedTask, TaskNo};
use colocate_machine::{Nanos, PuIdx};
use colocate_model::Prediction;

/// A running task and its rates, constant within a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnPu {
    pub task: TaskNo,
    pub pu: PuIdx,
    pub phase: usize,
    pub pace: Pace,
    /// Instructions since its rates were predicted.
    pub did: f64,
    /// Seconds of refills of cold caches since then.
    pub cold: f64,
    /// End of its phase or its work.
    pub until: Nanos,
}

/// Running tasks in this step, in the order of their PUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    /// In the order of their PUs.
    pub on: Vec<OnPu>,
}

impl Running {
    /// Next end of a phase; `None` if nothing runs.
    pub fn next(&self) -> Option<Nanos> {
        self.on.iter().map(|on| on.until).min()
    }

    /// Lets all running tasks run for a time.
    pub fn pass(&mut self, time: Nanos, tasks: &mut [SimulatedTask], queues: &mut Queues) {
        for on in &mut self.on {
            let (did, cold) = tasks[on.task].run(&on.pace, time);
            on.did += did;
            on.cold += cold;
            queues.pass(on.task, time);
        }
    }

    /// Adds the instructions since the rates were predicted, `now`, to the tasks' counters.
    pub fn count(
        &mut self,
        tasks: &mut [SimulatedTask],
        jobs: &[SimulatedJob],
        phases: &[PhaseSpec],
        now: &Prediction,
    ) {
        for (on, rate) in self.on.iter_mut().zip(&now.tasks) {
            let did = std::mem::take(&mut on.did);
            let cold = std::mem::take(&mut on.cold);
            if did + cold <= 0.0 {
                continue;
            }
            let task = &mut tasks[on.task];
            let mix = &phases[on.phase].mix;
            let accesses = mix.load.zip(mix.store).map(|(l, s)| l.get() + s.get());
            task.count(did, cold * on.pace.clock, accesses, rate);
            if jobs[task.job()].is_watched && did > 0.0 {
                task.count_phase(on.phase, did);
            }
        }
    }
}
