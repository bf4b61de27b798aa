//! `colocate attach`: programs that run already are placed, followed and restored.

use crate::run_support::{
    Scratch, allowed, await_that, child_called, children, exclusive, masks, original, text,
};
use crate::schedule_support::{signal, stat, wait_until};
use colocate_testing::skip::{Missing, Requirement, installed, root, two_pus};
use colocate_testing::{EndsInTime, need, skip};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program that works until it is dropped.
struct Working(Child);

impl Working {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Three threads beside the first one, for far longer than a test.
fn busy(scratch: &Scratch) -> Result<Working, Missing> {
    let program = scratch.program("busy", &["-pthread"])?;
    let working = Working::start(Command::new(program).args(["3", "1000000000"]));
    wait_until("it has its threads", || masks(working.pid()).len() == 4);
    Ok(working)
}

fn attach(scratch: &Scratch, words: &[&str]) -> Child {
    let mut command = scratch.colocate();
    command.args(["attach", "--no-guard", "--policy", "scatter", "--json"]).args(words);
    let said = std::fs::File::create(scratch.path("said")).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap()
}

fn said(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.path("said")).unwrap()
}

fn report(scratch: &Scratch) -> Value {
    let said = said(scratch);
    let start = said.find('{').unwrap_or_else(|| panic!("no report: {said}"));
    serde_json::from_str(&said[start..]).unwrap()
}

fn are_placed(pid: i32) -> bool {
    masks(pid).iter().all(|mask| mask.parse::<u32>().is_ok())
}

fn are_free(pid: i32) -> bool {
    masks(pid).iter().all(|mask| *mask == original())
}

#[test]
fn placed_and_restored() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(busy(&scratch));
    for name in ["-TERM", "-INT", "-HUP"] {
        let mut colocate = attach(&scratch, &["-p", &program.pid().to_string()]);
        wait_until("it is placed", || are_placed(program.pid()));
        signal(name, colocate.id().cast_signed());
        assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
        assert!(are_free(program.pid()) && scratch.journals().is_empty());
        assert!(stat(program.pid()).is_some_and(|(state, _)| state != 'T' && state != 'Z'));
        assert!(said(&scratch).contains("every program continues"), "{}", said(&scratch));
        let report = report(&scratch);
        assert_eq!(report["jobs"][0]["name"], "busy");
        let tasks = report["tasks"].as_array().unwrap();
        assert_eq!(tasks.len(), 4);
        let is_named = |task: &Value| task["pid"] == program.pid() && task["tid"].is_u64();
        assert!(
            report["jobs"][0]["pid"] == program.pid() && tasks.iter().all(is_named),
            "{report}"
        );
        let was_placed = |task: &Value| {
            let time: u64 = task["placed"].as_array().unwrap().iter().map(time_placed).sum();
            time > 0 && task["placed_share"].as_f64().unwrap() > 0.0
        };
        assert!(tasks.iter().all(was_placed), "{report}");
        assert_eq!(report["threads_created"]["created"], 0, "all were there: {report}");
        let line = report["summary"]["line"].as_str().unwrap();
        let unmeasured = "not compared with the kernel alone (--no-guard, so no quantum was the kernel's), placed ";
        assert!(line.starts_with(unmeasured), "{line}");
    }
}

fn time_placed(on: &Value) -> u64 {
    on["time_ns"].as_u64().unwrap()
}

/// It has used seconds of CPU time before it is attached to.
#[test]
fn cpu_time_is_of_this_run() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(busy(&scratch));
    wait_until("it has worked", || stat(program.pid()).unwrap().1 >= 300);
    let begun = std::time::Instant::now();
    let mut colocate = attach(&scratch, &["-p", &program.pid().to_string()]);
    wait_until("it is placed", || are_placed(program.pid()));
    signal("-TERM", colocate.id().cast_signed());
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    let pus = std::thread::available_parallelism().unwrap().get();
    let most = begun.elapsed().as_secs_f64() * pus as f64;
    let report = report(&scratch);
    let seconds = |of: &Value| of["cpu_ns"].as_f64().unwrap() / 1e9;
    let job = seconds(&report["jobs"][0]);
    assert!(job > 0.0 && job <= most, "{job} s of at most {most}: {report}");
    let tasks: f64 = report["tasks"].as_array().unwrap().iter().map(seconds).sum();
    assert!(tasks <= job + 1e-6, "threads have {tasks} s, their job {job}: {report}");
}

/// Each of its children is too short to be read, and is waited for.
#[test]
fn children_that_it_waits_for_count() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    let script = format!("while :; do {} 1 10000; done", busy.display());
    let program = Working::start(Command::new("sh").args(["-c", &script]));
    let used = || {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", program.pid())).unwrap();
        // The 14th to 17th fields: its own time and that of children; the first one behind the name is the third.
        let fields = text.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(4);
        fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>()
    };
    wait_until("some time is used", || used() >= 50);
    let mut colocate = attach(&scratch, &["-p", &program.pid().to_string()]);
    await_that("a guardian", || children(colocate.id()).into_iter().next());
    let before = used();
    wait_until("more time is used", || used() >= before + 100);
    signal("-TERM", colocate.id().cast_signed());
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    let report = report(&scratch);
    let job = report["jobs"][0]["cpu_ns"].as_u64().unwrap();
    assert!(job >= 900_000_000, "at least 1 s less a tick: {report}");
    let most = 10_000_000 * (used() + 100);
    assert!(job < most, "{job} of {most}: {report}");
}

/// What wakes the process is another one that is not attached to, and it is named.
#[test]
fn wakers_outside_are_named() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(root());
    need!(two_pus());
    let turns = need!(scratch.program("turns", &[]));
    let mut program = Command::new(turns).stdin(Stdio::null()).spawn().unwrap();
    let both = await_that("its two processes", || {
        Some(children(program.id())).filter(|children| children.len() == 2)
    });
    let mut command = scratch.colocate();
    command.args(["attach", "--json", "-p", &both[0].to_string()]);
    command.stdin(Stdio::null()).stderr(std::fs::File::create(scratch.path("said")).unwrap());
    let mut colocate = command.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    signal("-TERM", colocate.id().cast_signed());
    colocate.ended();
    program.kill().unwrap();
    program.wait().unwrap();
    let report = report(&scratch);
    if report["wake_ups"].is_null() {
        skip!(Ebpf, "wake-ups are not known: {}", report["evidence"]);
    }
    let line = report["summary"]["line"].as_str().unwrap();
    assert!(line.starts_with("not placed: the wakers are outside: "), "{line}");
    let samples = report["wake_ups"][0]["same_pu"].is_null();
    assert!(samples || line.contains(&format!("add -p {}", both[1])), "{both:?}: {line}");
}

/// A signal comes when the only program has ended already.
#[test]
fn what_has_ended_does_not_continue() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let mut program = need!(busy(&scratch));
    let mut colocate = attach(&scratch, &["-p", &program.pid().to_string()]);
    wait_until("it is placed", || are_placed(program.pid()));
    signal("-STOP", colocate.id().cast_signed());
    program.0.kill().unwrap();
    program.0.wait().unwrap();
    signal("-TERM", colocate.id().cast_signed());
    signal("-CONT", colocate.id().cast_signed());
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    assert!(!said(&scratch).contains("continue"), "{}", said(&scratch));
}

#[test]
fn killed_by_force() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(busy(&scratch));
    let mut colocate = attach(&scratch, &["-p", &program.pid().to_string()]);
    wait_until("it is placed", || are_placed(program.pid()));
    signal("-KILL", colocate.id().cast_signed());
    colocate.ended();
    wait_until("the guardian restores it", || {
        are_free(program.pid()) && scratch.journals().is_empty()
    });
}

#[test]
fn killed_with_its_guardian() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(busy(&scratch));
    let mut colocate = attach(&scratch, &["-p", &program.pid().to_string()]);
    wait_until("it is placed", || are_placed(program.pid()));
    signal("-KILL", child_called(&colocate, "colocate-guard"));
    signal("-KILL", colocate.id().cast_signed());
    colocate.ended();
    assert!(scratch.colocate().arg("restore").output().unwrap().status.success());
    assert!(are_free(program.pid()) && scratch.journals().is_empty());
}

/// On a busy machine each of its threads is left alone for a while longer, and none for good.
#[test]
fn threads_that_have_hardly_run_are_placed() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(scratch.program("busy", &["-pthread"]));
    need!(installed("chrt"));
    let start = |command: &mut Command| Working::start(command.args(["3", "1000000000"]));
    let _others = start(&mut Command::new(&program));
    let starved = start(Command::new("chrt").args(["--idle", "0"]).arg(&program));
    wait_until("it has its threads", || masks(starved.pid()).len() == 4);
    let mut colocate = attach(&scratch, &["-p", &starved.pid().to_string()]);
    wait_until("it is placed", || are_placed(starved.pid()));
    signal("-TERM", colocate.id().cast_signed());
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    assert!(are_free(starved.pid()) && scratch.journals().is_empty());
}

/// Linked with Go's section, the second thread is Go's monitor to us: it counts PUs for the program, and keeps its mask.
#[test]
fn the_second_thread_of_go_is_not_placed() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    std::fs::write(scratch.path("go.s"), ".section .go.buildinfo,\"a\"\n.quad 1\n").unwrap();
    let section = scratch.path("go.s").display().to_string();
    let program = need!(scratch.program("busy", &["-pthread", &section]));
    let working = Working::start(Command::new(program).args(["3", "1000000000"]));
    let masks = || masks_in_order(working.pid());
    wait_until("it has its threads", || masks().len() == 4);
    let mut colocate = attach(&scratch, &["-p", &working.pid().to_string()]);
    let is_placed = |mask: &String| mask.parse::<u32>().is_ok();
    wait_until("the others are placed", || masks().iter().filter(|it| is_placed(it)).count() == 3);
    assert_eq!(masks()[1], original());
    signal("-TERM", colocate.id().cast_signed());
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    assert!(are_free(working.pid()));
}

/// The masks of all threads of a process, in the order of their creation.
fn masks_in_order(pid: i32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let mut tids: Vec<i32> =
        tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    tids.sort_unstable();
    tids.into_iter().filter_map(|tid| allowed(pid, tid)).collect()
}

/// A program in which two threads live, or its first thread has ended and one lives.
fn headless(scratch: &Scratch, how: &str, living: usize) -> Result<Working, Missing> {
    let program = scratch.program("headless", &[])?;
    let working = Working::start(Command::new(program).arg(how));
    let first = working.pid();
    let is_ready = || match how {
        "bare" => {
            std::fs::read(format!("/proc/{first}/cmdline")).is_ok_and(|line| !line.contains(&b'b'))
        }
        _ => stat(first).is_some_and(|(state, _)| state == 'Z'),
    };
    wait_until("it has its threads", || is_ready() && masks(first).len() == living);
    Ok(working)
}

/// It has no command line, no executable and no memory by its first thread.
#[test]
fn a_process_whose_first_thread_has_ended() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(headless(&scratch, "free", 1));
    let pid = program.pid().to_string();
    let mut colocate = attach(&scratch, &["-p", &pid]);
    let living = || {
        let folder = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let tids = folder.map(|it| it.file_name().to_str().unwrap().parse::<i32>().unwrap());
        tids.into_iter().find(|tid| *tid != program.pid()).unwrap()
    };
    let mask = || allowed(program.pid(), living()).unwrap();
    wait_until("it is placed", || mask().parse::<u32>().is_ok());
    signal("-TERM", colocate.id().cast_signed());
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    assert_eq!(mask(), original());
    let report = report(&scratch);
    assert!(report["jobs"][0]["command"][0].as_str().unwrap().ends_with("headless"), "{report}");
    for words in
        [&["pages", &pid][..], &["profile", "--backend", "sample", "--for", "0.1", "-p", &pid]]
    {
        let ran = scratch.colocate().args(words).output().unwrap();
        assert_ne!(ran.status.code(), Some(125), "{words:?}: {}", text(&ran.stderr));
    }
}

/// As by setproctitle(3) with an empty title: it is none of the kernel's threads.
#[test]
fn a_process_that_has_cleared_its_command_line() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(headless(&scratch, "bare", 2));
    let mut colocate = attach(&scratch, &["-p", &program.pid().to_string()]);
    wait_until("it is placed", || are_placed(program.pid()));
    signal("-TERM", colocate.id().cast_signed());
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    assert!(are_free(program.pid()));
}

/// It says at once what it does, and ends by itself.
#[test]
fn for_a_time() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(busy(&scratch));
    let pid = program.pid().to_string();
    let mut colocate = attach(&scratch, &["--for", "3", "-p", &pid]);
    wait_until("it says what it does", || said(&scratch).ends_with('\n'));
    let begins = format!("colocate: attaching to busy ({pid}): policy scatter places");
    assert!(said(&scratch).starts_with(&begins), "{}", said(&scratch));
    wait_until("it is placed", || are_placed(program.pid()));
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    assert!(
        said(&scratch).contains("3.00 s are over: every program continues"),
        "{}",
        said(&scratch)
    );
    assert!(are_free(program.pid()) && scratch.journals().is_empty());
}

/// What it creates later is followed, and when all have ended so has colocate.
#[test]
fn what_is_created_later_is_followed() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    let (go, end) = (scratch.path("go"), scratch.path("end"));
    let script = format!(
        "while [ ! -e {0} ]; do sleep 0.01; done; {1} 2 1000000000 & while [ ! -e {2} ]; do sleep 0.01; done; kill $!",
        go.display(),
        busy.display(),
        end.display()
    );
    let program = Working::start(Command::new("sh").args(["-c", &script]));
    let mut colocate = attach(&scratch, &["-p", &program.pid().to_string()]);
    await_that("a guardian", || children(colocate.id()).into_iter().next());
    std::fs::write(go, "").unwrap();
    let later = child_called(&program.0, "busy");
    wait_until("it is placed", || masks(later).len() == 3 && are_placed(later));
    std::fs::write(end, "").unwrap();
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    let report = report(&scratch);
    assert!(!said(&scratch).contains("every program continues"), "{report}");
    assert_eq!(report["jobs"][0]["status"], 0);
}

/// A thread with a mask of its own is where its owner wants it.
#[test]
fn masks_of_others_are_respected() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    need!(installed("taskset"));
    let program = need!(busy(&scratch));
    let pid = program.pid().to_string();
    // The PU that the policy would not give it: the first one goes to the first thread.
    let pinned = Command::new("taskset").args(["-p", "-c", "1", &pid]).output().unwrap();
    assert!(pinned.status.success(), "{}", text(&pinned.stderr));
    let mut colocate = attach(&scratch, &["-p", &pid]);
    let mask = || allowed(program.pid(), program.pid()).unwrap();
    wait_until("the others are placed", || are_placed(program.pid()));
    assert_eq!(mask(), "1");
    signal("-TERM", colocate.id().cast_signed());
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    assert_eq!(mask(), "1");
    let masks = masks(program.pid());
    assert_eq!(masks.iter().filter(|mask| **mask == original()).count(), 3, "{masks:?}");
}

/// The hierarchy of control groups in which a test makes its own.
fn cgroups() -> Result<&'static Path, Missing> {
    let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    let found = roots.into_iter().find(|root| root.join("cgroup.procs").exists());
    found.ok_or_else(|| Requirement::Cgroups.missing("no hierarchy of control groups"))
}

/// All that are in a cgroup; those that others of them have created are of their jobs.
#[test]
fn the_processes_of_a_cgroup() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let cgroups = need!(cgroups());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    need!(two_pus());
    need!(root());
    let script = format!("{} 3 1000000000 & wait", busy.display());
    let program = Working::start(Command::new("sh").args(["-c", &script]));
    let created = child_called(&program.0, "busy");
    wait_until("it has its threads", || masks(created).len() == 4);
    let folder = cgroups.join(format!("colocate-test-{}", std::process::id()));
    let inner = folder.join("inner");
    std::fs::create_dir_all(&inner).unwrap();
    std::fs::write(folder.join("cgroup.procs"), program.pid().to_string()).unwrap();
    std::fs::write(inner.join("cgroup.procs"), created.to_string()).unwrap();
    let mut colocate = attach(&scratch, &["--cgroup", folder.to_str().unwrap()]);
    wait_until("it is placed", || are_placed(created));
    signal("-TERM", colocate.id().cast_signed());
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    assert!(are_free(created) && are_free(program.pid()));
    let report = report(&scratch);
    assert_eq!(report["jobs"].as_array().unwrap().len(), 1, "{report}");
    signal("-KILL", created);
    drop(program);
    wait_until("the cgroup is removed", || {
        std::fs::remove_dir(&inner).is_ok() && std::fs::remove_dir(&folder).is_ok()
    });
}

/// Processes that sleep until this is dropped.
struct Sleepers {
    creator: Working,
    pids: Vec<i32>,
}

impl Sleepers {
    fn start(scratch: &Scratch, count: u32) -> Result<Self, Missing> {
        let program = scratch.program("sleepers", &[])?;
        let mut command = Command::new(program);
        let mut creator = command.arg(count.to_string()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(creator.stdout.take().unwrap()).lines().map(Result::unwrap);
        let pids = lines.take_while(|line| !line.is_empty()).map(|line| line.parse().unwrap());
        let pids = pids.collect();
        Ok(Self { creator: Working(creator), pids })
    }

    fn words(&self) -> Vec<String> {
        let words = self.pids.iter().flat_map(|pid| ["-p".to_owned(), pid.to_string()]);
        words.collect()
    }
}

/// CPU time of a process's first thread in milliseconds, and how often it has read a file.
fn cost(pid: u32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let reads = text.lines().find_map(|line| line.strip_prefix("syscr: ")?.parse().ok());
    let times = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let ran = times.split(' ').next().and_then(|ran| ran.parse::<u64>().ok());
    (ran.unwrap_or(0) / 1_000_000, reads.unwrap_or(0))
}

/// What attaching to sleeping processes costs, in CPU time until it ends, and then in readings a second.
fn cost_of_sleepers(scratch: &Scratch, count: u32) -> Result<(u64, u64), Missing> {
    let sleepers = Sleepers::start(scratch, count)?;
    assert_eq!(sleepers.pids.len(), count as usize);
    let words = sleepers.words();
    let mut command = scratch.colocate();
    command.args(["attach", "--quiet"]).args(&words).stdin(Stdio::null()).stdout(Stdio::null());
    let mut colocate = command.spawn().unwrap();
    let pid = colocate.id();
    // Each is read once at the start.
    wait_until("it has attached to them", || cost(pid).1 > u64::from(count));
    let reads = (0..5).map(|_| {
        let (_, before) = cost(pid);
        std::thread::sleep(Duration::from_secs(1));
        cost(pid).1 - before
    });
    let reads = reads.min().unwrap();
    let (ran_ms, _) = cost(pid);
    signal("-TERM", pid.cast_signed());
    assert_eq!(colocate.ended().code(), Some(0));
    drop(sleepers.creator);
    Ok((ran_ms, reads))
}

/// Four times as many processes cost some four times as much, not sixteen times, and those that sleep are read about once a second,
/// not in each quantum.
#[test]
fn very_many_processes_that_sleep() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let (few, _) = need!(cost_of_sleepers(&scratch, 500));
    let (many, reads) = need!(cost_of_sleepers(&scratch, 2_000));
    println!("{few} ms for 500 processes, {many} for 2,000, which are read {reads} times a second");
    assert!(many < 9 * few, "{few} ms for 500 processes, {many} for 2,000");
    assert!(reads < 5 * 2_000, "{reads} readings a second for 2,000 processes that sleep");
}

/// Of a cgroup all processes are one job, also those that none of them has created.
#[test]
fn a_cgroup_is_one_job() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let cgroups = need!(cgroups());
    need!(root());
    let sleepers = need!(Sleepers::start(&scratch, 3));
    let folder = cgroups.join(format!("colocate-one-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for pid in &sleepers.pids {
        std::fs::write(folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }
    let mut colocate = attach(&scratch, &["--cgroup", folder.to_str().unwrap()]);
    wait_until("they are placed", || {
        sleepers.pids.iter().all(|pid| are_placed(*pid)) || two_pus().is_err()
    });
    signal("-KILL", sleepers.pids[0]);
    wait_until("the first one has ended", || masks(sleepers.pids[0]).is_empty());
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        colocate.try_wait().unwrap().is_none(),
        "two of its processes live: {}",
        said(&scratch)
    );
    drop(sleepers.creator);
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    let report = report(&scratch);
    assert_eq!(report["jobs"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["jobs"][0]["name"], folder.file_name().unwrap().to_str().unwrap());
    assert_eq!(report["tasks"].as_array().unwrap().len(), 3, "{report}");
    wait_until("the cgroup is removed", || std::fs::remove_dir(&folder).is_ok());
}

/// The default policy watches what runs already, and wake-ups of it can be requested.
#[test]
fn what_runs_already_is_watched() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(busy(&scratch));
    let pid = program.pid().to_string();
    let words = ["--policy", "mix", "--watch-s", "1", "--wake-ups", "-p", &pid];
    // In clock ticks of 10 ms: enough samples of three threads, however busy the machine is.
    let used = || stat(program.pid()).unwrap().1;
    let enough = used() + 150;
    let mut command = scratch.colocate();
    command.args(["attach", "--json"]).args(words);
    command.stdin(Stdio::null()).stderr(std::fs::File::create(scratch.path("said")).unwrap());
    let mut colocate = command.spawn().unwrap();
    wait_until("it is placed", || masks(program.pid()).iter().any(|mask| *mask != original()));
    wait_until("it has worked", || used() >= enough);
    signal("-TERM", colocate.id().cast_signed());
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    let report = report(&scratch);
    let evidence = report["evidence"].as_array().unwrap();
    let is_granted =
        |source: &str| evidence.iter().any(|it| it["source"] == source && it["refused"].is_null());
    let tasks = report["tasks"].as_array().unwrap();
    let is_known = |task: &Value| task["mix"]["float"].as_f64().is_some_and(|share| share > 0.05);
    let known = tasks.iter().filter(|task| is_known(task)).count();
    assert!(known >= 2 || !is_granted("mix"), "three threads compute: {report}");
    assert!(report["wake_ups"].is_array() || !is_granted("wake-ups"), "{report}");
}

#[test]
fn what_cannot_be_placed_is_refused_in_a_line() {
    let scratch = Scratch::new();
    let us = std::process::id().to_string();
    let folder = scratch.dir.path().to_str().unwrap();
    for (words, found) in [
        (["-p", "999999999"], "found none with the number 999999999"),
        (["-p", "999999998,999999999"], "found none with the number 999999998"),
        (["-p", &us], "has created colocate itself"),
        (["--cgroup", folder], "expected a cgroup, found no cgroup.procs"),
        (["--cgroup", "/no/such"], "/no/such"),
    ] {
        let mut colocate = attach(&scratch, &words);
        assert_eq!(colocate.ended().code(), Some(125), "{}", said(&scratch));
        assert!(said(&scratch).contains(found), "{}", said(&scratch));
        assert_eq!(said(&scratch).lines().count(), 1, "{}", said(&scratch));
    }
}
