//! Quanta in which a thread has a core alone, because stacks beside siblings do not show its stack
//! alone.
//!
//! # Problem
//! With some coefficients, or some stacks, cycles cannot be attributed to threads: the inverse is
//! not unique, or a little noise becomes a large error.
//! # Approach
//! The thread runs alone on its core for a quantum and shows its stack alone. This leaves contexts
//! empty, so it is rationed.
//! # Terms
//! - *Credit*: contexts that may be left empty; every quantum adds [`SHARE`] of all contexts.
//! - *Sample*: the stack of a thread alone on a core, valid for [`GOOD_FOR`] quanta.
//! # Algorithm
//! 1. A thread that shows stacks *needs* a sample if it has no valid one, and if the coefficients
//!    do not find stacks alone well ([`Conditioning::is_good`]) or the last inverse of its stack
//!    did not converge.
//! 2. Threads without a sample come first, then the oldest sample; equals in the order of the
//!    queue.
//! 3. While there is credit, each gets the core where it last ran, or the first free core. If there
//!    is no room for the last of the chosen jobs, they wait, and keep their places in the queue.
//! # Properties
//! - **Rationed**: no more contexts are left empty than the share says. -> test `solo_is_rationed`
//! - **Every thread** that needs a sample gets one.
//!   -> test `solo_shows_what_stacks_together_do_not`
//! - **Never needed** where stacks alone are found well. -> test `no_solo_where_stacks_are_known`
//!
//! [`Conditioning::is_good`]: colocate_model::symbiosis::Conditioning::is_good

use super::stacks::StackTable;
use crate::places::UsableMachine;
use crate::schedule::{Quantum, Selected, Thread};
use colocate_evidence::TaskId;
use colocate_machine::PuIdx;

/// Share of the contexts that may be left empty for samples, over time. Chosen: more would cost
/// more than the 5 % that symbiotic schedules are published to gain.
pub(crate) const SHARE: f64 = 0.02;

/// Quanta for which a sample is valid, as programs have phases. Chosen.
pub(crate) const GOOD_FOR: u64 = 20;

/// A thread that runs alone on a core.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SoloThread {
    pub thread: TaskId,
    /// Place among the usable cores.
    core: usize,
    pub pu: PuIdx,
}

/// Ration of contexts that may be left empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Ration {
    /// Contexts that may be left empty now.
    credit: f64,
    /// Samples arranged so far.
    pub given: u64,
}

impl Ration {
    /// Chooses the threads that run alone. Jobs without room beside them leave `chosen`.
    pub fn choose(
        &mut self,
        now: &Quantum<'_>,
        table: &StackTable,
        places: &UsableMachine<'_>,
        well_conditioned: bool,
        chosen: &mut Vec<(usize, Selected)>,
    ) -> Vec<SoloThread> {
        let contexts = places.pus.len();
        // At most a quarter of the contexts at once, but always enough for one core.
        let most = (contexts as f64 / 4.0).max(places.width() as f64);
        self.credit = (self.credit + SHARE * contexts as f64).min(most);
        let threads: usize = chosen.iter().map(|(at, _)| now.queue[*at].threads.len()).sum();
        let mut found = Vec::new();
        // With a core for each thread all are alone; with more threads than contexts, PUs are
        // shared.
        if threads <= places.cores.len() || threads > contexts {
            return found;
        }
        for thread in wanting(now, table, well_conditioned, chosen) {
            let Some(core) = core_for(places, thread, &found) else { break };
            let pus = &places.cores[core].pus;
            // The thread itself takes one of the core's contexts.
            // The price of a thread alone: the other PUs of its core stay empty.
            let empty = (pus.len() - 1) as f64;
            if self.credit < empty {
                break;
            }
            let pu = thread.pu.filter(|pu| pus.contains(pu)).unwrap_or(pus[0]);
            found.push(SoloThread { thread: thread.id, core, pu });
            if make_room(now, places, &found, chosen) {
                self.credit -= empty;
                self.given += 1;
            } else {
                found.pop();
            }
        }
        found
    }
}

/// The chosen threads that need a sample, most urgent first.
fn wanting<'a>(
    now: &Quantum<'a>,
    table: &StackTable,
    well_conditioned: bool,
    chosen: &[(usize, Selected)],
) -> Vec<&'a Thread> {
    let threads = chosen.iter().flat_map(|(at, _)| &now.queue[*at].threads);
    let needing = threads.filter(|thread| {
        let age = table.sample_age(thread.id);
        let doubtful = !well_conditioned || table.is_doubtful(thread.id);
        doubtful && table.shows(thread) && age.is_none_or(|age| age >= GOOD_FOR)
    });
    let mut found: Vec<&Thread> = needing.collect();
    // A thread without a sample comes before the oldest sample.
    found.sort_by_key(|thread| std::cmp::Reverse(table.sample_age(thread.id).unwrap_or(u64::MAX)));
    found
}

/// The core where the thread last ran, else the first that no thread has alone, if any.
fn core_for(places: &UsableMachine<'_>, thread: &Thread, taken: &[SoloThread]) -> Option<usize> {
    let cores = &places.cores;
    let last = thread.pu.and_then(|pu| cores.iter().position(|core| core.pus.contains(&pu)));
    last.into_iter()
        .chain(0..cores.len())
        .find(|&core| taken.iter().all(|alone| alone.core != core))
}

/// Removes the last of the chosen jobs until the others fit on the remaining PUs. Jobs with threads
/// that run alone stay. False, with `chosen` unchanged, if they cannot fit.
fn make_room(
    now: &Quantum<'_>,
    places: &UsableMachine<'_>,
    alone: &[SoloThread],
    chosen: &mut Vec<(usize, Selected)>,
) -> bool {
    let taken: usize = alone.iter().map(|alone| places.cores[alone.core].pus.len()).sum();
    // Each thread alone uses one PU of its core.
    let room = places.pus.len() - taken + alone.len();
    let mut threads: usize = chosen.iter().map(|(at, _)| now.queue[*at].threads.len()).sum();
    let mut kept = chosen.clone();
    // From the end: the jobs chosen last leave first.
    for place in (0..chosen.len()).rev() {
        if threads <= room {
            break;
        }
        let job = &now.queue[kept[place].0];
        if job.threads.iter().all(|thread| alone.iter().all(|alone| alone.thread != thread.id)) {
            threads -= job.threads.len();
            kept.remove(place);
        }
    }
    let fits = threads <= room;
    if fits {
        *chosen = kept;
    }
    fits
}

/// The usable PUs on cores that no thread has alone.
pub(super) fn others(places: &UsableMachine<'_>, alone: &[SoloThread]) -> Vec<PuIdx> {
    let cores = places.cores.iter().enumerate();
    let left = cores.filter(|(core, _)| alone.iter().all(|alone| alone.core != *core));
    left.flat_map(|(_, core)| core.pus.iter().copied()).collect()
}
