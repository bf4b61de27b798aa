//! Moves of tasks onto queues, off queues and between PUs.

use crate::tally::count_move;
use crate::task::TaskNo;
use crate::world::World;
use colocate_machine::PuIdx;
use colocate_model::Seat;

impl World<'_> {
    /// Puts a ready task on the queue of a PU.
    pub(crate) fn join_queue(&mut self, task: TaskNo, pu: PuIdx) {
        self.note_move(task, pu);
        self.queues.enqueue(task, pu);
        self.tasks[task].since = self.events.now();
        self.timers.note_change();
        self.watch_pages(task);
    }

    /// Takes a task off its queue; does nothing for a task without a PU.
    pub(crate) fn leave_queue(&mut self, task: TaskNo) {
        let Some(pu) = self.queues.pu_of(task) else { return };
        let ran = self.queues.runs(task);
        self.queues.dequeue(task);
        if self.queues.load(pu) == 0 {
            self.timers.note_empty(pu);
        }
        if ran {
            self.rates.note_change();
        } else {
            self.end_wait(task);
        }
        self.timers.note_change();
    }

    /// Moves a ready task to another PU.
    pub(crate) fn migrate(&mut self, task: TaskNo, to: PuIdx) {
        if self.queues.pu_of(task) == Some(to) {
            return;
        }
        self.leave_queue(task);
        self.join_queue(task, to);
    }

    /// Counts a move to `to`, and charges the refill of cold caches. A task on the same PU is
    /// charged only after a stop.
    pub(crate) fn note_move(&mut self, task: TaskNo, to: PuIdx) {
        let Some(from) = self.queues.pu_of(task) else { return };
        let stopped_at = self.tasks[task].stopped_at.take();
        if from == to && stopped_at.is_none() {
            return;
        }
        let left = stopped_at.map_or_else(Vec::new, |then| self.pollution.left(from, &then));
        let task = &mut self.tasks[task];
        if from != to {
            count_move(self.platform.machine(), &mut task.total.moves, from, to);
        }
        let demand = self.demands.of(task.course.phase(), self.platform.kind_of(to));
        let seat = Seat { pu: to, demand, pages: &task.pages, space: task.id.job.0 };
        let now = self.rates.now();
        let cold = self.platform.model().refill(&seat, from, &task.occupancy, &left, now);
        // Moves before the refill ends do not add up: a cache is at most all cold.
        task.refill_s = task.refill_s.max(cold.seconds);
    }
}
