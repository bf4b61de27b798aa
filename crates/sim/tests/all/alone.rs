//! What the model says of jobs alone, beside the simulation of them alone.

use crate::common;

use colocate_machine::Nanos;
use colocate_model::Assumptions;
use colocate_policy::{PolicySpec, SoloProfile};
use colocate_sim::{
    Barrier, BarrierWait, JobSpec, PhaseIdx, PhaseSegment, Platform, Scenario, Serial,
    SimulationOptions, ThreadSpec, TotalWork, alone_of, simulate,
};
use common::{INT, MUL, STREAM, job, machine, ms, scenario, stretch, thread};

fn known(scenario: &Scenario) -> Vec<SoloProfile> {
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    alone_of(&platform, scenario).unwrap()
}

/// One after the other: additions, then reads of memory.
fn mixed(work: TotalWork) -> JobSpec {
    let mut thread = thread(&[stretch(INT, 30_000_000), stretch(STREAM, 5_000_000)]);
    thread.work = work;
    JobSpec { threads: vec![thread], ..job("mixed", INT, 1) }
}

#[test]
fn alone_is_as_simulated() {
    for work in [TotalWork::Once, TotalWork::Instructions(80_000_000), TotalWork::AloneFor(ms(200))]
    {
        let jobs = scenario(vec![mixed(work)]);
        let said = known(&jobs)[0];
        let (machine, performance) = machine(common::SMALL);
        let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
        let options = SimulationOptions { alone: true, ..SimulationOptions::each_quantum() };
        let found = simulate(&platform, &jobs, &PolicySpec::named("os"), &options).unwrap();
        let took = found.jobs[0].took().unwrap();
        assert_eq!(found.jobs[0].alone, Some(took));
        assert!((said.seconds / took.as_secs_f64() - 1.0).abs() < 0.01, "{work:?}: {said:?}");
        if work == TotalWork::Once {
            // Lines of 64 bytes, none written back.
            let lines = found.tasks[0].memory_bytes / 64.0 / 1e6 / took.as_secs_f64();
            assert!((said.memory / lines - 1.0).abs() < 1e-3, "{said:?}, {lines}");
        }
    }
}

/// What a job takes under the kernel alone is what is said beforehand.
fn check(job: JobSpec, took: Nanos) {
    let jobs = scenario(vec![job]);
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let options = SimulationOptions::each_quantum();
    let found = simulate(&platform, &jobs, &PolicySpec::named("os"), &options).unwrap();
    assert_eq!(found.jobs[0].took(), Some(took));
    let said = known(&jobs)[0].seconds;
    assert!((said - took.as_secs_f64()).abs() < 1e-6, "{said} s");
}

/// A millisecond of work and 99 of sleep: it is done with its work, whatever sleep would come then.
#[test]
fn no_thread_sleeps_when_the_work_is_done() {
    let naps = [PhaseSegment { sleep: ms(99), ..stretch(INT, 1_000_000) }];
    let job = |work| JobSpec {
        threads: vec![ThreadSpec { work, ..thread(&naps) }],
        ..job("naps", INT, 1)
    };
    check(job(TotalWork::Once), ms(1));
    check(job(TotalWork::Instructions(2_000_000)), ms(101));
    check(job(TotalWork::Instructions(2_500_000)), Nanos(200_500_000));
    check(job(TotalWork::AloneFor(ms(199))), ms(101));
}

/// Two threads of ten rounds of 10 ms. With the last one their work is done, so they meet nine times, and nine times
/// the first one does 5 ms alone. What it asks of the memory then counts for the time that it takes.
#[test]
fn serial_parts_count() {
    let round = PhaseSegment { barrier: true, ..stretch(INT, 10_000_000) };
    let member = ThreadSpec { work: TotalWork::Instructions(100_000_000), ..thread(&[round]) };
    let with = |serial| JobSpec {
        threads: vec![member.clone(); 2],
        barrier: Some(Barrier { wait: BarrierWait::Sleep, serial }),
        ..job("team", INT, 1)
    };
    let part = |phase, instructions| Some(Serial { phase: PhaseIdx(phase), instructions });
    check(with(None), ms(100));
    check(with(part(MUL, 5_000_000)), ms(145));
    let said =
        known(&scenario(vec![job("stream", STREAM, 1), with(part(STREAM, 500_000)), with(None)]));
    let serial = said[1].seconds - said[2].seconds;
    assert!(serial > 0.01, "{said:?}");
    let expected = said[0].memory * serial / said[1].seconds;
    assert!((said[1].memory / expected - 1.0).abs() < 1e-9, "{said:?}");
    let expected = said[0].loss * serial / (serial + 2.0 * said[2].seconds);
    assert!((said[1].loss / expected - 1.0).abs() < 1e-9, "{said:?}");
}

#[test]
fn streams_lose_more() {
    let said =
        known(&scenario(vec![job("i", INT, 10), mixed(TotalWork::Once), job("s", STREAM, 10)]));
    let loss = |job: usize| said[job].loss;
    assert!(loss(0).abs() < 1e-9 && loss(1) > 1e-5 && loss(2) > loss(1), "{said:?}");
    assert!(said[0].memory == 0.0 && said[1].memory < said[2].memory, "{said:?}");
}

/// Two threads ask for twice as much, for as long; their loss is a mean.
#[test]
fn threads_add_up() {
    let one = mixed(TotalWork::Once);
    let mut two = one.clone();
    two.threads.push(one.threads[0].clone());
    two.threads[1].born = Nanos::from_millis(5);
    let said = known(&scenario(vec![one, two]));
    assert!((said[1].memory / said[0].memory - 2.0).abs() < 1e-9, "{said:?}");
    assert!((said[1].seconds - said[0].seconds - 0.005).abs() < 1e-9, "{said:?}");
    assert!((said[1].loss - said[0].loss).abs() < 1e-12, "{said:?}");
}
