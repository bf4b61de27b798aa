//! The clock of a simulation, and the creations and wake-ups to come.

use crate::task::TaskNo;
use colocate_machine::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Tasks by the time of an event, earliest first.
type TaskTimers = BinaryHeap<Reverse<(Nanos, TaskNo)>>;

/// A due event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// A task is to be created.
    Creation(TaskNo),
    /// The sleep of a task ends.
    WakeUp(TaskNo),
}

/// The clock, and the times of tasks.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    /// The present time.
    pub now: Nanos,
    creations: TaskTimers,
    wakes: TaskTimers,
}

impl EventQueue {
    /// Adds the creation of a task.
    pub fn create_at(&mut self, at: Nanos, task: TaskNo) {
        self.creations.push(Reverse((at, task)));
    }

    /// Adds the end of a task's sleep.
    pub fn wake_at(&mut self, at: Nanos, task: TaskNo) {
        self.wakes.push(Reverse((at, task)));
    }

    /// Removes the first due event, creations first; `None` if none is due.
    pub fn pop_due(&mut self) -> Option<Due> {
        pop(&mut self.creations, self.now)
            .map(Due::Creation)
            .or_else(|| pop(&mut self.wakes, self.now).map(Due::WakeUp))
    }

    /// Time of the next event; `None` without any.
    pub fn next(&self) -> Option<Nanos> {
        let first = [&self.creations, &self.wakes].into_iter().filter_map(BinaryHeap::peek);
        first.map(|first| first.0.0).min()
    }
}

/// Removes the first due task; `None` if none is due.
fn pop(heap: &mut TaskTimers, now: Nanos) -> Option<TaskNo> {
    if heap.peek()?.0.0 > now {
        return None;
    }
    heap.pop().map(|Reverse((_, task))| task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creations_come_before_wake_ups() {
        let mut events = EventQueue::default();
        events.wake_at(Nanos(1), 7);
        events.create_at(Nanos(2), 8);
        events.create_at(Nanos(3), 9);
        assert_eq!((events.next(), events.pop_due()), (Some(Nanos(1)), None));
        events.now = Nanos(2);
        let due = std::iter::from_fn(|| events.pop_due());
        assert_eq!(due.collect::<Vec<_>>(), [Due::Creation(8), Due::WakeUp(7)]);
        assert_eq!(events.next(), Some(Nanos(3)));
    }
}
