//! `parallelism-aware`: serial phases on fast cores (PA; Fedorova et al.).
//!
//! # Problem
//! On a machine with few fast and many slow cores, a kernel that does not know them apart leaves the thread that all
//! others wait for where it is: most likely on a slow one.
//! # Approach
//! While a job has at most one runnable thread, that thread is a candidate for a fast core. Parallel phases have enough
//! threads to keep many slow cores busy. Where nobody is in a serial phase everything is left to the kernel, so programs
//! without serial phases run as under `os`.
//! # Terms
//! See [`phases`](super::phases): serial, parallel, asleep, serial thread; [`cores`](super::asymmetric::cores): fast core, domain, crossing,
//! refill.
//! - *Candidate*: the serial thread of a job in a serial phase.
//! - *Expected length* of a serial phase: [`Seen::expected`](super::phases::Seen::expected), from those that this job had so far.
//! # Algorithm
//! 1. Candidates in the order of the time for which they had a fast core, least first ([`turns`](super::asymmetric::turns)), as many as there are
//!    fast cores. Each job counts for itself, whichever of its threads is the serial one.
//! 2. Who is on a fast core keeps it; then those that find a free one in their domain; the others cross. A thread moves if
//!    `expected length × (1 − its core's speed / the fast core's) ≥ cost × refill`, the refill for the way there and
//!    back. If it is not worth it, the next candidate gets the chance. Lengths are as they were, also those on fast cores, where
//!    they are shorter: so the gain is told too low rather than too high.
//! 3. While candidates have fast cores, all other threads of which the phase is known are put on other PUs, one a PU as far as there
//!    is room, siblings of candidates last, and more evenly. That sends back whose phase is over if somebody else needs its core.
//! 4. Where no candidate has a fast core, nobody is placed. Who had one is left where it is, for the kernel to move.
//!
//! Ours: the costs and lengths of step 2, leaving all to the kernel in step 4, and the spreading of step 3. The published policy
//! shares spare fast cores among all other threads, in turn and evenly; that is known from memory only and unverified. The setting `spare` does it: step 3
//! then always applies, and those that had a fast core for the least time get the spare ones.
//! # Properties
//! - **No starvation**: every candidate gets fast cores, none ahead of another one by more than a quantum. -> test
//!   `fair_to_candidates`
//! - **No ping-pong**: where nothing changes nobody moves after the first quantum, unless candidates take turns. -> test
//!   `still_when_nothing_changes`
//! - **One move**: a change of phases moves no thread twice. -> test `one_move_for_a_change`
//! - **Usable PUs only**, and never two candidates on one fast core while another is free. -> test `places_are_sound`
//! - **As `os`** where cores are alike, where nobody is in a serial phase, and where phases are unknown. -> tests `alike_is_os`,
//!   `parallel_is_os`, `unknown_is_os`
//! - **Near** cores first, and cost counts. -> tests `near_first`, `short_phases_do_not_cross`
//! - **It pays** on a simulated machine as arithmetic says. -> crates/sim/tests/serial_phases.rs

use super::asymmetric::cores::{Cores, Move};
use super::asymmetric::turns::Turns;
use super::asymmetric::{NO_PHASES, News, Seat, choices, cores_of, threads_of};
use super::baselines::Os;
use super::phases::{Hysteresis, JobPhase, Phases};
use super::{Allocated, Choice, Done, Quantum, Queued, Scheduler, Thread};
use crate::plan::{JobIdx, TaskId};
use colocate_machine::{Nanos, PuIdx};
use std::collections::BTreeSet;
use std::fmt;

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// When a phase is taken for changed.
    pub hysteresis: Hysteresis,
    /// How many times a refill counts, not below 0; 0 moves whatever it costs.
    pub cost: f64,
    /// Whether fast cores that no serial phase needs are shared by all other threads, in turn.
    pub spare: bool,
}

impl Settings {
    /// Those where none are given. `cost` is chosen: a refill counts as it is.
    pub const USUAL: Self = Self { hysteresis: Hysteresis::USUAL, cost: 1.0, spare: false };

    /// What can be set, for people.
    pub(super) const EXPECTED: &str = "serial=N from 1, parallel=N not below it, confirm=N quanta above 0, cost=C not below 0, spare=yes or no, a colon between two";

    /// Sets one; whether there is such a setting and the value can be.
    pub(super) fn set(&mut self, name: &str, value: &str) -> bool {
        let number = value.parse().ok().filter(|number: &f64| number.is_finite());
        match (name, value, number) {
            ("cost", _, Some(cost)) if cost >= 0.0 => self.cost = cost,
            ("spare", "yes", _) => self.spare = true,
            ("spare", "no", _) => self.spare = false,
            _ => return self.hysteresis.set(name, value),
        }
        true
    }

    /// Those settings that are not as usual.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hysteresis.write(f)?;
        if self.cost.to_bits() != Self::USUAL.cost.to_bits() {
            write!(f, ":cost={}", self.cost)?;
        }
        if self.spare { f.write_str(":spare=yes") } else { Ok(()) }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::USUAL
    }
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct ParallelismAware {
    settings: Settings,
    phases: Phases,
    /// How long the last quantum took that it chose; others, which a guard gives to the kernel, are taken to be as long.
    took: Nanos,
    serial: Turns<JobIdx>,
    spare: Turns<TaskId>,
    /// Serial threads that have fast cores.
    seated: BTreeSet<TaskId>,
    given: u64,
    crossings: u64,
    news: News,
}

/// A serial thread.
struct Candidate<'a> {
    job: JobIdx,
    thread: &'a Thread,
    /// Its place among all threads.
    at: usize,
    /// Expected length of the phase, in seconds.
    expected: f64,
}

impl ParallelismAware {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            phases: Phases::new(settings.hysteresis),
            took: Nanos::ZERO,
            serial: Turns::default(),
            spare: Turns::default(),
            seated: BTreeSet::new(),
            given: 0,
            crossings: 0,
            news: News::default(),
        }
    }

    /// The phases as they are known.
    #[must_use]
    pub const fn phases(&self) -> &Phases {
        &self.phases
    }

    /// The serial threads, in the order of the queue.
    fn candidates<'a>(&self, queue: &'a [Queued]) -> Vec<Candidate<'a>> {
        let mut found = Vec::new();
        let mut before = 0;
        for job in queue {
            let seen = self.phases.of(job.job).filter(|seen| seen.phase == JobPhase::Serial);
            let serial = seen.and_then(|seen| seen.thread);
            let place = job.threads.iter().position(|thread| Some(thread.id) == serial);
            if let Some((seen, place)) = seen.zip(place) {
                found.push(Candidate {
                    job: job.job,
                    thread: &job.threads[place],
                    at: before + place,
                    expected: seen.expected().as_secs_f64(),
                });
            }
            before += job.threads.len();
        }
        found
    }

    /// Which candidates have which fast cores.
    fn seat_serial(&mut self, cores: &Cores, candidates: &[Candidate<'_>]) -> Vec<(usize, usize)> {
        let jobs: Vec<JobIdx> = candidates.iter().map(|candidate| candidate.job).collect();
        let mut order = self.serial.order(&jobs);
        let fast: Vec<usize> = cores.fast().collect();
        let cost = self.settings.cost;
        let seated: Vec<(usize, usize)> = loop {
            let first: Vec<usize> = order.iter().take(fast.len()).copied().collect();
            let threads: Vec<&Thread> = first.iter().map(|&at| candidates[at].thread).collect();
            let worth =
                |at: usize, way: Move| candidates[first[at]].expected * way.gain >= cost * way.cost;
            let seats = cores.seats(&threads, &fast, &worth);
            match seats.iter().position(Option::is_none) {
                // Somebody else may have a shorter way, or a longer phase.
                Some(stays) => drop(order.remove(stays)),
                None => break first.into_iter().zip(seats.into_iter().flatten()).collect(),
            }
        };
        self.note(cores, candidates, &seated);
        seated
    }

    /// Takes in who has fast cores now.
    fn note(&mut self, cores: &Cores, candidates: &[Candidate<'_>], seated: &[(usize, usize)]) {
        self.serial.seat(seated.iter().map(|&(at, _)| candidates[at].job));
        for &(at, core) in seated {
            let thread = candidates[at].thread;
            if !self.seated.contains(&thread.id) {
                self.given += 1;
                self.crossings += u64::from(cores.way(thread, core).crossing);
            }
        }
        self.seated = seated.iter().map(|&(at, _)| candidates[at].thread.id).collect();
    }

    /// Fast cores that are left go to the others in turn; which of them have which.
    fn seat_spare(
        &mut self,
        cores: &Cores,
        others: &[(usize, &Thread)],
        taken: &[(usize, PuIdx)],
    ) -> Vec<(usize, usize)> {
        let is_free = |core: &usize| !taken.iter().any(|(taken, _)| taken == core);
        let free: Vec<usize> = cores.fast().filter(is_free).collect();
        let ids: Vec<TaskId> = others.iter().map(|(_, thread)| thread.id).collect();
        let order = self.spare.order(&ids);
        self.spare.forget_others();
        let first: Vec<usize> = order.into_iter().take(free.len()).collect();
        let threads: Vec<&Thread> = first.iter().map(|&at| others[at].1).collect();
        let seats = cores.seats(&threads, &free, &|_, _| true);
        self.spare.seat(first.iter().map(|&at| ids[at]));
        first.into_iter().zip(seats.into_iter().flatten()).collect()
    }

    /// A place for every thread of which one is decided.
    fn places(&mut self, now: &Quantum<'_>, cores: &Cores) -> Vec<Option<Seat>> {
        let threads = threads_of(now.queue);
        let mut places: Vec<Option<Seat>> = vec![None; threads.len()];
        let candidates = self.candidates(now.queue);
        let serial = self.seat_serial(cores, &candidates);
        if serial.is_empty() && !self.settings.spare {
            return places;
        }
        let mut taken = Vec::new();
        for (candidate, core) in serial {
            let at = candidates[candidate].at;
            let pu = cores.pu_for(threads[at], core);
            places[at] = Some((pu, Allocated::SerialPhase));
            taken.push((core, pu));
        }
        let known = |thread: &Thread| self.phases.of(thread.id.job).is_some();
        let is_other = |at: usize| places[at].is_none() && known(threads[at]);
        let mut others: Vec<(usize, &Thread)> =
            (0..threads.len()).filter(|&at| is_other(at)).map(|at| (at, threads[at])).collect();
        if self.settings.spare {
            for (other, core) in self.seat_spare(cores, &others, &taken) {
                let (at, thread) = others[other];
                let pu = cores.pu_for(thread, core);
                places[at] = Some((pu, Allocated::FastTurn));
                taken.push((core, pu));
            }
            others.retain(|(at, _)| places[*at].is_none());
        }
        let rest: Vec<&Thread> = others.iter().map(|(_, thread)| *thread).collect();
        let pus = cores.spread(&rest, &cores.groups_beside(&taken), &taken);
        for ((at, _), pu) in others.into_iter().zip(pus) {
            places[at] = pu.map(|pu| (pu, Allocated::OffFast));
        }
        places
    }
}

impl Scheduler for ParallelismAware {
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        self.phases.look(now.queue, self.took);
        let there: BTreeSet<JobIdx> = now.queue.iter().map(|job| job.job).collect();
        self.serial.retain(|job| there.contains(job));
        let Some(cores) = cores_of(now, &mut self.news) else {
            self.serial.seat([]);
            self.seated.clear();
            return Os.choose(now);
        };
        if now.queue.iter().any(|job| job.just_ran && job.runnable.is_none()) {
            self.news.once(NO_PHASES);
        }
        let places = self.places(now, &cores);
        choices(now.queue, places)
    }

    fn saw(&mut self, done: &Done<'_>) {
        self.took = done.took;
        self.serial.took(done.took);
        self.spare.took(done.took);
    }

    fn state(&self) -> Option<String> {
        Some(format!(
            "{} serial phases have fast cores now; fast cores were given {} times, {} of them across last-level caches",
            self.seated.len(),
            self.given,
            self.crossings
        ))
    }

    fn news(&mut self) -> Option<String> {
        self.news.next()
    }
}

#[cfg(test)]
mod tests;
