//! The cells of a calibration: every measurement on this machine.

use super::parts::CalibrationPart;
use crate::measure::harness::Measurement;
use anyhow::Context;
use colocate_figures::stats::median;
use colocate_linux::Pid;
use colocate_linux::move_pages::{self, Addr};
use colocate_linux::proc::{Proc, steal};
use colocate_machine::calibrated::PuDistance;
use colocate_machine::{Bytes, CacheKind, Machine, Nanos, NodeIdx, NodeNr, PuNr};
use colocate_model::rng::SplitMix64;
use smt_bench::chase::{Begin, Chase};
use smt_bench::pair::{self, WakeUps};
use smt_bench::speed::{self, Portion, VisitLength};
use smt_bench::thread::{ThreadError, pin, side_by_side, wall_ns};
use smt_bench::traffic::{Generator, ROW_BYTES};
use smt_bench::{gaps, operations};
use std::time::Duration;

/// A measurement, taken once in every round.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Passes a cache line between two PUs.
    Line([u32; 2]),
    /// A thread on the first PU wakes a thread on the second.
    Wake { pus: [u32; 2], busy: bool },
    /// Threads on both PUs wake each other in turn.
    Trip { pus: [u32; 2], busy: bool },
    /// Loads on a PU from `bytes` bytes near to it.
    Load { pu: u32, bytes: usize },
    /// Loads on the first PU from `bytes` bytes near the second.
    Memory { from: Option<NodeNr>, to: Option<NodeNr>, pus: [u32; 2], bytes: usize },
    /// All these PUs of a node read and write `rows` rows of memory each.
    Stream { node: Option<NodeNr>, pus: Vec<u32>, rows: u32 },
    /// Loads on the first PU from `bytes` near to it, beside traffic of `rows` on each further PU.
    Beside { node: Option<NodeNr>, pus: Vec<u32>, bytes: usize, rows: u32 },
    /// Moves pages near a PU to another node.
    Move { from: NodeNr, to: NodeNr, pu: u32 },
    /// A fixed piece of work on a PU.
    Visit(u32),
    /// Gaps and stolen time of a PU.
    Watch(u32),
    /// Operations on a PU of one kind of core.
    Operations { kind: String, pu: u32 },
}

/// Durations of cells: shorter with many PUs, to end a calibration within two minutes.
pub struct Lengths {
    line: Duration,
    visit: Duration,
    watch: Duration,
}

/// Most time of all cells of one sort in all rounds. Chosen: a tenth of two minutes.
const ALL: Duration = Duration::from_secs(12);
/// Rounds assumed by [`Lengths`].
const ROUNDS: u32 = 7;
/// Duration of timed loads.
const LOAD: Duration = Duration::from_millis(8);
/// Duration of memory traffic.
const STREAM: Duration = Duration::from_millis(60);
/// Wake-ups of a cell: to an idle PU, and to a busy one, where a thread may wait for a time slice.
const WAKE_UPS: [u32; 2] = [60, 20];
/// Time for which the woken thread sleeps before. Chosen: its PU is idle by then, and most
/// hypervisors deschedule a virtual PU.
const PAUSE: Duration = Duration::from_micros(200);
/// Pages moved in a cell: fewer than in a huge page.
const PAGES: usize = 256;
/// Least and most bytes of a buffer beyond the last cache, unless twice that cache is more.
const BEYOND: [usize; 2] = [64 << 20, 256 << 20];
/// Pairs of nodes measured for each reported distance.
const NODE_PAIRS: usize = 2;
/// Pairs of PUs measured for each kind of pair.
const PAIRS: usize = 2;

impl Cell {
    /// Part of the calibration to which the cell belongs.
    pub const fn part(&self) -> CalibrationPart {
        match self {
            Self::Line(_) | Self::Visit(_) => CalibrationPart::Speeds,
            Self::Wake { .. } | Self::Trip { .. } => CalibrationPart::WakeUps,
            Self::Watch(_) => CalibrationPart::Gaps,
            Self::Operations { .. } => CalibrationPart::Operations,
            Self::Load { .. }
            | Self::Memory { .. }
            | Self::Stream { .. }
            | Self::Beside { .. }
            | Self::Move { .. } => CalibrationPart::Memory,
        }
    }
}

impl Lengths {
    /// Durations for `pus` PUs.
    pub fn of(pus: usize) -> Self {
        let each = ALL / ROUNDS / u32::try_from(pus).unwrap_or(u32::MAX).max(1);
        Self {
            line: Duration::from_millis(5),
            visit: each.clamp(Duration::from_millis(5), Duration::from_millis(60)),
            watch: each.clamp(Duration::from_millis(10), Duration::from_millis(200)),
        }
    }

    /// Adapts the duration of passing lines to this number of measurements.
    pub fn of_pairs(&mut self, measurements: usize) {
        let each = ALL / u32::try_from(measurements).unwrap_or(u32::MAX).max(1);
        self.line = each.clamp(Duration::from_micros(500), Duration::from_millis(5));
    }
}

/// This machine as the subject of measurements.
pub struct ThisMachine {
    pub lengths: Lengths,
    /// The piece of work for all PUs, sized on the first visited PU.
    pub portion: Option<Portion>,
}

impl Measurement for ThisMachine {
    type Cell = Cell;
    /// One value for each figure, in the order of `figures`; `None` without undisturbed time.
    type Sample = Vec<Option<f64>>;
    const UNIT: &'static str = "measurements";

    fn measure(&mut self, cell: &Cell) -> anyhow::Result<Option<Self::Sample>> {
        self.sample(cell).map(Some).context("cannot measure")
    }
}

impl ThisMachine {
    fn sample(&mut self, cell: &Cell) -> Result<Vec<Option<f64>>, ThreadError> {
        Ok(match *cell {
            Cell::Line(pus) => vec![pair::line(pus, self.lengths.line)?],
            Cell::Wake { pus: [waker, wakee], busy } => {
                let count = WAKE_UPS[usize::from(busy)];
                let found = pair::wake_ups(WakeUps { waker, wakee, busy, count, pause: PAUSE })?;
                let of = |ns: fn(&pair::WakeUp) -> u64| middle(found.iter().map(ns));
                vec![of(|one| one.latency_ns), of(|one| one.call_ns)]
            }
            Cell::Trip { pus, busy } => {
                vec![middle(pair::round_trips(pus, busy, WAKE_UPS[usize::from(busy)])?)]
            }
            Cell::Load { pu: from, bytes } => {
                vec![Chase::near(from, bytes)?.latency(from, Begin::Warm, LOAD)?]
            }
            Cell::Memory { pus: [from, to], bytes, .. } => {
                vec![Chase::near(to, bytes)?.latency(from, Begin::Warm, LOAD)?]
            }
            Cell::Stream { ref pus, rows, .. } => {
                vec![during(&generators(pus, rows)?, || std::thread::sleep(STREAM)).1]
            }
            Cell::Beside { ref pus, bytes, rows, .. } => beside(pus, bytes, rows)?,
            Cell::Move { to, pu, .. } => vec![moved(to, pu)?],
            Cell::Visit(pu) => {
                let portion = match self.portion {
                    Some(portion) => portion,
                    None => *self.portion.insert(speed::portion(pu)?),
                };
                let timed = self.lengths.visit;
                let visit = speed::visit(pu, portion, VisitLength { warm_up: timed / 6, timed })?;
                vec![
                    Some(per_second(visit.additions, visit.additions_cpu_ns)),
                    Some(per_second(visit.portions, visit.wall_ns)),
                    Some(per_second(visit.portions, visit.cpu_ns)),
                    // The two clocks are not read at the same moment, so the ratio may exceed 1.
                    Some((visit.cpu_ns as f64 / visit.wall_ns as f64).min(1.0)),
                ]
            }
            Cell::Watch(pu) => {
                let before = steal(pu);
                let found = gaps::watch(pu, self.lengths.watch)?;
                let away = found.away_ns.iter().sum::<u64>() as f64;
                // At least 1 ns: a thread that waited all the time would divide by 0.
                let had = (found.watched_ns - found.waited_ns).max(1) as f64;
                let stolen = before.zip(steal(pu)).map(|(before, after)| {
                    after.saturating_sub(before).0 as f64 / found.watched_ns as f64
                });
                vec![Some(away / had), middle(found.away_ns), stolen]
            }
            Cell::Operations { pu, .. } => {
                let found = operations::measure(pu)?;
                [
                    1.0 / found.slot,
                    found.branch_miss,
                    found.branch,
                    found.int,
                    found.int_mul,
                    found.int_div,
                    found.float_add,
                    found.float_mul,
                    found.float_div,
                    found.load,
                    found.store,
                ]
                .map(Some)
                .into()
            }
        })
    }
}

fn middle(ns: impl IntoIterator<Item = u64>) -> Option<f64> {
    median(&ns.into_iter().map(|ns| ns as f64).collect::<Vec<_>>())
}

fn per_second(count: u64, ns: u64) -> f64 {
    count as f64 * 1e9 / ns as f64
}

/// Tries of latency, alone and beside traffic. Chosen.
const TRIES: usize = 5;

/// Bytes of memory traffic a line: read and written back.
const LINE: f64 = 2.0 * 64.0;

/// Traffic generators, one a PU.
fn generators(pus: &[u32], rows: u32) -> Result<Vec<Generator>, ThreadError> {
    pus.iter().map(|&pu| Generator::start(pu, rows)).collect()
}

/// Result of `meanwhile`, and the traffic of all generators in the meantime, in bytes a second.
fn during<T>(all: &[Generator], meanwhile: impl FnOnce() -> T) -> (T, Option<f64>) {
    all.iter().for_each(|each| each.resume(0));
    // The traffic reaches its steady rate first.
    std::thread::sleep(STREAM / 3);
    let before: Vec<_> = all.iter().map(Generator::tally).collect();
    let found = meanwhile();
    let rates = all.iter().zip(before).map(|(each, before)| each.tally().since(before).rate());
    let lines_per_us: Option<f64> = rates.sum();
    all.iter().for_each(Generator::rest);
    // From lines a microsecond to bytes a second.
    (found, lines_per_us.map(|rate| rate * 1e6 * LINE))
}

/// Latency of loads on the first of `pus`, alone and beside the traffic of all further PUs, and
/// this traffic in bytes a second: medians over alternating tries, so drift affects all three
/// alike.
fn beside(pus: &[u32], bytes: usize, rows: u32) -> Result<Vec<Option<f64>>, ThreadError> {
    let chase = Chase::near(pus[0], bytes)?;
    let streams = generators(&pus[1..], rows)?;
    // Eleven parts: no try reuses the lines of another.
    let part = bytes / 64 / 11;
    let latency = |number: usize| chase.latency(pus[0], Begin::At(number * part), STREAM / 3);
    let mut tries = [Vec::new(), Vec::new(), Vec::new()];
    for number in 0..TRIES {
        let alone = latency(2 * number)?;
        let (beside, traffic) = during(&streams, || latency(2 * number + 1));
        // A disturbed try counts for none of the three medians.
        if let (Some(alone), Some(beside), Some(traffic)) = (alone, beside?, traffic) {
            tries.iter_mut().zip([alone, beside, traffic]).for_each(|(to, each)| to.push(each));
        }
    }
    Ok(tries.map(|tries| median(&tries)).into())
}

/// Nanoseconds to move a page near `pu` to node `to`; `None` if the kernel moved none.
fn moved(to: NodeNr, pu: u32) -> Result<Option<f64>, ThreadError> {
    let work = |_, ()| {
        let size = usize::try_from(move_pages::page_bytes()).unwrap_or(4096);
        // Not zeros: `vec!` would not touch such pages, and untouched pages are not moved.
        let memory = vec![1_u8; PAGES * size];
        let first = memory.as_ptr().addr().next_multiple_of(size);
        let pages: Vec<Addr> =
            // A page less than allocated: the first is aligned to the page size.
            (0..PAGES - 1).map(|page| Addr((first + page * size) as u64)).collect();
        let begin = wall_ns();
        let put = move_pages::put(Pid(std::process::id().cast_signed()), &pages, to, false);
        let took = wall_ns() - begin;
        // A status is the page's node, or a negative error number (move_pages(2)).
        let arrived =
            put.status.iter().filter(|&&status| u32::try_from(status) == Ok(to.0)).count();
        // Keeps the buffer alive until the pages have moved.
        std::hint::black_box(&memory);
        (put.done.is_ok() && arrived > 0).then(|| took as f64 / arrived as f64)
    };
    Ok(side_by_side(1, |_| pin(pu), work, || ())?.remove(0))
}

/// Stolen time of a PU as counted by the kernel; `None` if it never counted any.
fn steal(pu: u32) -> Option<Nanos> {
    let all = steal::times(&Proc::default());
    let steal = all.into_iter().find(|(nr, _)| *nr == PuNr(pu)).map(|(_, steal)| steal);
    steal.filter(|steal| *steal > Nanos::ZERO)
}

/// The cells to measure, and the figures that cannot be measured.
pub struct Plan {
    pub cells: Vec<Cell>,
    /// Missing figures, with the reason, a line each.
    pub absent: Vec<String>,
}

/// All cells on `machine` except lines and visits.
///
/// Uses at most a quarter of the `available` memory at a time.
pub fn plan(
    machine: &Machine,
    usable: &[u32],
    available: Option<Bytes>,
    random: &mut SplitMix64,
) -> Plan {
    let mut plan = Plan { cells: Vec::new(), absent: Vec::new() };
    for kind in PuDistance::ALL {
        let mut pairs = pairs(machine, usable, kind);
        random.shuffle(&mut pairs);
        // A few random pairs stand for all of their kind.
        for pus in pairs.into_iter().take(PAIRS) {
            for busy in [false, true] {
                plan.cells.push(Cell::Wake { pus, busy });
                plan.cells.push(Cell::Trip { pus, busy });
            }
        }
    }
    for (index, kind) in machine.kinds.iter().enumerate() {
        let found = usable.iter().find(|&&pu| {
            let pu = machine.pu_by_os(PuNr(pu));
            pu.is_some_and(|pu| machine.cores[machine.core_of(pu).idx()].kind.idx() == index)
        });
        match found {
            Some(&pu) => plan.cells.push(Cell::Operations { kind: kind.name.clone(), pu }),
            None => plan
                .absent
                .push(format!("operations of cores of kind {}: no PU of it is usable", kind.name)),
        }
    }
    plan.cells.extend(usable.iter().map(|&pu| Cell::Watch(pu)));
    let quarter = available.and_then(|bytes| usize::try_from(bytes.0 / 4).ok());
    // Without an estimate by the kernel, memory is not limited.
    memory(machine, usable, quarter.unwrap_or(usize::MAX), &mut plan);
    plan
}

/// Pairs of different usable PUs of this kind; for [`PuDistance::SamePu`], each PU twice.
pub fn pairs(machine: &Machine, usable: &[u32], kind: PuDistance) -> Vec<[u32; 2]> {
    let all = usable.iter().enumerate().flat_map(|(at, &a): (usize, &u32)| {
        let others = if kind == PuDistance::SamePu { &usable[at..=at] } else { &usable[at + 1..] };
        others.iter().map(move |&b| [a, b]).collect::<Vec<_>>()
    });
    all.filter(|[a, b]| PuDistance::of(machine, PuNr(*a), PuNr(*b)) == Some(kind)).collect()
}

/// Sizes of data caches in bytes, nearest first, one for each level; empty if a size is unknown.
pub fn cache_sizes(machine: &Machine) -> Vec<(u8, f64)> {
    let mut sizes: Vec<(u8, f64)> = Vec::new();
    for cache in machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction) {
        let Some(size) = cache.size else { return Vec::new() };
        if sizes.last().is_none_or(|(level, _)| *level < cache.level) {
            sizes.push((cache.level, size.0 as f64));
        }
    }
    sizes
}

/// Adds the cells of caches and memory, with at most `most` bytes at a time.
fn memory(machine: &Machine, usable: &[u32], most: usize, plan: &mut Plan) {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a size in bytes
    let last = cache_sizes(machine).last().map_or(0, |(_, size)| *size as usize);
    let longest = BEYOND[1].max(2 * last);
    let bytes = (4 * last).clamp(BEYOND[0], longest).min(most);
    if bytes < 2 * last {
        // `most` is a quarter of the available memory: 8 times `last`, in MiB.
        let text = format!("caches and memory: expected {} MiB of available memory", last >> 17);
        return plan.absent.push(text);
    }
    // Two sizes for each doubling.
    let sizes = (0..).map(|step: i32| 4096.0 * 2_f64.powf(f64::from(step) / 2.0));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole bytes below `bytes`
    let sizes = sizes.map(|size| size as usize).take_while(|&size| size < bytes);
    // Beyond 32 MiB one size for each doubling, since building the chain takes long.
    let kept = sizes.filter(|&size| size < 32 << 20 || size.is_power_of_two());
    plan.cells.extend(kept.map(|bytes| Cell::Load { pu: usable[0], bytes }));
    let homes: Vec<(Option<NodeNr>, Vec<u32>)> = match &machine.nodes[..] {
        // A kernel without NUMA reports no nodes.
        [] => vec![(None, usable.to_vec())],
        nodes => {
            let homes = nodes.iter().enumerate().map(|(index, node)| {
                let home = machine.home_pus(NodeIdx::new(index));
                let home = home.map(|pu| machine.pus[pu.idx()].os.0);
                (Some(node.os), home.filter(|pu| usable.contains(pu)).collect())
            });
            homes.collect()
        }
    };
    let mut counts = std::collections::BTreeMap::new();
    for (a, (from, own)) in homes.iter().enumerate() {
        let Some(&pu) = own.first() else {
            let node = from.map_or(0, |node| node.0);
            plan.absent.push(format!("memory of node {node}: no PU of it is usable"));
            continue;
        };
        for (b, (to, theirs)) in homes.iter().enumerate() {
            let Some(&home) = theirs.first() else { continue };
            // Without distances, all remote pairs count as equally far.
            let distance = machine.distances.as_ref().map(|distances| distances.rows[a][b]);
            let count = counts.entry(distance.filter(|_| a != b)).or_insert(0);
            *count += usize::from(a != b);
            if a == b || *count <= NODE_PAIRS {
                plan.cells.push(Cell::Memory { from: *from, to: *to, pus: [pu, home], bytes });
                if let (Some(from), Some(to), true) = (*from, *to, a != b) {
                    plan.cells.push(Cell::Move { from, to, pu });
                }
            }
        }
        let each = (4 * last / own.len()).clamp(32 << 20, longest).min(most / own.len());
        let rows = u32::try_from(each / ROW_BYTES).unwrap_or(u32::MAX);
        plan.cells.push(Cell::Stream { node: *from, pus: vec![pu], rows });
        // One PU alone has no traffic of others beside its loads.
        if own.len() > 1 {
            plan.cells.push(Cell::Stream { node: *from, pus: own.clone(), rows });
            plan.cells.push(Cell::Beside { node: *from, pus: own.clone(), bytes, rows });
        }
    }
    if homes.len() < 2 {
        plan.absent.push("moving a page: there is one memory node".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::read;

    fn planned(spec: &str, usable: &[u32]) -> Plan {
        let machine = read::open(spec).unwrap();
        plan(&machine, usable, None, &mut SplitMix64::new(1))
    }

    #[test]
    fn every_kind_of_pair_is_measured() {
        let all: Vec<u32> = (0..16).collect();
        let plan = planned("synthetic:pack:2 numa:1 l3:2 core:2 pu:2", &all);
        let machine = read::open("synthetic:pack:2 numa:1 l3:2 core:2 pu:2").unwrap();
        for kind in PuDistance::ALL {
            let is = |[a, b]: [u32; 2]| PuDistance::of(&machine, PuNr(a), PuNr(b)) == Some(kind);
            let of = |cell: &&Cell| matches!(cell, Cell::Trip { pus, busy: true } if is(*pus));
            assert_eq!(plan.cells.iter().filter(of).count(), PAIRS, "{kind:?}");
        }
        let moves = plan.cells.iter().filter(|cell| matches!(cell, Cell::Move { .. })).count();
        assert_eq!((moves, plan.absent), (2, vec![]));
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        let plan = planned("synthetic:numa:1 core:2 pu:1", &[0]);
        assert_eq!(plan.absent, ["moving a page: there is one memory node"]);
        let pairs = plan.cells.iter().filter(|cell| matches!(cell, Cell::Wake { .. })).count();
        assert_eq!(pairs, 2);
        let half = planned("synthetic:pack:2 numa:1 core:2 pu:1", &[0, 1]);
        assert_eq!(half.absent, ["memory of node 1: no PU of it is usable"]);
    }

    /// Pages that are on node 0 already are counted as moved there. Kernels without NUMA move none.
    #[test]
    fn moving_pages_takes_time() {
        let pu = smt_bench::thread::usable().unwrap()[0];
        match moved(NodeNr(0), pu).unwrap() {
            Some(ns) => assert!(ns > 0.0 && ns < 1e9, "{ns}"),
            None => println!("no page moved"),
        }
    }

    #[test]
    fn little_memory_is_left_alone() {
        let machine = read::open("epyc-7301").unwrap();
        let plan = plan(&machine, &[0, 1], Some(Bytes::mib(60)), &mut SplitMix64::new(1));
        assert_eq!(plan.absent, ["caches and memory: expected 64 MiB of available memory"]);
        let asks = |cell: &Cell| matches!(cell, Cell::Load { .. } | Cell::Stream { .. });
        assert!(!plan.cells.iter().any(asks));
    }

    /// Buffers are larger than any last cache, as that of a Xeon 6972P.
    #[test]
    fn large_caches_have_larger_buffers() {
        let mut machine = read::open("epyc-7301").unwrap();
        let last = machine.caches.iter_mut().filter(|cache| cache.level == 3);
        last.for_each(|cache| cache.size = Some(Bytes::mib(480)));
        let plan = plan(&machine, &[0, 1], Some(Bytes::mib(8_192)), &mut SplitMix64::new(1));
        assert!(!plan.absent.iter().any(|line| line.starts_with("caches")), "{:?}", plan.absent);
        let bytes = plan.cells.iter().find_map(|cell| match cell {
            Cell::Memory { bytes, .. } => Some(*bytes),
            _ => None,
        });
        assert_eq!(bytes, Some(960 << 20));
    }

    #[test]
    fn many_pus_take_less_each() {
        assert_eq!(Lengths::of(2).visit, Duration::from_millis(60));
        assert!(Lengths::of(256).visit * 256 * ROUNDS <= ALL);
        let mut lengths = Lengths::of(256);
        lengths.of_pairs(3 * 8_192);
        assert!(lengths.line * 3 * 8_192 <= ALL + ALL / 8);
    }
}
