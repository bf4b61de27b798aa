//! What others bring into the caches while a task does not run, and what is left of its data then.
//!
//! # Approach
//! A cache replaces what was used longest ago (as [`colocate_model::cache`] has it). A stopped task uses
//! nothing, so whatever comes in takes the place of its lines or of others' that were used as long ago, which
//! lie anywhere among each other: its share falls in a straight line, and is gone when the cache was filled
//! once. Where the others use all of theirs again and again it is gone sooner.

use crate::platform::Platform;
use crate::task::TaskNo;
use colocate_machine::performance::Inclusion;
use colocate_machine::{CacheKind, PuIdx};
use colocate_model::Prediction;

/// How full caches were filled, counted from the first time that a job was stopped.
#[derive(Clone, Debug)]
pub(crate) struct CachePollution {
    /// Data caches over each PU, nearest first, by place in `Machine::caches`.
    over: Vec<Vec<usize>>,
    /// By cache: a byte's part of it; 0 if its size is not known.
    per_byte: Vec<f64>,
    /// By cache: whether it takes in what nearer ones give up, rather than what they miss.
    exclusive: Vec<bool>,
    /// By cache: times that it is filled in a second.
    rates: Vec<f64>,
    /// By cache: times that it was filled.
    filled: Vec<f64>,
    /// In most simulations no job is ever stopped.
    pub needed: bool,
}

impl CachePollution {
    #[allow(clippy::cast_precision_loss)] // sizes are far below 2^53
    pub fn new(platform: &Platform<'_>) -> Self {
        let (machine, performance) = (platform.machine(), platform.performance());
        let over = |pu: PuIdx| {
            let caches = machine.caches.iter().enumerate();
            let data = caches.filter(|(_, c)| c.kind != CacheKind::Instruction);
            data.filter(|(_, cache)| cache.pus.contains(&pu)).map(|(place, _)| place).collect()
        };
        let exclusive = |level: u8| {
            let figures = performance.caches.iter().find(|figures| figures.level == level);
            figures.is_some_and(|figures| figures.inclusion == Inclusion::Exclusive)
        };
        let caches = machine.caches.len();
        let per_byte = machine.caches.iter().map(|c| c.size.map_or(0.0, |s| 1.0 / s.0 as f64));
        Self {
            over: machine.all_pus().map(over).collect(),
            per_byte: per_byte.collect(),
            exclusive: machine.caches.iter().map(|cache| exclusive(cache.level)).collect(),
            rates: vec![0.0; caches],
            filled: vec![0.0; caches],
            needed: false,
        }
    }

    /// From now on just these tasks run.
    pub(crate) fn set_rates(
        &mut self,
        running: &[(TaskNo, PuIdx)],
        prediction: &Prediction,
        line: f64,
    ) {
        if !self.needed {
            return;
        }
        self.rates.fill(0.0);
        for (&(_, pu), rate) in running.iter().zip(&prediction.tasks) {
            for (level, &cache) in self.over[pu.idx()].iter().enumerate() {
                let from = if self.exclusive[cache] { level.saturating_sub(1) } else { level };
                let missed = rate.misses.get(from).copied().unwrap_or(0.0);
                let bytes = missed * rate.instructions_per_second * line;
                self.rates[cache] += bytes * self.per_byte[cache];
            }
        }
    }

    /// Time goes on.
    pub fn pass(&mut self, seconds: f64) {
        if self.needed {
            for (filled, rate) in self.filled.iter_mut().zip(&self.rates) {
                *filled += rate * seconds;
            }
        }
    }

    /// How often the caches over a PU were filled so far.
    pub fn so_far(&self, pu: PuIdx) -> Vec<f64> {
        self.over[pu.idx()].iter().map(|&cache| self.filled[cache]).collect()
    }

    /// Shares that are left of what was in the caches over a PU when they had been filled `then` times.
    pub fn left(&self, pu: PuIdx, then: &[f64]) -> Vec<f64> {
        let since = self.over[pu.idx()].iter().zip(then).map(|(&c, then)| self.filled[c] - then);
        since.map(|times| (1.0 - times).max(0.0)).collect()
    }
}
