//! Reads and takes apart all code of a file, as sampling does with what it hits, and says what that costs:
//! `cargo run --release -p colocate-observe --example code -- FILE [FUNCTIONS]`

#![allow(clippy::print_stdout)] // its figures are for the caller

use colocate_isa::Decoder;
use colocate_observe::sample::budget::StepBudget;
use colocate_observe::sample::file::CodeFile;
use colocate_observe::sample::flow::Graph;
use colocate_observe::sample::image::Image;
use colocate_observe::sample::rates::rates;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

/// More steps than any file takes.
const PLENTY: u64 = 1 << 60;

fn peak_kb() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap_or("?").trim().to_owned()
}

fn main() {
    let mut words = std::env::args().skip(1);
    let path = words.next().expect("usage: code FILE [FUNCTIONS]");
    let most = words.next().and_then(|word| word.parse().ok()).unwrap_or(usize::MAX);
    let begun = Instant::now();
    let file = CodeFile { path: path.into(), id: None }.open().expect("a plain file");
    let mut budget = StepBudget::of(PLENTY);
    let Some(image) = Image::of(file, &mut budget) else { return println!("unreadable") };
    let steps = PLENTY - budget.left();
    println!(
        "tables: {:?}, {steps} steps, {} functions, peak {}",
        begun.elapsed(),
        image.tables.functions.len(),
        peak_kb()
    );
    let mut hash = DefaultHasher::new();
    let (begun, mut instructions, mut largest, mut unread) = (Instant::now(), 0, (0, 0), 0);
    let mut budget = StepBudget::of(PLENTY);
    for function in image.tables.functions.iter().take(most) {
        function.hash(&mut hash);
        let before = budget.left();
        let bytes = image.bytes(function.clone());
        let code: Vec<_> = Decoder::new(image.tables.isa, &bytes, function.start).collect();
        instructions += code.len();
        let Some(graph) = Graph::of(&code, &BTreeSet::new(), &mut budget) else {
            unread += 1;
            continue;
        };
        for block in &graph.blocks {
            let header = block.innermost.map(|of| graph.blocks[graph.loops[of].header].start);
            (block.start, block.end, header).hash(&mut hash);
        }
        let hits: Vec<u64> = (0..graph.blocks.len() as u64).map(|place| place * 7 % 31).collect();
        match rates(&graph, &hits, &mut budget) {
            Some(rates) => rates.iter().for_each(|rate| rate.to_bits().hash(&mut hash)),
            None => unread += 1,
        }
        largest = largest.max((before - budget.left(), code.len()));
    }
    println!(
        "code: {:?}, {} steps, {instructions} instructions, largest function {} steps of {} instructions, {unread} unread, \
         peak {}, hash {:x}",
        begun.elapsed(),
        PLENTY - budget.left(),
        largest.0,
        largest.1,
        peak_kb(),
        hash.finish()
    );
}
