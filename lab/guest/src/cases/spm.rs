//! Programs that `colocate cc` has compiled, where there are nodes: pages end where they are used, and only those that pay move.
//! A guest's times say nothing, so costs are given, and as much time for moving as it takes.

use crate::tasks::Task;
use anyhow::{Context as _, anyhow, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Where the kernel may use huge pages.
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Whether the kernel moves pages by itself.
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
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

/// A program that the runtime is to report on, and that is to bind its threads.
fn command(program: &str, args: &[&str]) -> anyhow::Result<Command> {
    without_balancing()?;
    let costs = "/tmp/costs";
    fs::write(costs, COSTS)?;
    let mut command = Command::new(program);
    command.args(args).env("SPM_COSTS", costs).env("SPM_STATS", "1").env("SPM_LOCK", "1");
    // Threads of OpenMP that wait need no PU.
    command.env("OMP_WAIT_POLICY", "passive");
    Ok(command)
}

/// Runs a program with 16 threads.
fn run(program: &str, args: &[&str]) -> anyhow::Result<Ran> {
    let ran = command(program, args)?.output()?;
    ensure!(ran.status.success(), "{program}: {}", ran.status);
    let (output, stats) = (String::from_utf8(ran.stdout)?, String::from_utf8(ran.stderr)?);
    print!("{output}{stats}");
    let (there, pages) = placed(&output)?;
    let moved = stats.lines().filter_map(|line| {
        let (_, after) = line.split_once("; ")?;
        after.split(' ').next()?.parse::<u64>().ok()
    });
    Ok(Ran { there, pages, moved: moved.sum(), output })
}

/// How many pages a program found where they are used, and of how many.
fn placed(output: &str) -> anyhow::Result<(u64, u64)> {
    let line = output.lines().find(|line| line.starts_with("pages ")).context("no pages")?;
    let words: Vec<&str> = line.split(' ').collect();
    Ok((words[1].parse()?, words[3].parse()?))
}

/// The kernel's own balancing would move pages as well.
fn without_balancing() -> anyhow::Result<()> {
    fs::write(BALANCING, "0").context(BALANCING)
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
    let before = counted("thp_split_page")?;
    with_huge_pages("always", || {
        is_placed("spm-search", &["64", "16", "16"])?;
        is_placed("spm-lu", &["512", "16", "16"])
    })?;
    let pages = counted("thp_split_page")? - before;
    ensure!(pages == 0, "expected no huge page split, found {pages}");
    Ok(())
}

/// With OpenMP, where all threads work on the same matrices: none is moved to and fro.
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

/// What the runtime moves, beside what the kernel's own balancing moves, and the program itself at the next touch or eagerly. A guest's
/// times are printed, and decide nothing.
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
                let (misplaced, moved) = (pages - there, moves.last().map_or(0, |it| it.1));
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

/// Runs a program and follows how many pages the kernel has moved since it began.
fn moving(command: &mut Command) -> anyhow::Result<(Output, Vec<(Duration, u64)>)> {
    let (before, begin) = (counted("pgmigrate_success")?, Instant::now());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let ran = thread::spawn(|| child.wait_with_output());
    let mut moves = Vec::new();
    loop {
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

/// The rate of the runtime's moves over bare ones'.
pub(super) fn moves_as_fast() -> anyhow::Result<()> {
    for mode in ["never", "always"] {
        with_huge_pages(mode, || {
            let ran = command("spm-rate", &["32", "0", "4"])?
                .env("SPM_LOCK", "0")
                .env("SPM_STATS", "0")
                .output()?;
            let (output, errors) = (String::from_utf8(ran.stdout)?, String::from_utf8(ran.stderr)?);
            print!("huge pages {mode}: {output}{errors}");
            ensure!(ran.status.success() && errors.is_empty(), "{}: {errors}", ran.status);
            Ok(())
        })?;
    }
    Ok(())
}

/// The PUs of each node, as the kernel lists them, and how many there are.
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

/// What was seen of a thread while its program ran.
struct Life {
    first_seen: Instant,
    last_seen: Instant,
    /// The last list of PUs that it may run on.
    pus: String,
}

/// Runs a program and looks at its threads all the time; after each look it calls `check` with the lists of PUs.
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
            let Some(task) = Task::read(pid, tid) else { continue };
            let life = Life { first_seen: now, last_seen: now, pus: String::new() };
            let life = lives.entry(tid).or_insert(life);
            (life.last_seen, life.pus) = (now, task.bonds.cpus);
        }
        let alive = lives.values().filter(|life| life.last_seen == now);
        check(&alive.map(|life| life.pus.as_str()).collect::<Vec<_>>())?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(lives)
}

fn tids(pid: i32) -> impl Iterator<Item = i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok())
}

/// A program whose threads all do the same: all are bound in the end, and to no node more than it has PUs.
pub(super) fn binds_no_more_than_pus() -> anyhow::Result<()> {
    let nodes = nodes()?;
    let args = ["32", "64", "16"];
    let mut ratios = Vec::new();
    for lock in ["0", "1"] {
        let mut command = command("spm-search", &args)?;
        command.env("SPM_LOCK", lock);
        let lives = watched(command, |lists| {
            for (list, pus) in &nodes {
                let bound = lists.iter().filter(|it| *it == list).count();
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
        let (longest, median) = (times[times.len() - 1], times[times.len() / 2]);
        ratios.push(longest.as_secs_f64() / median.as_secs_f64());
    }
    println!("longest thread over median: {:.2}, bound {:.2}", ratios[0], ratios[1]);
    Ok(())
}

/// Of programs that do what calls of the runtime do not expect: wrong pointers, freed memory, forks, signals and so on.
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
        // Before Linux 6.7 of small mappings nothing is moved where huge pages may be used.
        fs::write(HUGE, "never")?;
        let ran = command("spm-hostile", &[part, "/usr/bin/spm-hostile-library"])?.output()?;
        let (output, errors) = (String::from_utf8(ran.stdout)?, String::from_utf8(ran.stderr)?);
        let is_right = ran.status.success() && output == format!("{part}\n");
        ensure!(is_right, "{part}: {}: {output}{errors}", ran.status);
        let moved = counted("pgmigrate_success")? - before;
        println!("{part}: {moved} pages moved");
        // Pages that a child shares do not move.
        let is_on = ["threads", "pointers", "forks"].contains(&part) || moved > 0;
        ensure!(is_on, "{part}: expected pages moved, found none");
        // The library is not there any more when the program ends.
        let has_reported = part != "libraries" || errors.contains(" add: 1 calls");
        ensure!(has_reported, "expected the library's call, found {errors}");
    }
    Ok(())
}

/// A count of the kernel's since it has booted.
fn counted(name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.with_context(|| format!("no {name}"))?.parse()?)
}
