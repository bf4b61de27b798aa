//! The tasks of a job, found by looking through `/proc` again and again.
//!
//! A task that is born and ends between two looks is never seen, and so is the whole offspring of
//! a process that does so: that is why kernel notifications are preferred.

use super::Proc;
use crate::births::TaskEvent;
use crate::task::{Pid, Tid};
use colocate_machine::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The living tasks of a job, as far as they are known.
#[derive(Debug, Default)]
pub struct Tree {
    tasks: BTreeMap<Tid, Known>,
    processes: BTreeMap<Pid, Process>,
}

#[derive(Debug, Default)]
struct Process {
    executable: Option<PathBuf>,
    /// How many of its tasks are known.
    tasks: usize,
}

#[derive(Debug)]
struct Known {
    pid: Pid,
    name: Option<String>,
}

impl Tree {
    /// Adds a process to look for.
    pub fn add(&mut self, pid: Pid) {
        self.processes.entry(pid).or_default();
    }

    /// Whether thread `tid` is known to live.
    #[must_use]
    pub fn has(&self, tid: Tid) -> bool {
        self.tasks.contains_key(&tid)
    }

    /// Whether process `pid` is known to live.
    #[must_use]
    pub fn has_process(&self, pid: Pid) -> bool {
        self.processes.contains_key(&pid)
    }

    /// How many tasks are known to live.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no task is known to live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Learns from an event that came by another way. Says whether it was news: not the birth of a
    /// known task, nor the end or name of an unknown one.
    pub fn learn(&mut self, event: &TaskEvent) -> bool {
        match event {
            TaskEvent::Born { pid, tid, .. } => self.know(*pid, *tid),
            TaskEvent::Ended { tid, .. } => self.forget(*tid),
            TaskEvent::Named { tid, name, .. } => match self.tasks.get_mut(tid) {
                Some(known) => {
                    known.name = Some(name.clone());
                    true
                }
                None => false,
            },
            TaskEvent::Lost { .. } => true,
        }
    }

    /// Looks for all tasks of the known processes and of their children, and adds to `events` what
    /// has changed since the last look: births, new names, ends.
    pub fn look(&mut self, proc: &Proc, at: Nanos, events: &mut Vec<TaskEvent>) {
        let all: Vec<Pid> = self.processes.keys().copied().collect();
        let alive = self.look_from(all, proc, at, events);
        let gone: Vec<Tid> =
            self.tasks.keys().filter(|tid| !alive.contains(tid)).copied().collect();
        for tid in gone {
            let pid = self.tasks[&tid].pid;
            self.forget(tid);
            events.push(TaskEvent::Ended { at, pid, tid });
        }
    }

    /// Looks for births and new names in process `pid` and its children alone, which costs less.
    pub fn look_below(&mut self, proc: &Proc, pid: Pid, at: Nanos, events: &mut Vec<TaskEvent>) {
        self.look_from(vec![pid], proc, at, events);
    }

    /// Looks at these processes and their children, and says which tasks live.
    fn look_from(
        &mut self,
        mut rest: Vec<Pid>,
        proc: &Proc,
        at: Nanos,
        events: &mut Vec<TaskEvent>,
    ) -> BTreeSet<Tid> {
        let mut alive = BTreeSet::new();
        let mut seen: BTreeSet<Pid> = rest.iter().copied().collect();
        while let Some(pid) = rest.pop() {
            rest.extend(proc.children(pid).into_iter().filter(|child| seen.insert(*child)));
            self.look_at(proc, pid, at, &mut alive, events);
        }
        alive
    }

    /// Looks at one process.
    fn look_at(
        &mut self,
        proc: &Proc,
        pid: Pid,
        at: Nanos,
        alive: &mut BTreeSet<Tid>,
        events: &mut Vec<TaskEvent>,
    ) {
        let Some((state, parent)) = proc.state_and_parent(pid) else { return };
        let executable = proc.executable(pid);
        let process = self.processes.entry(pid).or_default();
        let before = std::mem::replace(&mut process.executable, executable);
        let exec = before.is_some() && before != process.executable;
        for tid in proc.tasks(pid).unwrap_or_default() {
            // A process that has ended stays in the list until its parent has asked for its status;
            // its first thread also stays while others run.
            if tid == pid.first_thread() && matches!(state, 'Z' | 'X') {
                continue;
            }
            alive.insert(tid);
            if self.know(pid, tid) {
                let first = tid == pid.first_thread();
                let parent_pid = if first { parent } else { pid };
                let parent_tid = parent_pid.first_thread();
                let found = true;
                events.push(TaskEvent::Born { at, pid, tid, parent_pid, parent_tid, found });
            }
            let exec = exec && tid == pid.first_thread();
            let Some(known) = self.tasks.get_mut(&tid) else { continue };
            let name = proc.name(pid, tid);
            if let Some(name) = name.filter(|name| exec || known.name.as_ref() != Some(name)) {
                known.name = Some(name.clone());
                events.push(TaskEvent::Named { at, pid, tid, name, exec });
            }
        }
    }

    /// Adds a task. Says whether it is new.
    fn know(&mut self, pid: Pid, tid: Tid) -> bool {
        let std::collections::btree_map::Entry::Vacant(place) = self.tasks.entry(tid) else {
            return false;
        };
        place.insert(Known { pid, name: None });
        self.processes.entry(pid).or_default().tasks += 1;
        true
    }

    /// Forgets a task, and its process when it was the last one of it. Says whether it was known.
    fn forget(&mut self, tid: Tid) -> bool {
        let Some(Known { pid, .. }) = self.tasks.remove(&tid) else { return false };
        if let Some(process) = self.processes.get_mut(&pid) {
            process.tasks -= 1;
            if process.tasks == 0 {
                self.processes.remove(&pid);
            }
        }
        true
    }

    /// The known processes.
    pub fn processes(&self) -> impl Iterator<Item = Pid> {
        self.processes.keys().copied()
    }

    /// The known tasks of process `pid`.
    pub fn tasks_of(&self, pid: Pid) -> impl Iterator<Item = Tid> {
        self.tasks.iter().filter(move |(_, known)| known.pid == pid).map(|(tid, _)| *tid)
    }
}
