//! Times of the tasks that share a PU because they take turns, as `colocate_host` reads them: a
//! policy sees by them that others crowd the PU.

use crate::parts::Parts;
use crate::task::TaskNo;
use colocate_evidence::SharedPu;
use colocate_machine::{Nanos, PuNr};
use colocate_policy::{PlaceReason, Plan};
use std::collections::BTreeMap;

/// Tasks on shared PUs at the begin of a quantum.
#[derive(Debug)]
pub(crate) struct Crowding {
    began: Nanos,
    /// With CPU time and run-queue wait of all tasks of a PU.
    pus: BTreeMap<PuNr, (Vec<TaskNo>, Nanos, Nanos)>,
}

impl Crowding {
    /// Begins a quantum under a plan.
    pub fn begin(parts: &Parts<'_>, plan: &Plan) -> Self {
        let mut shared: BTreeMap<PuNr, Vec<TaskNo>> = BTreeMap::new();
        for decision in &plan.decisions {
            let takes_turns = matches!(decision.why, PlaceReason::TakesTurns { .. });
            let task = parts.tasks.iter().position(|task| task.id == decision.task);
            if let Some((pu, task)) = decision.place.pu().filter(|_| takes_turns).zip(task) {
                shared.entry(pu).or_default().push(task);
            }
        }
        shared.retain(|_, tasks| tasks.len() > 1);
        let with_times = shared.into_iter().map(|(pu, tasks)| {
            let (ran, waited) = times(parts, &tasks);
            (pu, (tasks, ran, waited))
        });
        Self { began: parts.events.now, pus: with_times.collect() }
    }

    /// Ends the quantum: times of each shared PU.
    pub fn end(self, parts: &Parts<'_>) -> Vec<SharedPu> {
        let over = parts.events.now - self.began;
        let of_pu = self.pus.into_iter().map(|(pu, (tasks, ran_before, waited_before))| {
            let (ran, waited) = times(parts, &tasks);
            SharedPu { pu, over, ran: ran - ran_before, waited: waited - waited_before }
        });
        of_pu.collect()
    }
}

/// CPU time and run-queue wait of some tasks so far.
fn times(parts: &Parts<'_>, tasks: &[TaskNo]) -> (Nanos, Nanos) {
    let sum =
        |of: &dyn Fn(TaskNo) -> Nanos| tasks.iter().fold(Nanos::ZERO, |sum, &task| sum + of(task));
    (sum(&|task| parts.tasks[task].total.ran), sum(&|task| parts.waited(task)))
}
