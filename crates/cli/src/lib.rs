//! `colocate`: watches programs, decides which threads share a core, and makes it so.
//!
//! A library, so that a program with policies of its own is colocate with a few rows more: [`main_with`].

mod args;
mod attach;
mod bench;
mod calibrate;
mod children;
mod columns;
mod compare;
mod compile;
mod date;
mod doctor;
mod exit;
mod generate;
mod input;
mod launch;
mod map;
mod moving;
mod output;
mod outputs;
mod pages;
mod plan;
mod policies;
mod profile;
mod replay;
mod report;
mod restore;
mod run;
mod schedule;
mod simulate;
mod study;
mod threads;
mod timeline;
mod top;
mod topo;
mod trace;
mod train;
mod workers;

use clap::{Parser, Subcommand};
use colocate_observe::privilege;
use colocate_policy::table::{self, Row};
use std::process::ExitCode;

/// Decides which threads share a core, a cache and a memory node, and makes it so.
#[derive(Parser)]
// Not the name that we were called by, which our caller chooses.
#[command(bin_name = "colocate", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Topo(topo::Args),
    Profile(profile::Args),
    Trace(trace::Args),
    Doctor(doctor::Args),
    Plan(plan::Args),
    Run(run::Args),
    Attach(attach::Args),
    Schedule(schedule::Args),
    Top(top::Args),
    Restore(restore::Args),
    Pages(pages::Args),
    Move(moving::Args),
    Bench(bench::Args),
    Calibrate(calibrate::Args),
    Compare(compare::Args),
    Simulate(simulate::Args),
    Replay(replay::Args),
    Map(map::Args),
    Cc(compile::CArgs),
    #[command(name = "c++")]
    Cxx(compile::CxxArgs),
    Fc(compile::FortranArgs),
    Study(study::Args),
    Train(train::Args),
    AdviseThreads(threads::Args),
    #[command(hide = true)]
    Generate(generate::Args),
}

/// Runs the command line of this process, with the policies `more` beside colocate's own.
///
/// Whatever the program's file gives, capabilities or set-user-ID, is given up first, but for watching.
#[must_use]
pub fn main_with(more: &'static [&'static Row]) -> ExitCode {
    // Before anything is read that a caller could have prepared.
    if let Err(why) = privilege::give_up() {
        return exit::code_of(Err(why.into()));
    }
    table::add(more);
    let command = match exit::parsed::<Cli>() {
        Ok(cli) => cli.command,
        Err(code) => return code,
    };
    let done = match command {
        Command::Topo(args) => topo::main(&args),
        Command::Profile(args) => profile::main(&args),
        Command::Trace(args) => trace::main(&args),
        Command::Doctor(args) => doctor::main(&args),
        Command::Plan(args) => plan::main(&args),
        Command::Run(args) => run::main(&args),
        Command::Attach(args) => attach::main(&args),
        Command::Schedule(args) => schedule::main(&args),
        Command::Top(args) => top::main(&args),
        Command::Restore(args) => restore::main(&args),
        Command::Pages(args) => pages::main(&args),
        Command::Move(args) => moving::main(&args),
        Command::Bench(args) => bench::main(&args),
        Command::Calibrate(args) => calibrate::main(&args),
        Command::Compare(args) => compare::main(&args),
        Command::Simulate(args) => simulate::main(&args),
        Command::Replay(args) => replay::main(&args),
        Command::Map(args) => map::main(&args),
        Command::Cc(args) => compile::c(&args),
        Command::Cxx(args) => compile::cxx(&args),
        Command::Fc(args) => compile::fortran(&args),
        Command::Study(args) => study::main(&args),
        Command::Train(args) => train::main(&args),
        Command::AdviseThreads(args) => threads::main(&args),
        Command::Generate(args) => generate::main::<Cli>(&args),
    };
    exit::code_of(done)
}
