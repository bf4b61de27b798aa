//! Tests of the book.

use super::*;

fn birth(pid: i32, tid: i32, parent: (i32, i32)) -> Birth {
    let (parent_pid, parent_tid) = (Pid(parent.0), Tid(parent.1));
    Birth { at: Nanos(1), pid: Pid(pid), tid: Tid(tid), parent_pid, parent_tid, lost: false }
}

fn book() -> Book {
    let mut book = Book::default();
    book.add_job("job".into(), Pid(10), Runtime::Plain);
    book.born(birth(10, 10, (1, 1))).unwrap();
    book
}

#[test]
fn children_count_on_in_their_job() {
    let mut book = book();
    assert_eq!(book.born(birth(10, 11, (10, 10))).unwrap().to_string(), "0.1");
    assert_eq!(book.born(birth(20, 20, (10, 11))).unwrap().to_string(), "0.2");
    assert_eq!(book.born(birth(20, 21, (20, 20))).unwrap().to_string(), "0.3");
    assert_eq!(book.born(birth(99, 99, (98, 98))), None, "a stranger");
    assert_eq!(book.most_living, 4);
}

/// cpu0 and cpu1 in turn; when the task of cpu0 ends, the next newborn goes there.
#[test]
fn newborns_fill_in_order() {
    let mut book = book();
    let rule = Newborn::FillInOrder { pus: vec![PuNr(0), PuNr(1)] };
    let place = |book: &mut Book, tid| {
        let id = book.born(birth(10, tid, (10, 10))).unwrap();
        let aim = book.newborn_aim(&rule);
        book.aim(id, aim);
        aim.unwrap().0
    };
    assert_eq!([11, 12, 13].map(|tid| place(&mut book, tid)), [0, 1, 0]);
    book.ended(Tid(11), Nanos(2));
    book.ended(Tid(13), Nanos(2));
    assert_eq!([14, 15].map(|tid| place(&mut book, tid)), [0, 0]);
    assert_eq!(book.newborn_aim(&Newborn::LeaveToKernel), None);
}

#[test]
fn a_million_ended_tasks_are_not_remembered() {
    let mut book = book();
    for tid in 100..30_100 {
        book.born(birth(10, tid, (10, 10))).unwrap();
        book.ended(Tid(tid), Nanos(2));
    }
    assert_eq!(book.seen(Nanos(0), |_, _| None).len(), REMEMBERED + 1);
    assert_eq!(book.forgotten, 20_000);
    assert_eq!(book.all_living().count(), 1);
}

/// A job's instructions are those of its living and ended tasks in all runs, and numbers go on.
#[test]
fn runs_add_up() {
    let mut book = book();
    let counted = Metered { instructions: Some(100), ..Metered::default() };
    let first = book.living(Tid(10)).unwrap();
    book.task(first).unwrap().counted = counted;
    book.task(first).unwrap().cpu_time = Some(Nanos(7));
    assert_eq!((book.instructions(), book.cpu_time(JobIdx(0))), (vec![100], Some(Nanos(7))));
    book.ended(Tid(10), Nanos(3));
    assert_eq!((book.instructions(), book.cpu_time(JobIdx(0))), (vec![100], Some(Nanos(7))));
    book.revive(first);
    assert_eq!((book.instructions(), book.cpu_time(JobIdx(0))), (vec![100], Some(Nanos(7))));
    book.born(birth(10, 11, (10, 10))).unwrap();
    assert_eq!(book.cpu_time(JobIdx(0)), None, "nobody has asked");
    book.ended(Tid(11), Nanos(3));
    book.ended(Tid(10), Nanos(3));
    assert_eq!(book.cpu_time(JobIdx(0)), None, "nobody will know");
    assert_eq!(book.run_of(Pid(10)), Some((JobIdx(0), Nanos::ZERO)));
    book.restart(JobIdx(0), Pid(30), Runtime::Plain, Nanos(9));
    assert_eq!((book.run_of(Pid(10)), book.run_of(Pid(30)).is_some()), (None, true));
    let again = book.born(birth(30, 30, (1, 1))).unwrap();
    assert_eq!(again.to_string(), "0.2");
    assert!(book.begins_run(again) && !book.begins_run(first));
    book.task(again).unwrap().counted = counted;
    book.task(again).unwrap().cpu_time = Some(Nanos(1));
    assert_eq!((book.instructions(), book.cpu_time(JobIdx(0))), (vec![200], Some(Nanos(10))));
    assert!(book.doubtful().is_empty(), "the first run is over");
}

/// The plan was made before the job began anew: the new run goes where the plan wanted the one before.
#[test]
fn a_later_run_stands_where_the_one_before_stood() {
    let text = r#"{ "version": 1, "machine": "m", "pus": [], "policy": "p", "decisions": [
        { "task": { "job": 0, "order": 0 }, "name": "t", "pu": 5, "why": { "why": "drawn", "seed": 1 } }],
        "newborn": { "rule": "leave-to-kernel" }, "predicted": null }"#;
    let plan = Plan::from_json(text).unwrap();
    let mut book = book();
    for pid in [30, 40] {
        book.restart(JobIdx(0), Pid(pid), Runtime::Plain, Nanos::ZERO);
        let first = book.born(birth(pid, pid, (1, 1))).unwrap();
        assert_eq!(book.aim_of(&plan, first), Some(PuNr(5)));
        let other = book.born(birth(pid, pid + 1, (pid, pid))).unwrap();
        assert_eq!(book.aim_of(&plan, other), None);
    }
    book.is_planned();
    let last = book.living(Tid(40)).unwrap();
    assert_eq!(book.aim_of(&plan, last), None, "a plan made since then knows it, or leaves it out");
}

#[test]
fn the_last_to_end_are_remembered() {
    let mut book = book();
    book.remembers_last = true;
    let ends = 100..100 + 2 * i32::try_from(REMEMBERED_LAST).unwrap();
    for tid in ends.clone() {
        book.born(birth(10, tid, (10, 10))).unwrap();
        book.ended(Tid(tid), Nanos(2));
    }
    assert_eq!(book.seen(Nanos(0), |_, _| None).len(), REMEMBERED_LAST + 1);
    let last = TaskId { job: JobIdx(0), order: u32::try_from(ends.len()).unwrap() };
    assert!(book.task(last).is_some());
}

#[test]
fn a_newborn_inherits_its_creators_mark() {
    let mut book = book();
    let first = book.living(Tid(10)).unwrap();
    book.task(first).unwrap().mark = Mark::On(PuNr(3));
    let id = book.born(birth(10, 11, (10, 10))).unwrap();
    assert_eq!(book.task(id).unwrap().mark, Mark::On(PuNr(3)));
}

#[test]
fn a_task_that_ends_while_it_settles_was_missed() {
    let mut book = book();
    let first = book.living(Tid(10)).unwrap();
    book.task(first).unwrap().stand = Stand::Settling;
    book.ended(Tid(10), Nanos(5));
    assert_eq!(book.seen(Nanos(1), |_, _| None)[0].stand, Stand::Missed);
    assert_eq!(book.seen(Nanos(1), |_, _| None)[0].ended, Some(Nanos(4)));
}

/// Threads 11 and 12 of process 10 were on PUs 1 and 2; the note of the birth of 14 was lost, so either may have
/// created it. Process 20 has nothing to do with it.
#[test]
fn a_newborn_of_an_unknown_creator_may_have_any_mask_of_its_process() {
    let mut book = book();
    for (pid, tid, pu) in [(10, 11, 1), (10, 12, 2), (20, 20, 3)] {
        let id = book.born(birth(pid, tid, (10, 10))).unwrap();
        book.task(id).unwrap().mark = Mark::On(PuNr(pu));
    }
    let known = birth(10, 13, (10, 10));
    let lost = Birth { lost: true, ..birth(10, 14, (10, 10)) };
    let had = [known, lost].map(|birth| {
        let id = book.born(birth).unwrap();
        book.task(id).unwrap().had.pus().collect::<Vec<_>>()
    });
    assert_eq!(had, [vec![], vec![PuNr(1), PuNr(2)]]);
}

/// The same with a thread of process 10 under SCHED_IDLE by our doing: the newborn may have that of it. Where the program has
/// bound a thread itself, it may have bound the newborn, too.
#[test]
fn a_newborn_of_an_unknown_creator_may_have_its_policy() {
    let mut book = book();
    let fair = Fair::Batch;
    let lowered = book.born(birth(10, 11, (10, 10))).unwrap();
    let task = book.task(lowered).unwrap();
    (task.mark, task.was_lowered) = (Mark::On(PuNr(1)), Some(fair));
    let mut newborn = |tid, stand| {
        book.task(lowered).unwrap().stand = stand;
        book.begin_events();
        let id = book.born(Birth { lost: true, ..birth(10, tid, (10, 10)) }).unwrap();
        let task = book.task(id).unwrap();
        (task.had.pus().collect::<Vec<_>>(), task.was_lowered)
    };
    assert_eq!(newborn(14, Stand::Placed), (vec![PuNr(1)], Some(fair)));
    assert_eq!(newborn(15, Stand::PinnedByProgram), (vec![], None));
}

/// Process 10 has the threads 10 on PU 0 and 11 on PU 1; 11 executes a program. The kernel tells that 10 has ended, and
/// births what that means for 11: it is born as 10, and then ends.
fn taken_over(parent: i32) -> (Book, TaskId) {
    let mut book = book();
    let first = book.living(Tid(10)).unwrap();
    let further = book.born(birth(10, 11, (10, 10))).unwrap();
    for (id, pu, cpu_ms) in [(first, 0, 3), (further, 1, 4)] {
        let task = book.task(id).unwrap();
        (task.mark, task.cpu_time) = (Mark::On(PuNr(pu)), Some(Nanos::from_millis(cpu_ms)));
        task.waited = Some(Nanos(9));
    }
    book.ended(Tid(10), Nanos(2));
    let id = book.born(birth(10, 10, (10, parent))).unwrap();
    book.ended(Tid(11), Nanos(3));
    (book, id)
}

#[test]
fn who_executes_a_program_stays_known_to_its_job() {
    let (mut book, id) = taken_over(11);
    assert_eq!(book.processes_of(JobIdx(0)), [Pid(10)]);
    assert_eq!(book.all_living().collect::<Vec<_>>(), [(Tid(10), id)]);
    assert_eq!(book.task(id).unwrap().mark, Mark::On(PuNr(1)), "it has the mask that it had");
    assert!(book.begins_run(id));
    assert!(book.doubtful().is_empty(), "nobody is to be revived");
    let child = book.born(birth(20, 20, (10, 10))).unwrap();
    assert_eq!(child.to_string(), "0.3");
    book.ended(Tid(10), Nanos(4));
    assert_eq!(book.processes_of(JobIdx(0)), [Pid(20)]);
    let first = TaskId { job: JobIdx(0), order: 0 };
    assert_eq!(book.doubtful(), [first], "its end may be one that was only reported");
}

/// 3 ms are those of the thread that was the first, which has ended. The 4 ms of the other are in what is read of it
/// under its new number.
#[test]
fn who_executes_a_program_has_its_time_counted_once() {
    let (mut book, id) = taken_over(11);
    assert_eq!(book.cpu_time(JobIdx(0)), None, "nobody has asked yet");
    book.task(id).unwrap().cpu_time = Some(Nanos::from_millis(6));
    assert_eq!(book.cpu_time(JobIdx(0)), Some(Nanos::from_millis(9)));
    let executing = &book.seen(Nanos(0), |_, _| None)[1];
    assert_eq!((executing.cpu_time, executing.waited), (Some(Nanos::ZERO), Some(Nanos::ZERO)));
}

#[test]
fn who_executes_a_program_may_be_any_thread_if_nobody_knows() {
    let (mut book, id) = taken_over(10);
    let task = book.task(id).unwrap();
    assert_eq!(task.mark, Mark::Original);
    assert_eq!(task.had.pus().collect::<Vec<_>>(), [PuNr(0), PuNr(1)]);
}

/// The same by `/proc`, which showed the end of 11 earlier: then the new program of 10 is reported as the end of 10 and
/// the creation of another first thread.
#[test]
fn a_sole_thread_after_an_exec_may_have_any_mask_of_its_process() {
    let mut book = book();
    let first = book.living(Tid(10)).unwrap();
    let further = book.born(birth(10, 11, (10, 10))).unwrap();
    for (id, pu) in [(first, 0), (further, 1)] {
        book.task(id).unwrap().mark = Mark::On(PuNr(pu));
    }
    book.ended(Tid(11), Nanos(2));
    book.ended(Tid(10), Nanos(3));
    let id = book.born(Birth { lost: true, ..birth(10, 10, (10, 10)) }).unwrap();
    assert_eq!(book.task(id).unwrap().had.pus().collect::<Vec<_>>(), [PuNr(0), PuNr(1)]);
    assert_eq!(book.processes_of(JobIdx(0)), [Pid(10)]);
    assert!(book.begins_run(id) && book.doubtful().is_empty());
    book.ended(Tid(10), Nanos(4));
    assert_eq!(book.born(birth(20, 20, (10, 10))), None, "its process is gone");
}

/// A program that changes its user is not told of: 10 is found to live after all, and may be who was 11.
#[test]
fn who_is_revived_may_be_another_thread() {
    let mut book = book();
    let first = book.living(Tid(10)).unwrap();
    let further = book.born(birth(10, 11, (10, 10))).unwrap();
    book.task(further).unwrap().mark = Mark::On(PuNr(1));
    book.ended(Tid(10), Nanos(2));
    assert_eq!(book.doubtful(), [first]);
    book.revive(first);
    assert_eq!(book.task(first).unwrap().had.pus().collect::<Vec<_>>(), [PuNr(1)]);
    assert!(book.doubtful().is_empty());
}

/// The plan wanted the job's first task on PU 5, before another thread of it executed a program.
#[test]
fn who_takes_over_from_the_first_goes_where_the_plan_wanted_that() {
    let text = r#"{ "version": 1, "machine": "m", "pus": [], "policy": "p", "decisions": [
        { "task": { "job": 0, "order": 0 }, "name": "t", "pu": 5, "why": { "why": "drawn", "seed": 1 } }],
        "newborn": { "rule": "leave-to-kernel" }, "predicted": null }"#;
    let plan = Plan::from_json(text).unwrap();
    let (book, id) = taken_over(11);
    assert_eq!(book.aim_of(&plan, id), Some(PuNr(5)));
}
