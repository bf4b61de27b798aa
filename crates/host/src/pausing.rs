//! Which jobs are stopped, as a plan says.

use crate::filling::Fillers;
use crate::notes::Notes;
use crate::workload::HostState;
use colocate_act::launch::{ExecPending, Held};
use colocate_act::pause::{self, JobProcesses, Pauser, StopState};
use colocate_engine::HostError;
use colocate_evidence::{JobIdx, TaskId};
use colocate_files::kernel;
use colocate_linux::Pid;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::limits::Descriptors;
use colocate_policy::Plan;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Stopped jobs, and launched jobs whose programs have not begun.
#[derive(Debug)]
pub(crate) struct Pausing {
    /// `None` if no job is ever stopped.
    pauser: Option<Pauser>,
    /// `None` if no waiting job fills idle PUs.
    fillers: Option<Fillers>,
    /// Waiting jobs.
    waiting: BTreeSet<JobIdx>,
    /// Launched process per job before its first release.
    held: Vec<Option<Held>>,
    /// Whether all jobs but the first are held.
    holds_others: bool,
    /// Process released last per job, while its exec may be pending.
    exec_pending: Vec<Option<ExecPending>>,
    /// Signal that has ended the scheduling: afterwards no job is stopped or placed.
    ending: Option<c_int>,
    /// Whether everything is left to the kernel, as too little can be read of threads.
    given_up: bool,
    /// Whether cgroups could not be removed.
    cgroups_stay: bool,
    /// File descriptors reserved for restoring state when none is free.
    reserve: Vec<File>,
}

impl Pausing {
    /// `attached` is the number of attached jobs, numbered after the held jobs.
    pub fn new(
        held: Vec<Held>,
        attached: usize,
        pauser: Option<Pauser>,
        fillers: Option<Fillers>,
        reserve: Vec<File>,
    ) -> Self {
        let held: Vec<Option<Held>> =
            held.into_iter().map(Some).chain((0..attached).map(|_| None)).collect();
        Self {
            pauser,
            fillers,
            waiting: BTreeSet::new(),
            exec_pending: held.iter().map(|_| None).collect(),
            held,
            holds_others: false,
            ending: None,
            given_up: false,
            cgroups_stay: false,
            reserve,
        }
    }

    /// Whether jobs may be stopped.
    pub const fn may_stop(&self) -> bool {
        self.pauser.is_some()
    }

    /// Whether waiting jobs may fill idle PUs.
    pub const fn may_fill(&self) -> bool {
        self.fillers.is_some()
    }

    /// Waiting jobs.
    pub const fn waiting(&self) -> &BTreeSet<JobIdx> {
        &self.waiting
    }

    /// Signal that has ended the scheduling.
    pub const fn ending(&self) -> Option<c_int> {
        self.ending
    }

    /// Whether everything is left to the kernel, as too little can be read of threads.
    pub const fn has_given_up(&self) -> bool {
        self.given_up
    }

    /// Whether no plan is followed any more.
    pub const fn is_over(&self) -> bool {
        self.ending.is_some() || self.given_up
    }

    /// Whether cgroups could not be removed.
    pub const fn cgroups_stay(&self) -> bool {
        self.cgroups_stay
    }

    /// Ends the stopping of jobs after a signal.
    pub const fn end(&mut self, signal: c_int) {
        self.ending = Some(signal);
    }

    /// Ends all control. The reserved descriptors are free afterwards.
    pub fn give_up(&mut self) {
        self.given_up = true;
        self.reserve.clear();
    }

    /// Holds all jobs but the first, or lets them go.
    pub const fn hold_others(&mut self, holds: bool) {
        self.holds_others = holds;
    }

    /// Stops the jobs that wait under the plan, before other jobs continue: no PU serves both.
    ///
    /// # Errors
    /// If the plan does not place whole jobs, or the host was not prepared to stop jobs.
    pub fn stop_waiting_jobs(
        &mut self,
        work: &mut HostState,
        plan: &Plan,
    ) -> Result<(), HostError> {
        if self.is_over() {
            // Programs were asked to end, and a stopped one could not; or none may be stopped.
            return Ok(());
        }
        self.waiting = waiting(plan, self.pauser.is_some())?.into_iter().collect();
        let measures = plan.measures();
        for job in self.waiting.clone() {
            self.make_wait(work, job, measures);
        }
        Ok(())
    }

    /// Stops a job, or lets it fill idle PUs unless the plan `measures`. No effect on a job before
    /// its start or after its end.
    fn make_wait(&mut self, work: &mut HostState, job: JobIdx, measures: bool) {
        let begun = self.held.get(job.0 as usize).is_some_and(Option::is_none);
        let ended = work.table.jobs.get(job).is_none_or(|known| known.end.is_some());
        if begun && !ended && !self.lower(work, job, measures) {
            self.stop_now(work, job);
        }
    }

    /// Puts all threads of a waiting job under SCHED_IDLE. False if the job has to be stopped
    /// instead, as all jobs have to while the plan `measures` a job.
    fn lower(&mut self, work: &mut HostState, job: JobIdx, measures: bool) -> bool {
        let Some(fillers) = &mut self.fillers else { return false };
        if measures || fillers.refuses(job) {
            fillers.raise(work, job);
            return false;
        }
        if fillers.fills(job) {
            return true;
        }
        // It may have been stopped while a job was measured.
        self.continue_stopped(work, job);
        self.fillers.as_mut().is_some_and(|fillers| fillers.lower(work, job))
    }

    /// Stops a started job that is not stopped yet.
    fn stop_now(&mut self, work: &mut HostState, job: JobIdx) {
        if self.is_stopped(job) {
            return;
        }
        // Before the stop, so that the guardian can continue the processes.
        work.note_all(&work.table.processes.of(job));
        self.by_pauser(work, job, "stop", Pauser::stop);
    }

    /// Applies an action of the pauser to a job; no effect without a pauser.
    fn by_pauser(
        &mut self,
        work: &mut HostState,
        job: JobIdx,
        what: &'static str,
        act: impl FnOnce(&mut Pauser, JobProcesses, &[Arc<ProcessHandle>]) -> io::Result<()>,
    ) {
        let processes = work.table.processes.handles_of(job);
        let Some(pauser) = &mut self.pauser else { return };
        let done = act(pauser, group(job), &processes);
        work.report_failure(job, what, done);
    }

    /// Continues the jobs that do not wait, and releases held jobs.
    pub fn continue_chosen(&mut self, work: &mut HostState) {
        self.release_all(work);
        let all = 0..self.held.len();
        for job in all.filter_map(|job| u32::try_from(job).ok()).map(JobIdx) {
            if !self.waiting.contains(&job) {
                self.continue_job(work, job);
            }
        }
    }

    /// Continues everything.
    pub fn continue_all(&mut self, work: &mut HostState) {
        self.waiting.clear();
        self.continue_chosen(work);
    }

    /// Removes the jobs' cgroups, if any.
    pub fn dissolve(&mut self, notes: &mut Notes) {
        if let Some(Err(why)) = self.pauser.take().map(|mut pauser| pauser.dissolve()) {
            notes.push(format!("cannot remove the jobs' cgroups, which the guardian tries: {why}"));
            self.cgroups_stay = true;
        }
    }

    /// Continues a job that is stopped or fills idle PUs.
    pub fn continue_job(&mut self, work: &mut HostState, job: JobIdx) {
        if let Some(fillers) = &mut self.fillers {
            fillers.raise(work, job);
        }
        self.continue_stopped(work, job);
    }

    fn continue_stopped(&mut self, work: &mut HostState, job: JobIdx) {
        if self.is_stopped(job) {
            self.by_pauser(work, job, "continue", Pauser::resume);
        }
    }

    /// Whether colocate has stopped a job.
    pub fn is_stopped(&self, job: JobIdx) -> bool {
        self.pauser.as_ref().is_some_and(|pauser| pauser.is_stopped(group(job)))
    }

    /// Stops a new process of a stopped job.
    pub fn stop_new(&self, work: &mut HostState, job: JobIdx, pid: Pid) {
        if self.is_stopped(job) {
            work.note_all(&[pid]);
            let both = self.pauser.as_ref().zip(work.table.processes.handle(pid));
            let result = both.map_or(Ok(()), |(pauser, process)| pauser.stop_new(process));
            work.report_failure(job, "stop", result);
        }
    }

    /// Releases the held jobs that may begin.
    pub fn release_all(&mut self, work: &mut HostState) {
        (0..self.held.len()).for_each(|place| self.release_held(work, place));
    }

    /// Releases a held job that may begin. Does not wait for the exec: it needs a PU, which may
    /// take a while, or a disk, which may take for ever.
    pub fn release_held(&mut self, work: &mut HostState, place: usize) {
        let Ok(job) = u32::try_from(place).map(JobIdx) else { return };
        if self.waiting.contains(&job) || self.holds_others && place > 0 {
            return;
        }
        let Some(held) = self.held.get_mut(place).and_then(Option::take) else { return };
        let pauser = self.pauser.as_mut();
        let entered = pauser.map_or(Ok(()), |pauser| pauser.enter(group(job), held.pid()));
        work.report_failure(job, "take into its cgroup", entered);
        self.exec_pending[place] = Some(held.release());
    }

    /// Holds a process of a job that begins anew.
    pub fn hold(&mut self, job: JobIdx, held: Held) {
        self.held[job.0 as usize] = Some(held);
    }

    /// Process of a job that has not begun.
    pub fn held(&self, job: JobIdx) -> Option<Pid> {
        self.held.get(job.0 as usize)?.as_ref().map(Held::pid)
    }

    /// Gives up a job that has not begun or whose exec is pending. True if it has not begun.
    pub fn forget_held(&mut self, job: JobIdx) -> bool {
        self.has_begun(job);
        self.held[job.0 as usize].take().is_some()
    }

    /// Takes in that a job executes its program.
    pub fn has_begun(&mut self, job: JobIdx) {
        self.exec_pending[job.0 as usize] = None;
    }

    /// Reports the failed exec of an ended process, if its exec failed.
    pub fn confirm(&mut self, notes: &mut Notes, job: JobIdx) {
        let exec_pending = self.exec_pending.get_mut(job.0 as usize).and_then(Option::take);
        if let Some(Err(why)) = exec_pending.map(ExecPending::confirm) {
            notes.push(why.to_string());
        }
    }

    /// Stops the waiting jobs again after all were continued: a shell continues a job on bringing
    /// it to the foreground.
    pub fn stop_again(&mut self, work: &mut HostState) {
        for job in self.waiting.clone() {
            if self.is_stopped(job) {
                self.by_pauser(work, job, "stop", |pauser, job, processes| {
                    pauser.stop_again(job, processes)
                });
            }
        }
    }

    /// Kills all processes of a job, which are these.
    pub fn kill(&self, work: &mut HostState, job: JobIdx, processes: &[Arc<ProcessHandle>]) {
        let killed = match &self.pauser {
            _ if processes.is_empty() => Ok(()),
            Some(pauser) => pauser.kill(group(job), processes),
            None => pause::signal(processes, libc::SIGKILL),
        };
        work.report_failure(job, "kill", killed);
    }

    /// Reads whether the waiting jobs have stopped.
    pub fn check_stopped(&mut self, work: &mut HostState) {
        let Some(pauser) = &mut self.pauser else { return };
        let mut processes = BTreeMap::new();
        if pauser.needs_processes() {
            processes = work.table.processes.handles_by_job();
        }
        for job in &self.waiting {
            let of_job = processes.get(job).map_or(&[][..], Vec::as_slice);
            if pauser.poll(group(*job), of_job) == StopState::FailedToStop {
                let what = "goes on although it is to wait, and was stopped again and again";
                work.note_on(*job, what);
            }
        }
    }

    /// Whether the threads of a job are under SCHED_IDLE by our doing.
    pub fn fills(&self, job: JobIdx) -> bool {
        self.fillers.as_ref().is_some_and(|fillers| fillers.fills(job))
    }

    /// Checks that filling threads still have the lowest priority: programs may have changed it.
    pub fn check_fillers(&mut self, work: &mut HostState) {
        for job in self.fillers.as_ref().map_or(Vec::new(), Fillers::jobs) {
            let lowered = self.fillers.as_mut().is_none_or(|fillers| fillers.lower(work, job));
            if !lowered && self.waiting.contains(&job) {
                self.stop_now(work, job);
            }
        }
    }

    /// Applies the class inherited from the creator to a new thread.
    pub fn inherit_class(&mut self, work: &mut HostState, id: TaskId) {
        if let Some(fillers) = &mut self.fillers {
            fillers.inherit_class(work, id);
        }
    }

    /// Whether an ended child may have threads under SCHED_IDLE that end slowly. To be called once before it is reaped.
    pub fn ends_slowly(&mut self, pid: Pid) -> bool {
        self.fillers.as_mut().is_some_and(|fillers| fillers.forget_threaded(pid))
    }

    /// Waiting jobs that are stopped.
    pub fn stopped_jobs(&self) -> BTreeSet<JobIdx> {
        self.waiting.iter().copied().filter(|job| !self.fills(*job)).collect()
    }
}

/// Number of a job in the pauser.
const fn group(job: JobIdx) -> JobProcesses {
    JobProcesses(job.0)
}

/// File descriptors that must be free after the preparations: for reading threads, with a few for
/// the journal and for libraries. Chosen.
pub(crate) const ROOM: usize = 8;

/// Maximum number of files open at once during an action on a job: its cgroup, a file in the
/// cgroup, and the folder being listed.
pub(crate) const IN_USE: usize = 3;

/// Whether `files` more files can be opened.
pub(crate) fn has_room(files: usize) -> bool {
    let opened: io::Result<Vec<File>> =
        (0..files).map(|_| kernel::open("/dev/null".as_ref())).collect();
    opened.is_ok()
}

/// Message about exhausted file descriptors and its consequence.
pub(crate) fn no_room(files: usize) -> String {
    let limit = Descriptors::now().hard;
    format!(
        "found no room for {files} more open files, expected more than {limit} to be allowed; raise the limit (ulimit -Hn, \
         LimitNOFILE=), or start fewer programs"
    )
}

fn cannot_follow(why: String) -> HostError {
    HostError { what: "follow the plan".to_owned(), why }
}

/// Jobs that wait under a plan.
fn waiting(plan: &Plan, may_pause: bool) -> Result<Vec<JobIdx>, HostError> {
    let waiting = plan.waiting().map_err(|why| cannot_follow(why.to_string()))?;
    match waiting.first() {
        Some(first) if !may_pause => Err(cannot_follow(format!(
            "expected every job to run, found job {} waiting; `colocate schedule` stops jobs",
            first.0
        ))),
        _ => Ok(waiting),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(waits: [bool; 3]) -> Plan {
        let decision = |(order, waits): (usize, bool)| {
            let (job, order) = (order / 2, order % 2);
            format!(
                r#"{{ "task": {{ "job": {job}, "order": {order} }}, "name": "t", "waits": {waits},
                    "why": {{ "why": "not-selected" }} }}"#
            )
        };
        let decisions: Vec<String> = waits.into_iter().enumerate().map(decision).collect();
        let text = format!(
            r#"{{ "version": 2, "machine": "m", "pus": [], "policy": "p", "decisions": [{}],
                "default_placement": {{ "rule": "leave-to-kernel" }}, "predicted": null }}"#,
            decisions.join(", ")
        );
        Plan::from_json(&text).unwrap()
    }

    #[test]
    fn only_a_host_that_stops_jobs_follows_a_plan_that_does() {
        assert_eq!(waiting(&plan([true, true, false]), true).unwrap(), [JobIdx(0)]);
        assert!(waiting(&plan([false; 3]), false).unwrap().is_empty());
        assert_eq!(
            waiting(&plan([false, false, true]), false).unwrap_err().to_string(),
            "follow the plan: expected every job to run, found job 1 waiting; `colocate schedule` stops jobs"
        );
    }
}
