//! Validation of speeds against a machine and against physical limits.

use super::{CachePerformance, CorePerformance, LinkPerformance, MemoryPerformance, Performance};
use crate::machine::{CacheKind, Machine};
use crate::units::{BytesPerSecond, Cycles, Nanos};
use std::collections::BTreeSet;
use std::fmt;
use thiserror::Error;

/// Upper limits of figures: ten to a thousand times of anything built. A rejected figure has the
/// wrong unit or decimal point, and arithmetic with accepted figures does not overflow.
mod most {
    pub(super) const CLOCK_HZ: u64 = 100_000_000_000;
    pub(super) const WIDTH: f64 = 64.0;
    pub(super) const THREAD_SETS: u32 = 8;
    pub(super) const PORTS: usize = 32;
    pub(super) const CYCLES: f64 = 10_000.0;
    pub(super) const BYTES_PER_SECOND: f64 = 1e15;
    pub(super) const NANOS: u64 = 1_000_000;
    pub(super) const LINE: u64 = 4096;
}

/// A part of a [`Performance`], by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerformancePart {
    /// All kinds of cores.
    Kinds,
    /// A kind of core.
    Kind(usize),
    /// A unit of a kind of core.
    Unit(usize, usize),
    /// All levels of caches.
    Caches,
    /// A level of caches.
    Cache(usize),
    /// All memory controllers.
    Memories,
    /// A memory controller.
    Memory(usize),
    /// The extra latencies of all pairs of nodes.
    Hops,
    /// A link.
    Link(usize),
}

impl fmt::Display for PerformancePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kinds => write!(f, "kinds"),
            Self::Kind(kind) => write!(f, "kinds[{kind}]"),
            Self::Unit(kind, unit) => write!(f, "kinds[{kind}].units[{unit}]"),
            Self::Caches => write!(f, "caches"),
            Self::Cache(level) => write!(f, "caches[{level}]"),
            Self::Memories => write!(f, "memory"),
            Self::Memory(node) => write!(f, "memory[{node}]"),
            Self::Hops => write!(f, "hops"),
            Self::Link(link) => write!(f, "links[{link}]"),
        }
    }
}

/// A figure that no machine has, or not this machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("performance.{part}{}{field}: expected {expected}, found {found}", if field.is_empty() { "" } else { "." })]
pub struct Impossible {
    /// Part with the figure.
    pub part: PerformancePart,
    /// Name of the figure; empty for the part as a whole.
    pub field: &'static str,
    /// Expected value.
    pub expected: String,
    /// Value found.
    pub found: String,
}

/// An error without its part: field, expected value, value found.
type Refused = (&'static str, String, String);

/// The error for `field`.
fn refuse<T>(
    field: &'static str,
    expected: impl Into<String>,
    found: impl ToString,
) -> Result<T, Refused> {
    Err((field, expected.into(), found.to_string()))
}

/// Adds the part to an error.
fn at(part: PerformancePart) -> impl Fn(Refused) -> Impossible {
    move |(field, expected, found)| Impossible { part, field, expected, found }
}

impl Performance {
    /// Checks that these can be the speeds of `machine`.
    ///
    /// # Errors
    /// [`Impossible`] for the first wrong figure.
    pub fn check(&self, machine: &Machine) -> Result<(), Impossible> {
        // A machine without nodes has one memory.
        let nodes = machine.nodes.len().max(1);
        count(self.kinds.len(), machine.kinds.len(), "kinds")
            .map_err(at(PerformancePart::Kinds))?;
        for (index, kind) in self.kinds.iter().enumerate() {
            kind.check().map_err(at(PerformancePart::Kind(index)))?;
            kind.check_units(index)?;
        }
        self.check_caches(machine)?;
        count(self.memory.len(), nodes, "controllers").map_err(at(PerformancePart::Memories))?;
        for (index, memory) in self.memory.iter().enumerate() {
            memory.check().map_err(at(PerformancePart::Memory(index)))?;
        }
        self.check_hops(nodes).map_err(at(PerformancePart::Hops))?;
        let mut names = BTreeSet::new();
        for (index, link) in self.links.iter().enumerate() {
            link.check(nodes, &mut names).map_err(at(PerformancePart::Link(index)))?;
        }
        Ok(())
    }

    fn check_caches(&self, machine: &Machine) -> Result<(), Impossible> {
        let holds_data = machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction);
        let there: BTreeSet<u8> = holds_data.clone().map(|cache| cache.level).collect();
        let described: Vec<u8> = self.caches.iter().map(|cache| cache.level).collect();
        if there.is_empty() || !there.iter().eq(&described) {
            let there: Vec<u8> = there.into_iter().collect();
            let expected = match &there[..] {
                [] => "a machine with data caches".to_owned(),
                levels => format!("levels {levels:?}, those of the machine's data caches"),
            };
            return refuse("", expected, format!("{described:?}"))
                .map_err(at(PerformancePart::Caches));
        }
        let mut nearer = Cycles(0.0);
        for (index, cache) in self.caches.iter().enumerate() {
            cache.check(nearer).map_err(at(PerformancePart::Cache(index)))?;
            nearer = cache.latency;
            let mut of_level = holds_data.clone().filter(|found| found.level == cache.level);
            // The contention model divides a cache by its size.
            if of_level.any(|cache| cache.size.is_none()) {
                let found = refuse("", "a cache whose size is known", "one without size");
                return found.map_err(at(PerformancePart::Cache(index)));
            }
        }
        Ok(())
    }

    fn check_hops(&self, nodes: usize) -> Result<(), Refused> {
        count(self.hops.len(), nodes, "rows")?;
        for (from, row) in self.hops.iter().enumerate() {
            count(row.len(), nodes, "in every row")?;
            if row[from] != Nanos::ZERO {
                return refuse("", "0 ns from a node to itself", row[from]);
            }
            if let Some(hop) = row.iter().find(|hop| hop.0 > most::NANOS) {
                return refuse("", format!("at most {}", Nanos(most::NANOS)), hop);
            }
        }
        Ok(())
    }
}

impl CorePerformance {
    fn check(&self) -> Result<(), Refused> {
        if !(1..=most::CLOCK_HZ).contains(&self.clock.0) {
            return refuse("clock", "a clock rate above 0 and up to 100 GHz", self.clock);
        }
        // The form of the condition refuses NaN as well.
        if !(self.width > 0.0 && self.width <= most::WIDTH) {
            return refuse("width", format!("above 0 and up to {}", most::WIDTH), self.width);
        }
        if !(1..=most::THREAD_SETS).contains(&self.thread_sets) {
            return refuse("thread_sets", format!("1 to {}", most::THREAD_SETS), self.thread_sets);
        }
        let names: BTreeSet<&str> = self.ports.iter().map(String::as_str).collect();
        if !(1..=most::PORTS).contains(&names.len()) || names.contains("") {
            return refuse("ports", format!("1 to {} names", most::PORTS), names.len());
        }
        if names.len() != self.ports.len() {
            let twice = self
                .ports
                .iter()
                .find(|name| self.ports.iter().filter(|other| other == name).count() > 1);
            return refuse("ports", "every name once", twice.map_or("", String::as_str));
        }
        cycles("branch_miss", self.branch_miss, 0.0)
    }

    fn check_units(&self, kind: usize) -> Result<(), Impossible> {
        for (index, unit) in self.units.iter().enumerate() {
            let part = at(PerformancePart::Unit(kind, index));
            // In 64 bits, since a shift of 32 bits by 32 ports would overflow.
            let beyond = u64::from(unit.ports.0) >> self.ports.len() != 0;
            if unit.ports.is_empty() || beyond {
                let expected = format!("some of the {} ports", self.ports.len());
                return refuse("ports", expected, format!("{:#b}", unit.ports.0)).map_err(part);
            }
            if unit.occupancy.0 <= 0.0 {
                return refuse("occupancy", "above 0 cycles", unit.occupancy).map_err(part);
            }
            cycles("occupancy", unit.occupancy, 0.0).map_err(part)?;
        }
        Ok(())
    }
}

impl CachePerformance {
    fn check(&self, nearer: Cycles) -> Result<(), Refused> {
        if self.latency.0 <= 0.0 {
            return refuse("latency", "above 0 cycles", self.latency);
        }
        // A level is never faster than a nearer one.
        cycles("latency", self.latency, nearer.0)?;
        self.bandwidth.map_or(Ok(()), bandwidth)
    }
}

impl MemoryPerformance {
    fn check(&self) -> Result<(), Refused> {
        if !(1..=most::NANOS).contains(&self.latency.0) {
            let expected = format!("1 ns to {}", Nanos(most::NANOS));
            return refuse("latency", expected, self.latency);
        }
        if !self.line.0.is_power_of_two() || self.line.0 > most::LINE {
            return refuse("line", format!("a power of two up to {} B", most::LINE), self.line);
        }
        bandwidth(self.bandwidth)
    }
}

impl LinkPerformance {
    fn check<'a>(&'a self, nodes: usize, names: &mut BTreeSet<&'a str>) -> Result<(), Refused> {
        if self.name.is_empty() || !names.insert(&self.name) {
            return refuse("name", "a name that no earlier link has", format!("\"{}\"", self.name));
        }
        let ways: BTreeSet<_> = self.crossed_by.iter().collect();
        if ways.is_empty() || ways.len() != self.crossed_by.len() {
            let expected = "pairs of nodes whose accesses cross it, each once";
            return refuse("crossed_by", expected, self.crossed_by.len());
        }
        let wrong =
            self.crossed_by.iter().find(|(from, to)| from == to || *from.max(to) as usize >= nodes);
        if let Some((from, to)) = wrong {
            let expected = format!("two different nodes below {nodes}");
            return refuse("crossed_by", expected, format!("{from}>{to}"));
        }
        bandwidth(self.bandwidth)
    }
}

fn count(found: usize, expected: usize, what: &str) -> Result<(), Refused> {
    if found == expected {
        return Ok(());
    }
    refuse("", format!("{expected} {what}"), found)
}

fn cycles(field: &'static str, found: Cycles, least: f64) -> Result<(), Refused> {
    // NaN fulfils neither condition.
    if found.0 >= least && found.0 <= most::CYCLES {
        return Ok(());
    }
    refuse(field, format!("{least} to {} cycles", most::CYCLES), found)
}

fn bandwidth(found: BytesPerSecond) -> Result<(), Refused> {
    // NaN fulfils neither condition.
    if found.0 > 0.0 && found.0 <= most::BYTES_PER_SECOND {
        return Ok(());
    }
    refuse("bandwidth", "above 0 GB/s and up to 1000000 GB/s", found)
}
