//! `idas`: IPC-degradation-aware scheduling (Feliu et al., TPDS 2014, Algorithm 3).
//!
//! # Problem
//! Of two jobs with the same traffic, one may lose much more by others' traffic than the other.
//! # Approach
//! As [`mhas`](super::mhas), but a job that loses more than others has bandwidth reserved for it that it
//! does not use: a *penalty*.
//! # Terms
//! - `Pen(p)`: the penalty, t/µs. How it was computed was not published with what we have. Ours:
//!   `Pen(p) = κ · max(0, g(p) − mean g) · AvgTR`, where `g(p)` is the share of its speed that `p` loses for
//!   each t/µs of others' traffic, measured beside the micro-benchmark of `colocate bench bandwidth`, and
//!   `AvgTR` the mean traffic of the jobs alone; no penalty is more than the largest traffic of a job.
//! - `SIABW`: `IABW` with `AvgTR(p) + Pen(p)` for `AvgTR(p)`.
//! # Algorithm
//! [`select::by_traffic`] with `SIABW` and `TR(p) / s + Pen(p)` for what a job asks for, `s` as for
//! [`mmas`](super::mmas); [`allocate::balanced`] with the plain rates.
//!
//! [`allocate::balanced`]: super::allocate::balanced
//! # Properties
//! - **Penalties are bounded** and no thread that loses less than the mean has one. -> test `penalties_by_hand`
//! - **None, none**: if all lose alike, it is `mhas`. -> test `alike_is_mhas`

use super::COUNTERS;
use super::mhas::balance;
use super::mmas::{ideal, throttle};
use super::{Choice, Quantum, QueuedJob, select};
use crate::evidence::Evidence;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::row::SoloProfile;
use crate::row::{Cadence, Kind, Preset, Prior, Row, Setting, Shown};
use crate::source::SourceSet;

/// How much of a job's excess sensitivity becomes a penalty. Chosen: with 100, a job that loses one
/// percent more than the mean for each t/µs has the mean traffic reserved once more.
pub const KAPPA: f64 = 100.0;

/// Its row in the table of policies.
pub static ROW: Row = Row {
    name: "idas",
    summary: "as mhas, with a penalty for jobs that suffer from traffic",
    source: "Feliu et al., TPDS 2014, Algorithm 3",
    settings: &[Setting {
        name: "kappa",
        kind: Kind::Number("not below 0", |kappa| kappa.is_finite() && kappa >= 0.0),
        default: Preset::Shown(Shown::Number(KAPPA)),
        meaning: "scale of the penalties",
    }],
    needs: COUNTERS,
    prior: &[Prior::Solo],
    cadence: Cadence::EachQuantum,
    waits: true,
    make: |values, known| Box::new(Idas::new(known.alone.to_vec(), values.number("kappa"))),
};

/// The scheduler, with what is known of each job alone and its penalty, by job.
#[derive(Clone, Debug)]
pub struct Idas {
    alone: Vec<SoloProfile>,
    penalties: Vec<f64>,
}

impl Idas {
    /// With penalties scaled by `kappa`; [`KAPPA`] by default.
    #[must_use]
    pub fn new(alone: Vec<SoloProfile>, kappa: f64) -> Self {
        let penalties = penalties(&alone, kappa);
        Self { alone, penalties }
    }

    fn penalty(&self, job: &QueuedJob) -> f64 {
        self.penalties.get(job.job.0 as usize).copied().unwrap_or(0.0)
    }
}

impl Idas {
    /// Which threads run in this quantum, and where.
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        let reserved: Vec<SoloProfile> = self
            .alone
            .iter()
            .zip(&self.penalties)
            .map(|(alone, penalty)| SoloProfile { memory: alone.memory + penalty, ..*alone })
            .collect();
        let wanted = ideal(now, &reserved, |alone| alone.memory);
        let throttle = throttle(now, &self.alone);
        let demand = |job: &QueuedJob| job.to_memory() / throttle + self.penalty(job);
        balance(now, select::by_traffic(now.queue, now.pus.len(), wanted, demand))
    }
}

impl Policy for Idas {
    fn needs(&self) -> SourceSet {
        COUNTERS
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        evidence.plan(&self.choose(&evidence.now))
    }
}

/// A penalty for each job, t/µs.
#[must_use]
pub fn penalties(alone: &[SoloProfile], kappa: f64) -> Vec<f64> {
    let mean = |of: fn(&SoloProfile) -> f64| {
        let sum = alone.iter().map(of).fold(0.0, |sum, each| sum + each);
        sum / select::float(alone.len().max(1))
    };
    let (loss, traffic) = (mean(|job| job.loss), mean(|job| job.memory));
    let most = alone.iter().map(|job| job.memory).fold(0.0, f64::max);
    let penalty = |job: &SoloProfile| (kappa * (job.loss - loss).max(0.0) * traffic).min(most);
    alone.iter().map(penalty).collect()
}

#[cfg(test)]
mod tests {
    use super::super::mhas::Mhas;
    use super::super::testing::queue;
    use super::*;
    use crate::testing::machine;

    fn alone(jobs: &[(f64, f64)]) -> Vec<SoloProfile> {
        let one =
            |&(memory, loss)| SoloProfile { memory, loss, seconds: 1.0, ..SoloProfile::default() };
        jobs.iter().map(one).collect()
    }

    /// Mean loss 0.02, mean traffic 20. The second job loses 0.01 more: 100 · 0.01 · 20 = 20. The third 0.05
    /// more: 100, but no traffic is above 40.
    #[test]
    fn penalties_by_hand() {
        let jobs = alone(&[(40.0, 0.0), (10.0, 0.03), (10.0, 0.07), (20.0, -0.02)]);
        let found = penalties(&jobs, 100.0);
        for (found, wanted) in found.iter().zip([0.0, 20.0, 40.0, 0.0]) {
            assert!((found - wanted).abs() < 1e-9, "{found}");
        }
    }

    #[test]
    fn alike_is_mhas() {
        let machine = machine("l3:2 core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let jobs = alone(&[(40.0, 0.1), (10.0, 0.1), (30.0, 0.1), (20.0, 0.1), (1.0, 0.1)]);
        let queue = queue(&[40.0, 10.0, 30.0, 20.0, 1.0]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let mhas = Mhas { alone: jobs.clone() }.choose(&now);
        assert_eq!(Idas::new(jobs, KAPPA).choose(&now), mhas);
    }

    /// On two contexts, 20 and 20 alone: SIABW = 2 · (20 + 20 + 0 + 40)/4 = 40. The head leaves 20 for one:
    /// without its penalty the second is nearest, with it the fourth.
    #[test]
    fn a_penalty_counts_as_traffic() {
        let machine = machine("core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut jobs = alone(&[(20.0, 0.0), (20.0, 0.08), (0.0, 0.0), (20.0, 0.0)]);
        let queue = queue(&[20.0, 20.0, 0.0, 20.0]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let second = |choices: Vec<Choice>| choices[1].job.0;
        assert_eq!(second(Idas::new(jobs.clone(), KAPPA).choose(&now)), 3);
        jobs[1].loss = 0.0;
        assert_eq!(second(Idas::new(jobs, KAPPA).choose(&now)), 1);
    }
}
