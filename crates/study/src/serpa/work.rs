//! The pairs and the tail under every policy, and the report that is made of them.

use super::pairs::{self, FIGURES, Pairs};
use super::{Report, Study, VERSION, bench, tail};
use crate::replication::{Done, Replication, StudyError, count};
use crate::simulate::figures::RESOLUTION;
use colocate_model::Phase;

/// All that is to be simulated: a cell a pair, then one a length of the tail.
#[derive(Debug)]
pub struct Work<'a> {
    study: Study<'a>,
    kernels: &'a [Phase],
    applications: &'a [Phase],
    pairs: Pairs<'a>,
    /// What the tail is shown with.
    usual: Phase,
}

impl<'a> Work<'a> {
    /// The study with these kernels on one core and these applications two at a time.
    ///
    /// # Errors
    /// [`StudyError::NoSiblings`] if the machine has none.
    pub fn new(
        study: Study<'a>,
        kernels: &'a [Phase],
        applications: &'a [Phase],
    ) -> Result<Self, StudyError> {
        bench::siblings(study.machine)?;
        let pairs = Pairs::new(applications);
        Ok(Self { study, kernels, applications, pairs, usual: Phase::default() })
    }
}

impl Replication<FIGURES> for Work<'_> {
    type Report = Report;

    fn name(&self) -> String {
        "serpa-2".to_owned()
    }

    fn inputs(&self) -> String {
        format!("{:?}{:?}{:?}", self.study, self.kernels, self.applications)
    }

    fn cells(&self) -> usize {
        self.pairs.cells() + tail::CELLS
    }

    fn repetitions(&self) -> [usize; 2] {
        [self.study.draws.len(), self.study.seeds as usize]
    }

    fn policies(&self, cell: usize) -> usize {
        if cell < self.pairs.cells() { pairs::POLICIES.len() + 1 } else { tail::POLICIES.len() }
    }

    fn simulate(&self, cell: usize, draw: usize) -> Result<Done<FIGURES>, StudyError> {
        match cell.checked_sub(self.pairs.cells()) {
            Some(of_tail) => tail::under_all(&self.study, &self.usual, of_tail, draw),
            None => pairs::all_policies(&self.study, self.pairs.of_cell(cell), draw),
        }
    }

    fn report(&self, done: &[Done<FIGURES>], inputs: &str) -> Result<Report, StudyError> {
        let study = &self.study;
        let [of_pairs, of_tail] = self.grid(done).split_at(self.pairs.cells());
        Ok(Report {
            version: VERSION,
            simulated: true,
            colocate: env!("CARGO_PKG_VERSION").to_owned(),
            machine: study.machine.name.clone(),
            draws: count(study.draws.len()),
            seeds: study.seeds,
            seed: study.seed,
            alone_s: study.alone.as_secs_f64(),
            inputs: inputs.to_owned(),
            resolution: RESOLUTION,
            bench: bench::figures(study, self.kernels)?,
            pairs: self.pairs.figures(study.machine.cores.len(), of_pairs),
            tail: tail::figures(of_tail),
        })
    }
}
