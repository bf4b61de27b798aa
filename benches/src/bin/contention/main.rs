//! Two threads that request lines of one memory and one last cache: what they were measured to do to each other,
//! and what the model expects.
//!
//! `contention measure RAW MEMORY ROUNDS` measures and writes all times to RAW. MEMORY is the program made of
//! `workloads/contention/memory.c`: `cc -O2 -pthread -o MEMORY workloads/contention/memory.c`. A round takes 15 seconds, two PUs and
//! 1.1 GiB of memory; as root the threads run before all other programs. `contention predict RAW FILE` reads them
//! and writes tables in Markdown to FILE, with what the model says today.
//!
//! All figures of the machine come from threads that run alone: latencies, and over how much a stream is
//! half-way to memory. That has more than one explanation, so there is more than one prediction: the last cache
//! may be smaller than the system says, or others may use it, too; and which lines it gives up is not known.
//! What two threads do to each other is the prediction. The one figure that a single thread cannot show is the
//! bandwidth of the memory; see `machine`.
#![allow(clippy::print_stderr)] // says how far it is

mod machine;
mod measure;
mod predict;
mod raw;

use anyhow::{Context, bail};

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["measure", file, memory, rounds] => {
            let rounds = rounds.parse().context("expected a number of rounds")?;
            let text = measure::measure(memory, rounds)?.text()?;
            std::fs::write(file, text).with_context(|| file.to_owned())
        }
        ["predict", raw, file] => {
            let text = std::fs::read_to_string(raw).with_context(|| raw.to_owned())?;
            let read = raw::Raw::read(&text).with_context(|| raw.to_owned())?;
            std::fs::write(file, predict::tables(&read)?).with_context(|| file.to_owned())
        }
        _ => bail!("usage: contention measure RAW MEMORY ROUNDS, or contention predict RAW FILE"),
    }
}
