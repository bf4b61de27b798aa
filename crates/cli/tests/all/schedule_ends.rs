//! Whole runs of `colocate schedule` that are ended from outside: nothing stays stopped or placed.

use crate::run_support::{Scratch, await_that, child_called, has_cgroups, masks, original};
use crate::schedule_support::{
    WAYS, called, out, said, signal, start, stat, unique, until, wait_until, workload,
};
use colocate_testing::skip::{Missing, Requirement, installed, part, two_pus};
use colocate_testing::{EndsInTime, need};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Seven shells that work for ever, in a workload that has begun; and the word that they are known by.
fn at_work(scratch: &Scratch, way: &[&str], purpose: &str) -> (Child, String) {
    let word = unique(purpose);
    let work = format!(": {word}; while :; do :; done");
    let file = workload(scratch, "", &[(&work, "copies = 7")]);
    let child = start(scratch, way, &file);
    wait_until("all have begun", || called(&word).len() == 7);
    (child, word)
}

/// All shells work, and on every PU that they could use without us; then they are ended.
fn go_on_unplaced(word: &str) {
    let left = called(word);
    assert_eq!(left.len(), 7);
    let used = |pid: &i32| stat(*pid).unwrap().1;
    let before: Vec<u64> = left.iter().map(used).collect();
    wait_until("all go on", || left.iter().zip(&before).all(|(pid, before)| used(pid) > *before));
    let free = |pid: &i32| masks(*pid) == [original()];
    wait_until("all are free", || left.iter().all(free));
    left.iter().for_each(|pid| signal("-KILL", *pid));
    wait_until("all have ended", || called(word).is_empty());
}

/// A signal that this process does not ignore, as those do that nohup(1) has started: then all that it starts do, too.
fn heeded(number: i32) -> Result<(), Missing> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let is_ignored = u64::from_str_radix(mask.trim(), 16).unwrap() >> (number - 1) & 1 == 1;
    Requirement::Signals.if_there(!is_ignored, format_args!("signal {number} is ignored"))
}

#[test]
fn signals_end_the_programs() {
    for way in WAYS {
        for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3)] {
            if part(heeded(number)).is_none() {
                continue;
            }
            let scratch = Scratch::new();
            let (mut child, word) = at_work(&scratch, way, name);
            signal(&format!("-{name}"), child.id().cast_signed());
            let status = child.ended().code();
            assert_eq!(status, Some(128 + number), "{name}: {}", said(&scratch));
            wait_until("all have ended", || called(&word).is_empty());
            assert!(!has_cgroups(child.id()) && scratch.journals().is_empty());
        }
    }
}

/// Servers read their settings anew when they hear SIGHUP, and live on: unstopped, and where the kernel wants them.
#[test]
fn a_program_that_survives_a_signal_is_left_to_the_kernel() {
    need!(heeded(1));
    for way in WAYS {
        let scratch = Scratch::new();
        let word = unique("survives");
        let work = format!(": {word}; trap : HUP; echo ready; while :; do :; done");
        let file = workload(&scratch, "", &[(&work, "copies = 7")]);
        let mut child = start(&scratch, way, &file);
        wait_until("all are ready", || out(&scratch).lines().count() == 7);
        signal("-HUP", child.id().cast_signed());
        go_on_unplaced(&word);
        assert_eq!(child.ended().code(), Some(137));
        let said = said(&scratch);
        assert_eq!(said.matches("SIGHUP has ended the scheduling").count(), 1, "{said}");
        assert!(!said.contains("every program"), "all have ended by now: {said}");
        assert!(!has_cgroups(child.id()) && scratch.journals().is_empty());
    }
}

/// By SIGUSR1 people ask programs how far they are: all hear of it, some in their next turn, and take turns on.
#[test]
fn a_signal_for_the_programs_ends_nothing() {
    for way in WAYS {
        let scratch = Scratch::new();
        let word = unique("usr");
        let enough = scratch.path("enough");
        let work = until(&enough);
        let work = format!(": {word}; trap \"echo heard\" USR1; echo ready; {work}");
        let file = workload(&scratch, "", &[(&work, "copies = 7")]);
        let mut child = start(&scratch, way, &file);
        wait_until("all are ready", || out(&scratch).matches("ready").count() == 7);
        let cgroups = has_cgroups(child.id());
        signal("-USR1", child.id().cast_signed());
        wait_until("all have heard", || out(&scratch).matches("heard").count() == 7);
        assert_eq!(has_cgroups(child.id()), cgroups);
        if !cgroups {
            let stopped = |pid: &i32| stat(*pid).is_some_and(|(state, _)| state == 'T');
            wait_until("somebody waits", || called(&word).iter().any(stopped));
        }
        std::fs::write(&enough, "").unwrap();
        assert_eq!(child.ended().code(), Some(0), "{}", said(&scratch));
        assert!(!said(&scratch).contains("ended the scheduling"), "{}", said(&scratch));
    }
}

/// It knows no signal yet, so any would end it.
#[test]
fn a_program_that_has_not_begun_gets_no_signal() {
    for way in WAYS {
        let scratch = Scratch::new();
        let enough = scratch.path("enough");
        let work = until(&enough);
        let work = format!("trap \"echo heard\" USR1; echo ready; {work}; echo done");
        let copies = std::thread::available_parallelism().unwrap().get() + 3;
        let file = workload(&scratch, "", &[(&work, &format!("copies = {copies}"))]);
        let mut child = start(&scratch, &[way, &["--quantum", "60s"]].concat(), &file);
        let times = |word: &str| out(&scratch).matches(word).count();
        wait_until("some have begun", || times("ready") > 0);
        std::thread::sleep(std::time::Duration::from_secs(1));
        let begun = times("ready");
        assert!(begun < copies, "{begun}");
        signal("-USR1", child.id().cast_signed());
        wait_until("they have heard", || times("heard") == begun);
        std::fs::write(&enough, "").unwrap();
        assert_eq!(child.ended().code(), Some(0), "{}", said(&scratch));
        assert_eq!([times("heard"), times("done")], [begun, copies]);
    }
}

#[test]
fn killed_by_force() {
    for way in WAYS {
        let scratch = Scratch::new();
        let (mut child, word) = at_work(&scratch, way, "force");
        child.kill().unwrap();
        child.ended();
        go_on_unplaced(&word);
        wait_until("the guardian is done", || {
            !has_cgroups(child.id()) && scratch.journals().is_empty()
        });
    }
}

/// State letters of the threads of a process.
fn states(pid: i32) -> Vec<char> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    texts.filter_map(|text| text.rsplit_once(") ")?.1.chars().next()).collect()
}

/// Processes one of whose threads runs a program.
fn that_run(program: &std::path::Path) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let runs = |pid: &i32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut exes = tasks.filter_map(|task| std::fs::read_link(task.path().join("exe")).ok());
        exes.any(|exe| exe == program)
    };
    pids.filter(runs).collect()
}

/// Its creator and its first thread have ended, so it is found in the journal or nowhere where jobs have no cgroups.
#[test]
fn killed_while_a_process_without_its_first_thread_is_stopped() {
    let scratch = Scratch::new();
    let program = need!(scratch.program("headless", &[]));
    need!(two_pus());
    let work = format!("({} &); sleep 8", program.display());
    let file = workload(&scratch, "", &[(&work, "copies = 7")]);
    let mut child = start(&scratch, &["--only-signals"], &file);
    let jobs = await_that("all have lost their first threads", || {
        let jobs = that_run(&program);
        let ready = |pid: &i32| states(*pid).len() == 2 && states(*pid).contains(&'Z');
        (jobs.len() == 7 && jobs.iter().all(ready)).then_some(jobs)
    });
    let is_stopped = |pid: &i32| states(*pid).contains(&'T');
    for pid in &jobs {
        wait_until("it is stopped", || is_stopped(pid));
    }
    child.kill().unwrap();
    child.ended();
    wait_until("the guardian is done", || scratch.journals().is_empty());
    let stopped: Vec<&i32> = jobs.iter().filter(|pid| is_stopped(pid)).collect();
    jobs.iter().for_each(|pid| signal("-KILL", *pid));
    assert!(stopped.is_empty(), "{stopped:?} of {jobs:?}");
}

/// Five hundred cgroups take a while to make: whenever colocate is killed, somebody knows of them.
#[test]
fn killed_while_cgroups_are_made() {
    let scratch = Scratch::new();
    let file = workload(&scratch, "", &[("exit", "copies = 500")]);
    let mut child = start(&scratch, &[], &file);
    let made = await_that("cgroups or programs", || {
        let made = has_cgroups(child.id());
        let without = crate::run_support::children(child.id()).len() > 2;
        (made || without).then_some(made)
    });
    child.kill().unwrap();
    child.ended();
    if made {
        wait_until("the guardian is done", || {
            !has_cgroups(child.id()) && scratch.journals().is_empty()
        });
    }
}

/// Some have been stopped before they began, and hold on to what colocate held.
#[test]
fn killed_while_programs_begin() {
    for way in WAYS {
        let scratch = Scratch::new();
        let word = unique("begin");
        let work = format!(": {word}; while :; do :; done");
        let file = workload(&scratch, "", &[(&work, "copies = 60")]);
        let mut child = start(&scratch, way, &file);
        wait_until("some have begun", || called(&word).len() > 20);
        child.kill().unwrap();
        child.ended();
        wait_until("the guardian is done", || {
            !has_cgroups(child.id()) && scratch.journals().is_empty()
        });
        let free = |pid: &i32| {
            let masks = masks(*pid);
            masks.is_empty() || masks == [original()] && stat(*pid).is_none_or(|it| it.0 != 'T')
        };
        wait_until("all are free", || called(&word).iter().all(free));
        // Whose exec was under way when colocate was killed may be there only now.
        wait_until("all have ended", || {
            called(&word).into_iter().for_each(|pid| signal("-KILL", pid));
            called(&word).is_empty()
        });
    }
}

/// Processes in a process group that have not ended.
fn group(number: u32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_in = |pid: &i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let mut fields = text.rsplit_once(") ").map_or("", |it| it.1).split(' ');
        fields.next() != Some("Z") && fields.nth(1) == Some(&number.to_string())
    };
    pids.filter(is_in).collect()
}

/// A shell gives what it starts a process group of its own. When colocate is killed, or the shell ends, the kernel would
/// send SIGHUP to all of it, as some are stopped: first the one, then the other.
#[test]
fn a_hang_up_reaches_no_program() {
    need!(heeded(1));
    let copies = std::thread::available_parallelism().unwrap().get() + 2;
    for script in ["exec \"$@\"", "\"$@\" & read end"] {
        let scratch = Scratch::new();
        let word = unique("hup");
        let work = format!(": {word}; trap \"echo hung up\" HUP; echo ready; while :; do :; done");
        let file = workload(&scratch, "", &[(&work, &format!("copies = {copies}"))]);
        let mut shell = Command::new("sh");
        scratch.homes(&mut shell);
        shell.args([
            "-c",
            script,
            "sh",
            env!("CARGO_BIN_EXE_colocate"),
            "schedule",
            "--no-guard",
            "--waiting",
            "stop",
        ]);
        shell.args(["--policy", "round-robin", "--only-signals"]).arg(file).process_group(0);
        let out_file = std::fs::File::create(scratch.path("out")).unwrap();
        shell.stdin(Stdio::piped()).stdout(out_file).stderr(Stdio::null());
        let mut shell = shell.spawn().unwrap();
        wait_until("all are ready", || out(&scratch).matches("ready").count() == copies);
        if script.starts_with("exec") {
            shell.kill().unwrap();
        }
        // Waiting for a child closes its standard input, and the shell ends with that.
        shell.ended();
        let used = |pid: &i32| stat(*pid).map_or(0, |stat| stat.1);
        let before: Vec<(i32, u64)> = called(&word).iter().map(|pid| (*pid, used(pid))).collect();
        assert_eq!(before.len(), copies);
        wait_until("all go on", || before.iter().all(|(pid, before)| used(pid) > *before));
        assert!(!out(&scratch).contains("hung up"), "{script}");
        before.iter().for_each(|(pid, _)| signal("-KILL", *pid));
        wait_until("nobody is left", || group(shell.id()).is_empty());
        wait_until("all is given back", || scratch.journals().is_empty());
    }
}

/// With the guardian killed before, nothing helps but `colocate restore`.
#[test]
fn killed_with_its_guardian() {
    for way in WAYS {
        let scratch = Scratch::new();
        let (mut child, word) = at_work(&scratch, way, "both");
        signal("-KILL", child_called(&child, "colocate-guard"));
        wait_until("the guardian is gone", || {
            crate::run_support::children(child.id())
                .iter()
                .all(|pid| crate::run_support::name(*pid) != "colocate-guard")
        });
        child.kill().unwrap();
        child.ended();
        let restored = scratch.colocate().arg("restore").output().unwrap();
        assert!(restored.status.success(), "{restored:?}");
        go_on_unplaced(&word);
        assert!(!has_cgroups(child.id()) && scratch.journals().is_empty());
    }
}

/// A job that has stopped itself hears nothing before it is woken.
#[test]
fn a_job_that_has_stopped_itself_ends_too() {
    for way in WAYS {
        let scratch = Scratch::new();
        let word = unique("asleep");
        let sleeps = format!(": {word}; while :; do kill -STOP $$; done");
        let file = workload(&scratch, "", &[(&sleeps, "")]);
        let mut child = start(&scratch, way, &file);
        let asleep = |pid: &i32| stat(*pid).is_some_and(|(state, _)| state == 'T');
        wait_until("it sleeps", || called(&word).iter().any(asleep));
        signal("-TERM", child.id().cast_signed());
        assert_eq!(child.ended().code(), Some(143), "{}", said(&scratch));
        wait_until("nobody is left", || called(&word).is_empty());
    }
}

/// The key reaches programs that run and such that wait.
#[test]
fn ctrl_c_at_a_terminal() {
    need!(installed("script"));
    for way in WAYS {
        let scratch = Scratch::new();
        let word = unique("key");
        let work = format!(": {word}; while :; do :; done");
        let file = workload(&scratch, "", &[(&work, "copies = 5")]);
        let ours = env!("CARGO_BIN_EXE_colocate");
        let options = "--no-guard --policy round-robin";
        let line = format!("exec {ours} schedule {options} {} {}", way.concat(), file.display());
        let mut terminal = Command::new("script");
        scratch.homes(&mut terminal);
        terminal.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
        let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        wait_until("all have begun", || called(&word).len() == 5);
        let mut keys = terminal.stdin.take().unwrap();
        keys.write_all(b"\x03").unwrap();
        keys.flush().unwrap();
        let status = await_that("it ends", || terminal.try_wait().unwrap());
        assert_eq!(status.code(), Some(130));
        wait_until("nobody is left", || called(&word).is_empty());
    }
}
