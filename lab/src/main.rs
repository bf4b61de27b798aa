//! `cargo lab`: boots real kernels with any topology, under QEMU, and runs programs there.
//!
//! What a guest shows is Linux's behaviour. Times in a guest say nothing about any real machine.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod boot;
mod cache;
mod console;
mod golden;
mod guest;
mod indented;
mod initramfs;
mod output;
mod shape;
mod suite;
mod task;
mod tree;

use clap::Parser;
use guest::Guest;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use suite::SuiteSize;
use task::GuestCommand;

/// Boots real kernels with any topology and runs programs there
#[derive(Parser)]
#[command(name = "cargo lab", bin_name = "cargo lab")]
enum Args {
    /// Boots a machine and runs one command there
    Run(GuestRunArgs),
    /// Boots a machine and connects this terminal with a shell there
    ///
    /// `exit` ends the guest, and so does Ctrl-A X, whatever state it is in.
    Shell(Guested),
    /// Runs what is proved in guests
    Test {
        /// How much of it: quick takes minutes, full half an hour, soak hours
        #[arg(default_value = "quick")]
        size: SuiteSize,
    },
    /// Runs one boot of the tests again, or some of its cases
    Case {
        /// The boot, as `cargo lab list` names it
        boot: String,
        /// Cases to run there, with a seed CASE:SEED; without any, all of them
        cases: Vec<String>,
    },
    /// Lists the boots of the tests with their cases
    List,
}

/// The guest to boot: machine, kernel and programs.
#[derive(clap::Args)]
struct Guested {
    /// Machine whose topology to boot: what `colocate topo --machine` takes
    machine: String,
    /// Kernel
    #[arg(long, default_value = "x86-6.12")]
    guest: Guest,
    /// Count the guest's time by its instructions; aarch64 then has counters of instructions
    #[arg(long)]
    icount: bool,
    /// Programs of this machine to take along, by name or path
    #[arg(long, value_name = "PROGRAM")]
    with: Vec<String>,
}

/// Boots a machine and runs one command there
#[derive(clap::Args)]
struct GuestRunArgs {
    #[command(flatten)]
    guested: Guested,
    /// Seconds after which the guest is killed
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// Command to run, as root; its program comes along by itself
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Args::parse() {
        Args::Run(args) => run(args),
        Args::Shell(guested) => shell(guested),
        Args::Test { size } => suite::test(size).map(|()| 0),
        Args::Case { boot, cases } => suite::case(&boot, &cases).map(|()| 0),
        Args::List => {
            suite::list();
            Ok(0)
        }
    };
    match done {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(255)),
        Err(error) => {
            eprintln!("lab: {error:#}");
            // The same status as colocate's for its own failures.
            ExitCode::from(125)
        }
    }
}

fn task(guested: Guested, command: Vec<String>, limit: u64) -> GuestCommand {
    GuestCommand {
        machine: guested.machine,
        guest: guested.guest,
        icount: guested.icount,
        programs: guested.with,
        command,
        limit: Duration::from_secs(limit),
        name: "run".into(),
    }
}

/// Programs of this repository that every guest has.
const OURS: [&str; 2] = ["colocate", "lab-guest"];

/// Builds [`OURS`] and adds the programs to the task.
///
/// # Errors
/// If the build fails, or if no build is possible for this guest and the task names one of [`OURS`].
fn with_ours(mut task: GuestCommand) -> anyhow::Result<GuestCommand> {
    if suite::build::ours(task.guest.is_arm64(), true)? {
        task.programs.extend(OURS.map(String::from));
        return Ok(task);
    }
    let mut named = task.programs.iter().chain(task.command.first());
    if named.any(|name| OURS.contains(&name.as_str())) {
        anyhow::bail!("nothing can be built for this guest");
    }
    Ok(task)
}

fn shell(guested: Guested) -> anyhow::Result<i32> {
    with_ours(task(guested, Vec::new(), 0))?.shell().map(|()| 0)
}

fn run(args: GuestRunArgs) -> anyhow::Result<i32> {
    let task = with_ours(task(args.guested, args.command, args.limit))?;
    let mut out = std::io::stdout();
    // A command that fails is no failure of the guest: no console is kept.
    task.run(
        |_| false,
        |bytes| {
            // A closed standard output must not end the guest halfway.
            let _ = out.write_all(bytes).and_then(|()| out.flush());
        },
    )
}
