//! New threads: their processes opened and checked, their targets set.

use super::rules::Event;
use crate::LinuxHost;
use crate::task_table::Creation;
use colocate_evidence::{PlacementStatus, TaskId};
use colocate_linux::Pid;
use colocate_linux::clock::now;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::proc::Proc;
use colocate_machine::Nanos;
use std::sync::Arc;

/// Relation of a process to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kinship {
    /// Its creator is of the job, or colocate has adopted it.
    Child,
    /// The kernel has recorded that a thread of the job created it, and its creator has ended.
    Orphan,
    /// It is not the process that was created: its number is in use again.
    Stranger,
}

impl LinuxHost {
    pub(crate) fn on_creation(&mut self, creation: Creation) {
        let Some(id) = self.tasks.created(creation) else { return };
        self.counts.created += 1;
        if !self.hold_process(id, creation) {
            return self.ended(creation.at, creation.tid);
        }
        if creation.pid != creation.parent_pid {
            self.on_fork(creation);
            self.created_by_orphan(creation);
        }
        if creation.tid == creation.pid.first_thread() {
            self.begin_program(creation.pid, creation.at);
            self.stop_new(id, creation.pid);
        }
        self.inherit_class(id);
        if let Some(new) = self.new_task(id) {
            self.sources.created(&new);
        }
        self.place_new(id, creation.at);
    }

    /// Places a task that was created at `at`.
    fn place_new(&mut self, id: TaskId, at: Nanos) {
        if !self.reset_target(id) {
            if self.is_over() || self.quantum.launched.is_some() {
                // Its creator's mask may have been restored in the middle of this creation.
                self.place(id, Event::Restored, at);
            }
            return;
        }
        self.place(id, Event::Created, at);
        let Some(task) = self.tasks.task(id) else { return };
        let placement = &task.placement;
        if placement.status == PlacementStatus::Placed && placement.target.pu().is_some() {
            self.counts.waited.add(now().saturating_sub(at));
        }
    }

    /// Opens the process of a new task, unless it is open. False if the process number is in use again, by a process of no job.
    fn hold_process(&mut self, id: TaskId, creation: Creation) -> bool {
        let pid = creation.pid;
        if let Some(process) = self.tasks.handle(pid).filter(|process| process.exists()) {
            let process = process.clone();
            self.tasks.hold(id, Some(process));
            return true;
        }
        let opened = ProcessHandle::open(&self.actuators.proc, pid);
        let proc = Proc::at(&self.actuators.proc);
        let (process, trouble) = match opened {
            Ok(process) => (Some(process), Ok(())),
            Err(why) if proc.has_ended(&why, pid, pid.first_thread()) => (None, Ok(())),
            Err(why) => (None, Err(why)),
        };
        self.report_failure(id.job, "place or stop a process of", trouble);
        let parent = process.as_ref().and_then(ProcessHandle::parent);
        let Some((process, parent)) = process.zip(parent) else {
            self.tasks.hold(id, None);
            return true;
        };
        let kinship = self.kinship(&process, parent, creation);
        if kinship == Kinship::Stranger {
            return false;
        }
        self.tasks.hold(id, Some(Arc::new(process)));
        if kinship == Kinship::Orphan
            && let Some(process) = self.tasks.process(pid)
        {
            process.is_orphan = true;
        }
        true
    }

    /// Relation to a job of a process that was opened by its number. A process of a job is a child of another one that lives, or of
    /// colocate if its creator has ended. A descendant of attached processes becomes a child of init instead: it belongs to the job if
    /// the kernel has recorded its creation and the process is not younger than the record.
    fn kinship(&mut self, process: &ProcessHandle, parent: Pid, creation: Creation) -> Kinship {
        if parent == Pid(std::process::id().cast_signed()) {
            return Kinship::Child;
        }
        if let Some(parent) = self.tasks.process(parent)
            && parent.handle.as_ref().is_some_and(|handle| handle.exists())
        {
            return if parent.is_orphan { Kinship::Orphan } else { Kinship::Child };
        }
        let is_recorded = self.runs.is_attached && !creation.lost;
        if is_recorded && process.started_by(creation.at) {
            Kinship::Orphan
        } else {
            Kinship::Stranger
        }
    }
}
