//! Decisions carried out: masks set, targets and placement status noted.

use super::rules::{self, Decision, Event, PlanView, ProgramFacts, ProgramStart, ThreadFacts};
use crate::LinuxHost;
use crate::runtime::Runtime;
use crate::sched_ext::ExtScheduler;
use crate::task::Task;
use crate::task_table::Process;
use colocate_act::actuators::Actuators;
use colocate_act::affinity::{self, Pinned};
use colocate_act::journal::Mark;
use colocate_evidence::{Exemption, JobIdx, PlacementStatus, TaskId};
use colocate_linux::clock::now;
use colocate_linux::proc::Proc;
use colocate_linux::proc::stat::Stat;
use colocate_linux::run_time::RunTime;
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuNr, PuSet, Shared};
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
    pub ext_scheduler: ExtScheduler,
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
        task: &mut Task,
        actuators: &mut Actuators,
    ) -> Pinned {
        if let Decision::Wait(until) = decision {
            self.check_at(until, task.id);
        }
        let pinned = actuators.pin(&mut task.thread, decision.mark());
        task.placement.note(&pinned, decision.status());
        pinned
    }
}

impl LinuxHost {
    /// Places a task after an event at `at`, by the rules.
    pub(crate) fn place(&mut self, id: TaskId, event: Event, at: Nanos) {
        let Some(target) = self.tasks.task(id).map(|task| task.placement.target) else { return };
        let plan = self.plan_view(id, target);
        let Some(facts) = self.facts_of(id, event) else { return };
        let Some(task) = self.tasks.task(id) else { return };
        let decision = rules::decide(&facts, &plan, at);
        task.placement.exempt = rules::exemption(&facts);
        let pid = task.thread.pid;
        let is_unpinned = decision.mark() == Mark::Original;
        let had_one_pu = facts.is_first && is_unpinned && has_one_pu(task.thread.tid);
        let pinned = self.placing.carry_out(decision, task, &mut self.actuators);
        let has_several_pus = affinity::single(&task.thread.allowed).is_none();
        if had_one_pu
            && has_several_pus
            && let Some(process) = self.tasks.process(pid)
        {
            process.narrow_until = now();
        }
        if pinned == Pinned::Done && decision.mark().is_put() && !facts.is_first {
            self.note_java(pid, id.job, decision.mark());
        }
        if pinned == Pinned::ByProgram || rules::loses_target(&facts, &plan) {
            self.tasks.set_target(id, Place::LeftToKernel);
        }
        self.tasks.note_placed(id, now());
    }

    /// Facts on a thread; `None` if the host has forgotten it.
    fn facts_of(&mut self, id: TaskId, event: Event) -> Option<ThreadFacts> {
        let task = self.tasks.task(id)?;
        let (is_first, exempt) = (task.thread.is_first(), task.placement.exempt);
        let pid = task.thread.pid;
        let program = self.tasks.process(pid).map(|process| facts_of_program(process));
        Some(ThreadFacts { event, is_first, exempt, program: program.unwrap_or_default() })
    }

    /// Plan and state of the host for a thread with this target.
    fn plan_view(&self, id: TaskId, target: Place) -> PlanView {
        let planned = self.placing.plan().map(|plan| self.tasks.target_of(plan, id));
        PlanView {
            target,
            mark: self.mark_at(target),
            is_planned: planned.is_some_and(|place| place.named_pu().is_some()),
            has_ext_scheduler: self.placing.ext_scheduler != ExtScheduler::Absent,
            is_launched: self.quantum.launched.is_some(),
            settle: self.placing.settle,
        }
    }

    /// Aims a task at its place by the plan in force. False if there is no plan.
    pub(crate) fn reset_target(&mut self, id: TaskId) -> bool {
        let Some(plan) = self.placing.plan() else { return false };
        let target = self.tasks.target_of(plan, id);
        self.tasks.set_target(id, target);
        true
    }

    /// Mark of a thread at a place. A set of PUs that share a part of the machine has one if it was journalled at the start; with any
    /// other set the thread stays unpinned.
    pub(super) fn mark_at(&self, place: Place) -> Mark {
        // With one PU a pinned thread gains nothing, and the kernel does not show whether its mask was set.
        if self.usable.len() < 2 {
            return Mark::Original;
        }
        match (place, self.placing.ext_scheduler) {
            (Place::LeftToKernel | Place::Waiting, _) | (_, ExtScheduler::Since) => Mark::Original,
            (Place::Pu(pu), ExtScheduler::Absent) => Mark::On(pu),
            (Place::Pu(pu), ExtScheduler::Before) => {
                let parts = Shared::ALL.into_iter().map(|shared| self.sharing_with(shared, pu));
                let several = parts.into_iter().find(|part| part.len() > 1);
                several.map_or(Mark::Original, |part| self.actuators.mark_of(&part))
            }
            (Place::Sharing(shared, pu), _) => {
                self.actuators.mark_of(&self.sharing_with(shared, pu))
            }
        }
    }

    /// PUs that share a part with one, as far as threads could use them at the start.
    fn sharing_with(&self, shared: Shared, pu: PuNr) -> PuSet {
        self.machine.sharing_with(shared, pu).intersection(&self.actuators.original)
    }

    /// Whether new threads are pinned or stopped at creation.
    pub(crate) fn places_new_tasks(&self) -> bool {
        let plan = self.placing.plan();
        self.pausing.pauser.is_some()
            || plan.is_none_or(|plan| plan.default_placement != DefaultPlacement::LeaveToKernel)
    }

    /// Places the threads whose waits or exemptions are over.
    pub(crate) fn place_settled(&mut self) {
        while let Some((at, id)) = self.placing.pop_due(now()) {
            self.check_waiting(id, at);
        }
    }

    /// Places a thread if its wait, which was to last until `at`, or its exemption is over.
    fn check_waiting(&mut self, id: TaskId, at: Nanos) {
        let Some(task) = self.tasks.task(id).filter(|task| task.ended.is_none()) else { return };
        if task.placement.exempt == Some(Exemption::JustForked) {
            return self.end_fork_exemption(id);
        }
        if task.placement.status != PlacementStatus::Settling {
            return;
        }
        let pid = task.thread.pid;
        let Some(process) = self.tasks.process(pid) else { return };
        // Else it has executed a program since, or its settling was postponed with that of another thread.
        if process.settled_at <= at {
            self.postpone(id, pid);
        }
        self.place(id, Event::WaitOver, at);
    }

    /// Postpones the settling of a program that has hardly begun.
    fn postpone(&mut self, id: TaskId, pid: Pid) {
        let Some((cpu_time, could_run)) = self.progress_of(id, pid) else { return };
        let Some(process) = self.tasks.process(pid) else { return };
        let start = ProgramStart { cpu_time, could_run, postponements: process.postponements };
        if let Some(settled_at) = rules::postponed(&start, self.placing.settle, now()) {
            process.settled_at = settled_at;
            process.postponements += 1;
        }
    }

    /// CPU time of a thread, and whether it could run now.
    fn progress_of(&mut self, id: TaskId, pid: Pid) -> Option<(Nanos, bool)> {
        let proc = &self.actuators.proc;
        let tid = self.tasks.task(id)?.thread.tid;
        let cpu_time = RunTime::open(proc, pid, tid).ok()?.read()?;
        Some((cpu_time, Stat::read(proc, pid, tid)?.could_run()))
    }

    /// Notes once of a job that Java code counts the PUs of pinned threads: it counts on any thread, and at any time.
    fn note_java(&mut self, pid: Pid, job: JobIdx, mark: Mark) {
        let is_java = self.tasks.process(pid).is_some_and(|it| it.runtime == Runtime::Jvm);
        if !is_java || !self.notes.is_first(job, JAVA_WORKERS) {
            return;
        }
        let words = Proc::at(&self.actuators.proc).command_line(pid);
        if words.iter().any(|word| word.to_string_lossy().starts_with(JAVA_COUNT)) {
            return;
        }
        let few = self.actuators.mask(mark).len();
        let all = self.usable.len();
        self.note_on(
            job,
            &format!(
                "is a Java program, and its threads in process {pid} are placed: {JAVA_WORKERS} {few} there, not {all}; \
                 {JAVA_COUNT}={all} has it count {all}"
            ),
        );
    }

    /// Notes once that no mask can be set here.
    pub(crate) fn note_filter(&mut self) {
        if colocate_linux::affinity::is_filtered() {
            self.notes.push(format!("no thread can be placed: {}", affinity::FILTERED));
        }
    }
}

/// Facts on the program of a process.
const fn facts_of_program(process: &Process) -> ProgramFacts {
    ProgramFacts {
        runtime: process.runtime,
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
