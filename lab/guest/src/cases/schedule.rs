//! `colocate schedule`: each running program has an online PU of its own, all run in turn, and
//! nothing of that remains.

use super::undo::Before;
use crate::evidence::{colocate, list, text};
use crate::groups::{Group, Offline};
use crate::random::Random;
use crate::session::{Session, Wrapper, send};
use crate::tasks::Task;
use anyhow::{Context as _, ensure};
use std::collections::BTreeSet;
use std::time::Duration;

/// Jobs are stopped by cgroups, or by signals.
const WAYS: [&[&str]; 2] = [&[], &["--only-signals"]];

/// A program that works for ever.
const WORKS: &[&str] = &["sh", "-c", "while :; do :; done"];
/// One that is scheduled as well, at no cost to the host.
const SLEEPS: &[&str] = &["sleep", "1000"];

/// So many of a program, every quantum those that have waited longest, and all of them there.
fn at_work(
    wrapper: Wrapper<'_>,
    way: &[&str],
    job: &'static [&'static str],
    jobs: usize,
) -> anyhow::Result<Session> {
    let programs = vec![job; jobs].join(&":::");
    let options =
        [&["--no-guard", "--waiting", "stop", "--policy", "round-robin", "-q"], way].concat();
    let session = Session::schedule_by(wrapper, &options, &programs)?;
    session.await_tasks("all programs", |tasks| tasks.len() == jobs)?;
    Ok(session)
}

/// Whether it is stopped, by a signal or with its cgroup.
fn is_stopped(task: &Task) -> bool {
    let group = task.bonds.group.trim_start_matches("0::");
    let frozen = text(format!("/sys/fs/cgroup{group}/cgroup.freeze"));
    task.bonds.stopped || frozen.is_ok_and(|frozen| frozen == "1")
}

/// Waits until everybody has been seen at work in a moment when those at work had `pus`, one each.
fn turns_on(session: &Session, jobs: usize, pus: &[u32]) -> anyhow::Result<()> {
    let mut had_turns = BTreeSet::new();
    let check = |tasks: &[Task]| {
        let working: Vec<&Task> = tasks.iter().filter(|task| !is_stopped(task)).collect();
        let on: BTreeSet<Option<u32>> = working.iter().map(|task| task.only_pu()).collect();
        let meant: BTreeSet<Option<u32>> = pus.iter().copied().map(Some).collect();
        if working.len() == pus.len() && on == meant {
            had_turns.extend(working.iter().map(|task| task.pid));
        }
        had_turns.len() == jobs
    };
    session.await_tasks(&format!("rounds of {jobs} programs on {pus:?}"), check).map(drop)
}

/// Ends colocate by SIGTERM, which it passes on to the programs.
fn end(mut session: Session) -> anyhow::Result<()> {
    send("-TERM", &[session.colocate.id().to_string()]);
    let report = session.end()?;
    let jobs = report["jobs"].as_array().context("a report without jobs")?;
    let kept = jobs.iter().find(|job| job["status"] != 143);
    ensure!(kept.is_none(), "expected all ended by SIGTERM, found {kept:?}");
    session.await_end()?;
    ensure!(session.all().is_empty(), "expected no task, found {:?}", session.all());
    Ok(())
}

/// A PU of the cpuset goes offline with a program on it, and comes back: one between others, and the last of the machine.
pub fn follows_a_pu_that_goes_and_returns() -> anyhow::Result<()> {
    for (way, cpuset, gone) in [(WAYS[0], "0-3", 2), (WAYS[1], "12-15", 15)] {
        let before = Before::now()?;
        let group = Group::new("small", &[("cpuset.cpus", cpuset)])?;
        let wrapper = group.wrapper();
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let (all, mut left) = (list(cpuset)?, list(cpuset)?);
        left.retain(|&pu| pu != gone);
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

/// The cpuset changes while programs run in turn, down to a single PU.
pub fn follows_a_cpuset_that_changes() -> anyhow::Result<()> {
    for way in WAYS {
        let before = Before::now()?;
        let group = Group::new("changes", &[("cpuset.cpus", "0-3")])?;
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

/// More programs than PUs; colocate is killed at random instants, every other time with its guardian, and then
/// `colocate restore` is asked.
fn undone_after_kills(rounds: u64, seed: u64) -> anyhow::Result<()> {
    const JOBS: usize = 20;
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let (way, wait) = (random.pick(&WAYS), Duration::from_millis(random.below(700)));
        let kill = || {
            let before = Before::now()?;
            let mut session = at_work(&[], way, SLEEPS, JOBS)?;
            std::thread::sleep(wait);
            if round % 2 == 1 {
                kill_the_guardian(&session)?;
            }
            session.colocate.kill()?;
            session.await_end()?;
            if round % 2 == 1 {
                let restored = colocate(&["restore"])?;
                let said = String::from_utf8_lossy(&restored.stdout).into_owned();
                ensure!(restored.status.success(), "restore: {said}");
            }
            ensure!(session.tasks().len() == JOBS, "expected all programs to live on");
            before.is_back(&session)
        };
        kill().with_context(|| format!("round {round}, {way:?}, killed after {wait:?}"))?;
    }
    Ok(())
}

pub(super) fn kill_the_guardian(session: &Session) -> anyhow::Result<()> {
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
