//! Cores of different speeds under `colocate schedule`: serial phases are seen and have fast cores, other threads are on other
//! cores, and nothing of that remains.
//!
//! On aarch64 the kernel says which cores are fast, on x86 a file that the case writes. Phases last until the case has
//! seen the phases, and where threads are it reads in `/proc`, while they run.

mod kinds;

pub use kinds::{are_measured, are_not_reported, are_the_device_trees};

use super::undo::Before;
use crate::evidence::{colocate, eventually, text};
use crate::groups::Offline;
use crate::session::{Session, picture, send};
use crate::tasks::{Task, untouched};
use anyhow::{Context as _, ensure};
use kinds::Kinds;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const PA: &str = "parallelism-aware";
/// The program whose phases a case says, in the background of a job that ends with its `sleep`, so that it outlives the
/// job, and signals to the job as well. Standard input is not a background's unless it has another number.
const TURNS: &[&str] = &[
    "sh",
    "-c",
    "exec 3<&0; (trap '' TERM; exec lab-guest --program phases turns 6 <&3) & exec sleep 100000",
];
/// Those of its threads that work in parallel phases.
const TEAM: &str = "1-2";

/// Time between two decisions. The guest's PUs are threads that the host lets wait, for 50 ms where it is busy, in which the
/// guest's kernel counts nothing, and afterwards what it has missed. So short quanta show phases that there are not.
const QUANTUM: &str = "300ms";
/// So often colocate must have been on a PU in a phase: it is once a quantum, and now and then beside that.
const WAKES: u64 = 7;
/// A phase lasts so long at least.
const PHASE: Duration = Duration::from_millis(2400);
/// Stretches of the report that are shorter come of quanta in the midst of which a phase changed, or in which the host let the
/// guest wait: 0.76 s at most, as measured.
const LONG_NS: u64 = 1_200_000_000;

/// `colocate schedule` and the named threads of the programs under it.
struct Programs {
    session: Session,
    kinds: Kinds,
    threads: BTreeMap<String, (i32, i32)>,
}

impl Programs {
    /// Starts these programs, and waits until so many threads of them have names.
    fn start(
        kinds: Kinds,
        policy: &str,
        programs: &[&[&str]],
        threads: usize,
    ) -> anyhow::Result<Self> {
        let mut options = vec!["--no-guard", "--quantum", QUANTUM, "--policy", policy];
        options.extend(kinds.options.iter().map(String::as_str));
        let session = Session::schedule_by(&[], &options, &programs.join(&":::"))?;
        let mut named = BTreeMap::new();
        session.await_tasks("all threads", |tasks| {
            named = tasks.iter().filter_map(called_after_program).collect();
            named.len() == threads
        })?;
        Ok(Self { session, kinds, threads: named })
    }

    /// The program whose phases the case says, and one that is parallel all the time, with a thread for every fast core.
    fn both(kinds: Kinds, policy: &str) -> anyhow::Result<Self> {
        let (threads, all) = (kinds.fast.to_string(), format!("0-{}", kinds.fast - 1));
        let crowd = ["lab-guest", "--program", "phases", "crowd", &threads, &all];
        let named = 6 + kinds.fast;
        Self::start(kinds, policy, &[TURNS, &crowd], named)
    }

    /// The same, the first program in a parallel phase.
    fn at_work(policy: &str) -> anyhow::Result<Self> {
        let mut programs = Self::both(Kinds::here()?, policy)?;
        programs.let_work(TEAM)?;
        Ok(programs)
    }

    /// Lets these threads of the first program compute, and no others.
    fn let_work(&mut self, names: &str) -> anyhow::Result<()> {
        let said = self.session.request(names)?;
        ensure!(said == names, "expected {names}, found {said}");
        Ok(())
    }

    /// Lets colocate watch the programs for many quanta.
    fn let_it_look(&self) -> anyhow::Result<()> {
        let pid = self.session.colocate.id();
        let wakes = || -> anyhow::Result<u64> {
            let sums = text(format!("/proc/{pid}/schedstat"))?;
            Ok(sums.split(' ').nth(2).context("schedstat has no third number")?.parse()?)
        };
        let (begun, at) = (wakes()?, Instant::now());
        eventually("wake-ups of colocate", || Ok(wakes()? > begun + WAKES && at.elapsed() > PHASE))
    }

    fn task(&self, name: &str) -> anyhow::Result<Task> {
        let &(pid, tid) = self.threads.get(name).with_context(|| format!("no thread {name}"))?;
        Task::read(pid, tid).with_context(|| format!("{name} has ended"))
    }

    /// All threads whose names begin so.
    fn called(&self, beginning: &str) -> anyhow::Result<Vec<Task>> {
        let names = self.threads.keys().filter(|name| name.starts_with(beginning));
        names.map(|name| self.task(name)).collect()
    }

    /// Waits until `so` holds for all threads whose names begin so.
    fn await_threads(
        &self,
        what: &str,
        beginning: &str,
        so: impl Fn(&[Task]) -> bool,
    ) -> anyhow::Result<Vec<Task>> {
        let mut last = Vec::new();
        let waited = eventually(what, || {
            last = self.called(beginning)?;
            Ok(so(&last))
        });
        waited.with_context(|| {
            format!("{}; colocate says: {}", picture(&last), self.session.said())
        })?;
        Ok(last)
    }

    /// Waits until a thread is on a fast core and may be nowhere else. Returns its PU.
    fn await_fast(&self, name: &str) -> anyhow::Result<u32> {
        let fast = |task: &Task| {
            task.is_placed() && task.only_pu().is_some_and(|pu| self.kinds.is_fast(pu))
        };
        let tasks = self.await_threads(&format!("{name} on a fast core"), name, |tasks| {
            tasks.iter().all(fast)
        })?;
        tasks.first().and_then(Task::only_pu).context("no such thread")
    }

    /// Waits until each thread of the parallel program is on a core of its own, other than that of PU `serial`. There is one more
    /// of them than other fast cores, so slow ones are used.
    fn await_others_off(&self, serial: u32) -> anyhow::Result<()> {
        let kinds = &self.kinds;
        let apart = |tasks: &[Task]| {
            let mut cores: BTreeSet<Option<usize>> =
                tasks.iter().map(|task| kinds.core_of(task.last_ran)).collect();
            cores.insert(kinds.core_of(serial));
            cores.len() == tasks.len() + 1
        };
        self.await_threads("cores for the parallel program", "crowd", apart).map(drop)
    }

    /// Waits until every thread may be where it could be before.
    fn await_free(&self) -> anyhow::Result<()> {
        let free = untouched()?.cpus;
        self.await_threads("all left to the kernel", "", |tasks| {
            tasks.iter().all(|task| task.bonds.cpus == free)
        })
        .map(drop)
    }

    /// Goes to a serial phase of this thread of the first program, and waits until it and all others are where they should
    /// be. Returns its PU.
    fn be_serial(&mut self, thread: u32) -> anyhow::Result<u32> {
        self.let_work(&thread.to_string())?;
        let pu = self.await_fast(&format!("turns-{thread}"))?;
        self.await_others_off(pu)?;
        Ok(pu)
    }

    /// Ends the jobs, so that colocate ends; what is left of the first goes on.
    fn end_jobs(&mut self) -> anyhow::Result<Value> {
        let tasks = self.session.tasks();
        let crowd = self.called("crowd")?.first().map(|task| task.pid);
        let firsts = tasks.iter().filter(|task| task.program == "sleep" || Some(task.pid) == crowd);
        let firsts: BTreeSet<String> = firsts.map(|task| task.pid.to_string()).collect();
        send("-TERM", &firsts.into_iter().collect::<Vec<String>>());
        self.session.end()
    }
}

/// A thread's name and numbers, if it was given a name by one of our programs.
fn called_after_program(task: &Task) -> Option<(String, (i32, i32))> {
    let name = text(format!("/proc/{}/task/{}/comm", task.pid, task.tid)).ok()?;
    let ours = name.contains('-') && !name.starts_with("lab-");
    ours.then_some((name, (task.pid, task.tid)))
}

/// How long a thread has been on a PU, in nanoseconds.
fn ran_ns(task: &Task) -> anyhow::Result<u64> {
    let sums = text(format!("/proc/{}/task/{}/schedstat", task.pid, task.tid))?;
    Ok(sums.split(' ').next().context("schedstat is empty")?.parse()?)
}

/// The phases of the report's first job that lasted, one after the other.
fn course(report: &Value) -> anyhow::Result<Vec<String>> {
    let stretches = report["jobs"][0]["phases"]["stretches"].as_array();
    let stretches = stretches.with_context(|| format!("expected phases, found {report:#}"))?;
    let length = |stretch: &Value| Some(stretch["to_ns"].as_u64()? - stretch["from_ns"].as_u64()?);
    let long = stretches.iter().filter(|stretch| length(stretch) >= Some(LONG_NS));
    let mut course: Vec<String> =
        long.filter_map(|stretch| Some(stretch["phase"].as_str()?.to_owned())).collect();
    course.dedup();
    Ok(course)
}

/// Serial phases, of one thread and of another one, have a fast core while a parallel program is on other ones; in between
/// everything is left to the kernel. The report has the phases as they were, and nothing remains.
pub fn phases_are_found() -> anyhow::Result<()> {
    let before = Before::now()?;
    let mut programs = Programs::at_work(PA)?;
    programs.let_it_look()?;
    programs.await_free()?;
    programs.be_serial(3)?;
    programs.let_it_look()?;
    programs.let_work(TEAM)?;
    programs.await_free()?;
    programs.let_it_look()?;
    programs.be_serial(0)?;
    programs.let_it_look()?;
    let report = programs.end_jobs()?;
    let found = course(&report)?;
    let phases = ["parallel", "serial", "parallel", "serial"];
    // Until it gets a line it sleeps.
    let begun = found.iter().position(|phase| phase == "parallel").unwrap_or(0);
    let stretches = &report["jobs"][0]["phases"];
    ensure!(found[begun..] == phases, "expected {phases:?}, found {found:?}: {stretches}");
    programs.session.await_end()?;
    ensure!(
        programs.called("turns")?.len() == 6,
        "expected the threads of the first program to live on"
    );
    before.is_back(&programs.session)
}

/// How colocate ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// By SIGTERM, which it passes on to the programs.
    Term,
    /// It is killed, and its guardian undoes.
    Killed,
    /// Its guardian is killed as well, and `colocate restore` undoes.
    BothKilled,
}

impl End {
    fn of(self, session: &mut Session) -> anyhow::Result<()> {
        match self {
            Self::Term => {
                send("-TERM", &[session.colocate.id().to_string()]);
                session.end()?;
            }
            Self::Killed => session.colocate.kill()?,
            Self::BothKilled => {
                super::schedule::kill_the_guardian(session)?;
                session.colocate.kill()?;
            }
        }
        session.await_end()?;
        if matches!(self, Self::BothKilled) {
            let restored = colocate(&["restore"])?;
            let said = String::from_utf8_lossy(&restored.stdout).into_owned();
            ensure!(restored.status.success(), "restore: {said}");
        }
        Ok(())
    }
}

/// With threads on fast and on slow cores, colocate ends in `ends` ways; nothing remains on those that live on.
fn undone(
    policy: &str,
    ends: &[End],
    placed: impl Fn(&mut Programs) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for &end in ends {
        let undone = || {
            let before = Before::now()?;
            let mut programs = Programs::at_work(policy)?;
            placed(&mut programs)?;
            end.of(&mut programs.session)?;
            ensure!(
                programs.called("turns")?.len() == 6,
                "expected the threads of the first program to live on"
            );
            before.is_back(&programs.session)
        };
        undone().with_context(|| format!("{policy}, {end:?}"))?;
    }
    Ok(())
}

/// A serial phase is on a fast core when colocate is killed.
pub fn undone_after_a_kill() -> anyhow::Result<()> {
    undone(PA, &[End::Killed], |programs| programs.be_serial(3).map(drop))
}

/// The same after SIGTERM, and where no process is left to undo.
pub fn undone_after_all_else() -> anyhow::Result<()> {
    undone(PA, &[End::Term, End::BothKilled], |programs| programs.be_serial(2).map(drop))
}

/// Every fast core has a thread, and two are left for slow ones.
pub fn all_fast_first_is_undone() -> anyhow::Result<()> {
    undone("all-fast-first", &[End::Term, End::Killed], |programs| {
        let kinds = &programs.kinds;
        // Two of the first program work, and a thread for each fast core of the second.
        let fast_first = |tasks: &[Task]| {
            let placed = tasks.iter().filter(|task| task.is_placed()).filter_map(Task::only_pu);
            let (fast, slow): (Vec<u32>, Vec<u32>) = placed.partition(|pu| kinds.is_fast(*pu));
            let cores: BTreeSet<Option<usize>> = fast.iter().map(|pu| kinds.core_of(*pu)).collect();
            cores.len() == kinds.fast && fast.len() == kinds.fast && slow.len() == 2
        };
        programs.await_threads("a thread on every fast core", "", fast_first).map(drop)
    })
}

/// `utility` puts the thread of a serial phase on a fast core.
pub fn utility_is_undone() -> anyhow::Result<()> {
    undone("utility", &[End::Term, End::Killed], |programs| {
        programs.let_it_look()?;
        programs.let_work("4")?;
        programs.await_fast("turns-4").map(drop)
    })
}

/// `efficiency` starts where instructions are not counted and no demands are known, reports what is missing, and places no
/// thread.
pub fn efficiency_is_undone() -> anyhow::Result<()> {
    undone("efficiency", &[End::Term, End::Killed], |programs| {
        programs.let_work("1")?;
        programs.let_it_look()?;
        programs.await_free()?;
        let said = programs.session.said();
        let missing =
            said.lines().filter(|line| line.contains("instructions are not counted")).count();
        ensure!(missing == 1, "expected one line that says what is missing, found {said}");
        Ok(())
    })
}

/// One serial program more than there are fast cores: each has one in turn.
pub fn fast_cores_are_shared() -> anyhow::Result<()> {
    let before = Before::now()?;
    let kinds = Kinds::here()?;
    let jobs = kinds.fast + 1;
    let names: Vec<String> = (0..jobs).map(|job| format!("one{job}")).collect();
    let programs: Vec<Vec<&str>> =
        names.iter().map(|name| vec!["lab-guest", "--program", "phases", name, "1", "0"]).collect();
    let programs: Vec<&[&str]> = programs.iter().map(Vec::as_slice).collect();
    let mut programs = Programs::start(kinds, PA, &programs, jobs)?;
    let mut had_fast = BTreeSet::new();
    let seen = eventually("every serial thread on a fast core", || {
        for name in programs.threads.keys() {
            if programs.task(name)?.only_pu().is_some_and(|pu| programs.kinds.is_fast(pu)) {
                had_fast.insert(name.clone());
            }
        }
        Ok(had_fast.len() == jobs)
    });
    seen.with_context(|| format!("{had_fast:?}"))?;
    End::Killed.of(&mut programs.session)?;
    ensure!(programs.called("one")?.len() == jobs, "expected all programs to live on");
    before.is_back(&programs.session)
}

/// With as many threads of a parallel program as there are cores, all are kept off the core of a serial phase, one or two on a core.
pub fn crowds_are_excluded() -> anyhow::Result<()> {
    let before = Before::now()?;
    let kinds = Kinds::here()?;
    let threads = kinds.cores().to_string();
    let all = format!("0-{}", kinds.cores() - 1);
    let crowd = ["lab-guest", "--program", "phases", "crowd", &threads, &all];
    let named = 6 + kinds.cores();
    let mut programs = Programs::start(kinds, PA, &[TURNS, &crowd], named)?;
    programs.let_work("3")?;
    let (kinds, serial_tid) = (&programs.kinds, programs.task("turns-3")?.tid);
    programs.await_threads("places", "", |tasks| {
        let (serial, others): (Vec<&Task>, Vec<&Task>) = tasks
            .iter()
            .filter(|task| task.only_pu().is_some())
            .partition(|task| task.tid == serial_tid);
        let core = serial.first().and_then(|task| kinds.core_of(task.only_pu()?));
        let on: BTreeSet<Option<usize>> =
            others.iter().map(|task| kinds.core_of(task.last_ran)).collect();
        serial.len() == 1
            && others.len() == kinds.cores()
            && on.len() == kinds.cores() - 1
            && !on.contains(&core)
    })?;
    End::Killed.of(&mut programs.session)?;
    before.is_back(&programs.session)
}

/// The fast core of a serial phase goes offline: its thread goes on and has another one, and a line says which PUs are left.
/// When the core is back that is said as well.
pub fn follow_a_fast_core_that_goes() -> anyhow::Result<()> {
    let before = Before::now()?;
    let all = text("/sys/devices/system/cpu/online")?;
    let mut programs = Programs::at_work(PA)?;
    programs.let_it_look()?;
    let pu = programs.be_serial(3)?;
    let core = programs.kinds.siblings(pu).context("no such core")?;
    let offline: anyhow::Result<Vec<Offline>> = core.iter().map(|pu| Offline::take(*pu)).collect();
    let offline = offline?;
    let rest = text("/sys/devices/system/cpu/online")?;
    let ran = ran_ns(&programs.task("turns-3")?)?;
    let now = programs.await_fast("turns-3")?;
    ensure!(!core.contains(&now), "expected another core than {core:?}, found PU {now}");
    eventually("the thread to go on", || Ok(ran_ns(&programs.task("turns-3")?)? > ran + LONG_NS))?;
    programs.await_others_off(now)?;
    let said = |programs: &Programs, usable: &str| {
        let line = format!("to {usable}; planned again");
        eventually(&line, || Ok(programs.session.said().contains(&line)))
    };
    said(&programs, &rest)?;
    drop(offline);
    said(&programs, &all)?;
    programs.await_fast("turns-3")?;
    programs.let_work(TEAM)?;
    programs.await_free()?;
    let report = programs.end_jobs()?;
    let notes = report["notes"].as_array().context("a report without notes")?;
    let changes = notes
        .iter()
        .filter(|note| note.as_str().is_some_and(|note| note.starts_with("usable PUs changed")));
    // PUs go and come one by one, and each step may be seen.
    let (found, steps) = (changes.count(), 2 * core.len());
    ensure!(
        (2..=steps).contains(&found),
        "expected 2 to {steps} lines of changes, found {notes:#?}"
    );
    programs.session.await_end()?;
    before.is_back(&programs.session)
}
