//! Policies that move pages: the main thread of the program first touches all memory, and pages end
//! on the nodes of the threads that use them.

use anyhow::{Context as _, ensure};
use std::fs;
use std::process::Command;

/// Four threads, each of which decomposes a matrix of 12.5 MiB.
const PROGRAM: [&str; 4] = ["numa-cholesky", "1280", "4", "4"];

/// Percentage of the program's pages on the node of their use at the end, and pages moved by the
/// kernel as a percentage of all pages. `None`: without colocate.
fn near_and_moved(policy: Option<&str>) -> anyhow::Result<(u64, u64)> {
    // The kernel's NUMA balancing would move pages too.
    let path = "/proc/sys/kernel/numa_balancing";
    fs::write(path, "0").context(path)?;
    // Without a policy the program runs alone, for comparison.
    let mut command = match policy {
        None => Command::new(PROGRAM[0]),
        Some(policy) => {
            let mut run = Command::new("colocate");
            run.args(["run", "--no-guard", "--policy", policy, "--", PROGRAM[0]]);
            run
        }
    };
    let before = pages_moved()?;
    let ran = command.args(&PROGRAM[1..]).output()?;
    let moved = pages_moved()? - before;
    ensure!(ran.status.success(), "{policy:?}: {}", String::from_utf8_lossy(&ran.stderr));
    let output = String::from_utf8(ran.stdout)?;
    let line = output.lines().find(|line| line.starts_with("pages ")).context("no pages")?;
    println!("{}: {line}, {moved} moved", policy.unwrap_or("none"));
    let words: Vec<&str> = line.split(' ').collect();
    let near: u64 = words[1].parse()?;
    let all: u64 = words[3].parse()?;
    // Divisors of at least 1, for a program without pages.
    Ok((100 * near / all.max(1), 100 * moved / all.max(1)))
}

fn pages_moved() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("pgmigrate_success "));
    Ok(line.context("no pgmigrate_success")?.parse()?)
}

pub(super) fn bring_pages_near() -> anyhow::Result<()> {
    let (before, _) = near_and_moved(None)?;
    ensure!(before < 40, "expected most pages far without a policy, found {before} % near");
    // autonuma migrates a group of pages only after two uses from the same node, hence its 40 %.
    let policies = [
        ("autonuma", 40),
        ("next-touch", 75),
        ("dpp", 75),
        ("carrefour", 75),
        ("kmaf", 75),
        ("auto", 75),
    ];
    for (policy, least) in policies {
        let (near, moved) = near_and_moved(Some(policy))?;
        ensure!(near >= least, "{policy}: expected {least} % of the pages near, found {near} %");
        ensure!(moved <= 150, "{policy}: expected no page moved to and fro, found {moved} % moved");
    }
    Ok(())
}

/// A quarter of the interleaved pages is near its thread, on a machine of four nodes.
pub(super) fn spread_pages() -> anyhow::Result<()> {
    let (near, _) = near_and_moved(Some("interleave"))?;
    ensure!((15..=45).contains(&near), "expected a quarter of the pages near, found {near} %");
    Ok(())
}
