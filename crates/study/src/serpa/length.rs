//! How long applications have to be for what is told beside `os` to be told of its steady state.
//!
//! # Problem
//! The simulated kernel starts all threads of an application on the socket of its parent, and spreads them one
//! at a time. An application that ends before tells of its start and of little else.
//!
//! # Approach
//! The length is doubled until the figures of `os` stay as they are, by a rule that looks at nothing but `os`:
//! - The *figures* of a length are the time of the slower application over its length, and the throughput
//!   (STP), under `os`: geometric means over all pairs and seeds.
//! - Lengths are [`FIRST`], twice that, and so on. The first one counts of which neither figure differs from
//!   that of half the length by [`RESOLUTION`] or more, under any set of assumptions, if half the length is
//!   at least [`start`]: while a start goes on, nothing changes either.
//!
//! Where a start costs the same time whatever the length is, its part in the figure is halved with each
//! doubling, so that what is left of it at the length that counts is as large as the last change: less than
//! the model resolves.

use super::Study;
use super::pairs::{self, FIGURES, Pairs};
use crate::replication::{Done, Grid, StudyError};
use crate::simulate::figures::{Metric, RESOLUTION, Spread};
use crate::stats;
use colocate_machine::{Machine, Nanos};
use colocate_sim::Kernel;
use serde::{Deserialize, Serialize};

/// The first length that is tried: that of the first predictions.
pub const FIRST: Nanos = Nanos::from_millis(500);

/// [`start`] on the study's machine with the kernel that it is made with.
#[must_use]
pub fn start_of(study: &Study<'_>) -> Nanos {
    start(study.machine, &Kernel::default())
}

/// How long the simulated kernel may need until every rule of it has done what it does to an application that
/// was started on one half of the machine: half of the threads, one a core, are moved to the other half, one
/// at a time, after as many looks in vain as a thread that runs is spared; then two looks of NUMA balancing bring
/// their memory.
///
/// Two EPYC 7301, 64 PUs and 32 cores: 64 ms × 5 × 16 + 2 × 1 s = 7.12 s.
#[must_use]
pub fn start(machine: &Machine, kernel: &Kernel) -> Nanos {
    let balancing = kernel.periodic_balance.map_or(0, |balance| {
        let looks = u64::from(balance.patience) + 1;
        let interval = balance.interval_per_pu.0.saturating_mul(machine.pus.len() as u64);
        interval.saturating_mul(looks).saturating_mul(machine.cores.len() as u64 / 2)
    });
    let memory = kernel.numa_balancing.map_or(0, |numa| numa.period.0.saturating_mul(2));
    Nanos(balancing.saturating_add(memory))
}
/// The longest. Chosen: what has not settled after a minute will not within an hour of simulated time.
pub const LAST: Nanos = Nanos::from_secs(64);

/// A length and the figures of `os`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Time that each application takes alone, in seconds.
    pub alone_s: f64,
    /// Time of the slower application over that; `None` if a run did not end.
    pub slower: Option<Spread>,
    /// Throughput; `None` if a run did not end.
    pub stp: Option<Spread>,
    /// The greatest difference of either figure from that of half the length under the same assumptions, as
    /// a part of it; `None` for the first length, and if a run did not end.
    pub changed: Option<f64>,
}

/// The figures of one length: one pair an assumption, `None` where a run did not end.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    alone: Nanos,
    draws: Vec<[Option<f64>; 2]>,
}

/// Whether the figures stay as they are from half the length to this one, and half the length is at least the
/// time `start`.
#[must_use]
pub fn settled(step: &Step, start: Nanos) -> bool {
    let lasts = step.alone_s / 2.0 >= start.as_secs_f64();
    lasts && step.changed.is_some_and(|changed| changed < RESOLUTION)
}

/// How many pieces of work there are: a pair with one set of assumptions each.
#[must_use]
pub fn count(study: &Study<'_>, pairs: &Pairs<'_>) -> usize {
    pairs.cells() * study.draws.len()
}

/// One piece, under `os`.
///
/// # Errors
/// The [`StudyError`] of a simulation.
///
/// # Panics
/// If there is no such piece.
pub fn piece(
    study: &Study<'_>,
    pairs: &Pairs<'_>,
    piece: usize,
) -> Result<Done<FIGURES>, StudyError> {
    let draws = study.draws.len();
    pairs::under(study, pairs.of_cell(piece / draws), piece % draws, &["os"])
}

impl Figures {
    /// From what came of all pieces, in their order.
    #[must_use]
    pub fn of(study: &Study<'_>, pairs: &Pairs<'_>, done: &[Done<FIGURES>]) -> Self {
        let grid = Grid { done, draws: study.draws.len() };
        let figure = |draw: usize, metric: Metric, unit: f64| {
            let runs = pairs.all().flat_map(|cell| &grid.runs(cell, draw)[0]);
            let each = runs.map(|run| Some(run[pairs::place(metric)]? / unit));
            stats::geometric_mean(&each.collect::<Option<Vec<f64>>>()?)
        };
        let alone = study.alone.as_secs_f64();
        let of_draw = |draw| [figure(draw, Metric::Slowest, alone), figure(draw, Metric::Stp, 1.0)];
        Self { alone: study.alone, draws: (0..grid.draws).map(of_draw).collect() }
    }

    /// What is told of them after those of half the length.
    #[must_use]
    pub fn after(&self, half: Option<&Self>) -> Step {
        let of = |figure: usize| Spread::over_draws(self.draws.iter().map(|draw| draw[figure]));
        let change = |half: &Self| {
            let both = self.draws.iter().flatten().zip(half.draws.iter().flatten());
            let changes = both.map(|(now, before)| Some(((*now)? / (*before)? - 1.0).abs()));
            Some(changes.collect::<Option<Vec<f64>>>()?.into_iter().fold(0.0, f64::max))
        };
        Step {
            alone_s: self.alone.as_secs_f64(),
            slower: of(0),
            stp: of(1),
            changed: half.and_then(change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half the length: 1.5 and 1.2; then 1.45 and 1.25. The change is 0.05 / 1.5 = 0.0333 and 0.05 / 1.2 =
    /// 0.0417, so the figures have settled; the first length never has.
    #[test]
    fn the_greatest_change_counts() {
        let figures = |alone: u64, slower: f64, stp: f64| Figures {
            alone: Nanos::from_millis(alone),
            draws: vec![[Some(1.0); 2], [Some(slower), Some(stp)]],
        };
        let (half, now) = (figures(500, 1.5, 1.2), figures(1000, 1.45, 1.25));
        let (step, start) = (now.after(Some(&half)), Nanos::from_millis(500));
        assert!((step.changed.unwrap() - 0.05 / 1.2).abs() < 1e-12, "{step:?}");
        assert!(settled(&step, start) && !settled(&half.after(None), Nanos::ZERO));
        assert!(!settled(&figures(1000, 1.5, 1.3).after(Some(&half)), start));
        assert!(!settled(&step, Nanos::from_millis(501)));
        let slower = step.slower.unwrap();
        assert_eq!((slower.low, slower.high, step.alone_s), (1.0, 1.45, 1.0));
    }

    /// Under one of two sets of assumptions a run did not end: the other one alone makes no range.
    #[test]
    fn a_run_without_an_end_has_not_settled() {
        let usual = [Some(1.0); 2];
        let figures = |draws| Figures { alone: Nanos::from_secs(1), draws };
        let (half, now) = (figures(vec![usual; 2]), figures(vec![usual, [None, Some(1.0)]]));
        let step = now.after(Some(&half));
        assert_eq!((step.slower, step.changed), (None, None));
        assert!(step.stp.is_some() && !settled(&step, Nanos::ZERO));
        assert!(!settled(&half.after(Some(&now)), Nanos::ZERO));
    }

    /// 64 PUs a look in 64 ms, the fifth of which moves one of 16 threads: 5.12 s; and 2 s.
    #[test]
    fn a_start_on_two_epycs() {
        let exact =
            colocate_machine::described::from_toml(colocate_machine::described::MACHINES[0].1);
        let machine = exact.unwrap().machine;
        assert_eq!(start(&machine, &Kernel::default()), Nanos::from_millis(7120));
        let quiet = Kernel { periodic_balance: None, numa_balancing: None, ..Kernel::default() };
        assert_eq!(start(&machine, &quiet), Nanos::ZERO);
    }
}
