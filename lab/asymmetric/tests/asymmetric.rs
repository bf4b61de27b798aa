//! The tool as a whole: one line for each thing that is wrong, the program's status, nothing left when it is killed.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use colocate_testing::skip::{Missing, Requirement, two_pus};
use colocate_testing::{need, wait_until, within};
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// SCHED_FIFO, as in field 41 of /proc/TID/stat.
const FIFO: &str = "1";

/// The tool with a shell's signal handling, even if this test runs under nohup.
fn asymmetric(words: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT", env!("CARGO_BIN_EXE_asymmetric")]);
    command.args(words).stdin(Stdio::null());
    command
}

/// Output of a command that must end.
fn output(command: &mut Command) -> Output {
    within(&format!("the end of {command:?}"), || command.output()).unwrap()
}

/// Status and error line of a command that prints exactly one such line.
fn refused(command: &mut Command) -> (i32, String) {
    let Output { status, stdout, stderr } = output(command);
    let printed = String::from_utf8(stderr).unwrap();
    assert_eq!(stdout, b"");
    assert_eq!(printed.lines().count(), 1, "{printed}");
    (status.code().unwrap(), printed.trim_end().to_owned())
}

/// PUs that this test may use.
fn usable() -> Vec<u32> {
    smt_bench::thread::usable().unwrap()
}

/// Options of all tests with a slow PU. The ratio depends on the machine; no test checks the ratio.
fn quick(cpu: &str) -> [&str; 6] {
    ["--cpu", cpu, "--share", "0.3", "--windows", "2"]
}

/// Held by a test with a slow PU: two such tests on a PU would find the PU slower than requested.
static SLOW: Mutex<()> = Mutex::new(());

/// A PU that can be made slow here, while the guard lives.
fn slow() -> Result<(String, MutexGuard<'static, ()>), Missing> {
    let alone = SLOW.lock().unwrap_or_else(PoisonError::into_inner);
    two_pus()?;
    let cpu = usable().last().unwrap().to_string();
    let tried = output(asymmetric(&quick(&cpu)).args(["--", "true"]));
    let printed = String::from_utf8(tried.stderr).unwrap();
    if printed.contains("cannot make a real-time thread") {
        return Err(Requirement::RealTime.missing(printed));
    }
    assert!(tried.status.success(), "{printed}");
    Ok((cpu, alone))
}

/// A wrapper of util-linux that works here: it runs `true`.
fn works(wrapper: &[&str]) -> Result<(), Missing> {
    let done = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").output();
    let is_run = done.is_ok_and(|done| done.status.success());
    Requirement::Tools.if_there(is_run, format_args!("cannot run {}", wrapper.join(" ")))
}

/// The fields of a thread's stat after its name, the third first; `None` if there is no such
/// thread.
fn stat(tid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// True for a thread that has not ended; false for a zombie.
fn lives(tid: u32) -> bool {
    stat(tid).is_some_and(|fields| !matches!(fields[0].as_str(), "Z" | "X"))
}

/// Real-time threads of a process, and its children.
fn real_time(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let tids = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.filter(|&tid| stat(tid).is_some_and(|fields| fields[38] == FIFO)).collect()
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn a_pu_that_is_not_there_is_refused() {
    let (status, printed) = refused(&mut asymmetric(&["--cpu", "8000", "--", "true"]));
    assert_eq!(status, 125);
    let list = usable().iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let expected =
        format!("asymmetric: expected a PU that may be used here ({list}) with --cpu, found 8000");
    assert_eq!(printed, expected);
}

#[test]
fn one_pu_alone_is_not_enough() {
    let cpu = usable()[0].to_string();
    let wrapper = ["taskset", "-c", &cpu];
    need!(works(&wrapper));
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu, env!("CARGO_BIN_EXE_asymmetric"), "--cpu", &cpu, "--", "true"]);
    let (status, printed) = refused(&mut command);
    assert_eq!(status, 125);
    let expected = format!(
        "asymmetric: expected two PUs, a slow one and one to compare it with, found PU {cpu} alone"
    );
    assert_eq!(printed, expected);
}

#[test]
fn a_ratio_below_1_is_wrong_usage() {
    let done = output(&mut asymmetric(&["--cpu", "0", "--ratio", "0.5", "--", "true"]));
    assert_eq!(done.status.code(), Some(2));
    let printed = String::from_utf8(done.stderr).unwrap();
    assert!(printed.contains("expected a ratio from 1 to 8, found \"0.5\""), "{printed}");
}

#[test]
fn a_refused_real_time_thread_names_the_missing_privilege() {
    let wrapper = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"];
    need!(two_pus());
    need!(works(&wrapper));
    need!(works(&["prlimit", "--rtprio=0"]));
    let mut command = Command::new("prlimit");
    command.arg("--rtprio=0").args(wrapper);
    command.args([
        env!("CARGO_BIN_EXE_asymmetric"),
        "--cpu",
        &usable()[0].to_string(),
        "--",
        "true",
    ]);
    let (status, printed) = refused(&mut command);
    assert_eq!(status, 125);
    let expected = "asymmetric: cannot make a real-time thread: sched_setscheduler: ";
    assert!(
        printed.starts_with(expected) && printed.contains("expected root, CAP_SYS_NICE"),
        "{printed}"
    );
}

#[test]
fn the_status_is_the_programs() {
    let (cpu, _alone) = need!(slow());
    let status = |words: &[&str]| {
        let done = output(asymmetric(&quick(&cpu)).args(["--quiet", "--"]).args(words));
        (done.status.code().unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    assert_eq!(status(&["true"]), (0, String::new()));
    assert_eq!(status(&["sh", "-c", "exit 3"]), (3, String::new()));
    assert_eq!(status(&["sh", "-c", "kill -9 $$"]), (137, String::new()));
    let (code, printed) = status(&["/no/such/program"]);
    assert_eq!(code, 127);
    assert!(printed.starts_with("asymmetric: cannot run /no/such/program: "), "{printed}");
    assert_eq!(status(&["/"]).0, 126);
}

#[test]
fn the_program_is_no_real_time_one_and_may_use_every_pu() {
    let (cpu, _alone) = need!(slow());
    let words = ["--", "cat", "/proc/self/stat", "/proc/self/status"];
    let done = output(asymmetric(&quick(&cpu)).args(words));
    let printed = String::from_utf8(done.stdout).unwrap();
    let (_, fields) = printed.lines().next().unwrap().rsplit_once(')').unwrap();
    assert_eq!(fields.split_whitespace().nth(38), Some("0"), "{printed}");
    let own = fs::read_to_string("/proc/thread-self/status").unwrap();
    let mask = |text: &str| {
        text.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap().to_owned()
    };
    assert_eq!(mask(&printed), mask(&own));
}

/// The tool with a sleeping program: the IDs of the slowing thread and of the program.
fn at_work(cpu: &str) -> (Child, u32, u32) {
    let child = asymmetric(&quick(cpu)).args(["--quiet", "--", "sleep", "600"]).spawn().unwrap();
    wait_until("a start of the program", || !children(child.id()).is_empty());
    let program = children(child.id())[0];
    let hogs = real_time(child.id());
    assert_eq!(hogs.len(), 1, "expected one real-time thread");
    let allowed = fs::read_to_string(format!("/proc/{}/status", hogs[0])).unwrap();
    let kept = format!("Cpus_allowed_list:\t{cpu}");
    assert!(allowed.lines().any(|line| line == kept), "{allowed}");
    (child, hogs[0], program)
}

#[test]
fn nothing_is_left_when_it_is_killed() {
    let (cpu, _alone) = need!(slow());
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let (mut child, hog, program) = at_work(&cpu);
        let sent =
            Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        wait_until("the end of the tool", || child.try_wait().unwrap().is_some());
        // Its threads are gone before a process can be waited for.
        assert!(!lives(hog), "signal {signal}: the thread that slows lives");
        wait_until("the end of the program", || !lives(program));
    }
}

/// The kernel moves the thread to another PU, as when its PU goes offline.
#[test]
fn a_thread_on_another_pu_ends_and_is_reported() {
    let (cpu, _alone) = need!(slow());
    let mut command = asymmetric(&quick(&cpu));
    command.args(["--quiet", "--again", "--", "sh", "-c", "sleep 5; exit 4"]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a start of the program", || !children(child.id()).is_empty());
    let hog = real_time(child.id())[0];
    let elsewhere = usable()[0].to_string();
    let moved = output(Command::new("taskset").args(["-p", "-c", &elsewhere, &hog.to_string()]));
    assert!(moved.status.success(), "{moved:?}");
    wait_until("the end of the thread", || real_time(child.id()).is_empty());
    assert!(!children(child.id()).is_empty(), "the program lives");
    let done = within("the end of the tool", || child.wait_with_output()).unwrap();
    assert_eq!(done.status.code(), Some(4));
    let expected = format!(
        "asymmetric: PU {cpu} was slow for a part of the time only: cannot run on PU {cpu}: the mask read back is \
         [{elsewhere}]\n"
    );
    assert_eq!(String::from_utf8(done.stderr).unwrap(), expected);
}

#[test]
fn the_status_is_the_programs_whatever_goes_wrong_after_it() {
    let (cpu, _alone) = need!(slow());
    let folder = tempfile::tempdir().unwrap();
    let within = folder.path().join("within");
    fs::create_dir(&within).unwrap();
    let mut command = asymmetric(&quick(&cpu));
    command.args(["--quiet", "--again", "--output"]).arg(within.join("slow.json"));
    command.args(["--", "sh", "-c", "rm -r \"$0\"; exit 3"]).arg(&within);
    let (status, printed) = refused(&mut command);
    assert_eq!(status, 3);
    assert!(printed.starts_with("asymmetric: cannot write "), "{printed}");
}

#[test]
fn what_was_measured_is_kept() {
    let (cpu, _alone) = need!(slow());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slow.json");
    // The program finds the file written before it begins.
    let mut command = asymmetric(&quick(&cpu));
    command.arg("--again").arg("--output").arg(&file).arg("--").arg("cat").arg(&file);
    let done = output(&mut command);
    let printed = String::from_utf8(done.stderr).unwrap();
    assert_eq!(printed.lines().count(), 2, "{printed}");
    let before: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let after: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(before["cpu"], cpu.parse::<u32>().unwrap());
    assert!(before["asked"].is_null() && before["after"].is_null(), "{before}");
    assert_eq!((&before["period_us"], &before["taken_us"]), (&2000.0.into(), &600.0.into()));
    for ratio in [&before["ratio"], &after["after"]] {
        assert!(ratio["mean"]["value"].as_f64().is_some_and(|ratio| ratio > 0.0), "{after}");
    }
}
