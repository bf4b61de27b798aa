//! The loop of a scheduler on a simulated machine: more jobs than PUs, chosen quantum by quantum.

use crate::common;

use colocate_engine::Round;
use colocate_machine::Nanos;
use colocate_model::Assumptions;
use colocate_policy::Place;
use colocate_policy::{Knowledge, PolicySpec, SoloProfile};
use colocate_sim::{JobSpec, Outcome, Platform, Scenario, SimulationOptions, simulate_with};
use common::{INT, MUL, STREAM, job, machine, ms, scenario};

/// Runs a scenario under a scheduler, with a look at every turn.
fn scheduled(
    scenario: &Scenario,
    kind: &PolicySpec,
    quantum: Nanos,
    look: &mut dyn FnMut(&Round<'_>),
) -> Outcome {
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let scenario = Scenario { quantum, ..scenario.clone() };
    let alone =
        vec![SoloProfile { seconds: 1.0, memory: 10.0, first_cache: Some(100.0), loss: 0.0 }; 16];
    let mut scheduler = kind.policy(&Knowledge { alone: &alone, ..Knowledge::default() });
    let options = SimulationOptions::each_quantum();
    simulate_with(&platform, &scenario, (&mut *scheduler, kind.name()), &options, look).unwrap()
}

/// Sixteen jobs for eight PUs, half of them on multiplications, some on the memory.
fn sixteen() -> Vec<JobSpec> {
    (0..16).map(|n| job("j", [INT, MUL, STREAM, INT][n % 4], 40 + 5 * n as u64)).collect()
}

#[test]
fn every_scheduler_completes_every_job() {
    for kind in colocate_policy::table::each_quantum() {
        let mut quanta = 0;
        let outcome = scheduled(&scenario(sixteen()), &kind, ms(10), &mut |turn| {
            quanta += 1;
            let runs = |d: &&colocate_policy::Decision| d.place != Place::Waiting;
            let running = turn.plan.decisions.iter().filter(runs).count();
            assert!(!kind.waits() || running <= 8, "{kind}: {running} run");
        });
        assert!(outcome.jobs.iter().all(|job| job.done.is_some()), "{kind}");
        assert!(quanta > 10, "{kind}: {quanta} quanta");
    }
}

/// Nine jobs of 100 ms on eight PUs, 10 ms a quantum: first come, first served, each waits in its turn, so all
/// end within two quanta of each other, though the kernel has nothing to say.
#[test]
fn slices_are_even() {
    let jobs = (0..9).map(|_| job("j", MUL, 100)).collect();
    let outcome =
        scheduled(&scenario(jobs), &PolicySpec::named("round-robin"), ms(10), &mut |_| ());
    let done: Vec<u64> = outcome.jobs.iter().map(|job| job.done.unwrap().0 / 1_000_000).collect();
    let (least, most) = (done.iter().min().unwrap(), done.iter().max().unwrap());
    assert!(most - least <= 20, "{done:?}");
}

/// What a scheduler gets to know of a job is what the model says it does: half an instruction a cycle beside one
/// like it, one alone.
#[test]
fn rates_are_the_models() {
    let jobs = vec![job("a", MUL, 100), job("b", MUL, 100), job("c", MUL, 50)];
    let mut seen = Vec::new();
    scheduled(&scenario(jobs), &PolicySpec::named("round-robin"), ms(10), &mut |turn| {
        let task = turn.seen.tasks.iter().find(|task| task.id.job.0 == 0).unwrap();
        seen.push((task.instructions.unwrap(), task.cycles.unwrap()));
    });
    let (instructions, cycles) = seen[0];
    assert!(instructions.abs_diff(10_000_000) <= 1 && cycles.abs_diff(10_000_000) <= 1, "{seen:?}");
}
