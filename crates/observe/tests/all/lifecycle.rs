//! Creations, names and ends of real threads and processes.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed
#![allow(clippy::zombie_processes)] // a skipped test ends at once

use colocate_linux::poll::wait_readable;
use colocate_linux::{Pid, Tid};
use colocate_observe::{LifecycleEvents, LifecycleOptions, TaskEvent};
use colocate_testing::skip::{Missing, Requirement};
use colocate_testing::{LIMIT, TimeLimit, need, skip, within};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A shell that waits for a line before it goes on with `script`.
fn waiting(script: &str) -> Child {
    let script = format!("read go; {script}");
    Command::new("bash").args(["-c", &script]).stdin(Stdio::piped()).spawn().expect("bash runs")
}

fn pid_of(child: &Child) -> Pid {
    Pid(child.id().cast_signed())
}

/// Lets `child` go on and collects everything until the last task has ended.
fn watch_to_the_end(mut lifecycle: LifecycleEvents, mut child: Child) -> Vec<TaskEvent> {
    drop(child.stdin.take().unwrap().write_all(b"go\n"));
    let mut events = Vec::new();
    let begun = Instant::now();
    while !lifecycle.all_ended() {
        assert!(begun.elapsed() < Duration::from_secs(60), "ends went unseen: {events:?}");
        let wait = lifecycle.poll_timeout().or(Some(Duration::from_millis(100)));
        wait_readable(&lifecycle.fds(), wait).unwrap();
        lifecycle.drain(&mut events);
        child.try_wait().unwrap();
    }
    events
}

fn without_perf(options: LifecycleOptions) -> LifecycleOptions {
    LifecycleOptions { without_perf: true, ..options }
}

/// A kernel that reports task events.
fn perf(lifecycle: &LifecycleEvents) -> Result<(), Missing> {
    lifecycle.without_perf().map_or(Ok(()), |why| Err(Requirement::Perf.missing(why)))
}

/// What must hold of any list of events: creations first and once, ends last.
fn check_order(events: &[TaskEvent]) {
    let mut alive = BTreeSet::new();
    for event in events {
        match event {
            TaskEvent::Created { tid, .. } => assert!(alive.insert(*tid), "created twice: {tid}"),
            TaskEvent::Ended { tid, .. } => {
                assert!(alive.remove(tid), "ended before it was created: {tid}")
            }
            TaskEvent::Named { tid, .. } => {
                assert!(alive.contains(tid), "named before it was created: {tid}")
            }
            TaskEvent::Lost { .. } | TaskEvent::Storm { .. } => {}
        }
    }
    assert!(alive.is_empty(), "still alive: {alive:?}");
}

fn created_of(events: &[TaskEvent]) -> usize {
    events.iter().filter(|event| matches!(event, TaskEvent::Created { .. })).count()
}

fn named(events: &[TaskEvent], wanted: &str) -> Vec<(Tid, bool)> {
    let of = |event: &TaskEvent| match event {
        TaskEvent::Named { tid, name, exec, .. } if name == wanted => Some((*tid, *exec)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

#[test]
fn a_tree_of_forks_and_execs() {
    let _alone = crate::alone();
    let child = waiting("(true; exec sleep 0) & (exec env sleep 0) & wait; exec true");
    let pid = pid_of(&child);
    let lifecycle = LifecycleEvents::watch(pid, &LifecycleOptions::here().unwrap());
    need!(perf(&lifecycle));
    let events = watch_to_the_end(lifecycle, child);
    check_order(&events);
    assert_eq!(created_of(&events), 3, "{events:?}");
    let sleeps = named(&events, "sleep");
    assert_eq!(sleeps.len(), 2, "{events:?}");
    assert!(sleeps.iter().all(|(tid, exec)| *exec && *tid != pid.first_thread()));
    assert_eq!(named(&events, "true"), [(pid.first_thread(), true)]);
}

#[test]
fn children_have_their_parent() {
    let _alone = crate::alone();
    let child = waiting("(sleep 0) & wait");
    let pid = pid_of(&child);
    let lifecycle = LifecycleEvents::watch(pid, &LifecycleOptions::here().unwrap());
    need!(perf(&lifecycle));
    let events = watch_to_the_end(lifecycle, child);
    let parents = |event: &TaskEvent| match event {
        TaskEvent::Created { pid: created, parent_pid, parent_tid, .. } if *created != pid => {
            Some((*parent_pid, *parent_tid))
        }
        _ => None,
    };
    let parents: Vec<(Pid, Tid)> = events.iter().filter_map(parents).collect();
    assert_eq!(parents.first(), Some(&(pid, pid.first_thread())), "{events:?}");
}

#[test]
fn ten_thousand_short_processes_in_turn() {
    let _alone = crate::alone();
    // `bash` forks for each pair of parentheses and waits for it, so at most one more lives.
    let child = waiting("for ((i = 0; i < 10000; i++)); do (:); done");
    let lifecycle = LifecycleEvents::watch(pid_of(&child), &LifecycleOptions::here().unwrap());
    need!(perf(&lifecycle));
    let events = watch_to_the_end(lifecycle, child);
    check_order(&events);
    let lost = events.iter().any(|event| matches!(event, TaskEvent::Lost { .. }));
    assert!(lost || created_of(&events) == 10_001, "{}", created_of(&events));
}

/// Whether a reader is woken at each event changes all the time meanwhile.
#[test]
fn nothing_is_lost_when_events_may_wait() {
    let mut child = waiting("for i in {1..500}; do /bin/true; done");
    let mut lifecycle = LifecycleEvents::watch(pid_of(&child), &LifecycleOptions::here().unwrap());
    need!(perf(&lifecycle));
    drop(child.stdin.take().unwrap().write_all(b"go\n"));
    let (mut events, mut is_prompt) = (Vec::new(), true);
    let _limit = TimeLimit::start(LIMIT, "an end was not reported");
    while !lifecycle.all_ended() {
        is_prompt = !is_prompt;
        lifecycle.set_prompt(is_prompt);
        std::thread::sleep(Duration::from_millis(3));
        lifecycle.drain(&mut events);
        child.try_wait().unwrap();
    }
    check_order(&events);
    // On a machine that has no time for us the kernel says what it has lost.
    let lost = events.iter().any(|event| matches!(event, TaskEvent::Lost { .. }));
    assert!(lost || created_of(&events) == 501, "{}", created_of(&events));
    assert!(lost || named(&events, "true").len() >= 500, "{}", named(&events, "true").len());
}

#[test]
fn ends_that_found_no_room_are_noticed() {
    let _alone = crate::alone();
    // Everything happens before the one page of each CPU is read for the first time: no note that
    // finds room comes after, so the kernel never reports its loss.
    let mut child = waiting("for ((i = 0; i < 1000; i++)); do (:); done");
    let mut lifecycle = LifecycleEvents::watch(
        pid_of(&child),
        &LifecycleOptions { ring_pages: 1, ..LifecycleOptions::here().unwrap() },
    );
    need!(perf(&lifecycle));
    drop(child.stdin.take().unwrap().write_all(b"go\n"));
    within("the end of the program", || child.wait()).unwrap();
    let mut events = Vec::new();
    lifecycle.drain(&mut events);
    let _limit = TimeLimit::start(LIMIT, "the end of all tasks");
    while !lifecycle.all_ended() {
        let timeout = lifecycle.poll_timeout();
        assert!(timeout.is_some(), "nothing will wake us");
        wait_readable(&lifecycle.fds(), timeout).unwrap();
        lifecycle.drain(&mut events);
    }
    check_order(&events);
    let lost = events.iter().any(|event| matches!(event, TaskEvent::Lost { .. }));
    assert!(lost || !crate::counts_losses(), "{events:?}");
}

/// The last CPU is not online when watching begins, and comes later. The program runs there alone.
#[test]
fn threads_created_on_a_cpu_that_came_later_are_found() {
    let _alone = crate::alone();
    let mut options = LifecycleOptions::here().unwrap();
    let all = options.cpus.clone();
    let (Some(last), true) = (options.cpus.pop(), all.len() > 1) else {
        skip!(TwoPus, "one CPU");
    };
    let there = Command::new("taskset").args(["-c", &last.0.to_string(), "true"]).status();
    if !there.is_ok_and(|status| status.success()) {
        skip!(TwoPus, "nothing may run on CPU {last}");
    }
    let sleeps = "exec taskset -c CPU bash -c 'sleep 2 & sleep 2 & wait'";
    let child = waiting(&sleeps.replace("CPU", &last.0.to_string()));
    let mut lifecycle = LifecycleEvents::watch(pid_of(&child), &options);
    need!(perf(&lifecycle));
    assert_eq!(lifecycle.set_allowed_cpus(options.cpus.clone()), []);
    assert!(
        lifecycle.poll_timeout().is_some_and(|timeout| timeout.is_zero()),
        "the program is reported"
    );
    lifecycle.drain(&mut Vec::new());
    assert_eq!(lifecycle.poll_timeout(), None, "/proc is not scanned");
    assert_eq!(lifecycle.set_allowed_cpus(all), [last]);
    let events = watch_to_the_end(lifecycle, child);
    let sleeps = named(&events, "sleep");
    assert_eq!(sleeps.len(), 2, "{events:?}");
    assert_eq!(created_of(&events), 2, "{events:?}");
}

#[test]
fn without_kernel_events_proc_is_used() {
    let _alone = crate::alone();
    let mut child = waiting("sleep 1000 & exec sleep 1000");
    let pid = pid_of(&child);
    let mut lifecycle =
        LifecycleEvents::watch(pid, &without_perf(LifecycleOptions::here().unwrap()));
    assert!(lifecycle.fds().is_empty());
    drop(child.stdin.take().unwrap().write_all(b"go\n"));
    let mut events = Vec::new();
    let _limit = TimeLimit::start(LIMIT, "two executions of sleep, then their ends");
    while named(&events, "sleep").len() < 2 {
        wait_readable(&lifecycle.fds(), lifecycle.poll_timeout()).unwrap();
        lifecycle.drain(&mut events);
    }
    assert!(named(&events, "sleep").contains(&(pid.first_thread(), true)), "{events:?}");
    let other = named(&events, "sleep").iter().find(|(tid, _)| tid.0 != pid.0).unwrap().0.0;
    let killed = Command::new("kill").args(["-9", &other.to_string()]).status().unwrap();
    assert!(killed.success());
    child.kill().unwrap();
    child.wait().unwrap();
    while !lifecycle.all_ended() {
        wait_readable(&lifecycle.fds(), lifecycle.poll_timeout()).unwrap();
        lifecycle.drain(&mut events);
    }
    check_order(&events);
    assert_eq!(created_of(&events), 2, "{events:?}");
}

#[test]
fn a_running_process_is_taken_with_its_children() {
    let _alone = crate::alone();
    let child = waiting("sleep 0");
    let grandchild = waiting("sleep 0");
    let options = LifecycleOptions::here().unwrap();
    let mut lifecycle = LifecycleEvents::watch(pid_of(&child), &options);
    lifecycle.add(pid_of(&grandchild));
    let mut events = Vec::new();
    lifecycle.drain(&mut events);
    assert_eq!(created_of(&events), 2, "{events:?}");
    drop(grandchild);
    drop(child);
}

#[test]
fn a_vanished_process_has_ended() {
    let _alone = crate::alone();
    let mut child = waiting("true");
    let pid = pid_of(&child);
    child.kill().unwrap();
    child.wait().unwrap();
    let lifecycle = LifecycleEvents::watch(pid, &LifecycleOptions::here().unwrap());
    assert!(lifecycle.all_ended());
}
