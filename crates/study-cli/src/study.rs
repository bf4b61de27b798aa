//! `colocate-study study`: published studies again, simulated.

mod keep;
mod runner;

use crate::simulate::load;
use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::value_parser;
use colocate_cli::demand;
use colocate_cli::exit::usage;
use colocate_cli::output;
use colocate_cli::outputs::{self, Form};
use colocate_files::{Dir, FileMode};
use colocate_machine::Nanos;
use colocate_machine::printable::json;
use colocate_model::{Assumptions, Phase};
use colocate_study::definition::Definition;
use colocate_study::files::STUDIES;
use colocate_study::printed::Printed;
use colocate_study::replication::definition::PolicyStudyDefinition;
use colocate_study::replication::drawn;
use colocate_study::replication::length::{self, FIRST, LAST, LengthFigures};
use colocate_study::replication::recorded::{self, Recorded};
use colocate_study::replication::{Study, StudyCells};
use colocate_study::{contention, patterns, piccoli};
use runner::{Runner, RunnerOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes a published study again in the simulator and prints it beside what was published
///
/// All of it is simulated: nothing is measured, and nothing is fitted to the published figures. What is simulated, and the
/// defaults of the options, are in studies/NAME.toml; docs/results/serpa.md, docs/results/feliu.md, docs/results/fedorova.md,
/// docs/results/piccoli.md and docs/method/contention.md have the results.
#[derive(clap::Args)]
pub struct Args {
    /// Study
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    name: String,

    /// Machine to simulate instead of the published one: a described one by name, or a file that says how
    /// fast it is
    #[arg(long, value_name = "SPEC")]
    machine: Option<String>,

    /// Sets of assumptions, the default one among them [default: 5, serpa: 17] [range: 1-10000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    draws: Option<u32>,

    /// piccoli: how many of the ten sizes of each benchmark, the largest ones [default: 10] [range: 1-10]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10))]
    sizes: Option<u32>,

    /// Seeds for each set: what the kernel leaves to chance, and the order in which programs begin
    /// [default: 2, fedorova: 8, communication: 20 random mappings] [range: 1-10000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    seeds: Option<u32>,

    /// First seed; also draws the assumptions, and programs and mixes
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// How long a program takes alone, fedorova: on slow cores, in milliseconds [default: serpa: 32000,
    /// feliu-1 to 3: 30000, feliu-4: 10000, fedorova: 2000] [range: 1-600000]
    #[arg(long, value_name = "MS", value_parser = value_parser!(u64).range(1..=600_000))]
    length_ms: Option<u64>,

    /// Time between two decisions, in milliseconds [default: feliu-1 to 3: 200, feliu-4: 100,
    /// fedorova: 1] [range: 1-60000]
    #[arg(long, value_name = "MS", value_parser = value_parser!(u64).range(1..=60_000))]
    quantum_ms: Option<u64>,

    /// The same in microseconds [range: 100-10000000]
    #[arg(long, value_name = "US", conflicts_with = "quantum_ms",
        value_parser = value_parser!(u64).range(100..=10_000_000))]
    quantum_us: Option<u64>,

    /// fedorova: how long a serial and a parallel phase take together on slow cores where their length is
    /// not what is varied, in milliseconds [default: 125] [range: 1-600000]
    #[arg(long, value_name = "MS", value_parser = value_parser!(u64).range(1..=600_000))]
    round_ms: Option<u64>,

    /// feliu-1 to 4: mixes of each table; docs/results/feliu.md says which numbers are published, and which chosen
    /// [default: 10, feliu-2: 15 and 5, feliu-4: 10 and 5] [range: 1-1000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1_000))]
    mixes: Option<u16>,

    /// feliu-1 to 4: memory traffic of the mixes, in transactions per microsecond, all contexts together
    /// [default: as published, feliu-1: 20-40, feliu-3: 50-130, others: any]
    #[arg(long, value_name = "LEAST-MOST", value_parser = range)]
    traffic: Option<TrafficRange>,

    /// feliu-1 to 4, contention: programs: drawn ones, or a folder with the files of recorded ones (colocate profile --phases)
    #[arg(long, value_name = "drawn|FOLDER", default_value = DRAWN)]
    programs: PathBuf,

    /// serpa: demand vectors instead of SMT-Bench's, .toml or .json (docs/schemas/demand.json)
    #[arg(long, value_name = "FILE")]
    kernels: Option<PathBuf>,

    /// serpa: demand vectors instead of the NAS benchmarks', two or more
    #[arg(long, value_name = "FILE")]
    applications: Option<PathBuf>,

    /// serpa: only find out how long the applications have to be: double the length until the figures of
    /// the simulated kernel stay as they are
    #[arg(long, conflicts_with_all = ["length_ms", "keep", "json"])]
    find_length: bool,

    #[command(flatten)]
    course: RunnerOptions,

    /// Print the figures as JSON (docs/schemas/study.json, study-communication.json, study-contention.json, study-piccoli.json)
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output, repeatable: .txt, .json, or, of all but serpa and feliu-1 to 4, .svg
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,
}

fn names() -> impl Iterator<Item = PossibleValue> {
    STUDIES.iter().map(|(name, title, _)| PossibleValue::new(*name).help(*title))
}

/// Value of `--programs` for drawn programs.
const DRAWN: &str = "drawn";
/// Range of memory traffic, t/µs: least and most.
#[derive(Clone, Copy, Debug)]
struct TrafficRange([f64; 2]);

fn range(text: &str) -> Result<TrafficRange, String> {
    let ends = text.split_once('-').and_then(|(least, most)| {
        let number = |text: &str| text.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0);
        number(least).zip(number(most)).filter(|(least, most)| least < most)
    });
    let ends = ends.ok_or_else(|| format!("expected two numbers like 20-40, found {text:?}"))?;
    Ok(TrafficRange([ends.0, ends.1]))
}

/// Runs `colocate-study study`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let outputs = outputs::of(&args.output, args.json, FileMode::ByUmask)?;
    let definition = args.definition()?;
    let machine = args.machine.as_deref().unwrap_or(definition.machine());
    let (machine, performance) = load::machine(machine)?;
    match &definition {
        Definition::Policies(definition) => {
            let draws = Assumptions::sample(definition.draws as usize, args.seed);
            let study = Study {
                definition,
                machine: &machine,
                performance: &performance,
                draws: &draws,
                seed: args.seed,
            };
            let runner = Runner::new(&args.course)?;
            if args.find_length {
                let text = find_length(&runner, study)?;
                return write(args, &outputs, |_| Ok(text.clone()));
            }
            print(args, &outputs, &runner.study(&args.name, &StudyCells::new(study)?)?)
        }
        Definition::Communication(definition) => {
            let report = patterns::study(definition, &machine, &performance, args.seed);
            print(args, &outputs, &report.map_err(anyhow::Error::msg)?)
        }
        Definition::Contention(definition) => {
            let programs = if args.are_recorded() {
                let recorded = recorded(&args.programs)?;
                recorded::programs(&machine, &performance, &recorded, definition.length)?
            } else {
                drawn::draw(&machine, &performance, definition.programs, args.seed)?
            };
            let study = contention::ContentionStudy {
                definition,
                machine: &machine,
                performance: &performance,
                programs: &programs,
                draws: &Assumptions::sample(definition.draws as usize, args.seed),
            };
            print(args, &outputs, &study.report()?)
        }
        Definition::Pages(definition) => {
            let study = piccoli::PiccoliStudy {
                definition,
                machine: &machine,
                performance: &performance,
                draws: &Assumptions::sample(definition.draws as usize, args.seed),
                seed: args.seed,
            };
            study.check()?;
            let runner = Runner::new(&args.course)?;
            let done = runner.all("", study.count(), |piece| Ok(study.piece(piece)?))?;
            print(args, &outputs, &study.report(&done))
        }
    }
}

/// Writes a report in all its forms.
fn print(
    args: &Args,
    outputs: &[outputs::Output<'_>],
    report: &impl Printed,
) -> anyhow::Result<ExitCode> {
    write(args, outputs, |form| {
        Ok(match form {
            Form::Text => report.text(),
            Form::Json => json(report),
            Form::Picture => report.svg().map_err(anyhow::Error::msg)?,
        })
    })
}

fn write(
    args: &Args,
    outputs: &[outputs::Output<'_>],
    text: impl Fn(Form) -> anyhow::Result<String>,
) -> anyhow::Result<ExitCode> {
    let written: Vec<anyhow::Result<()>> =
        outputs.iter().map(|output| output.write(&text)).collect();
    // A long simulation is not lost where no file can be written.
    if written.iter().all(Result::is_err) {
        output::write(None, &text(if args.json { Form::Json } else { Form::Text })?)?;
    }
    written.into_iter().collect::<anyhow::Result<()>>()?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn are_recorded(&self) -> bool {
        self.programs.as_os_str() != DRAWN
    }

    /// The study's definition with the given options in place of its values.
    fn definition(&self) -> anyhow::Result<Definition> {
        let mut study = Definition::built_in(&self.name).map_err(anyhow::Error::msg)?;
        self.refuse(&mut study)?;
        match &mut study {
            Definition::Policies(study) => self.put_in(study)?,
            Definition::Communication(study) => study.seeds = self.seeds.unwrap_or(study.seeds),
            Definition::Contention(study) => study.draws = self.draws.unwrap_or(study.draws),
            Definition::Pages(study) => {
                study.draws = self.draws.unwrap_or(study.draws);
                study.keep_largest(self.sizes.map_or(usize::MAX, |sizes| sizes as usize));
            }
        }
        Ok(study)
    }

    /// Refuses options without meaning for a study.
    fn refuse(&self, study: &mut Definition) -> anyhow::Result<()> {
        let is_communication = matches!(study, Definition::Communication(_));
        let is_contention = matches!(study, Definition::Contention(_));
        let has_sizes = matches!(study, Definition::Pages(_));
        let policies = match study {
            Definition::Policies(study) => Some(study),
            _ => None,
        };
        let has_policies = policies.is_some();
        let pairs = policies.as_ref().is_some_and(|study| study.has_pairs());
        let round = policies.as_ref().is_some_and(|study| study.round.is_some());
        let mixes = policies.is_some_and(|study| study.mixes().next().is_some());
        for (option, is_given, applies) in [
            ("--draws", self.draws.is_some(), !is_communication),
            ("--seeds", self.seeds.is_some(), has_policies || is_communication),
            ("--sizes", self.sizes.is_some(), has_sizes),
            ("--keep", self.course.keep.is_some(), has_policies || is_communication),
            ("--length-ms", self.length_ms.is_some(), has_policies),
            (
                "--quantum-ms and no --quantum-us",
                self.quantum_ms.or(self.quantum_us).is_some(),
                has_policies && !pairs,
            ),
            ("--round-ms", self.round_ms.is_some(), round),
            ("--mixes", self.mixes.is_some(), mixes),
            ("--traffic", self.traffic.is_some(), mixes),
            ("--programs", self.are_recorded(), mixes || is_contention),
            ("--kernels", self.kernels.is_some(), pairs),
            ("--applications", self.applications.is_some(), pairs),
            ("--find-length", self.find_length, pairs),
        ] {
            if is_given && !applies {
                return Err(usage(format!("{} has no {option}", self.name)));
            }
        }
        Ok(())
    }

    /// Puts the given options in place of the values of a study of policies.
    fn put_in(&self, study: &mut PolicyStudyDefinition) -> anyhow::Result<()> {
        let quantum = self.quantum_ms.map(Nanos::from_millis);
        let quantum = quantum.or(self.quantum_us.map(|us| Nanos(us * 1_000)));
        study.draws = self.draws.unwrap_or(study.draws);
        study.seeds = self.seeds.unwrap_or(study.seeds);
        study.length = self.length_ms.map_or(study.length, Nanos::from_millis);
        study.quantum = quantum.unwrap_or(study.quantum);
        study.round = self.round_ms.map(Nanos::from_millis).or(study.round);
        for each in study.mixes() {
            each.count = self.mixes.map_or(each.count, usize::from);
            each.traffic = self.traffic.map(|traffic| traffic.0).or(each.traffic);
        }
        if self.are_recorded() {
            study.use_recorded(recorded(&self.programs)?);
        }
        if let Some(path) = &self.kernels {
            study.kernels = phases(path)?;
        }
        if let Some(path) = &self.applications {
            study.applications = phases(path)?;
        }
        Ok(())
    }
}

/// Recorded programs in a folder, in the order of their file names; at least two.
pub fn recorded(folder: &Path) -> anyhow::Result<Vec<Recorded>> {
    /// Most files in the folder. Chosen.
    const MOST: usize = 10_000;
    let names = Dir::open(folder).and_then(|dir| dir.names(MOST));
    let mut names = names.map_err(|why| anyhow::anyhow!(why.line()))?;
    names.sort();
    let mut found = Vec::new();
    for path in names.iter().map(|name| folder.join(name)) {
        if path.extension().is_none_or(|end| end != "json" && end != "toml") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let of_file = demand::phase_file(&path).with_context(|| path.display().to_string())?;
        found.push(Recorded::new(name, of_file).with_context(|| {
            format!("{}: expected the course of the phases, found none", path.display())
        })?);
    }
    if found.len() < 2 {
        let found = found.len();
        anyhow::bail!("{}: expected files of 2 programs or more, found {found}", folder.display());
    }
    Ok(found)
}

/// At least two demand vectors.
fn phases(path: &Path) -> anyhow::Result<Vec<Phase>> {
    let phases = demand::phases(path).map_err(anyhow::Error::msg)?;
    if phases.len() < 2 {
        let found = phases.len();
        anyhow::bail!("{}: expected at least 2 phases, found {found}", path.display());
    }
    Ok(phases)
}

/// Doubles the length until the figures of `os` settle; shows every step.
fn find_length(runner: &Runner<'_>, study: Study<'_>) -> anyhow::Result<String> {
    let start = length::start_of(study.machine);
    let mut definition = length::of_os(study.definition);
    definition.length = FIRST;
    let mut steps: Vec<LengthFigures> = Vec::new();
    loop {
        let study = Study { definition: &definition, ..study };
        let what = format!("{} s each", definition.length.as_secs_f64());
        let work = StudyCells::new(study)?;
        let done = runner.all(&what, work.count(), |piece| Ok(work.piece(piece)?))?;
        let figures = LengthFigures::of(&work, &done);
        let settled = length::settled(steps.last(), &figures, start);
        steps.push(figures);
        if settled || definition.length >= LAST {
            return Ok(length::text(&study, &steps));
        }
        definition.length = Nanos(definition.length.0 * 2);
    }
}
