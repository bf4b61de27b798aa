//! Policies that move pages: of a program whose first thread has set up all memory, pages end on the nodes of the threads that use them.

use anyhow::{Context as _, ensure};
use std::fs;
use std::process::Command;

/// Four threads decompose a matrix of 12.5 MiB each.
const PROGRAM: [&str; 4] = ["numa-cholesky", "1280", "4", "4"];

/// How many of its pages, in percent, are where they were used in the end, and how many pages the kernel has moved for that, in
/// percent of them; under a policy, or without colocate.
fn near_and_moved(policy: Option<&str>) -> anyhow::Result<(u64, u64)> {
    // The kernel's own balancing would move pages as well.
    let path = "/proc/sys/kernel/numa_balancing";
    fs::write(path, "0").context(path)?;
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
    let (near, all): (u64, u64) = (words[1].parse()?, words[3].parse()?);
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
    // The kernel's rule waits until a group was used twice from the same node.
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

/// A quarter of all is near, wherever threads are.
pub(super) fn spread_pages() -> anyhow::Result<()> {
    let (near, _) = near_and_moved(Some("interleave"))?;
    ensure!((15..=45).contains(&near), "expected a quarter of the pages near, found {near} %");
    Ok(())
}
