//! Threads of a job that take turns: each does its part, wakes the next, and sleeps until its next
//! turn.
//!
//! # Approach
//! A client and its server, or the stages of a pipeline: turns stand for the messages between them.
//! A thread with two turns continues without sleep. A thread that has done its work passes its
//! turns on and is left out.
//!
//! A woken thread gets a PU as every other, and then makes no progress until the wake-up is over.
//! Its cost depends on the waker's PU. A woken thread that had to wait for its PU pays the cost of
//! the same PU.
//! # Properties
//! - **As often as they take turns**: wake-ups are counted with their time and place. -> test
//!   `a_pair_far_apart_and_together`
//! - **No deadlock**: as long as a thread has work left, one has its turn. -> test
//!   `threads_that_end_hand_on_their_turn`

use crate::scenario::BarrierWait;
use crate::task::{State, TaskNo};
use crate::woken::Woken;
use crate::world::World;
use colocate_evidence::WakeUps;
use colocate_machine::calibrated::Pair;
use colocate_machine::{Nanos, PuIdx};

impl World<'_> {
    /// Number of turns of a job; `None` if its threads do not take turns.
    pub(crate) fn turns(&self, job: usize) -> Option<u32> {
        match self.scenario.jobs[job].barrier?.wait {
            BarrierWait::Turns(turns) => Some(turns),
            BarrierWait::Sleep | BarrierWait::Spin(_) => None,
        }
    }

    /// Whether the threads of any job take turns.
    pub(crate) fn takes_turns(&self) -> bool {
        (0..self.jobs.len()).any(|job| self.turns(job).is_some())
    }

    /// Deals the turns of a job to its threads, evenly.
    pub(crate) fn begin_turns(&mut self, job: usize) {
        let turns = self.turns(job).unwrap_or(0);
        let threads = u32::try_from(self.jobs[job].tasks.len()).unwrap_or(u32::MAX);
        for (order, task) in (0..).zip(self.jobs[job].tasks.clone()) {
            self.tasks[task].turns = turns / threads + u32::from(order < turns % threads);
        }
    }

    /// Puts a task without a turn to sleep, where threads take turns.
    pub(crate) fn await_turn(&mut self, task: TaskNo) {
        let takes_turns = self.turns(self.tasks[task].id.job.0 as usize).is_some();
        if takes_turns && self.tasks[task].turns == 0 {
            self.leave_queue(task);
            self.tasks[task].at_barrier = true;
            self.tasks[task].state = State::Asleep;
            self.tasks[task].since = self.events.now();
        }
    }

    /// Passes a turn to the next thread: the task has done its part.
    pub(crate) fn hand_on(&mut self, task: TaskNo) {
        if self.next_in_turn(task).is_none() {
            return;
        }
        self.hand_on_turns(task, 1);
        self.await_turn(task);
    }

    /// Passes all turns to the next thread: the task has done all its work.
    pub(crate) fn hand_on_all(&mut self, task: TaskNo) {
        let turns = self.tasks[task].turns;
        self.hand_on_turns(task, turns);
    }

    /// Passes turns to the next thread, and wakes a waiting thread.
    fn hand_on_turns(&mut self, task: TaskNo, turns: u32) {
        let Some(next) = self.next_in_turn(task) else { return };
        self.tasks[task].turns -= turns;
        self.tasks[next].turns += turns;
        if turns > 0 && std::mem::take(&mut self.tasks[next].at_barrier) {
            let on = self.queues.pu_of(task);
            self.tasks[next].woken = Some(Woken { by: task, at: self.events.now(), on });
            self.rates.note_change();
            self.wake(next);
        }
    }

    /// The next thread of the same job with work left; `None` for the last.
    fn next_in_turn(&self, task: TaskNo) -> Option<TaskNo> {
        let all = self.jobs[self.tasks[task].id.job.0 as usize].tasks.clone();
        (task + 1..all.end).chain(all.start..task).find(|&task| self.tasks[task].has_work())
    }

    /// Counts a wake-up, and charges its cost, when the woken task gets a PU.
    pub(crate) fn note_wake_up(&mut self, task: TaskNo, pu: PuIdx) {
        let Some(woken) = self.tasks[task].woken.take() else { return };
        let waited = self.events.now() - woken.at;
        let machine = self.platform.machine();
        let pair = woken.on.filter(|_| waited == Nanos::ZERO);
        let pair = pair.and_then(|on| Pair::of(machine, self.os(on), self.os(pu)));
        let seconds = self.scenario.kernel.wake_ups.of(pair.unwrap_or(Pair::SamePu));
        self.tasks[task].refill_s += seconds;
        self.wake_ups.add(task, woken, pu, waited + nanos(seconds));
    }

    /// Adds time to all running pairs of threads with consecutive turns.
    pub(crate) fn note_both_ran(&mut self, time: Nanos) {
        for job in 0..self.jobs.len() {
            let tasks = self.jobs[job].tasks.clone();
            if tasks.len() < 2 || self.turns(job).is_none() {
                continue;
            }
            // Two threads follow each other both ways, but are one pair.
            let last = if tasks.len() == 2 { tasks.start + 1 } else { tasks.end };
            for task in tasks.start..last {
                let Some(next) = self.next_in_turn(task) else { continue };
                if self.queues.runs(task) && self.queues.runs(next) {
                    self.wake_ups.add_both_ran(task, next, time);
                }
            }
        }
    }

    /// Wake-ups as seen by policies.
    pub(crate) fn reported_wake_ups(&self) -> Vec<WakeUps> {
        self.wake_ups.reports(|task| self.tasks[task].id)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}
