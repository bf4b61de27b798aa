//! When a task goes to its PU: at its birth, when its program has settled, when a plan changes, or
//! never. docs/run.md has the rules in a table.

use super::LinuxHost;
use crate::book::Birth;
use crate::journal::Mark;
use crate::pin;
use crate::placer::Put;
use crate::runtime::Runtime;
use colocate_engine::Stand;
use colocate_machine::{Nanos, PuNr};
use colocate_observe::sys::now;
use colocate_observe::{Pid, Tid};
use colocate_policy::{Newborn, Place, Plan, TaskId};
use std::cmp::Reverse;

/// Why a newborn of a Go program is not placed.
const GO_MONITOR: &str = "the Go runtime counts PUs on it";
/// Why a newborn of a Java program is not placed.
const JAVA_MAIN: &str = "Java code counts PUs on it";
/// Why a thread that creates processes is not placed.
const STARTS_PROGRAMS: &str = "it starts programs, which would count only its PU";

/// Whether, and how long, a task has to wait before it may be put on a PU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    No,
    Until(Nanos),
    ForEver(&'static str),
}

impl LinuxHost {
    pub(super) fn born(&mut self, birth: Birth) {
        let Some(id) = self.book.born(birth) else { return };
        self.counts.born += 1;
        if birth.pid != birth.parent_pid {
            self.creator_starts_programs(birth.parent_tid);
            self.born_of_rest(birth);
        }
        let is_first = birth.tid == birth.pid.first_thread();
        if is_first {
            self.begin_program(birth.pid, birth.at);
            self.stop_newborn(id, birth.pid);
        }
        self.meet_newborn(id);
        self.count_newborn(id, birth.pid);
        let Some(plan) = &self.plan else {
            if self.ending.is_some() {
                // Its creator may have been given its mask back in the middle of this birth.
                self.start(id, Waiting::No);
            }
            return;
        };
        let aim = self.book.aim_of(plan, id);
        self.book.aim(id, aim);
        let waiting = self.waiting(birth.pid, birth.at, is_first);
        let put = self.start(id, waiting);
        if put == Some(Put::Done) && waiting == Waiting::No && aim.is_some() {
            self.counts.waited.add(now().saturating_sub(birth.at));
        }
    }

    /// A process begins a program: it has not counted PUs yet.
    fn begin_program(&mut self, pid: Pid, at: Nanos) {
        let settled_at = at + self.settle;
        if let Some(process) = self.book.process(pid) {
            (process.settled_at, process.further) = (settled_at, 0);
        }
    }

    /// How long a newborn has to wait before it may be put on a PU.
    fn waiting(&mut self, pid: Pid, at: Nanos, is_first: bool) -> Waiting {
        let Some(process) = self.book.process(pid) else { return Waiting::No };
        let settled = process.settled_at <= at;
        match process.runtime {
            _ if settled && is_first => Waiting::No,
            Runtime::Go if !is_first && process.further == 1 => Waiting::ForEver(GO_MONITOR),
            Runtime::Jvm if !is_first && process.further == 1 => Waiting::ForEver(JAVA_MAIN),
            _ if is_first => Waiting::Until(process.settled_at),
            _ => Waiting::No,
        }
    }

    /// Puts a task where it is aimed at, or has it wait.
    pub(super) fn start(&mut self, id: TaskId, waiting: Waiting) -> Option<Put> {
        let task = self.book.task(id)?;
        if let Waiting::ForEver(why) = waiting {
            task.exempt = Some(why);
        }
        let waiting = task.exempt.map_or(waiting, Waiting::ForEver);
        let (to, then) = match (waiting, task.aim) {
            (_, None) => (Mark::Original, Stand::LeftToKernel),
            (Waiting::ForEver(why), _) => (Mark::Original, Stand::Exempt(why)),
            (Waiting::Until(at), Some(_)) => {
                self.settling.push(Reverse((at, id)));
                (Mark::Original, Stand::Settling)
            }
            (Waiting::No, Some(pu)) => (Mark::On(pu), Stand::Placed),
        };
        let put = self.placer.put(task, to, then);
        // What is not on a PU by our doing must not keep others from it.
        if put == Put::Respected || matches!(waiting, Waiting::ForEver(_)) {
            self.book.aim(id, None);
        }
        Some(put)
    }

    /// A thread that creates processes hands its mask down, and what it starts would count PUs by
    /// it; so it is not kept on one PU.
    fn creator_starts_programs(&mut self, tid: Tid) {
        let Some(id) = self.book.living(tid) else { return };
        let Some(task) = self.book.task(id) else { return };
        if task.exempt.is_none() && task.stand != Stand::PinnedByProgram {
            self.start(id, Waiting::ForEver(STARTS_PROGRAMS));
        }
    }

    pub(super) fn named(&mut self, at: Nanos, pid: Pid, tid: Tid, name: String, exec: bool) {
        let Some(id) = self.book.living(tid) else { return };
        self.book.rename(id, &name);
        if exec {
            self.executes(at, pid, id);
        }
    }

    /// A process executes another program: its thread is free again until that has settled.
    fn executes(&mut self, at: Nanos, pid: Pid, id: TaskId) {
        if self.book.begins_run(id) {
            self.going[id.job.0 as usize] = None;
        }
        let executable = self.placer.proc.join(format!("{pid}/exe"));
        let runtime = self.runtimes.of(&executable);
        self.begin_program(pid, at);
        let Some(process) = self.book.process(pid) else { return };
        process.runtime = runtime;
        let settled_at = process.settled_at;
        let Some(plan) = &self.plan else { return };
        let Some(task) = self.book.task(id) else { return };
        if task.exempt.take().is_some() {
            let aim = self.book.aim_of(plan, id);
            self.book.aim(id, aim);
        }
        self.start(id, if settled_at > at { Waiting::Until(settled_at) } else { Waiting::No });
    }

    /// Places the tasks whose programs have settled.
    pub(super) fn place_settled(&mut self) {
        while let Some(&Reverse((at, id))) = self.settling.peek() {
            if at > now() {
                return;
            }
            self.settling.pop();
            let Some(task) = self.book.task(id) else { continue };
            let due = task.stand == Stand::Settling && task.ended.is_none();
            let pid = task.pid;
            // An exec since then has set a later time, which is in the heap as well.
            if due && self.book.process(pid).is_some_and(|process| process.settled_at <= at) {
                self.start(id, Waiting::No);
            }
        }
    }

    /// Takes over a plan: named tasks go where it says, others where the newborn rule says. When the scheduling has
    /// ended, no plan is followed.
    pub(super) fn adopt(&mut self, plan: &Plan) {
        if self.ending.is_some() || self.plan.as_ref() == Some(plan) {
            return;
        }
        self.plan = Some(plan.clone());
        self.book.is_planned();
        let places = self.who_can_be_moved().into_iter().map(|id| (id, plan.place_of(id)));
        // Named ones first, so that the others find the room that is left.
        let (named, others): (Vec<_>, Vec<_>) = places.partition(|(_, place)| place.is_some());
        for &(id, place) in &named {
            self.book.aim(id, place.and_then(Place::pu));
        }
        for &(id, _) in &others {
            let before = self.book.task(id).and_then(|task| task.aim);
            self.book.aim(id, None);
            let aim = kept(before, &plan.newborn).or_else(|| self.book.newborn_aim(&plan.newborn));
            self.book.aim(id, aim);
        }
        // Who is stopped stays where it is: it runs nowhere.
        for (id, place) in named.into_iter().chain(others) {
            if place != Some(Place::Waiting) || self.fills(id.job) {
                self.follow(id);
            }
        }
    }

    /// Leaves every task to the kernel, for good: all masks are given back.
    pub(super) fn leave_to_kernel(&mut self) {
        self.plan = None;
        for id in self.who_can_be_moved() {
            self.book.aim(id, None);
            self.follow(id);
        }
    }

    /// The living tasks that may be put elsewhere, in the order of their IDs.
    fn who_can_be_moved(&mut self) -> Vec<TaskId> {
        let mut living: Vec<TaskId> = self.book.all_living().map(|(_, id)| id).collect();
        living.sort_unstable();
        let movable = |stand: &Stand| {
            !matches!(stand, Stand::Exempt(_) | Stand::PinnedByProgram | Stand::Missed)
        };
        living.retain(|&id| self.book.task(id).is_some_and(|task| movable(&task.stand)));
        living
    }

    /// Puts a living task where it is aimed at now.
    fn follow(&mut self, id: TaskId) {
        let at = now();
        let Some(task) = self.book.task(id) else { return };
        let (pid, is_first, stand) = (task.pid, task.is_first(), task.stand.clone());
        let wanted = task.aim.map_or(Mark::Original, Mark::On);
        let there = task.mark == wanted && stand == Stand::Placed;
        let untouched = wanted == Mark::Original && task.mark == wanted;
        if untouched && stand == Stand::LeftToKernel && task.allowed == self.placer.original {
            return;
        }
        if there && task.allowed == pin::only(task.aim.unwrap_or(PuNr(u32::MAX))) {
            return;
        }
        let settled_at = self.book.process(pid).map(|process| process.settled_at);
        let waiting = match settled_at {
            Some(until) if until > at && is_first => Waiting::Until(until),
            // Before the launch nothing has begun, and what has not begun has not settled.
            _ if self.launched.is_none() && self.settle > Nanos::ZERO => {
                Waiting::Until(at + self.settle)
            }
            _ => Waiting::No,
        };
        self.start(id, waiting);
    }
}

/// The PU that a task has already, if the newborn rule could have given it.
fn kept(pu: Option<PuNr>, rule: &Newborn) -> Option<PuNr> {
    match rule {
        Newborn::LeaveToKernel => None,
        Newborn::FillInOrder { pus } => pu.filter(|pu| pus.contains(pu)),
    }
}
