//! Whole runs with jobs that create processes and threads as fast as they can, in PID namespaces of their own: colocate
//! and its guardian are killed at many instants, and process numbers are reused within milliseconds.
//!
//! `COLOCATE_KILLS` and `COLOCATE_STRANGERS` say how many kills and strangers there are, `COLOCATE_WAYS` which ways (those whose name
//! begins so), `COLOCATE_BINARY` which program is tested; docs/results/restore.md has the figures of a long run. Needs root, unshare(1) and a C compiler, for strangers Linux 6.14 as
//! well.

use crate::run_support::{Scratch, await_that, children, exclusive, name, original};
use colocate_testing::skip::{Missing, Requirement, installed, root, two_pus};
use colocate_testing::{END_LIMIT, EndsInTime, TimeLimit, need, skip};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const STORMS: [&str; 4] = ["fork", "thread", "exec", "daemon"];

/// How colocate is called. Without perf events new threads are found in `/proc`.
const WAYS: [(&str, bool, &[&str]); 10] = [
    ("attach", false, &ATTACH),
    ("attach, no perf", true, &ATTACH),
    ("run", false, &RUN),
    ("run, no perf", true, &RUN),
    ("cgroups", false, &SCHEDULE),
    ("cgroups, no perf", true, &SCHEDULE),
    ("signals", false, &BY_SIGNALS),
    ("signals, no perf", true, &BY_SIGNALS),
    ("filling", false, &FILLING),
    ("filling, no perf", true, &FILLING),
];
const RUN: [&str; 6] = ["run", "--no-guard", "--policy", "scatter", "--settle-ms", "0"];
const ATTACH: [&str; 4] = ["attach", "--no-guard", "--policy", "scatter"];
/// Starts storms, which become children of init, and attaches to them.
const ATTACHED: &str = "#!/bin/sh
pids=$(for storm in fork thread exec daemon; do \"$DIR/storm\" $storm 0 >/dev/null 2>&1 & echo \"-p $!\"; done)
exec \"$@\" $pids
";
const SCHEDULE: [&str; 8] = [
    "schedule",
    "--no-guard",
    "--waiting",
    "stop",
    "--policy",
    "round-robin",
    "--quantum",
    "20 ms",
];
const BY_SIGNALS: [&str; 9] = [
    "schedule",
    "--no-guard",
    "--waiting",
    "stop",
    "--policy",
    "round-robin",
    "--quantum",
    "20 ms",
    "--only-signals",
];
const FILLING: [&str; 8] = [
    "schedule",
    "--no-guard",
    "--policy",
    "round-robin",
    "--quantum",
    "20 ms",
    "--waiting",
    "fill",
];

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Killed {
    /// colocate; its guardian restores.
    Colocate,
    /// The guardian; colocate is then asked to end, and restores.
    Guardian,
    /// Both; `colocate restore` restores.
    Both,
}

/// The ways that are tested.
fn ways() -> Vec<(&'static str, bool, &'static [&'static str])> {
    let begin = std::env::var("COLOCATE_WAYS").unwrap_or_default();
    let ways: Vec<_> = WAYS.into_iter().filter(|(name, ..)| name.starts_with(&begin)).collect();
    assert!(!ways.is_empty(), "expected the beginning of a way's name, found {begin:?}");
    ways
}

/// The program that is tested.
fn binary() -> PathBuf {
    let other = std::env::var_os("COLOCATE_BINARY");
    other.unwrap_or_else(|| env!("CARGO_BIN_EXE_colocate").into()).into()
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().map_or(default, |text| text.parse().unwrap())
}

/// The programs of these tests, compiled.
fn programs(scratch: &Scratch) -> Result<(), Missing> {
    root()?;
    installed("unshare")?;
    two_pus()?;
    ["storm", "strangers", "noperf"].iter().try_for_each(|it| scratch.program(it, &[]).map(drop))
}

/// `script` as the first process of a PID namespace, with the command line of a colocate that runs storms as "$@".
fn namespace(scratch: &Scratch, script: &str, way: (&str, bool, &[&str])) -> Child {
    let (_, no_perf, args) = way;
    let mut command = Command::new("unshare");
    scratch.homes(&mut command);
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script, "sh"]);
    let attaches = args == ATTACH;
    if attaches {
        crate::run_support::script(&scratch.path("attached"), ATTACHED);
        command.arg(scratch.path("attached"));
    }
    command.args(no_perf.then(|| scratch.path("noperf")));
    command.arg(binary()).args(args);
    for (place, storm) in STORMS.iter().enumerate().filter(|_| !attaches) {
        command.arg(if place > 0 { ":::" } else { "--" });
        command.arg(scratch.path("storm")).args([storm, "0"]);
    }
    let out = std::fs::File::create(scratch.path("said")).unwrap();
    command.env("COLOCATE", binary()).env("DIR", scratch.dir.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(out).spawn().unwrap()
}

/// The processes of a PID namespace but its first, by the numbers that they have here.
fn members(first: i32) -> Vec<i32> {
    let of = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let namespace = of(first);
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != first && of(*pid).is_some_and(|it| Some(it) == namespace)).collect()
}

/// What is wrong with a thread, by the kernel's words; `None` if nothing is, or if it has ended.
fn wrong(pid: i32, tid: &str, original: &str) -> Option<&'static str> {
    let read = |file| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}")).ok();
    let (status, stat) = (read("status")?, read("stat")?);
    let line = |key| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let policy = stat.rsplit_once(')')?.1.split_whitespace().nth(38)?;
    match (line("State:")?.chars().next()?, line("Cpus_allowed_list:")?, policy) {
        ('Z' | 'X', ..) => None,
        ('T', ..) => Some("stopped"),
        (_, mask, _) if mask != original => Some("pinned"),
        (.., "5") => Some("under SCHED_IDLE"),
        _ => None,
    }
}

/// The folder that colocate would make for its jobs' cgroups.
fn cgroup_of(colocate: i32) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
    let status = std::fs::read_to_string(format!("/proc/{colocate}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let stat = std::fs::read_to_string(format!("/proc/{colocate}/stat")).ok()?;
    let start = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?;
    let folder = format!("colocate-{}-{start}", numbers.split_whitespace().last()?);
    Some(Path::new(mount.split(' ').nth(1)?).join(own).join(folder))
}

/// One kill; what stays, by kind and number.
fn kill_once(scratch: &Scratch, round: usize) -> (String, BTreeMap<&'static str, usize>) {
    let ways = ways();
    let way = ways[round % ways.len()];
    let killed = [Killed::Colocate, Killed::Guardian, Killed::Both][round / ways.len() % 3];
    let script = "\"$@\" >&2 & echo begun; read kill; \
                  \"$COLOCATE\" restore; echo restored; read end";
    let mut shell = namespace(scratch, script, way);
    let mut answers = BufReader::new(shell.stdout.take().unwrap()).lines();
    let mut input = shell.stdin.take().unwrap();
    let mut answer = |wanted: &str| {
        let _limit = TimeLimit::start(END_LIMIT, &format!("the line {wanted} of the shell"));
        assert!(answers.any(|line| line.unwrap() == wanted), "no line {wanted}");
    };
    answer("begun");
    let first = await_that("a namespace", || children(shell.id()).into_iter().next());
    let called = |wanted: &str| members(first).into_iter().find(|pid| name(*pid) == wanted);
    let colocate = await_that("colocate", || called("colocate"));
    let cgroup = cgroup_of(colocate);
    // A multiplicative walk spreads the instants over 600 ms.
    std::thread::sleep(Duration::from_micros((round as u64 * 79_193 + 1_000) % 600_000));
    let send = |signal: &str, pid: i32| {
        let pid = pid.to_string();
        let _ = Command::new("kill").args([signal, &pid]).stderr(Stdio::null()).status();
    };
    let guardian = called("colocate-guard");
    let sent = Instant::now();
    if let Some(guardian) = guardian.filter(|_| killed != Killed::Colocate) {
        send("-KILL", guardian);
    }
    send(if killed == Killed::Guardian { "-TERM" } else { "-KILL" }, colocate);
    let what = |who| format!("{who}: round {round}, {}, {killed:?}", way.0);
    if killed == Killed::Both {
        // Not their programs: those that have not begun are called as they are, and may be stopped.
        await_that(&what("they end"), || {
            guardian.into_iter().chain([colocate]).all(is_dead).then_some(())
        });
        input.write_all(b"kill\n").unwrap();
        answer("restored");
    }
    await_that(&what("colocate and its guardian end"), || {
        let mut ours = members(first).into_iter().filter(|pid| name(*pid).starts_with("colocate"));
        ours.all(is_dead).then_some(())
    });
    let ended = sent.elapsed();
    let mut left: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut find = |what| *left.entry(what).or_default() += 1;
    let original = original();
    for pid in members(first) {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for tid in tasks.filter_map(|entry| entry.file_name().into_string().ok()) {
            wrong(pid, &tid, &original).into_iter().for_each(&mut find);
        }
    }
    scratch.journals().iter().for_each(|_| find("journals"));
    cgroup.filter(|folder| folder.exists()).into_iter().for_each(|_| find("cgroups"));
    if !left.is_empty() {
        let said = std::fs::read_to_string(scratch.path("said")).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(20).collect();
        eprintln!(
            "{}, ended after {ended:?}, left {left:?}, said, last line first: {last:?}",
            what("killed")
        );
        for journal in scratch.journals() {
            eprintln!("{}", std::fs::read_to_string(journal).unwrap_or_default());
        }
    }
    send("-KILL", first);
    drop(input);
    shell.ended();
    for journal in scratch.journals() {
        std::fs::remove_file(journal).unwrap();
    }
    (format!("{}, killed: {killed:?}", way.0), left)
}

/// Of a process of colocate's: a storm may have a thread by its number, which lives for ever where there are no more numbers.
fn is_dead(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let lives = |(start, rest): (&str, &str)| {
        start.contains("(colocate") && !rest.trim_start().starts_with(['Z', 'X'])
    };
    !stat.rsplit_once(')').is_some_and(lives)
}

/// Whatever is killed, and whenever: no thread stays stopped, pinned or under SCHED_IDLE, and neither journals nor cgroups
/// stay.
#[test]
fn after_a_kill_nothing_stays() {
    let _exclusive = exclusive();
    let scratch = Scratch::new();
    need!(programs(&scratch));
    let kills = number("COLOCATE_KILLS", 30);
    let mut all: BTreeMap<String, (usize, BTreeMap<&'static str, usize>)> = BTreeMap::new();
    for round in 0..kills {
        let (kind, left) = kill_once(&scratch, round);
        let (rounds, sum) = all.entry(kind).or_default();
        *rounds += 1;
        left.into_iter().for_each(|(what, count)| *sum.entry(what).or_default() += count);
    }
    for (kind, (rounds, left)) in &all {
        eprintln!("{kind}: {rounds} kills, left {left:?}");
    }
    assert!(all.values().all(|(_, left)| left.is_empty()), "{all:?}");
}

/// With 400 process numbers in all, each is reused some hundred times. What took over the number of one of ours is neither
/// killed, stopped, pinned nor put under SCHED_IDLE.
#[test]
fn other_processes_are_not_touched() {
    let _exclusive = exclusive();
    let scratch = Scratch::new();
    need!(programs(&scratch));
    let ways = ways();
    let strangers = number("COLOCATE_STRANGERS", 10_000) / ways.len();
    // Before Linux 6.14 the limit is the whole machine's.
    let script = format!(
        "here=$(cat /proc/sys/kernel/pid_max); [ $here -gt 4000 ] || exit 77; \
         echo 400 >/proc/sys/kernel/pid_max; echo limited; read go; \
         \"$@\" >&2 & sleep 0.1; \"$DIR/strangers\" {strangers}; kill -TERM $!; wait $!; echo ended"
    );
    let before = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    for way in ways {
        let mut shell = namespace(&scratch, &script, way);
        let mut answers = BufReader::new(shell.stdout.take().unwrap()).lines();
        let limited = answers.next().is_some_and(|line| line.unwrap() == "limited");
        let here = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
        if !limited || here != before {
            let _ = std::fs::write("/proc/sys/kernel/pid_max", &before);
            drop(shell.stdin.take());
            shell.ended();
            skip!(NamespacePids, "process numbers have no limit of their own in a namespace here");
        }
        shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let found = answers.next().unwrap().unwrap();
        eprintln!("{}: {found}", way.0);
        assert_eq!(
            found,
            format!("strangers {strangers} killed 0 stopped 0 pinned 0 idle 0"),
            "{}: {}",
            way.0,
            std::fs::read_to_string(scratch.path("said")).unwrap()
        );
        assert_eq!(answers.next().unwrap().unwrap(), "ended");
        assert!(shell.ended().success());
    }
}

/// While colocate itself is stopped, the job that waits continues, and waits again when colocate does.
#[test]
fn what_waits_continues_while_colocate_is_stopped() {
    let scratch = Scratch::new();
    let mut command = scratch.colocate();
    command.args([
        "schedule",
        "--no-guard",
        "--policy",
        "round-robin",
        "--quantum",
        "500 ms",
        "--",
    ]);
    for place in 0..3 {
        command.args((place > 0).then_some(":::")).args(["sh", "-c", "while :; do :; done"]);
    }
    let mut colocate = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let shells = await_that("three jobs", || {
        let mut pids = children(colocate.id());
        pids.retain(|pid| name(*pid) == "sh");
        (pids.len() == 3).then_some(pids)
    });
    let frozen = || {
        let is_frozen = |pid: &i32| {
            let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
            let own = cgroups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
            let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
            let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
            let place = mount.map(|line| Path::new(line.split(' ').nth(1).unwrap()).join(own));
            let state = place.map(|place| std::fs::read_to_string(place.join("cgroup.freeze")));
            state.is_some_and(|state| state.is_ok_and(|state| state.trim() == "1"))
        };
        shells.iter().filter(|pid| is_frozen(pid)).count()
    };
    let begun = Instant::now();
    while frozen() == 0 && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let is_frozen = frozen() > 0;
    if is_frozen {
        let send = |signal: &str| {
            let pid = colocate.id().to_string();
            assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        };
        send("-STOP");
        await_that("all continue", || (frozen() == 0).then_some(()));
        send("-CONT");
        await_that("one waits", || (frozen() > 0).then_some(()));
    }
    for pid in shells {
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    }
    colocate.ended();
    need!(Requirement::Cgroups.if_there(is_frozen, "no cgroups can be made here"));
}
