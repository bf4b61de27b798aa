//! Times of threads: the kernel's sums, and exact ones where phases are watched.

use super::phases::PhaseBackend;
use super::run_states::{self, RunStates};
use super::{Backend, FollowedTasks, TaskRef, TaskUsage};
use colocate_evidence::{JobIdx, Provider, Refusal, TaskId};
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// CPU times and run-queue waits of tasks, with the phases of jobs if requested.
#[derive(Debug)]
pub struct ThreadTimes {
    /// Where `/proc` is mounted.
    proc: PathBuf,
    states: RunStates<TaskId>,
    phases: Option<PhaseBackend>,
    messages: Vec<String>,
}

impl ThreadTimes {
    /// Source without times until [`ThreadTimes::start`], for the tasks listed under `proc`.
    #[must_use]
    pub fn new(proc: &Path) -> Self {
        let states = RunStates::default();
        Self { proc: proc.to_owned(), states, phases: None, messages: Vec::new() }
    }

    /// Reads times from now on.
    pub fn start(&mut self) -> Provider {
        self.states.start()
    }

    /// Closes all files: times are unknown from now on.
    pub fn stop(&mut self) {
        self.states.stop();
    }

    /// Watches the phases of the jobs from now on, which makes times exact.
    ///
    /// # Errors
    /// The kernel's refusal, and the remedy.
    pub fn watch_phases(&mut self, followed: &FollowedTasks) -> Result<Provider, Refusal> {
        if let Some(phases) = &self.phases {
            return Ok(phases.provider());
        }
        let phases = PhaseBackend::start()?;
        for new in &followed.tasks {
            phases.add(new.task.tid, new.task.id.job).map_err(Refusal::of)?;
        }
        Ok(self.phases.insert(phases).provider())
    }

    /// Whether phases are watched.
    #[must_use]
    pub const fn has_phases(&self) -> bool {
        self.phases.is_some()
    }

    /// Readable when a phase ends; `None` if phases are not watched.
    #[must_use]
    pub fn phase_fd(&self) -> Option<BorrowedFd<'_>> {
        self.phases.as_ref().map(PhaseBackend::fd)
    }

    /// Whether a phase has ended since the call before.
    #[must_use]
    pub fn take_phase_ends(&self) -> bool {
        self.phases.as_ref().is_some_and(PhaseBackend::take_ends)
    }

    /// Threads that have run or waited since the last call; `None` if phases are not watched.
    pub fn take_active(&mut self) -> Option<HashSet<Tid>> {
        self.phases.as_mut().map(PhaseBackend::take_active)
    }

    /// The kernel's sums of whole processes.
    pub const fn states(&mut self) -> &mut RunStates<TaskId> {
        &mut self.states
    }
}

impl Backend for ThreadTimes {
    fn provider(&self) -> Provider {
        run_states::provider()
    }

    fn watch_instead(&mut self, job: JobIdx, _before: Pid, pid: Pid) -> Result<(), Refusal> {
        let Some(phases) = &self.phases else { return Ok(()) };
        phases.add(pid.first_thread(), job).map_err(Refusal::of)
    }

    fn read(&mut self, task: TaskRef, at: Nanos, usage: &mut TaskUsage) {
        let exact = self.phases.as_ref().and_then(|phases| phases.times(task.tid));
        let read = self.states.read(task.id, (task.pid, task.tid), exact, &self.proc, at);
        // Without a reading, the task counts as awake.
        usage.sleeps = false;
        read.into_iter().for_each(|read| usage.note_times(read));
    }

    fn ended(&mut self, task: TaskRef, _usage: &mut TaskUsage) {
        self.states.ended(task.id);
        self.phases.iter_mut().for_each(|phases| phases.ended(task.tid));
    }

    /// Reads the exact times. On failure the watching of phases ends, and the kernel's sums remain.
    fn drain(&mut self) -> Result<(), String> {
        if let Some(Err(why)) = self.phases.as_mut().map(PhaseBackend::read) {
            let line = format!("phases are seen when quanta are over from now on: {why}");
            self.messages.push(line);
            self.phases = None;
        }
        Ok(())
    }

    fn messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }
}
