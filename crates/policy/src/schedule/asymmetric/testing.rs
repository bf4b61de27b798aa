//! A machine whose jobs do what a test says, quantum by quantum: for tests only.

use super::super::{Allocated, Quantum, QuantumOutcome, QueuedJob, Rates, Thread};
use crate::evidence::Evidence;
use crate::plan::{Place, PlaceReason};
use crate::policy::Policy;
use crate::testing::machine;
use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::{CoreKind, KindIdx, Machine, Nanos, PuIdx, PuNr, described};
use std::collections::BTreeMap;

/// Four domains of one fast and three slow cores: 0, 4, 8 and 12 are fast.
pub(crate) fn amp_4x12() -> Machine {
    let (_, text) =
        described::MACHINES.iter().find(|(name, _)| *name == "amp-4x12").expect("described");
    described::from_toml(text).expect("described").machine
}

/// A machine as `spec` says, of which some cores are fast and the others half as fast.
pub fn halves(spec: &str, fast: &[usize]) -> Machine {
    let mut machine = machine(spec);
    let kind = |name: &str, capacity| CoreKind {
        name: name.to_owned(),
        capacity: Some(capacity),
        max_frequency: None,
    };
    machine.kinds = vec![kind("slow", 512), kind("fast", 1024)];
    for (at, core) in machine.cores.iter_mut().enumerate() {
        core.kind = KindIdx::new(usize::from(fast.contains(&at)));
    }
    machine
}

/// Machines with siblings and without, near and far fast cores, fast ones or slow ones in the
/// majority.
pub fn machines() -> Vec<Machine> {
    vec![
        amp_4x12(),
        halves("l3:2 core:4", &[0, 1, 2]),
        halves("l3:2 core:3 pu:2", &[0, 3]),
        halves("core:2 pu:2", &[1]),
        machine("core:2 pu:2 + slow core:4"),
    ]
}

/// What became of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadOutcome {
    pub id: TaskId,
    pub pu: Option<PuIdx>,
    /// Where it was put before the quantum began.
    pub put: Option<PuIdx>,
    pub why: Allocated,
    /// Whether it was elsewhere before.
    pub moved: bool,
}

/// The machine and where the threads of the jobs are.
pub struct World {
    pub machine: Machine,
    pub pus: Vec<PuIdx>,
    pub quantum: Nanos,
    at: Vec<Vec<PuIdx>>,
    number: u64,
    /// What policies had to say.
    pub messages: Vec<String>,
    /// Threads whose programs chose their PUs: they stay where they are.
    pub bound: Vec<TaskId>,
    /// Instructions per cycle of a thread on a PU, if they are counted.
    pub ipc: Box<dyn Fn(TaskId, PuIdx) -> Option<f64>>,
}

impl World {
    /// Jobs with so many threads, which are on one PU after the other.
    pub fn new(machine: Machine, threads: &[usize]) -> Self {
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let mut next = pus.clone().into_iter().cycle();
        let at = threads.iter().map(|&count| next.by_ref().take(count).collect()).collect();
        let quantum = Nanos::from_millis(10);
        let ipc = Box::new(|_, _| None);
        Self { machine, pus, quantum, at, number: 0, messages: Vec::new(), bound: Vec::new(), ipc }
    }

    /// The queue after a quantum in which the threads of each job were runnable for these shares;
    /// as in the loop, threads that hardly ran are not in it.
    pub fn queue(&self, shares: &[Vec<f64>]) -> Vec<QueuedJob> {
        let job = |(job, shares): (usize, &Vec<f64>)| {
            let thread = |(order, share): (usize, &f64)| {
                let id = TaskId {
                    job: JobIdx(u32::try_from(job).expect("few")),
                    order: u32::try_from(order).expect("few"),
                };
                let pu = self.at[job][order];
                let ran = Rates { ipc: (self.ipc)(id, pu), ..Rates::default() };
                Thread {
                    id,
                    ran: Some(ran),
                    pu: Some(pu),
                    runnable: Some(*share),
                    bound: self.bound.contains(&id),
                }
            };
            let all: Vec<Thread> = shares.iter().enumerate().map(thread).collect();
            let active = all.iter().filter(|thread| thread.runnable >= Some(0.05));
            let mut threads: Vec<Thread> = active.cloned().collect();
            if threads.is_empty() {
                threads.push(all[0].clone());
            }
            QueuedJob {
                job: JobIdx(u32::try_from(job).expect("few")),
                threads,
                runnable: Some(shares.iter().fold(0.0, |sum, share| sum + share)),
                just_ran: true,
                had_own_cores: false,
            }
        };
        shares.iter().enumerate().map(job).collect()
    }

    /// Asks for a quantum after one with these shares, and lets it run: a thread that is left to
    /// the kernel stays.
    pub fn quantum(&mut self, policy: &mut dyn Policy, shares: &[Vec<f64>]) -> Vec<ThreadOutcome> {
        let queue = self.queue(shares);
        let now =
            Quantum { number: self.number, machine: &self.machine, pus: &self.pus, queue: &queue };
        // The outcome of the quantum comes with the next call: here always the same.
        let last = (self.number > 0).then_some(QuantumOutcome {
            throttled: false,
            took: self.quantum,
            did: &[],
        });
        let plan = policy.decide(&Evidence { last, ..Evidence::of_queue(now) });
        let initial: BTreeMap<TaskId, PuNr> = plan.initial.iter().copied().collect();
        self.number += 1;
        self.messages.extend(plan.messages.iter().cloned());
        assert!(plan.decisions.iter().all(|it| it.place != Place::Waiting), "every job runs");
        let index = |pu: PuNr| self.machine.pu_by_os(pu).expect("a PU of the machine");
        let mut placed = Vec::new();
        for thread in queue.iter().flat_map(|job| &job.threads) {
            let at = plan.decisions.binary_search_by_key(&thread.id, |decision| decision.task);
            let decision = &plan.decisions[at.expect("every thread is decided on")];
            let PlaceReason::Chosen { allocated, .. } = &decision.why else {
                panic!("{decision:?}")
            };
            let (pu, put) =
                (decision.place.pu().map(index), initial.get(&thread.id).copied().map(index));
            let TaskId { job, order } = thread.id;
            let before = &mut self.at[job.0 as usize][order as usize];
            let now = pu.or(put).filter(|_| !thread.bound).unwrap_or(*before);
            let moved = std::mem::replace(before, now) != now;
            placed.push(ThreadOutcome { id: thread.id, pu, put, why: allocated.clone(), moved });
        }
        placed
    }

    /// How many threads a job has.
    pub fn threads(&self, job: usize) -> usize {
        self.at[job].len()
    }

    /// Whether a PU is one of a fast core.
    pub fn is_fast(&self, pu: PuIdx) -> bool {
        super::Cores::new(&self.machine, &self.pus)
            .all
            .iter()
            .any(|core| core.fast && core.pus.contains(&pu))
    }
}

/// All threads run.
pub fn parallel(threads: usize) -> Vec<f64> {
    vec![1.0; threads]
}

/// One of them does.
pub fn serial(threads: usize, one: usize) -> Vec<f64> {
    (0..threads).map(|at| f64::from(u8::from(at == one))).collect()
}
