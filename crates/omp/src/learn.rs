//! How many threads a parallel region should have, learnt while it is executed again and again.
//!
//! # Problem
//! Training costs time, since regions run with fewer threads than they could, and what a model says may be wrong.
//! # Approach
//! First the region runs as it would. Then a few executions with one thread show its critical sections
//! ([`colocate_model::threads::sections`]). If fewer threads are predicted to do, blocks with fewer and with all threads take
//! turns, and only what these show is taken. All of that may cost [`BUDGET`] of the region's time so far, and waits until it
//! does not cost more.
//! # Terms
//! - *Execution*: from the region's begin to its end, by the clock of its first thread; ns.
//! - *Pair*: a block of executions with fewer threads and one with all. It is won if fewer took at most [`TOLERANCE`] longer.
//! # Algorithm
//! Pairs are counted as heads of a coin: fewer threads are taken as soon as so many wins of so few pairs would be luck in
//! `LUCK` of cases, left alone if so many losses would be, and left alone after `MOST_PAIRS`.
//! # Properties
//! - **Found**: critical sections that leave nothing to more threads bring one thread. -> test `critical_sections_leave_one`
//! - **Left alone** where threads help. -> test `parallel_regions_keep_all`
//! - **A wrong model moves nothing**. -> test `what_is_slower_is_not_taken`
//! - **Bounded cost**, whatever executions take. -> test `learning_costs_little`
//! - **Anew with more threads** than it ever had. -> test `what_few_did_says_nothing_of_more`

use colocate_model::threads::sections::{Executed, Sections};
use colocate_model::threads::{Advice, Limit};

/// Share of a region's time that learning may cost. Chosen: a program that learns nothing loses no more.
pub const BUDGET: f64 = 0.05;
/// How much longer counts as equal.
pub const TOLERANCE: f64 = 0.02;
/// How often luck may decide a comparison. Chosen: it is computed after every pair, so it is below the customary 0.05.
const LUCK: f64 = 0.01;
/// Pairs after which nothing is said to be resolved. Chosen.
const MOST_PAIRS: u32 = 30;
/// Executions with all threads before anything is tried, after the first one, which pays for threads and pages.
const BASE: u32 = 5;
/// Executions with another number in a row; the first one is not counted, since threads and caches change. Chosen.
const BLOCK: u32 = 3;

/// One execution of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// How many threads ran it.
    pub threads: u32,
    /// From begin to end, in ns.
    pub wall: u64,
    /// Time between its begin and its end on each thread, waiting at the end left out, summed; ns.
    pub busy: u64,
    /// Time inside critical sections, summed; ns.
    pub inside: u64,
    /// Time waiting for critical sections, summed; ns.
    pub waited: u64,
}

/// Sums of executions with one number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// How many executions.
    pub count: u32,
    /// Their [`Execution::wall`].
    pub wall: u64,
    /// Their [`Execution::busy`].
    pub busy: u64,
    /// Their [`Execution::inside`].
    pub inside: u64,
    /// Their [`Execution::waited`].
    pub waited: u64,
}

impl Sums {
    fn add(&mut self, execution: &Execution) {
        self.count = self.count.saturating_add(1);
        self.wall = self.wall.saturating_add(execution.wall);
        self.busy = self.busy.saturating_add(execution.busy);
        self.inside = self.inside.saturating_add(execution.inside);
        self.waited = self.waited.saturating_add(execution.waited);
    }

    /// Mean of one of its sums, in ns; `None` without executions.
    #[must_use]
    pub fn mean(&self, sum: u64) -> Option<f64> {
        (self.count > 0).then(|| float(sum) / f64::from(self.count))
    }

    /// The mean execution with so many threads; `None` if nothing was seen of its work.
    #[must_use]
    pub fn executed(&self, threads: u32) -> Option<Executed> {
        let outside = self.busy.saturating_sub(self.inside).saturating_sub(self.waited);
        let executed =
            Executed { threads, outside: self.mean(outside)?, inside: self.mean(self.inside)? };
        (executed.outside > 0.0).then_some(executed)
    }
}

#[allow(clippy::cast_precision_loss)] // a century of ns is below 2^62, and ratios need no more than 53 bits
fn float(value: u64) -> f64 {
    value as f64
}

/// What was learnt of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// Not enough yet.
    Learning,
    /// All threads are worth while.
    All,
    /// Fewer do as much, because of this.
    Fewer(Limit),
    /// Fewer were predicted to do, because of this, and took longer.
    Slower(Limit),
    /// Fewer were predicted to do, because of this, and noise was larger than the difference.
    NotResolved(Limit),
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Base,
    Train { left: u32 },
    Verify(Trial),
    Done { threads: u32, learnt: Learnt },
}

/// A comparison under way.
#[derive(Clone, Copy, Debug)]
struct Trial {
    threads: u32,
    limit: Limit,
    /// Whether this block is with fewer threads.
    fewer: bool,
    left: u32,
    /// Time of this block, and of the one before; ns.
    block: u64,
    before: u64,
    pairs: u32,
    won: u32,
    /// Executions with fewer threads so far.
    sums: Sums,
}

/// What is known of one region.
#[derive(Clone, Copy, Debug)]
pub struct Learner {
    most: u32,
    stage: Stage,
    warm: bool,
    all: Sums,
    one: Sums,
    total: u64,
    excess: u64,
}

impl Learner {
    /// For a region that may have `most` threads. Where `may_change` is not set it only watches.
    #[must_use]
    pub fn new(most: u32, may_change: bool) -> Self {
        let most = most.max(1);
        let stage = if may_change && most > 1 {
            Stage::Base
        } else {
            Stage::Done {
                threads: most,
                learnt: if may_change { Learnt::All } else { Learnt::Learning },
            }
        };
        let (all, one) = (Sums::default(), Sums::default());
        Self { most, stage, warm: false, all, one, total: 0, excess: 0 }
    }

    /// The region may have `most` threads from now on. If these are more than ever, it begins anew, since fewer say
    /// nothing of them; what it has cost still counts.
    pub fn may_have(&mut self, most: u32, may_change: bool) {
        if most > self.most {
            let (total, excess) = self.cost();
            *self = Self { total, excess, ..Self::new(most, may_change) };
        }
    }

    /// With how many threads to execute the region next.
    #[must_use]
    pub fn threads(&self) -> u32 {
        match self.stage {
            Stage::Base => self.most,
            Stage::Train { .. } => 1,
            Stage::Verify(trial) => {
                let waits = trial.left == BLOCK && !self.affords(trial.threads, &trial.sums);
                if trial.fewer && !waits { trial.threads } else { self.most }
            }
            Stage::Done { threads, .. } => threads,
        }
    }

    /// How many threads it has by what was learnt; all as long as it learns.
    #[must_use]
    pub fn settled(&self) -> u32 {
        match self.stage {
            Stage::Done { threads, .. } => threads,
            _ => self.most,
        }
    }

    /// Takes in an execution.
    pub fn executed(&mut self, execution: &Execution) {
        self.total = self.total.saturating_add(execution.wall);
        let (asked, warm) = (self.threads(), std::mem::replace(&mut self.warm, true));
        // The runtime has given another number, or it was the first one.
        if execution.threads != asked || !warm {
            return;
        }
        if execution.threads == self.most {
            self.all.add(execution);
        } else if !matches!(self.stage, Stage::Done { .. }) {
            let default = self.all.wall / u64::from(self.all.count.max(1));
            self.excess = self.excess.saturating_add(execution.wall.saturating_sub(default));
        }
        let may_train = self.all.count >= BASE && self.affords(1, &Sums::default());
        match &mut self.stage {
            Stage::Base if may_train => {
                self.stage = Stage::Train { left: BLOCK };
            }
            Stage::Train { left } => {
                if *left < BLOCK {
                    self.one.add(execution);
                }
                *left -= 1;
                if *left == 0 {
                    self.stage = self.predicted();
                }
            }
            Stage::Verify(trial)
                if execution.threads == if trial.fewer { trial.threads } else { self.most } =>
            {
                if let Some(done) = trial.executed(execution, self.most) {
                    self.stage = done;
                }
            }
            _ => {}
        }
    }

    /// Whether a block with so many threads, of which this is known, is within the budget. What is not known is taken to be
    /// perfectly parallel, which is the worst.
    fn affords(&self, threads: u32, known: &Sums) -> bool {
        let Some(default) = self.all.mean(self.all.wall) else { return false };
        let slowest = default * f64::from(self.most) / f64::from(threads.max(1));
        let one = known.mean(known.wall).unwrap_or(slowest);
        let block = f64::from(BLOCK) * (one - default).max(0.0);
        float(self.excess) + block <= BUDGET * float(self.total)
    }

    /// The prediction from executions with one thread.
    fn predicted(&self) -> Stage {
        let all = Stage::Done { threads: self.most, learnt: Learnt::All };
        let Some(sections) = self.sections() else { return all };
        let mut advice = sections.advise(self.most);
        if advice.threads >= self.most {
            let faster = self.one.mean(self.one.wall) <= self.all.mean(self.all.wall);
            if !faster {
                return all;
            }
            // The model would have all, and one thread has been as fast: it is tried.
            advice = Advice { threads: 1, limit: sections.meets(2) };
        }
        let sums = Sums::default();
        let (threads, limit) = (advice.threads, advice.limit);
        Stage::Verify(Trial {
            threads,
            limit,
            fewer: true,
            left: BLOCK,
            block: 0,
            before: 0,
            pairs: 0,
            won: 0,
            sums,
        })
    }

    /// What the region's time is made of; `None` before it ran with one thread.
    #[must_use]
    pub fn sections(&self) -> Option<Sections> {
        Sections::of(self.one.executed(1)?, self.all.executed(self.most)?)
    }

    /// The most threads that it may have.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Executions with all threads, and with one.
    #[must_use]
    pub fn sums(&self) -> (Sums, Sums) {
        (self.all, self.one)
    }

    /// Time of all executions, and what learning has cost of it; ns.
    #[must_use]
    pub fn cost(&self) -> (u64, u64) {
        (self.total, self.excess)
    }

    /// What was learnt.
    #[must_use]
    pub fn learnt(&self) -> Learnt {
        match self.stage {
            Stage::Done { learnt, .. } => learnt,
            _ => Learnt::Learning,
        }
    }
}

impl Trial {
    /// Takes in an execution of the block that is on; says what the region's stage is then, if it is another one.
    fn executed(&mut self, execution: &Execution, most: u32) -> Option<Stage> {
        if self.left < BLOCK {
            self.block = self.block.saturating_add(execution.wall);
            if self.fewer {
                self.sums.add(execution);
            }
        }
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        self.left = BLOCK;
        let (block, before) = (std::mem::take(&mut self.block), self.before);
        self.before = block;
        self.fewer = !self.fewer;
        // A pair is whole after the block with all threads.
        if !self.fewer {
            return None;
        }
        self.pairs += 1;
        self.won += u32::from(float(before) <= float(block) * (1.0 + TOLERANCE));
        self.verdict().map(|learnt| {
            let threads = if matches!(learnt, Learnt::Fewer(_)) { self.threads } else { most };
            Stage::Done { threads, learnt }
        })
    }

    fn verdict(&self) -> Option<Learnt> {
        match () {
            () if luck(self.won, self.pairs) <= LUCK => Some(Learnt::Fewer(self.limit)),
            () if luck(self.pairs - self.won, self.pairs) <= LUCK => {
                Some(Learnt::Slower(self.limit))
            }
            () if self.pairs >= MOST_PAIRS => Some(Learnt::NotResolved(self.limit)),
            () => None,
        }
    }
}

/// How often a coin shows at least so many heads in so many throws.
fn luck(heads: u32, throws: u32) -> f64 {
    let mut ways = 1.0;
    let mut sum = 0.0;
    for shown in 0..=throws {
        if shown >= heads {
            sum += ways;
        }
        ways *= f64::from(throws - shown) / f64::from(shown + 1);
    }
    sum / 2_f64.powi(throws.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A region: time outside, inside that threads share out, and inside that every one adds; ns.
    #[derive(Clone, Copy)]
    struct Region(u64, u64, u64);

    impl Region {
        fn run(self, threads: u32) -> Execution {
            let Self(outside, shared, each) = self;
            let count = u64::from(threads);
            let wall = ((outside + shared) / count).max(shared) + each * count;
            let inside = shared + each * count;
            Execution {
                threads,
                wall,
                busy: wall * count,
                inside,
                waited: (wall * count).saturating_sub(outside + inside),
            }
        }
    }

    fn taught(most: u32, executions: u32, mut run: impl FnMut(u32) -> Execution) -> Learner {
        let mut learner = Learner::new(most, true);
        for _ in 0..executions {
            learner.executed(&run(learner.threads()));
        }
        learner
    }

    #[test]
    fn critical_sections_leave_one() {
        for most in [2, 8, 64] {
            let learner =
                taught(most, 20_000, |threads| Region(10_000, 1_000_000, 20_000).run(threads));
            assert_eq!(
                (learner.threads(), learner.learnt()),
                (1, Learnt::Fewer(Limit::CriticalSections)),
                "{most}"
            );
        }
    }

    /// 76 % outside, 24 % inside, shared out: at 16 threads nothing is gained over 5.
    #[test]
    fn a_quarter_inside_takes_five() {
        let learner = taught(16, 20_000, |threads| Region(760_000, 240_000, 0).run(threads));
        assert_eq!(
            (learner.threads(), learner.learnt()),
            (5, Learnt::Fewer(Limit::CriticalSections))
        );
        assert!((learner.sections().unwrap().share() - 0.24).abs() < 1e-6);
    }

    #[test]
    fn parallel_regions_keep_all() {
        for most in [1, 2, 8, 64] {
            let learner = taught(most, 20_000, |threads| Region(1_000_000, 100, 0).run(threads));
            assert_eq!((learner.threads(), learner.learnt()), (most, Learnt::All), "{most}");
        }
    }

    /// Eight threads need twice the time outside that one does: four use the memory up.
    #[test]
    fn a_used_up_memory_takes_half() {
        let run = |threads: u32| {
            let wall = (800_000 / u64::from(threads)).max(200_000);
            Execution { threads, wall, busy: wall * u64::from(threads), inside: 0, waited: 0 }
        };
        let learner = taught(8, 20_000, run);
        assert_eq!((learner.threads(), learner.learnt()), (4, Learnt::Fewer(Limit::Bandwidth)));
    }

    /// Handing a critical section over takes longer than what is in it, which no sum of times shows: one thread is faster.
    #[test]
    fn what_is_measured_outweighs_the_model() {
        let run = |threads: u32| {
            let region = Region(500_000, 400_000, 0).run(threads);
            let wall = if threads > 1 { 2_000_000 } else { region.wall };
            Execution { wall, ..region }
        };
        let learner = taught(2, 20_000, run);
        assert_eq!(
            (learner.threads(), learner.learnt()),
            (1, Learnt::Fewer(Limit::CriticalSections))
        );
    }

    /// The critical sections are as long as if one thread were enough, but all threads are twice as fast.
    #[test]
    fn what_is_slower_is_not_taken() {
        let lies = |threads: u32| Execution {
            wall: 2_000_000 / u64::from(threads),
            ..Region(10_000, 1_000_000, 20_000).run(threads)
        };
        let learner = taught(2, 20_000, lies);
        assert_eq!(
            (learner.threads(), learner.learnt()),
            (2, Learnt::Slower(Limit::CriticalSections))
        );
    }

    /// Fewer win about every other pair.
    #[test]
    fn noise_moves_nothing() {
        let mut ones = 0_u32;
        let noisy = |threads: u32| {
            ones += u32::from(threads == 1);
            let wall = match threads {
                1 if (ones.saturating_sub(1) / BLOCK).is_multiple_of(2) => 900_000,
                1 => 1_100_000,
                _ => 1_000_000,
            };
            Execution { wall, ..Region(10_000, 1_000_000, 20_000).run(threads) }
        };
        let learner = taught(2, 20_000, noisy);
        assert_eq!(
            (learner.threads(), learner.learnt()),
            (2, Learnt::NotResolved(Limit::CriticalSections))
        );
    }

    #[test]
    fn watching_alone_changes_nothing() {
        let mut learner = Learner::new(4, false);
        for _ in 0..1_000 {
            assert_eq!(learner.threads(), 4);
            learner.executed(&Region(10_000, 1_000_000, 20_000).run(4));
        }
        assert_eq!((learner.learnt(), learner.sums().0.count), (Learnt::Learning, 999));
    }

    /// With two threads one was enough. With eight that has to be learnt again, and what it has cost is known; four
    /// are no news.
    #[test]
    fn what_few_did_says_nothing_of_more() {
        let sections = |threads: u32| Region(10_000, 1_000_000, 20_000).run(threads);
        let mut learner = taught(2, 20_000, sections);
        let cost = learner.cost();
        learner.may_have(2, true);
        assert_eq!((learner.threads(), learner.most()), (1, 2));
        learner.may_have(8, true);
        let now = (learner.threads(), learner.settled(), learner.learnt());
        assert_eq!((now, learner.cost()), ((8, 8, Learnt::Learning), cost));
        learner.executed(&sections(8));
        learner.may_have(4, true);
        learner.executed(&sections(8));
        assert_eq!((learner.most(), learner.sums().0.count), (8, 1), "the first does not count");
    }

    /// Seven heads of seven: 1 of 128. Four or more of five: 6 of 32.
    #[test]
    fn coins() {
        assert_eq!([luck(7, 7), luck(4, 5), luck(0, 9)], [1.0 / 128.0, 6.0 / 32.0, 1.0]);
    }

    proptest! {
        /// Each block may cost what it did not know before: one of them is beyond the budget at most.
        #[test]
        fn learning_costs_little(
            walls in proptest::collection::vec(1_000_u64..2_000, 64),
            outside in 1_000_u64..1_000_000, shared in 0_u64..1_000_000, each in 0_u64..100_000,
            most in 1_u32..64, executions in 1_u32..3_000,
        ) {
            let mut at = 0;
            let mut slowest = 0;
            let learner = taught(most, executions, |threads| {
                at += 1;
                let mut execution = Region(outside, shared, each).run(threads);
                execution.wall = execution.wall * walls[at % 64] / 1_000;
                slowest = slowest.max(execution.wall);
                execution
            });
            let (total, excess) = learner.cost();
            prop_assert!(float(excess) <= BUDGET * float(total) + float(u64::from(BLOCK) * slowest));
            prop_assert!((1..=most).contains(&learner.threads()));
        }
    }
}
