//! A part of the machine that is full beside one that is empty.

use crate::common;

use colocate_machine::Nanos;
use colocate_sim::{Fork, JobSpec, KernelScheduler, Scenario};
use common::{INT, run, scenario, stretch, thread, together};

/// Four threads start on the four PUs of one socket and never wait, so only the periodic look can help: of
/// both sockets, every 8 ms, the fifth moves a running thread, and then there are 3 against 1, so another.
#[test]
fn a_full_socket_gives_to_an_empty_one() {
    let fork = Fork::Idlest { reclaim_distance: 10 };
    let kernel = KernelScheduler { fork, numa_balancing: None, ..together() };
    let job = JobSpec {
        memory: Vec::new(),
        name: "four".into(),
        arrives: Nanos::ZERO,
        threads: vec![thread(&[stretch(INT, 500_000_000)]); 4],
        barrier: None,
    };
    let outcome = run(&Scenario { kernel, ..scenario(vec![job]) }, "os");
    let away: u32 = outcome.tasks.iter().map(|task| task.moves.other_node).sum();
    assert_eq!(away, 2, "{:?}", outcome.tasks);
}
