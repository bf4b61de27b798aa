//! Going through an observation once, for many threads: a search for each would cost more than all that is done with it.

use crate::host::SeenTask;
use colocate_policy::TaskId;

/// An observation's tasks, asked for in the order of their IDs.
pub(crate) struct TaskLookup<'a>(&'a [SeenTask]);

impl<'a> TaskLookup<'a> {
    /// Of tasks in the order of their IDs.
    pub fn through(tasks: &'a [SeenTask]) -> Self {
        Self(tasks)
    }

    /// The task with this ID, if it is there. IDs never go down from one call to the next.
    pub fn find(&mut self, id: TaskId) -> Option<&'a SeenTask> {
        while let Some((first, rest)) = self.0.split_first().filter(|(first, _)| first.id < id) {
            debug_assert!(rest.first().is_none_or(|next| next.id > first.id));
            self.0 = rest;
        }
        self.0.first().filter(|task| task.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Counts, PlacementStatus};
    use colocate_machine::Nanos;
    use colocate_model::Mix;
    use colocate_policy::JobIdx;

    fn task((job, order): (u32, u32)) -> SeenTask {
        SeenTask {
            id: TaskId { job: JobIdx(job), order },
            name: "".into(),
            born: Nanos::ZERO,
            ended: None,
            cpu_time: None,
            waited: None,
            spun: None,
            instructions: None,
            cycles: None,
            counts: Counts::default(),
            mix: Mix::default(),
            target_pu: None,
            status: PlacementStatus::LeftToKernel,
            allowed: [].into(),
            last_ran: None,
        }
    }

    /// All IDs up to some, each once or twice: found are those that are there.
    #[test]
    fn who_is_there_is_found() {
        let tasks: Vec<SeenTask> = [(0, 1), (0, 4), (1, 0), (3, 2)].map(task).to_vec();
        let mut lookup = TaskLookup::through(&tasks);
        let ids = (0..5).flat_map(|job| (0..5).map(move |order| (job, order)));
        for (job, order) in ids {
            let id = TaskId { job: JobIdx(job), order };
            for _ in 0..=order % 2 {
                let there = tasks.iter().any(|task| task.id == id);
                assert_eq!(lookup.find(id).map(|task| task.id), there.then_some(id));
            }
        }
        assert!(TaskLookup::through(&[]).find(tasks[0].id).is_none());
    }
}
