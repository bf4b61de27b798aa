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

use crate::task::TaskNo;
use colocate_machine::{Nanos, PuIdx};

/// Weight of a normal task: `NICE_0_LOAD`, scaled down (kernel/sched/sched.h, 6.18).
pub(crate) const NORMAL: i64 = 1024;
/// Weight of a filler: `WEIGHT_IDLEPRIO` (kernel/sched/sched.h, 6.18).
pub(crate) const FILLER: i64 = 3;

/// Scheduling state of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Entity {
    /// PU where it runs, waits or last ran; `None` before its creation.
    pu: Option<PuIdx>,
    /// Whether the task is a filler: its job has to wait, and the task runs on idle PUs.
    fills: bool,
    /// Virtual time of EEVDF, in nanoseconds; off a queue its lag behind the queue's mean.
    virtual_time: i64,
}

impl Entity {
    /// Weight of EEVDF.
    const fn weight(self) -> i64 {
        if self.fills { FILLER } else { NORMAL }
    }
}

/// Run queue of a PU.
#[derive(Clone, Debug)]
struct RunQueue {
    running: Option<TaskNo>,
    /// Waiting tasks, in the order of their arrival.
    waiting: Vec<TaskNo>,
    /// Number of fillers among them.
    fillers: usize,
    /// End of the running task's slice; ignored while no task waits.
    slice_end: Nanos,
}

impl RunQueue {
    /// Number of running and waiting tasks.
    fn load(&self) -> usize {
        usize::from(self.running.is_some()) + self.waiting.len()
    }

    /// Running and waiting tasks.
    fn members(&self) -> impl Iterator<Item = TaskNo> + '_ {
        self.running.into_iter().chain(self.waiting.iter().copied())
    }

    /// End of the running task's slice; `None` while no task waits.
    fn slice_end(&self) -> Option<Nanos> {
        (self.running.is_some() && !self.waiting.is_empty()).then_some(self.slice_end)
    }

    /// Sum of the tasks' virtual times, each times the task's weight, and sum of the weights.
    fn sums(&self, entities: &[Entity]) -> (i128, i64) {
        let times = self.members().map(|task| {
            i128::from(entities[task].virtual_time) * i128::from(entities[task].weight())
        });
        (times.sum(), self.members().map(|task| entities[task].weight()).sum())
    }

    /// The next task to run: the eligible task with the earliest deadline, of several the first by
    /// number. With equal slices and weights the task with the least run time.
    fn pick(&self, slice: Nanos, entities: &[Entity]) -> Option<TaskNo> {
        let (sum, weights) = self.sums(entities);
        let slice = i64::try_from(slice.0).unwrap_or(i64::MAX);
        self.members().min_by_key(|&task| {
            let Entity { virtual_time, .. } = entities[task];
            let deadline = slice.saturating_mul(NORMAL) / entities[task].weight();
            let eligible = i128::from(virtual_time) * i128::from(weights) <= sum;
            // `false` is less than `true`: eligible tasks come first.
            (!eligible, virtual_time.saturating_add(deadline), virtual_time, task)
        })
    }
}

/// Run queues of all PUs, with the scheduling state of all tasks.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    /// By PU.
    queues: Vec<RunQueue>,
    /// By task.
    entities: Vec<Entity>,
    /// Time slice of a task.
    slice: Nanos,
}

impl Queues {
    /// Empty queues, and tasks that are not created yet.
    pub fn new(pus: usize, tasks: usize, slice: Nanos) -> Self {
        let slice_end = Nanos(u64::MAX);
        let empty = RunQueue { running: None, waiting: Vec::new(), fillers: 0, slice_end };
        Self { queues: vec![empty; pus], entities: vec![Entity::default(); tasks], slice }
    }

    /// PU where a task runs, waits or last ran; `None` before its creation.
    pub fn pu_of(&self, task: TaskNo) -> Option<PuIdx> {
        self.entities[task].pu
    }

    /// Whether a task is a filler.
    pub fn is_filler(&self, task: TaskNo) -> bool {
        self.entities[task].fills
    }

    /// Makes a task that is on no queue a filler or a normal task.
    pub fn set_filler(&mut self, task: TaskNo, fills: bool) {
        self.entities[task].fills = fills;
    }

    /// Number of running and waiting tasks of a PU.
    pub fn load(&self, pu: PuIdx) -> usize {
        self.queues[pu.idx()].load()
    }

    /// Number of running and waiting tasks of a PU, fillers left out.
    pub fn normal_load(&self, pu: PuIdx) -> usize {
        let queue = &self.queues[pu.idx()];
        queue.load() - queue.fillers
    }

    /// Running task of a PU.
    pub fn running(&self, pu: PuIdx) -> Option<TaskNo> {
        self.queues[pu.idx()].running
    }

    /// Waiting tasks of a PU, in the order of their arrival.
    pub fn waiting(&self, pu: PuIdx) -> &[TaskNo] {
        &self.queues[pu.idx()].waiting
    }

    /// Running and waiting tasks of a PU.
    pub fn members(&self, pu: PuIdx) -> impl Iterator<Item = TaskNo> + '_ {
        self.queues[pu.idx()].members()
    }

    /// Whether a task runs.
    pub fn runs(&self, task: TaskNo) -> bool {
        self.pu_of(task).is_some_and(|pu| self.running(pu) == Some(task))
    }

    /// Whether a task runs or waits.
    pub fn has(&self, task: TaskNo) -> bool {
        self.pu_of(task).is_some_and(|pu| self.members(pu).any(|member| member == task))
    }

    /// Puts a task on the queue of a PU, with its lag.
    pub fn enqueue(&mut self, task: TaskNo, pu: PuIdx) {
        let (sum, weights) = self.queues[pu.idx()].sums(&self.entities);
        let Entity { virtual_time: lag, fills, .. } = self.entities[task];
        // The mean moves by the newcomer's own lag, for which EEVDF compensates. A task with a
        // negative lag stays until that is gone (DELAY_DEQUEUE, since 6.12); beside fillers that
        // happens at once.
        let among_fillers = !fills && self.normal_load(pu) == 0;
        let lag = if among_fillers { lag.max(0) } else { lag };
        let weight = self.entities[task].weight();
        let lag = if weights == 0 { 0 } else { lag.saturating_mul(weights + weight) / weights };
        self.entities[task] =
            Entity { pu: Some(pu), fills, virtual_time: mean(sum, weights) - lag };
        let queue = &mut self.queues[pu.idx()];
        queue.fillers += usize::from(fills);
        queue.waiting.push(task);
    }

    /// Takes a task off the queue of its PU. The task keeps its lag, at most a slice.
    pub fn dequeue(&mut self, task: TaskNo) {
        let Entity { pu: Some(pu), virtual_time, fills } = self.entities[task] else { return };
        let queue = &mut self.queues[pu.idx()];
        let (sum, weights) = queue.sums(&self.entities);
        let slice = i64::try_from(self.slice.0).unwrap_or(i64::MAX);
        let lag = if weights == 0 { 0 } else { mean(sum, weights) - virtual_time };
        self.entities[task].virtual_time = lag.clamp(-slice, slice);
        let before = queue.load();
        queue.waiting.retain(|&other| other != task);
        if queue.running == Some(task) {
            queue.running = None;
        }
        // A task may be on no queue.
        queue.fillers -= if fills { before - queue.load() } else { 0 };
    }

    /// Takes the lag of a task that is on no queue: a new task has none.
    pub fn forget_lag(&mut self, task: TaskNo) {
        self.entities[task].virtual_time = 0;
    }

    /// Adds run time to the virtual time of a task: inverse to its weight (EEVDF), in units of a
    /// normal task's.
    pub fn pass(&mut self, task: TaskNo, time: Nanos) {
        let entity = &mut self.entities[task];
        let time = i128::from(time.0) * i128::from(NORMAL) / i128::from(entity.weight());
        let time = i64::try_from(time).unwrap_or(i64::MAX);
        entity.virtual_time = entity.virtual_time.saturating_add(time);
    }

    /// Lets the right task of a PU run from `now` on. Whether the task has changed. `first` gives
    /// the length of the first slice when tasks begin to share the PU.
    pub fn reschedule(&mut self, pu: PuIdx, now: Nanos, first: impl FnOnce() -> Nanos) -> bool {
        let queue = &mut self.queues[pu.idx()];
        // A filler gives its PU up at once.
        let fills = queue.running.is_some_and(|task| self.entities[task].fills);
        let gives_way = fills && queue.waiting.iter().any(|&task| !self.entities[task].fills);
        let over = now >= queue.slice_end || gives_way;
        if queue.waiting.is_empty() || (queue.running.is_some() && !over) {
            return false;
        }
        let Some(next) = queue.pick(self.slice, &self.entities) else { return false };
        // A slice that ended in time is followed by a whole one; else tasks begin to share the PU.
        let begins = now != queue.slice_end && queue.load() > 1;
        queue.slice_end = now + if begins { first() } else { self.slice };
        if queue.running == Some(next) {
            return false;
        }
        queue.waiting.retain(|&task| task != next);
        queue.waiting.extend(queue.running.replace(next));
        true
    }

    /// End of the slice of a PU's running task; `None` while no task waits.
    pub fn slice_end(&self, pu: PuIdx) -> Option<Nanos> {
        self.queues[pu.idx()].slice_end()
    }

    /// Time of the next end of a slice; `None` while no task waits.
    pub fn next_slice_end(&self) -> Option<Nanos> {
        self.queues.iter().filter_map(RunQueue::slice_end).min()
    }
}

/// Mean virtual time; 0 of an empty queue.
fn mean(sum: i128, weights: i64) -> i64 {
    i64::try_from(sum / i128::from(weights.max(1))).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PU: PuIdx = PuIdx(0);

    #[test]
    fn tasks_of_a_queue_take_slices() {
        let mut queues = Queues::new(2, 2, Nanos(10));
        queues.enqueue(0, PU);
        queues.enqueue(1, PU);
        assert!(queues.reschedule(PU, Nanos(0), || Nanos(10)) && queues.runs(0));
        assert_eq!((queues.slice_end(PU), queues.waiting(PU)), (Some(Nanos(10)), &[1][..]));
        queues.pass(0, Nanos(10));
        assert!(queues.reschedule(PU, Nanos(10), || Nanos(1)) && queues.runs(1));
        assert_eq!(queues.next_slice_end(), Some(Nanos(20)));
        queues.dequeue(0);
        assert!(!queues.has(0) && queues.pu_of(0) == Some(PU) && queues.load(PU) == 1);
    }

    #[test]
    fn a_filler_gives_way_at_once() {
        let mut queues = Queues::new(1, 2, Nanos(10));
        queues.set_filler(0, true);
        queues.enqueue(0, PU);
        queues.reschedule(PU, Nanos(0), || Nanos(10));
        queues.enqueue(1, PU);
        assert_eq!((queues.load(PU), queues.normal_load(PU)), (2, 1));
        assert!(queues.reschedule(PU, Nanos(5), || Nanos(10)) && queues.runs(1));
    }
}
