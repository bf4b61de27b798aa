//! Counters: instructions, cycles, requests to caches and memory, CPI stacks.

use crate::parts::Parts;
use crate::task::TaskNo;
use colocate_evidence::{SeenTask, TaskCounts};
use colocate_model::Stack;

/// Reports the hardware counts of a task.
pub(super) fn report(parts: &Parts<'_>, task: TaskNo, seen: &mut SeenTask) {
    let task = &parts.tasks[task];
    let counted = &task.counted;
    seen.instructions = Some(whole(counted.instructions));
    seen.cycles = Some(whole(task.total.cycles));
    seen.counts = Some(Box::new(TaskCounts {
        accesses: counted.accesses.map(whole),
        misses: Some(counted.misses.iter().copied().map(whole).collect()),
        memory_bytes: Some(whole(task.total.memory_bytes)),
        stack: Some(Stack::from(&counted.stack)),
    }));
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts are not negative
fn whole(count: f64) -> u64 {
    count.round() as u64
}
