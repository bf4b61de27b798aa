//! `auto`: tasks that take turns share a PU, all others are the kernel's.
//!
//! # Problem
//! A thread that wakes another one and then sleeps does not run beside it. On two PUs each wake-up has to reach another PU,
//! which may be in an idle state or away, and takes many times as long as on one.
//! # Approach
//! Watch which tasks wake which. Where what wake-ups cost on two PUs is more than what the tasks do at the same time there,
//! they share a PU; groups of them are kept apart, and no PU is crowded. What was seen of a pair on two PUs stays known
//! while it is on one. No other task is placed.
//! # Terms
//! *Gain*: seconds a second, see [`colocate_model::communication`]. *Group*: tasks that share a PU.
//! # Algorithm
//! Each [`PERIOD`]: take in what was seen ([`Traffic`]), join tasks that gain ([`groups`]), give each group a PU ([`seats`]).
//! # Properties
//! - **Follows what happens**: a pair that ceases to take turns is left to the kernel. -> test `a_pair_comes_and_goes`
//! - **Unknown is the kernel's**: without wake-ups nothing is placed. -> test `nothing_is_placed_without_wake_ups`

use crate::communication::groups::{groups, seats};
use crate::communication::traffic::Traffic;
use crate::evidence::Evidence;
use crate::places::Places;
use crate::plan::{MAX_PARTNERS, Plan, TaskId, Why};
use crate::policy::Policy;
use crate::row::Row;
use crate::source::{Source, SourceSet};
use colocate_machine::{Nanos, PuIdx};
use colocate_model::communication::WakeUpCosts;
use std::collections::{BTreeMap, BTreeSet};

/// Its row in the table of policies.
pub static ROW: Row = Row {
    name: "auto",
    summary: "puts tasks that take turns on one PU, leaves others to the kernel",
    source: "ours",
    make: |_, known| {
        Box::new(Auto { costs: known.wake_ups.unwrap_or_default(), ..Auto::default() })
    },
    ..Row::ONCE
};

/// Time between two decisions. Chosen: what is seen is to be acted on within half a second.
const PERIOD: Nanos = Nanos::from_millis(200);

#[derive(Debug, Default)]
struct Auto {
    costs: WakeUpCosts,
    traffic: Traffic,
    /// Where tasks that share a PU are.
    seats: BTreeMap<TaskId, PuIdx>,
    /// With whom, and what it gains all of them.
    reasons: BTreeMap<TaskId, Why>,
    gain: f64,
}

impl Policy for Auto {
    fn needs(&self) -> SourceSet {
        SourceSet::of(&[Source::WakeUps, Source::RunStates])
    }

    fn period(&self) -> Option<Nanos> {
        Some(PERIOD)
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let places = Places::new(evidence.now.machine, evidence.now.pus);
        let known = evidence.wake_ups.unwrap_or_default();
        let shares = |task| self.seats.contains_key(&task);
        let is_news = self.traffic.note(evidence.at, known, evidence.now.queue, shares);
        let is_gone = |pu: &PuIdx| !places.pus.contains(pu);
        if is_news || self.seats.values().any(is_gone) {
            self.choose(evidence, &places);
        }
        self.plan(evidence)
    }
}

impl Auto {
    fn choose(&mut self, evidence: &Evidence<'_>, places: &Places<'_>) {
        let groups = groups(&self.traffic, &self.costs);
        let members: BTreeSet<TaskId> =
            groups.iter().flat_map(|group| &group.tasks).copied().collect();
        let mut load: BTreeMap<PuIdx, f64> = BTreeMap::new();
        for thread in evidence.now.queue.iter().flat_map(|job| &job.threads) {
            if let Some(pu) = thread.pu.filter(|_| !members.contains(&thread.id)) {
                *load.entry(pu).or_default() += self.traffic.busy(thread.id);
            }
        }
        let seats = seats(&groups, &self.traffic, &self.costs, places, &self.seats, &load);
        self.seats.clear();
        self.reasons.clear();
        self.gain = groups.iter().fold(0.0, |sum, group| sum + group.gain);
        for (group, pu) in groups.iter().zip(seats) {
            for task in &group.tasks {
                let partners = group.tasks.iter().filter(|other| *other != task);
                let partners = partners.take(MAX_PARTNERS).copied().collect();
                self.seats.insert(*task, pu);
                self.reasons.insert(*task, Why::TakesTurns { partners, gain: group.gain });
            }
        }
    }

    fn plan(&self, evidence: &Evidence<'_>) -> Plan {
        let seats = self.seats.iter().map(|(task, pu)| (*task, *pu, self.reasons[task].clone()));
        let gains = || format!("expected to gain {:.2} s a second", self.gain);
        let predicted = (!self.seats.is_empty()).then(gains);
        Plan { predicted, ..evidence.plan_of_some(seats) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{Quantum, QueuedJob, Thread};
    use crate::testing::machine;
    use crate::{Decision, JobIdx, WakeUps};

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    /// What is decided at `ms` where 0 and 1 have woken each other so often, 30 µs each time, on two PUs.
    fn decided(auto: &mut Auto, ms: u64, wake_ups: Option<u64>) -> Vec<(u32, Option<u32>)> {
        let machine = machine("core:2");
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let thread = |order| Thread {
            id: task(order),
            ran: None,
            pu: Some(PuIdx::new(order as usize)),
            runnable: Some(0.5),
            bound: false,
        };
        let queue = [QueuedJob {
            job: JobIdx(0),
            threads: vec![thread(0), thread(1)],
            runnable: None,
            just_ran: true,
            had_own_cores: false,
        }];
        let woken = wake_ups.map(|count| {
            vec![WakeUps {
                waker: Some(task(0)),
                wakee: task(1),
                count,
                same_pu: Some(0),
                waited: Some(Nanos(count * 30_000)),
                both_ran: Some(Nanos::ZERO),
            }]
        });
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let evidence = Evidence {
            at: Nanos::from_millis(ms),
            wake_ups: woken.as_deref(),
            ..Evidence::of_queue(now)
        };
        let plan = auto.decide(&evidence);
        let place = |decision: &Decision| (decision.task.order, decision.place.pu().map(|pu| pu.0));
        plan.decisions.iter().map(place).collect()
    }

    #[test]
    fn a_pair_comes_and_goes() {
        let mut auto = Auto::default();
        assert_eq!(decided(&mut auto, 0, Some(0)), []);
        assert_eq!(decided(&mut auto, 100, Some(1_000)), [(0, Some(0)), (1, Some(0))]);
        assert_eq!(decided(&mut auto, 110, Some(1_000)), [(0, Some(0)), (1, Some(0))]);
        assert_eq!(decided(&mut auto, 3_000, Some(1_000)), []);
    }

    #[test]
    fn nothing_is_placed_without_wake_ups() {
        let mut auto = Auto::default();
        for ms in [0, 100, 200] {
            assert_eq!(decided(&mut auto, ms, None), []);
        }
    }
}
