//! Budget of a guard: seconds that its policy may lose, and the risk of one more quantum.

use super::settings::Guarding;

/// Quanta of gains that may be spent again. Chosen: a round of two.
const BANK: f64 = 2.0;
/// Expected loss of the first quantum, as a part of it. Chosen: few schedulers lose more.
const FIRST_RISK: f64 = 0.2;
/// Weight of the last quantum in the expected loss of the next one.
const RISK_WEIGHT: f64 = 0.25;

/// Limits of a policy's losses. Times are in seconds.
#[derive(Clone, Debug)]
pub struct LossBudget {
    allowed: f64,
    credit: f64,
    /// Length of a whole quantum.
    pub quantum: f64,
    elapsed: f64,
    /// Expected loss of a quantum, as a part of it.
    risk: f64,
}

impl LossBudget {
    /// The budget before the first quantum, of which the length is given.
    pub const fn new(settings: &Guarding, quantum: f64) -> Self {
        let Guarding { allowed, credit, .. } = *settings;
        Self { allowed, credit, quantum, elapsed: 0.0, risk: FIRST_RISK }
    }

    /// Time so far.
    pub const fn elapsed(&self) -> f64 {
        self.elapsed
    }

    /// Gains beyond this are forgotten.
    pub fn bank(&self) -> f64 {
        BANK * self.quantum
    }

    /// Adds time.
    pub fn pass(&mut self, seconds: f64) {
        self.elapsed += seconds;
    }

    /// Learns the part that a quantum of the policy lost.
    pub fn learn(&mut self, lost: f64) {
        self.risk += RISK_WEIGHT * (lost.clamp(-1.0, 1.0) - self.risk);
    }

    /// Seconds by which another quantum of the policy, `next` seconds long, would exceed the budget after so much harm; below
    /// 0 some budget is left.
    pub fn overdrawn(&self, harm: f64, next: f64) -> f64 {
        // An expected gain is not spent in advance.
        let risk = self.risk.max(0.0) * next;
        harm + risk - self.credit * self.quantum - self.allowed * self.elapsed
    }

    /// Quanta of the kernel until the budget allows another quantum of the policy.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    pub fn quanta_overdrawn(&self, harm: f64, next: f64) -> u32 {
        let each = self.allowed * self.quantum;
        // Where nothing is allowed, 0 must not be divided by 0.
        (self.overdrawn(harm, next) / each.max(f64::MIN_POSITIVE)).max(0.0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quanta of 0.1 s: 0.03 s may be lost at once and 0.005 s a second. The first quantum is expected to lose 0.02 s, and the
    /// one after a loss of 60 % (0.2 + 0.25 · 0.4) · 0.1 s = 0.03 s.
    #[test]
    fn by_hand() {
        let mut budget = LossBudget::new(&Guarding::default(), 0.1);
        assert!((budget.overdrawn(0.0, 0.1) + 0.01).abs() < 1e-12);
        budget.pass(2.0);
        budget.learn(0.6);
        assert!((budget.overdrawn(0.06, 0.1) - 0.05).abs() < 1e-12);
        assert!((budget.overdrawn(0.06, 0.05) - 0.035).abs() < 1e-12, "a shorter quantum");
        assert_eq!(budget.quanta_overdrawn(0.0601, 0.1), 100);
        assert_eq!(budget.quanta_overdrawn(0.0, 0.1), 0);
    }

    #[test]
    fn gains_are_no_negative_risk() {
        let mut budget = LossBudget::new(&Guarding::default(), 1.0);
        (0..9).for_each(|_| budget.learn(-5.0));
        assert!((budget.overdrawn(0.3, 1.0)).abs() < 1e-12);
    }
}
