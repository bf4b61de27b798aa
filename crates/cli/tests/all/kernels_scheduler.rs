//! A scheduler that is loaded by sched_ext, and Java programs: placed threads of either see less than their programs expect.
//! The state of sched_ext is a file below a file system of its own, in a mount namespace, which takes root.

use crate::run_support::{Scratch, exclusive, original, text};
use crate::schedule_support::wait_until;
use colocate_testing::skip::{Missing, Requirement, installed, root, two_pus};
use colocate_testing::{EndsInTime, need};
use std::path::Path;
use std::process::{Command, Stdio};

/// `colocate run` of a program that works for ever, where the kernel says that sched_ext is in this state.
fn run_with(scratch: &Scratch, state: &str) -> Result<Command, Missing> {
    root()?;
    installed("unshare")?;
    two_pus()?;
    Requirement::Namespaces.if_there(Path::new("/sys/kernel").is_dir(), "no /sys/kernel")?;
    let program = scratch.program("busy", &["-pthread"])?;
    let script = format!(
        "mount -t tmpfs t /sys/kernel && mkdir -p /sys/kernel/sched_ext/root && \
         echo {state} > /sys/kernel/sched_ext/state && echo simple > /sys/kernel/sched_ext/root/ops && \
         exec {} run --policy round-robin --no-guard --settle-ms 0 -- {} 2 1000000000",
        env!("CARGO_BIN_EXE_colocate"),
        program.display()
    );
    let mut command = Command::new("unshare");
    scratch.homes(&mut command);
    command.args(["-m", "sh", "-c", &script]).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(scratch.path("said")).unwrap());
    Ok(command)
}

fn said(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.path("said")).unwrap()
}

/// The masks of all threads of the only child that runs `busy`.
fn masks_below(pid: u32) -> Vec<String> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let mut children = children.split_whitespace().filter_map(|child| child.parse::<i32>().ok());
    let is_busy = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "busy\n")
    };
    let Some(busy) = children.find(is_busy) else { return Vec::new() };
    crate::run_support::masks(busy)
}

fn are_single(masks: &[String]) -> bool {
    masks.len() == 3 && masks.iter().all(|mask| mask.parse::<u32>().is_ok())
}

#[test]
fn with_a_scheduler_that_is_loaded_no_thread_is_on_one_pu() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let mut command = need!(run_with(&scratch, "enabled"));
    let mut colocate = command.spawn().unwrap();
    wait_until("it says so", || {
        said(&scratch).contains("the sched_ext scheduler simple is loaded")
    });
    wait_until("it has its threads", || masks_below(colocate.id()).len() == 3);
    let mut is_narrowed = false;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
    while std::time::Instant::now() < end {
        let masks = masks_below(colocate.id());
        assert!(masks.iter().all(|mask| mask.parse::<u32>().is_err()), "{masks:?}");
        is_narrowed |= masks.iter().any(|mask| *mask != original());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    crate::schedule_support::signal("-TERM", colocate.id().cast_signed());
    colocate.ended();
    let said = said(&scratch);
    // Where a core or cache has some of the PUs, threads are placed there.
    assert!(is_narrowed || said.contains("not placed: a sched_ext scheduler is loaded"), "{said}");
}

#[test]
fn a_scheduler_that_is_loaded_later_undoes_placements() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    let mut command = need!(run_with(&scratch, "disabled"));
    let mut colocate = command.spawn().unwrap();
    let state = format!("/proc/{}/root/sys/kernel/sched_ext/state", colocate.id());
    wait_until("it is placed", || are_single(&masks_below(colocate.id())));
    std::fs::write(&state, "enabled\n").unwrap();
    let are_free = |masks: &[String]| masks.len() == 3 && masks.iter().all(|it| *it == original());
    wait_until("every mask is restored", || are_free(&masks_below(colocate.id())));
    std::fs::write(&state, "disabled\n").unwrap();
    wait_until("it is placed again", || are_single(&masks_below(colocate.id())));
    crate::schedule_support::signal("-TERM", colocate.id().cast_signed());
    colocate.ended();
    assert!(
        said(&scratch).contains("the sched_ext scheduler simple was loaded"),
        "{}",
        said(&scratch)
    );
}

/// Java code counts PUs on any thread.
#[test]
fn a_java_program_whose_threads_are_placed_is_named() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(installed("java"));
    need!(installed("javac"));
    need!(two_pus());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/Pus.java");
    let mut javac = Command::new("javac");
    let done = javac.arg("-d").arg(scratch.dir.path()).arg(source).status().unwrap();
    assert!(done.success());
    let ran = |options: &[&str]| {
        let mut command = scratch.colocate();
        command.args(["run", "--no-guard", "--policy", "round-robin", "--", "java"]).args(options);
        let output = command.arg("-cp").arg(scratch.dir.path()).arg("Pus").output().unwrap();
        text(&output.stderr)
    };
    let line = "availableProcessors() answers 1 there";
    let plain = ran(&[]);
    assert_eq!(plain.matches(line).count(), 1, "{plain}");
    let noted = ran(&["-XX:ActiveProcessorCount=2"]);
    assert!(!noted.contains(line), "{noted}");
}
