//! `fair` and `perf-fair`: progress-aware scheduling (Feliu et al., IPDPS 2015 and IEEE TC 2017).
//!
//! # Problem
//! Jobs that suffer most from the others fall behind, and the last job decides when all are done.
//! # Approach
//! The jobs of least progress run. `perf-fair` allots only a share of the contexts by progress, and
//! the rest to jobs that keep the memory traffic even, as [`bas`](bandwidth).
//! # Terms
//! See [`progress`](super::progress).
//! - `f`: share of the contexts that `perf-fair` allots by progress.
//! - `U`: greatest unfairness at which `perf-fair` allots by traffic too. Unfairness is the
//!   greatest slowdown over the least, by the progress of the jobs in the queue.
//!
//! How the published scheduler mixes both was not found; `f` and `U` are ours.
//! # Algorithm
//! 1. Take in the last quantum.
//! 2. If an estimate is due, run one job in a short quantum while all others wait: see
//!    [`progress`](super::progress).
//! 3. Else `fair` runs the jobs of least progress. `perf-fair` does the same while the unfairness
//!    is above `U`; else it runs these jobs on `f` of the contexts, and fills the rest by
//!    [`select::by_traffic`] with the remainder of `OATR`.
//! 4. [`most_with_least`](super::allocate::most_with_least).
//! # Properties
//! - **No starvation**: every job runs again and again. -> tests `no_job_starves`,
//!   `no_job_waits_long`
//! - **Alone**: while it is estimated, no other job runs. -> test `alone_while_estimated`
//! - **Mixed only while it is fair**: above `U` all contexts are given by progress.
//!   -> test `mixing_by_hand`

use super::allocate::choices;
use super::progress::{Estimating, JobProgress, ProgressTable, ordered};
use super::{
    Allocated, Quantum, QuantumOutcome, QueuedJob, Scheduler, Selected, SelectedJob, bandwidth,
    select,
};
use crate::evidence::Evidence;
use crate::places::UsableMachine;
use crate::plan::Plan;
use crate::row::{PolicyRow, PolicySpec, Purpose, Setting, SettingKind, Value};
use colocate_machine::PuIdx;

/// Share of the contexts allotted by progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixing {
    /// `f`: share of the contexts always allotted by progress; 1 is `fair`.
    pub share: f64,
    /// `U`: unfairness, a ratio of slowdowns, above which all contexts are allotted by progress.
    pub limit: f64,
}

impl Mixing {
    /// Settings of `fair`.
    pub const FAIR: Self = Self { share: 1.0, limit: 1.0 };
    /// Settings of `perf-fair`. Chosen: half, and a slowest job that is a fifth slower than the
    /// fastest. Without a limit, the half allotted by traffic leaves out jobs whose traffic is far
    /// from the mean (docs/results/feliu.md).
    pub const PERF_FAIR: Self = Self { share: 0.5, limit: 1.2 };
}

/// Row of `fair` in the table of policies.
pub static FAIR: PolicyRow = PolicyRow {
    name: "fair",
    purpose: Purpose::Recommended,
    summary: "runs the jobs that have come least far",
    source: "Feliu et al., IPDPS 2015",
    settings: &[VALID, DOUBT, APART],
    make: |values, _| Box::new(Fair::new(Mixing::FAIR, estimating(values))),
    ..PolicyRow::EACH_QUANTUM
};

/// Row of `perf-fair` in the table of policies.
pub static PERF_FAIR: PolicyRow = PolicyRow {
    name: "perf-fair",
    purpose: Purpose::Published,
    summary: "fills some contexts by progress, the others by traffic",
    source: "Feliu et al., IEEE TC 2017",
    settings: &[
        Setting::new(
            "share",
            SettingKind::Number("from 0 to less than 1", |share| (0.0..1.0).contains(&share)),
            Some(Value::Number(Mixing::PERF_FAIR.share)),
            "share of the contexts that is always given by progress",
        )
        .shown(),
        Setting::new(
            "limit",
            SettingKind::Number("not below 1", |limit| limit >= 1.0),
            Some(Value::Number(Mixing::PERF_FAIR.limit)),
            "unfairness above which all contexts are given by progress",
        ),
        VALID,
        DOUBT,
        APART,
    ],
    make: |values, _| {
        let mixing = Mixing { share: values.number("share"), limit: values.number("limit") };
        Box::new(Fair::new(mixing, estimating(values)))
    },
    ..PolicyRow::EACH_QUANTUM
};

const VALID: Setting = Setting::count(
    "valid",
    1,
    Estimating::USUAL.valid as u64,
    "for how many quanta an estimate is good, if nothing changes",
);
const DOUBT: Setting = Setting::not_below_0(
    "doubt",
    Estimating::USUAL.doubt,
    "how soon a job is estimated again that does something else",
);
const APART: Setting =
    Setting::count("apart", 2, Estimating::USUAL.apart as u64, "quanta between two estimates");

/// The settings of estimates, from the values given by the user.
fn estimating(values: &PolicySpec) -> Estimating {
    Estimating {
        valid: values.count("valid"),
        doubt: values.number("doubt"),
        apart: values.count("apart"),
    }
}

/// Scheduler of `fair`, and of `perf-fair` with a share below 1.
#[derive(Clone, Debug)]
pub struct Fair {
    mixing: Mixing,
    table: ProgressTable,
    /// Whether the quantum chosen last makes an estimate.
    estimates: bool,
}

impl Fair {
    /// A scheduler without any progress yet.
    #[must_use]
    pub fn new(mixing: Mixing, settings: Estimating) -> Self {
        Self { mixing, table: ProgressTable::new(settings), estimates: false }
    }

    /// Progress of the jobs.
    #[must_use]
    pub const fn table(&self) -> &ProgressTable {
        &self.table
    }

    /// The jobs of least progress that fit on `room` contexts.
    fn least(&self, now: &Quantum<'_>, room: usize) -> Vec<(usize, Selected)> {
        let mut order: Vec<usize> = (0..now.queue.len()).collect();
        order.sort_by_cached_key(|&at| {
            let progress = self.table.of(now.queue[at].job);
            ordered(progress.map_or(0.0, JobProgress::rank))
        });
        let mut left = room;
        let mut chosen = Vec::new();
        for at in order {
            let width = now.queue[at].width(now.pus.len());
            // The first job always runs: with less `room` than its width it would never have a
            // turn.
            if width <= left || chosen.is_empty() {
                left = left.saturating_sub(width);
                let progress = self.table.quanta_alone(now.queue[at].job);
                chosen.push((at, Selected::LeastProgress { progress }));
            }
        }
        chosen
    }

    /// The jobs of least progress on a share of the contexts, and jobs by traffic on the rest.
    fn by_progress_and_traffic(&self, now: &Quantum<'_>) -> Vec<(usize, Selected)> {
        let contexts = now.pus.len();
        if self.mixing.share >= 1.0 || self.table.unfairness(now.queue) > self.mixing.limit {
            return self.least(now, contexts);
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // a share of the contexts
        let room = (contexts as f64 * self.mixing.share).ceil() as usize;
        // At least one context, or the least progress would not count at a share of 0.
        let chosen = self.least(now, room.clamp(1, contexts));
        let wanted = bandwidth::oatr(now.queue, contexts);
        select::fill(now.queue, contexts, chosen, wanted, QueuedJob::to_memory)
    }

    /// A quantum in which the job at place `solo` has the machine to itself, one thread per core.
    fn estimate(now: &Quantum<'_>, solo: usize) -> Vec<SelectedJob> {
        let cores = UsableMachine::new(now.machine, now.pus).cores;
        let width = now.queue[solo].width(cores.len());
        let mine: Vec<PuIdx> = cores[..width].iter().map(|core| core.pus[0]).collect();
        choices(now, vec![(solo, Selected::Estimated)], &mine, |_| Allocated::OwnCores)
    }
}

impl Scheduler for Fair {
    fn note(&mut self, last: &QuantumOutcome<'_>) {
        self.table.on_quantum_end(last);
    }

    fn choose(&mut self, now: &Quantum<'_>) -> Vec<SelectedJob> {
        self.table.note(now.queue);
        let solo = self.table.begin_estimate(now);
        self.estimates = solo.is_some();
        if let Some(solo) = solo {
            return Self::estimate(now, solo);
        }
        let chosen = self.by_progress_and_traffic(now);
        bandwidth::pair_by_last_quantum(now, chosen)
    }

    fn describe(&mut self, plan: &mut Plan, _: &Evidence<'_>) {
        plan.state = Some(self.table.state());
        // Only a quantum with an estimate is shorter than the others.
        plan.lasts = self.table.estimate().filter(|_| self.estimates);
    }
}

#[cfg(test)]
mod tests;
