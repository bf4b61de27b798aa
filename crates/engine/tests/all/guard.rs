//! The guard around a scheduler whose speed the test decides.

use colocate_engine::guard::{Guarding, QuantumGuard};
use colocate_evidence::{JobIdx, SourceSet, TaskId};
use colocate_machine::{
    Core, CoreIdx, KindIdx, Machine, Nanos, Package, PackageIdx, Pu, PuIdx, PuNr,
};
use colocate_policy::rng::SplitMix64;
use colocate_policy::schedule::{
    Allocated, JobUsage, Quantum, QuantumOutcome, QueuedJob, Selected, SelectedJob, Thread,
};
use colocate_policy::{Decision, Evidence, Place, Plan, Policy};
use std::sync::{Arc, Mutex};

const PUS: usize = 4;
const QUANTUM: Nanos = Nanos::from_millis(100);

pub fn machine() -> Machine {
    let core =
        |n: u32| Core { pus: vec![PuIdx(n)], package: PackageIdx(0), node: None, kind: KindIdx(0) };
    Machine {
        name: "four cores".into(),
        processor: None,
        pus: (0..4).map(|n| Pu { os: PuNr(n), core: CoreIdx(n) }).collect(),
        cores: (0..4).map(core).collect(),
        packages: vec![Package { cores: (0..4).map(CoreIdx).collect() }],
        nodes: vec![],
        caches: vec![],
        kinds: vec![],
        distances: None,
        offline: vec![],
    }
}

/// Those at the head of the queue, but never `starved`.
#[derive(Debug)]
struct Heads {
    starved: Option<u32>,
}

impl Policy for Heads {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let now = &evidence.now;
        let may = now.queue.iter().filter(|job| Some(job.job.0) != self.starved);
        let choice = |(job, &pu): (&QueuedJob, &PuIdx)| SelectedJob {
            job: job.job,
            selected: Selected::HeadOfQueue,
            places: vec![(Some(pu), Allocated::Next)],
        };
        let plan = evidence.plan(&may.zip(now.pus).map(choice).collect::<Vec<_>>());
        Plan { state: Some("heads run".into()), ..plan }
    }
}

/// The decisions on tasks that run.
fn running(plan: &Plan) -> impl Iterator<Item = &Decision> {
    plan.decisions.iter().filter(|decision| decision.place != Place::Waiting)
}

/// Whether a quantum is the kernel's.
fn is_kernels(plan: &Plan) -> bool {
    running(plan).all(|decision| decision.place == Place::LeftToKernel)
}

/// Jobs that never end, of one thread each. Under the kernel each gets its share of the PUs and does an
/// instruction a nanosecond, more or less by a tenth; under the scheduler so many times as many.
struct Toy {
    machine: Machine,
    queue: Vec<u32>,
    just_ran: Vec<u32>,
    speed: f64,
    counted: bool,
    rng: SplitMix64,
    number: u64,
    /// Progress of all jobs, in seconds under the kernel.
    done: f64,
    /// What was done in the last quantum.
    last: Option<Vec<JobUsage>>,
    news: Vec<String>,
    state: Option<String>,
}

impl Toy {
    fn new(jobs: u32, speed: f64) -> Self {
        Self {
            machine: machine(),
            queue: (0..jobs).collect(),
            just_ran: vec![],
            speed,
            counted: true,
            rng: SplitMix64::new(3),
            number: 0,
            done: 0.0,
            last: None,
            news: Vec::new(),
            state: None,
        }
    }

    fn queued(&self) -> Vec<QueuedJob> {
        let queued = |&job: &u32| {
            let id = TaskId { job: JobIdx(job), order: 0 };
            let threads = vec![Thread { id, ran: None, pu: None, runnable: None, bound: false }];
            QueuedJob {
                job: JobIdx(job),
                threads,
                runnable: None,
                just_ran: self.just_ran.contains(&job),
                had_own_cores: false,
            }
        };
        self.queue.iter().map(queued).collect()
    }

    /// One quantum; whether it was the kernel's.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn go(&mut self, guard: &mut QuantumGuard) -> bool {
        let pus: Vec<PuIdx> = self.machine.all_pus().collect();
        let queue = self.queued();
        let number = self.number;
        let now = Quantum { number, machine: &self.machine, pus: &pus, queue: &queue };
        let last =
            self.last.as_ref().map(|did| QuantumOutcome { throttled: false, took: QUANTUM, did });
        let plan = guard.decide(&Evidence { last, ..Evidence::of_queue(now) });
        let kernels = is_kernels(&plan);
        let jobs: Vec<JobIdx> = running(&plan).map(|decision| decision.task.job).collect();
        let share = PUS as f64 / jobs.len().max(PUS) as f64;
        let noise = 0.9 + 0.2 * self.rng.unit();
        let speed = noise * if kernels { 1.0 } else { self.speed };
        let time = share * QUANTUM.0 as f64;
        let did = |&job: &JobIdx| JobUsage {
            job,
            cpu_time: Some(Nanos(time as u64)),
            instructions: self.counted.then_some((time * speed) as u64),
            switches: None,
        };
        self.last = Some(jobs.iter().map(did).collect());
        self.done += jobs.len() as f64 * time * speed / 1e9;
        self.just_ran = jobs.iter().map(|job| job.0).collect();
        self.queue.sort_by_key(|job| jobs.contains(&JobIdx(*job)));
        self.number += 1;
        self.news.extend(plan.messages);
        self.state = plan.state;
        kernels
    }

    /// So many quanta; how many were the kernel's.
    fn run(&mut self, guard: &mut QuantumGuard, quanta: usize) -> usize {
        (0..quanta).filter(|_| self.go(guard)).count()
    }
}

fn guard(starved: Option<u32>) -> QuantumGuard {
    QuantumGuard::new(Box::new(Heads { starved }), "heads", Guarding::default())
}

#[test]
fn gives_up_what_is_worse() {
    for speed in [0.2, 0.7, 0.85, 0.95] {
        let (mut toy, mut guard) = (Toy::new(8, speed), guard(None));
        let kernels = toy.run(&mut guard, 1000);
        assert!(kernels > 800, "{speed}: {kernels} quanta are the kernel's");
        // 4 PUs for 100 s do 400 s of progress.
        assert!(toy.done > 400.0 * 0.99, "{speed}: {}", toy.done);
        assert!(toy.news[0].contains("cost"), "{:?}", toy.news);
        assert!(toy.news.len() < 12, "{:?}", toy.news);
    }
}

#[test]
fn keeps_what_is_better() {
    for speed in [1.05, 1.2] {
        let (mut toy, mut guard) = (Toy::new(8, speed), guard(None));
        let kernels = toy.run(&mut guard, 1000);
        assert!(
            kernels < 200,
            "{speed}: {kernels} quanta are the kernel's: {:?} {:?}",
            toy.news,
            toy.state
        );
        assert_eq!(toy.news.len(), 1);
        assert!(toy.news[0].starts_with("guard: heads pays: +"), "{:?}", toy.news);
        let state = toy.state.unwrap();
        assert!(state.starts_with("heads run; guard: heads pays, "), "{state}");
        assert!(state.ends_with(", lost 0.00 s"), "a gain is no loss below 0: {state}");
        let (low, high) = guard.outcome().compared.ratios_within(2.0).unwrap();
        assert!(low > 1.0 && (low..=high).contains(&speed), "{speed}: {low} to {high}");
    }
}

/// What was good for some hundred quanta and is bad from then on is found out, too.
#[test]
fn finds_out_late() {
    let (mut toy, mut guard) = (Toy::new(8, 1.1), guard(None));
    toy.run(&mut guard, 500);
    toy.speed = 0.8;
    let before = toy.done;
    toy.run(&mut guard, 1000);
    assert!(toy.done - before > 400.0 * 0.98, "{}", toy.done - before);
    assert!(toy.news.len() > 1, "{:?}", toy.news);
}

/// As good for those that run, but one of nine never does: progress per second is the same.
#[test]
fn sees_a_job_that_is_left_behind() {
    let (mut toy, mut guard) = (Toy::new(9, 1.0), guard(Some(4)));
    let kernels = toy.run(&mut guard, 1000);
    assert!(kernels > 900, "{kernels} quanta are the kernel's");
    assert!(toy.news[0].contains("has cost"), "{:?}", toy.news);
}

/// A job comes or goes every quantum: whatever the scheduler does, nothing can be compared.
#[test]
fn compares_the_same_jobs_only() {
    let (mut toy, mut guard) = (Toy::new(8, 0.5), guard(None));
    for n in 0..200 {
        toy.queue = (0..8).map(|job| 8 * (n % 2) + job).collect();
        assert!(toy.go(&mut guard), "quantum {n}: the kernel's, as there is no baseline");
    }
    assert!(toy.news.is_empty());
}

/// Whatever comes every so many quanta, and whenever it began, meets the scheduler's quanta and the kernel's as often as
/// they come, also while the scheduler pays.
#[test]
fn nothing_regular_meets_one_side_only() {
    for (speed, quanta) in [(1.0, 4_000), (1.2, 40_000)] {
        let (mut toy, mut guard) = (Toy::new(8, speed), guard(None));
        let kernels: Vec<bool> = (0..quanta).map(|_| toy.go(&mut guard)).collect();
        let all = share(kernels.iter());
        for period in 2..=40 {
            for first in 0..period {
                let part = share(kernels.iter().skip(first).step_by(period)) / all;
                let what = format!("speed {speed}, every {period} from {first} on: {part}");
                assert!((0.5..1.6).contains(&part), "{what}");
            }
        }
    }
}

fn share<'a>(kernels: impl Iterator<Item = &'a bool> + Clone) -> f64 {
    kernels.clone().filter(|kernels| **kernels).count() as f64 / kernels.count() as f64
}

/// Remembers for which quanta it learned that jobs had just run.
#[derive(Debug, Default)]
struct Pupil {
    chosen: Vec<u64>,
    learned: Arc<Mutex<Vec<u64>>>,
}

impl Pupil {
    fn note(&mut self, now: &Quantum<'_>) {
        if now.queue.iter().any(|job| job.just_ran) {
            let last = self.chosen.pop().expect("it had chosen before");
            assert_eq!(last + 1, now.number, "of its own quantum, at once");
            self.learned.lock().unwrap().push(last);
        }
    }
}

impl Policy for Pupil {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        self.note(&evidence.now);
        if evidence.is_control {
            return evidence.empty_plan();
        }
        self.chosen.push(evidence.now.number);
        Heads { starved: None }.decide(evidence)
    }
}

/// As many jobs as PUs, where every quantum of the scheduler is followed by the kernel's, and twice as many.
#[test]
fn the_scheduler_learns_from_each_of_its_quanta() {
    for jobs in [4, 8] {
        let learned = Arc::new(Mutex::new(Vec::new()));
        let pupil = Pupil { chosen: Vec::new(), learned: learned.clone() };
        let mut guard = QuantumGuard::new(Box::new(pupil), "pupil", Guarding::default());
        let mut toy = Toy::new(jobs, 1.0);
        let own: Vec<u64> = (0..400).filter(|_| !toy.go(&mut guard)).collect();
        assert!(own.len() > 40, "{jobs}: {own:?}");
        let learned = learned.lock().unwrap();
        assert!(own.starts_with(&learned), "{jobs}: {own:?}, learned {learned:?}");
        assert!(own.len() - learned.len() <= 1, "{jobs}: the last one may be to come");
    }
}

/// Two threads a PU under the kernel; the scheduler has them elsewhere. When the kernel's turn has come again they begin
/// where it had them, but for one whose PU has gone.
#[test]
fn puts_threads_back() {
    let mut toy = Toy::new(8, 0.2);
    let mut guard = guard(None);
    let pus: Vec<PuIdx> = toy.machine.all_pus().collect();
    let (mut scheduled, mut put_back, mut last) = (false, 0, None);
    for number in 0..40 {
        let mut queue = toy.queued();
        for job in &mut queue {
            let home = PuIdx(job.job.0 / 2);
            job.threads[0].pu = Some(if scheduled { PuIdx(3 - home.0) } else { home });
        }
        let now = Quantum { number, machine: &toy.machine, pus: &pus[..3], queue: &queue };
        let told = last.as_ref().map(|did: &Vec<JobUsage>| QuantumOutcome {
            throttled: false,
            took: QUANTUM,
            did,
        });
        let plan = guard.decide(&Evidence { last: told, ..Evidence::of_queue(now) });
        let kernels = is_kernels(&plan);
        let mut begin = plan.initial.clone();
        begin.sort_unstable();
        if kernels && scheduled {
            let home = |job| (TaskId { job: JobIdx(job), order: 0 }, PuNr(job / 2));
            assert_eq!(begin, (0..6).map(home).collect::<Vec<_>>(), "quantum {number}");
            put_back += 1;
        } else {
            assert!(begin.is_empty(), "quantum {number}: {begin:?}");
        }
        scheduled = !kernels;
        let did = |decision: &Decision| JobUsage {
            job: decision.task.job,
            cpu_time: Some(QUANTUM),
            instructions: Some(if kernels { 1000 } else { 900 }),
            switches: None,
        };
        last = Some(running(&plan).map(did).collect());
        toy.queue.rotate_left(3);
    }
    assert!(put_back > 0);
}

#[test]
fn says_what_it_cannot_see() {
    let (mut toy, mut guard) = (Toy::new(8, 0.5), guard(None));
    toy.counted = false;
    let kernels = toy.run(&mut guard, 300);
    assert_eq!(
        toy.news,
        [
            "guard: instructions are not counted: the guard sees PUs that are left idle, but not contention"
        ]
    );
    assert!(kernels < 200, "CPU time is the same: {kernels}");
}
