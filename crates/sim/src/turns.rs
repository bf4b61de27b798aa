//! Threads of a job that take turns: each does its part, wakes the next one, and sleeps until it is its turn again.
//!
//! # Approach
//! A client and its server, or the stages of a pipeline: turns stand for the messages between them. A thread that has its turn twice
//! continues without sleep. One that has done its work hands on what it has and is left out.
//!
//! A woken thread gets a PU as every other, and then makes no progress until the wake-up is over. How long that takes depends on
//! where the waker was, unless the woken one had to wait for its PU: then it is as long as on the waker's.
//! # Properties
//! - **As often as they take turns**: wake-ups are counted with their time and place. -> test `a_pair_far_apart_and_together`
//! - **No deadlock**: as long as a thread has work left, one has its turn. -> test `threads_that_end_hand_on_their_turn`

use crate::scenario::BarrierWait;
use crate::task::{State, TaskNo};
use crate::woken::{Sums, Woken};
use crate::world::World;
use colocate_evidence::WakeUps;
use colocate_machine::calibrated::Pair;
use colocate_machine::{Nanos, PuIdx};

impl World<'_> {
    /// How many turns there are at a time in a job; `None` if they do not take turns.
    pub(crate) fn turns(&self, job: usize) -> Option<u32> {
        match self.scenario.jobs[job].barrier?.wait {
            BarrierWait::Turns(turns) => Some(turns),
            BarrierWait::Sleep | BarrierWait::Spin(_) => None,
        }
    }

    /// Whether threads of a job do.
    pub(crate) fn takes_turns(&self) -> bool {
        (0..self.jobs.len()).any(|job| self.turns(job).is_some())
    }

    /// Deals its turns to a job's threads in a row.
    pub(crate) fn begin_turns(&mut self, job: usize) {
        let turns = self.turns(job).unwrap_or(0);
        let threads = u32::try_from(self.jobs[job].tasks.len()).unwrap_or(u32::MAX);
        for (order, task) in (0..).zip(self.jobs[job].tasks.clone()) {
            self.tasks[task].turns = turns / threads + u32::from(order < turns % threads);
        }
    }

    /// A task that was created sleeps if it is not its turn.
    pub(crate) fn await_turn(&mut self, task: TaskNo) {
        let takes_turns = self.turns(self.tasks[task].id.job.0 as usize).is_some();
        if takes_turns && self.tasks[task].turns == 0 {
            self.leave_queue(task);
            self.tasks[task].at_barrier = true;
            self.tasks[task].state = State::Asleep;
            self.tasks[task].since = self.now;
        }
    }

    /// A task has done its part.
    pub(crate) fn hand_on(&mut self, task: TaskNo) {
        if self.next_in_turn(task).is_none() {
            return;
        }
        self.hand_on_turns(task, 1);
        self.await_turn(task);
    }

    /// A task has done all its work.
    pub(crate) fn hand_on_all(&mut self, task: TaskNo) {
        let turns = self.tasks[task].turns;
        self.hand_on_turns(task, turns);
    }

    fn hand_on_turns(&mut self, task: TaskNo, turns: u32) {
        let Some(next) = self.next_in_turn(task) else { return };
        self.tasks[task].turns -= turns;
        self.tasks[next].turns += turns;
        if turns > 0 && std::mem::take(&mut self.tasks[next].at_barrier) {
            let on = self.tasks[task].pu;
            self.tasks[next].woken = Some(Woken { by: task, at: self.now, on });
            self.stale = true;
            self.wake(next);
        }
    }

    /// The thread of the same job that comes after this one and has work left, if there is another one.
    fn next_in_turn(&self, task: TaskNo) -> Option<TaskNo> {
        let all = self.jobs[self.tasks[task].id.job.0 as usize].tasks.clone();
        let works = |task: &TaskNo| !matches!(self.tasks[*task].state, State::Done | State::Ended);
        (task + 1..all.end).chain(all.start..task).find(works)
    }

    /// A task gets a PU: a wake-up is over, or is soon.
    pub(crate) fn note_wake_up(&mut self, task: TaskNo, pu: PuIdx) {
        let Some(Woken { by, at, on }) = self.tasks[task].woken.take() else { return };
        let waited = self.now - at;
        let machine = self.platform.machine();
        let number = |pu: PuIdx| machine.pus[pu.idx()].os;
        let lie = on.filter(|_| waited == Nanos::ZERO);
        let lie = lie.and_then(|on| Pair::of(machine, number(on), number(pu)));
        let seconds = self.scenario.kernel.wake_ups.of(lie.unwrap_or(Pair::SamePu));
        self.tasks[task].refill_s += seconds;
        let sums = self.wake_ups.entry((by, task)).or_default();
        sums.count += 1;
        sums.same_pu += u64::from(on == Some(pu));
        sums.waited += waited + nanos(seconds);
    }

    /// Two of a job that follow each other have run at the same time for so long.
    pub(crate) fn note_both_ran(&mut self, time: Nanos) {
        for job in 0..self.jobs.len() {
            let tasks = self.jobs[job].tasks.clone();
            if tasks.len() < 2 || self.turns(job).is_none() {
                continue;
            }
            let last = if tasks.len() == 2 { tasks.start + 1 } else { tasks.end };
            for task in tasks.start..last {
                let Some(next) = self.next_in_turn(task) else { continue };
                if self.runs(task) && self.runs(next) {
                    self.wake_ups.entry((task, next)).or_default().both_ran += time;
                }
            }
        }
    }

    fn runs(&self, task: TaskNo) -> bool {
        self.tasks[task].pu.is_some_and(|pu| self.queues[pu.idx()].running == Some(task))
    }

    /// What policies see of it.
    pub(crate) fn reported_wake_ups(&self) -> Vec<WakeUps> {
        let one = |(&(waker, wakee), sums): (&(TaskNo, TaskNo), &Sums)| WakeUps {
            waker: Some(self.tasks[waker].id),
            wakee: self.tasks[wakee].id,
            count: sums.count,
            same_pu: Some(sums.same_pu),
            waited: Some(sums.waited),
            both_ran: Some(sums.both_ran),
        };
        self.wake_ups.iter().map(one).collect()
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}
