//! New threads: their processes opened and checked, their targets set.

use super::Placing;
use super::apply::note_counting_thread;
use super::rules::PlacementEvent;
use crate::pausing::Pausing;
use crate::task_table::Creation;
use crate::workload::HostState;
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

/// Places a task that was created at `at`. Returns how long it waited, if it was put on a PU.
pub(crate) fn place_new(
    placing: &mut Placing,
    work: &mut HostState,
    pausing: &Pausing,
    id: TaskId,
    at: Nanos,
) -> Option<Nanos> {
    if !placing.reset_target(work, id) {
        // So it is for threads that are found at the begin of `attach`.
        note_counting_thread(work, id);
        if pausing.is_over() || work.launched.is_some() {
            // Its creator's mask may have been restored in the middle of this creation.
            placing.place(work, id, PlacementEvent::Restored, at);
        }
        return None;
    }
    placing.place(work, id, PlacementEvent::Created, at);
    let placement = &work.table.tasks.get_mut(id)?.placement;
    let is_pinned = placement.status == PlacementStatus::Placed && placement.target.pu().is_some();
    is_pinned.then(|| now().saturating_sub(at))
}

/// Opens the process of a new task, unless it is open. False if the process number is in use again, by a process of no job.
pub(crate) fn hold_process(work: &mut HostState, id: TaskId, creation: Creation) -> bool {
    let pid = creation.pid;
    if let Some(process) = work.table.processes.handle(pid).filter(|process| process.exists()) {
        let process = process.clone();
        work.table.hold(id, Some(process));
        return true;
    }
    let opened = ProcessHandle::open(&work.actuators.proc, pid);
    let proc = Proc::at(&work.actuators.proc);
    let (process, trouble) = match opened {
        Ok(process) => (Some(process), Ok(())),
        Err(why) if proc.has_ended(&why, pid, pid.first_thread()) => (None, Ok(())),
        Err(why) => (None, Err(why)),
    };
    work.report_failure(id.job, "place or stop a process of", trouble);
    let parent = process.as_ref().and_then(ProcessHandle::parent);
    let Some((process, parent)) = process.zip(parent) else {
        work.table.hold(id, None);
        return true;
    };
    let kinship = kinship(work, &process, parent, creation);
    if kinship == Kinship::Stranger {
        return false;
    }
    work.table.hold(id, Some(Arc::new(process)));
    if kinship == Kinship::Orphan
        && let Some(process) = work.table.processes.get_mut(pid)
    {
        process.is_orphan = true;
    }
    true
}

/// Relation to a job of a process that was opened by its number. A process of a job is a child of another one that lives, or of
/// colocate if its creator has ended. A descendant of attached processes becomes a child of init instead: it belongs to the job if
/// the kernel has recorded its creation and the process is not younger than the record.
fn kinship(
    work: &mut HostState,
    process: &ProcessHandle,
    parent: Pid,
    creation: Creation,
) -> Kinship {
    if parent == Pid(std::process::id().cast_signed()) {
        return Kinship::Child;
    }
    if let Some(parent) = work.table.processes.get_mut(parent)
        && parent.handle.as_ref().is_some_and(|handle| handle.exists())
    {
        return if parent.is_orphan { Kinship::Orphan } else { Kinship::Child };
    }
    let is_recorded = work.is_attached && !creation.lost;
    if is_recorded && process.started_by(creation.at) { Kinship::Orphan } else { Kinship::Stranger }
}
