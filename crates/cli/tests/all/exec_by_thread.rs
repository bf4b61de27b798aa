//! Whole runs of programs in which a thread that is not the first executes a program: it goes on under the first one's
//! number, with the mask that it was given. With events of the kernel, where there are some, and with births that are
//! looked for in `/proc`.

use crate::run_support::{
    Scratch, allowed, await_that, child_called, children, masks, name, original,
};
use crate::schedule_support::{called, signal, stat, unique, wait_until};
use colocate_testing::skip::{Missing, two_pus};
use colocate_testing::{EndsInTime, need};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

/// `colocate`, without events of the kernel if asked for.
fn colocate(scratch: &Scratch, without_perf: bool) -> Result<Command, Missing> {
    if !without_perf {
        return Ok(scratch.colocate());
    }
    let mut command = Command::new(scratch.program("noperf", &[])?);
    scratch.homes(&mut command);
    command.arg(env!("CARGO_BIN_EXE_colocate"));
    Ok(command)
}

/// `colocate run` of a program in which, in a child process if there is a file, a thread executes sleep(1).
fn run(scratch: &Scratch, without_perf: bool, file: &Path) -> Result<Command, Missing> {
    two_pus()?;
    let program = scratch.program("exec_by_thread", &[])?;
    let mut command = colocate(scratch, without_perf)?;
    command.args(["run", "--no-guard", "--json", "-o"]).arg(scratch.path("report"));
    command.args(["--policy", "round-robin", "--settle-ms", "0", "--"]);
    command.arg(program).arg(file).args(["sleep", "60"]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Waits until a process is where the journal says that its first thread was put.
fn await_placed(scratch: &Scratch, pid: i32) {
    await_that("who has executed a program is placed", || {
        let there = |(of, tid, mark): &(i32, i32, String)| {
            (*of, *tid) == (pid, pid)
                && mark.parse::<u32>().is_ok()
                && allowed(pid, pid).as_ref() == Some(mark)
        };
        scratch.marks().iter().any(there).then_some(())
    });
}

#[test]
fn its_mask_is_restored_at_the_end() {
    for without_perf in [false, true] {
        let scratch = Scratch::new();
        let end = scratch.path("end");
        let mut command = need!(run(&scratch, without_perf, &end));
        let mut colocate = command.spawn().unwrap();
        let parent = child_called(&colocate, "exec_by_thread").cast_unsigned();
        let pid = await_that("a thread executes a program", || {
            children(parent).into_iter().find(|pid| name(*pid) == "sleep")
        });
        await_placed(&scratch, pid);
        std::fs::write(&end, "").unwrap();
        assert!(colocate.ended().success());
        assert_eq!(masks(pid), [original()], "without perf: {without_perf}");
        signal("-KILL", pid);
        let report = scratch.report();
        let is_it = |task: &&serde_json::Value| task["name"] == "exec_by_thread/sleep";
        let task = report["tasks"].as_array().unwrap().iter().find(is_it).unwrap();
        assert_eq!(task["status"], "placed", "{task}");
    }
}

#[test]
fn its_mask_is_restored_by_the_guardian() {
    for without_perf in [false, true] {
        let scratch = Scratch::new();
        let mut command = need!(run(&scratch, without_perf, Path::new("-")));
        let mut colocate = command.spawn().unwrap();
        let guardian = child_called(&colocate, "colocate-guard");
        let pid = child_called(&colocate, "sleep");
        await_placed(&scratch, pid);
        colocate.kill().unwrap();
        colocate.ended();
        wait_until("the guardian is done", || scratch.journals().is_empty());
        wait_until("it has ended", || stat(guardian).is_none_or(|(state, _)| state == 'Z'));
        assert_eq!(masks(pid), [original()], "without perf: {without_perf}");
        signal("-KILL", pid);
    }
}

/// There is one job more than PUs, so that each has to wait, and all that it has created with it.
#[test]
fn it_is_stopped_with_its_job() {
    for without_perf in [false, true] {
        let scratch = Scratch::new();
        let program = need!(scratch.program("exec_by_thread", &[]));
        let mut command = need!(colocate(&scratch, without_perf));
        let jobs = std::thread::available_parallelism().unwrap().get() + 1;
        let (program, end) = (program.display(), scratch.path("end"));
        let word = unique("turns");
        let text = format!(
            "version = 1\nquantum = \"20 ms\"\n[[job]]\ncopies = {jobs}\ncommand = [\"{program}\", \"{}\", \
             \"sh\", \"-c\", \": {word}; while :; do :; done\"]\n",
            end.display()
        );
        let file = scratch.path("workload.toml");
        std::fs::write(&file, text).unwrap();
        command.args([
            "schedule",
            "--no-guard",
            "--waiting",
            "stop",
            "--only-signals",
            "--policy",
            "round-robin",
        ]);
        command.arg(&file).stdin(Stdio::null()).stderr(Stdio::null());
        let mut colocate = command.spawn().unwrap();
        wait_until("all execute a program", || called(&word).len() == jobs);
        let mut stopped = BTreeSet::new();
        wait_until("each has waited", || {
            let pids = called(&word).into_iter();
            stopped.extend(pids.filter(|pid| stat(*pid).is_some_and(|(state, _)| state == 'T')));
            stopped.len() == jobs
        });
        std::fs::write(&end, "").unwrap();
        assert!(colocate.ended().success());
        for pid in stopped {
            assert_ne!(stat(pid).unwrap().0, 'T', "without perf: {without_perf}");
            assert_eq!(masks(pid), [original()], "without perf: {without_perf}");
            signal("-KILL", pid);
        }
    }
}
