//! Published studies, simulated again.
//!
//! Nothing here was measured, and nothing is fitted to the published figures. A study is a
//! [`PolicyStudyDefinition`], a TOML file. One engine simulates its cells and writes a
//! [`report::StudyReport`].
//!
//! # Terms
//! - A *cell* is one situation: a program on a layout of cores, a mix of programs, a pair of applications.
//! - A *piece* is a cell under one set of assumptions, with all policies and seeds. Pieces are
//!   independent of each other.
//! - A *run* is one policy with one seed in a piece. The metrics of the cell's part are kept.
//!
//! Each kind of cell has a module: [`mixes`] of [`drawn`] or [`recorded`] programs, [`phased`]
//! programs, [`pairs`].

pub mod bound;
pub mod definition;
mod detail;
pub mod drawn;
mod draws;
mod figures;
pub mod layout;
pub mod length;
pub mod mixes;
pub mod pace;
pub mod pairs;
pub mod phased;
mod picture;
pub mod recorded;
pub mod report;
pub mod siblings;
mod table;

use colocate_figures::stats;
use colocate_machine::performance::{CorePerformance, Impossible};
use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::phase::{Demand, PhaseError};
use colocate_model::{Assumptions, Phase};
use colocate_policy::SoloProfile;
use colocate_sim::{Outcome, SimError};
use definition::{Cells, PolicyStudyDefinition, StudyTable};
use drawn::SyntheticProgram;
use mixes::Mix;
use pairs::ApplicationPairs;
use phased::PhasedSituation;
use thiserror::Error;

/// Metrics of a run, in the order of [`StudyTable::metrics`]; `None` if the run did not end.
pub type Kept = Vec<Option<f64>>;

/// Results of a piece: runs by policy, then by seed.
pub type PolicyRuns = Vec<Vec<Kept>>;

/// Inputs of a study: definition, machine, assumptions and seed.
#[derive(Clone, Copy, Debug)]
pub struct Study<'a> {
    /// The definition.
    pub definition: &'a PolicyStudyDefinition,
    /// The machine.
    pub machine: &'a Machine,
    /// Speeds of the machine.
    pub performance: &'a Performance,
    /// Sets of assumptions, the default set first; never empty.
    pub draws: &'a [Assumptions],
    /// First seed; drawn programs and mixes use it, too.
    pub seed: u64,
}

impl Study<'_> {
    /// Seeds of the runs. A seed decides the kernel's random choices and the order in which the
    /// programs of a mix begin.
    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.seed;
        (0..self.definition.seeds).map(move |seed| first.wrapping_add(seed.into()))
    }

    /// Length of a serial and a parallel phase together.
    fn round(&self) -> Nanos {
        self.definition.round.unwrap_or(self.definition.length)
    }
}

/// A simulated situation.
#[derive(Clone, Debug)]
pub enum StudyCell<'a> {
    /// A mix of programs.
    Mix(Mix),
    /// A program with serial and parallel phases.
    Phased(PhasedSituation),
    /// Two applications.
    Pair([&'a Phase; 2]),
    /// Two copies of one application: length of the second in percent of the first.
    Shorter(u32),
}

/// A part with its cells.
#[derive(Debug)]
pub struct TableCells<'a> {
    /// Definition of the table.
    pub part: &'a StudyTable,
    /// Simulated cells.
    pub cells: Vec<StudyCell<'a>>,
    /// Reported cells, each with the index of its simulated cell.
    pub reported: Vec<(report::CellFigures, usize)>,
}

/// All cells of a study, ready to be simulated.
#[derive(Debug)]
pub struct StudyCells<'a> {
    study: Study<'a>,
    /// Programs of the mixes.
    pub programs: Vec<SyntheticProgram>,
    alone: Vec<SoloProfile>,
    /// Parts with their cells.
    pub tables: Vec<TableCells<'a>>,
}

impl<'a> StudyCells<'a> {
    /// Makes the cells of a study; draws programs and mixes.
    ///
    /// # Errors
    /// [`StudyError`] if the machine is not of the studied kind or cannot be modelled, or if no
    /// programs or mixes fit.
    pub fn new(study: Study<'a>) -> Result<Self, StudyError> {
        let parts = &study.definition.parts;
        for part in parts {
            match &part.cells {
                Cells::Mixes(mixes) => mixes::fits(study.machine, mixes)?,
                Cells::Phased(_) => layout::check(study.machine)?,
                Cells::Pairs { .. } | Cells::Shorter(_) => {
                    siblings::siblings(study.machine)?;
                }
            }
        }
        let Study { machine, performance, .. } = study;
        let PolicyStudyDefinition { programs, recorded, length, .. } = study.definition;
        let programs = match &recorded[..] {
            [] => drawn::draw(machine, performance, *programs, study.seed)?,
            recorded => recorded::programs(machine, performance, recorded, *length)?,
        };
        let alone = mixes::alone(&study, &programs)?;
        let tables = parts.iter().map(|part| cells_of(&study, part, &programs, &alone));
        let tables = tables.collect::<Result<_, _>>()?;
        Ok(Self { study, programs, alone, tables })
    }

    /// Everything that the figures depend on, as text. Its digest identifies the figures.
    #[must_use]
    pub fn inputs(&self) -> String {
        format!("{:?}{:?}", self.study, self.programs)
    }

    /// Number of pieces. Their order: the first cell with all sets of assumptions, then the second.
    #[must_use]
    pub fn count(&self) -> usize {
        self.tables.iter().map(|table| table.cells.len()).sum::<usize>() * self.study.draws.len()
    }

    /// Part and cell of a piece; `None` beyond the last piece.
    fn cell(&self, piece: usize) -> Option<(&StudyTable, &StudyCell<'a>)> {
        let mut cells =
            self.tables.iter().flat_map(|it| it.cells.iter().map(|cell| (it.part, cell)));
        cells.nth(piece / self.study.draws.len())
    }

    /// Numbers of policies, seeds and metrics of a piece; `None` beyond the last piece.
    #[must_use]
    pub fn shape(&self, piece: usize) -> Option<[usize; 3]> {
        let (part, _) = self.cell(piece)?;
        Some([part.names().len(), self.study.definition.seeds as usize, part.metrics.len()])
    }

    /// Simulates one piece.
    ///
    /// # Errors
    /// [`StudyError`] of the simulation.
    ///
    /// # Panics
    /// If `piece` is not below [`Self::count`].
    pub fn piece(&self, piece: usize) -> Result<PolicyRuns, StudyError> {
        let (part, cell) = self.cell(piece).expect("one of the pieces");
        let draw = piece % self.study.draws.len();
        match (cell, &part.cells) {
            (StudyCell::Mix(mix), Cells::Mixes(form)) => {
                mixes::under_all(&self.study, part, form, &self.programs, mix, draw)
            }
            (StudyCell::Phased(point), _) => phased::under_all(&self.study, part, point, draw),
            (StudyCell::Pair(pair), Cells::Pairs { also }) => {
                pairs::under_all(&self.study, part, also, *pair, draw)
            }
            (StudyCell::Shorter(length), _) => pairs::tail(&self.study, part, *length, draw),
            _ => unreachable!("a cell is of the kind that its part has"),
        }
    }
}

/// Cells of one part; mixes are drawn from `programs`.
fn cells_of<'a>(
    study: &Study<'a>,
    part: &'a StudyTable,
    programs: &[SyntheticProgram],
    alone: &[SoloProfile],
) -> Result<TableCells<'a>, StudyError> {
    let (reported, cells) = match &part.cells {
        Cells::Mixes(form) => {
            let mixes = mixes::draw(form, study.machine, programs, alone, study.seed)?;
            one_each(mixes.into_iter().map(|mix| (mix.figures(programs), StudyCell::Mix(mix))))
        }
        Cells::Phased(forms) => {
            let points = forms.iter().flat_map(|form| phased::points(study, form));
            one_each(points.map(|point| (point.figures(), StudyCell::Phased(point))))
        }
        Cells::Pairs { .. } => {
            let pairs = ApplicationPairs::new(&study.definition.applications);
            (pairs.reported(), pairs.cells().map(StudyCell::Pair).collect())
        }
        Cells::Shorter(lengths) => one_each(
            lengths.iter().map(|&length| (pairs::shorter(length), StudyCell::Shorter(length))),
        ),
    };
    Ok(TableCells { part, cells, reported })
}

/// Reported cells, each with the index of its own simulated cell, and the simulated cells.
fn one_each<'a>(
    cells: impl Iterator<Item = (report::CellFigures, StudyCell<'a>)>,
) -> (Vec<(report::CellFigures, usize)>, Vec<StudyCell<'a>>) {
    let (reported, cells): (Vec<_>, Vec<_>) = cells.unzip();
    (reported.into_iter().zip(0..).collect(), cells)
}

impl StudyTable {
    /// Metrics of a run.
    fn kept(&self, outcome: &Outcome) -> Kept {
        self.metrics.iter().map(|metric| metric.of(outcome)).collect()
    }
}

/// Demand of a phase on a core.
pub(crate) fn demand(
    phase: &Phase,
    core: &CorePerformance,
    assumptions: &Assumptions,
) -> Result<Demand, StudyError> {
    let on_core = phase.on(core, &assumptions.guesses);
    Ok(on_core.map_err(|reason| StudyError::Phase(phase.name.clone(), reason))?.demand)
}

/// Geometric mean, over the seeds of a piece, of a policy's figure divided by the baseline's.
fn ratio(done: &PolicyRuns, [policy, base]: [usize; 2], metric: usize) -> Option<f64> {
    let both = done[policy].iter().zip(&done[base]);
    let ratios = both.map(|(own, base)| Some(own[metric]? / base[metric]?));
    stats::geometric_mean(&ratios.collect::<Option<Vec<f64>>>()?)
}

/// `count` as the type of counts in reports; at most `u32::MAX`.
pub(crate) fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Reasons for which a study cannot be made.
#[derive(Debug, Error)]
pub enum StudyError {
    /// The machine cannot be modelled.
    #[error(transparent)]
    Model(#[from] Impossible),
    /// A demand vector is invalid: phase and reason.
    #[error("demand of {0}: {1}")]
    Phase(String, PhaseError),
    /// A simulation cannot be made.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The machine is not of the studied kind, or no programs or mixes fit: requirement and
    /// finding.
    #[error("expected {0}, found {1}")]
    Unsuitable(String, String),
    /// A run on a real machine failed, or a derived demand vector is invalid: the reason in a line.
    #[error("{0}")]
    Run(String),
}
