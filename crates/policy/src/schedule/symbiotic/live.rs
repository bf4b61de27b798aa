//! The threads of a queue, sorted for look-up.

use crate::schedule::{QueuedJob, Thread};
use colocate_evidence::TaskId;

/// A thread of the queue.
#[derive(Clone, Copy)]
pub(in crate::schedule) struct LiveThread<'a> {
    pub thread: &'a Thread,
    /// Whether its job ran in the last quantum.
    pub just_ran: bool,
}

/// All threads of the queue, in the order of their ids; of equal ids only the first.
pub(in crate::schedule) fn all(queue: &[QueuedJob]) -> Vec<LiveThread<'_>> {
    let threads = queue.iter().flat_map(|job| {
        job.threads.iter().map(move |thread| LiveThread { thread, just_ran: job.just_ran })
    });
    let mut found: Vec<LiveThread<'_>> = threads.collect();
    // Queues are runs of sorted threads, which this sort makes use of.
    found.sort_by_key(|there| there.thread.id);
    found.dedup_by_key(|there| there.thread.id);
    found
}

/// The thread with this id.
pub(super) fn find<'a>(there: &[LiveThread<'a>], id: TaskId) -> Option<LiveThread<'a>> {
    there.binary_search_by_key(&id, |there| there.thread.id).ok().map(|at| there[at])
}
