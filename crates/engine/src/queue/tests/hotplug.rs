//! PUs that go offline and come back while a scheduler has chosen them.

use super::*;
use crate::guard::{Guarding, QuantumGuard};
use colocate_machine::CoreKind;
use colocate_policy::table;

/// The cores of [`machine`], of which the second is half as fast, with those of its PUs that are online.
fn online(numbers: &[u32]) -> Machine {
    let mut now = Machine { pus: vec![], cores: vec![], packages: vec![], ..machine() };
    now.kinds = [1024, 512].map(core_kind).to_vec();
    for core in numbers.chunk_by(|a, b| a / 2 == b / 2) {
        let at = CoreIdx::new(now.cores.len());
        let pus = core.iter().map(|&os| {
            now.pus.push(Pu { os: PuNr(os), core: at });
            PuIdx::new(now.pus.len() - 1)
        });
        let pus = pus.collect();
        let (package, kind) = (PackageIdx(0), KindIdx(core[0] / 2));
        now.cores.push(Core { pus, package, node: None, kind });
    }
    let cores = (0..now.cores.len()).map(CoreIdx::new).collect();
    now.packages.push(Package { cores });
    now
}

fn core_kind(capacity: u32) -> CoreKind {
    CoreKind { name: "core".into(), capacity: Some(capacity), max_frequency: None }
}

/// Each call of the host another machine than the one before. Threads run where they are put.
struct Changing {
    scripted: Scripted,
    machines: Vec<Machine>,
    calls: usize,
    placed: BTreeMap<TaskId, PuNr>,
}

impl Changing {
    fn new(jobs: usize) -> Self {
        let numbers: [&[u32]; 5] = [&[0, 1, 2, 3], &[0, 2], &[1, 2, 3], &[0], &[0, 1, 3]];
        let machines = numbers.iter().map(|numbers| online(numbers)).collect();
        Self { scripted: Scripted::new(jobs), machines, calls: 0, placed: BTreeMap::new() }
    }
}

impl Host for Changing {
    fn machine(&self) -> &Machine {
        self.scripted.machine()
    }

    fn usable(&self) -> &[PuNr] {
        self.scripted.usable()
    }

    fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant> {
        self.scripted.request(requests)
    }

    fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Observation, HostError> {
        for decision in &plan.decisions {
            if let Place::Pu(pu) = decision.place {
                self.placed.insert(decision.task, pu);
            }
        }
        let mut seen = self.scripted.run_quantum(plan, quantum)?;
        for task in &mut seen.tasks {
            task.last_ran = self.placed.get(&task.id).copied();
        }
        self.calls += 1;
        self.scripted.machine = self.machines[self.calls % self.machines.len()].clone();
        self.scripted.usable = self.scripted.machine.pus.iter().map(|pu| pu.os).collect();
        if seen.end != QuantumEnd::AllJobsEnded {
            seen.end = QuantumEnd::MachineChanged;
        }
        Ok(seen)
    }
}

#[test]
fn a_machine_that_shrinks_and_grows() {
    for kind in table::each_quantum() {
        for guarded in [false, true] {
            let mut host = Changing::new(7);
            let plain = kind.plain();
            let mut policy: Box<dyn Policy> = match guarded {
                true => Box::new(QuantumGuard::new(plain, "test", Guarding::default())),
                false => plain,
            };
            let mut turns = 0;
            let mut look = |turn: &Round<'_>| {
                turns += 1;
                let here = &turn.plan.pus;
                for decision in &turn.plan.decisions {
                    let Place::Pu(pu) = decision.place else { continue };
                    assert!(here.contains(&pu), "{kind}: {pu} is not among {here:?}");
                }
            };
            schedule(&mut host, &mut *policy, 7, &mut look);
            assert!(turns >= 7, "{kind}: {turns}");
        }
    }
}

/// The machine is another one after the moment in which threads were put somewhere: no quantum is run by the old one.
#[test]
fn a_moment_may_end_with_another_machine() {
    let mut host = Changing::new(1);
    let mut lengths = Vec::new();
    let mut scheduler = FromFirst { begins: 3 };
    let mut look = |turn: &Round<'_>| lengths.push(turn.seen.at);
    schedule(&mut host, &mut scheduler, 1, &mut look);
    assert_eq!(lengths, [Nanos(0), Nanos(0), Nanos(0), Nanos(100)]);
}

/// The kernel's; the first turns begin on the first PU.
#[derive(Debug)]
struct FromFirst {
    begins: u32,
}

impl Policy for FromFirst {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let first = (TaskId { job: JobIdx(0), order: 0 }, PuNr(0));
        let initial = if self.begins > 0 { vec![first] } else { vec![] };
        self.begins = self.begins.saturating_sub(1);
        Plan { initial, ..evidence.leave_to_kernel() }
    }
}
