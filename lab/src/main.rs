//! `cargo lab`: boots real kernels with any topology, under QEMU, and runs programs there.
//!
//! What a guest shows is Linux's behaviour. Times in a guest say nothing about any real machine.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod boot;
mod cache;
mod guest;
mod initramfs;
mod shape;

use anyhow::Context as _;
use boot::Boot;
use cache::Cache;
use clap::Parser;
use guest::Guest;
use initramfs::Initramfs;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Boots real kernels with any topology and runs programs there
#[derive(Parser)]
#[command(name = "cargo lab", bin_name = "cargo lab")]
enum Args {
    /// Boots a machine and runs one command there
    Run(Run),
}

/// Boots a machine and runs one command there
#[derive(clap::Args)]
struct Run {
    /// Machine whose topology to boot: what `colocate topo --machine` takes
    machine: String,
    /// Kernel
    #[arg(long, default_value = "x86-6.12")]
    guest: Guest,
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
    let Args::Run(run) = Args::parse();
    match go(&run) {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(255)),
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::from(125)
        }
    }
}

fn go(run: &Run) -> anyhow::Result<i32> {
    let machine = colocate_machine::read::open(&run.machine)?;
    let options = shape::options(&machine, run.guest)
        .with_context(|| format!("{}: QEMU cannot be this machine", run.machine))?;
    let cache = Cache::find()?;
    cache.require(&BTreeSet::from(["qemu", run.guest.set()]))?;
    let (qemu, root) = (cache.root("qemu"), cache.root(run.guest.set()));
    let mark = format!("lab-{:x}", std::process::id());
    let mut initramfs = Initramfs::new(&root, &include_str!("init.sh").replace("@MARK@", &mark))?;
    initramfs.file("lab/command", 0o755, shell_line(&run.command).into());
    for name in run.with.iter().chain(run.command.first()) {
        if let Some(path) = program(name) {
            let name = path
                .file_name()
                .context("a program without a name")?
                .to_string_lossy()
                .into_owned();
            initramfs.program(&name, &path, Path::new("/"))?;
        }
    }
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("initramfs");
    initramfs.write(std::io::BufWriter::new(std::fs::File::create(&archive)?))?;
    let console = std::env::temp_dir().join(format!("colocate-{mark}.console"));
    let boot = Boot {
        qemu: &qemu,
        guest: run.guest,
        root: &root,
        options,
        initramfs: &archive,
        mark: &mark,
        limit: Duration::from_secs(run.limit),
        console: &console,
    };
    let mut out = std::io::stdout();
    let status = boot.run(|line| {
        // A reader that has gone away is no reason to leave the guest half way.
        let _ = out.write_all(line).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    })?;
    // Only a guest that failed is worth a look.
    std::fs::remove_file(&console).with_context(|| console.display().to_string())?;
    Ok(status)
}

/// The program that `name` means: colocate's own beside us, else the first in PATH.
fn program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let ours = std::env::current_exe().ok().and_then(|path| path.parent().map(Path::to_path_buf));
    let path = std::env::var_os("PATH")?;
    ours.into_iter()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn shell_line(words: &[String]) -> String {
    let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ") + "\n"
}
