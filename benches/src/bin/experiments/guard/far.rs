//! How much memory is far in a guarded workload, and how regular turns meet with the kernel's regular looks at it.

use super::cases::Case;
use super::runs::OTHER_LUCK;
use super::under::Under;
use colocate_engine::guard::{Guarding, QuantumGuard};
use colocate_machine::Nanos;
use colocate_policy::{Policy, PolicySpec};
use colocate_sim::{Scenario, SimulationOptions, TaskOutcome, simulate_with};
use std::fmt::Write as _;

/// Changed rules of the experiment: name and change.
type Change = (&'static str, fn(&mut Scenario));

/// The kernel's looks at memory are a second apart, 20 quanta of 50 ms.
const CHANGES: [Change; 7] = [
    ("as it is", |_| ()),
    ("quanta of 47 ms", |it| it.quantum = Nanos::from_millis(47)),
    ("quanta of 49 ms", |it| it.quantum = Nanos::from_millis(49)),
    ("quanta of 53 ms", |it| it.quantum = Nanos::from_millis(53)),
    ("a look each 0.97 s", |it| look_every(it, 970)),
    ("a look each 1.37 s", |it| look_every(it, 1370)),
    ("memory stays", |it| it.kernel.numa_balancing = None),
];

fn look_every(scenario: &mut Scenario, milliseconds: u64) {
    if let Some(balancing) = &mut scenario.kernel.numa_balancing {
        balancing.period = Nanos::from_millis(milliseconds);
    }
}

/// Turnaround in seconds, and the part of the instructions that were run on another node than the memory.
fn run(case: &Case, scenario: &Scenario, scheduler: &mut dyn Policy) -> (f64, f64) {
    let options = SimulationOptions::each_quantum();
    let named = (scheduler, "test");
    let outcome = simulate_with(&case.platform(), scenario, named, &options, &mut |_| ()).unwrap();
    let sum = |of: fn(&TaskOutcome) -> f64| outcome.tasks.iter().map(of).sum::<f64>();
    let far = sum(|task| task.far_instructions) / sum(|task| task.instructions);
    (outcome.turnaround().unwrap().as_secs_f64(), far)
}

/// One run with each change: the effect of the guarded scheduler, and how much is far, both in %.
pub fn table(case: &Case, under: Under) -> String {
    let mut text = String::new();
    for (name, change) in CHANGES {
        let mut scenario = case.scenario.clone();
        change(&mut scenario);
        let (kernel, _) = run(case, &scenario, &mut *PolicySpec::named("os").plain());
        scenario.seed ^= OTHER_LUCK;
        let inner = under.scheduler(&case.platform(), &scenario);
        let mut guard = QuantumGuard::new(inner, &under.name(), Guarding::default());
        let (seconds, far) = run(case, &scenario, &mut guard);
        let effect = 100.0 * (seconds / kernel - 1.0);
        let state = guard.state();
        let _ = writeln!(text, "{name:20} {effect:+6.2} {:6.1} | {state}", 100.0 * far);
    }
    text
}
