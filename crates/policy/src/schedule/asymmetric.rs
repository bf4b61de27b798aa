//! Common parts of the policies for cores of different speeds: fast cores, costs of moves,
//! placement of threads, rotation, and speed-up factors.

pub mod cores;
pub mod factors;
pub mod rotation;

use super::{Allocated, Quantum, QueuedJob, Selected, SelectedJob, Thread};
use crate::row::Knowledge;
use colocate_evidence::{Source, SourceSet};
use colocate_machine::{Performance, PuIdx};
use colocate_model::Phase;
use cores::Cores;
use std::collections::{BTreeSet, VecDeque};

/// Evidence for the number of runnable threads of a job.
pub(super) const PHASES: SourceSet =
    SourceSet::of(&[Source::RunStates, Source::Phases, Source::Spinning]);
/// Evidence of [`PHASES`] and of the threads' rates on each kind of core.
pub(super) const RATES_AND_PHASES: SourceSet =
    SourceSet::of(&[Source::RunStates, Source::Phases, Source::Spinning, Source::Counters]);

/// The machine's performance and the demands of each job; `None` if the performance is unknown.
pub(super) fn demands(known: &Knowledge<'_>) -> Option<(Performance, Vec<Phase>)> {
    Some((known.performance?.clone(), known.demands.to_vec()))
}

/// PU and reason of a thread; `None`: not pinned.
pub(super) type Seat = (Option<PuIdx>, Allocated);

/// Seat of a thread that is left to the kernel.
pub(super) const NO_SEAT: Seat = (None, Allocated::LeftToKernel);

/// Choices that run all jobs. `seats` are in the order of the queue and of the jobs' threads.
pub(super) fn choices(queue: &[QueuedJob], seats: Vec<Seat>) -> Vec<SelectedJob> {
    let mut seats = seats.into_iter();
    let choices = queue.iter().map(|job| SelectedJob {
        job: job.job,
        selected: Selected::Room,
        // `by_ref`: each job takes the next seats of the same iterator.
        places: seats.by_ref().take(job.threads.len()).collect(),
    });
    choices.collect()
}

/// All threads of the queue, in order.
pub(super) fn threads_of(queue: &[QueuedJob]) -> Vec<&Thread> {
    queue.iter().flat_map(|job| &job.threads).collect()
}

/// The usable cores of a quantum. `None` if all are equally fast, which is reported once.
pub(super) fn cores_of(now: &Quantum<'_>, messages: &mut Messages) -> Option<Cores> {
    let cores = Cores::new(now.machine, now.pus);
    if cores.are_alike() {
        messages
            .once("all cores that may be used are equally fast: everything is left to the kernel");
        return None;
    }
    Some(cores)
}

/// Places of the threads whose jobs fulfil `is`, among all threads of the queue. Without bound
/// threads, whose programs chose their PUs.
pub(super) fn free_places_of(queue: &[QueuedJob], is: impl Fn(&QueuedJob) -> bool) -> Vec<usize> {
    let threads = queue.iter().flat_map(|job| job.threads.iter().map(move |thread| (job, thread)));
    let free = threads.enumerate().filter(|(_, (job, thread))| is(job) && !thread.bound);
    free.map(|(at, _)| at).collect()
}

/// Puts the first threads of `ranked` on the fast cores and spreads the rest of `ranked` over the
/// other PUs. `ranked` holds places among `threads`; `why` is the reason for a fast core. Threads
/// outside `ranked` are left to the kernel.
pub(super) fn fast_for(
    cores: &Cores,
    threads: &[&Thread],
    ranked: &[usize],
    why: impl Fn(usize) -> Allocated,
) -> Vec<Seat> {
    let fast: Vec<usize> = cores.fast().collect();
    let first = &ranked[..ranked.len().min(fast.len())];
    let members: Vec<&Thread> = first.iter().map(|&at| threads[at]).collect();
    let mut places = vec![NO_SEAT; threads.len()];
    let mut taken = Vec::with_capacity(first.len());
    for (&at, core) in first.iter().zip(cores.seats(&members, &fast, &|_, _| true)) {
        let Some(core) = core else { continue };
        let pu = cores.pu_for(threads[at], core);
        places[at] = (Some(pu), why(at));
        taken.push((core, pu));
    }
    let mut others: Vec<usize> =
        ranked.iter().copied().filter(|&at| places[at].0.is_none()).collect();
    // In the order of the queue, so that changes of rank alone move no thread.
    others.sort_unstable();
    let rest: Vec<&Thread> = others.iter().map(|&at| threads[at]).collect();
    let pus = cores.spread(&rest, &cores.groups_beside(&taken), &taken);
    for (at, pu) in others.into_iter().zip(pus).filter(|(_, pu)| pu.is_some()) {
        places[at] = (pu, Allocated::OffFast);
    }
    places
}

/// Messages to the user; each text is reported once.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages {
    reported: BTreeSet<&'static str>,
    /// Not yet drained.
    waiting: VecDeque<&'static str>,
}

impl Messages {
    /// Queues a message that was never queued before.
    pub fn once(&mut self, text: &'static str) {
        // `reported` is never emptied, so a text comes once a run.
        if self.reported.insert(text) {
            self.waiting.push_back(text);
        }
    }

    /// Takes the queued messages.
    pub fn drain(&mut self) -> Vec<String> {
        self.waiting.drain(..).map(str::to_owned).collect()
    }
}

/// Message of a scheduler that needs the number of runnable threads, where unknown.
pub(super) const NO_PHASES: &str = "the number of runnable threads of a job is unknown, and so are its phases: it is left to the kernel";

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
