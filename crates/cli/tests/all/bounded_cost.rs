//! What colocate costs at the worst: threads that are created as fast as can be, and very many that sleep.

use crate::run_support::{Scratch, await_that, child_called, exclusive, masks, original, two_pus};
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// CPU time of the threads of a process, in nanoseconds.
fn own_ns(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let sums = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    sums.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// Waits for the end of colocate; its CPU time until shortly before.
fn ends(child: &mut Child) -> u64 {
    let mut own = 0;
    await_that("colocate ends", || {
        own = own.max(own_ns(child.id()));
        child.try_wait().unwrap()
    });
    own
}

/// What was created in a storm, and the program's CPU time in nanoseconds.
fn created(child: &mut Child) -> (u64, u64) {
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let mut numbers = out.split_whitespace().map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Of 10,000 threads and more a second few are followed. While they come and go none of them is kept on a PU, although the
/// policy wants each on one.
#[test]
fn a_storm_of_threads_costs_less_than_the_program() {
    let _exclusive = exclusive();
    let scratch = Scratch::new();
    let Some(program) = scratch.program("creates", &[]).filter(|_| two_pus()) else { return };
    let mut command = scratch.run(&["--policy", "scatter", "--settle-ms", "0"]);
    command.arg(&program).args(["threads", "5"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child_called(&child, "creates");
    // Its first thread was put on a PU, and then left to the kernel again.
    await_that("it is left alone", || {
        scratch.marks().contains(&(pid, pid, "-".to_owned())).then_some(())
    });
    let narrowed = (0..200).flat_map(|_| masks(pid)).find(|mask| *mask != original());
    assert_eq!(narrowed, None);
    let own = ends(&mut child);
    let (created, program) = created(&mut child);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let report = scratch.report();
    let followed = report["threads_created"]["created"].as_u64().unwrap();
    println!("{created} created, {followed} followed, {own} of {program} ns");
    assert_eq!(said.matches("creates more than 1000 threads a second").count(), 1, "{said}");
    // The first 1,000, what comes until then at the rate, and what is left over when the storm pauses on a busy machine.
    assert!(created > 10_000 && followed < created / 2, "{followed} of {created}");
    assert!(own < 2 * program, "{own} ns for {created} threads, {program} ns of the program");
}

/// 2,500 threads are created at once, and live on: 1,000 are followed at once, the others in the seconds after that.
#[test]
fn what_lives_on_is_followed_later() {
    let _exclusive = exclusive();
    let scratch = Scratch::new();
    let Some(program) = scratch.program("phases", &[]) else { return };
    let mut command = scratch.run(&["--policy", "scatter"]);
    command.arg(&program).args(["2499", "1:8000"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    ends(&mut child);
    let report = scratch.report();
    assert_eq!(report["threads_created"]["created"], 2_500, "{}", report["threads_created"]);
}

/// CPU time of colocate until so many sleeping threads are there and known, and in the 3 s after that, as a share of a PU.
fn cost_of_sleepers(scratch: &Scratch, program: &std::path::Path, sleepers: u32) -> (u64, f64) {
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
    // Those that are not followed at once are at 1,000 a second.
    std::thread::sleep(Duration::from_millis(u64::from(sleepers) + 2_000));
    let (first, begun) = (own_ns(child.id()), Instant::now());
    std::thread::sleep(Duration::from_secs(3));
    let (last, took) = (own_ns(child.id()), begun.elapsed());
    let _ = std::process::Command::new("kill").arg(child.id().to_string()).status();
    ends(&mut child);
    #[allow(clippy::cast_precision_loss)] // seconds
    let share = (last - first) as f64 / took.as_nanos() as f64;
    (first, share)
}

/// Eight times as many threads may cost eight times as much when they are created, and hardly anything when they sleep.
#[test]
fn threads_that_sleep_cost_little() {
    let _exclusive = exclusive();
    let scratch = Scratch::new();
    let Some(program) = scratch.program("phases", &[]) else { return };
    let (few, _) = cost_of_sleepers(&scratch, &program, 2_000);
    let (many, share) = cost_of_sleepers(&scratch, &program, 16_000);
    println!("{few} ns for 2000, {many} ns for 16000, then {share:.4} of a PU");
    assert!(many < 11 * few, "{few} ns for 2000 threads, {many} ns for 16000");
    // Of a build that is not optimised.
    assert!(share < 0.2, "{share} of a PU");
}
