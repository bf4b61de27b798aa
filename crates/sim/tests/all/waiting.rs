//! Jobs that a plan has wait. Letters are jobs, lines PUs, as in `schedules.rs`.

use crate::common;

use colocate_engine::Host;
use colocate_evidence::PlacementStatus;
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Nanos, PuNr};
use colocate_model::phase::Known;
use colocate_model::{Assumptions, MissCurve};
use colocate_policy::{Place, Plan};
use colocate_sim::{JobSpec, Outcome, PhaseSegment, Platform, Scenario, SimHost, ThreadSpec};
use common::{
    INT, LOAD, MUL, STREAM, job, machine, ms, picture, placed, scenario, stretch, thread,
};
use expect_test::expect;

const W: Place = Place::Waiting;

fn on(pu: u32) -> Place {
    Place::Pu(PuNr(pu))
}

/// One plan after the other for 10 ms each; the last one to the end.
fn follow(scenario: &Scenario, plans: &[Plan]) -> Outcome {
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let mut host = SimHost::new(&platform, scenario).unwrap();
    host.record(1000);
    let mut plans = plans.iter();
    let mut plan = plans.next().unwrap();
    let mut until = ms(10);
    while !host.is_over() {
        host.go_on(plan, until - host.now()).unwrap();
        if host.now() == until {
            plan = plans.next().unwrap_or(plan);
            until += ms(10);
        }
    }
    host.outcome()
}

fn waited(outcome: &Outcome) -> Vec<Nanos> {
    outcome.tasks.iter().map(|task| task.waited).collect()
}

/// 30 ms of work each. B waits in the first quantum and A in the second; from then on both run, and both are done
/// at 40 ms. Siblings of the same kind run alone in their quanta, at full speed; together each has half of it:
/// 20 ms are left of both, which take 40.
#[test]
fn one_after_the_other() {
    let jobs = scenario(vec![job("a", INT, 30), job("b", INT, 30)]);
    let plans = [placed(&[on(0), W]), placed(&[W, on(1)]), placed(&[on(0), on(1)])];
    let outcome = follow(&jobs, &plans);
    expect![[r#"
        0 A_AAAA
        1 _BBBBB
    "#]]
    .assert_eq(&picture(&outcome, 2, ms(10)));
    assert_eq!(waited(&outcome), [ms(10), ms(10)]);
}

/// Four jobs, two PUs, two at a time: each has half of the time, and none waits in a queue.
#[test]
fn more_jobs_than_pus() {
    let jobs = scenario((0..4).map(|_| job("j", MUL, 20)).collect());
    let (ab, cd) = (placed(&[on(0), on(2), W, W]), placed(&[W, W, on(0), on(2)]));
    let outcome = follow(&jobs, &[ab.clone(), cd.clone(), ab, cd]);
    expect![[r#"
        0 ACAC
        1 ____
        2 BDBD
    "#]]
    .assert_eq(&picture(&outcome, 3, ms(10)));
    assert_eq!(waited(&outcome), [ms(10), ms(10), ms(20), ms(20)]);
}

/// A's second thread would be created at 5 ms, when A is stopped: it is created at 10. B arrives at 5 ms while the plan
/// has it wait: it is launched then, and has waited 5 ms when it runs.
#[test]
fn a_stopped_job_creates_no_threads() {
    let late = ThreadSpec { born: ms(5), ..thread(&[stretch(MUL, 20_000_000)]) };
    let threads = vec![thread(&[stretch(MUL, 30_000_000)]), late];
    let a = JobSpec {
        memory: Vec::new(),
        name: "a".into(),
        arrives: Nanos::ZERO,
        threads,
        barrier: None,
    };
    let jobs = scenario(vec![a, JobSpec { arrives: ms(5), ..job("b", MUL, 20) }]);
    let outcome = follow(&jobs, &[placed(&[W, W]), placed(&[on(0), on(2)])]);
    let created: Vec<Nanos> = outcome.tasks.iter().map(|task| task.created).collect();
    assert_eq!(created, [ms(0), ms(10), ms(5)]);
    assert_eq!(waited(&outcome), [ms(10), ms(0), ms(5)]);
    let times: Vec<_> = outcome.jobs.iter().map(|job| job.took().unwrap()).collect();
    assert_eq!(times, [ms(40), ms(25)]);
}

/// 5 ms of work, 8 ms of sleep, 5 ms of work: the sleep ends at 13 ms in a quantum in which the job is stopped, so
/// it goes on at 20, after 7 ms in which it could have run.
#[test]
fn timers_run_on() {
    let course = [stretch(INT, 5_000_000), stretch(INT, 5_000_000)];
    let course = course.map(|each| PhaseSegment { sleep: ms(8), ..each });
    let mut naps = job("a", INT, 0);
    naps.threads = vec![thread(&course)];
    let plans = [placed(&[on(0)]), placed(&[W]), placed(&[on(0)])];
    let outcome = follow(&scenario(vec![naps]), &plans);
    assert_eq!(
        (outcome.lasted, waited(&outcome), outcome.tasks[0].slept),
        (ms(25), vec![ms(7)], ms(8))
    );
}

/// The same: at the end it has waited for a PU for no time, whatever it was stopped for.
#[test]
fn a_stopped_job_waits_for_no_pu() {
    let course = [stretch(INT, 5_000_000), stretch(INT, 5_000_000)];
    let mut naps = job("a", INT, 0);
    naps.threads = vec![thread(&course.map(|each| PhaseSegment { sleep: ms(8), ..each }))];
    let jobs = scenario(vec![naps]);
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let mut host = SimHost::new(&platform, &jobs).unwrap();
    let mut seen = |place| {
        let task = host.run_quantum(&placed(&[place]), ms(10)).unwrap().tasks.remove(0);
        (task.cpu_time, task.waited)
    };
    assert_eq!(
        [on(0), W, on(0)].map(&mut seen),
        [5, 5, 10].map(|ran| (Some(ms(ran)), Some(ms(0))))
    );
    assert_eq!(waited(&host.outcome()), [ms(7)]);
}

/// A walks over 256 KiB, a miss in every 20 instructions if they are not there. While it is stopped for 10 ms B
/// streams beside it, 64 bytes in 10 instructions of 11 ns, which fill the L3 of 1 MiB in less than 2 ms. A's L1
/// keeps 512 lines; the other 3,584 come from memory again, at 100 ns each: 0.3584 ms. Where B streams on the
/// other socket nothing is lost.
#[test]
fn what_others_bring_in_has_to_come_again() {
    let mut spec = common::phase(WorkKind::Load);
    let curve = MissCurve::new([(Bytes(64), 0.05), (Bytes::kib(256), 0.0)]).unwrap();
    spec.phase.misses = Known::new(curve, "made up for a test");
    let mut jobs = scenario(vec![job("a", LOAD, 30), job("b", STREAM, 30)]);
    jobs.phases[LOAD as usize] = spec;
    let ran = |beside: &[u32]| {
        let with_b = beside.iter().map(|&pu| placed(&[W, on(pu)]));
        let mut plans = vec![placed(&[on(0), W])];
        plans.extend(with_b);
        plans.push(placed(&[on(0), W]));
        // A is over long before its 40 ms.
        plans.extend([placed(&[on(0), W]), placed(&[on(0), W]), placed(&[on(0), on(4)])]);
        follow(&jobs, &plans).tasks[0].ran.as_secs_f64()
    };
    let lost = ran(&[2]) - ran(&[]);
    assert!((0.358e-3..0.362e-3).contains(&lost), "{lost}");
    assert!((ran(&[6]) - ran(&[])).abs() < 1e-8);
}

/// A streams alone for 10 ms: a load an instruction, a tenth of which miss both caches.
#[test]
fn a_host_counts() {
    let jobs = scenario(vec![job("a", STREAM, 30)]);
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let mut host = SimHost::new(&platform, &jobs).unwrap();
    let seen = host.run_quantum(&placed(&[on(0)]), ms(10)).unwrap().tasks.remove(0);
    let instructions = seen.instructions.unwrap();
    assert_eq!(seen.cycles, Some(10_000_000));
    let counts = seen.counts.unwrap();
    assert_eq!(counts.accesses, Some(instructions));
    let misses = counts.misses.unwrap();
    assert!(misses.len() == 2 && misses.iter().all(|m| m.abs_diff(instructions / 10) <= 1));
    assert!(counts.memory_bytes.unwrap().abs_diff(64 * misses[1]) <= 64);
    let stack = counts.stack.unwrap();
    assert!((stack.total() - 10e6).abs() < 10.0, "{stack:?}");
    let part = |name| {
        let place = stack.parts().iter().position(|part| *part == name).unwrap();
        stack.cycles()[place]
    };
    assert!(part("memory") > 8e6 && part("siblings").abs() < 1e-3, "{stack:?}");
}

#[test]
fn a_host_reports_waiting_jobs() {
    let jobs = scenario(vec![job("a", INT, 30), job("b", INT, 30)]);
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let mut host = SimHost::new(&platform, &jobs).unwrap();
    let seen = host.run_quantum(&placed(&[on(0), W]), ms(10)).unwrap();
    let statuses: Vec<_> =
        seen.tasks.iter().map(|task| (task.status.clone(), task.target.pu())).collect();
    assert_eq!(
        statuses,
        [(PlacementStatus::Placed, Some(PuNr(0))), (PlacementStatus::Waiting, None)]
    );
    let ran: Vec<_> = seen.tasks.iter().map(|task| task.cpu_time).collect();
    assert_eq!(ran, [Some(ms(10)), Some(ms(0))]);
    assert_eq!(seen.tasks[1].last_ran, None);
}

/// Of a job of two threads one is to wait.
#[test]
fn no_job_waits_in_part() {
    let threads = vec![thread(&[stretch(INT, 1_000_000)]); 2];
    let jobs = scenario(vec![JobSpec {
        memory: Vec::new(),
        name: "a".into(),
        arrives: Nanos::ZERO,
        threads,
        barrier: None,
    }]);
    let (machine, performance) = machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let mut host = SimHost::new(&platform, &jobs).unwrap();
    let mut plan = placed(&[on(0), W]);
    (plan.decisions[1].task.job.0, plan.decisions[1].task.order) = (0, 1);
    let refusal = host.run_quantum(&plan, ms(10)).unwrap_err().to_string();
    expect!["simulate: expected all tasks of job 0 to wait or none, found 0.1 waiting and 0.0 not"]
        .assert_eq(&refusal);
}
