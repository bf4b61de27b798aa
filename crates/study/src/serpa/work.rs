//! The study in pieces that do not depend on each other, and the report that is made of them.

use super::pairs::{self, Metrics, Pairs};
use super::{Report, Study, StudyError, VERSION, bench, tail};
use crate::simulate::figures::RESOLUTION;
use colocate_model::Phase;

/// What came of a piece: runs by policy and by seed.
pub type Done = Vec<Vec<Metrics>>;

/// All that is to be simulated.
#[derive(Debug)]
pub struct Work<'a> {
    study: Study<'a>,
    kernels: &'a [Phase],
    pairs: Pairs<'a>,
    /// What the tail is shown with.
    usual: Phase,
}

impl<'a> Work<'a> {
    /// The study with these kernels on one core and these applications two at a time.
    #[must_use]
    pub fn new(study: Study<'a>, kernels: &'a [Phase], applications: &'a [Phase]) -> Self {
        let pairs = Pairs::new(applications, study.draws.len());
        Self { study, kernels, pairs, usual: Phase::default() }
    }

    /// How many pieces there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pairs.count() + tail::count(&self.study)
    }

    /// How many policies and seeds a piece has; `None` if there is no such piece.
    #[must_use]
    pub fn shape(&self, piece: usize) -> Option<[usize; 2]> {
        let policies = if piece < self.pairs.count() {
            pairs::POLICIES.len() + 1
        } else {
            tail::POLICIES.len()
        };
        (piece < self.count()).then_some([policies, self.study.seeds as usize])
    }

    /// Makes one piece.
    ///
    /// # Errors
    /// The [`StudyError`] of a simulation.
    ///
    /// # Panics
    /// If there is no such piece.
    pub fn piece(&self, piece: usize) -> Result<Done, StudyError> {
        match piece.checked_sub(self.pairs.count()) {
            Some(of_tail) => tail::piece(&self.study, &self.usual, of_tail),
            None => {
                let (pair, draw) = self.pairs.at(piece);
                pairs::all_policies(&self.study, pair, draw)
            }
        }
    }

    /// The report of all pieces, in their order; `inputs` is a digest of what it depends on.
    ///
    /// # Errors
    /// [`StudyError`] if the kernels cannot be modelled on one core.
    ///
    /// # Panics
    /// If there are not as many pieces as [`Self::count`] says.
    pub fn report(
        &self,
        done: &[Done],
        colocate: &str,
        inputs: &str,
    ) -> Result<Report, StudyError> {
        let study = &self.study;
        let (of_pairs, of_tail) = done.split_at(self.pairs.count());
        Ok(Report {
            version: VERSION,
            simulated: true,
            colocate: colocate.to_owned(),
            machine: study.machine.name.clone(),
            draws: u32::try_from(study.draws.len()).unwrap_or(u32::MAX),
            seeds: study.seeds,
            seed: study.seed,
            alone_s: study.alone.as_secs_f64(),
            inputs: inputs.to_owned(),
            resolution: RESOLUTION,
            bench: bench::figures(study, self.kernels)?,
            pairs: self.pairs.figures(study.machine.cores.len(), of_pairs),
            tail: tail::figures(study, of_tail),
        })
    }
}
