//! The guard on simulated machines: random workloads on random machines, every scheduler with and without it.
//!
//! The whole of it takes long and is run by
//! `cargo test --release -p colocate-sim --test guard -- --ignored --nocapture`, `CASES=1000` and `RUNS=4` being
//! the workloads and the runs of each; docs/guard.md has its figures.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed
#![allow(clippy::cast_precision_loss)] // small counts

mod common;

use colocate_engine::guard::{Guard, Guarding};
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Machine, Nanos, Performance};
use colocate_model::phase::{Known, Work as PortWork};
use colocate_model::{Assumptions, MissCurve};
use colocate_policy::rng::SplitMix64;
use colocate_policy::schedule::{Allocated, Choice, Quantum, Scheduler, SchedulerKind, Selected};
use colocate_sim::{
    JobSpec, Kernel, PhaseIdx, PhaseSpec, Platform, Scenario, ScheduleOptions, Stretch, ThreadSpec,
    Work, alone_of, schedule_with,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Between two decisions: the shortest that the published schedulers allow, which is hardest for the guard
/// and takes least to simulate.
const QUANTUM: Nanos = Nanos::from_millis(50);

/// Runs under a scheduler have other luck than those under the kernel that they are compared with.
const OTHER_LUCK: u64 = 1 << 40;

/// A workload and its machine.
struct Case {
    machine: Machine,
    performance: Performance,
    scenario: Scenario,
}

/// A number from `low` to `high`, each equally likely.
fn between(rng: &mut SplitMix64, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.unit()
}

/// One of them, each equally likely.
fn one_of<T: Copy>(rng: &mut SplitMix64, of: &[T]) -> T {
    of[rng.below(of.len())]
}

/// 2 to 8 PUs on one or two sockets, with or without siblings, more or less cache and memory bandwidth.
fn any_machine(rng: &mut SplitMix64, plain: bool) -> String {
    let (packages, cores, pus) = loop {
        let shape =
            (if plain { 1 } else { one_of(rng, &[1, 2]) }, 1 + rng.below(4), one_of(rng, &[1, 2]));
        if (2..=8).contains(&(shape.0 * shape.1 * shape.2)) {
            break shape;
        }
    };
    let cache = one_of(rng, &[1, 2, 4, 8]);
    let bandwidth = one_of(rng, &[2, 4, 8, 16, 32]);
    let mut text = common::SMALL.to_owned();
    let mut replace = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    };
    replace("packages = 2", &format!("packages = {packages}"));
    replace("cores-per-package = 2", &format!("cores-per-package = {cores}"));
    replace("pus-per-core = 2", &format!("pus-per-core = {pus}"));
    replace("nodes = 2", &format!("nodes = {packages}"));
    replace("size = \"1 MiB\"\ncores = 2", &format!("size = \"{cache} MiB\"\ncores = {cores}"));
    replace("bandwidth = \"64 GB/s\"", &format!("bandwidth = \"{bandwidth} GB/s\""));
    if packages == 1 {
        replace("distances = [[10, 20], [20, 10]]\n", "");
        replace(
            "[performance.hops-by-distance]\nvalue = { 20 = \"100 ns\" }\nsource = \"made up for a test\"\n",
            "",
        );
    }
    text
}

fn known<T>(value: T) -> Known<T> {
    Known::new(value, "made up for a test")
}

/// From one that computes to one that floods the memory.
fn any_phase(rng: &mut SplitMix64, number: usize) -> PhaseSpec {
    let mut spec = common::phase(WorkKind::Int);
    let phase = &mut spec.phase;
    phase.name = format!("phase {number}");
    let load = between(rng, 0.05, 0.5);
    let multiplied = between(rng, 0.0, 1.0 - load);
    let kinds = vec![
        (WorkKind::Int, 1.0 - load - multiplied),
        (WorkKind::IntMul, multiplied),
        (WorkKind::Load, load),
    ];
    phase.work = known(PortWork::Kinds(kinds));
    phase.slots = known(1.0);
    phase.dependent_cycles = known(between(rng, 0.0, 1.0));
    phase.parallel_misses = known(between(rng, 1.0, 6.0));
    let misses = 10_f64.powf(between(rng, -4.5, -1.3)).min(load);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 16 KiB to 16 MiB
    let fits = Bytes(2_f64.powf(between(rng, 14.0, 24.0)) as u64);
    let left = one_of(rng, &[0.05, 0.3, 1.0]);
    phase.misses = known(MissCurve::new([(Bytes(64), misses), (fits, misses * left)]).unwrap());
    PhaseSpec::of(spec.phase)
}

/// One to three phases of 2 to 100 quanta each; one in five sleeps time and again, if not all is plain.
fn any_course(rng: &mut SplitMix64, phases: usize, plain: bool) -> Vec<Stretch> {
    let sleeps = !plain && rng.below(5) == 0;
    let stretch = |rng: &mut SplitMix64| {
        let phase = PhaseIdx(u32::try_from(rng.below(phases)).unwrap());
        let millions = if sleeps { between(rng, 10.0, 200.0) } else { between(rng, 50.0, 2500.0) };
        let sleep = if sleeps { between(rng, 1.0, 40.0) } else { 0.0 };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // above 0 and small
        let (instructions, sleep) = ((millions * 1e6) as u64, Nanos((sleep * 1e6) as u64));
        Stretch { phase, instructions, sleep, barrier: false }
    };
    (0..1 + rng.below(3)).map(|_| stretch(rng)).collect()
}

/// 1.2 to 3 times as many threads as PUs, some jobs with several, and so much work that all of it takes
/// about 100 to 400 quanta if the machine is no faster than as many cores.
fn any_jobs(rng: &mut SplitMix64, pus: usize, phases: usize, plain: bool) -> Vec<JobSpec> {
    let over = if plain { 2.0 } else { between(rng, 1.2, 3.0) };
    let quanta = between(rng, 100.0, 400.0);
    let alone = QUANTUM.as_secs_f64() * quanta / over;
    let equal = plain || rng.below(2) == 0;
    let mut left = (over * pus as f64).round();
    let mut jobs = Vec::new();
    while left >= 1.0 {
        let wanted = if !plain && rng.below(5) == 0 { 2 + rng.below(3) } else { 1 };
        let threads = wanted.min(pus);
        left -= threads as f64;
        let course = any_course(rng, phases, plain);
        let part = if equal { 1.0 } else { between(rng, 0.3, 1.0) };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // above 0 and small
        let alone_ms = (alone * part * 1e3) as u64;
        let thread = ThreadSpec {
            work: Work::AloneFor(Nanos::from_millis(alone_ms)),
            ..common::thread(&course)
        };
        let name = format!("job {}", jobs.len());
        jobs.push(JobSpec {
            name,
            arrives: Nanos::ZERO,
            threads: vec![thread; threads],
            barrier: None,
        });
    }
    jobs
}

/// Every other one is plain, as the published workloads are: one socket, and twice as many jobs as PUs, of one
/// thread each that never sleeps, all as long alone.
fn any_case(seed: u64) -> Case {
    let rng = &mut SplitMix64::new(seed);
    let plain = seed.is_multiple_of(2);
    let (machine, performance) = common::machine(&any_machine(rng, plain));
    let phases: Vec<PhaseSpec> = (0..6).map(|number| any_phase(rng, number)).collect();
    let jobs = any_jobs(rng, machine.pus.len(), phases.len(), plain);
    let scenario = Scenario {
        name: format!("case {seed}"),
        seed,
        phases,
        quantum: QUANTUM,
        kernel: Kernel::default(),
        ..common::scenario(jobs)
    };
    Case { machine, performance, scenario }
}

/// Runs who has waited longest, all on the first PU.
#[derive(Debug)]
struct OnePu;

impl Scheduler for OnePu {
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        let head = &now.queue[0];
        let places = vec![(Some(now.pus[0]), Allocated::Next); head.threads.len()];
        vec![Choice { job: head.job, selected: Selected::HeadOfQueue, places }]
    }
}

/// Leaves everything to the kernel but the last job, which waits until it is alone.
#[derive(Debug)]
struct StarvesOne;

impl Scheduler for StarvesOne {
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        let last = now.queue.iter().map(|job| job.job).max();
        let runs = now.queue.iter().filter(|job| now.queue.len() == 1 || Some(job.job) != last);
        let free = |job: &colocate_policy::schedule::Queued| Choice {
            job: job.job,
            selected: Selected::Drawn,
            places: vec![(None, Allocated::LeftToKernel); job.threads.len()],
        };
        runs.map(free).collect()
    }
}

/// A scheduler of ours, or one that nobody should want. `os` is there to show what luck does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Under {
    Kind(SchedulerKind),
    OnePu,
    StarvesOne,
}

impl Under {
    fn all() -> Vec<Self> {
        let ours = SchedulerKind::ALL.into_iter().map(Self::Kind);
        ours.chain([Self::OnePu, Self::StarvesOne]).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Kind(kind) => kind.name().to_owned(),
            Self::OnePu => "one PU".to_owned(),
            Self::StarvesOne => "starves one".to_owned(),
        }
    }

    fn scheduler(self, platform: &Platform<'_>, scenario: &Scenario) -> Box<dyn Scheduler> {
        match self {
            Self::Kind(kind) => kind.scheduler(&alone_of(platform, scenario).unwrap()),
            Self::OnePu => Box::new(OnePu),
            Self::StarvesOne => Box::new(StarvesOne),
        }
    }
}

/// Turnaround in seconds, simulated.
fn turnaround(platform: &Platform<'_>, scenario: &Scenario, scheduler: &mut dyn Scheduler) -> f64 {
    let options = ScheduleOptions::default();
    let look = &mut |_: &colocate_engine::schedule::Turn<'_>| ();
    let outcome = schedule_with(platform, scenario, (scheduler, "test"), &options, look).unwrap();
    outcome.turnaround().unwrap().as_secs_f64()
}

/// Turnarounds of several runs.
#[derive(Clone, Copy, Debug)]
struct Runs {
    mean: f64,
    /// Variance of the mean; 0 of a single run.
    variance: f64,
}

impl Runs {
    fn of(times: &[f64]) -> Self {
        let n = times.len() as f64;
        let mean = times.iter().sum::<f64>() / n;
        let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
        Self { mean, variance: if n > 1.0 { squares / (n - 1.0) / n } else { 0.0 } }
    }
}

/// Turnaround over that of the kernel alone: without the guard, with it; and the part of the quanta that was
/// the kernel's.
#[derive(Clone, Copy, Debug)]
struct Found {
    free: f64,
    guarded: f64,
    /// Standard error of `guarded`: how much luck there is in it.
    luck: f64,
    controls: f64,
    seed: u64,
}

impl Case {
    /// With other luck: where the kernel's turns end, where jobs start.
    fn again(&self, times: u64) -> Vec<Scenario> {
        (0..times)
            .map(|n| Scenario { seed: self.scenario.seed + 1_000_003 * n, ..self.scenario.clone() })
            .collect()
    }

    fn platform(&self) -> Platform<'_> {
        Platform::new(&self.machine, &self.performance, Assumptions::default()).unwrap()
    }

    /// Turnarounds of the kernel alone.
    fn kernel(&self, times: u64) -> Runs {
        let platform = self.platform();
        let run = |scenario: Scenario| {
            turnaround(&platform, &scenario, &mut *SchedulerKind::Os.scheduler(&[]))
        };
        Runs::of(&self.again(times).into_iter().map(run).collect::<Vec<f64>>())
    }

    fn under(&self, under: Under, kernel: Runs, times: u64) -> Found {
        let platform = self.platform();
        let (mut free, mut guarded, mut controls) = (Vec::new(), Vec::new(), 0.0);
        for mut scenario in self.again(times) {
            scenario.seed ^= OTHER_LUCK;
            let mut alone = under.scheduler(&platform, &scenario);
            free.push(turnaround(&platform, &scenario, &mut *alone));
            let inner = under.scheduler(&platform, &scenario);
            let mut guard = Guard::new(inner, &under.name(), Guarding::default());
            guarded.push(turnaround(&platform, &scenario, &mut guard));
            let (quanta, kernels) = guard.quanta();
            controls += kernels as f64 / quanta as f64 / times as f64;
        }
        let (free, guarded) = (Runs::of(&free), Runs::of(&guarded));
        Found {
            free: free.mean / kernel.mean,
            guarded: guarded.mean / kernel.mean,
            luck: (guarded.variance + kernel.variance).sqrt() / kernel.mean,
            controls,
            seed: self.scenario.seed,
        }
    }
}

/// What came of one scheduler in all cases.
fn line(name: &str, found: &[Found]) -> String {
    let n = found.len() as f64;
    let percent =
        |of: &dyn Fn(&Found) -> f64| 100.0 * (found.iter().map(of).sum::<f64>() / n - 1.0);
    let worst =
        |of: &dyn Fn(&Found) -> f64| 100.0 * (found.iter().map(of).fold(0.0, f64::max) - 1.0);
    let above = |of: &dyn Fn(&Found) -> f64, limit: f64| {
        found.iter().filter(|found| of(found) > limit).count()
    };
    let at = found.iter().max_by(|a, b| a.guarded.total_cmp(&b.guarded)).map_or(0, |f| f.seed);
    let good: Vec<&Found> = found.iter().filter(|found| found.free < 0.98).collect();
    let gain = |of: &dyn Fn(&Found) -> f64| good.iter().map(|f| 1.0 - of(f)).sum::<f64>();
    let kept = 100.0 * gain(&|f| f.guarded) / gain(&|f| f.free);
    let (free, guarded) = (|f: &Found| f.free, |f: &Found| f.guarded);
    format!(
        "{name:12} {:5} | {:+6.2} {:+7.2} {:5} | {:+6.2} {:+7.2} {:5} {:5} {at:6} | {:4} {kept:5.0} | {:4.0}",
        found.len(),
        percent(&free),
        worst(&free),
        above(&free, 1.01),
        percent(&guarded),
        worst(&guarded),
        above(&guarded, 1.01),
        above(&|f| f.guarded - 2.0 * f.luck, 1.01),
        good.len(),
        100.0 * found.iter().map(|f| f.controls).sum::<f64>() / n,
    )
}

/// Every scheduler in `cases` cases, `times` runs each; the text says what came of it.
fn study(cases: u64, times: u64) -> (String, BTreeMap<String, Vec<Found>>) {
    let (next, found) = (AtomicU64::new(0), Mutex::new(BTreeMap::<String, Vec<Found>>::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= cases {
                break;
            }
            let case = any_case(seed);
            let kernel = case.kernel(times);
            for under in Under::all() {
                let one = case.under(under, kernel, times);
                found.lock().unwrap().entry(under.name()).or_default().push(one);
            }
        }
    };
    std::thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(work)));
    });
    let mut found = found.into_inner().unwrap();
    let mut text = format!(
        "simulated: {cases} workloads, {times} runs each; turnaround against the kernel alone in %, + is worse\n\
         sure: worse by more than 1 % and twice the standard error of the runs; os: luck alone\n\
         {:18} | {:^20} | {:^33} | {:10} | kernel's\n\
         {:18} | {:>6} {:>7} {:>5} | {:>6} {:>7} {:>5} {:>5} {:>6} | {:>4} {:>5} | quanta, %\n",
        "",
        "without guard",
        "with guard",
        "gains kept",
        "",
        "mean",
        "worst",
        ">1 %",
        "mean",
        "worst",
        ">1 %",
        "sure",
        "case",
        "n",
        "%",
    );
    for (name, found) in &mut found {
        found.sort_by_key(|found| found.seed);
        let _ = writeln!(text, "{}", line(name, found));
    }
    (text, found)
}

/// The whole study.
#[test]
#[ignore = "takes minutes; see the head of this file"]
#[allow(clippy::print_stdout)] // its table is what it is run for
fn thousand_workloads() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let cases = number("CASES", 1000);
    let (text, found) = study(cases, number("RUNS", 4));
    println!("{text}");
    assert!(found.values().all(|found| found.len() as u64 == cases));
}

/// Turnarounds of plain workloads in sum, over that of the kernel: without the guard, with it.
fn together(under: Under, cases: &[u64]) -> (f64, f64) {
    let found = cases.iter().map(|&seed| {
        let case = any_case(seed);
        case.under(under, case.kernel(1), 1)
    });
    let sum = found.fold((0.0, 0.0), |sum, found| (sum.0 + found.free, sum.1 + found.guarded));
    (sum.0 / cases.len() as f64, sum.1 / cases.len() as f64)
}

/// What ruins a workload without the guard costs next to nothing with it. The limit is above 1 %, for the luck
/// of four single runs.
#[test]
fn a_guarded_scheduler_does_no_harm() {
    for (under, ruin) in [(Under::OnePu, 1.5), (Under::StarvesOne, 1.05)] {
        let (free, guarded) = together(under, &[0, 2, 4, 6]);
        assert!(free > ruin, "{under:?}: {free} without the guard");
        assert!(guarded < 1.015, "{under:?}: {guarded}");
    }
}

/// Two jobs a PU, one on additions and one on multiplications, for cores of two PUs: the kernel has them beside
/// each other as it happens. A scheduler that mixes them gains, and keeps most of it with the guard.
#[test]
fn a_guarded_scheduler_keeps_what_it_gains() {
    let (machine, performance) = common::machine(common::SMALL);
    let jobs = (0..16).map(|n| common::job("j", [common::INT, common::MUL][n / 8], 8000)).collect();
    let scenario =
        Scenario { quantum: QUANTUM, kernel: Kernel::default(), ..common::scenario(jobs) };
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let run = |scheduler: &mut dyn Scheduler| turnaround(&platform, &scenario, scheduler);
    let kernel = run(&mut *SchedulerKind::Os.scheduler(&[]));
    let free = kernel - run(&mut Mixes);
    let mut guard = Guard::new(Box::new(Mixes), "mixes", Guarding::default());
    let guarded = kernel - run(&mut guard);
    assert!(free > 0.1 * kernel, "{free} of {kernel} s gained");
    assert!(guarded > 0.7 * free, "{guarded} of {free} s gained: {:?}", guard.state());
}

/// Runs the job that has waited longest of each half of the jobs on every core.
#[derive(Debug)]
struct Mixes;

impl Scheduler for Mixes {
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        let half = |second: bool| {
            let jobs = now.queue.iter().filter(move |job| (job.job.0 >= 8) == second);
            jobs.zip(now.pus.iter().skip(usize::from(second)).step_by(2))
        };
        let choice = |(job, &pu): (&colocate_policy::schedule::Queued, _)| Choice {
            job: job.job,
            selected: Selected::HeadOfQueue,
            places: vec![(Some(pu), Allocated::Next)],
        };
        half(false).chain(half(true)).map(choice).collect()
    }
}
