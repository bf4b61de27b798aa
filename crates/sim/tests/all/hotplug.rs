//! PUs that go offline and come back. Letters are jobs, lines PUs, as in `schedules.rs`.

use crate::common;

use colocate_engine::Host;
use colocate_evidence::{PlacementStatus, QuantumEnd};
use colocate_machine::{Nanos, PuNr, SharedPart};
use colocate_model::Assumptions;
use colocate_policy::Place;
use colocate_sim::{KernelScheduler, Platform, PuEvent, Scenario, SimHost};
use common::{MUL, job, machine, ms, picture, placed, run, scenario, together};
use expect_test::expect;

fn event(at: u64, pu: u32, online: bool) -> PuEvent {
    PuEvent { at: ms(at), pu: PuNr(pu), online }
}

fn with(events: &[PuEvent], jobs: u32) -> Scenario {
    let jobs = (0..jobs).map(|_| job("j", MUL, 40)).collect();
    Scenario { events: events.to_vec(), ..scenario(jobs) }
}

/// A's PU goes at 10 ms. It is pinned nowhere else, so it is free, and goes to the first PU of the node, where B
/// runs. Nothing balances, so both take turns, until the PU is back and a new plan has A there again.
#[test]
fn tasks_of_a_lost_pu_go_to_the_node() {
    let kernel = KernelScheduler { idle_balance: false, periodic_balance: None, ..together() };
    let jobs = with(&[event(10, 2, false), event(22, 2, true)], 2);
    let jobs = Scenario { kernel, ..jobs };
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let mut host = SimHost::new(&platform, &jobs).unwrap();
    host.record(100);
    let plan = placed(&[Place::Pu(PuNr(2)), Place::Pu(PuNr(0))]);
    let seen = host.run_quantum(&plan, ms(100)).unwrap();
    assert_eq!((seen.end, seen.at), (QuantumEnd::MachineChanged, ms(10)));
    assert!(!host.usable().contains(&PuNr(2)) && host.usable().len() == 7);
    assert_eq!(seen.tasks[0].last_ran, Some(PuNr(0)));
    assert_eq!(
        seen.tasks[0].status,
        PlacementStatus::Trouble("its place cpu2 has gone offline".into())
    );
    let seen = host.run_quantum(&plan, ms(100)).unwrap();
    assert_eq!((seen.end, seen.at), (QuantumEnd::MachineChanged, ms(22)));
    assert_eq!(host.usable().len(), 8);
    while !host.is_over() {
        host.go_on(&plan, ms(100)).unwrap();
    }
    // From 10 on turns of 3 ms. B's first was over at 3 ms, so A, whose number is lower, begins at once. Both have
    // had 16 of their 40 ms at 22.
    expect![[r#"
        0 BBBBBBBBBBAAABBBAAABBBBBBBBBBBBBBBBBBBBBBBBBBB_
        1 _______________________________________________
        2 AAAAAAAAAA____________AAAAAAAAAAAAAAAAAAAAAAAA_
    "#]]
    .assert_eq(&picture(&host.outcome(), 3, ms(1)));
}

/// A and B share the core of PU 2. Its other PU goes at 10 ms and is back at 30: both take turns on what is left.
#[test]
fn tasks_of_a_part_stay_on_what_is_left_of_it() {
    let jobs = with(&[event(10, 3, false), event(30, 3, true)], 2);
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let mut host = SimHost::new(&platform, &jobs).unwrap();
    let plan = placed(&[Place::Sharing(SharedPart::Core, PuNr(2)); 2]);
    let mut seen = Vec::new();
    for _ in 0..8 {
        let quantum = host.run_quantum(&plan, ms(5)).unwrap();
        let mut ran: Vec<u32> = quantum.tasks.iter().map(|task| task.last_ran.unwrap().0).collect();
        ran.sort_unstable();
        seen.push((ran, quantum.tasks[0].allowed.to_vec()));
    }
    let both = (vec![2, 3], vec![PuNr(2), PuNr(3)]);
    let one = (vec![2, 2], vec![PuNr(2)]);
    // At 5, 15, 20, 25, 35 and 40 ms.
    let expected = [&both, &one, &one, &one, &both, &both];
    assert_eq!([0, 2, 3, 4, 6, 7].map(|at: usize| &seen[at]), expected);
}

/// Of eight tasks on eight PUs those of the PUs that go are spread by the kernel's balancing: no task runs on what is
/// offline, which every step checks, and all work is done.
#[test]
fn every_task_finds_room() {
    let gone: Vec<PuEvent> = (0..6).map(|pu| event(u64::from(pu) * 5, pu, false)).collect();
    for policy in ["os", "scatter", "round-robin"] {
        let outcome = run(&with(&gone, 8), policy);
        assert!(outcome.complete, "{policy}");
        let on = |pu: u32, from: Nanos| {
            outcome.spans.iter().any(|span| span.pu.0 == pu && span.to > from)
        };
        assert!((0..6).all(|pu| !on(pu, ms(u64::from(pu) * 5))), "{policy}");
    }
}

#[test]
fn events_that_make_no_sense_are_refused() {
    let refusal = |events: &[PuEvent]| {
        let (machine, performance) = machine(common::SMALL);
        let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
        let scenario = Scenario { usable: Some(vec![PuNr(0), PuNr(1)]), ..with(events, 1) };
        SimHost::new(&platform, &scenario).unwrap_err().to_string()
    };
    let said = [
        refusal(&[event(5, 1, false), event(9, 0, false)]),
        refusal(&[event(5, 1, true)]),
        refusal(&[event(9, 1, false), event(5, 1, false)]),
        refusal(&[event(5, 2, false)]),
        refusal(&[event(5, 9, false)]),
    ];
    expect![[r#"
        event of cpu0 at 9.0 ms: expected a PU that is left, found none
        event of cpu1 at 5.0 ms: expected a PU that is offline, found one that is not
        event of cpu1 at 9.0 ms: expected a PU that is online, found one that is not
        event of cpu2 at 5.0 ms: expected a PU that the jobs may use, found another one
        event of cpu9 at 5.0 ms: expected a PU that the jobs may use, found another one
    "#]]
    .assert_eq(&(said.join("\n") + "\n"));
}
