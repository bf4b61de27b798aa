//! What the model says of jobs alone, beside the simulation of them alone.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod common;

use colocate_machine::Nanos;
use colocate_model::Assumptions;
use colocate_policy::schedule::{Alone, SchedulerKind};
use colocate_sim::{JobSpec, Platform, Scenario, ScheduleOptions, Work, alone_of, schedule};
use common::{INT, STREAM, job, machine, ms, scenario, stretch, thread};

fn known(scenario: &Scenario) -> Vec<Alone> {
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    alone_of(&platform, scenario).unwrap()
}

/// One after the other: additions, then reads of memory.
fn mixed(work: Work) -> JobSpec {
    let mut thread = thread(&[stretch(INT, 30_000_000), stretch(STREAM, 5_000_000)]);
    thread.work = work;
    JobSpec { threads: vec![thread], ..job("mixed", INT, 1) }
}

#[test]
fn alone_is_as_simulated() {
    for work in [Work::Once, Work::Instructions(80_000_000), Work::AloneFor(ms(200))] {
        let jobs = scenario(vec![mixed(work)]);
        let said = known(&jobs)[0];
        let (machine, performance) = machine(common::SMALL);
        let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
        let options = ScheduleOptions { times_alone: true, ..ScheduleOptions::default() };
        let found = schedule(&platform, &jobs, SchedulerKind::Os, &options).unwrap();
        let took = found.jobs[0].took().unwrap();
        assert_eq!(found.jobs[0].alone, Some(took));
        assert!((said.seconds / took.as_secs_f64() - 1.0).abs() < 0.01, "{work:?}: {said:?}");
        if work == Work::Once {
            // Lines of 64 bytes, none written back.
            let lines = found.tasks[0].memory_bytes / 64.0 / 1e6 / took.as_secs_f64();
            assert!((said.memory / lines - 1.0).abs() < 1e-3, "{said:?}, {lines}");
        }
    }
}

#[test]
fn streams_lose_more() {
    let said = known(&scenario(vec![job("i", INT, 10), mixed(Work::Once), job("s", STREAM, 10)]));
    let loss = |job: usize| said[job].loss;
    assert!(loss(0).abs() < 1e-9 && loss(1) > 1e-5 && loss(2) > loss(1), "{said:?}");
    assert!(said[0].memory == 0.0 && said[1].memory < said[2].memory, "{said:?}");
}

/// Two threads ask for twice as much, for as long; their loss is a mean.
#[test]
fn threads_add_up() {
    let one = mixed(Work::Once);
    let mut two = one.clone();
    two.threads.push(one.threads[0].clone());
    two.threads[1].born = Nanos::from_millis(5);
    let said = known(&scenario(vec![one, two]));
    assert!((said[1].memory / said[0].memory - 2.0).abs() < 1e-9, "{said:?}");
    assert!((said[1].seconds - said[0].seconds - 0.005).abs() < 1e-9, "{said:?}");
    assert!((said[1].loss - said[0].loss).abs() < 1e-12, "{said:?}");
}
