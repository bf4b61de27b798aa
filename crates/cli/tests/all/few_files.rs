//! Where hardly a file can be opened, or `/proc` cannot be used, every program runs to its end: nothing is concluded from
//! what cannot be read.

use crate::run_support::{Scratch, await_that, children, has_cgroups, masks, name, original, text};
use colocate_testing::skip::{installed, root, two_pus};
use colocate_testing::{need, skip};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

/// Both ways to stop programs, and both commands that launch them.
const COMMANDS: [&[&str]; 3] =
    [&["schedule"], &["schedule", "--only-signals", "--policy", "round-robin"], &["run"]];

/// A shell that changes something for itself, and goes on as colocate with a job of so many copies of a script. Its
/// standard output goes to the file `out`, its standard error to `said`.
fn start(scratch: &Scratch, before: &str, how: &[&str], copies: usize, script: &str) -> Child {
    let mut command = Command::new("sh");
    scratch.homes(&mut command);
    command.args(["-c", &format!("{before} exec \"$@\""), "sh", env!("CARGO_BIN_EXE_colocate")]);
    command.args(how).arg("--");
    let job = ["sh", "-c", script];
    let jobs = std::iter::repeat_n(job, copies).enumerate();
    command.args(jobs.flat_map(|(place, job)| {
        let between = (place > 0).then_some(":::");
        between.into_iter().chain(job)
    }));
    let file = |name| Stdio::from(std::fs::File::create(scratch.path(name)).unwrap());
    command.stdin(Stdio::null()).stdout(file("out")).stderr(file("said")).spawn().unwrap()
}

fn read(scratch: &Scratch, name: &str) -> String {
    std::fs::read_to_string(scratch.path(name)).unwrap()
}

/// Waits until colocate has ended; every one of so many jobs has written its line, and it was said with one line that holds
/// all `words`, if any, why all is left to the kernel.
fn all_have_run(scratch: &Scratch, mut child: Child, jobs: usize, words: &[&str]) {
    let status = await_that("colocate ends", || child.try_wait().unwrap());
    let said = read(scratch, "said");
    assert_eq!((status.code(), status.signal()), (Some(0), None), "{said}");
    assert_eq!(read(scratch, "out"), "ran\n".repeat(jobs), "{said}");
    let given_up: Vec<&str> =
        said.lines().filter(|line| line.contains("every program is left to the kernel")).collect();
    assert_eq!(given_up.len(), usize::from(!words.is_empty()), "{said}");
    for word in words {
        assert!(given_up[0].contains(word), "{said}");
    }
}

/// Of files that colocate was started with, one more or less decides at which call descriptors run out.
#[test]
fn three_hundred_jobs_at_the_usual_limits() {
    for more in ["", "exec 7</dev/null;"] {
        let scratch = Scratch::new();
        let limits = format!("ulimit -Sn 1024; {more}");
        let child = start(&scratch, &limits, COMMANDS[0], 300, "echo ran");
        // Where the hard limit is higher there is room enough; where it is not, it may be too little.
        let mut child = child;
        let status = await_that("colocate ends", || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(0), "{}", read(&scratch, "said"));
        assert_eq!(read(&scratch, "out"), "ran\n".repeat(300));

        let limits = format!("ulimit -Sn 1024; ulimit -Hn 1024; {more}");
        let mut child = start(&scratch, &limits, COMMANDS[0], 300, "echo ran");
        let status = await_that("colocate ends", || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(0), "{}", read(&scratch, "said"));
        assert_eq!(read(&scratch, "out"), "ran\n".repeat(300));
    }
}

#[test]
fn three_jobs_with_twenty_files() {
    for how in COMMANDS {
        let scratch = Scratch::new();
        // Beside those that are inherited.
        let few = "ulimit -n $((20 + $(ls /proc/self/fd | awk '$1 > 3 && $1 < 20' | wc -l)));";
        let child = start(&scratch, few, how, 3, "echo ran");
        all_have_run(&scratch, child, 3, &["found", "expected", "ulimit -Hn"]);
    }
}

/// Where not even the pipes to the programs can be had nothing begins, and neither journals nor cgroups stay, at whichever call descriptors
/// run out.
#[test]
fn three_jobs_with_hardly_any_files() {
    for (how, limit) in COMMANDS.iter().flat_map(|how| (8..20).map(move |limit| (how, limit))) {
        let scratch = Scratch::new();
        let few = format!("ulimit -n {limit};");
        let mut child = start(&scratch, &few, how, 3, "echo ran");
        let pid = child.id();
        let status = await_that("colocate ends", || child.try_wait().unwrap());
        assert!(!has_cgroups(pid), "{how:?} with {limit}");
        let (out, said) = (read(&scratch, "out"), read(&scratch, "said"));
        let context = format!("{how:?} with {limit}: {said}");
        match status.code() {
            Some(0) => assert_eq!(out, "ran\n".repeat(3), "{context}"),
            Some(125) => assert_eq!(out, "", "{context}"),
            other => panic!("{other:?}: {context}"),
        }
        if let Some(line) = said.lines().find(|line| line.contains("room for its pipes")) {
            let words = [format!("no more than {limit} open files"), "ulimit -Hn".into()];
            assert!(words.iter().all(|word| line.contains(word)), "{context}");
        }
        assert_eq!(scratch.journals(), [""; 0].map(std::path::PathBuf::from), "{context}");
    }
}

/// Descriptors run out while programs run: no thread can be put on a PU any more, as the journal would not know it. Nobody
/// stays stopped, nor placed.
#[test]
fn files_run_out_while_programs_run() {
    need!(two_pus());
    need!(installed("prlimit"));
    for how in [COMMANDS[0], COMMANDS[1]] {
        let scratch = Scratch::new();
        let go = scratch.path("go");
        // Each creates processes all the time, and one that outlives it.
        let script = format!(
            "while [ ! -e {} ]; do /bin/true; done; sleep 3 > /dev/null 2>&1 & echo ran",
            go.display()
        );
        let how = [how, &["--quantum", "20ms", "--no-guard"]].concat();
        let child = start(&scratch, "", &how, 3, &script);
        let pid = child.id().to_string();
        await_that("all three run", || {
            let jobs = children(child.id());
            (jobs.iter().filter(|&&pid| name(pid) == "sh").count() == 3).then_some(())
        });
        let limit = ["--pid", &pid, "--nofile=8:8"];
        assert!(Command::new("prlimit").args(limit).status().unwrap().success());
        await_that("it is said", || {
            read(&scratch, "said").contains("left to the kernel").then_some(())
        });
        let jobs = children(child.id()).into_iter().filter(|&pid| name(pid) == "sh");
        let jobs: Vec<i32> = jobs.collect();
        await_that("all have their masks", || {
            jobs.iter().flat_map(|&pid| masks(pid)).all(|mask| mask == original()).then_some(())
        });
        std::fs::write(&go, "").unwrap();
        let pid = child.id();
        all_have_run(&scratch, child, 3, &["found", "expected", "ulimit -Hn"]);
        assert!(!has_cgroups(pid) && scratch.journals().is_empty(), "{}", read(&scratch, "said"));
    }
}

/// Nothing is mounted at `/proc`, or that of another PID namespace, where all numbers are other processes'.
#[test]
fn without_proc() {
    let spaces = [
        (vec!["--mount"], "mount -t tmpfs none /proc;"),
        (vec!["--pid", "--fork", "--kill-child"], ""),
    ];
    need!(root());
    for (space, before) in spaces {
        let made = Command::new("unshare").args(&space).arg("true").status();
        if !made.is_ok_and(|status| status.success()) {
            skip!(Namespaces, "unshare {space:?} fails");
        }
        for how in COMMANDS {
            let scratch = Scratch::new();
            let unshare = format!(
                "[ -n \"$INSIDE\" ] || INSIDE=1 exec unshare {} sh -c '{before} exec \"$@\"' sh \"$@\";",
                space.join(" ")
            );
            let child = start(&scratch, &unshare, how, 2, "sleep 0.1; echo ran");
            all_have_run(&scratch, child, 2, &["found", "expected", "/proc", "mount -t proc"]);
        }
    }
}

/// Colocate opens as many files as it may; its programs find the limits that it was started with.
#[test]
fn programs_have_the_limits_of_before() {
    let limits = "ulimit -Sn 600; ulimit -Hn 700;";
    for how in COMMANDS {
        let scratch = Scratch::new();
        let script = "echo $(ulimit -Sn) $(ulimit -Hn)";
        let mut child = start(&scratch, limits, how, 1, script);
        await_that("colocate ends", || child.try_wait().unwrap());
        assert_eq!(read(&scratch, "out"), "600 700\n");
    }
    // And colocate itself has the higher one.
    let scratch = Scratch::new();
    let script = "cat /proc/$PPID/limits";
    let mut child = start(&scratch, limits, COMMANDS[0], 1, script);
    await_that("colocate ends", || child.try_wait().unwrap());
    let found = read(&scratch, "out");
    let line = found.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().nth(3), Some("700"), "{}", text(line.as_bytes()));
}
