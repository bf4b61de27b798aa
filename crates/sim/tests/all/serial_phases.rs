//! Programs with serial parts on fast and slow cores: what `parallelism-aware` makes of them, beside `os`.

use crate::common;

use colocate_machine::Nanos;
use colocate_model::Assumptions;
use colocate_policy::PolicySpec;
use colocate_sim::{
    Barrier, BarrierWait, JobSpec, KernelScheduler, PhaseIdx, PhaseSegment, Platform, Scenario,
    Serial, SimulationOptions, ThreadSpec, TotalWork, simulate,
};
use common::{INT, ms, scenario, stretch, thread};

/// Four fast cores of 2.3 GHz, twelve slow ones of 1.15 GHz; one fast and three slow ones in each domain.
const MACHINE: &str = include_str!("../../../../machines/amp-4x12.toml");

/// What a slow core does in so many milliseconds: one addition waits for the next, so one a cycle.
const fn slow_ms(ms: u64) -> u64 {
    ms * 1_150_000
}

/// A round is `parallel` ms of all 16 threads on slow cores and `serial` ms of the first one there, ten times.
fn fork_join(parallel: u64, serial: u64, wait: BarrierWait) -> Scenario {
    let round = PhaseSegment { barrier: true, ..stretch(INT, slow_ms(parallel)) };
    let work = TotalWork::Instructions(10 * slow_ms(parallel));
    let member = ThreadSpec { work, ..thread(&[round]) };
    let serial =
        (serial > 0).then(|| Serial { phase: PhaseIdx(INT), instructions: slow_ms(serial) });
    let job = JobSpec {
        memory: Vec::new(),
        name: "fork-join".into(),
        arrives: Nanos::ZERO,
        threads: vec![member; 16],
        barrier: Some(Barrier { wait, serial }),
    };
    let mut scenario =
        Scenario { quantum: ms(10), kernel: KernelScheduler::default(), ..scenario(vec![job]) };
    // Each addition waits for the one before it, whatever the width of the core.
    for phase in &mut scenario.phases {
        phase.phase.dependent_cycles = colocate_model::phase::Known::new(1.0, "made up for a test");
    }
    scenario
}

/// How long it takes under a scheduler, in milliseconds.
fn lasts(scenario: &Scenario, seed: u64, kind: &str) -> f64 {
    let (machine, performance) = common::machine(MACHINE);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let scenario = Scenario { seed, ..scenario.clone() };
    let kind: PolicySpec = kind.parse().unwrap();
    let outcome =
        simulate(&platform, &scenario, &kind, &SimulationOptions::each_quantum()).unwrap();
    outcome.lasted.as_secs_f64() * 1000.0
}

/// Ten rounds of 100 ms, and between them nine serial parts of 100 ms on a slow core or 50 on a fast one, in quanta of 10 ms
/// and of 7.
///
/// The kernel leaves the first thread where it was created. On a slow core `os` takes 10 · 100 + 9 · 100 = 1900 ms, on a fast one
/// 10 · 100 + 9 · 50 = 1450, since the parallel parts take as long as their slowest threads. `parallelism-aware` takes 1450 either way,
/// and what the first serial part does on the slow core before it is seen: at most two quanta, of which half is lost. After that
/// the kernel leaves the thread on its fast core, where the next serial part finds it. That is 1.31 times faster than `os`, with
/// a serial share of 47 %.
#[test]
fn serial_parts_are_twice_as_fast() {
    for wait in [BarrierWait::Sleep, BarrierWait::Spin(PhaseIdx(INT))] {
        let (mut slow, mut fast) = (0, 0);
        for (seed, quantum) in (0..8).flat_map(|seed| [(seed, 10), (seed, 7)]) {
            let scenario = Scenario { quantum: ms(quantum), ..fork_join(100, 100, wait) };
            let os = lasts(&scenario, seed, "os");
            let ours = lasts(&scenario, seed, "parallelism-aware:spare=no");
            slow += u32::from((os - 1900.0).abs() < 0.1);
            fast += u32::from((os - 1450.0).abs() < 0.1);
            let lost = ours - 1450.0;
            let delay = 2.0 * quantum as f64 / 2.0;
            assert!((-0.1..=delay + 0.1).contains(&lost), "{wait:?} {seed} {quantum}: {ours}");
        }
        // A quarter of the cores is fast.
        assert!(slow + fast == 16 && slow > 2 * fast, "{slow} on slow cores, {fast} on fast ones");
    }
}

/// A thread that is on a fast core for a quarter of the time does in 80 ms what takes a slow one 100, and refills cost some of
/// that: ten rounds take 800 ms at best, and 1000 under the kernel, where each waits for its slow ones.
#[test]
fn fast_cores_go_round() {
    for seed in 0..4 {
        let scenario = Scenario { quantum: ms(5), ..fork_join(100, 0, BarrierWait::Sleep) };
        let ours = lasts(&scenario, seed, "parallelism-aware");
        assert!((800.0..880.0).contains(&ours), "{ours}");
    }
}

/// Without that there is nothing to be gained and nothing lost: without serial parts it is the kernel's run to the nanosecond.
#[test]
fn parallel_programs_run_as_under_os() {
    for seed in 0..4 {
        let scenario = fork_join(100, 0, BarrierWait::Sleep);
        let [os, ours] =
            ["os", "parallelism-aware:spare=no"].map(|kind| lasts(&scenario, seed, kind));
        assert!((os - 1000.0).abs() < 0.1 && ours.to_bits() == os.to_bits(), "{os} {ours}");
    }
}
