//! Orders of events, and what a scan of `/proc` shows of an exec.

use super::order::drop_others;
use super::*;
use colocate_machine::Nanos;
use std::io::Write as _;

fn created(at: u64, pid: i32, tid: i32, parent: i32) -> TaskEvent {
    let (pid, parent_pid) = (Pid(pid), Pid(parent));
    let parent_tid = parent_pid.first_thread();
    TaskEvent::Created { at: Nanos(at), pid, tid: Tid(tid), parent_pid, parent_tid, found: false }
}

fn ended(at: u64, tid: i32) -> TaskEvent {
    TaskEvent::Ended { at: Nanos(at), pid: Pid(tid), tid: Tid(tid) }
}

/// Watches process 10, whose creation has been read.
fn lifecycle() -> LifecycleEvents {
    let mut order = EventOrder::new(None);
    order.tree.learn(&created(0, 10, 10, 1));
    LifecycleEvents {
        reports: None,
        without_perf: None,
        proc: Proc::default(),
        order,
        first: Vec::new(),
        bytes: Vec::new(),
        scans: Scans::new(None),
        allowed: Vec::new(),
        has_uncovered_cpus: false,
        next_read: Instant::now(),
    }
}

/// Process 10 creates 20, which creates thread 21; the record of 21 is read before that of 20.
#[test]
fn a_creation_waits_for_that_of_its_creator() {
    let (mut lifecycle, mut events) = (lifecycle(), Vec::new());
    lifecycle.order.early = vec![created(2, 20, 21, 20)];
    lifecycle.order.deliver(Nanos(5), &mut events);
    assert_eq!(events, []);
    lifecycle.order.early.insert(0, created(1, 20, 20, 10));
    lifecycle.order.deliver(Nanos(5), &mut events);
    assert_eq!(events, [created(1, 20, 20, 10), created(2, 20, 21, 20)]);
    assert!(lifecycle.order.early.is_empty());
}

/// The end of 20 came while the rings were read, after that of its creation's CPU: it waits. The end of 40, which came before that,
/// is of a task that is not watched.
#[test]
fn an_end_waits_for_its_creation() {
    let (mut lifecycle, mut events) = (lifecycle(), Vec::new());
    lifecycle.order.early = vec![ended(1, 40), ended(4, 20)];
    lifecycle.order.deliver(Nanos(3), &mut events);
    assert_eq!(drop_others(&mut lifecycle.order.early, Nanos(3)), 1);
    lifecycle.order.early.insert(0, created(2, 20, 20, 10));
    lifecycle.order.deliver(Nanos(5), &mut events);
    assert_eq!(events, [created(2, 20, 20, 10), ended(4, 20)]);
}

/// Process 20 creates 30 and ends; its end is read before that creation. The reading began at 3, so
/// events from then on may be preceded by some not read yet.
#[test]
fn the_end_of_a_creator_does_not_overtake_a_creation() {
    let (mut lifecycle, mut events) = (lifecycle(), Vec::new());
    lifecycle.order.early = vec![created(1, 20, 20, 10), ended(4, 20)];
    lifecycle.order.deliver(Nanos(3), &mut events);
    lifecycle.order.early.insert(0, created(3, 30, 30, 20));
    lifecycle.order.deliver(Nanos(5), &mut events);
    let all = [created(1, 20, 20, 10), created(3, 30, 30, 20), ended(4, 20)];
    assert_eq!(events, all);
}

fn ended_of(at: u64, pid: i32, tid: i32) -> TaskEvent {
    TaskEvent::Ended { at: Nanos(at), pid: Pid(pid), tid: Tid(tid) }
}

fn executes(at: u64, pid: i32) -> TaskEvent {
    let (pid, tid, name) = (Pid(pid), Tid(pid), "new".to_owned());
    TaskEvent::Named { at: Nanos(at), pid, tid, name, exec: true }
}

/// A thread that takes over the number of the first thread of process 10.
fn takes_over(at: u64, parent: i32, found: bool) -> TaskEvent {
    let (pid, tid, parent_tid) = (Pid(10), Tid(10), Tid(parent));
    TaskEvent::Created { at: Nanos(at), pid, tid, parent_pid: pid, parent_tid, found }
}

/// Process 10 has the threads 10, 11 and 12. 12 executes a program: the kernel reports that 10 and 11 have ended and
/// that the program of 10 is new. Between the events there is always one task of the process.
#[test]
fn an_executing_thread_is_created_as_the_first_before_it_ends() {
    let (mut lifecycle, mut events) = (lifecycle(), Vec::new());
    lifecycle.order.early = vec![created(1, 10, 11, 10), created(2, 10, 12, 10)];
    lifecycle.order.deliver(Nanos(3), &mut events);
    events.clear();
    lifecycle.order.early = vec![ended_of(3, 10, 10), ended_of(4, 10, 11), executes(5, 10)];
    lifecycle.order.deliver(Nanos(6), &mut events);
    let ends = [ended_of(3, 10, 10), ended_of(4, 10, 11)];
    let taken = [takes_over(5, 12, false), ended_of(5, 10, 12), executes(5, 10)];
    assert_eq!(events, [&ends[..], &taken].concat());
    assert!(lifecycle.order.tree.has_process(Pid(10)) && !lifecycle.all_ended());
}

/// The same, and the record of the end of 11 was lost: 11 or 12 executes it.
#[test]
fn of_several_the_executing_one_is_unknown() {
    let (mut lifecycle, mut events) = (lifecycle(), Vec::new());
    lifecycle.order.early = vec![created(1, 10, 11, 10), created(2, 10, 12, 10)];
    lifecycle.order.early.extend([ended_of(3, 10, 10), executes(5, 10)]);
    lifecycle.order.deliver(Nanos(6), &mut events);
    let taken = [takes_over(5, 10, false), ended_of(5, 10, 11), ended_of(5, 10, 12)];
    assert_eq!(events[3..6], taken);
}

/// A saved `/proc` in which process 10 executes `program` and has these threads.
fn saved(program: &str, threads: &[i32]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let process = root.path().join("10");
    for tid in threads {
        let task = process.join("task").join(tid.to_string());
        std::fs::create_dir_all(&task).unwrap();
        std::fs::write(task.join("children"), "").unwrap();
        std::fs::write(task.join("comm"), format!("{program}\n")).unwrap();
    }
    std::fs::write(process.join("stat"), "10 (x) S 1 10 10").unwrap();
    std::os::unix::fs::symlink(program, process.join("exe")).unwrap();
    root
}

/// What is new in the last of several scans of process 10, without times.
fn last_scan(scans: &[tempfile::TempDir]) -> Vec<String> {
    let (mut lifecycle, mut events) = (lifecycle(), Vec::new());
    for root in scans {
        events = scan(&mut lifecycle, root);
    }
    lines(&events)
}

fn scan(lifecycle: &mut LifecycleEvents, root: &tempfile::TempDir) -> Vec<TaskEvent> {
    let mut events = Vec::new();
    lifecycle.proc = Proc::at(root.path());
    lifecycle.scans.next = Some(Instant::now());
    lifecycle.drain(&mut events);
    events
}

fn lines(events: &[TaskEvent]) -> Vec<String> {
    let line = |event: &TaskEvent| match event {
        TaskEvent::Created { tid, parent_pid, parent_tid, found, .. } => {
            format!("{tid} created by {parent_pid}/{parent_tid}, found {found}")
        }
        TaskEvent::Ended { tid, .. } => format!("{tid} ended"),
        TaskEvent::Named { tid, name, exec, .. } => format!("{tid} is {name}, exec {exec}"),
        TaskEvent::Lost { count } => format!("{count} lost"),
        TaskEvent::Storm { pid, .. } => format!("{pid} storms"),
    };
    events.iter().map(line).collect()
}

/// What is reported of process 10 where another of its threads may have executed `new`.
const RENEWED: [&str; 3] = ["10 ended", "10 created by 10/10, found true", "10 is new, exec true"];

/// The kernel lists 11 for a moment after it has reported its end, with the flags of one that is about to end.
#[test]
fn an_ending_thread_is_not_found_again() {
    let root = saved("old", &[10, 11]);
    let mut lifecycle = lifecycle();
    scan(&mut lifecycle, &root);
    lifecycle.order.tree.forget(Tid(11));
    let set = |flags: &str| {
        let stat = format!("11 (a) b) R 1 10 10 0 -1 {flags} 0");
        std::fs::write(root.path().join("10/task/11/stat"), stat).unwrap();
    };
    set("4194372");
    assert_eq!(lines(&scan(&mut lifecycle, &root)), [""; 0]);
    set("4194368");
    assert_eq!(lines(&scan(&mut lifecycle, &root))[0], "11 created by 10/10, found true");
}

/// 11 or 12 may have executed the program; `/proc` shows 10 all the time.
#[test]
fn in_proc_the_first_thread_is_renewed_when_others_end_by_an_exec() {
    let seen = last_scan(&[saved("old", &[10, 11, 12]), saved("new", &[10])]);
    assert_eq!(seen, [&RENEWED[..], &["11 ended", "12 ended"]].concat());
}

/// The kernel ends the other threads first, and shows the new program some time later.
#[test]
fn in_proc_it_is_renewed_when_they_were_seen_to_end_before() {
    let scans = [saved("old", &[10, 11]), saved("old", &[10]), saved("new", &[10])];
    assert_eq!(last_scan(&scans), RENEWED);
}

/// The first thread has just become a zombie, after its state was read, and has no executable.
#[test]
fn in_proc_it_is_renewed_when_a_scan_has_shown_no_executable() {
    let between = saved("old", &[10, 11]);
    std::fs::remove_file(between.path().join("10/exe")).unwrap();
    let seen = last_scan(&[saved("old", &[10, 11]), between, saved("new", &[10])]);
    assert_eq!(seen, [&RENEWED[..], &["11 ended"]].concat());
}

#[test]
fn in_proc_it_stays_the_same_otherwise() {
    let alone = last_scan(&[saved("old", &[10]), saved("new", &[10])]);
    assert_eq!(alone, ["10 is new, exec true"]);
    let fewer = last_scan(&[saved("old", &[10, 11]), saved("old", &[10])]);
    assert_eq!(fewer, ["11 ended"], "it has executed nothing");
}

/// While 10 is scanned, its first thread is a zombie and 11 takes its number. A reader of the state from this pipe
/// has read the list of threads before, or sees only a dead one in it.
#[test]
fn in_proc_a_process_does_not_end_while_another_thread_becomes_its_first() {
    let (mut lifecycle, before) = (lifecycle(), saved("old", &[10, 11]));
    scan(&mut lifecycle, &before);
    // With as many processes as threads the state is read once: no process is looked up by its parent.
    for other in ["20", "30"] {
        std::fs::create_dir(before.path().join(other)).unwrap();
    }
    let stat = before.path().join("10/stat");
    std::fs::remove_file(&stat).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&stat).status().unwrap().success());
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = std::fs::File::options().write(true).open(&stat).unwrap();
            std::fs::remove_dir_all(before.path().join("10/task/11")).unwrap();
            state.write_all(b"10 (x) Z 1 10 10").unwrap();
        });
        lines(&scan(&mut lifecycle, &before))
    });
    assert_eq!(seen, ["10 ended"], "11 lives");
    let after = lines(&scan(&mut lifecycle, &saved("new", &[10])));
    assert_eq!(after, ["10 created by 1/1, found true", "10 is new, exec true", "11 ended"]);
}
