//! `colocate`: watches programs, decides which threads share a core, and places them.
//!
//! A library: a program with its own policies is colocate with a few more rows ([`main_with`]). The
//! laboratory, `colocate-study`, reads arguments, starts programs and writes results in the same
//! way.

#![allow(clippy::missing_errors_doc)] // an error is a line for the user: found, expected, what to do

pub mod args;
mod attach;
mod calibrate;
pub mod children;
mod columns;
mod compare;
mod compile;
pub mod date;
pub mod demand;
mod doctor;
mod examples;
pub mod exit;
#[cfg(feature = "schema")]
pub mod formats;
pub mod generate;
pub mod help;
pub mod idle;
pub mod input;
pub mod launch;
pub mod measure;
pub mod output;
pub mod outputs;
mod pages;
mod plan;
mod policies;
mod profile;
mod report;
mod restore;
pub mod run;
pub mod schedule;
pub mod stop;
mod threads;
mod timeline;
mod top;
mod topo;

use clap::{Parser, Subcommand};
use colocate_policy::table::PolicyRow;
use examples::EXAMPLES;
use std::process::ExitCode;

/// Last lines of the help.
const START: &str = "Begin with `colocate topo` and `colocate doctor`: they change nothing.
`colocate help COMMAND` explains a command.";

/// Decides which threads share a core, a cache and a memory node, and makes it so.
#[derive(Parser)]
// Not the name of the executable, which the caller chooses.
#[command(bin_name = "colocate", version, about, max_term_width = 100, help_template = help::grouped::<ColocateCommand>(&GROUPS), after_help = START)]
struct Cli {
    #[command(subcommand)]
    command: ColocateCommand,
}

/// Commands by purpose, as listed in help.
const GROUPS: [help::Section; 4] = [
    ("Look", &["topo", "doctor", "top", "profile", "pages"]),
    ("Place", &["run", "attach", "schedule", "plan", "compare"]),
    ("Tune", &["calibrate", "advise-threads", "cc", "c++", "fc"]),
    ("Undo", &["restore"]),
];

#[derive(Subcommand)]
enum ColocateCommand {
    Topo(topo::Args),
    Doctor(doctor::Args),
    Top(top::Args),
    Profile(profile::Args),
    Pages(pages::Args),
    Run(run::Args),
    Attach(attach::Args),
    Schedule(schedule::Args),
    Plan(plan::Args),
    Compare(compare::Args),
    Calibrate(calibrate::Args),
    AdviseThreads(threads::Args),
    /// Compiles C; the program moves its pages to its threads
    ///
    /// Runs clang with its arguments as they are, the compiler pass, and the runtime. Programs get calls before loops, with what these
    /// loops access; on machines with several NUMA nodes the runtime moves pages to the node of the thread that is about to use them, if
    /// that pays (docs/guide/compile.md). -Rpass=spm says where calls are, -Rpass-missed=spm why not. Exit status: clang's.
    Cc(compile::Args),
    /// Compiles C++; the program moves its pages to its threads
    ///
    /// As colocate cc.
    #[command(name = "c++", mut_arg("args", |arg| arg.help("What clang++ gets")))]
    Cxx(compile::Args),
    /// Compiles Fortran; the program moves its pages to its threads
    ///
    /// As colocate cc.
    #[command(mut_arg("args", |arg| arg.help("What flang gets")))]
    Fc(compile::Args),
    Restore(restore::Args),
    #[command(hide = true)]
    Generate(generate::Args),
}

/// Commands and options of earlier versions, with their present names.
const MOVED: [(&str, &str); 11] = [
    ("colocate move", "colocate pages move"),
    ("colocate simulate", "colocate-study simulate"),
    ("colocate study", "colocate-study study"),
    ("colocate train", "colocate-study train"),
    ("colocate trace", "colocate-study trace"),
    ("colocate replay", "colocate-study replay"),
    ("colocate map", "colocate-study map"),
    ("colocate bench cores", "colocate calibrate --only speeds"),
    ("colocate bench smt --find-siblings", "colocate calibrate --only siblings"),
    ("colocate bench", "colocate-study bench"),
    ("--core-speeds", "colocate calibrate --only speeds"),
];

/// Checks a command of colocate, its words and further ones, without running it.
fn check_command(words: &[String], more: &[&str]) -> anyhow::Result<()> {
    let words = words.iter().map(String::as_str).chain(more.iter().copied());
    let line = std::iter::once("colocate").chain(words);
    Cli::try_parse_from(line).map(|_| ()).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        exit::usage(first.trim_start_matches("error: ").to_owned())
    })
}

/// Runs the command line of this process, with the policies `more` beside colocate's own.
///
/// First drops all privileges of the executable file, capabilities or set-user-ID, except those for
/// watching.
///
/// ```no_run
/// use colocate_policy::plan::{Decision, Place, PlaceReason, Plan};
/// use colocate_policy::table::{Cadence, PolicyRow};
/// use colocate_policy::{Evidence, Policy};
/// struct LastPu;
/// impl Policy for LastPu {
///     fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
///         let empty = evidence.empty_plan();
///         let place = Place::from(empty.pus.last().copied());
///         let why = PlaceReason::NextInOrder { order: "the last usable PU".into() };
///         let decisions = evidence.tasks().into_iter().map(|task| {
///             Decision { task: task.id, name: task.name.into(), place, why: why.clone() }
///         });
///         Plan { decisions: decisions.collect(), ..empty }
///     }
/// }
/// static LAST_PU: PolicyRow = PolicyRow {
///     name: "last-pu",
///     summary: "puts every task on the last usable PU",
///     cadence: Cadence::Either,
///     make: |_, _| Box::new(LastPu),
///     ..PolicyRow::ONCE
/// };
/// static ROWS: [&PolicyRow; 1] = [&LAST_PU];
/// fn main() -> std::process::ExitCode {
///     colocate_cli::main_with(&ROWS)
/// }
/// ```
#[must_use]
pub fn main_with(more: &'static [&'static PolicyRow]) -> ExitCode {
    let command = match exit::started::<Cli>(more, &MOVED) {
        Ok(cli) => cli.command,
        Err(code) => return code,
    };
    let done = match command {
        ColocateCommand::Topo(args) => topo::main(&args),
        ColocateCommand::Profile(args) => profile::main(&args),
        ColocateCommand::Doctor(args) => doctor::main(&args),
        ColocateCommand::Plan(args) => plan::main(&args),
        ColocateCommand::Run(args) => run::main(&args),
        ColocateCommand::Attach(args) => attach::main(&args),
        ColocateCommand::Schedule(args) => schedule::main(&args),
        ColocateCommand::Top(args) => top::main(&args),
        ColocateCommand::Restore(args) => restore::main(&args),
        ColocateCommand::Pages(args) => pages::main(&args),
        ColocateCommand::Calibrate(args) => calibrate::main(&args),
        ColocateCommand::Compare(args) => compare::main(&args),
        ColocateCommand::Cc(args) => compile::main(&["clang"], &args),
        ColocateCommand::Cxx(args) => compile::main(&["clang++"], &args),
        // Before LLVM 20 the compiler is called flang-new.
        ColocateCommand::Fc(args) => compile::main(&["flang", "flang-new"], &args),
        ColocateCommand::AdviseThreads(args) => threads::main(&args),
        ColocateCommand::Generate(args) => generate::main::<Cli>(&args, EXAMPLES),
    };
    exit::code_of(done)
}
