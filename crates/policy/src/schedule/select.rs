//! Selection of the jobs that run.
//!
//! # Problem
//! Programs that flood the memory together slow each other down; in another quantum the memory
//! idles.
//! # Approach
//! Every quantum should have about the same memory traffic. Take the head of the queue, so that no
//! job starves. Then, for each remaining context, take the job with the traffic nearest to the
//! context's share of the remaining traffic (Xu, Wu and Yew, PACT 2010; Feliu et al., IPDPS 2012,
//! "fitness").
//! # Terms
//! - `BW`: remaining traffic of the quantum, t/µs. Below 0, the job with the least traffic is
//!   nearest.
//! - `CPU`: number of remaining contexts.
//! # Algorithm
//! 1. Head `h` runs: `BW −= TR(h)`, `CPU −= width(h)`.
//! 2. While contexts and jobs that fit remain: run `p` with the least `|BW/CPU − TR(p)/width(p)|`,
//!    of several the one nearest to the head; `BW −= TR(p)`, `CPU −= width(p)`.
//!
//! Unknown traffic counts as the mean of the known, per thread (ours), so jobs of unknown traffic
//! run in the order of the queue. The published fitness is `1 / |BW/CPU − TR(p)|`, to be the
//! greatest: the same order, without the division by 0. Jobs of several threads are ours: a job is
//! chosen as a whole and counts by the traffic of one of its threads.
//! # Properties
//! - **No starvation**: the head always runs, -> test `the_head_always_runs`; so with those that
//!   ran at the tail, of `n` jobs none waits for more than `n − 1` quanta.
//!   -> test `no_job_waits_longer_than_the_others_are_many`
//! - **Room**: no more threads than contexts, unless the head alone has more; no job that fits
//!   waits while contexts are free. -> test `fills_the_contexts`
//! - **As published**: for jobs of one thread, what the definition says. -> tests `by_hand`,
//!   `as_published`

use super::{Quantum, QueuedJob, Selected};

/// Chooses jobs for `contexts` PUs by their memory traffic, with a total of about `wanted` t/µs:
/// the head of the queue, then jobs by fitness. Places in `queue`, in the order of choice.
///
/// `demand` is the traffic of a job, in t/µs; `None` is unknown.
pub(crate) fn by_traffic(
    queue: &[QueuedJob],
    contexts: usize,
    wanted: f64,
    demand: impl Fn(&QueuedJob) -> Option<f64>,
) -> Vec<(usize, Selected)> {
    let head = queue.first().map(|_| (0, Selected::HeadOfQueue));
    fill(queue, contexts, head.into_iter().collect(), wanted, demand)
}

/// Fills the contexts left by the jobs `chosen`, for a total traffic of `wanted` t/µs.
pub(super) fn fill(
    queue: &[QueuedJob],
    contexts: usize,
    mut chosen: Vec<(usize, Selected)>,
    wanted: f64,
    demand: impl Fn(&QueuedJob) -> Option<f64>,
) -> Vec<(usize, Selected)> {
    let demands: Vec<Option<f64>> = queue.iter().map(demand).collect();
    let mean = mean_of_a_thread(queue, contexts, &demands);
    // A job of more threads than contexts takes all contexts.
    let widths: Vec<usize> = queue.iter().map(|job| job.width(contexts)).collect();
    // Traffic of each thread of a job, t/µs.
    let of_job = demands.iter().zip(&widths);
    let each: Vec<f64> = of_job
        .map(|(demand, &width)| demand.map_or(mean, |demand| demand / width as f64))
        .collect();
    let mut traffic = wanted;
    let mut left = contexts;
    let mut waiting = vec![true; queue.len()];
    for &(at, _) in &chosen {
        traffic -= each[at] * widths[at] as f64;
        // A job chosen before may have more threads than there are contexts.
        left = left.saturating_sub(widths[at]);
        waiting[at] = false;
    }
    while left > 0 {
        // May be below 0 after jobs with much traffic; then the least traffic is nearest.
        let wanted = traffic / left as f64;
        // Side by side: without an index there is nothing to check in the innermost loop.
        let jobs = waiting.iter().zip(&widths).zip(&each).enumerate();
        let fitting = jobs.filter(|(_, ((waits, width), _))| **waits && **width <= left);
        let distances = fitting.map(|(at, (_, each))| ((wanted - each).abs(), at));
        // The first of equal distances wins, which is nearest to the head.
        let nearest = distances.min_by(|(a, _), (b, _)| a.total_cmp(b));
        let Some((_, at)) = nearest else { break };
        traffic -= each[at] * widths[at] as f64;
        left -= widths[at];
        waiting[at] = false;
        let known = Selected::Traffic { wanted, has: each[at] };
        chosen.push((at, if demands[at].is_some() { known } else { Selected::TrafficUnknown }));
    }
    chosen
}

/// Mean traffic of a thread over all jobs of known traffic, t/µs; 0 without such a job.
pub(super) fn mean_of_a_thread(
    queue: &[QueuedJob],
    contexts: usize,
    demands: &[Option<f64>],
) -> f64 {
    let known = queue.iter().zip(demands).filter_map(|(job, demand)| Some((job, (*demand)?)));
    let (threads, traffic) = known.fold((0, 0.0), |(threads, traffic), (job, demand)| {
        (threads + job.width(contexts), traffic + demand)
    });
    if threads > 0 { traffic / threads as f64 } else { 0.0 }
}

/// All jobs if they fit together, else the jobs from the head on that fit.
pub fn all_or_first(now: &Quantum<'_>) -> Vec<(usize, Selected)> {
    let contexts = now.pus.len();
    all(now.queue, contexts).unwrap_or_else(|| in_order(now.queue, contexts))
}

/// The jobs from the head on that fit on the contexts.
fn in_order(queue: &[QueuedJob], contexts: usize) -> Vec<(usize, Selected)> {
    let first = fitting(0..queue.len(), contexts, |at| queue[at].width(contexts));
    first.map(|at| (at, Selected::HeadOfQueue)).collect()
}

/// The places of `order` whose widths fit on the contexts one after the other.
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

/// All jobs, if they fit together; else `None`.
pub fn all(queue: &[QueuedJob], contexts: usize) -> Option<Vec<(usize, Selected)>> {
    let wanted: usize = queue.iter().map(|job| job.threads.len()).sum();
    (wanted <= contexts).then(|| (0..queue.len()).map(|at| (at, Selected::Room)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::testing::queue;
    use super::*;
    use proptest::prelude::*;

    fn places(chosen: &[(usize, Selected)]) -> Vec<usize> {
        chosen.iter().map(|(at, _)| *at).collect()
    }

    /// BW = 40 on 4 contexts. Head 25: 15 left for 3, 5 each. 4 is nearest: 11 for 2, 5.5 each. 8
    /// is 2.5 off, 1 is 4.5 off, 30 far: 3 for 1. 1 is 2 off.
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
        let chosen = by_traffic(&queue, 4, 7.0, |_| None);
        assert_eq!(places(&chosen), [0, 1, 2, 3]);
        assert!(chosen[1..].iter().all(|(_, why)| *why == Selected::TrafficUnknown));
    }

    /// Of 12, 4 and 8 the mean is 8. Head 12 leaves 12 for two, 6 each: 4 and 8 are as near, and so
    /// is the unknown one, which comes first.
    #[test]
    fn unknown_counts_as_the_mean() {
        let queue = queue(&[12.0, 0.0, 4.0, 8.0]);
        let demand = |job: &QueuedJob| job.to_memory().filter(|rate| *rate > 0.0);
        let chosen = by_traffic(&queue, 3, 24.0, demand);
        assert_eq!(chosen[1], (1, Selected::TrafficUnknown));
        assert_eq!(chosen[2], (2, Selected::Traffic { wanted: 4.0, has: 4.0 }));
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
            let fitness = |p: usize| 1.0 / (bw / cpu as f64 - rates[p]).abs();
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

        /// The head leaves its place in every quantum and no job gets before one that waits, so a
        /// job at place `k` is at a lower one in the next quantum, whatever the rates are.
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
