//! Decisions carried out: masks set, targets and placement status noted.

use super::rules::{
    self, Decision, PlacementEvent, PlanView, ProgramFacts, ProgramStart, ThreadFacts,
};
use crate::notes::Notes;
use crate::runtime::Runtime;
use crate::sched_ext::ExtScheduler;
use crate::task::TrackedTask;
use crate::task_table::Process;
use crate::workload::HostState;
use colocate_act::actuators::Actuators;
use colocate_act::affinity::{self, Pinned};
use colocate_act::journal::Mark;
use colocate_evidence::{Exemption, JobIdx, PlacementStatus, TaskId};
use colocate_linux::clock::now;
use colocate_linux::proc::Proc;
use colocate_linux::proc::stat::Stat;
use colocate_linux::run_time::RunTime;
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuNr, PuSet, SharedPart};
use colocate_policy::{DefaultPlacement, Place, Plan};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Key of the note on Java programs, and part of it.
const JAVA_WORKERS: &str = "availableProcessors() answers";
/// Option that sets the number of PUs that a Java program counts.
const JAVA_COUNT: &str = "-XX:ActiveProcessorCount";

/// State of placing: the plan in force, and the threads that are to be checked later.
#[derive(Debug)]
pub(crate) struct Placing {
    plan: Option<Plan>,
    /// Time for which a program is left alone after its exec.
    settle: Nanos,
    /// Threads that wait or are exempt for a while, with the times of their next checks.
    waiting: BinaryHeap<Reverse<(Nanos, TaskId)>>,
    /// Time from which all tasks are compared with the plan again.
    pub(super) next_follow: Nanos,
    /// Scheduler in the kernel's stead.
    ext_scheduler: ExtScheduler,
}

impl Placing {
    pub const fn new(settle: Nanos) -> Self {
        Self {
            plan: None,
            settle,
            waiting: BinaryHeap::new(),
            next_follow: Nanos::ZERO,
            ext_scheduler: ExtScheduler::Absent,
        }
    }

    /// The plan in force.
    pub const fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Replaces the plan in force; with `None` no thread is placed any more.
    pub fn set_plan(&mut self, plan: Option<Plan>) {
        self.plan = plan;
    }

    /// Takes in whether a sched_ext scheduler is loaded. True if that changes the meaning of places.
    pub fn watch_sched_ext(&mut self, work: &mut HostState) -> bool {
        let is_launched = work.launched.is_some();
        let Some((found, line)) = self.ext_scheduler.next(is_launched) else { return false };
        self.ext_scheduler = found;
        work.notes.push(line);
        is_launched
    }

    /// Time for which a program is left alone after its exec.
    pub const fn settle(&self) -> Nanos {
        self.settle
    }

    /// Has a thread checked at a time.
    pub(super) fn check_at(&mut self, at: Nanos, id: TaskId) {
        self.waiting.push(Reverse((at, id)));
    }

    /// Time of the next check of a thread.
    pub fn next_check(&self) -> Option<Nanos> {
        self.waiting.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes the next thread to check from the queue, if its time has come.
    fn pop_due(&mut self, now: Nanos) -> Option<(Nanos, TaskId)> {
        self.next_check().filter(|at| *at <= now)?;
        self.waiting.pop().map(|Reverse(next)| next)
    }

    /// Carries out a decision on a thread.
    fn carry_out(
        &mut self,
        decision: Decision,
        task: &mut TrackedTask,
        actuators: &mut Actuators,
    ) -> Pinned {
        if let Decision::Wait(until) = decision {
            self.check_at(until, task.id);
        }
        let pinned = actuators.pin(&mut task.thread, decision.mark());
        task.placement.note(&pinned, decision.status());
        pinned
    }

    /// Places a task after an event at `at`, by the rules.
    pub(crate) fn place(
        &mut self,
        work: &mut HostState,
        id: TaskId,
        event: PlacementEvent,
        at: Nanos,
    ) {
        let Some(target) = work.table.tasks.get_mut(id).map(|task| task.placement.target) else {
            return;
        };
        let plan = self.plan_view(work, id, target);
        let Some(facts) = facts_of(work, id, event) else { return };
        let Some(task) = work.table.tasks.get_mut(id) else { return };
        let decision = rules::decide(&facts, &plan, at);
        task.placement.exempt = rules::exemption(&facts);
        let pid = task.thread.pid;
        let is_unpinned = decision.mark() == Mark::Original;
        // Before the change: with one PU, the program may have counted one by now.
        let had_one_pu = facts.is_first && is_unpinned && has_one_pu(task.thread.tid);
        let pinned = self.carry_out(decision, task, &mut work.actuators);
        let has_several_pus = affinity::single(&task.thread.allowed).is_none();
        if had_one_pu
            && has_several_pus
            && let Some(process) = work.table.processes.get_mut(pid)
        {
            process.narrow_until = now();
        }
        if pinned == Pinned::Done && decision.mark().is_put() && !facts.is_first {
            note_java(work, pid, id.job, decision.mark());
        }
        if pinned == Pinned::ByProgram || rules::loses_target(&facts, &plan) {
            work.table.set_target(id, Place::LeftToKernel);
        }
        work.table.note_placed(id, now());
    }

    /// Plan and state of the host for a thread with this target.
    fn plan_view(&self, work: &HostState, id: TaskId, target: Place) -> PlanView {
        let planned = self.plan().map(|plan| work.table.target_of(plan, id));
        PlanView {
            target,
            mark: self.mark_at(work, target),
            is_planned: planned.is_some_and(|place| place.named_pu().is_some()),
            has_ext_scheduler: self.ext_scheduler != ExtScheduler::Absent,
            is_launched: work.launched.is_some(),
            settle: self.settle,
        }
    }

    /// Aims a task at its place by the plan in force. False if there is no plan.
    pub(crate) fn reset_target(&mut self, work: &mut HostState, id: TaskId) -> bool {
        let Some(plan) = self.plan() else { return false };
        let target = work.table.target_of(plan, id);
        work.table.set_target(id, target);
        true
    }

    /// Mark of a thread at a place. A set of PUs that share a part of the machine has one if it was journalled at the start; with any
    /// other set the thread stays unpinned.
    pub(super) fn mark_at(&self, work: &HostState, place: Place) -> Mark {
        // With one PU a pinned thread gains nothing, and the kernel does not show whether its mask was set.
        if work.usable.len() < 2 {
            return Mark::Original;
        }
        match (place, self.ext_scheduler) {
            (Place::LeftToKernel | Place::Waiting, _) | (_, ExtScheduler::Since) => Mark::Original,
            (Place::Pu(pu), ExtScheduler::Absent) => Mark::On(pu),
            (Place::Pu(pu), ExtScheduler::Before) => {
                let parts =
                    SharedPart::ALL.into_iter().map(|shared| sharing_with(work, shared, pu));
                let several = parts.into_iter().find(|part| part.len() > 1);
                several.map_or(Mark::Original, |part| work.actuators.mark_of(&part))
            }
            (Place::Sharing(shared, pu), _) => {
                work.actuators.mark_of(&sharing_with(work, shared, pu))
            }
        }
    }

    /// Whether new threads are pinned at creation.
    pub(crate) fn places_new_tasks(&self) -> bool {
        self.plan
            .as_ref()
            .is_none_or(|plan| plan.default_placement != DefaultPlacement::LeaveToKernel)
    }

    /// Places the threads whose waits or exemptions are over.
    pub(crate) fn place_settled(&mut self, work: &mut HostState) {
        while let Some((at, id)) = self.pop_due(now()) {
            self.check_waiting(work, id, at);
        }
    }

    /// Places a thread if its wait, which was to last until `at`, or its exemption is over.
    fn check_waiting(&mut self, work: &mut HostState, id: TaskId, at: Nanos) {
        let Some(task) = work.table.tasks.get_mut(id).filter(|task| task.ended.is_none()) else {
            return;
        };
        if task.placement.exempt == Some(Exemption::JustForked) {
            return self.end_fork_exemption(work, id);
        }
        if task.placement.status != PlacementStatus::Settling {
            return;
        }
        let pid = task.thread.pid;
        let Some(process) = work.table.processes.get_mut(pid) else { return };
        // Else it has executed a program since, or its settling was postponed with that of another thread.
        if process.settled_at <= at {
            self.postpone(work, id, pid);
        }
        self.place(work, id, PlacementEvent::WaitOver, at);
    }

    /// Places a thread again that was exempt since it had created a process; later if it has created another one meanwhile.
    fn end_fork_exemption(&mut self, work: &mut HostState, id: TaskId) {
        let Some(task) = work.table.tasks.get_mut(id) else { return };
        let until = task.placement.forked.until;
        if until > now() {
            return self.check_at(until, id);
        }
        task.placement.exempt = None;
        if self.reset_target(work, id) {
            self.place(work, id, PlacementEvent::Restored, now());
        }
    }

    /// Postpones the settling of a program that has hardly begun.
    fn postpone(&mut self, work: &mut HostState, id: TaskId, pid: Pid) {
        let Some((cpu_time, could_run)) = progress_of(work, id, pid) else { return };
        let Some(process) = work.table.processes.get_mut(pid) else { return };
        let start = ProgramStart { cpu_time, could_run, postponements: process.postponements };
        if let Some(settled_at) = rules::postponed(&start, self.settle, now()) {
            process.settled_at = settled_at;
            process.postponements += 1;
        }
    }
}

/// Facts on a thread; `None` if the host has forgotten it.
fn facts_of(work: &mut HostState, id: TaskId, event: PlacementEvent) -> Option<ThreadFacts> {
    let task = work.table.tasks.get_mut(id)?;
    let (is_first, exempt) = (task.thread.is_first(), task.placement.exempt);
    let pid = task.thread.pid;
    let process = work.table.processes.get_mut(pid);
    let is_second = !is_first && process.is_some_and(|process| process.further == 1);
    if is_second && event == PlacementEvent::Created {
        runtime_of(work, pid);
    }
    let program = work.table.processes.get_mut(pid).map(|process| facts_of_program(process));
    Some(ThreadFacts { event, is_first, exempt, program: program.unwrap_or_default() })
}

/// PUs that share a part with one, as far as threads could use them at the start.
fn sharing_with(work: &HostState, shared: SharedPart, pu: PuNr) -> PuSet {
    work.machine.sharing_with(shared, pu).intersection(&work.actuators.original)
}

/// CPU time of a thread, and whether it could run now.
fn progress_of(work: &mut HostState, id: TaskId, pid: Pid) -> Option<(Nanos, bool)> {
    let proc = &work.actuators.proc;
    let tid = work.table.tasks.get_mut(id)?.thread.tid;
    let cpu_time = RunTime::open(proc, pid, tid).ok()?.read()?;
    Some((cpu_time, Stat::read(proc, pid, tid)?.could_run()))
}

/// Notes once of a job that Java code counts the PUs of pinned threads: it counts on any thread, and at any time.
fn note_java(work: &mut HostState, pid: Pid, job: JobIdx, mark: Mark) {
    if runtime_of(work, pid) != Runtime::Jvm || !work.notes.is_first(job, JAVA_WORKERS) {
        return;
    }
    let words = Proc::at(&work.actuators.proc).command_line(pid);
    if words.iter().any(|word| word.to_string_lossy().starts_with(JAVA_COUNT)) {
        return;
    }
    let few = work.actuators.mask(mark).len();
    let all = work.usable.len();
    work.note_on(
        job,
        &format!(
            "is a Java program, and its threads in process {pid} are placed: {JAVA_WORKERS} {few} there, not {all}; \
             {JAVA_COUNT}={all} has it count {all}"
        ),
    );
}

/// Notes once that no mask can be set here.
pub(crate) fn note_filter(notes: &mut Notes) {
    if colocate_linux::affinity::is_filtered() {
        notes.push(format!("no thread can be placed: {}", affinity::FILTERED));
    }
}

/// Exempts a new thread that counts PUs for its program, before a plan is in force.
pub(super) fn note_counting_thread(work: &mut HostState, id: TaskId) {
    let Some(facts) = facts_of(work, id, PlacementEvent::Created) else { return };
    let counts = [Exemption::GoMonitor, Exemption::JavaMain];
    let exempt = rules::exemption(&facts).filter(|why| counts.contains(why));
    if let Some(task) = work.table.tasks.get_mut(id) {
        task.placement.exempt = task.placement.exempt.or(exempt);
    }
}

/// Runtime of the program of a process, read once.
fn runtime_of(work: &mut HostState, pid: Pid) -> Runtime {
    let Some(process) = work.table.processes.get_mut(pid) else { return Runtime::Plain };
    let read = || work.runtimes.of(&Proc::at(&work.actuators.proc).executable_link(pid));
    *process.runtime.get_or_insert_with(read)
}

/// Facts on the program of a process.
fn facts_of_program(process: &Process) -> ProgramFacts {
    ProgramFacts {
        runtime: process.runtime.unwrap_or_default(),
        settled_at: process.settled_at,
        further: process.further,
        is_storm: process.is_storm,
        is_orphan: process.is_orphan,
    }
}

/// Whether the mask of a thread has one PU.
fn has_one_pu(tid: Tid) -> bool {
    let allowed = colocate_linux::affinity::of(tid).ok();
    allowed.is_some_and(|allowed| affinity::single(&allowed).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that is checked twice is in the queue twice: its exemption may have become longer.
    #[test]
    fn threads_are_checked_in_the_order_of_their_times() {
        let mut placing = Placing::new(Nanos::ZERO);
        let id = |order| TaskId { job: JobIdx(0), order };
        for (at, order) in [(30, 0), (10, 1), (20, 2), (20, 1)] {
            placing.check_at(Nanos(at), id(order));
        }
        assert_eq!(placing.next_check(), Some(Nanos(10)));
        assert_eq!(placing.pop_due(Nanos(9)), None);
        assert_eq!(placing.pop_due(Nanos(20)), Some((Nanos(10), id(1))));
        assert_eq!(placing.pop_due(Nanos(20)), Some((Nanos(20), id(1))));
        assert_eq!(placing.pop_due(Nanos(20)), Some((Nanos(20), id(2))));
        assert_eq!(placing.pop_due(Nanos(20)), None);
        assert_eq!(placing.next_check(), Some(Nanos(30)));
    }
}
