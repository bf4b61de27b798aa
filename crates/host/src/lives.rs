//! Runs of jobs: how they end, when a job begins anew, and how one is ended that has done its work.

use crate::Setup;
use crate::events::HostEvents;
use crate::parts::HostParts;
use crate::pausing::Pausing;
use crate::ready::{NOT_LAUNCHED, Probing, Readiness};
use crate::target::Targets;
use crate::task_table::Processes;
use crate::workload::HostState;
use colocate_act::boost::{HIGHEST_NICE, SHORT_SLICE};
use colocate_act::guardian::Guardian;
use colocate_act::launch::{self, Command};
use colocate_act::pause;
use colocate_act::signals::{self, InitialState};
use colocate_evidence::{JobEnd, JobIdx, QuantumEnd};
use colocate_linux::clock::now;
use colocate_linux::sys::{self, Waited};
use colocate_linux::{Pid, SysError};
use colocate_machine::{Nanos, printable};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

/// How long a killed process is waited for. Chosen: it needs a moment of a PU that may be busy, and one that
/// is stuck in a driver never comes.
const DIES_WITHIN: Nanos = Nanos::from_secs(10);

/// For how long children are reaped at a time: signals are answered in between. Chosen: some hundred of them.
const REAPING: Nanos = Nanos::from_millis(10);

/// A job that is being ended.
#[derive(Debug)]
struct Leaving {
    job: JobIdx,
    /// Its first process, until its exit status was taken.
    pid: Option<Pid>,
    /// When the next step is due, on the kernel's clock.
    due: Nanos,
    /// Those of its processes that were killed; `None` while they are only asked to end.
    killed: Option<BTreeSet<Pid>>,
}

/// The jobs as they are launched, once or anew, and as they are ended.
pub(crate) struct Runs {
    commands: Vec<Command>,
    /// How long after the launch those that ran already are left to the kernel.
    detach_after: Option<Nanos>,
    /// Cause of the end of following such jobs: a signal, or the end of its time.
    detached_by: Option<String>,
    targets: Targets,
    /// Readiness that the other jobs are held for, until the first one is released.
    readiness: Option<Readiness>,
    /// Probes for it, from then on.
    probing: Option<Probing>,
    /// Jobs after whose ends all others are ended.
    until: Vec<JobIdx>,
    /// Whether the first job is a server for the others, which is ended with all that it has left behind.
    serves: bool,
    grace: Nanos,
    /// Jobs that have reached their target and are being ended.
    leaving: Vec<Leaving>,
    /// Whether there were more children to reap than are reaped at a time.
    has_piled_up: bool,
    /// Signals' state of colocate's beginning, for programs.
    signals: InitialState,
    /// Jobs that are over, in the order of their ends.
    ended: Vec<JobEnd>,
}

impl Runs {
    pub fn new(
        commands: Vec<Command>,
        targets: Targets,
        setup: &Setup,
        signals: InitialState,
    ) -> Self {
        Self {
            commands,
            detach_after: setup.detach_after,
            detached_by: None,
            targets,
            readiness: setup.ready.clone(),
            probing: None,
            until: setup.until.clone(),
            serves: setup.ready.is_some(),
            grace: setup.grace,
            leaving: Vec::new(),
            has_piled_up: false,
            signals,
            ended: Vec::new(),
        }
    }

    /// How often each job has run to an end.
    pub fn counts(&self) -> Vec<u32> {
        self.targets.runs()
    }

    /// Whether targets are numbers of instructions.
    pub fn counts_instructions(&self) -> bool {
        self.targets.instructions().is_some()
    }

    /// Jobs that are over, in the order of their ends.
    pub fn ended(&self) -> &[JobEnd] {
        &self.ended
    }

    /// Whether no job is being ended.
    pub fn have_left(&self) -> bool {
        self.leaving.is_empty()
    }

    /// Whether there were more children to reap than are reaped at a time.
    pub const fn has_piled_up(&self) -> bool {
        self.has_piled_up
    }

    /// File descriptor that becomes readable when the first job is ready, while that is probed.
    pub fn probing_fd(&self) -> Option<BorrowedFd<'_>> {
        self.probing.as_ref().map(Probing::fd)
    }

    /// Takes the exit statuses of children that have ended, for [`REAPING`] at most.
    ///
    /// Programs that leave many processes behind must not have them pile up, so what is left over is reaped at our own
    /// share of CPU time ([`wait`]).
    pub fn reap(
        &mut self,
        parts: &mut HostParts,
        events: &mut HostEvents,
        guardian: &mut Option<Guardian>,
    ) {
        let is_pressed = std::mem::replace(&mut self.has_piled_up, true);
        let (end, mut reaped) = (now() + REAPING, Vec::new());
        let mut begun = now();
        while begun < end {
            let Ok(Some(waited)) = wait(&mut parts.pausing, is_pressed) else {
                self.has_piled_up = false;
                break;
            };
            reaped.push((waited, begun));
            begun = now();
        }
        if !reaped.is_empty() {
            // Once for all: with very many processes this can take a second, and signals have to be answered.
            events.take(parts);
        }
        // Before any of them is handled: a job that begins anew may get the number of a process that was reaped.
        let runs: Vec<_> =
            reaped.iter().map(|(it, _)| parts.work.table.jobs.run_of(it.pid)).collect();
        for ((waited, begun), run) in reaped.into_iter().zip(runs) {
            self.reaped(parts, events, guardian, waited, begun, run);
        }
        self.end_finished_jobs(parts);
    }

    /// Takes in the end of a child that was reaped after `begun`, and the run of a job that it was.
    fn reaped(
        &mut self,
        parts: &mut HostParts,
        events: &mut HostEvents,
        guardian: &mut Option<Guardian>,
        waited: Waited,
        begun: Nanos,
        run: Option<(JobIdx, Nanos)>,
    ) {
        events.all_have_ended(parts, waited.pid, begun);
        if let Some((job, cpu_before)) = run {
            let cpu_time = Some(cpu_before + waited.cpu_time);
            let status = waited.status;
            self.run_ended(
                parts,
                events,
                JobEnd { job, at: parts.work.clock(), status, cpu_time },
                waited.pid,
            );
        } else if let Some(leaving) = self.leaving.iter_mut().find(|it| it.pid == Some(waited.pid))
        {
            leaving.pid = None;
        } else if guardian.as_ref().is_some_and(|g| g.pid() == waited.pid) {
            *guardian = None;
            parts.work.notes.push("the guardian was killed; `colocate restore` remains".into());
        }
    }

    /// A job's first process has ended: begins anew, or is over.
    fn run_ended(&mut self, parts: &mut HostParts, events: &mut HostEvents, end: JobEnd, pid: Pid) {
        parts.pausing.confirm(&mut parts.work.notes, end.job);
        // What its last threads did is known when their ends are reported.
        events.take(parts);
        let instructions =
            parts.work.table.instructions().get(end.job.0 as usize).copied().unwrap_or(0);
        if !self.targets.run_ended(end, instructions) {
            return;
        }
        let status = match parts.pausing.ending() {
            Some(signal) => signals::status(signal),
            None => match self.run_anew(parts, events, end, pid) {
                Ok(()) => return,
                Err(why) => {
                    parts.work.note_on(end.job, &format!("cannot be launched anew: {why}"));
                    NOT_LAUNCHED
                }
            },
        };
        self.targets.give_up(JobEnd { status, ..end });
    }

    /// Notes the jobs that have reached their targets, by the counts that were last read.
    pub fn note_reached(&mut self, work: &HostState) {
        if self.targets.instructions().is_none() {
            return;
        }
        let at = work.clock();
        for (job, instructions) in (0..).map(JobIdx).zip(work.table.instructions()) {
            let end = || JobEnd { job, at, status: 0, cpu_time: work.table.cpu_time(job) };
            self.targets.counted(job, instructions, end);
        }
    }

    /// Launches a job once more, in its cgroup; what is left of the run before is killed.
    fn run_anew(
        &mut self,
        parts: &mut HostParts,
        events: &mut HostEvents,
        end: JobEnd,
        before: Pid,
    ) -> Result<(), launch::LaunchError> {
        let job = end.job;
        let processes = parts.work.table.processes.handles_of(job);
        parts.pausing.kill(&mut parts.work, job, &processes);
        let left = parts.work.table.processes.of(job);
        events.note_orphans(&parts.work.table, before, left);
        let place = job.0 as usize;
        let held = launch::hold_again(&self.commands[place], &self.signals)?;
        parts.work.table.restart(job, held.pid(), end.cpu_time.unwrap_or(Nanos::ZERO));
        events.watch_anew(held.pid());
        parts.sources.watch_instead(job, before, held.pid());
        parts.pausing.hold(job, held);
        events.take(parts);
        parts.pausing.release_held(&mut parts.work, place);
        Ok(())
    }

    /// Ends the jobs that ran already and of which no process lives any more.
    pub fn end_attached(&mut self, parts: &mut HostParts) {
        if parts.work.is_attached {
            let emptied = parts.work.table.jobs.take_emptied();
            if !emptied.is_empty() {
                self.end_jobs(parts, &emptied);
            }
        }
    }

    /// Ends all jobs, which ran already and run on.
    pub fn detach(&mut self, parts: &mut HostParts, cause: &str) {
        self.detached_by = Some(cause.to_owned());
        let all: Vec<JobIdx> = parts.work.running_jobs();
        self.end_jobs(parts, &all);
    }

    /// The same once its time is over.
    pub fn detach_if_due(&mut self, parts: &mut HostParts) {
        if self.next_detach(&parts.work).is_some_and(|due| due <= now())
            && let Some(time) = self.detach_after.take()
        {
            self.detach(parts, &format!("{time} are over"));
        }
    }

    /// When that is.
    pub fn next_detach(&self, work: &HostState) -> Option<Nanos> {
        Some(work.launched? + self.detach_after?)
    }

    /// Says of the jobs that were left alone which continue. To be called when the events until then are taken in.
    pub fn note_detached(&mut self, work: &mut HostState) {
        let Some(cause) = self.detached_by.take() else { return };
        let jobs = work.table.jobs.iter().len();
        let continuing = (0..)
            .map(JobIdx)
            .take(jobs)
            .filter(|job| is_living(&work.table.processes, *job))
            .count();
        work.notes.push(format!("{cause}: {}", continue_line(continuing, jobs)));
    }

    /// Ends every launched job, whatever its target: with SIGTERM, and after [`crate::Setup::grace`] with SIGKILL. The quanta that
    /// follow see the ends; after the last one nothing of them is left.
    pub fn terminate_all(&mut self, parts: &mut HostParts) {
        for job in parts.work.running_jobs() {
            self.targets.reach(parts.work.end_now(job));
        }
        self.end_finished_jobs(parts);
    }

    /// Ends these attached jobs. Their exit status is not ours to know.
    fn end_jobs(&mut self, parts: &mut HostParts, jobs: &[JobIdx]) {
        for job in jobs {
            self.targets.give_up(parts.work.end_now(*job));
        }
        self.end_finished_jobs(parts);
    }

    /// Ends the jobs that have done their work, and reports those that are over.
    pub fn end_finished_jobs(&mut self, parts: &mut HostParts) {
        for job in self.targets.take_leaving() {
            self.terminate(parts, job);
        }
        for end in self.targets.new_ends() {
            parts.work.table.jobs.end(end);
            // What it leaves behind is not stopped any more.
            parts.pausing.continue_job(&mut parts.work, end.job);
            self.ended.push(end);
            // An earlier reason ends the quantum as well.
            parts.work.pending_end = parts.work.pending_end.or(Some(QuantumEnd::JobEnded));
        }
        self.end_others(parts);
    }

    /// Ends the other jobs once those have ended that the run is to last for.
    fn end_others(&mut self, parts: &mut HostParts) {
        let has_ended =
            |job: &JobIdx| parts.work.table.jobs.get(*job).is_none_or(|it| it.end.is_some());
        if !self.until.is_empty() && self.until.iter().all(has_ended) {
            self.until.clear();
            self.terminate_all(parts);
            self.terminate_daemons(parts);
        }
    }

    /// Ends a server of which only daemons live: its first process has ended when they began.
    fn terminate_daemons(&mut self, parts: &mut HostParts) {
        let server = JobIdx(0);
        let has_ended = parts.work.table.jobs.get(JobIdx(0)).is_some_and(|job| job.end.is_some());
        let daemons = parts.work.table.processes.handles_of(server);
        if !self.serves || !has_ended || daemons.is_empty() {
            return;
        }
        let due = now() + self.grace;
        self.leaving.push(Leaving { job: server, pid: None, due, killed: None });
        let asked = pause::signal(&daemons, libc::SIGTERM);
        parts.work.report_failure(server, "end", asked);
    }

    /// Sends SIGTERM to a job, with all that it has created.
    fn terminate(&mut self, parts: &mut HostParts, job: JobIdx) {
        let pid = parts.work.table.jobs.get(job).map(|job| job.pid);
        self.leaving.push(Leaving { job, pid, due: now() + self.grace, killed: None });
        if parts.pausing.forget_held(job) {
            // It has not begun, so there is nothing that it could clean up, nor is it in its cgroup.
            let killed = pause::signal(&parts.work.table.processes.handles_of(job), libc::SIGKILL);
            parts.work.report_failure(job, "end", killed);
            return;
        }
        // What is stopped receives nothing; by signals it receives this one first.
        let asked = pause::signal(&parts.work.table.processes.handles_of(job), libc::SIGTERM);
        parts.work.report_failure(job, "end", asked);
        parts.pausing.continue_job(&mut parts.work, job);
    }

    /// Kills those that were asked to end and have not, when their time is over, and closes the events of runs of which
    /// nothing is left.
    pub fn kill_overdue(&mut self, parts: &mut HostParts, events: &mut HostEvents) {
        events.forget_orphans(&parts.work.table);
        if self.leaving.is_empty() {
            return;
        }
        for mut leaving in std::mem::take(&mut self.leaving) {
            let processes = parts.work.table.processes.handles_of(leaving.job);
            let pids = parts.work.table.processes.of(leaving.job);
            if leaving.pid.is_none() && pids.is_empty() {
                continue;
            }
            let due = now() >= leaving.due;
            match &mut leaving.killed {
                None if due => {
                    parts.pausing.kill(&mut parts.work, leaving.job, &processes);
                    leaving.due = now() + DIES_WITHIN;
                    leaving.killed = Some(pids.into_iter().collect());
                }
                None => {}
                Some(_) if due => {
                    note_survivors(&mut parts.work, &leaving, &pids);
                    continue;
                }
                // What was created meanwhile is killed, too.
                Some(killed) if pids.iter().any(|pid| !killed.contains(pid)) => {
                    killed.extend(pids);
                    parts.pausing.kill(&mut parts.work, leaving.job, &processes);
                }
                Some(_) => {}
            }
            self.leaving.push(leaving);
        }
    }

    /// When the next of those steps is due.
    pub fn next_leave(&self) -> Option<Nanos> {
        self.leaving.iter().map(|leaving| leaving.due).min()
    }

    /// Starts the probes, if any, right after the first job's release.
    pub fn begin_probing(&mut self, parts: &mut HostParts) {
        let Some(readiness) = self.readiness.take() else { return };
        match Probing::start(readiness) {
            Ok(probing) => self.probing = Some(probing),
            Err(why) => self.end_unready(parts, &format!("cannot probe for readiness ({why})")),
        }
    }

    /// Releases the other jobs once the first job is ready. Ends all jobs after a failure or
    /// timeout.
    pub fn release_if_ready(&mut self, parts: &mut HostParts) {
        let Some(probing) = &self.probing else { return };
        let failed = parts
            .work
            .table
            .jobs
            .get(JobIdx(0))
            .and_then(|job| job.end)
            .filter(|it| it.status != 0);
        match (probing.outcome(), failed) {
            (Some(Ok(())), _) => {
                self.probing = None;
                parts.pausing.hold_others(false);
                parts.pausing.release_all(&mut parts.work);
            }
            (Some(Err(why)), _) => self.end_unready(parts, &why),
            (None, Some(end)) => {
                self.end_unready(parts, &format!("ended with status {}", end.status))
            }
            (None, None) => {}
        }
    }

    /// Ends every job, as the first job is not ready.
    fn end_unready(&mut self, parts: &mut HostParts, why: &str) {
        let name = parts.work.table.jobs.get(JobIdx(0)).map_or("", |job| job.name.as_str());
        parts.work.notes.push(format!(
            "{} is not ready: {why}; the other programs were not started",
            printable(name)
        ));
        self.end_held(parts, NOT_LAUNCHED);
        self.terminate_all(parts);
    }

    /// Ends the jobs held for readiness, if any, after a signal that ends programs.
    pub fn end_held_for_readiness(&mut self, parts: &mut HostParts, status: i32) {
        if self.probing.is_some() {
            // The first one got the signal, too, and ends as it does.
            self.until.clear();
            self.end_held(parts, status);
        }
    }

    /// Ends all held jobs with this status.
    fn end_held(&mut self, parts: &mut HostParts, status: i32) {
        self.probing = None;
        parts.pausing.hold_others(false);
        for job in parts.work.running_jobs() {
            if parts.pausing.held(job).is_some() {
                let end = parts.work.end_now(job);
                self.targets.reach(JobEnd { status, ..end });
            }
        }
        self.end_finished_jobs(parts);
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
fn wait(pausing: &mut Pausing, is_pressed: bool) -> Result<Option<Waited>, SysError> {
    if !pausing.may_fill() {
        return sys::wait(None, false);
    }
    let Some(pid) = sys::ended_child()? else { return Ok(None) };
    if !pausing.ends_slowly(pid) || is_pressed {
        return sys::wait(Some(pid), false);
    }
    let nice = sys::nice();
    let _ = sys::set_slice_and_nice(SHORT_SLICE, HIGHEST_NICE);
    let waited = sys::wait(Some(pid), false);
    let _ = sys::set_slice_and_nice(SHORT_SLICE, nice);
    waited
}

fn is_living(processes: &Processes, job: JobIdx) -> bool {
    let mut pids = processes.of(job).into_iter();
    pids.any(|pid| !processes.living_in(pid).is_empty())
}

/// Says which processes of a job are still there although they were killed.
fn note_survivors(work: &mut HostState, leaving: &Leaving, pids: &[Pid]) {
    let left: BTreeSet<Pid> = pids.iter().copied().chain(leaving.pid).collect();
    let left: Vec<String> = left.into_iter().map(|pid| pid.to_string()).collect();
    let what = format!("was killed and is still there: process {}", left.join(", "));
    work.note_on(leaving.job, &what);
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
