//! Load averages of tasks: the share of the recent past in which each was runnable.
//!
//! # Approach
//! Per-entity load tracking (kernel/sched/pelt.c, 6.12): a sum over runnable time, halved every 32
//! periods of 1024 µs. Between whole periods the decay is interpolated linearly. A sleeping task
//! keeps its decaying load, and the PU where it last ran counts it. Only wake-ups use these
//! averages; balancing counts threads.

use crate::queues::{FILLER, NORMAL, Queues};
use crate::task::TaskNo;
use colocate_machine::{Nanos, PuIdx};

/// Period of the averages.
const PERIOD: u64 = 1_024_000;
/// Periods in which an average is halved.
const HALF_LIFE: u64 = 32;
/// Decay of one period: the 32nd root of a half.
const DECAY: f64 = 0.978_572_062_087_700_1;
/// Halvings after which nothing is left.
const MOST_HALVINGS: u64 = 63;

/// Average of a task.
#[derive(Clone, Copy, Debug)]
struct LoadAverage {
    /// Share of time runnable, until `at`.
    value: f64,
    at: Nanos,
    is_runnable: bool,
}

/// Averages of all tasks.
#[derive(Clone, Debug)]
pub(crate) struct LoadAverages {
    /// By task; 0 of a task that is not created yet.
    of: Vec<LoadAverage>,
}

impl LoadAverages {
    /// Averages of tasks that are not created yet.
    pub fn new(tasks: usize) -> Self {
        let none = LoadAverage { value: 0.0, at: Nanos::ZERO, is_runnable: false };
        Self { of: vec![none; tasks] }
    }

    /// Begins the average of a new task, which counts as always runnable.
    pub fn begin(&mut self, task: TaskNo, now: Nanos) {
        self.of[task] = LoadAverage { value: 1.0, at: now, is_runnable: false };
    }

    /// Ends the average of a task that has done its work.
    pub fn end(&mut self, task: TaskNo) {
        self.of[task].value = 0.0;
    }

    /// Notes that a task becomes runnable, or sleeps.
    pub fn set_runnable(&mut self, task: TaskNo, is_runnable: bool, now: Nanos) {
        self.of[task] = LoadAverage { value: self.share(task, now), at: now, is_runnable };
    }

    /// Load of a task, in units of its weight.
    pub fn task(&self, queues: &Queues, task: TaskNo, now: Nanos) -> i64 {
        let weight = if queues.is_filler(task) { FILLER } else { NORMAL };
        scaled(self.share(task, now), weight)
    }

    /// Load of a PU: of the tasks that are on it or were there last.
    pub fn pu(&self, queues: &Queues, pu: PuIdx, now: Nanos) -> i64 {
        let here = (0..self.of.len()).filter(|&task| queues.pu_of(task) == Some(pu));
        here.map(|task| self.task(queues, task, now)).sum()
    }

    fn share(&self, task: TaskNo, now: Nanos) -> f64 {
        let LoadAverage { value, at, is_runnable } = self.of[task];
        let left = decay(now - at);
        value * left + if is_runnable { 1.0 - left } else { 0.0 }
    }
}

/// Part of an average that is left after a time.
fn decay(time: Nanos) -> f64 {
    let periods = time.0 / PERIOD;
    let halvings = (periods / HALF_LIFE).min(MOST_HALVINGS);
    let mut left = 1.0;
    (0..halvings).for_each(|_| left *= 0.5);
    (0..periods % HALF_LIFE).for_each(|_| left *= DECAY);
    let part = (time.0 % PERIOD) as f64 / PERIOD as f64;
    left * (1.0 - part * (1.0 - DECAY))
}

#[allow(clippy::cast_possible_truncation)] // a share of a small weight
fn scaled(share: f64, weight: i64) -> i64 {
    (share * weight as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_loses_half_in_32_periods() {
        let mut averages = LoadAverages::new(1);
        let queues = Queues::new(1, 1, Nanos::from_millis(3));
        averages.begin(0, Nanos::ZERO);
        assert_eq!(averages.task(&queues, 0, Nanos::ZERO), 1024);
        assert_eq!(averages.task(&queues, 0, Nanos(PERIOD * HALF_LIFE)), 512);
        averages.set_runnable(0, true, Nanos(PERIOD * HALF_LIFE));
        // Half of what is missing to the whole.
        assert_eq!(averages.task(&queues, 0, Nanos(PERIOD * HALF_LIFE * 2)), 768);
        averages.end(0);
        averages.set_runnable(0, false, Nanos(PERIOD * HALF_LIFE));
        assert_eq!(averages.task(&queues, 0, Nanos(PERIOD * HALF_LIFE)), 0);
    }

    /// Runnable for one of four parts of 1 ms, again and again.
    #[test]
    fn an_average_is_the_share_of_the_time() {
        let mut averages = LoadAverages::new(1);
        let queues = Queues::new(1, 1, Nanos::from_millis(3));
        averages.begin(0, Nanos::ZERO);
        for part in 0..1_000_u64 {
            let at = Nanos(part * 250_000);
            averages.set_runnable(0, part % 4 == 0, at);
        }
        let load = averages.task(&queues, 0, Nanos(1_000 * 250_000));
        assert!((250..262).contains(&load), "{load}");
    }
}
