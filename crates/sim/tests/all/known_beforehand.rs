//! What policies get to know of jobs: beforehand, and while they are watched.

use crate::common;

use colocate_engine::{Host, Request};
use colocate_evidence::{JobIdx, SeenTask, Source};
use colocate_machine::{Nanos, PuNr};
use colocate_model::Assumptions;
use colocate_policy::Place;
use colocate_sim::run::knowns;
use colocate_sim::{JobSpec, PhaseSegment, Platform, Scenario, SimHost, ThreadSpec, TotalWork};
use common::{INT, STREAM, job, machine, ms, placed, scenario, stretch, thread};

/// What is seen after some time of jobs that are all watched and pinned to one PU.
fn watched(jobs: &Scenario, time: Nanos) -> Vec<SeenTask> {
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let mut host = SimHost::new(&platform, jobs).unwrap();
    let all: Vec<JobIdx> = (0..).map(JobIdx).take(jobs.jobs.len()).collect();
    host.request(&[Request { source: Source::Mix, jobs: &all }]);
    let places = vec![Place::Pu(PuNr(0)); jobs.jobs.len()];
    host.run_quantum(&placed(&places), time).unwrap().tasks
}

/// 15 ms of additions, and 3 ms of reads that mostly wait for memory: few of all instructions are reads.
#[test]
fn a_mix_is_of_all_that_was_done() {
    let course = [stretch(INT, 15_000_000), stretch(STREAM, 5_000_000)];
    let mixed = JobSpec { threads: vec![thread(&course)], ..job("mixed", INT, 1) };
    let seen = watched(&scenario(vec![mixed]), ms(18)).remove(0);
    let all = seen.instructions.unwrap() as f64;
    let reads = all - 15e6;
    let shares = [seen.known_mix().load, seen.known_mix().int].map(|share| share.unwrap().get());
    assert!((1e5..5e5).contains(&reads), "{reads}");
    assert!((shares[0] - reads / all).abs() < 1e-6, "{shares:?}");
    assert!((shares[1] - 15e6 / all).abs() < 1e-6, "{shares:?}");
}

/// Two jobs on one PU for a millisecond: the one that waits has done nothing yet.
#[test]
fn a_job_that_has_done_nothing_shows_nothing() {
    let seen = watched(&scenario(vec![job("a", INT, 10), job("b", STREAM, 10)]), ms(1));
    assert_eq!(seen[0].known_mix().int.map(|share| share.get()), Some(1.0));
    assert_eq!(seen[1].mix, None);
}

/// A millisecond of work and 99 of sleep, 1000 times with the last sleep left out: busy for 1 s of 99.901.
#[test]
fn a_profile_shows_sleep() {
    let naps = [PhaseSegment { sleep: ms(99), ..stretch(INT, 1_000_000) }];
    let thousand = TotalWork::Instructions(1_000_000_000);
    let late = ThreadSpec { born: Nanos::from_secs(500), work: thousand, ..thread(&naps) };
    let often = ThreadSpec { work: thousand, ..thread(&naps) };
    let threads = vec![often, late, thread(&naps), thread(&[stretch(INT, 1_000_000)])];
    let jobs = scenario(vec![JobSpec { threads, ..job("naps", INT, 1) }]);
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let profile = knowns(&platform, &jobs, true).unwrap().remove(0).profile.unwrap();
    let times = profile.threads.iter().map(|thread| thread.cpu_time_ns.map(Nanos::as_secs_f64));
    let times: Vec<Option<f64>> = times.collect();
    // Of the 1000 s until the horizon, and of the 500 of the one that is created late.
    let near = |time: Option<f64>, expected: f64| (time.unwrap() - expected).abs() < 1e-6;
    assert!(near(times[0], 1000.0 / 99.901) && near(times[1], 500.0 / 99.901), "{times:?}");
    // Once through it there is no sleep.
    assert_eq!(times[2..], [None, None]);
}
