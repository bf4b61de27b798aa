//! A study in pieces that do not depend on each other, and the report that is made of them.

use super::figures::{Figures, Grid, MixFigures};
use super::mix::{self, Mix};
use super::program::{self, Program};
use super::run::{self, Kept};
use super::{FeliuError, ProgramFigures, Report, Setup, Study, VERSION, shown};
use crate::simulate::figures::RESOLUTION;
use colocate_policy::SoloProfile;
use colocate_sim::{Platform, alone_of};

/// How many programs are drawn: as many as SPEC CPU2006 has.
pub const PROGRAMS: usize = 29;

/// What came of a piece: runs by scheduler and by seed.
pub type Done = Vec<Vec<Kept>>;

/// All that is to be simulated.
#[derive(Debug)]
pub struct Work<'a> {
    study: Study<'a>,
    programs: Vec<Program>,
    alone: Vec<SoloProfile>,
    parts: Vec<(Setup, Vec<Mix>)>,
}

impl<'a> Work<'a> {
    /// Draws the programs and the mixes of a study.
    ///
    /// # Errors
    /// [`FeliuError`] if the machine is too small or cannot be modelled, or there are no such programs or mixes.
    pub fn new(study: Study<'a>) -> Result<Self, FeliuError> {
        let setups = study.setups();
        for setup in &setups {
            fits(&study, setup)?;
        }
        let programs = program::draw(study.machine, study.performance, PROGRAMS, study.seed)?;
        let alone = alone(&study, &setups[0], &programs)?;
        let first_cache: Vec<f64> = alone.iter().map(|alone| alone.first_cache).collect();
        let mut parts = Vec::new();
        for setup in setups {
            let seed = study.seed.wrapping_add(1);
            let mixes = mix::draw(&setup, study.machine, &programs, &first_cache, seed)?;
            parts.push((setup, mixes));
        }
        Ok(Self { study, programs, alone, parts })
    }

    /// The programs.
    #[must_use]
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The set-ups with their mixes.
    #[must_use]
    pub fn parts(&self) -> &[(Setup, Vec<Mix>)] {
        &self.parts
    }

    /// How many pieces there are: a mix with a set of assumptions each.
    #[must_use]
    pub fn count(&self) -> usize {
        let mixes: usize = self.parts.iter().map(|(_, mixes)| mixes.len()).sum();
        mixes * self.study.draws.len()
    }

    /// How many schedulers and seeds a piece has; `None` if there is no such piece.
    #[must_use]
    pub fn shape(&self, piece: usize) -> Option<[usize; 2]> {
        let (setup, ..) = self.at(piece)?;
        Some([setup.schedulers(0).len(), self.study.seeds as usize])
    }

    /// Set-up, mix and set of assumptions of a piece.
    fn at(&self, mut piece: usize) -> Option<(&Setup, &Mix, usize)> {
        let draws = self.study.draws.len();
        for (setup, mixes) in &self.parts {
            if piece < mixes.len() * draws {
                return Some((setup, &mixes[piece / draws], piece % draws));
            }
            piece -= mixes.len() * draws;
        }
        None
    }

    /// Makes one piece.
    ///
    /// # Errors
    /// The [`FeliuError`] of a simulation.
    ///
    /// # Panics
    /// If there is no such piece.
    pub fn piece(&self, piece: usize) -> Result<Done, FeliuError> {
        let (setup, mix, draw) = self.at(piece).expect("one of the pieces");
        run::under_all(&self.study, setup, &self.programs, mix, draw)
    }

    /// The report of all pieces, in their order; `inputs` is a digest of what it depends on.
    ///
    /// # Errors
    /// The [`FeliuError`] of the mixes that are shown.
    ///
    /// # Panics
    /// If there are not as many pieces as [`Self::count`] says.
    pub fn report(
        &self,
        done: &[Done],
        colocate: &str,
        inputs: &str,
    ) -> Result<Report, FeliuError> {
        assert_eq!(done.len(), self.count(), "every piece");
        let study = &self.study;
        let mut left = done;
        let mut setups = Vec::new();
        for (setup, mixes) in &self.parts {
            let (mine, rest) = left.split_at(mixes.len() * study.draws.len());
            left = rest;
            setups.push(self.figures(setup, mixes, mine)?);
        }
        Ok(Report {
            version: VERSION,
            simulated: true,
            colocate: colocate.to_owned(),
            study: study.number,
            machine: study.machine.name.clone(),
            draws: u32::try_from(study.draws.len()).unwrap_or(u32::MAX),
            seeds: study.seeds,
            seed: study.seed,
            alone_s: study.alone.as_secs_f64(),
            quantum_s: study.quantum.as_secs_f64(),
            inputs: inputs.to_owned(),
            resolution: RESOLUTION,
            programs: self.program_figures(),
            notes: notes(&setups),
            setups,
        })
    }

    fn figures(&self, setup: &Setup, mixes: &[Mix], done: &[Done]) -> Result<Figures, FeliuError> {
        let number = self.study.number;
        let names: Vec<String> =
            setup.schedulers(0).iter().map(|kind| kind.name().to_owned()).collect();
        let grid = Grid { done, mixes: mixes.len(), draws: self.study.draws.len() };
        let shown = &mixes[setup.shown.min(mixes.len() - 1)];
        Ok(Figures {
            name: setup.name.to_owned(),
            missing: setup.missing().iter().map(|&name| name.to_owned()).collect(),
            mixes: mixes.iter().map(|mix| MixFigures::of(mix, &self.programs)).collect(),
            policies: grid.policies(&names, setup, number),
            order: grid.orders(&names, number, setup),
            shown: shown::of(&self.study, setup, &self.programs, shown)?,
        })
    }

    fn program_figures(&self) -> Vec<ProgramFigures> {
        let figures = |(program, alone): (&Program, &SoloProfile)| ProgramFigures {
            name: program.name.clone(),
            phases: u32::try_from(program.phases.len()).unwrap_or(u32::MAX),
            memory: alone.memory,
            first_cache: alone.first_cache,
            loss: alone.loss,
        };
        self.programs.iter().zip(&self.alone).map(figures).collect()
    }
}

/// Whether the machine has the cores and PUs that a set-up needs.
fn fits(study: &Study<'_>, setup: &Setup) -> Result<(), FeliuError> {
    let (cores, pus) = (setup.cores.iter().copied().max().unwrap_or(1), setup.pus_per_core);
    let machine = study.machine;
    let enough = machine.cores.iter().take(cores).all(|core| core.pus.len() >= pus);
    if machine.cores.len() >= cores && enough {
        return Ok(());
    }
    Err(FeliuError::TooSmall { machine: machine.name.clone(), cores, pus })
}

/// All programs alone, under the usual assumptions.
fn alone(
    study: &Study<'_>,
    setup: &Setup,
    programs: &[Program],
) -> Result<Vec<SoloProfile>, FeliuError> {
    let usual = colocate_model::Assumptions::default();
    let platform = Platform::new(study.machine, study.performance, usual)?;
    let all = Mix {
        name: "all".to_owned(),
        programs: (0..programs.len()).collect(),
        pus: study.machine.pus.iter().map(|pu| pu.os).collect(),
        traffic: 0.0,
    };
    let mut scenario = run::scenario(study, setup, programs, &all, 0);
    // In the order of the programs, not of their queue.
    let place = |job: &colocate_sim::JobSpec| programs.iter().position(|p| p.name == job.name);
    scenario.jobs.sort_by_key(place);
    Ok(alone_of(&platform, &scenario)?)
}

fn notes(setups: &[Figures]) -> Vec<String> {
    let mut notes = vec![
        "the programs are drawn, they are not SPEC's: what is compared is the order of the schedulers, and \
         how large differences can be in this model"
            .to_owned(),
        "ranges and intervals hold what the model assumes against and what chance does, not what the model \
         leaves out, nor other programs: --seed draws others"
            .to_owned(),
    ];
    for setup in setups.iter().filter(|setup| !setup.missing.is_empty()) {
        notes.push(format!(
            "{}: without {}, which are not there",
            setup.name,
            setup.missing.join(", ")
        ));
    }
    notes
}
