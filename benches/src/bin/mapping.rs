//! How near tasks that communicate come to each other: our mapping beside those of EagerMap, TreeMatch and Scotch.
//!
//! `cargo run --release -p colocate-benches --bin mapping` prints a table for docs/results/communication.md: the cost of each mapping over that of
//! ours, for patterns of communication whose tasks are numbered at random, one task a PU. EagerMap (Cruz et al., PDP 2015) and
//! TreeMatch (Jeannot and Mercier, 2010, where all groups can be listed) are written here after their descriptions; Scotch is
//! `scotch_gmap` of Debian's package scotch, left out where it is missing. In brackets: in how many of a hundred matrices that mapping
//! costs less than ours.
//!
//! `… --bin mapping FOLDER` prints the same for each matrix in the folder, as EagerMap's files are (CSV from the last row on), instead of
//! the patterns: those of 32 tasks on 2 sockets with 8 cores, those of 64 on 2 × EPYC 7301. Others are left out.

#![allow(clippy::print_stdout)] // a benchmark's result is what it prints

use anyhow::{Context, ensure};
use colocate_benches::machine;
use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::{Machine, PuIdx, described};
use colocate_model::rng::SplitMix64;
use colocate_policy::communication::mapping::{cost, mapping};
use colocate_policy::communication::matrix::Matrix;
use colocate_policy::places::UsableMachine;
use colocate_study::matrices::Square;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Matrices of each pattern.
const MATRICES: u64 = 100;
/// Listed of TreeMatch's groups at most, as published.
const MOST_GROUPS: usize = 30_000;

/// Communication of tasks, by their numbers.
type Dense = Vec<Vec<f64>>;
/// Communication of two tasks, for a number of tasks.
type Pattern<'a> = &'a dyn Fn(usize, usize, usize, &mut SplitMix64) -> f64;

const PATTERNS: [(&str, Pattern<'_>); 7] = [
    ("ring", &|a, b, n, _| f64::from(b - a == 1 || b - a == n - 1)),
    ("pairs", &|a, b, n, _| f64::from(b - a == n / 2)),
    ("master and workers", &|a, _, _, _| f64::from(a == 0)),
    ("all to all", &|_, _, _, _| 1.0),
    ("teams of eight", &|a, b, _, rng| f64::from(a / 8 == b / 8) * 10.0 + rng.unit()),
    ("grid", &|a, b, _, _| f64::from(b - a == 8 || (b - a == 1 && b % 8 != 0))),
    ("random, three partners", &|_, _, n, rng| {
        if rng.unit() < 6.0 / n as f64 { rng.unit() } else { 0.0 }
    }),
];

fn main() -> anyhow::Result<()> {
    let cache = "[[cache]]\nlevel = 3\nkind = \"unified\"\nsize = \"16 MiB\"\ncores = 4\n";
    let alike = cache.to_owned() + colocate_benches::ALIKE;
    let epyc = described::from_toml(include_str!("../../../machines/epyc-7301.toml"))?.machine;
    println!("| machine | pattern | ours | EagerMap | TreeMatch | Scotch |");
    println!("|---|---|--:|--:|--:|--:|");
    if let Some(folder) = std::env::args_os().nth(1) {
        let machines = [machine(2, 8, "siblings-last", &alike)?, epyc];
        return files(Path::new(&folder), &machines);
    }
    let small = machine(2, 4, "siblings-last", &alike)?;
    for (name, machine) in [("2 sockets, 4 cores, 2 threads", &small), ("epyc-7301", &epyc)] {
        for (pattern, amount) in PATTERNS {
            println!("| {name} | {pattern} | {} |", compared(machine, amount)?);
        }
    }
    Ok(())
}

/// A row for each matrix in a folder with as many tasks as a machine has PUs.
fn files(folder: &Path, machines: &[Machine]) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(&path)?;
        let square = Square::from_csv(&text, true).map_err(anyhow::Error::msg);
        let square = square.with_context(|| path.display().to_string())?;
        let rows = square.rows();
        let Some(machine) = machines.iter().find(|it| it.all_pus().count() == rows.len()) else {
            continue;
        };
        let most = rows.iter().flatten().copied().fold(0.0, f64::max);
        let amount =
            |a: usize, b: usize, _: usize, _: &mut SplitMix64| (rows[a][b] + rows[b][a]) / most;
        if most > 0.0 {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            println!("| {} PUs | {name} | {} |", rows.len(), compared(machine, &amount)?);
        }
    }
    Ok(())
}

/// Cells: the mean cost of our mapping, and the mean costs of other mappings divided by ours.
fn compared(machine: &Machine, amount: Pattern<'_>) -> anyhow::Result<String> {
    let mut sums = [0.0; 4];
    let mut less = [0; 4];
    for seed in 0..MATRICES {
        let costs = Case::new(machine, amount, seed)?.costs()?;
        for (at, cost) in costs.into_iter().enumerate() {
            sums[at] += cost;
            less[at] += u32::from(cost < costs[0] * (1.0 - 1e-9));
        }
    }
    let over = |at: usize| match sums[at] / sums[0] {
        ratio if ratio.is_finite() => format!("{ratio:.3} ({})", less[at]),
        _ => "–".to_owned(),
    };
    let ours = sums[0] / MATRICES as f64;
    Ok(format!("{ours:.0} | {} | {} | {}", over(1), over(2), over(3)))
}

/// A machine, and as many tasks as PUs.
struct Case<'a> {
    places: UsableMachine<'a>,
    amounts: Dense,
    /// Parts of each part of the tree, from the machine down.
    arities: Vec<usize>,
}

impl<'a> Case<'a> {
    fn new(machine: &'a Machine, amount: Pattern<'_>, seed: u64) -> anyhow::Result<Self> {
        let mut pus: Vec<PuIdx> = machine.all_pus().collect();
        let places = UsableMachine::new(machine, &pus);
        pus.sort_by_key(|pu| places.path(*pu));
        ensure!(pus == places.pus, "expected PUs in the order of the tree");
        let of_depth = |depth: usize| {
            pus.iter().map(|pu| places.path(*pu)[..depth].to_vec()).collect::<BTreeSet<_>>().len()
        };
        let arities = (1..=5).map(|depth| of_depth(depth) / of_depth(depth - 1).max(1)).collect();
        let mut rng = SplitMix64::new(seed);
        let mut numbers: Vec<usize> = (0..pus.len()).collect();
        for at in (1..numbers.len()).rev() {
            numbers.swap(at, rng.below(at + 1));
        }
        let mut amounts = vec![vec![0.0; pus.len()]; pus.len()];
        for a in 0..pus.len() {
            for b in a + 1..pus.len() {
                let one = amount(a, b, pus.len(), &mut rng);
                amounts[numbers[a]][numbers[b]] = one;
                amounts[numbers[b]][numbers[a]] = one;
            }
        }
        Ok(Self { places, amounts, arities })
    }

    /// Costs of our mapping, EagerMap's, TreeMatch's and Scotch's; NaN where a mapping is missing.
    fn costs(&self) -> anyhow::Result<[f64; 4]> {
        let tasks: Vec<TaskId> = (0..).take(self.amounts.len()).map(task).collect();
        let amounts = (0..).zip(&self.amounts).flat_map(|(a, row): (u32, &Vec<f64>)| {
            (0..a).zip(row.clone()).map(move |(b, amount)| (task(a), task(b), amount))
        });
        let matrix = Matrix::of(amounts.collect::<Vec<_>>());
        let of = |seats: &[PuIdx]| cost(&matrix, &tasks, &self.places, seats);
        let of_order = |order: Vec<usize>| {
            let mut seats = vec![PuIdx(0); order.len()];
            order.iter().zip(&self.places.pus).for_each(|(task, pu)| seats[*task] = *pu);
            of(&seats)
        };
        Ok([
            of(&mapping(&matrix, &tasks, &self.places)),
            of_order(up_the_tree(&self.amounts, &self.arities, eager_groups)),
            of_order(up_the_tree(&self.amounts, &self.arities, treematch_groups)),
            self.scotch()?.map_or(f64::NAN, |seats| of(&seats)),
        ])
    }

    /// A PU for each task by Scotch; `None` if Scotch is not installed.
    fn scotch(&self) -> anyhow::Result<Option<Vec<PuIdx>>> {
        let folder = tempfile::tempdir()?;
        let graph = folder.path().join("graph");
        let target = folder.path().join("target");
        let found = folder.path().join("mapping");
        let edges: usize =
            self.amounts.iter().map(|row| row.iter().filter(|it| **it > 0.0).count()).sum();
        let mut text = format!("0\n{} {edges}\n0 010\n", self.amounts.len());
        for row in &self.amounts {
            let there: Vec<_> = row.iter().enumerate().filter(|(_, it)| **it > 0.0).collect();
            write!(text, "{}", there.len())?;
            for (other, amount) in there {
                write!(text, " {:.0} {other}", (amount * 1000.0).ceil())?;
            }
            text.push('\n');
        }
        std::fs::write(&graph, text)?;
        let parted: Vec<(usize, usize)> =
            self.arities.iter().copied().enumerate().filter(|(_, arity)| *arity > 1).collect();
        let mut text = format!("tleaf {}", parted.len());
        // Costs of links add up on the way down, to twice the levels below the part that two PUs share.
        for (at, (level, arity)) in parted.iter().enumerate() {
            let below = parted.get(at + 1).map_or(self.arities.len(), |next| next.0);
            write!(text, " {arity} {}", 2 * (below - level))?;
        }
        std::fs::write(&target, text + "\n")?;
        let mut scotch = Command::new("scotch_gmap");
        let Ok(output) = scotch.args([&graph, &target, &found]).output() else { return Ok(None) };
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = std::fs::read_to_string(&found)?;
        let mut seats = vec![PuIdx(0); self.amounts.len()];
        for line in text.lines().skip(1) {
            let (task, pu) = line.trim().split_once(char::is_whitespace).context("two numbers")?;
            let (task, pu): (usize, usize) = (task.parse()?, pu.trim().parse()?);
            seats[task] = self.places.pus[pu];
        }
        let used: BTreeSet<PuIdx> = seats.iter().copied().collect();
        ensure!(used.len() == seats.len(), "expected one task a PU of Scotch");
        Ok(Some(seats))
    }
}

fn task(order: u32) -> TaskId {
    TaskId { job: JobIdx(0), order }
}

/// The tasks in the order of the PUs: elements are put into groups level by level, from the cores up, and groups are the elements of
/// the next level.
fn up_the_tree(
    amounts: &Dense,
    arities: &[usize],
    groups: fn(&Dense, usize) -> Vec<Vec<usize>>,
) -> Vec<usize> {
    let mut elements: Vec<Vec<usize>> = (0..amounts.len()).map(|task| vec![task]).collect();
    let mut between = amounts.clone();
    for arity in arities.iter().rev().copied().filter(|arity| *arity > 1) {
        let made = groups(&between, arity);
        let sum = |a: &[usize], b: &[usize]| {
            a.iter().flat_map(|x| b.iter().map(|y| between[*x][*y])).sum::<f64>()
        };
        let mut next = vec![vec![0.0; made.len()]; made.len()];
        for a in 0..made.len() {
            for b in (0..made.len()).filter(|b| *b != a) {
                next[a][b] = sum(&made[a], &made[b]);
            }
        }
        elements = made
            .iter()
            .map(|group| group.iter().flat_map(|at| elements[*at].clone()).collect())
            .collect();
        between = next;
    }
    elements.concat()
}

/// Groups of EagerMap: each begins with the first free element, and adds the element that
/// communicates most with the group.
fn eager_groups(amounts: &Dense, arity: usize) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = (0..amounts.len()).collect();
    let mut groups = Vec::new();
    while !left.is_empty() {
        let mut group = vec![left.remove(0)];
        while group.len() < arity {
            let with = |task: &usize| group.iter().map(|of| amounts[*of][*task]).sum::<f64>();
            let best = (0..left.len())
                .max_by(|a, b| with(&left[*a]).total_cmp(&with(&left[*b])).then(b.cmp(a)));
            let Some(best) = best else { break };
            group.push(left.remove(best));
        }
        groups.push(group);
    }
    groups
}

/// Groups of TreeMatch: disjoint groups that communicate least with the rest, from ten starts.
/// Groups in order count a thousandth less.
fn treematch_groups(amounts: &Dense, arity: usize) -> Vec<Vec<usize>> {
    let all = combinations(amounts.len(), arity);
    assert!(all.len() <= MOST_GROUPS, "{} groups", all.len());
    let outside = |group: &[usize]| {
        let rows: f64 = group.iter().map(|a| amounts[*a].iter().sum::<f64>()).sum();
        rows - group.iter().flat_map(|a| group.iter().map(|b| amounts[*a][*b])).sum::<f64>()
    };
    let cost = |groups: &[Vec<usize>]| groups.iter().map(|group| outside(group)).sum::<f64>();
    let mut listed: Vec<(f64, Vec<usize>)> =
        all.into_iter().map(|group| (outside(&group), group)).collect();
    listed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best: Vec<Vec<usize>> =
        (0..amounts.len()).collect::<Vec<_>>().chunks(arity).map(<[usize]>::to_vec).collect();
    let mut least = cost(&best) * 0.999;
    for start in 0..listed.len().min(10) {
        let mut is_taken = vec![false; amounts.len()];
        let mut groups = Vec::new();
        for (_, group) in listed[start..].iter().chain(&listed[..start]) {
            if group.iter().all(|at| !is_taken[*at]) {
                group.iter().for_each(|at| is_taken[*at] = true);
                groups.push(group.clone());
            }
        }
        if cost(&groups) < least {
            least = cost(&groups);
            best = groups;
        }
    }
    best
}

/// All sets of `size` of the numbers below `of`.
fn combinations(of: usize, size: usize) -> Vec<Vec<usize>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let sets = (size - 1..of).flat_map(|last| {
        combinations(last, size - 1).into_iter().map(move |mut set| {
            set.push(last);
            set
        })
    });
    sets.collect()
}
