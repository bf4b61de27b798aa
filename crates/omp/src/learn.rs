//! How many threads a parallel region should have, learnt while it is executed again and again, or while one execution lasts.
//!
//! # Problem
//! Training costs time, since regions run with fewer threads than they could, and what a model says may be wrong.
//! # Approach
//! First the region runs as it would. Then a few executions with one thread show its critical sections
//! ([`colocate_model::threads::sections`]). If fewer threads are predicted to do, blocks with fewer and with all threads take
//! turns, and only what these show is taken. All of that may cost [`BUDGET`] of the region's time so far, and waits until it
//! does not cost more.
//!
//! A loop that is executed once, and for long, is learnt by windows in place of executions. In each of them another number of its
//! threads run, so the first iterations are measured and the others get the number that follows.
//! # Terms
//! - *Execution*: from the region's begin to its end, by the clock of its first thread; ns. Or a window of one: a stretch of
//!   [`WINDOW`] or more, in which so many steps were done.
//! - *Step*: what times are compared by: one whole execution, or in a window one step of the loop's variable that a thread was given,
//!   or one critical section.
//! - *Pair*: a block of executions with fewer threads and one with all. It is won if a step with fewer took at most
//!   [`TOLERANCE`] longer.
//! # Algorithm
//! Pairs are counted as heads of a coin: fewer threads are taken as soon as so many wins of so few pairs would be luck in
//! `LUCK` of cases, left alone if so many losses would be, and left alone after `MOST_PAIRS`.
//! # Properties
//! - **Found**: critical sections that leave nothing to more threads bring one thread. -> test `critical_sections_leave_one`
//! - **Left alone** where threads help. -> test `parallel_regions_keep_all`
//! - **Within one loop** the same, in a tenth of a second. -> test `windows_teach_the_same`
//! - **A wrong model moves nothing**. -> test `what_is_slower_is_not_taken`
//! - **Bounded cost**, whatever executions take. -> test `learning_costs_little`
//! - **Anew with more threads** than it ever had. -> test `what_few_did_says_nothing_of_more`

use colocate_model::threads::sections::{Executed, Sections};

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

/// Length of a window at least, in ns. Chosen: a change of the number of threads, which wakes some, takes a twentieth of it.
pub const WINDOW: u64 = 1_000_000;

/// One execution of a region, or a window of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// How many threads ran it.
    pub threads: u32,
    /// How often a thread requested a chunk or entered a critical section.
    pub calls: u64,
    /// How many steps.
    pub steps: u64,
    /// From begin to end, in ns.
    pub wall: u64,
    /// Time between its begin and its end on each thread, waiting at the end left out, summed; ns.
    pub busy: u64,
    /// Time inside critical sections, summed; ns.
    pub inside: u64,
    /// Time waiting for critical sections, summed; ns.
    pub waited: u64,
}

impl Execution {
    /// Nothing was done.
    pub const NONE: Self =
        Self { threads: 0, calls: 0, steps: 0, wall: 0, busy: 0, inside: 0, waited: 0 };

    /// What of it was done since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        self.each(before, u64::saturating_sub)
    }

    /// Together with `other`.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    fn each(&self, other: &Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            threads: self.threads,
            calls: of(self.calls, other.calls),
            steps: of(self.steps, other.steps),
            wall: of(self.wall, other.wall),
            busy: of(self.busy, other.busy),
            inside: of(self.inside, other.inside),
            waited: of(self.waited, other.waited),
        }
    }
}

/// Sums of executions with one number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// How many executions.
    pub count: u32,
    /// Their [`Execution::steps`].
    pub steps: u64,
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
        self.steps = self.steps.saturating_add(execution.steps);
        self.wall = self.wall.saturating_add(execution.wall);
        self.busy = self.busy.saturating_add(execution.busy);
        self.inside = self.inside.saturating_add(execution.inside);
        self.waited = self.waited.saturating_add(execution.waited);
    }

    /// One of its sums for each step, in ns; `None` without steps.
    #[must_use]
    pub fn mean(&self, sum: u64) -> Option<f64> {
        (self.steps > 0).then(|| float(sum) / float(self.steps))
    }

    /// The mean step with so many threads; `None` if nothing was seen of its work.
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
    /// Fewer do as much.
    Fewer,
    /// Fewer were predicted to do, and took longer.
    Slower,
    /// Fewer were predicted to do, and noise was larger than the difference.
    NotResolved,
    /// Fewer did nothing: the threads that ran waited for those that were held.
    Stuck,
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
    /// Whether this block is with fewer threads.
    fewer: bool,
    left: u32,
    /// This block, and the one before.
    block: Sums,
    before: Sums,
    pairs: u32,
    won: u32,
    /// Executions with fewer threads so far.
    sums: Sums,
}

/// What is known of one region.
#[derive(Clone, Copy, Debug)]
pub struct Learner {
    most: u32,
    /// Whether executions are windows.
    windows: bool,
    stage: Stage,
    warm: bool,
    all: Sums,
    one: Sums,
    total: u64,
    excess: u64,
    /// Time of all executions when it was settled.
    settled_at: Option<u64>,
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
        let (windows, warm, settled_at) = (false, false, None);
        Self { most, windows, stage, warm, all, one, total: 0, excess: 0, settled_at }
    }

    /// An execution lasts for windows: it learns by these from now on, and begins anew.
    pub fn by_windows(&mut self) {
        let (total, excess) = self.cost();
        *self = Self { windows: true, total, excess, ..Self::new(self.most, self.is_learning()) };
    }

    /// Whether it learns by windows.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.windows
    }

    /// Whether it is not settled.
    #[must_use]
    pub fn is_learning(&self) -> bool {
        !matches!(self.stage, Stage::Done { .. })
    }

    /// The threads that ran have waited for those that did not.
    pub fn stuck(&mut self) {
        self.settle(Stage::Done { threads: self.most, learnt: Learnt::Stuck });
    }

    /// Time of the region that no execution or window has counted, in ns.
    pub fn passed(&mut self, time: u64) {
        self.total = self.total.saturating_add(time);
    }

    fn settle(&mut self, stage: Stage) {
        self.stage = stage;
        if !self.is_learning() {
            self.settled_at = Some(self.total);
        }
    }

    /// Time of all executions when it was settled, in ns; `None` where it was not by what it has learnt.
    #[must_use]
    pub fn settled_at(&self) -> Option<u64> {
        self.settled_at
    }

    /// The region may have `most` threads from now on. If these are more than ever, it begins anew, since fewer say
    /// nothing of them; what it has cost still counts.
    pub fn may_have(&mut self, most: u32, may_change: bool) {
        if most > self.most {
            let (windows, (total, excess)) = (self.windows, self.cost());
            *self = Self { windows, total, excess, ..Self::new(most, may_change) };
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
            let default = self.all.mean(self.all.wall).unwrap_or(0.0) * float(execution.steps);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
            let default = default as u64;
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
                    self.settle(self.predicted());
                }
            }
            Stage::Verify(trial)
                if execution.threads == if trial.fewer { trial.threads } else { self.most } =>
            {
                if let Some(done) = trial.executed(execution, self.most) {
                    self.settle(done);
                }
            }
            _ => {}
        }
    }

    /// Whether a block with so many threads, of which this is known, is within the budget. Where nothing is known one thread
    /// is taken to need as long as all together have worked, and more threads to be perfectly parallel, which is the worst.
    fn affords(&self, threads: u32, known: &Sums) -> bool {
        let Some(default) = self.all.mean(self.all.wall) else { return false };
        let parallel = default * f64::from(self.most) / f64::from(threads.max(1));
        let worked =
            self.all.executed(self.most).map_or(f64::INFINITY, |all| all.outside + all.inside);
        let slowest = parallel.min(worked);
        let step = known.mean(known.wall).unwrap_or(slowest).max(default);
        let execution =
            if self.windows { float(self.all.wall) / f64::from(self.all.count) } else { step };
        let block = f64::from(BLOCK) * execution * (1.0 - default / step);
        float(self.excess) + block <= BUDGET * float(self.total)
    }

    /// The prediction from executions with one thread.
    fn predicted(&self) -> Stage {
        let all = Stage::Done { threads: self.most, learnt: Learnt::All };
        let Some(sections) = self.sections() else { return all };
        let mut threads = sections.advise(self.most);
        if threads >= self.most {
            let faster = self.one.mean(self.one.wall) <= self.all.mean(self.all.wall);
            if !faster {
                return all;
            }
            // The model would have all, and one thread has been as fast: it is tried.
            threads = 1;
        }
        let (block, before, sums) = (Sums::default(), Sums::default(), Sums::default());
        let (left, pairs, won) = (BLOCK, 0, 0);
        Stage::Verify(Trial { threads, fewer: true, left, block, before, pairs, won, sums })
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
            self.block.add(execution);
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
        let step = |block: Sums| block.mean(block.wall).unwrap_or(f64::INFINITY);
        self.won += u32::from(step(before) <= step(block) * (1.0 + TOLERANCE));
        self.verdict().map(|learnt| {
            let threads = if learnt == Learnt::Fewer { self.threads } else { most };
            Stage::Done { threads, learnt }
        })
    }

    fn verdict(&self) -> Option<Learnt> {
        match () {
            () if luck(self.won, self.pairs) <= LUCK => Some(Learnt::Fewer),
            () if luck(self.pairs - self.won, self.pairs) <= LUCK => Some(Learnt::Slower),
            () if self.pairs >= MOST_PAIRS => Some(Learnt::NotResolved),
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
                calls: 0,
                steps: 1,
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
            assert_eq!((learner.threads(), learner.learnt()), (1, Learnt::Fewer), "{most}");
        }
    }

    /// 76 % outside, 24 % inside, shared out: at 16 threads nothing is gained over 5.
    #[test]
    fn a_quarter_inside_takes_five() {
        let learner = taught(16, 20_000, |threads| Region(760_000, 240_000, 0).run(threads));
        assert_eq!((learner.threads(), learner.learnt()), (5, Learnt::Fewer));
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
            Execution { wall, busy: wall * u64::from(threads), ..Region(0, 0, 0).run(threads) }
        };
        let learner = taught(8, 20_000, run);
        assert_eq!((learner.threads(), learner.learnt()), (4, Learnt::Fewer));
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
        assert_eq!((learner.threads(), learner.learnt()), (1, Learnt::Fewer));
    }

    /// The critical sections are as long as if one thread were enough, but all threads are twice as fast.
    #[test]
    fn what_is_slower_is_not_taken() {
        let lies = |threads: u32| Execution {
            wall: 2_000_000 / u64::from(threads),
            ..Region(10_000, 1_000_000, 20_000).run(threads)
        };
        let learner = taught(2, 20_000, lies);
        assert_eq!((learner.threads(), learner.learnt()), (2, Learnt::Slower));
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
        assert_eq!((learner.threads(), learner.learnt()), (2, Learnt::NotResolved));
    }

    /// Windows of 1 ms of a loop whose iterations take so long.
    fn taught_by_windows(most: u32, windows: u32, region: Region) -> Learner {
        let mut learner = Learner::new(most, true);
        learner.by_windows();
        for _ in 0..windows {
            let step = region.run(learner.threads());
            let steps = WINDOW / step.wall + 1;
            let of = |time: u64| time * steps;
            learner.executed(&Execution {
                steps,
                wall: of(step.wall),
                busy: of(step.busy),
                inside: of(step.inside),
                waited: of(step.waited),
                ..step
            });
        }
        learner
    }

    /// However many threads there are: a window with one thread takes no longer than one with all.
    #[test]
    fn windows_teach_the_same() {
        for most in [2, 8, 64] {
            let learner = taught_by_windows(most, 100, Region(200, 20_000, 0));
            assert_eq!((learner.settled(), learner.learnt()), (1, Learnt::Fewer), "{most}");
            let settled = learner.settled_at().unwrap();
            assert!(settled < 100 * WINDOW, "{most}: {settled}");
            let learner = taught_by_windows(most, 100, Region(200_000, 100, 0));
            assert_eq!((learner.settled(), learner.learnt()), (most, Learnt::All), "{most}");
            let (total, excess) = learner.cost();
            assert!(excess <= total / 20, "{most}: {excess} of {total}");
        }
        let learner = taught_by_windows(16, 400, Region(76_000, 24_000, 0));
        assert_eq!((learner.settled(), learner.learnt()), (5, Learnt::Fewer));
    }

    /// What is stuck once is left alone.
    #[test]
    fn stuck_threads_are_left_alone() {
        let mut learner = taught_by_windows(8, 100, Region(200, 20_000, 0));
        learner.stuck();
        assert_eq!((learner.threads(), learner.learnt()), (8, Learnt::Stuck));
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
