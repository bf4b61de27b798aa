//! Parts of a machine in plain numbers, computed once for the search.

use crate::assumptions::Assumptions;
use crate::cache::RANDOM;
use crate::memory::WAIT;
use crate::smt::SharedResources;
use colocate_machine::performance::{Inclusion, Performance, Replacement};
use colocate_machine::{BytesPerSecond, CacheKind, Machine, PuIdx};

/// Parts of a machine.
#[derive(Debug)]
pub(super) struct SystemParts {
    /// Indexed by PU.
    pub places: Vec<PuPosition>,
    /// Indexed as `Machine::cores`.
    pub cores: Vec<SharedResources>,
    /// Indexed as `Machine::caches`.
    pub caches: Vec<CacheFigures>,
    /// Queues: controllers, then links, then caches with a known bandwidth.
    pub queues: Vec<QueueFigures>,
    /// Number of controllers among the queues.
    pub controllers: usize,
    /// Number of links among the queues.
    pub links: usize,
    /// `ways[from][to]`: route from a core of one node to the memory of another.
    pub ways: Vec<Vec<MemoryRoute>>,
}

/// Position of a PU in the machine.
#[derive(Debug)]
pub(super) struct PuPosition {
    pub core: usize,
    /// Index in `Performance::memory`.
    pub node: usize,
    /// Clock rate, in cycles a second.
    pub clock: f64,
    /// Data caches above the PU, nearest first, by index in `Machine::caches`.
    pub caches: Vec<usize>,
}

/// Figures of a cache.
#[derive(Debug)]
pub(super) struct CacheFigures {
    /// Size in bytes; 0 for an instruction cache.
    pub capacity: f64,
    /// Latency in cycles; 0 for the first level, whose hits cause no stall.
    pub latency: f64,
    pub inclusion: Inclusion,
    /// As [`crate::cache::Sharer::chance`].
    pub chance: f64,
    pub queue: Option<usize>,
}

/// Resource with a queue of accesses.
#[derive(Debug)]
pub(super) struct QueueFigures {
    /// Bandwidth, in bytes a second.
    pub bandwidth: f64,
    /// Scale of the wait, in seconds.
    pub scale: f64,
}

/// Route from a core to memory.
#[derive(Debug)]
pub(super) struct MemoryRoute {
    /// Latency without waits, in seconds.
    pub latency: f64,
    /// Size of a line, in bytes.
    pub line: f64,
    /// Queues on the route: links, and the controller last.
    pub queues: Vec<usize>,
}

/// Misses outstanding at a time when a window is divided into `parts`.
///
/// A miss is outstanding alone or with others in the rest of the window; half a window holds half
/// as many. This is first-order reasoning. Published studies of memory-level parallelism agree on
/// the direction; no figure for divided windows is known to us.
#[must_use]
pub fn parallel(whole: f64, parts: f64) -> f64 {
    1.0 + (whole - 1.0).max(0.0) / parts
}

fn float(number: u64) -> f64 {
    number as f64
}

impl SystemParts {
    /// Parts of a machine with checked figures.
    pub fn new(machine: &Machine, performance: &Performance, assumed: &Assumptions) -> Self {
        let cores = machine.cores.iter();
        let cores =
            cores.map(|core| SharedResources::new(&performance.kinds[core.kind.idx()], assumed));
        let mut parts = Self {
            places: machine.all_pus().map(|pu| place(machine, performance, pu)).collect(),
            cores: cores.collect(),
            caches: Vec::new(),
            queues: Vec::new(),
            controllers: performance.memory.len(),
            links: performance.links.len(),
            ways: Vec::new(),
        };
        parts.add_memory(performance, assumed);
        parts.add_caches(machine, performance, assumed);
        parts
    }

    /// Front-end slots per cycle of a PU's core.
    pub fn width(&self, pu: PuIdx) -> f64 {
        self.cores[self.places[pu.idx()].core].width
    }

    /// Adds a queue with the latency `seconds`; returns its index.
    fn add_queue(
        &mut self,
        bandwidth: BytesPerSecond,
        seconds: f64,
        assumed: &Assumptions,
    ) -> usize {
        let scale = seconds * assumed.latency * assumed.wait * WAIT;
        self.queues.push(QueueFigures { bandwidth: bandwidth.0 * assumed.bandwidth, scale });
        self.queues.len() - 1
    }

    fn add_memory(&mut self, performance: &Performance, assumed: &Assumptions) {
        for node in &performance.memory {
            self.add_queue(node.bandwidth, node.latency.as_secs_f64(), assumed);
        }
        let hops = &performance.hops;
        let nodes = performance.memory.len();
        for hops in hops.iter().take(nodes) {
            let ways = performance.memory.iter().zip(hops).map(|(memory, hop)| MemoryRoute {
                latency: (memory.latency + *hop).as_secs_f64() * assumed.latency,
                line: float(memory.line.0),
                queues: Vec::new(),
            });
            self.ways.push(ways.collect());
        }
        for link in &performance.links {
            let ways = link.crossed_by.iter().map(|&(from, to)| (from as usize, to as usize));
            // The shortest route over the link: longer routes include other links.
            let hop = ways.clone().map(|(from, to)| hops[from][to]).min().unwrap_or_default();
            let queue = self.add_queue(link.bandwidth, hop.as_secs_f64(), assumed);
            for (from, to) in ways {
                self.ways[from][to].queues.push(queue);
            }
        }
        // Last, since a controller comes after all links of a route.
        for to in 0..nodes {
            self.ways.iter_mut().for_each(|from| from[to].queues.push(to));
        }
    }

    fn add_caches(&mut self, machine: &Machine, performance: &Performance, assumed: &Assumptions) {
        let nearest = performance.caches.first().map(|figures| figures.level);
        for cache in &machine.caches {
            let data = cache.kind != CacheKind::Instruction;
            let figures = performance.caches.iter().filter(|_| data);
            let figures = figures.clone().find(|figures| figures.level == cache.level);
            let first = Some(cache.level) == nearest;
            let beyond = figures.filter(|_| !first);
            // Latencies of caches are in cycles of the core's clock, waits in seconds.
            let clock = cache.pus.first().map(|pu| self.places[pu.idx()].clock);
            // A cache above no PU has no users, so that any wait is right.
            let clock = clock.unwrap_or(f64::INFINITY);
            let queue = beyond.and_then(|f| Some((f.bandwidth?, f.latency.0 / clock)));
            let part = CacheFigures {
                // Instruction caches stay in the list: indices are those of `Machine::caches`.
                capacity: cache.size.filter(|_| data).map_or(0.0, |size| float(size.0)),
                latency: beyond.map_or(0.0, |f| f.latency.0 * assumed.latency),
                inclusion: figures.map_or(Inclusion::Neither, |f| f.inclusion),
                chance: figures.map_or(0.0, |f| chance(f.replacement, assumed)),
                queue: queue
                    .map(|(bandwidth, seconds)| self.add_queue(bandwidth, seconds, assumed)),
            };
            self.caches.push(part);
        }
    }
}

fn chance(replacement: Replacement, assumed: &Assumptions) -> f64 {
    match replacement {
        Replacement::Lru => 0.0,
        Replacement::Random => RANDOM,
        Replacement::Adaptive | Replacement::Unknown => assumed.replacement,
    }
}

fn place(machine: &Machine, performance: &Performance, pu: PuIdx) -> PuPosition {
    let core = machine.core_of(pu);
    let found = &machine.cores[core.idx()];
    let over = machine.caches.iter().enumerate();
    let over =
        over.filter(|(_, cache)| cache.kind != CacheKind::Instruction && cache.pus.contains(&pu));
    PuPosition {
        // A machine without nodes has one memory, at index 0.
        core: core.idx(),
        node: found.node.map_or(0, colocate_machine::NodeIdx::idx),
        clock: float(performance.kinds[found.kind.idx()].clock.0),
        caches: over.map(|(cache, _)| cache).collect(),
    }
}
