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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimHost;
    use crate::testing::{platform, scenario};
    use colocate_engine::Host;
    use colocate_model::Phase;
    use colocate_policy::Decision;

    /// Three loops on PU 0, two of which share it because they take turns: these have it for two
    /// thirds of the time, and the third one for the rest.
    #[test]
    fn another_task_displaces_those_that_take_turns() {
        let scenario = scenario(Phase::default(), false);
        let mut host = SimHost::new(platform(), &scenario).unwrap();
        let turns = PlaceReason::TakesTurns { partners: Vec::new(), gain: 0.1 };
        let reasons = [turns.clone(), turns, PlaceReason::NotSelected];
        let tasks = host.run_quantum(&Plan::default(), Nanos(1)).unwrap().tasks;
        let decisions = tasks.iter().zip(reasons).map(|(task, why)| Decision {
            task: task.id,
            name: "".into(),
            place: colocate_policy::Place::Pu(PuNr(0)),
            why,
        });
        let plan = Plan { decisions: decisions.collect(), ..Plan::default() };
        let seen = host.run_quantum(&plan, Nanos::from_millis(300)).unwrap();
        let [shared] = seen.reports.shared_pus.unwrap().try_into().unwrap();
        assert_eq!((shared.pu, shared.over), (PuNr(0), Nanos::from_millis(300)));
        let displaced = shared.displaced();
        assert!((0.31..0.35).contains(&displaced), "{displaced}");
        // A wait of each for the others.
        let waited = shared.waited.as_secs_f64();
        assert!((0.39..0.41).contains(&waited), "{waited}");
    }
}
