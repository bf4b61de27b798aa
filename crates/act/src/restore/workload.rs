//! Who belongs to a journal's workload, and what it had before if the journal does not say.
//!
//! # Problem
//! Processes that colocate has not heard of, because it died, descend from those in the journal; but creators end, and
//! then nobody says any more whose child it was.
//! # Approach
//! Whoever is in a cgroup that was made for a job belongs to it, whatever has become of its creators. Without cgroups
//! it is who descends from a living task in the journal, or did so in an earlier look: a process whose creators had
//! all ended before the first one is not found.
//! # Terms
//! - *Known*: in the journal, and alive.

use crate::idle::Fair;
use crate::journal::{Entry, Journal};
use crate::pause::{How, freezer};
use crate::stat::{Stat, parents};
use crate::sys;
use colocate_observe::{Pid, Tid};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// Generations that are gone through at most on the way to a known creator. Chosen: nobody nests that deep, and what
/// is read of processes that come and go might go round in a circle.
const GENERATIONS: usize = 1000;

/// A journal's workload.
pub(super) struct Workload<'a> {
    journal: &'a Journal,
    proc: &'a Path,
    /// The known tasks by thread, as of the last look.
    known: HashMap<Tid, &'a Entry>,
    /// Processes that were found in a look, with the times of their start in clock ticks since boot.
    met: BTreeMap<Pid, u64>,
}

impl<'a> Workload<'a> {
    /// That of a journal. `proc` is `/proc`.
    pub fn of(journal: &'a Journal, proc: &'a Path) -> Self {
        Self { journal, proc, known: living(journal, proc), met: BTreeMap::new() }
    }

    /// What the journal says of a thread, if it is known.
    pub fn known(&self, tid: Tid) -> Option<&'a Entry> {
        self.known.get(&tid).copied()
    }

    /// The processes in its cgroups.
    pub fn members(&self) -> BTreeSet<Pid> {
        match &self.journal.pauses {
            Some(How::Freezer(folder)) => freezer::members(folder).into_iter().flatten().collect(),
            _ => BTreeSet::new(),
        }
    }

    /// Looks for all its processes.
    pub fn processes(&mut self) -> BTreeSet<Pid> {
        self.known = living(self.journal, self.proc);
        let start = |pid: Pid| Some(Stat::read(self.proc, pid, pid.first_thread())?.start_ticks);
        self.met.retain(|pid, then| start(*pid) == Some(*then));
        let mut pids = self.members();
        pids.extend(self.known.values().map(|entry| entry.pid).chain(self.met.keys().copied()));
        add_descendants(&mut pids, &parents(self.proc));
        for pid in &pids {
            if let Some(start) = start(*pid) {
                self.met.entry(*pid).or_insert(start);
            }
        }
        pids
    }

    /// Whether some of its threads are under SCHED_IDLE by our doing.
    pub fn fills(&self) -> bool {
        self.journal.entries.iter().any(|entry| entry.lowered.is_some())
    }

    /// The policy that a thread under SCHED_IDLE had before; `None` if it is there by its own doing.
    ///
    /// While jobs fill idle PUs, everybody that colocate has heard of stands in the journal. So others have been
    /// born as colocate died, and have it from their creators. One that has put itself there since then cannot be told
    /// from those.
    pub fn policy_before(&self, pid: Pid, tid: Tid) -> Option<Fair> {
        if let Some(entry) = self.known(tid) {
            return entry.lowered;
        }
        let is_known = |pid| self.known.values().any(|entry| entry.pid == pid);
        let parent = |pid: Pid| Some(Stat::read(self.proc, pid, pid.first_thread())?.parent);
        match nearest(pid, is_known, parent) {
            Some(creator) => self.policy_of(creator),
            // It is in a cgroup, or its creators have ended since it was found.
            None => self.journal.entries.iter().find_map(|entry| entry.lowered),
        }
    }

    /// The policy that a known process has or had before we put it under SCHED_IDLE, unless it is there by its own
    /// doing. It may have been taken out of it again while it was creating somebody.
    fn policy_of(&self, pid: Pid) -> Option<Fair> {
        let entries = || self.known.values().filter(|entry| entry.pid == pid);
        let now = |tid| Fair::of(sys::schedule_of(tid).ok()?.policy);
        let lowered = entries().find_map(|entry| entry.lowered);
        lowered.or_else(|| entries().find_map(|entry| now(entry.tid)))
    }
}

/// The journal's tasks that live, by thread.
fn living<'a>(journal: &'a Journal, proc: &Path) -> HashMap<Tid, &'a Entry> {
    let lives = |entry: &&Entry| {
        Stat::read(proc, entry.pid, entry.tid).is_some_and(|s| s.start_ticks == entry.start_ticks)
    };
    journal.entries.iter().filter(lives).map(|entry| (entry.tid, entry)).collect()
}

/// Adds to some processes all that descend from them.
fn add_descendants(pids: &mut BTreeSet<Pid>, parents: &HashMap<Pid, Pid>) {
    loop {
        let children = parents.iter().filter(|(_, parent)| pids.contains(parent));
        let new: Vec<Pid> = children.map(|(pid, _)| *pid).filter(|p| !pids.contains(p)).collect();
        if new.is_empty() {
            return;
        }
        pids.extend(new);
    }
}

/// A process itself, or the nearest of those that it descends from, that is known.
fn nearest(
    pid: Pid,
    is_known: impl Fn(Pid) -> bool,
    parent: impl Fn(Pid) -> Option<Pid>,
) -> Option<Pid> {
    let line = std::iter::successors(Some(pid), |pid| parent(*pid));
    line.take(GENERATIONS).find(|pid| is_known(*pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Process 10 is known and has created 30, that 50, and that 70; 20 is known and has created 40 and, by way of
    /// that, the known 60. Process 80 has lost its creator, and 90 seems to be its own: it has ended, and another one
    /// has its number.
    #[test]
    fn the_nearest_known_creator() {
        let parents = [(10, 1), (20, 1), (30, 10), (50, 30), (70, 50), (40, 20), (60, 40), (80, 1)];
        let parent = |pid: Pid| match pid.0 {
            90 => Some(pid),
            pid => Some(Pid(parents.iter().find(|(child, _)| *child == pid)?.1)),
        };
        let of =
            |pid| nearest(Pid(pid), |pid| [10, 20, 60].contains(&pid.0), parent).map(|it| it.0);
        assert_eq!([10, 30, 50, 70].map(of), [Some(10); 4]);
        assert_eq!([20, 40].map(of), [Some(20); 2]);
        assert_eq!([60, 80, 90, 1].map(of), [Some(60), None, None, None]);
    }
}
