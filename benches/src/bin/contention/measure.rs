//! Runs threads alone and side by side, and keeps how long they took.

use crate::raw::{Circumstances, Kind, Raw, Times};
use anyhow::{Context, bail, ensure};
use std::process::Command;

/// Seconds of one measurement.
const SECONDS: &str = "0.2";
/// Least share of its CPU for each thread, or the measurement is repeated. The kernel leaves
/// real-time threads 95 %; the host of a virtual machine takes more.
const ENOUGH: f64 = 0.9;
const ATTEMPTS: u32 = 4;

/// Sizes of a stream alone that show the size of the last cache, in MiB.
pub const SIZES: [f64; 11] = [8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0, 64.0, 80.0, 96.0, 512.0];

type Access = (&'static str, f64);

/// Pairs with traffic to memory; streams that fit into the last cache have none.
pub const ON_MEMORY: [(Access, Access); 6] = [
    (("stream", 512.0), ("stream", 512.0)),
    (("write", 512.0), ("write", 512.0)),
    (("chases", 512.0), ("chases", 512.0)),
    (("stream", 512.0), ("chase", 512.0)),
    (("stream", 512.0), ("chase", 4.0)),
    (("stream", 512.0), ("stream", 16.0)),
];

/// Side by side in the last cache.
const IN_CACHE: [(Access, Access); 13] = [
    (("stream", 16.0), ("stream", 16.0)),
    (("stream", 24.0), ("stream", 24.0)),
    (("stream", 32.0), ("stream", 32.0)),
    (("stream", 40.0), ("stream", 40.0)),
    (("stream", 48.0), ("stream", 48.0)),
    (("stream", 64.0), ("stream", 64.0)),
    (("stream", 24.0), ("stream", 512.0)),
    (("stream", 40.0), ("stream", 512.0)),
    (("sweeps", 32.0), ("sweeps", 32.0)),
    (("sweeps", 64.0), ("sweeps", 64.0)),
    (("sweeps", 96.0), ("sweeps", 96.0)),
    (("sweeps", 160.0), ("sweeps", 160.0)),
    (("sweeps", 64.0), ("stream", 512.0)),
];

/// Everything `rounds` times; `memory` is the program.
pub fn measure(memory: &str, rounds: u32) -> anyhow::Result<Raw> {
    let pus = smt_bench::thread::usable()?;
    let [first, .., last] = pus[..] else { bail!("expected two PUs that may be used") };
    let mut bench = Bench { memory, pus: [first, last], least_share: 1.0 };
    let clock_hz = smt_bench::clock::cycles_per_second(20);
    let date = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M"]).output()?.stdout;
    let before = load();
    let mut alone = Vec::new();
    let pairs = ON_MEMORY.iter().chain(&IN_CACHE);
    let pairs = pairs.map(|&(a, b)| [a, b].map(|(name, mib)| (name.to_owned(), mib)));
    let mut beside: Vec<_> = pairs.map(|pair| (pair, <[Times; 2]>::default())).collect();
    for round in 0..rounds {
        eprintln!("contention: round {} of {rounds}", round + 1);
        bench.alone(&mut alone, round)?;
        for (pair, times) in &mut beside {
            let found = bench.run(pair, 0)?;
            times.iter_mut().zip(found).for_each(|(times, found)| times.0.push(found));
        }
    }
    let circumstances = Circumstances {
        version: 1,
        command: format!("contention measure FILE MEMORY {rounds}"),
        processor: processor()?,
        date: String::from_utf8(date)?.trim().to_owned(),
        clock_hz,
        caches_kib: [cache_kib(0)?, cache_kib(2)?, cache_kib(3)?],
        load: [before, load()],
        least_share: bench.least_share,
    };
    Ok(Raw { circumstances, alone, beside })
}

/// Runs the program.
struct Bench<'a> {
    memory: &'a str,
    pus: [u32; 2],
    least_share: f64,
}

impl Bench<'_> {
    /// Nanoseconds a line of concurrent threads, the first on PU `from` of the two; repeated if a
    /// thread had too little of its CPU.
    fn run(&mut self, kinds: &[Kind], from: usize) -> anyhow::Result<Vec<f64>> {
        let mut best = self.once(kinds, from)?;
        for _ in 1..ATTEMPTS {
            if best.1 >= ENOUGH {
                break;
            }
            let again = self.once(kinds, from)?;
            best = if again.1 > best.1 { again } else { best };
        }
        self.least_share = self.least_share.min(best.1);
        Ok(best.0)
    }

    /// Times, and the least share of its CPU of any thread.
    fn once(&self, kinds: &[Kind], from: usize) -> anyhow::Result<(Vec<f64>, f64)> {
        let mut command = Command::new(self.memory);
        command.arg(SECONDS);
        for (place, (kind, mib)) in kinds.iter().enumerate() {
            command.arg(format!("{kind}:{mib}:{}", self.pus[(from + place) % 2]));
        }
        let output = command.output().context("cannot run the program")?;
        ensure!(output.status.success(), "it failed: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let mut times = Vec::new();
        let mut least = 1.0_f64;
        for line in text.lines() {
            let (ns, share) = line.split_once(' ').context("expected two numbers a line")?;
            times.push(ns.parse()?);
            least = least.min(share.parse()?);
        }
        ensure!(times.len() == kinds.len(), "expected a line for each thread, found {text:?}");
        Ok((times, least))
    }

    /// Measures all threads alone, in turn on both PUs.
    fn alone(&mut self, alone: &mut Vec<(Kind, Times)>, round: u32) -> anyhow::Result<()> {
        let of_pairs = ON_MEMORY.iter().chain(&IN_CACHE).flat_map(|(a, b)| [*a, *b]);
        let small = [("stream", 1.0), ("write", 16.0), ("chase", 1.0)];
        for (name, mib) in SIZES.map(|mib| ("stream", mib)).into_iter().chain(small).chain(of_pairs)
        {
            let kind: Kind = (name.to_owned(), mib);
            let known = alone.iter().position(|(other, _)| *other == kind);
            let place = known.unwrap_or_else(|| {
                alone.push((kind.clone(), Times::default()));
                alone.len() - 1
            });
            if alone[place].1.0.len() > round as usize {
                continue;
            }
            // The other PU is kept busy without memory, or whatever else this system runs would be there.
            let found = self.run(&[kind, ("spin".into(), 1.0)], (round % 2) as usize)?;
            alone[place].1.0.extend(found.first());
        }
        Ok(())
    }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

/// Name of the processor by the kernel, with its numbers: a virtual machine may hide the name.
fn processor() -> anyhow::Result<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
    let value = |key: &str| {
        let line = text.lines().find(|line| line.split(':').next().map(str::trim) == Some(key))?;
        Some(line.split_once(':')?.1.trim())
    };
    let of = |key| value(key).unwrap_or("?");
    let name = of("model name");
    let family = of("cpu family");
    let model = of("model");
    Ok(format!("{name}, family {family} model {model}"))
}

/// Size of a cache of the first PU, in KiB, by its place in /sys.
fn cache_kib(place: usize) -> anyhow::Result<u32> {
    let path = format!("/sys/devices/system/cpu/cpu0/cache/index{place}/size");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let number = text.trim().strip_suffix('K').and_then(|number| number.parse().ok());
    number.with_context(|| format!("{path}: expected a size like 48K, found {text:?}"))
}
