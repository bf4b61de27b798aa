//! `mmas`: main-memory bandwidth-aware scheduling (Xu, Wu and Yew, PACT 2010).
//!
//! # Problem
//! Performance falls the faster the nearer the memory is to its peak, so quanta that ask for much together
//! lose more than quanta that ask for little gain.
//! # Approach
//! Keep what every quantum asks for close to the average of the workload, which is known from runs alone.
//! # Terms
//! - `AvgTR(p)`: traffic of `p` alone, averaged over its time `T(p)` alone, t/µs.
//! - `IABW = Σ AvgTR(p)·T(p) / (Σ T(p) / contexts)`: contexts × the mean traffic, weighted by time, t/µs.
//! # Algorithm
//! [`select::by_traffic`] with `BW = IABW`; then PUs in order, since the policy does not look at caches.
//! # Properties
//! - **Nobody is needed alone who is gone**: `IABW` counts the jobs of the queue only. -> test `by_hand`

use super::allocate::{self, choices, threads_of};
use super::kind::Alone;
use super::{Allocated, Choice, Quantum, Queued, Scheduler, select};
use crate::places::Places;

/// The scheduler, with what is known of each job alone, by job.
#[derive(Clone, Debug)]
pub struct Mmas {
    /// By job.
    pub alone: Vec<Alone>,
}

impl Scheduler for Mmas {
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        let wanted = ideal(now, &self.alone, |alone| alone.memory);
        let chosen = select::by_traffic(now.queue, now.pus.len(), wanted, Queued::to_memory);
        let threads = threads_of(now.queue, &chosen, now.pus.len());
        let order = Places::new(now.machine, now.pus).spread_pus();
        let pus = allocate::in_order(&order, &threads);
        choices(now, chosen, &pus, |_| Allocated::Next)
    }
}

/// `IABW`: contexts × mean over the jobs of the queue of what they ask for alone, weighted by their times
/// alone; 0 if none of them takes time.
#[must_use]
pub fn ideal(now: &Quantum<'_>, alone: &[Alone], asks: impl Fn(&Alone) -> f64) -> f64 {
    let known = || now.queue.iter().filter_map(|job| alone.get(job.job.0 as usize));
    let time = known().map(|alone| alone.seconds).fold(0.0, |sum, each| sum + each);
    let asked = known().map(|alone| asks(alone) * alone.seconds).fold(0.0, |sum, each| sum + each);
    if time > 0.0 { asked / time * select::float(now.pus.len()) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, queue};
    use super::*;
    use crate::testing::machine;

    fn alone(rates: &[(f64, f64)]) -> Vec<Alone> {
        rates
            .iter()
            .map(|&(memory, seconds)| Alone { memory, seconds, ..Alone::default() })
            .collect()
    }

    /// IABW = 2 · (30·1 + 10·1 + 10·2)/4 = 30. Head 30 leaves 0 for one context: 9 is nearer than 11.
    #[test]
    fn by_hand() {
        let machine = machine("core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut mmas = Mmas { alone: alone(&[(30.0, 1.0), (10.0, 1.0), (10.0, 2.0)]) };
        let waiting = queue(&[30.0, 11.0, 9.0]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &waiting };
        assert!((ideal(&now, &mmas.alone, |alone| alone.memory) - 30.0).abs() < 1e-12);
        assert_eq!(chosen(&mmas.choose(&now)), [(0, 0), (2, 1)]);
        let rest = Quantum { queue: &waiting[1..], ..now };
        assert!((ideal(&rest, &mmas.alone, |alone| alone.memory) - 20.0).abs() < 1e-12);
    }
}
