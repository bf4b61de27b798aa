//! Where a real kernel had threads, beside where the simulated one has them.
//!
//! `scheduler FILE...` prints a table in Markdown for each file of logs that `workloads/scheduler/measure`
//! wrote, of threads that compute or of threads that wake each other.
#![allow(clippy::print_stdout)] // it is what it is for

use anyhow::{Context, ensure};
use colocate_benches::spread::{Figures, Log, Logs, parse, simulate};
use colocate_benches::wakes::{self, Shares};
use colocate_machine::{Machine, Nanos, Performance, described};
use colocate_sim::KernelScheduler;
use std::path::{Path, PathBuf};

/// Simulated machines for each real one; each has its own random choices.
const SEEDS: u64 = 8;

fn main() -> anyhow::Result<()> {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    ensure!(!files.is_empty(), "usage: scheduler FILE...");
    for file in files {
        table(&file).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

fn table(file: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file)?;
    let (machine, performance) = machine(&text)?;
    if text.lines().any(|line| line.starts_with("chosen")) {
        return wakes_table(&text, (&machine, &performance));
    }
    let logs = parse(&text, &machine)?;
    heading(&logs);
    for log in &logs.logs {
        row("real", &log.doing.words, &[log.figures(&machine)]);
        let simulated = (0..SEEDS).map(|seed| {
            let log: Log =
                simulate(&log.doing, (&machine, &performance), KernelScheduler::default(), seed)?;
            Ok(log.figures(&machine))
        });
        row("simulated", "", &simulated.collect::<anyhow::Result<Vec<_>>>()?);
    }
    println!();
    Ok(())
}

/// Prints in percent after how many wake-ups a thread was put on its waker's PU, its previous, another.
fn wakes_table(text: &str, of: (&Machine, &Performance)) -> anyhow::Result<()> {
    let logs = wakes::parse(text)?;
    println!("Linux {}, {}\n", logs.kernel, logs.head.join("; "));
    println!("Waker's PU (least to most), previous, other PU, PU under the waker's cache, %\n");
    println!("| scenario | real | simulated |\n|---|---|---|");
    for (doing, real) in &logs.logs {
        let simulated =
            (0..SEEDS).map(|seed| wakes::simulate(doing, of, KernelScheduler::default(), seed));
        let simulated: Vec<Shares> = simulated.collect::<anyhow::Result<_>>()?;
        println!("| {} | {} | {} |", doing.words, percent(real), percent(&simulated));
    }
    println!();
    Ok(())
}

/// Mean of each share, and the range of the first.
fn percent(rounds: &[Shares]) -> String {
    let of = |share: usize| rounds.iter().map(move |shares| 100.0 * shares[share]);
    let mean = |share| of(share).sum::<f64>() / rounds.len() as f64;
    let least = of(0).fold(f64::INFINITY, f64::min);
    let most = of(0).fold(0.0, f64::max);
    let [waker, previous, other, near] = [0, 1, 2, 3].map(mean);
    format!("{waker:.0} ({least:.0} to {most:.0}) {previous:.0} {other:.0} {near:.0}")
}

/// The machine named in the file's head: a described machine, or a file of this repository.
fn machine(text: &str) -> anyhow::Result<(Machine, Performance)> {
    let said = text.lines().find_map(|line| line.strip_prefix("# machine: "));
    let name = said.context("expected a line \"# machine: NAME\"")?;
    let known = described::MACHINES.iter().find(|(known, _)| *known == name);
    let text = match known {
        Some((_, text)) => (*text).to_owned(),
        None => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            std::fs::read_to_string(root.join(name)).with_context(|| name.to_owned())?
        }
    };
    let performance = described::performance(&text)?.context("expected [performance]")?;
    Ok((described::from_toml(&text)?.machine, performance))
}

fn heading(logs: &Logs) {
    let machine = logs.said("machine").unwrap_or_default();
    println!("Linux {} on {machine}\n", logs.kernel);
    println!(
        "| scenario | kernel | cores with 0, 1, 2, more created | parts, created | PUs with 0, 1, 2, more | \
         cores with 0, 1, 2, more | parts | all busy after ms | moves a thread and second | \
         CPU, least and most | woke elsewhere % |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
}

/// A row of means; `–` where a run has no figure.
fn row(kernel: &str, words: &str, all: &[Figures]) {
    let four = |of: &dyn Fn(&Figures) -> Option<[f64; 4]>| {
        let means: Option<Vec<f64>> = (0..4).map(|at| mean(all, &|f| Some(of(f)?[at]))).collect();
        means.map_or("–".to_owned(), |means| {
            means.iter().map(|m| short(*m)).collect::<Vec<_>>().join(" ")
        })
    };
    let two = |of: &dyn Fn(&Figures) -> Option<(f64, f64)>| {
        let means = mean(all, &|f| Some(of(f)?.0)).zip(mean(all, &|f| Some(of(f)?.1)));
        means.map_or("–".to_owned(), |(least, most)| format!("{}–{}", short(least), short(most)))
    };
    let one = |of: &dyn Fn(&Figures) -> Option<f64>, digits: usize| {
        mean(all, of).map_or("–".to_owned(), |mean| format!("{mean:.digits$}"))
    };
    println!(
        "| {words} | {kernel} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        four(&|f| f.created_on_cores),
        two(&|f| f.created_on_parts),
        four(&|f| f.pus),
        four(&|f| f.cores),
        two(&|f| f.parts),
        one(&|f| f.filled.map(|time: Nanos| time.as_secs_f64() * 1e3), 1),
        one(&|f| Some(f.moves), 2),
        one(&|f| Some(f.shares.0), 2) + "–" + &one(&|f| Some(f.shares.1), 2),
        one(&|f| f.woke_elsewhere.map(|share| 100.0 * share), 0),
    );
}

fn mean(all: &[Figures], of: &dyn Fn(&Figures) -> Option<f64>) -> Option<f64> {
    let sum: Option<f64> = all.iter().map(of).sum();
    Some(sum? / all.len() as f64)
}

/// The number without a decimal place if that would be zero.
fn short(number: f64) -> String {
    format!("{number:.1}").trim_end_matches(".0").to_owned()
}
