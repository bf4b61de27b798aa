//! Workloads and machines, drawn from seeds.

use super::common;
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Machine, Nanos, Performance};
use colocate_model::phase::{Known, PortWork};
use colocate_model::{Assumptions, MissCurve};
use colocate_policy::rng::SplitMix64;
use colocate_sim::{
    JobSpec, KernelScheduler, PhaseIdx, PhaseSegment, PhaseSpec, Platform, Scenario, ThreadSpec,
    TotalWork,
};

/// Between two decisions: the shortest that the published schedulers allow, which is hardest for the guard
/// and takes least to simulate.
pub const QUANTUM: Nanos = Nanos::from_millis(50);

/// A workload and its machine.
pub struct Case {
    pub machine: Machine,
    pub performance: Performance,
    pub scenario: Scenario,
}

/// A number from `low` to `high`, each equally likely.
pub fn between(rng: &mut SplitMix64, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.unit()
}

/// One of them, each equally likely.
pub fn one_of<T: Copy>(rng: &mut SplitMix64, of: &[T]) -> T {
    of[rng.below(of.len())]
}

/// 2 to 8 PUs on one or two sockets, with or without siblings, more or less cache and memory bandwidth.
fn any_machine(rng: &mut SplitMix64, plain: bool) -> String {
    let shape = loop {
        let shape =
            (if plain { 1 } else { one_of(rng, &[1, 2]) }, 1 + rng.below(4), one_of(rng, &[1, 2]));
        if (2..=8).contains(&(shape.0 * shape.1 * shape.2)) {
            break shape;
        }
    };
    shaped(rng, shape)
}

/// A machine of so many packages, cores each and PUs each, more or less cache and memory bandwidth.
pub fn shaped(rng: &mut SplitMix64, (packages, cores, pus): (usize, usize, usize)) -> String {
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
fn any_course(rng: &mut SplitMix64, phases: usize, plain: bool) -> Vec<PhaseSegment> {
    let sleeps = !plain && rng.below(5) == 0;
    let stretch = |rng: &mut SplitMix64| {
        let phase = PhaseIdx(u32::try_from(rng.below(phases)).unwrap());
        let millions = if sleeps { between(rng, 10.0, 200.0) } else { between(rng, 50.0, 2500.0) };
        let sleep = if sleeps { between(rng, 1.0, 40.0) } else { 0.0 };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // above 0 and small
        let (instructions, sleep) = ((millions * 1e6) as u64, Nanos((sleep * 1e6) as u64));
        PhaseSegment { phase, instructions, sleep, barrier: false }
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
            work: TotalWork::AloneFor(Nanos::from_millis(alone_ms)),
            ..common::thread(&course)
        };
        let name = format!("job {}", jobs.len());
        jobs.push(JobSpec {
            memory: Vec::new(),
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
pub fn any_case(seed: u64) -> Case {
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
        kernel: KernelScheduler::default(),
        ..common::scenario(jobs)
    };
    Case { machine, performance, scenario }
}

impl Case {
    /// So many times with other luck: where the kernel's turns end, where jobs start.
    pub fn again(&self, from: u64, times: u64) -> Vec<Scenario> {
        let seed = |n| self.scenario.seed + 1_000_003 * n;
        (from..from + times).map(|n| Scenario { seed: seed(n), ..self.scenario.clone() }).collect()
    }

    /// Its machine.
    pub fn platform(&self) -> Platform<'_> {
        Platform::new(&self.machine, &self.performance, Assumptions::default()).unwrap()
    }
}
