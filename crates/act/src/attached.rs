//! Processes of programs that were attached to and that nothing else names: their creators have ended, and colocate has not seen them.
//!
//! What is launched by colocate and loses its creator becomes a child of colocate, or has the journal's token. What is attached to has
//! neither: a daemon that it makes becomes a child of init. A colocate that lives knows it by the kernel's record. Without one, or where
//! colocate was killed, it is known by what it has inherited: the control groups of its creator, its program with all of its environment, and a mask that
//! was given. Another process has the same only if it is the same program with the same environment, was started after colocate in the
//! same control group by a process of another session that has created what was attached to as well, and was bound by its user to a
//! place that colocate gave to a thread.
//!
//! A daemon that has executed another program, or is in the session of the process that has adopted it, is not known.

use crate::check_sum::check_sum;
use colocate_files::kernel;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::proc::Proc;
use colocate_linux::proc::stat::Stat;
use colocate_linux::{Pid, Tid, affinity};
use colocate_machine::PuSet;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Maximum size of a list of control groups: thirteen hierarchies, and paths of at most 4,096 bytes
/// (`PATH_MAX`).
pub(crate) const MOST_CGROUPS_B: u64 = 64 << 10;
/// Maximum number of bytes read of an environment. The token comes first in a program started by
/// colocate.
pub(crate) const MOST_ENVIRONMENT_B: u64 = 256 << 10;
/// Maximum number of recorded control groups. Chosen: a journal's head stays below 64 KiB.
const MOST_GROUPS: usize = 1_000;
/// Maximum number of generations of ancestors searched. Chosen: nothing nests as deep, and readings
/// of short-lived processes might form a cycle.
pub(crate) const GENERATIONS: usize = 1_000;

/// Identification of attached processes and their orphans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// Check sums of their lists of control groups.
    pub groups: BTreeSet<u32>,
    /// Check sums of their programs and environments; later executed programs are added.
    pub programs: BTreeSet<u32>,
    /// Processes that may adopt orphans: ancestors of the attached processes, and init.
    pub reapers: BTreeSet<Pid>,
}

impl Attached {
    /// Control groups and reapers of these processes. `proc` is `/proc`.
    pub fn of<'a>(proc: &Path, processes: impl Iterator<Item = &'a ProcessHandle>) -> Self {
        let mut attached = Self::default();
        for process in processes {
            if attached.groups.len() < MOST_GROUPS {
                attached.groups.extend(groups_of(process));
                attached.programs.extend(program_of(proc, process));
            }
            attached.reapers.extend(reapers_of(proc, process));
        }
        attached
    }

    /// Adds the present program of a process.
    pub fn add_program(&mut self, proc: &Path, process: &ProcessHandle) {
        self.programs.extend(program_of(proc, process));
    }

    /// Parses the output of `Display`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let groups = sums(words.next()?)?;
        let programs = sums(words.next()?)?;
        let reapers = words.next()?.split(',').map(|pid| pid.parse().ok().map(Pid));
        Some(Self { groups, programs, reapers: reapers.collect::<Option<_>>()? })
    }

    /// Orphans among `all` processes, restricted to processes started since `begun`, in clock ticks
    /// since boot, with a `given` mask. Known processes are skipped.
    pub fn orphans(
        &self,
        proc: &Path,
        all: &HashMap<Pid, Stat>,
        (begun, given): (u64, &[PuSet]),
        is_known: impl Fn(Pid) -> bool,
    ) -> Vec<Pid> {
        // Processes that a shell has created itself are in its session.
        let is_adopted = |stat: &Stat| {
            self.reapers.contains(&stat.parent)
                && (stat.parent == INIT
                    || all.get(&stat.parent).is_some_and(|parent| parent.session != stat.session))
        };
        // The list of processes has these facts; `is_orphan` opens files of each process left.
        let found = all
            .iter()
            .filter(|(pid, stat)| stat.start_ticks >= begun && is_adopted(stat) && !is_known(**pid))
            .map(|(pid, _)| *pid);
        found.filter(|pid| self.is_orphan(proc, *pid, given)).collect()
    }

    /// Whether a process has control groups and program of an attached process, and a thread of it
    /// has a given mask.
    fn is_orphan(&self, proc: &Path, pid: Pid, given: &[PuSet]) -> bool {
        let Ok(process) = ProcessHandle::open(proc, pid) else { return false };
        groups_of(&process).is_some_and(|groups| self.groups.contains(&groups))
            && program_of(proc, &process).is_some_and(|program| self.programs.contains(&program))
            && process
                .threads()
                .iter()
                .any(|tid: &Tid| affinity::of(*tid).is_ok_and(|mask| given.contains(&mask)))
    }
}

impl std::fmt::Display for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reapers: Vec<String> = self.reapers.iter().map(ToString::to_string).collect();
        write!(f, "{} {} {}", hex_list(&self.groups), hex_list(&self.programs), reapers.join(","))
    }
}

fn sums(list: &str) -> Option<BTreeSet<u32>> {
    let sums = list.split(',').filter(|sum| !sum.is_empty());
    sums.map(|sum| u32::from_str_radix(sum, 16).ok()).collect()
}

fn hex_list(sums: &BTreeSet<u32>) -> String {
    sums.iter().map(|sum| format!("{sum:x}")).collect::<Vec<_>>().join(",")
}

/// Check sum of a process's list of control groups; `None` after its end.
fn groups_of(process: &ProcessHandle) -> Option<u32> {
    process.read("cgroup", MOST_CGROUPS_B).ok().map(|text| check_sum(&text))
}

/// Check sum of a process's program and environment; `None` after its end, or if unreadable.
fn program_of(proc: &Path, process: &ProcessHandle) -> Option<u32> {
    let program = kernel::link(&Proc::at(proc).executable_link(process.pid())).ok()?;
    let environment = process.read_of_memory("environ", MOST_ENVIRONMENT_B).ok()?;
    Some(check_sum(&format!("{} {environment}", program.display())))
}

/// Ancestors of a process, and init.
fn reapers_of(proc: &Path, process: &ProcessHandle) -> Vec<Pid> {
    let Some(stat) = process.stat() else { return Vec::new() };
    let parents = std::iter::successors(Some(stat.parent), |pid| {
        Some(Stat::read(proc, *pid, pid.first_thread())?.parent)
    });
    let creators = parents.take(GENERATIONS);
    // A parent outside the PID namespace has the number 0.
    creators.filter(|pid| pid.0 > 0).chain([INIT]).collect()
}

const INIT: Pid = Pid(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let attached = Attached {
            groups: [0xdead_beef, 7].into_iter().collect(),
            programs: [0x2a].into_iter().collect(),
            reapers: [Pid(1), Pid(4242)].into_iter().collect(),
        };
        assert_eq!(attached.to_string(), "7,deadbeef 2a 1,4242");
        assert_eq!(Attached::parse("7,deadbeef 2a 1,4242"), Some(attached));
        assert_eq!(Attached::parse("7,x 2a 1"), None);
        assert_eq!(Attached::parse("7 1"), None);
    }

    #[test]
    fn this_process() {
        let us = Pid(std::process::id().cast_signed());
        let process = ProcessHandle::open(Path::new("/proc"), us).unwrap();
        let attached = Attached::of(Path::new("/proc"), [&process].into_iter());
        let parent = process.stat().unwrap().parent;
        assert!(attached.reapers.contains(&INIT) && attached.reapers.contains(&parent));
        assert!(!attached.reapers.contains(&us));
        assert_eq!((attached.groups.len(), attached.programs.len()), (1, 1));
    }
}
