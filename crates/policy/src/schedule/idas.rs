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
//! [`select::by_traffic`] with `SIABW` and `TR(p) / s + Pen(p)` as a job's demand, `s` as for
//! [`mmas`](super::mmas); [`allocate::balanced`] with the plain rates.
//!
//! [`allocate::balanced`]: super::allocate::balanced
//! # Properties
//! - **Penalties are bounded** and no thread that loses less than the mean has one. -> test `penalties_by_hand`
//! - **None, none**: if all lose alike, it is `mhas`. -> test `alike_is_mhas`

use super::mhas::balance;
use super::mmas::{ideal, throttle};
use super::{Choice, Quantum, QueuedJob, select};
use crate::policy::by_rule;
use crate::row::{COUNTERS, Kind, Preset, Prior, Row, Setting, Shown, SoloProfile};

/// How much of a job's excess sensitivity becomes a penalty. Chosen: with 100, a job that loses one
/// percent more than the mean for each t/µs has the mean traffic reserved once more.
pub(crate) const KAPPA: f64 = 100.0;

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
    prior: &[Prior::Solo],
    make: |values, known| {
        let alone = known.alone.to_vec();
        let penalties = penalties(&alone, values.number("kappa"));
        by_rule(COUNTERS, move |it| it.plan(&choose(&it.now, &alone, &penalties)))
    },
    ..Row::EACH_QUANTUM
};

/// Which threads run in this quantum, and where; `alone` and `penalties` are by job.
fn choose(now: &Quantum<'_>, alone: &[SoloProfile], penalties: &[f64]) -> Vec<Choice> {
    let reserved: Vec<SoloProfile> = alone
        .iter()
        .zip(penalties)
        .map(|(alone, penalty)| SoloProfile { memory: alone.memory + penalty, ..*alone })
        .collect();
    let wanted = ideal(now, &reserved, |alone| alone.memory);
    let throttle = throttle(now, alone);
    let penalty = |job: &QueuedJob| penalties.get(job.job.0 as usize).copied().unwrap_or(0.0);
    let demand = |job: &QueuedJob| job.to_memory() / throttle + penalty(job);
    balance(now, select::by_traffic(now.queue, now.pus.len(), wanted, demand))
}

/// A penalty for each job, t/µs.
pub(crate) fn penalties(alone: &[SoloProfile], kappa: f64) -> Vec<f64> {
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
    use super::super::mmas;
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
        let mhas = balance(&now, mmas::select(&now, &jobs));
        assert_eq!(choose(&now, &jobs, &penalties(&jobs, KAPPA)), mhas);
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
        let second = |jobs: &[_]| choose(&now, jobs, &penalties(jobs, KAPPA))[1].job.0;
        assert_eq!(second(&jobs), 3);
        jobs[1].loss = 0.0;
        assert_eq!(second(&jobs), 1);
    }
}
