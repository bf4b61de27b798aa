//! Two threads that ask one memory and one last cache for lines: what the model expects, beside what they
//! were measured to do here.
//!
//! `contention FILE MEMORY ROUNDS` writes a table in Markdown to FILE. MEMORY is the program made of
//! `workloads/contention/memory.c`; `scripts/contention` makes it.
//!
//! All figures of the machine come from threads that run alone: latencies and the size that the last cache
//! turns out to have. What two threads do to each other is the prediction. The one figure that a single
//! thread cannot show is the bandwidth of the memory; it is [`BANDWIDTH`].
#![allow(clippy::print_stderr)] // says how far it is

use anyhow::{Context, bail, ensure};
use colocate_machine::{Bytes, PuIdx, described, exact};
use colocate_model::{Assumptions, Demand, MissCurve, Model, Seat};
use std::fmt::Write;
use std::process::Command;

/// What eight channels of DDR5-4800 have at most is 307 GB/s (8 × 8 B × 4.8 GHz); four fifths of it are
/// taken to be had, as of the servers in `model::memory`. The processor's name is hidden here; that many
/// channels belong to its caches' sizes.
const BANDWIDTH: &str = "246 GB/s";
/// Size of a line.
const LINE: f64 = 64.0;
const MIB: f64 = 1_048_576.0;
/// Seconds of one measurement.
const SECONDS: &str = "0.2";

/// A thread's doing: how it asks for lines, and over how many MiB.
type Kind = (&'static str, f64);

/// Sizes over which a stream alone shows how large the last cache is, in MiB.
const SIZES: [f64; 11] = [8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0, 64.0, 80.0, 96.0, 512.0];

/// Side by side on the memory; what fits into the last cache leaves it alone.
const ON_MEMORY: [(Kind, Kind); 6] = [
    (("stream", 512.0), ("stream", 512.0)),
    (("write", 512.0), ("write", 512.0)),
    (("chases", 512.0), ("chases", 512.0)),
    (("stream", 512.0), ("chase", 512.0)),
    (("stream", 512.0), ("chase", 4.0)),
    (("stream", 512.0), ("stream", 16.0)),
];

/// Side by side in the last cache.
const IN_CACHE: [(Kind, Kind); 13] = [
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

/// Nanoseconds a line, round by round.
#[derive(Clone, Default)]
struct Times(Vec<f64>);

impl Times {
    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn range(&self) -> (f64, f64) {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        (least, self.0.iter().copied().fold(0.0, f64::max))
    }
}

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, memory, rounds] = &words[..] else {
        bail!("usage: contention FILE MEMORY ROUNDS");
    };
    let rounds: u32 = rounds.parse().context("expected a number of rounds")?;
    let pus = smt_bench::thread::usable()?;
    let [first, .., last] = pus[..] else { bail!("expected two PUs that may be used") };
    let mut bench = Bench { memory, pus: [first, last], least_share: 1.0 };
    let clock = smt_bench::clock::cycles_per_second(20);
    let load_before = load();
    let mut solo = Vec::new();
    let pairs: Vec<(Kind, Kind)> = [&ON_MEMORY[..], &IN_CACHE[..]].concat();
    let mut beside: Vec<[Times; 2]> = vec![<[Times; 2]>::default(); pairs.len()];
    for round in 0..rounds {
        eprintln!("contention: round {} of {rounds}", round + 1);
        bench.alone(&mut solo, round)?;
        for (pair, times) in pairs.iter().zip(&mut beside) {
            let found = bench.run(&[pair.0, pair.1], 0)?;
            times.iter_mut().zip(found).for_each(|(times, found)| times.0.push(found));
        }
    }
    let figures = Figures::of(&solo, clock)?;
    let head = format!(
        "Clock {:.2} GHz; {figures}; load {load_before} before and {} after; each thread had its CPU for at \
         least {:.0} % of the time; medians of {rounds} rounds.\n\n",
        clock / 1e9,
        load(),
        100.0 * bench.least_share
    );
    let (on_memory, in_cache) = beside.split_at(ON_MEMORY.len());
    let mut text = head;
    text += &figures.table("memory", &ON_MEMORY, on_memory, &solo)?;
    text += &figures.table("last cache", &IN_CACHE, in_cache, &solo)?;
    std::fs::write(file, text).with_context(|| file.clone())
}

/// Runs the program.
struct Bench<'a> {
    memory: &'a str,
    pus: [u32; 2],
    /// The least share of its CPU that a thread had.
    least_share: f64,
}

impl Bench<'_> {
    /// Nanoseconds a line of threads that run at the same time, the first on PU `from` of the two.
    fn run(&mut self, kinds: &[Kind], from: usize) -> anyhow::Result<Vec<f64>> {
        let mut command = Command::new(self.memory);
        command.arg(SECONDS);
        for (place, (kind, mib)) in kinds.iter().enumerate() {
            command.arg(format!("{kind}:{mib}:{}", self.pus[(from + place) % 2]));
        }
        let output = command.output().context("cannot run the program")?;
        ensure!(output.status.success(), "it failed: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let mut times = Vec::new();
        for line in text.lines() {
            let (ns, share) = line.split_once(' ').context("expected two numbers a line")?;
            times.push(ns.parse()?);
            self.least_share = self.least_share.min(share.parse()?);
        }
        ensure!(times.len() == kinds.len(), "expected a line for each thread, found {text:?}");
        Ok(times)
    }

    /// Everything that is needed alone, by turns on both PUs.
    fn alone(&mut self, solo: &mut Vec<(Kind, Times)>, round: u32) -> anyhow::Result<()> {
        let of_pairs = ON_MEMORY.iter().chain(&IN_CACHE).flat_map(|(a, b)| [*a, *b]);
        let small = [("stream", 1.0), ("write", 16.0), ("chase", 1.0)];
        for kind in SIZES.map(|mib| ("stream", mib)).into_iter().chain(small).chain(of_pairs) {
            let known = solo.iter().position(|(other, _)| *other == kind);
            let place = known.unwrap_or_else(|| {
                solo.push((kind, Times::default()));
                solo.len() - 1
            });
            if solo[place].1.0.len() > round as usize {
                continue;
            }
            let found = self.run(&[kind], (round % 2) as usize)?;
            solo[place].1.0.extend(found);
        }
        Ok(())
    }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

/// What threads alone show of the machine, in nanoseconds and MiB.
struct Figures {
    clock: f64,
    second: f64,
    last: f64,
    memory: f64,
    last_mib: f64,
    /// For each way to ask: cycles without waiting for lines, lines at a time, and stalls where the
    /// address translation is not at hand.
    ways: Vec<(Kind, f64, f64, f64)>,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { second, last, memory, last_mib, .. } = self;
        write!(
            f,
            "from threads alone: second cache {second:.1} ns, last cache {last:.0} ns and {last_mib:.0} MiB, \
             memory {memory:.0} ns"
        )
    }
}

impl Figures {
    fn of(solo: &[(Kind, Times)], clock: f64) -> anyhow::Result<Self> {
        let at = |kind: &str, mib: f64| -> anyhow::Result<f64> {
            let found =
                solo.iter().find(|((name, size), _)| *name == kind && (size - mib).abs() < 1e-9);
            Ok(found.with_context(|| format!("no {kind} of {mib} MiB"))?.1.median())
        };
        let (second, last) = (at("chase", 1.0)?, at("chase", 4.0)?);
        // A stream does not wait for address translation; its lines at a time come of the last cache.
        let (busy, near, far) = (at("stream", 1.0)?, at("stream", 16.0)?, at("stream", 512.0)?);
        let together = last / (near - busy);
        let memory = (far - busy) * together;
        let (near, far) = (at("write", 16.0)?, at("write", 512.0)?);
        let writes_together = (memory - last) / (far - near);
        let writes_busy = (near - last / writes_together).max(0.0);
        let ways = vec![
            (("stream", 512.0), busy, together, 0.0),
            (("write", 512.0), writes_busy, writes_together, 0.0),
            (("chase", 4.0), 0.0, 1.0, 0.0),
            (("chase", 512.0), 0.0, 1.0, (at("chase", 512.0)? - memory).max(0.0)),
            (("chases", 512.0), 0.0, 8.0, (at("chases", 512.0)? - memory / 8.0).max(0.0)),
        ];
        let last_mib = half_way(|mib| at("stream", mib))?;
        Ok(Self { clock, second, last, memory, last_mib, ways })
    }

    /// The machine in the words of a described one, with a last cache of `last_mib`.
    fn machine(&self, last_mib: f64) -> anyhow::Result<exact::Exact> {
        let cycles = |ns: f64| ns * 1e-9 * self.clock;
        let (first_kib, second_kib) = (cache_kib(0)?, cache_kib(2)?);
        let last_kib = (last_mib * 1024.0).round();
        let text = format!(
            r#"
version = 1
name = "this machine"
processor = {{ value = "this one", source = "measured" }}
[shape]
packages = {{ value = 1, source = "measured" }}
cores-per-package = {{ value = 2, source = "measured" }}
pus-per-core = {{ value = 1, source = "measured" }}
nodes = {{ value = 1, source = "measured" }}
[numbering]
pus = {{ value = "in-order", source = "measured" }}
[[cache]]
level = 1
kind = "data"
size = {{ value = "{first_kib} KiB", source = "/sys" }}
cores = {{ value = 1, source = "/sys" }}
[[cache]]
level = 2
kind = "unified"
size = {{ value = "{second_kib} KiB", source = "/sys" }}
cores = {{ value = 1, source = "/sys" }}
[[cache]]
level = 3
kind = "unified"
size = {{ value = "{last_kib} KiB", source = "see the program" }}
cores = {{ value = 2, source = "/sys" }}
[[kind]]
name = "core"
max-frequency = {{ value = "{clock:.6} GHz", source = "measured" }}
[[performance.kind]]
clock = {{ value = "{clock:.6} GHz", source = "measured" }}
slots-per-cycle = {{ value = 6, source = "does not matter here" }}
branch-miss = {{ value = "17 cycles", source = "does not matter here" }}
divided = {{ value = false, source = "no siblings" }}
ports = {{ value = ["p"], source = "does not matter here" }}
units = [{{ work = "load", ports = ["p"], source = "does not matter here" }}]
[[performance.cache]]
level = 1
latency = {{ value = "5 cycles", source = "does not matter here" }}
[[performance.cache]]
level = 2
latency = {{ value = "{second:.3} cycles", source = "measured alone" }}
inclusion = {{ value = "neither", source = "assumed" }}
[[performance.cache]]
level = 3
latency = {{ value = "{last:.3} cycles", source = "measured alone" }}
inclusion = {{ value = "neither", source = "assumed" }}
[[performance.memory]]
latency = {{ value = "{memory:.0} ns", source = "measured alone" }}
bandwidth = {{ value = "{BANDWIDTH}", source = "see the program" }}
line = {{ value = "64 B", source = "/sys" }}
"#,
            clock = self.clock / 1e9,
            second = cycles(self.second),
            last = cycles(self.last),
            memory = self.memory,
        );
        described::from_toml(&text).context("the figures make no machine")
    }

    /// What was measured of `pairs`, and what was expected with a last cache as large as threads alone
    /// show, and as large as the system says.
    fn table(
        &self,
        what: &str,
        pairs: &[(Kind, Kind)],
        beside: &[[Times; 2]],
        solo: &[(Kind, Times)],
    ) -> anyhow::Result<String> {
        let says_mib = f64::from(cache_kib(3)?) / 1024.0;
        let machines = [self.machine(self.last_mib)?, self.machine(says_mib)?];
        let mut models = Vec::new();
        for exact in &machines {
            let performance = exact.performance.as_ref().context("no figures")?;
            models.push(Model::new(&exact.machine, performance, Assumptions::default())?);
        }
        let mut text = format!(
            "| thread | beside | ns a line alone | beside the other | least to most | slow-down | \
             predicted alone; slow-down, {:.0} MiB | the same, {says_mib:.0} MiB |\n|---|---|---|---|---|---|---|---|\n",
            self.last_mib
        );
        let mut errors = [Vec::new(), Vec::new(), Vec::new()];
        for (&(first, second), times) in pairs.iter().zip(beside) {
            for (one, other, place) in [(first, second, 0), (second, first, 1)] {
                if place == 1 && first == second {
                    continue;
                }
                let known = solo.iter().find(|(kind, _)| *kind == one);
                let alone = known.context("not measured alone")?.1.median();
                // Two of a kind are one line: both threads' times.
                let all = if first == second {
                    Times([&times[0].0[..], &times[1].0[..]].concat())
                } else {
                    times[place].clone()
                };
                let slower = all.median() / alone;
                let (least, most) = all.range();
                let _ = write!(
                    text,
                    "| {} | {} | {alone:.2} | {:.2} | {least:.2} to {most:.2} | {slower:.2} |",
                    named(one),
                    named(other),
                    all.median()
                );
                let demands = [self.demand(one)?, self.demand(other)?];
                for (model, errors) in models.iter().zip(&mut errors) {
                    let alone = predicted(model, &[&demands[0]])[0];
                    let expected = predicted(model, &[&demands[0], &demands[1]])[0] / alone;
                    let error = expected / slower - 1.0;
                    errors.push(error.abs());
                    let _ = write!(text, " {alone:.2}; {expected:.2} ({:+.0} %) |", 100.0 * error);
                }
                text.push('\n');
                errors[2].push((1.0 / slower - 1.0).abs());
            }
        }
        let _ = writeln!(
            text,
            "\nMean error of the slow-down by the {what}: {:.1} % and {:.1} %; of \"nobody is slowed down\" \
             {:.1} %.\n",
            mean(&errors[0]),
            mean(&errors[1]),
            mean(&errors[2])
        );
        Ok(text)
    }

    /// What one line asks for.
    fn demand(&self, (kind, mib): Kind) -> anyhow::Result<Demand> {
        let asks = if kind == "sweeps" { "stream" } else { kind };
        let way = self.ways.iter().filter(|((name, _), ..)| *name == asks);
        let way = way.min_by(|a, b| (a.0.1 - mib).abs().total_cmp(&(b.0.1 - mib).abs()));
        let (_, busy, together, stall) = way.with_context(|| format!("no figures for {kind}"))?;
        let cycles = |ns: f64| ns * 1e-9 * self.clock;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole bytes
        let size = |bytes: f64| Bytes(bytes as u64);
        let all = mib * MIB;
        // Round and round over all lines: a cache that is smaller, if by one, has none in time. Sweeps of
        // random length: the lines used since are as many as the last sweep over this line was long.
        let points = if kind == "sweeps" {
            let point = |part: u32| (size(LINE + all * f64::from(part) / 64.0), part);
            let misses =
                |(size, part): (Bytes, u32)| (size, 1.0 - (f64::from(part) / 64.0).powi(2));
            (0..=64).map(point).map(misses).collect()
        } else {
            vec![(size(LINE), 1.0), (size(all - LINE), 1.0), (size(all), 0.0)]
        };
        let misses = MissCurve::new(points);
        Ok(Demand {
            slots: 1e-3,
            ports: Vec::new(),
            dependent_cycles: cycles(*busy),
            dependent_cycles_divided: cycles(*busy),
            stall_cycles: cycles(*stall),
            misses: misses.map_err(anyhow::Error::msg)?,
            parallel_misses: together.max(1.0),
            written_back: if kind == "write" { 1.0 } else { 0.0 },
            shared_lines: 0.0,
        })
    }
}

/// Size of a cache of the first PU, in KiB, by its place in /sys.
fn cache_kib(place: usize) -> anyhow::Result<u32> {
    let path = format!("/sys/devices/system/cpu/cpu0/cache/index{place}/size");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let number = text.trim().strip_suffix('K').and_then(|number| number.parse().ok());
    number.with_context(|| format!("{path}: expected a size like 48K, found {text:?}"))
}

/// The size at which a stream is half-way between the last cache and memory.
fn half_way(at: impl Fn(f64) -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let half = f64::midpoint(at(16.0)?, at(512.0)?);
    let mut before = (0.0, 0.0);
    for mib in SIZES {
        let time = at(mib)?;
        if time >= half {
            let ((from, low), (to, high)) = (before, (mib, time));
            return Ok(from + (to - from) * (half - low) / (high - low));
        }
        before = (mib, time);
    }
    bail!("the last cache has no end")
}

/// Nanoseconds a line that the model expects of threads that run at the same time.
fn predicted(model: &Model<'_>, demands: &[&Demand]) -> Vec<f64> {
    let seats: Vec<Seat<'_>> = demands
        .iter()
        .enumerate()
        .zip(0..)
        .map(|((place, demand), space)| Seat {
            pu: PuIdx::new(place),
            demand,
            pages: &[1.0],
            space,
        })
        .collect();
    let rates = model.predict(&seats, None);
    rates.tasks.iter().map(|task| 1e9 / task.instructions_per_second).collect()
}

#[allow(clippy::cast_precision_loss)] // dozens
fn mean(all: &[f64]) -> f64 {
    100.0 * all.iter().sum::<f64>() / all.len().max(1) as f64
}

fn named((kind, mib): Kind) -> String {
    format!("{kind} {mib} MiB")
}
