//! `colocate schedule`: each running program has an online PU of its own, all programs run in turn,
//! and survivors are restored.

use super::undo::Before;
use crate::evidence::{colocate, list, text};
use crate::groups::{ControlGroup, Offline};
use crate::random::Random;
use crate::session::{ColocateSession, Wrapper, send};
use crate::tasks::LiveTask;
use anyhow::{Context as _, ensure};
use std::collections::BTreeSet;
use std::time::Duration;

/// Options for stopping jobs by cgroups, and by signals.
const WAYS: [&[&str]; 2] = [&[], &["--only-signals"]];

/// A program that computes for ever.
const WORKS: &[&str] = &["sh", "-c", "while :; do :; done"];
/// A program that is scheduled too, at no cost to the host.
const SLEEPS: &[&str] = &["sleep", "1000"];

/// Starts `jobs` copies of a program under `round-robin`, and waits for all of them.
fn at_work(
    wrapper: Wrapper<'_>,
    way: &[&str],
    job: &'static [&'static str],
    jobs: usize,
) -> anyhow::Result<ColocateSession> {
    let programs = vec![job; jobs].join(&":::");
    let options =
        [&["--no-guard", "--waiting", "stop", "--policy", "round-robin", "-q"], way].concat();
    let session = ColocateSession::schedule_by(wrapper, &options, &programs)?;
    session.await_tasks("all programs", |tasks| tasks.len() == jobs)?;
    Ok(session)
}

/// True for a task that is stopped, by a signal or with its cgroup.
fn is_stopped(task: &LiveTask) -> bool {
    // The hierarchy of cgroup version 2 has the number 0.
    let group = task.bonds.group.trim_start_matches("0::");
    let frozen = text(format!("/sys/fs/cgroup{group}/cgroup.freeze"));
    task.bonds.stopped || frozen.is_ok_and(|frozen| frozen == "1")
}

/// Waits until each program was seen running at a time when the running programs had exactly the
/// PUs `pus`, one each.
fn turns_on(session: &ColocateSession, jobs: usize, pus: &[u32]) -> anyhow::Result<()> {
    let mut had_turns = BTreeSet::new();
    let meant: BTreeSet<Option<u32>> = pus.iter().copied().map(Some).collect();
    let what = format!("rounds of {jobs} programs on {pus:?}");
    session.await_tasks(&what, |tasks| {
        let working: Vec<&LiveTask> = tasks.iter().filter(|task| !is_stopped(task)).collect();
        let on: BTreeSet<Option<u32>> = working.iter().map(|task| task.only_pu()).collect();
        if working.len() == pus.len() && on == meant {
            had_turns.extend(working.iter().map(|task| task.pid));
        }
        had_turns.len() == jobs
    })?;
    Ok(())
}

/// Ends colocate by SIGTERM, which colocate passes on to the programs.
fn end(mut session: ColocateSession) -> anyhow::Result<()> {
    send("-TERM", &[session.colocate.id().to_string()]);
    let report = session.end()?;
    let jobs = report["jobs"].as_array().context("a report without jobs")?;
    // 143 is 128 + SIGTERM.
    let kept = jobs.iter().find(|job| job["status"] != 143);
    ensure!(kept.is_none(), "expected all ended by SIGTERM, found {kept:?}");
    session.await_end()?;
    ensure!(session.all().is_empty(), "expected no task, found {:?}", session.all());
    Ok(())
}

/// A PU of the cpuset goes offline with a program on it, and comes back: a middle PU, and the
/// machine's last PU.
pub fn follows_a_pu_that_goes_and_returns() -> anyhow::Result<()> {
    for (way, cpuset, gone) in [(WAYS[0], "0-3", 2), (WAYS[1], "12-15", 15)] {
        let before = Before::now()?;
        let group = ControlGroup::new("small", &[("cpuset.cpus", cpuset)])?;
        let wrapper = group.wrapper();
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let all = list(cpuset)?;
        let left: Vec<u32> = all.iter().copied().filter(|&pu| pu != gone).collect();
        let session = at_work(&wrapper, way, WORKS, 6)?;
        turns_on(&session, 6, &all)?;
        let offline = Offline::take(gone)?;
        turns_on(&session, 6, &left)?;
        drop(offline);
        turns_on(&session, 6, &all)?;
        end(session)?;
        drop(group);
        before.left_nothing()?;
    }
    Ok(())
}

/// The cpuset changes while programs run in turn, down to one PU.
pub fn follows_a_cpuset_that_changes() -> anyhow::Result<()> {
    for way in WAYS {
        let before = Before::now()?;
        let group = ControlGroup::new("changes", &[("cpuset.cpus", "0-3")])?;
        let wrapper = group.wrapper();
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let session = at_work(&wrapper, way, WORKS, 6)?;
        for cpuset in ["0-3", "5,9-10", "12", "1-5"] {
            group.set("cpuset.cpus", cpuset)?;
            turns_on(&session, 6, &list(cpuset)?)?;
        }
        end(session)?;
        drop(group);
        before.left_nothing()?;
    }
    Ok(())
}

/// With more programs than PUs, colocate is killed at random instants; in every other round with
/// its guardian, so `colocate restore` restores.
fn undone_after_kills(rounds: u64, seed: u64) -> anyhow::Result<()> {
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let way = random.pick(&WAYS);
        let wait = Duration::from_millis(random.below(700));
        undone_after_kill(way, wait, round % 2 == 1)
            .with_context(|| format!("round {round}, {way:?}, killed after {wait:?}"))?;
    }
    Ok(())
}

fn undone_after_kill(way: &[&str], wait: Duration, both: bool) -> anyhow::Result<()> {
    const JOBS: usize = 20;
    let before = Before::now()?;
    let mut session = at_work(&[], way, SLEEPS, JOBS)?;
    std::thread::sleep(wait);
    // The guardian first: it restores as soon as colocate has ended.
    if both {
        kill_the_guardian(&session)?;
    }
    session.colocate.kill()?;
    session.await_end()?;
    if both {
        let restored = colocate(&["restore"])?;
        let said = String::from_utf8_lossy(&restored.stdout).into_owned();
        ensure!(restored.status.success(), "restore: {said}");
    }
    ensure!(session.tasks().len() == JOBS, "expected all programs to live on");
    before.is_back(&session)
}

pub(super) fn kill_the_guardian(session: &ColocateSession) -> anyhow::Result<()> {
    let guardian = session.own().into_iter().find(|task| task.program == "colocate-guard");
    send("-KILL", &[guardian.context("no guardian")?.pid.to_string()]);
    Ok(())
}

pub fn undone_after_2_kills(seed: u64) -> anyhow::Result<()> {
    undone_after_kills(2, seed)
}

pub fn undone_after_100_kills(seed: u64) -> anyhow::Result<()> {
    undone_after_kills(100, seed)
}
