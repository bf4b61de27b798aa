//! Jobs that a plan has wait and that fill idle PUs. Letters are jobs, lines PUs, as in `schedules.rs`.

use crate::common;

use colocate_engine::{Host, Meanwhile};
use colocate_evidence::PlacementStatus;
use colocate_machine::{Nanos, PuNr};
use colocate_model::Assumptions;
use colocate_policy::schedule::{Allocated, Selected};
use colocate_policy::{Place, PlaceReason, Plan};
use colocate_sim::{JobSpec, Outcome, PhaseSegment, Platform, Scenario, SimHost};
use common::{INT, job, machine, ms, picture, placed, scenario, stretch, thread};
use expect_test::expect;
use proptest::prelude::*;

const W: Place = Place::Waiting;
/// The weight of a filler, and of all others.
const FILLER: f64 = 3.0 / 1027.0;
const SLICE: Nanos = Nanos::from_millis(3);

fn on(pu: u32) -> Place {
    Place::Pu(PuNr(pu))
}

/// One plan after the other for so long each.
fn follow(scenario: &Scenario, meanwhile: Meanwhile, plans: &[(Plan, Nanos)]) -> Outcome {
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let mut host = SimHost::new(&platform, scenario).unwrap();
    host.meanwhile(meanwhile);
    host.record(10_000);
    for (plan, time) in plans {
        let until = host.now() + *time;
        while !host.is_over() && host.now() < until {
            host.go_on(plan, until - host.now()).unwrap();
        }
    }
    host.outcome()
}

/// Works and sleeps for so many milliseconds each, for so much work in all.
fn naps(name: &str, works: u64, sleeps: u64, times: u64) -> JobSpec {
    let each = PhaseSegment { sleep: ms(sleeps), ..stretch(INT, works * 1_000_000) };
    let each = vec![each; usize::try_from(times).unwrap()];
    JobSpec { threads: vec![thread(&each)], ..job(name, INT, 0) }
}

/// These PUs only, one of each core.
fn only(pus: &[u32], jobs: Vec<JobSpec>) -> Scenario {
    Scenario { usable: Some(pus.iter().map(|&pu| PuNr(pu)).collect()), ..scenario(jobs) }
}

/// A works and sleeps 10 ms each on PU 0, C computes on PU 2. B, which has run before for 10 ms, uses PU 0 whenever A
/// sleeps; where it is stopped none does. Both come to PU 0 at 10 ms, so B gets one slice after A's first, from 13 to 16 ms,
/// in which the picture looks; then it has had its part for a second.
#[test]
fn idle_pus_are_filled() {
    let jobs = || vec![naps("a", 10, 10, 4), job("b", INT, 90), job("c", INT, 500)];
    let plans = [(placed(&[W, on(0), W]), ms(10)), (placed(&[on(0), W, on(2)]), ms(80))];
    let filled = follow(&only(&[0, 2], jobs()), Meanwhile::Fill, &plans);
    expect![[r#"
        0 BBBABABAB
        1 _________
        2 _CCCCCCCC
    "#]]
    .assert_eq(&picture(&filled, 3, ms(10)));
    let stopped = follow(&only(&[0, 2], jobs()), Meanwhile::Stop, &plans);
    expect![[r#"
        0 BA_A_A_A_
        1 _________
        2 _CCCCCCCC
    "#]]
    .assert_eq(&picture(&stopped, 3, ms(10)));
}

/// Two that compute share a PU for two seconds, one of them fills it: 3 of 1,027 parts, within a slice.
#[test]
fn a_filler_gets_its_weight() {
    let jobs = vec![job("a", INT, 5000), job("b", INT, 5000)];
    let plans = [(placed(&[W, on(0)]), ms(10)), (placed(&[on(0), W]), ms(2000))];
    let outcome = follow(&only(&[0], jobs), Meanwhile::Fill, &plans);
    let [a, b] = [0, 1].map(|task: usize| outcome.tasks[task].ran);
    assert_eq!(a + b, ms(2010));
    let filled = (b - ms(10)).as_secs_f64();
    assert!((filled - 2.0 * FILLER).abs() <= SLICE.as_secs_f64(), "{filled}");
}

/// It is seen to wait, though it runs; what has never run is stopped, and so are all in a quantum that measures. A gets
/// PU 0 from B, which goes to the sibling when idle PUs are looked for, 2 ms later.
#[test]
fn which_jobs_fill() {
    let jobs = vec![job("a", INT, 100), job("b", INT, 100), job("c", INT, 100)];
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let jobs = scenario(jobs);
    let mut host = SimHost::new(&platform, &jobs).unwrap();
    host.meanwhile(Meanwhile::Fill);
    host.run_quantum(&placed(&[W, on(0), W]), ms(10)).unwrap();
    let mut plan = placed(&[on(0), W, W]);
    let ran =
        |host: &mut SimHost<'_>, plan: &Plan| {
            let seen = host.run_quantum(plan, ms(10)).unwrap().tasks;
            assert!(seen[1..].iter().all(|task| task.status == PlacementStatus::Waiting
                && task.target == Place::LeftToKernel));
            [0, 1, 2].map(|task: usize| seen[task].cpu_time.unwrap())
        };
    assert_eq!(ran(&mut host, &plan), [ms(10), ms(18), ms(0)]);
    let (selected, allocated) = (Selected::Estimated, Allocated::OwnCores);
    plan.decisions[0].why = PlaceReason::Chosen { selected, allocated };
    assert_eq!(ran(&mut host, &plan), [ms(20), ms(18), ms(0)]);
}

proptest! {
    /// A job that was chosen, one a PU, on cores of its own, waits for its PU no longer than a filler's part of the time, and a
    /// slice each time that a filler comes to the PU; and all PUs are used all the time, since there are fillers enough.
    #[test]
    fn little_is_taken(
        chosen in prop::collection::vec((1..30_u64, 1..30_u64), 1..4),
        fillers in 4..7_usize,
        seed in 0..1000_u64,
    ) {
        let pus: Vec<u32> = (0..4).take(chosen.len()).map(|core| 2 * core).collect();
        let mut jobs: Vec<JobSpec> =
            chosen.iter().map(|(works, sleeps)| naps("chosen", *works, *sleeps, 1000)).collect();
        jobs.extend((0..fillers).map(|_| job("filler", INT, 10_000)));
        let scenario = Scenario { seed, ..only(&pus, jobs) };
        let begin = |first: usize| {
            let place = |job: usize| if job < first { W } else { Place::LeftToKernel };
            placed(&(0..chosen.len() + fillers).map(place).collect::<Vec<_>>())
        };
        let places: Vec<Place> =
            pus.iter().map(|&pu| on(pu)).chain((0..fillers).map(|_| W)).collect();
        let plans = [(begin(chosen.len()), ms(30)), (placed(&places), ms(1000))];
        let outcome = follow(&scenario, Meanwhile::Fill, &plans);
        let (chosen, fillers) = outcome.tasks.split_at(chosen.len());
        let used = outcome.tasks.iter().fold(Nanos::ZERO, |sum, task| sum + task.ran);
        prop_assert_eq!(used, Nanos(pus.len() as u64 * ms(1030).0));
        let came: u64 = fillers.iter().map(|task| u64::from(task.moves.total())).sum();
        // A quantum's beginning is such a coming, too.
        let most = FILLER + SLICE.as_secs_f64() * (came + fillers.len() as u64) as f64;
        for task in chosen {
            // Before the first plan it was stopped, which counts as waiting.
            let waited = (task.waited - ms(30)).as_secs_f64();
            prop_assert!(waited <= most, "{waited} of at most {most}");
        }
    }
}
