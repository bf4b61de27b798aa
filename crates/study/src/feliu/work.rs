//! A study's mixes under every scheduler, and the report that is made of them.

use super::figures::{Compared, Figures, Metric, MixFigures};
use super::mix::{self, Mix};
use super::program::{self, Program};
use super::{ProgramFigures, Report, Setup, Study, VERSION, run, shown};
use crate::replication::{Done, Grid, Replication, StudyError, count, lines, missing};
use crate::simulate::figures::RESOLUTION;
use colocate_policy::SoloProfile;
use colocate_sim::{Platform, alone_of};

/// How many programs are drawn: as many as SPEC CPU2006 has.
pub const PROGRAMS: usize = 29;

/// How many figures are kept of a run.
const FIGURES: usize = Metric::COUNT;

/// All that is to be simulated: a cell a mix.
#[derive(Debug)]
pub struct Work<'a> {
    study: Study<'a>,
    programs: Vec<Program>,
    alone: Vec<SoloProfile>,
    parts: Vec<(Setup, Vec<Mix>)>,
}

impl Replication<FIGURES> for Work<'_> {
    type Report = Report;

    fn name(&self) -> String {
        format!("{}-1", self.study.number)
    }

    fn inputs(&self) -> String {
        format!("{:?}{:?}{:?}", self.study, self.study.setups(), self.programs)
    }

    fn cells(&self) -> usize {
        self.mixes().count()
    }

    fn repetitions(&self) -> [usize; 2] {
        [self.study.draws.len(), self.study.seeds as usize]
    }

    fn policies(&self, cell: usize) -> usize {
        self.mixes().nth(cell).map_or(0, |(setup, _)| setup.schedulers(0).len())
    }

    fn simulate(&self, cell: usize, draw: usize) -> Result<Done<FIGURES>, StudyError> {
        let (setup, mix) = self.mixes().nth(cell).expect("one of the cells");
        run::under_all(&self.study, setup, &self.programs, mix, draw)
    }

    fn report(&self, done: &[Done<FIGURES>], inputs: &str) -> Result<Report, StudyError> {
        let study = &self.study;
        let mut grid = self.grid(done);
        let mut setups = Vec::new();
        for (setup, mixes) in &self.parts {
            let [own, rest] = grid.split_at(mixes.len());
            grid = rest;
            setups.push(self.figures(setup, mixes, own)?);
        }
        Ok(Report {
            version: VERSION,
            simulated: true,
            colocate: env!("CARGO_PKG_VERSION").to_owned(),
            study: study.number,
            machine: study.machine.name.clone(),
            draws: count(study.draws.len()),
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
}

impl<'a> Work<'a> {
    /// Draws the programs and the mixes of a study.
    ///
    /// # Errors
    /// [`StudyError`] if the machine is too small or cannot be modelled, or there are no such programs or mixes.
    pub fn new(study: Study<'a>) -> Result<Self, StudyError> {
        let setups = study.setups();
        setups.iter().try_for_each(|setup| fits(&study, setup))?;
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

    /// Every mix with its set-up.
    fn mixes(&self) -> impl Iterator<Item = (&Setup, &Mix)> {
        self.parts.iter().flat_map(|(setup, mixes)| mixes.iter().map(move |mix| (setup, mix)))
    }

    fn figures(
        &self,
        setup: &Setup,
        mixes: &[Mix],
        grid: Grid<'_, FIGURES>,
    ) -> Result<Figures, StudyError> {
        let schedulers = setup.schedulers(0);
        let names: Vec<String> = schedulers.iter().map(|kind| kind.name().to_owned()).collect();
        let number = self.study.number;
        let compared = Compared { grid, names: &names, metrics: setup.metrics, number };
        let shown = &mixes[setup.shown.min(mixes.len() - 1)];
        Ok(Figures {
            name: setup.name.to_owned(),
            missing: missing(setup.policies),
            mixes: mixes.iter().map(|mix| MixFigures::of(mix, &self.programs)).collect(),
            policies: compared.policies(),
            order: compared.orders(),
            shown: shown::of(&self.study, setup, &self.programs, shown)?,
        })
    }

    fn program_figures(&self) -> Vec<ProgramFigures> {
        let figures = |(program, alone): (&Program, &SoloProfile)| ProgramFigures {
            name: program.name.clone(),
            phases: count(program.phases.len()),
            memory: alone.memory,
            first_cache: alone.first_cache,
            loss: alone.loss,
        };
        self.programs.iter().zip(&self.alone).map(figures).collect()
    }
}

/// Whether the machine has the cores and PUs that a set-up needs.
fn fits(study: &Study<'_>, setup: &Setup) -> Result<(), StudyError> {
    let (cores, pus) = (setup.cores.iter().copied().max().unwrap_or(1), setup.pus_per_core);
    let machine = study.machine;
    let enough = machine.cores.iter().take(cores).all(|core| core.pus.len() >= pus);
    if machine.cores.len() >= cores && enough {
        return Ok(());
    }
    Err(StudyError::TooSmall { machine: machine.name.clone(), cores, pus })
}

/// All programs alone, under the usual assumptions.
fn alone(
    study: &Study<'_>,
    setup: &Setup,
    programs: &[Program],
) -> Result<Vec<SoloProfile>, StudyError> {
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
    let mut notes = lines(&[
        "the programs are drawn, they are not SPEC's: what is compared is the order of the schedulers, and \
         how large differences can be in this model",
        "ranges and intervals hold what the model assumes against and what chance does, not what the model \
         leaves out, nor other programs: --seed draws others",
    ]);
    let lacking = setups.iter().filter(|setup| !setup.missing.is_empty());
    let without = |setup: &Figures| {
        format!("{}: without {}, which are not there", setup.name, setup.missing.join(", "))
    };
    notes.extend(lacking.map(without));
    notes
}
