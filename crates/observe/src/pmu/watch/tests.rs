//! Threads of a child that touch known numbers of pages, counted.

use super::*;
use crate::perf::ring::page_size;
use crate::pmu::open::tests::touch;
use crate::pmu::plan::Role;
use colocate_linux::poll::wait_readable;
use colocate_testing::skip::{Missing, Requirement};
use colocate_testing::{LIMIT, TimeLimit, need, within};
use perf_event_open_sys::bindings as c;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// Pages that worker `i` of the child touches.
fn pages(i: usize) -> usize {
    300 * (i + 1)
}

const WORKERS: usize = 6;

/// The program that the tests watch: workers that wait for a line on standard input, then
/// touch their pages.
#[test]
#[ignore = "a program that the other tests start"]
fn workers() {
    // SAFETY: takes no pointer.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let (doors, threads): (Vec<_>, Vec<_>) = (0..WORKERS)
        .map(|i| {
            let (door, wait) = std::sync::mpsc::channel::<()>();
            let name = format!("worker-{i}");
            let body = move || {
                let _ = wait.recv();
                touch(pages(i) * page_size());
            };
            (door, std::thread::Builder::new().name(name).spawn(body).unwrap())
        })
        .unzip();
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    drop(doors);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The program, held by a shell until a first line; a second one lets the workers go.
fn held() -> Child {
    Command::new("sh")
        .args(["-c", "read go; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "pmu::watch::tests::workers", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn faults_and_time() -> Counters {
    Counters::of_software(&[
        (Role::Instructions, u64::from(c::PERF_COUNT_SW_PAGE_FAULTS)),
        (Role::Cycles, u64::from(c::PERF_COUNT_SW_TASK_CLOCK)),
    ])
}

fn pump_until(watch: &mut ProcessCounters, what: &str, done: impl Fn(&ProcessCounters) -> bool) {
    let _limit = TimeLimit::start(LIMIT, what);
    while !done(watch) {
        wait_readable(&watch.fds(), watch.poll_timeout()).unwrap();
        watch.pump();
    }
}

/// Waits until the program has printed that its workers wait.
fn wait_ready(child: &mut Child) {
    let out = BufReader::new(child.stdout.as_mut().unwrap());
    let _limit = TimeLimit::start(LIMIT, "a line of the program with \"ready\"");
    assert!(out.lines().any(|line| line.unwrap().contains("ready")));
}

fn worker(counted: &CountedThreads, i: usize) -> &ThreadProfile {
    let name = format!("worker-{i}");
    counted.threads.iter().find(|thread| thread.name == name).unwrap()
}

fn check(counted: &CountedThreads) {
    assert!(counted.complete);
    for (order, thread) in (0..).zip(&counted.threads) {
        assert_eq!(thread.order, order);
        assert!(thread.end_ns.is_some());
    }
    for i in 0..WORKERS {
        let (thread, least) = (worker(counted, i), pages(i) as u64);
        let faults = thread.instructions.unwrap();
        // Its own pages, and some for its stack; not those of a busier worker.
        assert!((least..least + 250).contains(&faults), "worker {i}: {faults} faults");
        assert!(thread.cycles.unwrap() > 0 && thread.cpu_time_ns.unwrap() > Nanos(0));
        assert_eq!(thread.mix, Mix::default());
    }
}

/// A kernel that permits events.
fn perf() -> Result<(), Missing> {
    let tried = faults_and_time().open(Tid(0), Start::Now);
    tried.map(drop).map_err(|why| Requirement::Perf.missing(why))
}

#[test]
fn each_thread_of_a_launched_program_is_counted_by_itself() {
    need!(perf());
    let mut child = held();
    let pid = Pid(child.id().cast_signed());
    let options = LifecycleOptions::here().unwrap();
    let mut watch =
        ProcessCounters::start(faults_and_time(), pid, Start::AtExec, &options).unwrap();
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let all_named = |watch: &ProcessCounters| {
        let named = |thread: &&CountedThread| thread.name.starts_with("worker-");
        watch.threads.iter().filter(named).count() == WORKERS
    };
    pump_until(&mut watch, "names of all workers", all_named);
    wait_ready(&mut child);
    child.stdin.as_mut().unwrap().write_all(b"work\n").unwrap();
    pump_until(&mut watch, "the end of all threads", ProcessCounters::all_ended);
    assert!(within("the end of the program", || child.wait()).unwrap().success());
    let counted = watch.finish();
    check(&counted);
    // The first thread was counted from its exec on.
    assert!(counted.threads[0].instructions.unwrap() > 0);
    assert_eq!(counted.notes, [""; 0]);
}

#[test]
fn a_running_program_is_counted_from_here_on() {
    need!(perf());
    let mut child = held();
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    wait_ready(&mut child);
    let options = LifecycleOptions::here().unwrap();
    let pid = Pid(child.id().cast_signed());
    let mut watch = ProcessCounters::start(faults_and_time(), pid, Start::Now, &options).unwrap();
    assert!(watch.threads.len() > WORKERS);
    child.stdin.as_mut().unwrap().write_all(b"work\n").unwrap();
    pump_until(&mut watch, "the end of all threads", ProcessCounters::all_ended);
    within("the end of the program", || child.wait()).unwrap();
    check(&watch.finish());
}

#[test]
fn a_program_that_is_stopped_being_watched_is_incomplete() {
    need!(perf());
    let mut child = held();
    let options = LifecycleOptions::here().unwrap();
    let pid = Pid(child.id().cast_signed());
    let watch = ProcessCounters::start(faults_and_time(), pid, Start::Now, &options).unwrap();
    let counted = watch.finish();
    assert!(!counted.complete);
    assert_eq!(counted.threads.len(), 1);
    assert_eq!(counted.threads[0].end_ns, None);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_thread_that_is_gone_already_is_unknown_not_zero() {
    need!(perf());
    // Not this process, whose other tests' threads come and go.
    let mut child = held();
    let pid = Pid(child.id().cast_signed());
    let options = LifecycleOptions { without_perf: true, ..LifecycleOptions::here().unwrap() };
    let mut watch = ProcessCounters::start(faults_and_time(), pid, Start::Now, &options).unwrap();
    let (at, tid) = (now(), Tid(i32::MAX));
    let (parent_pid, parent_tid, found) = (pid, tid, false);
    let created = TaskEvent::Created { at, pid, tid, parent_pid, parent_tid, found };
    watch.take(created, Start::Now);
    watch.take(TaskEvent::Ended { at, pid, tid }, Start::Now);
    let counted = watch.finish();
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = counted.threads.iter().find(|thread| thread.end_ns.is_some()).unwrap();
    assert_eq!((gone.instructions, gone.cycles, gone.cpu_time_ns), (None, None, None));
    let note = "threads that ended before they could be counted, whose figures are unknown: 1";
    assert_eq!(counted.notes, [note]);
}

/// A shell executes a copy of itself that its user may run and not read. That works for a while.
#[test]
fn a_process_that_may_not_be_watched_any_more_is_unknown() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    need!(perf());
    let copy = std::env::temp_dir().join(format!("colocate-unreadable-{}", std::process::id()));
    std::fs::copy("/bin/sh", &copy).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o111)).unwrap();
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done; read end";
    let mut command = Command::new("sh");
    command.args(["-c", "read go; exec \"$0\" -c \"$1\"", copy.to_str().unwrap(), script]);
    // SAFETY: takes no pointer.
    if unsafe { libc::geteuid() } == 0 {
        // Root may read all; this is another user.
        command.uid(65_534).gid(65_534);
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = Pid(child.id().cast_signed());
    let options = LifecycleOptions::here().unwrap();
    let mut watch =
        ProcessCounters::start(faults_and_time(), pid, Start::AtExec, &options).unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"go\n").unwrap();
    let mut said = String::new();
    let mut output = BufReader::new(child.stdout.as_mut().unwrap());
    within("the line of the copied shell", || output.read_line(&mut said)).unwrap();
    let _ = std::fs::remove_file(&copy);
    watch.pump();
    let counted = watch.finish();
    input.write_all(b"end\n").unwrap();
    within("the end of the copied shell", || child.wait()).unwrap();
    assert_eq!(said, "done\n");
    let thread = &counted.threads[0];
    assert_eq!((thread.instructions, thread.cycles, thread.cpu_time_ns), (None, None, None));
    assert_eq!((thread.end_ns, counted.complete), (None, false));
    let says = |note: &String| note.contains("gained privileges") && note.ends_with(": 1");
    assert!(counted.notes.iter().any(says), "{:?}", counted.notes);
}

/// Counts more threads of this process than descriptors allow at first.
fn count_many() -> CountedThreads {
    let soft = usize::try_from(Descriptors::now().soft).unwrap();
    let threads = soft / 2 + 20;
    let end = std::sync::Arc::new(std::sync::Barrier::new(threads + 1));
    let wait = |_| {
        let end = end.clone();
        let small = std::thread::Builder::new().stack_size(64 << 10);
        small.spawn(move || end.wait()).unwrap()
    };
    let all: Vec<_> = (0..threads).map(wait).collect();
    let me = Pid(std::process::id().cast_signed());
    let options = LifecycleOptions { without_perf: true, ..LifecycleOptions::here().unwrap() };
    let counters = faults_and_time();
    assert!(counters.descriptors() * threads > soft);
    let watch = ProcessCounters::start(counters, me, Start::Now, &options);
    end.wait();
    assert!(all.into_iter().all(|thread| thread.join().is_ok()));
    watch.unwrap().finish()
}

#[test]
#[ignore = "run by too_few_descriptors, with a low soft limit"]
fn many_threads_below_the_hard_limit() {
    let counted = count_many();
    let all = counted.threads.iter().all(|thread| thread.instructions.is_some());
    assert!(all, "{:?}", counted.notes);
}

#[test]
#[ignore = "run by too_few_descriptors, with a low hard limit"]
fn many_threads_beyond_the_hard_limit() {
    let counted = count_many();
    let unknown = counted.threads.iter().filter(|t| t.instructions.is_none()).count();
    assert!(unknown > 0 && unknown < counted.threads.len());
    let says = |note: &String| note.contains("could not be counted") && note.contains("files");
    assert!(counted.notes.iter().any(says), "{:?}", counted.notes);
}

#[test]
fn too_few_descriptors() {
    need!(perf());
    let limit = Descriptors::now().hard.min(200);
    for (option, name) in [("-S", "below"), ("", "beyond")] {
        let test = format!("pmu::watch::tests::many_threads_{name}_the_hard_limit");
        let done = Command::new("sh")
            .args(["-c", &format!("ulimit {option} -n {limit} && exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &test, "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }
}

#[test]
fn what_cannot_be_counted_is_an_error_at_the_start() {
    let nonsense = Counters::of_software(&[(Role::Instructions, 9_999)]);
    let options = LifecycleOptions::here().unwrap();
    let me = Pid(std::process::id().cast_signed());
    let error = ProcessCounters::start(nonsense, me, Start::Now, &options).unwrap_err();
    assert!(error.errno().is_some(), "{error}");
}
