//! Which processes belong to a journal's workload, and what they had before if the journal does not say.
//!
//! # Problem
//! A process that colocate has not seen, because it died or was late, descends from one in the journal; but creators
//! end, and then the kernel does not say any more which process created it.
//! # Approach
//! A process belongs to the workload if it
//! - is in the journal, or in a cgroup that was made for a job,
//! - descends from such a process, or from colocate itself as long as that lives: it adopts orphans, or
//! - has the journal's token in its environment, or
//! - is an orphan of what was attached to ([`crate::attached`]).
//!
//! What has none of these, since it has another environment and all its creators ended before the first scan, is not
//! found; docs/results/restore.md has how often that was measured. Each process that is found is opened and checked once more, so that
//! none is taken for it that has its number now.
//! # Terms
//! - *Known*: in the journal, and alive.

use crate::attached::{Attached, GENERATIONS, MOST_CGROUPS_B, MOST_ENVIRONMENT_B};
use crate::fair::Fair;
use crate::journal::{Journal, JournalEntry, Mark, TOKEN_VARIABLE};
use crate::pause::freezer;
use crate::pause::how::How;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::proc::Proc;
use colocate_linux::proc::stat::{Stat, processes};
use colocate_linux::sys;
use colocate_linux::{Pid, Tid};
use colocate_machine::read::{Cpusets, Sysfs};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;

/// A living colocate, whose descendants are the workload.
#[derive(Clone, Debug)]
pub struct Root {
    /// Process number.
    pub pid: Pid,
    /// Guardian of colocate, outside the workload.
    pub guardian: Option<Pid>,
    /// Whether colocate has the kernel's records of all thread and process creations.
    pub has_records: bool,
    /// Children from before the start, with their start times: a shell that executes colocate
    /// leaves it its own children.
    pub earlier: Vec<(Pid, u64)>,
}

impl Root {
    /// This process, before its first child. `proc` is `/proc`.
    pub fn of_this(proc: &Path) -> Self {
        let pid = Pid(std::process::id().cast_signed());
        let earlier = Proc::at(proc)
            .children(pid)
            .into_iter()
            .filter_map(|pid| Some((pid, Stat::read(proc, pid, pid.first_thread())?.start_ticks)))
            .collect();
        Self { pid, guardian: None, has_records: false, earlier }
    }

    fn had_before(&self, pid: Pid, start_ticks: u64) -> bool {
        self.earlier.contains(&(pid, start_ticks))
    }

    /// Whether no created or adopted process lives except the guardian, the first one created. The
    /// part after the guardian in the kernel's list of children is complete, as only ends meanwhile
    /// can hide an entry (proc_pid_task(5)).
    pub fn is_alone(&self, proc: &Path) -> bool {
        let mut children = Proc::at(proc).children(self.pid);
        children.retain(|pid| {
            let stat = Stat::read(proc, *pid, pid.first_thread());
            stat.is_none_or(|stat| !self.had_before(*pid, stat.start_ticks))
        });
        self.guardian.is_some_and(|guardian| children == [guardian])
    }
}

/// A journal's workload.
pub(crate) struct JournalWorkload<'a> {
    journal: &'a Journal,
    proc: &'a Path,
    root: Option<Root>,
    /// The known tasks by thread, as of the last scan.
    known: HashMap<Tid, &'a JournalEntry>,
    /// Processes found in a scan, with their start times in clock ticks since boot.
    met: HashMap<Pid, u64>,
    /// Processes without the token in their environment, with their start times.
    others: HashMap<Pid, u64>,
    /// Attached processes, and the programs executed by the workload's processes. `None` if all
    /// were launched, or for a living colocate with the kernel's records.
    attached: Option<Attached>,
    /// Processes whose program was read for `attached`, with their start times.
    read: HashMap<Pid, u64>,
    cpusets: Cpusets,
}

impl<'a> JournalWorkload<'a> {
    /// Workload of a journal. `proc` is `/proc`.
    pub fn of(journal: &'a Journal, proc: &'a Path, root: Option<Root>) -> Self {
        let has_records = root.as_ref().is_some_and(|root| root.has_records);
        let attached = journal.attached.clone().filter(|_| !has_records);
        Self {
            journal,
            proc,
            root,
            known: HashMap::new(),
            met: HashMap::new(),
            others: HashMap::new(),
            attached,
            read: HashMap::new(),
            cpusets: Cpusets::new(Sysfs::at(Path::new("/"))),
        }
    }

    /// The journal.
    pub fn journal(&self) -> &'a Journal {
        self.journal
    }

    /// Reader of its threads' cpusets.
    pub fn cpusets(&self) -> &Cpusets {
        &self.cpusets
    }

    /// Journal entry of a thread, if known.
    pub fn known(&self, tid: Tid) -> Option<&'a JournalEntry> {
        self.known.get(&tid).copied()
    }

    /// The processes in its cgroups.
    pub fn members(&self) -> Vec<ProcessHandle> {
        let Some(How::Freezer(folder)) = &self.journal.pauses else { return Vec::new() };
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let part = format!("/{name}/");
        let pids = freezer::members(folder).into_iter().flatten();
        let opened = pids.filter_map(|pid| ProcessHandle::open(self.proc, pid).ok());
        opened
            .filter(|handle| {
                let cgroups = handle.read("cgroup", MOST_CGROUPS_B).unwrap_or_default();
                // The number may belong to another process since; hierarchy 0 is version 2
                // (cgroups(7)).
                cgroups.lines().any(|line| line.starts_with("0::") && line.contains(&part))
            })
            .collect()
    }

    /// Scans for all its processes.
    ///
    /// # Errors
    /// If processes cannot be listed.
    pub fn processes(&mut self) -> io::Result<Vec<ProcessHandle>> {
        self.known = living(self.journal, self.proc);
        let all = processes(self.proc)?;
        let members = self.members();
        let mut pids: BTreeSet<Pid> = members.iter().map(ProcessHandle::pid).collect();
        pids.extend(self.known.values().map(|entry| entry.pid));
        // Processes found earlier stay, though their creators may have ended since.
        pids.extend(
            all.iter()
                .filter(|(pid, stat)| self.met.get(pid) == Some(&stat.start_ticks))
                .map(|(pid, _)| *pid),
        );
        pids.extend(self.of_root(&all));
        add_descendants(&mut pids, &all);
        let with_token = self.with_token(&all, &pids);
        if !with_token.is_empty() {
            pids.extend(with_token);
            add_descendants(&mut pids, &all);
        }
        if let Some(attached) = &mut self.attached {
            for (pid, stat) in pids.iter().filter_map(|pid| Some((*pid, all.get(pid)?))) {
                if self.read.insert(pid, stat.start_ticks) != Some(stat.start_ticks)
                    && let Ok(process) = ProcessHandle::open(self.proc, pid)
                {
                    attached.add_program(self.proc, &process);
                }
            }
            let of = (self.journal.owner.start_ticks, &self.journal.given()[..]);
            let orphans = attached.orphans(self.proc, &all, of, |pid| pids.contains(&pid));
            pids.extend(orphans);
            add_descendants(&mut pids, &all);
        }
        self.met = pids.iter().filter_map(|pid| Some((*pid, all.get(pid)?.start_ticks))).collect();
        let found = pids.iter().filter_map(|pid| ProcessHandle::open(self.proc, *pid).ok());
        Ok(found
            .filter(|handle| {
                // The number may belong to another process since it was listed.
                all.get(&handle.pid()).is_some_and(|stat| stat.start_ticks == handle.start_ticks())
            })
            .collect())
    }

    /// Children of a living colocate.
    fn of_root(&self, all: &HashMap<Pid, Stat>) -> Vec<Pid> {
        let Some(root) = &self.root else { return Vec::new() };
        all.iter()
            .filter(|(pid, stat)| {
                stat.parent == root.pid
                    && root.guardian != Some(**pid)
                    && !root.had_before(**pid, stat.start_ticks)
            })
            .map(|(pid, _)| *pid)
            .collect()
    }

    /// Processes with the token in their environment, other than `found`.
    fn with_token(&mut self, all: &HashMap<Pid, Stat>, found: &BTreeSet<Pid>) -> Vec<Pid> {
        let Some(token) = &self.journal.token else { return Vec::new() };
        let entry = format!("{TOKEN_VARIABLE}={token}");
        let begun = self.journal.owner.start_ticks;
        let us = Pid(std::process::id().cast_signed());
        let mut holders = Vec::new();
        for (&pid, stat) in all {
            let ticks = stat.start_ticks;
            let is_other = self.others.get(&pid) == Some(&ticks);
            // A process older than colocate cannot have its token.
            if ticks < begun || is_other || pid == us || found.contains(&pid) {
                continue;
            }
            let Ok(handle) = ProcessHandle::open(self.proc, pid) else { continue };
            let environment =
                handle.read_of_memory("environ", MOST_ENVIRONMENT_B).unwrap_or_default();
            if environment.split('\0').any(|it| it == entry) {
                holders.push(pid);
            } else if !environment.is_empty() {
                // One that is just executing a program has none for a moment.
                self.others.insert(pid, ticks);
            }
        }
        holders
    }

    /// Whether every journaled thread of a process has a mask set by its program; for an unknown
    /// process, of its nearest known ancestor. New threads inherit their masks from these threads.
    pub fn has_only_masks_of_its_own(&self, pid: Pid) -> bool {
        self.nearest_known(pid).is_some_and(|known| {
            let mut entries = self.journal.entries.iter().filter(|entry| entry.pid == known);
            entries.all(|entry| entry.mark == Mark::Programs && !entry.was.is_put())
        })
    }

    fn nearest_known(&self, pid: Pid) -> Option<Pid> {
        nearest(
            pid,
            |pid| self.known.values().any(|entry| entry.pid == pid),
            |pid| Some(Stat::read(self.proc, pid, pid.first_thread())?.parent),
        )
    }

    /// Whether colocate put any of its threads under SCHED_IDLE.
    pub fn fills(&self) -> bool {
        self.journal.entries.iter().any(|entry| entry.lowered.is_some())
    }

    /// Policy of a thread before its change to SCHED_IDLE; `None` if it chose SCHED_IDLE itself.
    ///
    /// While jobs fill idle PUs, every thread seen by colocate is in the journal. Unknown threads
    /// were created during colocate's death, and have SCHED_IDLE from their creators. A thread that
    /// chose SCHED_IDLE since then cannot be distinguished.
    pub fn policy_before(&self, pid: Pid, tid: Tid) -> Option<Fair> {
        if let Some(entry) = self.known(tid) {
            return entry.lowered;
        }
        match self.nearest_known(pid) {
            Some(creator) => self.policy_of(creator),
            // It is in a cgroup, or its creators have ended since it was found.
            None => self.journal.entries.iter().find_map(|entry| entry.lowered),
        }
    }

    /// Policy of a known process, now or before the change to SCHED_IDLE, unless it chose
    /// SCHED_IDLE itself. Its policy may have been restored while it was creating another process.
    fn policy_of(&self, pid: Pid) -> Option<Fair> {
        let entries = || self.known.values().filter(|entry| entry.pid == pid);
        let lowered = entries().find_map(|entry| entry.lowered);
        lowered.or_else(|| {
            entries().find_map(|entry| Fair::of(sys::schedule_of(entry.tid).ok()?.policy))
        })
    }
}

/// Living tasks of the journal, by thread.
fn living<'a>(journal: &'a Journal, proc: &Path) -> HashMap<Tid, &'a JournalEntry> {
    journal
        .entries
        .iter()
        .filter(|entry| {
            Stat::read(proc, entry.pid, entry.tid)
                .is_some_and(|s| s.start_ticks == entry.start_ticks)
        })
        .map(|entry| (entry.tid, entry))
        .collect()
}

/// Adds all descendants to a set of processes.
fn add_descendants(pids: &mut BTreeSet<Pid>, all: &HashMap<Pid, Stat>) {
    loop {
        let children = all.iter().filter(|(_, stat)| pids.contains(&stat.parent));
        let new: Vec<Pid> = children.map(|(pid, _)| *pid).filter(|p| !pids.contains(p)).collect();
        if new.is_empty() {
            return;
        }
        pids.extend(new);
    }
}

/// The process itself if known, or its nearest known ancestor.
pub(crate) fn nearest(
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

    /// Process 9, with two threads; its guardian is 20.
    #[test]
    fn alone_with_the_guardian() {
        let proc = tempfile::tempdir().unwrap();
        let earlier = Vec::new();
        let root = Root { pid: Pid(9), guardian: Some(Pid(20)), has_records: true, earlier };
        for (of_9, of_10, is_alone) in
            [("20 ", "", true), ("20 30 ", "", false), ("20 ", "30 ", false), ("", "", false)]
        {
            for (tid, children) in [(9, of_9), (10, of_10)] {
                let task = proc.path().join(format!("9/task/{tid}"));
                std::fs::create_dir_all(&task).unwrap();
                std::fs::write(task.join("children"), children).unwrap();
            }
            assert_eq!(root.is_alone(proc.path()), is_alone, "{of_9:?} {of_10:?}");
            assert!(!Root { guardian: None, ..root.clone() }.is_alone(proc.path()));
        }
    }

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
