//! Programs compiled by `colocate cc`, on several nodes: pages end on the node of their use, and
//! only moves that pay are made.
//!
//! Times mean nothing in a guest, so costs are given, and the time for moves is not limited.

use crate::tasks::LiveTask;
use anyhow::{Context as _, anyhow, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Setting of transparent huge pages.
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Setting of the kernel's NUMA balancing.
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// Invented costs, with caches too small for any matrix.
const COSTS: &str =
    "page_move_ns 2000\nremote_line_ps 4000\ncache_bytes 16384\nmoving_percent 1000\n";

/// Result of a program's run.
struct SpmRun {
    output: String,
    /// Pages on the node of their use at the end.
    there: u64,
    /// All pages of the program's data.
    pages: u64,
    /// Moves of pages by the runtime.
    moved: u64,
}

/// Command of a program whose runtime pins threads and prints statistics.
fn command(program: &str, args: &[&str]) -> anyhow::Result<Command> {
    without_balancing()?;
    let costs = "/tmp/costs";
    fs::write(costs, COSTS)?;
    let mut command = Command::new(program);
    command.args(args).env("SPM_COSTS", costs).env("SPM_STATS", "1").env("SPM_LOCK", "1");
    // Waiting OpenMP threads sleep, and so use no PU.
    command.env("OMP_WAIT_POLICY", "passive");
    Ok(command)
}

/// Runs a program and parses its output and the runtime's statistics.
fn run(program: &str, args: &[&str]) -> anyhow::Result<SpmRun> {
    let ran = command(program, args)?.output()?;
    ensure!(ran.status.success(), "{program}: {}", ran.status);
    let (output, stats) = texts(ran)?;
    print!("{output}{stats}");
    let (there, pages) = placed(&output)?;
    // A line of statistics ends in "; N pages moved in ...", or has no semicolon without moves.
    let moved = stats.lines().filter_map(|line| {
        let (_, after) = line.split_once("; ")?;
        after.split(' ').next()?.parse::<u64>().ok()
    });
    Ok(SpmRun { there, pages, moved: moved.sum(), output })
}

/// Standard output and standard error of a program.
fn texts(ran: Output) -> anyhow::Result<(String, String)> {
    Ok((String::from_utf8(ran.stdout)?, String::from_utf8(ran.stderr)?))
}

/// Pages on the node of their use, and all pages, from a program's output.
fn placed(output: &str) -> anyhow::Result<(u64, u64)> {
    let line = output.lines().find(|line| line.starts_with("pages ")).context("no pages")?;
    let words: Vec<&str> = line.split(' ').collect();
    Ok((words[1].parse()?, words[3].parse()?))
}

/// Disables the kernel's NUMA balancing, which would move pages too.
fn without_balancing() -> anyhow::Result<()> {
    fs::write(BALANCING, "0").context(BALANCING)
}

/// Calls `what` with another setting of transparent huge pages.
fn with_huge_pages(mode: &str, what: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let before = fs::read_to_string(HUGE)?;
    fs::write(HUGE, mode)?;
    let done = what();
    // The file lists all settings, with the current setting in brackets.
    let word = before.split(['[', ']']).nth(1).unwrap_or("madvise");
    fs::write(HUGE, word)?;
    done
}

/// Checks that at least 99 % of the pages are on the node of the thread that uses them.
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

/// Pages of matrices that are used repeatedly are placed.
pub(super) fn places_matrices() -> anyhow::Result<()> {
    with_huge_pages("never", || {
        is_placed("spm-lu", &["256", "32", "16"])?;
        is_placed("spm-cholesky", &["256", "32", "16"])?;
        is_placed("spm-product", &["256", "32", "16"])
    })
}

/// Pages of matrices that are used once do not move.
pub(super) fn leaves_what_is_used_once() -> anyhow::Result<()> {
    let ran = run("spm-add", &["256", "32", "16"])?;
    ensure!(ran.moved == 0, "expected no page moved, found {}", ran.moved);
    Ok(())
}

/// Pages of a text with one part per thread are placed.
pub(super) fn places_parts() -> anyhow::Result<()> {
    with_huge_pages("never", || is_placed("spm-search", &["32", "16", "16"]))
}

/// Huge pages are placed and stay whole.
pub(super) fn places_huge_pages() -> anyhow::Result<()> {
    let before = counted("thp_split_page")?;
    with_huge_pages("always", || {
        is_placed("spm-search", &["64", "16", "16"])?;
        is_placed("spm-lu", &["512", "16", "16"])
    })?;
    let pages = counted("thp_split_page")? - before;
    ensure!(pages == 0, "expected no huge page split, found {pages}");
    Ok(())
}

/// With OpenMP, all threads use the same matrices, and no page moves to and fro.
pub(super) fn places_teams() -> anyhow::Result<()> {
    with_huge_pages("never", || {
        for (program, args, pages) in [
            ("spm-omp-product", ["512", "1", "16"], 3 * 512),
            ("spm-omp-lu", ["512", "1", "16"], 3 * 512),
            ("spm-omp-search", ["32", "16", "16"], 8192),
        ] {
            let ran = run(program, &args)?;
            println!("{program}: {} of {} pages placed, {} moves", ran.there, ran.pages, ran.moved);
            ensure!(ran.moved > 0, "{program}: expected pages moved, found none");
            ensure!(
                ran.moved <= 2 * pages,
                "{program}: expected each of {pages} pages moved twice at most, found {} moves",
                ran.moved
            );
        }
        Ok(())
    })
}

/// Compares page moves of the runtime, of the kernel's NUMA balancing, and of the program itself at
/// the next touch or eagerly. Times are printed but not checked.
pub(super) fn beside_the_kernels_balancing() -> anyhow::Result<()> {
    with_huge_pages("never", || {
        println!(
            "| program | by | time (s) | placed after (s) | pages moved | misplaced at the end |"
        );
        for (program, args) in [("spm-lu", ["256", "32", "16"]), ("spm-search", ["32", "64", "16"])]
        {
            for (by, spm, balancing, last) in [
                ("SPM and lock", "on", "0", None),
                ("balancing", "off", "1", None),
                ("next touch", "off", "0", Some("next-touch")),
                ("the program, eagerly", "off", "0", Some("eager")),
            ] {
                let mut command = command(program, &args)?;
                command.args(last);
                fs::write(BALANCING, balancing)?;
                let begin = Instant::now();
                let ran = moving(command.env("SPM", spm));
                let took = begin.elapsed().as_secs_f64();
                fs::write(BALANCING, "0")?;
                let (ran, moves) = ran?;
                ensure!(ran.status.success(), "{program}: {}", ran.status);
                let (there, pages) = placed(&String::from_utf8(ran.stdout)?)?;
                let misplaced = pages - there;
                let moved = moves.last().map_or(0, |last| last.1);
                let most = moves.iter().find(|(_, so_far)| 100 * so_far >= 99 * moved);
                let after = most.map_or(0.0, |(at, _)| at.as_secs_f64());
                println!(
                    "| {program} | {by} | {took:.1} | {after:.1} | {moved} | {misplaced} of {pages} |"
                );
                ensure!(spm == "off" || 100 * misplaced <= pages, "expected 1 % misplaced at most");
                ensure!(last.is_none() || moved > pages / 2, "expected most pages moved by {by}");
            }
        }
        Ok(())
    })
}

/// Runs a program, and samples the number of pages moved by the kernel since the program's start.
fn moving(command: &mut Command) -> anyhow::Result<(Output, Vec<(Duration, u64)>)> {
    let before = counted("pgmigrate_success")?;
    let begin = Instant::now();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let ran = thread::spawn(|| child.wait_with_output());
    let mut moves = Vec::new();
    loop {
        // Read before the count, so that the last sample has all moves.
        let has_ended = ran.is_finished();
        moves.push((begin.elapsed(), counted("pgmigrate_success")? - before));
        if has_ended {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let ran = ran.join().map_err(|_| anyhow!("cannot wait for the program"))?;
    Ok((ran?, moves))
}

/// Prints the rate of the runtime's moves relative to bare move_pages(2).
pub(super) fn moves_as_fast() -> anyhow::Result<()> {
    for mode in ["never", "always"] {
        with_huge_pages(mode, || {
            let ran = command("spm-rate", &["32", "0", "4"])?
                .env("SPM_LOCK", "0")
                .env("SPM_STATS", "0")
                .output()?;
            let status = ran.status;
            let (output, errors) = texts(ran)?;
            print!("huge pages {mode}: {output}{errors}");
            ensure!(status.success() && errors.is_empty(), "{status}: {errors}");
            Ok(())
        })?;
    }
    Ok(())
}

/// PUs of each node, as a list of the kernel, and their number.
fn nodes() -> anyhow::Result<Vec<(String, usize)>> {
    let mut nodes = Vec::new();
    while let Ok(list) =
        fs::read_to_string(format!("/sys/devices/system/node/node{}/cpulist", nodes.len()))
    {
        let list = list.trim();
        let (first, last) = list.split_once('-').unwrap_or((list, list));
        nodes.push((list.to_owned(), last.parse::<usize>()? - first.parse::<usize>()? + 1));
    }
    Ok(nodes)
}

/// Observed life of a thread.
struct Life {
    first_seen: Instant,
    last_seen: Instant,
    /// Last allowed PUs, as a list of the kernel.
    pus: String,
}

/// Runs a program and samples its threads every 20 ms. `check` gets the allowed PUs of each thread
/// of a sample.
fn watched(
    mut command: Command,
    check: impl Fn(&[&str]) -> anyhow::Result<()>,
) -> anyhow::Result<BTreeMap<i32, Life>> {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let pid = child.id().cast_signed();
    let mut lives: BTreeMap<i32, Life> = BTreeMap::new();
    while child.try_wait()?.is_none() {
        let now = Instant::now();
        for tid in tids(pid).filter(|tid| *tid != pid) {
            let Some(task) = LiveTask::read(pid, tid) else { continue };
            let life = Life { first_seen: now, last_seen: now, pus: String::new() };
            let life = lives.entry(tid).or_insert(life);
            life.last_seen = now;
            life.pus = task.bonds.cpus;
        }
        // An ended thread was last seen in an earlier sample.
        let alive = lives.values().filter(|life| life.last_seen == now);
        check(&alive.map(|life| life.pus.as_str()).collect::<Vec<_>>())?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(lives)
}

/// Thread IDs of a process.
fn tids(pid: i32) -> impl Iterator<Item = i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok())
}

/// Threads with equal work are all pinned at the end, and no node has more threads than PUs.
pub(super) fn binds_no_more_than_pus() -> anyhow::Result<()> {
    let nodes = nodes()?;
    let args = ["32", "64", "16"];
    let mut ratios = Vec::new();
    for lock in ["0", "1"] {
        let mut command = command("spm-search", &args)?;
        command.env("SPM_LOCK", lock);
        let lives = watched(command, |lists| {
            for (list, pus) in &nodes {
                let bound = lists.iter().filter(|found| *found == list).count();
                ensure!(bound <= *pus, "expected at most {pus} threads on {list}, found {bound}");
            }
            Ok(())
        })?;
        let bound = lives.values().filter(|life| nodes.iter().any(|(list, _)| *list == life.pus));
        let expected = if lock == "1" { 16 } else { 0 };
        let bound = bound.count();
        ensure!(bound == expected, "SPM_LOCK={lock}: expected {expected} bound, found {bound}");
        let mut times: Vec<_> =
            lives.values().map(|life| life.last_seen - life.first_seen).collect();
        times.sort_unstable();
        let longest = times[times.len() - 1];
        let median = times[times.len() / 2];
        ratios.push(longest.as_secs_f64() / median.as_secs_f64());
    }
    println!("longest thread over median: {:.2}, bound {:.2}", ratios[0], ratios[1]);
    Ok(())
}

/// Programs that misuse memory, such as wrong pointers, freed memory, forks and signals, have
/// unchanged results.
pub(super) fn changes_no_result() -> anyhow::Result<()> {
    const PARTS: [&str; 9] = [
        "pointers",
        "freed",
        "mappings",
        "errnos",
        "forks",
        "signals",
        "threads",
        "libraries",
        "filters",
    ];
    for part in PARTS {
        let before = counted("pgmigrate_success")?;
        // With huge pages enabled, Linux before 6.7 moves no page of a small mapping.
        fs::write(HUGE, "never")?;
        let ran = command("spm-hostile", &[part, "/usr/bin/spm-hostile-library"])?.output()?;
        let status = ran.status;
        let (output, errors) = texts(ran)?;
        let is_right = status.success() && output == format!("{part}\n");
        ensure!(is_right, "{part}: {status}: {output}{errors}");
        let moved = counted("pgmigrate_success")? - before;
        println!("{part}: {moved} pages moved");
        // Pages shared with a child do not move.
        let is_on = ["threads", "pointers", "forks"].contains(&part) || moved > 0;
        ensure!(is_on, "{part}: expected pages moved, found none");
        // The library is unloaded before the program's end, and must have reported by then.
        let has_reported = part != "libraries" || errors.contains(" add: 1 calls");
        ensure!(has_reported, "expected the library's call, found {errors}");
    }
    Ok(())
}

/// A counter of `/proc/vmstat`, since boot.
fn counted(name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.with_context(|| format!("no {name}"))?.parse()?)
}
