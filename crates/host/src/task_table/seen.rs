//! Remembered tasks as reports have them.

use super::TaskTable;
use crate::task::TrackedTask;
use colocate_evidence::{JobIdx, PlacementStatus, SeenTask, TaskCounts};
use colocate_machine::{Nanos, PuSet};
use colocate_observe::sources::counters::DataLevels;
use std::collections::BTreeSet;
use std::sync::Arc;

/// All remembered tasks in the order of their IDs, with times since `launch`.
///
/// Tasks of the `waiting` jobs have the status waiting.
pub fn seen(table: &TaskTable, launch: Nanos, waiting: &BTreeSet<JobIdx>) -> Vec<SeenTask> {
    // Most tasks may run on the same PUs, and to list these takes longer than all the rest.
    let none = PuSet::new();
    let mut pus = &none;
    let mut listed = Arc::default();
    let seen = table.tasks.remembered().map(|task| {
        if task.thread.allowed != *pus {
            pus = &task.thread.allowed;
            listed = pus.iter().collect();
        }
        let waits = task.ended.is_none() && waiting.contains(&task.id.job);
        let status = &task.placement.status;
        SeenTask {
            ended: task.ended.map(|end| end.saturating_sub(launch)),
            cpu_time: task.usage.cpu_time,
            waited: task.usage.waited,
            switches: task.usage.switches,
            instructions: task.usage.instructions(),
            cycles: task.usage.counted.as_ref().and_then(|counted| counted.cycles),
            counts: counts(&table.levels, task).map(Box::new),
            target: task.placement.target,
            status: if waits { PlacementStatus::Waiting } else { status.clone() },
            allowed: listed.clone(),
            last_ran: task.thread.last_ran,
            ..SeenTask::new(task.id, task.name.clone(), task.created.saturating_sub(launch))
        }
    });
    seen.collect()
}

fn counts(levels: &DataLevels, task: &TrackedTask) -> Option<TaskCounts> {
    let counted = task.usage.counted.as_deref()?;
    Some(TaskCounts {
        accesses: counted.accesses,
        misses: task.thread.last_ran.and_then(|pu| levels.misses(counted, pu)),
        memory_bytes: None,
        stack: counted.stack,
    })
}
