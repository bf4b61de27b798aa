//! What colocate costs at the worst: threads that are created as fast as can be, and very many that sleep.

use crate::run_support::{Scratch, await_that, child_called, exclusive, masks, original};
use colocate_testing::need;
use colocate_testing::skip::two_pus;
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Duration;

/// How often a process has read a file.
fn reads(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let reads = text.lines().find_map(|line| line.strip_prefix("syscr: "));
    reads.and_then(|reads| reads.parse().ok()).unwrap_or(0)
}

/// Waits for the end of colocate; how often it had read a file shortly before.
fn ends(child: &mut Child) -> u64 {
    let mut most = 0;
    await_that("colocate ends", || {
        most = most.max(reads(child.id()));
        child.try_wait().unwrap()
    });
    most
}

/// Of thousands of threads a second few are followed, and no other one costs a reading. While they come and go none of
/// them is kept on a PU, although the policy wants each on one.
#[test]
fn a_storm_of_threads_is_not_followed_one_by_one() {
    let _exclusive = exclusive();
    let scratch = Scratch::new();
    need!(two_pus());
    let program = need!(scratch.program("creates", &[]));
    let (said, file) = (scratch.path("said"), std::fs::File::create(scratch.path("said")).unwrap());
    let mut command = scratch.run(&["--policy", "scatter", "--settle-ms", "0"]);
    command.arg(&program).args(["threads", "5"]).stdout(Stdio::piped()).stderr(file);
    let mut child = command.spawn().unwrap();
    let pid = child_called(&child, "creates");
    let notes = || {
        let said = std::fs::read_to_string(&said).unwrap();
        said.matches("creates more than 1000 threads a second").count()
    };
    await_that("it is left alone", || (notes() > 0).then_some(()));
    let narrowed = (0..200).flat_map(|_| masks(pid)).find(|mask| *mask != original());
    assert_eq!(narrowed, None);
    let reads = ends(&mut child);
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let created: u64 = out.split_whitespace().next().unwrap().parse().unwrap();
    let report = scratch.report();
    let followed = report["threads_created"]["created"].as_u64().unwrap();
    println!("{created} created, {followed} followed, {reads} readings");
    assert_eq!(notes(), 1);
    // 1,000 at once and 1,000 a second at most, and not all: a busy machine creates few more.
    let most = 1_100 + report["turnaround_ns"].as_u64().unwrap() / 1_000_000;
    assert!(followed <= most && followed < created, "{followed} of {created}, {most} at most");
    assert!(reads < 5 * followed, "{reads} readings for {followed} threads");
}

/// 2,500 threads are created at once, and live on: 1,000 are followed at once, the others in the seconds after that.
#[test]
fn what_lives_on_is_followed_later() {
    let _exclusive = exclusive();
    let scratch = Scratch::new();
    let program = need!(scratch.program("phases", &[]));
    let mut command = scratch.run(&["--policy", "scatter"]);
    command.arg(&program).args(["2499", "1:8000"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    ends(&mut child);
    let report = scratch.report();
    assert_eq!(report["threads_created"]["created"], 2_500, "{}", report["threads_created"]);
}

/// How often colocate reads a file until so many sleeping threads are there and known, and how often in a second after that.
fn readings_for_sleepers(
    scratch: &Scratch,
    program: &std::path::Path,
    sleepers: u32,
) -> (u64, u64) {
    let mut command = scratch.colocate();
    command.args(["schedule", "--quiet", "--"]).arg(program);
    command.args([&sleepers.to_string(), "1:0"]).stdout(Stdio::null()).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    let pid = child_called(&child, "phases");
    let tasks = format!("/proc/{pid}/task");
    await_that("all are there", || {
        let there = std::fs::read_dir(&tasks).unwrap().count();
        (there > sleepers as usize).then_some(())
    });
    // Those that are not followed at once are at 1,000 a second, later on a busy machine.
    let (first, asleep) = await_that("hardly anything is read", || {
        let first = reads(child.id());
        std::thread::sleep(Duration::from_secs(1));
        let asleep = reads(child.id()) - first;
        (asleep < u64::from(sleepers) / 4).then_some((first, asleep))
    });
    let _ = std::process::Command::new("kill").arg(child.id().to_string()).status();
    ends(&mut child);
    (first, asleep)
}

/// Four times as many threads cost four times as much when they are created, or twice that where events are lost and all are
/// looked at once more; not sixteen times. They cost hardly anything when they sleep. `scripts/bounded-cost` measures the time.
#[test]
fn threads_that_sleep_are_hardly_read() {
    let _exclusive = exclusive();
    let scratch = Scratch::new();
    let program = need!(scratch.program("phases", &[]));
    let (few, _) = readings_for_sleepers(&scratch, &program, 1_000);
    let (many, asleep) = readings_for_sleepers(&scratch, &program, 4_000);
    println!("{few} readings for 1,000, {many} for 4,000, then {asleep} a second");
    // A quiet second may come before all of the few are known. Each takes ten readings at least (10 to 18 were measured on a virtual
    // machine with two PUs).
    let most = 10 * few.max(10 * 1_000);
    assert!(many < most, "{few} readings for 1,000 threads, {many} for 4,000, {most} at most");
}
