//! Matching beside rustworkx-core, LEMON and NetworkX on the same weights, and whole plans, in one run.
//!
//! `cargo run --release -p colocate-benches --bin matching` prints tables for docs/results/benchmarks.md;
//! with the argument `plans` only the last one, with `ours` only our own times, which both take seconds
//! instead of minutes; with `networkx` NetworkX gets 512 and 1,024 vertices, too, which takes
//! longest. Times are the least of several runs, of processor time, so that other programs disturb little.
//! LEMON is run by `benches/lemon/match`, which `make -C benches/lemon` builds, NetworkX by
//! `benches/networkx/match.py` in an environment that `make -C benches/networkx` makes; without them their
//! columns say so.

#![allow(clippy::print_stdout)] // a benchmark's result is what it prints

use colocate_benches::{ALIKE, cpu_ms, lemon, machine, networkx, rustworkx, tasks};
use colocate_machine::PuIdx;
use colocate_policy::matching::{PairCosts, cheapest, minimum};
use colocate_policy::rng::SplitMix64;
use colocate_policy::{Knowledge, PolicySpec};

/// Vertices of the graphs.
const SIZES: [usize; 5] = [64, 128, 256, 512, 1_024];
/// Most tasks for NetworkX unless it is named.
const NETWORKX_UP_TO: usize = 256;

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_default();
    if argument == "plans" {
        return plans();
    }
    for (kind, seed) in [("mixes", 1), ("two programs", 2), ("random", 3)] {
        ours(kind, seed);
    }
    if argument == "ours" {
        return;
    }
    for (kind, seed) in [("mixes", 1), ("two programs", 2), ("random", 3)] {
        beside(kind, seed, argument == "networkx");
    }
    plans();
}

/// Times of the matching as plans have it and of the exact search, and the distance of the matching
/// from the optimum.
fn ours(kind: &str, seed: u64) {
    println!("\n### Matching, weights: {kind}\n");
    println!("| vertices | matching, ms | over the optimum, % | exact, ms |");
    println!("|---|---|---|---|");
    for n in SIZES {
        let costs = weights(kind, n, &mut SplitMix64::new(seed));
        let runs = if n <= 256 { 5 } else { 2 };
        let (matching, found) = cpu_ms(runs, || minimum(&costs).expect("even"));
        let (exact, optimum) = cpu_ms(runs.min(2), || cheapest(&costs).expect("even"));
        let over = over(costs.total(&found), costs.total(&optimum));
        println!("| {n} | {matching:.2} | {over:.3} | {exact:.2} |");
    }
}

/// Excess of a cost over the least, in percent of the least.
fn over(cost: i64, least: i64) -> f64 {
    (cost - least) as f64 / least.max(1) as f64 * 100.0
}

/// Our exact search beside other libraries' on the same weights. All other libraries find the
/// optimum, or the benchmark stops.
fn beside(kind: &str, seed: u64, all: bool) {
    println!("\n### Others, weights: {kind}\n");
    println!(
        "| vertices | ours, ms | rustworkx-core, ms | LEMON, ms | NetworkX, ms | each / ours |"
    );
    println!("|---|---|---|---|---|---|");
    for n in SIZES {
        let costs = weights(kind, n, &mut SplitMix64::new(seed));
        let (ours, mate) = cpu_ms(2, || cheapest(&costs).expect("even"));
        let optimum = costs.total(&mate);
        let found = [
            Some(cpu_ms(1, || rustworkx(&costs))),
            lemon(&costs),
            if all || n <= NETWORKX_UP_TO { networkx(&costs) } else { None },
        ];
        for (_, cost) in found.iter().flatten() {
            assert_eq!(*cost, optimum, "others and the exact search differ");
        }
        let show = |of: &dyn Fn(f64) -> String| {
            found.map(|found| found.map_or("–".to_owned(), |(ms, _)| of(ms)))
        };
        let times = show(&|ms| format!("{ms:.2}"));
        let ratios = show(&|ms| format!("{:.1}", ms / ours));
        println!("| {n} | {ours:.2} | {} | {} |", times.join(" | "), ratios.join(", "));
    }
}

/// Overlaps of mixes: all different, threads of two programs, or no structure.
#[allow(clippy::cast_possible_truncation)] // below 2^31
fn weights(kind: &str, n: usize, rng: &mut SplitMix64) -> PairCosts {
    const STEPS: f64 = 1e8;
    if kind == "random" {
        return PairCosts::new(n, |_, _| (rng.unit() * STEPS) as i64);
    }
    let tasks = tasks(kind, n, rng);
    let assumed = colocate_model::Mix::default();
    let demands: Vec<_> = tasks
        .iter()
        .map(|task| colocate_model::UnitDemand::of(&task.mix, task.weight(), &assumed))
        .collect();
    PairCosts::of_overlaps(&demands, STEPS)
}

fn plans() {
    println!("\n### Whole plans, everything included\n");
    println!("| tasks on PUs | mixes | instruction, ms | mix, ms | mix over the optimum, % |");
    println!("|---|---|---|---|---|");
    for n in [64, 256, 1_024] {
        for kind in ["mixes", "two programs"] {
            let tasks = tasks(kind, n, &mut SplitMix64::new(4));
            // Packages of up to 64 cores.
            let packages = (n / 2).div_ceil(64);
            let machine =
                machine(packages, n / 2 / packages, "in-order", ALIKE).expect("described");
            let usable: Vec<PuIdx> = machine.all_pus().collect();
            let runs = if n <= 256 { 9 } else { 5 };
            let time = |name: &str| {
                let policy = PolicySpec::named(name);
                let known = Knowledge::default();
                cpu_ms(runs, || policy.plan(&known, &machine, &usable, &tasks))
            };
            let (instruction, _) = time("instruction");
            let (mix, made) = time("mix");
            let over = colocate_benches::over_optimum(&made, &machine, &tasks) * 100.0;
            println!("| {n} | {kind} | {instruction:.3} | {mix:.3} | {over:.4} |");
        }
    }
}
