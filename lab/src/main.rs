//! `cargo lab`: boots real kernels with any topology, under QEMU, and runs programs there.
//!
//! What a guest shows is Linux's behaviour. Times in a guest say nothing about any real machine.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod boot;
mod cache;
mod guest;
mod initramfs;
mod shape;
mod suite;
mod task;

use clap::Parser;
use guest::Guest;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use suite::Size;
use task::Task;

/// Boots real kernels with any topology and runs programs there
#[derive(Parser)]
#[command(name = "cargo lab", bin_name = "cargo lab")]
enum Args {
    /// Boots a machine and runs one command there
    Run(Run),
    /// Runs what is proved in guests
    Test {
        /// How much of it: quick takes minutes, full half an hour, soak hours
        #[arg(default_value = "quick")]
        size: Size,
    },
    /// Runs one boot of the tests again, or some of its cases
    Case {
        /// The boot, as `cargo lab list` names it
        boot: String,
        /// Cases to run there; without any, all of them
        cases: Vec<String>,
    },
    /// Lists the boots of the tests with their cases
    List,
}

/// Boots a machine and runs one command there
#[derive(clap::Args)]
struct Run {
    /// Machine whose topology to boot: what `colocate topo --machine` takes
    machine: String,
    /// Kernel
    #[arg(long, default_value = "x86-6.12")]
    guest: Guest,
    /// Count the guest's time by its instructions; aarch64 then has counters of instructions
    #[arg(long)]
    icount: bool,
    /// Programs of this machine to take along, by name or path; the command's own comes by itself
    #[arg(long, value_name = "PROGRAM")]
    with: Vec<String>,
    /// Seconds after which the guest is killed
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// Command to run, as root
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Args::parse() {
        Args::Run(args) => run(args),
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
            ExitCode::from(125)
        }
    }
}

fn run(args: Run) -> anyhow::Result<i32> {
    let task = Task {
        machine: args.machine,
        guest: args.guest,
        icount: args.icount,
        programs: args.with,
        command: args.command,
        limit: Duration::from_secs(args.limit),
        name: "run".into(),
    };
    let mut out = std::io::stdout();
    task.run(|line| {
        // A reader that has gone away is no reason to leave the guest half way.
        let _ = out.write_all(line).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    })
}
