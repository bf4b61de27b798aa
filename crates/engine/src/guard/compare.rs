//! Comparison of the policy's quanta with the kernel's: pairs of samples, bets on their differences, and the verdict.

use super::bet::{Bet, MOST, Stakes};
use super::sample::UsageSample;
use super::verdict::{Basis, Compared, Finding, Verdict};
use colocate_evidence::JobIdx;
use std::collections::{BTreeMap, VecDeque};

/// Controls that make up the kernel's present progress. Chosen: programs change.
const WINDOW: usize = 4;
/// Comparisons after which bets begin anew, so that old gains do not hide new losses. Chosen.
const MEMORY: u32 = 64;
/// Losses of a single job up to this part are none. Chosen: less is not noticed, and with time the smallest ones would show.
const TOLERATED: f64 = 0.01;
/// Least mean difference that short quanta show. Chosen: half of the largest one that bets count.
const CLEAR: f64 = MOST / 2.0;
/// Number of comparisons from which on a lesser mean is not clear. Chosen: the kernel may go on for a moment as the policy did.
const DOUBTED: u32 = 2;

/// Progress under the policy less progress under the kernel, as a part of the mean of both: from -2 to 2.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Differences {
    /// Of all jobs together; `None` without progress on either side.
    pub all: Option<f64>,
    /// Of each job; none where jobs are measured together only.
    pub each: Vec<(JobIdx, f64)>,
}

impl Differences {
    /// Of all jobs together, by their rates of progress.
    pub fn of_rates(policy: f64, kernel: f64) -> Self {
        Self { all: difference(policy, kernel), each: Vec::new() }
    }

    /// Of each job, and their mean.
    pub fn of_each(policy: &UsageSample, kernel: &UsageSample) -> Self {
        let each: Vec<(JobIdx, f64)> = policy
            .each(kernel)
            .filter_map(|(job, did, by_kernel)| Some((job, difference(did, by_kernel)?)))
            .collect();
        let sum = each.iter().fold(0.0, |sum, (_, x)| sum + x);
        Self { all: (!each.is_empty()).then(|| sum / each.len() as f64), each }
    }
}

fn difference(policy: f64, kernel: f64) -> Option<f64> {
    (policy + kernel > 0.0).then(|| 2.0 * (policy - kernel) / (policy + kernel))
}

/// Bets on differences of one job, or of all.
#[derive(Clone, Copy, Debug)]
struct Bets {
    worse: Bet,
    better: Bet,
    sum: f64,
    count: u32,
}

impl Bets {
    fn new(stakes: Stakes) -> Self {
        let bet = Bet::new(stakes);
        Self { worse: bet, better: bet, sum: 0.0, count: 0 }
    }

    /// Takes in a difference. Losses up to `tolerated` are none.
    fn take(&mut self, x: f64, tolerated: f64) {
        self.worse.take(-x - tolerated);
        self.better.take(x);
        self.sum += x;
        self.count += 1;
    }

    fn mean(&self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

/// Comparison of a policy with the kernel.
#[derive(Clone, Debug)]
pub struct Comparison {
    error: f64,
    stakes: Stakes,
    /// The last controls with these jobs.
    window: VecDeque<UsageSample>,
    /// The pair of samples that is compared next.
    trials: UsageSample,
    controls: UsageSample,
    all: Bets,
    each: BTreeMap<JobIdx, Bets>,
    /// Differences since the last verdict: their number, and their sum.
    late: (u32, f64),
    compared: Compared,
}

impl Comparison {
    /// No comparison yet; a verdict is wrong with a chance of at most `error`.
    pub fn new(error: f64, stakes: Stakes) -> Self {
        Self {
            error,
            stakes,
            window: VecDeque::new(),
            trials: UsageSample::default(),
            controls: UsageSample::default(),
            all: Bets::new(stakes),
            each: BTreeMap::new(),
            late: (0, 0.0),
            compared: Compared::default(),
        }
    }

    /// All comparisons so far, since jobs were last grouped anew.
    pub const fn compared(&self) -> Compared {
        self.compared
    }

    /// The kernel's quanta of late, as one sample.
    pub fn kernel(&self) -> UsageSample {
        let mut kernel = UsageSample::default();
        self.window.iter().for_each(|control| kernel.add(control));
        kernel
    }

    /// Adds a quantum of the policy to the next pair.
    pub fn add_trial(&mut self, sample: &UsageSample) {
        self.trials.add(sample);
    }

    /// Adds a control quantum to the next pair.
    pub fn add_control(&mut self, sample: &UsageSample) {
        self.controls.add(sample);
    }

    /// Adds a control quantum to the kernel's quanta of late.
    pub fn remember(&mut self, control: UsageSample) {
        self.window.push_back(control);
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
    }

    /// Takes the complete pair: samples of the policy and of the kernel.
    pub fn take_pair(&mut self) -> (UsageSample, UsageSample) {
        (std::mem::take(&mut self.trials), std::mem::take(&mut self.controls))
    }

    /// Takes in the differences of one pair.
    pub fn take(&mut self, differences: &Differences) {
        for (job, x) in &differences.each {
            let bets = self.each.entry(*job).or_insert(Bets::new(self.stakes));
            bets.take(*x, TOLERATED);
        }
        if let Some(x) = differences.all {
            self.all.take(x, 0.0);
            self.compared.take(x);
        }
        let (count, sum) = self.late;
        // Without progress on either side nothing is shown.
        self.late = (count + 1, sum + differences.all.unwrap_or(0.0));
    }

    /// The verdict that the bets have led to, if any. `names` are the words for a job.
    pub fn finding(&self, names: impl Fn(JobIdx) -> String) -> Option<Finding> {
        let slowed = self.slowed().map(|(job, bets)| (Verdict::Slows(names(job)), bets));
        let (verdict, bets) = slowed.or_else(|| Some((self.of_all()?, &self.all)))?;
        let Bets { count, .. } = *bets;
        let basis = Basis::Comparisons { mean: bets.mean(), count, error: self.error };
        Some(Finding { verdict, basis })
    }

    /// Whether short quanta show differences like those since the last verdict: a few large ones outweigh some that show nothing.
    pub fn is_clear(&self) -> bool {
        let (count, sum) = self.late;
        count < DOUBTED || sum.abs() >= f64::from(count) * CLEAR
    }

    /// Rounds that a policy gets in a row: as many as the bet on "better" has multiplied its stake. A policy without a gain gets
    /// `n` rounds with a chance of `1/n` at most (Ville).
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    pub fn rounds_earned(&self) -> u32 {
        self.all.better.wealth().round() as u32
    }

    /// Begins all bets anew.
    pub fn restart(&mut self) {
        self.all = Bets::new(self.stakes);
        self.each.clear();
        self.late = (0, 0.0);
        self.take_pair();
    }

    /// Forgets all samples: the jobs are others.
    pub fn forget_samples(&mut self) {
        self.window.clear();
        self.take_pair();
    }

    /// Forgets samples, bets and comparisons: the jobs are grouped anew.
    pub fn forget_all(&mut self) {
        self.forget_samples();
        self.restart();
        self.compared = Compared::default();
    }

    /// A job that the policy slows down.
    fn slowed(&self) -> Option<(JobIdx, &Bets)> {
        // By the union bound, all jobs together keep the chance of error.
        let error = self.error / self.each.len().max(1) as f64;
        let slowed = self.each.iter().find(|(_, bets)| bets.worse.won(error));
        slowed.map(|(job, bets)| (*job, bets))
    }

    /// The verdict on all jobs together.
    fn of_all(&self) -> Option<Verdict> {
        if self.all.worse.won(self.error) {
            Some(Verdict::CostsMore)
        } else if self.all.better.won(self.error) {
            Some(Verdict::Pays)
        } else {
            (self.all.count >= MEMORY).then_some(Verdict::NoDifference)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::sample::tests::sample;

    /// The verdict after so many equal differences of all jobs and of two jobs.
    fn after(count: u32, all: f64, each: [f64; 2]) -> Option<Verdict> {
        let mut comparison = Comparison::new(0.05, Stakes::CAREFUL);
        let each = vec![(JobIdx(0), each[0]), (JobIdx(1), each[1])];
        let differences = Differences { all: Some(all), each };
        (0..count).for_each(|_| comparison.take(&differences));
        assert_eq!(comparison.compared().count, count);
        let finding = comparison.finding(|job| format!("job {}", job.0))?;
        let Basis::Comparisons { count: counted, .. } = finding.basis else { panic!("a budget") };
        assert_eq!(counted, count);
        Some(finding.verdict)
    }

    #[test]
    fn verdicts() {
        assert_eq!(after(20, 0.2, [0.2, 0.2]), Some(Verdict::Pays));
        assert_eq!(after(20, -0.2, [0.0, 0.0]), Some(Verdict::CostsMore));
        assert_eq!(after(20, 0.2, [0.6, -0.2]), Some(Verdict::Slows("job 1".into())));
        assert_eq!(after(2, 0.2, [0.2, 0.2]), None, "too early");
        assert_eq!(after(63, 0.0, [0.0, 0.0]), None);
        assert_eq!(after(64, 0.0, [0.0, 0.0]), Some(Verdict::NoDifference));
    }

    /// A job may lose 1 % for any time.
    #[test]
    fn small_losses_of_a_job_are_tolerated() {
        assert_eq!(after(60, 0.0, [0.01, -0.009]), None);
        assert_eq!(after(60, 0.0, [0.05, -0.05]), Some(Verdict::Slows("job 1".into())));
    }

    /// Their means are -0.05, 0.025, 0.617, 0.338 and 0.09.
    #[test]
    fn clear_differences() {
        let mut comparison = Comparison::new(0.05, Stakes::CAREFUL);
        assert!(comparison.is_clear());
        for (all, is_clear) in
            [(-0.05, true), (0.1, false), (1.8, true), (-0.5, true), (-0.9, false)]
        {
            comparison.take(&Differences { all: Some(all), each: Vec::new() });
            assert_eq!(comparison.is_clear(), is_clear, "{all}");
        }
        comparison.restart();
        comparison.take(&Differences::default());
        assert!(comparison.is_clear(), "one comparison");
        comparison.take(&Differences::default());
        assert!(!comparison.is_clear(), "no progress");
    }

    #[test]
    fn rounds_are_earned() {
        let mut comparison = Comparison::new(0.05, Stakes::CAREFUL);
        assert_eq!(comparison.rounds_earned(), 1);
        (0..5).for_each(|_| comparison.take(&Differences::of_rates(1.1, 1.0)));
        assert!(comparison.rounds_earned() > 1);
        comparison.restart();
        assert_eq!((comparison.rounds_earned(), comparison.compared().count), (1, 5));
        comparison.forget_all();
        assert_eq!(comparison.compared().count, 0);
    }

    #[test]
    fn differences_of_rates() {
        assert_eq!(Differences::of_rates(3.0, 1.0).all, Some(1.0));
        assert_eq!(Differences::of_rates(0.0, 2.0).all, Some(-2.0));
        assert_eq!(Differences::of_rates(0.0, 0.0).all, None);
    }

    /// The last four controls are the kernel's progress.
    #[test]
    fn the_window_is_short() {
        let mut comparison = Comparison::new(0.05, Stakes::CAREFUL);
        for seconds in 1..=5 {
            comparison.remember(sample(seconds, &[]));
        }
        assert_eq!(comparison.kernel().seconds, 14.0);
        comparison.forget_samples();
        assert_eq!(comparison.kernel().seconds, 0.0);
    }
}
