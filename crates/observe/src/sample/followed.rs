//! Processes whose threads are sampled, as they create others and end.

use super::clock::{Clock, SETTLED};
use crate::perf::{Record, Stamp, split};
use crate::pmu::Start;
use crate::tree::Tree;
use colocate_linux::SysError;
use colocate_linux::clock::now;
use colocate_linux::{Pid, Tid};
use std::collections::BTreeMap;

/// Samples of processes that come and go.
#[derive(Debug)]
pub(crate) struct Followed {
    pub clock: Clock,
    /// Living processes that are sampled, and whose events they have: their own, or those of one that created them.
    events_of: BTreeMap<Pid, Pid>,
    /// The threads that events were opened for, of each process that was not sampled by way of another one.
    opened: BTreeMap<Pid, Vec<Tid>>,
}

impl Followed {
    /// None yet.
    pub fn new(clock: Clock) -> Self {
        Self { clock, events_of: BTreeMap::new(), opened: BTreeMap::new() }
    }

    /// Samples process `pid` and all that it creates, too; with [`Start::AtExec`] it waits before its exec, and nothing
    /// that it does before is counted.
    pub fn also(&mut self, pid: Pid, start: Start) -> Result<(), SysError> {
        self.clock.expect(pid, start);
        let mut tree = Tree::default();
        tree.add(pid);
        tree.scan(&self.clock.proc, now(), &mut Vec::new());
        tree.processes().try_for_each(|process| self.also_alone(process))
    }

    /// Samples process `pid` and all that it creates from now on.
    pub fn also_alone(&mut self, pid: Pid) -> Result<(), SysError> {
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

    /// Whether process `pid` is sampled, as far as the kernel has reported created processes.
    pub fn samples(&self, pid: Pid) -> bool {
        self.events_of.contains_key(&pid)
    }

    /// Samples process `pid` no more, nor what it has created since it was sampled.
    pub fn forget(&mut self, pid: Pid) {
        for tid in self.opened.remove(&pid).unwrap_or_default() {
            self.clock.rings.detach(tid);
        }
        self.clock.forget(pid);
        self.events_of.retain(|_, of| *of != pid);
    }

    /// How many events are open: one for each CPU and each thread that was found running, not for those that these create.
    pub fn events(&self) -> usize {
        self.clock.rings.tids().len()
    }

    /// The records that have settled, in the order of time.
    pub fn take(&mut self) -> Vec<u8> {
        self.clock.take(now().saturating_sub(SETTLED)).0
    }

    /// Passes on each of these records after it was followed.
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
