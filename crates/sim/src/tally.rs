//! What is counted while the simulation goes on, and the outcome made of it.

use crate::outcome::{JobOutcome, Moves, Outcome, Span, TaskOutcome, Together, Used};
use crate::pace::OnPu;
use crate::platform::Platform;
use crate::scenario::Scenario;
use crate::task::Task;
use crate::world::World;
use colocate_machine::{Machine, Nanos, PuIdx};
use colocate_model::Prediction;

/// Counts of a simulation so far.
#[derive(Debug)]
pub(crate) struct Tally {
    together: Together,
    /// Seconds that each was in use, as if in full.
    used: Used,
    /// Core of each PU.
    core_of: Vec<usize>,
    /// The most spans that are kept; more are forgotten.
    pub most_spans: usize,
    spans: Vec<Span>,
    /// By PU: where the last span of it stands in `spans`.
    open: Vec<Option<usize>>,
}

impl Tally {
    pub fn new(platform: &Platform<'_>, scenario: &Scenario) -> Self {
        let machine = platform.machine();
        let performance = platform.performance();
        Self {
            together: Together::new(scenario.jobs.len()),
            used: Used {
                pus: vec![0.0; machine.pus.len()],
                slots: vec![0.0; machine.cores.len()],
                ports: vec![0.0; machine.cores.len()],
                controllers: vec![0.0; performance.memory.len()],
                links: vec![0.0; performance.links.len()],
            },
            core_of: machine.pus.iter().map(|pu| pu.core.idx()).collect(),
            most_spans: 0,
            spans: Vec::new(),
            open: vec![None; machine.pus.len()],
        }
    }

    /// Counts a step; `on` in the order of PUs.
    pub fn step(&mut self, from: Nanos, to: Nanos, on: &[OnPu], now: &Prediction, tasks: &[Task]) {
        let seconds = (to - from).as_secs_f64();
        let job = |on: &OnPu| tasks[on.task].id.job.0 as usize;
        for (place, here) in on.iter().enumerate() {
            self.used.pus[here.pu.idx()] += seconds;
            let core = self.core_of[here.pu.idx()];
            for other in on[place + 1..].iter().take_while(|o| self.core_of[o.pu.idx()] == core) {
                self.together.add(job(here), job(other), seconds);
            }
        }
        add(&mut self.used.slots, &now.slots, seconds);
        add(&mut self.used.ports, &now.ports, seconds);
        add(&mut self.used.controllers, &now.controllers, seconds);
        add(&mut self.used.links, &now.links, seconds);
        if self.most_spans > 0 {
            on.iter().for_each(|here| self.span(from, to, here, tasks));
        }
    }

    fn span(&mut self, from: Nanos, to: Nanos, here: &OnPu, tasks: &[Task]) {
        let task = tasks[here.task].id;
        let open = self.open[here.pu.idx()].map(|place| &mut self.spans[place]);
        if let Some(last) = open.filter(|last| last.task == task && last.to == from) {
            last.to = to;
        } else if self.spans.len() < self.most_spans {
            self.open[here.pu.idx()] = Some(self.spans.len());
            self.spans.push(Span { task, pu: here.pu, from, to });
        }
    }

    /// The outcome of a simulation that has come so far.
    pub fn outcome(world: &World<'_>) -> Outcome {
        let tally = &world.tally;
        let platform = world.platform;
        let started = world.jobs.iter().filter_map(|job| job.launched).min();
        let seconds = (world.now - started.unwrap_or_default()).as_secs_f64();
        let jobs = world.jobs.iter().zip(&world.scenario.jobs).map(|(job, spec)| JobOutcome {
            name: spec.name.clone(),
            launched: job.launched,
            done: job.done,
            runs: job.runs,
            alone: None,
        });
        let born = world.tasks.iter().filter(|task| task.born.is_some());
        Outcome {
            machine: platform.machine().name.clone(),
            scenario: world.scenario.name.clone(),
            seed: world.scenario.seed,
            assumptions: platform.assumptions(),
            lasted: world.now,
            complete: world.jobs.iter().all(|job| job.done.is_some()),
            jobs: jobs.collect(),
            tasks: born.map(|task| task_outcome(task, world.now)).collect(),
            together: tally.together.clone(),
            used: share(&tally.used, seconds),
            spans: tally.spans.clone(),
        }
    }
}

fn task_outcome(task: &Task, now: Nanos) -> TaskOutcome {
    let total = task.total;
    TaskOutcome {
        id: task.id,
        name: task.name.clone(),
        born: task.born.unwrap_or(now),
        ended: task.ended.unwrap_or(now),
        ran: total.ran,
        waited: total.waited,
        slept: total.slept,
        instructions: total.instructions,
        cycles: total.cycles,
        alone: nanos(total.alone_s),
        memory_bytes: total.memory_bytes,
        far_instructions: total.far_instructions,
        moves: total.moves,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9).round() as u64)
}

fn add(sums: &mut [f64], values: &[f64], times: f64) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value * times;
    }
}

fn share(used: &Used, seconds: f64) -> Used {
    let of = |sums: &[f64]| -> Vec<f64> {
        sums.iter().map(|sum| if seconds > 0.0 { sum / seconds } else { 0.0 }).collect()
    };
    Used {
        pus: of(&used.pus),
        slots: of(&used.slots),
        ports: of(&used.ports),
        controllers: of(&used.controllers),
        links: of(&used.links),
    }
}

/// Counts a move from one PU to another.
pub(crate) fn count_move(machine: &Machine, moves: &mut Moves, from: PuIdx, to: PuIdx) {
    let node = |pu| machine.cores[machine.core_of(pu).idx()].node;
    let cache = |pu| machine.last_level_cache(pu);
    if machine.core_of(from) == machine.core_of(to) {
        moves.same_core += 1;
    } else if cache(from).is_some() && cache(from) == cache(to) {
        moves.same_cache += 1;
    } else if node(from) == node(to) {
        moves.same_node += 1;
    } else {
        moves.other_node += 1;
    }
}
