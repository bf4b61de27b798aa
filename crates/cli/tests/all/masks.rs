//! Whose a mask is: masks of programs, of cpusets and of colocate, with `run` and `attach`, and what is restored of them.

use crate::run_support::{
    Cpuset, Scratch, allowed, await_that, child_called, children, exclusive, masks, original, text,
};
use crate::schedule_support::{signal, wait_until};
use colocate_testing::skip::{installed, root, two_pus};
use colocate_testing::{EndsInTime, need, skip};
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program that works until it is dropped.
struct Working(Child);

impl Working {
    /// Two threads beside the first one.
    fn start(mut command: Command) -> Self {
        command.args(["2", "1000000000"]).stdin(Stdio::null()).stdout(Stdio::null());
        let working = Self(command.spawn().unwrap());
        wait_until("it has its threads", || masks(working.pid()).len() == 3);
        working
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    fn masks(&self) -> BTreeSet<String> {
        masks(self.pid()).into_iter().collect()
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn attach(scratch: &Scratch, mut command: Command, pid: i32) -> Child {
    command.args(["attach", "--no-guard", "--policy", "round-robin", "-p", &pid.to_string()]);
    let said = std::fs::File::create(scratch.path("said")).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap()
}

fn said(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.path("said")).unwrap()
}

fn only(mask: &str) -> BTreeSet<String> {
    [mask.to_owned()].into_iter().collect()
}

fn both() -> BTreeSet<String> {
    ["0", "1"].map(str::to_owned).into_iter().collect()
}

/// A container, a Slurm step: the cpuset of a program is not colocate's, and nothing of it was set by the program.
#[test]
fn a_program_in_a_cpuset_is_placed_from_outside() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    let cpuset = need!(Cpuset::new());
    cpuset.set_to("1");
    let mut command = cpuset.command();
    command.arg(busy);
    let program = Working::start(command);
    let mut colocate = attach(&scratch, scratch.colocate(), program.pid());
    std::thread::sleep(Duration::from_secs(2));
    signal("-TERM", colocate.id().cast_signed());
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    assert!(
        said(&scratch).contains("usable PUs (1)") || said(&scratch).contains("usable PU (1)"),
        "{}",
        said(&scratch)
    );
    assert!(!said(&scratch).contains("pinned by the program"), "{}", said(&scratch));
    // It has what it would have without: all that its cpuset gets later.
    cpuset.set_to(&original());
    assert_eq!(program.masks(), only(&original()));
}

/// An orchestrator moves a program that is placed, and moves it back when colocate has ended: no thread stays on one PU.
#[test]
fn a_program_that_is_moved_to_another_cpuset_has_its_masks_back() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    let cpuset = need!(Cpuset::new());
    cpuset.set_to("1");
    for is_killed in [false, true] {
        let program = Working::start(Command::new(&busy));
        let mut colocate = attach(&scratch, scratch.colocate(), program.pid());
        wait_until("it is placed", || program.masks() == both());
        let guardian = child_called(&colocate, "colocate-guard");
        cpuset.take(program.pid());
        assert_eq!(program.masks(), only("1"));
        std::thread::sleep(Duration::from_secs(3));
        if is_killed {
            signal("-KILL", guardian);
        }
        signal(if is_killed { "-KILL" } else { "-TERM" }, colocate.id().cast_signed());
        colocate.ended();
        assert!(scratch.colocate().arg("restore").output().unwrap().status.success());
        cpuset.give_back(program.pid());
        assert_eq!(program.masks(), only(&original()), "killed: {is_killed}, {}", said(&scratch));
    }
}

/// The program may use both PUs: it is not crowded onto the one that colocate has.
#[test]
fn colocate_in_a_narrower_cpuset_uses_the_programs_pus() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    let cpuset = need!(Cpuset::new());
    cpuset.set_to("1");
    let program = Working::start(Command::new(busy));
    let mut narrow = cpuset.command();
    scratch.homes(&mut narrow);
    narrow.arg(env!("CARGO_BIN_EXE_colocate"));
    let mut colocate = attach(&scratch, narrow, program.pid());
    wait_until("it is placed", || program.masks() == both());
    signal("-TERM", colocate.id().cast_signed());
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    assert_eq!(program.masks(), only(&original()));
}

/// Each PU that the first thread may choose, with the worker on that PU or not: its choice is respected.
#[test]
fn a_programs_own_pu_is_kept_where_another_thread_was_given_the_same() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(scratch.program("binds_itself", &["-pthread"]));
    for words in [&["0", "3"][..], &["1", "3"], &["1", "3", "0"]] {
        let mut command = scratch.run(&["--policy", "round-robin"]);
        let output = command.arg(&program).args(words).output().unwrap();
        assert_eq!(text(&output.stdout).trim(), words[0], "{words:?}: {}", text(&output.stderr));
    }
}

/// As a thread begins it may set all PUs again, once; what it sets later is its program's choice.
#[test]
fn a_thread_that_sets_all_pus_again() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(scratch.program("widens", &["-pthread"]));
    for (later, pus) in [("0", "1\n1"), ("4", "2\n2")] {
        let mut command = scratch.run(&["--policy", "round-robin"]);
        let output = command.arg(&program).args(["7", later]).output().unwrap();
        assert_eq!(text(&output.stdout).trim(), pus, "{}", text(&output.stderr));
        let report = scratch.report().to_string();
        let is_said = report.contains("its program has set all PUs again");
        assert_eq!(is_said, later != "0", "{report}");
    }
}

/// The number of a process that was attached to is in use again while a child of it lives.
#[test]
fn what_takes_over_the_number_of_an_attached_process_is_a_stranger() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let last = std::path::Path::new("/proc/sys/kernel/ns_last_pid");
    need!(two_pus());
    need!(root());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    if !last.exists() {
        skip!(NsLastPid, "the kernel has no ns_last_pid");
    }
    let script = format!("{} 2 1000000000 & wait", busy.display());
    let mut first = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap();
    let pid = first.id().cast_signed();
    let child = child_called(&first, "busy");
    let mut colocate = attach(&scratch, scratch.colocate(), pid);
    wait_until("it is placed", || masks(child).iter().all(|mask| *mask != original()));
    signal("-KILL", pid);
    first.ended();
    let mut takes_over = || {
        std::fs::write(last, (pid - 1).to_string()).unwrap();
        let stranger = Working::start(Command::new(&busy));
        Some(stranger).filter(|stranger| stranger.pid() == pid)
    };
    let stranger = await_that("its number", &mut takes_over);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(stranger.masks(), only(&original()), "{}", said(&scratch));
    signal("-KILL", child);
    assert_eq!(colocate.ended().code(), Some(0), "{}", said(&scratch));
    assert_eq!(stranger.masks(), only(&original()));
}

/// Daemons of an attached program become children of init at once. None of them stays on one PU, however colocate ends.
#[test]
fn daemons_of_an_attached_program_are_restored() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let program = need!(scratch.program("daemons", &["-pthread"]));
    for end in ["-TERM", "-KILL", "restore"] {
        let dir = scratch.path(end);
        std::fs::create_dir(&dir).unwrap();
        let mut working = Command::new(&program).arg(&dir).stdin(Stdio::null()).spawn().unwrap();
        let pid = working.id().cast_signed();
        let mut colocate = attach(&scratch, scratch.colocate(), pid);
        wait_until("it is placed", || masks(pid).iter().all(|mask| *mask != original()));
        let guardian = child_called(&colocate, "colocate-guard");
        std::fs::write(dir.join("go"), "").unwrap();
        let daemons = || -> Vec<i32> {
            let names = std::fs::read_dir(&dir).unwrap().flatten();
            names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
        };
        // In the middle of it, and when all are there.
        let enough = if end == "-TERM" { 100 } else { 50 };
        wait_until("daemons", || daemons().len() >= enough);
        if end == "restore" {
            signal("-KILL", guardian);
        }
        signal(if end == "-TERM" { end } else { "-KILL" }, colocate.id().cast_signed());
        colocate.ended();
        wait_until("all daemons", || daemons().len() == 100);
        if end == "restore" {
            assert!(scratch.colocate().arg("restore").output().unwrap().status.success());
        }
        let are_free = || {
            daemons().iter().all(|pid| allowed(*pid, *pid).is_none_or(|mask| mask == original()))
        };
        if end == "-KILL" {
            wait_until("the guardian restores them", are_free);
        }
        let left = daemons()
            .into_iter()
            .filter(|pid| allowed(*pid, *pid).is_some_and(|mask| mask != original()))
            .count();
        daemons().into_iter().for_each(|pid| signal("-KILL", pid));
        let _ = working.kill();
        working.ended();
        assert_eq!(left, 0, "{end}: {}", said(&scratch));
        wait_until("no journal", || scratch.journals().is_empty());
    }
}

/// In another time namespace the times in a journal mean others: it is left alone, and undone where it was written.
#[test]
fn a_journal_of_another_time_namespace_is_left() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    need!(root());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    need!(installed("unshare"));
    need!(installed("nsenter"));
    let mut command = Command::new("unshare");
    command
        .args([
            "--time",
            "--boottime",
            "1000",
            "--fork",
            "sh",
            "-c",
            "echo; \"$0\" 2 1000000000; sleep 60",
        ])
        .arg(&busy);
    let mut shell = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let inner = await_that("a namespace", || children(shell.id()).into_iter().next());
    let program = await_that("the program", || {
        children(inner.unsigned_abs()).into_iter().find(|pid| masks(*pid).len() == 3)
    });
    let inside = |scratch: &Scratch| {
        let mut command = Command::new("nsenter");
        scratch.homes(&mut command);
        command.args(["--time", "--target", &inner.to_string(), env!("CARGO_BIN_EXE_colocate")]);
        command
    };
    let mut colocate = attach(&scratch, inside(&scratch), program);
    wait_until("it is placed", || masks(program).iter().all(|mask| *mask != original()));
    signal("-KILL", child_called(&colocate, "colocate-guard"));
    signal("-KILL", colocate.id().cast_signed());
    colocate.ended();
    let outside = scratch.colocate().arg("restore").output().unwrap();
    assert_eq!(outside.status.code(), Some(125), "{}", text(&outside.stdout));
    assert!(
        text(&outside.stdout).contains("another process or time namespace"),
        "{}",
        text(&outside.stdout)
    );
    assert_eq!(scratch.journals().len(), 1);
    assert!(inside(&scratch).arg("restore").output().unwrap().status.success());
    assert!(masks(program).iter().all(|mask| *mask == original()) && scratch.journals().is_empty());
    signal("-KILL", program);
    signal("-KILL", inner);
    shell.ended();
}

/// Where a filter denies kill(2) the guardian is dismissed all the same.
#[test]
fn a_run_ends_where_kill_is_denied() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let nokill = need!(scratch.program("nokill", &[]));
    for words in [
        &["run", "--policy", "round-robin", "--no-guard", "--"][..],
        &["schedule", "--policy", "round-robin", "--"],
    ] {
        let mut command = Command::new(&nokill);
        scratch.homes(&mut command);
        command.arg(env!("CARGO_BIN_EXE_colocate")).args(words).arg("true");
        let mut colocate = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(colocate.ended().code(), Some(0), "{words:?}");
        assert!(scratch.journals().is_empty());
    }
}

/// The mask of a thread that its user has bound looks like any other's while a cpuset has nothing else: it is bound again afterwards.
#[test]
fn a_bound_program_stays_bound_after_a_cpuset_of_one_pu() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    let cpuset = need!(Cpuset::new());
    cpuset.set_to("0");
    for policy in ["auto", "scatter"] {
        let mut bound = Command::new("taskset");
        bound.args(["-c", "0"]).arg(&busy);
        let program = Working::start(bound);
        let mut command = scratch.colocate();
        command.args(["attach", "--policy", policy, "-p", &program.pid().to_string()]);
        let mut colocate = quiet(&scratch, command);
        std::thread::sleep(Duration::from_secs(1));
        cpuset.take(program.pid());
        std::thread::sleep(Duration::from_millis(2500));
        cpuset.give_back(program.pid());
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(program.masks(), only("0"), "{policy} while attached, {}", said(&scratch));
        signal("-TERM", colocate.id().cast_signed());
        colocate.ended();
        assert_eq!(program.masks(), only("0"), "{policy}, {}", said(&scratch));
    }
}

fn quiet(scratch: &Scratch, mut command: Command) -> Child {
    let said = std::fs::File::create(scratch.path("said")).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap()
}

/// A bound program creates threads all the time, also while masks are restored: they have its mask, and another program's threads had that one
/// from colocate.
#[test]
fn new_threads_of_a_bound_program_keep_its_mask() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    let creates = need!(scratch.program("live_threads", &["-pthread"]));
    for end in ["-TERM", "-KILL"] {
        let placed = Working::start(Command::new(&busy));
        let mut bound = Command::new("taskset");
        bound.args(["-c", "1"]).arg(&creates).arg("100");
        let mut bound = bound.spawn().unwrap();
        let pid = bound.id().cast_signed();
        let mut command = scratch.colocate();
        command.args(["attach", "--policy", "scatter", "--no-guard"]);
        command.args(["-p", &placed.pid().to_string(), "-p", &pid.to_string()]);
        let mut colocate = quiet(&scratch, command);
        wait_until("it is placed", || placed.masks() == both());
        std::thread::sleep(Duration::from_secs(1));
        signal(end, colocate.id().cast_signed());
        colocate.ended();
        wait_until("it is restored", || placed.masks() == only(&original()));
        assert!(scratch.colocate().arg("restore").output().unwrap().status.success());
        let found: BTreeSet<String> = masks(pid).into_iter().collect();
        bound.kill().unwrap();
        bound.wait().unwrap();
        assert_eq!(found, only("1"), "{end}");
    }
}

/// A user starts another program in the same control group while colocate is attached, and binds it to a PU that colocate has given: once
/// from a shell that ends, and once from the process that has started the attached program.
#[test]
fn a_stranger_that_its_user_has_bound_is_left() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    for end in ["-TERM", "-KILL"] {
        let mut placed = Command::new("setsid");
        placed.arg(&busy);
        let program = Working::start(placed);
        let mut colocate = attach(&scratch, scratch.colocate(), program.pid());
        wait_until("it is placed", || program.masks() == both());
        // In clock ticks it is younger than colocate.
        std::thread::sleep(Duration::from_millis(100));
        let path = scratch.path("stranger");
        let script = format!("taskset -c 1 sleep 100 & echo $! > {}", path.display());
        Command::new("setsid").args(["sh", "-c", &script]).stdin(Stdio::null()).status().unwrap();
        let orphan: i32 = std::fs::read_to_string(path).unwrap().trim().parse().unwrap();
        let mut sibling = Command::new("setsid");
        let mut sibling = sibling.args(["taskset", "-c", "1", "sleep", "100"]).spawn().unwrap();
        let strangers = [orphan, sibling.id().cast_signed()];
        let of_strangers = || strangers.map(|pid| allowed(pid, pid));
        let bound = [Some("1".to_owned()), Some("1".to_owned())];
        wait_until("they are bound", || of_strangers() == bound);
        signal(end, colocate.id().cast_signed());
        colocate.ended();
        wait_until("it is restored", || program.masks() == only(&original()));
        assert!(scratch.colocate().arg("restore").output().unwrap().status.success());
        let found = of_strangers();
        signal("-KILL", orphan);
        sibling.kill().unwrap();
        sibling.wait().unwrap();
        assert_eq!(found, bound, "{end}");
    }
}

/// A wrapper starts a server, binds it, and replaces itself by colocate, whose child the server is then.
#[test]
fn children_of_what_has_executed_colocate_are_left() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let path = scratch.path("server");
    let script = format!(
        "taskset -c 1 sleep 100 & echo $! > {}; exec {} run --policy scatter --no-guard -- sleep 1",
        path.display(),
        env!("CARGO_BIN_EXE_colocate")
    );
    let mut shell = Command::new("sh");
    scratch.homes(&mut shell);
    let status = shell.args(["-c", &script]).stdin(Stdio::null()).status().unwrap();
    let server: i32 = std::fs::read_to_string(path).unwrap().trim().parse().unwrap();
    let found = allowed(server, server);
    signal("-KILL", server);
    assert!(status.success());
    assert_eq!(found.as_deref(), Some("1"));
}

/// A second colocate would take masks for the program's that the first one has set, and measure what that one does.
#[test]
fn a_program_that_another_colocate_places_is_refused() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    let program = Working::start(Command::new(busy));
    let mut first = attach(&scratch, scratch.colocate(), program.pid());
    wait_until("it is placed", || program.masks() == both());
    let mut second = scratch.colocate();
    let pid = program.pid().to_string();
    let second = second.args(["attach", "--for", "1", "-p", &pid]).output().unwrap();
    assert_eq!(second.status.code(), Some(125));
    let line = text(&second.stderr);
    let owner = format!("is placed by process {}; end that first", first.id());
    assert!(line.contains(&owner) && line.lines().count() == 1, "{line}");
    assert_eq!(program.masks(), both());
    signal("-TERM", first.id().cast_signed());
    first.ended();
    assert_eq!(program.masks(), only(&original()));
}

/// The child is placed, its creator is not.
#[test]
fn a_program_whose_child_another_colocate_places_is_refused() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let busy = need!(scratch.program("busy", &["-pthread"]));
    let script = format!("{} 2 1000000000 >/dev/null & wait", busy.display());
    let mut shell = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap();
    let child = await_that("the child", || {
        children(shell.id()).into_iter().find(|pid| masks(*pid).len() == 3)
    });
    let mut first = attach(&scratch, scratch.colocate(), child);
    let is_placed = || masks(child).into_iter().collect::<BTreeSet<_>>() == both();
    wait_until("it is placed", is_placed);
    let mut second = scratch.colocate();
    let pid = shell.id().to_string();
    let second = second.args(["attach", "--for", "1", "-p", &pid]).output().unwrap();
    let owner = format!("({child}) is placed by process {}; end that first", first.id());
    signal("-TERM", first.id().cast_signed());
    first.ended();
    signal("-KILL", child);
    shell.ended();
    assert!(text(&second.stderr).contains(&owner), "{}", text(&second.stderr));
    assert_eq!(second.status.code(), Some(125));
}

/// A process that has forked is placed after some time. Its PU is kept for it meanwhile, and its child has the other one.
#[test]
fn a_program_that_forks_has_a_pu_for_each_process() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let forks = need!(scratch.program("forks", &[]));
    let have_both = |pids: &[i32]| {
        let found: BTreeSet<String> = pids.iter().flat_map(|pid| masks(*pid)).collect();
        pids.len() == 2 && found == both()
    };
    let with_child = |pid: i32| {
        let children = children(pid.cast_unsigned());
        [pid].into_iter().chain(children).collect::<Vec<_>>()
    };

    let mut command = scratch.run(&["--policy", "scatter", "--settle-ms", "0"]);
    let mut colocate = command.arg(&forks).arg("1000").stdin(Stdio::null()).spawn().unwrap();
    let pid = child_called(&colocate, "forks");
    wait_until("both are placed by run", || have_both(&with_child(pid)));
    with_child(pid).into_iter().for_each(|pid| signal("-KILL", pid));
    colocate.ended();

    let mut program = Command::new(&forks).arg("1000").stdin(Stdio::null()).spawn().unwrap();
    let pid = program.id().cast_signed();
    wait_until("it has forked", || with_child(pid).len() == 2);
    let mut command = scratch.colocate();
    command.args(["attach", "--policy", "scatter", "--no-guard", "-p", &pid.to_string()]);
    let mut colocate = quiet(&scratch, command);
    wait_until("both are placed by attach", || have_both(&with_child(pid)));
    signal("-TERM", colocate.id().cast_signed());
    colocate.ended();
    with_child(pid).into_iter().for_each(|pid| signal("-KILL", pid));
    program.ended();
}

/// A thread with the mask of a creator that has ended meanwhile. Of its process only the first thread is left in the
/// journal, with a mask of its own, as the lines of ended threads are used again.
#[test]
fn threads_created_at_the_end_keep_no_mask_beside_a_thread_with_its_own() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(two_pus());
    let chains = need!(scratch.program("chains", &[]));
    for how in ["-INT", "-TERM", "-INT", "-TERM"] {
        let mut first = Command::new(&chains).arg("12").stdin(Stdio::null()).spawn().unwrap();
        let pid = first.id().cast_signed();
        wait_until("all processes are there", || children(first.id()).len() == 11);
        let mut colocate = attach(&scratch, scratch.colocate(), pid);
        std::thread::sleep(Duration::from_millis(500));
        signal(how, colocate.id().cast_signed());
        let code = colocate.ended().code();
        let pids: Vec<i32> = children(first.id()).into_iter().chain([pid]).collect();
        pids.iter().for_each(|pid| signal("-USR1", *pid));
        std::thread::sleep(Duration::from_millis(100));
        let found: Vec<Vec<String>> = pids.iter().map(|pid| masks(*pid)).collect();
        pids.iter().for_each(|pid| signal("-KILL", *pid));
        first.ended();
        assert_eq!(code, Some(0), "{}", said(&scratch));
        let right = ["0".to_owned(), original()];
        for found in found {
            assert_eq!(found, right, "the first thread's own mask and all PUs; {how}");
        }
    }
}
