//! `l1-static` and `l1-dynamic`: first-cache bandwidth-aware allocation (Feliu et al., PACT 2013, Algorithm 6).
//!
//! # Problem
//! The PUs of a core share its first cache, and two threads that keep it busy slow each other down.
//! # Approach
//! The thread with most traffic to it is beside the one with least. `l1-dynamic` goes by the traffic in the last
//! quantum; `l1-static` by the average of a run alone, so no thread moves. The traffic of a job alone is of all its
//! threads together: each has its part of that, all runnable ones the same.
//! # Terms
//! See [`schedule`](super): queue, context, transactions per microsecond.
//! # Algorithm
//! Jobs run in the order of the queue as far as there are contexts; [`allocate::most_with_least`].
//! The published study has as many jobs as contexts, so there is no selection.
//! # Properties
//! - **What it goes by**: the same jobs are paired by the last quantum or by what is known alone. -> test
//!   `by_what_is_known_alone_or_by_the_last_quantum`
//! - **Each its part**: a thread of many has no more than its part of the job's traffic. -> test
//!   `a_job_of_many_threads`

use super::allocate::{self, choices, threads_of};
use super::{Allocated, Choice, Quantum, Selected, Thread, select};
use crate::plan::JobIdx;
use crate::policy::by_rule;
use crate::row::{COUNTERS, Prior, Row};
use std::collections::BTreeMap;

/// Its row in the table of policies.
pub static STATIC: Row = Row {
    name: "l1-static",
    summary: "pairs most with least first-cache traffic, by runs alone",
    prior: &[Prior::Solo],
    make: |_, known| {
        let rates: Vec<f64> = known.alone.iter().map(|job| job.first_cache).collect();
        by_rule(COUNTERS, move |it| it.plan(&by_runs_alone(&it.now, &rates)))
    },
    source: "Feliu et al., PACT 2013, Algorithm 6",
    ..Row::EACH_QUANTUM
};

/// Its row in the table of policies.
pub(crate) static DYNAMIC: Row = Row {
    name: "l1-dynamic",
    summary: "pairs most with least first-cache traffic, by the last quantum",
    source: "Feliu et al., PACT 2013, Algorithm 6",
    make: |_, _| by_rule(COUNTERS, |it| it.plan(&by_last_quantum(&it.now))),
    ..Row::EACH_QUANTUM
};

fn by_last_quantum(now: &Quantum<'_>) -> Vec<Choice> {
    pair(now, fitting(now), &asked)
}

/// `rates` are requests of each job to the first cache, alone, all its threads together, t/µs; by job.
fn by_runs_alone(now: &Quantum<'_>, rates: &[f64]) -> Vec<Choice> {
    let threads: BTreeMap<JobIdx, usize> =
        now.queue.iter().map(|job| (job.job, job.threads.len())).collect();
    let rate = |thread: &Thread| {
        let job = thread.id.job;
        let all = rates.get(job.0 as usize).copied().unwrap_or(0.0);
        all / select::float(threads.get(&job).copied().unwrap_or(1))
    };
    pair(now, fitting(now), &rate)
}

/// Traffic of a thread to its first cache in its last quantum.
pub(super) fn asked(thread: &Thread) -> f64 {
    thread.traffic().at(1)
}

fn fitting(now: &Quantum<'_>) -> Vec<(usize, Selected)> {
    select::all(now.queue, now.pus.len())
        .unwrap_or_else(|| select::in_order(now.queue, now.pus.len()))
}

/// Seats the chosen jobs by [`allocate::most_with_least`].
pub(super) fn pair(
    now: &Quantum<'_>,
    chosen: Vec<(usize, Selected)>,
    rate: allocate::Rate<'_>,
) -> Vec<Choice> {
    let threads = threads_of(now.queue, &chosen, now.pus.len());
    let pus = allocate::most_with_least(now.machine, now.pus, &threads, rate);
    choices(now, chosen, &pus, |thread| Allocated::MostWithLeast { has: rate(thread) })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, traffic};
    use super::*;
    use crate::plan::TaskId;
    use crate::testing::machine;

    /// Alone, the jobs have traffic of 1, 9, 5, 7; in the last quantum for 9, 1, 5, 7.
    #[test]
    fn by_what_is_known_alone_or_by_the_last_quantum() {
        let machine = machine("core:2 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let of = |rate: f64| ([Some(rate), None, None, None], 1.0);
        let queue = traffic([9.0, 1.0, 5.0, 7.0].map(of));
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let dynamic = by_last_quantum(&now);
        let fixed = by_runs_alone(&now, &[1.0, 9.0, 5.0, 7.0]);
        assert_eq!(chosen(&dynamic), [(0, 0), (1, 1), (2, 3), (3, 2)]);
        assert_eq!(chosen(&fixed), [(0, 1), (1, 0), (2, 3), (3, 2)]);
    }

    /// Four threads have 400 together, so 100 each, and one of another job 150: it is beside the one with 10.
    #[test]
    fn a_job_of_many_threads() {
        let machine = machine("core:3 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut queue = traffic([0.0; 3].map(|_| ([None; 4], 1.0)));
        let first = queue[0].threads[0].clone();
        let id = |order| TaskId { order, ..first.id };
        queue[0].threads = (0..4).map(|order| Thread { id: id(order), ..first.clone() }).collect();
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let choices = by_runs_alone(&now, &[400.0, 150.0, 10.0]);
        assert_eq!(chosen(&choices)[4..], [(1, 0), (2, 1)]);
        assert_eq!(choices[0].places[0].1, Allocated::MostWithLeast { has: 100.0 });
    }
}
