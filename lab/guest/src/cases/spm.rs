//! Programs that `colocate cc` has compiled, where there are nodes: pages end where they are used, and only those that pay move.
//! A guest's times say nothing, so costs are given, and as much time for moving as it takes.

use anyhow::{Context as _, ensure};
use std::fs;
use std::process::Command;

/// Where the kernel may use huge pages.
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// What moving costs, as on no machine: caches so small that no matrix fits.
const COSTS: &str =
    "page_move_ns 2000\nremote_line_ps 4000\ncache_bytes 16384\nmoving_percent 1000\n";

/// What a program said, and how many of its pages were moved.
struct Ran {
    output: String,
    there: u64,
    pages: u64,
    moved: u64,
}

/// Runs a program with 16 threads.
fn run(program: &str, args: &[&str]) -> anyhow::Result<Ran> {
    without_balancing()?;
    let costs = "/tmp/costs";
    fs::write(costs, COSTS)?;
    let mut command = Command::new(program);
    let ran = command
        .args(args)
        .env("SPM_COSTS", costs)
        .env("SPM_STATS", "1")
        .env("SPM_LOCK", "1")
        .output()?;
    ensure!(ran.status.success(), "{program}: {}", ran.status);
    let (output, stats) = (String::from_utf8(ran.stdout)?, String::from_utf8(ran.stderr)?);
    print!("{output}{stats}");
    let line = output.lines().find(|line| line.starts_with("pages ")).context("no pages")?;
    let words: Vec<&str> = line.split(' ').collect();
    let moved = stats.lines().filter_map(|line| {
        let (_, after) = line.split_once("; ")?;
        after.split(' ').next()?.parse::<u64>().ok()
    });
    let (there, pages, moved) = (words[1].parse()?, words[3].parse()?, moved.sum());
    Ok(Ran { there, pages, moved, output })
}

/// The kernel's own balancing would move pages as well.
fn without_balancing() -> anyhow::Result<()> {
    let path = "/proc/sys/kernel/numa_balancing";
    fs::write(path, "0").context(path)
}

fn with_huge_pages(mode: &str, what: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let before = fs::read_to_string(HUGE)?;
    fs::write(HUGE, mode)?;
    let done = what();
    let word = before.split(['[', ']']).nth(1).unwrap_or("madvise");
    fs::write(HUGE, word)?;
    done
}

/// At least 99 in 100 pages are on the node of the thread that uses them.
fn is_placed(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let ran = run(program, args)?;
    ensure!(ran.moved > 0, "{program} {args:?}: expected pages moved, found none");
    ensure!(
        100 * ran.there >= 99 * ran.pages,
        "{program} {args:?}: expected 99 % of {} pages where they are used, found {}: {}",
        ran.pages,
        ran.there,
        ran.output
    );
    Ok(())
}

/// Of matrices that are used again and again.
pub(super) fn places_matrices() -> anyhow::Result<()> {
    with_huge_pages("never", || {
        is_placed("spm-lu", &["256", "32", "16"])?;
        is_placed("spm-cholesky", &["256", "32", "16"])?;
        is_placed("spm-product", &["256", "32", "16"])
    })
}

/// Of matrices that are used once.
pub(super) fn leaves_what_is_used_once() -> anyhow::Result<()> {
    let ran = run("spm-add", &["256", "32", "16"])?;
    ensure!(ran.moved == 0, "expected no page moved, found {}", ran.moved);
    Ok(())
}

/// Of a text, a part for each thread.
pub(super) fn places_parts() -> anyhow::Result<()> {
    with_huge_pages("never", || is_placed("spm-search", &["32", "16", "16"]))
}

/// Of huge pages, which stay whole.
pub(super) fn places_huge_pages() -> anyhow::Result<()> {
    let split = || -> anyhow::Result<u64> {
        let text = fs::read_to_string("/proc/vmstat")?;
        let line = text.lines().find_map(|line| line.strip_prefix("thp_split_page "));
        Ok(line.context("no thp_split_page")?.parse()?)
    };
    let before = split()?;
    with_huge_pages("always", || {
        is_placed("spm-search", &["64", "16", "16"])?;
        is_placed("spm-lu", &["512", "16", "16"])
    })?;
    let pages = split()? - before;
    ensure!(pages == 0, "expected no huge page split, found {pages}");
    Ok(())
}
