//! `os`, `round-robin`, `random`: what the others are compared with.
//!
//! - `os` lets everything run and leaves it to the kernel.
//! - `round-robin` takes the jobs that have waited longest and fills PUs far apart first.
//! - `random` draws jobs and PUs.

use super::allocate::{self, choices, threads_of};
use super::{Allocated, Choice, Quantum, Scheduler, Selected, select};
use crate::places::Places;
use crate::rng::SplitMix64;

/// `os`.
#[derive(Clone, Copy, Debug)]
pub struct Os;

/// `round-robin`.
#[derive(Clone, Copy, Debug)]
pub struct RoundRobin;

/// `random`.
#[derive(Clone, Debug)]
pub struct Random {
    rng: SplitMix64,
}

impl Random {
    /// From a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { rng: SplitMix64::new(seed) }
    }
}

impl Scheduler for Os {
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        let free = |job: &super::Queued| Choice {
            job: job.job,
            selected: Selected::Room,
            places: vec![(None, Allocated::LeftToKernel); job.threads.len()],
        };
        now.queue.iter().map(free).collect()
    }
}

impl Scheduler for RoundRobin {
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        let chosen = select::all(now.queue, now.pus.len())
            .unwrap_or_else(|| select::in_order(now.queue, now.pus.len()));
        let threads = threads_of(now.queue, &chosen, now.pus.len());
        let order = Places::new(now.machine, now.pus).spread_pus();
        let pus = allocate::in_order(&order, &threads);
        choices(now, chosen, &pus, |_| Allocated::Next)
    }
}

impl Scheduler for Random {
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        let mut order: Vec<usize> = (0..now.queue.len()).collect();
        self.rng.shuffle(&mut order);
        let mut left = now.pus.len();
        let mut chosen = Vec::new();
        for at in order {
            let width = now.queue[at].width(now.pus.len());
            if width <= left {
                left -= width;
                chosen.push((at, Selected::Drawn));
            }
        }
        let mut pus = now.pus.to_vec();
        self.rng.shuffle(&mut pus);
        let threads = threads_of(now.queue, &chosen, pus.len()).len();
        choices(now, chosen, &pus[..threads], |_| Allocated::Next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, queue};
    use super::*;
    use crate::testing::machine;

    #[test]
    fn the_kernel_gets_everything() {
        let machine = machine("core:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let queue = queue(&[1.0; 5]);
        let found = Os.choose(&Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue });
        assert_eq!(found.len(), 5);
        assert!(found.iter().all(|choice| choice.places == [(None, Allocated::LeftToKernel)]));
    }

    #[test]
    fn cores_before_siblings() {
        let machine = machine("core:2 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let queue = queue(&[1.0; 2]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        assert_eq!(chosen(&RoundRobin.choose(&now)), [(0, 0), (1, 2)]);
    }

    /// Of ten jobs on four PUs, each runs about as often, and a seed repeats itself.
    #[test]
    fn random_is_fair_and_repeatable() {
        let machine = machine("core:4");
        let pus: Vec<_> = machine.all_pus().collect();
        let queue = queue(&[1.0; 10]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let run = || {
            let mut random = Random::new(5);
            let mut times = [0; 10];
            for _ in 0..1000 {
                for (job, _) in chosen(&random.choose(&now)) {
                    times[job as usize] += 1;
                }
            }
            times
        };
        let times = run();
        assert_eq!(times, run());
        assert_eq!(times.iter().sum::<u32>(), 4000);
        assert!(times.iter().all(|times| (330..=470).contains(times)), "{times:?}");
    }
}
