//! What can go wrong: everything is undone, or a line says what is not.

use super::{ANSWERS, answering, await_end_of, catch_up, send};
use crate::run_support::{
    Scratch, as_nobody, await_that, child_called, masks, name, original, text,
};
use colocate_testing::skip::{installed, root};
use colocate_testing::{EndsInTime, need, skip};
use std::path::Path;
use std::process::{Command, Stdio};

/// Killed at random instants, 20 times and more, while threads come and go: every mask is the
/// original one afterwards, and neither guardian nor journal stay behind.
#[test]
fn kill_nine_leaves_every_mask_as_it_was() {
    let scratch = Scratch::new();
    let threads = need!(scratch.program("threads", &[]));
    for round in 0_u64..24 {
        let mut command = scratch.run(&["--policy", "scatter", "--settle-ms", "0"]);
        command.arg(&threads).args(["300", "4"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Waiting for a child closes its standard input, and the program would end with that.
        let input = child.stdin.take();
        let pid = child_called(&child, "threads");
        let guardian = child_called(&child, "colocate-guard");
        // A multiplicative walk spreads the instants over the first 40 ms.
        std::thread::sleep(std::time::Duration::from_micros(round * 7_919 % 40_000));
        child.kill().unwrap();
        child.ended();
        await_end_of(guardian);
        let masks = masks(pid);
        assert!(!masks.is_empty(), "round {round}: the program lives on");
        assert!(masks.iter().all(|mask| *mask == original()), "round {round}: {masks:?}");
        assert_eq!(scratch.journals(), [] as [&Path; 0], "round {round}");
        drop(input);
    }
}

#[test]
fn a_guardian_ends_with_us_and_never_before() {
    let scratch = Scratch::new();
    let mut command = scratch.run(&["--policy", "scatter"]);
    let mut child = command.args(["cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let guardian = child_called(&child, "colocate-guard").to_string();
    for signal in ["-INT", "-TERM", "-HUP", "-QUIT", "-USR1"] {
        Command::new("kill").args([signal, &guardian]).status().unwrap();
    }
    child_called(&child, "cat");
    assert_eq!(name(guardian.parse().unwrap()), "colocate-guard");
    drop(child.stdin.take());
    assert!(child.ended().success());
    assert_eq!(name(guardian.parse().unwrap()), "");
}

/// A guardian that somebody has stopped does not keep us from ending.
#[test]
fn a_stopped_guardian_is_not_waited_for() {
    let scratch = Scratch::new();
    let mut command = scratch.run(&["--policy", "scatter"]);
    let mut child = command.arg("cat").stdin(Stdio::piped()).spawn().unwrap();
    let guardian = child_called(&child, "colocate-guard");
    send("-STOP", guardian.cast_unsigned());
    drop(child.stdin.take());
    assert!(await_that("colocate ends", || child.try_wait().unwrap()).success());
    assert_eq!(name(guardian), "");
}

#[test]
fn a_home_that_cannot_be_written_costs_a_line() {
    let scratch = Scratch::new();
    let mut command = scratch.colocate();
    command.args(["run", "--policy", "scatter", "--", "true"]).stdin(Stdio::null());
    // Nobody, not even root, can make a folder below a file.
    std::fs::write(scratch.path("file"), "").unwrap();
    command.env("XDG_CACHE_HOME", scratch.path("file/cache"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A full disk: the journal is given up with one line, and the run goes on.
#[test]
fn a_full_disk_costs_a_line() {
    need!(root());
    need!(installed("unshare"));
    let scratch = Scratch::new();
    let runtime = scratch.path("runtime");
    let script = "mount -t tmpfs -o size=4k,mode=700 none \"$XDG_RUNTIME_DIR\" || exit 77; \
                  mkdir -m 700 \"$XDG_RUNTIME_DIR/colocate\"; \
                  head -c 9999 /dev/zero > \"$XDG_RUNTIME_DIR/fill\"; exec \"$@\"";
    let mut command = Command::new("unshare");
    scratch.homes(&mut command);
    command.args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_colocate"), "run"]);
    command
        .args(["--policy", "scatter", "--", "sh", "-c", "echo done"])
        .env("XDG_RUNTIME_DIR", runtime);
    let output = command.stdin(Stdio::null()).output().unwrap();
    if output.status.code() == Some(77) || text(&output.stderr).starts_with("unshare: ") {
        skip!(Namespaces, "no private mounts here: {}", text(&output.stderr));
    }
    assert_eq!(text(&output.stdout), "done\n");
    let said = text(&output.stderr);
    assert!(said.contains("cannot keep a journal (") && said.contains("No space left"), "{said}");
}

/// Without perf events births are found in /proc and nothing can be watched: one line each.
#[test]
fn without_perf_there_are_lines_and_a_run() {
    let scratch = Scratch::new();
    let noperf = need!(scratch.program("noperf", &[]));
    let mut command = Command::new(noperf);
    scratch.homes(&mut command);
    command.arg(env!("CARGO_BIN_EXE_colocate")).args([
        "run",
        "--policy",
        "mix",
        "--settle-ms",
        "0",
        "--watch-s",
        "0.1",
    ]);
    command.args(["--", "sh", "-c", "sleep 0.5; exit 3"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert_eq!(
        said.matches("colocate: thread creation is detected by scanning /proc").count(),
        1,
        "{said}"
    );
    assert_eq!(
        said.matches("colocate: cannot report which instructions programs execute").count(),
        1,
        "{said}"
    );
    assert!(said.contains("(seen by proc)"), "{said}");
}

/// A set-user-ID child that becomes root altogether cannot be placed by an ordinary user.
#[test]
fn another_users_thread_is_reported() {
    let scratch = Scratch::new();
    let (mut command, program) = need!(as_nobody(&scratch));
    command.args([
        "run",
        "--no-guard",
        "--policy",
        "scatter",
        "--settle-ms",
        "100",
        "--json",
        "-o",
    ]);
    command.arg(scratch.path("report")).arg("--").arg(program).args(["cat", ":::"]);
    let mut child = answering(command.args(ANSWERS).stdin(Stdio::piped()));
    let input = child.stdin.take();
    let cat = child_called(&child, "cat");
    await_that("it shall be placed", || {
        let shall =
            |(pid, _, mark): &(i32, i32, String)| *pid == cat && mark.parse::<u32>().is_ok();
        scratch.marks().iter().any(shall).then_some(())
    });
    catch_up(&mut child);
    drop(input);
    send("-TERM", child.id());
    assert!(child.ended().success());
    let task = &scratch.report()["tasks"][0];
    assert_eq!(task["status"], "trouble", "{task}");
    assert!(task["detail"].as_str().unwrap().contains("another user"), "{task}");
    assert_eq!(task["allowed"], original(), "the report says where it really may run");
}

/// The guardian cannot move a thread that has become another user's, and leaves the journal to
/// `restore`; and that leaves it too until the thread has ended.
#[test]
fn a_thread_that_cannot_be_moved_back_keeps_the_journal() {
    let scratch = Scratch::new();
    let (mut command, program) = need!(as_nobody(&scratch));
    command.args(["run", "--no-guard", "--quiet", "--policy", "scatter", "--settle-ms", "0", "--"]);
    let mut child = command.arg(program).arg("cat").stdin(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take();
    let cat = child_called(&child, "cat");
    let guardian = child_called(&child, "colocate-guard");
    child.kill().unwrap();
    child.ended();
    await_end_of(guardian);
    assert!(masks(cat).iter().all(|mask| mask.parse::<u32>().is_ok()), "{:?}", masks(cat));
    assert_eq!(scratch.journals().len(), 1);
    let restore = || as_nobody(&scratch).unwrap().0.arg("restore").output().unwrap();
    let output = restore();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stdout).contains("another user"), "{}", text(&output.stdout));
    assert_eq!(scratch.journals().len(), 1);
    drop(input);
    await_end_of(cat);
    assert_eq!(restore().status.code(), Some(0));
    assert_eq!(scratch.journals(), [] as [&Path; 0]);
}
