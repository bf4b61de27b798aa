//! What threads alone show of the machine, as a described one, and of the demands of its threads.

use crate::measure::SIZES;
use crate::raw::{Kind, Raw};
use anyhow::{Context, bail};
use colocate_machine::{Bytes, described, exact};
use colocate_model::{Demand, MissCurve};

/// Bandwidth of memory. Eight channels of DDR5-4800 have at most 307 GB/s (8 × 8 B × 4.8 GHz); four
/// fifths are assumed usable, as for the servers in `model::memory`. The processor's name is hidden
/// here; the number of channels fits the sizes of its caches.
const BANDWIDTH: &str = "246 GB/s";
/// Size of a line.
pub const LINE: f64 = 64.0;
const MIB: f64 = 1_048_576.0;

/// Figures of threads alone, in nanoseconds and MiB.
pub struct Figures {
    pub clock: f64,
    caches_kib: [u32; 3],
    pub second: f64,
    pub last: f64,
    pub memory: f64,
    /// Over how many MiB a stream is half-way between the last cache and memory, and its time then.
    pub half_way: (f64, f64),
    /// For each kind of access: cycles without waiting for lines, lines at a time, and stalls where the
    /// address translation is not at hand.
    ways: Vec<((&'static str, f64), f64, f64, f64)>,
}

impl Figures {
    pub fn of(raw: &Raw) -> anyhow::Result<Self> {
        let at = |kind: &str, mib: f64| raw.alone(kind, mib);
        let second = at("chase", 1.0)?;
        let last = at("chase", 4.0)?;
        // A stream does not wait for address translation; its lines at a time come of the last cache.
        let busy = at("stream", 1.0)?;
        let near = at("stream", 16.0)?;
        let far = at("stream", 512.0)?;
        let together = last / (near - busy);
        let memory = (far - busy) * together;
        let near = at("write", 16.0)?;
        let far = at("write", 512.0)?;
        let writes_together = (memory - last) / (far - near);
        let writes_busy = (near - last / writes_together).max(0.0);
        let ways = vec![
            (("stream", 512.0), busy, together, 0.0),
            (("write", 512.0), writes_busy, writes_together, 0.0),
            (("chase", 4.0), 0.0, 1.0, 0.0),
            (("chase", 512.0), 0.0, 1.0, (at("chase", 512.0)? - memory).max(0.0)),
            (("chases", 512.0), 0.0, 8.0, (at("chases", 512.0)? - memory / 8.0).max(0.0)),
        ];
        let half_way = half_way(|mib| at("stream", mib))?;
        let clock = raw.circumstances.clock_hz;
        let caches_kib = raw.circumstances.caches_kib;
        Ok(Self { clock, caches_kib, second, last, memory, half_way, ways })
    }

    /// Size of the last cache, as the system says.
    pub fn says_mib(&self) -> f64 {
        f64::from(self.caches_kib[2]) / 1024.0
    }

    /// The machine with a last cache of `last_mib`, and a third core, for other users of the cache.
    pub fn machine(&self, last_mib: f64) -> anyhow::Result<exact::Exact> {
        let cycles = |ns: f64| ns * 1e-9 * self.clock;
        let [first_kib, second_kib, _] = self.caches_kib;
        let last_kib = (last_mib * 1024.0).round();
        let text = format!(
            r#"
version = 1
name = "this machine"
processor = {{ value = "this one", source = "measured" }}
[shape]
packages = {{ value = 1, source = "measured" }}
cores-per-package = {{ value = 3, source = "two of ours, one of others" }}
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
cores = {{ value = 3, source = "/sys" }}
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
replacement = {{ value = "adaptive", source = "Intel's last caches since Ivy Bridge, see docs/method/memory-model.md" }}
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

    /// Demand of one line.
    pub fn demand(&self, (kind, mib): &Kind) -> anyhow::Result<Demand> {
        let access = if kind == "sweeps" { "stream" } else { kind };
        let way = self.ways.iter().filter(|((name, _), ..)| *name == access);
        let way = way.min_by(|a, b| (a.0.1 - mib).abs().total_cmp(&(b.0.1 - mib).abs()));
        let (_, busy, together, stall) = way.with_context(|| format!("no figures for {kind}"))?;
        let cycles = |ns: f64| ns * 1e-9 * self.clock;
        Ok(Demand {
            stall_cycles: cycles(*stall),
            parallel_misses: together.max(1.0),
            written_back: if kind == "write" { 1.0 } else { 0.0 },
            ..lines(cycles(*busy), curve(kind, mib * MIB)?)
        })
    }
}

/// An instruction for every requested line.
pub fn lines(busy_cycles: f64, misses: MissCurve) -> Demand {
    Demand {
        slots: 1e-3,
        ports: Vec::new(),
        dependent_cycles: busy_cycles,
        dependent_cycles_divided: busy_cycles,
        stall_cycles: 0.0,
        misses,
        parallel_misses: 1.0,
        written_back: 0.0,
        shared_lines: 0.0,
    }
}

/// Miss curve of an access pattern. Circular over all lines: a smaller cache holds no line until
/// its next use. Sweeps of random length: the lines used since the last use are as many as the last
/// sweep over the line was long.
fn curve(kind: &str, all: f64) -> anyhow::Result<MissCurve> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole bytes
    let size = |bytes: f64| Bytes(bytes as u64);
    let points = if kind == "sweeps" {
        let parts = (0..=64_u32).map(|part| f64::from(part) / 64.0);
        parts.map(|part| (size(LINE + all * part), 1.0 - part.powi(2))).collect()
    } else {
        vec![(size(LINE), 1.0), (size(all - LINE), 1.0), (size(all), 0.0)]
    };
    MissCurve::new(points).map_err(anyhow::Error::msg)
}

/// Size at which the time of a stream is half-way between the last cache and memory, and the time
/// there.
fn half_way(at: impl Fn(f64) -> anyhow::Result<f64>) -> anyhow::Result<(f64, f64)> {
    let half = f64::midpoint(at(16.0)?, at(512.0)?);
    let mut before = (0.0, 0.0);
    for mib in SIZES {
        let time = at(mib)?;
        if time >= half {
            let ((from, low), (to, high)) = (before, (mib, time));
            return Ok((from + (to - from) * (half - low) / (high - low), half));
        }
        before = (mib, time);
    }
    bail!("the last cache has no end")
}
