//! Matching beside rustworkx-core and LEMON on the same weights, and whole plans: ratios in one run.
//!
//! `cargo run --release -p colocate-benches --bin matching` prints tables for docs/benchmarks.md;
//! with the argument `plans` only the last one, which takes seconds instead of minutes.
//! Times are the least of several runs, of processor time, so that other programs disturb little.
//! LEMON is asked by `benches/lemon/match`, which `make -C benches/lemon` builds; without it its
//! column says so.

#![allow(clippy::print_stdout)] // a benchmark's result is what it prints

use colocate_benches::{cpu_ms, lemon, machine, rustworkx, tasks};
use colocate_machine::PuIdx;
use colocate_policy::matching::{Costs, GAP, blossom, near};
use colocate_policy::rng::SplitMix64;
use colocate_policy::{PolicyKind, plan};

/// Vertices of the graphs.
const SIZES: [usize; 5] = [64, 128, 256, 512, 1_024];

fn main() {
    if std::env::args().any(|argument| argument == "plans") {
        return plans();
    }
    for (kind, seed) in [("mixes", 1), ("two programs", 2), ("random", 3)] {
        matching(kind, seed);
    }
    plans();
}

fn matching(kind: &str, seed: u64) {
    println!("\n### Matching, weights: {kind}\n");
    println!(
        "| vertices | ours, ms | gap, % | exact search, ms | rustworkx-core, ms | LEMON, ms | rustworkx / ours | LEMON / ours |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for n in SIZES {
        let costs = weights(kind, n, &mut SplitMix64::new(seed));
        let runs = if n <= 256 { 5 } else { 2 };
        let (ours, found) = cpu_ms(runs, || near::minimum(&costs, GAP).expect("even"));
        let (exact, optimum) = cpu_ms(runs.min(2), || blossom::minimum(&costs).expect("even"));
        let (theirs, other) = cpu_ms(1, || rustworkx(&costs));
        assert_eq!(other, optimum.cost, "rustworkx-core and the exact search differ");
        let gap = (found.cost - optimum.cost) as f64 / optimum.cost.max(1) as f64 * 100.0;
        let lemon = lemon(&costs);
        if let Some((_, cost)) = lemon {
            assert_eq!(cost, optimum.cost, "LEMON and the exact search differ");
        }
        let (lemon_ms, lemon_ratio) = lemon.map_or_else(
            || ("not built".to_owned(), "–".to_owned()),
            |(ms, _)| (format!("{ms:.2}"), format!("{:.1}", ms / ours)),
        );
        println!(
            "| {n} | {ours:.2} | {gap:.3} | {exact:.2} | {theirs:.2} | {lemon_ms} | {:.1} | {lemon_ratio} |",
            theirs / ours
        );
    }
}

/// Overlaps of mixes that are all different, of two programs' threads, or no structure at all.
#[allow(clippy::cast_possible_truncation)] // below 2^31
fn weights(kind: &str, n: usize, rng: &mut SplitMix64) -> Costs {
    const STEPS: f64 = 1e8;
    if kind == "random" {
        return Costs::new(n, |_, _| (rng.unit() * STEPS) as i64);
    }
    let tasks = tasks(kind, n, rng);
    let assumed = colocate_model::Mix::default();
    let demands: Vec<_> = tasks
        .iter()
        .map(|task| colocate_model::UnitDemand::of(&task.mix, task.weight(), &assumed))
        .collect();
    Costs::of_overlaps(&demands, STEPS)
}

fn plans() {
    println!("\n### Whole plans, everything included\n");
    println!("| tasks on PUs | mixes | instruction, ms | mix, ms | mix over the optimum, % |");
    println!("|---|---|---|---|---|");
    for n in [64, 256, 1_024] {
        for kind in ["mixes", "two programs"] {
            let tasks = tasks(kind, n, &mut SplitMix64::new(4));
            let machine = machine(n / 2);
            let usable: Vec<PuIdx> = machine.all_pus().collect();
            let runs = if n <= 256 { 9 } else { 5 };
            let time =
                |policy: PolicyKind| cpu_ms(runs, || plan(&policy, &machine, &usable, &tasks));
            let (instruction, _) = time(PolicyKind::Instruction { key: None });
            let (mix, made) = time(PolicyKind::Mix);
            let over = colocate_benches::over_optimum(&made, &machine, &tasks) * 100.0;
            println!("| {n} | {kind} | {instruction:.3} | {mix:.3} | {over:.4} |");
        }
    }
}
