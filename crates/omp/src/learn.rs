//! Learns the number of threads of a parallel region, over repeated executions or within a long
//! execution.
//!
//! # Problem
//! Training costs time, since regions run with fewer threads than possible, and a model may be
//! wrong.
//! # Approach
//! First the region runs unchanged. Then a few executions with one thread measure its critical
//! sections ([`colocate_model::threads::sections`]). If fewer threads are predicted to suffice,
//! blocks with fewer and with all threads alternate, and only this comparison decides. All of that
//! may cost [`BUDGET`] of the region's time so far, and is delayed until the budget allows it.
//!
//! A loop that is executed once, and for long, is learnt by windows in place of executions. Windows
//! run with different numbers of threads, so the first iterations are measured and the rest run
//! with the number found.
//! # Terms
//! - *Execution*: from the region's begin to its end, by the clock of its first thread; ns. Or a
//!   window of an execution: a stretch of [`WINDOW`] or more with a known number of steps.
//! - *Step*: unit of work for comparing times: a whole execution; in a window an iteration of the
//!   loop, or a critical section.
//! - *Pair*: a block of executions with fewer threads and a block with all. The pair is won if a
//!   step with fewer threads took at most [`TOLERANCE`] longer.
//! # Algorithm
//! A sign test over pairs: fewer threads are taken as soon as the number of wins would be chance in
//! `LUCK` of cases, left alone as soon as the number of losses would be, and left alone after
//! `MOST_PAIRS`.
//! # Properties
//! - **Found**: critical sections that leave nothing to more threads bring one thread.
//!   -> test `critical_sections_leave_one`
//! - **Left alone** where threads help. -> test `parallel_regions_keep_all`
//! - **Within one loop** the same, in a tenth of a second. -> test `windows_teach_the_same`
//! - **A wrong model moves nothing**. -> test `what_is_slower_is_not_taken`
//! - **Bounded cost**, whatever executions take. -> test `learning_costs_little`
//! - **Anew with more threads** than it ever had. -> test `what_few_did_says_nothing_of_more`

use colocate_model::threads::sections::{Executed, Sections};

/// Share of a region's time that learning may cost. Chosen: the bound on a program's loss.
pub const BUDGET: f64 = 0.05;
/// Relative difference of times that counts as equal.
pub const TOLERANCE: f64 = 0.02;
/// Significance level of the sign test. Chosen below the customary 0.05, since the test is repeated
/// after every pair.
const LUCK: f64 = 0.01;
/// Pairs after which a comparison ends unresolved. Chosen.
const MOST_PAIRS: u32 = 30;
/// Executions with all threads before training. The first execution is not counted: it creates
/// threads and touches pages.
const BASE: u32 = 5;
/// Executions in a block with another number of threads. The first is not counted, since threads
/// and caches change. Chosen.
const BLOCK: u32 = 3;

/// Least length of a window, in ns. Chosen: twenty times a change of the number of threads, which
/// wakes some of them.
pub const WINDOW: u64 = 1_000_000;

/// An execution of a region, or a window of an execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// Number of threads.
    pub threads: u32,
    /// Calls of the runtime for a chunk or a critical section, summed over threads.
    pub calls: u64,
    /// Number of steps.
    pub steps: u64,
    /// Wall time in ns.
    pub wall: u64,
    /// Time between begin and end on each thread without the wait at the end, summed over threads;
    /// ns.
    pub busy: u64,
    /// Time inside critical sections, summed over threads; ns.
    pub inside: u64,
    /// Time waiting for critical sections, summed over threads; ns.
    pub waited: u64,
}

impl Execution {
    /// Empty execution.
    pub const NONE: Self =
        Self { threads: 0, calls: 0, steps: 0, wall: 0, busy: 0, inside: 0, waited: 0 };

    /// Difference since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        self.each(before, u64::saturating_sub)
    }

    /// Sum with `other`.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// The same with `threads` threads, whose times are as long as they can be at most.
    ///
    /// A thread that waits for a device or a critical section is not held, and may wait for the
    /// others through all windows with fewer threads. Its wait is none of theirs.
    #[must_use]
    pub fn of_threads(&self, threads: u32) -> Self {
        let longest = self.wall.saturating_mul(threads.into());
        let work = self.busy.saturating_sub(self.waited).min(longest);
        let waited = self.waited.min(longest - work);
        Self { threads, busy: work + waited, waited, ..*self }
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

/// Sums over executions with the same number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecutionSums {
    /// Number of executions.
    pub count: u32,
    /// Sum of [`Execution::steps`].
    pub steps: u64,
    /// Sum of [`Execution::wall`].
    pub wall: u64,
    /// Sum of [`Execution::busy`].
    pub busy: u64,
    /// Sum of [`Execution::inside`].
    pub inside: u64,
    /// Sum of [`Execution::waited`].
    pub waited: u64,
}

impl ExecutionSums {
    fn add(&mut self, execution: &Execution) {
        self.count = self.count.saturating_add(1);
        self.steps = self.steps.saturating_add(execution.steps);
        self.wall = self.wall.saturating_add(execution.wall);
        self.busy = self.busy.saturating_add(execution.busy);
        self.inside = self.inside.saturating_add(execution.inside);
        self.waited = self.waited.saturating_add(execution.waited);
    }

    /// Time per step of `sum`, in ns; `None` without steps.
    #[must_use]
    pub fn mean(&self, sum: u64) -> Option<f64> {
        (self.steps > 0).then(|| float(sum) / float(self.steps))
    }

    /// Mean step with `threads` threads; `None` without measured work.
    #[must_use]
    pub fn executed(&self, threads: u32) -> Option<Executed> {
        // Clocks are read one after the other, so parts may exceed the whole.
        let outside = self.busy.saturating_sub(self.inside).saturating_sub(self.waited);
        let executed =
            Executed { threads, outside: self.mean(outside)?, inside: self.mean(self.inside)? };
        (executed.outside > 0.0).then_some(executed)
    }
}

fn float(value: u64) -> f64 {
    value as f64
}

/// Result of learning for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// Not settled.
    Learning,
    /// All threads are needed.
    All,
    /// Fewer threads are as fast.
    Fewer,
    /// Fewer threads were predicted to suffice, and were slower.
    Slower,
    /// Fewer threads were predicted to suffice, and noise exceeded the difference.
    NotResolved,
    /// Fewer threads made no progress: the running threads waited for held threads.
    Stuck,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Base,
    Train { left: u32 },
    Verify(Trial),
    Done { threads: u32, learnt: Learnt },
}

/// Comparison of fewer threads with all threads.
#[derive(Clone, Copy, Debug)]
struct Trial {
    threads: u32,
    /// The current block runs with fewer threads.
    fewer: bool,
    left: u32,
    /// Current block; `before` is the previous block.
    block: ExecutionSums,
    before: ExecutionSums,
    pairs: u32,
    won: u32,
    /// All executions with fewer threads.
    sums: ExecutionSums,
}

/// State of learning for a region.
#[derive(Clone, Copy, Debug)]
pub struct Learner {
    /// Largest number of threads.
    pub most: u32,
    /// Executions are windows.
    pub windows: bool,
    stage: Stage,
    warm: bool,
    /// Executions with all threads.
    pub all: ExecutionSums,
    /// Executions with one thread.
    pub one: ExecutionSums,
    total: u64,
    excess: u64,
    /// Total time in ns when settled; `None` if not settled by measurement.
    pub settled_at: Option<u64>,
}

impl Learner {
    /// Learner of a region with at most `most` threads. Without `may_change` it only watches.
    #[must_use]
    pub fn new(most: u32, may_change: bool) -> Self {
        let most = most.max(1);
        // A learner that only watches never settles.
        let learnt = if may_change { Learnt::All } else { Learnt::Learning };
        let done = Stage::Done { threads: most, learnt };
        Self {
            most,
            windows: false,
            stage: if may_change && most > 1 { Stage::Base } else { done },
            warm: false,
            all: ExecutionSums::default(),
            one: ExecutionSums::default(),
            total: 0,
            excess: 0,
            settled_at: None,
        }
    }

    /// Restarts learning by windows, for a region with long executions.
    pub fn by_windows(&mut self) {
        let (total, excess) = self.cost();
        *self = Self { windows: true, total, excess, ..Self::new(self.most, self.is_learning()) };
    }

    /// True until settled.
    #[must_use]
    pub fn is_learning(&self) -> bool {
        !matches!(self.stage, Stage::Done { .. })
    }

    /// Settles on all threads, since running threads have waited for held threads.
    pub fn stuck(&mut self) {
        self.settle(Stage::Done { threads: self.most, learnt: Learnt::Stuck });
    }

    /// Adds time of the region, in ns, that no execution or window has counted.
    pub fn passed(&mut self, time: u64) {
        self.total = self.total.saturating_add(time);
    }

    fn settle(&mut self, stage: Stage) {
        self.stage = stage;
        if !self.is_learning() {
            self.settled_at = Some(self.total);
        }
    }

    /// Raises the largest number of threads to `most`. Learning restarts on a raise, since
    /// measurements with fewer threads do not describe more threads; the cost so far still counts.
    pub fn may_have(&mut self, most: u32, may_change: bool) {
        if most > self.most {
            let (total, excess) = self.cost();
            *self = Self { windows: self.windows, total, excess, ..Self::new(most, may_change) };
        }
    }

    /// Number of threads of the next execution.
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

    /// Settled number of threads; all threads until settled.
    #[must_use]
    pub fn settled(&self) -> u32 {
        match self.stage {
            Stage::Done { threads, .. } => threads,
            _ => self.most,
        }
    }

    /// Adds an execution.
    pub fn executed(&mut self, execution: &Execution) {
        self.total = self.total.saturating_add(execution.wall);
        let was_warm = std::mem::replace(&mut self.warm, true);
        // The runtime may give fewer threads than requested, e.g. under OMP_DYNAMIC.
        if execution.threads != self.threads() || !was_warm {
            return;
        }
        if execution.threads == self.most {
            self.all.add(execution);
        } else if !matches!(self.stage, Stage::Done { .. }) {
            // Without a known mean the whole time counts as excess.
            let default = self.all.mean(self.all.wall).unwrap_or(0.0) * float(execution.steps);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
            let default = default as u64;
            self.excess = self.excess.saturating_add(execution.wall.saturating_sub(default));
        }
        let may_train = self.all.count >= BASE && self.affords(1, &ExecutionSums::default());
        match &mut self.stage {
            Stage::Base if may_train => {
                self.stage = Stage::Train { left: BLOCK };
            }
            Stage::Train { left } => {
                // The first execution of a block is not counted, as for `BLOCK`.
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

    /// True if a block with `threads` threads is within the budget. `known` are earlier executions
    /// with `threads`. Without these the worst is assumed: one thread takes as long as all threads
    /// have worked together, and the region is perfectly parallel.
    fn affords(&self, threads: u32, known: &ExecutionSums) -> bool {
        let Some(default) = self.all.mean(self.all.wall) else { return false };
        let parallel = default * f64::from(self.most) / f64::from(threads.max(1));
        let worked =
            // Unknown work is no bound.
            self.all.executed(self.most).map_or(f64::INFINITY, |all| all.outside + all.inside);
        let slowest = parallel.min(worked);
        let step = known.mean(known.wall).unwrap_or(slowest).max(default);
        let execution =
            if self.windows { float(self.all.wall) / f64::from(self.all.count) } else { step };
        // Only the time beyond that of all threads is a cost.
        let block = f64::from(BLOCK) * execution * (1.0 - default / step);
        float(self.excess) + block <= BUDGET * float(self.total)
    }

    /// Next stage by the model, after executions with one thread.
    fn predicted(&self) -> Stage {
        let all = Stage::Done { threads: self.most, learnt: Learnt::All };
        let Some(sections) = self.sections() else { return all };
        let mut threads = sections.advise(self.most);
        if threads >= self.most {
            let faster = self.one.mean(self.one.wall) <= self.all.mean(self.all.wall);
            if !faster {
                return all;
            }
            // The model needs all threads, but one thread has been as fast: a trial decides.
            threads = 1;
        }
        Stage::Verify(Trial {
            threads,
            fewer: true,
            left: BLOCK,
            block: ExecutionSums::default(),
            before: ExecutionSums::default(),
            pairs: 0,
            won: 0,
            sums: ExecutionSums::default(),
        })
    }

    /// Parts of the region's time; `None` before executions with one thread.
    #[must_use]
    pub fn sections(&self) -> Option<Sections> {
        Sections::of(self.one.executed(1)?, self.all.executed(self.most)?)
    }

    /// Total time of executions, and the part lost to learning; ns.
    #[must_use]
    pub fn cost(&self) -> (u64, u64) {
        (self.total, self.excess)
    }

    /// Result of learning.
    #[must_use]
    pub fn learnt(&self) -> Learnt {
        match self.stage {
            Stage::Done { learnt, .. } => learnt,
            _ => Learnt::Learning,
        }
    }
}

impl Trial {
    /// Adds an execution to the current block; the next stage if the trial has ended.
    fn executed(&mut self, execution: &Execution, most: u32) -> Option<Stage> {
        // The first execution of a block is not counted, as for `BLOCK`.
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
        let block = std::mem::take(&mut self.block);
        let before = std::mem::replace(&mut self.before, block);
        self.fewer = !self.fewer;
        // A pair is whole after the block with all threads.
        if !self.fewer {
            return None;
        }
        self.pairs += 1;
        let [fewer, all] =
            [before, block].map(|block| block.mean(block.wall).unwrap_or(f64::INFINITY));
        self.won += u32::from(fewer <= all * (1.0 + TOLERANCE));
        self.verdict().map(|learnt| {
            let threads = if learnt == Learnt::Fewer { self.threads } else { most };
            Stage::Done { threads, learnt }
        })
    }

    fn verdict(&self) -> Option<Learnt> {
        if luck(self.won, self.pairs) <= LUCK {
            Some(Learnt::Fewer)
        } else if luck(self.pairs - self.won, self.pairs) <= LUCK {
            Some(Learnt::Slower)
        } else {
            (self.pairs >= MOST_PAIRS).then_some(Learnt::NotResolved)
        }
    }
}

/// Probability of at least `heads` heads in `throws` throws of a fair coin.
fn luck(heads: u32, throws: u32) -> f64 {
    let mut ways = 1.0;
    let mut sum = 0.0;
    for shown in 0..=throws {
        if shown >= heads {
            sum += ways;
        }
        // The next binomial coefficient.
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

    #[test]
    fn waits_of_threads_that_are_not_held() {
        // One works for 1,000, one waits for a device: both are busy.
        let device = Execution { threads: 2, wall: 1_000, busy: 2_000, ..Execution::NONE };
        assert_eq!(device.of_threads(1), Execution { threads: 1, busy: 1_000, ..device });
        assert_eq!(device.of_threads(2), device);
        // The other one waits for the section in which the first one works.
        let section = Execution { inside: 900, waited: 1_000, ..device };
        let one = Execution { threads: 1, busy: 1_000, waited: 0, ..section };
        assert_eq!(section.of_threads(1), one);
        // A single one that waits in between.
        let alone = Execution { threads: 1, busy: 1_000, waited: 100, ..section };
        assert_eq!(alone.of_threads(1), alone);
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
            let settled = learner.settled_at.unwrap();
            assert!(settled < 100 * WINDOW, "{most}: {settled}");
            let learner = taught_by_windows(most, 100, Region(200_000, 100, 0));
            assert_eq!((learner.settled(), learner.learnt()), (most, Learnt::All), "{most}");
            let (total, excess) = learner.cost();
            assert!(excess <= total / 20, "{most}: {excess} of {total}");
        }
        let learner = taught_by_windows(16, 400, Region(76_000, 24_000, 0));
        assert_eq!((learner.settled(), learner.learnt()), (5, Learnt::Fewer));
    }

    /// A region without progress under fewer threads is left alone from then on.
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
        assert_eq!((learner.learnt(), learner.all.count), (Learnt::Learning, 999));
    }

    /// With two threads one was enough. With eight that has to be learnt again, and what it has cost is known; four
    /// are no news.
    #[test]
    fn what_few_did_says_nothing_of_more() {
        let sections = |threads: u32| Region(10_000, 1_000_000, 20_000).run(threads);
        let mut learner = taught(2, 20_000, sections);
        let cost = learner.cost();
        learner.may_have(2, true);
        assert_eq!((learner.threads(), learner.most), (1, 2));
        learner.may_have(8, true);
        let now = (learner.threads(), learner.settled(), learner.learnt());
        assert_eq!((now, learner.cost()), ((8, 8, Learnt::Learning), cost));
        learner.executed(&sections(8));
        learner.may_have(4, true);
        learner.executed(&sections(8));
        assert_eq!((learner.most, learner.all.count), (8, 1), "the first does not count");
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
