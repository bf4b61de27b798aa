//! A program with serial and parallel phases on one fast and one slow core, and the best that a scheduler can make of it.

use crate::common;

use colocate_engine::guard::{Guarding, QuantumGuard};
use colocate_machine::Nanos;
use colocate_model::Assumptions;
use colocate_policy::PolicySpec;
use colocate_sim::{
    Barrier, BarrierWait, JobSpec, KernelScheduler, PhaseIdx, PhaseSegment, Platform, Scenario,
    Serial, SimulationOptions, ThreadSpec, TotalWork, simulate_with,
};
use common::{INT, ms, scenario, stretch, thread};

/// A fast core of 2 GHz and a slow one of 1 GHz under one last-level cache.
const MACHINE: &str = r#"
version = 1
name = "one fast and one slow core"
[shape]
packages = 1
cores-per-package = 2
pus-per-core = 1
[numbering]
pus = "in-order"
[[cache]]
level = 1
kind = "data"
size = "48 KiB"
cores = 1
[[cache]]
level = 2
kind = "unified"
size = "2 MiB"
cores = 1
[[cache]]
level = 3
kind = "unified"
size = "32 MiB"
cores = 2
[[kind]]
name = "slow"
cores = "1"
capacity = 512
max-frequency = "1 GHz"
[[kind]]
name = "fast"
cores = "0"
capacity = 1024
max-frequency = "2 GHz"
[[performance.kind]]
name = "slow"
clock = "1 GHz"
slots-per-cycle = 4
branch-miss = "20 cycles"
divided = false
ports = ["i", "m", "a"]
units = [
    { work = "int", ports = ["i"] },
    { work = "int-mul", ports = ["m"] },
    { work = "load", ports = ["a"] },
]
[[performance.kind]]
name = "fast"
clock = "2 GHz"
slots-per-cycle = 4
branch-miss = "20 cycles"
divided = false
ports = ["i", "m", "a"]
units = [
    { work = "int", ports = ["i"] },
    { work = "int-mul", ports = ["m"] },
    { work = "load", ports = ["a"] },
]
[[performance.cache]]
level = 1
latency = "4 cycles"
[[performance.cache]]
level = 2
latency = "14 cycles"
inclusion = "neither"
[[performance.cache]]
level = 3
latency = "40 cycles"
inclusion = "neither"
[[performance.memory]]
latency = "100 ns"
bandwidth = "64 GB/s"
line = "64 B"
"#;

/// What the fast core does in so many milliseconds.
const fn fast_ms(ms: u64) -> u64 {
    ms * 2_000_000
}

/// Milliseconds of a serial and of a parallel phase on fast cores, and how many pairs there are: the shorter kind has 200 ms, the
/// whole about 4 s.
fn pair(percent: u64) -> (u64, u64, u64) {
    let shorter = percent.min(100 - percent);
    let pair = if percent == 0 { 200 } else { 200 * 100 / shorter };
    let serial = pair * percent / 100;
    (serial, pair - serial, (4000 / pair).max(1))
}

/// Two threads, of which the first does serial phases alone, as workloads/serial does them: percent of the time where both cores are
/// fast.
fn program(percent: u64) -> Scenario {
    let (serial, parallel, pairs) = pair(percent);
    let round = PhaseSegment { barrier: true, ..stretch(INT, fast_ms(parallel)) };
    let work = TotalWork::Instructions(pairs * fast_ms(parallel));
    let member = ThreadSpec { work, ..thread(&[round]) };
    let serial =
        (serial > 0).then(|| Serial { phase: PhaseIdx(INT), instructions: fast_ms(serial) });
    let job = JobSpec {
        memory: Vec::new(),
        name: "serial".into(),
        arrives: Nanos::ZERO,
        threads: vec![member; 2],
        barrier: Some(Barrier { wait: BarrierWait::Sleep, serial }),
    };
    let mut scenario = Scenario { kernel: KernelScheduler::default(), ..scenario(vec![job]) };
    for phase in &mut scenario.phases {
        phase.phase.dependent_cycles = colocate_model::phase::Known::new(1.0, "made up for a test");
    }
    scenario
}

/// How long it takes under a scheduler, in milliseconds, and how many moves that took; with `guarded:` before its name, under a
/// guard.
fn lasts(percent: u64, quantum: u64, seed: u64, name: &str) -> (f64, u64) {
    let (machine, performance) = common::machine(MACHINE);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let scenario = Scenario { seed, quantum: ms(quantum), ..program(percent) };
    let unguarded = name.strip_prefix("guarded:");
    let kind: PolicySpec = unguarded.unwrap_or(name).parse().unwrap();
    let mut scheduler = kind.plain();
    if unguarded.is_some() {
        scheduler = Box::new(QuantumGuard::new(scheduler, kind.name(), Guarding::default()));
    }
    let options = SimulationOptions::each_quantum();
    let outcome =
        simulate_with(&platform, &scenario, (&mut *scheduler, name), &options, &mut |_| ())
            .unwrap();
    let moves = outcome.tasks.iter().map(|task| u64::from(task.moves.same_cache)).sum();
    (outcome.lasted.as_secs_f64() * 1000.0, moves)
}

/// The best there is: serial phases on the fast core, parallel ones on both with equal shares, at no cost. There is none after the
/// last parallel phase.
fn best(percent: u64) -> f64 {
    let (serial, parallel, pairs) = pair(percent);
    ((pairs - 1) * serial) as f64 + (pairs * parallel) as f64 * 2.0 / 1.5
}

/// The part of the best gain over `os` that a scheduler has, as logarithms, in the mean over seeds; what both gain, percent; and its
/// moves.
pub fn share(percent: u64, quantum: u64, seeds: u64, kind: &str) -> (f64, [f64; 2], f64) {
    let (mut ours, mut os, mut moved) = (0.0, 0.0, 0);
    for seed in 0..seeds {
        let (time, moves) = lasts(percent, quantum, seed, kind);
        ours += time.ln() / seeds as f64;
        moved += moves;
        os += lasts(percent, quantum, seed, "os").0.ln() / seeds as f64;
    }
    let best = best(percent).ln() - os;
    let gains = [ours - os, best].map(|change| -change.exp_m1() * 100.0);
    ((ours - os) / best, gains, moved as f64 / seeds as f64)
}
