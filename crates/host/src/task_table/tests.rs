//! Tests of the table.

use super::tasks::{REMEMBERED, REMEMBERED_LAST};
use super::*;
use colocate_act::fair::Fair;
use colocate_act::journal::Mark;
use colocate_machine::PuNr;
use colocate_observe::pmu::Metered;
use colocate_policy::{DefaultPlacement, Place, Plan};
use std::collections::BTreeSet;

fn creation(pid: i32, tid: i32, parent: (i32, i32)) -> Creation {
    let (parent_pid, parent_tid) = (Pid(parent.0), Tid(parent.1));
    Creation { at: Nanos(1), pid: Pid(pid), tid: Tid(tid), parent_pid, parent_tid, lost: false }
}

fn table() -> TaskTable {
    let mut table = TaskTable::default();
    table.add_job("job".into(), Pid(10));
    table.created(creation(10, 10, (1, 1))).unwrap();
    table
}

fn ids(of: &BTreeSet<TaskId>) -> Vec<TaskId> {
    of.iter().copied().collect()
}

fn on(pu: u32) -> Mark {
    Mark::On(PuNr(pu))
}

#[test]
fn children_count_on_in_their_job() {
    let mut table = table();
    assert_eq!(table.created(creation(10, 11, (10, 10))).unwrap().to_string(), "0.1");
    assert_eq!(table.created(creation(20, 20, (10, 11))).unwrap().to_string(), "0.2");
    assert_eq!(table.created(creation(20, 21, (20, 20))).unwrap().to_string(), "0.3");
    assert_eq!(table.created(creation(99, 99, (98, 98))), None, "a stranger");
    assert_eq!(table.tasks.most_living, 4);
}

/// 10 and 20 were given as one job. It has no task before they are found, one of 20 after 10 has ended, and then none.
#[test]
fn a_job_of_several_processes() {
    let mut table = TaskTable::default();
    table.add_job("job".into(), Pid(10));
    table.add_process(Pid(20));
    assert_eq!(table.jobs.take_emptied(), [JobIdx(0)]);
    assert_eq!(table.created(creation(10, 10, (1, 1))).unwrap().to_string(), "0.0");
    assert_eq!(table.created(creation(20, 20, (1, 1))).unwrap().to_string(), "0.1");
    assert_eq!(
        table.jobs.processes().collect::<Vec<_>>(),
        [(JobIdx(0), Pid(10)), (JobIdx(0), Pid(20))]
    );
    table.ended(Tid(10), Nanos(2));
    assert_eq!(table.jobs.take_emptied(), []);
    table.ended(Tid(20), Nanos(3));
    assert_eq!((table.jobs.take_emptied(), table.jobs.take_emptied()), (vec![JobIdx(0)], vec![]));
}

/// A thread that is alone in its process and sleeps is not among those that are read in each quantum; one that is not alone sleeps
/// with its process's clock.
#[test]
fn threads_that_sleep_alone() {
    let mut table = table();
    let first = table.tasks.living(Tid(10)).unwrap();
    let sleeps = |table: &mut TaskTable, id, sleeps| {
        table.tasks.get_mut(id).unwrap().usage.sleeps = sleeps;
        table.note_sleep(id);
        (ids(&table.tasks.to_read), ids(&table.tasks.sleeping_alone))
    };
    assert_eq!(sleeps(&mut table, first, true), (vec![], vec![first]));
    assert_eq!(sleeps(&mut table, first, false), (vec![first], vec![]));
    let second = table.created(creation(10, 11, (10, 10))).unwrap();
    assert_eq!(sleeps(&mut table, first, true), (vec![second], vec![]));
    table.ended(Tid(11), Nanos(2));
    assert_eq!(
        (ids(&table.tasks.to_read), ids(&table.tasks.sleeping_alone)),
        (vec![first], vec![])
    );
    assert_eq!(sleeps(&mut table, first, true), (vec![], vec![first]));
    table.ended(Tid(10), Nanos(3));
    assert_eq!((table.tasks.to_read.len(), ids(&table.tasks.sleeping_alone)), (0, vec![]));
}

/// cpu0 and cpu1 in turn; when the task of cpu0 ends, the next new thread goes there.
#[test]
fn new_threads_fill_in_order() {
    let mut table = table();
    let rule = DefaultPlacement::FillInOrder { pus: vec![PuNr(0), PuNr(1)] };
    let place = |table: &mut TaskTable, tid| {
        let id = table.created(creation(10, tid, (10, 10))).unwrap();
        let target = table.targets.default_target(&rule);
        table.set_target(id, target);
        target.pu().unwrap().0
    };
    assert_eq!([11, 12, 13].map(|tid| place(&mut table, tid)), [0, 1, 0]);
    table.ended(Tid(11), Nanos(2));
    table.ended(Tid(13), Nanos(2));
    assert_eq!([14, 15].map(|tid| place(&mut table, tid)), [0, 0]);
    assert_eq!(table.targets.default_target(&DefaultPlacement::LeaveToKernel), Place::LeftToKernel);
}

#[test]
fn a_million_ended_tasks_are_not_remembered() {
    let mut table = table();
    for tid in 100..30_100 {
        table.created(creation(10, tid, (10, 10))).unwrap();
        table.ended(Tid(tid), Nanos(2));
    }
    assert_eq!(seen(&table, Nanos(0), &BTreeSet::new()).len(), REMEMBERED + 1);
    assert_eq!(table.tasks.forgotten, 20_000);
    assert_eq!(table.tasks.all_living().count(), 1);
}

/// A job's instructions are those of its living and ended tasks in all runs, and numbers go on.
#[test]
fn runs_add_up() {
    let mut table = table();
    let counted = Metered { instructions: Some(100), ..Metered::default() };
    let first = table.tasks.living(Tid(10)).unwrap();
    table.tasks.get_mut(first).unwrap().usage.note_counted(Some(counted));
    table.tasks.get_mut(first).unwrap().usage.cpu_time = Some(Nanos(7));
    assert_eq!((table.instructions(), table.cpu_time(JobIdx(0))), (vec![100], Some(Nanos(7))));
    table.ended(Tid(10), Nanos(3));
    assert_eq!((table.instructions(), table.cpu_time(JobIdx(0))), (vec![100], Some(Nanos(7))));
    table.revive(first);
    assert_eq!((table.instructions(), table.cpu_time(JobIdx(0))), (vec![100], Some(Nanos(7))));
    table.created(creation(10, 11, (10, 10))).unwrap();
    assert_eq!(table.cpu_time(JobIdx(0)), None, "it was not read");
    table.ended(Tid(11), Nanos(3));
    table.ended(Tid(10), Nanos(3));
    assert_eq!(table.cpu_time(JobIdx(0)), None, "it stays unknown");
    assert_eq!(table.jobs.run_of(Pid(10)), Some((JobIdx(0), Nanos::ZERO)));
    table.restart(JobIdx(0), Pid(30), Nanos(9));
    assert_eq!((table.jobs.run_of(Pid(10)), table.jobs.run_of(Pid(30)).is_some()), (None, true));
    let again = table.created(creation(30, 30, (1, 1))).unwrap();
    assert_eq!(again.to_string(), "0.2");
    assert!(table.begins_run(again) && !table.begins_run(first));
    table.tasks.get_mut(again).unwrap().usage.note_counted(Some(counted));
    table.tasks.get_mut(again).unwrap().usage.cpu_time = Some(Nanos(1));
    assert_eq!((table.instructions(), table.cpu_time(JobIdx(0))), (vec![200], Some(Nanos(10))));
    assert!(table.maybe_lost().is_empty(), "the first run is over");
}

/// The plan was made before the job began anew: the new run goes where the plan wanted the one before.
#[test]
fn a_later_run_is_placed_as_the_one_before() {
    let text = r#"{ "version": 2, "machine": "m", "pus": [], "policy": "p", "decisions": [
        { "task": { "job": 0, "order": 0 }, "name": "t", "pu": 5, "why": { "why": "drawn", "seed": 1 } }],
        "default_placement": { "rule": "leave-to-kernel" }, "predicted": null }"#;
    let plan = Plan::from_json(text).unwrap();
    let mut table = table();
    for pid in [30, 40] {
        table.restart(JobIdx(0), Pid(pid), Nanos::ZERO);
        let first = table.created(creation(pid, pid, (1, 1))).unwrap();
        assert_eq!(table.target_of(&plan, first), Place::Pu(PuNr(5)));
        let other = table.created(creation(pid, pid + 1, (pid, pid))).unwrap();
        assert_eq!(table.target_of(&plan, other), Place::LeftToKernel);
    }
    table.jobs.note_planned();
    let last = table.tasks.living(Tid(40)).unwrap();
    assert_eq!(
        table.target_of(&plan, last),
        Place::LeftToKernel,
        "a plan made since then knows it, or leaves it out"
    );
}

#[test]
fn the_last_to_end_are_remembered() {
    let mut table = table();
    table.tasks.keeps_last = true;
    let ends = 100..100 + 2 * i32::try_from(REMEMBERED_LAST).unwrap();
    for tid in ends.clone() {
        table.created(creation(10, tid, (10, 10))).unwrap();
        table.ended(Tid(tid), Nanos(2));
    }
    assert_eq!(seen(&table, Nanos(0), &BTreeSet::new()).len(), REMEMBERED_LAST + 1);
    let last = TaskId { job: JobIdx(0), order: u32::try_from(ends.len()).unwrap() };
    assert!(table.tasks.get_mut(last).is_some());
}

#[test]
fn a_new_thread_inherits_its_creators_mark() {
    let mut table = table();
    let first = table.tasks.living(Tid(10)).unwrap();
    table.tasks.get_mut(first).unwrap().thread.mark = Mark::On(PuNr(3));
    let id = table.created(creation(10, 11, (10, 10))).unwrap();
    assert_eq!(table.tasks.get_mut(id).unwrap().thread.mark, Mark::On(PuNr(3)));
}

#[test]
fn a_task_that_ends_while_it_settles_was_missed() {
    let mut table = table();
    let first = table.tasks.living(Tid(10)).unwrap();
    table.tasks.get_mut(first).unwrap().placement.status = PlacementStatus::Settling;
    table.ended(Tid(10), Nanos(5));
    assert_eq!(seen(&table, Nanos(1), &BTreeSet::new())[0].status, PlacementStatus::Missed);
    assert_eq!(seen(&table, Nanos(1), &BTreeSet::new())[0].ended, Some(Nanos(4)));
}

/// Threads 11 and 12 of process 10 were on PUs 1 and 2; the record of the creation of 14 was lost, so either may have
/// created it. Process 20 has nothing to do with it.
#[test]
fn a_new_thread_of_an_unknown_creator_may_have_any_mask_of_its_process() {
    let mut table = table();
    for (pid, tid, pu) in [(10, 11, 1), (10, 12, 2), (20, 20, 3)] {
        let id = table.created(creation(pid, tid, (10, 10))).unwrap();
        table.tasks.get_mut(id).unwrap().thread.mark = Mark::On(PuNr(pu));
    }
    let known = creation(10, 13, (10, 10));
    let lost = Creation { lost: true, ..creation(10, 14, (10, 10)) };
    let had = [known, lost].map(|creation| {
        let id = table.created(creation).unwrap();
        table.tasks.get_mut(id).unwrap().thread.recent.marks().collect::<Vec<_>>()
    });
    assert_eq!(had, [vec![], vec![on(1), on(2)]]);
}

/// The same with a thread of process 10 under SCHED_IDLE by our doing: the new thread may have that of it. Where the program has
/// bound a thread itself, it may have bound the new thread, too.
#[test]
fn a_new_thread_of_an_unknown_creator_may_have_its_policy() {
    let mut table = table();
    let fair = Fair::Batch;
    let lowered = table.created(creation(10, 11, (10, 10))).unwrap();
    let task = table.tasks.get_mut(lowered).unwrap();
    (task.thread.mark, task.thread.last_lowered) = (Mark::On(PuNr(1)), Some(fair));
    let mut new = |tid, stand| {
        table.tasks.get_mut(lowered).unwrap().placement.status = stand;
        table.inheritable.begin_events();
        let id = table.created(Creation { lost: true, ..creation(10, tid, (10, 10)) }).unwrap();
        let task = table.tasks.get_mut(id).unwrap();
        (task.thread.recent.marks().collect::<Vec<_>>(), task.thread.last_lowered)
    };
    assert_eq!(new(14, PlacementStatus::Placed), (vec![on(1)], Some(fair)));
    assert_eq!(new(15, PlacementStatus::PinnedByProgram), (vec![], None));
}

/// Process 10 has the threads 10 on PU 0 and 11 on PU 1; 11 executes a program. The kernel reports that 10 has ended, and
/// what that means for 11: it is created as 10, and then ends.
fn taken_over(parent: i32) -> (TaskTable, TaskId) {
    let mut table = table();
    let first = table.tasks.living(Tid(10)).unwrap();
    let further = table.created(creation(10, 11, (10, 10))).unwrap();
    for (id, pu, cpu_ms) in [(first, 0, 3), (further, 1, 4)] {
        let task = table.tasks.get_mut(id).unwrap();
        (task.thread.mark, task.usage.cpu_time) =
            (Mark::On(PuNr(pu)), Some(Nanos::from_millis(cpu_ms)));
        task.usage.waited = Some(Nanos(9));
    }
    table.ended(Tid(10), Nanos(2));
    let id = table.created(creation(10, 10, (10, parent))).unwrap();
    table.ended(Tid(11), Nanos(3));
    (table, id)
}

#[test]
fn a_thread_that_executes_a_program_stays_in_its_job() {
    let (mut table, id) = taken_over(11);
    assert_eq!(table.processes.of(JobIdx(0)), [Pid(10)]);
    assert_eq!(table.tasks.all_living().map(|task| task.id).collect::<Vec<_>>(), [id]);
    assert_eq!(
        table.tasks.get_mut(id).unwrap().thread.mark,
        Mark::On(PuNr(1)),
        "it has the mask that it had"
    );
    assert!(table.begins_run(id));
    assert!(table.maybe_lost().is_empty(), "none is to be revived");
    let child = table.created(creation(20, 20, (10, 10))).unwrap();
    assert_eq!(child.to_string(), "0.3");
    table.ended(Tid(10), Nanos(4));
    assert_eq!(table.processes.of(JobIdx(0)), [Pid(20)]);
    let first = TaskId { job: JobIdx(0), order: 0 };
    assert_eq!(table.maybe_lost(), [first], "its end may be one that was only reported");
}

/// 3 ms are those of the thread that was the first, which has ended. The 4 ms of the other are in what is read of it
/// under its new number.
#[test]
fn a_thread_that_executes_a_program_is_counted_once() {
    let (mut table, id) = taken_over(11);
    assert_eq!(table.cpu_time(JobIdx(0)), None, "it was not read yet");
    table.tasks.get_mut(id).unwrap().usage.cpu_time = Some(Nanos::from_millis(6));
    assert_eq!(table.cpu_time(JobIdx(0)), Some(Nanos::from_millis(9)));
    let executing = &seen(&table, Nanos(0), &BTreeSet::new())[1];
    assert_eq!((executing.cpu_time, executing.waited), (Some(Nanos::ZERO), Some(Nanos::ZERO)));
}

#[test]
fn any_thread_may_have_executed_a_program_where_none_is_known() {
    let (mut table, id) = taken_over(10);
    let task = table.tasks.get_mut(id).unwrap();
    assert_eq!(task.thread.mark, Mark::Original);
    assert_eq!(task.thread.recent.marks().collect::<Vec<_>>(), [on(0), on(1)]);
}

/// The same by `/proc`, which showed the end of 11 earlier: then the new program of 10 is reported as the end of 10 and
/// the creation of another first thread.
#[test]
fn a_sole_thread_after_an_exec_may_have_any_mask_of_its_process() {
    let mut table = table();
    let first = table.tasks.living(Tid(10)).unwrap();
    let further = table.created(creation(10, 11, (10, 10))).unwrap();
    for (id, pu) in [(first, 0), (further, 1)] {
        table.tasks.get_mut(id).unwrap().thread.mark = Mark::On(PuNr(pu));
    }
    table.ended(Tid(11), Nanos(2));
    table.ended(Tid(10), Nanos(3));
    let id = table.created(Creation { lost: true, ..creation(10, 10, (10, 10)) }).unwrap();
    assert_eq!(
        table.tasks.get_mut(id).unwrap().thread.recent.marks().collect::<Vec<_>>(),
        [on(0), on(1)]
    );
    assert_eq!(table.processes.of(JobIdx(0)), [Pid(10)]);
    assert!(table.begins_run(id) && table.maybe_lost().is_empty());
    table.ended(Tid(10), Nanos(4));
    assert_eq!(table.created(creation(20, 20, (10, 10))), None, "its process is gone");
}

/// A program that changes its user is not reported: 10 is found to live after all, and may be what was 11.
#[test]
fn a_revived_task_may_be_another_thread() {
    let mut table = table();
    let first = table.tasks.living(Tid(10)).unwrap();
    let further = table.created(creation(10, 11, (10, 10))).unwrap();
    table.tasks.get_mut(further).unwrap().thread.mark = Mark::On(PuNr(1));
    table.ended(Tid(10), Nanos(2));
    assert_eq!(table.maybe_lost(), [first]);
    table.revive(first);
    assert_eq!(
        table.tasks.get_mut(first).unwrap().thread.recent.marks().collect::<Vec<_>>(),
        [on(1)]
    );
    assert!(table.maybe_lost().is_empty());
}

/// The plan wanted the job's first task on PU 5, before another thread of it executed a program.
#[test]
fn a_thread_that_takes_over_from_the_first_goes_where_that_was_planned() {
    let text = r#"{ "version": 2, "machine": "m", "pus": [], "policy": "p", "decisions": [
        { "task": { "job": 0, "order": 0 }, "name": "t", "pu": 5, "why": { "why": "drawn", "seed": 1 } }],
        "default_placement": { "rule": "leave-to-kernel" }, "predicted": null }"#;
    let plan = Plan::from_json(text).unwrap();
    let (table, id) = taken_over(11);
    assert_eq!(table.target_of(&plan, id), Place::Pu(PuNr(5)));
}

/// A task runs on after its mask was read, and is next seen when it sleeps: it may have set its mask meanwhile.
#[test]
fn a_mask_is_known_until_the_task_runs() {
    let mut table = table();
    let task = table.tasks.get_mut(TaskId { job: JobIdx(0), order: 0 }).unwrap();
    task.usage.sleeps = true;
    assert!(!task.has_slept(), "it was never read");
    task.usage.cpu_time = Some(Nanos(5));
    task.read_at = task.usage.cpu_time;
    assert!(task.has_slept());
    task.usage.cpu_time = Some(Nanos(7));
    assert!(!task.has_slept());
}
