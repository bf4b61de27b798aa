//! A policy moves memory through the loop, here on a machine that is not here.

use crate::common;

use colocate_evidence::{AddressRange, JobIdx, PagesMoved, SourceSet};
use colocate_machine::{Bytes, NodeIdx, NodeNr, PuNr};
use colocate_model::Assumptions;
use colocate_policy::table::{Cadence, PolicyRow, Purpose};
use colocate_policy::{Evidence, PageMove, Place, Plan, Policy, PolicySpec};
use colocate_sim::{KernelScheduler, Outcome, Pages, Platform, SimulationOptions, simulate_with};
use common::{SMALL, STREAM, job, machine, ms, placed, scenario, together};
use std::cell::RefCell;
use std::rc::Rc;

/// Keeps a job on PU 0 and brings its memory to node 0, so much a quantum, until it is reported that all is there.
#[derive(Clone, Debug)]
struct Brings {
    order: PageMove,
    reports: Rc<RefCell<Vec<PagesMoved>>>,
}

impl Policy for Brings {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        self.reports.borrow_mut().extend(evidence.moved.iter().cloned());
        let is_there = self.reports.borrow().last().is_some_and(|last| last.left == Bytes(0));
        let pages = if is_there { Vec::new() } else { vec![self.order.clone()] };
        Plan { pages, ..placed(&[Place::Pu(PuNr(0))]) }
    }
}

/// The same as a row from outside of the crate of policies.
static ROW: PolicyRow = PolicyRow {
    name: "brings-memory",
    summary: "keeps a job on PU 0 and brings its memory to node 0",
    purpose: Purpose::Baseline,
    source: "a test",
    settings: &[],
    prior: &[],
    cadence: Cadence::EachQuantum,
    waits: false,
    make: |_, _| Box::new(Brings { order: order(0, Bytes::mib(16)), reports: Rc::default() }),
};

fn order(to: u32, budget: Bytes) -> PageMove {
    let why = "its threads are there".to_owned();
    PageMove { job: JobIdx(0), ranges: Vec::new(), to: NodeNr(to), budget, why }
}

/// A job whose 64 MiB are on node 1 and that is on PU 0, of node 0: how it went, and what was reported to the policy.
fn far(order: PageMove) -> (Outcome, Vec<PagesMoved>) {
    let reports = Rc::default();
    let outcome = far_under(&mut Brings { order, reports: Rc::clone(&reports) });
    (outcome, reports.take())
}

fn far_under(policy: &mut dyn Policy) -> Outcome {
    let mut far = job("a", STREAM, 200);
    far.threads[0].pages = Pages::On(NodeIdx(1));
    let mut jobs = scenario(vec![far]);
    jobs.kernel = KernelScheduler { numa_balancing: None, ..together() };
    let (machine, performance) = machine(SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let options = SimulationOptions { each_quantum: true, ..SimulationOptions::default() };
    simulate_with(&platform, &jobs, (policy, ""), &options, &mut |_| ()).unwrap()
}

#[test]
fn a_policy_from_outside_moves_memory() {
    let mut policy = PolicySpec::from(&ROW).plain();
    let outcome = far_under(policy.as_mut());
    assert_eq!(outcome.tasks[0].moves.page_bytes, 64 << 20);
}

/// 16 MiB in each of four quanta of 200 ms. Near, a million instructions take 11 ms, and far 21 ms.
#[test]
fn memory_comes_as_ordered() {
    let (outcome, reports) = far(order(0, Bytes::mib(16)));
    let moved: Vec<(u64, u64)> =
        reports.iter().map(|it| (it.moved.0 >> 20, it.left.0 >> 20)).collect();
    assert_eq!(moved, [(16, 48), (16, 32), (16, 16), (16, 0)]);
    assert_eq!(outcome.tasks[0].moves.page_bytes, 64 << 20);
    let (kept, _) = far(order(0, Bytes(0)));
    assert_eq!(kept.tasks[0].moves.page_bytes, 0);
    let took = |outcome: &Outcome| outcome.jobs[0].took().unwrap();
    assert!(took(&outcome) + ms(1000) < took(&kept), "{} {}", took(&outcome), took(&kept));
}

/// What cannot be done is reported, and nothing moves.
#[test]
fn obstacles_are_reported() {
    let (outcome, reports) = far(order(7, Bytes::mib(16)));
    assert_eq!(reports[0].trouble.as_deref(), Some("expected a node of the machine, found node7"));
    assert_eq!((reports[0].moved, outcome.tasks[0].moves.page_bytes), (Bytes(0), 0));
    let ranges = vec![AddressRange { start: 0, end: 4096 }];
    let (_, reports) = far(PageMove { ranges, ..order(0, Bytes::mib(16)) });
    assert!(
        reports[0].trouble.as_deref().unwrap().contains("memory that the job has"),
        "{reports:?}"
    );
}
