//! Each thread ends on the PU of the plan, whatever creates it, and wherever the plan comes from.

use super::undo::Before;
use crate::evidence::{colocate, list, printed, text};
use crate::session::Session;
use crate::tasks::{Bonds, Task, untouched};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Where tasks of one job are meant to be, reckoned from a plan without any of colocate's code:
/// tasks that the plan names go where it says, each other one to the PU with the fewest.
pub(super) struct Meant {
    named: BTreeMap<u64, Option<u32>>,
    order: Vec<u32>,
    created: u64,
    places: BTreeMap<i32, Option<u32>>,
}

impl Meant {
    pub(super) fn by(plan: &Value) -> anyhow::Result<Self> {
        let pu = |value: &Value| value.as_u64().and_then(|pu| u32::try_from(pu).ok());
        let decisions = plan["decisions"].as_array().context("a plan without decisions")?;
        let of_first_job = decisions.iter().filter(|decision| decision["task"]["job"] == 0);
        let named = of_first_job
            .filter_map(|decision| Some((decision["task"]["order"].as_u64()?, pu(&decision["pu"]))))
            .collect();
        let order = plan["default_placement"]["pus"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(pu)
            .collect();
        Ok(Self { named, order, created: 0, places: BTreeMap::new() })
    }

    /// Only these PUs can be used: a task that is meant for another one is left to the kernel.
    pub(super) fn within(mut self, pus: &[u32]) -> Self {
        for place in self.named.values_mut() {
            *place = place.filter(|pu| pus.contains(pu));
        }
        self.order.retain(|pu| pus.contains(pu));
        self
    }

    /// The next task is created, and is this one.
    pub(super) fn created(&mut self, tid: i32) {
        let load = |pu: &u32| self.places.values().filter(|place| **place == Some(*pu)).count();
        let least = || self.order.iter().copied().min_by_key(load);
        let place = self.named.get(&self.created).copied().unwrap_or_else(least);
        self.places.insert(tid, place);
        self.created += 1;
    }

    /// The task creates processes, which would count one PU only, so it is not placed.
    fn exempt(&mut self, tid: i32) {
        self.places.insert(tid, None);
    }

    /// How many are meant for no PU.
    pub(super) fn left_to_kernel(&self) -> usize {
        self.places.values().filter(|place| place.is_none()).count()
    }

    /// Whether these are the tasks, each allowed on its PU alone and last seen there, or allowed
    /// where `free` says.
    pub(super) fn is_so(&self, tasks: &[Task], free: &str) -> bool {
        let there = |task: &Task| match self.places.get(&task.tid) {
            Some(Some(pu)) => task.is_placed() && task.only_pu() == Some(*pu),
            Some(None) => task.bonds.cpus == free,
            None => false,
        };
        tasks.len() == self.places.len() && tasks.iter().all(there)
    }
}

/// The tasks of a process, in the order of their creation.
pub(super) fn by_creation(mut tasks: Vec<Task>) -> Vec<Task> {
    // Numbers of tasks grow: a guest creates fewer than there are.
    tasks.sort_by_key(|task| task.tid);
    tasks
}

/// Whether a task of the team is on one PU alone. The first thread sleeps, and moves when it wakes.
pub(super) fn is_settled(task: &Task) -> bool {
    task.is_placed() || task.only_pu().is_some() && task.tid == task.pid
}

/// Threads of the team that plans are made for.
pub(super) const THREADS: usize = 6;
/// The team.
pub(super) const TEAM: [&str; 5] = ["lab-guest", "--program", "team", "6", "1500"];

/// A profile of the team, made once a boot.
pub(super) fn profile() -> anyhow::Result<&'static str> {
    const PATH: &str = "/tmp/team.json";
    if !Path::new(PATH).exists() {
        let words = [&["profile", "-o", PATH, "--"][..], &TEAM].concat();
        let done = colocate(&words)?;
        ensure!(
            done.status.success(),
            "colocate profile: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
    Ok(PATH)
}

/// The plan of `policy` for the team, and the file that it is in.
pub(super) fn planned(policy: &str) -> anyhow::Result<(Value, String)> {
    let path = format!("/tmp/plan-{policy}.json");
    let plan = printed(&["plan", "--json", "--policy", policy, "--profile", profile()?])?;
    std::fs::write(&path, &plan)?;
    Ok((serde_json::from_str(&plan)?, path))
}

/// How long threads live at least that a report says something of: colocate first looks at one after 100 ms.
const SEEN: Duration = Duration::from_millis(300);

/// Runs the team by a plan and checks that each thread is where the plan has it.
fn follows(policy: &str) -> anyhow::Result<()> {
    let Bonds { cpus, .. } = untouched()?;
    let (plan, path) = planned(policy)?;
    let mut session = Session::start(&["--settle-ms", "0", "--plan", &path], &TEAM[..4])?;
    session.line()?;
    let team = by_creation(session.await_tasks("the team", |tasks| tasks.len() == THREADS + 1)?);
    let mut meant = Meant::by(&plan)?;
    team.iter().for_each(|task| meant.created(task.tid));
    let what = format!("places {:?}", meant.places);
    let team = by_creation(session.await_tasks(&what, |tasks| meant.is_so(tasks, &cpus))?);
    let named = meant.named.values().flatten().count();
    ensure!(policy == "os" || named >= THREADS, "expected places for the team, found {plan}");
    std::thread::sleep(SEEN);
    is_reported(&session.end()?, &team)
}

/// The report says of each task what was seen of it.
pub(super) fn is_reported(report: &Value, seen: &[Task]) -> anyhow::Result<()> {
    let tasks = report["tasks"].as_array().context("a report without tasks")?;
    ensure!(tasks.len() == seen.len(), "expected {} tasks, found {report:#}", seen.len());
    // The kernel's list of all PUs has those as well that could be plugged in.
    let there = list(&text("/sys/devices/system/cpu/possible")?)?;
    for (reported, task) in tasks.iter().zip(seen) {
        let allowed = list(reported["allowed"].as_str().unwrap_or_default())?;
        let cpus: Vec<u32> =
            list(&task.bonds.cpus)?.into_iter().filter(|pu| there.contains(pu)).collect();
        ensure!(
            allowed == cpus,
            "expected {} for task {}, found {reported}",
            task.bonds.cpus,
            task.tid
        );
    }
    Ok(())
}

pub fn follows_os() -> anyhow::Result<()> {
    follows("os")
}

pub fn follows_round_robin() -> anyhow::Result<()> {
    follows("round-robin")
}

pub fn follows_scatter() -> anyhow::Result<()> {
    follows("scatter")
}

pub fn follows_compact() -> anyhow::Result<()> {
    follows("compact")
}

pub fn follows_random() -> anyhow::Result<()> {
    follows("random")
}

pub fn follows_instruction() -> anyhow::Result<()> {
    follows("instruction")
}

pub fn follows_mix() -> anyhow::Result<()> {
    follows("mix")
}

/// A program without a profile is left unpinned while it is watched; then its threads are where
/// the plan of that moment has them.
pub fn watches_then_places() -> anyhow::Result<()> {
    let mut session = Session::start(&["--policy", "mix", "--watch-s", "1"], &TEAM)?;
    session.line()?;
    let Bonds { cpus, .. } = untouched()?;
    let free = |tasks: &[Task]| tasks.iter().all(|task| task.bonds.cpus == cpus);
    ensure!(free(&session.tasks()), "a task was placed before it was watched");
    let team =
        session.await_tasks("each thread to be on one PU", |tasks| tasks.iter().all(is_settled))?;
    let team = by_creation(team);
    let report = session.end()?;
    let plans = report["plans"].as_array().context("a report without plans")?;
    let last = &plans.last().context("no plan")?["plan"];
    let mut meant = Meant::by(last)?;
    team.iter().for_each(|task| meant.created(task.tid));
    for (order, task) in (0..).zip(&team) {
        let Some(place) = meant.named.get(&order) else { continue };
        ensure!(*place == task.only_pu(), "expected {place:?}, found {task:?}");
    }
    ensure!(meant.named.values().flatten().count() >= THREADS, "expected the team, found {last}");
    Ok(())
}

/// The plan that a run by `policy` begins with.
fn first_plan(policy: &str, program: &[&str]) -> anyhow::Result<Meant> {
    let words = [&["run", "--dry-run", "--json", "--policy", policy, "--"], program].concat();
    Meant::by(&serde_json::from_str(&printed(&words)?)?)
}

const FAMILY: [&str; 3] = ["lab-guest", "--program", "family"];

/// A family under `policy`, with its first thread placed.
fn family(policy: &str) -> anyhow::Result<(Session, Meant)> {
    let mut meant = first_plan(policy, &FAMILY)?;
    let session = Session::start(&["--settle-ms", "0", "--policy", policy], &FAMILY)?;
    let is_there = |tasks: &[Task]| tasks.len() == 1 && tasks[0].program == "lab-guest";
    let first = session.await_tasks("the first thread", is_there)?;
    meant.created(first[0].tid);
    Ok((session, meant))
}

/// Threads that are created one by one while the program runs, five more than there are PUs.
pub fn places_new_threads() -> anyhow::Result<()> {
    for policy in ["round-robin", "scatter", "compact", "random:seed=5"] {
        let (mut session, mut meant) = family(policy)?;
        let pus = list(&text("/sys/devices/system/cpu/online")?)?.len();
        for _ in 0..pus + 5 {
            meant.created(session.request("thread")?.parse()?);
        }
        let what = format!("{policy}: places {:?}", meant.places);
        session.await_tasks(&what, |tasks| meant.is_so(tasks, ""))?;
        let report = session.end()?;
        ensure!(
            report["threads_created"]["created"] == pus + 6,
            "expected {} threads created, found {report}",
            pus + 6
        );
    }
    Ok(())
}

/// Processes that are forked, with threads of their own, and processes that execute another program;
/// which creates processes is left unpinned.
pub fn places_forks_and_execs() -> anyhow::Result<()> {
    let Bonds { cpus, .. } = untouched()?;
    let (mut session, mut meant) = family("scatter")?;
    let first = *meant.places.keys().next().context("no first thread")?;
    meant.created(session.request("thread")?.parse()?);
    // Its PU is kept for it, as long as it has only forked.
    for _ in 0..2 {
        let answer = session.request("fork")?;
        let (pid, tid) = answer.split_once(' ').with_context(|| answer.clone())?;
        meant.created(pid.parse()?);
        meant.created(tid.parse()?);
    }
    meant.created(session.request("exec")?.parse()?);
    meant.exempt(first);
    // busybox, which is a static program.
    let shell: i32 = session.request("shell")?.parse()?;
    let child = |tasks: &[Task]| tasks.iter().map(|task| task.tid).find(|tid| *tid > shell);
    let tasks = session.await_tasks("the shell's child", |tasks| child(tasks).is_some())?;
    meant.created(shell);
    meant.created(child(&tasks).context("it has ended")?);
    meant.exempt(shell);
    let what = format!("places {:?}", meant.places);
    session.await_tasks(&what, |tasks| meant.is_so(tasks, &cpus))?;
    session.end()?;
    Ok(())
}

/// Threads of a program that is linked statically.
pub fn places_static_programs() -> anyhow::Result<()> {
    let program = ["threads-static", "0", "8"];
    let mut meant = first_plan("scatter", &program)?;
    let mut session = Session::start(&["--settle-ms", "0", "--policy", "scatter"], &program)?;
    session.line()?;
    let tasks = by_creation(session.tasks());
    tasks.iter().for_each(|task| meant.created(task.tid));
    // They wait for good and do not run any more, so their masks have to do.
    let there = |task: &Task| meant.places.get(&task.tid) == Some(&task.only_pu());
    session.await_tasks("places", |tasks| tasks.len() == 9 && tasks.iter().all(there))?;
    session.end()?;
    Ok(())
}

/// A shell that starts programs all the time may be on the PUs of its package, and what it starts on all.
pub fn a_shell_keeps_its_part() -> anyhow::Result<()> {
    let (mut plan, _) = planned("scatter")?;
    let decisions = plan["decisions"].as_array_mut().context("a plan without decisions")?;
    decisions.truncate(1);
    decisions[0]["task"]["order"] = 0.into();
    decisions[0]["sharing"] = "package".into();
    let pu = decisions[0]["pu"].as_u64().context("a decision without a PU")?;
    plan["default_placement"] = serde_json::json!({ "rule": "leave-to-kernel" });
    let part = text(format!("/sys/devices/system/cpu/cpu{pu}/topology/package_cpus_list"))?;
    let path = "/tmp/plan-shell.json";
    std::fs::write(path, plan.to_string())?;
    let free = untouched()?.cpus;
    let shell = ["sh", "-c", "while :; do sleep 0.3; done"];
    let session = Session::start(&["--plan", path], &shell)?;
    for moment in ["at first", "later", "at last"] {
        let what = format!("{moment} a shell on {part} and what it starts on {free}");
        session.await_tasks(&what, |tasks| {
            let (shells, started): (Vec<&Task>, Vec<&Task>) =
                tasks.iter().partition(|task| task.program == "sh");
            shells.iter().any(|shell| shell.bonds.cpus == part)
                && started.iter().any(|task| task.program == "sleep" && task.bonds.cpus == free)
        })?;
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

/// A plan that has tasks share a core or a package: they may run on its PUs. colocate is killed, and so is what would undo that:
/// each time all is as before in the end.
pub fn parts_are_given_and_restored() -> anyhow::Result<()> {
    let (mut plan, _) = planned("scatter")?;
    let mut meant: BTreeMap<usize, String> = BTreeMap::new();
    for decision in plan["decisions"].as_array_mut().context("a plan without decisions")? {
        let order = decision["task"]["order"].as_u64().context("a task without a number")?;
        let pu = decision["pu"].as_u64().context("a decision without a PU")?;
        let shared = if order % 2 == 0 { "core" } else { "package" };
        decision["sharing"] = shared.into();
        let file = format!("/sys/devices/system/cpu/cpu{pu}/topology/{shared}_cpus_list");
        meant.insert(usize::try_from(order)?, text(file)?);
    }
    let path = "/tmp/plan-parts.json";
    std::fs::write(path, plan.to_string())?;
    for both in [false, true] {
        let before = Before::now()?;
        let mut session = Session::start(&["--settle-ms", "0", "--plan", path], &TEAM[..4])?;
        session.line()?;
        let there = |tasks: &[Task]| {
            let team = by_creation(tasks.to_vec());
            let mut team = team.iter().enumerate();
            team.all(|(at, task)| meant.get(&at).is_none_or(|pus| *pus == task.bonds.cpus))
                && tasks.len() == THREADS + 1
        };
        session.await_tasks(&format!("places {meant:?}"), there)?;
        if both {
            super::schedule::kill_the_guardian(&session)?;
        }
        session.colocate.kill()?;
        session.await_end()?;
        if both {
            let done = colocate(&["restore"])?;
            let said = String::from_utf8_lossy(&done.stdout).into_owned();
            ensure!(done.status.success() && said.contains("PUs"), "restore: {said}");
        }
        before.is_back(&session)?;
    }
    Ok(())
}
