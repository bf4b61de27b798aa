//! How long the model needs for one decision: rates of 64 tasks of 16 jobs on two EPYC 7301, 64 PUs.
//!
//! `cargo run --release -p colocate-benches --bin quantum [SITUATIONS]` prints a table for
//! docs/results/benchmarks.md. Each situation has jobs with demands drawn at random, placed at random. `cold`:
//! nothing is known, and other tasks were there before. `job`: a job's phase has changed since, and two tasks
//! have changed places. `task`: one task's phase has changed. `same`: nothing has changed. Before every run
//! that is measured, what was there before is predicted again, so that none finds its own end. Times are the
//! least of several runs of each situation; medians and largest over all situations. The yardstick says how fast the
//! machine was meanwhile.

#![allow(clippy::print_stdout)] // a benchmark's result is what it prints

use colocate_benches::{cpu_ms, yardstick};
use colocate_machine::performance::{CorePerformance, Performance, WorkKind};
use colocate_machine::{Bytes, Machine, PuIdx, described};
use colocate_model::phase::{Known, Phase, PortWork};
use colocate_model::rng::SplitMix64;
use colocate_model::system::{Model, PlacedTask, Prediction, Solver};
use colocate_model::{Assumptions, Demand, MissCurve};

const JOBS: usize = 16;
const TASKS_PER_JOB: usize = 4;
/// Runs of a situation; the fastest counts.
const RUNS: usize = 15;

fn main() {
    let situations = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200);
    let named = described::MACHINES.iter().find(|(name, _)| *name == "epyc-7301").expect("there");
    let machine = described::from_toml(named.1).expect("described").machine;
    let performance = described::performance(named.1).expect("right").expect("there");
    println!("yardstick before: {:.2} steps/ns", yardstick());
    println!("| overlap | begins | median, µs | largest, µs | median rounds | most rounds |");
    println!("|---|---|---|---|---|---|");
    for overlap in [0.0, 0.5, 1.0] {
        let assumptions = Assumptions { overlap, ..Assumptions::default() };
        let model = Model::new(&machine, &performance, assumptions).expect("a model");
        let mut rows = [const { Vec::new() }; 4];
        for seed in 0..situations {
            for (row, measured) in
                rows.iter_mut().zip(situation(&model, &machine, &performance, seed))
            {
                row.push(measured);
            }
        }
        for (name, mut row) in ["cold", "job", "task", "same"].into_iter().zip(rows) {
            row.sort_by(|a, b| a.0.total_cmp(&b.0));
            let median = row[row.len() / 2].0;
            let largest = row[row.len() - 1].0;
            row.sort_by_key(|(_, rounds)| *rounds);
            let median_rounds = row[row.len() / 2].1;
            let most = row[row.len() - 1].1;
            println!(
                "| {overlap} | {name} | {median:.0} | {largest:.0} | {median_rounds} | {most} |"
            );
        }
    }
    println!("yardstick after: {:.2} steps/ns", yardstick());
}

/// Microseconds and rounds: cold, after changes, and again.
fn situation(
    model: &Model<'_>,
    machine: &Machine,
    performance: &Performance,
    seed: u64,
) -> [(f64, u32); 4] {
    let mut rng = SplitMix64::new(seed);
    let core = &performance.kinds[0];
    let demands: Vec<Demand> = (0..=JOBS).map(|_| demand(core, &mut rng)).collect();
    let pages: Vec<Vec<f64>> = (0..JOBS).map(|_| pages(machine.nodes.len(), &mut rng)).collect();
    let mut pus: Vec<u32> = (0..64).collect();
    rng.shuffle(&mut pus);
    let seats = |pus: &[u32], changed: usize| -> Vec<PlacedTask<'_>> {
        let seat = |(task, &pu): (usize, &u32)| {
            let job = task / TASKS_PER_JOB;
            PlacedTask {
                pu: PuIdx(pu),
                demand: &demands[if job == changed { JOBS } else { job }],
                pages: &pages[job],
                space: u32::try_from(job).expect("few"),
            }
        };
        pus.iter().enumerate().map(seat).collect()
    };
    let before = seats(&pus, JOBS);
    pus.swap(rng.below(64), rng.below(64));
    let after = seats(&pus, rng.below(JOBS));
    let mut one = before.clone();
    one[rng.below(64)].demand = &demands[JOBS];
    rng.shuffle(&mut pus);
    let elsewhere = seats(&pus, JOBS);
    let mut search = Solver::new(model);
    [
        least(&mut search, &elsewhere, |search| search.predict(&before)),
        least(&mut search, &before, |search| search.predict_next(&after)),
        least(&mut search, &before, |search| search.predict_next(&one)),
        least(&mut search, &before, |search| search.predict_next(&before)),
    ]
}

/// Least time of several runs, in µs, and its rounds. Before each run the search predicts `before`.
fn least<'a>(
    search: &mut Solver<'a>,
    before: &[PlacedTask<'_>],
    run: impl Fn(&mut Solver<'a>) -> Prediction,
) -> (f64, u32) {
    let runs = (0..RUNS).map(|_| {
        let _ = search.predict(before);
        let (ms, prediction) = cpu_ms(1, || run(search));
        (ms * 1000.0, prediction.rounds)
    });
    runs.min_by(|a, b| a.0.total_cmp(&b.0)).expect("at least one run")
}

/// A number between `low` and `high`.
fn between(rng: &mut SplitMix64, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.unit()
}

/// A demand with all components: work of every kind, misses at every level.
fn demand(core: &CorePerformance, rng: &mut SplitMix64) -> Demand {
    let kinds = WorkKind::ALL.map(|kind| {
        let most = match kind {
            WorkKind::IntDiv | WorkKind::FloatDiv => 0.01,
            WorkKind::Int | WorkKind::Load => 0.5,
            _ => 0.2,
        };
        (kind, between(rng, 0.0, most))
    });
    let dependent = between(rng, 0.2, 1.0);
    let mut misses = between(rng, 0.005, 0.06);
    let curve = [16 << 10, 32 << 10, 256 << 10, 512 << 10, 2 << 20, 4 << 20, 8 << 20, 64 << 20];
    let curve = curve.map(|size| {
        misses *= between(rng, 0.3, 1.0);
        (Bytes(size), misses)
    });
    let known = |value| Known::new(value, "drawn");
    let phase = Phase {
        slots: known(between(rng, 0.9, 1.3)),
        work: Known::new(PortWork::Kinds(kinds.to_vec()), "drawn"),
        dependent_cycles: known(dependent),
        dependent_cycles_divided: known(dependent * between(rng, 1.0, 1.3)),
        stall_cycles: known(between(rng, 0.0, 0.2)),
        branch_misses: known(between(rng, 0.0, 0.01)),
        misses: Known::new(MissCurve::new(curve).expect("falls"), "drawn"),
        parallel_misses: known(between(rng, 1.0, 8.0)),
        written_back: known(between(rng, 0.0, 0.5)),
        shared_lines: known(between(rng, 0.0, 0.001)),
        ..Phase::default()
    };
    phase.on(core, &colocate_model::phase::Guesses::default()).expect("possible").demand
}

/// Shares of pages by node: all local, all on one node, or spread over all nodes.
fn pages(nodes: usize, rng: &mut SplitMix64) -> Vec<f64> {
    match rng.below(3) {
        0 => Vec::new(),
        1 => {
            let home = rng.below(nodes);
            (0..nodes).map(|node| f64::from(u8::from(node == home))).collect()
        }
        _ => vec![1.0; nodes],
    }
}
