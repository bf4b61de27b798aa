//! `colocate run` where not every PU may be used, or not all of the time, or not every task be touched.

use super::run::{Meant, THREADS, by_creation, is_settled, planned};
use crate::evidence::{eventually, list, printed, text};
use crate::groups::{Group, Offline};
use crate::session::{Session, send};
use crate::tasks::{Task, untouched};
use crate::traced::Traced;
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};

/// How a tracepoint shows that a system call ended with -EPERM.
const EPERM: &str = "-> 0xffffffffffffffff";
const TEAM: [&str; 5] = ["lab-guest", "--program", "team", "6", "0"];

/// Starts the team in `group`, or where we are, and waits until its threads are there.
fn team(group: Option<&Group>, options: &[&str]) -> anyhow::Result<Session> {
    let wrapper = group.map(Group::wrapper);
    let wrapper: Vec<&str> = wrapper.iter().flatten().map(String::as_str).collect();
    let options = [&["--settle-ms", "0"], options].concat();
    let mut session = Session::start_by(&wrapper, &options, &TEAM)?;
    session.line()?;
    Ok(session)
}

/// Whether the team's threads, in the order of their creation, are on PUs of `order` that follow each
/// other. With its first thread, which mostly sleeps, they begin at the second PU; a plan that has
/// seen that it sleeps leaves it out.
fn in_order(tasks: &[Task], order: &[u32]) -> bool {
    let team = by_creation(tasks.to_vec());
    let on = |skip: usize| {
        let places = team[1..].iter().zip(order.iter().skip(skip));
        places.clone().count() == THREADS
            && places
                .into_iter()
                .all(|(task, pu)| task.only_pu() == Some(*pu) && task.last_ran == *pu)
    };
    team.len() == THREADS + 1 && (on(0) || on(1))
}

/// The PUs of `list` in the order in which `round-robin` fills them.
fn round_robin(allowed: &[u32]) -> anyhow::Result<Vec<u32>> {
    let words = ["run", "--dry-run", "--json", "--policy", "round-robin", "--", "true"];
    let plan: Value = serde_json::from_str(&printed(&words)?)?;
    let all = plan["default_placement"]["pus"].as_array().context("a plan without PUs")?;
    let numbers = all.iter().filter_map(Value::as_u64).filter_map(|pu| u32::try_from(pu).ok());
    Ok(numbers.filter(|pu| allowed.contains(pu)).collect())
}

/// The plan was made where all PUs may be used; it is followed where only some may.
pub fn follows_within_a_cpuset() -> anyhow::Result<()> {
    let (plan, path) = planned("scatter")?;
    let named = plan["decisions"].as_array().context("a plan without decisions")?;
    let places: Vec<u64> = named.iter().filter_map(|decision| decision["pu"].as_u64()).collect();
    // Two PUs that the plan uses, and the last two, whether it uses them or not.
    let pus = [places[1], places[2], 14, 15].map(|pu| u32::try_from(pu).unwrap_or(u32::MAX));
    let cpuset = pus.map(|pu| pu.to_string()).join(",");
    let group = Group::new("small", &[("cpuset.cpus", &cpuset)])?;
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
    // The first thread may have had a place or none; the others had one each.
    ensure!(expected >= THREADS - 4, "expected places outside the cpuset, found {plan}");
    ensure!(left == expected, "expected {expected} tasks left to the kernel, found {statuses:?}");
    Ok(())
}

/// The cpuset shrinks while the threads run, and grows again.
pub fn follows_a_cpuset_that_changes() -> anyhow::Result<()> {
    let group = Group::new("changes", &[("cpuset.cpus", "0-11")])?;
    let session = team(Some(&group), &["--policy", "round-robin"])?;
    let mut steps = vec!["0-11", "1-2,9-14", "0-15", "4-11"];
    for cpuset in steps.drain(..) {
        group.set("cpuset.cpus", cpuset)?;
        let order = round_robin(&list(cpuset)?)?;
        session.await_tasks(&format!("places in {cpuset}"), |tasks| in_order(tasks, &order))?;
    }
    changes_are_reported(session, 3)
}

/// A PU with a thread on it goes offline and comes back.
pub fn follows_a_pu_that_goes_and_returns() -> anyhow::Result<()> {
    let session = team(None, &["--policy", "round-robin"])?;
    let online = || list(&text("/sys/devices/system/cpu/online")?);
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

/// colocate is started while a PU is offline, which comes back.
pub fn follows_a_pu_that_comes() -> anyhow::Result<()> {
    let all = round_robin(&list(&text("/sys/devices/system/cpu/online")?)?)?;
    let offline = Offline::take(all[3])?;
    let rest: Vec<u32> = all.iter().copied().filter(|pu| *pu != all[3]).collect();
    let session = team(None, &["--policy", "round-robin"])?;
    session.await_tasks("places without it", |tasks| in_order(tasks, &rest))?;
    drop(offline);
    session.await_tasks("places with it", |tasks| in_order(tasks, &all))?;
    changes_are_reported(session, 1)
}

fn changes_are_reported(mut session: Session, expected: usize) -> anyhow::Result<()> {
    let report = session.end()?;
    let plans = report["plans"].as_array().context("a report without plans")?;
    let changes = plans.iter().filter(|plan| plan["cause"] == "machine-changed").count();
    // The kernel takes one change in several steps, and each may be seen.
    ensure!(changes >= expected, "expected {expected} changes of the machine, found {changes}");
    let of_programs = |task: &&Value| task["status"] == "pinned by the program";
    let taken = report["tasks"].as_array().into_iter().flatten().filter(of_programs).count();
    ensure!(taken == 0, "expected every task to stay ours, found {report:#}");
    Ok(())
}

/// The group may use 1.5 PUs' worth of time: that is reported, no task leaves the group, and no more is
/// used.
pub fn stays_within_a_quota() -> anyhow::Result<()> {
    let group = Group::new("quota", &[("cpu.max", "150000 100000")])?;
    let used = || -> anyhow::Result<u64> {
        let stat = group.text("cpu.stat")?;
        let line = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
        Ok(line.context("cpu.stat without usage_usec")?.parse()?)
    };
    let said = |words: &[&str]| -> anyhow::Result<String> {
        let wrapper = group.wrapper();
        let mut command = std::process::Command::new(&wrapper[0]);
        let output = command.args(&wrapper[1..]).arg("colocate").args(words).output()?;
        ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?)
    };
    let profile = super::run::profile()?;
    for words in [&["topo"][..], &["plan", "--profile", profile], &["run", "--", "true"]] {
        let said = said(words)?;
        ensure!(said.contains("1.50 PUs"), "{words:?}: expected the quota, found {said}");
    }
    let mut session = team(Some(&group), &["--policy", "scatter"])?;
    let tasks = session.await_tasks("places", |tasks| tasks.iter().all(is_settled))?;
    let outside = tasks.iter().find(|task| task.bonds.group != "0::/quota");
    ensure!(outside.is_none(), "expected every task in /quota, found {outside:?}");
    let (begin, before) = (Instant::now(), used()?);
    std::thread::sleep(Duration::from_secs(1));
    let (after, time) = (used()?, begin.elapsed());
    // One period's worth may have been left over from before, and one be used up in advance.
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

/// A user that may not touch the tasks of a program that has become root: they stay where they are,
/// the report says so, and the user's own are placed.
pub fn leaves_what_it_may_not_touch() -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let refusals = Traced::new("syscalls/sys_exit_sched_setaffinity")?;
    let rooted = "/tmp/rooted";
    std::fs::copy("/usr/bin/lab-guest", rooted)?;
    std::fs::set_permissions(rooted, std::fs::Permissions::from_mode(0o4755))?;
    let user = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"];
    let options = ["--settle-ms", "0", "--policy", "round-robin"];
    // The second program has no standard input to wait for.
    let theirs = [&[rooted, "--program", "rooted"], &TEAM[..4], &["1000000"]].concat();
    let programs = [&TEAM[..], &[":::"], &theirs].concat();
    let mut session = Session::start_by(&user, &options, &programs)?;
    for _ in 0..2 {
        session.line()?;
    }
    let free = untouched()?.cpus;
    let owner = |task: &Task| {
        text(format!("/proc/{}/status", task.pid)).is_ok_and(|status| {
            status.lines().any(|line| line.starts_with("Uid:\t1000\t1000\t1000"))
        })
    };
    let (own, others): (Vec<_>, Vec<_>) = session
        .await_tasks("the user's own tasks to be placed", |tasks| {
            let placed = |task: &&Task| owner(task) && is_settled(task);
            tasks.iter().filter(placed).count() == THREADS + 1
        })?
        .into_iter()
        .partition(owner);
    ensure!(own.len() == THREADS + 1 && others.len() == THREADS + 1, "found {own:?} {others:?}");
    // One that was on a PU before it became root stays there; only root can change that.
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
