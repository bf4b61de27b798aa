//! The study in pieces that do not depend on each other, and the report that is made of them.

use super::figures::{Grid, PointFigures};
use super::points::{self, Point};
use super::program::{Kind, Pace};
use super::run::{self, Kept, ORACLE};
use super::{FedorovaError, Report, Study, VERSION, layout, published};
use crate::simulate::figures::{Column, RESOLUTION, Spread};
use colocate_model::Assumptions;

/// What came of a piece: runs by policy, the oracle last, and by seed.
pub type Done = Vec<Vec<Kept>>;

/// All that is to be simulated.
#[derive(Debug)]
pub struct Work<'a> {
    study: Study<'a>,
    points: Vec<Point>,
}

impl<'a> Work<'a> {
    /// The situations of a study.
    ///
    /// # Errors
    /// [`FedorovaError::Machine`] if the machine is not of the studied kind.
    pub fn new(study: Study<'a>) -> Result<Self, FedorovaError> {
        layout::check(study.machine)?;
        Ok(Self { study, points: points::all(&study) })
    }

    /// The situations.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// How many pieces there are: a situation with a set of assumptions each.
    #[must_use]
    pub fn count(&self) -> usize {
        self.points.len() * self.study.draws.len()
    }

    /// How many policies and seeds a piece has; `None` if there is no such piece.
    #[must_use]
    pub fn shape(&self, piece: usize) -> Option<[usize; 2]> {
        let point = self.points.get(piece / self.study.draws.len().max(1))?;
        Some([run::contenders(point.question).len() + 1, self.study.seeds as usize])
    }

    /// Makes one piece.
    ///
    /// # Errors
    /// The [`FedorovaError`] of a simulation.
    ///
    /// # Panics
    /// If there is no such piece.
    pub fn piece(&self, piece: usize) -> Result<Done, FedorovaError> {
        let draws = self.study.draws.len();
        run::under_all(&self.study, &self.points[piece / draws], piece % draws)
    }

    /// The report of all pieces, in their order; `inputs` is a digest of what it depends on.
    ///
    /// # Errors
    /// [`FedorovaError`] if the machine cannot be modelled.
    ///
    /// # Panics
    /// If there are not as many pieces as [`Self::count`] says, or no set of assumptions.
    pub fn report(
        &self,
        done: &[Done],
        colocate: &str,
        inputs: &str,
    ) -> Result<Report, FedorovaError> {
        assert_eq!(done.len(), self.count(), "every piece");
        let study = &self.study;
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Report {
            version: VERSION,
            simulated: true,
            colocate: colocate.to_owned(),
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
            missing: run::missing().into_iter().map(str::to_owned).collect(),
            points: self.figures(done),
            published: published::all(),
            notes: notes(),
        })
    }

    fn figures(&self, done: &[Done]) -> Vec<PointFigures> {
        let figures = |(point, done): (&Point, &[Done])| {
            let contenders = run::contenders(point.question);
            let names = contenders.iter().map(run::Contender::name).chain([ORACLE.to_owned()]);
            Grid(done).figures(point, &names.collect::<Vec<_>>())
        };
        self.points.iter().zip(done.chunks(self.study.draws.len())).map(figures).collect()
    }

    /// How many times as fast as a slow core a fast one is, alone.
    fn faster(&self) -> Result<Spread, FedorovaError> {
        let Study { machine, performance, draws, .. } = self.study;
        let slow = layout::all_slow(machine);
        let of = |assumptions: &Assumptions| -> Result<Option<f64>, FedorovaError> {
            let alone = |machine| -> Result<f64, FedorovaError> {
                Ok(Pace::new(machine, performance, *assumptions, Kind::Typical)?.alone())
            };
            Ok(Some(alone(machine)? / alone(&slow)?))
        };
        let figures = draws.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        let spread = Column { figures, seeds: 1 }.spread();
        Ok(spread.expect("at least one set of assumptions"))
    }
}

fn notes() -> Vec<String> {
    [
        "the programs are made to measure: what the published ones are like, and what their serial shares are shares of, is not \
         in the text at hand",
        "where one thread does all serial parts, whoever lays that one on a fast core and leaves it there has all of the gain, and \
         whether os does so is luck that lasts for a whole run",
        "the simulated kernel, which has the threads under os, knows nothing of fast and slow cores",
        "schedulers decide in no time, and moving a thread costs nothing but what it does not find in the caches",
        "ranges and intervals hold what the model assumes against and what chance does, not what the model leaves out, nor \
         other programs",
    ]
    .map(str::to_owned)
    .to_vec()
}
