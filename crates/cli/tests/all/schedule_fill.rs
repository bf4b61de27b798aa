//! Whole runs of `colocate schedule --waiting fill`: jobs that wait fill idle PUs, and have their policies and nice values
//! again when they are chosen, and at the end, whatever it is.

use crate::run_support::{
    Scratch, as_nobody, await_that, child_called, children, exclusive, masks, name, original,
};
use crate::schedule_support::{
    WAYS, called, out, said, signal, start, stat, unique, until, wait_until, workload,
};
use colocate_testing::skip::{Missing, Requirement, installed, two_pus};
use colocate_testing::{EndsInTime, need, skip};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// SCHED_OTHER and SCHED_IDLE by the kernel's numbers (sched(7)).
const OTHER: i32 = 0;
const IDLE: i32 = 5;
/// The nice value of all jobs here.
const NICE: i32 = 5;

/// Scheduling policy and nice value of every thread of a process.
fn schedules(pid: i32) -> Vec<(i32, i32)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let of = |text: String| {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let lives = fields[0] != "Z";
        lives.then_some((fields[38].parse().ok()?, fields[16].parse().ok()?))
    };
    texts.filter_map(of).collect()
}

/// A user that may let threads leave SCHED_IDLE again.
fn sched_idle() -> Result<(), Missing> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let may = u64::from_str_radix(mask.trim(), 16).unwrap() >> 23 & 1 == 1;
    Requirement::SchedIdle
        .if_there(may, "no CAP_SYS_NICE, so no thread leaves SCHED_IDLE again")?;
    installed("renice")
}

/// A shell script that has the nice value of all jobs here, is known by a word, and then goes on.
fn nice(word: &str, then: &str) -> String {
    format!(": {word}; renice -n {NICE} $$ > /dev/null; {then}")
}

fn way(of: &[&'static str]) -> Vec<&'static str> {
    [&["--waiting", "fill"], of].concat()
}

/// `colocate schedule --waiting fill` on the first two PUs.
fn start_on_two(scratch: &Scratch, of: &[&str], file: &Path) -> Child {
    let mut command = Command::new("taskset");
    scratch.homes(&mut command);
    command.args(["-c", &two()]).arg(env!("CARGO_BIN_EXE_colocate"));
    command.args(["schedule", "--no-guard", "--policy", "round-robin", "--waiting", "fill"]);
    let out = std::fs::File::create(scratch.path("out")).unwrap();
    let said = std::fs::File::create(scratch.path("said")).unwrap();
    let child = command.args(of).arg(file).stdin(Stdio::null()).stdout(out).stderr(said).spawn();
    child.unwrap()
}

/// The first two PUs that this test may use, as a list.
fn two() -> String {
    let two: Vec<String> = pus(&original()).iter().take(2).map(ToString::to_string).collect();
    two.join(",")
}

/// The PUs of a list as the kernel writes it.
fn pus(list: &str) -> Vec<u32> {
    let ranges = list.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    let number = |text: &str| text.parse::<u32>().unwrap();
    ranges.flat_map(|(first, last)| number(first)..=number(last)).collect()
}

/// A quantum of a minute: the worker runs beside one that ends at once; then two sleepers are chosen, and the worker
/// waits. It works all the same, to its end.
#[test]
fn idle_pus_are_filled() {
    let _exclusive = exclusive();
    need!(sched_idle());
    need!(installed("taskset"));
    need!(two_pus());
    for way in WAYS {
        let scratch = Scratch::new();
        let (enough, word) = (scratch.path("enough"), unique("fills"));
        let work = until(&enough);
        let work = nice(&word, &format!("({work}) & {work}; wait; echo worked"));
        let sleeps = format!("while [ ! -e {} ]; do sleep 0.1; done", enough.display());
        let file = workload(&scratch, "", &[(&work, ""), ("exit", ""), (&sleeps, "copies = 2")]);
        let text = std::fs::read_to_string(&file).unwrap().replace("20 ms", "60 s");
        std::fs::write(&file, text).unwrap();
        let mut child = start_on_two(&scratch, way, &file);
        let idle = |pid: &i32| schedules(*pid) == [(IDLE, NICE)];
        let family = await_that("the worker has forked and is to wait", || {
            let family: Vec<i32> = called(&word).into_iter().filter(idle).collect();
            (family.len() == 2).then_some(family)
        });
        let unpinned = |pid: &i32| masks(*pid).iter().all(|mask| pus(mask) == pus(&two()));
        assert!(family.iter().all(unpinned));
        let used = || family.iter().map(|pid| stat(*pid).unwrap().1).sum::<u64>();
        let before = used();
        wait_until("it works", || used() > before + 20);
        assert!(family.iter().all(idle), "and not because it was chosen");
        std::fs::write(&enough, "").unwrap();
        assert!(child.ended().success(), "{}", said(&scratch));
        assert_eq!(out(&scratch), "worked\n");
    }
}

/// Seven shells that work for ever: who is chosen has its policy and nice value again, who waits has not.
fn at_work(scratch: &Scratch, of: &[&'static str], purpose: &str) -> (Child, String) {
    let word = unique(purpose);
    let file = workload(scratch, "", &[(&nice(&word, "while :; do :; done"), "copies = 7")]);
    let child = start(scratch, &way(of), &file);
    wait_until("all have begun", || {
        called(&word).iter().filter(|pid| schedules(**pid).iter().any(|of| of.1 == NICE)).count()
            == 7
    });
    (child, word)
}

/// All shells have their policies and nice values, and go on; then they are ended.
fn as_before(word: &str) {
    let left = await_that("all seven shells live", || {
        let left = called(word);
        (left.len() == 7).then_some(left)
    });
    wait_until("policies are back", || left.iter().all(|pid| schedules(*pid) == [(OTHER, NICE)]));
    wait_until("all are free", || left.iter().all(|pid| masks(*pid) == [original()]));
    let used = |pid: &i32| stat(*pid).unwrap().1;
    let before: Vec<u64> = left.iter().map(used).collect();
    wait_until("all go on", || left.iter().zip(&before).all(|(pid, before)| used(pid) > *before));
    left.iter().for_each(|pid| signal("-KILL", *pid));
    wait_until("all have ended", || called(word).is_empty());
}

#[test]
fn rounds_change_policies() {
    let _exclusive = exclusive();
    need!(sched_idle());
    for of in WAYS {
        let scratch = Scratch::new();
        let (mut child, word) = at_work(&scratch, of, "turns");
        for pid in called(&word) {
            for policy in [OTHER, IDLE, OTHER, IDLE] {
                wait_until("its policy changes", || schedules(pid) == [(policy, NICE)]);
            }
            assert_ne!(stat(pid).unwrap().0, 'T', "nobody is stopped");
        }
        signal("-TERM", child.id().cast_signed());
        assert_eq!(child.ended().code(), Some(143), "{}", said(&scratch));
        wait_until("nobody is left", || called(&word).is_empty());
    }
}

#[test]
fn killed_by_force() {
    need!(sched_idle());
    for of in WAYS {
        let scratch = Scratch::new();
        let (mut child, word) = at_work(&scratch, of, "force");
        child.kill().unwrap();
        child.ended();
        as_before(&word);
        wait_until("the guardian is done", || scratch.journals().is_empty());
    }
}

/// Seven shells that create others without end, which inherit what their creators have when colocate is killed, and
/// hand it down: ones whose creators wait for them, and, by cgroups, ones whose creators have ended.
#[test]
fn killed_by_force_while_processes_are_created() {
    let _exclusive = exclusive();
    need!(sched_idle());
    for of in WAYS {
        let scratch = Scratch::new();
        let word = unique("born");
        let script = |name: &str, text: &str| {
            std::fs::write(scratch.path(name), text).unwrap();
            format!("sh {} {word}", scratch.path(name).display())
        };
        let leaf = script("leaf", "sleep 1; :");
        let middle = script("middle", &format!("{leaf} & wait"));
        let orphan = if of.is_empty() { format!("({leaf} &);") } else { String::new() };
        let work =
            nice(&word, &format!("while :; do {orphan} {middle} & {orphan} sleep 0.01; done"));
        let file = workload(&scratch, "", &[(&work, "copies = 7")]);
        let mut child = start(&scratch, &way(of), &file);
        let idle = || {
            let family = called(&word).into_iter();
            family.filter(|pid| schedules(*pid).iter().any(|it| it.0 == IDLE)).collect::<Vec<_>>()
        };
        wait_until("all are at it", || called(&word).len() > 50 && !idle().is_empty());
        child.kill().unwrap();
        child.ended();
        let killed = Instant::now();
        wait_until("the guardian is done", || scratch.journals().is_empty());
        let took = killed.elapsed();
        assert_eq!(idle(), [0; 0], "{of:?}: nobody can inherit it any more");
        let left = called(&word);
        assert!(left.len() > 7);
        let as_before = |pid: &i32| {
            schedules(*pid).iter().all(|it| *it == (OTHER, NICE))
                && masks(*pid).iter().all(|mask| *mask == original())
        };
        let others: Vec<&i32> = left.iter().filter(|pid| !as_before(pid)).collect();
        let stand = |pid: &&i32| (**pid, schedules(**pid), masks(**pid), stat(**pid));
        let others: Vec<_> = others.iter().map(stand).collect();
        assert!(others.is_empty(), "{of:?}, after {took:?}: {others:?} of {}", left.len());
        wait_until("all have ended", || {
            called(&word).into_iter().for_each(|pid| signal("-KILL", pid));
            called(&word).is_empty()
        });
    }
}

/// With the guardian killed before, nothing helps but `colocate restore`.
#[test]
fn killed_with_its_guardian() {
    need!(sched_idle());
    for of in WAYS {
        let scratch = Scratch::new();
        let (mut child, word) = at_work(&scratch, of, "both");
        signal("-KILL", child_called(&child, "colocate-guard"));
        wait_until("the guardian is gone", || {
            children(child.id()).iter().all(|pid| name(*pid) != "colocate-guard")
        });
        child.kill().unwrap();
        child.ended();
        let idle = || called(&word).iter().any(|pid| schedules(*pid).iter().any(|of| of.0 == IDLE));
        assert!(idle(), "somebody was to wait");
        let would = scratch.colocate().args(["restore", "--dry-run"]).output().unwrap();
        let would = String::from_utf8_lossy(&would.stdout).into_owned();
        assert!(would.contains("SCHED_IDLE, would be given SCHED_OTHER") && idle(), "{would}");
        let restored = scratch.colocate().arg("restore").output().unwrap();
        assert!(restored.status.success(), "{restored:?}");
        as_before(&word);
        assert!(scratch.journals().is_empty());
    }
}

/// The arguments of four shells that each work for a while, and what they have said.
fn four_at_work(command: &mut Command) -> String {
    let work = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done";
    command.args(["schedule", "--no-guard", "--policy", "round-robin", "--quantum", "10ms"]);
    command.args(["--waiting", "fill", "--", "sh", "-c", work]);
    for _ in 0..3 {
        command.args([":::", "sh", "-c", work]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Births that nobody tells of are looked for in `/proc`, which does not say which thread has created which. Threads of threads
/// are given back all the same, with a first thread that has ended or waits.
#[test]
fn threads_of_unknown_creators_are_restored() {
    need!(sched_idle());
    need!(two_pus());
    for (way, first) in [(["--waiting", "fill"], " ends"), (["--waiting", "stop"], "")] {
        let scratch = Scratch::new();
        let noperf = need!(scratch.program("noperf", &[]));
        let nest = need!(scratch.program("nest", &[]));
        let files = ["a", "b", "c"].map(|name| scratch.path(name));
        let script = |file: &Path| format!("exec {} {}{first}", nest.display(), file.display());
        let scripts = files.each_ref().map(|file| script(file));
        let jobs: Vec<(&str, &str)> = scripts.iter().map(|script| (script.as_str(), "")).collect();
        let file = workload(&scratch, "", &jobs);
        let mut command = Command::new(noperf);
        scratch.homes(&mut command);
        command.arg(env!("CARGO_BIN_EXE_colocate")).args([
            "schedule",
            "--no-guard",
            "--policy",
            "round-robin",
        ]);
        let said = std::fs::File::create(scratch.path("said")).unwrap();
        let mut child =
            command.args(way).arg(file).stdout(Stdio::null()).stderr(said).spawn().unwrap();
        let pids = files.map(|file| -> i32 {
            await_that("it has created threads", || {
                std::fs::read_to_string(&file).ok()?.trim().parse().ok()
            })
        });
        signal("-TERM", child.id().cast_signed());
        let free = |pid: i32| {
            let masks = masks(pid);
            masks.len() > 15
                && masks.iter().all(|mask| *mask == original())
                && schedules(pid).iter().all(|(policy, _)| *policy == OTHER)
        };
        wait_until("all are given back", || pids.into_iter().all(free));
        pids.into_iter().for_each(|pid| signal("-KILL", pid));
        child.ended();
    }
}

/// Who could not take threads out of SCHED_IDLE again puts none there.
#[test]
fn without_a_way_back_jobs_are_stopped() {
    let scratch = Scratch::new();
    let (mut command, _) = need!(as_nobody(&scratch));
    let said = four_at_work(&mut command);
    let line = "waiting jobs are stopped and fill no idle PUs: to leave SCHED_IDLE again takes CAP_SYS_NICE or an \
                RLIMIT_NICE of ";
    assert!(said.contains(line), "{said}");
}

/// The limit allows what the capability does.
#[test]
fn a_limit_is_a_way_back() {
    let scratch = Scratch::new();
    let (nobody, _) = need!(as_nobody(&scratch));
    let limit = |words: &[&str]| {
        let mut command = Command::new("prlimit");
        command.arg("--nice=40:40").args(words);
        command
    };
    need!(installed("prlimit"));
    if !limit(&["true"]).status().unwrap().success() {
        skip!(NiceLimit, "the limit of nice values cannot be raised here");
    }
    let mut command = limit(&["setpriv"]);
    scratch.homes(&mut command);
    command.args(nobody.get_args());
    let said = four_at_work(&mut command);
    assert!(!said.contains("SCHED_IDLE") && said.contains("filling, s"), "{said}");
}

/// One job in seven has a thread of fixed priority, or a session of its own: it is stopped, the others fill. It may come
/// by that in the very moment in which it is to fill.
fn one_is_stopped(purpose: &str, how: &str, why: &[&str]) {
    let scratch = Scratch::new();
    let word = unique(purpose);
    let enough = scratch.path("enough");
    let naps = format!("while [ ! -e {} ]; do sleep 0.01; done", enough.display());
    let odd = how.replace("NAPS", &format!(": {word}odd; {naps}"));
    let work = nice(&format!("{word}usual"), &until(&enough));
    let file = workload(&scratch, "", &[(&odd, "name = \"odd\""), (&work, "copies = 6")]);
    let mut child = start(&scratch, &way(&["--only-signals"]), &file);
    let states = |of: &str, wanted: fn((char, i32)) -> bool| {
        let pids = called(&format!("{word}{of}"));
        let state = |pid: &i32| Some((stat(*pid)?.0, schedules(*pid).first()?.0));
        pids.iter().filter_map(state).any(wanted)
    };
    wait_until("the odd one is stopped", || states("odd", |(state, _)| state == 'T'));
    wait_until("others fill", || states("usual", |(_, policy)| policy == IDLE));
    assert!(!states("usual", |(state, _)| state == 'T'));
    std::fs::write(&enough, "").unwrap();
    assert!(child.ended().success(), "{}", said(&scratch));
    let said = said(&scratch);
    let line = "job 0 (sh) is stopped while it waits, and fills no idle PUs: ";
    assert_eq!(said.matches(line).count(), 1, "{said}");
    assert!(why.iter().any(|why| said.contains(why)), "{said}");
}

#[test]
fn fixed_priorities_are_not_lowered() {
    need!(sched_idle());
    need!(installed("chrt"));
    if !Command::new("chrt").args(["-f", "1", "true"]).status().unwrap().success() {
        skip!(RealTime, "chrt -f 1 fails");
    }
    let why = ["has a scheduling policy of its own", "to be read back, found 1"];
    one_is_stopped("fixed", "exec chrt -f 1 sh -c \"NAPS\"", &why);
}

#[test]
fn other_sessions_are_not_lowered() {
    let groups = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    need!(sched_idle());
    need!(installed("setsid"));
    if groups.is_ok_and(|groups| groups.trim() != "1") {
        skip!(Autogroup, "sched_autogroup_enabled is 0");
    }
    one_is_stopped("session", "exec setsid -w sh -c \"NAPS\"", &["has a session of its own"]);
}
