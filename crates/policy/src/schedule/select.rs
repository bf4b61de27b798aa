//! Selection: which jobs of the queue run.
//!
//! # Problem
//! Programs that flood the memory together slow each other down; in another quantum the memory idles.
//! # Approach
//! Every quantum should have about the same memory traffic. Take the head of the queue, so that no job
//! starves; then, for each context that is left, the job whose traffic is nearest to the share of the
//! traffic that is left (Xu, Wu and Yew, PACT 2010; Feliu et al., IPDPS 2012, "fitness").
//! # Terms
//! - `BW`: traffic that the quantum should still get, t/µs; may fall below 0, and then the job with
//!   the least traffic is nearest.
//! - `CPU`: contexts that are left, a count.
//! # Algorithm
//! 1. Head `h` runs: `BW −= TR(h)`, `CPU −= width(h)`.
//! 2. While contexts and jobs that fit are left: run `p` with the least `|BW/CPU − TR(p)/width(p)|`, the
//!    one nearest to the head if several have it; `BW −= TR(p)`, `CPU −= width(p)`.
//!
//! The published fitness is `1 / |BW/CPU − TR(p)|`, to be the greatest: the same order, without the
//! division by 0. Jobs of several threads are ours: a job is chosen as a whole and counts by the
//! traffic of a thread of it.
//! # Properties
//! - **No starvation**: the head always runs, -> test `the_head_always_runs`; so with those that ran at the tail, of `n`
//!   jobs none waits for more than `n − 1` quanta. -> test `no_job_waits_longer_than_the_others_are_many`
//! - **Room**: no more threads than contexts, unless the head alone has more; no job that fits waits
//!   while contexts are free. -> test `fills_the_contexts`
//! - **As published**: for jobs of one thread, what the definition says. -> tests `by_hand`, `as_published`

use super::{Quantum, QueuedJob, Selected};

/// Places in `queue` of the jobs that run on `contexts` PUs so that together they have a memory traffic of about
/// `wanted` t/µs, and why; in the order in which they were chosen.
///
/// `demand` is the traffic of a job, in t/µs.
pub(crate) fn by_traffic(
    queue: &[QueuedJob],
    contexts: usize,
    wanted: f64,
    demand: impl Fn(&QueuedJob) -> f64,
) -> Vec<(usize, Selected)> {
    let Some(head) = queue.first() else { return Vec::new() };
    let chosen = vec![(0, Selected::HeadOfQueue)];
    let left = contexts.saturating_sub(head.width(contexts));
    fill(queue, contexts, chosen, (wanted - demand(head), left), demand)
}

/// Fills what the jobs `chosen` leave: `(BW, CPU)`.
pub(super) fn fill(
    queue: &[QueuedJob],
    contexts: usize,
    mut chosen: Vec<(usize, Selected)>,
    (mut traffic, mut left): (f64, usize),
    demand: impl Fn(&QueuedJob) -> f64,
) -> Vec<(usize, Selected)> {
    let mut taken = vec![false; queue.len()];
    chosen.iter().for_each(|(at, _)| taken[*at] = true);
    let mut waiting: Vec<Waiting> = (0..queue.len())
        .filter(|at| !taken[*at])
        .map(|at| Waiting::new(at, queue[at].width(contexts), demand(&queue[at])))
        .collect();
    while left > 0 {
        let wanted = traffic / float(left);
        let nearest = nearest(&waiting, left, wanted);
        let Some(place) = nearest else { break };
        let taken = waiting.remove(place);
        traffic -= taken.demand;
        left -= taken.width;
        chosen.push((taken.at, Selected::Traffic { wanted, has: taken.each }));
    }
    chosen
}

/// A job that may still be chosen.
struct Waiting {
    at: usize,
    width: usize,
    demand: f64,
    /// Of a thread of it.
    each: f64,
}

impl Waiting {
    fn new(at: usize, width: usize, demand: f64) -> Self {
        Self { at, width, demand, each: demand / float(width) }
    }
}

/// The first of those that fit whose threads' traffic is nearest to `wanted`.
fn nearest(waiting: &[Waiting], left: usize, wanted: f64) -> Option<usize> {
    let fitting = waiting.iter().enumerate().filter(|(_, job)| job.width <= left);
    let by_distance = |(place, job): (usize, &Waiting)| ((wanted - job.each).abs(), place);
    fitting.map(by_distance).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, place)| place)
}

/// All jobs if they fit together, else those from the head on that fit.
pub fn all_or_first(now: &Quantum<'_>) -> Vec<(usize, Selected)> {
    let (queue, contexts) = (now.queue, now.pus.len());
    all(queue, contexts).unwrap_or_else(|| in_order(queue, contexts))
}

fn in_order(queue: &[QueuedJob], contexts: usize) -> Vec<(usize, Selected)> {
    let first = fitting(0..queue.len(), contexts, |at| queue[at].width(contexts));
    first.map(|at| (at, Selected::HeadOfQueue)).collect()
}

/// Those of the places `order` that fit on so many contexts, one after the other.
pub fn fitting(
    order: impl IntoIterator<Item = usize>,
    mut contexts: usize,
    width: impl Fn(usize) -> usize,
) -> impl Iterator<Item = usize> {
    order.into_iter().filter(move |&at| {
        let fits = width(at) <= contexts;
        contexts -= if fits { width(at) } else { 0 };
        fits
    })
}

/// All jobs, if they fit together.
pub fn all(queue: &[QueuedJob], contexts: usize) -> Option<Vec<(usize, Selected)>> {
    let wanted: usize = queue.iter().map(|job| job.threads.len()).sum();
    (wanted <= contexts).then(|| (0..queue.len()).map(|at| (at, Selected::Room)).collect())
}

#[allow(clippy::cast_precision_loss)] // contexts are few
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::super::testing::queue;
    use super::*;
    use proptest::prelude::*;

    fn places(chosen: &[(usize, Selected)]) -> Vec<usize> {
        chosen.iter().map(|(at, _)| *at).collect()
    }

    /// BW = 40 on 4 contexts. Head 25: 15 left for 3, 5 each. 4 is nearest: 11 for 2, 5.5 each. 8 is 2.5
    /// off, 1 is 4.5 off, 30 far: 3 for 1. 1 is 2 off.
    #[test]
    fn by_hand() {
        let queue = queue(&[25.0, 30.0, 8.0, 4.0, 1.0]);
        let chosen = by_traffic(&queue, 4, 40.0, QueuedJob::to_memory);
        assert_eq!(places(&chosen), [0, 3, 2, 4]);
        assert_eq!(chosen[2].1, Selected::Traffic { wanted: 5.5, has: 8.0 });
    }

    /// The head overdraws: 10 − 50 = −40 for one context, so the job with the least traffic runs.
    #[test]
    fn overdrawn() {
        let queue = queue(&[50.0, 9.0, 2.0, 3.0]);
        assert_eq!(places(&by_traffic(&queue, 2, 10.0, QueuedJob::to_memory)), [0, 2]);
    }

    #[test]
    fn nothing_known_is_first_come_first_served() {
        let queue = queue(&[0.0; 6]);
        assert_eq!(places(&by_traffic(&queue, 4, 0.0, QueuedJob::to_memory)), [0, 1, 2, 3]);
    }

    #[test]
    fn a_job_with_more_threads_than_contexts_runs_alone() {
        let mut queue = queue(&[1.0, 2.0]);
        let thread = queue[0].threads[0].clone();
        queue[0].threads = vec![thread; 9];
        assert_eq!(places(&by_traffic(&queue, 4, 10.0, QueuedJob::to_memory)), [0]);
        assert_eq!(places(&in_order(&queue, 4)), [0]);
    }

    /// Step 2 for jobs of one thread, with the published fitness where nothing divides by 0.
    fn published(rates: &[f64], contexts: usize, wanted: f64) -> Vec<usize> {
        let (mut bw, mut cpu) = (wanted - rates[0], contexts - 1);
        let mut chosen = vec![0];
        while cpu > 0 && chosen.len() < rates.len() {
            let fitness = |p: usize| 1.0 / (bw / float(cpu) - rates[p]).abs();
            let mut best: Option<usize> = None;
            for p in (0..rates.len()).filter(|p| !chosen.contains(p)) {
                if best.is_none_or(|best| fitness(p) > fitness(best)) {
                    best = Some(p);
                }
            }
            let p = best.expect("one is left");
            bw -= rates[p];
            cpu -= 1;
            chosen.push(p);
        }
        chosen
    }

    proptest! {
        #[test]
        fn as_published(
            rates in prop::collection::vec(0.0_f64..60.0, 1..24),
            contexts in 1_usize..12,
            wanted in 0.0_f64..300.0,
        ) {
            let chosen = by_traffic(&queue(&rates), contexts, wanted, QueuedJob::to_memory);
            prop_assert_eq!(places(&chosen), published(&rates, contexts, wanted));
        }

        #[test]
        fn fills_the_contexts(
            jobs in prop::collection::vec((1_usize..6, 0.0_f64..60.0), 1..16),
            contexts in 1_usize..12,
            wanted in 0.0_f64..300.0,
        ) {
            let rates: Vec<f64> = jobs.iter().map(|(_, rate)| *rate).collect();
            let mut queue = queue(&rates);
            for (job, (threads, _)) in queue.iter_mut().zip(&jobs) {
                job.threads = vec![job.threads[0].clone(); *threads];
            }
            for chosen in [
                by_traffic(&queue, contexts, wanted, QueuedJob::to_memory),
                in_order(&queue, contexts),
            ] {
                let chosen = places(&chosen);
                let mut once = chosen.clone();
                once.sort_unstable();
                once.dedup();
                prop_assert_eq!(once.len(), chosen.len());
                let used: usize = chosen.iter().map(|&at| queue[at].width(contexts)).sum();
                prop_assert!(used <= contexts);
                let waiting = (0..queue.len()).filter(|at| !chosen.contains(at));
                for at in waiting {
                    prop_assert!(used + queue[at].width(contexts) > contexts);
                }
            }
        }

        /// The head leaves its place in every quantum and no job gets before one that waits, so a job at place
        /// `k` is at a lower one in the next quantum, whatever the rates are.
        #[test]
        fn no_job_waits_longer_than_the_others_are_many(
            rates in prop::collection::vec(prop::collection::vec(0.0_f64..60.0, 40), 1..12),
            contexts in 1_usize..8,
            wanted in -100.0_f64..300.0,
        ) {
            let mut jobs = queue(&vec![0.0; rates.len()]);
            let mut waited = vec![0; rates.len()];
            for quantum in 0..40 {
                for job in &mut jobs {
                    let rate = rates[job.job.0 as usize][quantum];
                    job.threads[0].ran.as_mut().unwrap().traffic.memory = Some(rate);
                }
                let chosen = places(&by_traffic(&jobs, contexts, wanted, QueuedJob::to_memory));
                waited.iter_mut().for_each(|quanta| *quanta += 1);
                for (at, job) in jobs.iter_mut().enumerate() {
                    job.just_ran = chosen.contains(&at);
                    if job.just_ran {
                        waited[job.job.0 as usize] = 0;
                    }
                }
                jobs.sort_by_key(|job| job.just_ran);
                prop_assert!(waited.iter().all(|quanta| *quanta < rates.len()), "{waited:?}");
            }
        }

        #[test]
        fn the_head_always_runs(
            rates in prop::collection::vec(0.0_f64..60.0, 1..24),
            contexts in 1_usize..12,
            wanted in -100.0_f64..300.0,
        ) {
            let chosen = by_traffic(&queue(&rates), contexts, wanted, QueuedJob::to_memory);
            prop_assert_eq!(chosen[0].0, 0);
        }
    }
}
