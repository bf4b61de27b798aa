//! Who makes the plans: a policy, or a plan that was made before.

use colocate_machine::{Machine, Performance, PuIdx};
use colocate_policy::{Newborn, Place, Plan, PolicyKind, Task};

/// Makes plans.
pub trait Planner {
    /// Whether its plans depend on what the tasks do, so that it pays to watch unknown ones and to
    /// plan again when a job has ended.
    fn wants_mixes(&self) -> bool;

    /// A plan for `tasks` on the PUs `pus` of `machine`.
    ///
    /// Pure: same inputs, same plan.
    fn plan(&self, machine: &Machine, pus: &[PuIdx], tasks: &[Task]) -> Plan;
}

/// A plan that was made before, by `colocate plan` or by hand.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedPlan(pub Plan);

impl Planner for FixedPlan {
    fn wants_mixes(&self) -> bool {
        false
    }

    /// The plan as it was made, except that tasks whose PU cannot be used are left to the kernel.
    fn plan(&self, machine: &Machine, pus: &[PuIdx], _tasks: &[Task]) -> Plan {
        let mut plan = self.0.clone();
        plan.pus = pus.iter().map(|pu| machine.pus[pu.idx()].os).collect();
        for decision in &mut plan.decisions {
            if decision.place.pu().is_some_and(|pu| !plan.pus.contains(&pu)) {
                decision.place = Place::LeftToKernel;
            }
        }
        if let Newborn::FillInOrder { pus } = &mut plan.newborn {
            pus.retain(|pu| plan.pus.contains(pu));
            if pus.is_empty() {
                plan.newborn = Newborn::LeaveToKernel;
            }
        }
        plan
    }
}

/// A policy on a machine of which it is known how fast its parts are: what `symbiosis-model` needs.
#[derive(Clone, Copy, Debug)]
pub struct Modelled<'a> {
    /// The policy.
    pub policy: PolicyKind,
    /// How fast the machine is that it plans for.
    pub performance: &'a Performance,
}

impl Planner for Modelled<'_> {
    fn wants_mixes(&self) -> bool {
        self.policy.needs_mixes()
    }

    fn plan(&self, machine: &Machine, pus: &[PuIdx], tasks: &[Task]) -> Plan {
        colocate_policy::plan_on(&self.policy, machine, Some(self.performance), pus, tasks)
    }
}

impl Planner for PolicyKind {
    fn wants_mixes(&self) -> bool {
        self.needs_mixes()
    }

    fn plan(&self, machine: &Machine, pus: &[PuIdx], tasks: &[Task]) -> Plan {
        colocate_policy::plan(self, machine, pus, tasks)
    }
}
