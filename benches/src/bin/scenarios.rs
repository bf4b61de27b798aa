//! Many scenarios in one `colocate simulate`: time and memory.
//!
//! `cargo run --release -p colocate-benches --bin scenarios -- BINARY [COUNT]` makes COUNT scenarios [default:
//! 1000] of an example, each with a seed of its own, simulates them with eight sets of assumptions and two
//! seeds, then once more with `--resume`.

#![allow(clippy::print_stdout)] // what it is for

use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The example that all of them are made of: 32 threads, five jobs, 64 PUs.
const EXAMPLE: &str = include_str!("../../../examples/streams-beside-walks.toml");

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let binary = args.next().context("expected the path of colocate")?;
    let count: u32 = args.next().map_or(Ok(1_000), |count| count.parse())?;
    let folder = std::env::temp_dir().join(format!("scenarios-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let done = measure(Path::new(&binary), &folder, count);
    std::fs::remove_dir_all(&folder)?;
    done
}

fn measure(binary: &Path, folder: &Path, count: u32) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for seed in 1..=count {
        let file = folder.join(format!("scenario-{seed}.toml"));
        let text = EXAMPLE.replace("version = 1\n", &format!("version = 1\nseed = {seed}\n"));
        std::fs::write(&file, text)?;
        files.push(file);
    }
    let (anew, memory) = run(binary, folder, &files, false)?;
    println!(
        "{count} scenarios: {:.1} s, {:.2} ms each, most memory {memory} KiB",
        anew.as_secs_f64(),
        anew.as_secs_f64() * 1e3 / f64::from(count)
    );
    let (again, _) = run(binary, folder, &files, true)?;
    println!("all of them left out with --resume: {:.1} s", again.as_secs_f64());
    Ok(())
}

/// How long it took, and the most memory it had, in KiB.
fn run(
    binary: &Path,
    folder: &Path,
    files: &[PathBuf],
    resume: bool,
) -> anyhow::Result<(Duration, u64)> {
    let begin = Instant::now();
    let mut command = Command::new(binary);
    command.arg("simulate").args(files).args(["--draws", "8", "--seeds", "2", "--quiet", "-o"]);
    command.arg(folder.join("kept")).args(resume.then_some("--resume")).stdout(Stdio::null());
    let mut child = command.spawn().with_context(|| binary.display().to_string())?;
    let mut most = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        most = peak(child.id()).unwrap_or(0).max(most);
        std::thread::sleep(Duration::from_millis(20));
    };
    anyhow::ensure!(status.success(), "{} ended with {status}", binary.display());
    Ok((begin.elapsed(), most))
}

/// `VmHWM` of a process, in KiB.
fn peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
