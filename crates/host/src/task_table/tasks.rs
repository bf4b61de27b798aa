//! Tasks by ID and by thread: all that live, and some that have ended.

use crate::task::TrackedTask;
use colocate_evidence::{JobIdx, TaskId};
use colocate_linux::Tid;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::{Bound, RangeInclusive};

/// Number of ended tasks with records of their own. A longer report is useless, and a program can
/// create millions of threads.
pub(super) const REMEMBERED: usize = 10_000;
/// Number of remembered ended tasks if all are read every quantum, where the last to end matter,
/// not the first. Chosen: more than end in a quantum, few enough to cost little in each.
pub(super) const REMEMBERED_LAST: usize = 512;

/// Living and remembered tasks.
#[derive(Debug, Default)]
pub struct Tasks {
    by_id: BTreeMap<TaskId, TrackedTask>,
    by_tid: HashMap<Tid, TaskId>,
    /// Living tasks not asleep at their last reading.
    pub to_read: BTreeSet<TaskId>,
    /// Living tasks asleep at their last reading, each the only thread of its process.
    pub sleeping_alone: BTreeSet<TaskId>,
    /// Remembered ended tasks, in the order of their ends.
    ended: VecDeque<TaskId>,
    /// Whether the last ended tasks are remembered, and not the first.
    pub keeps_last: bool,
    /// Number of forgotten ended tasks.
    pub forgotten: u64,
    /// Maximum number of tasks alive at once.
    pub most_living: usize,
}

impl Tasks {
    /// Adds a living task.
    pub(super) fn add(&mut self, task: TrackedTask) {
        self.make_living(task.thread.tid, task.id);
        self.by_id.insert(task.id, task);
        self.most_living = self.most_living.max(self.by_tid.len());
    }

    /// Makes a task the living task of a thread.
    pub(super) fn make_living(&mut self, tid: Tid, id: TaskId) {
        self.by_tid.insert(tid, id);
        self.to_read.insert(id);
    }

    /// Records that the task of a thread has ended.
    pub(super) fn end(&mut self, tid: Tid) -> Option<&mut TrackedTask> {
        let id = self.by_tid.remove(&tid)?;
        self.to_read.remove(&id);
        self.sleeping_alone.remove(&id);
        self.by_id.get_mut(&id)
    }

    /// Remembers an ended task; above [`REMEMBERED`] another ended task is forgotten.
    pub(super) fn remember(&mut self, id: TaskId) {
        let forgotten = match (self.keeps_last, self.ended.len()) {
            (true, REMEMBERED_LAST..) => {
                self.ended.push_back(id);
                self.ended.pop_front()
            }
            (false, REMEMBERED..) => Some(id),
            _ => {
                self.ended.push_back(id);
                None
            }
        };
        // One that lives after all is not forgotten.
        let forgotten = forgotten.filter(|id| self.get(*id).is_some_and(|it| it.ended.is_some()));
        if let Some(id) = forgotten {
            self.by_id.remove(&id);
            self.forgotten += 1;
        }
    }

    /// Task with this ID; `None` if forgotten.
    pub fn get(&self, id: TaskId) -> Option<&TrackedTask> {
        self.by_id.get(&id)
    }

    /// Task with this ID, to be changed; `None` if forgotten.
    pub fn get_mut(&mut self, id: TaskId) -> Option<&mut TrackedTask> {
        self.by_id.get_mut(&id)
    }

    /// All remembered tasks in the order of their IDs.
    pub fn remembered(&self) -> impl ExactSizeIterator<Item = &TrackedTask> {
        self.by_id.values()
    }

    /// Remembered tasks with these IDs.
    pub(super) fn range(&self, ids: RangeInclusive<TaskId>) -> impl Iterator<Item = &TrackedTask> {
        self.by_id.range(ids).map(|(_, task)| task)
    }

    /// A living task by its thread.
    pub fn living(&self, tid: Tid) -> Option<TaskId> {
        self.by_tid.get(&tid).copied()
    }

    /// The living tasks of all threads.
    pub fn all_living(&self) -> impl Iterator<Item = &TrackedTask> {
        self.by_tid.values().filter_map(|id| self.by_id.get(id))
    }

    /// The living tasks of a job, in the order of their IDs.
    pub fn living_of(&mut self, job: JobIdx) -> impl Iterator<Item = &mut TrackedTask> {
        let of_job = TaskId { job, order: 0 }..=TaskId { job, order: u32::MAX };
        let tasks = self.by_id.range_mut(of_job).map(|(_, task)| task);
        tasks.filter(|task| task.ended.is_none())
    }

    /// At most `most` living tasks after the task `after`, in the order of their IDs.
    pub fn living_after(&self, after: Option<TaskId>, most: usize) -> Vec<TaskId> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tasks = self.by_id.range((after, Bound::Unbounded)).map(|(_, task)| task);
        tasks.filter(|task| task.ended.is_none()).map(|task| task.id).take(most).collect()
    }

    /// All living tasks, in the order of their IDs.
    pub fn living_mut(&mut self) -> impl Iterator<Item = &mut TrackedTask> {
        self.by_id.values_mut().filter(|task| task.ended.is_none())
    }

    /// Tasks of [`Tasks::to_read`] that did not sleep at their last reading.
    pub fn runnable(&self) -> impl Iterator<Item = &TrackedTask> {
        self.to_read.iter().filter_map(|id| self.get(*id)).filter(|task| !task.usage.sleeps)
    }
}
