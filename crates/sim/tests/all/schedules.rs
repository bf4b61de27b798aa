//! Hand-traced schedules. Letters are jobs, lines PUs, siblings next to each other; `_` is idle.
//!
//! The machine: PUs 0 and 1 are core 0, 2 and 3 core 1, both on node 0; 4 to 7 the same on node 1.

use crate::common;

use colocate_machine::performance::WorkKind;
use colocate_machine::{Nanos, NodeIdx, PuNr};
use colocate_model::Assumptions;
use colocate_policy::PolicySpec;
use colocate_sim::{
    Fork, JobSpec, KernelScheduler, Method, Outcome, Pages, PhaseSegment, Platform, Scenario,
    SimHost, SimulationOptions, ThreadSpec, TotalWork, Wake, simulate,
};
use common::{
    INT, MUL, STREAM, job, ms, picture, pinned, run, scenario, stretch, thread, together,
};
use expect_test::{Expect, expect};

/// A seed with which jobs are launched from the first of four PUs: the generator's first number is 0 modulo 4.
const LAUNCHED_FROM_0_OF_4: u64 = 6;
/// The same of eight.
const LAUNCHED_FROM_0_OF_8: u64 = 6;

fn with(scenario: Scenario, kernel: KernelScheduler) -> Scenario {
    Scenario { kernel, ..scenario }
}

/// No balancing at all.
fn still() -> KernelScheduler {
    KernelScheduler {
        idle_balance: false,
        periodic_balance: None,
        numa_balancing: None,
        ..together()
    }
}

fn on_pus(scenario: Scenario, pus: &[u32]) -> Scenario {
    Scenario { usable: Some(pus.iter().copied().map(PuNr).collect()), ..scenario }
}

fn check(outcome: &Outcome, step: Nanos, expected: &Expect) {
    expected.assert_eq(&picture(outcome, 8, step));
}

fn times(outcome: &Outcome) -> Vec<Option<u64>> {
    outcome.jobs.iter().map(|job| Some(job.took()?.0 / 1_000_000)).collect()
}

/// Two adders on siblings: half the speed each. A has 20 ms of work: it is done after 40. B has 40 ms, of
/// which 20 are left then; alone it goes on at full speed: 60.
#[test]
fn siblings_share_a_port() {
    let outcome = run(&scenario(vec![job("a", INT, 20), job("b", INT, 40)]), "compact");
    let expected = expect![[r#"
        0 AAAA__
        1 BBBBBB
        2 ______
        3 ______
        4 ______
        5 ______
        6 ______
        7 ______
    "#]];
    check(&outcome, ms(10), &expected);
    assert_eq!(times(&outcome), [Some(40), Some(60)]);
    assert_eq!(outcome.slowdowns(), Some(vec![2.0, 1.5]));
    assert!((outcome.together.seconds(0, 1) - 0.04).abs() < 1e-12);
    assert!((outcome.used.pus[1] - 1.0).abs() < 1e-12);
}

/// Adder and multiplier on siblings: none waits for the other.
#[test]
fn siblings_of_another_kind_do_not_contend() {
    let outcome = run(&scenario(vec![job("a", INT, 20), job("b", MUL, 40)]), "compact");
    assert_eq!(outcome.slowdowns(), Some(vec![1.0, 1.0]));
}

/// Two tasks on one PU: turns of 3 ms. A has 9 ms of work, its third turn is the fifth of all: 15 ms. B has
/// 12: three turns until 18 ms, and 3 more alone.
#[test]
fn tasks_on_a_pu_alternate() {
    let jobs = scenario(vec![job("a", INT, 9), job("b", INT, 12)]);
    let outcome = run(&jobs, &pinned(&[Some(2), Some(2)]));
    let expected = expect![[r#"
        0 _______
        1 _______
        2 ABABABB
        3 _______
        4 _______
        5 _______
        6 _______
        7 _______
    "#]];
    check(&outcome, ms(3), &expected);
    assert_eq!(times(&outcome), [Some(15), Some(21)]);
    let waited: Vec<_> = outcome.tasks.iter().map(|task| task.waited).collect();
    assert_eq!(waited, [ms(6), ms(9)]);
}

/// Turns of 3 ms. B comes at 1 ms, where the mean of the queue is, 1, and has to wait until A has had 3. C
/// comes at 5 ms in the middle of B's turn: A has had 3 and B 1 + 2, so C begins with 3. B goes on to 4, then it
/// is A's turn (3, and it has the lower number), then C's (3), then B's (4), which is done.
#[test]
fn a_slice_is_run_to_its_end() {
    let jobs = vec![
        job("a", INT, 10),
        JobSpec { arrives: ms(1), ..job("b", INT, 6) },
        JobSpec { arrives: ms(5), ..job("c", INT, 6) },
    ];
    let outcome = run(&scenario(jobs), &pinned(&[Some(0), Some(0), Some(0)]));
    let expected = expect![[r#"
        0 AAABBBAAACCCBBBAAACCCA
        1 ______________________
        2 ______________________
        3 ______________________
        4 ______________________
        5 ______________________
        6 ______________________
        7 ______________________
    "#]];
    check(&outcome, ms(1), &expected);
}

/// What the kernel does with new tasks: the nodes take turns, then the cores, then the siblings.
#[test]
fn new_tasks_go_to_idle_cores() {
    let jobs = (0..6).map(|place| JobSpec { arrives: ms(place), ..job("j", INT, 50) }).collect();
    let outcome = run(&with(scenario(jobs), still()), "os");
    let expected = expect![[r#"
        0 BBBBBBBBBB_
        1 FFFFFFFFFF_
        2 DDDDD______
        3 ___________
        4 CCCCC______
        5 ___________
        6 EEEEEEEEEE_
        7 AAAAAAAAAA_
    "#]];
    check(&outcome, ms(10), &expected);
}

/// A and B take turns of 3 ms where they were born. PUs that were idle all the time are asleep; PU 2, which C leaves
/// at 10 ms, takes the one that waits, from the other node: A, since it is B's second turn then.
#[test]
fn a_pu_that_runs_out_of_work_takes_what_waits() {
    let kernel = KernelScheduler { fork: Fork::WithParent, periodic_balance: None, ..together() };
    let jobs = vec![job("a", MUL, 30), job("b", MUL, 30), job("c", MUL, 10)];
    let outcome = run(&with(scenario(jobs), kernel), &pinned(&[None, None, Some(2)]));
    let expected = expect![[r#"
        0 ____________________________________
        1 ____________________________________
        2 CCCCCCCCCCAAAAAAAAAAAAAAAAAAAAAAAA__
        3 ____________________________________
        4 ____________________________________
        5 ____________________________________
        6 ____________________________________
        7 AAABBBAAABBBBBBBBBBBBBBBBBBBBBBBBBBB
    "#]];
    check(&outcome, ms(1), &expected);
}

/// The same with looks. Four threads on PU 7; its core is looked at every 2 ms, its node every 4, everything every
/// 8 ms. So the sibling has one at 2 ms, the other core's two PUs have theirs at 4 ms. Then no task waits, and the
/// fifth look at everything, at 40 ms, takes a running one to the node where none runs. B has run at half its
/// speed for 37 ms then, so it is done at 41.5 ms, which is the middle of the last column and not before it.
#[test]
fn idle_pus_are_searched_again_and_again() {
    let kernel = KernelScheduler { fork: Fork::WithParent, ..together() };
    let jobs = (0..4).map(|_| job("j", MUL, 20)).collect();
    let outcome = run(&with(scenario(jobs), kernel), "os");
    let expected = expect![[r#"
        0 ________________________________________D_
        1 __________________________________________
        2 __________________________________________
        3 __________________________________________
        4 ____AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA___
        5 ____CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC
        6 __DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD__
        7 AAABBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB_
    "#]];
    check(&outcome, ms(1), &expected);
}

/// A and B are siblings on core 0, C has core 1 for 10 ms. From then on a look at the cores of the node, every
/// 4 ms, finds 2 tasks against none. No task waits, so the fourth look in vain, at 24 ms, only makes the
/// fifth move one that runs, at 28 ms.
#[test]
fn an_idle_core_gets_one_of_two_siblings() {
    let kernel = KernelScheduler { fork: Fork::WithParent, ..together() };
    let jobs = vec![job("a", INT, 50), job("b", INT, 50), job("c", INT, 10)];
    let jobs = on_pus(with(scenario(jobs), kernel), &[0, 1, 2, 3]);
    let jobs = Scenario { seed: LAUNCHED_FROM_0_OF_4, ..jobs };
    let outcome = run(&jobs, &pinned(&[None, None, Some(2)]));
    let expected = expect![[r#"
        0 AAAAAAAAAAAAAA___________________
        1 _BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB_
        2 CCCCC_________AAAAAAAAAAAAAAAAAA_
        3 _________________________________
        4 _________________________________
        5 _________________________________
        6 _________________________________
        7 _________________________________
    "#]];
    check(&outcome, ms(2), &expected);
}

/// Three tasks on two PUs: two looks of 2 PUs x 1 ms x 16 apart, and one of two that take turns changes PUs. In
/// the long run each has two thirds of a PU, within a tenth: the one that is taken is not the one that waited longest.
#[test]
fn what_cannot_be_divided_goes_round() {
    let jobs = (0..3).map(|_| job("j", MUL, 2_000)).collect();
    let outcome = run(&on_pus(scenario(jobs), &[0, 2]), "os");
    let times: Vec<f64> = outcome.jobs.iter().map(|j| j.took().unwrap().as_secs_f64()).collect();
    assert!(times.iter().all(|time| (2.69..3.1).contains(time)), "{times:?}");
    // One every 64 ms until the first is done, but for a few that come when none waits.
    let moves: u32 = outcome.tasks.iter().map(|task| task.moves.total()).sum();
    assert!((35..=43).contains(&moves), "{moves}");
}

/// A sleeps 5 ms after every 5 ms; when it wakes up, B has its PU. The sibling PU 1 is idle, but core 1 is
/// idle as a whole.
#[test]
fn a_woken_task_prefers_an_idle_core() {
    let naps = |times: u64| {
        let stretch = PhaseSegment { sleep: ms(5), ..stretch(MUL, 5_000_000) };
        let thread =
            ThreadSpec { work: TotalWork::Instructions(5_000_000 * times), ..thread(&[stretch]) };
        JobSpec {
            memory: Vec::new(),
            name: "a".into(),
            arrives: Nanos::ZERO,
            threads: vec![thread],
            barrier: None,
        }
    };
    let jobs = vec![naps(3), JobSpec { arrives: ms(7), ..job("b", MUL, 40) }];
    let wake = |idle_cores| KernelScheduler {
        wake: Wake::IdleSibling { idle_cores, recent: false, affine: None },
        fork: Fork::WithParent,
        periodic_balance: None,
        ..together()
    };
    let jobs = |kernel| Scenario {
        seed: LAUNCHED_FROM_0_OF_4,
        ..on_pus(with(scenario(jobs.clone()), kernel), &[0, 1, 2, 3])
    };
    let outcome = run(&jobs(wake(true)), &pinned(&[None, Some(0)]));
    check(
        &outcome,
        ms(5),
        &expect![[r#"
            0 ABBBBBBBB_
            1 __________
            2 __A_A_____
            3 __________
            4 __________
            5 __________
            6 __________
            7 __________
        "#]],
    );
    let outcome = run(&jobs(wake(false)), &pinned(&[None, Some(0)]));
    check(
        &outcome,
        ms(5),
        &expect![[r#"
            0 ABBBBBBBBBB_
            1 __AA_AA_____
            2 ____________
            3 ____________
            4 ____________
            5 ____________
            6 ____________
            7 ____________
        "#]],
    );
}

/// A sleeps as before, but no core is idle when it wakes up: C has PU 0, B has PU 3, where A was. Of the idle PUs 1
/// and 2 it is the sibling's that it takes, though the search for others begins behind 3, with 0 and 1.
#[test]
fn a_woken_task_prefers_the_sibling_where_no_core_is_idle() {
    let stretches = [PhaseSegment { sleep: ms(5), ..stretch(MUL, 5_000_000) }];
    let a = ThreadSpec { work: TotalWork::Instructions(15_000_000), ..thread(&stretches) };
    let a = JobSpec { threads: vec![a], ..job("a", MUL, 1) };
    let jobs = vec![a, JobSpec { arrives: ms(7), ..job("b", MUL, 40) }, job("c", MUL, 40)];
    let kernel = KernelScheduler { fork: Fork::WithParent, periodic_balance: None, ..together() };
    let jobs = on_pus(with(scenario(jobs), kernel), &[0, 1, 2, 3]);
    let launched_from_3 = |seed: &u64| {
        let one = Scenario { seed: *seed, ..jobs.clone() };
        run(&one, &pinned(&[None, Some(3), Some(0)]))
            .spans
            .iter()
            .any(|span| (span.task.job.0, span.from, span.pu.0) == (0, Nanos::ZERO, 3))
    };
    let seed = (0..50).find(launched_from_3).expect("one of four PUs");
    let outcome = run(&Scenario { seed, ..jobs.clone() }, &pinned(&[None, Some(3), Some(0)]));
    check(
        &outcome,
        ms(5),
        &expect![[r#"
            0 CCCCCCCC____
            1 ____________
            2 __AA_AA_____
            3 ABBBBBBBBBB_
            4 ____________
            5 ____________
            6 ____________
            7 ____________
        "#]],
    );
}

/// A's 1 ms is done before its slice is over, and A begins anew a slice after it began: in between B runs, to which A leaves
/// two thirds of their PU at least.
#[test]
fn a_short_job_leaves_the_pu_to_others() {
    let jobs = vec![job("a", INT, 1), job("b", MUL, 20)];
    let plain = scenario(jobs);
    let slice = plain.kernel.slice;
    let one_pu = Scenario { method: Method::Restart, usable: Some(vec![PuNr(0)]), ..plain };
    let outcome = run(&Scenario { horizon: Nanos::from_secs(1), ..one_pu }, "round-robin");
    assert!(outcome.complete && outcome.lasted <= ms(30) + slice, "{:?}", outcome.lasted);
}

/// A does its 20 ms twice while B does its 50, and begins a third time; then all is over.
#[test]
fn short_jobs_begin_anew() {
    let jobs = vec![job("a", INT, 20), job("b", MUL, 50)];
    let outcome = run(&Scenario { method: Method::Restart, ..scenario(jobs) }, "round-robin");
    check(
        &outcome,
        ms(10),
        &expect![[r#"
        0 AAAAA
        1 BBBBB
        2 _____
        3 _____
        4 _____
        5 _____
        6 _____
        7 _____
    "#]],
    );
    assert_eq!(times(&outcome), [Some(20), Some(50)]);
    assert_eq!(outcome.jobs.iter().map(|job| job.runs).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(outcome.tasks[0].instructions, 50e6);
}

/// B needs a second, and is given 30 ms.
#[test]
fn the_horizon_ends_everything() {
    let jobs = vec![job("a", INT, 20), job("b", MUL, 1000)];
    let outcome = run(&Scenario { horizon: ms(30), ..scenario(jobs) }, "scatter");
    assert_eq!((outcome.complete, outcome.lasted), (false, ms(30)));
    assert_eq!(times(&outcome), [Some(20), None]);
    assert_eq!(outcome.slowdowns(), None);
}

/// 10 ms of additions, then 10 of multiplications, beside an adder for 30 ms of work: at half speed for
/// 20 ms each, then 10 ms both at full speed; the adder has 20 - 10 = 10 of 30 left at 30 ms: 40 ms.
#[test]
fn phases_change_what_siblings_do_to_each_other() {
    let both = thread(&[stretch(INT, 10_000_000), stretch(MUL, 10_000_000)]);
    let both = JobSpec {
        memory: Vec::new(),
        name: "both".into(),
        arrives: Nanos::ZERO,
        threads: vec![both],
        barrier: None,
    };
    let outcome = run(&scenario(vec![both, job("b", INT, 30)]), "compact");
    assert_eq!(times(&outcome), [Some(30), Some(40)]);
}

/// The same with changes of phase every 8 ms at most: the change at 20 ms is taken at 24, when 12 of the 10
/// million additions are done, so 8 million multiplications are left, of the 20 million in all.
#[test]
fn changes_of_phase_can_be_taken_together() {
    let both = thread(&[stretch(INT, 10_000_000), stretch(MUL, 10_000_000)]);
    let both = JobSpec {
        memory: Vec::new(),
        name: "both".into(),
        arrives: Nanos::ZERO,
        threads: vec![both],
        barrier: None,
    };
    let jobs = Scenario { grain: ms(8), ..scenario(vec![both, job("b", INT, 30)]) };
    assert_eq!(times(&run(&jobs, "compact")), [Some(32), Some(42)]);
}

/// B is pinned beside the memory of A, on the other node: A has all its loads from there. It is never moved,
/// since it is pinned; its memory comes: 64 MiB at the second look from node 0, after two seconds.
#[test]
fn memory_comes_to_a_pinned_task() {
    let mut far = job("a", STREAM, 200);
    far.threads[0].pages = Pages::On(NodeIdx(1));
    let outcome = run(&scenario(vec![far.clone()]), &pinned(&[Some(0)]));
    let task = &outcome.tasks[0];
    assert_eq!(task.moves.page_bytes, 64 << 20);
    assert_eq!(task.moves.total(), 0);
    // Alone and near, an instruction takes 1 + 0.1 * 100 cycles of 1 ns and some waiting; far 10 more.
    let (near, took) = (task.alone.as_secs_f64(), outcome.jobs[0].took().unwrap().as_secs_f64());
    let far_time = 2.0;
    let slower = 21.0 / 11.0;
    assert!((near - 2.2).abs() < 0.1, "{near}");
    assert!((took - (far_time + near - far_time / slower)).abs() < 0.1, "{took}");
    let off = KernelScheduler { numa_balancing: None, ..together() };
    let outcome = run(&with(scenario(vec![far]), off), &pinned(&[Some(0)]));
    assert_eq!(outcome.tasks[0].moves.page_bytes, 0);
    assert!((outcome.tasks[0].far_instructions / outcome.tasks[0].instructions - 1.0).abs() < 1e-9);
}

/// The same task left to the kernel goes to its memory at the first look, and its memory stays.
#[test]
fn a_task_goes_to_its_memory() {
    let mut far = job("a", STREAM, 200);
    far.threads[0].pages = Pages::On(NodeIdx(1));
    let kernel = KernelScheduler { fork: Fork::WithParent, ..together() };
    let seed = LAUNCHED_FROM_0_OF_8;
    let outcome = run(&Scenario { seed, ..with(scenario(vec![far]), kernel) }, "os");
    let expected = expect![[r#"
        0 AA____
        1 ______
        2 ______
        3 ______
        4 __AAA_
        5 ______
        6 ______
        7 ______
    "#]];
    check(&outcome, ms(500), &expected);
    assert_eq!((outcome.tasks[0].moves.other_node, outcome.tasks[0].moves.page_bytes), (1, 0));
}

/// Threads created later than their job go to the plan's default placement: round-robin fills PUs in
/// order.
#[test]
fn new_threads_follow_the_plan() {
    let created = |at: u64| ThreadSpec { born: ms(at), ..thread(&[stretch(MUL, 20_000_000)]) };
    let jobs = [("a", [0, 10, 20]), ("b", [5, 15, 25])].map(|(name, times)| JobSpec {
        memory: Vec::new(),
        name: name.into(),
        arrives: Nanos::ZERO,
        threads: times.map(created).to_vec(),
        barrier: None,
    });
    let scenario = scenario(jobs.to_vec());
    let (machine, performance) = common::machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let options = SimulationOptions { profiled: false, spans: 100, ..SimulationOptions::default() };
    let outcome =
        simulate(&platform, &scenario, &PolicySpec::named("round-robin"), &options).unwrap();
    let expected = expect![[r#"
        0 AAAAAAA_____
        1 _BBBBBBB____
        2 __AAAAAAA___
        3 ___BBBBBBB__
        4 ____AAAAAAA_
        5 _____BBBBBBB
        6 ____________
        7 ____________
    "#]];
    check(&outcome, ms(5), &expected);
}

/// The same seed, the same run; another one launches from elsewhere.
#[test]
fn a_seed_decides() {
    let jobs = || scenario((0..5).map(|_| job("j", INT, 30)).collect());
    let of = |seed| picture(&run(&Scenario { seed, ..jobs() }, "os"), 8, ms(5));
    assert_eq!(of(1), of(1));
    assert!((2..8).any(|seed| of(seed) != of(1)));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refusal = |scenario: &Scenario| {
        let (machine, performance) = common::machine(common::SMALL);
        let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
        SimHost::new(&platform, scenario).unwrap_err().to_string()
    };
    let good = || scenario(vec![job("a", INT, 1)]);
    let mut bad = good();
    bad.jobs[0].threads[0].course[0].phase.0 = 9;
    assert_eq!(refusal(&bad), "job 0, thread 0: expected a phase of the scenario, found phase 9");
    let mut bad = good();
    bad.jobs[0].threads[0].course.clear();
    assert!(refusal(&bad).contains("course of at least one phase"));
    assert!(refusal(&scenario(vec![])).contains("at least one job"));
    let mut bad = good();
    bad.phases.resize(65_537, common::phase(WorkKind::Int));
    assert_eq!(refusal(&bad), "scenario: expected at most 65536 phases, found 65537");
    assert!(refusal(&on_pus(good(), &[8])).contains("PUs that are online"));
    assert!(refusal(&Scenario { quantum: Nanos::ZERO, ..good() }).contains("above 0"));
    assert!(
        refusal(&with(good(), KernelScheduler { slice: Nanos::ZERO, ..still() }))
            .contains("a slice")
    );
}

/// A has run for 105 days when B comes with 10 ms to do. Both are owed nothing, so they take turns of 3 ms, A first:
/// 9 ms of B end at 18 ms, A has the next turn, and B is done at 22.
#[test]
fn slices_are_fair_after_months() {
    let days = Nanos(105 * 86_400 * 1_000_000_000);
    let long = job("a", INT, (days.0 + ms(1000).0) / 1_000_000);
    let jobs = scenario(vec![long, JobSpec { arrives: days, ..job("b", INT, 10) }]);
    let jobs = Scenario { horizon: days + days, ..on_pus(with(jobs, still()), &[0]) };
    assert_eq!(run(&jobs, "os").jobs[1].took(), Some(ms(22)));
}

/// Two tasks on each of two siblings for 120 ms. Where turns end together the same two run beside each other all
/// the time; where PUs end them at different ticks, each runs beside every one of the other PU.
#[test]
fn slices_that_end_at_different_times_mix_the_siblings() {
    let beside = |stagger, seed| {
        let jobs = (0..4).map(|_| job("j", MUL, 60)).collect();
        let jobs = with(scenario(jobs), KernelScheduler { stagger, ..together() });
        let two_each = pinned(&[Some(0), Some(0), Some(1), Some(1)]);
        let outcome = run(&Scenario { seed, ..jobs }, &two_each);
        (outcome.together.seconds(0, 2), outcome.together.seconds(0, 3))
    };
    let (same, other) = beside(1, 0);
    assert!(same > 0.0 && other == 0.0, "{same} {other}");
    assert!((0..9).any(|seed| beside(3, seed).0 > 0.03 && beside(3, seed).1 > 0.03));
}
