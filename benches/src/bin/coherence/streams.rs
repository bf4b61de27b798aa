//! Streams of memory accesses by one thread, simulated, and as a real program under Valgrind's
//! cachegrind with caches of the same size.
//!
//! Time under cachegrind includes the program's own accesses: a pointer chase waits for each. The
//! simulator reads the addresses of the same order from an array.

use anyhow::Context;
use colocate_machine::PuIdx;
use colocate_model::rng::SplitMix64;
use colocate_sim::coherent::replay::MemoryAccess;
use colocate_sim::coherent::{Coherent, DetectAt, Geometry, Protocol};
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// First argument of the program that only makes the accesses of a stream.
pub const ONLY: &str = "--only-stream";
/// Accesses of a stream.
const ACCESSES: usize = 1 << 24;
/// Numbers of 8 bytes in a line.
const LINE: usize = 8;
/// Rounds of each measurement; the median counts.
const ROUNDS: usize = 3;

/// A stream of reads of 8 bytes.
#[derive(Clone, Copy, Debug)]
struct Stream {
    name: &'static str,
    /// Numbers of 8 bytes in the memory read.
    numbers: usize,
    /// One number of each line in random order, each address read from the line before; else all
    /// numbers in order.
    is_chase: bool,
}

const STREAMS: [Stream; 3] = [
    Stream { name: "sum of 64 MiB in order", numbers: 8 << 20, is_chase: false },
    Stream { name: "pointer chase over 64 MiB", numbers: 8 << 20, is_chase: true },
    Stream { name: "sum of 16 KiB in order", numbers: 2 << 10, is_chase: false },
];

/// A measured stream.
#[derive(Clone, Copy, Debug)]
struct Measured {
    seconds: f64,
    accesses: f64,
    /// Misses of the nearest cache.
    misses: f64,
}

impl Measured {
    fn million_a_second(self) -> f64 {
        self.accesses / self.seconds / 1e6
    }
}

impl Stream {
    /// The number read after each number: lines in the order of one random cycle through all.
    fn cycle(self) -> Vec<usize> {
        let lines = self.numbers / LINE;
        let mut next: Vec<usize> = (0..lines).collect();
        let mut rng = SplitMix64::new(1);
        // Sattolo's shuffle: a permutation of one cycle.
        for last in (1..lines).rev() {
            next.swap(last, rng.below(last));
        }
        next
    }

    /// Reads of a pass, in their order.
    fn order(self) -> Vec<MemoryAccess> {
        let next = if self.is_chase { self.cycle() } else { Vec::new() };
        let mut at = 0;
        let reads = if self.is_chase { next.len() } else { self.numbers };
        let order = (0..reads).map(|read| {
            let number = if self.is_chase { at * LINE } else { read };
            at = next.get(at).copied().unwrap_or(0);
            MemoryAccess { address: number as u64 * 8, instructions: 0, writes: false }
        });
        order.collect()
    }

    /// Reads this many numbers of real memory.
    fn read(self, accesses: usize) {
        let mut memory = Vec::new();
        memory.resize_with(self.numbers, || AtomicU64::new(0));
        if !self.is_chase {
            for _ in 0..accesses / self.numbers {
                let sum = memory.iter().fold(0, |sum: u64, it| sum.wrapping_add(it.load(Relaxed)));
                black_box(sum);
            }
            return;
        }
        for (line, next) in self.cycle().into_iter().enumerate() {
            memory[line * LINE] = AtomicU64::new((next * LINE) as u64);
        }
        let mut at = 0;
        for _ in 0..accesses {
            at = usize::try_from(memory[at].load(Relaxed)).unwrap_or(0);
        }
        black_box(at);
    }

    fn simulated(self, geometry: &Geometry) -> anyhow::Result<Measured> {
        let order = self.order();
        let mut caches = Coherent::new(geometry.clone(), Protocol::Mesi, DetectAt::PrivateCache)?;
        let begun = Instant::now();
        let mut time = 0;
        for _ in 0..ACCESSES / order.len() {
            caches.run(PuIdx(0), &order, &mut time, u64::MAX, 0);
        }
        black_box(time);
        let seconds = begun.elapsed().as_secs_f64();
        let counts = caches.counts();
        Ok(Measured { seconds, accesses: counts.accesses as f64, misses: counts.misses[0] as f64 })
    }

    /// The accesses of the real program beyond those of a run without reads.
    fn under_cachegrind(self, geometry: &Geometry) -> anyhow::Result<Measured> {
        let empty = cachegrind(geometry, self.name, 0)?;
        let full = cachegrind(geometry, self.name, ACCESSES)?;
        Ok(Measured {
            seconds: full.seconds - empty.seconds,
            accesses: full.accesses - empty.accesses,
            misses: full.misses - empty.misses,
        })
    }
}

/// Runs this program under cachegrind, with the caches of PU 0.
fn cachegrind(geometry: &Geometry, name: &str, accesses: usize) -> anyhow::Result<Measured> {
    let path = geometry.path(PuIdx(0));
    let cache = |level: &str, index: usize| {
        let shape = &geometry.caches[index];
        let bytes = shape.sets * shape.ways * geometry.line;
        format!("--{level}={bytes},{},{}", shape.ways, geometry.line)
    };
    let begun = Instant::now();
    let run = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"])
        .args([cache("D1", path[0]), cache("LL", path[path.len() - 1])])
        .arg(std::env::current_exe()?)
        .args([ONLY, name, &accesses.to_string()])
        .output()?;
    let seconds = begun.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&run.stderr);
    anyhow::ensure!(run.status.success(), "valgrind: {said}");
    // A line is as `==1== D   refs:       1,024  (512 rd   + 512 wr)`.
    let figure = |title: &str| {
        let line = said.lines().find_map(|line| line.split_once(title));
        let figure = line.and_then(|(_, figures)| figures.split_whitespace().next());
        let figure = figure.and_then(|figure| figure.replace(',', "").parse().ok());
        figure.with_context(|| format!("valgrind printed no {title}: {said}"))
    };
    Ok(Measured { seconds, accesses: figure("D   refs:")?, misses: figure("D1  misses:")? })
}

/// Makes only the accesses of a stream, by its name and their number.
pub fn only(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let name = arguments.next().context("no stream")?;
    let stream = STREAMS.iter().find(|stream| stream.name == name).context("unknown stream")?;
    stream.read(arguments.next().context("no accesses")?.parse()?);
    Ok(())
}

/// Prints how fast each stream is simulated, and by cachegrind if that is installed.
pub fn print(geometry: &Geometry) -> anyhow::Result<()> {
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    println!(
        "| stream | accesses | L1 misses | million a second | cachegrind: accesses | L1 misses | million a second | ratio |\n|---|--:|--:|--:|--:|--:|--:|--:|"
    );
    for stream in STREAMS {
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        for _ in 0..ROUNDS {
            ours.push(stream.simulated(geometry)?);
            if has_valgrind {
                theirs.push(stream.under_cachegrind(geometry)?);
            }
        }
        let ours = median(ours).context("no rounds")?;
        print!("| {} | {} |", stream.name, columns(ours));
        match median(theirs) {
            Some(theirs) => {
                let ratio = ours.million_a_second() / theirs.million_a_second();
                println!(" {} | {ratio:.2} |", columns(theirs));
            }
            None => println!(" | | | |"),
        }
    }
    Ok(())
}

fn columns(measured: Measured) -> String {
    let Measured { accesses, misses, .. } = measured;
    format!("{accesses} | {misses} | {:.1}", measured.million_a_second())
}

/// The measurement of median rate; `None` without measurements.
fn median(mut measured: Vec<Measured>) -> Option<Measured> {
    measured.sort_by(|a, b| a.million_a_second().total_cmp(&b.million_a_second()));
    measured.get(measured.len() / 2).copied()
}
