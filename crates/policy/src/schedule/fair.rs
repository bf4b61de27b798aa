//! `fair` and `perf-fair`: progress-aware scheduling (Feliu et al., IPDPS 2015 and IEEE TC 2017).
//!
//! # Problem
//! Jobs that suffer most from the others fall behind, and the last one decides when all are done.
//! # Approach
//! The job that has come least far runs. `perf-fair` gives only some of the contexts that way, and the others to the
//! jobs with which the memory is used evenly, as [`bas`](bandwidth).
//! # Terms
//! See [`progress`].
//! - `f`: the share of the contexts that `perf-fair` gives by progress.
//! - `U`: the most unfair that `perf-fair` lets things become: above, it gives all contexts by progress. Unfairness
//!   is the greatest slowdown over the least, as progress has it, of the jobs that are left.
//!
//! How the published scheduler mixes both was not found; `f` and `U` are ours.
//! # Algorithm
//! 1. Note what the last quantum showed.
//! 2. If an estimate is due, this quantum makes it: see [`progress`]; others run beside it.
//! 3. Else `fair` runs the jobs with the least progress; `perf-fair` does so, too, while things are less fair than
//!    `U`, and else with `f` of the contexts, and fills the rest by [`select::by_traffic`] with what `OATR` leaves.
//! 4. [`most_with_least`](super::allocate::most_with_least) on the cores that no estimate has for itself.
//! # Properties
//! - **No starvation**: every job runs again and again. -> tests `no_job_starves`, `no_job_waits_long`
//! - **Own cores**: while it is estimated, no other job is on a job's cores. -> test `own_cores`
//! - **Mixed only while it is fair**: above `U` all contexts are given by progress. -> test `mixing_by_hand`

use super::allocate::choices;
use super::progress::{self, Estimating, ProgressTable, ordered};
use super::{
    Allocated, Choice, Quantum, QuantumOutcome, QueuedJob, Scheduler, Selected, bandwidth, select,
};
use crate::evidence::Evidence;
use crate::plan::Plan;
use crate::row::{Kind, Preset, Row, Setting, Values};
use colocate_machine::PuIdx;

/// How much of the contexts goes by progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixing {
    /// `f`: the share of the contexts that is always given by progress; 1 is `fair`.
    pub share: f64,
    /// `U`: the unfairness above which all contexts are given by progress.
    pub limit: f64,
}

impl Mixing {
    /// `fair`.
    pub const FAIR: Self = Self { share: 1.0, limit: 1.0 };
    /// `perf-fair`. Chosen: half, and a slowest job that is a fifth slower than the fastest. Without a limit the half
    /// that goes by traffic leaves those out whose traffic is far from the mean (docs/feliu.md).
    pub const PERF_FAIR: Self = Self { share: 0.5, limit: 1.2 };
}

/// Its row in the table of policies.
pub static FAIR: Row = Row {
    name: "fair",
    summary: "runs the jobs that have come least far",
    source: "Feliu et al., IPDPS 2015",
    settings: &[VALID, SOON, APART, AT_ONCE, LIGHT],
    make: |values, _| Box::new(Fair::new(Mixing::FAIR, estimating(values))),
    ..Row::EACH_QUANTUM
};

/// Its row in the table of policies.
pub static PERF_FAIR: Row = Row {
    name: "perf-fair",
    summary: "fills some contexts by progress, the others by traffic",
    source: "Feliu et al., IEEE TC 2017",
    settings: &[
        Setting {
            name: "share",
            kind: Kind::Number("from 0 to less than 1", |share| (0.0..1.0).contains(&share)),
            default: Preset::Shown(&Preset::Number(Mixing::PERF_FAIR.share)),
            meaning: "share of the contexts that is always given by progress",
        },
        Setting {
            name: "limit",
            kind: Kind::Number("not below 1", |limit| limit >= 1.0),
            default: Preset::Number(Mixing::PERF_FAIR.limit),
            meaning: "unfairness above which all contexts are given by progress",
        },
        VALID,
        SOON,
        APART,
        AT_ONCE,
        LIGHT,
    ],
    make: |values, _| {
        let mixing = Mixing { share: values.number("share"), limit: values.number("limit") };
        Box::new(Fair::new(mixing, estimating(values)))
    },
    ..Row::EACH_QUANTUM
};

const VALID: Setting =
    quanta("valid", Estimating::USUAL.valid, "for how many quanta an estimate is good", 1);
const SOON: Setting = quanta(
    "soon",
    Estimating::USUAL.soon,
    "estimates good for at most so many quanta are renewed beside another",
    0,
);
const APART: Setting =
    quanta("apart", Estimating::USUAL.apart, "quanta between two rounds of estimates", 1);
const AT_ONCE: Setting =
    share("at-once", Estimating::USUAL.at_once, "jobs estimated at once, as a share of the cores");
const LIGHT: Setting = share(
    "light",
    Estimating::USUAL.light,
    "share of the jobs with the least traffic that are light",
);

const fn quanta(name: &'static str, usual: u32, meaning: &'static str, least: u64) -> Setting {
    Setting { name, kind: Kind::Count(least), default: Preset::Count(usual as u64), meaning }
}

const fn share(name: &'static str, usual: f64, meaning: &'static str) -> Setting {
    let kind = Kind::Number("from 0 to 1", |share| (0.0..=1.0).contains(&share));
    Setting { name, kind, default: Preset::Number(usual), meaning }
}

fn estimating(values: &Values<'_>) -> Estimating {
    Estimating {
        valid: values.count("valid"),
        soon: values.count("soon"),
        at_once: values.number("at-once"),
        light: values.number("light"),
        apart: values.count("apart"),
    }
}

/// `fair`, and `perf-fair` with a share below 1.
#[derive(Clone, Debug)]
pub struct Fair {
    mixing: Mixing,
    settings: Estimating,
    table: ProgressTable,
}

impl Fair {
    /// With so much of the contexts given by progress.
    #[must_use]
    pub fn new(mixing: Mixing, settings: Estimating) -> Self {
        Self { mixing, settings, table: ProgressTable::default() }
    }

    /// The jobs' progress.
    #[must_use]
    pub const fn table(&self) -> &ProgressTable {
        &self.table
    }

    /// Places in the queue, the job that has come least far first.
    fn by_progress(&self, queue: &[QueuedJob]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..queue.len()).collect();
        order.sort_by_cached_key(|&at| ordered(self.table.of(queue[at].job).rank()));
        order
    }

    /// The jobs that have come least far, on `room` contexts.
    fn least(&self, now: &Quantum<'_>, room: usize) -> Vec<(usize, Selected)> {
        let mut left = room;
        let mut chosen = Vec::new();
        for at in self.by_progress(now.queue) {
            let width = now.queue[at].width(now.pus.len());
            // The first one runs, however wide.
            if width <= left || chosen.is_empty() {
                left = left.saturating_sub(width);
                let progress = self.table.quanta_alone(now.queue[at].job);
                chosen.push((at, Selected::LeastProgress { progress }));
            }
        }
        chosen
    }

    fn by_progress_and_traffic(&self, now: &Quantum<'_>) -> Vec<(usize, Selected)> {
        let contexts = now.pus.len();
        let is_unfair = || self.table.unfairness(now.queue) > self.mixing.limit;
        if self.mixing.share >= 1.0 || is_unfair() {
            return self.least(now, contexts);
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // a share of the contexts
        let room = (select::float(contexts) * self.mixing.share).ceil() as usize;
        let chosen = self.least(now, room.clamp(1, contexts));
        let used: usize = chosen.iter().map(|(at, _)| now.queue[*at].width(contexts)).sum();
        let asked = |(at, _): &(usize, Selected)| now.queue[*at].to_memory();
        let taken = chosen.iter().map(asked).fold(0.0, |sum, each| sum + each);
        let left = (bandwidth::oatr(now.queue, contexts) - taken, contexts.saturating_sub(used));
        select::fill(now.queue, contexts, chosen, left, QueuedJob::to_memory)
    }

    /// A quantum in which the jobs `solo` have cores of their own.
    fn estimate(&self, now: &Quantum<'_>, solo: &[usize]) -> Vec<Choice> {
        let mut cores = progress::cores(now);
        let mut made = Vec::new();
        for &at in solo {
            let job = &now.queue[at];
            let width = job.width(cores.len());
            let mine: Vec<PuIdx> = cores.drain(..width).map(|core| core[0]).collect();
            made.extend(choices(now, vec![(at, Selected::Estimated)], &mine, |_| {
                Allocated::OwnCores
            }));
        }
        let room: Vec<PuIdx> = cores.concat();
        let beside = self.beside(now, solo, room.len());
        if !beside.is_empty() {
            let rest = Quantum { pus: &room, ..*now };
            made.extend(bandwidth::pair_by_last_quantum(&rest, beside));
        }
        made
    }

    /// What runs beside jobs that are estimated: light ones that have come least far, then others with
    /// least of the memory.
    fn beside(&self, now: &Quantum<'_>, solo: &[usize], room: usize) -> Vec<(usize, Selected)> {
        let light = progress::light(now, self.settings.light);
        let mut order: Vec<usize> = (0..now.queue.len()).filter(|at| !solo.contains(at)).collect();
        order.sort_by_cached_key(|&at| match light[at] {
            true => (false, ordered(self.table.of(now.queue[at].job).rank())),
            false => (true, ordered(now.queue[at].to_memory())),
        });
        // Its own threads are counted, not those that would fit: it must fit beside the others.
        let chosen = select::fitting(order, room, |at| now.queue[at].threads.len());
        chosen.map(|at| (at, Selected::BesideEstimate)).collect()
    }
}

impl Scheduler for Fair {
    fn note(&mut self, last: &QuantumOutcome<'_>) {
        self.table.on_quantum_end(last);
    }

    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        self.table.note(now.queue);
        let solo = self.table.begin_estimates(now, &self.settings);
        if !solo.is_empty() {
            return self.estimate(now, &solo);
        }
        let chosen = self.by_progress_and_traffic(now);
        bandwidth::pair_by_last_quantum(now, chosen)
    }

    fn describe(&mut self, plan: &mut Plan, _: &Evidence<'_>) {
        plan.state = Some(self.table.state());
    }
}

#[cfg(test)]
mod tests;
