//! Threads that wait for each other. One line a PU, one letter a thread of the one job, as in `schedules.rs`.

use crate::common;

use colocate_engine::Host;
use colocate_evidence::SeenTask;
use colocate_machine::{Nanos, PuNr};
use colocate_model::Assumptions;
use colocate_policy::Place;
use colocate_sim::{
    Barrier, BarrierWait, JobSpec, KernelScheduler, Outcome, PhaseIdx, PhaseSegment, Platform,
    Scenario, Serial, SimHost, ThreadSpec, TotalWork,
};
use common::{INT, MUL, job, ms, placed, run, scenario, stretch, thread};
use expect_test::{Expect, expect};

/// So many million instructions of a phase to the barrier, again and again.
fn rounds(phase: u32, millions: u64, rounds: u64) -> ThreadSpec {
    let round = PhaseSegment { barrier: true, ..stretch(phase, millions * 1_000_000) };
    ThreadSpec { work: TotalWork::Instructions(millions * 1_000_000 * rounds), ..thread(&[round]) }
}

fn team(threads: Vec<ThreadSpec>, wait: BarrierWait, serial: Option<Serial>) -> JobSpec {
    let barrier = Some(Barrier { wait, serial });
    JobSpec { memory: Vec::new(), name: "team".into(), arrives: Nanos::ZERO, threads, barrier }
}

fn spin(phase: u32) -> BarrierWait {
    BarrierWait::Spin(PhaseIdx(phase))
}

/// Letters are threads.
fn picture(outcome: &Outcome, step: Nanos) -> String {
    let mut threads = outcome.clone();
    for span in &mut threads.spans {
        span.task.job.0 = span.task.order;
    }
    common::picture(&threads, 4, step)
}

fn on_four(jobs: Vec<JobSpec>) -> Scenario {
    Scenario { usable: Some((0..4).map(PuNr).collect()), ..scenario(jobs) }
}

fn check(outcome: &Outcome, expected: &Expect) {
    expected.assert_eq(&picture(outcome, ms(5)));
}

fn spun(outcome: &Outcome) -> Vec<Nanos> {
    outcome.tasks.iter().map(|task| task.spun).collect()
}

/// A needs 10 ms a round and B 20, each on a core of its own, three rounds. A sleeps for 10 ms of the first two
/// rounds, which end with B's; with its third it is done, at 50 ms, and waits for none.
#[test]
fn the_last_one_decides() {
    let threads = vec![rounds(INT, 10, 3), rounds(INT, 20, 3)];
    let outcome = run(&on_four(vec![team(threads, BarrierWait::Sleep, None)]), "scatter");
    check(
        &outcome,
        &expect![[r#"
            0 AA__AA__AA__
            1 ____________
            2 BBBBBBBBBBBB
            3 ____________
        "#]],
    );
    let slept: Vec<Nanos> = outcome.tasks.iter().map(|task| task.slept).collect();
    assert_eq!((slept, spun(&outcome)), (vec![ms(20), ms(0)], vec![ms(0), ms(0)]));
}

/// The same, but A spins with additions beside B on the same core, which adds, too: while both add each has half of
/// the port. A is at the barrier after 20 ms, when B has done 10 of 20; A spins on, so B needs 20 more: 40 ms a
/// round. Of the third round A does its part in 20 ms and is over; B's last 10 take 10: 110 in all.
#[test]
fn spinning_takes_from_siblings() {
    let threads = vec![rounds(INT, 10, 3), rounds(INT, 20, 3)];
    let outcome = run(&on_four(vec![team(threads, spin(INT), None)]), "compact");
    assert_eq!(outcome.lasted, ms(110));
    assert_eq!(spun(&outcome), [ms(40), ms(0)]);
    assert_eq!(outcome.tasks[0].instructions, 30e6);
    // With multiplications it takes nothing from B: 30 ms a round, and 10 of 30 are spun.
    let threads = vec![rounds(INT, 10, 3), rounds(INT, 20, 3)];
    let outcome = run(&on_four(vec![team(threads, spin(MUL), None)]), "compact");
    assert_eq!((outcome.lasted, spun(&outcome)), (ms(90), vec![ms(20), ms(0)]));
}

/// Two threads of 10 ms a round on two cores, then 5 ms of the first alone, twice. The work of both is done before
/// the third round's barrier, so no thread comes to it: 10 + 5 + 10 + 5 + 10.
#[test]
fn one_works_for_all() {
    let threads = vec![rounds(INT, 10, 3); 2];
    let serial = Some(Serial { phase: PhaseIdx(MUL), instructions: 5_000_000 });
    let outcome = run(&on_four(vec![team(threads, BarrierWait::Sleep, serial)]), "scatter");
    check(
        &outcome,
        &expect![[r#"
            0 AAAAAAAA
            1 ________
            2 BB_BB_BB
            3 ________
        "#]],
    );
    let done: Vec<f64> = outcome.tasks.iter().map(|task| task.instructions).collect();
    assert_eq!(done, [40e6, 30e6]);
}

/// Three threads on two PUs. With sleep the third has a PU for itself while the others wait, and a round is over
/// after 15 ms of PU time each: turns of 3 ms, 30 million in all on two PUs. Spinners keep their PU instead, and the
/// last thread has to take turns with one that does nothing.
#[test]
fn spinners_keep_their_slices() {
    let lasts = |wait| {
        let jobs = vec![team(vec![rounds(MUL, 10, 4); 3], wait, None)];
        let two = Scenario { usable: Some([0, 2].map(PuNr).to_vec()), ..scenario(jobs) };
        run(&two, "round-robin").lasted
    };
    let (sleeping, spinning) = (lasts(BarrierWait::Sleep), lasts(spin(INT)));
    // Thread 3 shares a PU with thread 1: 20 ms a round, whatever thread 2 does.
    assert_eq!(sleeping, ms(80));
    assert!(spinning > sleeping, "{spinning}");
}

/// Two threads take turns of 3 ms on one PU. A needs 4.5 ms a round and B 1.5: A runs to 3 ms, B is at the barrier
/// at 4.5 and spins to 6, A comes at 7.5 and goes on to 9, then B runs. At 10 ms A has run 6 ms and waited 4. B has
/// run 4 and waited 6, and of that spun from 4.5 to 6 and waited to spin from 6 to 7.5.
#[test]
fn a_wait_to_spin_is_spun() {
    let rounds = |instructions| {
        let round = PhaseSegment { barrier: true, ..stretch(INT, instructions) };
        ThreadSpec { work: TotalWork::Instructions(3 * instructions), ..thread(&[round]) }
    };
    let jobs = vec![team(vec![rounds(4_500_000), rounds(1_500_000)], spin(INT), None)];
    let jobs = Scenario { usable: Some(vec![PuNr(0)]), ..scenario(jobs) };
    let (machine, performance) = common::machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let mut host = SimHost::new(&platform, &jobs).unwrap();
    let seen = host.run_quantum(&placed(&[Place::LeftToKernel; 1]), ms(10)).unwrap();
    let times = |task: &SeenTask| [task.cpu_time, task.waited, task.spun].map(Option::unwrap);
    let times: Vec<_> = seen.tasks.iter().map(times).collect();
    assert_eq!(times, [[ms(6), ms(4), ms(0)], [ms(4), ms(6), ms(3)]]);
    let outcome = host.outcome();
    let half = Nanos(1_500_000);
    assert_eq!((spun(&outcome), outcome.tasks[1].ran), (vec![ms(0), half], ms(4)));
}

/// A thread that is created late is waited for, one that has less to do is not.
#[test]
fn barriers_end() {
    let late = ThreadSpec { born: ms(30), ..rounds(INT, 10, 2) };
    let threads = vec![rounds(INT, 10, 4), late, rounds(INT, 10, 1)];
    let outcome = run(&scenario(vec![team(threads, BarrierWait::Sleep, None)]), "scatter");
    let ends: Vec<Nanos> = outcome.tasks.iter().map(|task| task.ended).collect();
    // The first comes at 10 and goes on at 40; the late one does its second round until 50, when the first
    // comes again and waits for none any more.
    assert_eq!(ends, [ms(70), ms(50), ms(10)]);
}

/// What is begun anew begins with no thread at the barrier.
#[test]
fn barriers_and_restarts() {
    let jobs = vec![
        team(vec![rounds(INT, 10, 2), rounds(INT, 5, 2)], BarrierWait::Sleep, None),
        job("long", MUL, 70),
    ];
    let jobs = Scenario { method: colocate_sim::Method::Restart, ..scenario(jobs) };
    let outcome = run(&jobs, "scatter");
    assert_eq!(outcome.jobs.iter().map(|job| job.runs).collect::<Vec<_>>(), [3, 1]);
    assert_eq!(outcome.jobs[0].took(), Some(ms(20)));
}

#[test]
fn barriers_that_make_no_sense_are_refused() {
    let refusal = |job: JobSpec| {
        let (machine, performance) = common::machine(common::SMALL);
        let assumed = Assumptions::default();
        let platform = Platform::new(&machine, &performance, assumed).unwrap();
        SimHost::new(&platform, &scenario(vec![job])).unwrap_err().to_string()
    };
    let two = || vec![rounds(INT, 10, 2); 2];
    let mut both = team(two(), BarrierWait::Sleep, None);
    both.threads[1].course[0].sleep = ms(1);
    let nothing = Serial { phase: PhaseIdx(INT), instructions: 0 };
    let said = [
        JobSpec { barrier: None, ..team(two(), BarrierWait::Sleep, None) },
        team(job("j", INT, 1).threads, BarrierWait::Sleep, None),
        team(two(), spin(9), None),
        team(two(), BarrierWait::Sleep, Some(nothing)),
        both,
    ];
    let said: String = said.into_iter().map(|job| refusal(job) + "\n").collect();
    expect![[r#"
        job 0: expected a barrier where threads wait at one, found none
        job 0: expected a thread that comes to the barrier, found none
        job 0: expected a phase of the scenario, found phase 9
        job 0: expected at least one instruction of a serial part, found 0
        job 0: expected sleep or a barrier after a phase, found both
    "#]]
    .assert_eq(&said);
}

/// Two threads share a PU whose slices are shorter than the grain, and one spins until the other has come: that does come,
/// although it never runs when a time of the grain is reached.
#[test]
fn a_grain_longer_than_slices() {
    let round = PhaseSegment { barrier: true, ..stretch(INT, 1_000_000) };
    let first = ThreadSpec { work: TotalWork::Instructions(2_000_001), ..thread(&[round]) };
    let second = ThreadSpec {
        work: TotalWork::Instructions(1_000_002),
        born: ms(17),
        ..thread(&[round, stretch(INT, 1)])
    };
    let serial = Some(Serial { phase: PhaseIdx(INT), instructions: 1_142_672 });
    let job = JobSpec { arrives: ms(49), ..team(vec![first, second], spin(INT), serial) };
    let plain = scenario(vec![job]);
    let outcome = run(
        &Scenario {
            usable: Some(vec![PuNr(7)]),
            grain: ms(2),
            kernel: KernelScheduler { slice: ms(1), stagger: 3, ..plain.kernel },
            horizon: Nanos::from_secs(1),
            ..plain
        },
        "random:seed=0",
    );
    assert!(outcome.complete, "{:?}", outcome.tasks);
}
