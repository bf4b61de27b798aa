//! The loop of a scheduler: choose who runs and where, let them run for a quantum, see what they did.
//!
//! # Problem
//! More programs want to run than there are hardware threads, and which of them run together decides how
//! fast they are.
//! # Approach
//! The user-level scheduler of Feliu's work: jobs stand in a queue; each quantum a scheduler chooses some of
//! them and a PU for each of their threads, the others wait stopped; who ran goes to the tail. Jobs that end
//! before their target begin anew, which is the host's affair, as is stopping them.
//! # Terms
//! - *Active* thread: one that used at least [`ACTIVE`] of the last quantum in which its job ran, or was not
//!   there yet. Only these need a context; others are left to the kernel while their job runs.
//! # Properties
//! - **Order**: who ran goes to the tail, in the order of the queue. -> test `who_ran_goes_to_the_tail`
//! - **Rates are of the last quantum**, and unknown where the host does not count. -> test
//!   `rates_of_the_last_quantum`
//! - **Work-conserving**: when a job ends, the next quantum begins at once. -> test `an_end_begins_a_quantum`

mod own_cores;

use crate::estimate::{self, Estimate};
use crate::guard;
use crate::host::{Host, HostError, QuantumEnd, SeenTask, Snapshot};
use crate::rates::{self, ThreadDid};
use colocate_machine::{Machine, Nanos, PuIdx};
use colocate_policy::plan::VERSION;
use colocate_policy::schedule::{Allocated, Choice, Done, Quantum, Queued, Ran, Scheduler, Thread};
use colocate_policy::{Decision, JobIdx, Newborn, Place, Plan, TaskId, Why};
use own_cores::own_cores;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The share of what it could use of a quantum that a thread must use to count as active. Chosen: threads that wait for others
/// or for input use far less, threads that compute nearly all.
pub const ACTIVE: f64 = 0.05;

/// What is to be scheduled.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    /// How many jobs the host has, also those that it launches later.
    pub jobs: u32,
    /// Time between two decisions, above 0.
    pub quantum: Nanos,
    /// The scheduler's name with its settings, for the plans.
    pub scheduler: &'a str,
}

/// One turn of the loop, for who watches it.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// How many there were before.
    pub number: u64,
    /// What was chosen.
    pub choices: &'a [Choice],
    /// How the host was told.
    pub plan: &'a Plan,
    /// What came of it.
    pub seen: &'a Snapshot,
    /// What the threads of the chosen jobs did that ran, in the order of their IDs.
    pub did: &'a [ThreadDid],
    /// What the scheduler has to say of itself.
    pub state: Option<&'a str>,
    /// What people should hear of now.
    pub news: &'a [String],
}

/// Runs the jobs of `host` to their ends, each quantum those that `scheduler` chooses. `look` is shown every
/// turn.
///
/// # Errors
/// [`HostError`] as soon as the host has one; it is the host's affair that nothing stays stopped.
pub fn schedule(
    host: &mut impl Host,
    scheduler: &mut dyn Scheduler,
    workload: &Workload<'_>,
    look: &mut dyn FnMut(&Turn<'_>),
) -> Result<Snapshot, HostError> {
    schedule_estimating(host, scheduler, workload, None, look)
}

/// The same, where `estimate` says what threads did that the host does not count.
///
/// # Errors
/// As [`schedule`].
pub fn schedule_estimating(
    host: &mut impl Host,
    scheduler: &mut dyn Scheduler,
    workload: &Workload<'_>,
    mut estimate: Option<&mut dyn Estimate>,
    look: &mut dyn FnMut(&Turn<'_>),
) -> Result<Snapshot, HostError> {
    let mut queue = Queue::default();
    // Nobody runs yet; this only shows which jobs are there.
    let nobody = plan_of(host.machine(), &[], workload, &Chosen::default(), &[]);
    let mut seen = host.run_quantum(&nobody, Nanos::ZERO)?;
    for number in 0.. {
        if seen.end == QuantumEnd::AllJobsEnded {
            break;
        }
        queue.meet(&seen);
        let pus: Vec<PuIdx> =
            host.usable().iter().filter_map(|&pu| host.machine().pu_by_os(pu)).collect();
        let queued = queue.queued(&seen);
        let choices = if queued.is_empty() || pus.is_empty() {
            Vec::new()
        } else {
            let now = Quantum { number, machine: host.machine(), pus: &pus, queue: &queued };
            scheduler.choose(&now)
        };
        let chosen = Chosen::new(&choices, &queued);
        let plan = plan_of(host.machine(), &pus, workload, &chosen, &seen.tasks);
        let after = host.run_quantum(&plan, workload.quantum)?;
        let mut did = queue.note(&choices, host.machine(), &seen, &after);
        if let Some(estimate) = estimate.as_deref_mut() {
            estimate::fill(&mut did, estimate);
        }
        queue.remember(&did);
        let took = after.at.saturating_sub(seen.at);
        scheduler.saw(&Done { took, did: &guard::seen::did(&seen, &after) });
        let news: Vec<String> = std::iter::from_fn(|| scheduler.news()).collect();
        let state = scheduler.state();
        look(&Turn {
            number,
            choices: &choices,
            plan: &plan,
            seen: &after,
            did: &did,
            state: state.as_deref(),
            news: &news,
        });
        seen = after;
    }
    Ok(seen)
}

/// What the loop remembers of the jobs.
#[derive(Debug, Default)]
struct Queue {
    order: VecDeque<JobIdx>,
    known: BTreeMap<JobIdx, Job>,
}

#[derive(Debug, Default)]
struct Job {
    just_ran: bool,
    had_own_cores: bool,
    threads: BTreeMap<TaskId, Known>,
}

/// A thread that has run.
#[derive(Debug, Default)]
struct Known {
    ran: Ran,
    active: bool,
    pu: Option<PuIdx>,
}

impl Queue {
    /// Jobs that are there for the first time go to the tail, jobs that are over leave.
    fn meet(&mut self, seen: &Snapshot) {
        let over: BTreeSet<JobIdx> = seen.ended.iter().map(|end| end.job).collect();
        self.order.retain(|job| !over.contains(job));
        for task in seen.tasks.iter().filter(|task| task.alive() && !over.contains(&task.id.job)) {
            if let Entry::Vacant(new) = self.known.entry(task.id.job) {
                new.insert(Job::default());
                self.order.push_back(task.id.job);
            }
        }
    }

    /// The queue as a scheduler sees it, head first.
    fn queued(&self, seen: &Snapshot) -> Vec<Queued> {
        let mut threads: BTreeMap<JobIdx, Vec<Thread>> = BTreeMap::new();
        for task in seen.tasks.iter().filter(|task| task.alive()) {
            let Some(job) = self.known.get(&task.id.job) else { continue };
            let known = job.threads.get(&task.id);
            let thread = Thread {
                id: task.id,
                ran: known.map(|known| known.ran.clone()),
                pu: known.and_then(|known| known.pu),
            };
            let of_job = threads.entry(task.id.job).or_default();
            // A job whose threads all sleep must get its turn, too.
            let idle_first = of_job.first().is_some_and(|first| !self.is_active(first.id));
            match self.is_active(task.id) {
                true if idle_first => *of_job = vec![thread],
                true => of_job.push(thread),
                false if of_job.is_empty() => of_job.push(thread),
                false => {}
            }
        }
        let queued = |job: &JobIdx| {
            let known = &self.known[job];
            Some(Queued {
                job: *job,
                threads: threads.remove(job)?,
                just_ran: known.just_ran,
                had_own_cores: known.had_own_cores,
            })
        };
        self.order.iter().filter_map(queued).collect()
    }

    fn is_active(&self, id: TaskId) -> bool {
        let known = self.known.get(&id.job).and_then(|job| job.threads.get(&id));
        known.is_none_or(|known| known.active)
    }

    /// Takes in what a quantum has shown, but for the rates, which it returns.
    fn note(
        &mut self,
        choices: &[Choice],
        machine: &Machine,
        before: &Snapshot,
        after: &Snapshot,
    ) -> Vec<ThreadDid> {
        let mut did = Vec::new();
        let fair = fair_part(choices, machine, after.at.saturating_sub(before.at));
        let own = own_cores(choices, machine);
        for (id, job) in &mut self.known {
            let chosen = own.get(id);
            job.just_ran = chosen.is_some();
            job.had_own_cores = chosen.copied().unwrap_or(job.had_own_cores);
        }
        for task in &after.tasks {
            let Some(job) = self.known.get_mut(&task.id.job).filter(|job| job.just_ran) else {
                continue;
            };
            let earlier = before.tasks.binary_search_by_key(&task.id, |task| task.id);
            let earlier = earlier.ok().map(|place| &before.tasks[place]);
            let known = job.threads.entry(task.id).or_default();
            known.active = is_active(task, earlier, fair);
            known.pu = task.last_ran.and_then(|pu| machine.pu_by_os(pu)).or(known.pu);
            did.extend(rates::did(machine, task, earlier));
        }
        let (ran, waited): (Vec<JobIdx>, Vec<JobIdx>) =
            self.order.iter().partition(|job| self.known[job].just_ran);
        self.order = waited.into_iter().chain(ran).collect();
        did
    }

    /// Keeps the rates for the scheduler.
    fn remember(&mut self, did: &[ThreadDid]) {
        for did in did {
            if let Some(job) = self.known.get_mut(&did.id.job) {
                job.threads.entry(did.id).or_default().ran.clone_from(&did.ran);
            }
        }
    }
}

/// What a thread that computes can use of a quantum that took so long, in nanoseconds: less than all of it where
/// more threads were let run than there are PUs, as all are under the kernel.
#[allow(clippy::cast_precision_loss)] // times are far below 2^53 ns
fn fair_part(choices: &[Choice], machine: &Machine, took: Nanos) -> f64 {
    let threads: usize = choices.iter().map(|choice| choice.places.len()).sum();
    let share = machine.pus.len() as f64 / threads.max(1) as f64;
    took.0 as f64 * share.min(1.0)
}

/// Whether a thread used enough of what it could, in nanoseconds.
#[allow(clippy::cast_precision_loss)] // as above
fn is_active(task: &SeenTask, before: Option<&SeenTask>, fair: f64) -> bool {
    let Some(now) = task.cpu_time else { return true };
    let earlier = before.and_then(|before| before.cpu_time).unwrap_or(Nanos::ZERO);
    now.saturating_sub(earlier).0 as f64 >= ACTIVE * fair
}

/// What was chosen, by job and by thread.
#[derive(Default)]
struct Chosen {
    jobs: BTreeSet<JobIdx>,
    places: BTreeMap<TaskId, (Option<PuIdx>, Why)>,
}

impl Chosen {
    fn new(choices: &[Choice], queued: &[Queued]) -> Self {
        let mut chosen = Self::default();
        let threads_of: BTreeMap<JobIdx, &[Thread]> =
            queued.iter().map(|queued| (queued.job, &queued.threads[..])).collect();
        for choice in choices {
            chosen.jobs.insert(choice.job);
            let threads = threads_of.get(&choice.job).copied().unwrap_or_default();
            for (thread, (pu, allocated)) in threads.iter().zip(&choice.places) {
                let selected = choice.selected.clone();
                let why = Why::Chosen { selected, allocated: allocated.clone() };
                chosen.places.insert(thread.id, (*pu, why));
            }
        }
        chosen
    }
}

/// The plan that tells a host what was chosen: threads of chosen jobs get their PUs, their other threads the
/// kernel's choice, and all other jobs wait, also those that nobody has seen yet.
fn plan_of(
    machine: &Machine,
    pus: &[PuIdx],
    workload: &Workload<'_>,
    chosen: &Chosen,
    tasks: &[SeenTask],
) -> Plan {
    let waiting = |task: TaskId, name: String| Decision {
        task,
        name,
        place: Place::Waiting,
        why: Why::NotSelected,
    };
    let decide = |task: &SeenTask| match chosen.places.get(&task.id) {
        Some((pu, why)) => Decision {
            task: task.id,
            name: task.name.clone(),
            place: Place::from(pu.map(|pu| machine.pus[pu.idx()].os)),
            why: why.clone(),
        },
        None if chosen.jobs.contains(&task.id.job) => Decision {
            task: task.id,
            name: task.name.clone(),
            place: Place::LeftToKernel,
            why: Why::LeftToKernel,
        },
        None => waiting(task.id, task.name.clone()),
    };
    let mut decisions: Vec<Decision> =
        tasks.iter().filter(|task| task.alive()).map(decide).collect();
    let seen: BTreeSet<JobIdx> = tasks.iter().map(|task| task.id.job).collect();
    let unseen = (0..workload.jobs).map(JobIdx).filter(|job| !seen.contains(job));
    decisions.extend(unseen.map(|job| waiting(TaskId { job, order: 0 }, String::new())));
    decisions.sort_by_key(|decision| decision.task);
    Plan {
        version: VERSION,
        machine: machine.name.clone(),
        pus: pus.iter().map(|pu| machine.pus[pu.idx()].os).collect(),
        policy: workload.scheduler.to_owned(),
        decisions,
        newborn: Newborn::LeaveToKernel,
        predicted: None,
        slowdowns: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Counts, JobEnd, Stand};
    use colocate_machine::{CacheKind, Core, CoreIdx, KindIdx, Package, PackageIdx, Pu, PuNr};
    use colocate_model::Mix;
    use colocate_model::{CpiStack, Stack};
    use colocate_policy::schedule::SchedulerKind;

    /// Two cores of two PUs.
    pub(super) fn machine() -> Machine {
        let core = |n: u32| Core {
            pus: vec![PuIdx(2 * n), PuIdx(2 * n + 1)],
            package: PackageIdx(0),
            node: None,
            kind: KindIdx(0),
        };
        Machine {
            name: "scripted".into(),
            processor: None,
            pus: (0..4).map(|n| Pu { os: PuNr(n), core: CoreIdx(n / 2) }).collect(),
            cores: (0..2).map(core).collect(),
            packages: vec![Package { cores: vec![CoreIdx(0), CoreIdx(1)] }],
            nodes: vec![],
            caches: vec![],
            kinds: vec![],
            distances: None,
            offline: vec![],
        }
    }

    /// Jobs of one thread each that do two instructions a nanosecond at half an instruction a cycle while
    /// they run; job `n` ends after `n + 1` quanta of running.
    struct Scripted {
        machine: Machine,
        usable: Vec<PuNr>,
        at: Nanos,
        ran: Vec<u64>,
        log: Vec<Vec<u32>>,
    }

    impl Scripted {
        fn new(jobs: usize) -> Self {
            let machine = machine();
            let usable = machine.pus.iter().map(|pu| pu.os).collect();
            Self { machine, usable, at: Nanos::ZERO, ran: vec![0; jobs], log: Vec::new() }
        }

        fn seen(&self, job: usize) -> SeenTask {
            let ended = self.ran[job] > job as u64;
            SeenTask {
                id: TaskId { job: JobIdx(u32::try_from(job).unwrap()), order: 0 },
                name: format!("job {job}"),
                born: Nanos::ZERO,
                ended: ended.then_some(self.at),
                cpu_time: Some(Nanos(100 * self.ran[job])),
                instructions: Some(200 * self.ran[job]),
                cycles: Some(400 * self.ran[job]),
                counts: Counts::default(),
                mix: Mix::default(),
                aim: None,
                stand: Stand::Placed,
                allowed: vec![],
                last_ran: Some(PuNr(0)),
            }
        }
    }

    impl Host for Scripted {
        fn machine(&self) -> &Machine {
            &self.machine
        }

        fn usable(&self) -> &[PuNr] {
            &self.usable
        }

        fn watch(&mut self, _jobs: &[JobIdx]) {}

        fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Snapshot, HostError> {
            self.at += quantum;
            let runs = plan.decisions.iter().filter(|decision| decision.place != Place::Waiting);
            let runs: Vec<u32> = runs.map(|decision| decision.task.job.0).collect();
            runs.iter().for_each(|&job| self.ran[job as usize] += 1);
            if quantum > Nanos::ZERO {
                self.log.push(runs);
            }
            let tasks: Vec<SeenTask> = (0..self.ran.len()).map(|job| self.seen(job)).collect();
            let over = tasks.iter().filter(|task| !task.alive());
            let end = |task: &SeenTask| JobEnd {
                job: task.id.job,
                at: self.at,
                status: 0,
                cpu_time: task.cpu_time,
            };
            let ended: Vec<JobEnd> = over.map(end).collect();
            let end = match ended.len() {
                all if all == self.ran.len() => QuantumEnd::AllJobsEnded,
                0 => QuantumEnd::Elapsed,
                _ => QuantumEnd::JobEnded,
            };
            Ok(Snapshot { at: self.at, end, tasks, ended })
        }
    }

    fn run(kind: SchedulerKind, host: &mut Scripted, look: &mut dyn FnMut(&Turn<'_>)) {
        let jobs = u32::try_from(host.ran.len()).unwrap();
        let workload = Workload { jobs, quantum: Nanos(100), scheduler: "test" };
        schedule(host, &mut *kind.scheduler(&[]), &workload, look).unwrap();
    }

    /// Six jobs on four PUs, which end after 1 to 6 quanta.
    #[test]
    fn who_ran_goes_to_the_tail() {
        let mut host = Scripted::new(6);
        run(SchedulerKind::RoundRobin, &mut host, &mut |_| ());
        let wanted: [&[u32]; 7] =
            [&[0, 1, 2, 3], &[1, 2, 4, 5], &[2, 3, 4, 5], &[3, 4, 5], &[3, 4, 5], &[4, 5], &[5]];
        assert_eq!(host.log, wanted);
    }

    /// The host ends a quantum early when a job ends; the plan that follows is for those that are left.
    #[test]
    fn an_end_begins_a_quantum() {
        let mut host = Scripted::new(5);
        let mut ends = Vec::new();
        run(SchedulerKind::RoundRobin, &mut host, &mut |turn| {
            ends.push((turn.number, turn.seen.end, turn.plan.decisions.len()));
        });
        let job_ended = QuantumEnd::JobEnded;
        assert_eq!(ends[0], (0, job_ended, 5));
        assert_eq!(ends[1], (1, job_ended, 4), "at once, without the job that is over");
    }

    #[test]
    fn the_kernel_gets_all_that_is_there() {
        let mut host = Scripted::new(3);
        run(SchedulerKind::Os, &mut host, &mut |turn| {
            assert!(turn.plan.decisions.iter().all(|d| d.place == Place::LeftToKernel));
        });
        assert_eq!(host.log, [&[0_u32, 1, 2][..], &[1, 2], &[2]]);
    }

    /// Before a job has run nothing is known of it, then what it did in its last quantum.
    #[test]
    fn rates_of_the_last_quantum() {
        let host = Scripted::new(2);
        let seen = |ran: &[u64]| {
            let host = Scripted { ran: ran.to_vec(), ..Scripted::new(2) };
            let tasks = vec![host.seen(0), host.seen(1)];
            Snapshot { at: Nanos(100), end: QuantumEnd::Elapsed, tasks, ended: vec![] }
        };
        let mut queue = Queue::default();
        queue.meet(&seen(&[0, 0]));
        let queued = queue.queued(&seen(&[0, 0]));
        assert!(queued.iter().all(|job| job.threads[0].ran.is_none() && !job.just_ran));
        let choice = Choice {
            job: JobIdx(1),
            selected: colocate_policy::schedule::Selected::Drawn,
            places: vec![(Some(PuIdx(3)), Allocated::Next)],
        };
        let before = Snapshot { at: Nanos::ZERO, ..seen(&[0, 0]) };
        let did = queue.note(&[choice], &host.machine, &before, &seen(&[0, 1]));
        queue.remember(&did);
        let queued = queue.queued(&seen(&[0, 1]));
        let jobs: Vec<u32> = queued.iter().map(|job| job.job.0).collect();
        assert_eq!(jobs, [0, 1]);
        assert_eq!(queued[0].threads[0].ran, None);
        assert!(queued[1].just_ran && queued[1].had_own_cores);
        assert_eq!(queued[1].threads[0].ran.as_ref().unwrap().ipc, Some(0.5));
        assert_eq!(
            queued[1].threads[0].pu,
            Some(PuIdx(0)),
            "where it was seen, not where it was sent"
        );
    }

    /// Caches of levels 1 and 3 over the PU. In 2 µs of running: 600 loads and stores, of which 40 miss the first
    /// cache and 10 the last one; a quarter of the cycles for memory.
    #[test]
    fn traffic_by_level() {
        let mut machine = machine();
        for level in [1, 3] {
            let pus = vec![PuIdx(0), PuIdx(1)];
            let kind = CacheKind::Unified;
            machine.caches.push(colocate_machine::Cache { level, kind, size: None, pus });
        }
        let mut before = Scripted::new(1).seen(0);
        before.cpu_time = Some(Nanos(1_000));
        before.counts.accesses = Some(1_000);
        before.counts.misses = Some(vec![100, 50]);
        let stack = CpiStack { core: 10.0, ..CpiStack::default() };
        before.counts.stack = Some(Stack::from(&stack));
        let mut after = before.clone();
        after.cpu_time = Some(Nanos(3_000));
        after.counts.accesses = Some(1_600);
        after.counts.misses = Some(vec![140, 60]);
        after.counts.stack =
            Some(Stack::from(&CpiStack { core: 70.0, memory: 20.0, ..CpiStack::default() }));
        let found = rates::did(&machine, &after, Some(&before)).unwrap();
        assert_eq!(found.parts.len(), 7);
        let found = found.ran;
        assert_eq!(found.traffic.caches, [Some(300.0), None, Some(20.0), None]);
        assert_eq!(found.traffic.memory, Some(5.0));
        assert_eq!(found.stack.unwrap(), [0.75, 0.0, 0.0, 0.0, 0.25, 0.0, 0.0]);
        assert_eq!(rates::did(&machine, &after, Some(&after)), None, "it did not run");
    }

    /// Eighty threads on four PUs: each can use a twentieth of the time, and who does computes.
    #[test]
    fn who_shares_a_pu_with_many_is_active() {
        let places = vec![(None, Allocated::LeftToKernel); 80];
        let selected = colocate_policy::schedule::Selected::Room;
        let choices = [Choice { job: JobIdx(0), selected, places }];
        let fair = fair_part(&choices, &machine(), Nanos(100));
        assert!((fair - 5.0).abs() < 1e-12);
        let mut task = Scripted::new(1).seen(0);
        let mut uses = |ns: u64| {
            task.cpu_time = Some(Nanos(ns));
            is_active(&task, None, fair)
        };
        assert!(uses(4) && uses(1) && !uses(0));
    }

    /// A job whose threads sleep has one place in the queue, and loses it to a thread that works.
    #[test]
    fn sleepers_need_no_context() {
        let mut seen = Scripted::new(1).seen(0);
        let mut queue = Queue::default();
        let snapshot = |tasks: &[SeenTask]| Snapshot {
            at: Nanos(100),
            end: QuantumEnd::Elapsed,
            tasks: tasks.to_vec(),
            ended: vec![],
        };
        let choices = [Choice {
            job: JobIdx(0),
            selected: colocate_policy::schedule::Selected::Room,
            places: vec![(None, Allocated::LeftToKernel); 3],
        }];
        let mut tasks: Vec<SeenTask> = Vec::new();
        for order in 0..3 {
            seen.id.order = order;
            tasks.push(seen.clone());
        }
        queue.meet(&snapshot(&tasks));
        assert_eq!(queue.queued(&snapshot(&tasks))[0].threads.len(), 3);
        let before = Snapshot { at: Nanos::ZERO, ..snapshot(&tasks) };
        tasks[1].cpu_time = Some(Nanos(6));
        tasks[2].cpu_time = Some(Nanos(4));
        queue.note(&choices, &machine(), &before, &snapshot(&tasks));
        let threads = |tasks: &[SeenTask]| -> Vec<u32> {
            let queued = queue.queued(&snapshot(tasks));
            queued[0].threads.iter().map(|thread| thread.id.order).collect()
        };
        assert_eq!(threads(&tasks), [1]);
        assert_eq!(threads(&[tasks[0].clone(), tasks[2].clone()]), [0], "all sleep");
    }
}
