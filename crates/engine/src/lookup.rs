//! Look-ups of many threads in one pass through an observation: a search for each would dominate
//! the cost.

use colocate_evidence::{JobIdx, SeenTask, TaskId};

/// Tasks of an observation, looked up in the order of their IDs.
pub(crate) struct TaskLookup<'a>(&'a [SeenTask]);

impl<'a> TaskLookup<'a> {
    /// A look-up in `tasks`, which are in the order of their IDs.
    pub fn through(tasks: &'a [SeenTask]) -> Self {
        Self(tasks)
    }

    /// The task with this ID, if present. IDs never decrease from one call to the next.
    pub fn find(&mut self, id: TaskId) -> Option<&'a SeenTask> {
        while let Some((first, rest)) = self.0.split_first().filter(|(first, _)| first.id < id) {
            debug_assert!(rest.first().is_none_or(|next| next.id > first.id));
            self.0 = rest;
        }
        self.0.first().filter(|task| task.id == id)
    }
}

/// The tasks of one job.
pub(crate) fn of_job(tasks: &[SeenTask], job: JobIdx) -> &[SeenTask] {
    let begin = tasks.partition_point(|task| task.id.job < job);
    let rest = &tasks[begin..];
    &rest[..rest.partition_point(|task| task.id.job == job)]
}

/// Tasks of each job that has any, without a visit of each task.
pub(crate) fn by_job(tasks: &[SeenTask]) -> impl Iterator<Item = (JobIdx, &[SeenTask])> {
    let mut rest = tasks;
    std::iter::from_fn(move || {
        let job = rest.first()?.id.job;
        let (of_job, others) = rest.split_at(rest.partition_point(|task| task.id.job == job));
        rest = others;
        Some((job, of_job))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_evidence::JobIdx;
    use colocate_machine::Nanos;

    fn task((job, order): (u32, u32)) -> SeenTask {
        SeenTask::new(TaskId { job: JobIdx(job), order }, "".into(), Nanos::ZERO)
    }

    /// All IDs up to some, each once or twice: found are those that are there.
    #[test]
    fn present_tasks_are_found() {
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
