//! Modes of page placement: their costs, and each mode as a scenario.
//!
//! # Terms
//! - *Home*: the node where all memory lies at first.
//! - *Share*: the part of its PU's caches that a thread has when all PUs are busy.

use super::kernels::{Array, ThreadWork};
use crate::parts::{job, scenario, segment, thread};
use crate::replication::StudyError;
use colocate_machine::{Bytes, CacheKind, Machine, Nanos, NodeIdx, Performance, PuIdx};
use colocate_model::rng::SplitMix64;
use colocate_policy::PolicySpec;
use colocate_sim::{
    Fetch, JobSpec, KernelScheduler, MemorySpec, MemoryUse, NumaBalancing, Pages, PhaseIdx,
    PhaseSpec, Platform, Scenario, SimulationOptions, TotalWork, simulate,
};
use serde::Deserialize;

/// Threads of each benchmark, as published.
pub const THREADS: usize = 64;
const PAGE: f64 = 4096.0;
const LINE: f64 = 64.0;
/// Parallel misses of a loop, by which `colocate calibrate` divides the extra latency of a remote
/// access.
const AT_A_TIME: f64 = 10.0;
/// `MAX_SCAN_WINDOW` in bytes a second, for each thread: 2560 MB for a process
/// (kernel/sched/fair.c, 3.13).
const SCAN: u64 = (2560 << 20) / THREADS as u64;

/// Treatment of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum PageMode {
    /// None: all pages lie at home.
    #[serde(rename = "default")]
    Default,
    /// `numactl --interleave=all`.
    #[serde(rename = "interleave")]
    Interleave,
    /// The kernel's NUMA balancing.
    #[serde(rename = "AutoNUMA")]
    AutoNuma,
    /// A move of each page to the next thread that touches it.
    #[serde(rename = "next-touch")]
    NextTouch,
    /// Moves of all arrays that a programmer would move.
    #[serde(rename = "eager")]
    Eager,
    /// Moves by the runtime of `colocate cc`.
    #[serde(rename = "SPM")]
    Spm,
    /// Moves as [`Self::Spm`]; threads stay on their nodes.
    #[serde(rename = "SPM+lock")]
    SpmLock,
    /// Moves by the dissertation's rule; threads stay.
    #[serde(rename = "published+lock")]
    Published,
    /// Moves as [`Self::Published`], without the threshold of the caches.
    #[serde(rename = "reuse only+lock")]
    ReuseOnly,
}

impl PageMode {
    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Interleave => "interleave",
            Self::AutoNuma => "AutoNUMA",
            Self::NextTouch => "next-touch",
            Self::Eager => "eager",
            Self::Spm => "SPM",
            Self::SpmLock => "SPM+lock",
            Self::Published => "published+lock",
            Self::ReuseOnly => "reuse only+lock",
        }
    }
}

/// Assumed costs of pages.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Assumed {
    /// Time to move a page, in nanoseconds.
    pub page_move_ns: f64,
    /// Time to unmap a page and fault at its next touch, in nanoseconds.
    pub fault_ns: f64,
    /// Largest factor on a drawn cost, and its inverse; at least 1.
    pub spread: f64,
}

/// Costs of pages, and cache sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageCosts {
    /// Time to move a page while the memory is idle, in nanoseconds.
    pub page_move_ns: f64,
    /// Time to unmap a page and fault at its next touch, in nanoseconds.
    pub fault_ns: f64,
    /// Extra time of a line from another node, in nanoseconds, as `colocate calibrate` computes it.
    pub remote_line_ns: f64,
    /// Bytes of the caches over its PU that a thread has.
    pub share: f64,
    /// Bytes of these caches in all.
    pub caches: f64,
}

impl PageCosts {
    /// Costs of a set of assumptions; set 0 has the default costs.
    pub fn drawn(
        assumed: &Assumed,
        machine: &Machine,
        performance: &Performance,
        draw: usize,
        seed: u64,
    ) -> Self {
        let mut rng = SplitMix64::new(seed.wrapping_add(draw as u64));
        let mut factors = [1.0; 2];
        if draw > 0 {
            // From 1 / spread to spread, evenly on a logarithmic scale.
            factors = factors.map(|_| assumed.spread.powf(2.0 * rng.unit() - 1.0));
        }
        // Not the hops of a node to itself.
        let hops = performance.hops.iter().flatten().filter(|hop| **hop > Nanos::ZERO);
        let (sum, count) =
            hops.fold((0.0, 0.0), |(sum, count), hop| (sum + hop.0 as f64, count + 1.0));
        Self {
            page_move_ns: assumed.page_move_ns * factors[0],
            fault_ns: assumed.fault_ns * factors[1],
            remote_line_ns: if count > 0.0 { sum / count / AT_A_TIME } else { 0.0 },
            share: share(machine),
            caches: caches(machine, |_| 1.0),
        }
    }
}

/// Bytes of the caches over its PU that a thread has when all PUs are busy.
fn share(machine: &Machine) -> f64 {
    caches(machine, |pus| pus as f64)
}

/// Bytes of the data caches over the first PU, each divided by a function of its number of PUs.
fn caches(machine: &Machine, by: impl Fn(usize) -> f64) -> f64 {
    let over = machine
        .caches
        .iter()
        .filter(|cache| cache.kind != CacheKind::Instruction && cache.pus.contains(&PuIdx(0)));
    over.map(|cache| cache.size.map_or(0.0, |size| size.0 as f64) / by(cache.pus.len())).sum()
}

/// The runtime's rule at the first call, with no sums of other nodes and no move before
/// (`colocate_spm_rt::rule`, which a test compares).
pub fn is_worth_moving(range: f64, accessed: f64, costs: &PageCosts) -> bool {
    // What fits into the share of the caches comes from memory once.
    let from_memory = if range <= costs.share { accessed.min(range) } else { accessed };
    from_memory / LINE * costs.remote_line_ns > range / PAGE * costs.page_move_ns
}

/// The dissertation's rule: an array larger than `caches` times all caches, with more than 200
/// accesses a byte.
pub fn is_published(array: &Array, caches: f64, all_caches: f64) -> bool {
    array.bytes > caches * all_caches && array.accessed / array.bytes > 200.0
}

/// Move of an array by a thread before use.
fn fetch(mode: PageMode, array: &Array, costs: &PageCosts) -> Fetch {
    let (moves, stays) = match mode {
        PageMode::Default | PageMode::Interleave | PageMode::AutoNuma => (false, false),
        PageMode::NextTouch => (true, false),
        PageMode::Eager => (array.used, false),
        PageMode::Spm | PageMode::SpmLock => (
            is_worth_moving(array.bytes * array.range, array.accessed, costs),
            mode == PageMode::SpmLock,
        ),
        PageMode::Published => (is_published(array, 0.2, costs.caches), true),
        PageMode::ReuseOnly => (is_published(array, 0.0, costs.caches), true),
    };
    match (moves, stays) {
        (false, _) => Fetch::No,
        (true, false) => Fetch::Move,
        (true, true) => Fetch::MoveAndStay,
    }
}

/// Names of the arrays that a mode moves.
pub fn moved(mode: PageMode, task: &ThreadWork, costs: &PageCosts) -> Vec<&'static str> {
    let arrays = task.arrays().into_iter();
    arrays.filter(|array| fetch(mode, array, costs) != Fetch::No).map(|array| array.name).collect()
}

/// Situation in which modes are compared.
#[derive(Clone, Copy, Debug)]
pub struct ModeSituation<'a> {
    /// The machine under a set of assumptions.
    pub platform: &'a Platform<'a>,
    /// Work of each thread on each set.
    pub task: ThreadWork,
    /// Sets of each thread.
    pub sets: usize,
    /// Costs of pages.
    pub costs: PageCosts,
    /// Node where all memory lies, by place.
    pub home: usize,
    /// Seed of the simulated kernel.
    pub seed: u64,
}

impl ModeSituation<'_> {
    /// Times under modes, in seconds. Modes with the same scenario are simulated once.
    pub fn seconds(&self, modes: &[PageMode]) -> Result<Vec<f64>, StudyError> {
        let mut done: Vec<(Scenario, f64)> = Vec::new();
        let mut seconds = Vec::new();
        for mode in modes {
            let scenario = self.scenario(*mode)?;
            let same = done.iter().find(|(other, _)| *other == scenario).map(|(_, time)| *time);
            let time = match same {
                Some(time) => time,
                None => self.simulated(&scenario)?,
            };
            done.push((scenario, time));
            seconds.push(time);
        }
        Ok(seconds)
    }

    fn simulated(&self, scenario: &Scenario) -> Result<f64, StudyError> {
        let options = SimulationOptions { alone: false, ..SimulationOptions::default() };
        let outcome = simulate(self.platform, scenario, &PolicySpec::named("os"), &options)?;
        Ok(outcome.lasted.as_secs_f64())
    }

    /// Nanoseconds to move a page while all threads move one: at least the time of home's
    /// controller to read them all.
    fn page_copy_ns(&self) -> f64 {
        let bandwidth = self.platform.performance.memory[self.home].bandwidth.0
            * self.platform.assumptions.bandwidth;
        self.costs.page_move_ns.max(THREADS as f64 * PAGE / bandwidth * 1e9)
    }

    /// The scenario of a mode; an error if the kernel has no valid demand vector.
    pub fn scenario(&self, mode: PageMode) -> Result<Scenario, StudyError> {
        let task = self.task;
        let kernel = task.kernel;
        let phase = task
            .phase()
            .map_err(|why| StudyError::Run(format!("demand of {}: {why}", kernel.name())))?;
        // A stretch without instructions is not possible.
        let stretch = segment(PhaseIdx(0), whole(task.instructions()).max(1));
        let threads = (0..THREADS)
            .map(|number| thread(&format!("t{number}"), vec![stretch; self.sets], TotalWork::Once));
        let mut os = KernelScheduler::default();
        // Each move begins with a fault.
        let more = if mode == PageMode::NextTouch { self.costs.fault_ns } else { 0.0 };
        os.page_copy = Nanos(whole(self.page_copy_ns() + more));
        os.numa_balancing = (mode == PageMode::AutoNuma).then(|| NumaBalancing {
            scan: Bytes(SCAN),
            fault: Nanos(whole(self.costs.fault_ns)),
            ..NumaBalancing::default()
        });
        let job = job(kernel.name(), threads.collect());
        let jobs = vec![JobSpec { memory: self.memory(mode), ..job }];
        let times = [Nanos::from_secs(1), Nanos(u64::MAX / 4)];
        let scenario = scenario(kernel.name(), vec![PhaseSpec::of(phase)], jobs, times);
        Ok(Scenario { seed: self.seed, kernel: os, ..scenario })
    }

    /// Arrays of all threads and sets.
    fn memory(&self, mode: PageMode) -> Vec<MemorySpec> {
        let home = NodeIdx::new(self.home);
        let share = share(self.platform.machine);
        let misses = self.task.misses(share / LINE);
        let all: f64 = misses.iter().sum();
        let mut memory = Vec::new();
        for (thread, set) in
            (0..THREADS).flat_map(|thread| (0..self.sets).map(move |set| (thread, set)))
        {
            for (array, misses) in self.task.arrays().iter().zip(&misses) {
                let user = MemoryUse {
                    thread,
                    share: misses / all,
                    writes: 0.0,
                    during: Some(set),
                    fetch: fetch(mode, array, &self.costs),
                };
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bytes
                memory.push(MemorySpec {
                    bytes: Bytes(array.bytes as u64),
                    pages: if mode == PageMode::Interleave {
                        Pages::Interleaved
                    } else {
                        Pages::On(home)
                    },
                    groups: 1,
                    users: vec![user],
                });
            }
        }
        memory
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below 2^53
fn whole(number: f64) -> u64 {
    number.round() as u64
}
