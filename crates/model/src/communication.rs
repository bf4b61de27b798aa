//! Cost of wake-ups between threads, by placement.
//!
//! The unit is seconds a second, as for the other costs of a placement, so that costs can be added.

use colocate_machine::calibrated::{Calibration, PuDistance, Quantity};

/// Wake-up latency in seconds, from the wake-up until the woken thread runs on an idle PU, by the
/// topological relation of the two PUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WakeUpCosts([f64; PuDistance::ALL.len()]);

impl Default for WakeUpCosts {
    /// Chosen: between a virtual machine with two PUs (4 µs on the same PU, 18 µs to an idle one,
    /// docs/reference/calibrate.md) and the exit latency of deep idle states.
    fn default() -> Self {
        Self([4e-6, 8e-6, 20e-6, 30e-6, 50e-6])
    }
}

impl WakeUpCosts {
    /// Measured latencies; defaults where not measured.
    #[must_use]
    pub fn measured(found: &Calibration) -> Self {
        let mut costs = Self::default();
        for (cost, pair) in costs.0.iter_mut().zip(PuDistance::ALL) {
            if let Some(figure) = found.get(&Quantity::WakeUp { pair, busy: false }) {
                // Calibrations are in ns.
                *cost = figure.value * 1e-9;
            }
        }
        costs
    }

    /// Latency between two PUs in this relation, in seconds.
    #[must_use]
    pub fn of(&self, pair: PuDistance) -> f64 {
        // `ALL` has every relation, so the default of 0 is not used.
        PuDistance::ALL.iter().position(|each| *each == pair).map_or(0.0, |at| self.0[at])
    }

    /// Largest latency, in seconds.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }
}

/// Interaction of two tasks, each on a PU of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchange {
    /// Wake-ups a second, in both directions together.
    pub per_second: f64,
    /// Mean time by which a wake-up delays both tasks, in seconds.
    pub wait: f64,
    /// Share of the time in which both tasks run, 0 to 1.
    pub both_run: f64,
    /// Seconds by which wake-ups on the waker's PU alone are cheaper than where the kernel has them,
    /// on average, as turns show; negative if dearer. `None` if turns are unknown.
    pub saved: Option<f64>,
    /// Seconds for which wake-ups of the pair have been counted.
    pub counted_for: f64,
}

impl Exchange {
    /// Gain of sharing a PU, in seconds a second; negative for a loss. Wake-ups are cheaper on one
    /// PU, but the tasks cannot run at the same time. Until turns have been seen both on one PU and
    /// on two, the wait shows what a wake-up on one PU saves. On one PU there are far more wake-ups
    /// a second than two PUs would have, so more than all the time does not count.
    #[must_use]
    pub fn gain_together(&self, costs: &WakeUpCosts) -> f64 {
        // A longer wait is for a busy PU, and does not change by sharing.
        let expected = self.wait.min(costs.most()) - costs.of(PuDistance::SamePu);
        (self.per_second * self.saved.unwrap_or(expected)).min(1.0) - self.both_run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10,000 times a second 50 µs instead of 4: 0.46 s; three tenths of the time both run.
    #[test]
    fn what_sharing_a_pu_gains() {
        let costs = WakeUpCosts::default();
        let pair =
            Exchange { per_second: 10_000.0, wait: 50e-6, both_run: 0.3, ..Exchange::default() };
        assert!((pair.gain_together(&costs) - 0.16).abs() < 1e-9);
        let parallel = Exchange { both_run: 0.9, ..pair };
        assert!(parallel.gain_together(&costs) < 0.0);
        let crowded = Exchange { wait: 5e-3, ..pair };
        assert!((crowded.gain_together(&costs) - 0.16).abs() < 1e-9);
    }

    /// A host that polls has the woken task run after 4 µs, as on one PU; a turn takes 6 µs more all the same, 10,000 times a
    /// second. A turn may also be longer on one PU.
    #[test]
    fn measured_turns_tell_more_than_the_wait() {
        let costs = WakeUpCosts::default();
        let pair =
            Exchange { per_second: 10_000.0, wait: 4e-6, both_run: 0.01, ..Exchange::default() };
        assert!(pair.gain_together(&costs) < 0.0);
        for (saved, gain) in [(6e-6, 0.05), (-6e-6, -0.07)] {
            let measured = Exchange { saved: Some(saved), ..pair };
            assert!((measured.gain_together(&costs) - gain).abs() < 1e-9);
        }
    }

    #[test]
    fn measured_costs_take_the_place_of_default_ones() {
        use colocate_machine::calibrated::{Figure, FigureUnit};
        let what = Quantity::WakeUp { pair: PuDistance::SameCache, busy: false };
        let figure = Figure {
            what,
            unit: FigureUnit::Ns,
            value: 18_300.0,
            low: 16_800.0,
            high: 20_000.0,
            unix_s: 5,
            source: "test".into(),
        };
        let found = Calibration {
            identity: String::new(),
            kernel: None,
            started_unix_s: 5,
            seconds: 0.0,
            figures: vec![figure],
            assumed: vec![],
            absent: vec![],
            disagreements: vec![],
        };
        let costs = WakeUpCosts::measured(&found);
        assert!((costs.of(PuDistance::SameCache) - 18.3e-6).abs() < 1e-12);
        assert!((costs.of(PuDistance::SamePu) - 4e-6).abs() < 1e-12);
    }
}
