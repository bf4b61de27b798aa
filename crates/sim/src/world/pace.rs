//! Rates of running tasks, and the passing of time.

use super::invariants::Step;
use crate::SimError;
use crate::imbalance::longest_wait;
use crate::on_pu::OnPu;
use crate::task::TaskNo;
use crate::world::World;
use colocate_machine::Nanos;
use colocate_model::CpiStack;

impl World<'_> {
    /// Predicts the rates anew, if another set of tasks runs.
    pub fn refresh(&mut self) {
        if !self.rates.is_stale() {
            return;
        }
        self.count();
        let pus = self.platform.machine().all_pus();
        // In the order of PUs, on which `Tally::step` relies.
        let running: Vec<_> = pus.filter_map(|pu| Some((self.queues.running(pu)?, pu))).collect();
        let prediction = self.rates.predict(self.platform, &self.demands, &self.tasks, &running);
        self.pollution.set_rates(&running, &prediction);
        for (&(task, _), rate) in running.iter().zip(&prediction.tasks) {
            self.tasks[task].occupancy.clone_from(&rate.occupancy);
        }
        let on = running.iter().zip(&prediction.tasks).map(|(&(task, pu), rate)| {
            let speed = rate.instructions_per_second;
            let phase = self.tasks[task].course.phase();
            OnPu {
                task,
                pu,
                phase,
                speed,
                alone: self.demands.alone(phase),
                did: 0.0,
                cold: 0.0,
                memory: rate.memory.0,
                clock: self.platform.clock_of(pu),
                far: self.far_share(task, pu),
                until: self.until(task, speed),
            }
        });
        self.on = on.collect();
    }

    /// Adds the instructions since the last prediction to the tasks' counters.
    pub fn count(&mut self) {
        for (on, rate) in self.on.iter_mut().zip(&self.rates.now().tasks) {
            let did = std::mem::take(&mut on.did);
            let cold = std::mem::take(&mut on.cold);
            if did + cold <= 0.0 {
                continue;
            }
            let task = &mut self.tasks[on.task];
            let mix = &self.scenario.phases[on.phase].mix;
            let counted = &mut task.counted;
            let accesses = mix.load.zip(mix.store).map(|(l, s)| did * (l.get() + s.get()));
            counted.instructions += did;
            if self.jobs[task.id.job.0 as usize].watched && did > 0.0 {
                *task.watched.entry(on.phase).or_default() += did;
            }
            counted.accesses = counted.accesses.zip(accesses).map(|(sum, more)| sum + more);
            counted.misses.resize(counted.misses.len().max(rate.misses.len()), 0.0);
            for (sum, each) in counted.misses.iter_mut().zip(&rate.misses) {
                *sum += did * each;
            }
            add(&mut counted.stack, &rate.cpi, did);
            // The sources of refilled lines are not kept; most come from memory.
            counted.stack.memory += cold * on.clock;
        }
    }

    /// End of a task's phase or work at this speed.
    pub fn until(&self, task: TaskNo, speed: f64) -> Nanos {
        let task = &self.tasks[task];
        let (left, exact) = task.course.until_next();
        let at = self.events.now() + nanos_up(task.refill_s + left / speed);
        // Ends that need not be exact are put off to the grain, so that many fall together.
        let grain = self.scenario.grain.0;
        if exact || grain == 0 { at } else { Nanos(at.0.div_ceil(grain).saturating_mul(grain)) }
    }

    /// Lets time pass until `to`, before which no event may be due.
    pub fn step(&mut self, to: Nanos) -> Result<(), SimError> {
        // An event that is due and not handled would stop time.
        if to <= self.events.now() {
            return Err(SimError::Broken(format!(
                "expected time to go on, found {to} after {}",
                self.events.now()
            )));
        }
        let time = to - self.events.now();
        let seconds = time.as_secs_f64();
        for on in &mut self.on {
            let task = &mut self.tasks[on.task];
            // While it refills cold caches a task makes no progress.
            let warm = (seconds - task.refill_s).max(0.0);
            task.refill_s = (task.refill_s - seconds).max(0.0);
            let done = task.course.go_on(on.speed * warm);
            on.cold += seconds - warm;
            if task.course.spins() {
                on.did += on.speed * warm;
                task.total.spun += time;
            } else {
                on.did += done;
            }
            task.total.ran += time;
            self.queues.pass(on.task, time);
            task.total.instructions += done;
            task.total.cycles += on.clock * seconds;
            task.total.alone_s += done / on.alone;
            task.total.memory_bytes += on.memory * warm;
            task.total.far_instructions += on.far * done;
        }
        if self.reports_pages {
            for place in 0..self.on.len() {
                let OnPu { task, pu, .. } = self.on[place];
                self.count_use(task, pu, seconds);
            }
        }
        self.note_both_ran(time);
        self.pollution.pass(seconds);
        self.tally.step(self.events.now(), to, &self.on, self.rates.now(), &self.tasks);
        let from = self.events.now();
        let settings = self.scenario.kernel.periodic_balance;
        let patience = settings.and_then(|settings| longest_wait(self.loads(), settings));
        self.events.pass_to(to);
        let step = Step {
            from,
            to,
            on: &self.on,
            queues: &self.queues,
            targets: &self.targets,
            tasks: &self.tasks,
            jobs: &self.jobs,
            new: self.rates.take_new(),
            patience,
        };
        self.checker.step(&step).map_err(SimError::Broken)
    }
}

/// Adds a CPI stack, times a number of instructions.
fn add(sum: &mut CpiStack, each: &CpiStack, times: f64) {
    sum.core += each.core * times;
    sum.siblings += each.siblings * times;
    sum.stalls += each.stalls * times;
    sum.caches += each.caches * times;
    sum.memory += each.memory * times;
    sum.queues += each.queues * times;
    sum.communication += each.communication * times;
}

/// Largest rounding error of a sum of times, in nanoseconds; far below an instruction.
const ROUNDING_NS: f64 = 1e-3;

/// Whole nanoseconds, rounded up, at least 1; for NaN the last time of all.
///
/// A time whole but for rounding is not rounded up: else a count in between would move a phase's
/// end.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
fn nanos_up(seconds: f64) -> Nanos {
    if seconds.is_nan() {
        return Nanos(u64::MAX);
    }
    Nanos((seconds * 1e9 - ROUNDING_NS).ceil().max(1.0) as u64)
}
