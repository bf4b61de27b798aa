//! `colocate profile`: instruction mix and demand of each thread of a program.
//!
//! Standard input, output and error belong to the program: colocate writes to standard error and to
//! the file of `--output`.

mod backend;
mod demand;
mod launch;
mod table;

use crate::exit::{self, no_capability};
use crate::{args, input, output};
use anyhow::Context;
use backend::BackendChoice;
use colocate_linux::Pid;
use colocate_machine::Nanos;
use colocate_model::phase::PhaseFile;
use colocate_model::{Phase, Profile};
use colocate_observe::code::in_kinds;
use demand::DemandCore;
use launch::Watched;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measures what each thread of a program executes
///
/// Runs the program unmodified and watches its threads and its children's: the share of branch,
/// floating-point, integer, load and store instructions, CPU time, and more where there are
/// counters. Exit status: the program's.
#[derive(clap::Args)]
pub struct Args {
    /// File for the profile as JSON (docs/schemas/profile.json); without it, a table goes to
    /// standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// File for demand vectors (docs/schemas/demand.json; TOML if it is called .toml). With the backend
    /// emulate one for each thread, with its misses of caches of every size, which takes some ten times
    /// as long; with pmu one for each thread, with what this machine's counters report; with sample, which
    /// needs --demand, one for the program
    #[arg(long, value_name = "FILE", conflicts_with = "show")]
    phase: Option<PathBuf>,

    /// Find out from its machine code what it demands of the cores of a described machine, or of a processor
    /// by LLVM's name; needs llvm-mca, and the backend sample or emulate
    #[arg(long, value_name = "MACHINE", requires = "phase")]
    demand: Option<String>,

    /// Divide the run of the thread that executes most instructions into at most so many phases, and write these to the file
    /// of --phase in place of threads, with their course and with work by kind; needs the backend emulate [range: 1-16]
    #[arg(long, value_name = "N", requires = "phase", value_parser = clap::value_parser!(u8).range(1..=16))]
    phases: Option<u8>,

    /// How to watch: pmu (hardware counters), sample (instruction-pointer samples), emulate (exact
    /// counts under QEMU), or auto: the first of pmu and sample that works here
    #[arg(long, value_enum, value_name = "B", default_value = "auto")]
    backend: BackendChoice,

    /// Samples a second of CPU time, for the backend sample [range: 1-10000]
    #[arg(long, value_name = "HZ", default_value_t = colocate_observe::sample::DEFAULT_RATE_HZ,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,

    /// Watch for so many seconds only; the program runs on [range: 0.01-31536000]
    #[arg(long = "for", value_name = "S", value_parser = |text: &str| args::seconds(text, 0.01..=31_536_000.0))]
    watch_for: Option<Nanos>,

    /// Print the table also when there is an output file
    #[arg(long)]
    table: bool,

    /// No table and no notes on standard error
    #[arg(short, long, conflicts_with = "table")]
    quiet: bool,

    /// Processes to watch that run already, instead of a program to start; ends when they end, after
    /// `--for`, or at Ctrl-C
    #[arg(short, long, value_name = "PID", value_delimiter = ',',
        conflicts_with_all = ["command", "show"])]
    pid: Vec<i32>,

    /// Print a saved profile as a table and watch nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "output"])]
    show: Option<PathBuf>,

    /// The program with its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present_any = ["pid", "show"])]
    command: Vec<OsString>,
}

/// Runs `colocate profile`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.show {
        output::write(None, &table::of(&read(path)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    for path in args.output.iter().chain(&args.phase) {
        // Fails before the program runs if the profile could not be written.
        if path != Path::new("-") {
            colocate_files::try_write(path)?;
        }
    }
    sees_enough(args)?;
    let core = args.demand.as_deref().map(DemandCore::find).transpose()?;
    let (mut watched, status) = if !args.pid.is_empty() {
        let pids: Vec<Pid> = args.pid.iter().copied().map(Pid).collect();
        (launch::attach(args, &pids)?, 0)
    } else if args.backend == BackendChoice::Emulate {
        launch::emulate(args)?
    } else {
        launch::run(args)?
    };
    if let Some(path) = &args.phase {
        let phases = phases(&mut watched, core.as_ref())?;
        let course = std::mem::take(&mut watched.course);
        let file = PhaseFile { course, ..PhaseFile::new(phases) };
        let is_toml = path.extension().is_some_and(|end| end == "toml");
        keep(path, &if is_toml { file.to_toml() } else { file.to_json() })?;
    }
    report(args, &watched.profile)?;
    // A status has eight bits; `env` and `timeout` cut it, too.
    Ok(ExitCode::from(u8::try_from(status & 0xff).unwrap_or(exit::OURS)))
}

/// Checks that the backend provides the inputs of demand vectors.
fn sees_enough(args: &Args) -> anyhow::Result<()> {
    if args.phases.is_some() && args.backend != BackendChoice::Emulate {
        return Err(no_capability("expected --backend emulate with --phases".into()));
    }
    let message = match (&args.phase, &args.demand, args.backend) {
        (None, ..)
        | (_, _, BackendChoice::Emulate)
        | (_, Some(_), BackendChoice::Sample)
        | (_, None, BackendChoice::Pmu) => {
            return Ok(());
        }
        (_, Some(_), _) => {
            "counters do not see machine code; expected --backend emulate or sample with --demand"
        }
        (_, None, _) => {
            "only the backend emulate sees accesses to memory, and only pmu counts their misses; expected \
             --backend emulate or pmu with --phase, or --backend sample with --demand"
        }
    };
    Err(no_capability(message.into()))
}

/// Demand vector of each thread, or of the program. Adds a note to the profile.
fn phases(watched: &mut Watched, core: Option<&DemandCore>) -> anyhow::Result<Vec<Phase>> {
    let Watched { profile, stretches, phases, course } = watched;
    let mut phases = std::mem::take(phases);
    if phases.is_empty() {
        let path = Path::new(&profile.program.path);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        phases.push(Phase { name, ..Phase::default() });
    }
    // Kept, since `fill` replaces work by kind with work by port.
    let counted: Vec<_> = phases.iter().map(|phase| phase.work.clone()).collect();
    if let Some(core) = core {
        profile.notes.push(core.fill(&mut phases, stretches)?);
    }
    if !course.is_empty() {
        // Any core of another kind would refuse demand in terms of this core's ports.
        for ((phase, counted), place) in phases.iter_mut().zip(counted).zip(0..) {
            phase.work = in_kinds(counted, stretches, place);
        }
    }
    Ok(phases)
}

/// Writes the profile and prints it as a table.
fn report(args: &Args, profile: &Profile) -> anyhow::Result<()> {
    if args.table || args.output.is_none() && !args.quiet {
        output::aside(&table::of(profile));
    } else if !args.quiet {
        profile.notes.iter().for_each(|note| output::remark(note));
    }
    args.output.as_ref().map_or(Ok(()), |path| keep(path, &profile.to_json()))
}

fn read(path: &Path) -> anyhow::Result<Profile> {
    let text = input::text(path, input::limit(Profile::MAX_BYTES))?;
    Profile::from_json(&text).with_context(|| path.display().to_string())
}

/// Writes `text` to `path`, else to the folder for temporary files, else to standard output.
fn keep(path: &Path, text: &str) -> anyhow::Result<()> {
    let Err(error) = output::write_private(Some(path), text) else { return Ok(()) };
    let name = format!("colocate-profile-{}.json", std::process::id());
    let instead = std::env::temp_dir().join(name);
    if output::write_private(Some(&instead), text).is_ok() {
        return Err(error.context(format!("the profile is in {} instead", instead.display())));
    }
    output::write(None, text)?;
    Err(error.context("the profile went to standard output instead"))
}
