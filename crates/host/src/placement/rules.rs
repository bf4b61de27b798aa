//! Placement rules: decisions from facts, without system calls. docs/reference/run.md has the rules in a table.
//!
//! A thread that is pinned to one PU counts one PU, and hands its mask down to the threads and processes that it creates. So a thread
//! is pinned once its program has counted PUs, and is exempt while processes that it creates would count them.

use crate::runtime::Runtime;
use colocate_act::journal::Mark;
use colocate_evidence::{Exemption, PlacementStatus};
use colocate_machine::Nanos;
use colocate_policy::Place;

/// Longest exemption after a fork, in settle times. Chosen: 7.5 seconds by default, for programs that fork again and again.
const FORK_EXEMPTION: u64 = 50;
/// The least settle time for exemptions after a fork. Chosen: a new process is seen within a millisecond.
const LEAST_SETTLE: Nanos = Nanos::from_millis(20);
/// Part of the settle time that a program must have had as CPU time to have begun. Chosen: 15 ms by default, and runtimes count PUs in
/// their first milliseconds.
const BEGINS: u64 = 10;
/// Most postponements of the settling of a program, each by half a settle time. Chosen: 1.5 seconds by default, for a machine with a
/// load of ten.
const MOST_POSTPONEMENTS: u32 = 20;
/// Age up to which a thread may set its mask as part of its beginning. Chosen: two polls.
const BEGINS_WITHIN: Nanos = Nanos::from_secs(2);

/// Event after which a thread is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacementEvent {
    /// It was created.
    Created,
    /// It has executed a program.
    Exec,
    /// It has created a process.
    Forked,
    /// A process that it has created has executed a program.
    ChildExec,
    /// Its process creates threads faster than they can be followed.
    Storm,
    /// Its program has set the original mask on it, for good.
    MaskReset,
    /// The time of a [`Decision::Wait`] is over.
    WaitOver,
    /// The plan has changed, or what its places mean.
    PlanChanged,
    /// Its target applies at once: a restriction has ended, or the thread was found alive, or its creator's mask was restored.
    Restored,
}

/// Facts on the program of a thread; by default a program that has settled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgramFacts {
    /// Way in which it counts PUs.
    pub runtime: Runtime,
    /// Time at which it has counted PUs.
    pub settled_at: Nanos,
    /// Threads that it has created, with those that have ended and without the first one.
    pub further: u32,
    /// Whether it creates threads faster than they can be followed.
    pub is_storm: bool,
    /// Whether its process, or one that it descends from, had lost its creator before it was seen.
    pub is_orphan: bool,
}

/// Facts on a thread at an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadFacts {
    /// Event.
    pub event: PlacementEvent,
    /// Whether it is the first thread of its process.
    pub is_first: bool,
    /// Exemption before the event.
    pub exempt: Option<Exemption>,
    /// Its program.
    pub program: ProgramFacts,
}

/// Plan and state of the host, as far as they concern a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanView {
    /// Target of the thread.
    pub target: Place,
    /// Mark that stands for the target: the original mask where the target cannot be had.
    pub mark: Mark,
    /// Whether the plan has PUs for the thread, also if its target is another one.
    pub is_planned: bool,
    /// Whether a sched_ext scheduler is loaded.
    pub has_ext_scheduler: bool,
    /// Whether the programs were launched.
    pub is_launched: bool,
    /// Time for which a program is left alone after its exec.
    pub settle: Nanos,
}

/// Decision on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Pinned to the PUs of this mark.
    Pin(Mark),
    /// Unpinned until this time, and decided anew then.
    Wait(Nanos),
    /// Unpinned although the plan has PUs for it.
    Exempt(Exemption),
    /// Unpinned, as planned.
    LeaveUnpinned,
}

impl Decision {
    /// Mark of the mask to set.
    pub const fn mark(self) -> Mark {
        match self {
            Self::Pin(mark) => mark,
            Self::Wait(_) | Self::Exempt(_) | Self::LeaveUnpinned => Mark::Original,
        }
    }

    /// Placement status once the mask is set.
    pub const fn status(self) -> PlacementStatus {
        match self {
            Self::Pin(_) => PlacementStatus::Placed,
            Self::Wait(_) => PlacementStatus::Settling,
            Self::Exempt(why) => PlacementStatus::Exempt(why),
            Self::LeaveUnpinned => PlacementStatus::LeftToKernel,
        }
    }
}

/// Decision on a thread at `now`, on the kernel's clock.
pub(crate) fn decide(facts: &ThreadFacts, plan: &PlanView, now: Nanos) -> Decision {
    let blocking = blocking_exemption(facts, plan);
    if plan.mark == Mark::Original {
        return if plan.target.named_pu().is_some() && plan.has_ext_scheduler {
            Decision::Exempt(Exemption::ExtScheduler)
        } else {
            let planned = blocking.filter(|_| plan.is_planned);
            planned.map_or(Decision::LeaveUnpinned, Decision::Exempt)
        };
    }
    if let Some(why) = blocking {
        return Decision::Exempt(why);
    }
    let until = waits_until(facts, plan, now).filter(|_| exemption(facts).is_none());
    until.map_or(Decision::Pin(plan.mark), Decision::Wait)
}

/// Exemption of a thread after an event: of the event, or else the one before it.
pub(crate) fn exemption(facts: &ThreadFacts) -> Option<Exemption> {
    let of_event = match facts.event {
        PlacementEvent::Created => exemption_of_new(facts),
        PlacementEvent::Exec => facts.program.is_orphan.then_some(Exemption::Orphan),
        PlacementEvent::Forked => Some(Exemption::JustForked),
        PlacementEvent::ChildExec => Some(Exemption::StartsPrograms),
        PlacementEvent::Storm => Some(Exemption::Storm),
        PlacementEvent::MaskReset => Some(Exemption::MaskReset),
        PlacementEvent::WaitOver | PlacementEvent::PlanChanged | PlacementEvent::Restored => None,
    };
    of_event.or(facts.exempt)
}

/// Exemption of a new thread by its program.
fn exemption_of_new(facts: &ThreadFacts) -> Option<Exemption> {
    let program = &facts.program;
    let is_second = !facts.is_first && program.further == 1;
    match program.runtime {
        _ if program.is_storm => Some(Exemption::Storm),
        _ if program.is_orphan => Some(Exemption::Orphan),
        Runtime::Go if is_second => Some(Exemption::GoMonitor),
        Runtime::Jvm if is_second => Some(Exemption::JavaMain),
        Runtime::Plain | Runtime::Go | Runtime::Jvm => None,
    }
}

/// Time until which a thread that is not exempt stays unpinned, if it does.
fn waits_until(facts: &ThreadFacts, plan: &PlanView, now: Nanos) -> Option<Nanos> {
    let settles = Some(facts.program.settled_at).filter(|settled_at| *settled_at > now);
    match facts.event {
        PlacementEvent::Exec | PlacementEvent::WaitOver => settles,
        PlacementEvent::Created => settles.filter(|_| facts.is_first),
        PlacementEvent::PlanChanged => {
            // Before the launch no program has begun, so none has settled.
            let has_begun = plan.is_launched || plan.settle == Nanos::ZERO;
            let after_launch = (!has_begun).then(|| now + plan.settle);
            settles.filter(|_| facts.is_first).or(after_launch)
        }
        PlacementEvent::Forked
        | PlacementEvent::ChildExec
        | PlacementEvent::Storm
        | PlacementEvent::MaskReset
        | PlacementEvent::Restored => None,
    }
}

/// Exemption that keeps a thread from its target, if one does.
fn blocking_exemption(facts: &ThreadFacts, plan: &PlanView) -> Option<Exemption> {
    exemption(facts).filter(|why| plan.target.shared().is_none() || !may_share(*why))
}

/// Whether a thread loses its target after a decision: an unpinned thread must not keep others from a PU, unless it comes back soon.
pub(crate) fn loses_target(facts: &ThreadFacts, plan: &PlanView) -> bool {
    blocking_exemption(facts, plan).is_some_and(|why| why != Exemption::JustForked)
}

/// Whether a thread with this exemption may be on the PUs of a part of the machine: a process that it creates has its mask only until
/// the creation is seen, and gets all PUs then.
const fn may_share(why: Exemption) -> bool {
    matches!(why, Exemption::StartsPrograms | Exemption::JustForked)
}

/// Whether a fork, or an exec of a child, exempts a thread: not one that is exempt already or that its program has pinned.
pub(crate) fn is_exemptible(exempt: Option<Exemption>, status: &PlacementStatus) -> bool {
    exempt.is_none() && *status != PlacementStatus::PinnedByProgram
}

/// Whether a living thread may be put elsewhere by a plan.
pub(crate) fn is_movable(status: &PlacementStatus) -> bool {
    match status {
        PlacementStatus::Exempt(why) => may_share(*why) || *why == Exemption::ExtScheduler,
        PlacementStatus::PinnedByProgram | PlacementStatus::Missed => false,
        _ => true,
    }
}

/// Place of a thread by a plan that gives it `place`; `None` is default placement. An exempt thread is on no single PU.
pub(crate) fn planned_place(place: Option<Place>, exempt: Option<Exemption>) -> Option<Place> {
    let is_exempt = exempt.is_some_and(|why| why != Exemption::JustForked);
    let is_wide = matches!(place, Some(Place::Sharing(..) | Place::Waiting));
    if is_exempt && !is_wide { Some(Place::LeftToKernel) } else { place }
}

/// Whether the status of a thread with mark `mark` says why it is unpinned, where it is to be unpinned. Its mask may have been changed
/// since.
pub(crate) fn is_unpinned_as_wanted(
    wanted: Mark,
    mark: Mark,
    status: &PlacementStatus,
    exempt: Option<Exemption>,
) -> bool {
    let says_why = match status {
        PlacementStatus::LeftToKernel => exempt.is_none(),
        PlacementStatus::Exempt(_) => true,
        _ => false,
    };
    wanted == Mark::Original && mark == wanted && says_why
}

/// Whether a thread with mark `mark` was pinned where it is to be pinned. Its mask may have been changed since.
pub(crate) fn is_pinned_as_wanted(wanted: Mark, mark: Mark, status: &PlacementStatus) -> bool {
    wanted.is_put() && mark == wanted && *status == PlacementStatus::Placed
}

/// Exemption of a thread that has forked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ForkExemption {
    /// End; zero if the thread has never forked.
    pub until: Nanos,
    /// Forks in a row.
    forks: u32,
}

impl ForkExemption {
    /// The exemption after another fork at `at`: a settle time, and twice as long each time if the thread forks again soon. A
    /// program that starts its other half is not kept from its PU.
    pub fn after_fork(self, settle: Nanos, at: Nanos) -> Self {
        let settle = settle.max(LEAST_SETTLE).0;
        let longest = settle * FORK_EXEMPTION;
        let forks = if at < self.until + Nanos(longest) { self.forks } else { 0 };
        let length = settle.saturating_mul(1 << forks.min(16)).min(longest);
        Self { until: at + Nanos(length), forks: forks + 1 }
    }
}

/// Start of a program, as seen on its first thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramStart {
    /// CPU time of the thread.
    pub cpu_time: Nanos,
    /// Whether it runs or waits for a PU.
    pub could_run: bool,
    /// Postponements of its settling so far.
    pub postponements: u32,
}

/// New time at which a program has settled; `None` if it has. On a busy machine a program may not have counted PUs by its settle time:
/// its first thread has hardly had a PU yet and waits for one.
pub(crate) fn postponed(start: &ProgramStart, settle: Nanos, now: Nanos) -> Option<Nanos> {
    let has_begun = start.cpu_time >= Nanos(settle.0 / BEGINS);
    let may_postpone = start.could_run && start.postponements < MOST_POSTPONEMENTS;
    (!has_begun && may_postpone).then(|| now + Nanos(settle.0 / 2))
}

/// Event that follows when the program of a pinned thread has set the original mask on it. Threads of LLVM's OpenMP do so as they
/// begin, so a new thread is pinned once more; any other one stays as it is.
pub(crate) fn after_reset(age: Nanos, was_pinned_again: bool) -> PlacementEvent {
    if age < BEGINS_WITHIN && !was_pinned_again {
        PlacementEvent::Restored
    } else {
        PlacementEvent::MaskReset
    }
}

#[cfg(test)]
mod tests;
