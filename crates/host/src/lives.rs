//! Runs of jobs: how they end, when a job begins anew, and how one is ended that has done its work.

use crate::pausing::group;
use crate::ready::{NOT_LAUNCHED, Probing, Readiness};
use crate::runtime::Runtimes;
use crate::target::Targets;
use crate::task_table::Creation;
use crate::{LinuxHost, Setup};
use colocate_act::boost::{HIGHEST_NICE, SHORT_SLICE};
use colocate_act::launch::{self, Command};
use colocate_act::pause;
use colocate_act::signals;
use colocate_evidence::{JobEnd, JobIdx, QuantumEnd};
use colocate_linux::clock::now;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::sys::{self, Waited};
use colocate_linux::{Pid, SysError};
use colocate_machine::Nanos;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long a killed process is waited for. Chosen: it needs a moment of a PU that may be busy, and one that
/// is stuck in a driver never comes.
const DIES_WITHIN: Nanos = Nanos::from_secs(10);

/// For how long children are reaped at a time: signals are answered in between. Chosen: some hundred of them.
const REAPING: Nanos = Nanos::from_millis(10);

/// A job that is being ended.
#[derive(Debug)]
pub(crate) struct Leaving {
    job: JobIdx,
    /// Its first process, until its exit status was taken.
    pid: Option<Pid>,
    /// When the next step is due, on the kernel's clock.
    due: Nanos,
    /// Those of its processes that were killed; `None` while they are only asked to end.
    killed: Option<BTreeSet<Pid>>,
}

/// What a run has left behind, and was killed when the next one began.
#[derive(Debug)]
pub(crate) struct Orphans {
    /// The first process of that run: creations are reported by its events.
    first: Pid,
    /// Those that have not ended.
    pids: BTreeSet<Pid>,
}

/// The jobs as they are launched, once or anew, and as they are ended.
#[derive(Debug)]
pub(crate) struct Runs {
    commands: Vec<Command>,
    /// Whether the jobs ran already.
    pub is_attached: bool,
    /// How long after the launch those that ran already are left to the kernel.
    pub detach_after: Option<Nanos>,
    /// Cause of the end of following such jobs: a signal, or the end of its time.
    detached_by: Option<String>,
    pub targets: Targets,
    /// Readiness that the other jobs are held for, until the first one is released.
    pub readiness: Option<Readiness>,
    /// Probes for it, from then on.
    pub probing: Option<Probing>,
    /// Jobs after whose ends all others are ended.
    pub until: Vec<JobIdx>,
    /// Whether the first job is a server for the others, which is ended with all that it has left behind.
    pub serves: bool,
    grace: Nanos,
    /// Jobs that have reached their target and are being ended.
    pub leaving: Vec<Leaving>,
    /// What runs have left behind that others have followed.
    orphans: Vec<Orphans>,
    /// Whether there were more children to reap than are reaped at a time.
    pub has_piled_up: bool,
    pub runtimes: Runtimes,
    /// Jobs that are over, in the order of their ends.
    pub ended: Vec<JobEnd>,
}

impl Runs {
    pub fn new(commands: Vec<Command>, targets: Targets, setup: &Setup) -> Self {
        Self {
            commands,
            is_attached: !setup.attached.is_empty(),
            detach_after: setup.detach_after,
            detached_by: None,
            targets,
            readiness: setup.ready.clone(),
            probing: None,
            until: setup.until.clone(),
            serves: setup.ready.is_some(),
            grace: setup.grace,
            leaving: Vec::new(),
            orphans: Vec::new(),
            has_piled_up: false,
            runtimes: Runtimes::default(),
            ended: Vec::new(),
        }
    }
}

/// Says how many of some programs continue.
fn continue_line(continuing: usize, all: usize) -> String {
    match continuing {
        0 => "every program has ended".to_owned(),
        _ if continuing == all => "every program continues and is left to the kernel".to_owned(),
        1 => format!(
            "1 of {all} programs continues and is left to the kernel; the others have ended"
        ),
        _ => format!(
            "{continuing} of {all} programs continue and are left to the kernel; the others have ended"
        ),
    }
}

impl LinuxHost {
    /// Takes the exit statuses of children that have ended, for [`REAPING`] at most.
    ///
    /// Programs that leave many processes behind must not have them pile up, so what is left over is reaped at our own
    /// share of CPU time ([`LinuxHost::wait`]).
    pub(crate) fn reap(&mut self) {
        let is_pressed = std::mem::replace(&mut self.runs.has_piled_up, true);
        let (end, mut reaped) = (now() + REAPING, Vec::new());
        let mut begun = now();
        while begun < end {
            let Ok(Some(waited)) = self.wait(is_pressed) else {
                self.runs.has_piled_up = false;
                break;
            };
            reaped.push((waited, begun));
            begun = now();
        }
        if !reaped.is_empty() {
            // Once for all: with very many processes this can take a second, and signals have to be answered.
            self.take_events();
        }
        // Before any of them is handled: a job that begins anew may get the number of a process that was reaped.
        let runs: Vec<_> = reaped.iter().map(|(it, _)| self.tasks.run_of(it.pid)).collect();
        for ((waited, begun), run) in reaped.into_iter().zip(runs) {
            self.reaped(waited, begun, run);
        }
        self.end_finished_jobs();
    }

    /// Takes in the end of a child that was reaped after `begun`, and the run of a job that it was.
    fn reaped(&mut self, waited: Waited, begun: Nanos, run: Option<(JobIdx, Nanos)>) {
        self.all_have_ended(waited.pid, begun);
        if let Some((job, cpu_before)) = run {
            let cpu_time = Some(cpu_before + waited.cpu_time);
            let status = waited.status;
            self.run_ended(JobEnd { job, at: self.clock(), status, cpu_time }, waited.pid);
        } else if let Some(leaving) =
            self.runs.leaving.iter_mut().find(|it| it.pid == Some(waited.pid))
        {
            leaving.pid = None;
        } else if self.guardian.as_ref().is_some_and(|g| g.pid() == waited.pid) {
            self.guardian = None;
            self.notes.push("the guardian was killed; `colocate restore` remains".into());
        }
    }

    /// Reaps a child that has ended.
    ///
    /// To free a process's entries in `/proc` the kernel loops until its threads have freed theirs
    /// (`shrink_dcache_parent`, Linux 6.18). A thread that ends under SCHED_IDLE may wait for a PU meanwhile, and the loop
    /// keeps it off the PU: for more than 60 s at our default share (measured with six busy threads on two PUs). So where
    /// jobs fill idle PUs, a process that had several threads is reaped with the least share, unless many wait for that
    /// (`is_pressed`). Others are not: on a busy machine each reap with the least share takes long, and beside a program that
    /// creates processes as fast as it can colocate did not answer SIGTERM for up to 46 s.
    fn wait(&mut self, is_pressed: bool) -> Result<Option<Waited>, SysError> {
        let Some(fillers) = &mut self.fillers else { return sys::wait(None, false) };
        let Some(pid) = sys::ended_child()? else { return Ok(None) };
        if !fillers.threaded.remove(&pid) || is_pressed {
            return sys::wait(Some(pid), false);
        }
        let nice = sys::nice();
        let _ = sys::set_slice_and_nice(SHORT_SLICE, HIGHEST_NICE);
        let waited = sys::wait(Some(pid), false);
        let _ = sys::set_slice_and_nice(SHORT_SLICE, nice);
        waited
    }

    /// A job's first process has ended: begins anew, or is over.
    fn run_ended(&mut self, end: JobEnd, pid: Pid) {
        self.confirm(end.job);
        // What its last threads did is known when their ends are reported.
        self.take_events();
        let instructions = self.tasks.instructions().get(end.job.0 as usize).copied().unwrap_or(0);
        if !self.runs.targets.run_ended(end, instructions) {
            return;
        }
        let status = match self.pausing.ending {
            Some(signal) => signals::status(signal),
            None => match self.run_anew(end, pid) {
                Ok(()) => return,
                Err(why) => {
                    self.note_on(end.job, &format!("cannot be launched anew: {why}"));
                    NOT_LAUNCHED
                }
            },
        };
        self.runs.targets.give_up(JobEnd { status, ..end });
    }

    /// Notes the jobs that have reached their targets, by the counts that were last read.
    pub(crate) fn note_reached(&mut self) {
        if self.runs.targets.instructions().is_none() {
            return;
        }
        let at = self.clock();
        for (job, instructions) in (0..).map(JobIdx).zip(self.tasks.instructions()) {
            let end = || JobEnd { job, at, status: 0, cpu_time: self.tasks.cpu_time(job) };
            self.runs.targets.counted(job, instructions, end);
        }
    }

    /// Launches a job once more, in its cgroup; what is left of the run before is killed.
    fn run_anew(&mut self, end: JobEnd, before: Pid) -> Result<(), launch::LaunchError> {
        let job = end.job;
        self.kill(job, &self.tasks.handles_of(job));
        self.note_orphans(before, self.tasks.processes_of(job));
        let place = job.0 as usize;
        let held = launch::hold_again(&self.runs.commands[place], self.signals.inherited())?;
        let runtime = self.runs.runtimes.of(&self.runs.commands[place].path);
        self.tasks.restart(job, held.pid(), runtime, end.cpu_time.unwrap_or(Nanos::ZERO));
        // Should its number have been another first process's, both events are closed with this run's.
        self.runs.orphans.retain(|orphan| orphan.first != held.pid());
        self.lifecycle.add(held.pid());
        self.sources.watch_instead(job, before, held.pid());
        self.pausing.held[place] = Some(held);
        self.take_events();
        self.release_held(place);
        Ok(())
    }

    /// Notes what the run with this first process has left behind. The kernel reports its end, and what it may
    /// still create, by events that cost descriptors: those are kept only so long.
    fn note_orphans(&mut self, first: Pid, left: Vec<Pid>) {
        // A process that does not die is left behind by many runs, and belongs to the first of them.
        let known = |pid: &Pid| self.runs.orphans.iter().any(|orphan| orphan.pids.contains(pid));
        let pids = left.into_iter().filter(|pid| !known(pid)).collect();
        self.runs.orphans.push(Orphans { first, pids });
        self.forget_orphans();
    }

    /// What is created by a process that a run has left behind belongs to that run.
    pub(crate) fn created_by_orphan(&mut self, creation: Creation) {
        for orphan in
            self.runs.orphans.iter_mut().filter(|orphan| orphan.pids.contains(&creation.parent_pid))
        {
            orphan.pids.insert(creation.pid);
        }
    }

    /// Closes the events of those runs of which nothing is left.
    fn forget_orphans(&mut self) {
        for mut orphan in std::mem::take(&mut self.runs.orphans) {
            orphan.pids.retain(|pid| self.tasks.process(*pid).is_some());
            if orphan.pids.is_empty() {
                self.lifecycle.forget(orphan.first);
            } else {
                self.runs.orphans.push(orphan);
            }
        }
    }

    /// Ends the jobs that ran already and of which no process lives any more.
    pub(crate) fn end_attached(&mut self) {
        if self.runs.is_attached {
            let emptied = self.tasks.take_emptied();
            if !emptied.is_empty() {
                self.end_jobs(&emptied);
            }
        }
    }

    /// Ends all jobs, which ran already and run on.
    pub(crate) fn detach(&mut self, cause: &str) {
        self.runs.detached_by = Some(cause.to_owned());
        let all: Vec<JobIdx> = self.running_jobs().collect();
        self.end_jobs(&all);
    }

    /// The same once its time is over.
    pub(crate) fn detach_if_due(&mut self) {
        if self.next_detach().is_some_and(|due| due <= now())
            && let Some(time) = self.runs.detach_after.take()
        {
            self.detach(&format!("{time} are over"));
        }
    }

    /// When that is.
    pub(crate) fn next_detach(&self) -> Option<Nanos> {
        Some(self.quantum.launched? + self.runs.detach_after?)
    }

    /// Says of the jobs that were left alone which continue. To be called when the events until then are taken in.
    pub(crate) fn note_detached(&mut self) {
        let Some(cause) = self.runs.detached_by.take() else { return };
        let jobs = self.tasks.jobs().len();
        let continuing = (0..).map(JobIdx).take(jobs).filter(|job| self.is_living(*job)).count();
        self.notes.push(format!("{cause}: {}", continue_line(continuing, jobs)));
    }

    fn is_living(&self, job: JobIdx) -> bool {
        let mut pids = self.tasks.processes_of(job).into_iter();
        pids.any(|pid| !self.tasks.living_in(pid).is_empty())
    }

    /// Ends every launched job, whatever its target: with SIGTERM, and after [`crate::Setup::grace`] with SIGKILL. The quanta that
    /// follow see the ends; after the last one nothing of them is left.
    pub fn terminate_all(&mut self) {
        for job in self.running_jobs().collect::<Vec<_>>() {
            self.runs.targets.reach(self.end_now(job));
        }
        self.end_finished_jobs();
    }

    /// Ends these attached jobs. Their exit status is not ours to know.
    fn end_jobs(&mut self, jobs: &[JobIdx]) {
        for job in jobs {
            self.runs.targets.give_up(self.end_now(*job));
        }
        self.end_finished_jobs();
    }

    /// The jobs that have not ended.
    pub(crate) fn running_jobs(&self) -> impl Iterator<Item = JobIdx> + '_ {
        let running = self.tasks.jobs().iter().zip(0..).filter(|(job, _)| job.end.is_none());
        running.map(|(_, job)| JobIdx(job))
    }

    /// How a job that has not ended would end now.
    pub(crate) fn end_now(&self, job: JobIdx) -> JobEnd {
        JobEnd { job, at: self.clock(), status: 0, cpu_time: self.tasks.cpu_time(job) }
    }

    /// Ends the jobs that have done their work, and reports those that are over.
    pub(crate) fn end_finished_jobs(&mut self) {
        for job in self.runs.targets.take_leaving() {
            self.terminate(job);
        }
        for end in self.runs.targets.new_ends() {
            self.tasks.end_job(end);
            // What it leaves behind is not stopped any more.
            self.continue_job(end.job);
            self.runs.ended.push(end);
            self.quantum.pending_end = self.quantum.pending_end.or(Some(QuantumEnd::JobEnded));
        }
        self.end_others();
    }

    /// Ends the other jobs once those have ended that the run is to last for.
    fn end_others(&mut self) {
        let has_ended =
            |job: &JobIdx| self.tasks.jobs().get(job.0 as usize).is_none_or(|it| it.end.is_some());
        if !self.runs.until.is_empty() && self.runs.until.iter().all(has_ended) {
            self.runs.until.clear();
            self.terminate_all();
            self.terminate_daemons();
        }
    }

    /// Ends a server of which only daemons live: its first process has ended when they began.
    fn terminate_daemons(&mut self) {
        let server = JobIdx(0);
        let has_ended = self.tasks.jobs().first().is_some_and(|job| job.end.is_some());
        let daemons = self.tasks.handles_of(server);
        if !self.runs.serves || !has_ended || daemons.is_empty() {
            return;
        }
        let due = now() + self.runs.grace;
        self.runs.leaving.push(Leaving { job: server, pid: None, due, killed: None });
        let asked = pause::signal(&daemons, libc::SIGTERM);
        self.report_failure(server, "end", asked);
    }

    /// Sends SIGTERM to a job, with all that it has created.
    fn terminate(&mut self, job: JobIdx) {
        let place = job.0 as usize;
        let pid = self.tasks.jobs().get(place).map(|job| job.pid);
        self.runs.leaving.push(Leaving { job, pid, due: now() + self.runs.grace, killed: None });
        self.pausing.exec_pending[place] = None;
        if self.pausing.held[place].take().is_some() {
            // It has not begun, so there is nothing that it could clean up, nor is it in its cgroup.
            let killed = pause::signal(&self.tasks.handles_of(job), libc::SIGKILL);
            self.report_failure(job, "end", killed);
            return;
        }
        // What is stopped receives nothing; by signals it receives this one first.
        let asked = pause::signal(&self.tasks.handles_of(job), libc::SIGTERM);
        self.report_failure(job, "end", asked);
        self.continue_job(job);
    }

    /// Kills those that were asked to end and have not, when their time is over, and closes the events of runs of which
    /// nothing is left.
    pub(crate) fn kill_overdue(&mut self) {
        self.forget_orphans();
        if self.runs.leaving.is_empty() {
            return;
        }
        for mut leaving in std::mem::take(&mut self.runs.leaving) {
            let processes = self.tasks.handles_of(leaving.job);
            let pids = self.tasks.processes_of(leaving.job);
            if leaving.pid.is_none() && pids.is_empty() {
                continue;
            }
            let due = now() >= leaving.due;
            match &mut leaving.killed {
                None if due => {
                    self.kill(leaving.job, &processes);
                    leaving.due = now() + DIES_WITHIN;
                    leaving.killed = Some(pids.into_iter().collect());
                }
                None => {}
                Some(_) if due => {
                    self.note_survivors(&leaving, &pids);
                    continue;
                }
                // What was created meanwhile is killed, too.
                Some(killed) if pids.iter().any(|pid| !killed.contains(pid)) => {
                    killed.extend(pids);
                    self.kill(leaving.job, &processes);
                }
                Some(_) => {}
            }
            self.runs.leaving.push(leaving);
        }
    }

    /// Says which processes of a job are still there although they were killed.
    fn note_survivors(&mut self, leaving: &Leaving, pids: &[Pid]) {
        let left: BTreeSet<Pid> = pids.iter().copied().chain(leaving.pid).collect();
        let left: Vec<String> = left.into_iter().map(|pid| pid.to_string()).collect();
        let what = format!("was killed and is still there: process {}", left.join(", "));
        self.note_on(leaving.job, &what);
    }

    /// When the next of those steps is due.
    pub(crate) fn next_leave(&self) -> Option<Nanos> {
        self.runs.leaving.iter().map(|leaving| leaving.due).min()
    }

    /// Kills all processes of a job, which are these.
    fn kill(&mut self, job: JobIdx, processes: &[Arc<ProcessHandle>]) {
        let killed = match &self.pausing.pauser {
            _ if processes.is_empty() => Ok(()),
            Some(pauser) => pauser.kill(group(job), processes),
            None => pause::signal(processes, libc::SIGKILL),
        };
        self.report_failure(job, "kill", killed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_does_not_continue() {
        assert_eq!(continue_line(0, 2), "every program has ended");
        assert_eq!(continue_line(2, 2), "every program continues and is left to the kernel");
        let some = "1 of 3 programs continues and is left to the kernel; the others have ended";
        assert_eq!(continue_line(1, 3), some);
    }
}
