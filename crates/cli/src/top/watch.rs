//! All processes with rows, from poll to poll and from table to table.

use super::forest::{Listed, ProcessFilter, rows};
use super::kinds::{KindShare, Kinds};
use super::process::{Activity, Poll, PolledProcess};
use super::samples::ProcessSamples;
use crate::timeline::{Mean, Timeline};
use colocate_linux::clock::{now, process_time};
use colocate_linux::proc::Proc;
use colocate_linux::proc::stat::Stat;
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuNr};
use colocate_observe::sources::run_states::RunStates;
use colocate_policy::schedule::phases::JobPhase;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Version of the JSON format.
const VERSION: u32 = 1;
/// Inverse share of a PU for listing all processes. Chosen, to stay below 1 %.
const LIST_SHARE: u64 = 200;
/// Most threads read at the start if no process was requested; further threads are known once they
/// have run. Chosen: some 20 ms, and fewer than most systems allow to be open.
const READ_AT_ONCE: u32 = 2_000;

/// Most rows whose phases are kept after their end. Chosen: more is of no use.
const MOST_ENDED: usize = 1_000;

/// The watched processes and their rows.
#[derive(Default)]
pub struct WatchedProcesses {
    proc: PathBuf,
    choice: ProcessFilter,
    states: RunStates<Tid>,
    /// Samples of running threads, if requested and permitted.
    samples: Option<ProcessSamples>,
    /// Processes as last listed.
    listed: BTreeMap<Pid, Listed>,
    next_list: Nanos,
    /// Row of each watched process.
    row_of: BTreeMap<Pid, Pid>,
    processes: BTreeMap<Pid, PolledProcess>,
    rows: BTreeMap<Pid, WatchedRow>,
    begun: Nanos,
    /// Times of the last poll and the last table.
    at: Nanos,
    table_at: Nanos,
    /// Rows that have ended since the last table.
    gone: Vec<Pid>,
    denied: Vec<Pid>,
    /// Names and phases of ended rows, if processes were requested by PID.
    ended: Vec<(String, Timeline)>,
}

/// A row since the start of its watch.
#[derive(Default)]
struct WatchedRow {
    /// Name of its program at the last listing.
    name: String,
    timeline: Timeline,
    interval: Interval,
}

/// Activity of a row since the last table.
#[derive(Default)]
struct Interval {
    ran: Nanos,
    runnable: Mean,
    spinning: Mean,
    places: BTreeMap<PuNr, Nanos>,
}

/// Table of rows, most CPU time first (docs/schemas/top.json).
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
pub struct TopTable<'a> {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    version: u32,
    /// Time since the start of the watch.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Time since the previous table.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// The rows; without a request, only rows that ran.
    pub rows: Vec<TopRow<'a>>,
    /// Processes with rows that have ended since the previous table.
    gone: Vec<Pid>,
    /// Lines on processes that cannot be read, each once.
    #[serde(skip)]
    pub denied: Vec<String>,
}

/// Row of a table: a process and its descendants without a row of their own.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
pub struct TopRow<'a> {
    /// The process.
    pub pid: Pid,
    /// Name of its program, at most 15 bytes.
    pub name: &'a str,
    /// Number of its user.
    user: u32,
    /// Number of its processes.
    pub processes: usize,
    /// Number of their threads.
    pub threads: u64,
    /// Mean number of runnable threads since the previous table, without spinning threads; `None` if unknown.
    pub runnable: Mean,
    /// Mean number of spinning threads; `None` if unknown, and then counted as runnable.
    pub spinning: Mean,
    /// CPU time since the previous table.
    #[serde(rename = "ran_ns")]
    pub ran: Nanos,
    /// CPU time of its processes since their creation.
    #[serde(rename = "cpu_ns")]
    pub cpu_time: Nanos,
    /// PUs where running threads were seen since the previous table, most time first.
    pub pus: Vec<PuNr>,
    /// CPU time by kind of core, most first; empty if all cores are of one kind or nothing ran.
    pub kinds: Vec<KindShare<'a>>,
    /// Phases since the start of the watch.
    #[serde(flatten, serialize_with = "phases")]
    #[cfg_attr(feature = "schema", schemars(with = "PhaseTimes"))]
    pub timeline: &'a Timeline,
}

/// Phase at the last poll, its begin, and the time in each phase.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
struct PhaseTimes {
    /// Phase at the last poll; `None` if unknown.
    phase: Option<JobPhase>,
    /// Begin of that phase, since the start of the watch; `None` if unknown.
    since_ns: Option<Nanos>,
    /// Time in serial phases since the start of the watch.
    serial_ns: Nanos,
    /// Time in parallel phases.
    parallel_ns: Nanos,
    /// Time asleep.
    asleep_ns: Nanos,
}

fn phases<S: Serializer>(timeline: &Timeline, to: S) -> Result<S::Ok, S::Error> {
    let phase = timeline.now.map(|(phase, _)| phase);
    let last = timeline.backwards().next().filter(|last| Some(last.phase) == phase);
    let [serial_ns, parallel_ns, asleep_ns] = timeline.spent;
    let since_ns = last.map(|last| last.from);
    PhaseTimes { phase, since_ns, serial_ns, parallel_ns, asleep_ns }.serialize(to)
}

impl WatchedProcesses {
    /// Begins to watch the processes below `proc` that are chosen.
    pub fn begin(
        proc: &Path,
        choice: ProcessFilter,
        samples: Option<ProcessSamples>,
    ) -> io::Result<Self> {
        let at = now();
        let mut states = RunStates::default();
        states.start();
        let mut watch = Self {
            proc: proc.to_owned(),
            choice,
            states,
            samples,
            next_list: at,
            ..Self::default()
        };
        watch.list()?;
        // The time to read the processes is no part of the first interval.
        let at = now();
        Ok(Self { begun: at, at, table_at: at, ..watch })
    }

    /// Reads the activity of all processes since the last poll.
    pub fn poll(&mut self) {
        let at = now();
        let took = at.saturating_sub(self.at);
        let mut did: BTreeMap<Pid, Activity> =
            self.rows.keys().map(|row| (*row, Activity::nothing())).collect();
        let Self { proc, processes, row_of, states, samples, .. } = self;
        states.begin(processes.iter().map(|(pid, process)| (*pid, process.known_threads())), at);
        let mut poll = Poll { proc, at, took, states };
        processes.retain(|_, process| {
            let lives = process.read(&mut poll);
            if !lives {
                process.forget(poll.states, samples.as_mut());
            }
            lives
        });
        if let Some(samples) = samples {
            samples.backend.poll(processes.values_mut().flat_map(PolledProcess::sampled));
        }
        for (pid, process) in processes {
            let now = process.activity(took, samples.as_mut());
            if let Some(sum) = row_of.get(pid).and_then(|row| did.get_mut(row)) {
                sum.add(now);
            }
        }
        let from = self.at.saturating_sub(self.begun);
        let to = at.saturating_sub(self.begun);
        self.at = at;
        self.end_rows();
        for (pid, did) in did {
            if let Some(row) = self.rows.get_mut(&pid) {
                row.timeline.ran(from, to, did.runnable);
                row.interval.add(did, took);
            }
        }
        if at >= self.next_list {
            // If the listing fails, the known processes stay, and the next poll tries again.
            let _ = self.list();
        }
    }

    /// The table to show now.
    pub fn table<'a>(&'a mut self, kinds: &'a Kinds) -> TopTable<'a> {
        let rows = self.rows.iter_mut();
        let intervals: Vec<(Pid, Interval)> =
            rows.map(|(pid, row)| (*pid, std::mem::take(&mut row.interval))).collect();
        let took = self.at.saturating_sub(self.table_at);
        self.table_at = self.at;
        let gone = std::mem::take(&mut self.gone);
        let denied = self.newly_denied();
        let any = self.choice.is_any();
        let lines = intervals.into_iter().filter(|(_, did)| !any || did.ran > Nanos::ZERO);
        let mut rows: Vec<TopRow<'_>> =
            lines.filter_map(|(pid, did)| self.line(pid, did, kinds)).collect();
        // Only the time is swapped: most time first, then the lowest PID.
        rows.sort_by(|one, other| (other.ran, one.pid).cmp(&(one.ran, other.pid)));
        let at = self.at.saturating_sub(self.begun);
        TopTable { version: VERSION, at, took, rows, gone, denied }
    }

    /// Whether all processes requested by PID have ended.
    pub fn is_over(&self) -> bool {
        !self.choice.pids.is_empty() && self.rows.is_empty()
    }

    /// Phases of all rows, ended ones too, by name and PID; empty unless requested by PID.
    pub fn phases(&self) -> Vec<(String, &Timeline)> {
        let rows = self.rows.iter().filter(|_| !self.choice.pids.is_empty());
        let living = rows.map(|(pid, row)| (format!("{} {pid}", row.name), &row.timeline));
        let ended = self.ended.iter().map(|(name, timeline)| (name.clone(), timeline));
        ended.chain(living).collect()
    }

    fn line<'a>(&'a self, pid: Pid, did: Interval, kinds: &'a Kinds) -> Option<TopRow<'a>> {
        let user = self.listed.get(&pid)?.user;
        let row = self.rows.get(&pid)?;
        let members =
            || self.row_of.iter().filter(move |(_, row)| **row == pid).map(|(pid, _)| pid);
        let threads = members().filter_map(|pid| self.listed.get(pid));
        let clocks = members().filter_map(|pid| self.processes.get(pid));
        Some(TopRow {
            pid,
            name: &row.name,
            user,
            processes: members().count(),
            threads: threads.map(|process| u64::from(process.threads)).sum(),
            runnable: did.runnable,
            spinning: did.spinning,
            ran: did.ran,
            cpu_time: clocks.fold(Nanos::ZERO, |sum, process| sum + process.clock),
            kinds: kinds.shares(&did.places),
            pus: pus(did.places),
            timeline: &row.timeline,
        })
    }

    /// Updates the list of processes and their users.
    fn list(&mut self) -> io::Result<()> {
        let begun = cpu_time();
        let old = std::mem::replace(&mut self.listed, listed(&self.proc)?);
        self.row_of = rows(&self.listed, &self.choice);
        let Self { processes, row_of, states, samples, listed, .. } = self;
        processes.retain(|pid, process| {
            // The PID may be that of another process by now.
            let [before, after] = [&old, &*listed].map(|all| Some(all.get(pid)?.start_ticks));
            let stays = row_of.contains_key(pid) && before == after;
            if !stays {
                process.forget(states, samples.as_mut());
            }
            stays
        });
        if let Some(samples) = samples {
            let tids: Vec<_> = processes.values().flat_map(PolledProcess::tids).collect();
            samples.backend.keep(tids.into_iter());
        }
        let threads: u32 = self.row_of.keys().map(|pid| self.listed[pid].threads).sum();
        let reads = !self.choice.is_any() || threads <= READ_AT_ONCE;
        let new = self.row_of.keys().filter(|pid| !self.processes.contains_key(pid)).copied();
        for pid in new.collect::<Vec<_>>() {
            let states = &mut self.states;
            let mut poll = Poll { proc: &self.proc, at: now(), took: Nanos::ZERO, states };
            let process = PolledProcess::new(pid, &mut poll, reads);
            self.processes.extend(process.map(|process| (pid, process)));
        }
        self.end_rows();
        for pid in self.row_of.values().filter(|row| self.processes.contains_key(row)) {
            // Only processes requested by PID have their whole timeline reported.
            let row = self.rows.entry(*pid).or_insert_with(|| match self.choice.pids[..] {
                [] => WatchedRow { timeline: Timeline::keeping(0), ..WatchedRow::default() },
                _ => WatchedRow::default(),
            });
            row.name.clone_from(&self.listed[pid].name);
        }
        let took = cpu_time().saturating_sub(begun);
        self.next_list = now() + Nanos(took.0.saturating_mul(LIST_SHARE));
        Ok(())
    }

    /// Removes rows whose first processes have ended.
    fn end_rows(&mut self) {
        let over: Vec<Pid> =
            self.rows.keys().filter(|pid| !self.processes.contains_key(pid)).copied().collect();
        for pid in over {
            let Some(row) = self.rows.remove(&pid) else { continue };
            self.gone.push(pid);
            if !self.choice.pids.is_empty() && self.ended.len() < MOST_ENDED {
                self.ended.push((format!("{} {pid}", row.name), row.timeline));
            }
        }
    }

    /// A line for each process that may not be read and was not reported yet.
    fn newly_denied(&mut self) -> Vec<String> {
        let denied = self.processes.iter().filter(|(_, process)| process.is_denied);
        let new: Vec<Pid> =
            denied.map(|(pid, _)| *pid).filter(|pid| !self.denied.contains(pid)).collect();
        self.denied.extend(&new);
        let line = |pid| format!("threads of process {pid} must not be read: its user or root can");
        new.into_iter().map(line).collect()
    }
}

/// PUs with some time, most time first.
fn pus(places: BTreeMap<PuNr, Nanos>) -> Vec<PuNr> {
    let mut pus: Vec<(PuNr, Nanos)> = places.into_iter().collect();
    pus.retain(|(_, ran)| *ran > Nanos::ZERO);
    pus.sort_by_key(|(pu, ran)| (Reverse(*ran), *pu));
    pus.into_iter().map(|(pu, _)| pu).collect()
}

impl Interval {
    fn add(&mut self, did: Activity, took: Nanos) {
        self.ran += did.ran;
        self.runnable.add(did.runnable, took.as_secs_f64());
        self.spinning.add(did.spinning, took.as_secs_f64());
        for (pu, ran) in did.places {
            *self.places.entry(pu).or_default() += ran;
        }
    }
}

/// CPU time of this process. On busy PUs, elapsed time would overstate the cost of reading.
fn cpu_time() -> Nanos {
    process_time(Pid(std::process::id().cast_signed())).unwrap_or(Nanos::ZERO)
}

/// All processes that can be read.
pub fn listed(proc: &Path) -> io::Result<BTreeMap<Pid, Listed>> {
    let tree = Proc::at(proc);
    let living = tree.processes()?.into_iter().filter_map(|pid| {
        let stat = Stat::read(proc, pid, pid.first_thread())?;
        // /proc/PID belongs to the effective user (proc_pid(5)).
        let user = proc.join(pid.to_string()).metadata().ok()?.uid();
        let name = tree.name(pid, pid.first_thread())?;
        // The first thread stays a zombie until the other threads have ended and its status was
        // read.
        let threads = stat.threads.saturating_sub(stat.is_dead().into());
        let Stat { parent, start_ticks, .. } = stat;
        (threads > 0).then_some((pid, Listed { parent, user, name, threads, start_ticks }))
    });
    Ok(living.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes 7, with two threads, 8, which has ended, and 9, whose first thread has ended while two others go on.
    #[test]
    fn living_processes() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, state, threads) in [(7, 'S', 2), (8, 'Z', 1), (9, 'Z', 3)] {
            let task = proc.path().join(format!("{pid}/task/{pid}"));
            std::fs::create_dir_all(&task).unwrap();
            let stat = format!(
                "{pid} (x) {state} 1 7 7 0 -1 0 0 0 0 0 3 4 0 0 20 0 {threads} 0 55 0 \
                 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0"
            );
            std::fs::write(task.join("stat"), stat).unwrap();
            std::fs::write(task.join("comm"), "x\n").unwrap();
        }
        let living: Vec<_> =
            listed(proc.path()).unwrap().into_iter().map(|(pid, it)| (pid.0, it.threads)).collect();
        assert_eq!(living, [(7, 2), (9, 2)]);
    }

    /// Where processes cannot be listed, as without a free descriptor, none of them is taken for gone.
    #[test]
    fn processes_that_cannot_be_listed_have_not_ended() {
        let me = Pid(std::process::id().cast_signed());
        let choice = ProcessFilter { pids: vec![me], ..ProcessFilter::default() };
        let mut watch = WatchedProcesses::begin(Path::new("/proc"), choice.clone(), None).unwrap();
        let nowhere = Path::new("/proc/nowhere");
        assert!(WatchedProcesses::begin(nowhere, choice, None).is_err());
        watch.proc = nowhere.to_owned();
        watch.next_list = Nanos::ZERO;
        watch.poll();
        assert!(!watch.is_over() && watch.listed.contains_key(&me));
        assert_eq!(watch.table(&Kinds::default()).rows.len(), 1);
    }
}
