//! The queue, and the loop on a host that follows a script.

mod hotplug;
mod pause;

use super::*;
use crate::host::{Host, HostError, Request};
use crate::{KnownJob, Round, RunSettings, Until};
use colocate_evidence::{Grant, SourceSet};
use colocate_evidence::{JobEnd, PlacementStatus, QuantumEnd, SourceReports};
use colocate_machine::{CacheKind, Core, CoreIdx, KindIdx, Package, PackageIdx, Pu, PuNr};
use colocate_model::{CpiStack, Stack};
use colocate_policy::schedule::{Allocated, Selected, SelectedJob};
use colocate_policy::{Decision, Evidence, Policy, PolicySpec};

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
pub(crate) struct Scripted {
    machine: Machine,
    usable: Vec<PuNr>,
    at: Nanos,
    ran: Vec<u64>,
    log: Vec<Vec<u32>>,
    /// Where plans for no time put tasks.
    moments: Vec<Vec<(u32, Place)>>,
}

impl Scripted {
    pub(crate) fn new(jobs: usize) -> Self {
        let machine = machine();
        let usable = machine.pus.iter().map(|pu| pu.os).collect();
        Self {
            machine,
            usable,
            at: Nanos::ZERO,
            ran: vec![0; jobs],
            log: Vec::new(),
            moments: Vec::new(),
        }
    }

    /// Some of its jobs as they are now.
    pub(crate) fn observation(&self, jobs: &[usize]) -> Observation {
        let tasks = jobs.iter().map(|&job| self.seen(job)).collect();
        Observation {
            at: self.at,
            end: QuantumEnd::Elapsed,
            tasks,
            ended: vec![],
            moved: vec![],
            reports: SourceReports::NONE,
        }
    }

    /// All its jobs run for a quantum.
    pub(crate) fn advance(&mut self) {
        self.at += Nanos(100);
        self.ran.iter_mut().for_each(|ran| *ran += 1);
    }

    fn seen(&self, job: usize) -> SeenTask {
        let ended = self.ran[job] > job as u64;
        SeenTask {
            id: TaskId { job: JobIdx(u32::try_from(job).unwrap()), order: 0 },
            name: format!("job {job}").into(),
            created: Nanos::ZERO,
            ended: ended.then_some(self.at),
            cpu_time: Some(Nanos(100 * self.ran[job])),
            waited: None,
            spun: None,
            switches: None,
            instructions: Some(200 * self.ran[job]),
            cycles: Some(400 * self.ran[job]),
            counts: None,
            mix: None,
            target: Place::LeftToKernel,
            status: PlacementStatus::Placed,
            allowed: [].into(),
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

    fn request(&mut self, _requests: &[Request<'_>]) -> Vec<Grant> {
        Vec::new()
    }

    fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Observation, HostError> {
        self.at += quantum;
        if quantum == Nanos::ZERO {
            let at = plan.decisions.iter().map(|decision| (decision.task.job.0, decision.place));
            self.moments.push(at.collect());
            let tasks = (0..self.ran.len()).map(|job| self.seen(job)).collect();
            return Ok(Observation {
                at: self.at,
                end: QuantumEnd::Elapsed,
                tasks,
                ended: vec![],
                moved: vec![],
                reports: SourceReports::NONE,
            });
        }
        let runs = plan.decisions.iter().filter(|decision| decision.place != Place::Waiting);
        let runs: Vec<u32> = runs.map(|decision| decision.task.job.0).collect();
        runs.iter().for_each(|&job| self.ran[job as usize] += 1);
        self.log.push(runs);
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
        Ok(Observation {
            at: self.at,
            end,
            tasks,
            ended,
            moved: vec![],
            reports: SourceReports::NONE,
        })
    }
}

/// A quantum of 100 ns on all PUs.
fn passed<'a>(
    placed: &'a QueuePlacement,
    machine: &'a Machine,
    before: &'a Observation,
    after: &'a Observation,
) -> Passed<'a> {
    let (pus, asked) = (machine.pus.len(), Nanos(100));
    Passed { placed, machine, pus, asked, throttled: false, before, after }
}

/// Runs the jobs of a host, of which nothing is known, for quanta of 100 ns.
pub(super) fn schedule(
    host: &mut impl Host,
    policy: &mut dyn Policy,
    jobs: usize,
    look: &mut dyn FnMut(&Round<'_>),
) {
    let jobs = vec![KnownJob { name: "job".into(), profile: None, phases: Vec::new() }; jobs];
    let (until, watch) = (Until::Time(Nanos(100)), Nanos::from_secs(2));
    let workload = RunSettings {
        jobs: &jobs,
        policy: "test",
        until,
        watch,
        also: SourceSet::NONE,
        without: SourceSet::NONE,
    };
    crate::run(host, policy, &workload, None, look).unwrap();
}

fn run(policy: &str, host: &mut Scripted, look: &mut dyn FnMut(&Round<'_>)) {
    let jobs = host.ran.len();
    schedule(host, &mut *PolicySpec::named(policy).plain(), jobs, look);
}

/// One job that ran, on these PUs.
fn ran(job: u32, pus: &[Option<PuIdx>]) -> QueuePlacement {
    QueuePlacement::from([(JobIdx(job), pus.to_vec())])
}

/// Six jobs on four PUs, which end after 1 to 6 quanta.
#[test]
fn jobs_that_ran_go_to_the_tail() {
    let mut host = Scripted::new(6);
    run("round-robin", &mut host, &mut |_| ());
    let wanted: [&[u32]; 7] =
        [&[0, 1, 2, 3], &[1, 2, 4, 5], &[2, 3, 4, 5], &[3, 4, 5], &[3, 4, 5], &[4, 5], &[5]];
    assert_eq!(host.log, wanted);
}

/// A job whose threads live for a quantum each: only those that live are kept.
#[test]
fn ended_threads_are_forgotten() {
    let host = Scripted::new(1);
    let mut queue = JobQueue::default();
    let mut before = Observation {
        at: Nanos::ZERO,
        end: QuantumEnd::Elapsed,
        tasks: vec![],
        ended: vec![],
        moved: vec![],
        reports: SourceReports::NONE,
    };
    for number in 0..50_u32 {
        let mut now = Observation { at: Nanos(100 * u64::from(number + 1)), ..before.clone() };
        for task in &mut now.tasks {
            task.ended = task.ended.or(Some(now.at));
        }
        let mut new = host.seen(0);
        new.id.order = number;
        now.tasks.push(new);
        queue.note_jobs(&now);
        let did = queue.note(&passed(&ran(0, &[None]), &host.machine, &before, &now));
        queue.remember(&did);
        before = now;
    }
    assert!(queue.known[&JobIdx(0)].threads.len() <= 2);
}

/// Until its program has settled no task has its place, and as soon as one has it the quantum counts.
#[test]
fn what_has_no_place_yet_is_no_measure() {
    use PlacementStatus::{LeftToKernel, Placed, Settling};
    let choices: QueuePlacement = (0..2).flat_map(|job| ran(job, &[None])).collect();
    let cases = [
        ([LeftToKernel, LeftToKernel], [Settling, Settling], false),
        ([Settling, Settling], [Placed, Settling], false),
        ([Settling, Settling], [Placed, LeftToKernel], false),
        ([Placed, LeftToKernel], [Placed, Settling], true),
        ([Placed, Settling], [Placed, Placed], true),
        ([LeftToKernel, LeftToKernel], [LeftToKernel, LeftToKernel], true),
    ];
    for (first, last, counts) in cases {
        let mut host = Scripted::new(2);
        let [before, after] = [&first, &last].map(|statuses| {
            let mut seen = host.observation(&[0, 1]);
            seen.tasks.iter_mut().zip(statuses).for_each(|(task, is)| task.status = is.clone());
            host.advance();
            seen
        });
        let outcome = passed(&choices, &host.machine, &before, &after).outcome(&[]);
        assert_eq!(outcome.took > Nanos::ZERO, counts, "{first:?} {last:?}");
    }
}

/// The host ends a quantum early when a job ends; the plan that follows is for those that are left.
#[test]
fn an_end_begins_a_quantum() {
    let mut host = Scripted::new(5);
    let mut ends = Vec::new();
    run("round-robin", &mut host, &mut |turn| {
        ends.push((turn.number, turn.seen.end, turn.plan.decisions.len()));
    });
    let job_ended = QuantumEnd::JobEnded;
    assert_eq!(ends[0], (0, job_ended, 5));
    assert_eq!(ends[1], (1, job_ended, 4), "at once, without the job that is over");
}

#[test]
fn the_kernel_gets_all_that_is_there() {
    let mut host = Scripted::new(3);
    run("os", &mut host, &mut |turn| {
        assert!(turn.plan.decisions.iter().all(|d| d.place == Place::LeftToKernel));
    });
    assert_eq!(host.log, [&[0_u32, 1, 2][..], &[1, 2], &[2]]);
}

/// The kernel's, but threads are on PU 3 first; a task that is not there is ignored.
#[derive(Debug)]
struct FromLast;

impl Policy for FromLast {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let choice = |job: &QueuedJob| SelectedJob {
            job: job.job,
            selected: Selected::Room,
            places: vec![(None, Allocated::LeftToKernel)],
        };
        let choices: Vec<SelectedJob> = evidence.now.queue.iter().take(1).map(choice).collect();
        let place = |choice: &SelectedJob| (TaskId { job: choice.job, order: 0 }, PuIdx(3));
        let mut initial: Vec<(TaskId, PuIdx)> = choices.iter().map(place).collect();
        initial.push((TaskId { job: JobIdx(9), order: 0 }, PuIdx(0)));
        Plan { initial: evidence.initial(&initial), ..evidence.plan(&choices) }
    }
}

/// Two jobs take turns; the first ends after one quantum. The launch is for no time, too.
#[test]
fn threads_are_put_somewhere_first() {
    let mut host = Scripted::new(2);
    let look = &mut |turn: &Round<'_>| {
        let waits = |d: &&Decision| d.place == Place::Waiting;
        assert!(
            turn.plan
                .decisions
                .iter()
                .filter(|d| !waits(d))
                .all(|d| d.place == Place::LeftToKernel)
        );
    };
    schedule(&mut host, &mut FromLast, 2, look);
    assert_eq!(host.log, [[0], [1], [1]]);
    let (last, waits) = (Place::from(Some(PuNr(3))), Place::Waiting);
    assert_eq!(
        host.moments,
        [
            vec![(0, waits), (1, waits)],
            vec![(0, last), (1, waits)],
            vec![(1, last)],
            vec![(1, last)],
        ]
    );
}

/// Before a job has run nothing is known of it, then what it did in its last quantum.
#[test]
fn rates_of_the_last_quantum() {
    let host = Scripted::new(2);
    let seen = |ran: &[u64]| {
        let host = Scripted { ran: ran.to_vec(), ..Scripted::new(2) };
        let tasks = vec![host.seen(0), host.seen(1)];
        Observation {
            at: Nanos(100),
            end: QuantumEnd::Elapsed,
            tasks,
            ended: vec![],
            moved: vec![],
            reports: SourceReports::NONE,
        }
    };
    let mut queue = JobQueue::default();
    queue.note_jobs(&seen(&[0, 0]));
    let queued = queue.queued(&seen(&[0, 0]));
    assert!(queued.iter().all(|job| job.threads[0].ran.is_none() && !job.just_ran));
    let before = Observation { at: Nanos::ZERO, ..seen(&[0, 0]) };
    let did =
        queue.note(&passed(&ran(1, &[Some(PuIdx(3))]), &host.machine, &before, &seen(&[0, 1])));
    queue.remember(&did);
    let queued = queue.queued(&seen(&[0, 1]));
    let jobs: Vec<u32> = queued.iter().map(|job| job.job.0).collect();
    assert_eq!(jobs, [0, 1]);
    assert_eq!(queued[0].threads[0].ran, None);
    assert!(queued[1].just_ran && queued[1].had_own_cores);
    assert_eq!(queued[1].threads[0].ran.as_ref().unwrap().ipc, Some(0.5));
    assert_eq!(queued[1].threads[0].pu, Some(PuIdx(0)), "where it was seen, not where it was sent");
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
    before.counts.get_or_insert_default().accesses = Some(1_000);
    before.counts.get_or_insert_default().misses = Some(vec![100, 50]);
    let stack = CpiStack { core: 10.0, ..CpiStack::default() };
    before.counts.get_or_insert_default().stack = Some(Stack::from(&stack));
    let mut after = before.clone();
    after.cpu_time = Some(Nanos(3_000));
    after.counts.get_or_insert_default().accesses = Some(1_600);
    after.counts.get_or_insert_default().misses = Some(vec![140, 60]);
    after.counts.get_or_insert_default().stack =
        Some(Stack::from(&CpiStack { core: 70.0, memory: 20.0, ..CpiStack::default() }));
    let found = rates::of_thread(&machine, &after, Some(&before)).unwrap();
    assert_eq!(found.ran.parts.len(), 7);
    let found = found.ran;
    assert_eq!(found.traffic.caches, [Some(300.0), None, Some(20.0), None]);
    assert_eq!(found.traffic.memory, Some(5.0));
    assert_eq!(found.stack.unwrap(), [0.75, 0.0, 0.0, 0.0, 0.25, 0.0, 0.0]);
    assert_eq!(rates::of_thread(&machine, &after, Some(&after)), None, "it did not run");
}

/// Misses that become known are of an unknown time, be they 300 since it was created; and so are cycles and a stack. Of
/// a thread that had not run or was not there at the last look they are of this quantum.
#[test]
fn late_figures_are_not_of_this_quantum() {
    let mut machine = machine();
    let (kind, pus) = (CacheKind::Unified, vec![PuIdx(0), PuIdx(1)]);
    machine.caches.push(colocate_machine::Cache { level: 1, kind, size: None, pus });
    let mut after = Scripted::new(1).seen(0);
    (after.cpu_time, after.cycles) = (Some(Nanos(3_000)), Some(40));
    after.instructions = Some(20);
    after.counts.get_or_insert_default().misses = Some(vec![300]);
    after.counts.get_or_insert_default().stack =
        Some(Stack::from(&CpiStack { core: 40.0, ..CpiStack::default() }));
    let mut before = after.clone();
    (before.cpu_time, before.cycles) = (Some(Nanos(1_000)), None);
    before.counts = None;
    let found = |before: Option<&SeenTask>| rates::of_thread(&machine, &after, before).unwrap().ran;
    let unknown = found(Some(&before));
    assert_eq!((unknown.traffic.memory, unknown.ipc, unknown.stack), (None, None, None));
    (before.cpu_time, before.instructions) = (Some(Nanos::ZERO), Some(0));
    for new in [found(Some(&before)), found(None)] {
        assert_eq!((new.traffic.memory, new.ipc), (Some(100.0), Some(0.5)));
        assert!(new.stack.is_some());
    }
}

/// Job 0, with so many threads left to the kernel.
fn left_to_kernel(threads: usize) -> QueuePlacement {
    ran(0, &vec![None; threads])
}

/// The threads of a job before and after a quantum of 100 ns for which they used CPU time and waited for PUs.
fn threads(used: &[(u64, Option<u64>)]) -> (Observation, Observation) {
    let thread = |(order, &(used, waited)): (u32, &(u64, Option<u64>))| SeenTask {
        id: TaskId { job: JobIdx(0), order },
        cpu_time: Some(Nanos(1_000 + used)),
        waited: waited.map(|waited| Nanos(1_000 + waited)),
        ..Scripted::new(1).seen(0)
    };
    let at = |at: u64, used: &[(u64, Option<u64>)]| Observation {
        at: Nanos(at),
        end: QuantumEnd::Elapsed,
        tasks: (0..).zip(used).map(thread).collect(),
        ended: vec![],
        moved: vec![],
        reports: SourceReports::NONE,
    };
    let nothing: Vec<_> = used.iter().map(|(_, waited)| (0, waited.map(|_| 0))).collect();
    (at(0, &nothing), at(100, used))
}

/// The numbers of the threads that want contexts after a quantum in which one was placed.
fn active(used: &[(u64, Option<u64>)]) -> Vec<u32> {
    let (before, after) = threads(used);
    let mut queue = JobQueue::default();
    queue.note_jobs(&before);
    queue.note(&passed(&left_to_kernel(1), &machine(), &before, &after));
    queue.queued(&after)[0].threads.iter().map(|thread| thread.id.order).collect()
}

/// Where waits are not known: eighty threads on four PUs can use a twentieth of the time each, forty on two PUs, too.
/// Four that compute beside fifty that hardly do can use all of it.
#[test]
fn a_shared_pu_leaves_little() {
    let fair = |pus: usize, used: &[(u64, Option<u64>)]| {
        let (before, after) = threads(used);
        Passed { pus, ..passed(&left_to_kernel(1), &machine(), &before, &after) }.fair_part()
    };
    let is = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-12, "{found}");
    is(fair(4, &[(5, None); 80]), 5.0);
    is(fair(2, &[(5, None); 40]), 5.0);
    is(fair(4, &[[(95, None); 4].to_vec(), [(1, None); 50].to_vec()].concat()), 100.0);
    is(fair(4, &[(0, None); 80]), 100.0);
}

/// A hundred threads of which one was active come back to work, 25 a PU: all are active, whether their waits are
/// known or not. Of two that wait for input one wants a PU for a twentieth of the quantum.
#[test]
fn a_wait_for_a_pu_is_active() {
    let all: Vec<u32> = (0..100).collect();
    assert_eq!(active(&[(4, Some(96)); 100]), all);
    assert_eq!(active(&[(4, None); 100]), all);
    assert_eq!(active(&[(2, Some(2)), (2, Some(3))]), [1]);
}

/// A thread computes; another one lives too shortly to be read, and is remembered for another quantum.
/// One that lives and cannot be looked at makes the count unknown.
#[test]
fn an_unread_thread_hides_no_other() {
    let (first, mut second) = threads(&[(100, Some(0))]);
    let mut unseen = SeenTask { cpu_time: None, waited: None, ..second.tasks[0].clone() };
    (unseen.id.order, unseen.ended) = (1, Some(Nanos(50)));
    second.tasks.push(unseen);
    let mut third = Observation { at: Nanos(200), ..second.clone() };
    third.tasks[0].cpu_time = Some(Nanos(1_150));
    let mut queue = JobQueue::default();
    queue.note_jobs(&first);
    let mut runnable = |before: &Observation, after: &Observation| {
        queue.note(&passed(&left_to_kernel(1), &machine(), before, after));
        queue.runnable().get(&JobIdx(0)).copied()
    };
    assert_eq!(runnable(&first, &second), Some(1.0));
    assert_eq!(runnable(&second, &third), Some(0.5));
    third.tasks[1].ended = None;
    assert_eq!(runnable(&second, &third), None);
}

/// A job whose threads sleep has one place in the queue, and loses it to a thread that works.
#[test]
fn sleepers_need_no_context() {
    let mut seen = Scripted::new(1).seen(0);
    let mut queue = JobQueue::default();
    let observation = |tasks: &[SeenTask]| Observation {
        at: Nanos(100),
        end: QuantumEnd::Elapsed,
        tasks: tasks.to_vec(),
        ended: vec![],
        moved: vec![],
        reports: SourceReports::NONE,
    };
    let choices = left_to_kernel(3);
    let mut tasks: Vec<SeenTask> = Vec::new();
    for order in 0..3 {
        seen.id.order = order;
        tasks.push(seen.clone());
    }
    queue.note_jobs(&observation(&tasks));
    assert_eq!(queue.queued(&observation(&tasks))[0].threads.len(), 3);
    let before = Observation { at: Nanos::ZERO, ..observation(&tasks) };
    tasks[1].cpu_time = Some(Nanos(6));
    tasks[2].cpu_time = Some(Nanos(4));
    queue.note(&passed(&choices, &machine(), &before, &observation(&tasks)));
    let threads = |tasks: &[SeenTask]| -> Vec<u32> {
        let queued = queue.queued(&observation(tasks));
        queued[0].threads.iter().map(|thread| thread.id.order).collect()
    };
    assert_eq!(threads(&tasks), [1]);
    assert_eq!(threads(&[tasks[0].clone(), tasks[2].clone()]), [0], "all sleep");
}
