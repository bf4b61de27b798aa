//! Which jobs are stopped, as a plan says.

use crate::LinuxHost;
use colocate_act::launch::{ExecPending, Held};
use colocate_act::pause::{self, Group, Pauser};
use colocate_act::signals;
use colocate_engine::HostError;
use colocate_evidence::{JobIdx, TaskId};
use colocate_files::kernel;
use colocate_linux::Pid;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::limits::Descriptors;
use colocate_policy::Plan;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Stopped jobs, and launched jobs whose programs have not begun.
#[derive(Debug)]
pub(crate) struct Pausing {
    /// `None` if no job is ever stopped.
    pub pauser: Option<Pauser>,
    /// Waiting jobs.
    pub waiting: BTreeSet<JobIdx>,
    /// Launched process per job before its first release.
    pub held: Vec<Option<Held>>,
    /// Process released last per job, while its exec may be pending.
    pub exec_pending: Vec<Option<ExecPending>>,
    /// Signal that has ended the scheduling: afterwards no job is stopped or placed.
    pub ending: Option<c_int>,
    /// Whether everything is left to the kernel, as too little can be read of threads.
    pub given_up: bool,
    /// Whether cgroups could not be removed.
    pub cgroups_stay: bool,
    /// File descriptors reserved for restoring state when none is free.
    reserve: Vec<File>,
}

impl Pausing {
    /// `attached` is the number of attached jobs, numbered after the held jobs.
    pub fn new(
        held: Vec<Held>,
        attached: usize,
        pauser: Option<Pauser>,
        reserve: Vec<File>,
    ) -> Self {
        let held: Vec<Option<Held>> =
            held.into_iter().map(Some).chain((0..attached).map(|_| None)).collect();
        Self {
            pauser,
            waiting: BTreeSet::new(),
            exec_pending: held.iter().map(|_| None).collect(),
            held,
            ending: None,
            given_up: false,
            cgroups_stay: false,
            reserve,
        }
    }
}

impl LinuxHost {
    /// Stops the jobs that wait under the plan, before other jobs continue: no PU serves both.
    ///
    /// # Errors
    /// If the plan does not place whole jobs, or the host was not prepared to stop jobs.
    pub(crate) fn stop_waiting_jobs(&mut self, plan: &Plan) -> Result<(), HostError> {
        if self.is_over() {
            // Programs were asked to end, and a stopped one could not; or none may be stopped.
            return Ok(());
        }
        self.pausing.waiting = waiting(plan, self.pausing.pauser.is_some())?.into_iter().collect();
        let measures = plan.measures();
        for job in self.pausing.waiting.clone() {
            self.make_wait(job, measures);
        }
        Ok(())
    }

    /// Stops a job, or lets it fill idle PUs unless the plan `measures`. No effect on a job before
    /// its start or after its end.
    fn make_wait(&mut self, job: JobIdx, measures: bool) {
        let begun = self.pausing.held.get(job.0 as usize).is_some_and(Option::is_none);
        let ended = self.tasks.jobs().get(job.0 as usize).is_none_or(|known| known.end.is_some());
        if begun && !ended && !self.lower(job, measures) {
            self.stop_now(job);
        }
    }

    /// Stops a started job that is not stopped yet.
    pub(crate) fn stop_now(&mut self, job: JobIdx) {
        if self.is_stopped(job) {
            return;
        }
        self.note_all(&self.tasks.processes_of(job));
        self.by_pauser(job, "stop", Pauser::stop);
    }

    /// Applies an action of the pauser to a job; no effect without a pauser.
    fn by_pauser(
        &mut self,
        job: JobIdx,
        what: &'static str,
        act: impl FnOnce(&mut Pauser, Group, &[Arc<ProcessHandle>]) -> io::Result<()>,
    ) {
        let processes = self.tasks.handles_of(job);
        let Some(pauser) = &mut self.pausing.pauser else { return };
        let done = act(pauser, group(job), &processes);
        self.report_failure(job, what, done);
    }

    /// Continues the jobs that do not wait, and releases held jobs.
    pub(crate) fn continue_chosen(&mut self) {
        let all = 0..self.pausing.held.len();
        all.clone().for_each(|job| self.release_held(job));
        for job in all.filter_map(|job| u32::try_from(job).ok()).map(JobIdx) {
            if !self.pausing.waiting.contains(&job) {
                self.continue_job(job);
            }
        }
    }

    /// Ends the scheduling for good after a signal that ends programs, as a stopped program could
    /// not end. All jobs continue under the kernel's placement. A host that stops no job keeps to
    /// its plan.
    pub(crate) fn end_scheduling(&mut self, signal: c_int) {
        if self.pausing.pauser.is_none() {
            return;
        }
        self.pausing.ending = Some(signal);
        self.stop_pages();
        self.continue_all();
        self.leave_to_kernel();
        if self.fillers.is_some() {
            // A thread that nothing is known of would end under SCHED_IDLE, which can take it long, and keep its cgroup and
            // the kernel busy, see `wait`.
            self.restore_all();
        }
        self.dissolve();
        self.notes.push(format!(
            "{} has ended the scheduling: a program that goes on is left to the kernel, and jobs that have not reached \
             their targets have status {}",
            signals::name(signal),
            signals::status(signal)
        ));
    }

    /// Whether no plan is followed any more.
    pub(crate) fn is_over(&self) -> bool {
        self.pausing.ending.is_some() || self.pausing.given_up
    }

    /// Gives up if `/proc` is unusable, or if hardly any further file can be opened: an unreadable
    /// task must not be stopped or placed. Must be called before any program runs.
    pub(crate) fn give_up_if_unreadable(&mut self) {
        if let Some(why) = self.lifecycle.without_proc().map(ToOwned::to_owned) {
            // Whatever is there is about other processes.
            self.actuators.proc = PathBuf::from(NOWHERE);
            self.give_up(&why);
        } else if !has_room(ROOM) {
            self.give_up(&no_room(ROOM));
        }
    }

    /// Gives up once file descriptors have run out, as threads can hardly be read without any.
    pub(crate) fn give_up_if_used_up(&mut self) {
        if !self.is_over() && !has_room(IN_USE) {
            self.give_up(&no_room(IN_USE));
        }
    }

    /// Ends all control for good and reports the reason once. Programs then run as without
    /// colocate.
    fn give_up(&mut self, why: &str) {
        if self.is_over() {
            return;
        }
        self.pausing.given_up = true;
        self.pausing.reserve.clear();
        self.sources.times.stop();
        self.stop_pages();
        self.leave_to_kernel();
        if self.quantum.launched.is_some() {
            self.continue_all();
        }
        self.notes
            .push(format!("every program is left to the kernel, none is stopped or placed: {why}"));
    }

    /// Continues everything.
    pub(crate) fn continue_all(&mut self) {
        self.pausing.waiting.clear();
        self.continue_chosen();
    }

    /// Removes the jobs' cgroups, if any.
    pub(crate) fn dissolve(&mut self) {
        if let Some(Err(why)) = self.pausing.pauser.take().map(|mut pauser| pauser.dissolve()) {
            self.notes
                .push(format!("cannot remove the jobs' cgroups, which the guardian tries: {why}"));
            self.pausing.cgroups_stay = true;
        }
    }

    pub(crate) fn continue_job(&mut self, job: JobIdx) {
        self.raise(job);
        self.continue_stopped(job);
    }

    pub(crate) fn continue_stopped(&mut self, job: JobIdx) {
        if !self.is_stopped(job) {
            return;
        }
        self.by_pauser(job, "continue", Pauser::resume);
    }

    pub(crate) fn is_stopped(&self, job: JobIdx) -> bool {
        self.pausing.pauser.as_ref().is_some_and(|pauser| pauser.is_stopped(group(job)))
    }

    /// Stops a new process of a stopped job.
    pub(crate) fn stop_new(&mut self, id: TaskId, pid: Pid) {
        if self.is_stopped(id.job) {
            self.note_all(&[pid]);
            let both = self.pausing.pauser.as_ref().zip(self.tasks.handle(pid));
            let result = both.map_or(Ok(()), |(pauser, process)| pauser.stop_new(process));
            self.report_failure(id.job, "stop", result);
        }
    }

    /// Releases a held job that may begin. Does not wait for the exec: it needs a PU, which may
    /// take a while, or a disk, which may take for ever.
    pub(crate) fn release_held(&mut self, place: usize) {
        let Ok(job) = u32::try_from(place).map(JobIdx) else { return };
        if self.pausing.waiting.contains(&job) || self.is_held_for_readiness(place) {
            return;
        }
        let Some(held) = self.pausing.held.get_mut(place).and_then(Option::take) else { return };
        let entered = self
            .pausing
            .pauser
            .as_mut()
            .map_or(Ok(()), |pauser| pauser.enter(group(job), held.pid()));
        self.report_failure(job, "take into its cgroup", entered);
        self.pausing.exec_pending[place] = Some(held.release());
    }

    /// Reports the failed exec of an ended process, if its exec failed.
    pub(crate) fn confirm(&mut self, job: JobIdx) {
        let exec_pending = self.pausing.exec_pending.get_mut(job.0 as usize).and_then(Option::take);
        if let Some(Err(why)) = exec_pending.map(ExecPending::confirm) {
            self.notes.push(why.to_string());
        }
    }

    /// Continues processes that have stopped themselves, so that a signal can end them, like
    /// timeout(1).
    pub(crate) fn continue_self_stopped(&mut self) {
        let jobs = self.tasks.jobs().iter().zip(0..).filter(|(job, _)| job.end.is_none());
        let jobs: Vec<JobIdx> = jobs.map(|(_, number)| JobIdx(number)).collect();
        for job in jobs {
            let mut stopped = self.tasks.handles_of(job);
            stopped.retain(|process| process.stat().is_some_and(|stat| stat.state == 'T'));
            self.report_failure(
                job,
                "continue_self_stopped",
                pause::signal(&stopped, libc::SIGCONT),
            );
        }
    }

    /// Stops the waiting jobs again after all were continued: a shell continues a job on bringing
    /// it to the foreground.
    pub(crate) fn stop_again(&mut self) {
        for job in self.pausing.waiting.clone() {
            if self.is_stopped(job) {
                self.by_pauser(job, "stop", |pauser, job, processes| {
                    pauser.stop_again(job, processes)
                });
            }
        }
    }

    /// Writes processes to the journal for the guardian: by their first thread, or by another
    /// thread after the first one's end.
    pub(crate) fn note_all(&mut self, pids: &[Pid]) {
        for pid in pids {
            let first = self.tasks.living(pid.first_thread());
            if let Some(task) = first
                .or_else(|| self.tasks.living_in(*pid).first().copied())
                .and_then(|id| self.tasks.task(id))
            {
                self.actuators.note(&mut task.thread);
            }
        }
    }

    /// Reports a failed action on a job, once per job.
    pub(crate) fn report_failure(
        &mut self,
        job: JobIdx,
        what: &'static str,
        result: io::Result<()>,
    ) {
        let Err(why) = result else { return };
        if self.notes.is_first(job, what) {
            let name = self.tasks.jobs().get(job.0 as usize).map_or("", |job| job.name.as_str());
            self.notes.push(format!("cannot {what} job {} ({name}): {why}", job.0));
        }
    }
}

/// Number of a job in the pauser.
pub(crate) const fn group(job: JobIdx) -> Group {
    Group(job.0)
}

/// Where no file is.
const NOWHERE: &str = "/dev/null";

/// File descriptors that must be free after the preparations: for reading threads, with a few for
/// the journal and for libraries. Chosen.
const ROOM: usize = 8;

/// Maximum number of files open at once during an action on a job: its cgroup, a file in the
/// cgroup, and the folder being listed.
pub(crate) const IN_USE: usize = 3;

/// Whether `files` more files can be opened.
fn has_room(files: usize) -> bool {
    let opened: io::Result<Vec<File>> =
        (0..files).map(|_| kernel::open(NOWHERE.as_ref())).collect();
    opened.is_ok()
}

/// Message about exhausted file descriptors and its consequence.
fn no_room(files: usize) -> String {
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
