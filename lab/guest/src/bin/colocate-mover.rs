//! colocate with the additional policy `to-node`, which keeps every thread on the first PU and
//! moves the memory of the first job to a node.

use colocate_evidence::{JobIdx, SourceSet};
use colocate_machine::{Bytes, NodeNr, PuIdx};
use colocate_policy::evidence::SelectedJob;
use colocate_policy::table::{Cadence, PolicyRow, Purpose, Setting};
use colocate_policy::why::{Allocated, Selected};
use colocate_policy::{Evidence, PageMove, Plan, Policy};
use std::process::ExitCode;

static ROW: PolicyRow = PolicyRow {
    name: "to-node",
    summary: "keeps all threads on the first PU and moves memory to a node",
    purpose: Purpose::Baseline,
    source: "a test",
    settings: &[
        Setting::count("node", 0, 1, "the node"),
        Setting::count("mib", 1, 64, "most that one order moves, MiB"),
    ],
    prior: &[],
    cadence: Cadence::EachQuantum,
    waits: true,
    make: |values, _| {
        let node = NodeNr(values.count("node"));
        Box::new(ToNode { node, budget: Bytes::mib(values.count("mib").into()), is_ordered: false })
    },
};

static ROWS: [&PolicyRow; 1] = [&ROW];

/// Repeats the page move when the move before has ended: memory may have been mapped meanwhile.
#[derive(Debug)]
struct ToNode {
    node: NodeNr,
    budget: Bytes,
    is_ordered: bool,
}

impl Policy for ToNode {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let first: Option<PuIdx> = evidence.now.pus.first().copied();
        let choices = evidence.now.queue.iter().map(|job| SelectedJob {
            job: job.job,
            selected: Selected::Room,
            places: vec![(first, Allocated::Next); job.threads.len()],
        });
        let plan = evidence.plan(&choices.collect::<Vec<_>>());
        // A move is under way.
        if self.is_ordered && evidence.moved.is_empty() {
            return plan;
        }
        self.is_ordered = true;
        let why = "a test".to_owned();
        let job = JobIdx(0);
        let pages =
            vec![PageMove { job, ranges: Vec::new(), to: self.node, budget: self.budget, why }];
        Plan { pages, ..plan }
    }
}

fn main() -> ExitCode {
    colocate_cli::main_with(&ROWS)
}
