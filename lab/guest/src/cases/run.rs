//! Each thread ends on the PU of its plan: threads of all origins, and plans of all policies.

use super::undo::Before;
use crate::evidence::{colocate, list, online, printed, text};
use crate::session::ColocateSession;
use crate::tasks::{Bonds, LiveTask, untouched};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Expected PUs of the tasks of job 0, computed from a plan without colocate's code.
///
/// A task named in the plan goes to the PU of its decision, each other task to the PU with the
/// fewest tasks.
pub(super) struct Meant {
    /// PU by order of creation, for the tasks named in the plan. `None`: left to the kernel.
    named: BTreeMap<u64, Option<u32>>,
    /// PUs for other tasks, in the order in which they are filled.
    order: Vec<u32>,
    /// Number of tasks created so far.
    created: u64,
    /// Expected PU by thread ID.
    places: BTreeMap<i32, Option<u32>>,
}

fn pu(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|pu| u32::try_from(pu).ok())
}

impl Meant {
    pub(super) fn by(plan: &Value) -> anyhow::Result<Self> {
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

    /// Restricts the plan to PUs: tasks of other PUs are left to the kernel.
    pub(super) fn within(mut self, pus: &[u32]) -> Self {
        for place in self.named.values_mut() {
            *place = place.filter(|pu| pus.contains(pu));
        }
        self.order.retain(|pu| pus.contains(pu));
        self
    }

    /// Adds the next created task.
    pub(super) fn created(&mut self, tid: i32) {
        let named = self.named.get(&self.created).copied();
        let place = named.unwrap_or_else(|| self.least_loaded());
        self.places.insert(tid, place);
        self.created += 1;
    }

    /// The first PU with the fewest tasks.
    fn least_loaded(&self) -> Option<u32> {
        self.order
            .iter()
            .copied()
            .min_by_key(|pu| self.places.values().filter(|place| **place == Some(*pu)).count())
    }

    /// Marks a task that creates processes: colocate leaves such a task unpinned, since its
    /// children would inherit a mask of one PU.
    fn exempt(&mut self, tid: i32) {
        self.places.insert(tid, None);
    }

    /// Number of tasks left to the kernel.
    pub(super) fn left_to_kernel(&self) -> usize {
        self.places.values().filter(|place| place.is_none()).count()
    }

    /// True if `tasks` are exactly the expected tasks, each pinned to its PU and last seen there,
    /// or with the mask `free` if left to the kernel.
    pub(super) fn is_so(&self, tasks: &[LiveTask], free: &str) -> bool {
        tasks.len() == self.places.len()
            && tasks.iter().all(|task| match self.places.get(&task.tid) {
                Some(Some(pu)) => task.is_placed() && task.only_pu() == Some(*pu),
                Some(None) => task.bonds.cpus == free,
                None => false,
            })
    }
}

/// Tasks sorted by creation.
pub(super) fn by_creation(mut tasks: Vec<LiveTask>) -> Vec<LiveTask> {
    // Thread IDs grow: a guest creates too few tasks for the IDs to wrap around.
    tasks.sort_by_key(|task| task.tid);
    tasks
}

/// True for a task of the team that is pinned to one PU and, unless it is the sleeping main thread,
/// runs there: a sleeping task migrates only at its next wake-up.
pub(super) fn is_settled(task: &LiveTask) -> bool {
    task.is_placed() || task.only_pu().is_some() && task.tid == task.pid
}

/// Threads of the team, without the main thread.
pub(super) const THREADS: usize = 6;
/// Command of the team, the program of most plans: [`THREADS`] threads for 1.5 s.
pub(super) const TEAM: [&str; 5] = ["lab-guest", "--program", "team", "6", "1500"];

/// Path of a profile of the team, made once per boot.
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

/// The plan of `policy` for the team, and the path of its file.
pub(super) fn planned(policy: &str) -> anyhow::Result<(Value, String)> {
    let path = format!("/tmp/plan-{policy}.json");
    let plan = printed(&["plan", "--json", "--policy", policy, "--profile", profile()?])?;
    std::fs::write(&path, &plan)?;
    Ok((serde_json::from_str(&plan)?, path))
}

/// Least life of a thread in a report: colocate samples a new thread first after 100 ms.
const SEEN: Duration = Duration::from_millis(300);

/// Runs the team by a plan, and checks that each thread is on the PU of the plan.
fn follows(policy: &str) -> anyhow::Result<()> {
    let Bonds { cpus, .. } = untouched()?;
    let (plan, path) = planned(policy)?;
    let mut session = ColocateSession::start(&["--settle-ms", "0", "--plan", &path], &TEAM[..4])?;
    session.line()?;
    let team = by_creation(session.await_tasks("the team", |tasks| tasks.len() == THREADS + 1)?);
    let mut meant = Meant::by(&plan)?;
    team.iter().for_each(|task| meant.created(task.tid));
    let what = format!("places {:?}", meant.places);
    let team = by_creation(session.await_tasks(&what, |tasks| meant.is_so(tasks, &cpus))?);
    let named = meant.named.values().flatten().count();
    ensure!(policy == "os" || named >= THREADS, "expected places for the team, found {plan}");
    // A thread that ends earlier has no mask in the report.
    std::thread::sleep(SEEN);
    is_reported(&session.end()?, &team)
}

/// Checks that the report has the observed mask of each task.
pub(super) fn is_reported(report: &Value, seen: &[LiveTask]) -> anyhow::Result<()> {
    let tasks = report["tasks"].as_array().context("a report without tasks")?;
    ensure!(tasks.len() == seen.len(), "expected {} tasks, found {report:#}", seen.len());
    // A mask of all PUs can include numbers beyond the possible PUs.
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

/// A program without a profile is unpinned while colocate watches; then each thread is on the PU of
/// the plan made from this observation.
pub fn watches_then_places() -> anyhow::Result<()> {
    let mut session = ColocateSession::start(&["--policy", "mix", "--watch-s", "1"], &TEAM)?;
    session.line()?;
    let Bonds { cpus, .. } = untouched()?;
    let is_free = session.tasks().iter().all(|task| task.bonds.cpus == cpus);
    ensure!(is_free, "a task was placed before it was watched");
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

/// The first plan of a run by `policy`.
fn first_plan(policy: &str, program: &[&str]) -> anyhow::Result<Meant> {
    let words = [&["run", "--dry-run", "--json", "--policy", policy, "--"], program].concat();
    Meant::by(&serde_json::from_str(&printed(&words)?)?)
}

const FAMILY: [&str; 3] = ["lab-guest", "--program", "family"];

/// The program `family` under `policy`, with a placed main thread.
fn family(policy: &str) -> anyhow::Result<(ColocateSession, Meant)> {
    let mut meant = first_plan(policy, &FAMILY)?;
    let session = ColocateSession::start(&["--settle-ms", "0", "--policy", policy], &FAMILY)?;
    let first = session.await_tasks("the first thread", |tasks| {
        tasks.len() == 1 && tasks[0].program == "lab-guest"
    })?;
    meant.created(first[0].tid);
    Ok((session, meant))
}

/// Threads created one by one, five more than PUs, are placed in the order of the policy.
pub fn places_new_threads() -> anyhow::Result<()> {
    for policy in ["round-robin", "scatter", "compact", "random:seed=5"] {
        let (mut session, mut meant) = family(policy)?;
        let pus = online()?.len();
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

/// Forked processes with threads, and processes that execute another program, are placed. Tasks
/// that create processes are unpinned.
pub fn places_forks_and_execs() -> anyhow::Result<()> {
    let Bonds { cpus, .. } = untouched()?;
    let (mut session, mut meant) = family("scatter")?;
    let first = *meant.places.keys().next().context("no first thread")?;
    meant.created(session.request("thread")?.parse()?);
    // A task that has only forked keeps its PU, and counts for the load of the PU.
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
    let tasks = session
        .await_tasks("the shell's child", |tasks| tasks.iter().any(|task| task.tid > shell))?;
    let child = tasks.iter().find(|task| task.tid > shell);
    meant.created(shell);
    meant.created(child.context("it has ended")?.tid);
    meant.exempt(shell);
    let what = format!("places {:?}", meant.places);
    session.await_tasks(&what, |tasks| meant.is_so(tasks, &cpus))?;
    session.end()?;
    Ok(())
}

/// Threads of a statically linked program are placed.
pub fn places_static_programs() -> anyhow::Result<()> {
    let program = ["threads-static", "0", "8"];
    let mut meant = first_plan("scatter", &program)?;
    let mut session =
        ColocateSession::start(&["--settle-ms", "0", "--policy", "scatter"], &program)?;
    session.line()?;
    let tasks = by_creation(session.tasks());
    tasks.iter().for_each(|task| meant.created(task.tid));
    session.await_tasks("places", |tasks| {
        // The threads sleep for ever and do not migrate, so only masks are compared.
        tasks.len() == 9
            && tasks.iter().all(|task| meant.places.get(&task.tid) == Some(&task.only_pu()))
    })?;
    session.end()?;
    Ok(())
}

/// A shell that starts programs in a loop is confined to its package; its children may use all PUs.
pub fn a_shell_keeps_its_part() -> anyhow::Result<()> {
    let (mut plan, _) = planned("scatter")?;
    let decisions = plan["decisions"].as_array_mut().context("a plan without decisions")?;
    // A plan of one decision: the shell, task 0, shares the package of its PU.
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
    let session = ColocateSession::start(&["--plan", path], &shell)?;
    for moment in ["at first", "later", "at last"] {
        let what = format!("{moment} a shell on {part} and what it starts on {free}");
        session.await_tasks(&what, |tasks| {
            let (shells, started): (Vec<&LiveTask>, Vec<&LiveTask>) =
                tasks.iter().partition(|task| task.program == "sh");
            shells.iter().any(|shell| shell.bonds.cpus == part)
                && started.iter().any(|task| task.program == "sleep" && task.bonds.cpus == free)
        })?;
        // Time for several new programs of the shell.
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

/// Tasks of a plan that shares cores and packages may run on the PUs of their core or package. All
/// is restored after colocate is killed, and after its guardian is killed too.
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
        let mut session =
            ColocateSession::start(&["--settle-ms", "0", "--plan", path], &TEAM[..4])?;
        session.line()?;
        session.await_tasks(&format!("places {meant:?}"), |tasks| {
            let team = by_creation(tasks.to_vec());
            let mut team = team.iter().enumerate();
            team.all(|(at, task)| meant.get(&at).is_none_or(|pus| *pus == task.bonds.cpus))
                && tasks.len() == THREADS + 1
        })?;
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
