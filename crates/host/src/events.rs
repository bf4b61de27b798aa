//! Events of tasks as the kernel reports them: creations, ends, new names.

use crate::CreationCounts;
use crate::parts::HostParts;
use crate::placement::{begin_program, hold_process, on_exec, on_fork, on_storm, place_new};
use crate::sources::new_task;
use crate::task_table::{Creation, TaskTable};
use crate::workload::HostState;
use colocate_linux::clock::now;
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuSet};
use colocate_observe::{LifecycleEvents, TaskEvent};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// While new threads are left to the kernel they are taken in together, once in this time. Chosen: a shell that ran 500 programs one
/// after the other took 15 % longer with it, and 25 % when each woke us (virtual machine with 2 PUs).
const RESTS: Nanos = Nanos::from_millis(10);

/// Processes left behind by a run and killed when the next one began.
#[derive(Debug)]
struct Orphans {
    /// The first process of that run: creations are reported by its events.
    first: Pid,
    /// Processes of that run that have not ended.
    pids: BTreeSet<Pid>,
}

/// The kernel's events of the tasks of all jobs.
pub(crate) struct HostEvents {
    lifecycle: LifecycleEvents,
    counts: CreationCounts,
    /// Processes left behind by runs that others have followed.
    orphans: Vec<Orphans>,
    /// Until then new threads do not wake us, on the kernel's clock.
    rests_until: Nanos,
}

impl HostEvents {
    /// Events as they are reported from now on.
    pub fn new(lifecycle: LifecycleEvents) -> Self {
        let (counts, orphans) = Default::default();
        Self { lifecycle, counts, orphans, rests_until: Nanos::ZERO }
    }

    /// Counts of observed thread creations.
    pub const fn counts(&self) -> &CreationCounts {
        &self.counts
    }

    /// Excludes the creations so far from the counts.
    pub const fn begin_counts(&mut self) {
        self.counts.created = 0;
    }

    /// Why thread creation is detected by scanning `/proc`; `None` if the kernel reports it.
    pub fn without_perf(&self) -> Option<String> {
        self.lifecycle.without_perf().map(ToString::to_string)
    }

    /// Why nothing can be read of processes; `None` if it can.
    pub fn without_proc(&self) -> Option<&str> {
        self.lifecycle.without_proc()
    }

    /// Whether the kernel has recorded all creations.
    pub fn has_records(&self) -> bool {
        self.lifecycle.without_perf().is_none() && self.counts.lost == 0
    }

    /// Watches the first process of a job that begins anew.
    pub fn watch_anew(&mut self, pid: Pid) {
        // Should its number have been another first process's, both events are closed with this run's.
        self.orphans.retain(|orphan| orphan.first != pid);
        self.lifecycle.add(pid);
    }

    /// Has all events reported, also of threads that nothing is known of.
    pub fn report_all(&mut self) {
        self.lifecycle.report_all();
    }

    /// Has new threads reported at once if `is_prompt`.
    pub fn set_prompt(&mut self, is_prompt: bool) {
        self.lifecycle.set_prompt(is_prompt);
    }

    /// End of the time for which new threads do not wake us, if that is after `at`.
    pub fn rests_until(&self, at: Nanos) -> Option<Nanos> {
        Some(self.rests_until).filter(|until| at < *until)
    }

    /// Time after which events are polled, if they are.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.lifecycle.poll_timeout()
    }

    /// File descriptors that become readable with events.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.lifecycle.fds()
    }

    /// Takes in what has happened to tasks, and places the new threads.
    pub fn take(&mut self, parts: &mut HostParts) {
        let mut events = Vec::new();
        self.lifecycle.drain(&mut events);
        let places_new = parts.pausing.may_stop() || parts.placing.places_new_tasks();
        if !events.is_empty() && !places_new {
            self.rests_until = now() + RESTS;
        }
        parts.work.table.inheritable.begin_events();
        let is_news = !events.is_empty();
        for event in events {
            self.on_event(parts, event);
        }
        if is_news {
            parts.give_up_if_used_up();
        }
        if let Some(why) = parts.work.actuators.journal.trouble() {
            let line = format!("the journal is given up ({why}); the guardian goes on");
            parts.work.notes.push(line);
        }
    }

    fn on_event(&mut self, parts: &mut HostParts, event: TaskEvent) {
        let HostParts { work, placing, pausing, .. } = parts;
        match event {
            TaskEvent::Created { at, pid, tid, parent_pid, parent_tid, found } => {
                let lost = found;
                let creation = Creation { at, pid, tid, parent_pid, parent_tid, lost };
                self.on_creation(parts, creation);
            }
            TaskEvent::Ended { at, tid, .. } => ended(parts, at, tid),
            TaskEvent::Named { at, pid, tid, name, exec } => {
                let Some(id) = work.table.tasks.living(tid) else { return };
                work.table.rename(id, &name);
                if exec {
                    on_exec(placing, work, pausing, at, pid, id);
                }
            }
            TaskEvent::Lost { count } => self.counts.lost += count,
            TaskEvent::Storm { pid, .. } => on_storm(placing, work, pid),
        }
    }

    fn on_creation(&mut self, parts: &mut HostParts, creation: Creation) {
        let HostParts { work, placing, pausing, sources, .. } = parts;
        let Some(id) = work.table.created(creation) else { return };
        self.counts.created += 1;
        if !hold_process(work, id, creation) {
            return ended(parts, creation.at, creation.tid);
        }
        if creation.pid != creation.parent_pid {
            on_fork(placing, work, creation);
            self.created_by_orphan(creation);
        }
        if creation.tid == creation.pid.first_thread() {
            begin_program(placing, work, creation.pid, creation.at);
            pausing.stop_new(work, id.job, creation.pid);
        }
        pausing.inherit_class(work, id);
        if let Some(new) = new_task(work, pausing, id) {
            sources.created(&new);
        }
        if let Some(waited) = place_new(placing, work, pausing, id, creation.at) {
            self.counts.waited.add(waited);
        }
    }

    /// Takes in that a process was reaped: none of its threads lives that was created before, whether or not the kernel's
    /// events or `/proc` have shown it. To be called when the events until then have been taken in.
    pub fn all_have_ended(&mut self, parts: &mut HostParts, pid: Pid, before: Nanos) {
        let table = &parts.work.table;
        let living = table.processes.living_in(pid).into_iter();
        let living = living.filter_map(|id| table.tasks.get(id));
        let created_before = living.filter(|task| task.created <= before);
        let tids: Vec<Tid> = created_before.map(|task| task.thread.tid).collect();
        self.lifecycle.reaped(tids.iter().copied());
        tids.into_iter().for_each(|tid| ended(parts, before, tid));
    }

    /// Takes in on which PUs tasks may run now: what the kernel does not report there is scanned for.
    pub fn watch_new_pus(&mut self, parts: &mut HostParts, usable: &PuSet) {
        let unheard = !self.lifecycle.set_allowed_cpus(usable.iter()).is_empty();
        let new = parts.sources.watch_pus(usable);
        if unheard && !new.is_empty() {
            parts.work.notes.push(format!(
                "thread creation on PU {new}, not online at the start, is detected by scanning /proc: threads that live for \
                 less than some milliseconds are not placed"
            ));
        }
    }

    /// Notes what the run with this first process has left behind. The kernel reports its end, and what it may
    /// still create, by events that cost descriptors: those are kept only so long.
    pub fn note_orphans(&mut self, table: &TaskTable, first: Pid, left: Vec<Pid>) {
        // A process that does not die is left behind by many runs, and belongs to the first of them.
        let known = |pid: &Pid| self.orphans.iter().any(|orphan| orphan.pids.contains(pid));
        let pids = left.into_iter().filter(|pid| !known(pid)).collect();
        self.orphans.push(Orphans { first, pids });
        self.forget_orphans(table);
    }

    /// What is created by a process that a run has left behind belongs to that run.
    fn created_by_orphan(&mut self, creation: Creation) {
        for orphan in &mut self.orphans {
            if orphan.pids.contains(&creation.parent_pid) {
                orphan.pids.insert(creation.pid);
            }
        }
    }

    /// Closes the events of those runs of which nothing is left.
    pub fn forget_orphans(&mut self, table: &TaskTable) {
        for mut orphan in std::mem::take(&mut self.orphans) {
            orphan.pids.retain(|pid| table.processes.get(*pid).is_some());
            if orphan.pids.is_empty() {
                self.lifecycle.forget(orphan.first);
            } else {
                self.orphans.push(orphan);
            }
        }
    }
}

/// Takes in the end of a thread. Where a process stays stopped that was known by it, it is noted by another thread
/// before the line is used again.
fn ended(parts: &mut HostParts, at: Nanos, tid: Tid) {
    let HostState { table, actuators, .. } = &mut parts.work;
    let Some(id) = table.tasks.living(tid) else { return };
    let Some(task) = table.tasks.get_mut(id) else { return };
    parts.sources.ended(task.named(), &mut task.usage);
    let thread = &task.thread;
    let (pid, is_first, gone) = (thread.pid, thread.is_first(), thread.hands_down());
    let Some(slot) = table.ended(tid, at) else { return };
    let first = table.tasks.living(pid.first_thread()).filter(|_| !is_first);
    if let Some(first) = first.and_then(|first| table.tasks.get_mut(first)) {
        actuators.may_live_on_as(&mut first.thread, &gone);
    }
    if parts.pausing.is_stopped(id.job) {
        parts.work.note_all(&[pid]);
    }
    parts.work.actuators.journal.free(slot);
}
