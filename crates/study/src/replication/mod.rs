//! Published studies, simulated again.
//!
//! Nothing here was measured, and nothing is fitted to what was published. A study is a [`Definition`], a TOML file; one engine
//! simulates its cells and makes one form of [`report::Report`] of them.
//!
//! # Terms
//! - A *cell* is one situation: a program on a layout of cores, a mix of programs, a pair of applications.
//! - A *piece* is a cell under one set of assumptions, with all policies and seeds. Pieces do not depend on each other.
//! - A *run* is one policy with one seed in a piece. Of each, the metrics of the cell's part are kept.
//!
//! What a cell is made of needs code of its own: [`mixes`] of [`drawn`] or [`recorded`] programs, [`phased`] programs, [`pairs`].

pub mod definition;
mod detail;
pub mod drawn;
mod figures;
pub mod layout;
pub mod length;
pub mod mixes;
pub mod pace;
pub mod pairs;
pub mod phased;
pub mod picture;
pub mod recorded;
pub mod report;
pub mod siblings;
pub mod table;

use colocate_figures::stats;
use colocate_machine::performance::CorePerformance;
use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::phase::{Demand, PhaseError};
use colocate_model::{Assumptions, ModelError, Phase};
use colocate_policy::SoloProfile;
use colocate_sim::{Outcome, SimError};
use definition::{Cells, Definition, Part};
use drawn::Program;
use mixes::Mix;
use pairs::Pairs;
use phased::Point;
use thiserror::Error;

/// The metrics of a run; `None` if it did not come to its end.
pub type Kept = Vec<Option<f64>>;

/// What came of a piece: runs by policy, then by seed.
pub type Done = Vec<Vec<Kept>>;

/// What a study is made with.
#[derive(Clone, Copy, Debug)]
pub struct Study<'a> {
    /// The study.
    pub definition: &'a Definition,
    /// The machine.
    pub machine: &'a Machine,
    /// How fast it is.
    pub performance: &'a Performance,
    /// The sets of assumptions, the default one first; never empty.
    pub draws: &'a [Assumptions],
    /// The first seed; also that of drawn programs and mixes.
    pub seed: u64,
}

impl Study<'_> {
    /// The seeds. A seed decides what the kernel leaves to chance, and in which order the programs of a mix begin.
    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.seed;
        (0..self.definition.seeds).map(move |seed| first.wrapping_add(seed.into()))
    }

    /// How long a serial and a parallel phase take together.
    fn round(&self) -> Nanos {
        self.definition.round.unwrap_or(self.definition.length)
    }
}

/// One situation.
#[derive(Clone, Debug)]
pub enum Cell<'a> {
    /// A mix of programs.
    Mix(Mix),
    /// A program with serial and parallel phases.
    Phased(Point),
    /// Two applications.
    Pair([&'a Phase; 2]),
    /// Two copies of one application, the length of the second in percent of the first's.
    Shorter(u32),
}

/// A part with its cells.
#[derive(Debug)]
pub struct Table<'a> {
    /// What it shows.
    pub part: &'a Part,
    /// What is simulated.
    pub cells: Vec<Cell<'a>>,
    /// What is reported, each with the place of the cell that it is simulated by.
    pub reported: Vec<(report::CellFigures, usize)>,
}

/// All that is to be simulated.
#[derive(Debug)]
pub struct Work<'a> {
    study: Study<'a>,
    programs: Vec<Program>,
    alone: Vec<SoloProfile>,
    tables: Vec<Table<'a>>,
}

impl<'a> Work<'a> {
    /// The cells of a study; programs and mixes are drawn.
    ///
    /// # Errors
    /// [`StudyError`] if the machine is not of the studied kind or cannot be modelled, or there are no such programs or mixes.
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
        let (machine, performance) = (study.machine, study.performance);
        let Definition { programs, recorded, length, .. } = study.definition;
        let programs = match &recorded[..] {
            [] => drawn::draw(machine, performance, *programs, study.seed)?,
            recorded => recorded::programs(machine, performance, recorded, *length)?,
        };
        let alone = mixes::alone(&study, &programs)?;
        let table = |part: &'a Part| -> Result<Table<'a>, StudyError> {
            let each = |cells: Vec<(report::CellFigures, Cell<'a>)>| {
                let (reported, cells): (Vec<_>, Vec<_>) = cells.into_iter().unzip();
                (reported.into_iter().zip(0..).collect(), cells)
            };
            let (reported, cells) = match &part.cells {
                Cells::Mixes(form) => {
                    let mixes = mixes::draw(form, machine, &programs, &alone, study.seed)?;
                    let cell = |mix: Mix| (mix.figures(&programs), Cell::Mix(mix));
                    each(mixes.into_iter().map(cell).collect())
                }
                Cells::Phased(forms) => {
                    let points = forms.iter().flat_map(|form| phased::points(&study, form));
                    each(points.map(|point| (point.figures(), Cell::Phased(point))).collect())
                }
                Cells::Pairs { .. } => {
                    let pairs = Pairs::new(&study.definition.applications);
                    (pairs.reported(), pairs.cells().map(Cell::Pair).collect())
                }
                Cells::Shorter(lengths) => {
                    let cell = |&length| (pairs::shorter(length), Cell::Shorter(length));
                    each(lengths.iter().map(cell).collect())
                }
            };
            Ok(Table { part, cells, reported })
        };
        let tables = parts.iter().map(table).collect::<Result<_, _>>()?;
        Ok(Self { study, programs, alone, tables })
    }

    /// The programs of the mixes.
    #[must_use]
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The parts with their cells.
    #[must_use]
    pub fn tables(&self) -> &[Table<'a>] {
        &self.tables
    }

    /// All that the figures depend on, as text: a digest of it identifies them.
    #[must_use]
    pub fn inputs(&self) -> String {
        format!("{:?}{:?}", self.study, self.programs)
    }

    /// How many pieces there are: the first cell with all sets of assumptions, then the second, and so on.
    #[must_use]
    pub fn count(&self) -> usize {
        self.tables.iter().map(|table| table.cells.len()).sum::<usize>() * self.study.draws.len()
    }

    /// The part and the cell of a piece; `None` if there is no such piece.
    fn cell(&self, piece: usize) -> Option<(&Part, &Cell<'a>)> {
        let mut cells =
            self.tables.iter().flat_map(|it| it.cells.iter().map(|cell| (it.part, cell)));
        cells.nth(piece / self.study.draws.len())
    }

    /// How many policies, seeds and metrics a piece has; `None` if there is no such piece.
    #[must_use]
    pub fn shape(&self, piece: usize) -> Option<[usize; 3]> {
        let (part, _) = self.cell(piece)?;
        Some([part.names().len(), self.study.definition.seeds as usize, part.metrics.len()])
    }

    /// Simulates one piece.
    ///
    /// # Errors
    /// That of a simulation.
    ///
    /// # Panics
    /// If there is no such piece.
    pub fn piece(&self, piece: usize) -> Result<Done, StudyError> {
        let (part, cell) = self.cell(piece).expect("one of the pieces");
        let draw = piece % self.study.draws.len();
        match (cell, &part.cells) {
            (Cell::Mix(mix), Cells::Mixes(form)) => {
                mixes::under_all(&self.study, part, form, &self.programs, mix, draw)
            }
            (Cell::Phased(point), _) => phased::under_all(&self.study, part, point, draw),
            (Cell::Pair(pair), Cells::Pairs { also }) => {
                pairs::under_all(&self.study, part, also, *pair, draw)
            }
            (Cell::Shorter(length), _) => pairs::tail(&self.study, part, *length, draw),
            _ => unreachable!("a cell is of the kind that its part has"),
        }
    }
}

impl Part {
    /// What is kept of a run.
    fn kept(&self, outcome: &Outcome) -> Kept {
        self.metrics.iter().map(|metric| metric.of(outcome)).collect()
    }
}

/// The demand of a phase on a core.
pub(crate) fn demand(
    phase: &Phase,
    core: &CorePerformance,
    assumptions: &Assumptions,
) -> Result<Demand, StudyError> {
    let wrong = |reason| StudyError::Phase(phase.name.clone(), reason);
    Ok(phase.on(core, &assumptions.guesses).map_err(wrong)?.demand)
}

/// The geometric mean over the seeds of a figure of a policy over that of another one in a piece.
fn ratio(done: &Done, [policy, base]: [usize; 2], metric: usize) -> Option<f64> {
    let both = done[policy].iter().zip(&done[base]);
    let ratios = both.map(|(own, base)| Some(own[metric]? / base[metric]?));
    stats::geometric_mean(&ratios.collect::<Option<Vec<f64>>>()?)
}

/// As a report counts; never more than `u32::MAX`.
pub(crate) fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Why a study cannot be made.
#[derive(Debug, Error)]
pub enum StudyError {
    /// The machine cannot be modelled.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A demand vector is not one.
    #[error("demand of {0}: {1}")]
    Phase(String, PhaseError),
    /// A simulation cannot be made.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The machine is not of the studied kind, or has no such programs or mixes: what is needed, what is there.
    #[error("expected {0}, found {1}")]
    Unsuitable(String, String),
    /// A run on a real machine failed, for the reason given in one line.
    #[error("{0}")]
    Run(String),
}
