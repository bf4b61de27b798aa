//! Symbiotic scheduling on a simulated machine: stacks from the simulator, and what they are good for.

use crate::common;

use colocate_machine::Nanos;
use colocate_model::Assumptions;
use colocate_policy::PolicySpec;
use colocate_sim::{Outcome, Platform, Scenario, SimulationOptions, simulate};
use common::{INT, STREAM, job, machine, ms, scenario};

/// As many programs as PUs, half of which stream: in order, and core by core, siblings are alike.
fn eight() -> Scenario {
    let phases = [STREAM, STREAM, INT, INT, STREAM, STREAM, INT, INT];
    let jobs = phases.map(|phase| job("j", phase, if phase == STREAM { 10 } else { 100 })).to_vec();
    Scenario { quantum: ms(5), ..scenario(jobs) }
}

fn under(scenario: &Scenario, policy: &str) -> Outcome {
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let kind: PolicySpec = policy.parse().unwrap();
    simulate(&platform, scenario, &kind, &SimulationOptions::each_quantum()).unwrap()
}

/// For how long streams shared a core with streams, all pairs added up.
fn streams_together(outcome: &Outcome) -> f64 {
    let streams = [0, 1, 4, 5];
    let pairs = streams.iter().flat_map(|&a| streams.iter().map(move |&b| (a, b)));
    pairs.filter(|(a, b)| a < b).map(|(a, b)| outcome.together.seconds(a, b)).sum()
}

fn last(outcome: &Outcome) -> Nanos {
    outcome.jobs.iter().map(|job| job.done.unwrap()).max().unwrap()
}

/// After some quanta, in which they show their stacks, streams are beside programs that compute; on this machine
/// that is also what the oracle would do.
#[test]
fn streams_are_parted() {
    let scenario = eight();
    let in_turn = streams_together(&under(&scenario, "round-robin"));
    assert!(in_turn > 0.1, "round-robin: streams shared cores for {in_turn} s");
    for policy in ["symbiotic", "symbiotic-numa:away=0", "oracle"] {
        let found = under(&scenario, policy);
        let together = streams_together(&found);
        assert!(together <= 0.030, "{policy}: streams shared cores for {together} s");
    }
}

/// No job waits for good neighbours: all jobs end, and none long after the others.
#[test]
fn more_jobs_than_contexts_all_end() {
    let mut scenario = eight();
    scenario.jobs.extend(eight().jobs);
    for policy in ["symbiotic", "symbiotic-numa", "oracle", "symbiotic:cost=antt:gain=0"] {
        let found = under(&scenario, policy);
        let in_turn = under(&scenario, "round-robin");
        assert!(last(&found) <= in_turn_and_a_fifth(&in_turn), "{policy}: {:?}", last(&found));
    }
}

fn in_turn_and_a_fifth(outcome: &Outcome) -> Nanos {
    Nanos(last(outcome).0 * 6 / 5)
}
