//! A machine's parts in plain numbers: what the search needs of them, found out once.

use crate::assumptions::Assumptions;
use crate::cache::RANDOM;
use crate::memory::WAIT;
use crate::smt::Shared;
use colocate_machine::performance::{CachePerformance, Inclusion, Performance, Replacement};
use colocate_machine::{BytesPerSecond, CacheKind, Machine, PuIdx};

/// The parts.
#[derive(Debug)]
pub(super) struct Parts {
    /// By PU.
    pub places: Vec<Place>,
    /// By place in `Machine::cores`.
    pub cores: Vec<Shared>,
    /// By place in `Machine::caches`.
    pub caches: Vec<Cache>,
    /// What can be waited for: controllers, then links, then caches whose bandwidth is known.
    pub queues: Vec<Queue>,
    /// Of the queues, how many are controllers and how many are links.
    pub controllers: usize,
    pub links: usize,
    /// `ways[from][to]`: how memory of one node is reached from a core of another.
    pub ways: Vec<Vec<Way>>,
}

/// A PU's surroundings.
#[derive(Debug)]
pub(super) struct Place {
    pub core: usize,
    /// Place in `Performance::memory`.
    pub node: usize,
    /// Cycles a second.
    pub clock: f64,
    /// Data caches over it, nearest first, by place in `Machine::caches`.
    pub caches: Vec<usize>,
}

/// A cache.
#[derive(Debug)]
pub(super) struct Cache {
    /// Bytes.
    pub capacity: f64,
    /// Cycles; 0 for one of the first level, whose hits stall nothing.
    pub latency: f64,
    pub inclusion: Inclusion,
    /// As [`crate::cache::Sharer::chance`].
    pub chance: f64,
    pub queue: Option<usize>,
}

/// What can be waited for.
#[derive(Debug)]
pub(super) struct Queue {
    /// Bytes a second.
    pub bandwidth: f64,
    /// Scale of the wait, in seconds.
    pub scale: f64,
}

/// The way from a core to memory.
#[derive(Debug)]
pub(super) struct Way {
    /// Seconds of an access that waits for no other.
    pub latency: f64,
    /// Bytes of a line.
    pub line: f64,
    /// Queues that it passes: links, and the controller last.
    pub queues: Vec<usize>,
}

/// Misses under way at a time when a window is divided into `parts`.
///
/// A miss is under way alone or with those that the rest of the window holds; half a window holds half as
/// many of them. First-order reasoning; published studies of memory-level parallelism agree on its
/// direction, and we know of no figure for divided windows.
#[must_use]
pub fn parallel(whole: f64, parts: f64) -> f64 {
    1.0 + (whole - 1.0).max(0.0) / parts
}

#[allow(clippy::cast_precision_loss)] // sizes and clock rates are far below 2^53
fn float(number: u64) -> f64 {
    number as f64
}

impl Parts {
    /// Those of a machine whose figures have been checked.
    pub fn new(machine: &Machine, performance: &Performance, assumed: &Assumptions) -> Self {
        let place = |pu| place(machine, performance, pu);
        let core = |core: &colocate_machine::Core| {
            Shared::new(&performance.kinds[core.kind.idx()], assumed)
        };
        let mut parts = Self {
            places: machine.all_pus().map(place).collect(),
            cores: machine.cores.iter().map(core).collect(),
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

    /// Front-end slots a cycle of a PU's core.
    pub fn width(&self, pu: PuIdx) -> f64 {
        self.cores[self.places[pu.idx()].core].width
    }

    fn add_queue(
        &mut self,
        bandwidth: BytesPerSecond,
        seconds: f64,
        assumed: &Assumptions,
    ) -> usize {
        let scale = seconds * assumed.latency * assumed.wait * WAIT;
        self.queues.push(Queue { bandwidth: bandwidth.0 * assumed.bandwidth, scale });
        self.queues.len() - 1
    }

    fn add_memory(&mut self, performance: &Performance, assumed: &Assumptions) {
        for node in &performance.memory {
            self.add_queue(node.bandwidth, node.latency.as_secs_f64(), assumed);
        }
        let hops = &performance.hops;
        let way = |from: usize, to: usize| Way {
            latency: (performance.memory[to].latency + hops[from][to]).as_secs_f64()
                * assumed.latency,
            line: float(performance.memory[to].line.0),
            queues: Vec::new(),
        };
        let nodes = performance.memory.len();
        self.ways = (0..nodes).map(|from| (0..nodes).map(|to| way(from, to)).collect()).collect();
        for link in &performance.links {
            let ways = link.crossed_by.iter().map(|&(from, to)| (from as usize, to as usize));
            let hop = ways.clone().map(|(from, to)| hops[from][to]).min().unwrap_or_default();
            let queue = self.add_queue(link.bandwidth, hop.as_secs_f64(), assumed);
            for (from, to) in ways {
                self.ways[from][to].queues.push(queue);
            }
        }
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
            let clock = cache.pus.first().map(|pu| self.places[pu.idx()].clock);
            let seconds = |f: &CachePerformance| f.latency.0 / clock.unwrap_or(f64::INFINITY);
            let queue = beyond.and_then(|f| Some((f.bandwidth?, seconds(f))));
            let part = Cache {
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

fn place(machine: &Machine, performance: &Performance, pu: PuIdx) -> Place {
    let core = machine.core_of(pu);
    let found = &machine.cores[core.idx()];
    let over = machine.caches.iter().enumerate();
    let over =
        over.filter(|(_, cache)| cache.kind != CacheKind::Instruction && cache.pus.contains(&pu));
    Place {
        core: core.idx(),
        node: found.node.map_or(0, colocate_machine::NodeIdx::idx),
        clock: float(performance.kinds[found.kind.idx()].clock.0),
        caches: over.map(|(cache, _)| cache).collect(),
    }
}
