//! Whole runs of `colocate schedule` with programs that behave badly. Both ways of stopping jobs.

use crate::run_support::{
    Cpuset, Scratch, as_nobody, await_that, copy_program, masks, original, script, text,
};
use crate::schedule_support::{
    WAYS, called, out, said, signal, start, stat, unique, until, wait_until, workload,
};
use colocate_testing::{EndsInTime, LIMIT, TimeLimit, need, skip, within};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn killed_from_outside() {
    for way in WAYS {
        let scratch = Scratch::new();
        let enough = scratch.path("enough");
        let word = unique("victim");
        let victim = format!(": {word}; {}", until(&enough));
        let other = format!("{}; echo done", until(&enough));
        let file = workload(&scratch, "", &[(&other, "copies = 4"), (&victim, "")]);
        let mut child = start(&scratch, way, &file);
        wait_until("the victim has begun", || called(&word).len() == 1);
        called(&word).into_iter().for_each(|pid| signal("-KILL", pid));
        wait_until("it is gone", || called(&word).is_empty());
        std::fs::write(&enough, "").unwrap();
        assert_eq!(child.ended().code(), Some(137), "{}", said(&scratch));
        assert_eq!(out(&scratch).lines().count(), 4);
    }
}

/// All processes of a job that forks get their turns, and stop with it.
#[test]
fn a_job_that_forks() {
    for way in WAYS {
        let scratch = Scratch::new();
        let enough = scratch.path("enough");
        let work = until(&enough);
        let word = unique("forks");
        let forks = format!(": {word}; ({work}) & ({work}) & {work}; wait; echo done");
        let other = format!("{work}; echo done");
        let file = workload(&scratch, "", &[(&forks, ""), (&other, "copies = 5")]);
        let mut child = start(&scratch, way, &file);
        wait_until("it has forked", || called(&word).len() == 3);
        let family = called(&word);
        let used = || family.iter().filter_map(|pid| stat(*pid)).map(|(_, used)| used);
        wait_until("all work", || used().all(|ticks| ticks > 0));
        std::fs::write(&enough, "").unwrap();
        assert!(child.ended().success(), "{}", said(&scratch));
        assert_eq!(out(&scratch).lines().count(), 6);
        wait_until("nobody is left", || called(&word).is_empty());
    }
}

/// The others are done while it sleeps; then somebody wakes it.
#[test]
fn a_job_that_stops_itself() {
    for way in WAYS {
        let scratch = Scratch::new();
        let word = unique("sleeps");
        let sleeps = format!(": {word}; kill -STOP $$; echo woke");
        let work = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; echo done";
        let file = workload(&scratch, "", &[(&sleeps, ""), (work, "copies = 5")]);
        let mut child = start(&scratch, way, &file);
        wait_until("the others are done", || out(&scratch).matches("done").count() == 5);
        wait_until("it wakes", || {
            called(&word).into_iter().for_each(|pid| signal("-CONT", pid));
            child.try_wait().unwrap().is_some()
        });
        assert_eq!(out(&scratch).matches("woke").count(), 1);
        assert!(child.ended().success(), "{}", said(&scratch));
    }
}

/// Who has to wait and is told to go on by somebody else is stopped again, long before its turn: without that it would run
/// for a quantum of five seconds at least.
#[test]
fn a_job_that_is_woken_from_outside() {
    let scratch = Scratch::new();
    let word = unique("woken");
    let works = format!(": {word}; while :; do :; done");
    let pus = std::thread::available_parallelism().unwrap().get();
    let file = workload(&scratch, "", &[(&works, &format!("copies = {}", pus + 1))]);
    let mut child = start(&scratch, &["--only-signals", "--quantum", "5s"], &file);
    let stopped = |pid: &i32| stat(*pid).is_some_and(|(state, _)| state == 'T');
    let first = || called(&word).into_iter().find(stopped);
    wait_until("one waits that has begun", || first().is_some());
    let waiting = first().unwrap();
    let used = || stat(waiting).unwrap().1;
    let before = used();
    signal("-CONT", waiting);
    wait_until("it is stopped again", || stopped(&waiting));
    assert!(used() - before < 200, "it ran for {} of a hundred ticks a second", used() - before);
    signal("-TERM", i32::try_from(child.id()).unwrap());
    wait_until("colocate ends", || child.try_wait().unwrap().is_some());
    wait_until("nobody is left", || called(&word).is_empty());
}

#[test]
fn launched_anew_until_the_target() {
    for way in WAYS {
        let scratch = Scratch::new();
        let jobs = [("echo run", "target = { completions = 5 }"), ("echo once", "copies = 3")];
        let file = workload(&scratch, "", &jobs);
        assert!(start(&scratch, way, &file).ended().success(), "{}", said(&scratch));
        assert_eq!(out(&scratch).matches("run").count(), 5);
        assert_eq!(out(&scratch).matches("once").count(), 3);
    }
}

/// The second job can only end if the first one is launched anew although it is done.
#[test]
fn the_load_stays() {
    for way in WAYS {
        let scratch = Scratch::new();
        let log = scratch.path("log");
        std::fs::write(&log, "").unwrap();
        let log = log.display();
        let first = format!("echo one >> {log}");
        let second = format!("until [ $(wc -l < {log}) -ge 3 ]; do :; done; echo done");
        let file = workload(&scratch, "repeat = true", &[(&first, ""), (&second, "")]);
        let mut child = start(&scratch, way, &file);
        assert!(child.ended().success(), "{}", said(&scratch));
        assert_eq!(out(&scratch).lines().count(), 1);
    }
}

/// A program that fails is not run again and again.
#[test]
fn a_failed_run_is_the_last() {
    let scratch = Scratch::new();
    let jobs = [("echo tried; exit 3", "target = { completions = 5 }"), ("echo fine", "")];
    let file = workload(&scratch, "repeat = true", &jobs);
    assert_eq!(start(&scratch, &[], &file).ended().code(), Some(3));
    assert_eq!(out(&scratch).matches("tried").count(), 1);
}

#[test]
fn a_hundred_jobs() {
    for way in WAYS {
        let scratch = Scratch::new();
        let work = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; echo done";
        let file = workload(&scratch, "", &[(work, "copies = 100")]);
        assert!(start(&scratch, way, &file).ended().success(), "{}", said(&scratch));
        assert_eq!(out(&scratch).matches("done").count(), 100);
    }
}

/// A target of instructions is reached, or refused in one line where nothing counts them.
#[test]
fn instructions_or_a_line() {
    let scratch = Scratch::new();
    let file =
        workload(&scratch, "", &[("while :; do :; done", "target = { instructions = 5000 }")]);
    let done = start(&scratch, &[], &file).ended();
    if !done.success() {
        assert_eq!(done.code(), Some(125));
        assert!(said(&scratch).contains("a target of 5000 instructions: expected counters"));
        assert_eq!(said(&scratch).trim_end().lines().count(), 1, "{}", said(&scratch));
    }
}

/// What a program that is launched anew finds is what the first run found, whatever colocate has changed for
/// itself: priority, limit of open files, signals, mask.
#[test]
fn later_runs_find_what_the_first_found() {
    let scratch = Scratch::new();
    let look = "nice; ulimit -n; grep -E \"SigBlk|SigIgn|Cpus_allowed:\" /proc/self/status | tr \"\\n\" \" \"; echo";
    let file = workload(&scratch, "", &[(look, "target = { completions = 3 }")]);
    let path = scratch.path("few");
    let script = format!("ulimit -S -n 40; exec \"$0\" \"$@\" > {}", path.display());
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_colocate"), "schedule", "--policy", "os"]);
    scratch.homes(&mut command);
    let output = command.arg(&file).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<String> = text.lines().map(without_the_librarys_signals).collect();
    let runs: Vec<&[String]> = lines.chunks(3).collect();
    assert_eq!(runs.len(), 3, "{text}");
    assert!(runs.iter().all(|run| *run == runs[0] && run[1] == "40"), "{text}");
}

/// Sets of signals as `/proc` has them, without signals 32 and 33, which the C library keeps for itself: `posix_spawn`, by
/// which tests start colocate, has them ignored, and the first thread of a process changes that.
fn without_the_librarys_signals(line: &str) -> String {
    let signals = |word: &str| u64::from_str_radix(word, 16).ok().filter(|_| word.len() == 16);
    let word = |word: &str| {
        signals(word).map_or(word.to_owned(), |set| format!("{:016x}", set & !(0b11 << 31)))
    };
    line.split_whitespace().map(word).collect::<Vec<String>>().join(" ")
}

/// Who is asked to end and does so without a fault is not launched anew, even if its target is far; that it has not
/// reached it shows in its status.
#[test]
fn after_sigterm_nothing_begins_anew() {
    for way in WAYS {
        let scratch = Scratch::new();
        let word = unique("polite");
        let polite = format!(": {word}; trap \"exit 0\" TERM; echo ready; while :; do :; done");
        let file = workload(&scratch, "", &[(&polite, "target = { completions = 9 }\ncopies = 5")]);
        let mut child = start(&scratch, way, &file);
        wait_until("all are ready", || out(&scratch).lines().count() == 5);
        signal("-TERM", i32::try_from(child.id()).unwrap());
        assert_eq!(child.ended().code(), Some(143), "{}", said(&scratch));
        let line = "SIGTERM has ended the scheduling";
        assert_eq!(said(&scratch).matches(line).count(), 1, "{}", said(&scratch));
        wait_until("nobody is left", || called(&word).is_empty());
    }
}

/// More jobs than the soft limit of open files has room for.
#[test]
fn few_descriptors() {
    let scratch = Scratch::new();
    let file = workload(&scratch, "", &[("echo done", "copies = 100")]);
    let script = "ulimit -S -n 64; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_colocate"), "schedule", "--policy", "fair"]);
    scratch.homes(&mut command);
    let output = command.arg(&file).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("done").count(), 100);
}

/// The kernel waits in an exec, as it does for a disk or a network; the others take their turns meanwhile.
#[test]
fn a_program_that_takes_long_to_begin() {
    for way in WAYS {
        let scratch = Scratch::new();
        let lease = need!(scratch.program("lease", &[]));
        // The interpreter, as colocate itself has a look at the program before anything begins.
        copy_program(Path::new("/bin/echo"), &scratch.path("slow"));
        let text = format!("#!{} late\n", scratch.path("slow").display());
        script(&scratch.path("program"), &text);
        let mut holder = Command::new(lease);
        holder.arg(scratch.path("slow")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().unwrap();
        let mut ready = [0; 6];
        if holder.stdout.take().unwrap().read_exact(&mut ready).is_err() {
            holder.ended();
            skip!(Leases, "no leases in {}", scratch.dir.path().display());
        }
        let work = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; echo done";
        let others = format!(
            "version = 1\nquantum = \"20 ms\"\n[[job]]\ncommand = [\"./program\"]\ndir = \".\"\n\
             [[job]]\ncommand = [\"sh\", \"-c\", \"{work}\"]\ncopies = 5\n"
        );
        let file = scratch.path("workload.toml");
        std::fs::write(&file, others).unwrap();
        let mut child = start(&scratch, way, &file);
        wait_until("the others are done", || out(&scratch).matches("done").count() == 5);
        assert!(!out(&scratch).contains("late"), "it began while the others ran");
        drop(holder.stdin.take());
        assert!(child.ended().success(), "{}", said(&scratch));
        assert!(out(&scratch).contains("late"));
        holder.ended();
    }
}

/// It fails with a line and its status, whether it is the first to begin or has to wait.
#[test]
fn a_program_that_cannot_begin() {
    for way in WAYS {
        let scratch = Scratch::new();
        let program = scratch.path("script");
        script(&program, "#!/no/such/interpreter\n");
        let path = program.display();
        let text = format!(
            "version = 1\nquantum = \"20 ms\"\n[[job]]\ncommand = [\"{path}\"]\ncopies = 5\n\
             target = {{ completions = 2 }}\n[[job]]\ncommand = [\"echo\", \"fine\"]\n"
        );
        let file = scratch.path("workload.toml");
        std::fs::write(&file, text).unwrap();
        assert_eq!(start(&scratch, way, &file).ended().code(), Some(127));
        assert_eq!(out(&scratch), "fine\n");
        let line = format!("colocate: {path}: No such file or directory");
        assert_eq!(said(&scratch).matches(&line).count(), 5, "{}", said(&scratch));
    }
}

/// Nobody reads what it writes, until the others are done.
#[test]
fn a_job_that_fills_its_pipe() {
    for way in WAYS {
        let scratch = Scratch::new();
        let (log, word) = (scratch.path("log"), unique("fills"));
        std::fs::write(&log, "").unwrap();
        let fills = format!(": {word}; head -c 300000 /dev/zero; echo full >> {}", log.display());
        let closes = format!("exec >&- 2>&-; echo lost; echo done >> {}", log.display());
        let work = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done";
        let works = format!("{work}; echo done >> {}", log.display());
        let jobs = [(fills.as_str(), ""), (&closes, ""), (&works, "copies = 4")];
        let file = workload(&scratch, "", &jobs);
        let mut command = scratch.colocate();
        command.args(["schedule", "-q", "--no-guard", "--policy", "round-robin"]).args(way);
        let mut child = command.arg(file).stdout(Stdio::piped()).spawn().unwrap();
        let logged = || std::fs::read_to_string(&log).unwrap();
        wait_until("the others are done", || logged().matches("done").count() == 5);
        assert!(!logged().contains("full"));
        let mut read = Vec::new();
        within("the end of the output", || child.stdout.take().unwrap().read_to_end(&mut read))
            .unwrap();
        assert_eq!((read.len(), child.ended().code()), (300_000, Some(0)));
        assert!(logged().contains("full"));
    }
}

/// The job is over when its first process is, and what is left goes on where it likes.
#[test]
fn a_daemon_outlives_its_job() {
    for (way, does, state) in [(WAYS[0], "", 'S'), (WAYS[1], "", 'S'), (WAYS[0], " works", 'R')] {
        let scratch = Scratch::new();
        let daemon = need!(scratch.program("daemon", &[]));
        let (number, enough) = (scratch.path("number"), scratch.path("enough"));
        let leaves = format!("{} {}{does}", daemon.display(), number.display());
        let work = until(&enough);
        let file = workload(&scratch, "", &[(&leaves, ""), (&work, "copies = 3")]);
        let mut child = start(&scratch, way, &file);
        let pid = await_that("the daemon", || {
            std::fs::read_to_string(&number).ok()?.trim().parse::<i32>().ok()
        });
        let free =
            || masks(pid) == [original()] && stat(pid).is_some_and(|(found, _)| found == state);
        wait_until("it is let alone while others are scheduled", free);
        std::fs::write(&enough, "").unwrap();
        assert!(child.ended().success(), "{}", said(&scratch));
        assert!(free());
        signal("-KILL", pid);
    }
}

/// What it made is removed when nobody uses it any more.
#[test]
fn a_job_that_makes_a_cgroup() {
    let scratch = Scratch::new();
    let make = "own=$(sed -n s/^0:://p /proc/self/cgroup); \
                for root in /sys/fs/cgroup /sys/fs/cgroup/unified; do \
                inner=$root$own/inner; case $own in */colocate-*/job-*) mkdir $inner && \
                echo $$ > $inner/cgroup.procs && echo made $root$own; esac; done 2>/dev/null; \
                i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done";
    let file = workload(&scratch, "", &[(make, ""), ("true", "copies = 3")]);
    assert!(start(&scratch, &[], &file).ended().success(), "{}", said(&scratch));
    let made = out(&scratch);
    let Some(cgroup) = made.trim().strip_prefix("made ") else {
        skip!(Cgroups, "no cgroups can be made here");
    };
    assert!(!Path::new(cgroup).parent().unwrap().exists(), "{}", said(&scratch));
    assert!(!said(&scratch).contains("cannot remove"), "{}", said(&scratch));
}

/// Who cannot be stopped runs on, which is said once and not every quantum.
#[test]
fn a_job_of_another_user() {
    let scratch = Scratch::new();
    let (mut command, becomes_root) = need!(as_nobody(&scratch));
    let enough = scratch.path("enough");
    let (work, over) = (until(&enough), scratch.path("over"));
    let other = format!("{work}; echo done");
    command.args([
        "schedule",
        "--no-guard",
        "--waiting",
        "stop",
        "--policy",
        "round-robin",
        "--quantum",
        "10ms",
    ]);
    command.arg("--only-signals").arg("--json").arg("-o").arg("-").arg("--").arg(becomes_root);
    command.args(["sh", "-c", &format!("touch {}; {other}", over.display())]);
    for _ in 0..3 {
        command.args([":::", "sh", "-c", &other]);
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it has begun", || over.exists());
    // Some turns of everybody: its first thread is missed for a second and then found to live.
    std::thread::sleep(std::time::Duration::from_secs(3));
    std::fs::write(&enough, "").unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.ended().success());
    let report: serde_json::Value =
        serde_json::from_str(&text[text.find('{').unwrap()..text.rfind('}').unwrap() + 1]).unwrap();
    let notes = report["notes"].as_array().unwrap();
    let said = notes.iter().filter(|note| note.as_str().unwrap().contains("cannot stop job 0"));
    assert!(said.count() <= 1, "{notes:#?}");
}

/// Threads by the hundred and programs one after the other, in a job that has its turns.
#[test]
fn short_lives() {
    for way in WAYS {
        let scratch = Scratch::new();
        let threads = need!(scratch.program("threads", &[]));
        let threads = format!("{} 1000 0 < /dev/null", threads.display());
        let programs = "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done; echo ready";
        let execs = "exec sh -c \"exec sh -c \\\"exec sh -c \\\\\\\"echo ready\\\\\\\"\\\"\"";
        let jobs = [(threads.as_str(), ""), (programs, ""), (execs, "copies = 2")];
        let file = workload(&scratch, "", &jobs);
        assert!(start(&scratch, way, &file).ended().success(), "{}", said(&scratch));
        assert_eq!(out(&scratch), "ready\n".repeat(4));
    }
}

/// Threads are born while one PU can be used: what they inherit from one that was put there looks like all that can be used.
/// When the cpuset grows, and colocate leaves them to the kernel, they have all of it.
#[test]
fn a_cpuset_that_grows() {
    let scratch = Scratch::new();
    let cpuset = need!(Cpuset::new());
    let nest = need!(scratch.program("nest", &[]));
    let first = original().split([',', '-']).next().unwrap().to_owned();
    cpuset.set_to(&first);
    let files = ["a", "b"].map(|name| scratch.path(name));
    let scripts =
        files.each_ref().map(|file| format!("exec {} {}", nest.display(), file.display()));
    let file = workload(&scratch, "", &[(&scripts[0], ""), (&scripts[1], "")]);
    let mut command = cpuset.command();
    scratch.homes(&mut command);
    command.arg(env!("CARGO_BIN_EXE_colocate"));
    command
        .args(["schedule", "--no-guard", "--waiting", "stop", "--policy", "round-robin"])
        .arg(file);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pids = files.map(|file| -> i32 {
        await_that("it has created threads", || {
            std::fs::read_to_string(&file).ok()?.trim().parse().ok()
        })
    });
    cpuset.set_to(&original());
    signal("-TERM", child.id().cast_signed());
    let free = |pid: i32| {
        let masks = masks(pid);
        masks.len() > 15 && masks.iter().all(|mask| *mask == original())
    };
    wait_until("all are given back", || pids.into_iter().all(free));
    pids.into_iter().for_each(|pid| signal("-KILL", pid));
    child.ended();
}

/// The cpuset shrinks to one PU: nobody is sent outside, and all are done.
#[test]
fn a_cpuset_that_shrinks() {
    for way in WAYS {
        let scratch = Scratch::new();
        let cpuset = need!(Cpuset::new());
        let enough = scratch.path("enough");
        let word = unique("shrinks");
        let work = format!(": {word}; {}; echo done", until(&enough));
        let file = workload(&scratch, "", &[(&work, "copies = 5")]);
        let mut command = cpuset.command();
        scratch.homes(&mut command);
        command.arg(env!("CARGO_BIN_EXE_colocate")).arg("schedule").args(way);
        command.args(["--no-guard", "--policy", "round-robin"]).arg(file);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("all have begun", || called(&word).len() == 5);
        let first = original().split([',', '-']).next().unwrap().to_owned();
        cpuset.set_to(&first);
        let mut said = child.stderr.take().unwrap();
        let mut heard = String::new();
        let _limit = TimeLimit::start(LIMIT, "a line about the new cpuset");
        while !heard.contains(&format!("to {first}; planned again")) {
            let mut some = [0; 4096];
            let length = said.read(&mut some).unwrap();
            assert!(length > 0, "{heard}");
            heard.push_str(&String::from_utf8_lossy(&some[..length]));
        }
        assert!(called(&word).into_iter().all(|pid| masks(pid) == [first.clone()]));
        std::fs::write(&enough, "").unwrap();
        let output = child.ended_with_output();
        assert!(output.status.success());
        assert_eq!(text(&output.stdout), "done\n".repeat(5));
    }
}
