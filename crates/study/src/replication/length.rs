//! Length of applications at which figures beside `os` are those of its steady state.
//!
//! # Problem
//! The simulated kernel starts all threads of an application on the socket of its parent, and spreads
//! them one at a time. The figures of an application that ends before show little but its start.
//!
//! # Approach
//! The length is doubled until the figures of `os` settle; the rule reads the figures of `os` only:
//! - The *figures* of a length are the time of the slower application over its length, and the
//!   throughput (STP), under `os`: geometric means over all pairs and seeds.
//! - Lengths are [`FIRST`], twice [`FIRST`], and so on. A length is enough if neither figure differs
//!   from the figure of half the length by [`RESOLUTION`] or more, under any set of assumptions, and
//!   if half the length is at least [`start_of`] the machine: figures are also constant during a
//!   start. The first such length counts.
//!
//! Where the cost of a start does not depend on the length, each doubling halves its part in the
//! figure. At the settled length the rest of it is as large as the last change: less than the model
//! resolves.

use super::definition::{Cells, PolicyStudyDefinition, StudyTable};
use super::{PolicyRuns, Study, StudyCells};
use crate::metric::Metric;
use crate::simulate::figures::{RESOLUTION, Spread};
use colocate_figures::stats;
use colocate_machine::{Machine, Nanos, printable};
use colocate_sim::KernelScheduler;
use std::fmt::Write;

/// First length: the length of the first predictions.
pub const FIRST: Nanos = Nanos::from_millis(500);

/// Greatest length. Chosen: figures that have not settled after a minute will not within an hour of
/// simulated time.
pub const LAST: Nanos = Nanos::from_secs(64);

/// Time that the simulated kernel may need until all its rules have taken effect on an application
/// started on one half of the machine. Half of the threads, one a core, are moved to the other
/// half, one at a time, each after the failed rounds for which a running thread is spared. Then two
/// rounds of NUMA balancing move their memory.
///
/// Two EPYC 7301, 64 PUs and 32 cores: 64 ms × 5 × 16 + 2 × 1 s = 7.12 s.
fn start(machine: &Machine, kernel: &KernelScheduler) -> Nanos {
    let balancing = kernel.periodic_balance.map_or(0, |balance| {
        let rounds = u64::from(balance.patience) + 1;
        let interval = balance.interval_per_pu.0.saturating_mul(machine.pus.len() as u64);
        interval.saturating_mul(rounds).saturating_mul(machine.cores.len() as u64 / 2)
    });
    let memory = kernel.numa_balancing.map_or(0, |numa| numa.period.0.saturating_mul(2));
    Nanos(balancing.saturating_add(memory))
}

/// [`start`] with the kernel of the studies.
#[must_use]
pub fn start_of(machine: &Machine) -> Nanos {
    start(machine, &KernelScheduler::default())
}

/// Figures of one length: slowest time over length and STP for each set of assumptions; `None`
/// where a run did not end.
#[derive(Clone, Debug, PartialEq)]
pub struct LengthFigures {
    length: Nanos,
    draws: Vec<[Option<f64>; 2]>,
}

/// Whether the figures of half the length hold at this length, and half the length is at least the
/// time `start`.
#[must_use]
pub fn settled(half: Option<&LengthFigures>, now: &LengthFigures, start: Nanos) -> bool {
    half.is_some_and(|half| {
        half.length >= start && now.change(half).is_some_and(|change| change < RESOLUTION)
    })
}

/// The study reduced to its pairs under `os` and the two figures.
#[must_use]
pub fn of_os(study: &PolicyStudyDefinition) -> PolicyStudyDefinition {
    let pairs = StudyTable {
        policies: vec!["os".to_owned()],
        metrics: vec![Metric::Slowest, Metric::Stp],
        cells: Cells::Pairs { also: Vec::new() },
        ..study.parts[0].clone()
    };
    PolicyStudyDefinition { facts: Vec::new(), parts: vec![pairs], ..study.clone() }
}

impl LengthFigures {
    /// Figures from the results of all pieces of [`of_os`], in their order.
    #[must_use]
    pub fn of(work: &StudyCells<'_>, done: &[PolicyRuns]) -> Self {
        let draws = work.study.draws.len();
        let length = work.study.definition.length;
        let pairs = &work.tables[0].reported;
        let of_draws = (0..draws).map(|draw| {
            // Time of the slowest relative to the length; STP has no unit.
            [(0, length.as_secs_f64()), (1, 1.0)].map(|(metric, unit): (usize, f64)| {
                // The only policy is `os`.
                let runs = pairs.iter().flat_map(|(_, cell)| &done[cell * draws + draw][0]);
                let each = runs.map(|run| Some(run[metric]? / unit));
                stats::geometric_mean(&each.collect::<Option<Vec<f64>>>()?)
            })
        });
        Self { length, draws: of_draws.collect() }
    }

    /// Greatest relative difference of a figure from half the length's under the same assumptions;
    /// `None` if a run did not end.
    fn change(&self, half: &Self) -> Option<f64> {
        let both = self.draws.iter().flatten().zip(half.draws.iter().flatten());
        let changes = both.map(|(now, before)| Some(((*now)? / (*before)? - 1.0).abs()));
        Some(changes.collect::<Option<Vec<f64>>>()?.into_iter().fold(0.0, f64::max))
    }
}

/// Figures of all tried lengths, and the settled length; ends in a newline.
#[must_use]
pub fn text(study: &Study<'_>, steps: &[LengthFigures]) -> String {
    let mut out = format!(
        "simulated {}; all pairs under os, {} sets of assumptions, {} seeds each\n  {:>9}  {:24}  {:24}  changed by\n",
        printable(&study.machine.name),
        study.draws.len(),
        study.definition.seeds,
        "length",
        "slower one's time/length",
        "STP"
    );
    let start = start_of(study.machine);
    let mut half = None;
    let mut last = format!("not settled at {} s, the longest that is tried\n", LAST.as_secs_f64());
    for step in steps {
        let [slower, stp] = [0, 1].map(|at| {
            let spread = Spread::over_draws(step.draws.iter().map(|draw| draw[at]));
            Spread::or_unended(spread, |it| it.map(|it| it * 100.0).text(1))
        });
        let length = step.length.as_secs_f64();
        let change = half.and_then(|half| step.change(half));
        let change = change.map_or("-".to_owned(), |change| format!("{:.1} %", change * 100.0));
        let _ = writeln!(out, "  {length:7} s  {slower:24}  {stp:24}  {change}");
        if settled(half, step, start) {
            last = format!(
                "{length} s: half of it is longer than a start, {} s, and neither figure changes by {:.0} % or more \
                 under any assumptions\n",
                start.as_secs_f64(),
                RESOLUTION * 100.0
            );
        }
        half = Some(step);
    }
    out + &last
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half the length: 1.5 and 1.2; then 1.45 and 1.25. The change is 0.05 / 1.5 = 0.0333 and 0.05 / 1.2 =
    /// 0.0417, so the figures have settled; the first length never has.
    #[test]
    fn the_greatest_change_counts() {
        let figures = |length: u64, slower: f64, stp: f64| LengthFigures {
            length: Nanos::from_millis(length),
            draws: vec![[Some(slower), Some(stp)]; 2],
        };
        let (half, now) = (figures(500, 1.5, 1.2), figures(1000, 1.45, 1.25));
        assert!((now.change(&half).unwrap() - 0.05 / 1.2).abs() < 1e-12);
        assert!(settled(Some(&half), &now, Nanos::from_millis(500)));
        assert!(!settled(Some(&half), &now, Nanos::from_millis(501)));
        assert!(!settled(None, &half, Nanos::ZERO));
        let open = LengthFigures { draws: vec![[Some(1.45), None]; 2], ..now.clone() };
        assert_eq!((open.change(&half), now.change(&open)), (None, None));
        assert!(!settled(Some(&figures(500, 1.5, 1.0)), &now, Nanos::ZERO));
    }

    /// 64 PUs a round in 64 ms, the fifth of which moves one of 16 threads: 5.12 s; and 2 s.
    #[test]
    fn a_start_on_two_epycs() {
        let (machine, _) = crate::testing::machine("epyc-7301");
        assert_eq!(start(&machine, &KernelScheduler::default()), Nanos::from_millis(7120));
        let quiet = KernelScheduler {
            periodic_balance: None,
            numa_balancing: None,
            ..KernelScheduler::default()
        };
        assert_eq!(start(&machine, &quiet), Nanos::ZERO);
    }
}
