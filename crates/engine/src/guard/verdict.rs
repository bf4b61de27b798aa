//! Verdicts of a guard on its policy, their grounds, and the words for them.

use std::fmt;

/// Verdict of a guard on its policy. Messages, states and reports use these words and no others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// No comparison has decided yet, or the last verdict was so long ago that the policy is tried again.
    #[default]
    Undecided,
    /// Progress is greater under the policy.
    Pays,
    /// As many comparisons as are remembered have shown neither a gain nor a loss.
    NoDifference,
    /// Progress of all jobs together is less under the policy.
    CostsMore,
    /// Progress of these jobs is less under the policy.
    Slows(String),
    /// The policy's quanta have lost more time than they may.
    OverBudget,
}

impl Verdict {
    /// Whether the policy keeps its quanta.
    #[must_use]
    pub const fn keeps(&self) -> bool {
        matches!(self, Self::Pays | Self::NoDifference)
    }

    /// Its name in reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Undecided => "undecided",
            Self::Pays => "pays",
            Self::NoDifference => "no-difference",
            Self::CostsMore => "costs-more",
            Self::Slows(_) => "slows-a-job",
            Self::OverBudget => "over-budget",
        }
    }
}

impl fmt::Display for Verdict {
    /// Rest of a sentence that begins with the policy's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecided => f.write_str("is being tried"),
            Self::Pays => f.write_str("pays"),
            Self::NoDifference => f.write_str("makes no difference that shows"),
            Self::CostsMore => f.write_str("costs more than it gains"),
            Self::Slows(jobs) => write!(f, "slows {jobs} down"),
            Self::OverBudget => f.write_str("has cost more than its budget"),
        }
    }
}

/// All comparisons of a policy's quanta with the kernel's, as sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compared {
    /// Comparisons.
    pub count: u32,
    sum: f64,
    squares: f64,
}

impl Compared {
    /// Takes in the difference of the policy's and the kernel's progress, as a part of their mean: from -2 to 2.
    pub fn take(&mut self, x: f64) {
        self.count += 1;
        self.sum += x;
        self.squares += x * x;
    }

    /// Progress under the policy over progress under the kernel, mean; `None` without a comparison.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.count > 0).then(|| ratio(self.mean()))
    }

    /// Both ends of that ratio's interval, `t` standard errors of the mean away; `None` with fewer than two comparisons.
    #[must_use]
    pub fn ratios_within(&self, t: f64) -> Option<(f64, f64)> {
        let n = f64::from(self.count);
        // Rounding can make the difference of the sums negative.
        let spread = (self.squares - n * self.mean() * self.mean()).max(0.0) / (n - 1.0);
        let reach = t * (spread / n).sqrt();
        (self.count > 1).then(|| (ratio(self.mean() - reach), ratio(self.mean() + reach)))
    }

    fn mean(&self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

/// Ratio of two quantities, by their difference as a part of their mean.
fn ratio(x: f64) -> f64 {
    let x = x.clamp(-MOST, MOST);
    // From x = 2(p - c) / (p + c), solved for p / c.
    (2.0 + x) / (2.0 - x)
}

/// Differences beyond this are ratios beyond 399.
const MOST: f64 = 1.99;

/// Grounds of a verdict. Its display is the end of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// Mean difference of progress in `count` comparisons, and the greatest chance of error.
    Comparisons { mean: f64, count: u32, error: f64 },
    /// Seconds lost of the seconds so far.
    Budget { lost: f64, elapsed: f64 },
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Comparisons { mean, count, error } => write!(
                f,
                "{:+.1} % progress against the kernel alone, {count} comparisons, chance of error at most {:.0} %",
                100.0 * mean,
                100.0 * error
            ),
            Self::Budget { lost, elapsed } => {
                write!(f, "{lost:.2} of {elapsed:.1} s so far; kernel-scheduled for some time")
            }
        }
    }
}

/// A verdict with its grounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub verdict: Verdict,
    pub basis: Basis,
}

/// Evidence that a guard lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingEvidence {
    /// CPU time of a job.
    CpuTime,
    /// Instructions of a job.
    Instructions,
}

impl fmt::Display for MissingEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CpuTime => "CPU time is not known: the guard cannot compare, and the kernel chooses",
            Self::Instructions => {
                "instructions are not counted: the guard sees PUs that are left idle, but not contention"
            }
        })
    }
}

/// Outcome of a guard at the end of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The verdict in force.
    pub verdict: Verdict,
    /// All comparisons.
    pub compared: Compared,
    /// Quanta that were compared with none, as a CPU quota throttled the programs.
    pub throttled: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice as much is two thirds of the mean: 2 over 1. Of 0.6 and 0.8 the mean is 0.7, the deviation 0.1·√2, the standard error
    /// 0.1: with t = 2 from 0.5 to 0.9.
    #[test]
    fn ratios_by_hand() {
        let mut compared = Compared::default();
        assert_eq!((compared.ratio(), compared.ratios_within(2.0)), (None, None));
        compared.take(2.0 / 3.0);
        assert!((compared.ratio().unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(compared.ratios_within(2.0), None, "one says nothing of the spread");
        let mut two = Compared::default();
        [0.6, 0.8].into_iter().for_each(|x| two.take(x));
        let (low, high) = two.ratios_within(2.0).unwrap();
        assert!((low - 2.5 / 1.5).abs() < 1e-9 && (high - 2.9 / 1.1).abs() < 1e-9, "{low} {high}");
    }
}
