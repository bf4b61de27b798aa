//! A policy that is no part of colocate, and its row.

use colocate_evidence::SourceSet;
use colocate_policy::plan::{Decision, Place, PlaceReason, Plan};
use colocate_policy::table::{Cadence, PolicyRow, Purpose, Setting};
use colocate_policy::{Evidence, Policy, Task};

pub static ROW: PolicyRow = PolicyRow {
    name: "last-pu",
    summary: "puts every task on the last usable PU",
    purpose: Purpose::Baseline,
    source: "a test",
    settings: &[Setting::count("from-end", 0, 0, "PUs that are left out at the end")],
    prior: &[],
    cadence: Cadence::Either,
    waits: false,
    make: |values, _| Box::new(LastPu { from_end: values.count("from-end") as usize }),
};

pub static ROWS: [&PolicyRow; 1] = [&ROW];

#[derive(Debug)]
struct LastPu {
    from_end: usize,
}

impl Policy for LastPu {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let empty = evidence.empty_plan();
        let pu = empty.pus.iter().rev().nth(self.from_end).copied();
        let decide = |task: Task| Decision {
            task: task.id,
            name: task.name.into(),
            place: Place::from(pu),
            why: PlaceReason::NextInOrder { order: "from the end".to_owned() },
        };
        Plan { decisions: evidence.tasks().into_iter().map(decide).collect(), ..empty }
    }
}
