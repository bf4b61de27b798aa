//! `colocate run` with limits: cpusets, offline PUs, CPU quotas, and tasks of other users.

use super::run::{Meant, THREADS, by_creation, is_settled, planned};
use crate::evidence::{eventually, list, online, printed, text};
use crate::groups::{ControlGroup, Offline};
use crate::session::{ColocateSession, send};
use crate::tasks::{LiveTask, untouched};
use crate::traced::RecordedTracepoint;
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Result of a system call that failed with EPERM (1), as a tracepoint prints it.
const EPERM: &str = "-> 0xffffffffffffffff";
const TEAM: [&str; 5] = ["lab-guest", "--program", "team", "6", "0"];

/// Starts the team in `group`, or in this process's group, and waits for its threads.
fn team(group: Option<&ControlGroup>, options: &[&str]) -> anyhow::Result<ColocateSession> {
    let wrapper = group.map(ControlGroup::wrapper);
    let wrapper: Vec<&str> = wrapper.iter().flatten().map(String::as_str).collect();
    let options = [&["--settle-ms", "0"], options].concat();
    let mut session = ColocateSession::start_by(&wrapper, &options, &TEAM)?;
    session.line()?;
    Ok(session)
}

/// True if the team's threads, sorted by creation, are on consecutive PUs of `order`.
///
/// The threads begin at the second PU if the plan has placed the main thread, and at the first if
/// the plan has left out the main thread, which mostly sleeps.
fn in_order(tasks: &[LiveTask], order: &[u32]) -> bool {
    let team = by_creation(tasks.to_vec());
    team.len() == THREADS + 1
        && (are_on(&team[1..], order) || are_on(&team[1..], order.get(1..).unwrap_or_default()))
}

/// True if each thread is pinned to the PU at its position, and was last seen there.
fn are_on(threads: &[LiveTask], pus: &[u32]) -> bool {
    threads.len() <= pus.len()
        && threads
            .iter()
            .zip(pus)
            .all(|(task, pu)| task.only_pu() == Some(*pu) && task.last_ran == *pu)
}

/// The PUs of `allowed`, in the order of `round-robin`.
fn round_robin(allowed: &[u32]) -> anyhow::Result<Vec<u32>> {
    let words = ["run", "--dry-run", "--json", "--policy", "round-robin", "--", "true"];
    let plan: Value = serde_json::from_str(&printed(&words)?)?;
    let all = plan["default_placement"]["pus"].as_array().context("a plan without PUs")?;
    let numbers = all.iter().filter_map(Value::as_u64).filter_map(|pu| u32::try_from(pu).ok());
    Ok(numbers.filter(|pu| allowed.contains(pu)).collect())
}

/// A plan for all PUs is followed in a cpuset with some of the PUs.
pub fn follows_within_a_cpuset() -> anyhow::Result<()> {
    let (plan, path) = planned("scatter")?;
    let named = plan["decisions"].as_array().context("a plan without decisions")?;
    let places: Vec<u64> = named.iter().filter_map(|decision| decision["pu"].as_u64()).collect();
    // Two PUs of the plan, and the machine's last two.
    let pus = [places[1], places[2], 14, 15].map(|pu| u32::try_from(pu).unwrap_or(u32::MAX));
    let cpuset = pus.map(|pu| pu.to_string()).join(",");
    let group = ControlGroup::new("small", &[("cpuset.cpus", &cpuset)])?;
    let effective = group.text("cpuset.cpus.effective")?;
    let mut session = team(Some(&group), &["--plan", &path])?;
    let tasks = session.await_tasks("the team", |tasks| tasks.len() == THREADS + 1)?;
    let mut meant = Meant::by(&plan)?.within(&pus);
    by_creation(tasks).iter().for_each(|task| meant.created(task.tid));
    session.await_tasks("places within the cpuset", |tasks| meant.is_so(tasks, &effective))?;
    let report = session.end()?;
    let statuses: Vec<_> =
        report["tasks"].as_array().into_iter().flatten().map(|task| &task["status"]).collect();
    let left = statuses.iter().filter(|status| **status == "left to the kernel").count();
    let expected = meant.left_to_kernel();
    // Four PUs hold four threads at most. The main thread may be placed or not.
    ensure!(expected >= THREADS - 4, "expected places outside the cpuset, found {plan}");
    ensure!(left == expected, "expected {expected} tasks left to the kernel, found {statuses:?}");
    Ok(())
}

/// Threads are placed again when their cpuset shrinks and grows.
pub fn follows_a_cpuset_that_changes() -> anyhow::Result<()> {
    let group = ControlGroup::new("changes", &[("cpuset.cpus", "0-11")])?;
    let session = team(Some(&group), &["--policy", "round-robin"])?;
    for cpuset in ["0-11", "1-2,9-14", "0-15", "4-11"] {
        group.set("cpuset.cpus", cpuset)?;
        let order = round_robin(&list(cpuset)?)?;
        session.await_tasks(&format!("places in {cpuset}"), |tasks| in_order(tasks, &order))?;
    }
    changes_are_reported(session, 3)
}

/// Threads are placed again when a PU in use goes offline and comes back.
pub fn follows_a_pu_that_goes_and_returns() -> anyhow::Result<()> {
    let session = team(None, &["--policy", "round-robin"])?;
    let all = round_robin(&online()?)?;
    session.await_tasks("places on all PUs", |tasks| in_order(tasks, &all))?;
    let offline = Offline::take(all[2])?;
    let rest: Vec<u32> = all.iter().copied().filter(|pu| *pu != all[2]).collect();
    ensure!(online()?.len() == rest.len(), "expected cpu{} offline", all[2]);
    session.await_tasks("places on the others", |tasks| in_order(tasks, &rest))?;
    drop(offline);
    ensure!(online()?.len() == all.len(), "expected cpu{} online", all[2]);
    session.await_tasks("places on all PUs again", |tasks| in_order(tasks, &all))?;
    changes_are_reported(session, 2)
}

/// A PU that was offline at colocate's start is used when it comes online.
pub fn follows_a_pu_that_comes() -> anyhow::Result<()> {
    let all = round_robin(&online()?)?;
    let offline = Offline::take(all[3])?;
    let rest: Vec<u32> = all.iter().copied().filter(|pu| *pu != all[3]).collect();
    let session = team(None, &["--policy", "round-robin"])?;
    session.await_tasks("places without it", |tasks| in_order(tasks, &rest))?;
    drop(offline);
    session.await_tasks("places with it", |tasks| in_order(tasks, &all))?;
    changes_are_reported(session, 1)
}

/// Checks that the report has at least `expected` changes of the machine, and no thread that
/// colocate takes for pinned by its program.
fn changes_are_reported(mut session: ColocateSession, expected: usize) -> anyhow::Result<()> {
    let report = session.end()?;
    let plans = report["plans"].as_array().context("a report without plans")?;
    let changes = plans.iter().filter(|plan| plan["cause"] == "machine-changed").count();
    // The kernel makes a change in several steps, and colocate may see each step.
    ensure!(changes >= expected, "expected {expected} changes of the machine, found {changes}");
    let tasks = report["tasks"].as_array().into_iter().flatten();
    let taken = tasks.filter(|task| task["status"] == "pinned by the program").count();
    ensure!(taken == 0, "expected every task to stay ours, found {report:#}");
    Ok(())
}

/// CPU time of a group, in µs.
fn used_us(group: &ControlGroup) -> anyhow::Result<u64> {
    let stat = group.text("cpu.stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
    Ok(line.context("cpu.stat without usage_usec")?.parse()?)
}

/// Output and messages of a `colocate` in a group.
fn said_within(group: &ControlGroup, words: &[&str]) -> anyhow::Result<String> {
    let wrapper = group.wrapper();
    let mut command = std::process::Command::new(&wrapper[0]);
    let output = command.args(&wrapper[1..]).arg("colocate").args(words).output()?;
    ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?)
}

/// A quota of 1.5 PUs is reported, no task leaves the group, and the quota is not exceeded.
pub fn stays_within_a_quota() -> anyhow::Result<()> {
    let group = ControlGroup::new("quota", &[("cpu.max", "150000 100000")])?;
    let profile = super::run::profile()?;
    for words in [&["topo"][..], &["plan", "--profile", profile], &["run", "--", "true"]] {
        let said = said_within(&group, words)?;
        ensure!(said.contains("1.50 PUs"), "{words:?}: expected the quota, found {said}");
    }
    let mut session = team(Some(&group), &["--policy", "scatter"])?;
    let tasks = session.await_tasks("places", |tasks| tasks.iter().all(is_settled))?;
    let outside = tasks.iter().find(|task| task.bonds.group != "0::/quota");
    ensure!(outside.is_none(), "expected every task in /quota, found {outside:?}");
    let begin = Instant::now();
    let before = used_us(&group)?;
    std::thread::sleep(Duration::from_secs(1));
    let after = used_us(&group)?;
    let time = begin.elapsed();
    // One period's quota, 150 ms, may be left over from before, and one be used in advance.
    let most = time.as_micros() * 3 / 2 + 300_000;
    ensure!(
        u128::from(after - before) <= most,
        "expected at most {most} us, found {}",
        after - before
    );
    let report = session.end()?;
    let quota = &report["machine"]["quota"];
    ensure!(quota["time_ns"] == 150_000_000 && quota["period_ns"] == 100_000_000, "found {quota}");
    Ok(())
}

/// True for a task of user 1000.
fn is_users(task: &LiveTask) -> bool {
    text(format!("/proc/{}/status", task.pid))
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t1000\t1000\t1000")))
}

/// A user's colocate cannot place the tasks of a program that has become root: these tasks keep
/// their masks, the report says so, and the user's own tasks are placed.
pub fn leaves_what_it_may_not_touch() -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let refusals = RecordedTracepoint::new("syscalls/sys_exit_sched_setaffinity")?;
    let rooted = "/tmp/rooted";
    std::fs::copy("/usr/bin/lab-guest", rooted)?;
    // With the set-user-ID bit, by which the program becomes root.
    std::fs::set_permissions(rooted, std::fs::Permissions::from_mode(0o4755))?;
    let user = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"];
    let options = ["--settle-ms", "0", "--policy", "round-robin"];
    // The second program has no open standard input, so a time keeps it alive.
    let theirs = [&[rooted, "--program", "rooted"], &TEAM[..4], &["1000000"]].concat();
    let programs = [&TEAM[..], &[":::"], &theirs].concat();
    let mut session = ColocateSession::start_by(&user, &options, &programs)?;
    for _ in 0..2 {
        session.line()?;
    }
    let free = untouched()?.cpus;
    let (own, others): (Vec<_>, Vec<_>) = session
        .await_tasks("the user's own tasks to be placed", |tasks| {
            let placed = tasks.iter().filter(|task| is_users(task) && is_settled(task));
            placed.count() == THREADS + 1
        })?
        .into_iter()
        .partition(is_users);
    ensure!(own.len() == THREADS + 1 && others.len() == THREADS + 1, "found {own:?} {others:?}");
    // A process pinned before it became root stays pinned, and its threads inherit the mask.
    let root = &others[0];
    let bound = others.iter().find(|task| task.bonds.cpus != root.bonds.cpus);
    ensure!(bound.is_none(), "expected all of {root:?}, found {bound:?}; untouched: {free}");
    eventually("the kernel to forbid colocate to move a task", || {
        Ok(refusals.text()?.lines().any(|line| line.contains("colocate") && line.contains(EPERM)))
    })?;
    send("-KILL", &[root.pid.to_string()]);
    let report = session.end()?;
    let trouble =
        "the thread belongs to another user; run colocate as that user or with CAP_SYS_NICE";
    let reported =
        report["tasks"].as_array().into_iter().flatten().any(|task| task["detail"] == trouble);
    ensure!(reported, "expected {trouble}, found {report:#}");
    Ok(())
}
