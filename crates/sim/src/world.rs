//! State of a simulation, and its loop from event to event at constant rates.
//!
//! # Problem
//! The speed of each task depends on the tasks beside it, and changes with every creation, end,
//! phase, time slice and move.
//!
//! # Approach
//! Between two events the same tasks run in the same phases at the same places, so rates are
//! constant: the next event is the nearest of a few known times. At an event the queues are brought
//! up to date, the rates are predicted anew, and the next event is found.
//!
//! Each part owns its state, in the file of its name ([`Parts`]). The rules are functions in the
//! modules below this one; decisions of the kernel are functions from a few parts to a result.
//!
//! # Terms
//! - *step*: the time between two events.

mod balance;
mod barrier;
mod filling;
mod follow;
mod invariants;
mod life;
mod memory;
mod moves;
mod numa;
mod pace;
mod pages;
mod stop;
mod summary;
mod turns;
mod wake;

use crate::SimError;
use crate::events::Due;
use crate::imbalance::longest_wait;
use crate::kernel::KernelScheduler;
use crate::on_pu::{OnPu, Running};
use crate::outcome::Outcome;
use crate::parts::Parts;
use crate::platform::Platform;
use crate::scenario::Scenario;
use crate::tally::SimulationSums;
use colocate_engine::Meanwhile;
use colocate_evidence::{JobIdx, PagesMoved, QuantumEnd};
use colocate_machine::Nanos;
use colocate_policy::rng::SplitMix64;
use colocate_policy::{Plan, PlanError};
pub(crate) use follow::placement_status;
use invariants::{Checker, Step};

/// State of a simulation.
#[derive(Debug)]
pub(crate) struct World<'a> {
    parts: Parts<'a>,
    running: Running,
    tally: SimulationSums,
    checker: Checker,
    /// Results of orders to move memory, not reported yet.
    moved: Vec<PagesMoved>,
}

impl<'a> World<'a> {
    /// The state before the first event.
    ///
    /// # Errors
    /// [`SimError::Scenario`] and [`SimError::Phase`], as of [`crate::SimHost::new`].
    pub fn new(platform: &'a Platform<'a>, scenario: &'a Scenario) -> Result<Self, SimError> {
        scenario.check(platform.machine)?;
        let mut parts = Parts::new(platform, scenario)?;
        (0..parts.jobs.len()).for_each(|job| turns::begin_turns(&mut parts, job));
        let usable = &parts.pus.usable;
        Ok(Self {
            running: Running::default(),
            tally: SimulationSums::new(platform, scenario),
            checker: Checker::new(platform.machine, usable, scenario, parts.tasks.len()),
            parts,
            moved: Vec::new(),
        })
    }

    /// Puts the plan in force; `meanwhile` is the treatment of waiting jobs.
    ///
    /// # Errors
    /// [`PlanError::PartlyWaiting`] if only a part of a job is to wait; nothing has changed then.
    pub fn follow(&mut self, plan: &Plan, meanwhile: Meanwhile) -> Result<(), PlanError> {
        self.moved.extend(follow::follow(&mut self.parts, meanwhile, plan)?);
        Ok(())
    }

    /// Simulates until `until`, the end of a job, or a hotplug event.
    ///
    /// # Errors
    /// [`SimError::Broken`] if the simulation breaks its own rules.
    pub fn run(&mut self, until: Nanos) -> Result<(), SimError> {
        let until = until.min(self.parts.scenario.horizon);
        self.parts.ends.begin_quantum();
        loop {
            self.settle();
            if self.parts.events.now >= self.parts.scenario.horizon && !self.parts.ends.is_over {
                life::give_up(&mut self.parts);
            }
            if self.parts.ends.is_over {
                let complete = self.parts.is_complete();
                return self.checker.end(&self.parts.tasks, complete).map_err(SimError::Broken);
            }
            if self.parts.ends.of_quantum() != QuantumEnd::Elapsed || self.parts.events.now >= until
            {
                return Ok(());
            }
            pace::refresh(&mut self.parts, &mut self.running);
            let next = self.next_event().min(until);
            self.step(next)?;
        }
    }

    /// Adds the instructions since the last prediction to the tasks' counters.
    pub fn count(&mut self) {
        pace::count(&mut self.parts, &mut self.running);
    }

    /// Outcome until now; times alone are not filled in.
    pub fn outcome(&self) -> Outcome {
        summary::outcome(&self.parts, &self.tally)
    }

    /// The parts, to report on.
    pub const fn parts(&self) -> &Parts<'a> {
        &self.parts
    }

    /// Results of orders to move memory since the last call.
    pub fn take_moved(&mut self) -> Vec<PagesMoved> {
        std::mem::take(&mut self.moved)
    }

    /// Records up to `most` spans of tasks on PUs. Default: none.
    pub const fn record(&mut self, most: usize) {
        self.tally.most_spans = most;
    }

    /// Counts accesses to pages from now on.
    pub const fn count_accesses(&mut self) {
        self.parts.accesses.counts = true;
    }

    /// Counts instructions by phase for `jobs`, and for no other.
    pub fn watch_mixes(&mut self, jobs: &[JobIdx]) {
        for (job, number) in self.parts.jobs.iter_mut().zip(0..) {
            job.is_watched = jobs.contains(&JobIdx(number));
        }
    }

    /// Handles all events due now.
    fn settle(&mut self) {
        let Self { parts, running, .. } = self;
        pace::end_phases(parts, running);
        apply_hotplug(parts);
        loop {
            pace::end_phases(parts, running);
            match parts.events.pop_due() {
                Some(Due::Creation(task)) => life::create(parts, task),
                Some(Due::WakeUp(task)) => wake::wake(parts, task, None),
                None => break,
            }
        }
        if parts.ends.is_over {
            return;
        }
        // Moves come first, so that no PU chooses a task that leaves at once.
        numa::scan_pages(parts);
        balance::balance(parts);
        reschedule_all(parts);
    }

    /// Time of the next event.
    fn next_event(&self) -> Nanos {
        let Parts { events, queues, timers, scans, pus, .. } = &self.parts;
        let all = [
            self.running.next(),
            queues.next_slice_end(),
            events.next(),
            timers.next(),
            Some(scans.next),
            pus.next(),
        ];
        all.into_iter().flatten().min().unwrap_or(Nanos(u64::MAX))
    }

    /// Lets time pass until `to`, before which no event may be due.
    fn step(&mut self, to: Nanos) -> Result<(), SimError> {
        let parts = &mut self.parts;
        let from = parts.events.now;
        // An event that is due and not handled would stop time.
        if to <= from {
            let broken = format!("expected time to go on, found {to} after {from}");
            return Err(SimError::Broken(broken));
        }
        let time = to - from;
        let seconds = time.as_secs_f64();
        self.running.pass(time, &mut parts.tasks, &mut parts.queues);
        if parts.accesses.counts {
            for &OnPu { task, pu, .. } in &self.running.on {
                let stretch = parts.stretch(task);
                parts.accesses.count(task, stretch, parts.platform.node_of(pu), seconds);
            }
        }
        turns::note_both_ran(parts, time);
        parts.pollution.pass(seconds);
        self.tally.step(from, to, &self.running.on, parts.rates.now(), &parts.tasks);
        parts.events.now = to;
        let settings = parts.scenario.kernel.periodic_balance;
        let patience = settings.and_then(|settings| longest_wait(parts.loads(), settings));
        let step = Step {
            from,
            to,
            on: &self.running.on,
            queues: &parts.queues,
            targets: &parts.targets,
            tasks: &parts.tasks,
            jobs: &parts.jobs,
            teams: &parts.teams,
            accesses: &parts.accesses,
            new: parts.rates.take_new(),
            patience,
        };
        self.checker.step(&step).map_err(SimError::Broken)
    }
}

/// Applies the hotplug events that are due.
fn apply_hotplug(parts: &mut Parts<'_>) {
    if !parts.pus.apply(parts.events.now) {
        return;
    }
    parts.ends.has_machine_changed = true;
    parts.timers.reset(&parts.pus.domains);
    parts.rates.is_stale = true;
    (0..parts.tasks.len()).for_each(|task| moves::leave_offline(parts, task));
}

/// Chooses the running task of each PU.
fn reschedule_all(parts: &mut Parts<'_>) {
    let KernelScheduler { slice, stagger, .. } = parts.scenario.kernel;
    let now = parts.events.now;
    for pu in parts.machine().all_pus() {
        let before = parts.queues.running(pu);
        let rng = &mut parts.rng;
        if !parts.queues.reschedule(pu, now, || first_slice(rng, slice, stagger)) {
            continue;
        }
        parts.rates.is_stale = true;
        if let Some(task) = parts.queues.running(pu) {
            parts.tasks[task].end_wait(now);
            turns::note_wake_up(parts, task, pu);
        }
        if let Some(task) = before {
            parts.tasks[task].begin_wait(now);
        }
    }
}

/// Length of the first slice on a newly shared PU: a random number of parts.
fn first_slice(rng: &mut SplitMix64, slice: Nanos, stagger: u32) -> Nanos {
    // Without stagger no random number is drawn.
    if stagger == 1 {
        return slice;
    }
    let parts = 1 + rng.below(stagger as usize) as u64;
    Nanos((slice.0 * parts).div_ceil(stagger.into()))
}
