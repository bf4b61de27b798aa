//! What a mapping of threads that share data gains, **simulated** on the machine of Cruz et al. (JPDC 2014), and how many accesses
//! a second the simulator does.
//!
//! `cargo run --release -p colocate-benches --bin coherence` prints three tables: for docs/results/communication.md the producer-consumer
//! program of the paper's section 2.1 with eight threads and four phases under four mappings, each over the mean of 20 random
//! ones; how fast each pattern is simulated, in memory accesses a second on one PU; and how fast streams of one thread are, beside
//! Valgrind's cachegrind if that is installed.

#![allow(clippy::print_stdout)] // a benchmark's result is what it prints

use anyhow::Context;
use colocate_evidence::TaskId;
use colocate_machine::{Machine, PuIdx, described};
use colocate_model::rng::SplitMix64;
use colocate_policy::communication::matrix::Matrix;
use colocate_policy::communication::pipeline::Pipeline;
use colocate_policy::places::UsableMachine;
use colocate_sim::coherent::patterns::{Pattern, Synthetic};
use colocate_sim::coherent::replay::{
    CommunicationMapping, Fixed, Replayed, ThreadMapping, Timing, replay,
};
use colocate_sim::coherent::{CoherenceCounts, Coherent, DetectAt, Geometry, Protocol};
use std::collections::BTreeMap;
use std::time::Instant;

mod streams;

const THREADS: usize = 8;
/// Iterations of a phase. Chosen: the mapping is found within ten.
const PHASE: u32 = 500;
const RANDOM: u64 = 20;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().is_some_and(|first| first == streams::ONLY) {
        return streams::only(arguments);
    }
    let (_, text) =
        described::MACHINES.iter().find(|(name, _)| *name == "xeon-e5405").context("no E5405")?;
    let exact = described::from_toml(text)?;
    let speeds = exact.performance.as_ref().context("no speeds")?;
    let geometry = Geometry::of(&exact.machine, speeds)?;
    producers(&exact.machine, &geometry)?;
    println!("| pattern | accesses | million a second |\n|---|--:|--:|");
    for (name, pattern) in [
        ("producer-consumer", Pattern::ProducerConsumer { phase: PHASE }),
        ("stencil", Pattern::Stencil),
        ("ring", Pattern::Ring),
        ("all to all", Pattern::AllToAll),
        ("none", Pattern::None),
    ] {
        let mut mapping = Fixed(in_order());
        let begun = Instant::now();
        let (_, counts) = run(&geometry, pattern, &mut mapping)?;
        let rate = counts.accesses as f64 / begun.elapsed().as_secs_f64() / 1e6;
        println!("| {name} | {} | {rate:.1} |", counts.accesses);
    }
    println!();
    streams::print(&geometry)
}

fn in_order() -> Vec<PuIdx> {
    (0..).map(PuIdx).take(THREADS).collect()
}

fn run(
    geometry: &Geometry,
    pattern: Pattern,
    mapping: &mut dyn ThreadMapping,
) -> anyhow::Result<(Replayed, CoherenceCounts)> {
    let mut caches = Coherent::new(geometry.clone(), Protocol::Mesi, DetectAt::PrivateCache)?;
    let mut program = Synthetic::new(pattern, THREADS, 4 * PHASE);
    let replayed = replay(&mut caches, &mut program, mapping, Timing::default());
    Ok((replayed, caches.counts().clone()))
}

/// A policy with the phases known in advance. Consecutive PUs share an L2.
struct Oracle(u32);

impl Oracle {
    fn places(&self) -> Vec<PuIdx> {
        match (self.0 / (2 * PHASE)) % 2 {
            0 => in_order(),
            _ => [0, 2, 4, 6, 1, 3, 5, 7].map(PuIdx).to_vec(),
        }
    }
}

impl ThreadMapping for Oracle {
    fn first(&mut self) -> Vec<PuIdx> {
        self.places()
    }

    fn decide(&mut self, _new: &Matrix, live: &[TaskId]) -> Option<BTreeMap<TaskId, PuIdx>> {
        self.0 += 1;
        Some(live.iter().copied().zip(self.places()).collect())
    }
}

fn producers(machine: &Machine, geometry: &Geometry) -> anyhow::Result<()> {
    let pattern = Pattern::ProducerConsumer { phase: PHASE };
    let mut rng = SplitMix64::new(1);
    let mut sums = [0.0; 3];
    let mut first = in_order();
    for _ in 0..RANDOM {
        for last in (1..first.len()).rev() {
            first.swap(last, rng.below(last + 1));
        }
        let (replayed, counts) = run(geometry, pattern, &mut Fixed(first.clone()))?;
        for (sum, figure) in sums.iter_mut().zip(figures(&replayed, &counts)) {
            *sum += figure / RANDOM as f64;
        }
    }
    println!(
        "| mapping | time | L2 misses | L2 invalidations | migrations |\n|---|--:|--:|--:|--:|"
    );
    let places = UsableMachine::new(machine, &in_order());
    let mut followed = CommunicationMapping { first, places, pipeline: Pipeline::default() };
    let mut rows: [(&str, &mut dyn ThreadMapping); 3] = [
        ("in order", &mut Fixed(in_order())),
        ("communication", &mut followed),
        ("oracle", &mut Oracle(0)),
    ];
    for (name, mapping) in &mut rows {
        let (replayed, counts) = run(geometry, pattern, *mapping)?;
        let parts = figures(&replayed, &counts);
        let over: Vec<String> = parts
            .iter()
            .zip(sums)
            .map(|(figure, sum)| format!("{:+.1} %", 100.0 * (figure / sum - 1.0)))
            .collect();
        println!("| {name} | {} | {} |", over.join(" | "), replayed.migrations);
    }
    println!();
    Ok(())
}

/// Seconds, misses and invalidations of the second level.
fn figures(replayed: &Replayed, counts: &CoherenceCounts) -> [f64; 3] {
    [replayed.time_ps as f64, counts.misses[1] as f64, counts.invalidations[1] as f64]
}
