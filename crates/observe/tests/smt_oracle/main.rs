//! The core part of the model against others' software: LLVM's simulation of a processor's scheduler,
//! which is given two loops woven into one.
//!
//! The small run is a regression test. `scripts/smt-oracle` makes the whole one and prints what
//! docs/validation.md holds.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small counts

mod kernels;
mod pairing;
mod pairs;

use kernels::Random;
use pairing::{Gains, LOOPS, Policy};
use pairs::{Loop, Oracle, predicted};

/// The processor that both take their port table from.
const CPU: &str = "znver1";
const SEED: u64 = 7301;

/// What of an error counts as too large: figures of the model's acceptance, for the mean error of the
/// predicted slowdown and for the part of the oracle's gain that pairing by the model loses.
const MOST_ERROR: f64 = 0.05;
const MOST_REGRET: f64 = 0.30;

/// Errors of predicted slowdowns, relative.
struct Errors(Vec<f64>);

impl Errors {
    fn of(found: &[f64], predicted: impl Fn(usize) -> f64) -> Self {
        let one = |(at, found): (usize, &f64)| (predicted(at) / found - 1.0).abs();
        let mut errors: Vec<f64> = found.iter().enumerate().map(one).collect();
        errors.sort_by(f64::total_cmp);
        Self(errors)
    }

    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    fn at(&self, part: f64) -> f64 {
        self.0[(part * (self.0.len() - 1) as f64).round() as usize]
    }

    fn row(&self, name: &str) -> String {
        let percent = |part: f64| format!("{:.1}", 100.0 * part);
        let figures = [self.mean(), self.at(0.5), self.at(0.9), self.at(1.0)].map(percent);
        format!("| {name} | {} | {} |", self.0.len(), figures.join(" | "))
    }
}

/// A run of the comparison, small or whole.
struct Comparison {
    oracle: Oracle,
    rows: Vec<String>,
    errors: Vec<f64>,
    gains: Gains,
}

impl Comparison {
    fn new() -> Self {
        let oracle = Oracle::new(CPU);
        Self { oracle, rows: Vec::new(), errors: Vec::new(), gains: Gains::default() }
    }

    /// Compares predictions for `pairs` with the oracle.
    fn pairs(&mut self, name: &str, pairs: &[(&Loop, &Loop)]) -> Vec<f64> {
        let found = self.oracle.slowdowns(pairs);
        let model = Errors::of(&found, |at| predicted(pairs[at].0, pairs[at].1, false));
        let divided = Errors::of(&found, |at| predicted(pairs[at].0, pairs[at].1, true));
        let none = Errors::of(&found, |_| 1.0);
        self.rows.push(model.row(&format!("{name}: model")));
        self.rows.push(divided.row(&format!("{name}: model, window divided")));
        self.rows.push(none.row(&format!("{name}: no contention")));
        self.errors.push(model.mean());
        found
    }

    fn workload(&mut self, loops: &[&Loop]) {
        let places = (0..loops.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let pairs: Vec<_> = places.clone().map(|(a, b)| (loops[a], loops[b])).collect();
        let mut slowdowns = vec![vec![0.0; loops.len()]; loops.len()];
        for ((a, b), found) in places.zip(self.oracle.slowdowns(&pairs)) {
            (slowdowns[a][b], slowdowns[b][a]) = (found, found);
        }
        self.gains.add(loops, &slowdowns);
    }

    fn random_loops(&self, count: usize, random: &mut Random) -> Vec<Loop> {
        let kernels =
            (0..count).map(|at| kernels::random(random, format!("random-{at}"))).collect();
        self.oracle.loops(kernels)
    }

    fn check(&self) {
        for (error, row) in self.errors.iter().zip(self.rows.iter().step_by(3)) {
            assert!(*error <= MOST_ERROR, "{row}");
        }
        let captured = self.gains.captured(Policy::Model);
        assert!(1.0 - captured <= MOST_REGRET, "{captured}");
        for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::ModelDivided) {
            assert!(captured >= self.gains.captured(policy), "{policy:?}");
        }
    }
}

/// Each with each, and with another of itself.
fn every_pair<'a>(loops: &[&'a Loop]) -> Vec<(&'a Loop, &'a Loop)> {
    let with = |at: usize| loops[at..].iter().map(move |other| (loops[at], *other));
    (0..loops.len()).flat_map(with).collect()
}

fn compare(random_pairs: usize, workloads: usize) -> Comparison {
    let mut comparison = Comparison::new();
    let mut random = Random(SEED);
    let loops = comparison.random_loops(2 * random_pairs, &mut random);
    let pairs: Vec<_> = loops.chunks_exact(2).map(|two| (&two[0], &two[1])).collect();
    comparison.pairs("random loops", &pairs);
    let bench = comparison.oracle.loops(kernels::smt_bench());
    let bench: Vec<&Loop> = bench.iter().collect();
    comparison.pairs("SMT-Bench", &every_pair(&bench));
    for _ in 0..workloads {
        let loops = comparison.random_loops(LOOPS, &mut random);
        comparison.workload(&loops.iter().collect::<Vec<_>>());
    }
    comparison
}

/// A set that were smaller than the truth would ask for more cycles than LLVM's own simulation takes.
#[test]
fn sets_never_ask_for_more_than_the_simulation_takes() {
    const CPUS: [&str; 8] =
        ["znver1", "znver3", "bdver2", "btver2", "sandybridge", "haswell", "skylake", "alderlake"];
    for cpu in CPUS {
        let mut random = Random(SEED);
        let kernels = (0..12).map(|at| kernels::random(&mut random, format!("{at}"))).collect();
        for one in Oracle::new(cpu).loops(kernels) {
            let (asked, taken) = (one.ports_and_slots(), one.figures.cycles);
            assert!(
                asked <= taken * 1.002,
                "{cpu}: {asked} {taken}\n{:#?}",
                one.figures.instructions
            );
        }
    }
}

/// The kernels that fill a unit are as fast as that unit: sets that are larger than the truth would show.
#[test]
fn full_units_are_found() {
    let bench = Oracle::new(CPU).loops(kernels::smt_bench());
    let full = ["fp-add", "fp-mul", "fp-div", "int-add", "int-mul", "int-div-tp"];
    for one in bench.iter().filter(|one| full.contains(&one.kernel.name.as_str())) {
        let (asked, taken) = (one.ports_and_slots(), one.figures.cycles);
        assert!((asked / taken - 1.0).abs() < 0.03, "{}: {asked} {taken}", one.kernel.name);
    }
}

/// Small: what is wrong with ports, windows or sharing shows in this many pairs.
#[test]
fn predicts_what_llvm_schedules() {
    compare(30, 3).check();
}

/// The whole of it, with the tables of docs/validation.md.
#[test]
#[ignore = "minutes; scripts/smt-oracle runs it"]
fn whole() {
    let comparison = compare(400, 60);
    println!("{}", report(&comparison));
    comparison.check();
}

fn report(comparison: &Comparison) -> String {
    let mut lines = vec![
        format!("`{CPU}`, llvm-mca {}, seed {SEED}.\n", comparison.oracle.version()),
        "| pairs | n | mean error % | median | 90 of 100 below | worst |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(comparison.rows.iter().cloned());
    let gains = &comparison.gains;
    lines.push(format!(
        "\n{} workloads of {LOOPS} random loops; the best pairing is {:.1} % better than any.\n",
        gains.workloads(),
        100.0 * gains.oracle()
    ));
    lines.push(
        "| pairing | of the oracle's gain % | regret % | workloads in which it loses |".to_owned(),
    );
    lines.push("|---|---|---|---|".to_owned());
    for policy in Policy::ALL {
        let captured = 100.0 * gains.captured(policy);
        let (name, worse) = (policy.name(), gains.worse(policy));
        lines.push(format!("| {name} | {captured:.0} | {:.0} | {worse} |", 100.0 - captured));
    }
    lines.join("\n")
}
