//! Cores of different speeds under `colocate schedule`: serial phases are detected and run on fast
//! cores, other threads run on other cores, and all is restored at the end.
//!
//! Kinds of cores come from the kernel on aarch64, and from an invented measurement on x86. The case
//! sets the phases, and reads the threads' masks and PUs in `/proc` while the threads run.

mod kinds;

pub use kinds::{are_measured, are_not_reported, are_the_device_trees};

use super::undo::Before;
use crate::evidence::{colocate, eventually, text};
use crate::groups::Offline;
use crate::session::{ColocateSession, picture, send};
use crate::tasks::{LiveTask, untouched};
use anyhow::{Context as _, ensure};
use kinds::Kinds;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const PA: &str = "parallelism-aware";
/// Job with the program `phases`, whose phases a case sets.
///
/// The program runs in the background of a shell that becomes `sleep`, and so outlives the job and
/// its signals. A shell gives no standard input to a background program, hence descriptor 3.
const TURNS: &[&str] = &[
    "sh",
    "-c",
    "exec 3<&0; (trap '' TERM; exec lab-guest --program phases turns 6 <&3) & exec sleep 100000",
];
/// Threads of [`TURNS`] that compute in parallel phases.
const TEAM: &str = "1-2";

/// Time between two decisions.
///
/// The guest's PUs are threads of the host, and a busy host delays a thread by up to 50 ms. The
/// guest's kernel counts no CPU time meanwhile, and the missing time later. Short quanta would
/// therefore show phases that do not exist.
const QUANTUM: &str = "300ms";
/// Least number of colocate's runs in a phase: one run per quantum, and a few others.
const WAKES: u64 = 7;
/// Least time of a phase.
const PHASE: Duration = Duration::from_millis(2400);
/// Shorter stretches of a report are ignored, in ns. They come from quanta in which the phase
/// changed or the host delayed the guest; measured: 0.76 s at most.
const LONG_NS: u64 = 1_200_000_000;

/// `colocate schedule` and the named threads of its programs.
struct Programs {
    session: ColocateSession,
    kinds: Kinds,
    /// Process and thread ID, by thread name.
    threads: BTreeMap<String, (i32, i32)>,
}

impl Programs {
    /// Starts programs, and waits for `threads` named threads.
    fn start(
        kinds: Kinds,
        policy: &str,
        programs: &[&[&str]],
        threads: usize,
    ) -> anyhow::Result<Self> {
        let options = ["--no-guard", "--quantum", QUANTUM, "--policy", policy];
        let wrapper: Vec<&str> = kinds.wrapper.iter().map(String::as_str).collect();
        let session = ColocateSession::schedule_by(&wrapper, &options, &programs.join(&":::"))?;
        let mut named = BTreeMap::new();
        session.await_tasks("all threads", |tasks| {
            named = tasks.iter().filter_map(called_after_program).collect();
            named.len() == threads
        })?;
        Ok(Self { session, kinds, threads: named })
    }

    /// Starts [`TURNS`], and a program in a parallel phase with one thread per fast core.
    fn both(kinds: Kinds, policy: &str) -> anyhow::Result<Self> {
        let threads = kinds.fast.to_string();
        let all = format!("0-{}", kinds.fast - 1);
        let crowd = ["lab-guest", "--program", "phases", "crowd", &threads, &all];
        let named = 6 + kinds.fast;
        Self::start(kinds, policy, &[TURNS, &crowd], named)
    }

    /// Starts both programs, with [`TURNS`] in a parallel phase.
    fn at_work(policy: &str) -> anyhow::Result<Self> {
        let mut programs = Self::both(Kinds::here()?, policy)?;
        programs.let_work(TEAM)?;
        Ok(programs)
    }

    /// Lets exactly the listed threads of [`TURNS`] compute.
    fn let_work(&mut self, names: &str) -> anyhow::Result<()> {
        let said = self.session.request(names)?;
        ensure!(said == names, "expected {names}, found {said}");
        Ok(())
    }

    /// Waits until colocate has sampled the programs for several quanta.
    fn let_it_look(&self) -> anyhow::Result<()> {
        let pid = self.session.colocate.id();
        let begun = runs(pid)?;
        let at = Instant::now();
        eventually(
            "wake-ups of colocate",
            || Ok(runs(pid)? > begun + WAKES && at.elapsed() > PHASE),
        )
    }

    fn task(&self, name: &str) -> anyhow::Result<LiveTask> {
        let &(pid, tid) = self.threads.get(name).with_context(|| format!("no thread {name}"))?;
        LiveTask::read(pid, tid).with_context(|| format!("{name} has ended"))
    }

    /// All threads with a common beginning of their names.
    fn called(&self, beginning: &str) -> anyhow::Result<Vec<LiveTask>> {
        let names = self.threads.keys().filter(|name| name.starts_with(beginning));
        names.map(|name| self.task(name)).collect()
    }

    /// Waits until `so` holds for all threads with a common beginning of their names.
    fn await_threads(
        &self,
        what: &str,
        beginning: &str,
        so: impl Fn(&[LiveTask]) -> bool,
    ) -> anyhow::Result<Vec<LiveTask>> {
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

    /// Waits until a thread is pinned to a fast core and runs there. Returns its PU.
    fn await_fast(&self, name: &str) -> anyhow::Result<u32> {
        let tasks = self.await_threads(&format!("{name} on a fast core"), name, |tasks| {
            let mut pus = tasks.iter().map(|task| task.only_pu().filter(|_| task.is_placed()));
            pus.all(|pu| pu.is_some_and(|pu| self.kinds.is_fast(pu)))
        })?;
        tasks.first().and_then(LiveTask::only_pu).context("no such thread")
    }

    /// Waits until each thread of the parallel program has a core of its own, other than that of PU
    /// `serial`. The program has one thread more than other fast cores, so it also uses slow cores.
    fn await_others_off(&self, serial: u32) -> anyhow::Result<()> {
        let kinds = &self.kinds;
        self.await_threads("cores for the parallel program", "crowd", |tasks| {
            let mut cores: BTreeSet<Option<usize>> =
                tasks.iter().map(|task| kinds.core_of(task.last_ran)).collect();
            cores.insert(kinds.core_of(serial));
            cores.len() == tasks.len() + 1
        })?;
        Ok(())
    }

    /// Waits until every thread has its original mask.
    fn await_free(&self) -> anyhow::Result<()> {
        let free = untouched()?.cpus;
        self.await_threads("all left to the kernel", "", |tasks| {
            tasks.iter().all(|task| task.bonds.cpus == free)
        })
        .map(drop)
    }

    /// Starts a serial phase of a thread of [`TURNS`], and waits until all threads are placed.
    /// Returns the thread's PU.
    fn be_serial(&mut self, thread: u32) -> anyhow::Result<u32> {
        self.let_work(&thread.to_string())?;
        let pu = self.await_fast(&format!("turns-{thread}"))?;
        self.await_others_off(pu)?;
        Ok(pu)
    }

    /// Waits for colocate's message about a change of the usable PUs to `usable`.
    fn await_said(&self, usable: &str) -> anyhow::Result<()> {
        let line = format!("to {usable}; planned again");
        eventually(&line, || Ok(self.session.said().contains(&line)))
    }

    /// Ends the jobs, and so colocate; the background program of [`TURNS`] lives on.
    fn end_jobs(&mut self) -> anyhow::Result<Value> {
        let tasks = self.session.tasks();
        // The job of TURNS is its `sleep`; the parallel program is a job of its own.
        let crowd = self.called("crowd")?.first().map(|task| task.pid);
        let firsts = tasks.iter().filter(|task| task.program == "sleep" || Some(task.pid) == crowd);
        let firsts: BTreeSet<String> = firsts.map(|task| task.pid.to_string()).collect();
        send("-TERM", &firsts.into_iter().collect::<Vec<String>>());
        self.session.end()
    }
}

/// Number of times that a process's main thread has run on a PU.
fn runs(pid: u32) -> anyhow::Result<u64> {
    let sums = text(format!("/proc/{pid}/schedstat"))?;
    Ok(sums.split(' ').nth(2).context("schedstat has no third number")?.parse()?)
}

/// Name and IDs of a thread that `phases` has named, as NAME-NUMBER.
fn called_after_program(task: &LiveTask) -> Option<(String, (i32, i32))> {
    let name = text(format!("/proc/{}/task/{}/comm", task.pid, task.tid)).ok()?;
    // A thread without a name of its own has that of its program, lab-guest.
    let ours = name.contains('-') && !name.starts_with("lab-");
    ours.then_some((name, (task.pid, task.tid)))
}

/// CPU time of a thread, in ns.
fn ran_ns(task: &LiveTask) -> anyhow::Result<u64> {
    let sums = text(format!("/proc/{}/task/{}/schedstat", task.pid, task.tid))?;
    Ok(sums.split(' ').next().context("schedstat is empty")?.parse()?)
}

/// Time of a stretch of a report, in ns.
fn length_ns(stretch: &Value) -> Option<u64> {
    Some(stretch["to_ns"].as_u64()? - stretch["from_ns"].as_u64()?)
}

/// Sequence of phases of the report's first job, without stretches below [`LONG_NS`].
fn course(report: &Value) -> anyhow::Result<Vec<String>> {
    let stretches = report["jobs"][0]["phases"]["stretches"].as_array();
    let stretches = stretches.with_context(|| format!("expected phases, found {report:#}"))?;
    let long = stretches.iter().filter(|stretch| length_ns(stretch) >= Some(LONG_NS));
    let mut course: Vec<String> =
        long.filter_map(|stretch| Some(stretch["phase"].as_str()?.to_owned())).collect();
    // Ignored stretches leave equal neighbours.
    course.dedup();
    Ok(course)
}

/// The serial phases of two threads run on a fast core while a parallel program is on other cores;
/// in parallel phases no thread is pinned. The report has the true phases, and all is restored.
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
    // The program sleeps before its first line, so the report can begin with another phase.
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

/// Way in which colocate ends.
#[derive(Clone, Copy, Debug)]
enum Termination {
    /// SIGTERM, which colocate passes on to the programs.
    Term,
    /// colocate is killed, and its guardian restores.
    Killed,
    /// colocate and its guardian are killed, and `colocate restore` restores.
    BothKilled,
}

impl Termination {
    fn of(self, session: &mut ColocateSession) -> anyhow::Result<()> {
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

/// For each end, calls `placed` to await placements, ends colocate, and checks restored survivors.
fn undone(
    policy: &str,
    ends: &[Termination],
    placed: impl Fn(&mut Programs) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for &end in ends {
        undone_after(policy, end, &placed).with_context(|| format!("{policy}, {end:?}"))?;
    }
    Ok(())
}

fn undone_after(
    policy: &str,
    end: Termination,
    placed: impl Fn(&mut Programs) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let before = Before::now()?;
    let mut programs = Programs::at_work(policy)?;
    placed(&mut programs)?;
    end.of(&mut programs.session)?;
    ensure!(
        programs.called("turns")?.len() == 6,
        "expected the threads of the first program to live on"
    );
    before.is_back(&programs.session)
}

/// colocate is killed in a serial phase on a fast core.
pub fn undone_after_a_kill() -> anyhow::Result<()> {
    undone(PA, &[Termination::Killed], |programs| programs.be_serial(3).map(drop))
}

/// colocate gets SIGTERM, or is killed with its guardian, in a serial phase on a fast core.
pub fn undone_after_all_else() -> anyhow::Result<()> {
    undone(PA, &[Termination::Term, Termination::BothKilled], |programs| {
        programs.be_serial(2).map(drop)
    })
}

/// `all-fast-first` places a thread on every fast core, and the two other threads on slow cores.
pub fn all_fast_first_is_undone() -> anyhow::Result<()> {
    undone("all-fast-first", &[Termination::Term, Termination::Killed], |programs| {
        let kinds = &programs.kinds;
        // Two threads of TURNS compute, and one thread per fast core of the parallel program.
        programs.await_threads("a thread on every fast core", "", |tasks| {
            let placed = tasks.iter().filter(|task| task.is_placed()).filter_map(LiveTask::only_pu);
            let (fast, slow): (Vec<u32>, Vec<u32>) = placed.partition(|pu| kinds.is_fast(*pu));
            let cores: BTreeSet<Option<usize>> = fast.iter().map(|pu| kinds.core_of(*pu)).collect();
            cores.len() == kinds.fast && fast.len() == kinds.fast && slow.len() == 2
        })?;
        Ok(())
    })
}

/// `utility` places the thread of a serial phase on a fast core.
pub fn utility_is_undone() -> anyhow::Result<()> {
    undone("utility", &[Termination::Term, Termination::Killed], |programs| {
        programs.let_it_look()?;
        programs.let_work("4")?;
        programs.await_fast("turns-4").map(drop)
    })
}

/// `efficiency` starts without counts of instructions and without demands, reports the missing
/// evidence once, and places no thread.
pub fn efficiency_is_undone() -> anyhow::Result<()> {
    undone("efficiency", &[Termination::Term, Termination::Killed], |programs| {
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

/// With one serial program more than fast cores, each program has a fast core in turn.
pub fn fast_cores_are_shared() -> anyhow::Result<()> {
    let before = Before::now()?;
    let kinds = Kinds::here()?;
    let jobs = kinds.fast + 1;
    let names: Vec<String> = (0..jobs).map(|job| format!("one{job}")).collect();
    let programs: Vec<Vec<&str>> =
        // One thread, number 0, that computes from the start.
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
    Termination::Killed.of(&mut programs.session)?;
    ensure!(programs.called("one")?.len() == jobs, "expected all programs to live on");
    before.is_back(&programs.session)
}

/// With one parallel thread per core, all parallel threads are excluded from the core of a serial
/// phase, and share the other cores.
pub fn crowds_are_excluded() -> anyhow::Result<()> {
    let before = Before::now()?;
    let kinds = Kinds::here()?;
    let threads = kinds.cores().to_string();
    let all = format!("0-{}", kinds.cores() - 1);
    let crowd = ["lab-guest", "--program", "phases", "crowd", &threads, &all];
    let named = 6 + kinds.cores();
    let mut programs = Programs::start(kinds, PA, &[TURNS, &crowd], named)?;
    programs.let_work("3")?;
    let kinds = &programs.kinds;
    let serial_tid = programs.task("turns-3")?.tid;
    programs.await_threads("places", "", |tasks| {
        let (serial, others): (Vec<&LiveTask>, Vec<&LiveTask>) = tasks
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
    Termination::Killed.of(&mut programs.session)?;
    before.is_back(&programs.session)
}

/// The fast core of a serial phase goes offline: the thread continues on another fast core, and a
/// message lists the remaining PUs. Another message follows the core's return.
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
    programs.await_said(&rest)?;
    drop(offline);
    programs.await_said(&all)?;
    programs.await_fast("turns-3")?;
    programs.let_work(TEAM)?;
    programs.await_free()?;
    let report = programs.end_jobs()?;
    let notes = report["notes"].as_array().context("a report without notes")?;
    let changes = notes
        .iter()
        .filter(|note| note.as_str().is_some_and(|note| note.starts_with("usable PUs changed")));
    // A core's PUs go offline and come back one by one, and colocate may see each step.
    let found = changes.count();
    let steps = 2 * core.len();
    ensure!(
        (2..=steps).contains(&found),
        "expected 2 to {steps} lines of changes, found {notes:#?}"
    );
    programs.session.await_end()?;
    before.is_back(&programs.session)
}
