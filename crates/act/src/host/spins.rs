//! For how long threads have only waited for others in a loop, by samples that are taken in where quanta end.

use crate::sys;
use colocate_machine::Nanos;
use colocate_observe::pmu::Start;
use colocate_observe::spin::judging::Judging;
use colocate_observe::spin::spun::{Spun, Times};
use colocate_observe::{Pid, SysError, Tid, births};
use colocate_policy::TaskId;
use std::collections::{HashMap, HashSet};

/// Samples of running threads, and what came of them.
#[derive(Debug)]
pub struct Spins {
    judging: Judging,
    /// What is known of each task, and its times until the last look.
    of: HashMap<TaskId, (Spun, Times)>,
}

impl Spins {
    /// Samples nobody yet, so often a second of each thread's CPU time. Creates a thread, which has the given `nice`.
    ///
    /// # Errors
    /// As [`Judging::new`].
    pub fn new(rate_hz: u32, watch: &births::Options, nice: i32) -> Result<Self, SysError> {
        // Only the thread that places newborns has to be prompt.
        let begin = move || {
            let _ = sys::be_prompt(Nanos::ZERO, nice);
        };
        Ok(Self { judging: Judging::new(rate_hz, watch, begin)?, of: HashMap::new() })
    }

    /// Samples process `pid`, which waits before its exec, and all that it creates.
    ///
    /// # Errors
    /// As [`Judging::also`].
    pub fn also(&mut self, pid: Pid) -> Result<(), SysError> {
        self.judging.also(pid, Start::AtExec)
    }

    /// The same, instead of process `before`, which has ended.
    ///
    /// # Errors
    /// As [`Judging::also`].
    pub fn instead(&mut self, before: Pid, pid: Pid) -> Result<(), SysError> {
        self.judging.forget(before);
        self.also(pid)
    }

    /// Takes in what has been sampled. `tasks` are the living ones that may have run, with their times until now.
    pub fn look(&mut self, tasks: impl Iterator<Item = (Tid, TaskId, Times)>) {
        let (shares, most) = (self.judging.take(), self.judging.most());
        for (tid, id, now) in tasks {
            let share = shares.get(&tid).copied();
            if share.is_none() && !self.of.contains_key(&id) {
                continue;
            }
            let (spun, before) = self.of.entry(id).or_default();
            let did = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
            spun.add(share.unwrap_or_default(), did, most);
            *before = now;
        }
    }

    /// For how long a task has waited in loops; `None` if no sample of it has told anything, as its code cannot be
    /// read. Who was never found running has not.
    #[must_use]
    pub fn spun(&self, id: TaskId) -> Option<Nanos> {
        self.of.get(&id).map_or(Some(Nanos::ZERO), |(spun, _)| spun.waited())
    }

    /// Forgets tasks that are not among `tasks`, if there are many.
    pub fn keep(&mut self, tasks: impl ExactSizeIterator<Item = TaskId>) {
        if self.of.len() > 2 * tasks.len() {
            let kept: HashSet<TaskId> = tasks.collect();
            self.of.retain(|id, _| kept.contains(id));
        }
    }
}
