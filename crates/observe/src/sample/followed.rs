//! Sampled processes, followed through their forks and exits.

use super::clock::{Clock, SETTLED};
use crate::perf::{Record, Stamp, split};
use crate::pmu::Start;
use crate::tree::Tree;
use colocate_linux::SysError;
use colocate_linux::clock::now;
use colocate_linux::{Pid, Tid};
use std::collections::BTreeMap;

/// Samples processes and their future children.
#[derive(Debug)]
pub(crate) struct Followed {
    pub clock: Clock,
    /// Living sampled processes, with the process whose events each inherits (or its own).
    events_of: BTreeMap<Pid, Pid>,
    /// Threads with own events, of each process added explicitly.
    opened: BTreeMap<Pid, Vec<Tid>>,
}

impl Followed {
    /// Samples no process yet.
    pub fn new(clock: Clock) -> Self {
        Self { clock, events_of: BTreeMap::new(), opened: BTreeMap::new() }
    }

    /// Adds process `pid` and all its future children. With [`Start::AtExec`] the process waits
    /// before its exec, and nothing before the exec is counted.
    pub fn also(&mut self, pid: Pid, start: Start) -> Result<(), SysError> {
        self.clock.expect(pid, start);
        let mut tree = Tree::default();
        tree.add(pid);
        tree.scan(&self.clock.proc, now(), &mut Vec::new());
        tree.processes().try_for_each(|process| self.also_alone(process))
    }

    /// Adds process `pid`, and the threads and processes created from now on.
    pub fn also_alone(&mut self, pid: Pid) -> Result<(), SysError> {
        // `attach` opens events on several threads and may fail in the middle.
        let before = self.clock.rings.tids().len();
        let done = self.clock.attach(pid);
        self.opened.entry(pid).or_default().extend(self.clock.rings.tids().skip(before));
        if let Err(why) = done {
            self.forget(pid);
            return Err(why);
        }
        self.events_of.insert(pid, pid);
        self.clock.spaces.clear(pid);
        self.clock.spaces.find(pid, &self.clock.proc);
        Ok(())
    }

    /// Whether process `pid` is sampled, as far as the kernel has reported process creations.
    pub fn samples(&self, pid: Pid) -> bool {
        self.events_of.contains_key(&pid)
    }

    /// Stops sampling process `pid` and the processes it created since it was added.
    pub fn forget(&mut self, pid: Pid) {
        for tid in self.opened.remove(&pid).unwrap_or_default() {
            self.clock.rings.detach(tid);
        }
        self.clock.forget(pid);
        self.events_of.retain(|_, of| *of != pid);
    }

    /// Number of open events: one for each CPU and each thread found at the start. Inherited events
    /// do not count.
    pub fn events(&self) -> usize {
        self.clock.rings.tids().len()
    }

    /// Settled records, in the order of time.
    pub fn take(&mut self) -> Vec<u8> {
        self.clock.take(now().saturating_sub(SETTLED)).0
    }

    /// Calls `of` with each record, after tracking it.
    pub fn each(&mut self, bytes: &[u8], mut of: impl FnMut(&mut Clock, &Record<'_>)) {
        for (whole, record) in split(bytes) {
            self.follow(whole, &record);
            of(&mut self.clock, &record);
        }
    }

    fn follow(&mut self, whole: &[u8], record: &Record<'_>) {
        self.clock.follow(whole, record);
        match record {
            Record::Fork { created, parent_pid, .. } if created.pid != *parent_pid => {
                if let Some(of) = self.events_of.get(parent_pid) {
                    self.events_of.insert(created.pid, *of);
                }
            }
            Record::Exit(Stamp { pid, tid, .. }) if *tid == pid.first_thread() => {
                self.clock.spaces.clear(*pid);
                self.events_of.remove(pid);
            }
            _ => {}
        }
    }
}
