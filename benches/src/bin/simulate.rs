//! How long it takes to simulate an hour: 2x AMD EPYC 7301, 16 jobs of four threads, decided anew every
//! 200 ms.
//!
//! Four cases: threads pinned and in one phase; the same with phases of a second, changes taken together
//! once a quantum; threads left to the simulated kernel; and twice as many threads as PUs.
//!
//! `cargo run --release -p colocate-benches --bin simulate [-- SECONDS]`

use colocate_benches::{cpu_ms, yardstick};
use colocate_evidence::{QuantumEnd, TaskId};
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Nanos, PuIdx, described};
use colocate_model::phase::{Known, PortWork};
use colocate_model::{Assumptions, MissCurve, Phase};
use colocate_policy::{Knowledge, PolicySpec, Task};
use colocate_sim::{
    JobSpec, KernelScheduler, Method, Pages, PhaseIdx, PhaseSegment, PhaseSpec, Platform, Scenario,
    SimHost, ThreadSpec, TotalWork,
};

const QUANTUM: Nanos = Nanos::from_millis(200);

fn phase(work: [(WorkKind, f64); 2], misses: f64) -> PhaseSpec {
    let source = "made up for the benchmark";
    let curve =
        [(Bytes::kib(32), misses), (Bytes::kib(512), misses / 4.0), (Bytes::mib(8), misses / 20.0)];
    PhaseSpec::of(Phase {
        slots: Known::new(1.1, source),
        work: Known::new(PortWork::Kinds(work.to_vec()), source),
        dependent_cycles: Known::new(0.5, source),
        dependent_cycles_divided: Known::new(0.6, source),
        misses: Known::new(MissCurve::new(curve).expect("it falls"), source),
        parallel_misses: Known::new(4.0, source),
        ..Phase::default()
    })
}

/// Jobs that do not end within the hour; phases of `phase_ms`, or one phase each if `phase_ms` is
/// 0.
fn scenario(jobs: u32, phase_ms: u64, hour: Nanos, grain: Nanos) -> Scenario {
    let thread = |job: u32, order: u32| {
        let stretch = |phase: u32| PhaseSegment {
            phase: PhaseIdx(phase % 4),
            // About 2.5 instructions a nanosecond.
            instructions: (2_500_000 + 31_000 * u64::from(job + 16 * order)) * phase_ms.max(1),
            sleep: Nanos::ZERO,
            barrier: false,
        };
        let stretches = if phase_ms == 0 { 1 } else { 3 };
        ThreadSpec {
            name: order.to_string(),
            born: Nanos::ZERO,
            course: (0..stretches).map(|at| stretch(job + at)).collect(),
            work: TotalWork::Instructions(u64::MAX >> 12),
            pages: Pages::FirstTouch,
            resident: Bytes::mib(256),
        }
    };
    let job = |job: u32| JobSpec {
        memory: Vec::new(),
        name: job.to_string(),
        arrives: Nanos::ZERO,
        threads: (0..4).map(|order| thread(job, order)).collect(),
        barrier: None,
    };
    use WorkKind::{FloatAdd, FloatMul, Int, IntMul, Load};
    Scenario {
        name: "benchmark".to_owned(),
        seed: 1,
        phases: vec![
            phase([(Int, 0.6), (Load, 0.3)], 0.001),
            phase([(IntMul, 0.4), (Load, 0.3)], 0.01),
            phase([(FloatAdd, 0.5), (Load, 0.4)], 0.05),
            phase([(FloatMul, 0.7), (FloatAdd, 0.2)], 0.002),
        ],
        jobs: (0..jobs).map(job).collect(),
        method: Method::Leave,
        quantum: QUANTUM,
        grain,
        horizon: hour,
        usable: None,
        events: Vec::new(),
        kernel: KernelScheduler::default(),
    }
}

#[allow(clippy::print_stdout)] // it is what the benchmark is for
fn main() {
    let seconds = std::env::args().nth(1).map_or(3600, |text| text.parse().expect("seconds"));
    let hour = Nanos::from_secs(seconds);
    let text = described::MACHINES[0].1;
    let machine = described::from_toml(text).expect("described").machine;
    let performance = described::performance(text).expect("described").expect("with figures");
    let platform = Platform::new(&machine, &performance, Assumptions::default()).expect("complete");
    let cases = [
        ("64 tasks pinned, one phase each", 16, 0, "round-robin"),
        ("64 tasks pinned, phases of a second", 16, 1000, "round-robin"),
        ("64 tasks left to the kernel, phases of a second", 16, 1000, "os"),
        ("128 tasks pinned, slices of 3 ms", 32, 0, "round-robin"),
        ("128 tasks left to the kernel, slices of 3 ms", 32, 0, "os"),
    ];
    for (name, jobs, phase_ms, policy) in cases {
        let scenario = scenario(jobs, phase_ms, hour, QUANTUM);
        let usable: Vec<PuIdx> = machine.all_pus().collect();
        let task = |job: u32, order: u32| Task {
            id: TaskId { job: colocate_evidence::JobIdx(job), order },
            name: String::new(),
            mix: colocate_model::Mix::default(),
            busy: None,
            ipc: None,
            instructions: None,
            phase: None,
        };
        let tasks: Vec<_> = (0..jobs).flat_map(|j| (0..4).map(move |o| task(j, o))).collect();
        let plan = PolicySpec::named(policy).plan(&Knowledge::default(), &machine, &usable, &tasks);
        let (ms, predictions) = cpu_ms(1, || {
            let mut host = SimHost::new(&platform, &scenario).expect("it makes sense");
            while host.go_on(&plan, QUANTUM).expect("no rule is broken") == QuantumEnd::Elapsed {}
            host.predictions()
        });
        println!(
            "{name}: {ms:.0} ms for {seconds} simulated seconds, {predictions} predictions; yardstick {:.2} steps/ns",
            yardstick()
        );
    }
}
