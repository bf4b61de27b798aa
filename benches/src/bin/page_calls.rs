//! What a call of the runtime of `colocate cc` takes that decides to move nothing.
//!
//! `cargo run --release -p colocate-benches --bin page_calls`: nanoseconds, the least of some series, for ranges of several sizes, which
//! were accessed before. That is all that such a call does but for the check whether there is anything to do.

#![allow(clippy::print_stdout)] // a benchmark's result is what it prints

use colocate_benches::cpu_ms;
use colocate_spm_rt::blocks::{self, Worth};
use colocate_spm_rt::costs::MemoryCosts;
use colocate_spm_rt::nodes::NodeTable;
use colocate_spm_rt::sys;
use std::hint::black_box;

/// Calls in a series.
const CALLS: u32 = 100_000;

fn main() {
    let mut nodes = NodeTable::none();
    for node in 0..8 {
        nodes.add(node, format!("{}-{}", node * 8, node * 8 + 7).as_bytes());
    }
    println!("| range | ns a call |\n|---|--:|");
    for (name, size) in
        [("4 KiB", 1_u64 << 12), ("64 KiB", 1 << 16), ("1 MiB", 1 << 20), ("16 MiB", 1 << 24)]
    {
        let calls = CALLS / u32::try_from(size >> 14).unwrap_or(1).max(1) + 10;
        let call = || {
            let here = nodes.here().map_or(0, |(_, node)| node);
            // So little that nothing is ever worth moving.
            blocks::add((1 << 30, (1 << 30) + size), 1, here, sys::second(), &MemoryCosts::ASSUMED)
        };
        let (ms, _) =
            cpu_ms(30, || (0..calls).filter(|_| black_box(call()) == Worth::Moving).count());
        println!("| {name} | {:.0} |", ms * 1e6 / f64::from(calls));
    }
}
