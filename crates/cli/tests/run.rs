//! Whole runs of `colocate run`.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // helpers fail as tests do, and say what they skip

mod run_support;

use run_support::{
    Scratch, allowed, await_that, child_called, children, have, is_root, masks, name, original,
    stands, two_pus,
};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

fn run(scratch: &Scratch, options: &[&str], words: &[&str]) -> Output {
    scratch.run(options).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn send(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// A program that says when it is ready, answers every SIGUSR1, and ends well with SIGTERM.
const ANSWERS: [&str; 3] = [
    "sh",
    "-c",
    "trap 'echo again' USR1; trap 'exit 0' TERM; echo first; while :; do sleep 0.01; done",
];

/// Starts colocate with [`ANSWERS`] as one of its programs, and waits until that is ready.
fn answering(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    await_answer(&mut child);
    child
}

fn await_answer(child: &mut Child) {
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
}

/// Returns when colocate has done what it has to because of anything that happened before: it hears
/// of births first and passes signals on after that. Twice, as the first signal can find it
/// between the two.
fn catch_up(child: &mut Child) {
    for _ in 0..2 {
        send("-USR1", child.id());
        await_answer(child);
    }
}

/// Waits until a process has ended, be it that nobody has reaped it yet.
fn await_end_of(pid: i32) {
    await_that("a process ends", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
}

// --- exit status, standard streams, signals ---

#[test]
fn the_exit_status_is_the_programs() {
    let scratch = Scratch::new();
    let status = |words: &[&str]| run(&scratch, &[], words).status.code();
    assert_eq!(status(&["true"]), Some(0));
    assert_eq!(status(&["sh", "-c", "exit 37"]), Some(37));
    assert_eq!(status(&["sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(status(&["no-such-program-at-all"]), Some(127));
    assert_eq!(status(&["/etc/passwd"]), Some(126));
    assert_eq!(
        status(&["true", ":::", "sh", "-c", "exit 4", ":::", "sh", "-c", "exit 5"]),
        Some(4)
    );
    assert_eq!(status(&[":::", "true"]), Some(2));
    assert_eq!(scratch.journals(), [] as [&Path; 0], "every journal is gone");
}

#[test]
fn a_missing_program_starts_none() {
    let scratch = Scratch::new();
    let file = scratch.path("started");
    let output = run(&scratch, &[], &["touch", file.to_str().unwrap(), ":::", "no-such-program"]);
    assert_eq!(text(&output.stderr), "colocate: no-such-program: command not found\n");
    assert!(!file.exists());
}

/// A text without `#!` goes to the shell, as with execvp(3); a missing interpreter is 127.
#[test]
fn scripts_run_as_env_runs_them() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    for (content, status) in [("exit 9\n", 9), ("#!/bin/sh\nexit 8\n", 8), ("#!/no/such\n", 127)] {
        let path = scratch.path("script");
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let output = run(&scratch, &[], &[path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(status), "{content}: {}", text(&output.stderr));
    }
}

#[test]
fn standard_output_is_the_programs_alone() {
    let scratch = Scratch::new();
    let mut command = scratch.colocate();
    command.args(["run", "--explain", "--", "echo", "hello"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(text(&output.stdout), "hello\n");
    assert!(text(&output.stderr).starts_with("colocate: policy mix, "), "{}", text(&output.stderr));

    command = scratch.colocate();
    command.args(["run", "--quiet", "--", "echo", "hello"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("hello\n".into(), String::new()));
}

/// The first program has standard input to itself; the second finds it empty.
#[test]
fn standard_input_is_the_first_programs() {
    let scratch = Scratch::new();
    let script = |name: &str| format!("cat > {}", scratch.path(name).display());
    let mut command = scratch.run(&[]);
    command.args(["sh", "-c", &script("one"), ":::", "sh", "-c", &script("two")]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"words\n").unwrap();
    assert!(child.wait().unwrap().success());
    let read = |name| std::fs::read_to_string(scratch.path(name)).unwrap();
    assert_eq!((read("one"), read("two")), ("words\n".into(), String::new()));
}

/// Descriptors that we open for ourselves do not reach the program.
#[test]
fn the_program_finds_no_descriptor_of_ours() {
    let scratch = Scratch::new();
    let list = ["sh", "-c", "ls /proc/self/fd | wc -l"];
    let bare = Command::new(list[0]).args(&list[1..]).stdin(Stdio::null()).output().unwrap();
    let output = run(&scratch, &["--policy", "scatter"], &list);
    assert_eq!(text(&output.stdout), text(&bare.stdout));
}

/// Signal mask and dispositions are those that colocate was started with.
#[test]
fn signals_stand_as_without_us() {
    let scratch = Scratch::new();
    let list = ["sh", "-c", "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status"];
    let bare = Command::new(list[0]).args(&list[1..]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(text(&run(&scratch, &[], &list).stdout), text(&bare.stdout));

    // And when SIGHUP, SIGPIPE and SIGCHLD were ignored before us.
    let ignoring = |words: &[&str]| {
        let mut command = Command::new("sh");
        scratch.homes(&mut command);
        command.args(["-c", "trap '' HUP PIPE CHLD; exec \"$@\"", "sh"]).args(words);
        text(&command.stdin(Stdio::null()).output().unwrap().stdout)
    };
    let grep = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"];
    let ours = [&[env!("CARGO_BIN_EXE_colocate"), "run", "--quiet", "--"], &grep[..]].concat();
    assert_eq!(ignoring(&ours), ignoring(&grep));
}

#[test]
fn a_signal_sent_to_us_reaches_every_program() {
    let scratch = Scratch::new();
    let script =
        |code| format!("trap 'exit {code}' TERM; echo ready; while :; do sleep 0.01; done");
    let mut command = scratch.run(&["--policy", "scatter"]);
    command.args(["sh", "-c", &script(7), ":::", "sh", "-c", &script(8)]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 12];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    send("-TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(7));
    let statuses: Vec<_> = scratch.report()["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["status"].clone())
        .collect();
    assert_eq!(statuses, [7, 8]);
}

/// On a terminal, Ctrl-C reaches the program once: from the terminal, and not from us again.
#[test]
fn ctrl_c_reaches_the_program_once() {
    if !have("script") {
        return;
    }
    let scratch = Scratch::new();
    // What is sent to us after the key is passed on after what we would have made of the key.
    let counter = "n=0; trap 'n=$((n+1)); kill -USR1 $PPID' INT; trap 'over=1' USR1; echo ready; \
                   while [ -z \"$over\" ]; do sleep 0.01; done; exit $((40+n))";
    std::fs::write(scratch.path("counter"), counter).unwrap();
    let ours = env!("CARGO_BIN_EXE_colocate");
    // `exec`: a shell that waits for us would die of the Ctrl-C itself, and its status be seen.
    let line = format!("exec {ours} run --quiet -- sh {}", scratch.path("counter").display());
    let mut command = Command::new("script");
    scratch.homes(&mut command);
    command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut seen = String::new();
    let mut byte = [0];
    while !seen.contains("ready") && output.read_exact(&mut byte).is_ok() {
        seen.push(byte[0].into());
    }
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"\x03").unwrap();
    input.flush().unwrap();
    output.read_to_string(&mut seen).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(41), "{seen}");
}

/// `kill -TSTP` stops both, `kill -CONT` continues both.
#[test]
fn stop_and_continue() {
    let scratch = Scratch::new();
    let mut command = scratch.run(&["--policy", "scatter"]);
    // The kernel drops TSTP for groups whose members' parents are all gone, as those of a test that
    // was started in the background can be. A group of its own has us as its parent.
    command.process_group(0);
    let mut child = command.args(["sleep", "60"]).spawn().unwrap();
    let sleep = child_called(&child, "sleep");
    let state = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    };
    let both = |states: &[char]| {
        let ours = state(child.id()).is_some_and(|s| states.contains(&s));
        let its = state(sleep.cast_unsigned()).is_some_and(|s| states.contains(&s));
        (ours && its).then_some(())
    };
    send("-TSTP", child.id());
    await_that("both stop", || both(&['T']));
    send("-CONT", child.id());
    await_that("both go on", || both(&['S', 'R']));
    send("-TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

// --- placing ---

/// A program whose threads wait is placed; every mask is the one that the report says.
#[test]
fn threads_are_placed_and_read_back() {
    let scratch = Scratch::new();
    let Some(threads) = scratch.program("threads", &[]) else { return };
    let mut command = scratch.run(&["--policy", "round-robin", "--settle-ms", "0"]);
    command.arg(threads).args(["0", "3"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let pid = child_called(&child, "threads");
    scratch.await_placed(4);
    assert!(masks(pid).iter().all(|mask| mask.parse::<u32>().is_ok()), "{:?}", masks(pid));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let report = scratch.report();
    assert_eq!(stands(&report), ["placed"; 4]);
    for task in report["tasks"].as_array().unwrap() {
        assert_eq!(task["allowed"], task["planned"].to_string(), "{task}");
    }
    // Round robin over the usable PUs, in the order of birth.
    let planned = |task: usize| report["tasks"][task]["planned"].clone();
    assert_eq!(planned(0) == planned(1), !two_pus());
}

#[test]
fn a_static_program_is_placed() {
    let scratch = Scratch::new();
    let Some(threads) = scratch.program("threads", &["-static"]) else { return };
    let output = run(
        &scratch,
        &["--policy", "scatter", "--settle-ms", "0"],
        &[threads.to_str().unwrap(), "0", "4"],
    );
    assert_eq!(text(&output.stdout), "ready\n");
    assert_eq!(scratch.report()["births"]["born"], 5);
}

#[test]
fn ten_thousand_short_threads() {
    let scratch = Scratch::new();
    let Some(threads) = scratch.program("threads", &[]) else { return };
    let output = run(
        &scratch,
        &["--policy", "scatter", "--settle-ms", "0"],
        &[threads.to_str().unwrap(), "10000"],
    );
    assert_eq!(text(&output.stdout), "ready\n", "{}", text(&output.stderr));
    assert!(output.status.success());
    assert!(scratch.report()["births"]["born"].as_u64() > Some(1));
}

/// The program counts the PUs that it may use, not the one it is put on, and creates as many
/// threads as without us.
#[test]
fn an_openmp_program_creates_its_threads() {
    let scratch = Scratch::new();
    let Some(program) = scratch.program("openmp", &["-fopenmp"]) else { return };
    let bare = Command::new(&program).env_remove("OMP_NUM_THREADS").output().unwrap();
    let words = [program.to_str().unwrap()];
    let output = run(&scratch, &["--policy", "scatter", "--settle-ms", "60000"], &words);
    assert_eq!(text(&output.stdout), text(&bare.stdout));

    let mut command = scratch.run(&["--policy", "scatter"]);
    let output = command.args(words).env("OMP_NUM_THREADS", "5").output().unwrap();
    assert_eq!(text(&output.stdout), "threads 5\n");
    assert_eq!(scratch.report()["most_tasks_at_once"], 5);
}

#[test]
fn a_thread_that_its_program_has_bound_is_left() {
    let scratch = Scratch::new();
    let Some(threads) = scratch.program("threads", &[]) else { return };
    if !two_pus() {
        return;
    }
    let options = ["--policy", "round-robin", "--settle-ms", "60000"];
    let mut command = scratch.run(&options);
    command.arg(threads).args(["0", "1", "own"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    // Our next look, at most some seconds away, sees it and leaves it alone.
    await_that("it is respected", || {
        scratch.marks().iter().any(|(_, _, mark)| mark == "=").then_some(())
    });
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let report = scratch.report();
    assert_eq!(report["tasks"][1]["stands"], "pinned by the program", "{report}");
    assert_eq!(report["tasks"][1]["planned"], Value::Null);
}

#[test]
fn taskset_is_respected() {
    if !two_pus() || !have("taskset") {
        return;
    }
    let scratch = Scratch::new();
    let last = original().rsplit([',', '-']).next().unwrap().to_owned();
    let mut command = scratch.run(&["--policy", "scatter", "--settle-ms", "60000"]);
    let mut child = answering(command.args(["taskset", "-c", &last]).args(ANSWERS));
    catch_up(&mut child);
    send("-TERM", child.id());
    assert!(child.wait().unwrap().success());
    let task = &scratch.report()["tasks"][0];
    assert_eq!(task["stands"], "pinned by the program", "{task}");
    assert_eq!(task["allowed"], last);
}

/// Go counts PUs again every second; were its monitor put on one PU, the last number would be 1.
#[test]
fn a_go_program_keeps_all_its_pus() {
    if !have("go") || !two_pus() {
        return;
    }
    let scratch = Scratch::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/pus.go");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(scratch.path("pus")).arg(source);
    go.env("GOCACHE", scratch.path("gocache")).env("GO111MODULE", "off").env("CGO_ENABLED", "0");
    let built = go.output().unwrap();
    if !built.status.success() {
        eprintln!("skipped: go cannot build: {}", text(&built.stderr));
        return;
    }
    let bare = Command::new(scratch.path("pus")).output().unwrap();
    let pus = scratch.path("pus");
    let output = run(&scratch, &["--policy", "scatter"], &[pus.to_str().unwrap()]);
    assert_eq!(text(&output.stdout), text(&bare.stdout));
}

#[test]
fn a_java_program_keeps_all_its_pus() {
    if !have("javac") || !have("java") || !two_pus() {
        return;
    }
    let scratch = Scratch::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/Pus.java");
    let built =
        Command::new("javac").arg("-d").arg(scratch.dir.path()).arg(source).output().unwrap();
    if !built.status.success() {
        eprintln!("skipped: javac cannot compile: {}", text(&built.stderr));
        return;
    }
    let home = scratch.dir.path().to_str().unwrap();
    let words = ["java", "-Xshare:auto", "-cp", home, "Pus"];
    let bare = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let output = run(&scratch, &["--policy", "scatter"], &words);
    assert_eq!(text(&output.stdout), text(&bare.stdout));
}

// --- children ---

/// What a script starts counts all PUs, although the script itself may have been placed.
#[test]
fn programs_started_by_a_script_count_all_pus() {
    if !have("nproc") {
        return;
    }
    let scratch = Scratch::new();
    let bare = Command::new("nproc").env_remove("OMP_NUM_THREADS").output().unwrap();
    let output = run(&scratch, &["--policy", "scatter"], &["sh", "-c", "nproc; nproc"]);
    assert_eq!(text(&output.stdout), text(&bare.stdout).repeat(2));
}

/// A script that has started a program is not placed, and is when it becomes another program.
#[test]
fn a_script_that_becomes_a_program_is_placed() {
    let scratch = Scratch::new();
    let script = ["sh", "-c", "sleep 0; exec sleep 0.3"];
    run(&scratch, &["--policy", "scatter", "--settle-ms", "0"], &script);
    assert_eq!(scratch.report()["tasks"][0]["stands"], "placed", "{}", scratch.report());
}

/// A daemon outlives colocate, with its original mask and without our journal.
#[test]
fn a_daemon_gets_its_mask_back() {
    let scratch = Scratch::new();
    let Some(daemon) = scratch.program("daemon", &[]) else { return };
    let file = scratch.path("pid");
    let words = [daemon.to_str().unwrap(), file.to_str().unwrap()];
    let output = run(&scratch, &["--policy", "scatter", "--settle-ms", "0"], &words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pid: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    assert_eq!(allowed(pid, pid), Some(original()));
    assert_eq!(scratch.journals(), [] as [&Path; 0]);
    let _ = Command::new("kill").arg(pid.to_string()).status();
}

/// Threads that are born of placed ones while colocate gives all masks back get theirs too.
#[test]
fn threads_born_at_the_end_get_their_mask_back() {
    let scratch = Scratch::new();
    let Some(relay) = scratch.program("relay", &[]) else { return };
    let file = scratch.path("pid");
    let words = [relay.to_str().unwrap(), file.to_str().unwrap()];
    let output = run(&scratch, &["--policy", "scatter", "--settle-ms", "0"], &words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pid: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    std::fs::write(scratch.path("pid.stop"), "").unwrap();
    let masks = await_that("20 threads and the first one stand still", || {
        Some(masks(pid)).filter(|masks| masks.len() == 21)
    });
    let _ = Command::new("kill").arg(pid.to_string()).status();
    assert!(masks.iter().all(|mask| *mask == original()), "{masks:?}");
}

// --- what can go wrong ---

/// Killed at random instants, 20 times and more, while threads come and go: every mask is the
/// original one afterwards, and neither guardian nor journal stay behind.
#[test]
fn kill_nine_leaves_every_mask_as_it_was() {
    let scratch = Scratch::new();
    let Some(threads) = scratch.program("threads", &[]) else { return };
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
        child.wait().unwrap();
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
    assert!(child.wait().unwrap().success());
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
    if !is_root() || !have("unshare") {
        return;
    }
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
        eprintln!("skipped: no private mounts here: {}", text(&output.stderr));
        return;
    }
    assert_eq!(text(&output.stdout), "done\n");
    let said = text(&output.stderr);
    assert!(said.contains("cannot keep a journal (") && said.contains("No space left"), "{said}");
}

/// Without perf events births are found in /proc and nothing can be watched: one line each.
#[test]
fn without_perf_there_are_lines_and_a_run() {
    let scratch = Scratch::new();
    let Some(noperf) = scratch.program("noperf", &[]) else { return };
    let mut command = Command::new(noperf);
    scratch.homes(&mut command);
    command.arg(env!("CARGO_BIN_EXE_colocate")).args([
        "run",
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
        said.matches("colocate: births of threads are looked for in /proc").count(),
        1,
        "{said}"
    );
    assert_eq!(said.matches("colocate: cannot watch what the programs do").count(), 1, "{said}");
    assert!(said.contains("heard of by proc"), "{said}");
}

/// A set-user-ID child that becomes root altogether cannot be placed by an ordinary user.
#[test]
fn another_users_thread_is_reported() {
    let scratch = Scratch::new();
    let Some((mut command, program)) = as_nobody(&scratch) else { return };
    command.args(["run", "--policy", "scatter", "--settle-ms", "100", "--json", "-o"]);
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
    assert!(child.wait().unwrap().success());
    let task = &scratch.report()["tasks"][0];
    assert_eq!(task["stands"], "trouble", "{task}");
    assert!(task["detail"].as_str().unwrap().contains("another user"), "{task}");
    assert_eq!(task["allowed"], original(), "the report says where it really may run");
}

/// The guardian cannot move a thread that has become another user's, and leaves the journal to
/// `restore`; and that leaves it too until the thread has ended.
#[test]
fn a_thread_that_cannot_be_moved_back_keeps_the_journal() {
    let scratch = Scratch::new();
    let Some((mut command, program)) = as_nobody(&scratch) else { return };
    command.args(["run", "--quiet", "--policy", "scatter", "--settle-ms", "0", "--"]);
    let mut child = command.arg(program).arg("cat").stdin(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take();
    let cat = child_called(&child, "cat");
    let guardian = child_called(&child, "colocate-guard");
    child.kill().unwrap();
    child.wait().unwrap();
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

/// colocate as the user 65534 with these homes, and a program that becomes root; `None`, with a
/// line, if there is no such thing here.
fn as_nobody(scratch: &Scratch) -> Option<(Command, PathBuf)> {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !is_root() || !have("setpriv") || !two_pus() {
        return None;
    }
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let (program, binary) = (scratch.path("becomes_root"), scratch.path("colocate"));
    if !binary.exists() {
        scratch.program("becomes_root", &[])?;
        mode(&program, 0o4755);
        mode(scratch.dir.path(), 0o777);
        chown(scratch.path("runtime"), Some(65534), Some(65534)).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_colocate"), &binary).unwrap();
        mode(&binary, 0o755);
    }
    let nobody = |program: &Path| {
        let mut command = Command::new("setpriv");
        scratch.homes(&mut command);
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
        command
    };
    let honoured = nobody(&program).arg("true").status().unwrap().success();
    if !honoured {
        eprintln!("skipped: no set-user-ID programs in {}", scratch.dir.path().display());
    }
    honoured.then(|| (nobody(&binary), program))
}

/// The cpuset shrinks to one PU while the program runs: planned again, and nothing outside is used.
#[test]
fn a_cpuset_that_shrinks() {
    let root = Path::new("/sys/fs/cgroup/cpuset");
    if !is_root() || !two_pus() || !root.join("cpuset.cpus").exists() {
        eprintln!("skipped: needs root, two PUs and the cpuset controller of cgroup v1");
        return;
    }
    let scratch = Scratch::new();
    let Some(threads) = scratch.program("threads", &[]) else { return };
    let group = root.join(format!("colocate-test-{}", std::process::id()));
    std::fs::create_dir(&group).unwrap();
    let copy =
        |name: &str| std::fs::write(group.join(name), std::fs::read(root.join(name)).unwrap());
    copy("cpuset.cpus").unwrap();
    copy("cpuset.mems").unwrap();
    let mut command = Command::new("sh");
    scratch.homes(&mut command);
    command.args(["-c", "echo $$ > \"$0/tasks\" && exec \"$@\""]).arg(&group);
    command.arg(env!("CARGO_BIN_EXE_colocate")).args(["run", "--policy", "scatter"]);
    command.args(["--settle-ms", "0", "--json", "-o"]).arg(scratch.path("report")).arg("--");
    command.arg(threads).args(["0", "3"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let pid = child_called(&child, "threads");
    let first = original().split([',', '-']).next().unwrap().to_owned();
    std::fs::write(group.join("cpuset.cpus"), &first).unwrap();
    // The journal says when we have put all of them on the PU that is left.
    await_that("placed again", || {
        (scratch.marks().iter().filter(|(_, _, mark)| *mark == first).count() == 4).then_some(())
    });
    await_that("all on the PU that is left", || {
        masks(pid).iter().all(|mask| *mask == first).then_some(())
    });
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    std::fs::remove_dir(&group).unwrap();
    let report = scratch.report();
    let causes: Vec<&Value> =
        report["plans"].as_array().unwrap().iter().map(|plan| &plan["cause"]).collect();
    assert_eq!(causes, ["launch", "machine-changed"]);
    assert_eq!(report["machine"]["usable"], first);
}

/// Takes a PU offline. That disturbs the whole machine, so it is asked for by name, and one test
/// does it at a time. When this is dropped the PU is online, whatever became of the test.
struct Switch {
    file: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Switch {
    fn asked_for() -> Option<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        let Some(file) = std::env::var_os("COLOCATE_TEST_OFFLINE") else {
            eprintln!(
                "skipped: set COLOCATE_TEST_OFFLINE to a file like .../cpu1/online to run it"
            );
            return None;
        };
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Self { file: file.into(), _turn: turn })
    }

    fn set(&self, online: bool) {
        std::fs::write(&self.file, if online { "1" } else { "0" }).unwrap();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.set(true);
    }
}

/// A PU is offline when colocate starts. Programs inherit the mask that knows of it, so that they
/// use it when it comes back.
#[test]
fn a_pu_that_is_offline_at_the_start() {
    let Some(switch) = Switch::asked_for() else { return };
    let scratch = Scratch::new();
    let grep = ["grep", "Cpus_allowed:", "/proc/self/status"];
    switch.set(false);
    let bare = Command::new(grep[0]).args(&grep[1..]).output().unwrap();
    let ours = run(&scratch, &["--policy", "os"], &grep);
    drop(switch);
    assert_eq!(text(&ours.stdout), text(&bare.stdout));
}

/// A PU goes offline and comes back.
#[test]
fn a_pu_that_goes_offline() {
    let Some(switch) = Switch::asked_for() else { return };
    let scratch = Scratch::new();
    let pu = switch.file.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let pu = pu.strip_prefix("cpu").unwrap();
    let used = || scratch.marks().iter().any(|(_, _, mark)| mark == pu);
    // One program a PU, busy until the file is gone, as idle ones are not planned for.
    let go_on = scratch.path("go-on");
    std::fs::write(&go_on, "").unwrap();
    let program =
        ["sh".into(), "-c".into(), format!("while [ -e {} ]; do :; done", go_on.display())];
    let pus = std::thread::available_parallelism().unwrap().get();
    let words = vec![program.to_vec(); pus].join(&":::".to_owned());
    let mut command = scratch.run(&["--policy", "round-robin", "--settle-ms", "0"]);
    let mut child = command.args(words).spawn().unwrap();
    scratch.await_placed(pus);
    assert!(used());
    switch.set(false);
    await_that("the lost PU is left", || (!used()).then_some(()));
    scratch.await_placed(pus);
    switch.set(true);
    await_that("the PU that is back is used", || used().then_some(()));
    scratch.await_placed(pus);
    std::fs::remove_file(&go_on).unwrap();
    assert!(child.wait().unwrap().success());
    let report = scratch.report();
    let causes: Vec<&Value> =
        report["plans"].as_array().unwrap().iter().map(|plan| &plan["cause"]).collect();
    assert_eq!(causes, ["launch", "machine-changed", "machine-changed"]);
    assert!(stands(&report).iter().all(|stand| stand == "placed"), "{report}");
}

// --- plans, profiles, reports ---

#[test]
fn a_dry_run_starts_nothing() {
    let scratch = Scratch::new();
    let file = scratch.path("started");
    let output = scratch
        .colocate()
        .args(["run", "--dry-run", "--policy", "scatter", "--", "touch", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success() && !file.exists());
    assert!(text(&output.stdout).starts_with("policy scatter, PUs "), "{}", text(&output.stdout));
}

/// What a dry run prints as JSON is a plan that `--plan` follows.
#[test]
fn a_plan_is_followed() {
    let scratch = Scratch::new();
    let plan = scratch.path("plan.json");
    let mut command = scratch.colocate();
    command.args(["run", "--dry-run", "--json", "--policy", "compact", "-o"]).arg(&plan);
    assert!(command.args(["--", "sleep", "1"]).status().unwrap().success());
    let file = plan.to_str().unwrap();
    let output = run(&scratch, &["--plan", file, "--settle-ms", "0"], &["sleep", "0.1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = scratch.report();
    assert_eq!(report["policy"], "compact");
    assert_eq!(stands(&report), ["placed"]);

    std::fs::write(&plan, "{\"version\": 99}").unwrap();
    let output = run(&scratch, &["--plan", file], &["true"]);
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(said.contains("expected a plan of version 1, found version 99"), "{said}");
}

/// A program that was watched once has a profile the next time, and a spoilt one costs a line.
#[test]
fn a_program_seen_before_is_planned_at_once() {
    let scratch = Scratch::new();
    // Busy for a while, and told how long by the clock, so that there is something to sample.
    let busy = "end=$(($(date +%s)+3)); i=0; while [ $(date +%s) -lt $end ]; do \
                while [ $((i=i+1)) -lt 200000 ]; do :; done; i=0; done";
    let words = ["sh", "-c", busy];
    run(&scratch, &["--watch-s", "0.5"], &words);
    let first = scratch.report();
    if first["births"]["heard_by"] != "perf" || first["jobs"][0]["profile"].is_null() {
        eprintln!("skipped: this kernel lets us sample nothing: {}", first["notes"]);
        return;
    }
    let cached = std::fs::read_dir(scratch.path("cache/colocate/profiles")).unwrap();
    let cached: Vec<_> = cached.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(cached.len(), 1);

    let dry = scratch.colocate().args(["run", "--dry-run", "--"]).args(words).output().unwrap();
    let said = text(&dry.stdout);
    assert!(
        said.contains("job 0: dash, profile sample") || said.contains("profile sample"),
        "{said}"
    );

    std::fs::write(&cached[0], "spoilt").unwrap();
    let dry = scratch.colocate().args(["run", "--dry-run", "--"]).args(words).output().unwrap();
    assert!(text(&dry.stderr).starts_with("colocate: ignored cached profile "));
    assert!(text(&dry.stdout).contains("not seen before"), "{}", text(&dry.stdout));
}

/// Asked to, colocate runs a program once more, first; the output of that run goes nowhere.
#[test]
fn a_profile_is_made_first() {
    let scratch = Scratch::new();
    let file = scratch.path("runs");
    let script = format!(
        "echo ran >> {}; echo out; i=0; \
                          while [ $((i=i+1)) -lt 300000 ]; do :; done",
        file.display()
    );
    let output = run(&scratch, &["--profile-first"], &["sh", "-c", &script]);
    if output.status.code() == Some(125) {
        eprintln!("skipped: nothing can be profiled here: {}", text(&output.stderr));
        return;
    }
    assert_eq!(text(&output.stdout), "out\n");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "ran\nran\n");
    assert_eq!(scratch.journals(), [] as [&Path; 0], "nothing is left");
    let report = scratch.report();
    assert!(!report["jobs"][0]["profile"].is_null(), "{report}");
    assert_eq!(report["plans"][0]["cause"], "launch");
    assert_eq!(report["plans"].as_array().unwrap().len(), 1, "nothing was left to watch");
}

#[test]
fn every_report_fits_the_schema() {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/report.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(schema).unwrap()).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let scratch = Scratch::new();
    let runs: [(&[&str], &[&str]); 3] = [
        (&["--policy", "scatter", "--settle-ms", "0"], &["sh", "-c", "sleep 0.1; true"]),
        (&["--policy", "os"], &["true", ":::", "false"]),
        (&["--watch-s", "0.1"], &["sh", "-c", "sleep 0.3 & sleep 0.2; kill -9 $$"]),
    ];
    for (options, words) in runs {
        run(&scratch, options, words);
        let report = scratch.report();
        let wrong: Vec<String> = schema.iter_errors(&report).map(|e| e.to_string()).collect();
        assert_eq!(wrong, [] as [String; 0], "{report:#}");
    }
}

/// Under `os` nothing is ever changed.
#[test]
fn the_policy_os_changes_nothing() {
    let scratch = Scratch::new();
    let Some(threads) = scratch.program("threads", &[]) else { return };
    let options = ["--policy", "os", "--settle-ms", "0"];
    run(&scratch, &options, &[threads.to_str().unwrap(), "0", "2"]);
    let report = scratch.report();
    assert_eq!(stands(&report), ["left to the kernel"; 3]);
}

#[test]
fn no_process_stays_behind() {
    let scratch = Scratch::new();
    let mut command = scratch.run(&["--policy", "scatter"]);
    let mut child = command.arg("cat").stdin(Stdio::piped()).spawn().unwrap();
    child_called(&child, "cat");
    let family = children(child.id());
    drop(child.stdin.take());
    child.wait().unwrap();
    for pid in family {
        assert_eq!(name(pid), "", "{pid}");
    }
}
