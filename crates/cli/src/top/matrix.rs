//! `colocate top --matrix`: which threads of running processes communicate.

use super::forest::{Choice, rows};
use super::watch::listed;
use super::{Args, Pace, sleep_until};
use crate::exit;
use crate::output::{self, Redraw};
use crate::stop::stop_flag;
use anyhow::{Context, bail};
use colocate_evidence::{JobIdx, Refusal, Sharing, Source, TaskId, WakeUps};
use colocate_linux::clock::now;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, Tid};
use colocate_machine::calibrated::Pair;
use colocate_machine::{Nanos, printable, read};
use colocate_model::communication::WakeUpCosts;
use colocate_observe::lifecycle::Options;
use colocate_observe::pmu::Start;
use colocate_observe::sharing::DEFAULT_RATE_HZ;
use colocate_observe::sources::TaskRef;
use colocate_observe::sources::sharing::SharedMemory;
use colocate_observe::sources::wake_ups::WakeUpCounts;
use colocate_policy::communication::matrix::Matrix;
use colocate_policy::communication::seen;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Most threads of a picture: those that communicate most. Chosen: a line of 100 characters.
const MOST_THREADS: usize = 32;
/// Shades of a picture: nothing, and a fifth of the most each.
const SHADES: [&str; 6] = ["  ", "··", "░░", "▒▒", "▓▓", "██"];
/// Least time between two listings of all processes. Chosen: less than a picture lasts by default.
const LIST_EVERY: Nanos = Nanos::from_millis(500);
/// Listing all processes takes at most one part in this many of a PU. Chosen, to stay below 1 %.
const LIST_SHARE: u64 = 200;
/// Version of the JSON's form.
const VERSION: u32 = 1;

/// What is known of the threads.
struct Threads {
    proc: Proc,
    choice: Choice,
    /// The chosen processes with all that they have created, as they were last listed.
    pids: BTreeSet<Pid>,
    next_list: Nanos,
    names: BTreeMap<TaskId, String>,
    sharing: Option<SharedMemory>,
    wake_ups: Option<WakeUpCounts>,
    /// Seconds that a wake-up costs between caches.
    wake_up: f64,
    before: Matrix,
}

/// A line of JSON (docs/schemas/top-matrix.json).
#[derive(Serialize)]
struct Line {
    version: u32,
    at_ns: Nanos,
    took_ns: Nanos,
    threads: Vec<Thread>,
    /// Since the processes are watched; `None` if unknown.
    wake_ups: Option<Vec<WakeUps>>,
    sharing: Option<Vec<Sharing>>,
    /// Of each pair that has communicated since the line before.
    pairs: Vec<Amount>,
}

#[derive(Serialize)]
struct Thread {
    task: TaskId,
    name: String,
}

#[derive(Serialize)]
struct Amount {
    tasks: [TaskId; 2],
    /// Seconds that it may cost, in each second.
    seconds: f64,
}

/// Shows heat maps until all processes have ended.
pub fn main(args: &Args, choice: Choice) -> anyhow::Result<ExitCode> {
    if choice.is_any() {
        return Err(exit::usage(
            "expected -p, -u or --name with --matrix, found none of them".into(),
        ));
    }
    let mut threads = Threads::begin(choice)?;
    let stop = stop_flag()?;
    let mut terminal = if args.json { None } else { Redraw::of_stdout()? };
    let (begun, mut pace, mut last) = (now(), Pace::of(args.interval), Nanos::ZERO);
    for number in 1.. {
        loop {
            sleep_until(begun + pace.due(), &stop)?;
            threads.look();
            let at = now().saturating_sub(begun);
            if pace.made(at) || stop.load(Ordering::Relaxed) || threads.names.is_empty() {
                break;
            }
        }
        let is_last = stop.load(Ordering::Relaxed) || threads.names.is_empty();
        if is_last && number > 1 && !args.json {
            // Little has happened since the last picture, which stays.
            break;
        }
        let at = now().saturating_sub(begun);
        let line = threads.line(at, at.saturating_sub(std::mem::replace(&mut last, at)));
        let goes_on = match (&mut terminal, args.json) {
            (_, true) => output::print(&printable::json_line(&line))?,
            (None, false) => output::print(&picture(&line))?,
            (Some(terminal), false) => {
                terminal.draw(&picture(&line))?;
                true
            }
        };
        let over = is_last || args.count.is_some_and(|count| number >= count);
        if !goes_on || over {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Threads {
    /// Begins to watch processes. One source is enough.
    fn begin(choice: Choice) -> anyhow::Result<Self> {
        let watch = Options::here()?;
        let pids = chosen(&choice).context("cannot list processes")?;
        if pids.is_empty() {
            bail!("expected processes that run, found none with that user, name or number");
        }
        let mut sharing = SharedMemory::start(DEFAULT_RATE_HZ, &watch);
        for pid in pids.keys() {
            let also = |mut shared: SharedMemory| {
                shared.also(*pid, Start::Now).map_err(Refusal::of).map(|()| shared)
            };
            sharing = sharing.and_then(also);
        }
        let wake_ups = WakeUpCounts::start(&watch.cpus);
        if let (Err(one), Err(other)) = (&sharing, &wake_ups) {
            bail!(
                "cannot report which threads use the same memory, because {}, nor which wake which, because {}; \
                 `colocate doctor` names the remedy",
                one.why,
                other.why
            );
        }
        for (source, why) in
            [(Source::Sharing, sharing.as_ref().err()), (Source::WakeUps, wake_ups.as_ref().err())]
        {
            if let Some(why) = why {
                output::remark(&format!("cannot report {}, because {}", source.reports(), why.why));
            }
        }
        let kept = read::load("live").ok().and_then(|seen| seen.calibration);
        let costs = kept.as_ref().map_or_else(WakeUpCosts::default, WakeUpCosts::measured);
        let mut threads = Self {
            proc: watch.proc,
            choice,
            pids: pids.into_keys().collect(),
            next_list: now() + LIST_EVERY,
            names: BTreeMap::new(),
            sharing: sharing.ok(),
            wake_ups: wake_ups.ok(),
            wake_up: costs.of(Pair::OtherCache),
            before: Matrix::default(),
        };
        threads.look();
        if threads.names.is_empty() {
            bail!("none of the processes runs any more");
        }
        Ok(threads)
    }

    /// Takes in which processes there are. What a watched one has created is sampled already.
    fn list(&mut self) {
        let begun = now();
        // Where they cannot be listed, those go on that are known.
        let Ok(found) = chosen(&self.choice) else { return };
        for (pid, parent) in &found {
            if !self.pids.contains(pid) && !self.pids.contains(parent) {
                // One that has ended meanwhile, or may not be sampled, has no samples.
                self.sharing.iter_mut().for_each(|it| drop(it.also(*pid, Start::Now)));
            }
        }
        self.pids = found.into_keys().collect();
        let took = now().saturating_sub(begun);
        self.next_list = now() + LIST_EVERY.max(Nanos(took.0.saturating_mul(LIST_SHARE)));
    }

    /// Takes in which threads there are, and what they have done.
    fn look(&mut self) {
        if now() >= self.next_list {
            self.list();
        }
        let mut living = BTreeMap::new();
        for pid in &self.pids {
            for tid in self.proc.tasks(*pid).unwrap_or_default() {
                living.extend(self.proc.name(*pid, tid).map(|name| (id(*pid, tid), name)));
            }
        }
        for task in living.keys().filter(|task| !self.names.contains_key(task)) {
            let named = named(*task);
            self.sharing.iter_mut().for_each(|sharing| sharing.created(named));
            if let Some(counts) = &mut self.wake_ups {
                // Where there is no room for it nothing is known of it.
                let _ = counts.add(named.tid);
                counts.created(named);
            }
        }
        for task in self.names.keys().filter(|task| !living.contains_key(task)) {
            let tid = named(*task).tid;
            self.sharing.iter_mut().for_each(|sharing| sharing.ended(tid));
            self.wake_ups.iter_mut().for_each(|counts| counts.ended(tid));
        }
        self.names = living;
        self.sharing.iter_mut().for_each(SharedMemory::read);
        match self.wake_ups.as_mut().map(WakeUpCounts::read) {
            Some(Ok(Some(said))) => output::remark(&said),
            Some(Err(why)) => {
                output::remark(&format!("wake-ups are not counted any more: {why}"));
                self.wake_ups = None;
            }
            Some(Ok(None)) | None => {}
        }
    }

    /// What is to be shown now.
    fn line(&mut self, at_ns: Nanos, took_ns: Nanos) -> Line {
        let is_living = |task: TaskId| self.names.contains_key(&task);
        self.sharing.iter_mut().for_each(|sharing| sharing.keep(is_living));
        self.wake_ups.iter_mut().for_each(|counts| counts.keep(is_living));
        let sharing = self.sharing.as_ref().map(SharedMemory::sums);
        let wake_ups = self.wake_ups.as_ref().map(WakeUpCounts::counts);
        let now = seen::seconds(
            wake_ups.as_deref().unwrap_or_default(),
            self.wake_up,
            sharing.as_deref().unwrap_or_default(),
        );
        let new = seen::since(&now, &self.before);
        self.before = now;
        let amount = |((a, b), sum): ((TaskId, TaskId), f64)| Amount {
            tasks: [a, b],
            seconds: sum / took_ns.as_secs_f64(),
        };
        let thread = |(task, name): (&TaskId, &String)| Thread { task: *task, name: name.clone() };
        Line {
            version: VERSION,
            at_ns,
            took_ns,
            threads: self.names.iter().map(thread).collect(),
            wake_ups,
            sharing,
            pairs: new.pairs().map(amount).collect(),
        }
    }
}

/// The processes that are chosen and all that they have created, each with its creator.
fn chosen(choice: &Choice) -> io::Result<BTreeMap<Pid, Pid>> {
    let listed = listed(Path::new("/proc"))?;
    let rows = rows(&listed, choice).into_keys();
    Ok(rows.filter_map(|pid| Some((pid, listed.get(&pid)?.parent))).collect())
}

/// The name by which backends know a thread: its process and its number.
fn id(pid: Pid, tid: Tid) -> TaskId {
    TaskId { job: JobIdx(pid.0.cast_unsigned()), order: tid.0.cast_unsigned() }
}

fn named(task: TaskId) -> TaskRef {
    let (pid, tid) = (Pid(task.job.0.cast_signed()), Tid(task.order.cast_signed()));
    TaskRef { id: task, pid, tid }
}

/// A heat map of the threads that communicate most.
fn picture(line: &Line) -> String {
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
    shown.sort_unstable();
    let of = line.pairs.iter().map(|pair| (pair.tasks[0], pair.tasks[1], pair.seconds));
    let matrix = Matrix::of(of);
    let most = matrix.pairs().map(|(_, amount)| amount).fold(0.0, f64::max);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:.2} s: {} of {} pairs of threads communicate, at most {most:.4} s a second",
        line.at_ns.as_secs_f64(),
        line.pairs.len(),
        line.threads.len() * line.threads.len().saturating_sub(1) / 2,
    );
    let name = |task: &TaskId| {
        let at = line.threads.iter().find(|thread| thread.task == *task);
        at.map_or_else(String::new, |thread| printable(&thread.name).into_owned())
    };
    for a in &shown {
        let cells = shown.iter().map(|b| shade(matrix.between(*a, *b), most)).collect::<String>();
        let _ = writeln!(text, "{:>8} {:15} |{cells}|", a.order, name(a));
    }
    if more > 0 {
        let _ = writeln!(text, "and {more} more threads");
    }
    text
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 5
fn shade(amount: f64, most: f64) -> &'static str {
    let part = if most > 0.0 { (amount / most).clamp(0.0, 1.0) } else { 0.0 };
    SHADES[(part * (SHADES.len() - 1) as f64).ceil() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads 1 and 2 communicate most, 2 and 3 a fifth of it, thread 4 with none.
    #[test]
    fn a_heat_map_by_hand() {
        let task = |order| TaskId { job: JobIdx(1), order };
        let line = Line {
            version: VERSION,
            at_ns: Nanos::from_millis(1_500),
            took_ns: Nanos::from_secs(1),
            threads: (1..=4).map(|order| Thread { task: task(order), name: "x".into() }).collect(),
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
            "1.50 s: 2 of 6 pairs of threads communicate, at most 0.5000 s a second"
        );
        let cells: Vec<&str> = rows[1..].iter().map(|row| row.split_once('|').unwrap().1).collect();
        assert_eq!(cells, ["  ██    |", "██  ··  |", "  ··    |", "        |"]);
    }

    #[test]
    fn nothing_is_white() {
        assert_eq!([shade(0.0, 0.0), shade(0.0, 1.0), shade(0.01, 1.0)], ["  ", "  ", "··"]);
    }
}
