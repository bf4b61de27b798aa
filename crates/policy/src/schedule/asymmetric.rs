//! What the policies for cores of different speeds have in common: which cores are fast, what a move costs, which thread goes
//! where, whose turn it is, and what a fast core is worth to a thread.

pub mod cores;
pub mod factors;
pub mod rotation;

use super::{Allocated, Choice, Quantum, QueuedJob, Selected, Thread};
use crate::row::Knowledge;
use colocate_evidence::{Source, SourceSet};
use colocate_machine::{Performance, PuIdx};
use colocate_model::Phase;
use cores::Cores;
use std::collections::{BTreeSet, VecDeque};

/// How many threads of a job are runnable.
pub(super) const PHASES: SourceSet =
    SourceSet::of(&[Source::RunStates, Source::Phases, Source::Spinning]);
/// The same, and what cores make of threads.
pub(super) const RATES_AND_PHASES: SourceSet =
    SourceSet::of(&[Source::RunStates, Source::Phases, Source::Spinning, Source::Counters]);

/// What jobs demand of the machine, where both are known.
pub(super) fn demands(known: &Knowledge<'_>) -> Option<(Performance, Vec<Phase>)> {
    Some((known.performance?.clone(), known.demands.to_vec()))
}

/// A PU and why.
pub(super) type Seat = (PuIdx, Allocated);

/// All jobs run. Threads have the places that `seats` says, in the order of the queue and of the jobs' threads; the others
/// are left to the kernel.
pub(super) fn choices(queue: &[QueuedJob], seats: Vec<Option<Seat>>) -> Vec<Choice> {
    let place = |seat: Option<Seat>| match seat {
        Some((pu, why)) => (Some(pu), why),
        None => (None, Allocated::LeftToKernel),
    };
    choices_as(queue, seats.into_iter().map(place))
}

/// The same with a reason for those that are left to the kernel, too.
pub(super) fn choices_as(
    queue: &[QueuedJob],
    mut places: impl Iterator<Item = (Option<PuIdx>, Allocated)>,
) -> Vec<Choice> {
    let choice = |job: &QueuedJob| Choice {
        job: job.job,
        selected: Selected::Room,
        places: places.by_ref().take(job.threads.len()).collect(),
    };
    queue.iter().map(choice).collect()
}

/// All threads of the queue, in its order.
pub(super) fn threads_of(queue: &[QueuedJob]) -> Vec<&Thread> {
    queue.iter().flat_map(|job| &job.threads).collect()
}

/// The cores of a quantum; `None` where all that may be used are alike, which is reported once.
pub(super) fn cores_of(now: &Quantum<'_>, messages: &mut Messages) -> Option<Cores> {
    let cores = Cores::new(now.machine, now.pus);
    if cores.are_alike() {
        messages
            .once("all cores that may be used are equally fast: everything is left to the kernel");
        return None;
    }
    Some(cores)
}

/// Places among the threads of those whose jobs fulfil `is`, in the order of the queue.
pub(super) fn places_of(queue: &[QueuedJob], mut is: impl FnMut(&QueuedJob) -> bool) -> Vec<usize> {
    let of_job = |job: &QueuedJob| std::iter::repeat_n(is(job), job.threads.len());
    let flags = queue.iter().flat_map(of_job);
    flags.enumerate().filter_map(|(at, is)| is.then_some(at)).collect()
}

/// Those of them that can be put elsewhere.
pub(super) fn free_places_of(
    queue: &[QueuedJob],
    is: impl FnMut(&QueuedJob) -> bool,
) -> Vec<usize> {
    let threads = threads_of(queue);
    places_of(queue, is).into_iter().filter(|&at| !threads[at].bound).collect()
}

/// The first of `ranked`, which are places among the threads, get the fast cores, and the others of them are spread
/// over what is left; `why` is for those that get one. A thread that is not among them is left to the kernel.
pub(super) fn fast_for(
    cores: &Cores,
    threads: &[&Thread],
    ranked: &[usize],
    why: impl Fn(usize) -> Allocated,
) -> Vec<Option<Seat>> {
    let fast: Vec<usize> = cores.fast().collect();
    let first = &ranked[..ranked.len().min(fast.len())];
    let members: Vec<&Thread> = first.iter().map(|&at| threads[at]).collect();
    let mut places: Vec<Option<Seat>> = vec![None; threads.len()];
    let mut taken = Vec::with_capacity(first.len());
    for (&at, core) in first.iter().zip(cores.seats(&members, &fast, &|_, _| true)) {
        let Some(core) = core else { continue };
        let pu = cores.pu_for(threads[at], core);
        places[at] = Some((pu, why(at)));
        taken.push((core, pu));
    }
    let mut others: Vec<usize> =
        ranked.iter().copied().filter(|&at| places[at].is_none()).collect();
    others.sort_unstable();
    let rest: Vec<&Thread> = others.iter().map(|&at| threads[at]).collect();
    let pus = cores.spread(&rest, &cores.groups_beside(&taken), &taken);
    for (at, pu) in others.into_iter().zip(pus) {
        places[at] = pu.map(|pu| (pu, Allocated::OffFast));
    }
    places
}

/// Messages, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages {
    reported: BTreeSet<&'static str>,
    waiting: VecDeque<&'static str>,
}

impl Messages {
    /// Reports it, unless it was reported before.
    pub fn once(&mut self, text: &'static str) {
        if self.reported.insert(text) {
            self.waiting.push_back(text);
        }
    }

    /// What is not reported yet.
    pub fn drain(&mut self) -> Vec<String> {
        self.waiting.drain(..).map(str::to_owned).collect()
    }
}

/// The message of a scheduler that needs runnable threads where they are not counted.
pub(super) const NO_PHASES: &str = "the number of runnable threads of a job is unknown, and so are its phases: it is left to the kernel";

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
