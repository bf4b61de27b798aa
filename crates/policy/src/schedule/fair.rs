//! `fair` and `perf-fair`: progress-aware scheduling (Feliu et al., IPDPS 2015 and IEEE TC 2017).
//!
//! # Problem
//! Jobs that suffer most from the others fall behind, and the last one decides when all are done.
//! # Approach
//! Who has come least far runs. `perf-fair` gives only some of the contexts that way, and the others to the
//! jobs with which the memory is used evenly, as [`bas`].
//! # Terms
//! See [`progress`]. `f`: the share of the contexts that `perf-fair` gives by progress; how the
//! published scheduler mixes both was not found.
//! # Algorithm
//! 1. Note what the last quantum showed.
//! 2. If an estimate is due, this quantum makes it: see [`progress`]; others run beside it.
//! 3. Else `fair` runs the jobs with the least progress; `perf-fair` does so with `f` of the contexts and
//!    fills the rest by [`select::by_traffic`] with what `OATR` leaves.
//! 4. [`allocate::most_with_least`] on the cores that no estimate has for itself.
//! # Properties
//! - **No starvation**: every job runs again and again. -> test `nobody_starves`
//! - **Own cores**: while it is estimated, no other job is on a job's cores. -> test `own_cores`

use super::allocate::{self, choices, threads_of};
use super::progress::{self, Book, Estimating, ordered};
use super::{Allocated, Choice, Quantum, Queued, Scheduler, Selected, Thread, bas, l1, select};
use colocate_machine::PuIdx;

/// The share of the contexts that `perf-fair` gives by progress. Chosen: half.
pub const FAIR_SHARE: f64 = 0.5;

/// `fair`, and `perf-fair` with a share below 1.
#[derive(Clone, Debug)]
pub struct Fair {
    share: f64,
    settings: Estimating,
    book: Book,
}

impl Fair {
    /// With that share of the contexts given by progress: 1 is `fair`.
    #[must_use]
    pub fn new(share: f64, settings: Estimating) -> Self {
        Self { share, settings, book: Book::default() }
    }

    /// What it knows of the jobs' progress.
    #[must_use]
    pub const fn book(&self) -> &Book {
        &self.book
    }

    /// Places in the queue, who has come least far first.
    fn by_progress(&self, queue: &[Queued]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..queue.len()).collect();
        order.sort_by_cached_key(|&at| ordered(self.book.of(queue[at].job).done));
        order
    }

    /// The jobs that have come least far, on `room` contexts.
    fn least(&self, now: &Quantum<'_>, room: usize) -> (Vec<(usize, Selected)>, usize) {
        let mut left = room;
        let mut chosen = Vec::new();
        for at in self.by_progress(now.queue) {
            let width = now.queue[at].width(now.pus.len());
            // Who is first runs, however wide.
            if width <= left || chosen.is_empty() {
                left = left.saturating_sub(width);
                let progress = self.book.of(now.queue[at].job).done;
                chosen.push((at, Selected::LeastProgress { progress }));
            }
        }
        (chosen, left)
    }

    fn by_progress_and_traffic(&self, now: &Quantum<'_>) -> Vec<(usize, Selected)> {
        let contexts = now.pus.len();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // a share of the contexts
        let room = (select::float(contexts) * self.share).ceil() as usize;
        let (chosen, _) = self.least(now, room.clamp(1, contexts));
        if self.share >= 1.0 {
            return chosen;
        }
        let used: usize = chosen.iter().map(|(at, _)| now.queue[*at].width(contexts)).sum();
        let asked = |(at, _): &(usize, Selected)| now.queue[*at].to_memory();
        let taken = chosen.iter().map(asked).fold(0.0, |sum, each| sum + each);
        let left = (bas::oatr(now.queue, contexts) - taken, contexts.saturating_sub(used));
        select::fill(now.queue, contexts, chosen, left, Queued::to_memory)
    }

    /// A quantum in which the jobs `solo` have cores of their own.
    fn estimate(&self, now: &Quantum<'_>, solo: &[usize]) -> Vec<Choice> {
        let mut cores = own_pus(now);
        let mut made = Vec::new();
        for &at in solo {
            let job = &now.queue[at];
            let width = job.width(cores.len());
            let mine: Vec<PuIdx> = cores.drain(..width).map(|core| core[0]).collect();
            made.extend(choices(now, vec![(at, Selected::Estimated)], &mine, |_| {
                Allocated::OwnCores
            }));
        }
        let room: Vec<PuIdx> = cores.concat();
        let beside = self.beside(now, solo, room.len());
        if !beside.is_empty() {
            let threads = threads_of(now.queue, &beside, room.len());
            let pus = allocate::most_with_least(now.machine, &room, &threads, &l1::asked);
            let why = |thread: &Thread| Allocated::MostWithLeast { has: l1::asked(thread) };
            made.extend(choices(now, beside, &pus, why));
        }
        made
    }

    /// Who runs beside jobs that are estimated: light ones that have come least far, then others that ask
    /// least of the memory.
    fn beside(&self, now: &Quantum<'_>, solo: &[usize], room: usize) -> Vec<(usize, Selected)> {
        let light = progress::light(now, self.settings.light);
        let mut order: Vec<usize> = (0..now.queue.len()).filter(|at| !solo.contains(at)).collect();
        order.sort_by_cached_key(|&at| match light[at] {
            true => (false, ordered(self.book.of(now.queue[at].job).done)),
            false => (true, ordered(now.queue[at].to_memory())),
        });
        let mut left = room;
        let mut chosen = Vec::new();
        for at in order {
            // Its own threads are counted, not those that would fit: it must fit beside the others.
            let width = now.queue[at].threads.len();
            if width <= left {
                left -= width;
                chosen.push((at, Selected::BesideEstimate));
            }
        }
        chosen
    }
}

impl Scheduler for Fair {
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        self.book.note(now.queue);
        let solo = self.book.begin_estimates(now, &self.settings);
        if !solo.is_empty() {
            return self.estimate(now, &solo);
        }
        let chosen = self.by_progress_and_traffic(now);
        l1::pair(now, chosen, &l1::asked)
    }

    fn state(&self) -> Option<String> {
        Some(self.book.state())
    }
}

/// Usable PUs by core, in logical order.
fn own_pus(now: &Quantum<'_>) -> Vec<Vec<PuIdx>> {
    let same = |a: &PuIdx, b: &PuIdx| now.machine.core_of(*a) == now.machine.core_of(*b);
    now.pus.chunk_by(same).map(<[PuIdx]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chosen, queue, run};
    use super::*;
    use crate::plan::JobIdx;
    use crate::testing::machine;

    /// An estimate of 2.0 alone; then a quantum at 1.0 beside others is half a quantum's worth.
    #[test]
    fn progress_by_hand() {
        let machine = machine("core:1 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut fair = Fair::new(1.0, Estimating::default());
        let mut jobs = queue(&[1.0]);

        let first = fair.choose(&Quantum { number: 0, machine: &machine, pus: &pus, queue: &jobs });
        assert_eq!(first[0].selected, Selected::Estimated);
        (jobs[0].just_ran, jobs[0].had_own_cores) = (true, true);
        jobs[0].threads[0].ran.as_mut().unwrap().ipc = Some(2.0);
        fair.choose(&Quantum { number: 0, machine: &machine, pus: &pus, queue: &jobs });
        assert!((fair.book.of(JobIdx(0)).done - 1.0).abs() < 1e-12);
        jobs[0].had_own_cores = false;
        jobs[0].threads[0].ran.as_mut().unwrap().ipc = Some(1.0);
        let third = fair.choose(&Quantum { number: 0, machine: &machine, pus: &pus, queue: &jobs });
        let known = fair.book.of(JobIdx(0));
        assert!((known.done - 1.5).abs() < 1e-12 && known.age == 1);
        assert_eq!(third[0].selected, Selected::LeastProgress { progress: 1.5 });
    }

    /// Beside others at 1.0 it counts as a quantum; then it turns out that alone it does 2.0, so that was half
    /// a quantum's worth, and the estimate itself is one.
    #[test]
    fn before_the_first_estimate() {
        let machine = machine("core:1 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut fair = Fair::new(1.0, Estimating::default());
        let mut jobs = queue(&[1.0]);
        jobs[0].just_ran = true;
        fair.choose(&Quantum { number: 1, machine: &machine, pus: &pus, queue: &jobs });
        assert!((fair.book.of(JobIdx(0)).done - 1.0).abs() < 1e-12);
        jobs[0].had_own_cores = true;
        jobs[0].threads[0].ran.as_mut().unwrap().ipc = Some(2.0);
        fair.choose(&Quantum { number: 2, machine: &machine, pus: &pus, queue: &jobs });
        assert!((fair.book.of(JobIdx(0)).done - 1.5).abs() < 1e-12);
    }

    /// One try each, then nobody has cores of its own any more, until somebody's speed is counted.
    #[test]
    fn without_counters() {
        let machine = machine("core:2 pu:2");
        let pus: Vec<_> = machine.all_pus().collect();
        let mut fair = Fair::new(1.0, Estimating::default());
        let mut jobs = queue(&[1.0; 4]);
        for job in &mut jobs {
            job.threads[0].ran.as_mut().unwrap().ipc = None;
            (job.just_ran, job.had_own_cores) = (true, true);
        }
        let mut estimates = |jobs: &[Queued]| {
            let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: jobs };
            let choices = fair.choose(&now);
            choices.iter().filter(|choice| choice.selected == Selected::Estimated).count()
        };
        let tried: usize = (0..4).map(|_| estimates(&jobs)).sum();
        assert_eq!((tried, estimates(&jobs)), (4, 0));
        jobs[1].threads[0].ran.as_mut().unwrap().ipc = Some(1.0);
        assert_eq!(estimates(&jobs), 1);
    }

    #[test]
    fn own_cores() {
        let machine = machine("core:4 pu:2");
        for share in [1.0, FAIR_SHARE] {
            let mut fair = Fair::new(share, Estimating::default());
            run(
                &machine,
                &mut fair,
                &[9.0, 1.0, 2.0, 30.0, 4.0, 5.0, 8.0, 7.0, 3.0, 6.0],
                200,
                |choices| {
                    let places = chosen(choices);
                    for choice in choices.iter().filter(|c| c.selected == Selected::Estimated) {
                        let mine: Vec<u32> = places
                            .iter()
                            .filter(|(job, _)| *job == choice.job.0)
                            .map(|(_, pu)| pu / 2)
                            .collect();
                        let others = places.iter().filter(|(job, _)| *job != choice.job.0);
                        assert!(others.clone().all(|(_, pu)| !mine.contains(&(pu / 2))));
                    }
                },
            );
        }
    }

    /// With ten jobs and `n` = 20, ten estimates are due every 20 of a job's quanta.
    #[test]
    fn everybody_is_estimated() {
        let machine = machine("core:4 pu:2");
        let mut fair = Fair::new(FAIR_SHARE, Estimating::default());
        run(&machine, &mut fair, &[9.0, 1.0, 2.0, 30.0, 4.0, 5.0, 8.0, 7.0, 3.0, 6.0], 20, |_| ());
        assert!((0..10).all(|job| fair.book.of(JobIdx(job)).alone.is_some()));
    }

    /// Of twelve jobs on four contexts nobody waits for more than 30 quanta.
    #[test]
    fn nobody_starves() {
        let machine = machine("core:2 pu:2");
        for share in [1.0, FAIR_SHARE] {
            let mut fair = Fair::new(share, Estimating::default());
            let rates: Vec<f64> = (0..12).map(f64::from).collect();
            let mut waited = [0_u32; 12];
            run(&machine, &mut fair, &rates, 500, |choices| {
                waited.iter_mut().for_each(|waited| *waited += 1);
                choices.iter().for_each(|choice| waited[choice.job.0 as usize] = 0);
                assert!(waited.iter().all(|waited| *waited <= 30), "{waited:?}");
            });
        }
    }
}
