//! Events of threads that have begun: forks, execs, new names, and storms of creations.

use super::rules::{self, Event};
use crate::LinuxHost;
use crate::preparing::MOST_A_SECOND;
use crate::task_table::Creation;
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

impl LinuxHost {
    /// Takes in that a thread has created a process, which has its mask. The thread is exempt for a while, and for good once the
    /// process executes a program, which counts PUs by that mask. A process that was found late may have executed one already.
    pub(super) fn on_fork(&mut self, creation: Creation) {
        let creator = creation.parent_tid;
        if creation.lost && !self.is_of_same_program(creation) {
            return self.on_child_exec(creator);
        }
        if let Some(process) = self.tasks.process(creation.pid) {
            process.creator = Some(creator);
        }
        let Some(id) = self.tasks.living(creator) else { return };
        let Some(task) = self.tasks.task(id) else { return };
        let until = rules::fork_exempt_until(self.placing.settle(), creation.at);
        task.placement.forked_until = until;
        if rules::is_exemptible(task.placement.exempt, &task.placement.status) {
            self.place(id, Event::Forked, creation.at);
            self.placing.check_at(until, id);
        }
    }

    /// Whether a process executes the program of its creator.
    fn is_of_same_program(&self, creation: Creation) -> bool {
        let program = self.program_of(creation.pid);
        program.is_some() && program == self.program_of(creation.parent_pid)
    }

    /// Link to the executable of a process.
    fn program_of(&self, pid: Pid) -> Option<PathBuf> {
        kernel::link(&Proc::at(&self.actuators.proc).executable_link(pid)).ok()
    }

    /// Takes in that a process that a thread has created executes a program.
    fn on_child_exec(&mut self, tid: Tid) {
        let Some(id) = self.tasks.living(tid) else { return };
        let Some(task) = self.tasks.task(id) else { return };
        let placement = &mut task.placement;
        if placement.exempt == Some(Exemption::JustForked) {
            placement.exempt = Some(Exemption::StartsPrograms);
            if placement.status == PlacementStatus::Exempt(Exemption::JustForked) {
                placement.status = PlacementStatus::Exempt(Exemption::StartsPrograms);
            }
            self.tasks.set_target(id, Place::LeftToKernel);
        } else if rules::is_exemptible(placement.exempt, &placement.status) {
            self.place(id, Event::ChildExec, now());
        }
    }

    /// Places a thread again that was exempt since it had created a process; later if it has created another one meanwhile.
    pub(super) fn end_fork_exemption(&mut self, id: TaskId) {
        let Some(task) = self.tasks.task(id) else { return };
        let until = task.placement.forked_until;
        if until > now() {
            return self.placing.check_at(until, id);
        }
        task.placement.exempt = None;
        if self.reset_target(id) {
            self.place(id, Event::Restored, now());
        }
    }

    /// Takes in that a process creates threads faster than they can be followed. New threads inherit their creator's mask and most
    /// end before they are seen, so no thread of this process is pinned.
    pub(crate) fn on_storm(&mut self, pid: Pid) {
        let Some(process) = self.tasks.process(pid) else { return };
        let job = process.job;
        if std::mem::replace(&mut process.is_storm, true) {
            return;
        }
        for id in self.tasks.living_in(pid) {
            let Some(task) = self.tasks.task(id) else { continue };
            if task.placement.status != PlacementStatus::PinnedByProgram {
                self.place(id, Event::Storm, now());
            }
        }
        if self.notes.is_first(job, Exemption::Storm.reason()) {
            self.note_on(
                job,
                &format!(
                    "creates more than {MOST_A_SECOND} threads a second: they are not followed one by one, and process {pid} is \
                     left to the kernel; threads that live on are followed later"
                ),
            );
        }
    }

    /// Takes in the new name of a thread, which it may have by an exec.
    pub(crate) fn on_rename(&mut self, at: Nanos, pid: Pid, tid: Tid, name: &str, is_exec: bool) {
        let Some(id) = self.tasks.living(tid) else { return };
        self.tasks.rename(id, name);
        if is_exec {
            self.on_exec(at, pid, id);
        }
    }

    /// Takes in that a process executes a program: its thread is unpinned until the program has settled.
    fn on_exec(&mut self, at: Nanos, pid: Pid, id: TaskId) {
        if self.tasks.begins_run(id) {
            self.pausing.exec_pending[id.job.0 as usize] = None;
        }
        let executable = self.actuators.proc.join(format!("{pid}/exe"));
        let runtime = self.runs.runtimes.of(&executable);
        self.begin_program(pid, at);
        let Some(process) = self.tasks.process(pid) else { return };
        process.runtime = runtime;
        let is_orphan = process.is_orphan;
        if let Some(creator) = process.creator.take() {
            self.on_child_exec(creator);
        }
        if is_orphan {
            return self.place(id, Event::Exec, at);
        }
        if self.placing.plan().is_none() {
            return;
        }
        let Some(task) = self.tasks.task(id) else { return };
        if task.placement.exempt.take().is_some() {
            self.reset_target(id);
        }
        self.place(id, Event::Exec, at);
        self.note_narrow_start(at, pid, id.job);
    }

    /// Notes that a process begins a program, which has not counted PUs yet.
    pub(super) fn begin_program(&mut self, pid: Pid, at: Nanos) {
        let settled_at = at + self.placing.settle();
        if let Some(process) = self.tasks.process(pid) {
            process.settled_at = settled_at;
            process.postponements = 0;
            process.further = 0;
            process.is_storm = false;
        }
    }

    /// Notes once of a job that one of its programs may have counted fewer PUs than it was given.
    fn note_narrow_start(&mut self, at: Nanos, pid: Pid, job: JobIdx) {
        let Some(process) = self.tasks.process(pid) else { return };
        let narrow = process.narrow_until.saturating_sub(at);
        if narrow > COUNTS_AFTER && self.notes.is_first(job, SEES_ONE) {
            self.note_on(
                job,
                &format!(
                    "had one PU of {} for the first {narrow} of process {pid}: if its program counted PUs by then, {SEES_ONE}",
                    self.usable.len()
                ),
            );
        }
    }
}
