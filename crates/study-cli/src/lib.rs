//! `colocate-study`: the laboratory. Simulated programs on machines that are not here, published studies, training of
//! coefficients, traces, and micro-benchmarks.
//!
//! It runs and measures programs as `colocate` does, with that program's library; `colocate` links nothing of this one.

mod bench;
mod examples;
mod map;
mod replay;
mod simulate;
mod study;
mod trace;
mod train;
mod workers;

#[cfg(feature = "schema")]
pub use bench::Bandwidth;

use clap::{Parser, Subcommand};
use colocate_cli::{exit, generate, output};
use colocate_policy::table::PolicyRow;
use examples::EXAMPLES;
use std::process::ExitCode;

/// The laboratory of colocate: simulates, makes published studies again, trains, and reads traces
#[derive(Parser)]
#[command(
    bin_name = "colocate-study",
    name = "colocate-study",
    version,
    about,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: StudyCommand,
}

#[derive(Subcommand)]
enum StudyCommand {
    Simulate(simulate::Args),
    Study(study::Args),
    Train(train::Args),
    Trace(trace::Args),
    Replay(replay::Args),
    Map(map::Args),
    Bench(bench::Args),
    #[command(hide = true)]
    Generate(generate::Args),
}

/// Commands and options of earlier versions, with their present names.
const MOVED: [(&str, &str); 15] = [
    ("colocate-study bench cores", "colocate calibrate --only speeds"),
    ("--find-siblings", "colocate calibrate --only siblings"),
    ("colocate-study topo", "colocate topo"),
    ("colocate-study doctor", "colocate doctor"),
    ("colocate-study top", "colocate top"),
    ("colocate-study profile", "colocate profile"),
    ("colocate-study pages", "colocate pages"),
    ("colocate-study run", "colocate run"),
    ("colocate-study attach", "colocate attach"),
    ("colocate-study schedule", "colocate schedule"),
    ("colocate-study plan", "colocate plan"),
    ("colocate-study compare", "colocate compare"),
    ("colocate-study calibrate", "colocate calibrate"),
    ("colocate-study advise-threads", "colocate advise-threads"),
    ("colocate-study restore", "colocate restore"),
];

/// Runs the command line of this process, with the policies `more` beside colocate's own.
///
/// Capabilities and set-user-ID of the program's file are given up first, except for observation.
#[must_use]
pub fn main_with(more: &'static [&'static PolicyRow]) -> ExitCode {
    output::set_name("colocate-study");
    let command = match exit::started::<Cli>(more, &MOVED) {
        Ok(cli) => cli.command,
        Err(code) => return code,
    };
    let done = match command {
        StudyCommand::Simulate(args) => simulate::main(&args),
        StudyCommand::Study(args) => study::main(&args),
        StudyCommand::Train(args) => train::main(&args),
        StudyCommand::Trace(args) => trace::main(&args),
        StudyCommand::Replay(args) => replay::main(&args),
        StudyCommand::Map(args) => map::main(&args),
        StudyCommand::Bench(args) => bench::main(&args),
        StudyCommand::Generate(args) => generate::main::<Cli>(&args, EXAMPLES),
    };
    exit::code_of(done)
}
