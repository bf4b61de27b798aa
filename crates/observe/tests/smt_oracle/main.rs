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

/// Errors that are listed, relative.
const FAR_OFF: f64 = 0.10;

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
    /// Pairs whose prediction is far off, with the error.
    far_off: Vec<String>,
    /// Of workloads of random loops.
    gains: Gains,
    /// Of the paper's eight kernels as one workload.
    bench: Gains,
}

impl Comparison {
    fn new(cpu: &str) -> Self {
        Self {
            oracle: Oracle::new(cpu),
            rows: Vec::new(),
            errors: Vec::new(),
            far_off: Vec::new(),
            gains: Gains::default(),
            bench: Gains::default(),
        }
    }

    /// Compares predictions for `pairs` with the oracle.
    fn pairs(&mut self, name: &str, pairs: &[(&Loop, &Loop)]) {
        let found = self.oracle.slowdowns(pairs);
        let model = Errors::of(&found, |at| predicted(pairs[at].0, pairs[at].1, false));
        let divided = Errors::of(&found, |at| predicted(pairs[at].0, pairs[at].1, true));
        let none = Errors::of(&found, |_| 1.0);
        self.rows.push(model.row(&format!("{name}: model")));
        self.rows.push(divided.row(&format!("{name}: model, window divided")));
        self.rows.push(none.row(&format!("{name}: no contention")));
        self.errors.push(model.mean());
        self.far_off.extend(pairs.iter().zip(&found).filter_map(|((a, b), found)| {
            let off = predicted(a, b, false) / found - 1.0;
            let names = format!("{} with {}", a.kernel.name, b.kernel.name);
            (off.abs() > FAR_OFF).then(|| format!("{names} {:+.0} %", 100.0 * off))
        }));
    }

    /// What the oracle finds for each pair of `loops`, by both places.
    fn slowdowns(&self, loops: &[&Loop]) -> Vec<Vec<f64>> {
        let places = (0..loops.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let pairs: Vec<_> = places.clone().map(|(a, b)| (loops[a], loops[b])).collect();
        let mut slowdowns = vec![vec![0.0; loops.len()]; loops.len()];
        for ((a, b), found) in places.zip(self.oracle.slowdowns(&pairs)) {
            (slowdowns[a][b], slowdowns[b][a]) = (found, found);
        }
        slowdowns
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
    }

    /// In a few workloads any policy can have luck; in many the model must be best.
    fn check_against_policies(&self) {
        let captured = self.gains.captured(Policy::Model);
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

fn compare(cpu: &str, random_pairs: usize, workloads: usize) -> Comparison {
    let mut comparison = Comparison::new(cpu);
    let mut random = Random(SEED);
    let loops = comparison.random_loops(2 * random_pairs, &mut random);
    let pairs: Vec<_> = loops.chunks_exact(2).map(|two| (&two[0], &two[1])).collect();
    comparison.pairs("random loops", &pairs);
    let bench = comparison.oracle.loops(kernels::smt_bench());
    let bench: Vec<&Loop> = bench.iter().collect();
    comparison.pairs("SMT-Bench", &every_pair(&bench));
    let paper = &bench[..LOOPS];
    comparison.bench.add(paper, &comparison.slowdowns(paper));
    for _ in 0..workloads {
        let loops = comparison.random_loops(LOOPS, &mut random);
        let loops: Vec<&Loop> = loops.iter().collect();
        comparison.gains.add(&loops, &comparison.slowdowns(&loops));
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
    compare(CPU, 30, 3).check();
}

/// The whole of it, with the tables of docs/validation.md.
#[test]
#[ignore = "minutes; scripts/smt-oracle runs it"]
fn whole() {
    /// Other processors with SMT, which nothing here was looked at with before.
    const OTHERS: [&str; 3] = ["haswell", "skylake", "znver3"];
    let comparison = compare(CPU, 400, 60);
    println!("{}", report(CPU, &comparison));
    for cpu in OTHERS {
        println!("{}", report(cpu, &compare(cpu, 100, 20)));
    }
    comparison.check();
    comparison.check_against_policies();
}

fn report(cpu: &str, comparison: &Comparison) -> String {
    let (gains, bench) = (&comparison.gains, &comparison.bench);
    let mut lines = vec![
        format!("`{cpu}`, llvm-mca {}, seed {SEED}:\n", comparison.oracle.version()),
        "| slowdown of pairs | pairs | mean error % | median | 90 of 100 below | worst |"
            .to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(comparison.rows.iter().cloned());
    lines.push(format!(
        "\n{} workloads of {LOOPS} random loops: the best pairing is {:.1} % better than any; \
         of the paper's {LOOPS} kernels: {:.1} %.\n",
        gains.workloads(),
        100.0 * gains.oracle(),
        100.0 * bench.oracle()
    ));
    lines.push(
        "| pairing | of the oracle's gain % | regret % | workloads where worse than any | \
         SMT-Bench: of the oracle's gain % |"
            .to_owned(),
    );
    lines.push("|---|---|---|---|---|".to_owned());
    for policy in Policy::ALL {
        let captured = 100.0 * gains.captured(policy);
        let (name, worse, bench) =
            (policy.name(), gains.worse(policy), 100.0 * bench.captured(policy));
        lines.push(format!(
            "| {name} | {captured:.0} | {:.0} | {worse} | {bench:.0} |",
            100.0 - captured
        ));
    }
    let of_bench = |pair: &&String| !pair.starts_with("random");
    let far_off: Vec<&str> =
        comparison.far_off.iter().filter(of_bench).map(String::as_str).collect();
    lines.push(format!(
        "\nSMT-Bench's pairs that are off by more than {:.0} %: {}.\n",
        100.0 * FAR_OFF,
        if far_off.is_empty() { "none".to_owned() } else { far_off.join(", ") }
    ));
    lines.join("\n")
}
