//! `colocate pages`: placement of a process's memory, and moving it.

mod moving;
mod process;
mod show;

#[cfg(feature = "schema")]
pub use {moving::PageMoveReport as Moved, show::PagesReport as Pages};

use std::process::ExitCode;

/// Shows the NUMA nodes of a process's memory, or moves it
///
/// For each mapping: how much is on which node, how much of it in huge pages, and the memory policy.
/// For each thread: the nodes whose PUs it may use, and the one that it last ran on.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<PagesCommand>,

    /// The process
    #[arg(value_name = "PID", required = true, value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,

    /// Print JSON (docs/schemas/pages.json), with every mapping and thread
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum PagesCommand {
    Move(moving::Args),
}

/// Runs `colocate pages`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    match (&args.command, args.pid) {
        (Some(PagesCommand::Move(args)), _) => moving::main(args),
        (None, pid) => show::main(pid.unwrap_or_default(), args.json),
    }
}
