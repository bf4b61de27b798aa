//! The study's situations under every scheduler, and the report that is made of them.

use super::figures::{PointFigures, figures, published};
use super::points::{self, Point};
use super::program::{Kind, Pace};
use super::run::{self, FIGURES, ORACLE, POLICIES};
use super::{Report, Study, VERSION, layout};
use crate::replication::{Done, Grid, Replication, StudyError, count, lines, missing};
use crate::simulate::figures::{RESOLUTION, Spread};
use colocate_model::Assumptions;

/// All that is to be simulated: a cell a situation.
#[derive(Debug)]
pub struct Work<'a> {
    study: Study<'a>,
    points: Vec<Point>,
}

impl Replication<FIGURES> for Work<'_> {
    type Report = Report;

    fn name(&self) -> String {
        "fedorova-2".to_owned()
    }

    fn inputs(&self) -> String {
        format!("{:?}{:?}", self.study, self.points)
    }

    fn cells(&self) -> usize {
        self.points.len()
    }

    fn repetitions(&self) -> [usize; 2] {
        [self.study.draws.len(), self.study.seeds as usize]
    }

    fn policies(&self, cell: usize) -> usize {
        run::contenders(self.points[cell].question).len() + 1
    }

    fn simulate(&self, cell: usize, draw: usize) -> Result<Done<FIGURES>, StudyError> {
        run::under_all(&self.study, &self.points[cell], draw)
    }

    fn report(&self, done: &[Done<FIGURES>], inputs: &str) -> Result<Report, StudyError> {
        let study = &self.study;
        Ok(Report {
            version: VERSION,
            simulated: true,
            colocate: env!("CARGO_PKG_VERSION").to_owned(),
            machine: study.machine.name.clone(),
            threads: count(study.machine.cores.len()),
            draws: count(study.draws.len()),
            seeds: study.seeds,
            seed: study.seed,
            length_s: study.length.as_secs_f64(),
            round_s: study.round.as_secs_f64(),
            quantum_s: study.quantum.as_secs_f64(),
            inputs: inputs.to_owned(),
            resolution: RESOLUTION,
            faster: self.faster()?,
            missing: missing(&POLICIES),
            points: self.figures(self.grid(done)),
            published: published(),
            notes: notes(),
        })
    }
}

impl<'a> Work<'a> {
    /// The situations of a study.
    ///
    /// # Errors
    /// [`StudyError::NotAsymmetric`] if the machine is not of the studied kind.
    pub fn new(study: Study<'a>) -> Result<Self, StudyError> {
        layout::check(study.machine)?;
        Ok(Self { study, points: points::all(&study) })
    }

    fn figures(&self, grid: Grid<'_, FIGURES>) -> Vec<PointFigures> {
        let of_point = |(cell, point): (usize, &Point)| {
            let contenders = run::contenders(point.question);
            let names = contenders.iter().map(run::Contender::name).chain([ORACLE.to_owned()]);
            figures(grid, cell, point, &names.collect::<Vec<_>>())
        };
        self.points.iter().enumerate().map(of_point).collect()
    }

    /// How many times as fast as a slow core a fast one is, alone.
    fn faster(&self) -> Result<Spread, StudyError> {
        let Study { machine, performance, draws, .. } = self.study;
        let slow = layout::all_slow(machine);
        let of = |assumptions: &Assumptions| -> Result<f64, StudyError> {
            let pace = |machine| Pace::new(machine, performance, *assumptions, Kind::Typical);
            Ok(pace(machine)?.alone() / pace(&slow)?.alone())
        };
        Ok(Spread::over(&draws.iter().map(of).collect::<Result<Vec<_>, _>>()?, 0.0))
    }
}

fn notes() -> Vec<String> {
    lines(&[
        "the programs are made to measure: what the published ones are like, and what their serial shares are shares of, is not \
         in the text at hand",
        "where one thread does all serial parts, whoever lays that one on a fast core and leaves it there has all of the gain, and \
         whether os does so is luck that lasts for a whole run",
        "the simulated kernel, which has the threads under os, knows nothing of fast and slow cores",
        "schedulers decide in no time, and moving a thread costs nothing but what it does not find in the caches",
        "ranges and intervals hold what the model assumes against and what chance does, not what the model leaves out, nor \
         other programs",
    ])
}
