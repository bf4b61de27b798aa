//! Order of events: a creation before the events of the new thread, and the end of a creator after
//! what it created.

use super::storm::{EventTreatment, Storms};
use super::{LifecycleEvents, event};
use crate::event::TaskEvent;
use crate::perf::{PerfRecord, parse};
use crate::tree::Tree;
use colocate_linux::clock::now;
use colocate_linux::sys::exists;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;

/// Maximum number of ring reads for events that precede events already read.
///
/// Two are enough unless records were lost: a creation is written before the new thread runs.
const READS_FOR_ORDER: usize = 4;

/// Maximum time from the end of a process's further threads until its exec is seen. Chosen:
/// meanwhile the executing thread may wait for a PU, on a busy machine for several time slices.
const EXEC_TAKES: Nanos = Nanos::from_secs(1);

/// Maximum wait of an event for earlier events. Chosen: these are in the rings already.
const KEPT_EARLY: Nanos = Nanos::from_secs(1);

/// Watched tasks, and the events that wait for earlier ones.
#[derive(Debug)]
pub(super) struct EventOrder {
    pub tree: Tree,
    pub storms: Storms,
    /// Events with possibly unread predecessors.
    pub early: Vec<TaskEvent>,
    /// Whether `early` includes events from during the last read of the rings.
    pub has_newer: bool,
}

impl LifecycleEvents {
    /// Reads the rings one after another. The end of a creator can be read before a creation by it
    /// on another CPU. Events older than the beginning of a read are complete after the read; newer
    /// events wait for the next read. After the last read, creations and plain names do not wait.
    pub(super) fn read_in_order(&mut self, events: &mut Vec<TaskEvent>) {
        let mut lost = 0;
        let mut begun = Nanos::ZERO;
        let mut root_ended = false;
        for _ in 0..READS_FOR_ORDER {
            begun = now();
            lost += self.read_rings();
            root_ended |= self.order.deliver(begun, events);
            if self.order.early.is_empty() {
                break;
            }
        }
        let is_final = |event: &TaskEvent| event.at() < Some(begun) || !is_end(event);
        root_ended |= self.order.deliver_if(is_final, events);
        if root_ended && !self.needs_proc() {
            // Seen on Linux 6.18: one end of 10,000 was not reported, and no record lost. Now it would be found again, until it is
            // reaped.
            self.scans.later();
        }
        if let Some(reports) = &mut self.reports
            && reports.of_every_task()
        {
            reports.pass_over(drop_others(&mut self.order.early, begun));
        }
        self.order.has_newer = self.order.early.iter().any(|event| event.at() >= Some(begun));
        // What is left over is about tasks that ended before watching began; it must not pile up.
        let oldest = now().saturating_sub(KEPT_EARLY);
        self.order.early.retain(|event| event.at() > Some(oldest));
        if lost > 0 {
            events.push(TaskEvent::Lost { count: lost });
            // Predecessors of these may be lost; the scan finds their tasks.
            self.order.early.clear();
            self.order.has_newer = false;
        }
    }

    /// Moves the rings' records to `early`, by time; returns the number that the kernel dropped.
    ///
    /// If some may be missing, `/proc` is scanned at once and periodically from then on: a task
    /// that ends during a scan is still listed, and nothing else reports its end.
    fn read_rings(&mut self) -> u64 {
        let Some(reports) = &mut self.reports else { return 0 };
        let full = reports.take(&mut self.bytes);
        let mut lost = 0;
        for record in parse(&self.bytes) {
            if let PerfRecord::Lost(count) = record {
                lost += count;
            }
            self.order.early.extend(event(&record));
        }
        if full || lost > 0 {
            lost = reports.newly_lost(lost);
            self.scans.soon();
        }
        self.bytes.clear();
        // Stable, so that events of one ring keep their order at equal times.
        self.order.early.sort_by_key(TaskEvent::at);
        lost
    }
}

impl EventOrder {
    /// No task; of new threads at most `most_a_second` are reported.
    pub fn new(most_a_second: Option<u32>) -> Self {
        let storms = Storms::new(most_a_second);
        Self { tree: Tree::default(), storms, early: Vec::new(), has_newer: false }
    }

    /// Moves events before `limit`, whose order is final, from `early` to `events`; the result is
    /// that of [`EventOrder::deliver_if`].
    pub(super) fn deliver(&mut self, limit: Nanos, events: &mut Vec<TaskEvent>) -> bool {
        self.deliver_if(|event| event.at() < Some(limit), events)
    }

    /// Moves the events that `may` be delivered. Returns whether the first thread of a given process
    /// has ended before other watched tasks.
    fn deliver_if(
        &mut self,
        may: impl Fn(&TaskEvent) -> bool,
        events: &mut Vec<TaskEvent>,
    ) -> bool {
        let mut root_ended = false;
        for event in std::mem::take(&mut self.early) {
            if !may(&event) {
                self.early.push(event);
                continue;
            }
            if let TaskEvent::Named { at, pid, tid, exec: true, .. } = &event
                && *tid == pid.first_thread()
                && !self.tree.has(*tid)
            {
                self.take_over(*at, *pid, events);
            }
            let is_of_hidden = match &event {
                TaskEvent::Ended { tid, .. } | TaskEvent::Named { tid, .. } => {
                    self.tree.is_hidden(*tid)
                }
                _ => false,
            };
            if self.is_early(&event) {
                self.early.push(event);
                continue;
            }
            let root_ends = matches!(&event, TaskEvent::Ended { pid, tid, .. }
                if *tid == pid.first_thread() && self.tree.has(*tid) && self.tree.root_of(*pid) == *pid);
            // What is nothing to learn is the creation of a task that was found in /proc before its record was read.
            if self.tree.learn(&event) && !is_of_hidden {
                self.report(event, events);
            }
            root_ended |= root_ends && !self.tree.is_empty();
        }
        root_ended
    }

    /// Whether the creation of the event's task, or of its creator's process, is still unread.
    fn is_early(&self, event: &TaskEvent) -> bool {
        match event {
            TaskEvent::Ended { tid, .. } | TaskEvent::Named { tid, .. } => !self.tree.has(*tid),
            TaskEvent::Created { pid, parent_pid, .. } => {
                !self.tree.has_process(*pid) && !self.tree.has_process(*parent_pid)
            }
            TaskEvent::Lost { .. } | TaskEvent::Storm { .. } => false,
        }
    }

    /// Handles the exec of a further thread: all remaining threads of the process have ended, and
    /// the executing thread takes over the first thread's number (execve(2)). The kernel has
    /// reported the end of the first thread but not that its number lives on.
    ///
    /// The creation under the first number precedes the end under the old number, so that the
    /// process always has a task.
    fn take_over(&mut self, at: Nanos, pid: Pid, events: &mut Vec<TaskEvent>) {
        let tid = pid.first_thread();
        let others: Vec<Tid> = self.tree.tasks_of(pid).collect();
        let parent_tid = match others[..] {
            [] => return,
            [executing] => executing,
            // The ends of others are not reported yet.
            _ => tid,
        };
        let created =
            TaskEvent::Created { at, pid, tid, parent_pid: pid, parent_tid, found: false };
        let ended = others.into_iter().map(|tid| TaskEvent::Ended { at, pid, tid });
        for event in std::iter::once(created).chain(ended) {
            self.tree.learn(&event);
            events.push(event);
        }
    }

    /// Events found in `/proc`, with new first threads of processes that lost threads by an exec.
    ///
    /// Any of the lost threads may have executed the program and have the first thread's number
    /// now. `/proc` shows a thread with this number, as before; the kernel's records would report
    /// the end of the first thread.
    ///
    /// The kernel ends the remaining threads before it shows the new program, and scans may come in
    /// between.
    pub(super) fn renumbered(&self, found: Vec<TaskEvent>) -> Vec<TaskEvent> {
        if !found.iter().any(|event| self.exec_after_loss(event).is_some()) {
            return found;
        }
        let mut all = Vec::new();
        for event in &found {
            if let Some((at, pid, tid)) =
                self.exec_after_loss(event).filter(|(_, _, tid)| !is_created(&found, *tid))
            {
                all.push(TaskEvent::Ended { at, pid, tid });
                all.push(found_alone(at, pid));
            }
            all.push(event.clone());
        }
        all
    }

    /// Time, process and first thread of an exec in a process that has just lost a thread.
    fn exec_after_loss(&self, event: &TaskEvent) -> Option<(Nanos, Pid, Tid)> {
        let TaskEvent::Named { at, pid, tid, exec: true, .. } = event else { return None };
        let is_first = *tid == pid.first_thread();
        let lost = self.tree.lost_thread(*pid).filter(|lost| *lost + EXEC_TAKES >= *at);
        (is_first && lost.is_some()).then_some((*at, *pid, *tid))
    }

    /// Reports an event that is new to the tree, except threads held back in a storm.
    pub(super) fn report(&mut self, event: TaskEvent, events: &mut Vec<TaskEvent>) {
        if let TaskEvent::Created { at, pid, tid, parent_tid, .. } = event {
            let verdict = self.storms.created(self.tree.root_of(pid), pid, tid, at);
            if verdict == EventTreatment::HideFirst {
                events.push(TaskEvent::Storm { at, pid });
            }
            if verdict != EventTreatment::Report {
                self.tree.hide(tid, parent_tid);
                return;
            }
        }
        events.push(event);
    }

    /// Reports the first thread of an unreadable process, if alive.
    pub(super) fn add_unread(&mut self, pid: Pid, at: Nanos, events: &mut Vec<TaskEvent>) {
        let tid = pid.first_thread();
        if !self.tree.has(tid) && exists(pid, tid) {
            let created = found_alone(at, pid);
            self.tree.learn(&created);
            events.push(created);
        }
    }
}

/// Whether an event ends a task or may end further threads of its process.
fn is_end(event: &TaskEvent) -> bool {
    matches!(event, TaskEvent::Ended { .. } | TaskEvent::Named { exec: true, .. })
}

/// First thread of a process, found without its creator.
fn found_alone(at: Nanos, pid: Pid) -> TaskEvent {
    let tid = pid.first_thread();
    TaskEvent::Created { at, pid, tid, parent_pid: pid, parent_tid: tid, found: true }
}

fn is_created(found: &[TaskEvent], of: Tid) -> bool {
    found.iter().any(|event| matches!(event, TaskEvent::Created { tid, .. } if *tid == of))
}

/// Drops events of unwatched tasks that precede a read begun at `begun`, and returns their number.
/// Events from during the read are kept: their creations may be in a ring that was read before.
pub(super) fn drop_others(early: &mut Vec<TaskEvent>, begun: Nanos) -> usize {
    let all = early.len();
    early.retain(|event| event.at() >= Some(begun));
    all - early.len()
}
