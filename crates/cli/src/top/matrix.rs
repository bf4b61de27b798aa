//! `colocate top --matrix`: communication between threads of running processes.

use super::forest::{ProcessFilter, rows};
use super::watch::listed;
use super::{Args, follow};
use crate::exit;
use crate::output::{self, Redraw};
use crate::stop::stop_flag;
use anyhow::{Context, bail};
use colocate_evidence::{JobIdx, SeenTask, Sharing, Source, SourceReports, TaskId, WakeUps};
use colocate_linux::clock::now;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, Tid};
use colocate_machine::calibrated::PuDistance;
use colocate_machine::{Machine, Nanos, printable, read};
use colocate_model::communication::WakeUpCosts;
use colocate_observe::pmu::Start;
use colocate_observe::sample::Clocks;
use colocate_observe::sharing::DEFAULT_RATE_HZ;
use colocate_observe::sources::accesses::Accesses;
use colocate_observe::sources::wake_ups::WakeUpCounts;
use colocate_observe::sources::{Backend, NewTask, QuantumTasks, TaskRef, TaskUsage};
use colocate_policy::communication::matrix::Matrix;
use colocate_policy::communication::seen;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Most threads in a picture: those with most communication. Chosen: a line of 100 characters.
const MOST_THREADS: usize = 32;
/// Shades of a picture: nothing, then a fifth of the most each.
const SHADES: [&str; 6] = ["  ", "··", "░░", "▒▒", "▓▓", "██"];
/// Least time between two listings of all processes. Chosen: less than the default interval.
const LIST_EVERY: Nanos = Nanos::from_millis(500);
/// Inverse share of a PU for listing all processes. Chosen, to stay below 1 %.
const LIST_SHARE: u64 = 200;
/// Version of the JSON format.
const VERSION: u32 = 1;

/// The watched threads.
struct WatchedThreads {
    proc: Proc,
    choice: ProcessFilter,
    /// The chosen processes and all their descendants, as last listed.
    pids: BTreeSet<Pid>,
    next_list: Nanos,
    /// Living threads by process and TID, with their names.
    living: BTreeMap<(Pid, Tid), (TaskRef, String)>,
    numbers: Numbers,
    machine: Machine,
    sharing: Option<Accesses>,
    wake_ups: Option<WakeUpCounts>,
    /// Cost of a wake-up between caches, in seconds.
    wake_up: f64,
    before: Matrix,
}

/// Task numbers of threads: a job is a process, in the order of discovery.
#[derive(Default)]
struct Numbers(BTreeMap<Pid, TaskId>);

impl Numbers {
    /// The next task number in a process.
    fn next(&mut self, pid: Pid) -> TaskId {
        let job = JobIdx(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        let next = self.0.entry(pid).or_insert(TaskId { job, order: 0 });
        let number = *next;
        next.order += 1;
        number
    }
}

/// Communication of threads up to now (docs/schemas/top-matrix.json).
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
pub struct MatrixRecord {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    version: u32,
    /// Time since the start of the watch.
    at_ns: Nanos,
    /// Time since the previous line.
    took_ns: Nanos,
    /// Living threads.
    threads: Vec<MatrixThread>,
    /// Wake-ups since the start of the watch; `None` if unknown.
    wake_ups: Option<Vec<WakeUps>>,
    /// Shared memory since the start of the watch; `None` if unknown.
    sharing: Option<Vec<Sharing>>,
    /// Pairs that have communicated since the previous line.
    pairs: Vec<Amount>,
}

/// Thread of a watched process.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
struct MatrixThread {
    /// Number of its process and in its process, both in the order of discovery.
    task: TaskId,
    /// Its process.
    pid: Pid,
    /// Its number.
    tid: Tid,
    /// Its name.
    name: String,
}

/// Communication of a pair.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
struct Amount {
    /// The pair.
    tasks: [TaskId; 2],
    /// Estimated cost in seconds per second: each wake-up as between caches, and CPU time at shared memory.
    seconds: f64,
}

/// Shows heat maps until all processes have ended.
pub fn main(args: &Args, choice: ProcessFilter) -> anyhow::Result<ExitCode> {
    if choice.is_any() {
        let message = "expected -p, -u or --name with --matrix, found none of them";
        return Err(exit::usage(message.into()));
    }
    let mut threads = WatchedThreads::begin(choice)?;
    let stop = stop_flag()?;
    let mut terminal = if args.json { None } else { Redraw::of_stdout()? };
    let begun = now();
    let mut last = Nanos::ZERO;
    let poll = |threads: &mut WatchedThreads| {
        threads.look();
        threads.living.is_empty()
    };
    follow(args, stop, &mut threads, poll, |threads, number, is_last| {
        if is_last && number > 1 && !args.json {
            // Little has happened since the last picture, which stays on the screen.
            return Ok(false);
        }
        let at = now().saturating_sub(begun);
        let line = threads.line(at, at.saturating_sub(std::mem::replace(&mut last, at)));
        match (&mut terminal, args.json) {
            (_, true) => output::print(&printable::json_line(&line)),
            (None, false) => output::print(&picture(&line)),
            (Some(terminal), false) => terminal.draw(&picture(&line)).map(|()| true),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

impl WatchedThreads {
    /// Begins to watch processes. One of the two sources is enough.
    fn begin(choice: ProcessFilter) -> anyhow::Result<Self> {
        let clocks = Clocks::here()?;
        let pids = chosen(&choice).context("cannot list processes")?;
        if pids.is_empty() {
            bail!("expected processes that run, found none with that user, name or number");
        }
        let mut sharing = Accesses::start(DEFAULT_RATE_HZ, &clocks);
        for pid in pids.keys() {
            sharing = sharing.and_then(|mut shared| {
                shared.watch(*pid, Start::Now)?;
                shared.report_sharing();
                Ok(shared)
            });
        }
        let wake_ups = WakeUpCounts::start(&clocks.watch.cpus);
        if let (Err(one), Err(other)) = (&sharing, &wake_ups) {
            bail!(
                "cannot report which threads use the same memory, because {}, nor which wake which, because {}; \
                 `colocate doctor` names the remedy",
                one.why,
                other.why
            );
        }
        let refused = sharing.as_ref().err().map(|why| (Source::Sharing, why));
        let refused = refused.or(wake_ups.as_ref().err().map(|why| (Source::WakeUps, why)));
        if let Some((source, why)) = refused {
            output::remark(&format!("cannot report {}, because {}", source.reports(), why.why));
        }
        let here = read::load("live").context("cannot read this machine")?;
        let costs =
            here.calibration.as_ref().map_or_else(WakeUpCosts::default, WakeUpCosts::measured);
        let mut threads = Self {
            proc: clocks.watch.proc,
            choice,
            pids: pids.into_keys().collect(),
            next_list: now() + LIST_EVERY,
            living: BTreeMap::new(),
            numbers: Numbers::default(),
            machine: here.machine,
            sharing: sharing.ok(),
            wake_ups: wake_ups.ok(),
            wake_up: costs.of(PuDistance::OtherCache),
            before: Matrix::default(),
        };
        threads.look();
        if threads.living.is_empty() {
            bail!("none of the processes runs any more");
        }
        Ok(threads)
    }

    /// Updates the list of processes. Descendants of a watched process are sampled already.
    fn list(&mut self) {
        let begun = now();
        // If the listing fails, the known processes stay.
        let Ok(found) = chosen(&self.choice) else { return };
        for (pid, parent) in &found {
            if !self.pids.contains(pid) && !self.pids.contains(parent) {
                // A process that has ended meanwhile, or may not be sampled, has no samples.
                self.sharing.iter_mut().for_each(|it| drop(it.watch(*pid, Start::Now)));
            }
        }
        self.pids = found.into_keys().collect();
        let took = now().saturating_sub(begun);
        self.next_list = now() + LIST_EVERY.max(Nanos(took.0.saturating_mul(LIST_SHARE)));
    }

    /// The started backends.
    fn backends(&mut self) -> impl Iterator<Item = &mut dyn Backend> {
        let sharing = self.sharing.as_mut().map(|it| it as &mut dyn Backend);
        sharing.into_iter().chain(self.wake_ups.as_mut().map(|it| it as &mut dyn Backend))
    }

    /// Updates the list of threads and drains their events.
    fn look(&mut self) {
        if now() >= self.next_list {
            self.list();
        }
        let mut living = BTreeMap::new();
        for pid in self.pids.clone() {
            for tid in self.proc.tasks(pid).unwrap_or_default() {
                let Some(name) = self.proc.name(pid, tid) else { continue };
                let known = self.living.remove(&(pid, tid)).map(|(task, _)| task);
                let task = known.unwrap_or_else(|| self.begin_task(pid, tid));
                living.insert((pid, tid), (task, name));
            }
        }
        for (task, _) in std::mem::replace(&mut self.living, living).into_values() {
            // Threads left in the old map have ended.
            self.backends().for_each(|backend| backend.ended(task, &mut TaskUsage::default()));
        }
        self.sharing.iter_mut().for_each(|sharing| drop(sharing.drain()));
        if let Some(Err(why)) = self.wake_ups.as_mut().map(Backend::drain) {
            output::remark(&why);
            self.wake_ups = None;
        }
        let lines: Vec<String> = self.backends().flat_map(|it| it.messages()).collect();
        lines.iter().for_each(|line| output::remark(line));
    }

    /// Announces a new thread to the backends.
    fn begin_task(&mut self, pid: Pid, tid: Tid) -> TaskRef {
        let task = TaskRef { id: self.numbers.next(pid), pid, tid };
        // The thread's creator may not have been watched.
        let new = NewTask { task, created: Nanos::ZERO, start: Start::Now };
        for backend in self.backends() {
            // A backend without room for the thread reports nothing of it.
            let _ = backend.created(&new);
        }
        task
    }

    /// The reports of the backends on the living threads.
    fn reports(&mut self) -> SourceReports {
        let mut of: Vec<_> = self.living.values().map(|(task, _)| (*task, Nanos::ZERO)).collect();
        of.sort_unstable_by_key(|(task, _)| task.id);
        let tasks = of.iter().map(|(task, at)| SeenTask::new(task.id, "".into(), *at));
        let mut tasks: Vec<SeenTask> = tasks.collect();
        let mut reports = SourceReports::NONE;
        let machine = self.machine.clone();
        let mut quantum = QuantumTasks {
            at: now(),
            machine: &machine,
            threads: &of,
            tasks: &mut tasks,
            reports: &mut reports,
        };
        self.backends().for_each(|backend| backend.report(&mut quantum));
        reports
    }

    /// The figures to show now.
    fn line(&mut self, at_ns: Nanos, took_ns: Nanos) -> MatrixRecord {
        let SourceReports { wake_ups, sharing, .. } = self.reports();
        let now = seen::seconds(
            wake_ups.as_deref().unwrap_or_default(),
            self.wake_up,
            sharing.as_deref().unwrap_or_default(),
        );
        let new = seen::since(&now, &self.before);
        self.before = now;
        let threads = self.living.values().map(|(TaskRef { id, pid, tid }, name)| MatrixThread {
            task: *id,
            pid: *pid,
            tid: *tid,
            name: name.clone(),
        });
        let took = took_ns.as_secs_f64();
        let pairs = new.pairs().map(|((a, b), sum)| Amount { tasks: [a, b], seconds: sum / took });
        let (threads, pairs) = (threads.collect(), pairs.collect());
        MatrixRecord { version: VERSION, at_ns, took_ns, threads, wake_ups, sharing, pairs }
    }
}

/// The chosen processes and all their descendants, each with its parent.
fn chosen(choice: &ProcessFilter) -> io::Result<BTreeMap<Pid, Pid>> {
    let listed = listed(Path::new("/proc"))?;
    let rows = rows(&listed, choice).into_keys();
    Ok(rows.filter_map(|pid| Some((pid, listed.get(&pid)?.parent))).collect())
}

/// A heat map of the threads with most communication.
fn picture(line: &MatrixRecord) -> String {
    let mut sums: BTreeMap<TaskId, f64> = BTreeMap::new();
    for pair in &line.pairs {
        pair.tasks.iter().for_each(|task| *sums.entry(*task).or_default() += pair.seconds);
    }
    let mut shown: Vec<TaskId> = line.threads.iter().map(|thread| thread.task).collect();
    shown.sort_by(|a, b| {
        let sum = |task| sums.get(task).copied().unwrap_or(0.0);
        sum(b).total_cmp(&sum(a)).then(a.cmp(b))
    });
    let more = shown.len().saturating_sub(MOST_THREADS);
    shown.truncate(MOST_THREADS);
    // In the order of numbers again, so that rows keep their places.
    shown.sort_unstable();
    let of = line.pairs.iter().map(|pair| (pair.tasks[0], pair.tasks[1], pair.seconds));
    let matrix = Matrix::of(of);
    let most = matrix.pairs().map(|(_, amount)| amount).fold(0.0, f64::max);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:.2} s: {} of {} pairs of threads communicate; ██ costs {most:.4} s a second",
        line.at_ns.as_secs_f64(),
        line.pairs.len(),
        line.threads.len() * line.threads.len().saturating_sub(1) / 2,
    );
    for a in &shown {
        let thread = line.threads.iter().find(|thread| thread.task == *a);
        let label =
            thread.map(|thread| format!("{:>8} {:15}", thread.tid.0, printable(&thread.name)));
        let cells = shown.iter().map(|b| shade(matrix.between(*a, *b), most)).collect::<String>();
        let _ = writeln!(text, "{} |{cells}|", label.unwrap_or_default());
    }
    if more > 0 {
        let _ = writeln!(text, "and {more} more threads");
    }
    text
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 5
fn shade(amount: f64, most: f64) -> &'static str {
    let part = if most > 0.0 { (amount / most).clamp(0.0, 1.0) } else { 0.0 };
    // Rounded up, so that the least communication has a shade.
    SHADES[(part * (SHADES.len() - 1) as f64).ceil() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads 1 and 2 communicate most, 2 and 3 a fifth of it, thread 4 with none.
    #[test]
    fn a_heat_map_by_hand() {
        let task = |order| TaskId { job: JobIdx(1), order };
        let thread = |order: u32| MatrixThread {
            task: task(order),
            pid: Pid(7),
            tid: Tid(order.cast_signed()),
            name: "x".into(),
        };
        let line = MatrixRecord {
            version: VERSION,
            at_ns: Nanos::from_millis(1_500),
            took_ns: Nanos::from_secs(1),
            threads: (1..=4).map(thread).collect(),
            wake_ups: None,
            sharing: None,
            pairs: vec![
                Amount { tasks: [task(1), task(2)], seconds: 0.5 },
                Amount { tasks: [task(2), task(3)], seconds: 0.1 },
            ],
        };
        let rows: Vec<String> = picture(&line).lines().map(str::to_owned).collect();
        assert_eq!(
            rows[0],
            "1.50 s: 2 of 6 pairs of threads communicate; ██ costs 0.5000 s a second"
        );
        let cells: Vec<&str> = rows[1..].iter().map(|row| row.split_once('|').unwrap().1).collect();
        assert_eq!(cells, ["  ██    |", "██  ··  |", "  ··    |", "        |"]);
    }

    #[test]
    fn nothing_is_white() {
        assert_eq!([shade(0.0, 0.0), shade(0.0, 1.0), shade(0.01, 1.0)], ["  ", "  ", "··"]);
    }
}
