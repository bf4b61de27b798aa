//! The tasks of a job, found by scanning `/proc` periodically.
//!
//! A task that is created and ends between two scans is never seen, and neither are the descendants of
//! such a process: that is why kernel events are preferred.
//!
//! A task has ended only if the kernel says that there is none with its number. Of what cannot be read for
//! another reason, as where no descriptor is left, nothing is concluded.

use crate::event::TaskEvent;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// Known living tasks of a job.
#[derive(Debug, Default)]
pub struct Tree {
    tasks: BTreeMap<Tid, KnownTask>,
    processes: BTreeMap<Pid, TreeProcess>,
    /// Whether the last scan failed to read a possibly living process.
    pub unread: bool,
}

#[derive(Debug)]
struct TreeProcess {
    /// Given process from which it descends.
    root: Pid,
    /// Executable as last seen.
    executable: Option<PathBuf>,
    /// Number of its known tasks.
    tasks: usize,
    /// Time at which the end of a further thread was last found.
    lost_thread: Option<Nanos>,
}

impl TreeProcess {
    const fn of(root: Pid) -> Self {
        Self { root, executable: None, tasks: 0, lost_thread: None }
    }
}

#[derive(Debug)]
struct KnownTask {
    pid: Pid,
    name: Option<String>,
    /// Number of readings of its name.
    names_read: u8,
    /// Creator of a task whose creation is not reported yet; `None` once reported.
    hidden: Option<Tid>,
}

/// Threads below which children are read without counting the machine's processes. Chosen.
const FEW_THREADS: usize = 32;

/// Readings of a thread's name: at first it is its creator's, and soon its own. Chosen.
const NAMES_READ: u8 = 3;

impl Tree {
    /// Adds a process to scan.
    pub fn add(&mut self, pid: Pid) {
        self.processes.entry(pid).or_insert_with(|| TreeProcess::of(pid));
    }

    /// Given process from which process `pid` descends; `pid` itself if unknown.
    pub fn root_of(&self, pid: Pid) -> Pid {
        self.processes.get(&pid).map_or(pid, |process| process.root)
    }

    /// Marks the creation of a known task as unreported, with its creator thread.
    pub fn hide(&mut self, tid: Tid, parent_tid: Tid) {
        if let Some(known) = self.tasks.get_mut(&tid) {
            known.hidden = Some(parent_tid);
        }
    }

    /// Whether the task is marked by [`Tree::hide`].
    pub fn is_hidden(&self, tid: Tid) -> bool {
        self.tasks.get(&tid).is_some_and(|known| known.hidden.is_some())
    }

    /// Reports at `at` the creation of a hidden task, and its name if different from its creator's.
    /// No effect on an ended task or a task that is not hidden.
    pub fn reveal(&mut self, tid: Tid, at: Nanos, events: &mut Vec<TaskEvent>) {
        let Some(known) = self.tasks.get_mut(&tid) else { return };
        let Some(parent_tid) = known.hidden.take() else { return };
        let pid = known.pid;
        events.push(TaskEvent::Created { at, pid, tid, parent_pid: pid, parent_tid, found: true });
        if let Some(name) = known.name.clone() {
            events.push(TaskEvent::Named { at, pid, tid, name, exec: false });
        }
    }

    /// Whether thread `tid` is known to live.
    pub fn has(&self, tid: Tid) -> bool {
        self.tasks.contains_key(&tid)
    }

    /// Whether process `pid` is known to live.
    pub fn has_process(&self, pid: Pid) -> bool {
        self.processes.contains_key(&pid)
    }

    /// Tasks known to live.
    pub fn tasks(&self) -> impl Iterator<Item = Tid> {
        self.tasks.keys().copied()
    }

    /// Whether no task is known to live.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Updates the tree by an event from another source. Returns whether it is new: neither the
    /// creation of a known task, nor the end or name of an unknown task.
    pub fn learn(&mut self, event: &TaskEvent) -> bool {
        match event {
            TaskEvent::Created { pid, tid, parent_pid, .. } => {
                self.add_task(*pid, *tid, *parent_pid)
            }
            TaskEvent::Ended { tid, .. } => self.forget(*tid),
            TaskEvent::Named { tid, name, .. } => match self.tasks.get_mut(tid) {
                Some(known) => {
                    known.name = Some(name.clone());
                    true
                }
                None => false,
            },
            TaskEvent::Lost { .. } | TaskEvent::Storm { .. } => true,
        }
    }

    /// Scans for all tasks of the known processes and of their children, and adds to `events` what
    /// has changed since the last scan: creations, new names, ends.
    pub fn scan(&mut self, proc: &Proc, at: Nanos, events: &mut Vec<TaskEvent>) {
        let all: Vec<Pid> = self.processes.keys().copied().collect();
        let alive = self.scan_from(all, proc, at, events);
        let gone: Vec<Tid> =
            self.tasks.keys().filter(|tid| !alive.contains(tid)).copied().collect();
        for tid in gone {
            let pid = self.tasks[&tid].pid;
            self.forget(tid);
            if let Some(process) = self.processes.get_mut(&pid) {
                process.lost_thread = Some(at);
            }
            events.push(TaskEvent::Ended { at, pid, tid });
        }
    }

    /// Time of the last scan that missed a thread of a living process; `None` if no scan did.
    pub fn lost_thread(&self, pid: Pid) -> Option<Nanos> {
        self.processes.get(&pid)?.lost_thread
    }

    /// Scans only these processes and their children for creations and new names, at a lower cost.
    pub fn scan_below(
        &mut self,
        proc: &Proc,
        pids: &[Pid],
        at: Nanos,
        events: &mut Vec<TaskEvent>,
    ) {
        // The last one is scanned first.
        self.scan_from(pids.iter().rev().copied().collect(), proc, at, events);
    }

    /// Scans these processes and their children, and returns the living tasks.
    fn scan_from(
        &mut self,
        mut rest: Vec<Pid>,
        proc: &Proc,
        at: Nanos,
        events: &mut Vec<TaskEvent>,
    ) -> BTreeSet<Tid> {
        let mut alive = BTreeSet::new();
        self.unread = false;
        let mut seen: BTreeSet<Pid> = rest.iter().copied().collect();
        let families = self.families(proc, rest.len());
        while let Some(pid) = rest.pop() {
            let children = match &families {
                Some(families) => families.get(&pid).cloned().unwrap_or_default(),
                None => proc.children(pid),
            };
            rest.extend(children.into_iter().filter(|child| seen.insert(*child)));
            match self.scan_process(proc, pid, at, &mut alive, events) {
                Ok(()) => {}
                Err(why) if proc.has_ended(&why, pid, pid.first_thread()) => {
                    // Otherwise the ends of its tasks, which are reported, remove the process.
                    if self.processes.get(&pid).is_some_and(|process| process.tasks == 0) {
                        self.processes.remove(&pid);
                    }
                }
                Err(_) => {
                    alive.extend(self.tasks_of(pid));
                    self.unread = true;
                }
            }
        }
        alive
    }

    /// Children of every process, if reading the parents of all processes costs less than reading
    /// the children of all known threads, or of the first threads of the `scanned` processes.
    fn families(&self, proc: &Proc, scanned: usize) -> Option<BTreeMap<Pid, Vec<Pid>>> {
        let threads = self.tasks.len().max(scanned);
        if threads < FEW_THREADS {
            return None;
        }
        let all = proc.processes().ok().filter(|all| all.len() < threads)?;
        let mut families: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
        for pid in all {
            if let Ok((_, parent)) = proc.state_and_parent(pid) {
                families.entry(parent).or_default().push(pid);
            }
        }
        Some(families)
    }

    /// Scans one process.
    fn scan_process(
        &mut self,
        proc: &Proc,
        pid: Pid,
        at: Nanos,
        alive: &mut BTreeSet<Tid>,
        events: &mut Vec<TaskEvent>,
    ) -> io::Result<()> {
        // A later thread that executes a program ends all others, takes the number of the first one, a zombie until then,
        // and shows its new executable last. So that is read first: with the new one, no other thread is listed any more.
        // The state is read last: a list with only the new first thread does not meet the state of the old one.
        let before = self.processes.get(&pid).and_then(|process| process.executable.clone());
        let executable = match proc.executable(pid) {
            Ok(executable) => Some(executable),
            // All its threads may have ended since.
            Err(why) if why.kind() == ErrorKind::NotFound => before.clone(),
            Err(_) => None,
        };
        let tasks = proc.tasks(pid)?;
        let (state, parent) = proc.state_and_parent(pid)?;
        let exec = before.is_some() && before != executable;
        let root = self.processes.get(&parent).map_or(pid, |process| process.root);
        self.processes.entry(pid).or_insert_with(|| TreeProcess::of(root)).executable = executable;
        for tid in tasks {
            // A process that has ended stays in the list until its parent has reaped it;
            // its first thread also stays while others run.
            if tid == pid.first_thread() && matches!(state, 'Z' | 'X') {
                continue;
            }
            // Its end was reported before, or will not be: it would never be known to have ended.
            if !self.has(tid) && proc.is_exiting(pid, tid) == Some(true) {
                continue;
            }
            alive.insert(tid);
            if self.add_task(pid, tid, parent) {
                let first = tid == pid.first_thread();
                let parent_pid = if first { parent } else { pid };
                let parent_tid = parent_pid.first_thread();
                let found = true;
                events.push(TaskEvent::Created { at, pid, tid, parent_pid, parent_tid, found });
            }
            let exec = exec && tid == pid.first_thread();
            let Some(known) = self.tasks.get_mut(&tid) else { continue };
            if known.names_read >= NAMES_READ && !exec {
                continue;
            }
            known.names_read = known.names_read.saturating_add(1);
            let name = proc.name(pid, tid);
            if let Some(name) = name.filter(|name| exec || known.name.as_ref() != Some(name)) {
                known.name = Some(name.clone());
                events.push(TaskEvent::Named { at, pid, tid, name, exec });
            }
        }
        Ok(())
    }

    /// Adds a task. Returns whether it is new.
    fn add_task(&mut self, pid: Pid, tid: Tid, parent_pid: Pid) -> bool {
        let std::collections::btree_map::Entry::Vacant(place) = self.tasks.entry(tid) else {
            return false;
        };
        place.insert(KnownTask { pid, name: None, names_read: 0, hidden: None });
        let root = self.processes.get(&parent_pid).map_or(pid, |process| process.root);
        self.processes.entry(pid).or_insert_with(|| TreeProcess::of(root)).tasks += 1;
        true
    }

    /// Forgets a task, and its process after the last task. Returns whether the task was known.
    pub fn forget(&mut self, tid: Tid) -> bool {
        let Some(KnownTask { pid, .. }) = self.tasks.remove(&tid) else { return false };
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
