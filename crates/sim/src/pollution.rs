//! Cache pollution: the data of a stopped task that others evict meanwhile.
//!
//! # Approach
//! A cache replaces the least recently used lines (as [`colocate_model::cache`] has it). A stopped
//! task uses nothing, so new lines replace its lines, or lines of other tasks that were used as
//! long ago. These lie anywhere among each other, so its share falls linearly, and is gone when the
//! cache was filled once. Where the other tasks use all their lines again and again it is gone
//! sooner.

use crate::platform::Platform;
use crate::task::TaskNo;
use colocate_machine::performance::Inclusion;
use colocate_machine::{CacheKind, PuIdx};
use colocate_model::Prediction;

/// How often each cache was filled, counted from the first stop of a job.
#[derive(Clone, Debug)]
pub(crate) struct CachePollution {
    /// Data caches over each PU, nearest first, by place in `Machine::caches`.
    over: Vec<Vec<usize>>,
    /// By cache: 1 over its bytes; 0 if its size is unknown.
    per_byte: Vec<f64>,
    /// By cache: whether fills are evictions of nearer caches, not its own misses.
    exclusive: Vec<bool>,
    /// By cache: fills a second.
    rates: Vec<f64>,
    /// By cache: fills until now.
    filled: Vec<f64>,
    /// Whether a job was stopped; in most simulations none ever is.
    needed: bool,
    /// Bytes of a cache line.
    line: f64,
    /// By task: fills of the caches over its PU at its stop; `None` without a stop since the last
    /// run.
    stopped_at: Vec<Option<Vec<f64>>>,
}

impl CachePollution {
    pub fn new(platform: &Platform<'_>, tasks: usize) -> Self {
        let machine = platform.machine;
        let over = machine.all_pus().map(|pu| {
            let caches = machine.caches.iter().enumerate();
            let data = caches.filter(|(_, cache)| cache.kind != CacheKind::Instruction);
            data.filter(|(_, cache)| cache.pus.contains(&pu)).map(|(place, _)| place).collect()
        });
        let exclusive = machine.caches.iter().map(|cache| {
            let mut figures = platform.performance.caches.iter();
            let figures = figures.find(|figures| figures.level == cache.level);
            figures.is_some_and(|figures| figures.inclusion == Inclusion::Exclusive)
        });
        let caches = machine.caches.len();
        let per_byte = machine.caches.iter().map(|c| c.size.map_or(0.0, |s| 1.0 / s.0 as f64));
        Self {
            over: over.collect(),
            per_byte: per_byte.collect(),
            exclusive: exclusive.collect(),
            rates: vec![0.0; caches],
            filled: vec![0.0; caches],
            needed: false,
            line: platform.performance.memory.first().map_or(64.0, |node| node.line.0 as f64),
            stopped_at: vec![None; tasks],
        }
    }

    /// Counts from the next rates on: a job is stopped.
    pub const fn begin(&mut self) {
        self.needed = true;
    }

    /// Sets the rates of caches from now on, with exactly `running` on PUs.
    pub(crate) fn set_rates(&mut self, running: &[(TaskNo, PuIdx)], prediction: &Prediction) {
        if !self.needed {
            return;
        }
        self.rates.fill(0.0);
        for (&(_, pu), rate) in running.iter().zip(&prediction.tasks) {
            for (level, &cache) in self.over[pu.idx()].iter().enumerate() {
                // Lines come into an exclusive cache by evictions of the next nearer one, which are
                // as many as the misses there.
                let from = if self.exclusive[cache] { level.saturating_sub(1) } else { level };
                let missed = rate.misses.get(from).copied().unwrap_or(0.0);
                let bytes = missed * rate.instructions_per_second * self.line;
                self.rates[cache] += bytes * self.per_byte[cache];
            }
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, seconds: f64) {
        if self.needed {
            for (filled, rate) in self.filled.iter_mut().zip(&self.rates) {
                *filled += rate * seconds;
            }
        }
    }

    /// Notes a stop of a task that ran last on `pu`.
    pub fn stop(&mut self, task: TaskNo, pu: Option<PuIdx>) {
        self.stopped_at[task] = pu.map(|pu| self.over(pu).collect());
    }

    /// Shares left of a task's data in the caches over its PU, nearest first; `None` without a stop
    /// since its last run.
    pub fn take_left(&mut self, task: TaskNo, pu: PuIdx) -> Option<Vec<f64>> {
        let then = self.stopped_at[task].take()?;
        let since = self.over(pu).zip(then).map(|(filled, then)| filled - then);
        Some(since.map(|times| (1.0 - times).max(0.0)).collect())
    }

    /// Fills until now of the caches over a PU, nearest first.
    fn over(&self, pu: PuIdx) -> impl Iterator<Item = f64> + '_ {
        self.over[pu.idx()].iter().map(|&cache| self.filled[cache])
    }
}
