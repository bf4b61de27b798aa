//! Events of threads that have begun: forks, execs, new names, and storms of creations.

use super::Placing;
use super::rules::{self, PlacementEvent};
use crate::pausing::Pausing;
use crate::preparing::MOST_A_SECOND;
use crate::task_table::Creation;
use crate::workload::HostState;
use colocate_evidence::{Exemption, JobIdx, PlacementStatus, TaskId};
use colocate_files::kernel;
use colocate_linux::clock::now;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use colocate_policy::Place;
use std::path::PathBuf;

/// Key of the note on programs that were executed on one PU, and part of it.
const SEES_ONE: &str = "it saw one";
/// Time after its exec within which no program has counted PUs. Chosen: the dynamic linker takes longer.
const COUNTS_AFTER: Nanos = Nanos(200_000);

/// Takes in that a thread has created a process, which has its mask. The thread is exempt for a while, and for good once the
/// process executes a program, which counts PUs by that mask. A process that was found late may have executed one already.
pub(crate) fn on_fork(placing: &mut Placing, work: &mut HostState, creation: Creation) {
    let creator = creation.parent_tid;
    if creation.lost && !is_of_same_program(work, creation) {
        return on_child_exec(placing, work, creator);
    }
    if let Some(process) = work.table.processes.get_mut(creation.pid) {
        process.creator = Some(creator);
    }
    let Some(id) = work.table.tasks.living(creator) else { return };
    let Some(task) = work.table.tasks.get_mut(id) else { return };
    task.placement.forked = task.placement.forked.after_fork(placing.settle(), creation.at);
    let until = task.placement.forked.until;
    if rules::is_exemptible(task.placement.exempt, &task.placement.status) {
        placing.place(work, id, PlacementEvent::Forked, creation.at);
        placing.check_at(until, id);
    }
}

/// Whether a process executes the program of its creator.
fn is_of_same_program(work: &HostState, creation: Creation) -> bool {
    let program = program_of(work, creation.pid);
    program.is_some() && program == program_of(work, creation.parent_pid)
}

/// Link to the executable of a process.
fn program_of(work: &HostState, pid: Pid) -> Option<PathBuf> {
    kernel::link(&Proc::at(&work.actuators.proc).executable_link(pid)).ok()
}

/// Takes in that a process that a thread has created executes a program.
fn on_child_exec(placing: &mut Placing, work: &mut HostState, tid: Tid) {
    let Some(id) = work.table.tasks.living(tid) else { return };
    let Some(task) = work.table.tasks.get_mut(id) else { return };
    let placement = &mut task.placement;
    if placement.exempt == Some(Exemption::JustForked) {
        placement.exempt = Some(Exemption::StartsPrograms);
        if placement.status == PlacementStatus::Exempt(Exemption::JustForked) {
            placement.status = PlacementStatus::Exempt(Exemption::StartsPrograms);
        }
        work.table.set_target(id, Place::LeftToKernel);
    } else if rules::is_exemptible(placement.exempt, &placement.status) {
        placing.place(work, id, PlacementEvent::ChildExec, now());
    }
}

/// Takes in that a process creates threads faster than they can be followed. New threads inherit their creator's mask and most
/// end before they are seen, so no thread of this process is pinned.
pub(crate) fn on_storm(placing: &mut Placing, work: &mut HostState, pid: Pid) {
    let Some(process) = work.table.processes.get_mut(pid) else { return };
    let job = process.job;
    if std::mem::replace(&mut process.is_storm, true) {
        return;
    }
    for id in work.table.processes.living_in(pid) {
        let Some(task) = work.table.tasks.get_mut(id) else { continue };
        if task.placement.status != PlacementStatus::PinnedByProgram {
            placing.place(work, id, PlacementEvent::Storm, now());
        }
    }
    if work.notes.is_first(job, Exemption::Storm.reason()) {
        work.note_on(
            job,
            &format!(
                "creates more than {MOST_A_SECOND} threads a second: they are not followed one by one, and process {pid} is \
                 left to the kernel; threads that live on are followed later"
            ),
        );
    }
}

/// Takes in that a process executes a program: its thread is unpinned until the program has settled.
pub(crate) fn on_exec(
    placing: &mut Placing,
    work: &mut HostState,
    pausing: &mut Pausing,
    at: Nanos,
    pid: Pid,
    id: TaskId,
) {
    if work.table.begins_run(id) {
        pausing.has_begun(id.job);
    }
    begin_program(placing, work, pid, at);
    let Some(process) = work.table.processes.get_mut(pid) else { return };
    process.runtime = None;
    let is_orphan = process.is_orphan;
    if let Some(creator) = process.creator.take() {
        on_child_exec(placing, work, creator);
    }
    if is_orphan {
        return placing.place(work, id, PlacementEvent::Exec, at);
    }
    if placing.plan().is_none() {
        return;
    }
    let Some(task) = work.table.tasks.get_mut(id) else { return };
    // An exemption belongs to the program that the exec has replaced.
    if task.placement.exempt.take().is_some() {
        placing.reset_target(work, id);
    }
    placing.place(work, id, PlacementEvent::Exec, at);
    note_narrow_start(work, at, pid, id.job);
}

/// Notes that a process begins a program, which has not counted PUs yet.
pub(crate) fn begin_program(placing: &Placing, work: &mut HostState, pid: Pid, at: Nanos) {
    let settled_at = at + placing.settle();
    if let Some(process) = work.table.processes.get_mut(pid) {
        process.settled_at = settled_at;
        process.postponements = 0;
        process.further = 0;
        process.is_storm = false;
    }
}

/// Notes once of a job that one of its programs may have counted fewer PUs than it was given.
fn note_narrow_start(work: &mut HostState, at: Nanos, pid: Pid, job: JobIdx) {
    let Some(process) = work.table.processes.get_mut(pid) else { return };
    let narrow = process.narrow_until.saturating_sub(at);
    if narrow > COUNTS_AFTER && work.notes.is_first(job, SEES_ONE) {
        work.note_on(
            job,
            &format!(
                "had one PU of {} for the first {narrow} of process {pid}: if its program counted PUs by then, {SEES_ONE}",
                work.usable.len()
            ),
        );
    }
}
