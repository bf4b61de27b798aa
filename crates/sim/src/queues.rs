//! Run queues of the PUs: running and waiting tasks, by EEVDF.
//!
//! # Problem
//! Several threads are runnable on one PU.
//!
//! # Approach
//! EEVDF (Stoica and Abdel-Wahab, "Earliest eligible virtual deadline first", 1995; Linux since
//! 6.6) with equal slices, and equal weights but for fillers (`world::filling`). A thread's
//! virtual time is the time it ran on the queue. The thread is eligible while that is not above the
//! mean of the queue, and its deadline is a slice later. A thread that leaves the queue keeps its
//! lag behind the mean, at most a slice, and has it again on the next queue.
//!
//! # Terms
//! - *lag*: mean of the virtual times minus the task's, in nanoseconds; the time that the task is
//!   owed.
//!
//! # Properties
//! - **Fair**: tasks that share a queue from the start differ by two slices at most.  -> test
//!   `turns_are_fair`
//! - **To the end of the slice**: no running task is stopped before, not even for one that wakes
//!   up; but fillers are. -> test `a_slice_is_run_to_its_end`

use crate::task::{NORMAL, Task, TaskNo};
use colocate_machine::{Nanos, PuIdx};

/// Run queue of a PU.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub running: Option<TaskNo>,
    /// Waiting tasks, in the order of their arrival.
    pub waiting: Vec<TaskNo>,
    /// End of the running task's slice; ignored while no task waits.
    pub slice_end: Nanos,
}

impl Default for Queue {
    fn default() -> Self {
        Self { running: None, waiting: Vec::new(), slice_end: Nanos(u64::MAX) }
    }
}

impl Queue {
    /// Number of running and waiting tasks.
    pub fn load(&self) -> usize {
        usize::from(self.running.is_some()) + self.waiting.len()
    }

    /// Running and waiting tasks.
    pub fn members(&self) -> impl Iterator<Item = TaskNo> + '_ {
        self.running.into_iter().chain(self.waiting.iter().copied())
    }

    /// Sum of the tasks' virtual times, each times the task's weight, and sum of the weights.
    fn sums(&self, tasks: &[Task]) -> (i128, i64) {
        let times = self
            .members()
            .map(|task| i128::from(tasks[task].virtual_time) * i128::from(tasks[task].weight()));
        (times.sum(), self.members().map(|task| tasks[task].weight()).sum())
    }

    /// Number of running and waiting tasks, fillers left out.
    pub(crate) fn normal_load(&self, tasks: &[Task]) -> usize {
        self.members().filter(|&task| !tasks[task].fills).count()
    }

    /// Puts a task on the queue, with its lag.
    pub(crate) fn enqueue(&mut self, task: TaskNo, pu: PuIdx, tasks: &mut [Task]) {
        let (sum, weights) = self.sums(tasks);
        let mean = mean(sum, weights);
        // The mean moves by the newcomer's own lag, for which EEVDF compensates. A task with a
        // negative lag stays until that is gone (DELAY_DEQUEUE, since 6.12); beside fillers that
        // happens at once.
        let among_fillers = !tasks[task].fills && self.normal_load(tasks) == 0;
        let lag = tasks[task].virtual_time;
        let lag = if among_fillers { lag.max(0) } else { lag };
        let weight = tasks[task].weight();
        let lag = if weights == 0 { 0 } else { lag.saturating_mul(weights + weight) / weights };
        tasks[task].virtual_time = mean - lag;
        tasks[task].pu = Some(pu);
        self.waiting.push(task);
    }

    /// Takes a task off the queue. The task keeps its lag, at most a slice.
    pub(crate) fn dequeue(&mut self, task: TaskNo, slice: Nanos, tasks: &mut [Task]) {
        let (sum, weights) = self.sums(tasks);
        let slice = i64::try_from(slice.0).unwrap_or(i64::MAX);
        let lag = if weights == 0 { 0 } else { mean(sum, weights) - tasks[task].virtual_time };
        tasks[task].virtual_time = lag.clamp(-slice, slice);
        self.waiting.retain(|&other| other != task);
        if self.running == Some(task) {
            self.running = None;
        }
    }

    /// The next task to run: the eligible task with the earliest deadline, of several the first by
    /// number. With equal slices and weights the task with the least run time.
    fn pick(&self, slice: Nanos, tasks: &[Task]) -> Option<TaskNo> {
        let (sum, weights) = self.sums(tasks);
        let slice = i64::try_from(slice.0).unwrap_or(i64::MAX);
        self.members().min_by_key(|&task| {
            let Task { virtual_time, .. } = tasks[task];
            let deadline = slice.saturating_mul(NORMAL) / tasks[task].weight();
            let eligible = i128::from(virtual_time) * i128::from(weights) <= sum;
            // `false` is less than `true`: eligible tasks come first.
            (!eligible, virtual_time.saturating_add(deadline), virtual_time, task)
        })
    }

    /// Lets the right task run from `now` on. Whether the task has changed. `first` gives the
    /// length of the first slice when tasks begin to share the PU.
    pub(crate) fn reschedule(
        &mut self,
        now: Nanos,
        slice: Nanos,
        tasks: &[Task],
        first: impl FnOnce() -> Nanos,
    ) -> bool {
        // A filler gives its PU up at once.
        let fills = self.running.is_some_and(|task| tasks[task].fills);
        let gives_way = fills && self.waiting.iter().any(|&task| !tasks[task].fills);
        let over = now >= self.slice_end || gives_way;
        if self.waiting.is_empty() || (self.running.is_some() && !over) {
            return false;
        }
        let Some(next) = self.pick(slice, tasks) else { return false };
        // A slice that ended in time is followed by a whole one; else tasks begin to share the PU.
        let begins = now != self.slice_end && self.load() > 1;
        self.slice_end = now + if begins { first() } else { slice };
        if self.running == Some(next) {
            return false;
        }
        self.waiting.retain(|&task| task != next);
        self.waiting.extend(self.running.replace(next));
        true
    }

    /// End of the running task's slice; `None` while no task waits.
    pub(crate) fn next_slice_end(&self) -> Option<Nanos> {
        (self.running.is_some() && !self.waiting.is_empty()).then_some(self.slice_end)
    }
}

/// Mean virtual time; 0 of an empty queue.
fn mean(sum: i128, weights: i64) -> i64 {
    i64::try_from(sum / i128::from(weights.max(1))).unwrap_or(i64::MAX)
}
