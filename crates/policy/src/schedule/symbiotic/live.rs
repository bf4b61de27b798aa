//! The threads that there are, to be looked up.

use crate::schedule::{QueuedJob, Thread};
use colocate_evidence::TaskId;

/// A thread of the queue.
#[derive(Clone, Copy)]
pub(in crate::schedule) struct LiveThread<'a> {
    pub thread: &'a Thread,
    /// Its job ran in the last quantum.
    pub just_ran: bool,
}

/// All threads of the queue, in the order of their names; one of each name.
pub(in crate::schedule) fn all(queue: &[QueuedJob]) -> Vec<LiveThread<'_>> {
    let of = |job: &'_ QueuedJob| {
        let just_ran = job.just_ran;
        move |thread| LiveThread { thread, just_ran }
    };
    let mut found: Vec<LiveThread<'_>> =
        queue.iter().flat_map(|job| job.threads.iter().map(of(job))).collect();
    // Queues are runs of sorted threads, which this sort makes use of.
    found.sort_by_key(|there| there.thread.id);
    found.dedup_by_key(|there| there.thread.id);
    found
}

/// The thread of this name.
pub(super) fn find<'a>(there: &[LiveThread<'a>], id: TaskId) -> Option<LiveThread<'a>> {
    there.binary_search_by_key(&id, |there| there.thread.id).ok().map(|at| there[at])
}
