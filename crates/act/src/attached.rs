//! Processes of programs that were attached to and that nothing else names: their creators have ended, and colocate has not seen them.
//!
//! What is launched by colocate and loses its creator becomes a child of colocate, or has the journal's token. What is attached to has
//! neither: a daemon that it makes becomes a child of init. It is known by what it has inherited: the control groups of its creator
//! and a mask that was given. A process of another program has the same only if it was started after colocate in the same
//! control group, has lost its creator, and was bound by its user to a place that colocate gave to a thread.

use crate::check_sum::check_sum;
use crate::handle::ProcessHandle;
use crate::stat::Stat;
use colocate_machine::PuSet;
use colocate_observe::{Pid, Tid, affinity};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Most bytes of a list of control groups: thirteen hierarchies, and paths of at most 4,096 bytes (`PATH_MAX`).
const MOST_CGROUPS_B: u64 = 64 << 10;
/// Most control groups that are noted. Chosen: a journal's head stays below 64 KiB.
const MOST_GROUPS: usize = 1_000;
/// Generations of creators that are gone through. Chosen: nothing nests that deep.
const GENERATIONS: usize = 1_000;

/// Processes that were attached to, as far as their orphans can be known by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// Check sums of their lists of control groups.
    pub groups: BTreeSet<u32>,
    /// Processes that adopt what they have created: their creators of other sessions, and init.
    pub reapers: BTreeSet<Pid>,
}

impl Attached {
    /// Control groups and reapers of these processes. `proc` is `/proc`.
    pub fn of<'a>(proc: &Path, processes: impl Iterator<Item = &'a ProcessHandle>) -> Self {
        let mut attached = Self::default();
        for process in processes {
            if attached.groups.len() < MOST_GROUPS {
                attached.groups.extend(groups_of(process));
            }
            attached.reapers.extend(reapers_of(proc, process));
        }
        attached
    }

    /// Reads what `Display` has written.
    pub fn parse(text: &str) -> Option<Self> {
        let (groups, reapers) = text.split_once(' ')?;
        let groups = groups.split(',').map(|sum| u32::from_str_radix(sum, 16).ok());
        let reapers = reapers.split(',').map(|pid| pid.parse().ok().map(Pid));
        Some(Self {
            groups: groups.collect::<Option<_>>()?,
            reapers: reapers.collect::<Option<_>>()?,
        })
    }

    /// Orphans among `all` processes that were started since `begun`, in clock ticks since boot, and have a mask that was `given`. Those that
    /// are known are not looked at.
    pub fn orphans(
        &self,
        proc: &Path,
        all: &HashMap<Pid, Stat>,
        (begun, given): (u64, &[PuSet]),
        is_known: impl Fn(Pid) -> bool,
    ) -> Vec<Pid> {
        let may_be = |(pid, stat): &(&Pid, &Stat)| {
            stat.start_ticks >= begun && self.reapers.contains(&stat.parent) && !is_known(**pid)
        };
        let found = all.iter().filter(may_be).map(|(pid, _)| *pid);
        found.filter(|pid| self.is_orphan(proc, *pid, given)).collect()
    }

    /// Whether a process has the control groups of what was attached to, and a thread of it a mask that was given.
    fn is_orphan(&self, proc: &Path, pid: Pid, given: &[PuSet]) -> bool {
        let Ok(process) = ProcessHandle::open(proc, pid) else { return false };
        let is_given = |tid: &Tid| affinity::of(*tid).is_ok_and(|mask| given.contains(&mask));
        groups_of(&process).is_some_and(|groups| self.groups.contains(&groups))
            && process.threads().iter().any(is_given)
    }
}

impl std::fmt::Display for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let groups: Vec<String> = self.groups.iter().map(|sum| format!("{sum:x}")).collect();
        let reapers: Vec<String> = self.reapers.iter().map(ToString::to_string).collect();
        write!(f, "{} {}", groups.join(","), reapers.join(","))
    }
}

/// Check sum of a process's list of control groups; `None` if it has ended.
fn groups_of(process: &ProcessHandle) -> Option<u32> {
    process.read("cgroup", MOST_CGROUPS_B).ok().map(|text| check_sum(&text))
}

/// Creators of a process that may adopt what it creates: a shell, which shares its session, does not.
fn reapers_of(proc: &Path, process: &ProcessHandle) -> Vec<Pid> {
    let Some(stat) = process.stat() else { return Vec::new() };
    let stat_of = |pid: Pid| Some((pid, Stat::read(proc, pid, pid.first_thread())?));
    let creators = std::iter::successors(stat_of(stat.parent), |(_, stat)| stat_of(stat.parent));
    let adopts = |(pid, creator): &(Pid, Stat)| *pid == INIT || creator.session != stat.session;
    let adopting = creators.take(GENERATIONS).filter(adopts);
    adopting.map(|(pid, _)| pid).chain([INIT]).collect()
}

const INIT: Pid = Pid(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let attached = Attached {
            groups: [0xdead_beef, 7].into_iter().collect(),
            reapers: [Pid(1), Pid(4242)].into_iter().collect(),
        };
        assert_eq!(attached.to_string(), "7,deadbeef 1,4242");
        assert_eq!(Attached::parse("7,deadbeef 1,4242"), Some(attached));
        assert_eq!(Attached::parse("7,x 1"), None);
        assert_eq!(Attached::parse("7"), None);
    }

    /// This process: init adopts what it creates, and its own session's processes do not.
    #[test]
    fn init_adopts() {
        let us = Pid(std::process::id().cast_signed());
        let process = ProcessHandle::open(Path::new("/proc"), us).unwrap();
        let attached = Attached::of(Path::new("/proc"), [&process].into_iter());
        assert!(attached.reapers.contains(&INIT) && !attached.reapers.contains(&us));
        assert_eq!(attached.groups.len(), 1);
    }
}
