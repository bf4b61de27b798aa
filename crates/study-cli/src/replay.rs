//! `colocate-study replay`: a recorded program on simulated caches.

use crate::simulate::load;
use crate::trace;
use anyhow::Context;
use clap::builder::{PossibleValuesParser as Names, TypedValueParser};
use clap::value_parser;
use colocate_cli::output;
use colocate_cli::outputs::{self, Form};
use colocate_files::FileMode;
use colocate_machine::Nanos;
use colocate_machine::printable::json;
use colocate_policy::communication::filter::Rules;
use colocate_sim::coherent::traced::RecordedProgram;
use colocate_sim::coherent::{DetectAt, Protocol};
use colocate_study::coherence::{CoherenceSettings, report, text};
use colocate_study::heat;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Simulates a recorded program on the caches of a machine, under several mappings of its threads
///
/// All of it is simulated: each access of the trace passes the caches of the machine, kept coherent, with the detector of Cruz
/// et al. in them (docs/results/communication.md). Prints time, misses and invalidations of random mappings (their mean), of `compact`, of
/// `communication`, which follows what the detector finds, and of `oracle`, which knows it from the beginning.
#[derive(clap::Args)]
pub struct Args {
    /// Trace that `colocate-study trace` has written
    #[arg(value_name = "TRACE", required_unless_present = "command", conflicts_with = "command")]
    trace: Option<PathBuf>,

    /// Machine: a described one by name, or a file that says how fast it is
    #[arg(long, value_name = "SPEC", default_value = "xeon-e5405")]
    machine: String,

    /// Random mappings, whose mean others are compared with
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=1_000))]
    random: u32,

    /// Seed of the random mappings
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Time between two decisions of `communication`, as simulated, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1_000, value_parser = value_parser!(u64).range(1..=60_000_000))]
    every_us: u64,

    /// How caches are kept coherent
    #[arg(long, value_name = "P", default_value = "mesi",
        value_parser = Names::new(["mesi", "moesi"]).map(protocol))]
    protocol: Protocol,

    /// Where communication is detected: in each core's own outermost cache, or in the last one
    #[arg(long, value_name = "WHERE", default_value = "private",
        value_parser = Names::new(["private", "last"]).map(detect))]
    detect: DetectAt,

    /// Let `communication` decide and map as published: a limit of unevenness for counts, and perfect matchings
    #[arg(long)]
    published: bool,

    /// Print the figures as JSON (docs/schemas/replay.json)
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output, repeatable: .txt, .json, or .svg for a heat map of which threads communicate
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,

    /// A program to record and replay, with its arguments, in place of a trace; its trace is in the folder for temporary files until
    /// the end
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn protocol(name: String) -> Protocol {
    if name == "mesi" { Protocol::Mesi } else { Protocol::Moesi }
}

fn detect(name: String) -> DetectAt {
    if name == "private" { DetectAt::PrivateCache } else { DetectAt::LastCache }
}

/// Records a program to a file in this folder.
fn recorded(folder: &Path, command: &[OsString]) -> anyhow::Result<PathBuf> {
    let path = folder.join("trace");
    let status = trace::record(&path, command)?;
    if status != 0 {
        output::remark(&format!("the program ended with status {status}"));
    }
    Ok(path)
}

/// Runs `colocate-study replay`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let outputs = outputs::of(&args.output, args.json, FileMode::ByUmask)?;
    let (machine, performance) = load::machine(&args.machine)?;
    let settings = CoherenceSettings {
        random: args.random,
        seed: args.seed,
        every: Nanos(args.every_us * 1_000),
        protocol: args.protocol,
        detect: args.detect,
        rules: if args.published { Rules::Published } else { Rules::Ours },
    };
    // The folder is removed when `_scratch` is dropped.
    let (_scratch, path) = match &args.trace {
        Some(path) => (None, path.clone()),
        None => {
            let scratch =
                tempfile::tempdir().context("cannot create a folder for temporary files")?;
            let path = recorded(scratch.path(), &args.command)?;
            (Some(scratch), path)
        }
    };
    // Each run takes the file and gives it back to the next.
    let mut file = Some(trace::open(&path)?);
    let found = report(&machine, &performance, &settings, &mut |go| {
        let trace = file.take().ok_or("the trace is still being read")?;
        let mut program = RecordedProgram::new(trace);
        go(&mut program);
        let failed = program.error().map(|why| format!("{}: {why}", path.display()));
        file = Some(program.into_file());
        failed.map_or(Ok(()), Err)
    })
    .map_err(anyhow::Error::msg)?;
    let content = |form| {
        Ok(match form {
            Form::Text => text(&found),
            Form::Json => json(&found),
            Form::Picture => {
                heat::svg(&[("communication by the simulated detector", &found.matrix)])
                    .map_err(anyhow::Error::msg)?
            }
        })
    };
    outputs.iter().try_for_each(|output| output.write(content))?;
    if outputs.is_empty() {
        output::write(None, &content(if args.json { Form::Json } else { Form::Text })?)?;
    }
    Ok(ExitCode::SUCCESS)
}
