//! For how long tasks have only waited for others in a loop, by samples that are taken in where quanta end.

use crate::lifecycle::Options;
use crate::pmu::Start;
use crate::spin::judging::Judging;
use crate::spin::spun::{self, Spun};
use crate::sys::SysError;
use crate::task::{Pid, Tid};
use colocate_machine::Nanos;
use colocate_policy::TaskId;
use colocate_policy::source::Backend;
use std::collections::{HashMap, HashSet};

/// Samples of running threads, and what came of them.
#[derive(Debug)]
pub struct Spinning {
    judging: Judging,
    rate_hz: u32,
    /// What is known of each task, and its times until the last poll.
    of: HashMap<TaskId, (Spun, spun::Times)>,
}

impl Spinning {
    /// Samples nothing yet, so often a second of each thread's CPU time. Creates a thread, which calls `begin` first.
    ///
    /// # Errors
    /// As [`Judging::new`].
    pub fn new(
        rate_hz: u32,
        watch: &Options,
        begin: impl FnOnce() + Send + 'static,
    ) -> Result<Self, SysError> {
        Ok(Self { judging: Judging::new(rate_hz, watch, begin)?, rate_hz, of: HashMap::new() })
    }

    /// What they are and cost.
    #[must_use]
    pub fn backend(&self) -> Backend {
        let cost = format!("{} samples for each second of CPU time", self.rate_hz);
        Backend {
            name: "perf events: instruction pointers and the code there",
            cost,
            limits: Vec::new(),
        }
    }

    /// Samples process `pid`, which waits before its exec, and all that it creates.
    ///
    /// # Errors
    /// As [`Judging::also`].
    pub fn also(&mut self, pid: Pid) -> Result<(), SysError> {
        self.judging.also(pid, Start::AtExec)
    }

    /// Samples process `pid`, which runs already, without what it creates.
    ///
    /// # Errors
    /// As [`Judging::also_alone`].
    pub fn also_running(&mut self, pid: Pid) -> Result<(), SysError> {
        self.judging.also_alone(pid)
    }

    /// Whether process `pid` is sampled.
    #[must_use]
    pub fn samples(&self, pid: Pid) -> bool {
        self.judging.samples(pid)
    }

    /// How many events are open, a thread and CPU each.
    #[must_use]
    pub fn events(&self) -> usize {
        self.judging.events()
    }

    /// Samples process `pid` no more.
    pub fn forget(&mut self, pid: Pid) {
        self.judging.forget(pid);
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
    pub fn poll(&mut self, tasks: impl Iterator<Item = (Tid, TaskId, spun::Times)>) {
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

    /// For how long a task has waited in loops; `None` if no sample of it says anything, as its code cannot be
    /// read. A task never found running has not waited.
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
