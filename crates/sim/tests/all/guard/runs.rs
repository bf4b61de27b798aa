//! Runs of one workload under the kernel alone and under a scheduler, with and without the guard.
//!
//! # Terms
//! - *Effect* of a scheduler on a workload: its mean turnaround over the kernel's, less 1, the means being over what
//!   is luck: where turns of the kernel end, and where jobs start. That is what the limit of 1 % is for: in a
//!   single run the kernel differs from itself by as much in every sixth workload.

use super::cases::Case;
use super::under::Under;
use colocate_engine::Meanwhile;
use colocate_engine::guard::{Guarding, QuantumGuard};
use colocate_policy::{Policy, PolicySpec};
use colocate_sim::{Platform, Scenario, SimulationOptions, simulate_with};
use std::collections::BTreeMap;

/// Runs under a scheduler have other luck than those under the kernel that they are compared with.
pub const OTHER_LUCK: u64 = 1 << 40;

/// Turnaround in seconds, simulated.
pub fn turnaround(
    waiting: Meanwhile,
    platform: &Platform<'_>,
    scenario: &Scenario,
    scheduler: &mut dyn Policy,
) -> f64 {
    let options = SimulationOptions { meanwhile: waiting, ..SimulationOptions::each_quantum() };
    let look = &mut |_: &colocate_engine::Round<'_>| ();
    let outcome = simulate_with(platform, scenario, (scheduler, "test"), &options, look).unwrap();
    outcome.turnaround().unwrap().as_secs_f64()
}

/// Turnarounds of several runs.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// Their mean.
    pub mean: f64,
    /// Variance of the mean; 0 of a single run.
    pub variance: f64,
}

impl Runs {
    pub fn of(times: &[f64]) -> Self {
        let n = times.len() as f64;
        let mean = times.iter().sum::<f64>() / n;
        let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
        Self { mean, variance: if n > 1.0 { squares / (n - 1.0) / n } else { 0.0 } }
    }

    /// Effect and its standard error.
    pub fn over(self, kernel: Self) -> (f64, f64) {
        let luck = (self.variance + kernel.variance).sqrt() / kernel.mean;
        (self.mean / kernel.mean - 1.0, luck)
    }
}

/// A workload, and what is known of it under the kernel: by first run and number.
pub struct Bench<'a> {
    pub case: &'a Case,
    waiting: Meanwhile,
    kernel: BTreeMap<(u64, u64), Runs>,
}

impl<'a> Bench<'a> {
    /// Nothing is known yet; `waiting` is what waiting jobs do.
    pub fn new(case: &'a Case, waiting: Meanwhile) -> Self {
        Self { case, waiting, kernel: BTreeMap::new() }
    }

    /// So many runs under the kernel, from a number on.
    pub fn kernel(&mut self, from: u64, times: u64) -> Runs {
        let (case, waiting) = (self.case, self.waiting);
        let run = |scenario: &Scenario| {
            let mut os = PolicySpec::named("os").plain();
            turnaround(waiting, &case.platform(), scenario, &mut *os)
        };
        let runs = || Runs::of(&case.again(from, times).iter().map(run).collect::<Vec<f64>>());
        *self.kernel.entry((from, times)).or_insert_with(runs)
    }

    /// Without the guard, or with it; and the part of the quanta that was the kernel's.
    pub fn under(&self, under: Under, guarded: bool, from: u64, times: u64) -> (Runs, f64) {
        let platform = self.case.platform();
        let mut controls = 0.0;
        let mut run = |mut scenario: Scenario| {
            scenario.seed ^= OTHER_LUCK;
            let mut inner = under.scheduler(&platform, &scenario);
            if !guarded {
                return turnaround(self.waiting, &platform, &scenario, &mut *inner);
            }
            let mut guard = QuantumGuard::new(inner, &under.name(), Guarding::default());
            let seconds = turnaround(self.waiting, &platform, &scenario, &mut guard);
            let (quanta, kernels) = guard.quanta();
            controls += kernels as f64 / quanta as f64 / times as f64;
            seconds
        };
        let times: Vec<f64> = self.case.again(from, times).into_iter().map(&mut run).collect();
        (Runs::of(&times), controls)
    }
}
