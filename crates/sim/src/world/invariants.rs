//! Invariants of every step of every simulation. They are always checked: a simulation that breaks
//! a rule ends with an error.
//!
//! The checker keeps accounts of its own, so that it does not rely on the figures it checks.
//!
//! # Rules
//! 1. Time goes on, and steps follow each other without a gap.
//! 2. A PU runs one task at most, and a task runs on one PU at most; the PU may be used and is
//!    online, the task is alive and its job is not stopped.
//! 3. A placed task runs on its target, and nowhere else.
//! 4. A PU on which tasks wait runs one of them.
//! 5. With periodic balancing, no free task waits for longer than two of the longest balancing
//!    intervals while a PU is idle.
//! 6. Rates are finite and above 0; no core does more than its front end can begin, no controller
//!    or link carries more than its bandwidth.
//! 7. Shares of a task's memory sum to 1.
//! 8. The run time of each task is that of the steps, and so are its instructions, cold caches
//!    apart. Time since creation is time that it ran, waited, was stopped, slept, or was over with
//!    its work. A spinning thread gets nothing done.
//! 9. At its end a task has done its work and the serial parts that fell to it, not more and not
//!    less.
//! 10. At a barrier no thread continues before all threads of the job with work left have arrived,
//!     nor while one of them does the serial part.

use crate::accesses::Accesses;
use crate::job::SimulatedJob;
use crate::on_pu::OnPu;
use crate::queues::Queues;
use crate::scenario::{JobSpec, Scenario};
use crate::targets::Targets;
use crate::task::{SimulatedTask, TaskState};
use crate::teams::TeamMember;
use colocate_machine::{Machine, Nanos, PuIdx};
use colocate_model::Prediction;

/// Tolerated relative error of sums of thousands of rounded terms.
const NEAR: f64 = 1e-6;

/// Largest use of a resource, as a part of the whole: the model's search ends when rates change by
/// less than the excess.
const FULL: f64 = 1.0 + 1e-3;

/// State between two events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'w> {
    pub from: Nanos,
    pub to: Nanos,
    pub on: &'w [OnPu],
    pub queues: &'w Queues,
    pub targets: &'w Targets,
    pub tasks: &'w [SimulatedTask],
    pub jobs: &'w [SimulatedJob],
    pub teams: &'w [TeamMember],
    pub accesses: &'w Accesses,
    /// The prediction, if another than in the step before.
    pub new: Option<&'w Prediction>,
    /// How long a free task may wait while a PU is idle; `None` without a limit.
    pub patience: Option<Nanos>,
}

/// Independent accounts of a simulation.
#[derive(Clone, Debug)]
pub(crate) struct Checker {
    now: Nanos,
    usable: Vec<bool>,
    /// Hotplug events to come, the next event last.
    events: Vec<(Nanos, PuIdx, bool)>,
    /// Jobs with a barrier, by place.
    barriers: Vec<usize>,
    /// By task: run time.
    ran: Vec<Nanos>,
    /// By task: the most instructions at its speed.
    most_instructions: Vec<f64>,
    /// By task: the last step in which it ran.
    seen: Vec<u64>,
    steps: u64,
    /// Since when a PU has been idle while a free task waits; `None` if that is not so now.
    beside_idle: Option<Nanos>,
}

/// The first broken rule, in one line.
pub(crate) type Broken = String;

impl Checker {
    pub fn new(machine: &Machine, usable: &[bool], scenario: &Scenario, tasks: usize) -> Self {
        let events = scenario.events.iter();
        let mut events: Vec<_> = events
            .filter_map(|event| Some((event.at, machine.pu_by_os(event.pu)?, event.online)))
            .collect();
        events.sort_by_key(|event| event.0);
        events.reverse();
        let jobs = scenario.jobs.iter().enumerate();
        Self {
            now: Nanos::ZERO,
            usable: usable.to_vec(),
            events,
            barriers: jobs.filter(|(_, job)| meets(job)).map(|(job, _)| job).collect(),
            ran: vec![Nanos::ZERO; tasks],
            most_instructions: vec![0.0; tasks],
            seen: vec![0; tasks],
            steps: 0,
            beside_idle: None,
        }
    }

    /// Checks the rules for a step.
    pub fn step(&mut self, step: &Step<'_>) -> Result<(), Broken> {
        self.steps += 1;
        if step.from != self.now || step.to <= step.from {
            return Err(format!(
                "expected a step from {}, found {} to {}",
                self.now, step.from, step.to
            ));
        }
        self.now = step.to;
        while let Some((_, pu, online)) = self.events.pop_if(|event| event.0 <= step.from) {
            self.usable[pu.idx()] = online;
            // New domains have new timers, so the wait of rule 5 begins anew.
            self.beside_idle = None;
        }
        for on in step.on {
            self.running(step, on).map_err(|what| {
                let id = step.tasks[on.task].id;
                format!("task {id} on {} at {}: {what}", on.pu, step.from)
            })?;
        }
        for &job in &self.barriers {
            barrier(step, job)?;
        }
        if !queues(step, &self.usable)? {
            self.beside_idle = None;
        } else if let Some(patience) = step.patience {
            let since = *self.beside_idle.get_or_insert(step.from);
            if step.to - since > patience {
                return Err(format!("a free task waits while a PU is idle, since {since}"));
            }
        }
        step.new.map_or(Ok(()), |new| rates(step, new))
    }

    /// Checks rules 2 and 3 for a running task, and keeps the accounts for rule 8.
    fn running(&mut self, step: &Step<'_>, on: &OnPu) -> Result<(), &'static str> {
        let task = &step.tasks[on.task];
        if std::mem::replace(&mut self.seen[on.task], self.steps) == self.steps {
            return Err("runs twice");
        }
        if !self.usable[on.pu.idx()] || !step.targets.may_be_on(on.task, on.pu) {
            return Err("runs where it may not");
        }
        if step.jobs[task.job()].is_stopped {
            return Err("runs while its job is stopped");
        }
        if task.state != TaskState::Ready || step.queues.running(on.pu) != Some(on.task) {
            return Err("runs, but not by its queue");
        }
        let time = step.to - step.from;
        self.ran[on.task] += time;
        if !task.course.spins() {
            self.most_instructions[on.task] += on.pace.speed * time.as_secs_f64();
        }
        // An upper bound: a task with cold caches makes no progress at first.
        let most = self.most_instructions[on.task];
        if task.total.ran != self.ran[on.task] {
            return Err("has run for another time than was counted");
        }
        // One instruction for rounding, beside the relative error of long sums.
        if task.total.instructions > most * (1.0 + NEAR) + 1.0 {
            return Err("has done more than its speed allows");
        }
        Ok(())
    }

    /// Checks rules 8 and 9 at the end; `complete` if all jobs did their work.
    pub fn end(&self, tasks: &[SimulatedTask], complete: bool) -> Result<(), Broken> {
        for task in tasks {
            let Some((created, ended)) = task.created.zip(task.ended) else { continue };
            let total = task.total;
            let known = total.ran + total.waited + total.stopped + total.slept;
            if known != ended - created {
                let life = ended - created;
                return Err(format!(
                    "task {} lived {life}, but {known} are accounted for",
                    task.id
                ));
            }
            let did = total.instructions;
            let work = task.course.work + task.course.extra;
            let done = complete && task.state == TaskState::Ended;
            if done && did < work * (1.0 - NEAR) - 1.0 {
                return Err(format!("task {} did {did} of {work} instructions", task.id));
            }
        }
        Ok(())
    }
}

/// Checks rule 4. Returns, for rule 5, whether a free task waits while a PU is idle.
fn queues(step: &Step<'_>, usable: &[bool]) -> Result<bool, Broken> {
    let mut running = 0;
    let mut idle = false;
    let mut free_waits = false;
    for (place, &is_usable) in usable.iter().enumerate() {
        let pu = PuIdx::new(place);
        let waiting = step.queues.waiting(pu);
        let runs = step.queues.running(pu).is_some();
        running += usize::from(runs);
        idle |= is_usable && step.queues.load(pu) == 0;
        if !runs && !waiting.is_empty() {
            return Err(format!("tasks wait on PU {place}, which runs none, at {}", step.from));
        }
        free_waits |= waiting.iter().any(|&task| step.targets.is_unbound(task));
    }
    if running != step.on.len() {
        return Err(format!("{running} tasks run, {} are accounted for", step.on.len()));
    }
    Ok(idle && free_waits)
}

/// Whether all threads of a job wait for each other at a barrier.
fn meets(job: &JobSpec) -> bool {
    job.barrier.is_some_and(|barrier| !barrier.takes_turns())
}

/// Checks rule 10 for a job.
fn barrier(step: &Step<'_>, job: usize) -> Result<(), Broken> {
    let tasks = step.jobs[job].tasks().map(|no| (no, &step.tasks[no]));
    let team = tasks.filter(|(_, task)| task.has_work());
    let least = team.clone().map(|(no, _)| step.teams[no].arrived).min();
    let serial = team.clone().filter(|(_, task)| task.course.is_serial()).count();
    for (no, task) in team {
        let ahead = Some(step.teams[no].arrived) != least || serial > 0;
        let waits = step.teams[no].waits;
        let goes_on = !waits && !task.course.is_serial();
        let works = waits && task.state == TaskState::Ready && !task.course.spins();
        if (goes_on && ahead) || works || serial > 1 {
            let at = step.from;
            return Err(format!("task {} passes a barrier too early, at {at}", task.id));
        }
    }
    Ok(())
}

/// Checks rules 6 and 7 for a new prediction.
fn rates(step: &Step<'_>, new: &Prediction) -> Result<(), Broken> {
    for on in step.on {
        let id = step.tasks[on.task].id;
        let pages = &step.accesses.of[on.task].pages;
        let sum: f64 = pages.iter().sum();
        let speed = on.pace.speed;
        if !(speed.is_finite() && speed > 0.0) {
            return Err(format!("task {id} has speed {speed}"));
        }
        if !pages.is_empty() && (sum - 1.0).abs() > NEAR {
            return Err(format!("task {id} has memory shares that sum to {sum}"));
        }
    }
    for (what, used) in [
        ("front ends", &new.slots),
        ("ports", &new.ports),
        ("controllers", &new.controllers),
        ("links", &new.links),
    ] {
        if let Some(found) = used.iter().find(|used| used.is_nan() || **used > FULL) {
            return Err(format!("expected at most all of the {what}, found {found}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::Parts;
    use crate::targets::Facts;
    use crate::testing::{platform, scenario};
    use crate::world::World;
    use colocate_model::Phase;
    use colocate_policy::{DefaultPlacement, Plan};

    /// State of a simulation to tamper with, and the running tasks.
    struct Tampered<'w, 'a> {
        parts: &'w mut Parts<'a>,
        on: &'w mut Vec<OnPu>,
        checker: &'w mut Checker,
    }

    /// Result of the checker for another millisecond of a simulation that was tampered with.
    fn verdict(tamper: impl Fn(&mut Tampered<'_, '_>)) -> Result<(), Broken> {
        let scenario = scenario(Phase::default(), true);
        let mut world = World::new(platform(), &scenario).unwrap();
        world.run(Nanos::from_millis(10)).unwrap();
        let time = Nanos::from_millis(1);
        let World { parts, running, checker, .. } = &mut world;
        running.pass(time, &mut parts.tasks, &mut parts.queues);
        let mut on = running.on.to_vec();
        tamper(&mut Tampered { parts, on: &mut on, checker });
        let step = Step {
            from: parts.events.now,
            to: parts.events.now + time,
            on: &on,
            queues: &parts.queues,
            targets: &parts.targets,
            tasks: &parts.tasks,
            jobs: &parts.jobs,
            teams: &parts.teams,
            accesses: &parts.accesses,
            new: Some(parts.rates.now()),
            patience: Some(Nanos::ZERO),
        };
        checker.step(&step)
    }

    fn refused(word: &str, tamper: impl Fn(&mut Tampered<'_, '_>)) {
        let broken = verdict(tamper).unwrap_err();
        assert!(broken.contains(word), "{broken}");
    }

    #[test]
    fn every_rule_is_kept_without_tampering() {
        assert_eq!(verdict(|_| {}), Ok(()));
    }

    #[test]
    fn every_broken_rule_is_noticed() {
        refused("expected a step from", |it| it.parts.events.now = Nanos::from_millis(11));
        refused("runs twice", |it| it.on[1].task = it.on[0].task);
        refused("runs where it may not", |it| {
            let Parts { pus, targets, tasks, .. } = &mut *it.parts;
            let other = pus.iter().find(|other| *other != it.on[0].pu).unwrap();
            let fill = DefaultPlacement::FillInOrder { pus: vec![pus.os(other)] };
            let plan = Plan { default_placement: fill, ..Plan::default() };
            targets.set(&plan, tasks.iter().map(|task| task.id), pus);
            let facts = Facts { is_stopped: false, stays_on: None };
            targets.update(it.on[0].task, facts, pus, |_| true);
        });
        refused("runs where it may not", |it| {
            it.checker.events.push((Nanos::from_millis(9), it.on[0].pu, false));
        });
        refused("its job is stopped", |it| assert!(it.parts.jobs[0].stop()));
        refused("passes a barrier too early", |it| it.parts.teams[1].arrive());
        refused("passes a barrier too early", |it| it.parts.teams[1].waits = true);
        refused("but not by its queue", |it| {
            it.parts.tasks[it.on[0].task].enter(TaskState::Asleep, Nanos::from_millis(10));
        });
        refused("are accounted for", |it| {
            it.on.pop();
        });
        refused("a free task waits while a PU is idle", |it| {
            let queues = &mut it.parts.queues;
            let task = it.on.pop().unwrap().task;
            queues.dequeue(task);
            queues.enqueue(task, it.on[0].pu);
        });
        refused("which runs none", |it| {
            let queues = &mut it.parts.queues;
            let free = it.parts.pus.iter().find(|pu| queues.load(*pu) == 0).unwrap();
            queues.enqueue(0, free);
        });
        refused("has speed", |it| it.on[0].pace.speed = f64::NAN);
        refused("memory shares", |it| {
            let Parts { memory, accesses, .. } = &mut *it.parts;
            let task = it.on[0].task;
            let region = accesses.own_region(task).unwrap();
            memory[region].put(&[0.5; 8]);
            accesses.update(task, 0, memory);
        });
        refused("controllers", |it| it.parts.rates.now_mut().controllers[0] = 1.1);
    }

    #[test]
    fn wrong_counts_are_noticed() {
        refused("another time than was counted", |it| {
            let OnPu { task, pace, .. } = it.on[0];
            it.parts.tasks[task].run(&pace, Nanos(1));
        });
        refused("more than its speed allows", |it| {
            it.on.iter_mut().for_each(|on| on.pace.speed /= 2.0);
        });
    }
}
