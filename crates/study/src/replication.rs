//! What the studies share that make a published comparison again in the simulator.
//!
//! # Terms
//! - A *cell* is one situation: a program on a layout of cores, a mix of programs, a pair of applications.
//! - A *piece* is a cell under one set of assumptions, with all policies and seeds. Pieces do not depend on each other.
//! - A *run* is one policy with one seed in a piece. Of each, some figures are kept, in an order that the study defines.

use crate::simulate::figures::Column;
use crate::stats;
use colocate_model::ModelError;
use colocate_model::phase::PhaseError;
use colocate_policy::PolicySpec;
use colocate_sim::SimError;
use thiserror::Error;

/// What came of a piece: runs by policy, then by seed; a figure is `None` if the run did not come to its end.
pub type Done<const N: usize> = Vec<Vec<[Option<f64>; N]>>;

/// A published study, simulated again; `N` figures are kept of each run.
pub trait Replication<const N: usize>: Sync {
    /// What is made of all pieces.
    type Report;

    /// Name and version of the figures that are kept, as `serpa-1`.
    fn name(&self) -> String;

    /// All that the figures depend on, as text: a digest of it identifies them.
    fn inputs(&self) -> String;

    /// How many cells there are.
    fn cells(&self) -> usize;

    /// How many sets of assumptions and how many seeds each cell is simulated with; neither is 0.
    fn repetitions(&self) -> [usize; 2];

    /// How many policies are compared in a cell, an oracle included.
    fn policies(&self, cell: usize) -> usize;

    /// Simulates a cell with the set of assumptions at the place `draw`.
    ///
    /// # Errors
    /// That of a simulation.
    fn simulate(&self, cell: usize, draw: usize) -> Result<Done<N>, StudyError>;

    /// The report of all pieces, in their order; `inputs` is a digest of [`Self::inputs`].
    ///
    /// # Errors
    /// If something that is shown beside the pieces cannot be modelled.
    fn report(&self, done: &[Done<N>], inputs: &str) -> Result<Self::Report, StudyError>;

    /// How many pieces there are.
    fn count(&self) -> usize {
        self.cells() * self.repetitions()[0]
    }

    /// How many policies and seeds a piece has; `None` if there is no such piece.
    fn shape(&self, piece: usize) -> Option<[usize; 2]> {
        let [draws, seeds] = self.repetitions();
        (piece < self.count()).then(|| [self.policies(piece / draws), seeds])
    }

    /// Simulates one piece: the first cell with all sets of assumptions, then the second, and so on.
    ///
    /// # Errors
    /// That of a simulation.
    fn piece(&self, piece: usize) -> Result<Done<N>, StudyError> {
        let [draws, _] = self.repetitions();
        self.simulate(piece / draws, piece % draws)
    }

    /// All pieces by cell.
    ///
    /// # Panics
    /// If there are not as many as [`Self::count`] says.
    fn grid<'a>(&self, done: &'a [Done<N>]) -> Grid<'a, N> {
        assert_eq!(done.len(), self.count(), "every piece");
        Grid { done, draws: self.repetitions()[0] }
    }
}

/// What came of some cells.
#[derive(Clone, Copy, Debug)]
pub struct Grid<'a, const N: usize> {
    /// The pieces, in their order.
    pub done: &'a [Done<N>],
    /// How many sets of assumptions each cell has.
    pub draws: usize,
}

impl<'a, const N: usize> Grid<'a, N> {
    /// How many cells.
    #[must_use]
    pub fn cells(self) -> usize {
        self.done.len() / self.draws
    }

    /// How many seeds.
    #[must_use]
    pub fn seeds(self) -> usize {
        self.done.first().and_then(|runs| runs.first()).map_or(1, Vec::len)
    }

    /// The first `cells`, and those behind them.
    #[must_use]
    pub fn split_at(self, cells: usize) -> [Self; 2] {
        let (first, rest) = self.done.split_at(cells * self.draws);
        [first, rest].map(|done| Self { done, ..self })
    }

    /// Runs in a cell with the set of assumptions `draw`, by policy and seed.
    #[must_use]
    pub fn runs(self, cell: usize, draw: usize) -> &'a Done<N> {
        &self.done[cell * self.draws + draw]
    }

    /// A figure of a policy in one cell.
    pub(crate) fn column(self, cell: usize, policy: usize, figure: usize) -> Column {
        self.by_draw_and_seed(|draw, seed| self.runs(cell, draw)[policy][seed][figure])
    }

    /// The geometric mean of a figure of a policy over `cells`, each of which counts as often as it is named.
    pub(crate) fn means(self, cells: &[usize], policy: usize, figure: usize) -> Column {
        self.by_draw_and_seed(|draw, seed| {
            let each = cells.iter().map(|&cell| self.runs(cell, draw)[policy][seed][figure]);
            stats::geometric_mean(&each.collect::<Option<Vec<f64>>>()?)
        })
    }

    /// The geometric mean over the seeds of a policy's figure over that of another policy.
    pub(crate) fn ratio(
        self,
        (cell, draw): (usize, usize),
        [policy, base]: [usize; 2],
        figure: usize,
    ) -> Option<f64> {
        let runs = self.runs(cell, draw);
        let both = runs[policy].iter().zip(&runs[base]);
        let ratios = both.map(|(own, base)| Some(own[figure]? / base[figure]?));
        stats::geometric_mean(&ratios.collect::<Option<Vec<f64>>>()?)
    }

    fn by_draw_and_seed(self, figure: impl Fn(usize, usize) -> Option<f64>) -> Column {
        let seeds = self.seeds();
        let all = (0..self.draws * seeds).map(|place| figure(place / seeds, place % seeds));
        Column { figures: all.collect(), seeds }
    }
}

/// So many seeds from the first on.
pub(crate) fn seeds(first: u64, count: u32) -> impl Iterator<Item = u64> {
    (0..count).map(move |seed| first.wrapping_add(seed.into()))
}

/// Those of the policies named that colocate has.
pub(crate) fn known(names: &[&str]) -> Vec<PolicySpec> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// The names of those that it does not have.
pub(crate) fn missing(names: &[&str]) -> Vec<String> {
    let unknown = |name: &&&str| name.parse::<PolicySpec>().is_err();
    names.iter().filter(unknown).map(|name| (*name).to_owned()).collect()
}

/// As a report counts; never more than `u32::MAX`.
pub(crate) fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Lines of a report.
pub(crate) fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// Why a study cannot be made.
#[derive(Debug, Error)]
pub enum StudyError {
    /// The machine cannot be modelled.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A demand vector is not one.
    #[error("demand of {name}: {reason}")]
    Phase {
        /// Which.
        name: String,
        /// What is wrong.
        reason: PhaseError,
    },
    /// A simulation cannot be made.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The machine has no core with two PUs.
    #[error("expected a machine with SMT, found {found}, whose cores have one PU each")]
    NoSiblings {
        /// The machine.
        found: String,
    },
    /// The machine has not both kinds of cores under several last-level caches.
    #[error(
        "expected a machine with fast and slow cores under each of several last-level caches, found {found}"
    )]
    NotAsymmetric {
        /// The machine.
        found: String,
    },
    /// The machine has too few cores, or they have too few PUs.
    #[error("expected a machine with {cores} cores of {pus} PUs, found {machine}")]
    TooSmall {
        /// The machine.
        machine: String,
        /// Cores that the study needs.
        cores: usize,
        /// PUs of each.
        pus: usize,
    },
    /// No program asks for so much alone.
    #[error(
        "expected a machine on which a program can ask for {wanted} t/µs of the memory, found {machine}"
    )]
    NoProgram {
        /// The machine.
        machine: String,
        /// What is wanted.
        wanted: f64,
    },
    /// No mix asks for so much.
    #[error(
        "expected mixes that ask for {:.1} to {:.1} t/µs of the memory, found none among a million drawn",
        wanted[0],
        wanted[1]
    )]
    NoMix {
        /// The range.
        wanted: [f64; 2],
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cells, one set of assumptions, one seed, one policy: 4 and 9, so 6; of one cell the value itself.
    #[test]
    fn geometric_means_over_cells() {
        let done = [4.0, 9.0].map(|figure| vec![vec![[Some(figure)]]]);
        let grid = Grid { done: &done, draws: 1 };
        assert_eq!((grid.cells(), grid.seeds()), (2, 1));
        assert_eq!(grid.column(1, 0, 0).figures, [Some(9.0)]);
        let mean = |cells: &[usize]| grid.means(cells, 0, 0).figures[0].unwrap();
        assert!((mean(&[0, 1]) - 6.0).abs() < 1e-12 && (mean(&[1, 1]) - 9.0).abs() < 1e-12);
    }
}
