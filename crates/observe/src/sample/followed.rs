//! Sampled processes of a subscriber: their executable mappings, and launches before the exec.

use super::clock::{SETTLED, Subscription};
use super::file::FileId;
use super::maps::Spaces;
use crate::event::TaskEvent;
use crate::perf::{PerfRecord, SampleId, split};
use crate::pmu::Start;
use crate::tree::Tree;
use colocate_linux::clock::now;
use colocate_linux::{Pid, SysError};
use std::collections::BTreeSet;

/// Samples of processes and their future children.
#[derive(Debug)]
pub(crate) struct FollowedSamples {
    pub samples: Subscription,
    pub spaces: Spaces,
    /// Launched processes before their exec.
    waiting: BTreeSet<Pid>,
}

impl FollowedSamples {
    /// Samples no process yet.
    pub fn new(samples: Subscription) -> Self {
        Self { samples, spaces: Spaces::default(), waiting: BTreeSet::new() }
    }

    /// Adds process `pid`, its descendants and all their future children. With [`Start::AtExec`]
    /// the process waits before its exec, and nothing before the exec is counted. `found` receives
    /// the present threads. Returns the processes, and whether the kernel will report the exit of
    /// each thread.
    pub fn also(
        &mut self,
        pid: Pid,
        start: Start,
        found: &mut Vec<TaskEvent>,
    ) -> Result<(Tree, bool), SysError> {
        let mut tree = Tree::default();
        tree.add(pid);
        tree.scan(&self.samples.proc, now(), found);
        if start == Start::AtExec && !tree.is_empty() {
            self.waiting.insert(pid);
        }
        let mut reports_exits = true;
        for process in tree.processes() {
            reports_exits &= self.also_alone(process)?;
        }
        Ok((tree, reports_exits))
    }

    /// Adds process `pid`, and the threads and processes created from now on. Returns whether the
    /// kernel will report the exit of each thread.
    pub fn also_alone(&mut self, pid: Pid) -> Result<bool, SysError> {
        let added = self.samples.add(pid);
        if added.is_err() {
            self.waiting.remove(&pid);
        }
        let reports_exits = added?;
        self.spaces.clear(pid);
        self.spaces.find(pid, &self.samples.proc);
        Ok(reports_exits)
    }

    /// Stops sampling process `pid` and the processes it created since it was added.
    pub fn forget(&mut self, pid: Pid) {
        self.samples.forget(pid);
        self.waiting.remove(&pid);
    }

    /// Whether process `pid` has not yet executed its program.
    pub fn is_waiting(&self, pid: Pid) -> bool {
        self.waiting.contains(&pid)
    }

    /// Calls `of` with each settled record, after tracking it.
    pub fn each(&mut self, mut of: impl FnMut(&mut Self, &PerfRecord<'_>)) {
        let taken = self.samples.take(now().saturating_sub(SETTLED));
        for (whole, record) in split(&taken.bytes) {
            self.follow(whole, &record);
            of(self, &record);
            if let PerfRecord::Exit(SampleId { pid, tid, .. }) = record
                && tid == pid.first_thread()
            {
                self.spaces.clear(pid);
            }
        }
    }

    /// Updates the mappings and waiting processes by a record; `whole` is the record's bytes.
    pub fn follow(&mut self, whole: &[u8], record: &PerfRecord<'_>) {
        match record {
            // A new thread's record has its process as both; only a new process copies mappings.
            PerfRecord::Fork { created, parent_pid, .. } if created.pid != *parent_pid => {
                self.spaces.fork(*parent_pid, created.pid);
                // A child of a process before its exec has not executed its program either.
                if self.waiting.contains(parent_pid) {
                    self.waiting.insert(created.pid);
                }
            }
            PerfRecord::Comm { of, exec: true, .. } => {
                self.waiting.remove(&of.pid);
                self.spaces.clear(of.pid);
            }
            PerfRecord::Map(by, map) => self.spaces.map(by.pid, map, FileId::of_record(whole)),
            _ => {}
        }
    }
}
