//! Whether others crowd the PUs that tasks share under a plan.
//!
//! A PU is where the plan has it, so a task that waits there cannot go elsewhere. Quanta may be much
//! longer than that should last, so the kernel's sums of these tasks are read several times in one.

use crate::workload::HostState;
use colocate_evidence::{SharedPu, TaskId};
use colocate_linux::run_time::RunTime;
use colocate_machine::{Nanos, PuNr};
use colocate_policy::{PlaceReason, Plan};
use std::collections::BTreeMap;

/// Time between two readings. Chosen: a group is to leave a PU within 50 ms after others have come, and a reading of which a part is
/// from before that may show too little.
const EVERY: Nanos = Nanos::from_millis(20);
/// Least time for a reading at the end of a quantum. Chosen: a wait for another program lasts some
/// milliseconds.
const LEAST: Nanos = Nanos::from_millis(5);
/// Reading takes at most one part in this many of a PU. Chosen, to stay far below 1 %.
const SHARE: u64 = 1_000;
/// Tasks on a PU, at most: each needs a descriptor, and what is not read would count as others'.
const MOST: usize = 16;
/// Shared PUs that are read, at most. Chosen: 256 descriptors.
const MOST_PUS: usize = 16;
/// Rise of the displaced share that ends the quantum. Chosen: a program that computes takes half of
/// a PU.
const RISE: f64 = 0.2;
/// Weight of a reading in the usual share.
const WEIGHT: f64 = 0.3;

/// Readings of the tasks on shared PUs.
#[derive(Debug, Default)]
pub(crate) struct Crowding {
    pus: BTreeMap<PuNr, Readings>,
    /// Usual displaced share of each PU that tasks have shared.
    usual: BTreeMap<PuNr, f64>,
    next: Nanos,
    found: Vec<SharedPu>,
    /// Whether tasks share PUs under the present plan. While they do not, their files stay open.
    is_on: bool,
}

/// Readings of the tasks on one PU.
#[derive(Debug)]
struct Readings {
    tasks: Vec<TaskId>,
    files: Vec<RunTime>,
    /// Time of the last reading, with the sums of CPU time and waits.
    last: (Nanos, Nanos, Nanos),
}

impl Crowding {
    /// Takes in which PUs tasks share because they take turns, under the plan of the quantum that
    /// begins at `at`.
    pub fn begin(&mut self, work: &HostState, plan: &Plan, at: Nanos) {
        let mut shared: BTreeMap<PuNr, Vec<TaskId>> = BTreeMap::new();
        for decision in &plan.decisions {
            let takes_turns = matches!(decision.why, PlaceReason::TakesTurns { .. });
            if let Some(pu) = decision.place.pu().filter(|_| takes_turns) {
                shared.entry(pu).or_default().push(decision.task);
            }
        }
        shared.retain(|_, tasks| (2..=MOST).contains(&tasks.len()));
        let was_on = std::mem::replace(&mut self.is_on, !shared.is_empty());
        if !self.is_on {
            return;
        }
        let mut before = std::mem::take(&mut self.pus);
        for (pu, tasks) in shared.into_iter().take(MOST_PUS) {
            let same = before.remove(&pu).filter(|readings| readings.tasks == tasks);
            let same = if was_on { same } else { same.and_then(|it| it.again(at)) };
            if let Some(readings) = same.or_else(|| Readings::begin(work, tasks, at)) {
                self.pus.insert(pu, readings);
            }
        }
    }

    /// Time of the next reading; `None` if no PU is shared.
    pub fn due(&self) -> Option<Nanos> {
        (self.is_on && !self.pus.is_empty()).then_some(self.next)
    }

    /// Reads if it is time to; true if others crowd a PU more than usual.
    pub fn read_if_due(&mut self, at: Nanos) -> bool {
        self.due().is_some_and(|due| at >= due) && self.read(at)
    }

    /// Times of the tasks on shared PUs since the last call, with those of the last part of the
    /// quantum that ends at `at`.
    pub fn take(&mut self, at: Nanos) -> Vec<SharedPu> {
        if self.is_on {
            self.read(at);
        }
        std::mem::take(&mut self.found)
    }

    fn read(&mut self, at: Nanos) -> bool {
        let mut has_risen = false;
        // A thread that has ended leaves no sums, and the next plan has another group.
        self.pus.retain(|pu, readings| {
            if at.saturating_sub(readings.last.0) < LEAST {
                return true;
            }
            let Some(times) = readings.read(*pu, at) else { return false };
            let share = times.displaced();
            let usual = self.usual.entry(*pu).or_default();
            has_risen |= share > *usual + RISE;
            *usual += WEIGHT * (share - *usual);
            self.found.push(times);
            true
        });
        let took = colocate_linux::clock::now().saturating_sub(at);
        self.next = at + EVERY.max(Nanos(took.0.saturating_mul(SHARE)));
        has_risen
    }
}

impl Readings {
    /// First reading; `None` if a task cannot be read.
    fn begin(work: &HostState, tasks: Vec<TaskId>, at: Nanos) -> Option<Self> {
        let open = |id: &TaskId| {
            let thread = &work.table.tasks.get(*id)?.thread;
            RunTime::open(&work.actuators.proc, thread.pid, thread.tid).ok()
        };
        let files = tasks.iter().map(open).collect::<Option<Vec<_>>>()?;
        let (ran, waited) = sums(&files)?;
        Some(Self { tasks, files, last: (at, ran, waited) })
    }

    /// With a new first reading; `None` after the end of a thread.
    fn again(mut self, at: Nanos) -> Option<Self> {
        let (ran, waited) = sums(&self.files)?;
        self.last = (at, ran, waited);
        Some(self)
    }

    /// Times since the last reading; `None` after the end of a thread.
    fn read(&mut self, pu: PuNr, at: Nanos) -> Option<SharedPu> {
        let (ran, waited) = sums(&self.files)?;
        let (from, ran_before, waited_before) =
            std::mem::replace(&mut self.last, (at, ran, waited));
        Some(SharedPu {
            pu,
            over: at.saturating_sub(from),
            ran: ran.saturating_sub(ran_before),
            waited: waited.saturating_sub(waited_before),
        })
    }
}

/// CPU time and waits of all threads; `None` after the end of one.
fn sums(files: &[RunTime]) -> Option<(Nanos, Nanos)> {
    files.iter().try_fold((Nanos::ZERO, Nanos::ZERO), |(ran, waited), file| {
        let (more_ran, more_waited) = file.read_both()?;
        Some((ran + more_ran, waited + more_waited))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_linux::{Pid, Tid};

    /// Two threads of a pretended `/proc` take turns; then others have the PU for half of 100 ms, then for 36 ms, which is usual by then.
    #[test]
    fn others_are_noticed_once() {
        let proc = tempfile::tempdir().unwrap();
        let folder = |tid: i32| proc.path().join(format!("7/task/{tid}"));
        let sums_of = |tid: i32, ran: u64, waited: u64| {
            let text = format!("{ran}000000 {waited}000000 1\n");
            std::fs::write(folder(tid).join("schedstat"), text).unwrap();
        };
        let files = [7, 8].map(|tid| {
            std::fs::create_dir_all(folder(tid)).unwrap();
            sums_of(tid, 0, 0);
            RunTime::open(proc.path(), Pid(7), Tid(tid)).unwrap()
        });
        let last = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        let readings = Readings { tasks: Vec::new(), files: files.into(), last };
        let mut crowding = Crowding::default();
        crowding.pus.insert(PuNr(3), readings);
        let mut read = |ms, ran, waited| {
            sums_of(7, ran, waited);
            sums_of(8, ran, 0);
            let has_risen = crowding.read(Nanos::from_millis(ms));
            let found = std::mem::take(&mut crowding.found);
            let percent = found.iter().map(|it| (it.displaced() * 100.0).round());
            (has_risen, percent.collect::<Vec<_>>())
        };
        assert_eq!(read(3, 1, 0), (false, vec![]), "too soon");
        assert_eq!(read(100, 45, 20), (false, vec![10.0]));
        assert_eq!(read(200, 70, 70), (true, vec![50.0]));
        assert_eq!(read(300, 102, 120), (false, vec![36.0]));
    }
}
