//! Runs of jobs: how they end, when a job begins anew, and how one is ended that has done its work.

use super::LinuxHost;
use crate::launch;
use crate::sys;
use colocate_engine::{JobEnd, QuantumEnd};
use colocate_machine::Nanos;
use colocate_observe::Pid;
use colocate_observe::sys::now;
use colocate_policy::JobIdx;

/// Exit status of a job that could not be launched anew.
const NOT_LAUNCHED: i32 = 125;

/// How long a killed process is waited for. Chosen: it needs a moment of a PU that may be busy, and one that
/// is stuck in a driver never comes.
const DIES_WITHIN: Nanos = Nanos::from_secs(10);

/// A job that is being ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    job: JobIdx,
    /// Its first process, until its exit status was taken.
    pid: Option<Pid>,
    /// When the next step is due, on the kernel's clock.
    due: Nanos,
    /// Whether it was killed, and not only asked to end.
    killed: bool,
}

impl LinuxHost {
    /// Takes the exit statuses of children that have ended.
    pub(super) fn reap(&mut self) {
        while let Ok(Some(waited)) = sys::wait(None, false) {
            if let Some((job, cpu_before)) = self.book.run_of(waited.pid) {
                let cpu_time = Some(cpu_before + waited.cpu_time);
                let status = waited.status;
                self.run_ended(JobEnd { job, at: self.clock(), status, cpu_time }, waited.pid);
            } else if let Some(leaving) =
                self.leaving.iter_mut().find(|it| it.pid == Some(waited.pid))
            {
                leaving.pid = None;
            } else if self.guardian.as_ref().is_some_and(|g| g.pid() == waited.pid) {
                self.guardian = None;
                self.notes.push("the guardian was killed; `colocate restore` remains".into());
            }
        }
        self.end_who_is_done();
    }

    /// A job's first process has ended: begins anew, or is over.
    fn run_ended(&mut self, end: JobEnd, pid: Pid) {
        self.confirm(end.job);
        // What its last threads did is known when their ends are heard of.
        self.hear();
        let instructions = self.book.instructions().get(end.job.0 as usize).copied().unwrap_or(0);
        if !self.targets.run_ended(end, instructions, self.ending) {
            return;
        }
        if let Err(why) = self.run_anew(end, pid) {
            self.say(end.job, &format!("cannot be launched anew: {why}"));
            let end = JobEnd { status: NOT_LAUNCHED, ..end };
            self.targets.run_ended(end, instructions, true);
        }
    }

    /// Launches a job once more, in its cgroup; what is left of the run before is killed.
    fn run_anew(&mut self, end: JobEnd, before: Pid) -> Result<(), launch::LaunchError> {
        let job = end.job;
        self.kill_rest(job);
        let place = job.0 as usize;
        let held = launch::hold_again(&self.commands[place], self.signals.inherited())?;
        let runtime = self.runtimes.of(&self.commands[place].path);
        self.book.restart(job, held.pid(), runtime, end.cpu_time.unwrap_or(Nanos::ZERO));
        if self.book.processes_of(job).len() == 1 {
            self.births.forget(before);
        }
        self.births.also(held.pid());
        self.sample_anew(before, held.pid());
        self.held[place] = Some(held);
        self.hear();
        self.release_held(place);
        Ok(())
    }

    /// Ends the jobs that have done their work, and tells of those that are over.
    pub(super) fn end_who_is_done(&mut self) {
        for job in self.targets.take_leave() {
            self.ask_to_end(job);
        }
        for end in self.targets.news() {
            self.book.end_job(end);
            // What it leaves behind is not stopped any more.
            self.let_go_on(end.job);
            self.ended.push(end);
            self.news = self.news.or(Some(QuantumEnd::JobEnded));
        }
    }

    /// Asks a job to end, with all that it has created.
    fn ask_to_end(&mut self, job: JobIdx) {
        let place = job.0 as usize;
        let pid = self.book.jobs().get(place).map(|job| job.pid);
        self.leaving.push(Leaving { job, pid, due: now() + self.grace, killed: false });
        self.going[place] = None;
        if self.held[place].take().is_some() {
            // It has not begun, so there is nothing that it could clean up, nor is it in its cgroup.
            let killed = crate::pause::signal(&self.book.processes_of(job), libc::SIGKILL);
            self.tell(job, "end", killed);
            return;
        }
        let pids = self.book.processes_of(job);
        // Who is stopped hears nothing; by signals it hears this one first.
        let asked = crate::pause::signal(&pids, libc::SIGTERM);
        self.tell(job, "end", asked);
        self.let_go_on(job);
    }

    /// Kills those that were asked to end and have not, when their time is over.
    pub(super) fn see_off(&mut self) {
        for mut leaving in std::mem::take(&mut self.leaving) {
            if leaving.pid.is_none() && self.book.processes_of(leaving.job).is_empty() {
                continue;
            }
            let due = now() >= leaving.due;
            match (leaving.killed, due) {
                (false, false) => {}
                (true, true) => {
                    let pids = self.book.processes_of(leaving.job).into_iter().chain(leaving.pid);
                    let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
                    let what =
                        format!("was killed and is still there: process {}", pids.join(", "));
                    self.say(leaving.job, &what);
                    continue;
                }
                // What was born meanwhile is killed, too.
                (true, false) => self.kill_rest(leaving.job),
                (false, true) => {
                    self.kill_rest(leaving.job);
                    leaving = Leaving { due: now() + DIES_WITHIN, killed: true, ..leaving };
                }
            }
            self.leaving.push(leaving);
        }
    }

    /// When the next of those steps is due.
    pub(super) fn next_leave(&self) -> Option<Nanos> {
        self.leaving.iter().map(|leaving| leaving.due).min()
    }

    /// Kills all processes of a job.
    fn kill_rest(&mut self, job: JobIdx) {
        let pids = self.book.processes_of(job);
        let killed = match &self.pauser {
            _ if pids.is_empty() => Ok(()),
            Some(pauser) => pauser.kill(job, &pids),
            None => crate::pause::signal(&pids, libc::SIGKILL),
        };
        self.tell(job, "kill", killed);
    }
}
