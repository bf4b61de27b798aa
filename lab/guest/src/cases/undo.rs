//! Surviving tasks have their original state after every way in which colocate or its programs end.
//!
//! The states before and after are read from the kernel: mask, memory nodes, control group, nice
//! value and scheduling policy of every surviving task, its memory policies, and the control groups
//! of the guest.

use crate::evidence::{colocate, eventually, text};
use crate::groups::{ControlGroup, Offline};
use crate::random::Random;
use crate::session::{ColocateSession, picture, send};
use crate::tasks::{Bonds, LiveTask, groups, memory_policies, untouched};
use anyhow::{Context as _, ensure};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command};
use std::time::Duration;

const FAMILY: [&str; 3] = ["lab-guest", "--program", "family"];
const AT_ONCE: [&str; 4] = ["--settle-ms", "0", "--policy", "scatter"];

/// State of an unchanged task and of the control groups, before colocate starts.
pub(super) struct Before {
    bonds: Bonds,
    groups: Vec<[String; 4]>,
}

impl Before {
    pub(super) fn now() -> anyhow::Result<Self> {
        // Journals that a failed case has left must not fail this case.
        for folder in JOURNALS {
            let _ = std::fs::remove_dir_all(folder);
        }
        Ok(Self { bonds: untouched()?, groups: groups()? })
    }

    /// Checks that colocate has ended, all survivors have their original state, and no group and no
    /// journal remains.
    pub(super) fn is_back(&self, session: &ColocateSession) -> anyhow::Result<()> {
        let (left, tasks): (Vec<_>, Vec<_>) =
            session.all().into_iter().partition(LiveTask::is_colocate);
        ensure!(left.is_empty(), "expected no process of colocate's, found {}", picture(&left));
        ensure!(!tasks.is_empty(), "expected survivors, found none");
        for task in &tasks {
            ensure!(task.bonds == self.bonds, "expected {:?}, found {task:?}", self.bonds);
        }
        for pid in tasks.iter().map(|task| task.pid).collect::<BTreeSet<_>>() {
            let mut policies = memory_policies(pid)?;
            // numa_maps shows `default` for a mapping without a policy.
            policies.remove("default");
            ensure!(
                policies.is_empty(),
                "process {pid}: expected no memory policy, found {policies:?}"
            );
        }
        self.left_nothing()
    }

    /// Checks that no control group and no journal remains.
    pub(super) fn left_nothing(&self) -> anyhow::Result<()> {
        let groups = groups()?;
        ensure!(groups == self.groups, "expected {:?}, found {groups:?}", self.groups);
        no_journal()
    }

    /// True for a task with another mask than before.
    fn is_bound(&self, task: &LiveTask) -> bool {
        task.bonds.cpus != self.bonds.cpus
    }
}

/// Folders of root's journals and of user 1000's journals.
const JOURNALS: [&str; 2] = ["/run/colocate", "/tmp/colocate-1000"];

fn no_journal() -> anyhow::Result<()> {
    for folder in JOURNALS {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let left: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        ensure!(left.is_empty(), "expected no journal in {folder}, found {left:?}");
    }
    Ok(())
}

/// True if exactly `placed` tasks are placed. Tasks whose processes execute programs are left unpinned.
fn placed(tasks: &[LiveTask], placed: usize) -> bool {
    tasks.iter().filter(|task| task.is_placed()).count() == placed
}

/// The program `family` with seven tasks: two threads, two processes of two threads, and a process
/// that has executed another program. All but the main thread, which starts a program, are placed.
fn family(wrapper: &[String]) -> anyhow::Result<ColocateSession> {
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let mut session = ColocateSession::start_by(&wrapper, &AT_ONCE, &FAMILY)?;
    for word in ["thread", "fork", "fork", "exec"] {
        session.request(word)?;
    }
    session.await_tasks("places", |tasks| tasks.len() == 7 && placed(tasks, 6))?;
    Ok(session)
}

/// Kills the first program of a session, the parent of all other tasks.
fn kill_the_program(session: &ColocateSession) -> anyhow::Result<()> {
    // IDs grow with creation.
    let first = session.tasks().into_iter().map(|task| task.pid).min().context("no program")?;
    send("-KILL", &[first.to_string()]);
    Ok(())
}

/// The program ends; its child processes live on and are restored.
pub fn after_the_end() -> anyhow::Result<()> {
    let before = Before::now()?;
    let mut session = family(&[])?;
    let report = session.end()?;
    ensure!(report["jobs"][0]["status"] == 0, "found {report:#}");
    before.is_back(&session)
}

/// The program is killed. With two programs, one is killed while colocate continues with the other.
pub fn after_the_programs_are_killed() -> anyhow::Result<()> {
    let before = Before::now()?;
    let mut session = family(&[])?;
    kill_the_program(&session)?;
    let report = session.end()?;
    ensure!(report["jobs"][0]["status"] == 137, "found {report:#}");
    before.is_back(&session)?;
    drop(session);

    let programs = [&FAMILY[..], &[":::", "sleep", "1000"]].concat();
    let mut session = ColocateSession::start(&AT_ONCE, &programs)?;
    session.request("fork")?;
    session.await_tasks("places", |tasks| tasks.len() == 4 && placed(tasks, 4))?;
    let tasks = session.tasks();
    let sleep = tasks.iter().find(|task| task.program == "sleep").context("no sleep")?;
    send("-KILL", &[sleep.pid.to_string()]);
    session.await_tasks("one program to be left", |tasks| tasks.len() == 3 && placed(tasks, 3))?;
    let report = session.end()?;
    ensure!(report["jobs"][1]["status"] == 137, "found {report:#}");
    before.is_back(&session)
}

/// colocate gets a termination signal, passes the signal on, waits for the program, and restores.
pub fn after_sigterm() -> anyhow::Result<()> {
    for (signal, number) in [("-TERM", 15), ("-INT", 2), ("-HUP", 1)] {
        let before = Before::now()?;
        let mut session = family(&[])?;
        send(signal, &[session.colocate.id().to_string()]);
        let status = session.colocate.wait()?;
        // The program's status, as shells report an end by a signal.
        ensure!(status.code() == Some(128 + number), "{signal}: found {status}");
        before.is_back(&session)?;
    }
    Ok(())
}

/// Longest time from colocate's start to its kill: some starts take as long.
const LONGEST: Duration = Duration::from_millis(400);

/// colocate is killed at random instants while its program creates threads and processes.
fn after_kills(rounds: u32, seed: u64) -> anyhow::Result<()> {
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let wait = kill_after(&mut random);
        let outcome = after_kill(&mut random, wait);
        outcome.with_context(|| format!("round {round}, killed after {wait:?}"))?;
    }
    Ok(())
}

/// A random time before the kill: with `false` from colocate's start on, with `true` (two of three
/// draws) from the program's first line on.
fn kill_after(random: &mut Random) -> (bool, Duration) {
    let longest = u64::try_from(LONGEST.as_micros()).unwrap_or(u64::MAX);
    (random.below(3) > 0, Duration::from_micros(random.below(longest)))
}

/// The program `storm` under a random policy and one of the wrappers `by`.
///
/// An unprivileged user gets no thread-creation events, so colocate scans `/proc` for new threads.
fn storm(random: &mut Random, by: &[&[&str]]) -> anyhow::Result<ColocateSession> {
    let policy = random.pick(&["scatter", "compact", "round-robin", "random:seed=9"]);
    let settle = random.pick(&["0", "20"]);
    let seed = random.next().to_string();
    let options = ["--policy", policy, "--settle-ms", settle];
    ColocateSession::start_by(
        random.pick(by),
        &options,
        &["lab-guest", "--program", "storm", &seed],
    )
}

const ROOT: &[&str] = &[];
const USER: &[&str] = &["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"];

fn after_kill(random: &mut Random, (running, wait): (bool, Duration)) -> anyhow::Result<()> {
    let before = Before::now()?;
    let mut session = storm(random, &[ROOT, ROOT, USER])?;
    if running {
        session.line()?;
    }
    std::thread::sleep(wait);
    session.colocate.kill()?;
    let status = session.colocate.wait()?;
    ensure!(status.signal() == Some(9), "expected colocate killed, found {status}");
    session.await_end()?;
    if session.tasks().is_empty() {
        // Killed before the programs' exec.
        ensure!(!running, "expected the storm to go on");
        // Killed before the guardian's start, colocate leaves an empty journal.
        let done = colocate(&["restore"])?;
        ensure!(done.status.success(), "restore: {}", String::from_utf8_lossy(&done.stdout));
        return Ok(());
    }
    before.is_back(&session)
}

pub fn after_2_kills(seed: u64) -> anyhow::Result<()> {
    after_kills(2, seed)
}

pub fn after_200_kills(seed: u64) -> anyhow::Result<()> {
    after_kills(200, seed)
}

pub fn after_5000_kills(seed: u64) -> anyhow::Result<()> {
    after_kills(5000, seed)
}

/// Guardian and colocate are both killed, at random instants; `colocate restore` restores.
fn restored(rounds: u32, seed: u64) -> anyhow::Result<()> {
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let wait = Duration::from_millis(random.below(300));
        let outcome = restored_after(&mut random, wait);
        outcome.with_context(|| format!("round {round}, killed after {wait:?}"))?;
    }
    Ok(())
}

fn restored_after(random: &mut Random, wait: Duration) -> anyhow::Result<()> {
    let before = Before::now()?;
    let mut session = storm(random, &[ROOT])?;
    session.line()?;
    session.await_tasks("a place", |tasks| tasks.iter().any(|task| before.is_bound(task)))?;
    std::thread::sleep(wait);
    let guardian = session.own().into_iter().find(|task| task.program == "colocate-guard");
    send("-KILL", &[guardian.context("no guardian")?.pid.to_string()]);
    session.colocate.kill()?;
    session.await_end()?;
    ensure!(
        session.tasks().iter().any(|task| before.is_bound(task)),
        "expected places to remain without a guardian"
    );
    let done = colocate(&["restore"])?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    ensure!(
        done.status.success() && said.contains("was given"),
        "restore: {}: {said}",
        done.status
    );
    before.is_back(&session)?;
    // The journal is gone, so a second call finds nothing.
    let done = colocate(&["restore"])?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    ensure!(said.starts_with("nothing to undo"), "expected nothing to undo, found {said}");
    Ok(())
}

pub fn restored_2_times(seed: u64) -> anyhow::Result<()> {
    restored(2, seed)
}

pub fn restored_50_times(seed: u64) -> anyhow::Result<()> {
    restored(50, seed)
}

/// A restored mask does not bind a task later: when the cpuset changes, survivors get the same mask
/// as a task that was never pinned.
pub fn follows_a_cpuset_that_grows() -> anyhow::Result<()> {
    let group = ControlGroup::new("grows", &[("cpuset.cpus", "0-7")])?;
    let wrapper = group.wrapper();
    let words: Vec<&str> = wrapper.iter().map(String::as_str).chain(["sleep", "1000"]).collect();
    let untouched = bystander(&words)?;
    for end in [Termination::Normal, Termination::Killed] {
        group.set("cpuset.cpus", "0-7")?;
        let mut session = family(&group.wrapper())?;
        end.of(&mut session)?;
        for cpuset in ["0-7", "2-13", "0-15"] {
            group.set("cpuset.cpus", cpuset)?;
            are(&session, &untouched.mask()?).with_context(|| format!("{end:?}, {cpuset}"))?;
        }
    }
    Ok(())
}

/// Survivors may use a PU that was offline at colocate's start and came online later.
///
/// Linux before 6.2 drops offline PUs from a requested mask. The expected mask is therefore that of
/// a task that has requested all possible PUs.
pub fn follows_a_pu_that_comes() -> anyhow::Result<()> {
    for end in [Termination::Normal, Termination::Killed] {
        let offline = Offline::take(5)?;
        let all = text("/sys/devices/system/cpu/possible")?;
        let requests = bystander(&["taskset", "-c", &all, "sleep", "1000"])?;
        let mut session = family(&[])?;
        end.of(&mut session)?;
        drop(offline);
        are(&session, &requests.mask()?).with_context(|| format!("{end:?}"))?;
    }
    Ok(())
}

/// Way in which colocate ends.
#[derive(Clone, Copy, Debug)]
enum Termination {
    Normal,
    Killed,
}

impl Termination {
    fn of(self, session: &mut ColocateSession) -> anyhow::Result<()> {
        match self {
            Self::Normal => session.end().map(drop),
            Self::Killed => {
                session.colocate.kill()?;
                session.await_end()
            }
        }
    }
}

/// Checks that every survivor's mask is `mask`.
fn are(session: &ColocateSession, mask: &str) -> anyhow::Result<()> {
    let tasks = session.tasks();
    ensure!(!tasks.is_empty(), "expected survivors, found none");
    for task in tasks {
        ensure!(task.bonds.cpus == mask, "expected {mask}, found {task:?}");
    }
    Ok(())
}

/// A program outside of colocate; killed on drop.
struct Bystander(Child);

/// Starts a command that executes `sleep`, and waits for the exec.
fn bystander(words: &[&str]) -> anyhow::Result<Bystander> {
    let child = Command::new(words[0]).args(&words[1..]).spawn().context("cannot start it")?;
    let bystander = Bystander(child);
    let name = format!("/proc/{}/comm", bystander.0.id());
    eventually("a bystander", || Ok(text(&name)? == "sleep"))?;
    Ok(bystander)
}

impl Bystander {
    /// Allowed PUs, as a list of the kernel.
    fn mask(&self) -> anyhow::Result<String> {
        let pid = self.0.id().cast_signed();
        Ok(LiveTask::read(pid, pid).context("it has ended")?.bonds.cpus)
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // Errors are ignored: the process may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
