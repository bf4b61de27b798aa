//! `fair` and `perf-fair` by hand, and what always holds of them and of progress.

use super::super::testing::{queue, run};
use super::super::{JobUsage, QuantumOutcome};
use super::*;
use crate::schedule::progress::JobProgress;
use crate::testing::machine;
use colocate_evidence::JobIdx;
use colocate_machine::{Machine, Nanos};
use proptest::prelude::*;

fn fair() -> Fair {
    Fair::new(Mixing::FAIR, Estimating::USUAL)
}

/// One quantum: reports how long the last one took, if it is known, and asks for the next.
fn next(
    fair: &mut Fair,
    machine: &Machine,
    jobs: &[QueuedJob],
    took: Option<Nanos>,
) -> Vec<SelectedJob> {
    if let Some(took) = took {
        fair.table.on_quantum_end(&QuantumOutcome { throttled: false, took, did: &[] });
    }
    let pus: Vec<_> = machine.all_pus().collect();
    fair.choose(&Quantum { number: 0, machine, pus: &pus, queue: jobs })
}

/// What a job did in the last quantum: with cores of its own or not, at so many instructions a
/// cycle.
fn ran(job: &mut QueuedJob, alone: bool, ipc: Option<f64>) {
    (job.just_ran, job.had_own_cores) = (true, alone);
    job.threads[0].ran.as_mut().unwrap().ipc = ipc;
}

/// How far a job has come, in seconds alone.
fn done(fair: &Fair, job: u32) -> f64 {
    fair.table.of(JobIdx(job)).map_or(0.0, |known| known.done)
}

fn is_estimated(fair: &Fair, job: u32) -> bool {
    fair.table.of(JobIdx(job)).is_some_and(JobProgress::is_estimated)
}

/// Settings with which an estimate is good for so many quanta.
fn valid(valid: u32) -> Estimating {
    Estimating { valid, apart: 1, ..Estimating::USUAL }
}

fn estimates(choices: &[SelectedJob]) -> usize {
    choices.iter().filter(|choice| choice.selected == Selected::Estimated).count()
}

/// A first quantum at 1.0 beside others counts as a second, the length of quanta of which no more
/// is known. Then it turns out that alone it does 2.0, so that was half a second's worth, and the
/// estimate itself is one. A quantum at 1.0 beside others is half a second's worth more.
#[test]
fn progress_by_hand() {
    let machine = machine("core:1 pu:2");
    let mut fair = fair();
    let mut jobs = queue(&[1.0]);
    let first = next(&mut fair, &machine, &jobs, None);
    assert_eq!(first[0].selected, Selected::LeastProgress { progress: 0.0 });
    ran(&mut jobs[0], false, Some(1.0));
    let second = next(&mut fair, &machine, &jobs, None);
    assert!((done(&fair, 0) - 1.0).abs() < 1e-12);
    assert_eq!(second[0].selected, Selected::Estimated);
    ran(&mut jobs[0], true, Some(2.0));
    next(&mut fair, &machine, &jobs, None);
    assert!((done(&fair, 0) - 1.5).abs() < 1e-12);
    ran(&mut jobs[0], false, Some(1.0));
    let fourth = next(&mut fair, &machine, &jobs, None);
    assert!((done(&fair, 0) - 2.0).abs() < 1e-12);
    assert_eq!(fourth[0].selected, Selected::LeastProgress { progress: 2.0 });
}

/// Beside others at 1.0 for 200 ms, then alone at 2.0 for 100 ms: that is 100 ms' worth and 100 ms.
#[test]
fn before_the_first_estimate() {
    let machine = machine("core:1 pu:2");
    let mut fair = fair();
    let mut jobs = queue(&[1.0]);
    next(&mut fair, &machine, &jobs, None);
    ran(&mut jobs[0], false, Some(1.0));
    next(&mut fair, &machine, &jobs, Some(Nanos::from_millis(200)));
    assert!((done(&fair, 0) - 0.2).abs() < 1e-12);
    ran(&mut jobs[0], true, Some(2.0));
    next(&mut fair, &machine, &jobs, Some(Nanos::from_millis(100)));
    assert!((done(&fair, 0) - 0.2).abs() < 1e-12);
}

/// Quanta of 200 ms at 1.0 and, alone, at 2.0 make 300 ms. A quantum of 20 ms at 1.0 makes 10 ms
/// more, not 100. When an estimate is due, of 10 ms, and that quantum is cut to 4 ms, these count
/// as alone and 4.0 is not believed.
#[test]
fn cut_short_by_hand() {
    let machine = machine("core:1 pu:2");
    let mut fair = Fair::new(Mixing::FAIR, valid(1));
    let mut jobs = queue(&[1.0]);
    next(&mut fair, &machine, &jobs, None);
    let mut quantum = |alone: bool, ipc: f64, ms: u64| {
        ran(&mut jobs[0], alone, Some(ipc));
        let choices = next(&mut fair, &machine, &jobs, Some(Nanos::from_millis(ms)));
        (done(&fair, 0), estimates(&choices))
    };
    let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-12, "{found}");
    assert_eq!(quantum(false, 1.0, 200).1, 1);
    near(quantum(true, 2.0, 200).0, 0.3);
    let (done, due) = quantum(false, 1.0, 20);
    near(done, 0.31);
    assert_eq!(due, 1);
    let (done, due) = quantum(true, 4.0, 4);
    near(done, 0.314);
    assert_eq!(due, 1, "it is still due");
    near(quantum(false, 1.0, 20).0, 0.324);
}

/// In one phase a job has 10 t/µs and 2.0 alone, in another 40 t/µs and 1.0: 5 and 40 for each
/// instruction. Beside others the first has 1.0 and 5 t/µs, which is half of its speed alone; the
/// second 0.8 and 32 t/µs, four fifths. A quantum with both, the half of its instructions each, has
/// requests of 22.5 and 0.75 cycles alone for each: at 1.0 that is three fourths.
#[test]
fn phases_by_hand() {
    let machine = machine("core:1 pu:2");
    let mut fair = Fair::new(Mixing::FAIR, Estimating { doubt: 10.0, ..valid(1000) });
    let mut jobs = queue(&[10.0]);
    next(&mut fair, &machine, &jobs, None);
    let mut before = 0.0;
    let mut quantum = |alone: bool, ipc: f64, traffic: f64| {
        ran(&mut jobs[0], alone, Some(ipc));
        jobs[0].threads[0].ran.as_mut().unwrap().traffic.memory = Some(traffic);
        let due = estimates(&next(&mut fair, &machine, &jobs, None));
        let made = done(&fair, 0) - before;
        before += made;
        ((made * 1e9).round() / 1e9, due)
    };
    assert_eq!(quantum(false, 1.0, 5.0), (1.0, 1), "nothing is known");
    // An estimate at 2.0, by which the second before it was half of one.
    assert_eq!(quantum(true, 2.0, 10.0), (0.5, 0));
    assert_eq!(quantum(false, 1.0, 5.0), (0.5, 0));
    assert_eq!(quantum(false, 0.8, 32.0).1, 1, "that is another phase");
    assert_eq!(quantum(true, 1.0, 40.0), (1.0, 0));
    assert_eq!(quantum(false, 0.8, 32.0), (0.8, 0));
    assert_eq!(quantum(false, 1.0, 5.0), (0.5, 0));
    assert_eq!(quantum(false, 1.0, 22.5), (0.75, 0));
}

/// Two jobs, a quantum of 200 ms. The first runs at 1.0 and 50 ms of CPU time are the second's,
/// which was not chosen: that is as much progress. With two threads it would be half of that, and
/// more than the quantum it never is.
#[test]
fn filling_by_hand() {
    let filled = |threads: usize, ms: u64| {
        let (machine, mut fair) = (machine("core:1 pu:1"), fair());
        let mut jobs = queue(&[1.0, 1.0]);
        let thread = jobs[1].threads[0].clone();
        jobs[1].threads = vec![thread; threads];
        next(&mut fair, &machine, &jobs, None);
        ran(&mut jobs[0], false, Some(1.0));
        let used = |job, ms| JobUsage {
            job: JobIdx(job),
            cpu_time: Some(Nanos::from_millis(ms)),
            instructions: None,
            switches: None,
        };
        let took = Nanos::from_millis(200);
        fair.table.on_quantum_end(&QuantumOutcome {
            throttled: false,
            took,
            did: &[used(0, 150), used(1, ms)],
        });
        next(&mut fair, &machine, &jobs, None);
        [0, 1].map(|job| done(&fair, job))
    };
    assert_eq!(filled(1, 50), [0.2, 0.05]);
    assert_eq!(filled(2, 50), [0.2, 0.025]);
    assert_eq!(filled(1, 900), [0.2, 0.2]);
}

/// Beside others at 0.5; then it sleeps through the quantum in which it has a core of its own, and
/// the 0.5 are still there. That is no estimate, and it is not asked again until it has run at 1.0
/// beside others. Alone it does 2.0 then.
#[test]
fn asleep_on_cores_of_its_own() {
    let machine = machine("core:1 pu:2");
    let mut fair = fair();
    let mut jobs = queue(&[1.0]);
    next(&mut fair, &machine, &jobs, None);
    let mut quantum = |alone: bool, ipc: f64, runnable: f64| {
        ran(&mut jobs[0], alone, Some(ipc));
        jobs[0].runnable = Some(runnable);
        jobs[0].threads[0].runnable = Some(runnable);
        let due = estimates(&next(&mut fair, &machine, &jobs, None));
        (due, is_estimated(&fair, 0))
    };
    assert_eq!(quantum(false, 0.5, 1.0), (1, false));
    assert_eq!(quantum(true, 0.5, 0.0), (0, false));
    assert_eq!(quantum(false, 0.5, 0.0), (0, false), "it shows no speed beside others either");
    assert_eq!(quantum(false, 1.0, 1.0), (1, false));
    assert_eq!(quantum(true, 2.0, 1.0), (0, true));
    // 0.5/2 and 1/2 beside others, three quanta as if alone, of which it slept through two.
    assert!((done(&fair, 0) - 3.75).abs() < 1e-12);
}

/// An estimate that is good for two quanta. It sleeps when it is due, and is as old as it was: it
/// is due as soon as the job runs again.
#[test]
fn asleep_when_an_estimate_is_renewed() {
    let machine = machine("core:1 pu:2");
    let mut fair = Fair::new(Mixing::FAIR, valid(2));
    let mut jobs = queue(&[1.0]);
    next(&mut fair, &machine, &jobs, None);
    let (beside, alone, asleep) = ((false, 1.0), (true, 1.0), (true, 0.0));
    let due = [beside, alone, beside, beside, asleep, beside].map(|(alone, runnable)| {
        ran(&mut jobs[0], alone, Some(1.0));
        jobs[0].runnable = Some(runnable);
        jobs[0].threads[0].runnable = Some(runnable);
        estimates(&next(&mut fair, &machine, &jobs, None))
    });
    assert_eq!(due, [1, 0, 0, 1, 0, 1]);
}

/// Eight threads on four cores of two PUs. With cores of their own they have four PUs, two on each
/// at 2.0: that is 8.0. On all eight PUs at 1.2 they do 9.6, which is no less than alone, and at
/// 0.5 they do 4.0, which is a half.
#[test]
fn more_threads_than_pus() {
    let machine = machine("core:4 pu:2");
    let mut fair = fair();
    let mut jobs = queue(&[1.0]);
    let thread = jobs[0].threads[0].clone();
    jobs[0].threads = vec![thread; 8];
    next(&mut fair, &machine, &jobs, None);
    let mut before = 0.0;
    let done = [(false, 1.2), (true, 2.0), (false, 1.2), (false, 0.5)].map(|(alone, ipc)| {
        ran(&mut jobs[0], alone, Some(ipc));
        for thread in &mut jobs[0].threads {
            thread.ran.as_mut().unwrap().ipc = Some(ipc);
        }
        next(&mut fair, &machine, &jobs, None);
        let done = done(&fair, 0);
        done - std::mem::replace(&mut before, done)
    });
    assert!(is_estimated(&fair, 0));
    let wanted = [1.0, 1.0, 1.0, 0.5];
    assert!(
        done.iter().zip(wanted).all(|(done, wanted)| (done - wanted).abs() < 1e-12),
        "{done:?}"
    );
}

/// Six jobs on four PUs: no job is estimated in the two quanta until all have run; then the first
/// is, and nothing runs beside it.
#[test]
fn estimated_when_all_have_run() {
    let machine = machine("core:2 pu:2");
    let mut fair = fair();
    let mut selected = Vec::new();
    run(
        &machine,
        |now| fair.choose(now),
        &[30.0, 30.0, 30.0, 30.0, 0.0, 0.0],
        3,
        |choices| {
            selected
                .push(choices.iter().map(|c| (c.job.0, c.selected.clone())).collect::<Vec<_>>());
        },
    );
    let is_estimate = |(_, why): &(u32, Selected)| *why == Selected::Estimated;
    assert!(!selected[..2].iter().flatten().any(is_estimate));
    assert_eq!(selected[2], [(2, Selected::Estimated)]);
}

/// Each is tried once, then no job has cores of its own any more, until a speed is counted.
#[test]
fn without_counters() {
    let machine = machine("core:2 pu:2");
    let mut fair = fair();
    let mut jobs = queue(&[1.0; 4]);
    jobs.iter_mut().for_each(|job| ran(job, true, None));
    let mut estimated = |jobs: &[QueuedJob]| estimates(&next(&mut fair, &machine, jobs, None));
    let tried: usize = (0..4).map(|_| estimated(&jobs)).sum();
    assert_eq!((tried, estimated(&jobs)), (4, 0));
    ran(&mut jobs[1], true, Some(1.0));
    assert_eq!(estimated(&jobs), 1);
}

const TEN: [f64; 10] = [9.0, 1.0, 2.0, 30.0, 4.0, 5.0, 8.0, 7.0, 3.0, 6.0];

#[test]
fn alone_while_estimated() {
    let machine = machine("core:4 pu:2");
    for mixing in [Mixing::FAIR, Mixing::PERF_FAIR] {
        let mut fair = Fair::new(mixing, Estimating::USUAL);
        run(
            &machine,
            |now| fair.choose(now),
            &TEN,
            200,
            |choices| assert!(estimates(choices) == 0 || choices.len() == 1),
        );
    }
}

/// Two quanta until all have run, then one each at most.
#[test]
fn every_job_is_estimated() {
    let machine = machine("core:4 pu:2");
    let mut fair = Fair::new(Mixing::PERF_FAIR, Estimating::USUAL);
    run(&machine, |now| fair.choose(now), &TEN, 13, |_| ());
    assert!((0..10).all(|job| is_estimated(&fair, job)));
}

/// When all have been estimated once, no three quanta in a row hold two that make estimates; and
/// all are estimated anew.
#[test]
fn estimates_are_few() {
    let machine = machine("core:4 pu:2");
    let mut fair = Fair::new(Mixing::FAIR, Estimating { valid: 40, ..Estimating::USUAL });
    let (mut at, mut renewed, mut last) = (0_u32, [0; 10], None);
    run(
        &machine,
        |now| fair.choose(now),
        &TEN,
        400,
        |choices| {
            at += 1;
            let solo = choices.iter().filter(|choice| choice.selected == Selected::Estimated);
            let solo: Vec<u32> = solo.map(|choice| choice.job.0).collect();
            if at > 12 && !solo.is_empty() {
                assert!(last.is_none_or(|last| at - last >= 3), "{last:?} and {at}");
                last = Some(at);
                solo.iter().for_each(|job| renewed[*job as usize] += 1);
            }
        },
    );
    assert!(renewed.iter().all(|times| *times >= 2), "{renewed:?}");
}

/// Of twelve jobs on four contexts no job waits for more than 30 quanta.
#[test]
fn no_job_starves() {
    let machine = machine("core:2 pu:2");
    for mixing in [Mixing::FAIR, Mixing::PERF_FAIR] {
        let mut fair = Fair::new(mixing, Estimating::USUAL);
        let rates: Vec<f64> = (0..12).map(f64::from).collect();
        let mut waited = [0_u32; 12];
        run(
            &machine,
            |now| fair.choose(now),
            &rates,
            500,
            |choices| {
                waited.iter_mut().for_each(|waited| *waited += 1);
                choices.iter().for_each(|choice| waited[choice.job.0 as usize] = 0);
                assert!(waited.iter().all(|waited| *waited <= 30), "{waited:?}");
            },
        );
    }
}

/// Two jobs run for a hundred quanta on a core of one PU, then a third comes. It does not run for
/// the fifty quanta that each of the others has: all take turns from then on.
#[test]
fn a_later_job_has_no_arrears() {
    let machine = machine("core:1");
    let mut fair = fair();
    let mut all = queue(&[1.0; 3]);
    let mut turns = Vec::new();
    for number in 0..120 {
        let jobs = if number < 100 { &mut all[..2] } else { &mut all[..] };
        let job = next(&mut fair, &machine, jobs, None)[0].job;
        turns.push(job.0);
        for other in jobs {
            other.just_ran = false;
            if other.job == job {
                ran(other, true, Some(1.0));
            }
        }
    }
    let turns_of = |job: u32| turns[100..].iter().filter(|turn| **turn == job).count();
    assert!((0..3).all(|job| (6..=8).contains(&turns_of(job))), "{:?}", &turns[100..]);
}

/// Four jobs on two contexts; the first two have run for a second, the others not at all: things
/// are as unfair as can be, and the others run. Then all have a second in two: slowdowns of 2 each,
/// and a half of the contexts, one, is given by progress. OATR is 2 · (30 + 10 + 20 + 5)/4 = 32.5;
/// the head of those that have come least far takes 30 of it, and 5 is nearest to the 2.5 that are
/// left.
#[test]
fn mixing_by_hand() {
    let machine = machine("core:1 pu:2");
    // No estimates: they would come first.
    let mut fair = Fair::new(Mixing::PERF_FAIR, Estimating::USUAL);
    let mut jobs = queue(&[30.0, 10.0, 20.0, 5.0]);
    jobs[..2].iter_mut().for_each(|job| ran(job, false, None));
    let now: Vec<u32> =
        next(&mut fair, &machine, &jobs, None).iter().map(|choice| choice.job.0).collect();
    assert_eq!(now, [2, 3]);
    assert!(fair.table.unfairness(&jobs).is_infinite());
    for (job, just_ran) in jobs.iter_mut().zip([false, false, true, true]) {
        job.just_ran = just_ran;
        job.threads[0].ran.as_mut().unwrap().ipc = None;
    }
    fair.table.note(&jobs);
    assert!((fair.table.unfairness(&jobs) - 1.0).abs() < 1e-12);
    let pus: Vec<_> = machine.all_pus().collect();
    let now = Quantum { number: 2, machine: &machine, pus: &pus, queue: &jobs };
    let mixed = fair.by_progress_and_traffic(&now);
    assert_eq!(mixed[0], (0, Selected::LeastProgress { progress: 1.0 }));
    assert_eq!(mixed[1], (3, Selected::Traffic { wanted: 2.5, has: 5.0 }));
}

/// 2.0 alone. In another phase it does 3.0 beside others, which is a second's worth in a second;
/// 1.0 is half of one.
#[test]
fn faster_than_alone_is_another_phase() {
    let machine = machine("core:1 pu:2");
    let mut fair = fair();
    let mut jobs = queue(&[1.0]);
    next(&mut fair, &machine, &jobs, None);
    let mut done = [(false, 2.0), (true, 2.0), (false, 3.0), (false, 1.0)].map(|(alone, ipc)| {
        ran(&mut jobs[0], alone, Some(ipc));
        next(&mut fair, &machine, &jobs, None);
        done(&fair, 0)
    });
    done.iter_mut().for_each(|done| *done = (*done * 1e9).round() / 1e9);
    assert_eq!(done, [1.0, 2.0, 3.0, 3.5]);
}

/// Both came at the same time. One has done 4 s' worth, the other 1 s.
#[test]
fn unfairness_by_hand() {
    let mut table = ProgressTable::new(Estimating::USUAL);
    let mut jobs = queue(&[1.0, 1.0]);
    assert!((table.unfairness(&jobs) - 1.0).abs() < 1e-12, "nothing to compare");
    for (first, second) in [(true, false), (true, true), (true, false), (true, false)] {
        (jobs[0].just_ran, jobs[1].just_ran) = (first, second);
        table.note(&jobs);
    }
    assert!((table.unfairness(&jobs) - 4.0).abs() < 1e-12);
}

/// Longest that a job waits, in quanta, on two cores of two PUs. A job asks for
/// `(memory, alone, beside)`: its traffic, its speed with cores of its own and the share of it
/// beside others; job `n` comes at quantum `4 n`.
fn longest_wait(mixing: Mixing, asked: &[(f64, f64, f64)], quanta: usize) -> usize {
    let machine = machine("core:2 pu:2");
    let mut fair = Fair::new(mixing, Estimating::USUAL);
    let rates: Vec<f64> = asked.iter().map(|(memory, ..)| *memory).collect();
    let mut coming = queue(&rates).into_iter();
    let mut jobs: Vec<QueuedJob> = Vec::new();
    let mut waited = vec![0; asked.len()];
    let mut longest = 0;
    for number in 0..quanta {
        if number % 4 == 0 {
            jobs.splice(0..0, coming.next());
        }
        let choices = next(&mut fair, &machine, &jobs, None);
        for job in &mut jobs {
            let (_, alone, beside) = asked[job.job.0 as usize];
            let choice = choices.iter().find(|choice| choice.job == job.job);
            let solo = choice.is_some_and(|choice| choice.selected == Selected::Estimated);
            let wait = &mut waited[job.job.0 as usize];
            *wait = if choice.is_some() { 0 } else { *wait + 1 };
            longest = longest.max(*wait);
            job.just_ran = false;
            if choice.is_some() {
                ran(job, solo, Some(if solo { alone } else { alone * beside }));
            }
        }
        jobs.sort_by_key(|job| job.just_ran);
    }
    longest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each of up to eight jobs on four contexts has at least three tenths of its speed alone. A
    /// job that waits sees four others that have come less far, except while estimates are made; it
    /// waits until these have caught up. How long is not derived: 3,000 random cases found waits of
    /// more than 20 quanta and none of more than 40.
    #[test]
    fn no_job_waits_long(
        asked in prop::collection::vec((0.0_f64..60.0, 0.2_f64..3.0, 0.3_f64..1.0), 5..9),
        perf in any::<bool>(),
    ) {
        let mixing = if perf { Mixing::PERF_FAIR } else { Mixing::FAIR };
        let longest = longest_wait(mixing, &asked, 300);
        prop_assert!(longest <= 40, "{longest}");
    }
}

proptest! {
    #[test]
    fn no_quantum_counts_more_than_itself(
        quanta in prop::collection::vec((1_u64..1000, any::<bool>(), prop::option::of(0.1_f64..3.0)), 1..40),
    ) {
        let mut fair = Fair::new(Mixing::FAIR, valid(2));
        let machine = machine("core:1 pu:2");
        let mut jobs = queue(&[1.0]);
        let mut total = 0.0;
        next(&mut fair, &machine, &jobs, None);
        for (ms, alone, ipc) in quanta {
            ran(&mut jobs[0], alone, ipc);
            next(&mut fair, &machine, &jobs, Some(Nanos::from_millis(ms)));
            total += Nanos::from_millis(ms).as_secs_f64();
            let done = done(&fair, 0);
            prop_assert!(done <= total * (1.0 + 1e-9) && done >= 0.0, "{done} in {total}");
        }
    }

    /// Quanta at any speeds beside others, whole and cut into two.
    #[test]
    fn cutting_changes_nothing(
        quanta in prop::collection::vec((1_u64..1000, 0.1_f64..0.9, 0.1_f64..3.0), 1..20),
        estimate in prop::option::of(0.1_f64..3.0),
    ) {
        let done = |cut: bool| {
            let mut table = ProgressTable::new(Estimating::USUAL);
            let mut jobs = queue(&[1.0]);
            table.note(&jobs);
            let pus = [PuIdx(0)];
            let machine = machine("core:1");
            for (at, &(ms, part, ipc)) in quanta.iter().enumerate() {
                let whole = Nanos::from_millis(ms);
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below a second
                let first = Nanos((whole.0 as f64 * part) as u64);
                let parts = [first, Nanos(whole.0 - first.0)];
                let parts = if cut { parts.to_vec() } else { vec![whole] };
                for took in &parts {
                    ran(&mut jobs[0], false, Some(ipc));
                    table.on_quantum_end(&QuantumOutcome { throttled: false, took: *took, did: &[] });
                    table.note(&jobs);
                }
                if let Some(ipc) = estimate.filter(|_| at == quanta.len() / 2) {
                    let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &jobs };
                    table.begin_estimate(&now);
                    ran(&mut jobs[0], true, Some(ipc));
                    table.on_quantum_end(&QuantumOutcome { throttled: false, took: Nanos::from_secs(1), did: &[] });
                    table.note(&jobs);
                }
            }
            table.of(JobIdx(0)).map(|known| known.done).expect("it was there")
        };
        let (whole, cut) = (done(false), done(true));
        prop_assert!((whole - cut).abs() <= 1e-6 * whole, "{whole} {cut}");
    }
}
