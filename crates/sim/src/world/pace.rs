//! Rates of running tasks, and the ends of their phases.

use crate::course::SegmentEnd;
use crate::on_pu::{OnPu, Running};
use crate::parts::Parts;
use crate::task::{Pace, TaskNo, TaskState};
use crate::world::barrier::{arrive, end_serial};
use crate::world::life::{finish, sleep};
use crate::world::memory::use_memory;
use colocate_machine::{Nanos, PuIdx};
use colocate_model::TaskRate;

/// Ends the phases that are over, and with them tasks and jobs.
pub(crate) fn end_phases(parts: &mut Parts<'_>, running: &mut Running) {
    for place in 0..running.on.len() {
        let OnPu { task, pu, until, .. } = running.on[place];
        // A thread whose slice is over must not keep a phase that is done: with a grain longer
        // than slices it would never run at that phase's end.
        let slice_end = parts.queues.slice_end(pu);
        let leaves = parts.scenario.grain > Nanos::ZERO
            && slice_end.is_some_and(|end| end <= parts.events.now);
        if until > parts.events.now && !(leaves && parts.tasks[task].course.is_due()) {
            continue;
        }
        // Its next end is predicted anew.
        running.on[place].until = Nanos(u64::MAX);
        parts.rates.is_stale = true;
        while parts.tasks[task].state == TaskState::Ready && parts.tasks[task].course.is_due() {
            match parts.tasks[task].course.next() {
                SegmentEnd::Phase => {}
                SegmentEnd::Sleep(time) => sleep(parts, task, time),
                SegmentEnd::Barrier => arrive(parts, task),
                SegmentEnd::SerialDone => end_serial(parts, task),
                SegmentEnd::Done => finish(parts, task),
            }
        }
        // Only memory that is used in single stretches changes with the stretch.
        if parts.accesses.change_with_stretch(task) {
            use_memory(parts, task);
        }
    }
}

/// Predicts the rates anew, if another set of tasks runs.
pub(crate) fn refresh(parts: &mut Parts<'_>, running: &mut Running) {
    if !parts.rates.is_stale {
        return;
    }
    count(parts, running);
    let pus = parts.machine().all_pus();
    // In the order of PUs, on which `SimulationSums::step` relies.
    let tasks: Vec<_> = pus.filter_map(|pu| Some((parts.queues.running(pu)?, pu))).collect();
    let Parts { platform, demands, accesses, .. } = parts;
    let prediction = parts.rates.predict(platform, demands, &parts.tasks, accesses, &tasks);
    parts.pollution.set_rates(&tasks, &prediction);
    let on = tasks.iter().zip(&prediction.tasks);
    running.on = on.map(|(&(task, pu), rate)| on_pu(parts, task, pu, rate)).collect();
}

/// A running task at these rates.
fn on_pu(parts: &Parts<'_>, task: TaskNo, pu: PuIdx, rate: &TaskRate) -> OnPu {
    let phase = parts.tasks[task].course.phase();
    let pace = Pace {
        speed: rate.instructions_per_second,
        alone: parts.demands.alone(phase),
        memory: rate.memory.0,
        clock: parts.platform.clock_of(pu),
        far: parts.accesses.far_share(task, parts.platform.node_of(pu)),
    };
    OnPu { task, pu, phase, pace, did: 0.0, cold: 0.0, until: until(parts, task, pace.speed) }
}

/// Adds the instructions since the last prediction to the tasks' counters.
pub(crate) fn count(parts: &mut Parts<'_>, running: &mut Running) {
    running.count(&mut parts.tasks, &parts.jobs, &parts.scenario.phases, parts.rates.now());
}

/// End of a task's phase or work at this speed.
fn until(parts: &Parts<'_>, task: TaskNo, speed: f64) -> Nanos {
    let (seconds, exact) = parts.tasks[task].until_next(speed);
    let at = parts.events.now + nanos_up(seconds);
    // Ends that need not be exact are put off to the grain, so that many fall together.
    let grain = parts.scenario.grain.0;
    if exact || grain == 0 { at } else { Nanos(at.0.div_ceil(grain).saturating_mul(grain)) }
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
