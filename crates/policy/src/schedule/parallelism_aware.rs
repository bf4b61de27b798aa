//! `parallelism-aware`: serial phases on fast cores (PA; Fedorova et al.).
//!
//! # Problem
//! On a machine with few fast and many slow cores, the thread that all others wait for is most
//! likely on a slow core. In a parallel phase the threads on fast cores wait for the others.
//! # Approach
//! While a job has at most one runnable thread, that thread is a candidate for a fast core. Fast
//! cores without a candidate rotate among the threads of parallel phases. A thread that is not kept
//! on a core is left to the kernel.
//! # Terms
//! See [`phases`](super::phases): serial, parallel, asleep, serial thread;
//! [`cores`](super::asymmetric::cores): fast core, domain, crossing, refill.
//! - *Candidate*: the serial thread of a job in a serial phase.
//! - *Left* of a serial phase: [`PhaseHistory::left`](super::phases::PhaseHistory::left), from the
//!   lengths of the job's earlier serial phases.
//! # Algorithm
//! 1. Order the candidates by their time on fast cores, least first
//!    ([`rotation`](super::asymmetric::rotation)); take as many as there are fast cores. Each job
//!    counts for itself.
//! 2. A thread on a fast core keeps the core; then candidates with a free fast core in their domain
//!    move; the others cross. A thread moves if
//!    `left × (1 − its core's speed / the fast core's) ≥ cost × refill`, the refill for the way
//!    there and back; else the next candidate may move. Lengths include phases on fast cores, so
//!    the gain is predicted too low rather than too high.
//! 3. The remaining fast cores rotate among the threads of parallel phases, as seldom as their
//!    caches are worth ([`sharing`]). These threads are moved there and left to the kernel.
//! 4. All other threads in a serial or parallel phase leave the cores of candidates for other
//!    cores, empty cores first, siblings of candidates last. With a core for each they are moved
//!    and left to the kernel. More threads are kept on these cores, one a PU and then evenly.
//! 5. Every other thread is left where it is: sleeping threads, threads of unknown phase, and
//!    threads whose programs chose their PUs. The latter get no fast core either.
//!
//! Ours: the costs and lengths of steps 2 and 3, and the threads left to the kernel. That the
//! published policy shares spare fast cores evenly among all other threads is remembered and
//! unverified. The setting `spare` switches step 3.
//! # Properties
//! - **No starvation**: every candidate gets fast cores, none ahead of another by more than a
//!   quantum. -> test `fair_to_candidates`; threads of parallel phases: see [`sharing`]
//! - **No ping-pong**: where nothing changes no thread moves once phases are known, which takes two
//!   quanta, unless fast cores rotate. -> test `still_when_nothing_changes`
//! - **One move**: a change of phases moves no thread twice. -> test `one_move_for_a_change`
//! - **Usable PUs only**, and never two candidates on one fast core while another is free.
//!   -> test `places_are_sound`
//! - **As `os`** where cores are alike and where phases are unknown, and without `spare` where no
//!   job is in a serial phase. -> tests `alike_is_os`, `unknown_is_os`, `parallel_is_os`
//! - **Near** cores first, and cost counts. -> tests `near_first`, `short_phases_do_not_cross`
//! - **Work-conserving** where there is a core for each. -> tests `done_threads_go_back`,
//!   `crowds_are_kept_off`
//! - **Bound threads** get no fast core and keep no other off one.
//!   -> test `bound_threads_are_left_alone`
//! - **Sleepers are not spread** -> test `sleepers_take_no_place`
//! - **It pays** on a simulated machine as arithmetic says. ->
//!   crates/sim/tests/all/{serial_phases,one_fast_one_slow}.rs

pub mod sharing;

use super::asymmetric::cores::{Cores, Move};
use super::asymmetric::rotation::Rotation;
use super::asymmetric::{
    Messages, NO_PHASES, NO_SEAT, PHASES, Seat, choices, cores_of, threads_of,
};
use super::phases::{
    CONFIRM, Hysteresis, JobPhase, JobPhases, PARALLEL, PhaseHistory, SERIAL, hysteresis,
};
use super::{
    Allocated, Quantum, QuantumOutcome, QueuedJob, Scheduler, SelectedJob, Thread, leave_to_kernel,
};
use crate::by_id::IdSet;
use crate::evidence::Evidence;
use crate::plan::Plan;
use crate::row::{PolicyRow, Purpose, Setting};
use colocate_evidence::{JobIdx, SourceSet, TaskId};
use colocate_machine::{Nanos, PuIdx};
use sharing::{FastCoreTime, Sharer};

/// Settings of `parallelism-aware`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParallelismAwareSettings {
    /// Thresholds for changes of phase.
    pub hysteresis: Hysteresis,
    /// Weight of a refill, not below 0; 0 ignores the cost of moves.
    pub cost: f64,
    /// Whether spare fast cores rotate among the threads of parallel phases.
    pub spare: bool,
}

impl ParallelismAwareSettings {
    /// Defaults. `cost` is chosen: a refill counts as it is. `spare` is better in simulation: with
    /// one fast and one slow core, quanta of 20 ms and phases of 200 ms, 88 to 98 % of the possible
    /// gain instead of 60 to 82 % (crates/sim/tests/all/one_fast_one_slow.rs).
    pub const USUAL: Self = Self { hysteresis: Hysteresis::USUAL, cost: 1.0, spare: true };
}

pub static ROW: PolicyRow = PolicyRow {
    name: "parallelism-aware",
    purpose: Purpose::Recommended,
    summary: "gives fast cores to serial phases",
    source: "Fedorova et al., parallelism awareness (PA)",
    settings: &[
        SERIAL,
        PARALLEL,
        CONFIRM,
        Setting::not_below_0(
            "cost",
            ParallelismAwareSettings::USUAL.cost,
            "weight of the cost of a move",
        ),
        Setting::word(
            "spare",
            &["yes", "no"],
            "whether fast cores without a serial phase take turns",
        ),
    ],
    waits: false,
    make: |values, _| {
        Box::new(ParallelismAware::new(ParallelismAwareSettings {
            hysteresis: hysteresis(values),
            cost: values.number("cost"),
            spare: values.word("spare") == Some("yes"),
        }))
    },
    ..PolicyRow::EACH_QUANTUM
};

/// Scheduler of `parallelism-aware`.
#[derive(Clone, Debug)]
pub struct ParallelismAware {
    settings: ParallelismAwareSettings,
    phases: JobPhases,
    /// Length of the last quantum of this policy. Quanta placed by the kernel count as much.
    took: Nanos,
    serial: Rotation<JobIdx>,
    sharing: FastCoreTime,
    /// Serial threads with fast cores.
    seated: IdSet<TaskId>,
    /// Threads that are moved to a PU before the quantum, and then left to the kernel.
    begin: Vec<(TaskId, PuIdx)>,
    /// Times a serial thread got a fast core.
    given: u64,
    /// Of these, moves across last-level caches.
    crossings: u64,
    /// Times a thread of a parallel phase got a fast core.
    turns: u64,
    messages: Messages,
}

/// A serial thread, candidate for a fast core.
struct SerialThread<'a> {
    thread: &'a Thread,
    /// Place among all threads.
    at: usize,
    /// Expected remaining length of the phase, in seconds.
    left: f64,
}

impl SerialThread<'_> {
    /// Whether the gain of a move in the rest of the phase exceeds `cost` refills.
    fn is_worth(&self, migration: Move, cost: f64) -> bool {
        self.left * migration.gain >= cost * migration.cost
    }
}

/// PUs of the threads, by place in the queue.
struct Seating<'a> {
    cores: &'a Cores,
    threads: Vec<&'a Thread>,
    /// PUs of threads that are kept there.
    seats: Vec<Seat>,
    /// PUs of threads that are moved there, and then left to the kernel.
    begin: Vec<Seat>,
    /// Fast cores of serial threads, with the threads' PUs.
    taken: Vec<(usize, PuIdx)>,
}

impl ParallelismAware {
    /// A scheduler without known phases.
    pub fn new(settings: ParallelismAwareSettings) -> Self {
        Self {
            settings,
            phases: JobPhases::new(settings.hysteresis),
            took: Nanos::ZERO,
            serial: Rotation::default(),
            sharing: FastCoreTime::default(),
            seated: IdSet::default(),
            begin: Vec::new(),
            given: 0,
            crossings: 0,
            turns: 0,
            messages: Messages::default(),
        }
    }

    /// Phases of the job of a free thread, if the present phase is `phase`.
    fn in_phase(&self, thread: &Thread, phase: JobPhase) -> Option<&PhaseHistory> {
        let seen = self.phases.of(thread.id.job).filter(|_| !thread.bound);
        seen.filter(|seen| seen.phase == phase)
    }

    /// Serial threads in the order of the queue.
    fn candidates<'a>(&self, threads: &[&'a Thread]) -> Vec<SerialThread<'a>> {
        let found = threads.iter().enumerate().filter_map(|(at, &thread)| {
            let seen = self.in_phase(thread, JobPhase::Serial)?;
            let left = seen.left().as_secs_f64();
            let is_serial = seen.thread == Some(thread.id);
            is_serial.then_some(SerialThread { thread, at, left })
        });
        found.collect()
    }

    /// Fast cores of candidates: (candidate, core).
    fn seat_serial(
        &mut self,
        cores: &Cores,
        candidates: &[SerialThread<'_>],
    ) -> Vec<(usize, usize)> {
        let jobs: Vec<JobIdx> = candidates.iter().map(|it| it.thread.id.job).collect();
        let mut order = self.serial.order(&jobs);
        let fast: Vec<usize> = cores.fast().collect();
        let cost = self.settings.cost;
        // Candidates without any worthwhile move would only prolong the loop below.
        order.retain(|&at| {
            let candidate = &candidates[at];
            let mut moves = fast.iter().map(|&core| cores.migration(candidate.thread, core));
            moves.any(|migration| candidate.is_worth(migration, cost))
        });
        let seated: Vec<(usize, usize)> = loop {
            let first: Vec<usize> = order.iter().take(fast.len()).copied().collect();
            let threads: Vec<&Thread> = first.iter().map(|&at| candidates[at].thread).collect();
            let seats = cores.seats(&threads, &fast, &|place, migration| {
                candidates[first[place]].is_worth(migration, cost)
            });
            match seats.iter().position(Option::is_none) {
                // Another candidate may have a shorter way, or a longer phase.
                Some(stays) => drop(order.remove(stays)),
                None => break first.into_iter().zip(seats.into_iter().flatten()).collect(),
            }
        };
        self.note(cores, candidates, &seated);
        seated
    }

    /// Takes in the serial threads that have fast cores now.
    fn note(&mut self, cores: &Cores, candidates: &[SerialThread<'_>], seated: &[(usize, usize)]) {
        self.serial.seat(seated.iter().map(|&(at, _)| candidates[at].thread.id.job));
        for &(at, core) in seated {
            let thread = candidates[at].thread;
            if !self.seated.contains(&thread.id) {
                self.given += 1;
                self.crossings += u64::from(cores.migration(thread, core).crossing);
            }
        }
        self.seated = seated.iter().map(|&(at, _)| candidates[at].thread.id).collect();
    }

    /// Rotates the spare fast cores among the threads of parallel phases.
    fn share(&mut self, places: &mut Seating<'_>) {
        let mut sharers = Vec::new();
        // By sharer: its place among all threads.
        let mut at = Vec::new();
        for (place, &thread) in places.threads.iter().enumerate() {
            let Some(seen) = self.in_phase(thread, JobPhase::Parallel) else { continue };
            let expected = seen.expected().as_secs_f64();
            sharers.push(Sharer { thread, expected, left: seen.left().as_secs_f64() });
            at.push(place);
        }
        let cores = places.cores;
        let shared: Vec<usize> = cores.fast().filter(|core| !places.is_taken(*core)).collect();
        let mut busy = vec![false; cores.all.len()];
        // A core with only sleeping threads is free.
        let active = places.threads.iter().filter(|thread| !self.phases.sleeps(thread.id.job));
        active.filter_map(|thread| cores.of(thread)).for_each(|core| busy[core] = true);
        let turns =
            self.sharing.turns(cores, &sharers, (&shared, &busy), self.took, self.settings.cost);
        for change in turns {
            let why = if change.fast { Allocated::FastTurn } else { Allocated::OffFast };
            self.turns += u64::from(change.fast);
            places.begin[at[change.sharer]] = (Some(change.to), why);
        }
    }

    /// Summary of the work so far.
    fn state(&self) -> String {
        format!(
            "{} serial phases have fast cores now; fast cores were given {} times, {} of them across last-level caches, and {} times to threads of parallel phases",
            self.seated.len(),
            self.given,
            self.crossings,
            self.turns
        )
    }

    /// The PUs of all threads for which one is chosen.
    fn places<'a>(&mut self, now: &Quantum<'a>, cores: &'a Cores) -> Seating<'a> {
        let mut places = Seating::new(cores, now.queue);
        let candidates = self.candidates(&places.threads);
        // Serial phases first: only the fast cores that remain rotate.
        for (candidate, core) in self.seat_serial(cores, &candidates) {
            let at = candidates[candidate].at;
            let pu = cores.pu_for(places.threads[at], core);
            places.seats[at] = (Some(pu), Allocated::SerialPhase);
            places.taken.push((core, pu));
        }
        if self.settings.spare {
            self.share(&mut places);
        }
        if !places.taken.is_empty() {
            places.clear_serial_cores(&|thread: &Thread| {
                let job = thread.id.job;
                !thread.bound && self.phases.of(job).is_some() && !self.phases.sleeps(job)
            });
        }
        places
    }
}

impl<'a> Seating<'a> {
    /// No PU is chosen yet.
    fn new(cores: &'a Cores, queue: &'a [QueuedJob]) -> Self {
        let threads = threads_of(queue);
        let none = vec![NO_SEAT; threads.len()];
        Self { cores, threads, seats: none.clone(), begin: none, taken: Vec::new() }
    }

    /// Whether a serial thread has the core.
    fn is_taken(&self, core: usize) -> bool {
        self.taken.iter().any(|(taken, _)| *taken == core)
    }

    /// Moves the threads for which `leaves` is true off the cores of serial threads. With a core
    /// for each they are only moved, and then left to the kernel; more threads are kept on their
    /// new PUs.
    fn clear_serial_cores(&mut self, leaves: &dyn Fn(&Thread) -> bool) {
        let others: Vec<usize> = (0..self.threads.len())
            .filter(|&at| self.seats[at].0.is_none() && leaves(self.threads[at]))
            .collect();
        // A thread of unknown state may want a whole core.
        let wanted = others.iter().map(|&at| self.threads[at].runnable.unwrap_or(1.0));
        let wanted = wanted.fold(0.0, |sum, each| sum + each);
        let room = (self.cores.all.len() - self.taken.len()) as f64;
        // Where the rotation of spare fast cores has moved the threads.
        let moved: Vec<Thread> = others.iter().map(|&at| self.after_turns(at)).collect();
        let rest: Vec<&Thread> = moved.iter().collect();
        let pus = self.cores.spread(&rest, &self.cores.groups_beside(&self.taken), &self.taken);
        let each = others.iter().zip(pus).zip(&moved);
        for ((&at, pu), thread) in each.filter(|((_, pu), _)| pu.is_some()) {
            if wanted > room {
                // A thread is moved or kept, never both.
                self.begin[at] = NO_SEAT;
                self.seats[at] = (pu, Allocated::OffFast);
            } else if self.cores.of(thread).is_some_and(|core| self.is_taken(core)) {
                self.begin[at] = (pu, Allocated::OffFast);
            }
        }
    }

    /// The thread at the PU where the rotation has moved it.
    fn after_turns(&self, at: usize) -> Thread {
        let pu = self.begin[at].0.or(self.threads[at].pu);
        let Thread { id, runnable, bound, .. } = *self.threads[at];
        // Rates do not matter for the choice of a place.
        Thread { id, ran: None, pu, runnable, bound }
    }
}

impl Scheduler for ParallelismAware {
    const NEEDS: SourceSet = PHASES;

    fn note(&mut self, last: &QuantumOutcome<'_>) {
        self.took = last.took;
        self.serial.took(last.took);
    }

    fn choose(&mut self, now: &Quantum<'_>) -> Vec<SelectedJob> {
        self.begin.clear();
        self.phases.update(now.queue, self.took);
        // Forget jobs that have ended.
        let there: IdSet<JobIdx> = now.queue.iter().map(|job| job.job).collect();
        self.serial.retain(|job| there.contains(job));
        let Some(cores) = cores_of(now, &mut self.messages) else {
            // Time on fast cores counts only while there are any.
            self.serial.seat([]);
            self.seated.clear();
            return leave_to_kernel(now.queue);
        };
        if now.queue.iter().any(|job| job.just_ran && job.runnable.is_none()) {
            self.messages.once(NO_PHASES);
        }
        let Seating { threads, seats, begin, .. } = self.places(now, &cores);
        let put = threads.iter().zip(&begin);
        self.begin = put.filter_map(|(it, seat)| Some((it.id, seat.0?))).collect();
        let kept = seats.into_iter().zip(begin);
        let seat =
            |(kept, (_, moved)): (Seat, Seat)| if kept.0.is_some() { kept } else { (None, moved) };
        choices(now.queue, kept.map(seat).collect())
    }

    fn describe(&mut self, plan: &mut Plan, evidence: &Evidence<'_>) {
        plan.state = Some(self.state());
        plan.initial = evidence.initial(&self.begin);
        plan.messages = self.messages.drain();
    }
}

#[cfg(test)]
mod tests;
